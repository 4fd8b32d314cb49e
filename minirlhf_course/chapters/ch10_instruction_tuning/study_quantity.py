"""What more demonstrations add: ``python -m minirlhf_course.chapters.ch10_instruction_tuning.study_quantity`` (five minutes).

Ten seeds. The base model of the assistant world, tuned on 10, 300 and 2,000 demonstrations at three times the rate and for three times the
steps of ``study_assistant``, in which no difference between their replies was found; and those who wrote the demonstrations, on the same
questions. Writes ``study_quantity.json``.
"""

from dataclasses import replace

from minirlhf.trainers.likelihood import mean_nll
from minirlhf.trainers.sft import SFTConfig
from minirlhf_course.chapters.ch10_instruction_tuning.instruct import (
    BASE,
    ROWS,
    TUNE,
    answers,
    base_model,
    demonstrated,
    examples,
    tuned,
)
from minirlhf_course.evidence import Study, settings

COUNTS, HELD_OUT = (10, 300, 2000), 200
LONG = replace(TUNE, max_steps=300, learning_rate=6e-3)


def one_seed(seed: int, base: SFTConfig = BASE, tune: SFTConfig = LONG, rows: int = ROWS) -> dict[str, float]:
    """Every number of demonstrations with one seed."""
    start = base_model(replace(base, seed=seed), rows)
    shown = examples(start.tokenizer, max(COUNTS), seed)
    held = examples(start.tokenizer, HELD_OUT, seed + 1000)
    numbers: dict[str, float] = {}

    def note(name, found):
        numbers.update({f"stops_{name}": found.stops, f"right_{name}": found.right, f"gold_{name}": found.gold})

    note("people", demonstrated(seed=seed))
    for count in COUNTS:
        model = tuned(start, shown[:count], replace(tune, seed=seed))
        note(f"{count}", answers(model, seed=seed))
        numbers[f"nll_{count}"] = mean_nll(model.model, held, pad_token_id=start.tokenizer.pad_token_id)
    return numbers


def probe() -> dict[str, float | str]:
    """A few steps of each."""
    short = replace(LONG, max_steps=3, batch_size=4)
    return one_seed(0, replace(BASE, max_steps=2, batch_size=4), short, 20) | settings(base=BASE, tune=LONG)


STUDY = Study(one_seed, probe, seeds=10)

if __name__ == "__main__":
    STUDY.main(__file__)
