"""Every exercise proves its own grader: stub, solution, mutants, partial credit, probes, and no solution in what is shown."""

import os
import re
from dataclasses import replace

import pytest
from graded import EXERCISES, graded_in_box
from plan import of_chapter, own_seed

from minirlhf_course import chapters
from minirlhf_course.classroom import proof, release
from minirlhf_course.classroom.checker import Verdict

ROUNDS = int(
    os.environ.get("MINIRLHF_TEST_ROUNDS", "1")
)  # random seeds, each with another student's numbers; make test-all takes 2
FINISHED = [f"{c.number:02}" for c in chapters.chapters() if c.finished]

each = pytest.mark.parametrize("exercise", [of_chapter(e.chapter, e, id=e.path.stem) for e in EXERCISES.values()])
each_finished_chapter = pytest.mark.parametrize("chapter", [of_chapter(c, c, id="exercises") for c in FINISHED])


@each_finished_chapter
def test_exercises_of_finished_chapter_are_three_of_three_kinds(chapter):
    kinds = [e.kind for e in EXERCISES.values() if e.chapter == chapter]
    assert len(kinds) >= 3
    assert {"implement", "derive"} & set(kinds), "nothing to derive or implement"
    assert {"numeric", "choice"} & set(kinds), "no result to read"
    assert "bughunt" in kinds, "no bug hunt"


def asking_own_words(exercise):
    """The exercise without those words of its mutants that are the library's, which may change."""
    tests = exercise.path.read_text("utf-8").split("# %% [tests]")[1].split("# %% [")[0]
    own = re.sub(r'"\s*\n\s*f?"', "", tests)  # a text that is written in several lines
    return replace(exercise, mutants=tuple(v if v.says in own else replace(v, says="") for v in exercise.mutants))


@pytest.mark.slow
@each
def test_exercise_proves_itself_and_verdicts_hold_no_line_of_solution(exercise, monkeypatch):
    """One pass for both questions: the proof's outcomes are those that a learner would be shown."""
    shown, outcomes = [], proof.outcomes

    def observed(*args):
        for outcome in outcomes(*args):
            failed = outcome.first_failure
            shown.extend([repr(Verdict(outcome)), *(failed.hints if failed else ())])
            yield outcome

    monkeypatch.setattr(proof, "outcomes", observed)
    seed = own_seed(exercise.id)
    wrong = [f"{c.what}: {c.problem}" for c in proof.prove(asking_own_words(exercise), seed, ROUNDS) if c.problem]
    assert not wrong, "\n".join(wrong)
    public = exercise.given + exercise.stub + exercise.statement
    private = [x for x in map(str.strip, exercise.solution.splitlines()) if len(x) > 20 and x not in public]
    assert len(shown) > len(exercise.mutants)
    assert not [line for line in private if line in "\n".join(shown)]
    assert release.leaks(exercise, exercise.solution), "the release's own test for leaks sees nothing"


@pytest.mark.release  # a right answer is graded in the box in every run, after the solution has run there (test_answers.py)
@pytest.mark.slow
@each
def test_exercise_solution_earns_all_points_in_box(exercise, server):
    assert graded_in_box(exercise, server, own_seed(exercise.id), exercise.solution).reason == ""
