"""Best-of-n and votes of the pretrained model: ``python -m minirlhf_course.chapters.ch16_reasoning.study_pretrained_selection`` (seconds).

It reads the completions that ``study_pretrained`` recorded, a seed each. Writes ``study_pretrained_selection.json``.
"""

from minirlhf_course.chapters.ch16_reasoning.pretrained import PLAN, recorded, run_seed
from minirlhf_course.chapters.ch16_reasoning.pretrained_selection import SELECTION, describe_selection
from minirlhf_course.evidence import Study, settings
from minirlhf_course.evidence.claims import measure_claims


def one_seed(seed: int) -> dict[str, float]:
    """All claims with the completions of one seed."""
    record = recorded(f"seed_{seed}", PLAN, lambda start: run_seed(start, PLAN, seed))
    return measure_claims(SELECTION, record) | describe_selection(record)


def probe() -> dict[str, float | str]:
    """The measurements of a record made by hand; ``study_pretrained`` probes the runs."""
    texts = ["3 + 4 = 7", "it is 8 or so", "7", "8", "seven", "3 + 4 = 8", "the answer is 7", "no"] * 2
    grades = [1, 0, 1, 0, 0, 0, 1, 0] * 2
    lengths = [9, 12, 2, 2, 3, 9, 6, 2] * 2
    base = [
        {"text": texts, "grade": grades, "length": lengths},
        {"text": texts[::-1], "grade": [0, 1] * 8, "length": lengths},
    ]
    rl = [{"grade": [1] * 12 + [0] * 4, "logp": [-1.0] * 16, "base": [-4.0 - i] * 16} for i in range(2)]
    record = {"base": base, "rl": rl, "curves": {"rl": [[{**row, "base": [-2.0] * 16} for row in rl]]}}
    return measure_claims(SELECTION, record) | describe_selection(record) | settings(plan=PLAN)


STUDY = Study(one_seed, probe, seeds=3)

if __name__ == "__main__":
    STUDY.main(__file__)
