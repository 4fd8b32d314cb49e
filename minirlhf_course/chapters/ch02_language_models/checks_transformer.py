"""The ledger of chapter 02, second part: inside the transformer, and how entropy follows the temperature."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from minirlhf.core import exact
from minirlhf.equations import language, transformer
from minirlhf_course.chapters.ch02_language_models import equations
from minirlhf_course.ledger.registry import Comparison, Draw, check


def _weighted(q: Tensor, k: Tensor, v: Tensor, divisor: float, causal: bool = True) -> Tensor:
    """Attention with another divisor or without the mask."""
    scores = q @ k.transpose(-1, -2) / divisor
    past = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    return (scores.masked_fill(~past, -math.inf) if causal else scores).softmax(-1) @ v


@check(
    "eq:attention",
    "value",
    "Each position takes a weighted mean of the values at its own and earlier positions, with weights "
    "proportional to e^(q·k/√W).",
    of=transformer.attention,
    against=(
        "position by position: exponentials of scalar products, summed over earlier positions and the position itself"
    ),
    wrong={
        "the future is seen": lambda q, k, v: _weighted(q, k, v, math.sqrt(q.shape[-1]), causal=False),
        "not divided by √W": lambda q, k, v: _weighted(q, k, v, 1.0),
        "divided by W": lambda q, k, v: _weighted(q, k, v, q.shape[-1]),
        "keys ask and queries answer": lambda q, k, v: transformer.attention(k, q, v),
    },
)
def _(attention, draw: Draw) -> Comparison:
    q, k, v = draw.normal(2, 4, 3), draw.normal(2, 4, 3), draw.normal(2, 4, 2)
    got = torch.zeros(2, 4, 2, dtype=torch.float64)
    for head in range(2):
        for t in range(4):
            weights = [math.exp(float(q[head, t] @ k[head, u]) / 3**0.5) for u in range(t + 1)]
            for u, weight in enumerate(weights):
                got[head, t] += weight * v[head, u] / sum(weights)
    return attention(q, k, v), got


@check(
    "eq:attention",
    "causal",
    "Later positions do not change the output at a position.",
    of=transformer.attention,
    against="the output with other keys and values at later positions",
    wrong={"the future is seen": lambda q, k, v: _weighted(q, k, v, math.sqrt(q.shape[-1]), causal=False)},
)
def _(attention, draw: Draw) -> Iterator[Comparison]:
    q, k, v = draw.normal(5, 4), draw.normal(5, 4), draw.normal(5, 4)
    got = attention(q, k, v)
    for t in range(4):
        later = (torch.arange(5) > t)[:, None]
        other = attention(q, torch.where(later, k + 1.5, k), torch.where(later, v - 2.0, v))
        yield other[t], got[t]


@check(
    "eq:rotary-position",
    "value",
    "A pair of coordinates is a complex number, which the position rotates.",
    of=equations.rotary,
    against="complex numbers: pair i of position t times e^(i t / base^(2i/W))",
    wrong={
        "turned the other way": lambda x, *, base=1e4: torch.flip(
            equations.rotary(torch.flip(x, (-1,)), base=base), (-1,)
        ),
        "all pairs turn equally fast": lambda x, *, base=1e4: equations.rotary(x, base=1.0 + 1e-12),
        "the base is ignored": lambda x, *, base=1e4: equations.rotary(x),
        "positions are added, not turned by": lambda x, *, base=1e4: x + torch.arange(x.shape[-2])[:, None],
    },
)
def _(rotary, draw: Draw) -> Iterator[Comparison]:
    x = draw.uniform(2, 5, 6, low=0.5, high=2.0)
    for base in (50.0, 10_000.0):
        angles = torch.arange(5, dtype=torch.float64)[:, None] * base ** -(torch.arange(3, dtype=torch.float64) / 3)
        turned = torch.complex(x[..., :3], x[..., 3:]) * torch.polar(torch.ones(5, 3, dtype=torch.float64), angles)
        yield rotary(x, base=base), torch.cat([turned.real, turned.imag], -1)


@check(
    "eq:rotary-position",
    "distance-only",
    "The product of a rotated query and a rotated key depends only on their distance.",
    of=equations.rotary,
    against="the same product, both positions moved by one",
    wrong={
        "positions are added, not turned by": lambda x, *, base=1e4: x + torch.arange(x.shape[-2])[:, None],
        "only even positions are turned": lambda x, *, base=1e4: torch.where(
            (torch.arange(x.shape[-2]) % 2 == 0)[:, None], equations.rotary(x, base=base), x
        ),
    },
)
def _(rotary, draw: Draw) -> Comparison:
    q, k = (draw.normal(4).expand(5, 4) for _ in range(2))  # the same vectors at all positions
    products = rotary(q, base=20.0) @ rotary(k, base=20.0).T  # (5, 5)
    return products[1:, 1:], products[:-1, :-1]


@check(
    "eq:rms-norm",
    "value",
    "Each coordinate is scale_i x_i / √(mean x² + eps).",
    of=equations.rms_norm,
    against="the definition, coordinate by coordinate",
    wrong={
        "the mean is taken off, as in layer normalisation": lambda x, scale, *, eps: equations.rms_norm(
            x - x.mean(-1, keepdim=True), scale, eps=eps
        ),
        "the sum of squares for their mean": lambda x, scale, *, eps: (
            scale * x / (x.square().sum(-1, keepdim=True) + eps).sqrt()
        ),
        "no root": lambda x, scale, *, eps: scale * x / (x.square().mean(-1, keepdim=True) + eps),
        "eps outside the root": lambda x, scale, *, eps: scale * x / (x.square().mean(-1, keepdim=True).sqrt() + eps),
        "the scale is forgotten": lambda x, scale, *, eps: equations.rms_norm(x, torch.ones_like(scale), eps=eps),
    },
)
def _(rms_norm, draw: Draw) -> Iterator[Comparison]:
    x, scale = draw.normal(3, 4) + 2.0, draw.uniform(4, low=1.5, high=3.0)
    for eps in (0.05, 0.4):
        rows = [[scale[i] * row[i] / (sum(float(c) ** 2 for c in row) / 4 + eps) ** 0.5 for i in range(4)] for row in x]
        yield rms_norm(x, scale, eps=eps), torch.tensor(rows, dtype=torch.float64)


@check(
    "eq:entropy-temperature",
    "value",
    "The entropy increases with the temperature at the rate Var(logits)/T³.",
    of=language.entropy_slope,
    against="finite differences of −Σ π_T log π_T in T",
    wrong={
        "divided by T²": lambda z, *, temperature: language.entropy_slope(z, temperature=temperature) * temperature,
        "the variance under π itself": lambda z, *, temperature: (
            language.entropy_slope(z, temperature=1.0) / temperature**3
        ),
        "the second moment for the variance": lambda z, *, temperature: (
            (language.temperature_softmax(z, temperature=temperature) * z.square()).sum(-1) / temperature**3
        ),
        "falling": lambda z, *, temperature: -language.entropy_slope(z, temperature=temperature),
    },
    tolerance=1e-7,
)
def _(slope, draw: Draw) -> Iterator[Comparison]:
    logits = draw.permutation(4) * 1.0 + draw.uniform(4, low=0.2, high=0.6)

    def entropy(at: Tensor) -> Tensor:
        probs = (logits / at[0]).exp() / (logits / at[0]).exp().sum()
        return -(probs * probs.log()).sum()

    for temperature in (0.7, 1.8):
        by_difference = exact.finite_difference(entropy, torch.tensor([temperature], dtype=torch.float64))
        yield slope(logits, temperature=temperature), by_difference[0]
