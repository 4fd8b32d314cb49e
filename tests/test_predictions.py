"""What readers are asked to predict: each question has an answer that is computed, stands on its page once, and its form works."""

import re
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache

import pytest
from browser import Browser
from facts import raises
from plan import of_chapter

from minirlhf.core import provenance
from minirlhf.core.errors import ArgumentError
from minirlhf_course.chapters import chapters

BOOK = provenance.ROOT / "book"
EXT = BOOK / "_ext"
sys.path.insert(0, str(EXT))
try:
    import asking
    import figures
    import predictions
finally:
    sys.path.remove(str(EXT))

PAGES = {c.number: c.page for c in chapters() if c.finished}
each_chapter = pytest.mark.parametrize("number", [of_chapter(number, number, id=f"{number:02}") for number in PAGES])


@cache
def page(number):
    return (BOOK / f"{PAGES[number]}.md").read_text(encoding="utf-8")


@cache
def own(number):
    """A chapter's questions with their answers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXT))
        return {name: ask.settled() for name, ask in asking.questions(f"{number:02}").items()}


@cache
def of_figures(number):
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXT))
        placed = re.findall(r"^```\{touch\} (\w+)$", page(number), re.M)
        return {name: figures.load(name).asked() for name in placed}


# -- the questions of the book -----------------------------------------------------------------------------------


@pytest.mark.slow
@each_chapter
def test_predictions_chapter_asks_five_questions_each_once(number):
    placed = re.findall(r"^`{3,}\{predict\} (\w+)$", page(number), re.M)
    assert sorted(placed) == sorted(own(number))
    assert len(own(number)) + len(of_figures(number)) >= 5, f"fewer than five in book/predictions/{number:02}.py"
    assert any(asked.typed for asked in own(number).values()), "none is a number to type"


@each_chapter
def test_predictions_texts_have_no_markup_and_every_wrong_choice_a_lesson(number):
    """A form shows plain text: no formula, no field without its number; a lesson is no copy of another or of its choice."""
    for name, asked in (own(number) | of_figures(number)).items():
        told = [lesson for lesson in asked.lessons.values() if lesson]
        assert len(told) == (2 if asked.typed else len(asked.lessons) - 1), name
        for text in (asked.question, *asked.lessons, *told):
            assert not re.search(r"[${}\\`*]|_\w|\bnan\b|\binf\b", text), (name, text)
        assert not set(told) & set(asked.lessons), name


# Numbers of a lesson that are no mistake's result: what came out, or what a reader may well type.
NO_MISTAKES = {(11, "best_of_coins", "sure"), (16, "eight_tries", "one"), (17, "too_many_lies", "share")}


@each_chapter
def test_predictions_typed_range_excludes_zero_twice_the_answer_and_numbers_of_its_lessons(number):
    """Whoever types a number that a lesson explains is wrong and hears why; a range wide enough for it would call it right."""
    for name, asked in own(number).items():
        if asked.typed is None:
            continue
        within, answer = asked.typed.within, asked.answer
        if asked.typed.factor:
            assert 1 < within <= 3, name
        elif answer:
            assert within <= 0.5 * abs(answer), name
        for field in set(re.findall(r"\{(\w+)[:}]", asked.typed.low + asked.typed.high)):
            x = asked.found[field]
            if isinstance(x, str) or (number, name, field) in NO_MISTAKES:
                continue
            if asked.typed.factor:
                assert x * answer <= 0 or max(x / answer, answer / x) > within, (name, field)
            else:
                assert abs(x - answer) > within, (name, field)


def test_predictions_questions_are_distinct_because_browsers_keep_answers_by_question():
    asked = [a.question for number in PAGES for a in (own(number) | of_figures(number)).values()]
    assert [question for question, times in Counter(asked).items() if times > 1] == []


@pytest.mark.release
def test_predictions_place_and_length_of_choices_do_not_tell_the_answer():
    """Over the book the right choice is about as often the first, the longest and the shortest as chance would have it."""
    found = [a for number in PAGES for a in (own(number) | of_figures(number)).values() if a.typed is None]
    for pick in (lambda c: c[0], lambda c: c[-1], lambda c: max(c, key=len), lambda c: min(c, key=len)):
        hits = sum(pick(list(a.lessons)) == a.answer for a in found)
        chance = sum(1 / len(a.lessons) for a in found)
        spread = sum((1 - 1 / len(a.lessons)) / len(a.lessons) for a in found) ** 0.5
        assert abs(hits - chance) < 2.5 * spread + 1, (hits, chance, spread)


# -- asking ------------------------------------------------------------------------------------------------------

CHOICES = {"up": "", "down": "It rises by {x:.2f}."}


def test_ask_settled_fills_numbers_in():
    asked = asking.Ask("Which of {n}?", CHOICES, lambda at: ("up", {"x": at(k=3), "n": -0.5}), "{x:.1f}.").settled(
        lambda k: k / 2
    )
    assert (asked.question, asked.answer, asked.told) == ("Which of −.5?", "up", "1.5.")
    assert asked.lessons == {"up": "", "down": "It rises by 1.50."} and asked.typed is None


@pytest.mark.parametrize(
    ("choices", "answer", "facts"),
    [
        (CHOICES, "down", {"argument": "answer", "value": "down", "expected": ["up"]}),
        (CHOICES, "sideways", {"argument": "answer", "value": "sideways", "expected": ["up", "down"]}),
        ({"a": "", "b": ""}, "a", {"argument": "answer", "value": "a", "expected": ["a", "b"]}),
        ({"a": "It.", "b": "It."}, "a", {"argument": "answer", "value": "a", "expected": []}),
        ({"a": ""}, "a", {"argument": "choices", "value": ["a"], "expected": "[2, 10]"}),
        ({"a": "", "b": "no stop"}, "a", {"argument": "b", "value": "no stop", "problem": "no sentence"}),
        (asking.Typed(0.1, "It.", "It."), "much", {"argument": "answer", "value": "much", "expected": "float"}),
        (asking.Typed(0.1, "It.", "no"), 1.0, {"argument": "high", "value": "no", "problem": "no sentence"}),
    ],
)
def test_ask_settled_refuses_answers_and_lessons_that_do_not_fit(choices, answer, facts):
    with raises(ArgumentError, **facts):
        asking.Ask("?", choices, lambda: (answer, {"x": 1.0})).settled()


@pytest.mark.parametrize(("within", "factor", "least"), [(0.0, False, 0), (-1.0, False, 0), (1.0, True, 1)])
def test_typed_refuses_a_range_without_room(within, factor, least):
    with raises(ArgumentError, argument="within", value=within, expected=f"({least}, inf)"):
        asking.Typed(within, "It.", "It.", factor=factor)


def test_compared_is_the_paired_comparison_of_a_study():
    """Both ways round."""
    assert asking.compared("ch11", "overall_reward_1", "per_prompt_reward_1") == "larger"
    assert asking.compared("ch11", "per_prompt_reward_1", "overall_reward_1") == "smaller"
    assert asking.compared("ch11", "per_prompt_reward_1", "gradient_fast_reward_1") == "alike"
    assert asking.mean("ch11", "overall_reward_1") == pytest.approx(sum(asking.seeds("ch11", "overall_reward_1")) / 10)


# -- the forms, on a page of their own ---------------------------------------------------------------------------

LOW, HIGH = "It is more.", "It is less."
LAB = {
    "choice": asking.Ask("Which?", {"one": "Not one.", "two": "", "three": "Not three."}, lambda: "two"),
    "nats": asking.Ask("How many nats?", asking.Typed(0.1, LOW, HIGH, "nats"), lambda: 0.693),
    "percent": asking.Ask("What share?", asking.Typed(3.0, LOW, HIGH, "%", ".0f"), lambda: 16.0),
    "size": asking.Ask("How large?", asking.Typed(7.0, LOW, HIGH, "GB", ".0f"), lambda: 68.7),
    "tokens": asking.Ask("How many?", asking.Typed(1.5, LOW, HIGH, "tokens", ",.0f", factor=True), lambda: 105_000),
}
RADIO = ["one", "two", "three"] if next(iter(LAB["choice"].settled().lessons)) == "one" else ["three", "two", "one"]
LETTERS = dict(zip(RADIO, "abc", strict=True))
# What is typed where, and how it is read.
TYPED = [
    ("nats", "right", ["0.7", ".6", " 0,78 ", "0.693 nats", "2/3", "¾", ".7 √nats", "70 %"]),
    ("nats", "low", ["0.59", "0", "-0.7", "−.7", "1/2", "½", "−½", "30 %"]),
    ("nats", "high", ["1½", "3.175"]),
    ("nats", "missing", ["", "much", "1.2.3", "1/0", "1,234", "2 or 3"]),
    ("percent", "right", ["16", "16 %", ".16", "0,16"]),
    ("percent", "low", [".16 %", "1"]),
    ("percent", "high", ["35", "0.5"]),
    ("size", "right", ["69", "62", "75", "68.7 GB"]),
    ("size", "low", ["34", "0", "-69"]),
    ("size", "high", ["90", "138"]),
    ("size", "missing", ["1,234"]),
    ("tokens", "right", ["105000", "105,000", "105 000", "105k", "100 k tokens"]),
    ("tokens", "low", ["10,500", "21k"]),
    ("tokens", "high", ["1,050,000"]),
    ("tokens", "missing", ["1,05,000"]),
]


class Lab:
    """A page with the questions of :data:`LAB`, each with a paragraph in its result."""

    def __init__(self, browser, folder):
        self.browser, self.address = browser, (folder / "lab.html").as_uri()
        body = ""
        for name, ask in LAB.items():
            folded = predictions.result()
            begin, _, end = predictions.form(ask.settled(), folded)
            inside = f'<summary>result</summary><p id="in-{name}">result</p>{folded.children[-1].astext()}'
            body += f'{begin.astext()}<details class="fold">{inside}</details>{end.astext()}'
        scripts = ((BOOK / "_static" / name).as_uri() for name in ("numbers.js", "predict.js"))
        loaded = "".join(f'<script defer src="{script}"></script>' for script in scripts)
        head = f'<meta charset="utf-8"><title>lab</title>{loaded}'
        text = f'<!doctype html><html lang="en"><head>{head}</head><body><article>{body}</article></body></html>'
        (folder / "lab.html").write_text(text, encoding="utf-8")

    def open(self, forget=True):
        heard = self.browser.open(self.address)
        if forget:
            self.browser.ask("localStorage.clear()")
            heard = self.browser.open(self.address)
        assert heard.complaints == []

    def of(self, name, expression):
        """An expression in which ``form`` is the form of a question, and ``fold`` its result."""
        at = list(LAB).index(name)
        form = f"const form = document.querySelectorAll('.predict-form')[{at}], fold = form.closest('.predict').querySelector('details');"
        return self.browser.ask(f"(() => {{ {form} return {expression}; }})()")

    def choose(self, name, choice):
        self.of(name, f"form.querySelector('[value={LETTERS[choice]}]').click()")

    def commit(self, name, typed=None):
        """Give the answer; "right", "low", "high", "wrong" or "missing", by what the form shows."""
        if typed is not None:
            self.of(name, f"form.querySelector('input').value = {typed!r}")
        self.of(name, "form.querySelector('.predict-commit').click()")
        verdict = self.of(name, "form.querySelector('.predict-verdict').dataset.verdict")
        assert self.of(name, "fold.open") == (verdict != "missing")
        if verdict != "wrong" or not LAB[name].settled().typed:
            return verdict
        return {LOW: "low", HIGH: "high"}[self.of(name, "form.querySelector('.predict-lesson').textContent")]

    def tally(self):
        return self.browser.ask("Object.assign({}, document.querySelector('.predict-tally').dataset)")


@pytest.fixture(scope="module")
def lab(tmp_path_factory, system_tool) -> Iterator[Lab]:
    with Browser(system_tool("chromium"), tmp_path_factory.mktemp("profile")) as opened:
        yield Lab(opened, tmp_path_factory.mktemp("lab"))


def counts(predicted, right):
    return {
        "asked": str(len(LAB)),
        "predicted": str(predicted),
        "right": str(right),
        "left": str(len(LAB) - predicted),
    }


@pytest.mark.slow
@pytest.mark.parametrize(("name", "verdict", "given"), TYPED, ids=[f"{name}-{verdict}" for name, verdict, _ in TYPED])
def test_predict_form_reads_typed_numbers(name, verdict, given, lab):
    """Percents, fractions, thousands and units are read as they are meant; who is too low or too high gets that lesson."""
    lab.open()
    for typed in given:
        assert lab.commit(name, typed) == verdict, typed
        if verdict != "missing":
            lab.of(name, "form.querySelector('.predict-again').click()")
    if verdict == "missing":
        assert lab.tally() == counts(0, 0)


@pytest.mark.slow
def test_predict_form_shows_lesson_marks_choices_and_keeps_the_answer(lab):
    """Also after the page is opened again, until the answers are forgotten; a tally counts them and links to each wrong one."""
    lab.open()
    assert lab.tally() == counts(0, 0)
    lab.choose("choice", "one")
    assert lab.commit("choice") == "wrong"
    assert lab.browser.ask("document.activeElement.className") == "predict-verdict"
    for reopened in (False, True):
        if reopened:
            lab.open(forget=False)
        assert lab.of("choice", "form.querySelector('.predict-lesson').textContent") == LAB["choice"].choices["one"]
        marked = (
            "['came-out', 'was-mine'].map((c) => [...form.querySelectorAll('.' + c)].map((e) => e.textContent.trim()))"
        )
        assert lab.of("choice", marked) == [["two"], ["one"]]
        assert lab.of("choice", "fold.open") and lab.tally() == counts(1, 0)
    link = lab.browser.ask("document.querySelector('.predict-tally li a').getAttribute('href').slice(1)")
    assert lab.of("choice", "form.id") == link
    assert lab.commit("nats", "0.7") == "right" and lab.tally() == counts(2, 1)
    lab.browser.ask("document.querySelector('.predict-tally button').click()")
    assert lab.tally() == counts(0, 0) and not lab.of("choice", "fold.open")
    lab.open(forget=False)
    assert lab.tally() == counts(0, 0)


@pytest.mark.slow
def test_predict_form_choosing_is_not_committing(lab):
    """Keys walk over the choices on the way to one of them; only the button, or Enter, gives the answer."""
    lab.open()
    assert lab.commit("choice") == "missing"
    lab.of("choice", "form.querySelector('input').focus()")
    for key, code in (("ArrowDown", 40), ("ArrowUp", 38), ("ArrowDown", 40)):
        for kind in ("keyDown", "keyUp"):
            lab.browser.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)
    assert lab.of("choice", "form.querySelector('input:checked').value") == "b" and not lab.of("choice", "fold.open")
    for kind, text in (("keyDown", "\r"), ("keyUp", "")):
        lab.browser.call("Input.dispatchKeyEvent", type=kind, key="Enter", windowsVirtualKeyCode=13, text=text)
    assert lab.browser.until("document.querySelector('.predict details').open") and lab.tally() == counts(1, 1)


@pytest.mark.slow
def test_predict_form_result_that_was_seen_first_does_not_count(lab):
    lab.open()
    lab.of("choice", "fold.open = true")
    lab.browser.ask("new Promise((done) => setTimeout(done, 50))")  # until the page has heard of it
    lab.choose("choice", "two")
    assert lab.commit("choice") == "right"
    assert lab.of("choice", "form.querySelector('.predict-verdict').dataset.seen") == ""
    assert lab.tally() | {"left": ""} == counts(0, 0) | {"left": ""}


@pytest.mark.slow
def test_predict_form_opens_all_results_for_who_only_reads(lab):
    """On every page until it is switched off; nothing then counts. A link to what is folded away opens that alone."""
    shut, box = (
        "document.querySelectorAll('details.fold:not([open])').length",
        "document.querySelector('.predict-only-reads input')",
    )
    lab.open()
    assert lab.browser.ask(shut) == len(LAB)
    lab.browser.ask(f"{box}.click()")
    assert lab.browser.ask(shut) == 0
    lab.open(forget=False)
    assert lab.browser.ask(shut) == 0
    lab.choose("choice", "two")
    assert lab.commit("choice") == "right" and lab.tally()["predicted"] == "0"
    lab.browser.ask(f"{box}.click()")
    assert lab.browser.ask(shut) == len(LAB) - 1
    lab.open()
    lab.browser.ask("location.hash = 'in-nats'")
    assert lab.browser.until(f"{shut} === {len(LAB) - 1}") and lab.of("nats", "fold.open")
