"""Chapter 18, distillation: which divergence of whole answers each loss per token is, by summation over all answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from minirlhf.core import exact
from minirlhf.core.exact import ToyLM
from minirlhf.core.logprobs import token_logps
from minirlhf.core.masking import zero_where_masked
from minirlhf.equations import distillation as kd
from minirlhf_course.ledger.registry import Draw, chain, check

chain(
    "distillation",
    "From soft targets to sequence-level distillation",
    ["eq:soft-cross-entropy", "eq:kd-forward", "eq:sequence-kd"],
    module=__name__,
)


class PupilAndTeacher(NamedTuple):
    """A student and a teacher, enumerable, with all their answers as one batch."""

    student: ToyLM
    teacher: ToyLM

    @property
    def mask(self) -> Tensor:
        """``(N, L)``."""
        return self.student.completions().mask

    def logits(self) -> tuple[Tensor, Tensor]:
        """Logits of student and teacher at every token of every answer, ``(N, L, V)`` each; NaN at padding."""
        ids = self.student.batch()["input_ids"]
        hide = lambda x: torch.where(self.mask[..., None], x, torch.nan)
        return hide(self.student(ids).logits[:, :-1]), hide(self.teacher(ids).logits[:, :-1]).detach()

    def distributions(self) -> tuple[Tensor, Tensor]:
        """Probabilities of all answers under student and teacher, ``(N,)`` each."""
        return self.student.distribution()[0], self.teacher.distribution()[0].detach()

    def sum_over_answers(self, probs: Tensor, per_token: Tensor) -> Tensor:
        """Mean over answers of the sum over tokens."""
        return (probs * per_token.sum(-1)).sum()


def pupil(draw: Draw) -> PupilAndTeacher:
    """Two random models with three tokens and at most two of them per answer."""
    return PupilAndTeacher(draw.toy(3, 2), draw.toy(3, 2))


def positions(draw: Draw) -> tuple[Tensor, Tensor, Tensor]:
    """Random logits ``(2, 3, 4)`` of student and teacher, and a ragged mask."""
    return draw.normal(2, 3, 4), draw.normal(2, 3, 4), draw.mask(2, 3)


def by_position(divergence: Callable[[Tensor, Tensor], Tensor], s: Tensor, t: Tensor, mask: Tensor) -> Tensor:
    """A function of the two distributions, position by position, 0 outside the mask."""
    return zero_where_masked(divergence(s.softmax(-1), t.softmax(-1)), mask)


SOFT_MISTAKES = {
    "teacher and student swapped": lambda s, t, mask, *, temperature: kd.soft_cross_entropy(
        t, s, mask, temperature=temperature
    ),
    "temperature on the teacher only": lambda s, t, mask, *, temperature: kd.soft_cross_entropy(
        s, t / temperature, mask
    ),
    "no sum: p_T(y) log p_S(y) of the teacher's favourite": lambda s, t, mask, *, temperature: zero_where_masked(
        (-(t / temperature).softmax(-1) * (s / temperature).log_softmax(-1)).gather(-1, t.argmax(-1, True))[..., 0],
        mask,
    ),
}


@check(
    "eq:soft-cross-entropy",
    "value",
    "The teacher's entropy plus KL(p_T‖p_S), both at the temperature; times temperature² if rescaled.",
    of=kd.soft_cross_entropy,
    against="entropy plus KL by summation",
    wrong=SOFT_MISTAKES,
)
def _(soft_cross_entropy, draw):
    s, t, mask = positions(draw)
    temperature = float(draw.uniform(low=1.5, high=3.0))
    expected = by_position(
        lambda p, q: exact.entropy(q) + exact.divergence(q, p), s / temperature, t / temperature, mask
    )
    return soft_cross_entropy(s, t, mask, temperature=temperature), expected


@check(
    "eq:soft-cross-entropy",
    "gradient",
    "If rescaled, the gradient is T (p_S − p_T), which for T → ∞ becomes (z_S − z_T)/V with centred logits.",
    of=kd.soft_cross_entropy,
    against="p_S − p_T, and differences of centred logits for a high temperature",
    tolerance=1e-5,
    wrong={
        "not rescaled": lambda s, t, mask, *, temperature, rescale: kd.soft_cross_entropy(
            s, t, mask, temperature=temperature
        ),
        "rescaled by the temperature once": lambda s, t, mask, *, temperature, rescale: (
            kd.soft_cross_entropy(s, t, mask, temperature=temperature) * temperature
        ),
        "gradient into the teacher": lambda s, t, mask, *, temperature, rescale: kd.soft_cross_entropy(
            s, s, mask, temperature=temperature, rescale=True
        ),
    },
)
def _(soft_cross_entropy, draw):
    s, t = draw.normal(1, 1, 4).requires_grad_(), draw.normal(1, 1, 4)
    mask = torch.ones(1, 1, dtype=torch.bool)

    def slope(temperature: float) -> Tensor:
        loss = soft_cross_entropy(s, t, mask, temperature=temperature, rescale=True)
        return exact.gradient(loss.sum(), s)

    difference = (2 * (((s / 2).softmax(-1)) - (t / 2).softmax(-1))).detach()
    yield slope(2.0), difference.flatten()
    centred = ((s - s.mean()) - (t - t.mean())).detach() / 4
    yield slope(1e7), centred.flatten()


@check(
    "eq:kd-forward",
    "step",
    "The cross-entropy minus its minimum, the teacher's entropy.",
    of=kd.forward_kl_distillation,
    against="soft cross-entropy minus the teacher's entropy",
    follows="eq:soft-cross-entropy",
    wrong={
        "KL reversed": kd.reverse_kl_distillation,
        "student's entropy": lambda s, t, mask, **o: (
            kd.soft_cross_entropy(s, t, mask, **o) - kd.soft_cross_entropy(s, s, mask, **o)
        ),
        "padding counted": lambda s, t, mask, **o: kd.forward_kl_distillation(s, t, torch.ones_like(mask), **o),
        "no temperature": lambda s, t, mask, **_: kd.forward_kl_distillation(s, t, mask),
    },
)
def _(forward_kl_distillation, draw):
    s, t, mask = positions(draw)
    mask[0, -1], mask[1] = False, True
    for temperature in (1.0, float(draw.uniform(low=1.5, high=3.0))):
        floor = by_position(lambda p, q: exact.entropy(q), s / temperature, t / temperature, mask)
        both = [f(s, t, mask, temperature=temperature) for f in (forward_kl_distillation, kd.soft_cross_entropy)]
        yield both[0], both[1] - floor


@check(
    "eq:kd-forward",
    "whole answers",
    "Summed along answers of the teacher, its expectation is KL(π_T‖π_S) of whole answers.",
    of=kd.forward_kl_distillation,
    against="KL of the distributions over all answers",
    wrong={
        "KL reversed": kd.reverse_kl_distillation,
        "Jensen–Shannon": kd.jsd_distillation,
        "cross-entropy": kd.soft_cross_entropy,
    },
)
def _(forward_kl_distillation, draw):
    models = pupil(draw)
    p_student, p_teacher = models.distributions()
    got = models.sum_over_answers(p_teacher, forward_kl_distillation(*models.logits(), models.mask))
    return got, exact.divergence(p_teacher, p_student)


@check(
    "eq:kd-reverse",
    "whole answers",
    "Summed along answers of the student, its expectation is KL(π_S‖π_T) of whole answers: on-policy distillation.",
    of=kd.reverse_kl_distillation,
    against="KL of the distributions over all answers",
    wrong={
        "KL not reversed": kd.forward_kl_distillation,
        "Jensen–Shannon": kd.jsd_distillation,
        "teacher and student swapped": lambda s, t, mask, **o: kd.reverse_kl_distillation(t, s, mask, **o),
    },
)
def _(reverse_kl_distillation, draw):
    models = pupil(draw)
    p_student, p_teacher = models.distributions()
    got = models.sum_over_answers(p_student, reverse_kl_distillation(*models.logits(), models.mask))
    yield got, exact.divergence(p_student, p_teacher)
    s, t, mask = positions(draw)
    temperature = float(draw.uniform(low=1.5, high=3.0))
    expected = by_position(exact.divergence, s / temperature, t / temperature, mask)
    yield reverse_kl_distillation(s, t, mask, temperature=temperature), expected


JSD_MISTAKES = {
    "β and 1 − β swapped": lambda s, t, mask, *, beta, **o: kd.jsd_distillation(s, t, mask, beta=1 - beta, **o),
    "even mixture for every β": lambda s, t, mask, *, beta, **o: kd.jsd_distillation(s, t, mask, beta=0.5, **o),
    "mixture of logits": lambda s, t, mask, *, beta, **o: (
        beta * kd.forward_kl_distillation(beta * t + (1 - beta) * s, t, mask, **o)
        + (1 - beta) * kd.reverse_kl_distillation(s, beta * t + (1 - beta) * s, mask, **o)
    ),
}


@check(
    "eq:kd-jsd",
    "value",
    "β KL(p_T‖m) + (1 − β) KL(p_S‖m), where the teacher has the weight β in m.",
    of=kd.jsd_distillation,
    against="two KL to the mixture by summation",
    wrong=JSD_MISTAKES,
)
def _(jsd_distillation, draw):
    s, t, mask = positions(draw)
    beta = float(draw.uniform(low=0.15, high=0.35))
    m = lambda p, q: beta * q + (1 - beta) * p
    mixed = lambda p, q: beta * exact.divergence(q, m(p, q)) + (1 - beta) * exact.divergence(p, m(p, q))
    yield jsd_distillation(s, t, mask, beta=beta), by_position(mixed, s, t, mask)
    temperature = float(draw.uniform(low=1.5, high=3.0))
    softened = by_position(mixed, s / temperature, t / temperature, mask)
    yield jsd_distillation(s, t, mask, beta=beta, temperature=temperature), softened


@check(
    "eq:kd-jsd",
    "limit",
    "Divided by β it tends to the forward KL for β → 0; divided by 1 − β to the reverse KL for β → 1.",
    of=kd.jsd_distillation,
    against="forward and reverse KL by summation",
    tolerance=1e-6,
    wrong={name: JSD_MISTAKES[name] for name in ("β and 1 − β swapped", "even mixture for every β")},
)
def _(jsd_distillation, draw):
    s, t, mask = positions(draw)
    forward = by_position(lambda p, q: exact.divergence(q, p), s, t, mask)
    reverse = by_position(exact.divergence, s, t, mask)
    over_beta = lambda b: jsd_distillation(s, t, mask, beta=b) / b
    over_rest = lambda b: jsd_distillation(s, t, mask, beta=1 - b) / b
    for quotient, expected in ((over_beta, forward), (over_rest, reverse)):
        yield 2 * quotient(5e-6) - quotient(1e-5), expected  # the error linear in β cancels


@check(
    "eq:sequence-kd",
    "step",
    "Its mean over the teacher's answers is the summed forward KL plus the entropy of the teacher's answers.",
    of=kd.sequence_level,
    against="the sum of forward KLs along the teacher's answers, and its entropy",
    follows="eq:kd-forward",
    wrong={
        "mean over tokens": lambda logps, mask: kd.sequence_level(logps, mask) / mask.sum(-1, keepdim=True),
        "likelihood minimised": lambda logps, mask: -kd.sequence_level(logps, mask),
        "EOS left out": lambda logps, mask: kd.sequence_level(logps, mask)[:, :1],
    },
)
def _(sequence_level, draw):
    models = pupil(draw)
    _, p_teacher = models.distributions()
    logps = token_logps(models.student(models.student.batch()["input_ids"]).logits, _answers(models))
    forward = models.sum_over_answers(p_teacher, kd.forward_kl_distillation(*models.logits(), models.mask))
    return models.sum_over_answers(p_teacher, sequence_level(logps, models.mask)), forward + exact.entropy(p_teacher)


@check(
    "eq:on-policy-distillation",
    "gradient",
    "The mean return is −KL(π_S‖π_T), and Σ_y π_S(y) ∇log π_S(y) · return is the gradient of that.",
    of=kd.on_policy_reward,
    against="gradient of KL(π_S‖π_T) over all answers",
    wrong={
        "teacher and student swapped": lambda s, t, mask: kd.on_policy_reward(t, s, mask),
        "teacher's log-probability alone": lambda s, t, mask: zero_where_masked(t, mask).detach(),
        "probability ratio": lambda s, t, mask: zero_where_masked((t - s).exp(), mask).detach(),
    },
)
def _(on_policy_reward, draw):
    models = pupil(draw)
    p_student, p_teacher = models.distributions()
    s = models.student.completion_token_logps()[0]
    t = models.teacher.completion_token_logps()[0].detach()
    returns = on_policy_reward(s, t, models.mask).sum(-1)
    yield (p_student * returns).sum(), -exact.divergence(p_student, p_teacher)
    got = exact.gradient((p_student.detach() * s.sum(-1) * returns).sum(), models.student.table)
    yield got, -exact.gradient(exact.divergence(p_student, p_teacher), models.student.table)


def _answers(models: PupilAndTeacher) -> Tensor:
    """Input ids with padding replaced by a token of the vocabulary, so that it can be looked up: ``(N, 1 + L)``."""
    ids = models.student.batch()["input_ids"]
    return torch.where(ids == models.student.pad_token_id, 0, ids).clamp(max=models.student.vocab_size - 1)
