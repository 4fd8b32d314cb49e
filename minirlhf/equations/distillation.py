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

from minirlhf.core.errors import ArgumentError
from minirlhf.core.masking import zero_where_masked
from minirlhf.core.validate import MASK, POSITIVE, at_least, distribution, sampled, shape, takes
from minirlhf.equations import kl

_distributions = takes(mask=MASK, student_logits=shape("B T V"), teacher_logits=shape("B T V"), temperature=POSITIVE)
_top = takes(
    mask=MASK, student_logits=shape("B T V"), teacher_logits=shape("B T V"), temperature=POSITIVE, k=at_least(1)
)


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


@_top
def top_k_distillation(
    student_logits: Tensor, teacher_logits: Tensor, mask: Tensor, *, k: int = 8, temperature: float = 1.0
) -> Tensor:
    """Forward KL that knows the teacher's k likeliest tokens, and of all others their mass only: those are one outcome.

    Of the teacher nothing but k log-probabilities and their tokens is used, so that is what has to be kept. A lower bound of
    the forward KL; the rest is r KL(tail of p_T‖tail of p_S), r being the mass of the teacher's tail. If the teacher's
    k numbers alone were normalised to 1, they would teach that everything else is impossible.

    Label: eq:kd-top-k, eq:kd-top-k-gap
    Source: the chain rule of KL, Cover and Thomas (2006), "Elements of information theory", theorem 2.5.3.
    Args:
        k: how many of the teacher's likeliest tokens are known.
    Raises: ValueError too unless k < V.
    """
    if k >= student_logits.shape[-1]:
        raise ArgumentError(
            f"k = {k}; expected fewer than V = {student_logits.shape[-1]}, of which some are the tail",
            argument="k",
            value=k,
            expected=student_logits.shape[-1],
        )
    student, teacher = (x.log_softmax(-1) for x in _softened(student_logits, teacher_logits, mask, temperature))
    top = teacher.topk(k).indices  # (B, T, k)
    known = torch.zeros_like(teacher, dtype=torch.bool).scatter(-1, top, True)

    def lumped(logps: Tensor) -> Tensor:
        """``(B, T, k + 1)``."""
        tail = logps.masked_fill(known, -torch.inf).logsumexp(-1, keepdim=True)
        return torch.cat([logps.gather(-1, top), tail], -1)

    return zero_where_masked(kl.forward_kl(lumped(student), lumped(teacher)), mask)


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


@takes(teacher_logits=shape("H V"), weights=distribution("H"))
def mixture_of_teachers(teacher_logits: Tensor, weights: Tensor) -> Tensor:
    """What the forward KL to several teachers at once is smallest at: the mean of their distributions. ``(V,)`` probabilities

    The teachers may be one model that was shown H different hints, which the student does not see.

    Label: eq:kd-mixture
    Source: Σ_h w_h KL(p_h‖q) is, up to a constant, KL(Σ_h w_h p_h‖q).
    """
    return (weights[:, None] * teacher_logits.softmax(-1)).sum(0).detach()


@takes(teacher_logits=shape("H V"), weights=distribution("H"))
def product_of_teachers(teacher_logits: Tensor, weights: Tensor) -> Tensor:
    """What the reverse KL to several teachers at once is smallest at: their normalised geometric mean. ``(V,)`` probabilities

    A token is dropped that one of them excludes much more strongly than it excludes the token's rivals, whatever another suggests.

    Label: eq:kd-product
    Source: Σ_h w_h KL(q‖p_h) is, up to a constant, KL(q‖∏_h p_h^w_h / Z).
    """
    return (weights[:, None] * teacher_logits.log_softmax(-1)).sum(0).softmax(-1).detach()


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
