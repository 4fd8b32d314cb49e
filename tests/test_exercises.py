"""Every exercise proves its own grader: stub, solution, mutants, partial credit, and a release without a solution."""

import os

import pytest
from plan import of_chapter

from minirlhf import chapters
from minirlhf.classroom import exercise as sources
from minirlhf.classroom import grading, release
from minirlhf.classroom.runner import Boxed, Local, Server
from minirlhf.core.randomness import derive_seed

ROOT = sources.folder()  # or those of a course, named by MINIRLHF_EXERCISES
PATHS = sources.sources(ROOT)
EXERCISES = {path.stem: sources.read(path) for path in PATHS}
ROUNDS = int(os.environ.get("MINIRLHF_TEST_ROUNDS", "3"))  # random seeds, each with another student's numbers

each = pytest.mark.parametrize("exercise", [of_chapter(e.chapter, e, id=name) for name, e in EXERCISES.items()])


def answer(exercise, *blocks, student="ada"):
    """The namespace that these blocks of code leave, run after the given one."""
    namespace = {"__name__": "__main__", "STUDENT": student, "print": lambda *args: None}
    for code in (exercise.given, *blocks):
        exec(sources.compiled(code, exercise.path), namespace)
    return Local(namespace, student)


@pytest.fixture
def outcomes(fresh_seed):
    """The outcomes of an answer, given as blocks of code, on fresh inputs and with fresh students' numbers."""

    def run(exercise, *blocks):
        found = []
        for i in range(ROUNDS):
            seed, student = derive_seed(fresh_seed, i), f"student-{derive_seed(fresh_seed, 'student', i) % 10**6}"
            found.append(grading.run_tests(exercise, answer(exercise, *blocks, student=student), seed))
        return found

    return run


FINISHED = [f"{c.number:02}" for c in chapters.chapters() if c.finished]
each_finished_chapter = pytest.mark.parametrize("chapter", [of_chapter(c, c, id="exercises") for c in FINISHED])


def variants(kind):
    cases = [(e, v) for e in EXERCISES.values() for v in getattr(e, kind)]
    params = [of_chapter(e.chapter, e, v, id=f"{e.path.stem}: {v.note}") for e, v in cases]
    return pytest.mark.parametrize(("exercise", "variant"), params)


def test_there_are_exercises_for_the_first_chapters():
    assert {e.chapter for e in EXERCISES.values()} >= {"02", "05"}


@each_finished_chapter
def test_a_finished_chapter_has_three_exercises_and_the_three_kinds(chapter):
    kinds = [e.kind for e in EXERCISES.values() if e.chapter == chapter]
    assert len(kinds) >= 3
    assert {"implement", "derive"} & set(kinds), "nothing to derive or implement"
    assert {"numeric", "choice"} & set(kinds), "no result to read"
    assert "bughunt" in kinds, "no bug hunt"


@each
def test_stub_earns_nothing(exercise, outcomes):
    for outcome in outcomes(exercise, exercise.stub):
        assert outcome.points == 0
        assert outcome.reason


@each
def test_solution_earns_everything(exercise, outcomes):
    for outcome in outcomes(exercise, exercise.solution):
        assert outcome.reason == ""
        assert outcome.points == exercise.points


@pytest.fixture(scope="session")
def server():
    with Server([ROOT]) as running:
        yield running


@each
def test_solution_earns_everything_in_the_box_too(exercise, server, fresh_seed):
    boxed = Boxed(server, [("cell 1", exercise.given), ("cell 2", exercise.solution)], exercise.library, "ada")
    outcome = grading.run_tests(exercise, boxed, fresh_seed)
    boxed.close()
    assert outcome.reason == ""


@variants("mutants")
def test_mutant_fails_with_its_hint(exercise, variant, outcomes):
    names = [t.name for t in exercise.tests]
    assert variant.caught_by in names, f"no test {variant.caught_by!r}; there are {names}"
    for outcome in outcomes(exercise, exercise.solution, variant.code):
        failed = outcome.first_failure
        assert failed is not None, "a wrong answer earned all points"
        assert failed.test.name == variant.caught_by, f"caught by {failed.test.name}: {failed.message}"
        assert variant.says in " ".join([failed.message, *failed.lines])


@variants("partials")
def test_partial_answer_earns_what_is_stated(exercise, variant, outcomes):
    assert 0 < variant.points < exercise.points
    for outcome in outcomes(exercise, exercise.solution, variant.code):
        assert outcome.points == variant.points, [(r.test.name, r.message) for r in outcome.results]


@each
def test_exercise_is_complete(exercise):
    assert len(exercise.mutants) >= 3
    assert exercise.partials
    assert set(exercise.asks) and exercise.statement and exercise.minutes > 0
    for name in exercise.asks:
        assert f"`{name}" in exercise.statement or exercise.kind == "bughunt", f"the statement does not name {name}"
    hints = [hint for t in exercise.tests for hint in t.hints]
    assert len(set(hints)) == len(hints)


@each
def test_personal_numbers_differ_from_student_to_student(exercise, fresh_seed):
    if not exercise.is_personal:
        assert exercise.kind not in ("numeric",), "a numeric exercise depends on the student"
        return
    copied = answer(exercise, exercise.solution, student="ada")
    copied.namespace["STUDENT"] = copied.student = "bob"
    assert grading.run_tests(exercise, copied, fresh_seed).points < exercise.points


@each
def test_release_holds_no_solution(exercise, tmp_path):
    for path in release.write([exercise], tmp_path):
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".ipynb":
            text = release.plain_text(text)
        assert exercise.title in text
        assert release.leaks(exercise, text) == []
        assert release.leaks(exercise, text + exercise.solution), "the leak test would not notice"
