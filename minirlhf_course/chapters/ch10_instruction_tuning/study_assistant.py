"""From base to instruct in the assistant world: ``python -m minirlhf_course.chapters.ch10_instruction_tuning.study_assistant`` (ten minutes).

Ten seeds. A base model of streams without ends is tuned on 10, 100, 300 and 2,000 demonstrations; without the end in the loss; with the question
in it; asked in layouts that it was not trained on, as is the base, which knows no template; and with adapters of rank 1, 4 and 16 beside all weights, each at three learning rates.
Writes ``study_assistant.json``.
"""

from dataclasses import replace

from minirlhf.trainers.likelihood import mean_nll
from minirlhf.trainers.sft import SFTConfig
from minirlhf_course.chapters.ch10_instruction_tuning.instruct import (
    BASE,
    MISTAKES,
    ROWS,
    TUNE,
    all_in_loss,
    answers,
    base_model,
    examples,
    trainable,
    tuned,
    without_end,
)
from minirlhf_course.evidence import Study, settings

COUNTS = (10, 100, 300, 2000)
RATES = {0: (0.0006, 0.002, 0.006), 1: (0.002, 0.006, 0.02), 4: (0.002, 0.006, 0.02), 16: (0.002, 0.006, 0.02)}
FEW, MANY, HELD_OUT = 30, 2000, 200
SHAPE = 300  # demonstrations for what is asked of the layout


def one_seed(
    seed: int, base: SFTConfig = BASE, tune: SFTConfig = TUNE, rows: int = ROWS, counts: tuple[int, ...] = COUNTS
) -> dict[str, float]:
    """Everything with one seed."""
    tune = replace(tune, seed=seed)
    start = base_model(replace(base, seed=seed), rows)
    shown = examples(start.tokenizer, MANY, seed)
    pad = start.tokenizer.pad_token_id
    held = examples(start.tokenizer, HELD_OUT, seed + 1000)
    numbers: dict[str, float] = {}

    def note(name, trained, **how):
        found = answers(trained, seed=seed, **how)
        numbers.update({f"stops_{name}": found.stops, f"right_{name}": found.right, f"gold_{name}": found.gold})

    note("base", start)
    note("base_plain", start, layout=MISTAKES["plain"])
    for count in counts:
        model = tuned(start, shown[:count], tune)
        note(f"{count}", model)
        if count == SHAPE:
            for name, layout in MISTAKES.items():
                note(name, model, layout=layout)
    note("no_end", tuned(start, [without_end(e) for e in shown[:SHAPE]], tune))
    for name, few in (("reply", shown[:FEW]), ("everything", [all_in_loss(e) for e in shown[:FEW]])):
        numbers[f"nll_{name}"] = mean_nll(tuned(start, few, tune).model, held, pad_token_id=pad)
    for rank, rates in RATES.items():
        for place, rate in enumerate(rates):
            model = tuned(start, shown, replace(tune, learning_rate=rate), lora_r=rank).model
            numbers[f"nll_rank_{rank}_rate_{place}"] = mean_nll(model, held, pad_token_id=pad)
            numbers[f"weights_rank_{rank}"] = float(trainable(model))
    return numbers


def probe() -> dict[str, float | str]:
    """A few steps of each."""
    short = replace(TUNE, max_steps=2, batch_size=4)
    return one_seed(0, replace(BASE, max_steps=2, batch_size=4), short, 20, (10, SHAPE)) | settings(
        base=BASE, tune=TUNE
    )


STUDY = Study(one_seed, probe, seeds=10)

if __name__ == "__main__":
    STUDY.main(__file__)
