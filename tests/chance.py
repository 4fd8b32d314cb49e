"""How often chance decides about an answer to an exercise, or about a check of the ledger, on many draws.

    python tests/chance.py                               20 draws of everything (hours: training exercises are slow)
    python tests/chance.py 07.7 14.3 --draws 300         two exercises
    python tests/chance.py eq:krippendorff-alpha eq:k3   two equations
    python tests/chance.py equations --draws 100         the whole ledger
    python tests/chance.py --chapter 13 --draws 40       exercises and equations

The test suite proves an exercise with draws that follow from its own text, so that a change elsewhere cannot make it fail, and
a check with a few draws that follow from the sources. What both would do with other draws is measured here. Prints each claim that did not hold on every draw, how often, and one
seed on which it failed; exit status 1 if there is one.
"""

import argparse
import secrets
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

from graded import EXERCISES
from test_answers import ANSWERS, missed

from minirlhf.core.randomness import derive_seed
from minirlhf_course.chapters import load_checks
from minirlhf_course.classroom import proof
from minirlhf_course.classroom.exercise import Exercise
from minirlhf_course.ledger.pages import failure
from minirlhf_course.ledger.pages import outcome as outcome_of
from minirlhf_course.ledger.registry import Check

Questions = tuple[
    tuple[str, ...], int, Callable[[int], Iterator[tuple[str, str]]]
]  # names, chapter, what to ask on a draw


def claims(exercise: Exercise, seed: int) -> Iterator[tuple[str, str]]:
    """Each claim about an exercise on one draw, with its problem or ''."""
    yield "the solution earns everything", proof.solution(exercise, seed, 1)
    for variant in exercise.mutants:
        yield f"mutant: {variant.note}", proof.mutant(exercise, variant, seed, 1)
    for variant in exercise.partials:
        yield f"partial: {variant.note}", proof.partial(exercise, variant, seed, 1)
    for answer in (a for a in ANSWERS if a.exercise == exercise.id):
        (outcome,) = proof.outcomes(exercise, seed, 1, exercise.solution, answer.code)
        problem = outcome.reason if answer.kind == "right" else missed(answer, outcome)
        yield f"{answer.kind} answer: {answer.note}", problem


def judged(entry: Check, seed: int) -> Iterator[tuple[str, str]]:
    """That a check holds on one draw, and rejects its wrong variants; each with its problem or ''."""
    outcome = outcome_of(entry, seed)
    yield "it holds", "" if outcome.result.passed else failure(outcome.result)
    for name in outcome.wrong:
        yield f"wrong variant: {name}", "it is accepted" if name in outcome.accepted else ""


def main() -> int:
    """Scan, print, and say by the exit status whether every claim held on every draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", nargs="*", metavar="NN.N|eq:LABEL|equations", help="these only")
    parser.add_argument("--chapter", type=int, help="what belongs to one chapter")
    parser.add_argument("--draws", type=int, default=20, help="of each (20)")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**31), help="of the first draw (a fresh one)")
    asked = parser.parse_args()
    exercises: list[Questions] = [
        ((e.id,), int(e.chapter), partial(claims, e)) for e in sorted(EXERCISES.values(), key=lambda e: e.id)
    ]
    checks: list[Questions] = [
        ((c.label, c.claim, "equations"), c.chapter, partial(judged, c)) for c in load_checks().checks.values()
    ]
    known = {name for names, _, _ in exercises + checks for name in names}
    if unknown := sorted(set(asked.which) - known):
        parser.error(f"there is neither an exercise nor a label {unknown[0]}")
    failed = 0
    for names, chapter, questions in exercises + checks:
        if asked.chapter not in (None, chapter) or (asked.which and not set(asked.which) & set(names)):
            continue
        problems: Counter[str] = Counter()
        first: dict[str, str] = {}
        for number in range(asked.draws):
            seed = derive_seed(asked.seed, *names, number) % 2**31
            for what, problem in questions(seed):
                if problem:
                    problems[what] += 1
                    first.setdefault(what, f"seed {seed}: {problem}")
        print(
            f"{' '.join(names[:2])}  {len(problems) or 'no'} claims failed on some of {asked.draws} draws", flush=True
        )
        for what, count in problems.items():
            print(f"    {count} of {asked.draws}  {what}: {first[what]}", flush=True)
        failed += bool(problems)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
