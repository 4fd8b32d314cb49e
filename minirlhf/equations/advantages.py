"""Advantages: how much better a response was than what it is compared with.

Rewards come as ``(P, G)``: ``G`` responses to each of ``P`` prompts. ``valid (P, G)`` marks the ones that could be graded;
the others get advantage 0 and touch no statistic, and a group with fewer than two valid responses drops out (all 0).
Everything here is computed once from the whole batch, before it is split. Baselines are data: no gradient flows.
"""

from __future__ import annotations

import torch
from torch import Tensor

from minirlhf.core.masking import masked_whiten, zero_where_masked
from minirlhf.core.validate import require_finite_where, require_mask, require_shapes

# -- without groups ----------------------------------------------------------------------------------------------


def raw_reward(rewards: Tensor, valid: Tensor | None = None) -> Tensor:
    """The reward itself, no baseline: REINFORCE. Unbiased, with the largest variance of all.

    Label: eq:reinforce-advantage
    Source: Williams (1992), "Simple statistical gradient-following algorithms for connectionist reinforcement learning".
    Args:
        rewards: ``(P, G)``.
        valid: ``(P, G)`` bool; None means all.
    Returns:
        ``(P, G)``, 0 where not valid.
    Raises:
        ValueError: other shapes, or a valid reward that is not finite.
    """
    valid = valid_mask(rewards, valid)
    return zero_where_masked(rewards.detach(), valid)


def batch_center(rewards: Tensor, valid: Tensor | None = None) -> Tensor:
    """Reward minus the mean of the whole batch. Its baseline holds the own reward: the expected gradient shrinks by (N − 1)/N.

    Label: eq:batch-baseline
    Source: Williams (1992), REINFORCE with an average-reward baseline.
    Args, Returns, Raises: as :func:`raw_reward`; fewer than two valid rewards in the batch give zeros.
    """
    flat, counted = _whole_batch(rewards, valid)
    return _center(flat, counted).view_as(rewards)


def batch_zscore(rewards: Tensor, valid: Tensor | None = None, *, ddof: int = 1, eps: float = 1e-8) -> Tensor:
    """Reward centred and scaled over the whole batch, the normalisation of REINFORCE++: ``(r − mean_batch) / (std_batch + eps)``.

    Label: eq:reinforce-pp-advantage
    Source: Hu et al. (2025), "REINFORCE++: Stabilizing Critic-Free Policy Optimization with Global Advantage Normalization".
    Args:
        rewards: ``(P, G)``.
        valid: ``(P, G)`` bool; None means all.
        ddof: the divisor of the variance is ``n − ddof``; 0 or 1.
        eps: added to the standard deviation, ≥ 0.
    Returns:
        ``(P, G)``; zeros if all valid rewards are equal or there are fewer than two.
    Raises:
        ValueError: other shapes, a valid reward that is not finite, ``ddof`` or ``eps`` out of range.
    """
    flat, counted = _whole_batch(rewards, valid)
    centred = _center(flat, counted)
    return divide(centred, _std(centred, counted, ddof), eps).view_as(rewards)


def remax(rewards: Tensor, greedy_rewards: Tensor, valid: Tensor | None = None) -> Tensor:
    """Reward minus the reward of the greedy response to the same prompt, the advantage of ReMax.

    The baseline is independent of the sampled response, so the expected gradient is the true one, also with one sample.

    Label: eq:remax-advantage
    Source: Li et al. (2023), "ReMax: A Simple, Effective, and Efficient Reinforcement Learning Method for Aligning Large
        Language Models".
    Args:
        rewards: ``(P, G)``.
        greedy_rewards: ``(P,)``, rewards of the greedy responses.
        valid: ``(P, G)`` bool; None means all. A prompt whose greedy response could not be graded: all its samples invalid.
    Returns:
        ``(P, G)``.
    Raises:
        ValueError: other shapes, or a reward that counts and is not finite.
    """
    valid = valid_mask(rewards, valid)
    require_shapes(rewards=(rewards, "P G"), greedy_rewards=(greedy_rewards, "P"))
    require_finite_where(valid.any(-1), greedy_rewards=greedy_rewards)
    return zero_where_masked(rewards.detach() - greedy_rewards.detach()[:, None], valid)


