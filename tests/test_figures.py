"""Figures that one can touch: what the browser computes and draws is what Python computes and draws, at settings that nobody chose.

At a few settings of each in every run, at many before a release (``--all``).
"""

import functools
import itertools
import json
import math
import random
import re
import shutil
import sys

import numpy as np
import pytest
from browser import Browser
from facts import raises
from pages import served
from plan import own_seed

from minirlhf.core import provenance
from minirlhf.core.errors import ArgumentError

EXT = provenance.ROOT / "book" / "_ext"
sys.path.insert(0, str(EXT))
try:
    import figures
    import touch
finally:
    sys.path.remove(str(EXT))

NAMES = figures.names()
FEW, MANY = 3, 24  # settings besides the one with which a figure starts
GREY = 5  # what belongs to no line
each_figure = pytest.mark.parametrize("name", NAMES)
few_and_many = pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.release)])


@functools.cache
def figure(name):
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXT))
        return figures.load(name)


@functools.cache
def data(name):
    return figure(name).data()


@functools.cache
def states(name, count=FEW):
    return [figure(name).start, *figure(name).drawn(own_seed("figure", name), count)]


@functools.cache
def corners(name, count=FEW):
    """The settings in which every control stands at one of its ends, or a sample of them."""
    ends = [[(c.name, v) for v in (c.values[0], c.values[-1])] for c in figure(name).controls]
    every = [dict(state) for state in itertools.product(*ends)]
    return every if len(every) <= count + 8 else random.Random(name).sample(every, count + 8)


@functools.cache
def wanted(name, count=FEW):
    return [dict(figure(name).oracle(data(name), state)) for state in states(name, count)]


@pytest.fixture(scope="module")
def browser(tmp_path_factory, system_tool):
    """A page of each figure, in a browser; its proof holds the figure at a few settings."""
    folder = tmp_path_factory.mktemp("figures")
    (folder / "scripts").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXT))
        patch.setattr(figures, "proof", functools.partial(figures.proof, count=FEW))
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


@each_figure
def test_figure_computes_what_it_shows_and_nothing_else(name):
    for want in wanted(name):
        assert set(want) == figure(name).promised


@each_figure
def test_figure_slider_texts_are_distinct_and_exact(name):
    """No two of its places have the same name, and none is rounded by more than three digits show."""
    for control in figure(name).controls:
        if isinstance(control, figures.Slider):
            assert len(set(control.texts)) == len(control.values) and control.start in control.values
            said = [float(text.replace("−", "-")) for text in control.texts]
            assert said == pytest.approx(list(control.values), rel=5e-3)


@pytest.mark.slow
@each_figure
def test_figure_question_is_answered_by_the_oracle(name):
    """The numbers are filled in, the answer is one of the choices, and the setting that was asked about can be set."""
    given, asked = figure(name), figure(name).asked()
    assert not re.match(r"\d+\.\s", asked.told), "Markdown makes a list of it"
    assert not asked.lessons[asked.answer]
    for text in (asked.question, asked.told, figures.prose(given.alt, asked.found)):
        assert not re.search(r"\bnan\b|\binf\b|[{}]", text), text
    values = {c.name: list(c.values) for c in given.controls}
    assert all(value in values[control] for control, value in given.ask.shows.items())


@each_figure
def test_figure_names_of_controls_readings_and_lines_are_distinct(name):
    given = figure(name)
    panels = [[m.label for m in panel.marks if m.label] for panel in given.panels]
    for words in ([c.label for c in given.controls], [r.label for r in given.readings], *panels):
        assert len(set(words)) == len(words), words


@each_figure
def test_figure_legend_has_the_sign_of_each_line(name):
    for panel in figure(name).panels:
        signs = re.findall(r'<i class="([^"]*)"', figures._legend(panel))
        assert signs == [m.classes for m in panel.marks if m.label]


