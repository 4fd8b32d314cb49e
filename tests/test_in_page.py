"""Exercises that are answered in a page of the book get the verdicts of ``minirlhf check``."""

import json
import random
import re
from pathlib import Path

import pytest
from browser import Browser

from minirlhf_course.classroom import exercise as sources
from minirlhf_course.classroom import in_page
from minirlhf_course.classroom.exercise import DEFAULT_STUDENT
from minirlhf_course.classroom.grading import run_tests
from minirlhf_course.classroom.runner import Local

pytestmark = pytest.mark.slow

STATIC = Path(__file__).resolve().parents[1] / "book" / "_static"

#: Of each kind: letters, letters of which one earns nothing, true or false, numbers, counts, tests of two answers; the rest is for --all.
SOME = ("01.2", "01.6", "08.5", "09.1", "10.6")


def exercises(numbers):
    return [e for e in sources.load(sources.folder(), list(numbers)) if e.kind in in_page.KINDS]


def tried(exercise, table, rng):
    """Answers as a reader types them: right, one wrong, those of the mutants, at the edge of what is accepted, at random."""
    right = in_page.right_answers(exercise)
    options = {name: answer["options"] for name, answer in table["answers"].items()}
    wrong = [{}]
    for name, value in right.items():
        if options[name]:
            wrong += [{name: x == "True" if isinstance(value, bool) else x} for x in options[name]]
        else:
            step = 1 if isinstance(value, int) else 0.0099 * abs(value)
            wrong += [{name: value + sign * n * step} for sign in (-1, 1) for n in (1, 1.05, 3)]
            wrong += [{name: x} for x in (-value, 2 * value, 100 * value, value / 2, 0.5, rng.uniform(-2, 2))]
    for variant in (*exercise.mutants, *exercise.partials):
        space = {"STUDENT": DEFAULT_STUDENT}
        for code in (exercise.given, exercise.solution, variant.code):
            exec(compile(code, exercise.id, "exec"), space)
        wrong.append({name: value.item() if hasattr(value := space[name], "item") else value for name in right})
    wrong += [{n: rng.choice(o) if len(o) > 2 else rng.uniform(0, 9) for n, o in options.items() if len(o) != 2}] * 2
    return [right | changed for changed in wrong]


def typed(value):
    return "" if value is None else repr(value) if isinstance(value, bool | int | float) else str(value)


def checked(exercise, answers):
    """Points and the tests that pass, by the command's own grader."""
    outcome = run_tests(exercise, Local({**answers, "STUDENT": DEFAULT_STUDENT}, DEFAULT_STUDENT), in_page.SEED)
    return [outcome.points, [r.passed for r in outcome.results], [r.message for r in outcome.results]]


@pytest.fixture(scope="module")
def tables(request):
    found = exercises(f"{n:02d}" for n in range(25)) if request.config.getoption("--all") else exercises(SOME)
    return [(e, table) for e in found if (table := in_page.table(e)) is not None]


@pytest.fixture(scope="module")
def page(tables, tmp_path_factory, system_tool):
    scripts = "".join(f'<script src="{(STATIC / name).as_uri()}"></script>' for name in ("numbers.js", "answer.js"))
    data = (json.dumps(table, ensure_ascii=False).replace("</", "<\\/") for _, table in tables)
    places = "".join(f'<script type="application/json" class="answer-data">{text}</script>' for text in data)
    file = tmp_path_factory.mktemp("answers") / "page.html"
    file.write_text(f'<!doctype html><meta charset="utf-8"><title>answers</title>{scripts}{places}', encoding="utf-8")
    with Browser(system_tool("chromium"), tmp_path_factory.mktemp("profile")) as opened:
        assert opened.open(file.as_uri()).complaints == []
        yield opened


def test_in_page_verdicts_are_those_of_check(tables, page):
    rng, differing, compared = random.Random(5), [], 0
    for number, (exercise, table) in enumerate(tables):
        answers = tried(exercise, table, rng)
        given = json.dumps([{name: typed(value) for name, value in one.items()} for one in answers])
        data = f"JSON.parse(document.querySelectorAll('script.answer-data')[{number}].textContent)"
        judged = page.ask(
            f"{given}.map((one) => {{ const {{points, tests}} = minirlhfJudge({data}, one);"
            " return [points, tests.map((t) => t.passed), tests.map((t) => t.message)]; })"
        )
        for one, (points, passed, messages) in zip(answers, judged, strict=True):
            compared += 1
            right = checked(exercise, one)
            if right[:2] != [points, passed]:
                differing.append((exercise.id, one, right, points, passed, messages))
    assert differing == []
    assert compared > 50 * len(tables) / 2


def test_in_page_data_holds_no_answer_before_it_is_given(tables):
    for exercise, table in tables:
        hidden = json.dumps({name: {**one, "options": []} for name, one in table["answers"].items()})
        for name, value in in_page.right_answers(exercise).items():
            if isinstance(value, float):
                assert f"{value:.3g}" not in re.sub(r'"-?\d+:[0-9a-f]{16}": "[0-9a-f]*"', "", hidden), (
                    exercise.id,
                    name,
                )
        assert not re.search(r"true|false|mistake", hidden)


def test_in_page_form_shows_points_and_keeps_answers(tables, page):
    [(number, exercise)] = [(n, e) for n, (e, _) in enumerate(tables) if e.id == "01.2"]
    form = f"const form = document.querySelectorAll('.answer-form')[{number}]; "
    values = {name: typed(value) for name, value in in_page.right_answers(exercise).items()}
    fill = (
        f"[...form.querySelectorAll('input')].forEach((input, i) => {{ input.value = {list(values.values())}[i]; }}); "
    )
    points = "form.querySelector('.answer-results').dataset.points"
    assert page.ask(f"(() => {{ {form}{fill} form.querySelector('button').click(); return {points}; }})()") == str(
        exercise.points
    )
    kept = json.loads(page.ask("localStorage.getItem('minirlhf-answers')"))
    assert kept == {"01.2": values}
    page.ask("localStorage.clear()")


def test_in_page_letters_that_prove_nothing_stay_on_the_command_line():
    [listed] = exercises(["06.1"])
    assert in_page.table(listed) is None


def test_in_page_cells_meet_the_whole_interval():
    exponent, keys = in_page.cells(0.61, 0.63)
    assert 2.0**exponent <= 0.63 - 0.61 < 2 * 2.0**exponent
    assert keys[0] * 2.0**exponent <= 0.61 and (keys[-1] + 1) * 2.0**exponent > 0.63
