"""Reward shaping: what is added to a reward before any advantage is computed. Rewards are data: no gradient flows.

Lengths count sampled tokens, EOS included.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from minirlhf.core.masking import last_index, zero_where_masked
from minirlhf.core.validate import require_finite, require_finite_where, require_mask, require_shapes
from minirlhf.equations.advantages import valid_mask


def kl_shaped_token_rewards(
    rewards: Tensor,
    logps: Tensor,
    ref_logps: Tensor,
    mask: Tensor,
    *,
    beta: float,
    estimator: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    """A KL charge on every token and the reward on the last: ``r_t = −β·kl_t + [t last]·r``.

    With the estimator ``log π − log π_ref`` the rewards of a response sum to ``r − β log(π(y)/π_ref(y))``, whose
    expectation is the objective of RLHF. The last token is the last *sampled* one, EOS included.

    Label: eq:kl-shaped-rewards
    Source: Ziegler et al. (2019), "Fine-Tuning Language Models from Human Preferences"; per token in Ouyang et al. (2022).
    Args:
        rewards: ``(B,)``, one per response.
        logps, ref_logps, mask: ``(B, T)``; ``logps`` of the policy that sampled.
        beta: KL coefficient, ≥ 0.
        estimator: ``(logps, ref_logps) -> (B, T)``, e.g. :func:`~minirlhf.equations.kl.k1`.
    Returns:
        ``(B, T)``, 0 outside the mask.
    Raises:
        ValueError: other shapes, an empty row, values that are not finite, a negative ``beta``.
    """
    require_mask(mask)
    require_shapes(mask=(mask, "B T"), rewards=(rewards, "B"), logps=(logps, "B T"), ref_logps=(ref_logps, "B T"))
    require_finite(rewards=rewards)
    require_finite_where(mask, logps=logps, ref_logps=ref_logps)
    _require_not_negative(beta=beta)
    charge = estimator(zero_where_masked(logps.detach(), mask), zero_where_masked(ref_logps.detach(), mask))
    shaped = -beta * zero_where_masked(charge, mask)
    return shaped.scatter_add(-1, last_index(mask)[:, None], rewards.detach().to(shaped.dtype)[:, None])


def missing_eos_penalty(rewards: Tensor, terminated: Tensor, *, penalty: float) -> Tensor:
    """``r − penalty`` where the response was cut off: a reward model has not learned to judge half an answer.

    Label: eq:missing-eos
    Source: Huang et al. (2024), "The N+ Implementation Details of RLHF with PPO" (the EOS trick).
    Args:
        rewards: ``(B,)``.
        terminated: ``(B,)`` bool, True where the response ends in EOS.
        penalty: ≥ 0, in units of the reward.
    Returns:
        ``(B,)``.
    Raises:
        ValueError: other shapes, or a negative penalty.
    """
    require_shapes(rewards=(rewards, "B"), terminated=(terminated, "B"))
    _require_not_negative(penalty=penalty)
    return rewards - penalty * (~terminated.bool()).to(rewards.dtype)


def length_penalty(rewards: Tensor, lengths: Tensor, *, coefficient: float) -> Tensor:
    """``r − α·|y|``: each token costs the same, whatever the answer is worth.

    Label: eq:length-penalty
    Source: elementary; the linear counterpart of the rules below.
    Args:
        rewards: ``(B,)``.
        lengths: ``(B,)`` tokens.
        coefficient: α ≥ 0, reward per token.
    Returns:
        ``(B,)``.
    Raises:
        ValueError: other shapes, or a negative coefficient.
    """
    require_shapes(rewards=(rewards, "B"), lengths=(lengths, "B"))
    _require_not_negative(coefficient=coefficient)
    return rewards - coefficient * lengths.to(rewards.dtype)


def soft_overlong(lengths: Tensor, *, max_completion_length: int, soft_punish_cache: int) -> Tensor:
    """DAPO's soft overlong punishment: 0 up to ``L − c`` tokens, then linear down to −1 at ``L``, −1 beyond. Add it to the reward.

    Label: eq:dapo-overlong
    Source: Yu et al. (2025), "DAPO: An Open-Source LLM Reinforcement Learning System at Scale", soft overlong punishment.
    Args:
        lengths: ``(B,)`` tokens.
        max_completion_length: ``L``.
        soft_punish_cache: ``c``, from 1 to ``L``: the tokens before ``L`` that are charged.
    Returns:
        ``(B,)`` in [−1, 0], float.
    Raises:
        ValueError: other shapes, or ``c`` out of range.
    """
    require_shapes(lengths=(lengths, "B"))
    if not 1 <= soft_punish_cache <= max_completion_length:
        raise ValueError(f"soft_punish_cache = {soft_punish_cache!r}; expected 1 .. {max_completion_length}")
    free = max_completion_length - soft_punish_cache
    return -((lengths.to(_float(lengths)) - free) / soft_punish_cache).clamp(0.0, 1.0)


def lcpo_exact(correct: Tensor, lengths: Tensor, target_lengths: Tensor, *, alpha: float = 3e-4) -> Tensor:
    """``correct − α·|n_target − n|``: be right, and as long as the prompt asked for.

    Label: eq:lcpo-exact
    Source: Aggarwal & Welleck (2025), "L1: Controlling How Long A Reasoning Model Thinks With Reinforcement Learning", eq. 1.
    Args:
        correct: ``(B,)``, 1 or True for a right answer.
        lengths, target_lengths: ``(B,)`` tokens.
        alpha: reward per token of deviation, ≥ 0.
    Returns:
        ``(B,)`` float.
    Raises:
        ValueError: other shapes, or a negative ``alpha``.
    """
    require_shapes(correct=(correct, "B"), lengths=(lengths, "B"), target_lengths=(target_lengths, "B"))
    _require_not_negative(alpha=alpha)
    right = correct.to(_float(correct))
    return right - alpha * (target_lengths.to(right.dtype) - lengths.to(right.dtype)).abs()


def lcpo_max(
    correct: Tensor, lengths: Tensor, target_lengths: Tensor, *, alpha: float = 3e-4, offset: float = 0.5
) -> Tensor:
    """``correct · clip(α·(n_max − n) + offset, 0, 1)``: be right within the budget; a slightly late answer still counts.

    Label: eq:lcpo-max
    Source: Aggarwal & Welleck (2025), "L1: Controlling How Long A Reasoning Model Thinks With Reinforcement Learning", eq. 2
        (``offset`` is their δ).
    Args:
        correct: ``(B,)``, 1 or True for a right answer.
        lengths, target_lengths: ``(B,)`` tokens.
        alpha: reward per token, ≥ 0.
        offset: the factor of an answer that is exactly as long as its budget.
    Returns:
        ``(B,)`` float.
    Raises:
        ValueError: other shapes, or a negative ``alpha``.
    """
    require_shapes(correct=(correct, "B"), lengths=(lengths, "B"), target_lengths=(target_lengths, "B"))
    _require_not_negative(alpha=alpha)
    right = correct.to(_float(correct))
    spare = target_lengths.to(right.dtype) - lengths.to(right.dtype)
    return right * (alpha * spare + offset).clamp(0.0, 1.0)


def kimi_length_reward(correct: Tensor, lengths: Tensor, valid: Tensor | None = None) -> Tensor:
    """Within a group: ½ for the shortest down to −½ for the longest; wrong answers are never paid, ``min(0, ·)``.

    ``λ_i = ½ − (n_i − n_min) / (n_max − n_min)``; 0 for all if every response is equally long. Add it to the reward.

    Label: eq:kimi-length
    Source: Kimi Team (2025), "Kimi k1.5: Scaling Reinforcement Learning with LLMs", length penalty.
    Args:
        correct: ``(P, G)``, 1 or True for a right answer.
        lengths: ``(P, G)`` tokens.
        valid: ``(P, G)`` bool; None means all. The others get 0 and set no minimum or maximum.
    Returns:
        ``(P, G)`` float in [−½, ½].
    Raises:
        ValueError: other shapes.
    """
    require_shapes(correct=(correct, "P G"), lengths=(lengths, "P G"))
    valid = valid_mask(correct, valid)
    n = lengths.to(_float(correct))
    shortest = torch.where(valid, n, torch.inf).amin(-1, keepdim=True)  # (P, 1)
    longest = torch.where(valid, n, -torch.inf).amax(-1, keepdim=True)
    spread = longest > shortest
    bonus = 0.5 - (n - shortest) / torch.where(spread, longest - shortest, 1.0)
    bonus = torch.where(correct > 0, bonus, bonus.clamp(max=0.0))
    return torch.where(spread & valid, bonus, 0.0)


def format_reward(correct: Tensor, well_formed: Tensor, *, penalty: float = 1.0) -> Tensor:
    """``correct`` if the answer is well formed, else ``−penalty``: what cannot be parsed cannot be right.

    Label: eq:format-reward
    Source: the gated form of the format reward in DeepSeek-AI (2025), "DeepSeek-R1".
    Args:
        correct: ``(B,)``, a grade such as 0 or 1; read only where well formed.
        well_formed: ``(B,)`` bool.
        penalty: ≥ 0.
    Returns:
        ``(B,)`` float.
    Raises:
        ValueError: other shapes, a negative penalty, a grade that counts and is not finite.
    """
    require_shapes(correct=(correct, "B"), well_formed=(well_formed, "B"))
    require_finite_where(well_formed, correct=correct)
    _require_not_negative(penalty=penalty)
    return torch.where(well_formed.bool(), correct.to(_float(correct)), -penalty)


def composite_reward(components: Tensor, weights: Tensor) -> Tensor:
    """``Σ_k w_k·r_k``: several graders, one number.

    Label: eq:composite-reward
    Source: elementary.
    Args:
        components: ``(B, K)``, one column per grader.
        weights: ``(K,)``.
    Returns:
        ``(B,)``.
    Raises:
        ValueError: other shapes, or values that are not finite.
    """
    require_shapes(components=(components, "B K"), weights=(weights, "K"))
    require_finite(components=components, weights=weights)
    return components @ weights.to(components.dtype)


def _float(x: Tensor) -> torch.dtype:
    """The floating dtype of a result computed from ``x``, which may be bool or integer."""
    return x.dtype if x.is_floating_point() else torch.get_default_dtype()


def _require_not_negative(**numbers: float) -> None:
    for name, value in numbers.items():
        if not 0.0 <= value < float("inf"):
            raise ValueError(f"{name} = {value!r}; expected a finite number ≥ 0")
