"""Completions of 4, 16 and 64 decisions, with and without a critic.

Run it with ``python -m minirlhf_course.chapters.ch12_policy_gradients.study_decisions`` (about two minutes). Ten seeds. One critic is
fitted to the final rewards of all rollouts so far, another to those of the last rollout alone. Completions of 64 decisions are
trained at three learning rates.
"""

import torch

from minirlhf.equations.policy_gradient import decision_noise
from minirlhf_course.chapters.ch12_policy_gradients import many_decisions
from minirlhf_course.evidence import Study

LENGTHS, EARLY = (4, 16, 64), 20
CRITICS = {
    "none": (None, True),
    "critic": (0.95, True),
    "recent": (0.95, False),
}  # lambda, and whether old rollouts count
RATES = {"faster": 0.3, "fastest": 1.0}


def one_seed(seed: int, lengths: tuple[int, ...] = LENGTHS, rollouts: int = 30) -> dict[str, float]:
    """Return the reward per token, early and over the whole run."""
    numbers: dict[str, float] = {}
    for name, (lam, memory) in CRITICS.items():
        for tokens in lengths:
            earned = many_decisions.train(tokens, lam, seed=seed, rollouts=rollouts, memory=memory)
            numbers[f"{name}_{tokens}_early"] = earned[min(EARLY, rollouts) - 1]
            numbers[f"{name}_{tokens}_area"] = sum(earned) / len(earned)
        for speed, rate in RATES.items():
            earned = many_decisions.train(lengths[-1], lam, seed=seed, rollouts=rollouts, rate=rate, memory=memory)
            numbers[f"{name}_{lengths[-1]}_{speed}_early"] = earned[min(EARLY, rollouts) - 1]
    return numbers


def probe() -> dict[str, float | str]:
    """Three rollouts of every run, and the formula."""
    logits = torch.linspace(-1, 1, 20, dtype=torch.float64).view(5, 4)
    quality = torch.eye(4, dtype=torch.float64)[torch.tensor([0, 1, 2, 3, 0])]
    noises = {
        "noise_whole": many_decisions.whole_reward(5),
        "noise_critic": many_decisions.with_exact_critic(5, 0.95),
    }
    numbers = {name: float(decision_noise(logits, quality, x)) for name, x in noises.items()}
    return numbers | one_seed(0, LENGTHS, 3)


STUDY = Study(one_seed, probe, seeds=10)

if __name__ == "__main__":
    STUDY.main(__file__)
