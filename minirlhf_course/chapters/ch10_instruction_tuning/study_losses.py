"""What counts in the loss, and which loss: ``python -m minirlhf_course.chapters.ch10_instruction_tuning.study_losses`` (ten minutes).

Ten seeds. The base model of the assistant world, tuned on few demonstrations with the question in the loss or without, watched on the way; on many;
by the dynamic loss, from the start, after a few steps of imitation or behind all of them (beside as many more steps of imitation); and by adapters at learning rates above those of ``study_assistant``.
Writes ``study_losses.json``.
"""

from dataclasses import replace

from minirlhf.trainers.likelihood import mean_nll
from minirlhf.trainers.sft import SFTConfig
from minirlhf_course.chapters.ch10_instruction_tuning.instruct import (
    BASE,
    ROWS,
    TUNE,
    all_in_loss,
    answers,
    base_model,
    examples,
    tuned,
)
from minirlhf_course.chapters.ch10_instruction_tuning.losses import LOOK, chance_of_end, dynamically, watched
from minirlhf_course.evidence import Study, settings

FEW, MANY, HELD_OUT, LOOKED_AT = 30, 2000, 200, 100
BEFORE = 20  # steps of imitation before the dynamic loss
RATES = {0: 0.02, 1: 0.06, 4: 0.06}


def one_seed(seed: int, base: SFTConfig = BASE, tune: SFTConfig = TUNE, rows: int = ROWS) -> dict[str, float]:
    """Everything with one seed."""
    tune = replace(tune, seed=seed)
    start = base_model(replace(base, seed=seed), rows)
    shown = examples(start.tokenizer, MANY, seed)
    pad = start.tokenizer.pad_token_id
    held = examples(start.tokenizer, HELD_OUT, seed + 1000)
    numbers = {"end_base": chance_of_end(start, held)}

    def note(name, trained):
        found = answers(trained, seed=seed)
        numbers.update({f"stops_{name}": found.stops, f"right_{name}": found.right, f"gold_{name}": found.gold})

    few = shown[:FEW]
    for name, marked in (("reply", few), ("everything", [all_in_loss(e) for e in few])):
        losses = watched(start, marked, held[:LOOKED_AT], tune)
        best = min(range(len(losses)), key=losses.__getitem__)
        numbers |= {f"{name}_few": losses[-1], f"{name}_few_best": losses[best]}
        numbers[f"{name}_few_step"] = float(LOOK * (best + 1))
    imitated = tuned(start, shown, tune)
    note("imitated", imitated)
    numbers["reply_many"] = mean_nll(imitated.model, held, pad_token_id=pad)
    numbers["end_imitated"] = chance_of_end(imitated, held)
    everything = tuned(start, [all_in_loss(e) for e in shown], tune).model
    numbers["everything_many"] = mean_nll(everything, held, pad_token_id=pad)
    note("dft", dynamically(start, shown, tune))
    before = tuned(start, shown, replace(tune, max_steps=BEFORE))
    note("before", before)
    more = replace(tune, max_steps=tune.max_steps - BEFORE)
    after = dynamically(before, shown, more)
    note("dft_after", after)
    numbers["end_dft_after"] = chance_of_end(after, held)
    note("dft_late", dynamically(imitated, shown, more))
    note("imitated_longer", tuned(imitated, shown, more))
    for rank, rate in RATES.items():
        model = tuned(start, shown, replace(tune, learning_rate=rate), lora_r=rank).model
        numbers[f"nll_rank_{rank}_rate_3"] = mean_nll(model, held, pad_token_id=pad)
    return numbers


def probe() -> dict[str, float | str]:
    """A few steps of each."""
    short = replace(TUNE, max_steps=BEFORE + 5, batch_size=4)
    numbers = one_seed(0, replace(BASE, max_steps=2, batch_size=4), short, 20)
    # After 25 steps at .06 it differs by .2 to .3 percent between kinds of processors.
    del numbers["nll_rank_4_rate_3"]
    return numbers | settings(base=BASE, tune=TUNE)


STUDY = Study(one_seed, probe, seeds=10)

if __name__ == "__main__":
    STUDY.main(__file__)
