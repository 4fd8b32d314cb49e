"""The ledger of chapter 02: language models as policies."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import torch
from torch import Tensor

from minirlhf.core import exact, logprobs
from minirlhf.core.exact import ToyLM
from minirlhf.core.masking import masked_sum
from minirlhf.equations import language
from minirlhf_course.chapters.ch02_language_models import equations
from minirlhf_course.ledger.registry import Comparison, Draw, chain, check

# -- sequences ----------------------------------------------------------------------------------------------------


def _forward(lm: ToyLM, prompt: int) -> tuple[Tensor, Tensor, Tensor]:
    """Logits ``(N, 1 + L, V)``, token ids and token mask ``(N, 1 + L)`` of all responses; padding becomes token 0."""
    batch = lm.batch(prompt)
    logits = lm(**batch).logits
    ids = torch.where(batch["input_ids"] < lm.vocab_size, batch["input_ids"], 0)
    return logits, ids, torch.cat([torch.zeros(len(ids), 1, dtype=torch.bool), batch["mask"]], 1)


@check(
    "eq:token-logp",
    "value",
    "Position t predicts token t + 1, at the sampling temperature.",
    of=logprobs.token_logps,
    against="the oracle's table of next-token probabilities",
    wrong={
        "no shift: each position scores its own token": lambda logits, ids, t=1.0: (
            (logits / t).log_softmax(-1).gather(-1, ids[..., None]).squeeze(-1)[:, 1:]
        ),
        "temperature forgotten": lambda logits, ids, t=1.0: logprobs.token_logps(logits, ids),
    },
)
def _(token_logps, draw: Draw) -> Comparison:
    lm, temperature = draw.toy(3, 3, scale=1.5), 0.5 + draw.integer(1, 3)
    logits, ids, mask = _forward(lm, 0)
    tempered = draw.toy(3, 3)
    with torch.no_grad():
        tempered.table.copy_(lm.table / temperature)
    got = torch.where(mask[:, 1:], token_logps(logits, ids, temperature), 0.0)
    return got, tempered.completion_token_logps()[0]


@check(
    "eq:chain-rule",
    "value",
    "The log-probability of a completion is the sum of the log-probabilities of its tokens, EOS included, padding not.",
    of=equations.completion_logp,
    against="probability of each response, the product along its path through the table",
    wrong={
        "mean over the tokens instead of the sum": lambda logits, ids, mask, **o: (
            equations.completion_logp(logits, ids, mask, **o) / mask.sum(-1)
        ),
        "end-of-sequence token left out": lambda logits, ids, mask, **o: equations.completion_logp(
            logits, ids, mask & (ids != 0) | (torch.arange(mask.shape[1]) == 1), **o
        ),
        "padding counted": lambda logits, ids, mask, **o: equations.completion_logp(
            logits, ids, (torch.arange(mask.shape[1]) > 0).expand_as(mask), **o
        ),
        "temperature forgotten": lambda logits, ids, mask, *, temperature: equations.completion_logp(logits, ids, mask),
    },
)
def _(completion_logp, draw: Draw) -> Iterator[Comparison]:
    lm = draw.toy(3, 3, num_prompts=2)
    prompt = draw.integer(0, 1)
    logits, ids, mask = _forward(lm, prompt)
    for temperature in (1.0, float(draw.uniform(low=0.5, high=0.8)), float(draw.uniform(low=1.5, high=2.0))):
        yield completion_logp(logits * temperature, ids, mask, temperature=temperature), lm.distribution()[prompt].log()


@check(
    "eq:chain-rule",
    "normalisation",
    "The probabilities of all completions, ended by EOS or truncated, sum to one.",
    of=equations.completion_logp,
    against="1",
    wrong={
        "mean over the tokens instead of the sum": lambda logits, ids, mask: (
            equations.completion_logp(logits, ids, mask) / mask.sum(-1)
        ),
    },
)
def _(completion_logp, draw: Draw) -> Comparison:
    return completion_logp(*_forward(draw.toy(4, 3), 0)).exp().sum(), 1.0


@check(
    "eq:nll",
    "value",
    "The expected negative log-likelihood under data p is H(p) + KL(p‖π): it is least, H(p), when the model is the "
    "data.",
    of=language.nll,
    against="entropy of the data plus its divergence from the model",
    wrong={
        "mean over the tokens": lambda logps, mask: language.nll(logps, mask) / mask.sum(-1),
        "sign forgotten": lambda logps, mask: -language.nll(logps, mask),
    },
)
def _(nll, draw: Draw) -> Comparison:
    lm, data = draw.toy(3, 3), draw.toy(3, 3).distribution()[0]
    losses = nll(lm.completion_token_logps()[0], lm.completions().mask)
    return exact.expectation(data, losses), exact.entropy(data) + exact.divergence(data, lm.distribution()[0])


@check(
    "eq:nll",
    "gradient",
    "Under teacher forcing the gradient with respect to the logits of each position is π − one-hot of the true token.",
    of=language.nll,
    against="probability of each token minus one at the true token",
    wrong={
        "labels not shifted": lambda logps, mask: language.nll(logps.roll(1, -1), mask),
        "mean over the tokens": lambda logps, mask: language.nll(logps, mask) / mask.sum(-1),
    },
)
def _(nll, draw: Draw) -> Comparison:
    width, vocab = 4, 3
    logits = draw.normal(1, width + 1, vocab).requires_grad_()
    ids = torch.cat([torch.zeros(1, 1, dtype=torch.long), draw.permutation(width)[None] % vocab], 1)
    loss = nll(logprobs.token_logps(logits, ids), torch.tensor([[True, True, True, False]])).sum()
    expected = logits.detach().exp() / logits.detach().exp().sum(-1, keepdim=True)
    for t in range(width):
        expected[0, t, ids[0, t + 1]] -= 1.0
    expected[0, width - 1 :] = 0.0  # the last label is masked, the last position predicts nothing
    return torch.autograd.grad(loss, logits)[0], expected


@check(
    "eq:perplexity",
    "value",
    "The perplexity of n tokens is the n-th root of 1/probability.",
    of=language.perplexity,
    against="geometric mean of the inverse probabilities, one sequence at a time",
    wrong={
        "arithmetic mean of the inverse probabilities": lambda logps, mask: (
            masked_sum((-logps).exp(), mask, -1) / mask.sum(-1)
        ),
        "divided by the width, not the length": lambda logps, mask: (
            -masked_sum(logps, mask, -1) / mask.shape[1]
        ).exp(),
        "base two against nats": lambda logps, mask: 2.0 ** (-masked_sum(logps, mask, -1) / mask.sum(-1)),
    },
)
def _(perplexity, draw: Draw) -> Comparison:
    mask = torch.tensor([[True] * 4, [True, True, False, False], [True, False, True, True]])
    probs = draw.uniform(3, 4, low=0.1, high=0.9)
    expected = [
        math.prod(1 / p for p, kept in zip(row, keep, strict=True) if kept) ** (1 / sum(keep))
        for row, keep in zip(probs.tolist(), mask.tolist(), strict=True)
    ]
    return perplexity(probs.log(), mask), torch.tensor(expected, dtype=torch.float64)


@check(
    "eq:perplexity",
    "uniform",
    "If a model cannot distinguish V tokens, its perplexity is V for every length.",
    of=language.perplexity,
    against="the size of the vocabulary",
    wrong={"logarithm kept": lambda logps, mask: language.perplexity(logps, mask).log()},
)
def _(perplexity, draw: Draw) -> Comparison:
    mask, vocab = draw.mask(3, 5), draw.integer(2, 50)
    logps = torch.full(mask.shape, -math.log(vocab), dtype=torch.float64)
    return perplexity(logps, mask), torch.full((3,), float(vocab), dtype=torch.float64)


@check(
    "eq:entropy",
    "sequence",
    "The expected sum of the token entropies along a completion is the entropy of the completion.",
    of=logprobs.token_entropies,
    against="entropy of the distribution over whole responses",
    wrong={
        "in bits": lambda logits: logprobs.token_entropies(logits) / math.log(2),
        "surprise of the mean probability": lambda logits: -logits.softmax(-1).square().sum(-1).log(),
    },
)
def _(token_entropies, draw: Draw) -> Comparison:
    lm = draw.toy(3, 3)
    logits, _, mask = _forward(lm, 0)
    per_response = masked_sum(token_entropies(logits)[:, :-1], mask[:, 1:], -1)
    probs = lm.distribution()[0]
    return exact.expectation(probs, per_response), exact.entropy(probs)


@check(
    "eq:entropy",
    "gradient",
    "The gradient is finite and right also if a token has the logit −inf.",
    of=logprobs.token_entropies,
    against="finite differences of the sum, with a token of logit −inf",
    wrong={"probability left constant": lambda logits: -(logits.softmax(-1).detach() * logits.log_softmax(-1)).sum(-1)},
)
def _(token_entropies, draw: Draw) -> Comparison:
    kept = draw.normal(3).requires_grad_()
    logits = torch.cat([kept, kept.new_tensor([-math.inf])])
    grad = torch.autograd.grad(token_entropies(logits), kept)[0]
    return grad, exact.finite_difference(lambda x: exact.entropy(x.exp() / x.exp().sum()), kept)


# -- temperature ---------------------------------------------------------------------------------------------------


def _times_temperature(logits: Tensor, *, temperature: float) -> Tensor:
    return torch.softmax(logits * temperature, -1)


@check(
    "eq:temperature",
    "value",
    "π_T is proportional to π^(1/T).",
    of=language.temperature_softmax,
    against="powers of the probabilities, normalised",
    wrong={
        "multiplied by the temperature": _times_temperature,
        "probabilities divided instead of logits": lambda logits, *, temperature: (
            logits.softmax(-1) / temperature
        ).softmax(-1),
    },
)
def _(temperature_softmax, draw: Draw) -> Comparison:
    probs, temperature = draw.distribution(2, 5), 1.5 + draw.integer(1, 4)
    powers = probs ** (1 / temperature)
    return temperature_softmax(probs.log(), temperature=temperature), powers / powers.sum(-1, keepdim=True)


@check(
    "eq:temperature",
    "limits",
    "T → 0 puts all probability on the most probable token, T → ∞ makes all tokens equally probable; T = 0 and T = ∞ are the limits.",
    of=language.temperature_softmax,
    against="the most probable token, and the uniform distribution",
    wrong={
        "multiplied by the temperature": lambda logits, *, temperature: (logits * min(temperature, 1e9)).softmax(-1)
    },
)
def _(temperature_softmax, draw: Draw) -> Iterator[Comparison]:
    logits = torch.arange(5, dtype=torch.float64)[draw.permutation(5)] + draw.uniform(5, low=0.0, high=0.5)
    greedy = torch.zeros(5, dtype=torch.float64)
    greedy[max(range(5), key=logits.tolist().__getitem__)] = 1.0
    for cold in (0.0, 1e-300, 0.01):
        yield temperature_softmax(logits, temperature=cold), greedy
    for hot in (math.inf, 1e12):
        yield temperature_softmax(logits, temperature=hot), torch.full((5,), 0.2, dtype=torch.float64)
    forbidden = logits.masked_fill(greedy == 1, -math.inf)  # stays so at every temperature
    yield temperature_softmax(forbidden, temperature=math.inf), (1 - greedy) / 4
    tied = torch.tensor([1.0, 2.0, 0.0, 2.0], dtype=torch.float64)
    yield temperature_softmax(tied, temperature=0.0), torch.tensor([0.0, 0.5, 0.0, 0.5], dtype=torch.float64)


@check(
    "eq:temperature",
    "entropy",
    "The entropy of π_T grows with T, at the rate Var(logits)/T³.",
    of=language.temperature_softmax,
    against="variance of the logits under π_T, divided by T³",
    wrong={"multiplied by the temperature": _times_temperature},
    tolerance=1e-8,
)
def _(temperature_softmax, draw: Draw) -> Comparison:
    logits, temperature = draw.normal(5), draw.uniform(1, low=1.5, high=2.0)

    def entropy(t: Tensor) -> Tensor:
        return exact.entropy(temperature_softmax(logits, temperature=float(t)))

    weights = (logits / temperature).exp()
    probs = weights / weights.sum()
    variance = exact.expectation(probs, logits**2) - exact.expectation(probs, logits) ** 2
    return exact.finite_difference(entropy, temperature), (variance / temperature**3)


# -- truncation ----------------------------------------------------------------------------------------------------


def _spread(draw: Draw, vocab: int) -> Tensor:
    """Probabilities in random order, each at least 1.2 times as large as the next."""
    steps = draw.uniform(vocab, low=0.2, high=1.0).cumsum(0)
    return torch.softmax(steps, -1)[draw.permutation(vocab)]


def _renormalised(probs: Tensor, kept: tuple[int, ...]) -> Tensor:
    out = torch.zeros_like(probs)
    out[list(kept)] = probs[list(kept)] / probs[list(kept)].sum()
    return out


def _subsets(vocab: int) -> Iterator[tuple[int, ...]]:
    for size in range(1, vocab + 1):
        yield from itertools.combinations(range(vocab), size)


@check(
    "eq:top-k",
    "value",
    "Top-k sampling is the model conditioned on the set of k tokens that has the largest mass.",
    of=language.top_k_logits,
    against="trying every subset of k tokens for the one with the most mass",
    wrong={
        "one token too many": lambda logits, *, top_k: language.top_k_logits(logits, top_k=top_k + 1),
        "least probable kept": lambda logits, *, top_k: language.top_k_logits(-logits, top_k=top_k),
        "cut tokens get logit 0": lambda logits, *, top_k: torch.where(
            language.top_k_logits(logits, top_k=top_k).isfinite(), logits, 0.0
        ),
    },
)
def _(top_k_logits, draw: Draw) -> Iterator[Comparison]:
    probs = _spread(draw, 5)
    for k in range(1, 5):
        best = max((s for s in _subsets(5) if len(s) == k), key=lambda s: float(probs[list(s)].sum()))
        yield top_k_logits(probs.log(), top_k=k).softmax(-1), _renormalised(probs, best)


def _nucleus_short_by_one(logits: Tensor, *, top_p: float) -> Tensor:
    """Keeps only tokens whose cumulative mass stays within ``top_p``: the one that crosses the line is lost."""
    probs, order = logits.softmax(-1).sort(-1, descending=True)
    cut = probs.cumsum(-1) > top_p
    cut[..., 0] = False
    return logits.masked_fill(torch.zeros_like(cut).scatter(-1, order, cut), -math.inf)


@check(
    "eq:top-p",
    "value",
    "The nucleus is the smallest set of tokens with mass of at least p, and among sets of that size the most probable.",
    of=language.top_p_logits,
    against="trying every subset for the smallest whose mass reaches p",
    wrong={
        "the token that crosses the line is lost": _nucleus_short_by_one,
        "threshold on single probabilities": lambda logits, *, top_p: language.min_p_logits(
            logits, min_p=min(1.0, top_p)
        ),
    },
)
def _(top_p_logits, draw: Draw) -> Iterator[Comparison]:
    probs = _spread(draw, 5)
    edges = probs.sort(descending=True).values.cumsum(0)
    low = torch.cat([torch.zeros(1, dtype=torch.float64), edges[:-1]])
    for top_p in (
        low + (edges - low) * draw.uniform(5, low=0.2, high=0.8)
    ).tolist():  # one p for each size of the nucleus
        enough = [s for s in _subsets(5) if float(probs[list(s)].sum()) >= top_p]
        smallest = [s for s in enough if len(s) == min(map(len, enough))]
        best = max(smallest, key=lambda s: float(probs[list(s)].sum()))
        yield top_p_logits(probs.log(), top_p=top_p).softmax(-1), _renormalised(probs, best)
    halves = torch.tensor(
        [0.25, 0.5, 0.125, 0.125], dtype=torch.float64
    )  # sums without rounding: p is reached, not passed
    for top_p, nucleus in ((0.5, (1,)), (0.75, (0, 1)), (0.875, (0, 1, 2)), (1.0, (0, 1, 2, 3))):
        yield top_p_logits(halves.log(), top_p=top_p).softmax(-1), _renormalised(halves, nucleus)
    many = draw.distribution(200)
    yield top_p_logits(many.log(), top_p=1.0).softmax(-1), many


@check(
    "eq:min-p",
    "value",
    "A token is kept if min_p does not exceed its probability relative to the most probable token.",
    of=language.min_p_logits,
    against="probability ratios, one token at a time",
    wrong={
        "absolute threshold": lambda logits, *, min_p: logits.masked_fill(
            (logits.softmax(-1) < min_p) & (logits < logits.amax()), -math.inf
        ),
        "ratio taken of logits": lambda logits, *, min_p: logits.masked_fill(
            logits - logits.amax() < -min_p, -math.inf
        ),
    },
)
def _(min_p_logits, draw: Draw) -> Iterator[Comparison]:
    probs = _spread(draw, 5)
    top = max(probs.tolist())
    for p in probs.tolist():
        for factor in (0.99, 1.01):
            threshold = min(1.0, factor * p / top)
            kept = tuple(j for j, q in enumerate(probs.tolist()) if q >= threshold * top)
            yield min_p_logits(probs.log(), min_p=threshold).softmax(-1), _renormalised(probs, kept)
    yield min_p_logits(probs.log(), min_p=0.0).softmax(-1), probs


@check(
    "eq:kept-mass",
    "value",
    "Z is the total probability of the kept tokens.",
    of=language.retained_mass,
    against="the sum of the kept probabilities",
    wrong={
        "logits summed without normalising": lambda logits, cut: cut.logsumexp(-1).exp(),
        "inverse": lambda logits, cut: 1 / language.retained_mass(logits, cut),
    },
)
def _(retained_mass, draw: Draw) -> Comparison:
    probs = _spread(draw, 5)
    logits = probs.log() + draw.uniform(1, low=1.0, high=3.0)  # logits need not be normalised
    cut = language.top_k_logits(logits, top_k=3)
    return retained_mass(logits, cut), sum(sorted(probs.tolist())[-3:])


@check(
    "eq:truncated-logp",
    "value",
    "A kept token is sampled with log π_trunc(a) = log π(a) − log Z.",
    of=language.retained_mass,
    against="log-softmax of the truncated logits",
    wrong={
        "no correction: the model's own log-probability": lambda logits, cut: torch.ones_like(logits[..., 0]),
        "sign of log Z": lambda logits, cut: 1 / language.retained_mass(logits, cut),
    },
    follows="eq:kept-mass",
)
def _(retained_mass, draw: Draw) -> Comparison:
    logits = _spread(draw, 5).log()
    cut = language.top_p_logits(logits, top_p=0.7)
    kept = cut > -math.inf
    return (logits.log_softmax(-1) - retained_mass(logits, cut).log())[kept], cut.log_softmax(-1)[kept]


@check(
    "eq:kept-mass-identity",
    "value",
    "The ratio π/π_trunc has the expectation Z under π_trunc, not 1: the weights cannot restore a removed token.",
    of=language.retained_mass,
    against="E_{trunc}[π/π_trunc], summed over the tokens that can be sampled",
    wrong={"the expectation of an importance weight is 1": lambda logits, cut: torch.ones_like(logits[..., 0])},
    follows="eq:truncated-logp",
)
def _(retained_mass, draw: Draw) -> Comparison:
    logits = _spread(draw, 5).log()
    cut = language.min_p_logits(language.top_k_logits(logits, top_k=3), min_p=0.05)
    probs, sampled = logits.softmax(-1), cut.softmax(-1)
    return retained_mass(logits, cut), sum(
        b * (p / b) for p, b in zip(probs.tolist(), sampled.tolist(), strict=True) if b > 0
    )


@check(
    "eq:kept-mass-identity",
    "sequence",
    "Per completion the ratio is the product of its kept masses; its expectation is the mass of the reachable ones.",
    of=language.retained_mass,
    against="mass that the model gives to the responses which truncated sampling can produce",
    wrong={
        "the expectation of an importance weight is 1": lambda logits, cut: torch.ones_like(logits[..., 0]),
        "inverse": lambda logits, cut: 1 / language.retained_mass(logits, cut),
    },
)
def _(retained_mass, draw: Draw) -> Comparison:
    lm, truncated = draw.toy(3, 3), draw.toy(3, 3)
    with torch.no_grad():
        cut = language.top_k_logits(lm.table, top_k=2)
        truncated.table.copy_(cut.masked_fill(cut == -math.inf, -1e6))  # probability exactly 0 in float64
    logits, _, mask = _forward(lm, 0)
    per_token = retained_mass(logits, language.top_k_logits(logits, top_k=2))  # (N, 1 + L)
    weight = torch.where(mask[:, 1:], per_token[:, :-1], 1.0).prod(-1)
    sampled, mine = truncated.distribution()[0], lm.distribution()[0]
    return exact.expectation(sampled, weight), mine[sampled > 0].sum()


chain(
    "truncated-sampling",
    "What truncated sampling does to log-probabilities",
    ["eq:kept-mass", "eq:truncated-logp", "eq:kept-mass-identity"],
    module=__name__,
)
