"""Rounds of rejection sampling and a policy gradient at equal samples: ``python -m minirlhf_course.chapters.ch11_rejection_sampling.study`` (about two minutes).

The poem critic's forty completions, 128 sampled completions per round for eight rounds, ten seeds. Rejection sampling keeps the best of each eight, the
best sixteen of all, or sixteen at random. The policy gradient learns from the same number of completions in eight updates per round. The best of each
eight and the policy gradient run at each of four learning rates. Writes ``study.json``.
"""

from dataclasses import replace

from minirlhf.trainers.config import SELECTIONS, OnlineConfig, RejectionConfig
from minirlhf_course.chapters.ch11_rejection_sampling.poem import (
    GRADIENT,
    POLICY_GRADIENT,
    ROUNDS,
    Standing,
    by_gradient,
    by_rejection,
)
from minirlhf_course.evidence import Study, settings

AT = (1, 2, 4, 8)
RATES = {"_slow": 0.03, "": 0.1, "_fast": 0.3, "_fastest": 1.0}


def one_seed(
    seed: int, rounds: RejectionConfig = ROUNDS, gradient: OnlineConfig = GRADIENT, at: tuple[int, ...] = AT
) -> dict[str, float]:
    """Return the metrics of each run with one seed, after some of the rounds."""
    updates = gradient.max_steps * rounds.steps_per_round // rounds.max_steps  # per round
    runs: dict[str, list[Standing]] = {
        name: by_rejection(replace(rounds, selection=name, seed=seed)) for name in SELECTIONS if name != "per_prompt"
    }
    for suffix, rate in RATES.items():
        selected = replace(rounds, selection="per_prompt", learning_rate=rate, seed=seed)
        runs[f"per_prompt{suffix}"] = by_rejection(selected)
        runs[f"gradient{suffix}"] = by_gradient(replace(gradient, learning_rate=rate, seed=seed), updates)
    return {
        f"{name}_{key}_{k}": value
        for name, standings in runs.items()
        for k in at
        for key, value in vars(standings[k - 1]).items()
    }


def probe() -> dict[str, float | str]:
    """Run two short rounds of each method."""
    few = replace(ROUNDS, max_steps=4, steps_per_round=2, num_prompts=4, num_generations=4, batch_size=4)
    numbers = one_seed(0, few, replace(GRADIENT, max_steps=4), (1, 2))
    return numbers | settings(rounds=ROUNDS, gradient=GRADIENT, recipe=POLICY_GRADIENT)


STUDY = Study(one_seed, probe, seeds=10)

if __name__ == "__main__":
    STUDY.main(__file__)
