"""Figures that one can touch: what the browser computes and draws is what Python computes and draws, at settings that nobody chose."""

import functools
import json
import math
import random
import re
import shutil
import sys
import time

import pytest
from browser import Browser
from pages import served
from plan import own_seed

from minirlhf.core import provenance

EXT = provenance.PACKAGE.parent / "book" / "_ext"
sys.path.insert(0, str(EXT))
try:
    import figures
    import touch
finally:
    sys.path.remove(str(EXT))

NAMES = figures.names()
STATES = 24


@functools.cache
def figure(name):
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXT))
        return figures.load(name)


@functools.cache
def data(name):
    return figure(name).data()


@functools.cache
def states(name):
    sources = "".join((figures.FOLDER / f"{name}.{kind}").read_text("utf-8") for kind in ("py", "js"))
    return [figure(name).start, *figure(name).drawn(own_seed(sources), STATES)]


@functools.cache
def wanted(name):
    return [dict(figure(name).oracle(data(name), state)) for state in states(name)]


@pytest.fixture(scope="module")
def browser(tmp_path_factory, system_tool):
    """A page of each figure, and one of all, in a browser."""
    folder = tmp_path_factory.mktemp("figures")
    (folder / "scripts").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXT))
        touch.scripts(folder / "scripts", seed=own_seed("figures"))
    shutil.copy(EXT.parent / "_static" / "book.css", folder)
    for name in NAMES:
        text = "".join(figures.html(figure(name), "scripts"))
        head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{name}</title><link rel="stylesheet" href="book.css">'
        page = f'<!doctype html><html lang="en">{head}<body style="max-width: 850px; font-family: sans-serif">{text}</html>'
        (folder / f"{name}.html").write_text(page, encoding="utf-8")
    with Browser(system_tool("chromium"), tmp_path_factory.mktemp("profile")) as opened, served(folder) as base:
        opened.base = base
        yield opened


def test_there_are_figures():
    assert NAMES


@pytest.mark.parametrize("name", NAMES)
def test_everything_shown_has_a_value_and_everything_computed_is_shown(name):
    for want in wanted(name):
        assert set(want) == figure(name).promised


@pytest.mark.parametrize("name", NAMES)
def test_a_slider_says_what_it_is_set_to(name):
    """No two of its places have the same name, and none is rounded by more than three digits show."""
    for control in figure(name).controls:
        if isinstance(control, figures.Slider):
            assert len(set(control.texts)) == len(control.values) and control.start in control.values
            said = [float(text.replace("−", "-")) for text in control.texts]
            assert said == pytest.approx(list(control.values), rel=5e-3)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_asked_is_answered_by_the_oracle(name):
    """The question and what is told are whole sentences, the numbers are filled in, and the answer is one of the choices."""
    question, answer, told = figure(name).asked()
    assert question.endswith("?") and told.endswith(".") and not set("{}") & set(question + told)
    assert answer in figure(name).ask.choices and len(set(figure(name).ask.choices)) == len(figure(name).ask.choices)


def test_an_answer_that_is_no_choice_is_refused():
    ask = figures.Ask("Which of {n}?", ["a", "b"], lambda at: (at(k=3), {"n": -0.5}), "{n:.2f}.")
    assert ask.settled(lambda k: "b") == ("Which of −.5?", "b", "−.50.")
    with pytest.raises(ValueError, match="'c'"):
        ask.settled(lambda k: "c")


# What a page says of a setting: figure, what is set, what is read there, and the words of a page that say the same.
SAID = [
    ("price_of_kl", {"beta": 1.0}, "kl", ".295", "09-regularisation"),
    ("price_of_kl", {"beta": 1.0}, "worth", ".706", "09-regularisation"),
    ("price_of_kl", {"beta": 0.7648}, "kl", "half a nat on the poem, $\\beta = .7648$", "05-rlhf-problem"),
    ("price_of_kl", {"beta": 0.25}, "worth", "has fallen to .03 at $\\beta = ¼$", "05-rlhf-problem"),
    ("best_of", {"n": 4}, "reward", "at $n = 4$ it earns 1.460", "11-rejection-sampling"),
    ("best_of", {"n": 4}, "worth", ".898 against .714 at $n = 4$", "11-rejection-sampling"),
    ("best_of", {"n": 16}, "reward", "2.012 for $n = 16$", "11-rejection-sampling"),
    ("best_of", {"n": 256}, "reward", "2.699 for $n = 256$", "11-rejection-sampling"),
    ("displacement", {}, "rate_chosen", "−0.043", "14-direct-alignment"),
    ("displacement", {}, "rate_rejected", "−0.143", "14-direct-alignment"),
    ("displacement", {}, "rate_third", "0.187", "14-direct-alignment"),
    ("displacement", {}, "p_third", "After 1,000 steps the policy says \"sure\" with probability {quoted}`14 0.98`", "14-direct-alignment"),
    ("reward_hacking", {"push": 32.0}, "said", "\"fact fact fact fact fact\"", "20-overoptimization"),
]  # fmt: skip
NUMBER = r"(?<![\w.])[−-]?\d*\.\d+"


