"""The ledger of chapter 10: instruction tuning."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from minirlhf.core import exact, logprobs
from minirlhf.equations import language, transformer, tuning
from minirlhf_course.ledger.registry import Comparison, Draw, check

# -- conversations -------------------------------------------------------------------------------------------------

#: Which of six tokens the assistant wrote: two turns.
TURNS = ((1, 2), (5,))


def _all_but_last(logps: Tensor, mask: Tensor) -> Tensor:
    """As if only the last turn were marked."""
    return language.nll(logps, mask & (torch.arange(mask.shape[1]) >= TURNS[-1][0]))


@check(
    "eq:unrolled",
    "value",
    "The loss on all assistant turns is the sum of the losses of one conversation per turn, each truncated after "
    "that turn.",
    of=language.nll,
    against="one row for each turn, truncated after it, with only that turn in the loss",
    wrong={
        "every token marked, the user's too": lambda logps, mask: language.nll(logps, torch.ones_like(mask)),
        "the last turn only": _all_but_last,
        "mean over the tokens": lambda logps, mask: language.nll(logps, mask) / mask.sum(-1, keepdim=True)[0],
    },
)
def _(nll, draw: Draw) -> Comparison:
    lm = draw.toy(vocab_size=3, max_len=6)
    said = [draw.integer(1, 2) for _ in range(6)]  # 0 would end the toy's reply
    row = torch.tensor([[lm.vocab_size, *said]])  # (1, 7): a prompt token, then six
    marked = torch.zeros(1, 6, dtype=torch.bool)
    marked[0, [place for turn in TURNS for place in turn]] = True
    whole = nll(logprobs.token_logps(lm(row).logits, row), marked)[0]
    apart = torch.zeros((), dtype=torch.float64)
    for turn in TURNS:
        cut = lm(row[:, : turn[-1] + 1]).logits[0].softmax(-1)  # what stands behind the turn was never there
        apart -= torch.stack([cut[place, said[place]].log() for place in turn]).sum()
    return whole, apart


# -- several documents in one row ----------------------------------------------------------------------------------


def _head(draw: Draw, length: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values of one attention head, ``(1, S, 4)`` each."""
    return draw.normal(1, length, 4), draw.normal(1, length, 4), draw.normal(1, length, 4)


def _split(draw: Draw) -> tuple[Tensor, tuple[int, ...]]:
    """The document numbers of a row, ``(1, 9)``, and the documents' lengths."""
    first, second = draw.integer(2, 3), draw.integer(2, 3)
    lengths = (first, second, 9 - first - second)
    numbers = draw.permutation(3).tolist()  # that they ascend is not asked for
    return torch.tensor([[n for n, size in zip(numbers, lengths, strict=True) for _ in range(size)]]), lengths


@check(
    "eq:packed-mask",
    "value",
    "With this mask a document in a packed row has the same attention output as alone.",
    of=tuning.packed_mask,
    against="attention over each document by itself",
    wrong={
        "causal only: documents see earlier ones": lambda documents: torch.ones(1, 9, 9, dtype=torch.bool).tril(),
        "own document, later tokens too": lambda documents: documents[:, :, None] == documents[:, None, :],
        "all but the own document": lambda documents: (
            (torch.ones(1, 9, 9, dtype=torch.bool).tril() & (documents[:, :, None] != documents[:, None, :]))
            | torch.eye(9, dtype=torch.bool)
        ),
    },
)
def _(packed_mask, draw: Draw) -> Comparison:
    queries, keys, values = _head(draw, 9)
    documents, lengths = _split(draw)
    scores = queries @ keys.transpose(-1, -2) / math.sqrt(4)
    packed = scores.masked_fill(~packed_mask(documents), -math.inf).softmax(-1) @ values
    parts = zip(queries.split(lengths, 1), keys.split(lengths, 1), values.split(lengths, 1), strict=True)
    return packed, torch.cat([transformer.attention(*part) for part in parts], 1)


@check(
    "eq:packed-positions",
    "value",
    "Every document begins at position 0.",
    of=tuning.packed_positions,
    against="learned positions, added to each document by itself",
    wrong={
        "counted through the row": lambda documents: torch.arange(9).expand_as(documents),
        "counted from 1": lambda documents: tuning.packed_positions(documents) + 1,
        "the number of the document": lambda documents: documents,
    },
)
def _(packed_positions, draw: Draw) -> Comparison:
    documents, lengths = _split(draw)
    tokens, learned = draw.normal(1, 9, 4), draw.normal(10, 4)
    alone = [part + learned[: part.shape[1]] for part in tokens.split(lengths, 1)]
    return tokens + learned[packed_positions(documents)], torch.cat(alone, 1)


