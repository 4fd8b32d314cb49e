"""Reward shaping: terms that are added to a reward before advantages are computed.

Tensors are ``(B,)``, one number per completion, unless stated otherwise. ``lengths`` count sampled tokens, EOS
included; ``correct`` is 1 or True for a correct answer. Results are float.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from minirlhf.core.equation import equation
from minirlhf.core.errors import ArgumentError
from minirlhf.core.masking import last_index, zero_where_masked
from minirlhf.core.validate import MASK, NOT_NEGATIVE, sampled, shape, takes


@takes(mask=MASK, rewards="B", logps=sampled(gradient=False), ref_logps=sampled(gradient=False), beta=NOT_NEGATIVE)
@equation(
    "eq:kl-shaped-rewards",
    source='Ziegler et al. (2019), "Fine-Tuning Language Models from Human Preferences"; per token in Ouyang et '
    "al. (2022).",
    gradient=(),
)
def kl_shaped_token_rewards(
    rewards: Tensor,
    logps: Tensor,
    ref_logps: Tensor,
    mask: Tensor,
    *,
    beta: float,
    estimator: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    """A KL penalty on every token and the reward on the last one, ``(B, T)``: ``r_t = −β·kl_t + [t last]·r``.

    With the estimator ``log π − log π_ref`` the rewards of a completion sum to ``r − β log(π(y)/π_ref(y))``, whose
    expectation is the objective of RLHF. The last token is the last *sampled* one, EOS included.

    Args:
        logps: log-probabilities of the policy that sampled.
        beta: KL coefficient, ≥ 0.
        estimator: ``(logps, ref_logps) -> (B, T)``, e.g. :func:`~minirlhf.equations.kl.k1`.
    """
    shaped = -beta * zero_where_masked(estimator(logps, ref_logps), mask)
    return shaped.scatter_add(-1, last_index(mask)[:, None], rewards.detach().to(shaped.dtype)[:, None])


@takes(rewards=shape("B"), terminated=shape("B"), penalty=NOT_NEGATIVE)
@equation(
    "eq:missing-eos",
    source='Huang et al. (2024), "The N+ Implementation Details of RLHF with PPO" (the EOS trick).',
)
def missing_eos_penalty(rewards: Tensor, terminated: Tensor, *, penalty: float) -> Tensor:
    """``r − penalty`` for truncated completions, which are not ``terminated`` by EOS.

    Reward models are not trained to score truncated completions.

    Args:
        penalty: ≥ 0, in units of the reward.
    """
    return rewards - penalty * (~terminated.bool()).to(rewards.dtype)


@takes(rewards=shape("B"), lengths=shape("B"), coefficient=NOT_NEGATIVE)
@equation("eq:length-penalty", source="elementary; the linear counterpart of the rules below.")
def length_penalty(rewards: Tensor, lengths: Tensor, *, coefficient: float) -> Tensor:
    """``r − α·|y|``: each token costs the same, whatever the reward.

    Args:
        coefficient: α ≥ 0, reward per token.
    """
    return rewards - coefficient * lengths.to(rewards.dtype)


@takes(lengths=shape("B"))
@equation(
    "eq:dapo-overlong",
    source='Yu et al. (2025), "DAPO: An Open-Source LLM Reinforcement Learning System at Scale", soft overlong '
    "punishment.",
)
def soft_overlong(lengths: Tensor, *, max_completion_length: int, soft_punish_cache: int) -> Tensor:
    """DAPO's soft overlong punishment: 0 up to ``L − c`` tokens, linear down to −1 at ``L``, −1 beyond.

    Add it to the reward.

    Args:
        max_completion_length: ``L``, in tokens.
        soft_punish_cache: ``c``, from 1 to ``L``: the number of tokens before ``L`` that are penalised.
    """
    if not 1 <= soft_punish_cache <= max_completion_length:
        raise ArgumentError(
            f"soft_punish_cache = {soft_punish_cache!r}; expected 1 .. {max_completion_length}",
            argument="soft_punish_cache",
            value=soft_punish_cache,
            expected=(1, max_completion_length),
        )
    unpenalised = max_completion_length - soft_punish_cache
    return -((lengths - unpenalised) / soft_punish_cache).clamp(0.0, 1.0)