@pytest.mark.slow
@few_and_many
@each_figure
def test_figure_points_lie_on_the_line_of_their_colour(name, count):
    """Where a point has no name of its own it marks a place on a line, and its colour says on which."""
    for state, want in zip(states(name, count), wanted(name, count), strict=True):
        for panel in figure(name).panels:
            lines = [m for m in panel.marks if m.kind == "line"]
            room = 0.02 * abs(panel.ylim[1] - panel.ylim[0])
            for mark in (m for m in panel.marks if m.kind == "points" and not m.label and m.colour != GREY):
                own = [zip(*want[m.series][:2], strict=True) for m in lines if m.colour == mark.colour]
                if not own:
                    continue
                curves = [list(zip(*sorted(line), strict=True)) for line in own]
                for x, y in zip(*want[mark.series][:2], strict=True):
                    assert any(abs(np.interp(x, *curve) - y) < room for curve in curves), (state, mark.series, x, y)


@pytest.mark.parametrize(("series", "metric"), [("some", "pass@k"), ("every", "pass^k"), ("vote", "maj@k")])
def test_figure_many_tries_names_its_metrics(series, metric):
    """Python and the browser share a label, so that nothing else sees a wrong one."""
    given = figure("many_tries")
    named = {m.series: m.label for panel in given.panels for m in panel.marks} | {
        r.name: r.label for r in given.readings
    }
    labels = [named[name] for name in (series, f"{series}_curve") if named.get(name)]
    assert labels and all(metric in label for label in labels)


# What is told after the answer can be read off the figure where it then goes: figure, reading, field of what is told.
TOLD = [
    ("gae_lambda", "third", "end"),
    ("price_of_kl", "kl", "half"),
    ("best_of", "gap", "gap"),
    ("kl_estimators", "k1_jerk_here", "jerk"),
    ("difficulty", "dr_here", "dr_two"),
    ("reward_hacking", "worth", "end"),
    ("clip_gates", "cispo_here", "wide"),
    ("hidden_author", "posterior", "posterior"),
]


@pytest.mark.slow
@pytest.mark.parametrize("name, reading, field", TOLD)
def test_figure_goes_where_its_answer_can_be_read(name, reading, field):
    given = figure(name)
    found = given.oracle(data(name), given.start | dict(given.ask.shows))
    assert found[reading] == pytest.approx(given.asked().found[field], abs=2e-3)


@each_figure
def test_figure_proof_draws_different_settings(name):
    most = math.prod(len(c.values) for c in figure(name).controls)
    drawn = [figure(name).start, *figure(name).drawn(1, 12)]
    assert len(drawn) == 13 and len({json.dumps(state) for state in drawn}) >= min(8, most)


def test_figures_said_has_no_sign_before_zero():
    said = [figures._said(figures.Reading("x", "", 3), x) for x in (-1e-6, -0.2, 0.0005)]
    assert said == ["0.000", "−0.200", "0.001"]
    assert figures._said(figures.Reading("x", "", 1), 0.25) == "0.3"


# Numbers of pages that a figure gives: figure, what is set, what is read there, the number, the page.
PRINTED = [
    ("price_of_kl", {"beta": 1.0}, "kl", ".295", "09-regularisation"),
    ("price_of_kl", {"beta": 1.0}, "worth", ".706", "09-regularisation"),
    ("price_of_kl", {"beta": 0.25}, "worth", ".03", "05-rlhf-problem"),
    ("best_of", {"n": 4}, "reward", "1.460", "11-rejection-sampling"),
    ("best_of", {"n": 4}, "worth", ".898", "11-rejection-sampling"),
    ("best_of", {"n": 16}, "reward", "2.012", "11-rejection-sampling"),
    ("best_of", {"n": 256}, "reward", "2.699", "11-rejection-sampling"),
    ("displacement", {}, "rate_chosen", "−0.043", "14-direct-alignment"),
    ("displacement", {}, "rate_rejected", "−0.143", "14-direct-alignment"),
    ("displacement", {}, "rate_third", "0.187", "14-direct-alignment"),
    ("displacement", {}, "p_third", "0.98", "14-direct-alignment"),
    ("hidden_author", {"prior": 0.2}, "surprise", ".722", "23-misalignment"),
    ("hidden_author", {"prior": 0.99}, "surprise", ".0098", "23-misalignment"),
    ("stop_or_hide", {"fine": 1.0}, "silent", ".789", "24-oversight"),
]


