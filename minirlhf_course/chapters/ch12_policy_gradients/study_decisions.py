"""Replies of 4, 16 and 64 decisions, with and without a critic: ``python -m minirlhf_course.chapters.ch12_policy_gradients.study_decisions`` (about a minute).

Ten seeds. The critic learns from the rewards at the end alone, and its learning counts. Replies of 64 once more at three times the rate.
"""

import torch

from minirlhf.equations.policy_gradient import decision_noise
from minirlhf_course.chapters.ch12_policy_gradients import many_decisions
from minirlhf_course.evidence import Study

LENGTHS, EARLY = (4, 16, 64), 20
CRITICS = {"none": None, "critic": 0.95}
FASTER = 0.3


def one_seed(seed: int, lengths: tuple[int, ...] = LENGTHS, rollouts: int = 30) -> dict[str, float]:
    """Reward per token, early and over the whole run; and the exact noise at the start of a run like these."""
    numbers: dict[str, float] = {}
    for tokens in lengths:
        for name, lam in CRITICS.items():
            earned = many_decisions.train(tokens, lam, seed=seed, rollouts=rollouts)
            numbers[f"{name}_{tokens}_early"] = earned[min(EARLY, rollouts) - 1]
            numbers[f"{name}_{tokens}_area"] = sum(earned) / len(earned)
    for name, lam in CRITICS.items():
        earned = many_decisions.train(lengths[-1], lam, seed=seed, rollouts=rollouts, rate=FASTER)
        numbers[f"{name}_{lengths[-1]}_faster_early"] = earned[min(EARLY, rollouts) - 1]
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
