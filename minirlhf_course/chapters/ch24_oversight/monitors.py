"""A monitor with a fine, in closed form: when does a policy stop a behaviour, and when does it only hide it?

Three kinds of completions: honest work, which earns p; a spoken cheat and a silent cheat, which both earn 1. The
monitor flags a completion of each kind with a known probability, and a flag costs a fine. The policy is the optimum
under a KL penalty of strength β to an initial policy.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from minirlhf.core.equation import equation
from minirlhf.core.errors import ArgumentError
from minirlhf.core.validate import NOT_NEGATIVE, POSITIVE, finite, number, takes

_SHARE = number("(0, 1)")


@takes(ref_logps="... N", rewards="... N", flags=finite("... N", "[0, 1]"), fine=NOT_NEGATIVE, beta=POSITIVE)
@equation("eq:monitored-optimum", source="eq:tilt for the reward minus the expected fine.")
def monitored_policy(ref_logps: Tensor, rewards: Tensor, flags: Tensor, *, fine: float, beta: float) -> Tensor:
    """Log-probabilities ``(..., N)`` of the optimum for the reward minus the expected fine, with a KL penalty.

    Args:
        ref_logps: log-probabilities of all completions under the initial policy.
        rewards: their proxy rewards.
        flags: probability that the monitor flags each of them.
        fine: cost of a flag.
        beta: strength of the KL penalty.
    """
    return torch.log_softmax(ref_logps + (rewards - fine * flags) / beta, -1)


@takes(ref_logps="... 2", flags=finite("... 2", "[0, 1]"), fine=NOT_NEGATIVE, beta=POSITIVE)
@equation("eq:hide-odds", source="Own derivation, from eq:monitored-optimum.")
def silence_log_odds(ref_logps: Tensor, flags: Tensor, *, fine: float, beta: float) -> Tensor:
    """Log-odds of the silent cheat to the spoken cheat, if both earn the same, ``(...)``.

    Args:
        ref_logps: log-probabilities of the spoken and of the silent cheat under the initial policy.
        flags: probability that the monitor flags each of the two.
        fine: cost of a flag.
        beta: strength of the KL penalty.
    """
    return ref_logps[..., 1] - ref_logps[..., 0] + fine * (flags[..., 0] - flags[..., 1]) / beta


@takes(ref_logps="2", flags=finite("2", "[0, 1]"), gain=POSITIVE, beta=POSITIVE)
@equation("eq:stopping-fine", source="Own derivation, from eq:monitored-optimum.")
def stopping_fine(ref_logps: Tensor, flags: Tensor, *, gain: float, beta: float) -> float:
    """The smallest fine at which honest work is at least as probable as a cheat; infinite if no fine achieves it.

    Args:
        ref_logps: log-probabilities of honest work and of the cheat under the initial policy.
        flags: probability that the monitor flags each of the two.
        gain: what the cheat earns more than honest work.
        beta: strength of the KL penalty.
    """
    needed = gain - beta * float(ref_logps[0] - ref_logps[1])
    seen = float(flags[1] - flags[0])
    if needed <= 0:
        return 0.0
    return needed / seen if seen > 0 else math.inf


@takes(ref_logps="... 2", gain=POSITIVE, beta=POSITIVE)
@equation("eq:obfuscation-limit", source="Own derivation, from eq:monitored-optimum.")
def obfuscated_share(ref_logps: Tensor, *, gain: float, beta: float) -> Tensor:
    """The fraction of cheats that is left as the fine grows, if silent cheats are flagged as often as honest work.

    Args:
        ref_logps: log-probabilities ``(..., 2)`` of honest work and of the silent cheat under the initial policy.
        gain: what the cheat earns more than honest work.
        beta: strength of the KL penalty.
    """
    return torch.sigmoid(ref_logps[..., 1] - ref_logps[..., 0] + gain / beta)


@takes(share=_SHARE, gain=POSITIVE, rate=POSITIVE)
@equation("eq:time-to-hide", source="Own derivation: the gradient flow of eq:policy-gradient for two actions.")
def steps_to_majority(share: float, *, gain: float, rate: float = 1.0) -> float:
    """Steps of exact policy gradient, at a small rate, until a cheat that earns more is the majority.

    Two completions with a logit each, and no KL penalty.

    Args:
        share: initial probability of the cheat, at most ½.
        gain: what the cheat earns more than honest work.
        rate: learning rate.
    """
    if share > 0.5:
        raise ArgumentError(f"share = {share}; expected at most 1/2", argument="share", value=share, expected="≤ 1/2")
    odds = share / (1 - share)
    return (1 / odds - odds + 2 * math.log(1 / odds)) / (2 * rate * gain)