@check(
    "eq:packed-floor",
    "value",
    "No predictor that sees the earlier documents has a lower mean loss, and Bayes' rule attains it.",
    of=tuning.packed_floor,
    against="a predictor that uses Bayes' rule on the earlier documents; all rows of documents enumerated",
    wrong={
        "the floor of documents read alone": lambda prior, likelihood, *, documents: exact.entropy(prior @ likelihood),
        "the kind told in advance": lambda prior, likelihood, *, documents: (prior * exact.entropy(likelihood)).sum(),
        "of the whole row": lambda prior, likelihood, *, documents: (
            documents * tuning.packed_floor(prior, likelihood, documents=documents)
        ),
    },
)
def _(packed_floor, draw: Draw) -> Iterator[Comparison]:
    for count in (2, 3):
        prior, likelihood = draw.distribution(2), draw.distribution(2, 3, scale=2.0)
        loss = torch.zeros((), dtype=torch.float64)
        for row in itertools.product(range(3), repeat=count):
            belief, chance, surprise = prior, torch.ones((), dtype=torch.float64), torch.zeros(())
            for document in row:
                guess = (belief * likelihood[:, document]).sum()
                surprise = surprise - guess.log()
                chance = chance * guess
                belief = belief * likelihood[:, document] / guess
            loss += chance * surprise / count
        yield packed_floor(prior, likelihood, documents=count), loss


# -- adapters of low rank ------------------------------------------------------------------------------------------


def _adapter(draw: Draw) -> tuple[Tensor, Tensor, Tensor]:
    """W ``(4, 5)``, A ``(2, 5)``, B ``(4, 2)``."""
    return draw.normal(4, 5), draw.normal(2, 5), draw.normal(4, 2)


LORA_WRONG: dict[str, Any] = {
    "not divided by the rank": lambda weight, down, up, *, lora_alpha: weight + lora_alpha * up @ down,
    "divided by the root of the rank": lambda weight, down, up, *, lora_alpha: (
        weight + lora_alpha / math.sqrt(len(down)) * up @ down
    ),
    "scale forgotten": lambda weight, down, up, *, lora_alpha: weight + up @ down,
}


@check(
    "eq:lora",
    "value",
    "Adding the adapter to the weight equals adding its output to the layer's output.",
    of=tuning.lora_weight,
    against="the two paths of a forward pass: W x, and A x through B",
    wrong=LORA_WRONG | {"base dropped": lambda weight, down, up, *, lora_alpha: lora_alpha / len(down) * up @ down},
)
def _(lora_weight, draw: Draw) -> Iterator[Comparison]:
    weight, down, up = _adapter(draw)
    x = draw.normal(5)
    for alpha in (3.0, 8.0):
        narrow = torch.tensor([sum(down[r, i] * x[i] for i in range(5)) for r in range(2)])
        yield lora_weight(weight, down, up, lora_alpha=alpha) @ x, weight @ x + (up @ narrow) * alpha / 2


@check(
    "eq:lora-gradient",
    "gradient",
    "The gradient of B is the weight's times Aᵀ, that of A is Bᵀ times the weight's, both scaled.",
    of=tuning.lora_weight,
    against="finite differences of a loss in A and in B",
    wrong=LORA_WRONG
    | {
        "A frozen": lambda weight, down, up, *, lora_alpha: tuning.lora_weight(
            weight, down.detach(), up, lora_alpha=lora_alpha
        )
    },
)
def _(lora_weight, draw: Draw) -> Iterator[Comparison]:
    weight, down, up = _adapter(draw)
    alpha, slope = 3.0, draw.normal(4, 5)  # a loss that is linear in the weight, with this gradient
    a, b = down.clone().requires_grad_(), up.clone().requires_grad_()
    loss = (lora_weight(weight, a, b, lora_alpha=alpha) * slope).sum()
    by_down, by_up = exact.gradient(loss, a), exact.gradient(loss, b)
    value = lambda a, b: (slope * (weight + (b @ a) * (alpha / 2))).sum()
    yield by_down, exact.finite_difference(lambda x: value(x, up), down).flatten()
    yield by_up, exact.finite_difference(lambda x: value(down, x), up).flatten()