@pytest.mark.parametrize("name, changes, reading, words, page", SAID)
def test_a_figure_says_what_its_page_says(name, changes, reading, words, page):
    """At the settings of which the text speaks, which can be set, and from those with which the figure starts."""
    assert words in (EXT.parent / f"{page}.md").read_text("utf-8")
    for control in figure(name).controls:
        assert control.name not in changes or changes[control.name] in control.values
    found = figure(name).oracle(data(name), figure(name).start | changes)[reading]
    numbers = [text.replace("−", "-") for text in re.findall(NUMBER, words)]
    if words.startswith("half a nat"):
        assert found == pytest.approx(0.5, abs=5e-4)
    elif numbers:
        assert any(found == pytest.approx(float(n), abs=0.51 * 10 ** -len(n.split(".")[1])) for n in numbers)
    else:
        assert found == words.strip('"')


@pytest.mark.parametrize("name", NAMES)
def test_nothing_leaves_its_axes(name):
    """The axes do not move, so they have to hold every curve at every setting; a hundredth of them may stand over."""
    for state, want in zip(states(name), wanted(name), strict=True):
        for panel in figure(name).panels:
            for mark in panel.marks:
                value = want[mark.series]
                xs, ys = (range(len(value)), value) if mark.kind == "bars" else value[:2]
                assert len(xs) == len(ys)
                for axis, (low, high), values in (("x", panel.xlim, xs), ("y", panel.ylim, ys)):
                    low, high = sorted((low, high))
                    room = 0.01 * (high - low)
                    outside = [v for v in values if not low - room <= v <= high + room]
                    assert not outside, f"{mark.series} at {state}: {outside[:3]} on the {axis} axis, {low} to {high}"


@pytest.mark.parametrize("name", NAMES)
def test_every_control_changes_what_is_shown(name):
    given = figure(name)
    generator = random.Random(name)
    for control in given.controls:
        seen = set()
        for _ in range(8):
            state = {c.name: generator.choice(list(c.values)) for c in given.controls}
            for value in (control.values[0], control.values[-1]):
                seen.add(json.dumps(given.oracle(data(name), state | {control.name: value})))
            if len(seen) > 1:
                break
            seen.clear()
        assert seen, f"{control.name} changes nothing"


@pytest.mark.parametrize("name", NAMES)
def test_the_browser_computes_what_python_does(name, browser):
    assert browser.open(f"{browser.base}{name}.html").complaints == []
    told = json.dumps(list(zip(states(name), wanted(name), strict=True)))
    page = f"""((root) => {{
        const spec = JSON.parse(root.querySelector("script").textContent);
        return {told}.map(([state, want]) => String(touch.apart(touch.compute[{name!r}](spec.data, state), want)));
    }})(document.querySelector(".touch"))"""
    apart = [float(one) for one in browser.ask(page)]
    print(f"{name}: largest difference {max(apart):.1e} at {len(apart)} settings, {figure(name).tolerance:.0e} allowed")
    for state, one in zip(states(name), apart, strict=True):
        assert math.isfinite(one) and one <= figure(name).tolerance, f"{state}: {one}"


def coordinates(paths):
    return [float(n) for path in paths for n in path.translate(str.maketrans("MLVHhvaz", "        ")).split()]


@pytest.mark.parametrize("name", NAMES)
def test_it_is_drawn_as_python_draws_it(name, browser):
    """Shapes and numbers, as it starts and at one other setting, set by the controls as a reader would; and back again."""
    browser.open(f"{browser.base}{name}.html")
    given, root = figure(name), 'document.querySelector(".touch")'
    start = coordinates(browser.ask(f"{root}.touch.shapes()"))
    browser.ask(f"{root}.touch.show()")
    assert coordinates(browser.ask(f"{root}.touch.shapes()")) == pytest.approx(start, abs=0.011)  # two digits are drawn
    for control in given.controls:
        at = f"document.querySelector('[name=\"{control.name}\"]')"
        slider = isinstance(control, figures.Slider)
        value = list(control.values).index(states(name)[1][control.name]) if slider else states(name)[1][control.name]
        browser.ask(f"{at}.value = {json.dumps(str(value))}")
        browser.ask(f"{at}.dispatchEvent(new Event('input'))")
    want = wanted(name)[1]
    drawn = [figures.shape(panel, mark, want[mark.series]) for panel in given.panels for mark in panel.marks]
    assert coordinates(browser.ask(f"{root}.touch.shapes()")) == pytest.approx(coordinates(drawn), abs=0.011)
    for reading in given.readings:
        text = browser.ask(f"document.querySelector('[data-value=\"{reading.name}\"]').textContent")
        assert text == figures._said(reading, want[reading.name])
    browser.ask("document.querySelector('.touch-controls button').click()")
    assert coordinates(browser.ask(f"{root}.touch.shapes()")) == pytest.approx(start, abs=0.011)


