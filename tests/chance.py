"""How often chance decides about an answer: solution, mutants, partial and readers' answers, on many draws.

    python tests/chance.py                          20 draws of everything (hours: training exercises are slow)
    python tests/chance.py 07.7 14.3 --draws 300    two exercises
    python tests/chance.py --chapter 13 --draws 40

The test suite proves an exercise with draws that follow from its own text, so that a change elsewhere cannot make it fail.
What it would do with other draws is measured here. Prints each claim that did not hold on every draw, how often, and one
seed on which it failed; exit status 1 if there is one.
"""

import argparse
import secrets
import sys
from collections import Counter
from collections.abc import Iterator

from test_answers import ANSWERS
from test_exercises import EXERCISES

from minirlhf.classroom import proof
from minirlhf.classroom.exercise import Exercise
from minirlhf.core.randomness import derive_seed


def claims(exercise: Exercise, seed: int) -> Iterator[tuple[str, str]]:
    """Each claim about an exercise on one draw, with its problem or ''."""
    yield "the solution earns everything", proof.solution(exercise, seed, 1)
    for variant in exercise.mutants:
        yield f"mutant: {variant.note}", proof.mutant(exercise, variant, seed, 1)
    for variant in exercise.partials:
        yield f"partial: {variant.note}", proof.partial(exercise, variant, seed, 1)
    for answer in (a for a in ANSWERS if a.exercise == exercise.id):
        (outcome,) = proof.outcomes(exercise, seed, 1, exercise.solution, answer.code)
        problem, failed = "", outcome.first_failure
        if answer.kind == "right":
            problem = outcome.reason
        elif outcome.points >= exercise.points or failed is None:
            problem = "it earns all points"
        elif answer.says not in (said := " ".join([failed.message, *failed.lines, *failed.hints])):
            problem = f"it does not hear {answer.says!r}, but {said[:100]!r}"
        yield f"{answer.kind} answer: {answer.note}", problem


def main() -> int:
    """Scan, print, and say by the exit status whether every claim held on every draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("exercises", nargs="*", metavar="NN.N", help="these only")
    parser.add_argument("--chapter", help="the exercises of one chapter")
    parser.add_argument("--draws", type=int, default=20, help="of each exercise (20)")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**31), help="of the first draw (a fresh one)")
    asked = parser.parse_args()
    chosen = [e for e in EXERCISES.values() if asked.chapter in (None, e.chapter, e.chapter.lstrip("0"))]
    if unknown := sorted(set(asked.exercises) - {e.id for e in chosen}):
        parser.error(f"no exercise {unknown[0]}")
    failed = 0
    for exercise in sorted((e for e in chosen if not asked.exercises or e.id in asked.exercises), key=lambda e: e.id):
        problems: Counter[str] = Counter()
        first: dict[str, str] = {}
        for number in range(asked.draws):
            seed = derive_seed(asked.seed, exercise.id, number)
            for what, problem in claims(exercise, seed):
                if problem:
                    problems[what] += 1
                    first.setdefault(what, f"seed {seed}: {problem}")
        print(f"{exercise.id}  {len(problems) or 'no'} claims failed on some of {asked.draws} draws", flush=True)
        for what, count in problems.items():
            print(f"    {count} of {asked.draws}  {what}: {first[what]}", flush=True)
        failed += bool(problems)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