# -- relative to the group ---------------------------------------------------------------------------------------


def group_center(rewards: Tensor, valid: Tensor | None = None) -> Tensor:
    """Reward minus the mean of its group, the advantage of Dr. GRPO: ``A_i = r_i − mean(r)``.

    The own reward is part of the mean, so the expected gradient is (G − 1)/G of the true one.

    Label: eq:drgrpo-advantage
    Source: Liu et al. (2025), "Understanding R1-Zero-Like Training: A Critical Perspective" (Dr. GRPO).
    Args:
        rewards: ``(P, G)``, ``G ≥ 2``.
        valid: ``(P, G)`` bool; None means all.
    Returns:
        ``(P, G)``.
    Raises:
        ValueError: other shapes, a group size of one, a valid reward that is not finite.
    """
    return _center(*groups(rewards, valid))


def leave_one_out(rewards: Tensor, valid: Tensor | None = None) -> Tensor:
    """Reward minus the mean of the *others* in its group, the advantage of RLOO: ``A_i = r_i − Σ_{j≠i} r_j / (G − 1)``.

    The baseline does not depend on the own response, so the expected gradient is the true one. Equal to G/(G − 1) times
    :func:`group_center`; computed that way.

    Label: eq:rloo-advantage, eq:rloo-sum-form, eq:rloo-scaled-center
    Source: Kool, van Hoof & Welling (2019), "Buy 4 REINFORCE Samples, Get a Baseline for Free!"; Ahmadian et al. (2024),
        "Back to Basics: Revisiting REINFORCE Style Optimization for Learning from Human Feedback in LLMs".
    Args, Returns, Raises: as :func:`group_center`.
    """
    kept, counted = groups(rewards, valid)
    size = counted.sum(-1, keepdim=True)  # (P, 1)
    return _center(kept, counted) * size / (size - 1).clamp(min=1)


def group_zscore(rewards: Tensor, valid: Tensor | None = None, *, ddof: int = 1, eps: float = 1e-4) -> Tensor:
    """Centred reward over the group's standard deviation, the advantage of GRPO: ``A_i = (r_i − mean(r)) / (std(r) + eps)``.

    A group of equal rewards gets exact zeros. Practice disagrees on ``ddof``: 1 is the sample deviation, 0 the population's.

    Label: eq:grpo-advantage, eq:difficulty-bias
    Source: Shao et al. (2024), "DeepSeekMath" (GRPO with outcome supervision).
    Args:
        rewards: ``(P, G)``, ``G ≥ 2``.
        valid: ``(P, G)`` bool; None means all.
        ddof: the divisor of the variance is ``n − ddof``; 0 or 1.
        eps: added to the standard deviation, ≥ 0.
    Returns:
        ``(P, G)``.
    Raises:
        ValueError: other shapes, a group size of one, a valid reward that is not finite, ``ddof`` or ``eps`` out of range.
    """
    kept, counted = groups(rewards, valid)
    centred = _center(kept, counted)
    return divide(centred, _std(centred, counted, ddof), eps)


def lite_ppo(rewards: Tensor, valid: Tensor | None = None, *, ddof: int = 1, eps: float = 1e-4) -> Tensor:
    """Mean of the group, standard deviation of the *rewards of the batch*, as in Lite PPO: ``(r − mean_group) / (std_batch + eps)``.

    An easy or hard prompt is not blown up by its own small spread.

    Label: eq:lite-ppo-advantage
    Source: Liu et al. (2025), "Part I: Tricks or Traps? A Deep Dive into RL for LLM Reasoning" (Lite PPO).
    Args, Returns, Raises: as :func:`group_zscore`.
    """
    kept, counted = groups(rewards, valid)
    flat, flat_counted = kept.flatten(), counted.flatten()
    std = _std(_center(flat, flat_counted), flat_counted, ddof)  # (1,)
    return divide(_center(kept, counted), std, eps)


