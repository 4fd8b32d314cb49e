"""The ledger of chapter 12: credit for many decisions, whitening over tokens, and weights for what another policy sampled."""

from __future__ import annotations

import itertools
import math
import statistics

import torch
from torch import Tensor

from minirlhf.core import exact
from minirlhf.equations import advantages as adv
from minirlhf.equations import off_policy
from minirlhf.equations import policy_losses as pg
from minirlhf.equations.policy_gradient import decision_noise
from minirlhf_course.ledger.registry import Comparison, Draw, chain, check

# -- many decisions ----------------------------------------------------------------------------------------------


@check(
    "eq:decision-noise",
    "value",
    "The variance of the gradient estimate, from each token's own advantage and from the weighted sum of the "
    "advantages of all other tokens, divided by the squared norm of the gradient.",
    of=decision_noise,
    against="mean and variance of the estimate, summed over every reply",
    wrong={
        "weights not squared": lambda logits, quality, carried: decision_noise(logits, quality, carried.sqrt()),
        "the other tokens forgotten": lambda logits, quality, carried: decision_noise(
            logits, quality, torch.zeros_like(carried)
        ),
        "every other token whole": lambda logits, quality, carried: decision_noise(
            logits, quality, torch.ones_like(carried)
        ),
        "earlier tokens for later ones": lambda logits, quality, carried: decision_noise(
            logits.flip(0), quality.flip(0), carried
        ),
    },
)
def _(noise, draw: Draw) -> Comparison:
    logits, quality, carried = draw.normal(3, 3), draw.normal(3, 3), draw.uniform(3, 3, low=0.2, high=0.9)
    probs = logits.softmax(-1)
    added = quality - (probs * quality).sum(-1, keepdim=True)
    mean, square = torch.zeros(3, 3, dtype=torch.float64), 0.0
    for reply in itertools.product(range(3), repeat=3):
        chance = math.prod(float(probs[t, a]) for t, a in enumerate(reply))
        deltas = torch.stack([added[t, a] for t, a in enumerate(reply)])
        estimate = torch.zeros(3, 3, dtype=torch.float64)
        for t, a in enumerate(reply):
            credit = deltas[t] + sum(carried[t, k] * deltas[k] for k in range(3) if k != t)
            estimate[t] = credit * (torch.eye(3, dtype=torch.float64)[a] - probs[t])
        mean += chance * estimate
        square += chance * float(estimate.square().sum())
    length = float(mean.square().sum())
    return noise(logits, quality, carried), (square - length) / length


# -- whitening over tokens ---------------------------------------------------------------------------------------


def whitened_tokens(rewards: Tensor, mask: Tensor) -> Tensor:
    """Each reply's reward on each of its tokens, whitened over all tokens of the batch: ``(B,)`` and ``(B, T)`` to ``(B, T)``."""
    return adv.whiten(adv.broadcast_to_tokens(rewards[:, None], mask), mask)


@check(
    "eq:reinforce-pp-tokens",
    "value",
    "(r_i − m)/s, mean and deviation weighted by the lengths of the replies.",
    of=whitened_tokens,
    against="mean and deviation of a list in which each reward stands once per token (Python's statistics)",
    follows="eq:whitening",
    tolerance=1e-6,
    wrong={
        "over replies": lambda rewards, mask: adv.broadcast_to_tokens(
            (rewards - rewards.mean())[:, None] / rewards.std(), mask
        ),
        "not centred": lambda rewards, mask: adv.whiten(
            adv.broadcast_to_tokens(rewards[:, None], mask), mask, shift_mean=False
        ),
        "padding counted": lambda rewards, mask: (
            adv.whiten(adv.broadcast_to_tokens(rewards[:, None], mask), torch.ones_like(mask)) * mask
        ),
    },
)
def _(whitened, draw: Draw) -> Comparison:
    lengths = torch.tensor([11, 3, 3, 3])[draw.permutation(4)]
    mask = torch.arange(11)[None, :] < lengths[:, None]
    rewards = torch.tensor([1.0, 0.0, 0.2, 0.4], dtype=torch.float64) + draw.uniform(4, high=0.1)
    copies = [r for r, n in zip(rewards.tolist(), lengths.tolist(), strict=True) for _ in range(n)]
    each = (rewards - statistics.fmean(copies)) / statistics.stdev(copies)
    return whitened(rewards, mask), torch.where(mask, each[:, None], 0.0)


chain(
    "rewards-whitened-over-tokens",
    "Whitening the rewards over tokens weighs them by length",
    ["eq:whitening", "eq:reinforce-pp-tokens"],
    module=__name__,
)

# -- samples of another policy -----------------------------------------------------------------------------------


