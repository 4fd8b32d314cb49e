"""What chapters ask their readers to predict: each question is answered by the library or a study, on its page once, and its wrong choices teach something."""

import re
import sys
import time
from collections import Counter
from functools import cache

import pytest
from plan import of_chapter

from minirlhf.chapters import chapters
from minirlhf.core import provenance

BOOK = provenance.PACKAGE.parent / "book"
EXT = BOOK / "_ext"
sys.path.insert(0, str(EXT))
try:
    import asking
    import figures
finally:
    sys.path.remove(str(EXT))

PAGES = {c.number: c.page for c in chapters() if c.finished}
each_chapter = pytest.mark.parametrize("number", [of_chapter(number, number, id=f"{number:02}") for number in PAGES])


@cache
def page(number):
    return (BOOK / f"{PAGES[number]}.md").read_text(encoding="utf-8")


@cache
def own(number):
    """A chapter's questions, settled, and how long that took."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXT))
        began = time.process_time()
        settled = {name: ask.settled() for name, ask in asking.questions(f"{number:02}").items()}
        return settled, time.process_time() - began


@cache
def of_figures(number):
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXT))
        placed = re.findall(r"^```\{touch\} (\w+)$", page(number), re.M)
        return {name: figures.load(name).asked() for name in placed}


@each_chapter
def test_a_chapter_asks_five_times_and_each_question_once(number):
    placed = re.findall(r"^`{3,}\{predict\} (\w+)$", page(number), re.M)
    settled, _ = own(number)
    assert sorted(placed) == sorted(settled)
    assert len(settled) + len(of_figures(number)) >= 5
    assert any(asked.typed for asked in settled.values()), "none is a number to type"


@each_chapter
def test_what_is_asked_and_taught_is_plain_words(number):
    """No formula that would stay raw in a form, no field that nobody filled; a question asks, and a lesson is no copy of another or of its choice."""
    for name, asked in (own(number)[0] | of_figures(number)).items():
        told = [lesson for lesson in asked.lessons.values() if lesson]
        assert asked.question.endswith("?"), name
        assert len(told) == (2 if asked.typed else len(asked.lessons) - 1), name
        for text in (asked.question, *asked.lessons, *told):
            assert not re.search(r"[${}\\`*]|_\w|\bnan\b|\binf\b", text), (name, text)
        assert all(10 < len(lesson) < 400 for lesson in told), name
        assert not set(told) & set(asked.lessons), name


@each_chapter
def test_a_page_does_not_wait_for_its_answers(number):
    """They are computed whenever it is built."""
    assert own(number)[1] < 10


@each_chapter
def test_an_answer_near_the_edge_of_what_counts_is_none(number):
    """What is typed and near enough is so in a range that a reader can hit and that leaves out naught and the doubled number."""
    for name, asked in own(number)[0].items():
        if asked.typed is not None and not asked.typed.factor and asked.answer:
            assert asked.typed.within <= 0.5 * abs(asked.answer), name
        if asked.typed is not None and asked.typed.factor:
            assert 1 < asked.typed.within <= 3, name


# Numbers of a lesson that are no mistake's result: what came out, or what a reader may well type.
NO_MISTAKES = {(11, "best_of_coins", "sure"), (16, "eight_tries", "one"), (17, "too_many_lies", "share")}


@each_chapter
def test_a_number_that_a_lesson_explains_is_not_near_enough(number):
    """Whoever typed it is wrong and hears why; a range wide enough for it would call it right."""
    for name, asked in own(number)[0].items():
        if asked.typed is None:
            continue
        fields = set(re.findall(r"\{(\w+)[:}]", asked.typed.low + asked.typed.high))
        for field in fields:
            x, within = asked.found[field], asked.typed.within
            if isinstance(x, str) or (number, name, field) in NO_MISTAKES:
                continue
            if asked.typed.factor:
                assert x * asked.answer <= 0 or max(x / asked.answer, asked.answer / x) > within, (name, field)
            else:
                assert abs(x - asked.answer) > within, (name, field)


@each_chapter
def test_numbers_that_are_set_against_each_other_differ(number):
    for name, asked in (own(number)[0] | of_figures(number)).items():
        for lesson in asked.lessons.values():
            for pair in re.findall(
                r"(−?\d*\.?\d+) in place of (−?\d*\.?\d+)|means are (−?\d*\.\d+) and (−?\d*\.\d+)", lesson
            ):
                one, other = (n for n in pair if n)
                assert one != other, (name, lesson)


def test_questions_are_kept_apart():
    """A browser keeps answers by the question's words."""
    asked = [a.question for number in PAGES for a in (own(number)[0] | of_figures(number)).values()]
    assert [question for question, times in Counter(asked).items() if times > 1] == []


