"""The ledger of chapter 08: labels of single steps, and labels that may be wrong."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch
from torch import Tensor

from minirlhf.core import exact
from minirlhf.equations import reward_losses
from minirlhf_course.ledger.registry import Comparison, Draw, check


def _steps(draw: Draw) -> Tensor:
    """Where steps end: ``(4, 5)``, of each row some tokens and not all, the last tokens of the first row not among them."""
    ends = draw.holed_mask(4, 5)
    ends[0] = torch.tensor([False, True, True, False, False])
    return ends


@check(
    "eq:process-loss",
    "value",
    "Each step is scored at its last token and nowhere else; a soft label is a mean over hard ones.",
    of=reward_losses.process_loss,
    against="−log of the probability of each step's label, where a soft label is the mean over a coin",
    wrong={
        "labels inverted": lambda logits, labels, mask: reward_losses.process_loss(logits, 1 - labels, mask),
        "labels rounded": lambda logits, labels, mask: reward_losses.process_loss(logits, labels.round(), mask),
        "good steps only": lambda logits, labels, mask: torch.where(
            mask, -labels * torch.nn.functional.logsigmoid(logits), 0.0
        ),
        "every token trained": lambda logits, labels, mask: reward_losses.process_loss(
            logits, labels.nan_to_num(), torch.ones_like(mask)
        ),
        "mean over the steps of a row": lambda logits, labels, mask: (
            reward_losses.process_loss(logits, labels, mask) / mask.sum(-1, keepdim=True)
        ),
    },
)
def _(process_loss, draw: Draw) -> Iterator[Comparison]:
    ends, logits = _steps(draw), draw.normal(4, 5)
    good = draw.uniform(4, 5) < 0.5
    hard = torch.where(ends, good.double(), torch.nan)
    right = 1 / (1 + (-logits).exp())
    yield process_loss(logits, hard, ends), torch.where(ends, -torch.where(good, right, 1 - right).log(), 0.0)
    soft = draw.away_from([0.5], 4, 5, low=0.05, high=0.95, margin=0.1)
    surprise = torch.stack([-right.log(), -(1 - right).log()], -1)
    mean = (torch.stack([soft, 1 - soft], -1) * surprise).sum(-1)
    yield process_loss(logits, soft, ends), torch.where(ends, mean, 0.0)


@check(
    "eq:process-loss",
    "minimiser",
    "If the label is the fraction of K correct completions, the optimal logit is that of P(correct | prefix); if "
    'it is "is any correct?", that of 1 − (1 − P)^K.',
    of=reward_losses.process_loss,
    against="P(correct) of a toy language model's prefixes; labels enumerated over what K completions may show",
    wrong={
        "labels inverted": lambda logits, labels, mask: reward_losses.process_loss(logits, 1 - labels, mask),
        "squared error on the logit": lambda logits, labels, mask: torch.where(mask, (logits - labels) ** 2, 0.0),
        "good steps only": lambda logits, labels, mask: torch.where(
            mask, -labels * torch.nn.functional.logsigmoid(logits), 0.0
        ),
    },
)
def _(process_loss, draw: Draw) -> Iterator[Comparison]:
    lm, count = draw.toy(3, 3, scale=0.7), 3
    found = lm.completions()
    _, value = lm.action_values(draw.uniform(len(found.tokens), low=0.1, high=0.9))  # P(correct | prefix), (N, T)
    value = torch.where(found.mask, value, 0.5)
    shows = torch.tensor(list(itertools.product([0.0, 1.0], repeat=count)), dtype=torch.float64)  # (2^K, K)
    chances = [torch.where(right == 1, value[..., None], 1 - value[..., None]).prod(-1) for right in shows]
    for label_of, best in ((torch.mean, value), (torch.amax, 1 - (1 - value) ** count)):
        logits = (best / (1 - best)).log().requires_grad_()
        expected = sum(
            chance * process_loss(logits, label_of(right).expand_as(logits), found.mask)
            for chance, right in zip(chances, shows, strict=True)
        )
        (gradient,) = torch.autograd.grad(expected.sum(), logits)
        yield gradient, torch.zeros_like(gradient)


@check(
    "eq:bradley-terry-loss",
    "label smoothing",
    "For labels that are wrong with probability ε the mean loss is smallest at log((1 − ε)/ε), where it is their "
    "entropy.",
    of=reward_losses.bradley_terry_loss,
    against="the mean over a label that is wrong with probability ε; its minimiser; the entropy of the label there",
    wrong={
        "smoothing ignored": lambda chosen, rejected, *, label_smoothing, margin=None: reward_losses.bradley_terry_loss(
            chosen, rejected, margin=margin
        ),
        "loss shrunk by 1 − ε": lambda chosen, rejected, *, label_smoothing, margin=None: (
            (1 - label_smoothing) * reward_losses.bradley_terry_loss(chosen, rejected, margin=margin)
        ),
        "half the smoothing": lambda chosen, rejected, *, label_smoothing, margin=None: (
            reward_losses.bradley_terry_loss(chosen, rejected, margin=margin, label_smoothing=label_smoothing / 2)
        ),
        "the margin the same way for both labels": lambda chosen, rejected, *, label_smoothing, margin=None: (
            reward_losses.bradley_terry_loss(
                chosen if margin is None else chosen - margin, rejected, label_smoothing=label_smoothing
            )
        ),
    },
)
def _(loss, draw: Draw) -> Iterator[Comparison]:
    chosen, rejected, margin = draw.normal(4), draw.normal(4), draw.uniform(4, low=0.5, high=2.0)
    for eps in (float(draw.uniform(low=0.1, high=0.25)), float(draw.uniform(low=0.3, high=0.45))):
        kept, flipped = ((1 + (b - a + margin).exp()).log() for a, b in ((chosen, rejected), (rejected, chosen)))
        got = loss(chosen, rejected, margin=margin, label_smoothing=eps)
        yield got, (1 - eps) * kept + eps * flipped
        best = (rejected + torch.tensor((1 - eps) / eps, dtype=torch.float64).log()).requires_grad_()
        least = loss(best, rejected, label_smoothing=eps)
        yield torch.autograd.grad(least.sum(), best)[0], torch.zeros(4)
        coin = torch.tensor([1 - eps, eps], dtype=torch.float64)
        yield least, exact.entropy(coin).expand(4)
