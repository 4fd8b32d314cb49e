"""Chapter 18: a teacher of whom only the likeliest tokens were kept, and several teachers of one student."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from minirlhf.core import exact
from minirlhf.equations import distillation as kd
from minirlhf.equations import kl
from minirlhf_course.chapters.ch18_synthetic_data_and_distillation import equations
from minirlhf_course.ledger.registry import Comparison, Draw, check


def _lists(draw: Draw) -> tuple[Tensor, Tensor, Tensor]:
    """Logits ``(2, 3, 6)`` of student and teacher, and a ragged mask with a column of padding."""
    mask = draw.mask(2, 3)
    mask[0, -1], mask[1] = False, True
    return draw.normal(2, 3, 6), draw.normal(2, 3, 6), mask


def _by_position(
    of: Callable[[list[float], list[float], list[int]], Tensor | float], s: Tensor, t: Tensor, mask: Tensor
) -> Tensor:
    """A function of the two distributions and of the tokens from the teacher's likeliest to its least likely."""
    found = torch.zeros(mask.shape, dtype=torch.float64)
    for b, i in mask.nonzero().tolist():
        p_s, p_t = s[b, i].softmax(-1).tolist(), t[b, i].softmax(-1).tolist()
        found[b, i] = float(of(p_s, p_t, sorted(range(len(p_t)), key=lambda v: -p_t[v])))
    return found


def _kl(p: list[float], q: list[float]) -> float:
    return float(exact.divergence(torch.tensor(p, dtype=torch.float64), torch.tensor(q, dtype=torch.float64)))


def _cut(s: Tensor, t: Tensor, k: int, renormalised: bool) -> Tensor:
    """The first k terms of the forward KL, with both distributions normalised over them or as they are."""
    top = t.topk(k).indices
    chosen = (t.log_softmax(-1).gather(-1, top), s.log_softmax(-1).gather(-1, top))
    log_t, log_s = (x.log_softmax(-1) for x in chosen) if renormalised else chosen
    return (log_t.exp() * (log_t - log_s)).sum(-1)


def _wrong(divergence: Callable[[Tensor, Tensor, int], Tensor]) -> Callable[..., Tensor]:
    def loss(s: Tensor, t: Tensor, mask: Tensor, *, k: int, temperature: float = 1.0) -> Tensor:
        return torch.where(mask, divergence(s / temperature, t / temperature, k), 0.0)

    return loss


TOP_K_MISTAKES: dict[str, Callable[..., Any]] = {
    "the tail left out": _wrong(lambda s, t, k: _cut(s, t, k, False)),
    "both normalised over the k": _wrong(lambda s, t, k: _cut(s, t, k, True)),
    "the whole forward KL": lambda s, t, mask, *, k, temperature=1.0: kd.forward_kl_distillation(
        s, t, mask, temperature=temperature
    ),
    "one token more": lambda s, t, mask, *, k, temperature=1.0: kd.top_k_distillation(
        s, t, mask, k=k + 1, temperature=temperature
    ),
}


@check(
    "eq:kd-top-k",
    "value",
    "The forward KL between both distributions after all tokens but the teacher's k most probable ones are "
    "merged into one outcome.",
    of=kd.top_k_distillation,
    against="KL of the two distributions over k tokens and one outcome for all others",
    wrong=TOP_K_MISTAKES,
)
def _(top_k_distillation, draw: Draw) -> Iterator[Comparison]:
    s, t, mask = _lists(draw)
    for k, temperature in ((2, 1.0), (3, float(draw.uniform(low=1.5, high=3.0))), (3, 0.7)):

        def lumped(p_s: list[float], p_t: list[float], order: list[int], k: int = k) -> float:
            head, tail = order[:k], order[k:]
            p, q = ([p[v] for v in head] + [sum(p[v] for v in tail)] for p in (p_t, p_s))
            return _kl(p, q)

        expected = _by_position(lumped, s / temperature, t / temperature, mask)
        yield top_k_distillation(s, t, mask, k=k, temperature=temperature), expected