@check(
    "eq:lora-first-step",
    "value",
    "From B = 0 the first step changes the weight by −η (α/r)² G AᵀA.",
    of=tuning.lora_weight,
    against="the weight before and after one step of gradient descent on A and B, B being 0",
    wrong=LORA_WRONG,
)
def _(lora_weight, draw: Draw) -> Comparison:
    weight, down, _ = _adapter(draw)
    slope, rate, scale = draw.normal(4, 5), 0.3, 3.0 / 2
    a, b = down.clone().requires_grad_(), torch.zeros(4, 2, dtype=torch.float64, requires_grad=True)
    loss = (lora_weight(weight, a, b, lora_alpha=3.0) * slope).sum()
    by_down, by_up = torch.autograd.grad(loss, (a, b))
    after = lora_weight(weight, down - rate * by_down, -rate * by_up, lora_alpha=3.0)
    moved = torch.stack(
        [
            torch.stack(
                [torch.stack([slope[o, j] * (down[:, j] @ down[:, i]) for j in range(5)]).sum() for i in range(5)]
            )
            for o in range(4)
        ]
    )
    return after - weight, -rate * scale**2 * moved


# -- weights in four bits ------------------------------------------------------------------------------------------

#: As printed by Dettmers et al. (2023), appendix E; computed there in single precision.
PUBLISHED = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip


def _evenly() -> Tensor:
    return torch.cat([torch.linspace(-1, 0, 8, dtype=torch.float64), torch.linspace(0, 1, 9, dtype=torch.float64)[1:]])


def _symmetric() -> Tensor:
    above = tuning.nf4_levels()[7:]
    return torch.cat([-above.flip(0)[:-1], above[1:]])


@check(
    "eq:nf4",
    "value",
    "The quantiles are the paper's, to its single precision.",
    of=tuning.nf4_levels,
    against="the sixteen numbers printed in the paper",
    wrong={
        "evenly spaced": _evenly,
        "the same on both sides, no 0": _symmetric,
        "sides exchanged": lambda: -tuning.nf4_levels().flip(0),
    },
    tolerance=2e-6,
)
def _(levels, draw: Draw) -> Comparison:
    return levels(), torch.tensor(PUBLISHED, dtype=torch.float64)


@check(
    "eq:absmax",
    "value",
    "Each weight is replaced by the nearest product of its block's scale and a level.",
    of=tuning.absmax_quantised,
    against="for each weight, every level tried",
    wrong={
        "one scale for all blocks": lambda weights, levels: tuning.absmax_quantised(
            weights.view(1, -1), levels
        ).view_as(weights),
        "scaled by the largest, not by its magnitude": lambda weights, levels: (
            weights.amax(-1, keepdim=True)
            * levels[((weights / weights.amax(-1, keepdim=True))[..., None] - levels).abs().argmin(-1)]
        ),
        "the level below, not the nearest": lambda weights, levels: (
            weights.abs().amax(-1, keepdim=True)
            * levels[torch.searchsorted(levels, weights / weights.abs().amax(-1, keepdim=True), right=True) - 1]
        ),
    },
)
def _(quantised, draw: Draw) -> Iterator[Comparison]:
    weights, levels = draw.normal(3, 6), tuning.nf4_levels()
    weights[:, 0] = -4.0 * torch.arange(1, 4)  # the largest magnitudes are negative, and differ
    found = torch.tensor(
        [
            [min((level * max(map(abs, block)) for level in levels.tolist()), key=lambda c: abs(c - w)) for w in block]
            for block in weights.tolist()
        ],
        dtype=torch.float64,
    )
    yield quantised(weights, levels), found
    yield quantised(torch.zeros(1, 6, dtype=torch.float64), levels), torch.zeros(1, 6)


# -- imitation as a policy gradient, and the loss that trusts the model --------------------------------------------