def _two_policies(draw: Draw) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """All replies of two tokens over three words: log-probabilities of tokens under π_old and μ, those of replies, and a value of each."""
    old, mu = draw.distribution(3), draw.distribution(3)
    pairs = torch.cartesian_prod(torch.arange(3), torch.arange(3))  # (9, 2)
    old_logps, mu_logps = old.log()[pairs], mu.log()[pairs]
    return old_logps, mu_logps, old_logps.sum(-1), mu_logps.sum(-1), 1 + draw.uniform(9)


@check(
    "eq:sequence-importance-weight",
    "expected value",
    "Weighted replies of μ have the expectation of min(π_old, Cμ); masked tokens do not count.",
    of=off_policy.sequence_importance_weight,
    against="Σ min(π_old(y), Cμ(y)) f(y) over all replies",
    wrong={
        "one weight per token, multiplied afterwards": lambda old, mu, mask, *, importance_sampling_cap: (
            off_policy.truncated_importance_weight(old, mu, mask, importance_sampling_cap=importance_sampling_cap).prod(
                -1, keepdim=True
            )
        ),
        "geometric mean": lambda old, mu, mask, *, importance_sampling_cap: pg.sequence_ratio(old, mu, mask).clamp(
            max=importance_sampling_cap
        ),
        "no cap": lambda old, mu, mask, *, importance_sampling_cap: (
            pg.sequence_ratio(old, mu, mask) ** mask.sum(-1, keepdim=True)
        ),
        "upside down": lambda old, mu, mask, *, importance_sampling_cap: off_policy.sequence_importance_weight(
            mu, old, mask, importance_sampling_cap=importance_sampling_cap
        ),
    },
)
def _(weight, draw: Draw) -> Comparison:
    old, mu, whole_old, whole_mu, f = _two_policies(draw)
    cap = float((whole_old - whole_mu).exp().median()) * 1.01  # about half of the replies are cut
    mask = torch.tensor([True, True, False]).expand(9, 3)
    nothing = torch.full((9, 1), torch.nan, dtype=torch.float64)
    got = weight(torch.cat([old, nothing], 1), torch.cat([mu, nothing], 1), mask, importance_sampling_cap=cap)
    wanted = (torch.minimum(whole_old.exp(), cap * whole_mu.exp()) * f).sum()
    return exact.expectation(whole_mu.exp(), got[:, 0] * f), wanted


def _masked(old: Tensor, mu: Tensor, mask: Tensor, low: float, high: float, other: float) -> Tensor:
    ratio = pg.policy_ratio(old, mu, mask)
    return torch.where((ratio >= low) & (ratio <= high), ratio, other)


@check(
    "eq:masked-importance-weight",
    "expected value",
    "Weighted samples of μ have the expectation under π_old on tokens with 1/C' ≤ π_old/μ ≤ C, and 0 elsewhere.",
    of=off_policy.masked_importance_weight,
    against="Σ π_old f over the tokens in which the ratio is within the bounds",
    wrong={
        "cut instead of dropped": lambda old, mu, mask, *, importance_sampling_cap, importance_sampling_floor: (
            pg.policy_ratio(old, mu, mask).clamp(importance_sampling_floor, importance_sampling_cap)
        ),
        "no floor": lambda old, mu, mask, *, importance_sampling_cap, importance_sampling_floor: _masked(
            old, mu, mask, 0.0, importance_sampling_cap, 0.0
        ),
        "no cap": lambda old, mu, mask, *, importance_sampling_cap, importance_sampling_floor: _masked(
            old, mu, mask, importance_sampling_floor, math.inf, 0.0
        ),
        "weight 1 inside": lambda old, mu, mask, *, importance_sampling_cap, importance_sampling_floor: (
            off_policy.masked_importance_weight(
                old,
                mu,
                mask,
                importance_sampling_cap=importance_sampling_cap,
                importance_sampling_floor=importance_sampling_floor,
            )
            > 0
        ).double(),
    },
)
def _(weight, draw: Draw) -> Comparison:
    mu = torch.tensor([0.7, 0.2, 0.08, 0.02]) + draw.uniform(4, high=0.004)
    old = torch.tensor([0.2, 0.3, 0.1, 0.4]) + draw.uniform(4, high=0.02)
    mu, old, f = mu / mu.sum(), old / old.sum(), 1 + draw.uniform(4)
    cap, floor = 2.0 + float(draw.uniform(high=1.0)), 0.5 + float(draw.uniform(high=0.3))
    got = weight(
        old.log()[None],
        mu.log()[None],
        torch.ones(1, 4, dtype=torch.bool),
        importance_sampling_cap=cap,
        importance_sampling_floor=floor,
    )[0]
    agree = torch.tensor([False, True, True, False])  # ratios of about .3, 1.5, 1.2 and 20
    return exact.expectation(mu, got * f), (old * f)[agree].sum()
