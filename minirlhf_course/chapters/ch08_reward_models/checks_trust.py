"""The ledger of chapter 08: inverse reinforcement learning, calibration, and two reward models in one."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from minirlhf.equations import reward_losses
from minirlhf_course.ledger.registry import Comparison, Draw, check

_WRONG_IRL = {
    "reference forgotten": lambda rewards, ref_logps, demonstrations: reward_losses.max_entropy_irl_loss(
        rewards, torch.zeros_like(ref_logps), demonstrations
    ),
    "minus sign lost: worst replies demonstrated": lambda rewards, ref_logps, demonstrations: (
        reward_losses.max_entropy_irl_loss(-rewards, ref_logps, demonstrations)
    ),
    "mean reward of the reference in place of log Z": lambda rewards, ref_logps, demonstrations: (
        (ref_logps.exp() * rewards).sum(-1) - (demonstrations * rewards).sum(-1)
    ),
}


@check(
    "eq:max-entropy-irl",
    "value",
    "The loss is the cross-entropy of the demonstrations under the optimal policy for this reward, minus that "
    "under the reference.",
    of=reward_losses.max_entropy_irl_loss,
    against="cross entropy of the demonstrations under π_ref e^r/Z, less that under the reference",
    wrong=_WRONG_IRL,
)
def _(loss, draw: Draw) -> Comparison:
    rewards, ref, shown = draw.normal(2, 4), draw.distribution(2, 4), draw.distribution(2, 4)
    weights = ref * rewards.exp()
    best = weights / weights.sum(-1, keepdim=True)
    surprise = -(shown * best.log()).sum(-1) + (shown * ref.log()).sum(-1)
    return loss(rewards, ref.log(), shown), surprise


@check(
    "eq:max-entropy-irl",
    "gradient",
    "The reward increases for replies that are demonstrated more often than the optimal policy produces them; "
    "the gradient is 0 where the two agree.",
    of=reward_losses.max_entropy_irl_loss,
    against="the optimal policy minus the demonstrations; 0 at r = log(demo/π_ref) plus any constant",
    wrong=_WRONG_IRL,
)
def _(loss, draw: Draw) -> Iterator[Comparison]:
    ref, shown = draw.distribution(4), draw.distribution(4)
    rewards = draw.normal(4).requires_grad_()
    (got,) = torch.autograd.grad(loss(rewards, ref.log(), shown), rewards)
    weights = ref * rewards.detach().exp()
    yield got, weights / weights.sum() - shown
    at_rest = (shown.log() - ref.log() + draw.uniform(low=1.0, high=3.0)).requires_grad_()
    (still,) = torch.autograd.grad(loss(at_rest, ref.log(), shown), at_rest)
    yield still, torch.zeros(4)


@check(
    "eq:max-entropy-irl",
    "two replies",
    "A comparison is a demonstration among two equally probable replies: Bradley–Terry is inverse RL on pairs.",
    of=reward_losses.max_entropy_irl_loss,
    against="the Bradley–Terry loss of the pair, averaged over the winner, minus log 2",
    wrong=_WRONG_IRL,
)
def _(loss, draw: Draw) -> Comparison:
    a, b = draw.uniform(5, low=0.3, high=1.5), draw.uniform(5, low=-1.5, high=-0.3)
    p = draw.away_from([0.5], 5, low=0.1, high=0.9, margin=0.1)
    even = torch.full((5, 2), 0.5, dtype=torch.float64)
    got = loss(torch.stack([a, b], -1), even.log(), torch.stack([p, 1 - p], -1))
    pairs = p * (1 + (b - a).exp()).log() + (1 - p) * (1 + (a - b).exp()).log()
    return got, pairs - torch.tensor(2.0, dtype=torch.float64).log()


@check(
    "eq:calibration-error",
    "value",
    "In every bin, mean confidence is compared with the fraction correct; bins are weighted by their counts.",
    of=reward_losses.expected_calibration_error,
    against="bin by bin, over intervals written out",
    wrong={
        "bins weighted equally": lambda probabilities, outcomes, *, num_bins: torch.stack(
            [
                (outcomes[rows] - probabilities[rows]).mean().abs()
                for b in range(num_bins)
                if (rows := (probabilities * num_bins).long() == b).any()
            ]
        ).mean(),
        "gap of the whole": lambda probabilities, outcomes, *, num_bins: (outcomes - probabilities).mean().abs(),
        "mean of the gaps of single outcomes": lambda probabilities, outcomes, *, num_bins: (
            (outcomes - probabilities).abs().mean()
        ),
    },
)
def _(error, draw: Draw) -> Iterator[Comparison]:
    for bins in (2, 4, 12):
        # Some probabilities in every bin, more in the first, at no edge but 1, which belongs to the last bin; what happens is biased
        # up in the first bin, down in the last.
        place = [0, 0, 0, *range(bins)]
        inside = draw.uniform(len(place), low=0.2, high=0.8)
        said = torch.cat([(torch.tensor(place) + inside) / bins, torch.ones(1, dtype=torch.float64)])
        happened = torch.tensor([1.0 if b < bins / 2 else 0.0 for b in [*place, bins - 1]], dtype=torch.float64)
        happened[0] = 0.0  # in the first bin some come true and some do not, so that gaps cancel
        total = torch.zeros((), dtype=torch.float64)
        for b in range(bins):
            rows = [i for i, p in enumerate(said.tolist()) if b / bins <= p < (b + 1) / bins + (b == bins - 1)]
            gap = sum(float(happened[i] - said[i]) for i in rows) / len(rows)
            total = total + len(rows) / len(said) * abs(gap)
        yield error(said, happened, num_bins=bins), total


@check(
    "eq:calibration-error",
    "calibrated",
    "A calibrated model has error 0; one whose confidence is too high by a constant has this constant as error.",
    of=reward_losses.expected_calibration_error,
    against="0 where confidence equals the probability; the constant where it is too high by a constant",
    wrong={
        "gap not taken absolute": lambda probabilities, outcomes, *, num_bins: (outcomes - probabilities).mean(),
        "squared": lambda probabilities, outcomes, *, num_bins: ((outcomes - probabilities) ** 2).mean(),
    },
)
def _(error, draw: Draw) -> Iterator[Comparison]:
    truth, bias = draw.uniform(6, low=0.1, high=0.5), float(draw.uniform(low=0.1, high=0.4))
    for bins in (3, 7):
        yield error(truth, truth, num_bins=bins), torch.zeros((), dtype=torch.float64)
        yield error(truth + bias, truth, num_bins=bins), torch.tensor(bias, dtype=torch.float64)


@check(
    "eq:gated-reward",
    "value",
    "A harmful reply gets its safety score whatever its helpfulness; a harmless one gets its helpfulness "
    "whatever its safety score.",
    of=reward_losses.gated_reward,
    against="replies classified as harmless and harmful by hand; helpfulness never compensates for harm",
    wrong={
        "sum of the two": lambda helpful, safe, *, threshold: helpful + safe,
        "the smaller of the two": lambda helpful, safe, *, threshold: torch.minimum(helpful, safe),
        "gate the wrong way": lambda helpful, safe, *, threshold: torch.where(safe < threshold, helpful, safe),
        "threshold on the helpful": lambda helpful, safe, *, threshold: torch.where(helpful < threshold, safe, helpful),
    },
)
def _(gated, draw: Draw) -> Iterator[Comparison]:
    for threshold in (0.15, 0.4):
        harmful = draw.uniform(3, low=threshold - 1.0, high=threshold - 0.1)
        harmless = draw.uniform(3, low=threshold + 0.1, high=threshold + 0.6)
        helpful = draw.uniform(3, low=threshold - 0.9, high=threshold - 0.3), draw.uniform(3, low=2.0, high=3.0)
        for more in (0.0, 1.0):
            help_now = torch.cat([x + more for x in helpful])
            yield (
                gated(help_now, torch.cat([harmful, harmless]), threshold=threshold),
                torch.cat([harmful, helpful[1] + more]),
            )
        yield gated(helpful[0], harmless, threshold=threshold), helpful[0]
        yield gated(helpful[0], torch.full((3,), threshold, dtype=torch.float64), threshold=threshold), helpful[0]