@check(
    "eq:sft-policy-gradient",
    "gradient",
    "Imitation is REINFORCE with a reward that is larger the less probable the demonstration is.",
    of=language.nll,
    against="the policy gradient over all replies, with reward 1/π for the demonstrated one and 0 for the others",
    wrong={
        "mean over the tokens": lambda logps, mask: language.nll(logps, mask) / mask.sum(-1),
        "weighted by the probability": lambda logps, mask: (tuning.dynamic_nll(logps) * mask).sum(-1),
        "ascent": lambda logps, mask: -language.nll(logps, mask),
    },
)
def _(nll, draw: Draw) -> Comparison:
    lm = draw.toy()
    mask = lm.completions().mask
    shown = int((mask.sum(-1) > 1).nonzero()[draw.integer(0, 3)])
    losses = nll(lm.completion_token_logps()[0], mask)
    descent = -exact.gradient(losses[shown], lm.table)
    probs = lm.distribution()[0]
    rewards = torch.zeros_like(probs.detach())
    rewards[shown] = 1 / probs.detach()[shown]
    return descent, exact.gradient((probs * rewards).sum(), lm.table)


DFT_WRONG: dict[str, Any] = {
    "unweighted": lambda logps: -logps,
    "weighted by what is missing to 1": lambda logps: -(1 - logps.detach().exp()) * logps,
    "ascent": lambda logps: -tuning.dynamic_nll(logps),
}


@check(
    "eq:dft",
    "value",
    "The losses of all tokens of the vocabulary at one position sum to the entropy of the position.",
    of=tuning.dynamic_nll,
    against="the entropy of the position",
    wrong=DFT_WRONG | {"−π": lambda logps: -logps.exp()},
)
def _(dynamic_nll, draw: Draw) -> Comparison:
    probs = draw.distribution(3, 5)
    return dynamic_nll(probs.log()).sum(-1), exact.entropy(probs)


@check(
    "eq:dft",
    "gradient",
    "Its gradient is that of minus the sum of the tokens' probabilities.",
    of=tuning.dynamic_nll,
    against="finite differences of −Σ π(y_t) in the logits",
    wrong=DFT_WRONG | {"the weight differentiated too": lambda logps: -logps.exp() * logps},
)
def _(dynamic_nll, draw: Draw) -> Comparison:
    logits, shown = draw.normal(3, 5), [draw.integer(0, 4) for _ in range(3)]
    leaf = logits.clone().requires_grad_()
    logps = leaf.log_softmax(-1)[range(3), shown]
    mass = lambda x: -torch.stack([x[t].softmax(-1)[y] for t, y in enumerate(shown)]).sum()
    return exact.gradient(dynamic_nll(logps).sum(), leaf), exact.finite_difference(mass, logits).flatten()


def _waiting(start: float, end: float, speed: Any) -> Tensor:
    """∫ dz / speed between two logits, by quadrature."""
    low, high = (math.log(p / (1 - p)) for p in (start, end))
    return exact.integrate(lambda z: 1 / speed(z.sigmoid()), low, high, nodes=60)


TIMES_WRONG: dict[str, Any] = {
    "difference of the logits": lambda start, end: end.logit() - start.logit(),
    "difference of the log-probabilities": lambda start, end: end.log() - start.log(),
}


@check(
    "eq:sft-time",
    "value",
    "The logit moves at speed 1 − p.",
    of=tuning.imitation_time,
    against="quadrature of dz / (1 − p)",
    wrong=TIMES_WRONG | {"of the dynamic loss": tuning.dynamic_imitation_time},
)
def _(time, draw: Draw) -> Comparison:
    start, end = float(draw.uniform(low=0.01, high=0.4)), float(draw.uniform(low=0.5, high=0.95))
    as_tensor = lambda p: torch.tensor(p, dtype=torch.float64)
    return time(as_tensor(start), as_tensor(end)), _waiting(start, end, lambda p: 1 - p)


@check(
    "eq:dft-time",
    "value",
    "The logit moves at speed p (1 − p).",
    of=tuning.dynamic_imitation_time,
    against="quadrature of dz / (p (1 − p))",
    wrong=TIMES_WRONG | {"of imitation": tuning.imitation_time},
)
def _(time, draw: Draw) -> Comparison:
    start, end = float(draw.uniform(low=0.01, high=0.4)), float(draw.uniform(low=0.5, high=0.95))
    as_tensor = lambda p: torch.tensor(p, dtype=torch.float64)
    return time(as_tensor(start), as_tensor(end)), _waiting(start, end, lambda p: p * (1 - p))