def reinforce_pp_baseline(rewards: Tensor, valid: Tensor | None = None, *, ddof: int = 1, eps: float = 1e-8) -> Tensor:
    """Mean of the group, then the standard deviation of what is *left* in the batch, as in REINFORCE++ with baseline.

    Differs from :func:`lite_ppo` in the scale: the spread between prompts is gone before it is measured.

    Label: eq:reinforce-pp-baseline
    Source: Hu et al. (2025), "REINFORCE++: Stabilizing Critic-Free Policy Optimization with Global Advantage Normalization".
    Args, Returns, Raises: as :func:`group_zscore`.
    """
    kept, counted = groups(rewards, valid)
    centred = _center(kept, counted)  # the mean over the batch is 0 already
    return divide(centred, _std(centred.flatten(), counted.flatten(), ddof), eps)


# -- on tokens ---------------------------------------------------------------------------------------------------


def broadcast_to_tokens(advantages: Tensor, mask: Tensor) -> Tensor:
    """Give every sampled token the advantage of its response: ``(P, G), (B, T) -> (B, T)`` with ``B = P·G``, prompt-major.

    Label: eq:token-advantage
    Source: Shao et al. (2024), "DeepSeekMath": with outcome supervision all tokens of a response share its advantage.
    Raises:
        ValueError: ``advantages`` is not ``(P, G)`` or ``P·G`` is not the number of rows of ``mask``.
    """
    require_mask(mask)
    require_shapes(advantages=(advantages, "P G"))
    if advantages.numel() != mask.shape[0]:
        raise ValueError(
            f"advantages has shape {tuple(advantages.shape)}; expected P·G = {mask.shape[0]}, the rows of mask {tuple(mask.shape)}"
        )
    return zero_where_masked(advantages.reshape(-1, 1).expand(mask.shape), mask)


def process_zscore(
    step_rewards: Tensor, step_ends: Tensor, mask: Tensor, *, num_generations: int, ddof: int = 1, eps: float = 1e-4
) -> Tensor:
    """GRPO with process supervision: ``A_{i,t}`` = the sum of the normalised rewards of all steps that end at ``t`` or later.

    The rewards of all steps of all responses of a group are normalised together. With one step per response this is
    :func:`group_zscore`.

    Label: eq:grpo-process
    Source: Shao et al. (2024), "DeepSeekMath" (GRPO with process supervision).
    Args:
        step_rewards: ``(B, T)``, read only where a step ends.
        step_ends: ``(B, T)`` bool, True on the last token of each graded step.
        mask: ``(B, T)``; a step ends on a sampled token.
        num_generations: ``G``; rows are prompt-major.
        ddof, eps: as in :func:`group_zscore`.
    Returns:
        ``(B, T)``, 0 outside the mask and in groups with fewer than two steps.
    Raises:
        ValueError: other shapes, a step that ends outside the mask, a reward that is not finite, rows that are not whole groups.
    """
    require_mask(mask)
    require_shapes(mask=(mask, "B T"), step_rewards=(step_rewards, "B T"), step_ends=(step_ends, "B T"))
    if num_generations < 2 or mask.shape[0] % num_generations:
        raise ValueError(
            f"num_generations = {num_generations} and mask has shape {tuple(mask.shape)}; expected whole groups of ≥ 2 rows"
        )
    if bool((step_ends.bool() & ~mask.bool()).any()):
        raise ValueError(f"step_ends of shape {tuple(step_ends.shape)} marks tokens outside the mask")
    per_group = (-1, num_generations * mask.shape[1])  # all steps of a group in one row
    normalised = group_zscore(step_rewards.reshape(per_group), step_ends.reshape(per_group), ddof=ddof, eps=eps)
    to_come = normalised.view_as(step_rewards).flip(-1).cumsum(-1).flip(-1)
    return zero_where_masked(to_come, mask)


