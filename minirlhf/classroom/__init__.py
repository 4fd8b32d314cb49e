"""Layer 7: the classroom. Exercises from one text source: checked for a reader, released to a class, graded safely."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minirlhf.classroom.checker import Verdict


def check(exercise: str, *functions: Any, **values: Any) -> Verdict:
    """Check an answer in a notebook: ``check("05.2", f)`` or ``check("05.3", beta=0.7, student=STUDENT)``.

    Says what is wrong by a counterexample and gives the next hint at each further failure, never the solution.

    Args:
        exercise: the exercise's number, ``"05.2"``.
        functions: the functions it asks for, found by name; if it asks for one only, any callable.
        values: the values it asks for, by name; ``student`` chooses the numbers of a personal exercise.

    Raises:
        UserError: no such exercise, or an answer that it does not ask for.
    """
    # Imported here: a submission's process imports this package too, and must stay small.
    from minirlhf.classroom.checker import check_here

    return check_here(exercise, functions, values)
