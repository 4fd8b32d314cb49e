"""Two settings of chapter 04 with five seeds: ``python -m minirlhf_course.chapters.ch04_policy_gradients_to_ppo.study_coefficients`` (some
fifteen minutes).

REINFORCE with a learned baseline when the common gradient norm is not clipped, and PPO with entropy bonuses of several sizes, on
CartPole. Seeds and all other settings are the same as in ``study.py``, with whose runs they are compared. Writes
``study_coefficients.json``.
"""

from dataclasses import replace

import torch

from minirlhf.control import policy_optimisation as po
from minirlhf.control.episodes import Environments
from minirlhf.control.policy_optimisation import ControlConfig, ControlRun
from minirlhf_course.chapters.ch04_policy_gradients_to_ppo import poles
from minirlhf_course.evidence import Study, settings

BONUSES = (0.0, 0.01, 0.1, 1.0)
NO_CLIP = replace(poles.EPISODES, max_grad_norm=1e9)


def entropy(run: ControlRun) -> float:
    """Mean entropy of the trained policy's next action, nats, in the states that ten new episodes of it visit."""
    rollout = Environments(poles.cartpole, 10, seed=99).collect(run.policy, None)
    with torch.no_grad():
        logps = run.policy(rollout.observations[rollout.mask]).log_softmax(-1)
    return float(-(logps.exp() * logps).sum(-1).mean())


def one_seed(seed: int, **changes: int) -> dict[str, float]:
    """Both settings with one seed."""
    unclipped = po.train_policy(poles.cartpole, po.REINFORCE_WITH_BASELINE, replace(NO_CLIP, seed=seed, **changes))
    numbers = {"unclipped_score": poles.score(unclipped)}
    for bonus in BONUSES:
        method = replace(po.PPO, entropy_coef=bonus)
        run = po.train_policy(poles.cartpole, method, replace(ControlConfig(), seed=seed, **changes))
        numbers |= {f"bonus_{bonus:g}_score": poles.score(run), f"bonus_{bonus:g}_entropy": entropy(run)}
    return numbers


def probe() -> dict[str, float | str]:
    """The same, with two rollouts."""
    return one_seed(10, total_steps=1024, num_envs=4) | settings(
        bonus=ControlConfig(), unclipped=NO_CLIP, ppo=po.PPO, baseline=po.REINFORCE_WITH_BASELINE
    )


STUDY = Study(one_seed, probe, first_seed=10)

if __name__ == "__main__":
    STUDY.main(__file__)
