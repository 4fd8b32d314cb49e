"""Rounds of rejection sampling and a policy gradient at equal samples: ``python -m minirlhf_course.chapters.ch11_rejection_sampling.study`` (about a minute).

The poem critic's forty replies, 128 sampled replies a round for eight rounds, ten seeds. Rejection sampling keeps the best of each eight, the best
sixteen of all, or sixteen at random; the policy gradient learns from the same number of replies in eight updates a round. Writes ``study.json``.
"""

from dataclasses import replace

from minirlhf.trainers.config import SELECTIONS, OnlineConfig, RejectionConfig
from minirlhf_course.chapters.ch11_rejection_sampling.poem import (
    GRADIENT,
    POLICY_GRADIENT,
    ROUNDS,
    by_gradient,
    by_rejection,
)
from minirlhf_course.evidence import Study, settings

AT = (1, 2, 4, 8)
RATES = {"gradient": 0.1, "gradient_fast": 0.3}


def one_seed(
    seed: int, rounds: RejectionConfig = ROUNDS, gradient: OnlineConfig = GRADIENT, at: tuple[int, ...] = AT
) -> dict[str, float]:
    """Every run with one seed, looked at after some of the rounds."""
    updates = gradient.max_steps * rounds.steps_per_round // rounds.max_steps  # of a round
    runs = {
        name: by_rejection(replace(rounds, selection=name, seed=seed)) for name in SELECTIONS
    } | {
        name: by_gradient(replace(gradient, learning_rate=rate, seed=seed), updates) for name, rate in RATES.items()
    }  # fmt: skip
    return {
        f"{name}_{key}_{k}": value
        for name, places in runs.items()
        for k in at
        for key, value in vars(places[k - 1]).items()
    }


def probe() -> dict[str, float | str]:
    """Two short rounds of each."""
    few = replace(ROUNDS, max_steps=4, steps_per_round=2, num_prompts=4, num_generations=4, batch_size=4)
    numbers = one_seed(0, few, replace(GRADIENT, max_steps=4), (1, 2))
    return numbers | settings(rounds=ROUNDS, gradient=GRADIENT, recipe=POLICY_GRADIENT)


STUDY = Study(one_seed, probe, seeds=10)

if __name__ == "__main__":
    STUDY.main(__file__)
