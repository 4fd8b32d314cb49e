"""Distillation: a student learns a teacher's distributions, on the teacher's answers or on its own.

Functions of whole distributions take logits ``(B, T, V)`` over one shared vocabulary, divide both by the temperature, and
return a loss per token ``(B, T)``, in nats, minimised, float32 or wider, 0 outside the mask; which answers the tokens come
from decides which sequence-level divergence it is. Gradients run through ``student_logits`` and ``logps`` only.
:mod:`~minirlhf.equations.aggregation` makes one number of it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from minirlhf.core.masking import zero_where_masked
from minirlhf.core.validate import MASK, POSITIVE, sampled, shape, takes
from minirlhf.equations import kl

_distributions = takes(mask=MASK, student_logits=shape("B T V"), teacher_logits=shape("B T V"), temperature=POSITIVE)


@_distributions
def soft_cross_entropy(
    student_logits: Tensor, teacher_logits: Tensor, mask: Tensor, *, temperature: float = 1.0, rescale: bool = False
) -> Tensor:
    """Cross-entropy with soft targets, ``−Σ_v p_T(v) log p_S(v)``, both distributions at one temperature.

    The sum runs over the vocabulary. Weighing the sampled token's log-probability by p_T instead has its minimum
    at ``p_S ∝ p_T²``. The gradient shrinks like 1/temperature²; ``rescale`` multiplies by temperature², so that
    a hard-label loss beside it keeps its weight.

    Label: eq:soft-cross-entropy
    Source: Hinton, Vinyals and Dean (2015), "Distilling the knowledge in a neural network".
    """
    student, teacher = _softened(student_logits, teacher_logits, mask, temperature)
    loss = -(teacher.softmax(-1) * student.log_softmax(-1)).sum(-1)
    return zero_where_masked(loss * temperature**2 if rescale else loss, mask)


@_distributions
def forward_kl_distillation(
    student_logits: Tensor, teacher_logits: Tensor, mask: Tensor, *, temperature: float = 1.0
) -> Tensor:
    """``KL(p_T‖p_S)`` per token: the soft cross-entropy less the teacher's entropy, so 0 where they agree.

    Mode covering. Summed along the teacher's answers its mean is the forward KL of whole answers.

    Label: eq:kd-forward
    Source: Hinton, Vinyals and Dean (2015), "Distilling the knowledge in a neural network".
    """
    return _masked(kl.forward_kl, student_logits, teacher_logits, mask, temperature)


@_distributions
def reverse_kl_distillation(
    student_logits: Tensor, teacher_logits: Tensor, mask: Tensor, *, temperature: float = 1.0
) -> Tensor:
    """``KL(p_S‖p_T)`` per token: the student may leave modes of the teacher out, but must not invent any.

    Mode seeking. Summed along the student's own answers its mean is the reverse KL of whole answers.

    Label: eq:kd-reverse
    Source: Gu et al. (2024), "MiniLLM: knowledge distillation of large language models".
    """
    return _masked(kl.reverse_kl, student_logits, teacher_logits, mask, temperature)


@_distributions
def jsd_distillation(
    student_logits: Tensor, teacher_logits: Tensor, mask: Tensor, *, beta: float = 0.5, temperature: float = 1.0
) -> Tensor:
    """Generalised Jensen–Shannon ``β KL(p_T‖m) + (1−β) KL(p_S‖m)``, ``m = β p_T + (1−β) p_S``. Bounded.

    β strictly between 0 and 1: towards 0 it points like the forward KL and towards 1 like the reverse KL, but the
    loss itself goes to 0 there: use those instead (TRL switches to them at 0 and 1).

    Label: eq:kd-jsd
    Source: Agarwal et al. (2024), "On-policy distillation of language models: learning from self-generated
        mistakes", eq. 1.
    """
    return _masked(partial(kl.generalised_jsd, beta=beta), student_logits, teacher_logits, mask, temperature)


@takes(mask=MASK, logps=sampled(gradient=True))
def sequence_level(logps: Tensor, mask: Tensor) -> Tensor:
    """Sequence-level distillation ``−log π_S(y_t)`` on answers of the teacher: supervised fine-tuning on them.

    Its mean over the teacher's answers is the forward KL of whole answers plus the teacher's entropy.

    Label: eq:sequence-kd
    Source: Kim and Rush (2016), "Sequence-level knowledge distillation".
    """
    return -logps


@takes(mask=MASK, student_logps=sampled(gradient=False), teacher_logps=sampled(gradient=False))
def on_policy_reward(student_logps: Tensor, teacher_logps: Tensor, mask: Tensor) -> Tensor:
    """Reward of a token that the student sampled, ``log π_T − log π_S``: distillation as reinforcement learning.

    Its return over a whole answer has the mean −KL(π_S‖π_T), and the policy gradient of these returns is that
    of the reverse KL. A grade for every token, where a reward model gives one per answer. No gradient flows.

    Label: eq:on-policy-distillation
    Source: Gu et al. (2024), "MiniLLM: knowledge distillation of large language models"; Agarwal et al. (2024).
    """
    return teacher_logps - student_logps


def _softened(student: Tensor, teacher: Tensor, mask: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Both logits over the temperature, float32 or wider, harmless outside the mask; the teacher's constant."""
    inside = mask.bool()[..., None]  # (B, T, 1)
    student, teacher = (
        torch.where(inside, x if x.dtype == torch.float64 else x.float(), 0.0) / temperature
        for x in (student, teacher.detach())
    )
    return student, teacher


def _masked(
    divergence: Callable[[Tensor, Tensor], Tensor], student: Tensor, teacher: Tensor, mask: Tensor, temperature: float
) -> Tensor:
    return zero_where_masked(divergence(*_softened(student, teacher, mask, temperature)), mask)
