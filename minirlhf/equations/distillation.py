"""Distillation: a student learns a teacher's distributions, on the teacher's completions or on its own.

Functions of whole distributions take logits ``(B, T, V)`` over one shared vocabulary, divide both by the temperature,
and return a loss per token ``(B, T)``. The loss is in nats, to be minimised, float32 or wider, and 0 outside the mask.
The source of the completions (student or teacher) decides which sequence-level divergence the loss is. Gradients run
through ``student_logits`` and ``logps`` only. :mod:`~minirlhf.equations.aggregation` reduces the loss to one number.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from minirlhf.core.equation import equation
from minirlhf.core.errors import ArgumentError
from minirlhf.core.masking import zero_where_masked
from minirlhf.core.validate import MASK, POSITIVE, at_least, sampled, shape, takes
from minirlhf.equations import kl

_distributions = takes(mask=MASK, student_logits=shape("B T V"), teacher_logits=shape("B T V"), temperature=POSITIVE)
_top = takes(
    mask=MASK, student_logits=shape("B T V"), teacher_logits=shape("B T V"), temperature=POSITIVE, k=at_least(1)
)


@_distributions
@equation(
    "eq:soft-cross-entropy",
    source='Hinton, Vinyals and Dean (2015), "Distilling the knowledge in a neural network".',
    gradient=("student_logits",),
)
def soft_cross_entropy(
    student_logits: Tensor, teacher_logits: Tensor, mask: Tensor, *, temperature: float = 1.0, rescale: bool = False
) -> Tensor:
    """Cross-entropy with soft targets, ``−Σ_v p_T(v) log p_S(v)``, both distributions at the same temperature.

    The sum runs over the vocabulary. If the loss weighted only the sampled token's log-probability by p_T, its minimum
    would be at ``p_S ∝ p_T²``. The gradient shrinks like 1/temperature²; ``rescale`` multiplies the loss by
    temperature², which preserves its weight relative to a hard-label loss.
    """
    student, teacher = _softened(student_logits, teacher_logits, mask, temperature)
    loss = -(teacher.softmax(-1) * student.log_softmax(-1)).sum(-1)
    return zero_where_masked(loss * temperature**2 if rescale else loss, mask)


@_distributions
@equation(
    "eq:kd-forward",
    source='Hinton, Vinyals and Dean (2015), "Distilling the knowledge in a neural network".',
    gradient=("student_logits",),
)
def forward_kl_distillation(
    student_logits: Tensor, teacher_logits: Tensor, mask: Tensor, *, temperature: float = 1.0
) -> Tensor:
    """``KL(p_T‖p_S)`` per token: the soft cross-entropy minus the teacher's entropy, so 0 where p_S = p_T.

    Mode covering. Summed over the tokens of the teacher's completions, its mean is the forward KL of whole completions.
    """
    return _masked(kl.forward_kl, student_logits, teacher_logits, mask, temperature)


@_distributions
@equation(
    "eq:kd-reverse",
    source='Gu et al. (2024), "MiniLLM: knowledge distillation of large language models".',
    gradient=("student_logits",),
)
def reverse_kl_distillation(
    student_logits: Tensor, teacher_logits: Tensor, mask: Tensor, *, temperature: float = 1.0
) -> Tensor:
    """``KL(p_S‖p_T)`` per token: the student may miss modes of the teacher, but is penalised for inventing any.

    Mode seeking. Summed over the tokens of the student's own completions, its mean is the reverse KL of whole
    completions.
    """
    return _masked(kl.reverse_kl, student_logits, teacher_logits, mask, temperature)


@_distributions
@equation(
    "eq:kd-jsd",
    source='Agarwal et al. (2024), "On-policy distillation of language models: learning from self-generated '
    'mistakes", eq. 1.',
    gradient=("student_logits",),
)
def jsd_distillation(
    student_logits: Tensor, teacher_logits: Tensor, mask: Tensor, *, beta: float = 0.5, temperature: float = 1.0
) -> Tensor:
    """Generalised Jensen–Shannon ``β KL(p_T‖m) + (1−β) KL(p_S‖m)``, ``m = β p_T + (1−β) p_S``. Bounded.

    β is strictly between 0 and 1. Near 0 the gradient has the direction of the forward KL and near 1 of the reverse KL,
    but the loss itself goes to 0 at both ends. Use the two KL losses there (TRL switches to them at 0 and 1).
    """
    return _masked(partial(kl.generalised_jsd, beta=beta), student_logits, teacher_logits, mask, temperature)


@_top
@equation(
    "eq:kd-top-k",
    "eq:kd-top-k-gap",
    source='the chain rule of KL, Cover and Thomas (2006), "Elements of information theory", theorem 2.5.3.',
    gradient=("student_logits",),
)
def top_k_distillation(
    student_logits: Tensor, teacher_logits: Tensor, mask: Tensor, *, k: int = 8, temperature: float = 1.0
) -> Tensor:
    """Forward KL over the teacher's k most probable tokens, with all other tokens merged into one outcome (the tail).

    It uses only k log-probabilities of the teacher and their tokens, so only these must be stored. It is a lower bound
    of the forward KL; the difference is r KL(tail of p_T‖tail of p_S), where r is the mass of the teacher's tail. If
    the teacher's k probabilities were normalised to sum 1, the student would learn that all other tokens are
    impossible.

    Args:
        k: number of the teacher's most probable tokens to use.
    Raises: ValueError too unless k < V.
    """
    if k >= student_logits.shape[-1]:
        raise ArgumentError(
            f"k = {k}; expected fewer than V = {student_logits.shape[-1]} tokens, so that the tail is not empty",
            argument="k",
            value=k,
            expected=student_logits.shape[-1],
        )
    student, teacher = (x.log_softmax(-1) for x in _softened(student_logits, teacher_logits, mask, temperature))
    top = teacher.topk(k).indices  # (B, T, k)
    in_top_k = torch.zeros_like(teacher, dtype=torch.bool).scatter(-1, top, True)

    def with_tail_mass(logps: Tensor) -> Tensor:
        """``(B, T, k + 1)``."""
        tail = logps.masked_fill(in_top_k, -torch.inf).logsumexp(-1, keepdim=True)
        return torch.cat([logps.gather(-1, top), tail], -1)

    return zero_where_masked(kl.forward_kl(with_tail_mass(student), with_tail_mass(teacher)), mask)


@takes(mask=MASK, logps=sampled(gradient=True))
@equation("eq:sequence-kd", source='Kim and Rush (2016), "Sequence-level knowledge distillation".', gradient=("logps",))
def sequence_level(logps: Tensor, mask: Tensor) -> Tensor:
    """Sequence-level distillation ``−log π_S(y_t)``: supervised fine-tuning on completions of the teacher.

    Its mean over the teacher's completions is the forward KL of whole completions plus the teacher's entropy.
    """
    return -logps


@takes(mask=MASK, student_logps=sampled(gradient=False), teacher_logps=sampled(gradient=False))
@equation(
    "eq:on-policy-distillation",
    source='Gu et al. (2024), "MiniLLM: knowledge distillation of large language models"; Agarwal et al. (2024).',
    gradient=(),
)
def on_policy_reward(student_logps: Tensor, teacher_logps: Tensor, mask: Tensor) -> Tensor:
    """Reward of a token that the student sampled, ``log π_T − log π_S``: distillation as reinforcement learning.

    Its return over a whole completion has the mean −KL(π_S‖π_T), and the policy gradient of these returns is the
    gradient of −KL(π_S‖π_T). Every token gets a reward, where a reward model gives one per completion.
    """
    return teacher_logps - student_logps


def _softened(student: Tensor, teacher: Tensor, mask: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Both logits over the temperature, float32 or wider, 0 outside the mask; the teacher's as a constant."""
    token_mask = mask.bool()[..., None]  # (B, T, 1)
    student, teacher = (
        torch.where(token_mask, x if x.dtype == torch.float64 else x.float(), 0.0) / temperature
        for x in (student, teacher.detach())
    )
    return student, teacher


def _masked(
    divergence: Callable[[Tensor, Tensor], Tensor], student: Tensor, teacher: Tensor, mask: Tensor, temperature: float
) -> Tensor:
    return zero_where_masked(divergence(*_softened(student, teacher, mask, temperature)), mask)
