"""What readers answer: wrong answers of which none may get full marks, and right ones that are not ours, of which all must.

``answers/chNN.txt`` holds them, written as a student would, not from the exercises' mutants. A block begins with
``# %% wrong 04.5: what was done | test kind`` or ``# %% right 04.5: how``; its code replaces definitions of the solution.
``test`` is the hidden test that fails first and tells more than that the result is wrong; ``kind`` is "mistake" where the
mistake is recognised by name, or the kind of the probe that finds it.
"""

import ast
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from graded import EXERCISES, graded_in_box
from plan import of_chapter, own_seed

from minirlhf_course import chapters
from minirlhf_course.classroom import grading, proof

pytestmark = pytest.mark.slow

HEAD = re.compile(r"# %% (wrong|right) (\d\d\.\d+): ([^|]+?)(?: \| (\w+)(?: (\w+))?)?")


@dataclass(frozen=True)
class Answer:
    """One reader's: right or wrong, to which exercise, what was done, the test that tells it, what it recognises, and the code."""

    kind: str
    exercise: str
    note: str
    test: str
    recognised: str
    code: str


def read(path: Path) -> list[Answer]:
    """The answers of one file."""
    found = []
    for block in re.split(r"(?m)^(?=# %% )", path.read_text(encoding="utf-8")):
        if block.strip():
            head, _, code = block.partition("\n")
            match = HEAD.fullmatch(head.rstrip())
            assert match, f"{path}: {head}"
            found.append(Answer(match[1], match[2], match[3], match[4] or "", match[5] or "", code))
    return found


def missed(answer: Answer, outcome: grading.Outcome) -> str:
    """How the outcome of a wrong answer differs from what is written at its head; empty if it does not."""
    failed = outcome.first_failure
    if outcome.points >= outcome.exercise.points or failed is None:
        return "it earns all points"
    if "NameError" in failed.message:
        return f"it was written for another version of the exercise: {failed.message}"
    recognised = failed.probe or ("mistake" if failed.named else "")
    if (answer.test and failed.test.name != answer.test) or (answer.recognised and recognised != answer.recognised):
        return f"{failed.test.name} {recognised}, in place of {answer.test} {answer.recognised}: {failed.message}"
    return ""


ANSWERS = [a for path in sorted((Path(__file__).parent / "answers").glob("ch*.txt")) for a in read(path)]


def answers(kind):
    """The answers of one kind as parameters: the first of those that one test finds by one probe; before a release all."""
    params, seen = [], set()
    for a in (a for a in ANSWERS if a.kind == kind):
        way = (a.exercise, a.test, a.recognised)
        marks = [pytest.mark.release] if way in seen else []
        params.append(of_chapter(a.exercise[:2], a, id=f"{a.exercise} {a.note}", marks=marks))
        seen.add(way)
    return pytest.mark.parametrize("answer", params)


def defined(code):
    """The names that a piece of code binds outside its functions."""
    found, waiting = set(), list(ast.parse(code).body)
    for node in waiting:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        else:
            found |= {node.id} if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else set()
            waiting += ast.iter_child_nodes(node)
    return found


def drawn(answer):
    """The seed of an answer's draws: all answers to an exercise meet the inputs of its proof, whose probes are then made once."""
    return own_seed(answer.exercise)


@answers("wrong")
def test_wrong_answer_gets_no_full_marks_and_its_mistake_is_recognised(answer):
    exercise = EXERCISES[answer.exercise]
    (outcome,) = proof.outcomes(exercise, drawn(answer), 1, exercise.solution, answer.code)
    assert missed(answer, outcome) == ""


@answers("right")
def test_right_answer_gets_full_marks(answer, server):
    """In the box, where it is graded, and where less is at hand than in the notebook."""
    exercise = EXERCISES[answer.exercise]
    assert graded_in_box(exercise, server, drawn(answer), exercise.solution, answer.code).reason == ""


@pytest.mark.parametrize(
    "chapter", [of_chapter(c, c, id="answers") for c in sorted({e.chapter for e in EXERCISES.values()})]
)
def test_answers_of_chapter_define_what_exercises_ask(chapter):
    """Else the solution would be graded in their place."""
    idle = [a for a in ANSWERS if a.exercise[:2] == chapter and not defined(a.code) & set(EXERCISES[a.exercise].asks)]
    assert not idle


def test_nearly_every_wrong_answer_is_recognised():
    """Of all answers at least 85 % are told more than that the result is wrong."""
    wrong = [a for a in ANSWERS if a.kind == "wrong"]
    assert sum(bool(a.test) for a in wrong) >= 0.85 * len(wrong)


def test_answers_of_both_kinds_exist_for_every_finished_exercise():
    count = Counter((a.kind, a.exercise) for a in ANSWERS)
    finished = {f"{c.number:02}" for c in chapters.chapters() if c.finished}
    for kind in ("wrong", "right"):
        wanted = {number for number, e in EXERCISES.items() if e.chapter in finished}
        lacking = sorted(wanted - {e for k, e in count if k == kind})
        assert not lacking, f"{kind} answers to {lacking} are missing in tests/answers/"
    assert sum(n for (kind, _), n in count.items() if kind == "wrong") >= 150
    assert sum(n for (kind, _), n in count.items() if kind == "right") >= 60