@check(
    "eq:kd-top-k-gap",
    "value",
    "The full forward KL minus this loss is the teacher's tail mass times the KL of the tails: never negative.",
    of=kd.top_k_distillation,
    against="the forward KL, and the KL of the two tails, each normalised",
    wrong=TOP_K_MISTAKES,
)
def _(top_k_distillation, draw: Draw) -> Comparison:
    s, t, mask = _lists(draw)

    def gap(p_s: list[float], p_t: list[float], order: list[int]) -> float:
        tails = [[p[v] for v in order[3:]] for p in (p_t, p_s)]
        return sum(tails[0]) * _kl(*([x / sum(tail) for x in tail] for tail in tails))

    whole = _by_position(lambda p_s, p_t, order: _kl(p_t, p_s), s, t, mask)
    return top_k_distillation(s, t, mask, k=3), whole - _by_position(gap, s, t, mask)


TEACHER_MISTAKES: dict[str, Callable[..., Any]] = {
    "logits averaged without weights": lambda z, w: z.mean(0).softmax(-1),
    "the likeliest teacher": lambda z, w: z[w.argmax()].softmax(-1),
}


def _several(draw: Draw) -> tuple[Tensor, Tensor]:
    """Three teachers' logits over four tokens, and their weights."""
    return draw.normal(3, 4, scale=1.5), draw.distribution(3)


@check(
    "eq:kd-mixture",
    "value",
    "No distribution has a smaller mean of KL(p_h‖q) over the teachers.",
    of=equations.mixture_of_teachers,
    against="the distribution with the smallest mean forward KL, found numerically",
    tolerance=1e-6,
    wrong=TEACHER_MISTAKES | {"the normalised product": equations.product_of_teachers},
)
def _(mixture, draw: Draw) -> Comparison:
    logits, weights = _several(draw)
    teachers = logits.softmax(-1)
    return mixture(logits, weights), exact.maximise(lambda q: -(weights * exact.divergence(teachers, q)).sum(), 4)


@check(
    "eq:kd-product",
    "value",
    "No distribution has a smaller mean of KL(q‖p_h) over the teachers.",
    of=equations.product_of_teachers,
    against="the distribution with the smallest mean reverse KL, found numerically",
    tolerance=1e-6,
    wrong=TEACHER_MISTAKES | {"the mixture": equations.mixture_of_teachers},
)
def _(product, draw: Draw) -> Comparison:
    logits, weights = _several(draw)
    teachers = logits.softmax(-1)
    return product(logits, weights), exact.maximise(lambda q: -(weights * exact.divergence(q, teachers)).sum(), 4)


# -- the part of the gradient that comes from the choice of prefixes -----------------------------------------------


def _inclusive(values: Tensor, logps: Tensor, mask: Tensor) -> Tensor:
    """Each token answers for all values before it, too, but not for those after it."""
    earlier = values.detach().cumsum(-1)
    return values + earlier * (logps - logps.detach())


@check(
    "eq:prefix-credit",
    "gradient",
    "With the probabilities of the answers held fixed it has the gradient of the expected sum, for any "
    "divergence per token.",
    of=kl.with_prefix_credit,
    against="the gradient of the mean over all answers of the student, with their probabilities differentiated",
    wrong={
        "answers taken as fixed": lambda values, logps, mask: values + 0 * logps,
        "for what came before": _inclusive,
        "for the mean of what comes": lambda values, logps, mask: (
            values + (kl.with_prefix_credit(values, logps, mask) - values) / mask.sum(-1, keepdim=True).clamp(min=1)
        ),
        "the score alone": lambda values, logps, mask: kl.with_prefix_credit(values.detach(), logps, mask),
    },
)
def _(with_prefix_credit, draw: Draw) -> Iterator[Comparison]:
    student, teacher = draw.toy(3, 3), draw.toy(3, 3)
    ids, mask = student.batch()["input_ids"], student.completions().mask
    said = teacher(ids).logits[:, :-1].detach()
    for divergence in (kd.reverse_kl_distillation, kd.jsd_distillation):
        probs, logps = student.distribution()[0], student.completion_token_logps()[0]
        here = divergence(student(ids).logits[:, :-1], said, mask)
        whole = exact.gradient((probs * here.sum(-1)).sum(), student.table)
        credited = (probs.detach() * with_prefix_credit(here, logps, mask).sum(-1)).sum()
        yield exact.gradient(credited, student.table), whole
