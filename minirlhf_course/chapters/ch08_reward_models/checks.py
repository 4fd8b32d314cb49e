"""The ledger of chapter 08: losses of a reward model."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from minirlhf.core import exact
from minirlhf.equations import reward_losses
from minirlhf_course.ledger.registry import Comparison, Draw, check


def _share(draw: Draw, *shape: int) -> Tensor:
    """Probabilities that stay away from 0, ½ and 1."""
    return draw.away_from([0.5], *shape, low=0.1, high=0.9, margin=0.1)


@check(
    "eq:bradley-terry-loss",
    "value",
    "Both forms of the loss, −log σ(Δ) and log(1 + e^(−Δ)), are the negative log-probability of the annotator's "
    "choice.",
    of=reward_losses.bradley_terry_loss,
    against="−log of e^chosen / (e^chosen + e^rejected)",
    wrong={
        "chosen and rejected swapped": lambda chosen, rejected: reward_losses.bradley_terry_loss(rejected, chosen),
        "probability without its logarithm": lambda chosen, rejected: 1 - torch.sigmoid(chosen - rejected),
        "hinge": lambda chosen, rejected: (1 - (chosen - rejected)).clamp(min=0),
    },
)
def _(loss, draw: Draw) -> Comparison:
    chosen, rejected = draw.uniform(6, low=0.2, high=2.0), draw.uniform(6, low=-2.0, high=0.0)
    return loss(chosen, rejected), -(chosen.exp() / (chosen.exp() + rejected.exp())).log()


@check(
    "eq:bradley-terry-loss",
    "minimiser",
    "If a fraction p of annotators prefers the first answer, the optimal reward difference is log p/(1−p).",
    of=reward_losses.bradley_terry_loss,
    against="the log-odds of the annotators' choices, where the loss is their entropy",
    wrong={
        "hinge": lambda chosen, rejected: (1 - (chosen - rejected)).clamp(min=0),
        "squared error of the probability": lambda chosen, rejected: (1 - torch.sigmoid(chosen - rejected)) ** 2,
    },
)
def _(loss, draw: Draw) -> Iterator[Comparison]:
    p, rest = _share(draw, 4), draw.normal(4)
    first = (rest + (p / (1 - p)).log()).requires_grad_()
    expected = p * loss(first, rest) + (1 - p) * loss(rest, first)
    (gradient,) = torch.autograd.grad(expected.sum(), first)
    yield gradient, torch.zeros(4)
    yield expected, exact.entropy(torch.stack([p, 1 - p], -1))


@check(
    "eq:bradley-terry-loss",
    "gradient",
    "The gradient for the chosen reward is −P(wrong), for the rejected one +P(wrong): pairs in the right order "
    "contribute little.",
    of=reward_losses.bradley_terry_loss,
    against="the probability that the model gives to the wrong order, from exponentials",
    wrong={
        "weight of the right order": lambda chosen, rejected: -reward_losses.bradley_terry_loss(rejected, chosen),
        "perceptron: no weight": lambda chosen, rejected: rejected - chosen,
    },
)
def _(loss, draw: Draw) -> Comparison:
    pair = torch.stack([draw.uniform(6, low=0.2, high=2.0), draw.uniform(6, low=-2.0, high=0.0)]).requires_grad_()
    (got,) = torch.autograd.grad(loss(pair[0], pair[1]).sum(), pair)
    weights = pair.detach().exp()
    wrong_order = weights[1] / weights.sum(0)
    return got, torch.stack([-wrong_order, wrong_order])


@check(
    "eq:margin-loss",
    "balance",
    "A pair whose difference equals its margin counts as undecided, as two equal rewards do at margin 0.",
    of=reward_losses.bradley_terry_loss,
    against="log 2 and a gradient of ½, the values of a pair with equal rewards without a margin",
    wrong={
        "sign of the margin": lambda chosen, rejected, *, margin: reward_losses.bradley_terry_loss(
            chosen, rejected, margin=-margin
        ),
        "margin as a factor": lambda chosen, rejected, *, margin: -logsigmoid(margin * (chosen - rejected)),
        "margin outside the logarithm": lambda chosen, rejected, *, margin: (
            reward_losses.bradley_terry_loss(chosen, rejected) + margin
        ),
    },
)
def _(loss, draw: Draw) -> Iterator[Comparison]:
    rejected, margin = draw.normal(4), draw.uniform(4, low=0.5, high=2.0)
    chosen = (rejected + margin).requires_grad_()
    got = loss(chosen, rejected, margin=margin)
    yield got, torch.full((4,), 2.0, dtype=torch.float64).log()
    (gradient,) = torch.autograd.grad(got.sum(), chosen)
    yield gradient, torch.full((4,), -0.5)


@check(
    "eq:margin-loss",
    "value",
    "The margin is added to the reward of the rejected answer.",
    of=reward_losses.bradley_terry_loss,
    against="log(1 + e^(rejected + margin − chosen)); the plain loss at margin 0",
    wrong={
        "sign of the margin": lambda chosen, rejected, *, margin: reward_losses.bradley_terry_loss(
            chosen, rejected, margin=-margin
        ),
        "margin ignored": lambda chosen, rejected, *, margin: reward_losses.bradley_terry_loss(chosen, rejected),
    },
)
def _(loss, draw: Draw) -> Iterator[Comparison]:
    chosen, rejected, margin = draw.normal(4), draw.normal(4), draw.uniform(4, low=0.5, high=2.0)
    yield loss(chosen, rejected, margin=margin), (1 + (rejected + margin - chosen).exp()).log()
    yield loss(chosen, rejected, margin=torch.zeros(4)), reward_losses.bradley_terry_loss(chosen, rejected)


@check(
    "eq:reward-shift",
    "value",
    "A constant per prompt does not change the loss, so its gradient is 0 and it is not learned.",
    of=reward_losses.bradley_terry_loss,
    against="the loss before each prompt's rewards were shifted",
    wrong={
        "each reward read as a probability of being good": lambda chosen, rejected: (
            -logsigmoid(chosen) - logsigmoid(-rejected)
        ),
        "ratio of rewards": lambda chosen, rejected: -(chosen.abs() / (chosen.abs() + rejected.abs())).log(),
    },
)
def _(loss, draw: Draw) -> Iterator[Comparison]:
    pair = draw.normal(2, 4).requires_grad_()
    shift = draw.uniform(4, low=1.0, high=5.0)
    yield loss(pair[0] - shift, pair[1] - shift), loss(pair[0], pair[1])
    (gradient,) = torch.autograd.grad(loss(pair[0], pair[1]).sum(), pair)
    yield gradient.sum(0), torch.zeros(4)


@check(
    "eq:pair-weights",
    "value",
    "The weights of the pairs of one prompt sum to 1, however many answers were ranked.",
    of=reward_losses.pair_weights,
    against="all pairs of every prompt written out",
    wrong={
        "1/K": lambda num_ranked: 1.0 / num_ranked,
        "ordered pairs counted, 1/(K (K−1))": lambda num_ranked: 1.0 / (num_ranked * (num_ranked - 1)),
        "no weights": lambda num_ranked: torch.ones(num_ranked.shape),
    },
    tolerance=1e-6,
)
def _(pair_weights, draw: Draw) -> Comparison:
    ranked = [draw.integer(3, 9) for _ in range(4)]
    prompt = torch.tensor([i for i, k in enumerate(ranked) for _ in itertools.combinations(range(k), 2)])
    weights = pair_weights(torch.tensor(ranked)[prompt])
    return torch.zeros(4).index_add(0, prompt, weights), torch.ones(4)


@check(
    "eq:reward-regression",
    "value",
    "Averaged over the ratings of one answer, the loss is smallest at their mean, where it is their variance.",
    of=reward_losses.regression_loss,
    against="variance of the ratings plus squared distance to their mean",
    wrong={
        "minus sign in front": lambda rewards, labels: -((rewards - labels) ** 2),
        "absolute error": lambda rewards, labels: (rewards - labels).abs(),
        "half the square": lambda rewards, labels: 0.5 * (rewards - labels) ** 2,
    },
)
def _(loss, draw: Draw) -> Comparison:
    ratings, probs = draw.normal(5), draw.distribution(5)
    reward = draw.away_from([0.0], 3, low=-3.0, high=3.0, margin=0.5)  # what the model says, tried three ways
    mean = exact.expectation(probs, ratings)
    variance = exact.expectation(probs, ratings**2) - mean**2
    got = [exact.expectation(probs, loss(said.expand(5), ratings)) for said in reward]
    return torch.stack(got), variance + (reward - mean) ** 2


@check(
    "eq:reward-centring",
    "value",
    "The penalty depends on the sum of the two rewards only: it is 0 for a centred pair, whatever the difference.",
    of=reward_losses.centring_penalty,
    against="2 chosen² + 2 rejected² − (chosen − rejected)²",
    wrong={
        "sum of squares: penalises the difference too": lambda chosen, rejected: chosen**2 + rejected**2,
        "difference instead of sum": lambda chosen, rejected: (chosen - rejected) ** 2,
        "mean instead of sum": lambda chosen, rejected: ((chosen + rejected) / 2) ** 2,
    },
)
def _(penalty, draw: Draw) -> Iterator[Comparison]:
    chosen, rejected, more = draw.normal(4), draw.normal(4), draw.uniform(4, low=0.5, high=2.0)
    yield penalty(chosen, rejected), 2 * chosen**2 + 2 * rejected**2 - (chosen - rejected) ** 2
    yield penalty(chosen + more, rejected - more), penalty(chosen, rejected)
    yield penalty(more, -more), torch.zeros(4)


@check(
    "eq:outcome-loss",
    "minimiser",
    "The expected loss has gradient 0 where every prefix's logit is the log-odds of a correct end.",
    of=reward_losses.outcome_loss,
    against="action values of a toy language model: P(correct | prefix), summed over all ways to go on",
    wrong={
        "labels inverted": lambda logits, labels, mask: reward_losses.outcome_loss(logits, 1 - labels, mask),
        "squared error on the logit": lambda logits, labels, mask: torch.where(
            mask, (logits - labels[:, None]) ** 2, 0.0
        ),
        "hinge on signed labels": lambda logits, labels, mask: torch.where(
            mask, (1 - (2 * labels[:, None] - 1) * logits).clamp(min=0), 0.0
        ),
    },
)
def _(outcome_loss, draw: Draw) -> Comparison:
    lm = draw.toy(3, 3, scale=0.7)
    found, probs = lm.completions(), lm.distribution()[0].detach()
    labels = _share(draw, len(probs))  # the grader may be noisy: P(correct) of each response
    _, action = lm.action_values(labels)
    logits = torch.where(found.mask, (action / (1 - action)).log(), torch.nan).requires_grad_()
    # Tokens with the same prefix share one logit: their gradients add up, weighted by the responses' probabilities.
    loss = (probs[:, None] * outcome_loss(logits, labels, found.mask)).sum()
    (gradient,) = torch.autograd.grad(loss, logits)
    shared: dict[tuple[int, ...], Tensor] = {}
    for row, length, terms in zip(found.tokens.tolist(), found.lengths.tolist(), gradient, strict=True):
        for t in range(length):
            prefix = tuple(row[: t + 1])
            shared[prefix] = shared.get(prefix, torch.zeros(())) + terms[t]
    return torch.stack(list(shared.values())), torch.zeros(len(shared))


@check(
    "eq:outcome-loss",
    "value",
    "Every sampled token, and no other, predicts the outcome of the whole response.",
    of=reward_losses.outcome_loss,
    against="−log of the probability given to the label, token by token under the mask",
    wrong={
        "last token only": lambda logits, labels, mask: torch.where(
            torch.arange(mask.shape[1]) == mask.sum(-1, keepdim=True) - 1,
            reward_losses.outcome_loss(logits, labels, mask),
            0.0,
        ),
        "padding trained too": lambda logits, labels, mask: reward_losses.outcome_loss(
            logits, labels, torch.ones_like(mask)
        ),
        "mean over the tokens of a row": lambda logits, labels, mask: (
            reward_losses.outcome_loss(logits, labels, mask) / mask.sum(-1, keepdim=True)
        ),
    },
)
def _(outcome_loss, draw: Draw) -> Comparison:
    logits, labels = draw.normal(4, 4), torch.tensor([1.0, 0.0, 1.0, 0.0], dtype=torch.float64)
    mask = draw.mask(4, 4)
    mask[0] = torch.tensor([True, True, False, False])
    probability = 1 / (1 + (-logits).exp())
    given = torch.where(labels[:, None] == 1, probability, 1 - probability)
    return outcome_loss(logits, labels, mask), torch.where(mask, -given.log(), 0.0)