@pytest.mark.parametrize(("name", "changes", "reading", "number", "page"), PRINTED)
def test_figure_gives_the_number_that_its_page_prints(name, changes, reading, number, page):
    """At a setting that can be set."""
    assert re.search(rf"(?<![\d.]){re.escape(number)}(?!\d)", (EXT.parent / f"{page}.md").read_text("utf-8"))
    for control in figure(name).controls:
        assert control.name not in changes or changes[control.name] in control.values
    found = figure(name).oracle(data(name), figure(name).start | changes)[reading]
    digits = len(number.split(".")[1])
    assert found == pytest.approx(float(number.replace("−", "-")), abs=0.51 * 10**-digits)


@pytest.mark.slow
@few_and_many
@each_figure
def test_figure_axes_hold_every_curve(name, count):
    """They do not move, so they have to at every setting; a hundredth of them may stand over."""
    ends = [figure(name).oracle(data(name), state) for state in corners(name, count)]
    tried = [*states(name, count), *corners(name, count)]
    for state, want in zip(tried, [*wanted(name, count), *ends], strict=True):
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


@pytest.mark.slow
@each_figure
def test_figure_controls_change_what_is_shown(name):
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


@pytest.mark.slow
@few_and_many
@each_figure
def test_figure_in_the_browser_computes_what_python_does(name, count, browser):
    assert browser.open(f"{browser.base}{name}.html").complaints == []
    told = json.dumps(list(zip(states(name, count), wanted(name, count), strict=True)))
    page = f"""((root) => {{
        const spec = JSON.parse(root.querySelector("script").textContent);
        return {told}.map(([state, want]) => String(touch.apart(touch.compute[{name!r}](spec.data, state), want)));
    }})(document.querySelector(".touch"))"""
    apart = [float(one) for one in browser.ask(page)]
    print(f"{name}: largest difference {max(apart):.1e} at {len(apart)} settings, {figure(name).tolerance:.0e} allowed")
    for state, one in zip(states(name, count), apart, strict=True):
        assert math.isfinite(one) and one <= figure(name).tolerance, f"{state}: {one}"


def drawing(paths):
    """The letters of all paths and the numbers behind them."""
    letters = [re.sub(r"[-.\d\s]+", " ", path) for path in paths]
    return letters, [float(n) for path in paths for n in re.sub("[A-Za-z]", " ", path).split()]


def same(found, want):
    """Are two drawings the same? Two digits of a number are drawn."""
    assert drawing(found)[0] == drawing(want)[0]
    assert drawing(found)[1] == pytest.approx(drawing(want)[1], abs=0.011)


@pytest.mark.slow
@each_figure
def test_figure_in_the_browser_is_drawn_as_python_draws_it(name, browser):
    """Shapes and numbers, as it starts and at one other setting, set by the controls as a reader would; and back again."""
    browser.open(f"{browser.base}{name}.html")
    given, root = figure(name), 'document.querySelector(".touch")'
    alt = "document.querySelector('.touch-panels').getAttribute('aria-label')"
    start, described = browser.ask(f"{root}.touch.shapes()"), browser.ask(alt)
    browser.ask(f"{root}.touch.show()")
    same(browser.ask(f"{root}.touch.shapes()"), start)
    for control in given.controls:
        at = f"document.querySelector('[name=\"{control.name}\"]')"
        slider = isinstance(control, figures.Slider)
        value = list(control.values).index(states(name)[1][control.name]) if slider else states(name)[1][control.name]
        browser.ask(f"{at}.value = {json.dumps(str(value))}")
        browser.ask(f"{at}.dispatchEvent(new Event('input'))")
        if slider:
            assert browser.ask(f"{at}.parentElement.querySelector('output').textContent") == control.texts[value]
            assert browser.ask(f"{at}.getAttribute('aria-valuetext')") == control.texts[value]
    want = wanted(name)[1]
    drawn = [figures.shape(panel, mark, want[mark.series]) for panel in given.panels for mark in panel.marks]
    same(browser.ask(f"{root}.touch.shapes()"), drawn)
    for reading in given.readings:
        text = browser.ask(f"document.querySelector('[data-value=\"{reading.name}\"]').textContent")
        assert text == figures._said(reading, want[reading.name])
    assert (browser.ask(alt) != described) == (states(name)[1] != given.start)
    browser.ask("document.querySelector('.touch-controls button').click()")
    same(browser.ask(f"{root}.touch.shapes()"), start)
    assert browser.ask(alt) == described


