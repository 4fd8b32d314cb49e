"""Gold and proxy reward along the path of an optimiser, as functions of the distance √KL from the reference. All
values are exact sums, not samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from minirlhf.data.seven_words import MAX_WORDS, STOP, Decisions, Outcomes, decisions
from minirlhf.equations.estimators import best_of_n_distribution
from minirlhf.equations.kl import reverse_kl
from minirlhf.equations.overoptimization import tilt


@dataclass(frozen=True)
class Curve:
    """The path of an optimiser. All ``(K,)``, in the order of the path, the reference first.

    Attributes:
        distance: √KL from the reference.
        proxy, gold: expected rewards.
    """

    distance: Tensor
    proxy: Tensor
    gold: Tensor

    def _at(self, values: Tensor, distance: float) -> float:
        """Return the value where the path first reaches this distance, linearly interpolated between its points; NaN
        if the path never does."""
        reached = (self.distance >= distance).nonzero().flatten()
        if len(reached) == 0:
            return float("nan")
        k = int(reached[0])
        if k == 0:
            return float(values[0])
        fraction = (distance - self.distance[k - 1]) / (self.distance[k] - self.distance[k - 1])
        return float(values[k - 1] + fraction * (values[k] - values[k - 1]))

    def gold_at(self, distance: float) -> float:
        """Return the gold reward where the path first reaches this distance; NaN if it never does."""
        return self._at(self.gold, distance)

    def proxy_at(self, distance: float) -> float:
        """Return the proxy reward where the path first reaches this distance; NaN if it never does."""
        return self._at(self.proxy, distance)

    def gold_by(self, distance: float) -> float:
        """Return the gold reward at a distance, or at the end of the path if it never reaches this distance."""
        return self.gold_at(distance) if float(self.distance.max()) >= distance else float(self.gold[-1])

    @property
    def peak(self) -> tuple[float, float]:
        """Distance and gold reward of the point with the highest gold reward."""
        best = int(self.gold.argmax())
        return float(self.distance[best]), float(self.gold[best])

    @property
    def fall(self) -> float:
        """Loss of gold reward from the peak to the end; 0 if the gold reward never falls."""
        return float(self.gold.max() - self.gold[-1])


def along(logps: Tensor, ref_logps: Tensor, proxy: Tensor, gold: Tensor) -> Curve:
    """Return the curve of some policies ``(K, N)``; rewards and reference are ``(N,)``."""
    probs = logps.exp()
    kl = reverse_kl(logps, ref_logps.expand_as(logps)).clamp(min=0)  # at the reference it is 0 up to rounding
    return Curve(kl.sqrt(), probs @ proxy, probs @ gold)


#: 0, then β = 1/strength from 50 to 0.03.
STRENGTHS = (0.0, *torch.logspace(-1.7, 1.52, 60, dtype=torch.float64).tolist())


def tilted(ref_logps: Tensor, proxy: Tensor, strengths: Sequence[float] = STRENGTHS) -> Tensor:
    """Return ``(K, N)`` log-probabilities of the optimal policies at each strength, from :func:`tilt`."""
    return torch.stack([tilt(ref_logps, proxy, strength=s) for s in strengths])


def tilt_curve(ref_logps: Tensor, proxy: Tensor, gold: Tensor, strengths: Sequence[float] = STRENGTHS) -> Curve:
    """Return the curve of the exact optima for all KL penalties: the frontier of the proxy. All ``(N,)``."""
    return along(tilted(ref_logps, proxy, strengths), ref_logps, proxy, gold)


#: Numbers of samples n: up to a million, ten points per decade.
DRAWS = tuple(sorted({round(10 ** (k / 10)) for k in range(61)}))


def best_of_n_curve(ref_logps: Tensor, proxy: Tensor, gold: Tensor, draws: Sequence[int] = DRAWS) -> Curve:
    """Return the curve of best-of-n over n, from its exact distribution. All ``(N,)``."""
    probs = ref_logps.exp() / ref_logps.exp().sum()
    policies = torch.stack([best_of_n_distribution(probs, proxy, n=n) for n in draws])
    return along(policies.clamp(min=1e-300).log(), ref_logps, proxy, gold)


#: The context on which a policy conditions its next word, from few parameters to many.
POLICY_SIZES = ("word", "place", "text")


class WordPolicy(nn.Module):
    """The reference with a table of corrections: logits = reference + table[context].

    Args:
        size: the context. ``word``: the previous word (64 parameters); ``place``: the previous word and the number of
            words so far (376); ``text``: the whole text so far (22,408).
    """

    def __init__(self, choice: Decisions, size: str) -> None:
        super().__init__()
        position = torch.arange(MAX_WORDS + 1).expand_as(choice.actions)
        context = {
            "word": choice.contexts,
            "place": position * (STOP + 1) + choice.contexts,
            "text": choice.prefixes,
        }[size]
        # One row per (context, position, previous word): the reference needs the last two, the table the first.
        keys = torch.stack([context, position, choice.contexts], -1)[choice.mask]  # (decisions, 3)
        rows, index = torch.unique(keys, dim=0, return_inverse=True)
        self.table = nn.Parameter(torch.zeros(int(context.max()) + 1, STOP + 1, dtype=torch.float64))
        flat = torch.zeros(choice.mask.shape, dtype=torch.long)
        flat[choice.mask] = index * (STOP + 1) + choice.actions[choice.mask]
        self.seen, self.base = rows[:, 0], choice.ref_table[rows[:, 1], rows[:, 2]]  # (rows,), (rows, 8)
        self.flat, self.mask = flat, choice.mask

    def reply_logps(self) -> Tensor:
        """Return the ``(N,)`` log-probabilities of all completions. Differentiable."""
        step = (self.base + self.table[self.seen]).log_softmax(-1).flatten()
        return torch.where(self.mask, step[self.flat], 0.0).sum(-1)


def policy_gradient(
    world: Outcomes,
    choice: Decisions,
    proxy: Tensor,
    *,
    size: str = "place",
    beta: float = 0.0,
    steps: int = 150,
    learning_rate: float = 0.05,
) -> Tensor:
    """Return ``(steps + 1, N)``: log-probabilities of the policies along gradient ascent on E[proxy] − β KL.

    The gradient is exact, a sum over all completions; Adam takes the steps.
    """
    policy = WordPolicy(choice, size)
    optimiser = torch.optim.Adam(policy.parameters(), lr=learning_rate)
    path = []
    for step in range(steps + 1):
        logps = policy.reply_logps()
        path.append(logps.detach())
        if step < steps:
            optimiser.zero_grad()
            probs = logps.exp()
            value = probs @ proxy - beta * (probs @ (logps - world.ref_logps))
            (-value).backward()
            optimiser.step()
    return torch.stack(path)


OPTIMIZERS = ("tilt", "best-of-n", "policy-gradient")


def optimise(optimizer: str, world: Outcomes, proxy: Tensor) -> Curve:
    """Return the curve of one optimiser; ``policy-gradient`` needs a world of single completions, the others accept
    any outcomes."""
    if optimizer == "tilt":
        return tilt_curve(world.ref_logps, proxy, world.gold)
    if optimizer == "best-of-n":
        return best_of_n_curve(world.ref_logps, proxy, world.gold)
    path = policy_gradient(world, decisions(), proxy)
    return along(path, world.ref_logps, proxy, world.gold)
