"""Graders against the data's own rule on 1,000 real answers: ``MINIRLHF_GSM8K=FILE python -m minirlhf_course.chapters.ch16_reasoning.study_gsm8k``.

It needs a file that is no part of this repository: rows of GSM8K (openai/grade-school-math, MIT licence), JSONL with ``question`` and
``answer``. Only numbers are written down, no texts. Five replies are made for every problem: its worked answer, that of another problem, the
right answer with another number, and the right number written in another way, marked and boxed. The rule that the data's authors grade by
takes what follows ``####``, without commas, and compares characters. Writes ``study_gsm8k.json`` (seconds).
"""

import re
from collections.abc import Sequence

import numpy as np

from minirlhf.core.randomness import numpy_generator
from minirlhf.data import loaders
from minirlhf.data.records import Problem
from minirlhf.data.tasks.scratchpad import SCRATCHPAD, read
from minirlhf.feedback import graders
from minirlhf_course.evidence import Study, real_file

_MARKED = re.compile(r"#### (-?[0-9.,]+)")


def rule(completion: str, reference: str) -> float:
    """The grade by the rule of GSM8K's authors (Cobbe et al. 2021): the characters after ``####`` are the reference's."""
    found = _MARKED.search(completion)
    return float(found is not None and found[1].replace(",", "") == reference.replace(",", ""))


def in_other_words(number: str, rng: np.random.Generator) -> str:
    """The same number, written as models write it."""
    plain = number.replace(",", "")
    decimal = plain if "." in plain else f"{plain}.00"
    return str(
        rng.choice(
            [f"${decimal}", f"{plain} dollars", f"{decimal}", f"{plain}%", f"€ {plain}", f"{plain}/1", f" {plain} ."]
        )
    )


def changed(number: str, rng: np.random.Generator) -> str:
    """Another number that looks alike: a unit more or less, ten times as much, or with the sign turned."""
    value = float(number.replace(",", ""))
    other = float(rng.choice([value + 1, value - 1, 10 * value + (value == 0), -value - (value == 0)]))
    return f"{other:g}" if other != int(other) else str(int(other))


def measure(problems: Sequence[Problem], seed: int) -> dict[str, float]:
    """How often the graders and the rule agree on the replies made for these problems."""
    rng = numpy_generator("ch16 gsm8k", seed)
    others = rng.permutation(len(problems)).tolist()
    both: dict[str, list[tuple[float, float, float]]] = {"own": [], "others": [], "changed": [], "rewritten": []}
    boxed = []
    for problem, other in zip(problems, others, strict=True):
        assert problem.reference is not None and problem.solution is not None
        known, working = problem.reference, problem.solution.rpartition("####")[0]
        again = in_other_words(known, rng)
        replies = {
            "own": problem.solution,
            "others": problems[other].solution or "",
            "changed": f"{working}#### {changed(known, rng)}",
            "rewritten": f"{working}#### {again}",
        }
        for kind, reply in replies.items():
            both[kind].append((graders.gsm8k(reply, known), graders.numeric(reply, known), rule(reply, known)))
        boxed.append(graders.maths(rf"{working}\boxed{{{again.replace('$', '').replace('%', '')}}}", known))
    numbers = {"problems": float(len(problems)), "boxed_accepted": float(np.mean(boxed))}
    for kind, grades in both.items():
        ours, without_mark, theirs = np.array(grades).T
        numbers |= {
            f"{kind}_accepted": float(ours.mean()),
            f"{kind}_accepted_by_rule": float(theirs.mean()),
            f"{kind}_disagree": float((ours != theirs).sum()),
            f"{kind}_numeric_disagree": float((ours != without_mark).sum()),
        }
    return numbers


def one_seed(seed: int) -> dict[str, float]:
    """The file of ``MINIRLHF_GSM8K``."""
    return measure(loaders.load(real_file("MINIRLHF_GSM8K")).problems(), seed)


def probe() -> dict[str, float | str]:
    """The same on sixty sums of our own."""
    problems = []
    for prompt in SCRATCHPAD.prompts("test")[:60]:
        numbers = read(prompt)
        assert numbers is not None
        total = int(numbers[0]) + int(numbers[1])
        solution = f"{numbers[0]} + {numbers[1]} = {total}\n#### {total:,}"
        problems.append(Problem([{"role": "user", "content": prompt}], f"{total:,}", solution))
    return dict(measure(problems, 0))


STUDY = Study(one_seed, probe, seeds=5)

if __name__ == "__main__":
    STUDY.main(__file__)