def test_the_place_and_the_length_of_a_choice_do_not_give_it_away():
    """Over the book the right choice is about as often the first, the longest and the shortest as chance would have it."""
    found = [a for number in PAGES for a in (own(number)[0] | of_figures(number)).values() if a.typed is None]
    for pick in (lambda c: c[0], lambda c: c[-1], lambda c: max(c, key=len), lambda c: min(c, key=len)):
        hits = sum(pick(list(a.lessons)) == a.answer for a in found)
        chance = sum(1 / len(a.lessons) for a in found)
        spread = sum((1 - 1 / len(a.lessons)) / len(a.lessons) for a in found) ** 0.5
        assert abs(hits - chance) < 2.5 * spread + 1, (hits, chance, spread)


# -- the machinery -----------------------------------------------------------------------------------------------

CHOICES = {"up": "", "down": "It rises by {x:.2f}."}


def test_the_answer_decides_and_numbers_are_filled_in():
    asked = asking.Ask("Which of {n}?", CHOICES, lambda at: ("up", {"x": at(k=3), "n": -0.5}), "{x:.1f}.").settled(
        lambda k: k / 2
    )
    assert (asked.question, asked.answer, asked.told) == ("Which of −.5?", "up", "1.5.")
    assert asked.lessons == {"up": "", "down": "It rises by 1.50."} and asked.typed is None


@pytest.mark.parametrize(
    ("ask", "error"),
    [
        (
            asking.Ask("?", CHOICES, lambda: ("down", {"x": 1.0})),
            "'down' came out; the choice without a lesson, the right one, is 'up'",
        ),
        (asking.Ask("?", CHOICES, lambda: "sideways"), r"'sideways', is none of the choices \['up', 'down'\]"),
        (asking.Ask("?", {"a": "", "b": ""}, lambda: "a"), "'a' came out; .* is 'a' and 'b'"),
        (asking.Ask("?", {"a": "It.", "b": "It."}, lambda: "a"), "'a' came out; .* is none"),
        (asking.Ask("?", {"a": ""}, lambda: "a"), "expected two to ten"),
        (asking.Ask("?", {"a": "", "b": "no sentence"}, lambda: "a"), "choose 'b' is no sentence: 'no sentence'"),
        (asking.Ask("?", asking.Typed(0.1, "It.", "It."), lambda: "much"), "'much', is no number"),
        (asking.Ask("?", asking.Typed(0.1, "It.", "no"), lambda: 1.0), "choose 'high' is no sentence"),
    ],
)
def test_what_is_not_held_is_refused(ask, error):
    with pytest.raises(ValueError, match=error):
        ask.settled()


@pytest.mark.parametrize(("within", "factor"), [(0.0, False), (-1.0, False), (1.0, True), (0.5, True)])
def test_a_range_without_room_is_refused(within, factor):
    with pytest.raises(ValueError, match="within: expected more than"):
        asking.Typed(within, "It.", "It.", factor=factor)


def test_studies_are_asked_in_pairs():
    """The words are those of the paired comparison, both ways round."""
    assert asking.compared("ch11", "overall_reward_1", "per_prompt_reward_1") == "larger"
    assert asking.compared("ch11", "per_prompt_reward_1", "overall_reward_1") == "smaller"
    assert asking.compared("ch11", "per_prompt_reward_1", "gradient_fast_reward_1") == "alike"
    assert asking.mean("ch11", "overall_reward_1") == pytest.approx(sum(asking.seeds("ch11", "overall_reward_1")) / 10)