def whiten(x: Tensor, mask: Tensor, *, shift_mean: bool = True, ddof: int = 1, eps: float = 1e-8) -> Tensor:
    """Tokens of the whole batch scaled to variance 1, and mean 0 unless ``shift_mean`` is false: ``(x − mean) / sqrt(var + eps)``.

    PPO whitens its advantages; rewards are whitened with ``shift_mean=False``, so that their sign keeps its meaning.

    Label: eq:whitening
    Source: Huang et al. (2024), "The N+ Implementation Details of RLHF with PPO".
    Args:
        x: ``(B, T)``.
        mask: ``(B, T)`` with at least ``ddof + 1`` tokens.
    Returns:
        ``(B, T)``, 0 outside the mask.
    Raises:
        ValueError: other shapes, values that are not finite under the mask, too few tokens.
    """
    require_mask(mask)
    require_shapes(mask=(mask, "B T"), x=(x, "B T"))
    require_finite_where(mask, x=x)
    if int(mask.bool().sum()) <= ddof:
        raise ValueError(
            f"mask of shape {tuple(mask.shape)} has {int(mask.bool().sum())} token(s); expected at least {ddof + 1}"
        )
    return masked_whiten(x.detach(), mask, shift_mean, ddof, eps)


# -- shared steps ------------------------------------------------------------------------------------------------


def valid_mask(rewards: Tensor, valid: Tensor | None) -> Tensor:
    """``valid`` as bool ``(P, G)``, all True for None, after checking shapes and that every valid reward is finite."""
    if valid is None:
        valid = torch.ones_like(rewards, dtype=torch.bool)
    require_shapes(rewards=(rewards, "P G"), valid=(valid, "P G"))
    require_finite_where(valid, rewards=rewards)
    return valid.bool()


def groups(rewards: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor]:
    """Rewards with zeros where they do not count, and where they do: valid, in a group with at least two valid."""
    valid = valid_mask(rewards, valid)
    if rewards.shape[1] < 2:
        raise ValueError(f"rewards has shape {tuple(rewards.shape)}; a group baseline needs G ≥ 2 responses per prompt")
    counted = valid & (valid.sum(-1, keepdim=True) >= 2)
    return zero_where_masked(rewards.detach(), counted), counted


def divide(centred: Tensor, scale: Tensor, eps: float) -> Tensor:
    """``centred / (scale + eps)``, 0 where the scale is 0: without a spread there is no signal."""
    if not 0.0 <= eps < float("inf"):
        raise ValueError(f"eps = {eps!r}; expected a finite number ≥ 0")
    spread = scale > 0
    return torch.where(spread, centred / torch.where(spread, scale + eps, 1.0), 0.0)


def _whole_batch(rewards: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor]:
    """The batch as one group: flat rewards and where they count (nowhere if fewer than two are valid)."""
    counted = valid_mask(rewards, valid).flatten()
    counted = counted & (counted.sum() >= 2)
    return zero_where_masked(rewards.detach().flatten(), counted), counted


def _center(kept: Tensor, counted: Tensor) -> Tensor:
    """Deviations from the mean along the last axis. Measured from a member first, so that equal rewards give exact zeros."""
    first = kept.gather(-1, counted.int().argmax(-1, keepdim=True))
    shifted = zero_where_masked(kept - first, counted)
    mean = shifted.sum(-1, keepdim=True) / counted.sum(-1, keepdim=True).clamp(min=1)
    return zero_where_masked(shifted - mean, counted)


def _std(centred: Tensor, counted: Tensor, ddof: int) -> Tensor:
    """Root mean square of deviations along the last axis, divisor ``n − ddof``: ``(..., N) -> (..., 1)``."""
    if ddof not in (0, 1):
        raise ValueError(f"ddof = {ddof!r}; expected 0 or 1")
    degrees = (counted.sum(-1, keepdim=True) - ddof).clamp(min=1)
    return (centred.square().sum(-1, keepdim=True) / degrees).sqrt()