@pytest.mark.parametrize("name", NAMES)
def test_the_mark_tells_a_right_figure_from_a_wrong_one(name, browser):
    summary = "document.querySelector('.touch-mark summary').textContent"
    browser.open(f"{browser.base}{name}.html")
    browser.ask("document.querySelector('.touch-mark').open = true")
    assert browser.until(f"/Python at/.test({summary}) && {summary}").startswith("✓ held against Python at 13 settings")
    browser.open(f"{browser.base}{name}.html")
    browser.ask(
        f"""(() => {{
        const right = touch.compute[{name!r}];
        const last = (v) => Array.isArray(v) ? [...v.slice(0, -1), last(v.at(-1))] : typeof v === "number" ? v + 1e-6 * Math.max(1, Math.abs(v)) : v;
        touch.compute[{name!r}] = (data, state) => {{
            const found = right(data, state), key = Object.keys(found)[0];
            return {{ ...found, [key]: last(found[key]) }};
        }};
        document.querySelector('.touch-mark').open = true; }})()"""
    )
    assert browser.until(f"/Python at/.test({summary}) && {summary}").startswith("✗")


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", NAMES)
def test_no_word_is_cut_or_runs_into_another(name, width, browser):
    """Of the axes and titles, at the width of a column and of a phone."""
    browser.resize(width, 900)
    browser.open(f"{browser.base}{name}.html")
    found = browser.ask("""[...document.querySelectorAll("svg.touch-panel")].flatMap((panel) => {
      const frame = panel.getBoundingClientRect(), texts = [...panel.querySelectorAll("text")].map((e) => [e.textContent, e.getBoundingClientRect()]);
      const cut = texts.filter(([, r]) => r.left < frame.left - 1.5 || r.right > frame.right + 1.5 || r.bottom > frame.bottom + 0.5).map(([text]) => `cut: ${text}`);
      const apart = (a, b) => a.right <= b.left || b.right <= a.left || a.bottom <= b.top + 3 || b.bottom <= a.top + 3;
      return [...cut, ...texts.flatMap(([text, a], i) => texts.slice(i + 1).filter(([, b]) => !apart(a, b)).map(([other]) => `${text} runs into ${other}`))];
    })""")
    browser.resize(1280, 900)
    assert found == []


@pytest.mark.parametrize("name", NAMES)
def test_every_control_is_named_and_reached_by_keys(name, browser):
    browser.open(f"{browser.base}{name}.html")
    unnamed = "[...document.querySelectorAll('.touch-controls input, .touch-controls select')].filter(e => !e.labels.length || e.tabIndex < 0).length"
    assert browser.ask(unnamed) == 0
    first = figure(name).controls[0]
    if isinstance(first, figures.Slider):
        browser.ask(f"document.querySelector('[name=\"{first.name}\"]').focus()")
        before = browser.ask(f"document.querySelector('[name=\"{first.name}\"]').getAttribute('aria-valuetext')")
        key = "ArrowLeft" if first.start == first.values[-1] else "ArrowRight"
        for kind in ("keyDown", "keyUp"):
            code = {"ArrowLeft": 37, "ArrowRight": 39}[key]
            browser.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)
        after = browser.ask(f"document.querySelector('[name=\"{first.name}\"]').getAttribute('aria-valuetext')")
        assert after != before


@pytest.mark.parametrize("name", NAMES)
def test_a_figure_answers_at_once(name, browser):
    """A hand on a slider waits a fifth of a second at most, on a machine that does nothing else; here thrice that is allowed."""
    browser.open(f"{browser.base}{name}.html")
    start = time.perf_counter()
    browser.ask('document.querySelector(".touch").touch.show()')
    assert time.perf_counter() - start < 0.6


def test_a_figure_that_is_not_there_is_named(monkeypatch):
    monkeypatch.syspath_prepend(str(EXT))
    with pytest.raises(ValueError, match=r"there is no figure 'best_of_m' in book/figures; there are .*best_of"):
        figures.load("best_of_m")


@pytest.mark.parametrize(
    "low, high, log, want",
    [
        (0, 1, False, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (0, 7, False, [0, 2, 4, 6]),
        (1, 100, True, [1, 2, 5, 10, 20, 50, 100]),
        (-1, 1, False, [-1, -0.5, 0, 0.5, 1]),
    ],
)
def test_ticks_are_round(low, high, log, want):
    assert figures.ticks(low, high, log) == pytest.approx(want)