def test_same_tells_drawings_of_other_strokes_apart():
    for other in ("M1 2M3 4", "M1 2L3 5", "M1 2L3"):
        with pytest.raises(AssertionError):
            same(["M1 2L3 4"], [other])
    same(["M1 2L3 4"], ["M1.01 2L3 4"])


@each_figure
def test_figure_numbers_at_the_axes_stand_where_they_say(name):
    """Read off the drawn panel: each number of an axis lies at its place between the axis' ends."""
    for panel in figure(name).panels:
        drawn = figures.svg(panel, wanted(name)[0])
        number = r"−?[\d.]+(?:e[-+−]?\d+)?"
        across = re.findall(rf'text-anchor="middle" x="([\d.]+)" y="[\d.]+">({number})<', drawn)
        up = re.findall(rf'text-anchor="end" x="[\d.]+" y="([\d.]+)">({number})<', drawn)
        assert len(up) >= 3 and (panel.names or len(across) >= 3)
        ticks = [float(x) for x in re.findall(rf'touch-axis" d="M([\d.]+) {figures.BOTTOM}v4"', drawn)]
        words = [name for name in panel.names or () if name]
        if words:
            places = [
                figures.LEFT + (figures.RIGHT - figures.LEFT) * figures._place(k, *panel.xlim, False)
                for k, name in enumerate(panel.names)
                if name
            ]
            assert ticks == pytest.approx(places, abs=0.06)
            assert [float(x) for x in re.findall(r'text-anchor="middle" x="([\d.]+)" y="[\d.]+">', drawn)][
                : len(words)
            ] == pytest.approx(places, abs=0.06)
        for axis, found in (("x", [] if panel.names else across), ("y", [(float(y) - 4, text) for y, text in up])):
            low, high = panel.xlim if axis == "x" else panel.ylim
            scale = math.log if axis in panel.log else float
            if axis == "y":
                grid = re.findall(r'touch-grid" d="M[\d.]+ ([\d.]+)H', drawn)
                assert [float(at) for at in grid] == pytest.approx([at for at, _ in found], abs=0.06)
            for at, text in found:
                share = (scale(float(text.replace("−", "-"))) - scale(low)) / (scale(high) - scale(low))
                begin, end = (figures.LEFT, figures.RIGHT) if axis == "x" else (figures.BOTTOM, figures.TOP)
                assert float(at) == pytest.approx(begin + share * (end - begin), abs=0.06), (panel.title, axis, text)


@each_figure
def test_figure_texts_type_no_number_but_settings(name):
    """In what is told and in the words for those who do not see it: what the figure finds is computed, so it comes from a field."""
    given = figure(name)
    settings = {format(value, "g") for c in given.controls if isinstance(c, figures.Slider) for value in c.values}
    told = [given.alt, given.ask.question, given.ask.told, *given.ask.choices.values()]
    typed = {number for text in told for number in re.findall(r"(?<![\w{:.])−?\d*\.\d+", text)}
    assert {number for number in typed if format(abs(float(number.replace("−", "-"))), "g") not in settings} == set()


@pytest.mark.slow
def test_touch_apart_is_infinite_for_what_is_no_number(browser):
    browser.open(f"{browser.base}{NAMES[0]}.html")
    apart = "touch.apart({{x: {}}}, {{x: {}}})"
    for found, want in (
        ("NaN", "1"),
        ("1", "NaN"),
        ("NaN", "NaN"),
        ("[1, 2]", "[1]"),
        ("'1'", "1"),
        ("undefined", "1"),
    ):
        assert browser.ask(f"{apart.format(found, want)} === Infinity"), (found, want)
    assert browser.ask(apart.format("[1, 2]", "[1, 2.5]")) == 0.2


