"""The classroom. Exercises are checked for a reader, released to a class and graded in a sandbox."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minirlhf_course.classroom.checker import Verdict


def check(exercise: str, *functions: Any, **values: Any) -> Verdict:
    """Check an answer in a notebook: ``check("05.2", f)`` or ``check("05.3", beta=0.7, student=STUDENT)``.

    The result shows what is wrong by a counterexample. Each further failure gives the next hint, never the solution.

    Args:
        exercise: the exercise's number, ``"05.2"``.
        functions: the functions that the exercise asks for, matched by name; if it asks for only one, any callable.
        values: the values that the exercise asks for, by name; ``student`` selects the numbers of a personal exercise.

    Raises:
        UserError: the exercise does not exist, or it does not ask for one of the answers.
    """
    # Imported here, because a submission's process imports this package too and must stay small.
    from minirlhf_course.classroom.checker import check_here

    return check_here(exercise, functions, values)
