"""Every exercise proves its own grader: stub, solution, mutants, partial credit, probes, and a release without a solution."""

import os

import pytest
from plan import of_chapter, own_seed

from minirlhf import chapters
from minirlhf.classroom import exercise as sources
from minirlhf.classroom import grading, proof, release
from minirlhf.classroom.runner import Boxed, Server

ROOT = sources.folder()  # or those of a course, named by MINIRLHF_EXERCISES
EXERCISES = {path.stem: sources.read(path) for path in sources.sources(ROOT)}
ROUNDS = int(os.environ.get("MINIRLHF_TEST_ROUNDS", "3"))  # random seeds, each with another student's numbers
FINISHED = [f"{c.number:02}" for c in chapters.chapters() if c.finished]

each = pytest.mark.parametrize("exercise", [of_chapter(e.chapter, e, id=name) for name, e in EXERCISES.items()])
each_finished_chapter = pytest.mark.parametrize("chapter", [of_chapter(c, c, id="exercises") for c in FINISHED])


@pytest.fixture(scope="session")
def server():
    with Server([ROOT]) as running:
        yield running


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
def test_an_exercise_proves_itself(exercise):
    seed = own_seed(exercise.path.read_text("utf-8"))
    wrong = [f"{c.what}: {c.problem}" for c in proof.prove(exercise, seed, ROUNDS) if c.problem]
    assert not wrong, "\n".join(wrong)


@each
def test_the_solution_earns_everything_in_the_box_too(exercise, server):
    boxed = Boxed(server, [("cell 1", exercise.given), ("cell 2", exercise.solution)], exercise.library, "ada")
    outcome = grading.run_tests(exercise, boxed, own_seed(exercise.path.read_text("utf-8")))
    boxed.close()
    assert outcome.reason == ""


@each
def test_the_leak_test_would_notice(exercise):
    assert release.leaks(exercise, exercise.solution)
