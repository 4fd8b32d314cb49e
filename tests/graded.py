"""The exercises, read once, and an answer graded in a box, on inputs whose probes are derived once."""

from minirlhf.core.randomness import derive_seed
from minirlhf_course.classroom import exercise as sources
from minirlhf_course.classroom.exercise import Exercise
from minirlhf_course.classroom.grading import Outcome, exercise_limits, run_tests
from minirlhf_course.classroom.runner import SandboxedSubmission, Server

ROOT = sources.folder()  # or those of a course, named by MINIRLHF_EXERCISES
EXERCISES = {e.id: e for e in sources.load(ROOT)}


def graded_in_box(exercise: Exercise, server: Server, seed: int, *blocks: str) -> Outcome:
    """Grade the given code and these blocks in a box, on the inputs of the first round of a proof by this seed."""
    cells = [(f"cell {n}", code) for n, code in enumerate((exercise.given, *blocks), 1)]
    boxed = SandboxedSubmission(server, cells, exercise.library, "ada", exercise_limits(exercise))
    try:
        return run_tests(exercise, boxed, derive_seed(seed, 0))
    finally:
        boxed.close()