@pytest.mark.slow
@each_figure
def test_figure_shows_what_a_browser_has_kept(name, browser):
    """A control that stands elsewhere when the script begins, as after a return to the page, is what is drawn."""
    given = figure(name)
    [first] = [c for c in given.controls if isinstance(c, figures.Slider)][:1]
    at = 0 if first.start != first.values[0] else len(first.values) - 1
    keep = f"document.addEventListener('DOMContentLoaded', () => {{ document.querySelector('[name=\"{first.name}\"]').value = {at}; }}, true)"
    script = browser.call("Page.addScriptToEvaluateOnNewDocument", source=keep)["identifier"]
    browser.open(f"{browser.base}{name}.html")
    browser.call("Page.removeScriptToEvaluateOnNewDocument", identifier=script)
    want = given.oracle(data(name), given.start | {first.name: first.values[at]})
    drawn = [figures.shape(panel, mark, want[mark.series]) for panel in given.panels for mark in panel.marks]
    same(browser.ask('document.querySelector(".touch").touch.shapes()'), drawn)
    said = f"document.querySelector('[name=\"{first.name}\"]').parentElement.querySelector('output').textContent"
    assert browser.ask(said) == first.texts[at]


@pytest.mark.slow
@each_figure
def test_figure_mark_tells_a_right_figure_from_a_wrong_one(name, browser):
    """It counts the settings; where its proof cannot be loaded it says something, and may be opened again."""
    mark = "document.querySelector('.touch-mark')"
    judged = f"['passed', 'failed'].find((one) => {mark}.classList.contains(one))"
    browser.open(f"{browser.base}{name}.html")
    browser.ask(f"{mark}.open = true")
    assert browser.until(judged) == "passed"
    assert browser.ask(f"Number({mark}.querySelector('summary').textContent.match(/\\d+/)[0])") == FEW + 1
    browser.open(f"{browser.base}{name}.html")
    browser.ask(
        f"""(() => {{
        const right = touch.compute[{name!r}];
        const last = (v) => Array.isArray(v) ? [...v.slice(0, -1), last(v.at(-1))] : typeof v === "number" ? v + 1e-6 * Math.max(1, Math.abs(v)) : v;
        touch.compute[{name!r}] = (data, state) => {{
            const found = right(data, state), key = Object.keys(found)[0];
            return {{ ...found, [key]: last(found[key]) }};
        }};
        {mark}.open = true; }})()"""
    )
    assert browser.until(judged) == "failed"
    if name == NAMES[0]:
        browser.open(f"{browser.base}{name}.html")
        browser.ask(f"document.querySelector('.touch').dataset.folder = 'nowhere'; {mark}.open = true")
        assert browser.until(f"{mark}.querySelector('p').textContent")
        assert browser.ask(f"{mark}.dataset.asked === undefined && !({judged})")


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 390])
@each_figure
def test_figure_words_are_not_cut_and_do_not_overlap(name, width, browser):
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


@pytest.mark.slow
@each_figure
def test_figure_controls_are_named_and_reached_by_keys(name, browser):
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


# How eyes without one kind of cone see linear red, green and blue: Machado, Oliveira and Fernandes (2009), severity 1.
EYES = {
    "all cones": np.eye(3),
    "no red cones": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "no green cones": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
}


def linear(colour):
    value = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def lab(light):
    """CIE L*a*b* of linear sRGB."""
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    x, y, z = to_xyz @ np.clip(light, 0, 1) / [0.9505, 1, 1.089]
    f = [np.cbrt(t) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x, y, z)]
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("ground", ["#ffffff", "#121212"], ids=["light", "dark"])
def test_figure_colours_can_be_told_apart_by_all_eyes(ground):
    """And stand out from the page: three to one."""
    css = (EXT.parent / "_static" / "book.css").read_text("utf-8")
    dark, light = (
        re.findall(r"--c\d: (#\w{6})", rule)
        for rule in (re.findall(r'"dark"\] \.touch \{(.*?)\}', css)[0], css.split(".touch {")[1])
    )
    palette = light[:6] if ground == "#ffffff" else dark
    assert len(palette) == 6
    for colour in palette:
        a, b = sorted(float(linear(c) @ [0.2126, 0.7152, 0.0722]) + 0.05 for c in (colour, ground))
        assert b / a >= 3, colour
    for eyes, matrix in EYES.items():
        seen = {colour: lab(np.array(matrix) @ linear(colour)) for colour in palette}
        for one, other in itertools.combinations(palette, 2):
            assert np.linalg.norm(seen[one] - seen[other]) >= 15, (eyes, one, other)


def test_figures_load_names_an_unknown_figure():
    with raises(ArgumentError, argument="figure", value="best_of_m", expected=NAMES):
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
def test_figures_ticks_are_round(low, high, log, want):
    assert figures.ticks(low, high, log) == pytest.approx(want)
