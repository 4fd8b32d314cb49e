"""What packing saves on real conversations: ``MINIRLHF_GSM8K=FILE python -m minirlhf_course.chapters.ch10_instruction_tuning.study_gsm8k`` (half a minute).

It needs a file that is no part of this repository: 1,000 rows of GSM8K's training part (MIT licence), JSONL with ``question`` and ``answer``. Only
numbers are written down, no texts. A *seed* is an order of the batches that packed rows are compared with. Writes ``study_gsm8k.json``.
"""

from minirlhf.core.folders import cache_folder
from minirlhf_course.chapters.ch10_instruction_tuning.savings import BATCH, WIDTHS, lengths, questions, savings
from minirlhf_course.evidence import Study, real_file


def one_seed(seed: int) -> dict[str, float]:
    """The file of ``MINIRLHF_GSM8K``."""
    return savings(lengths(questions(real_file("MINIRLHF_GSM8K"))), WIDTHS, BATCH, seed)


def probe() -> dict[str, float | str]:
    """The same of forty made-up sums, through a file."""
    rows = [f'{{"question": "{i} and {i * i}?", "answer": "{" ".join(map(str, range(i)))}"}}' for i in range(1, 41)]
    file = cache_folder() / "sums.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(rows), encoding="utf-8")
    return dict(savings(lengths(questions(file), 400), (128, 256), 8, 0))


STUDY = Study(one_seed, probe)

if __name__ == "__main__":
    STUDY.main(__file__)
