"""How fast and how long to train on chosen completions, on rejected ones and on both: ``python -m minirlhf_course.chapters.ch01_introduction.study_tuning``.

A grid of learning rates and steps for each use of the pairs, on seeds that ``study_tuned.py`` does not use; RL from the base at one more learning
rate. Writes ``study_tuning.json``; some ten minutes.
"""

from dataclasses import replace
from statistics import fmean

from minirlhf.stages import pipeline
from minirlhf.stages.pipeline import Trained, pair_tokens, preferences, with_seed
from minirlhf_course.chapters.ch01_introduction.study import WORLD, without_template, zoo_starts
from minirlhf_course.chapters.ch01_introduction.study_tuned import LONG_RL, LOSSES, PAIRS, WINDOW, gold, train_on
from minirlhf_course.evidence import Study, brief, initial_models, settings, trace

#: Learning rates, and numbers of steps after which each run is evaluated.
GRID = {
    "chosen": ((3e-4, 1e-3, 3e-3), (40, 80, 120)),
    "rejected": ((3e-5, 1e-4, 3e-4), (10, 25, 50)),
    "both": ((1e-4, 3e-4, 1e-3), (40, 80, 120)),
}
RL_RATES = (1e-3,)  # beside that of STRAIGHT_RL
FIRST = 100  # seed


def long_rl(base: Trained, seed: int) -> dict[str, float]:
    """Return the mean reward and length in the last steps of RL from the base, by learning rate."""
    numbers = {}
    for rate in RL_RATES:
        plan = replace(LONG_RL, training=replace(LONG_RL.training, learning_rate=rate))
        history = pipeline.rl(WORLD, base, with_seed(plan, seed), quiet=True).history
        numbers[f"rl_{rate:g}_reward"] = fmean(history["reward"][-WINDOW:])
        numbers[f"rl_{rate:g}_length"] = fmean(history["completion_length"][-WINDOW:])
    return numbers


def one_seed(seed: int) -> dict[str, float]:
    """Evaluate the grid with one seed."""
    base, sft, _ = zoo_starts()
    pairs = pair_tokens(sft.tokenizer, preferences(WORLD, sft, with_seed(PAIRS, seed))[0])
    numbers = {"sft_gold": gold(sft, seed)}
    for use, (rates, lengths) in GRID.items():
        for rate in rates:
            for steps, policy in train_on(sft, pairs, use, seed, rate, lengths):
                numbers[f"{use}_{rate:g}_{steps}"] = gold(policy, seed)
    return numbers | long_rl(base, seed)


def probe() -> dict[str, float | str]:
    """Train two steps of each use and of RL, from a briefly trained model; list the grid."""
    base, sft, numbers = initial_models.assistant()
    data = pair_tokens(sft.tokenizer, preferences(WORLD, sft, initial_models.FEW_PAIRS)[0])
    for use in LOSSES:
        for _, policy in train_on(sft, data, use, FIRST, 3e-4, [2]):
            numbers[f"{use}_gold"] = gold(policy, FIRST)
    short = brief(LONG_RL, batch_size=4, num_generations=4)
    numbers |= trace("rl", pipeline.rl(WORLD, without_template(base), short, quiet=True).history)
    grid = {f"{use}: {name} {i}": x for use, axes in GRID.items() for name, axis in zip(("rate", "steps"), axes, strict=True) for i, x in enumerate(axis)}  # fmt: skip
    return numbers | grid | {f"rl: rate {i}": x for i, x in enumerate(RL_RATES)} | settings(pairs=PAIRS, rl=LONG_RL)


STUDY = Study(one_seed, probe, seeds=2, first_seed=FIRST)

if __name__ == "__main__":
    STUDY.main(__file__)
