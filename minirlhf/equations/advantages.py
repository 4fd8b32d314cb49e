"""Advantages: how much better a completion is than its baseline.

Rewards have the shape ``(P, G)``: ``G`` completions for each of ``P`` prompts. ``valid (P, G)`` marks the completions
that count; None marks all of them. An invalid completion gets advantage 0 and enters no statistic. A function under
:func:`relative` gives advantage 0 to a group with fewer than two valid completions. Advantages are computed once from
the whole batch, before it is split. They have the shape of the rewards, or of the mask for functions that return one
number per token. Rewards and baselines are data: no gradient flows.

A function under :func:`relative` receives NaN in place of a reward that does not count, and 0 replaces each NaN in its
result. Where a function divides by a standard deviation, ``ddof`` is 0 or 1, the variance has the divisor ``n − ddof``,
and ``eps`` is added to the standard deviation; :func:`whiten` adds it to the variance. Under :func:`relative`, equal
rewards of a group give exact zeros, and rewards whose differences, or the squares of these, exceed the range of the
dtype raise an error.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from minirlhf.core.equation import equation
from minirlhf.core.errors import ArgumentError
from minirlhf.core.masking import masked_whiten, zero_where_masked
from minirlhf.core.validate import (
    DDOF,
    MASK,
    NOT_NEGATIVE,
    require_finite_where,
    require_shapes,
    shape,
    takes,
    under_mask,
)

F = TypeVar("F", bound=Callable[..., Tensor])

# -- building blocks of the formulas ------------------------------------------------------------------------------


def relative(advantage: F) -> F:
    """Decorate a function of rewards ``(P, G)`` so that it receives NaN for rewards that do not count.

    A reward does not count if it is invalid or the only valid one of its group. NaN in the result becomes 0.
    """
    return _relative(advantage, whole_batch=False)


def relative_to_batch(advantage: F) -> F:
    """Decorate as :func:`relative` does, with the whole batch as one group: the function receives ``(1, P·G)``."""
    return _relative(advantage, whole_batch=True)


def _relative(advantage: F, whole_batch: bool) -> F:
    rules = {"rewards": shape("P G"), "valid": shape("P G"), "ddof": DDOF, "eps": NOT_NEGATIVE}

    @takes(**{name: rules[name] for name in inspect.signature(advantage).parameters if name in rules})
    @functools.wraps(advantage)
    def wrapper(rewards: Tensor, valid: Tensor | None = None, **options: Any) -> Tensor:
        valid = valid_mask(rewards, valid)
        if rewards.shape[1] < 2 and not whole_batch:
            raise ArgumentError(
                f"rewards has shape {tuple(rewards.shape)}; a group baseline needs G ≥ 2 completions per prompt",
                argument="rewards",
                value=tuple(rewards.shape),
                problem="group size",
            )
        r = torch.where(valid, rewards.detach(), torch.nan)
        r = r.reshape(1, -1) if whole_batch else r
        result = advantage(torch.where(count(r) >= 2, r, torch.nan), **options)
        return torch.where(result.isnan(), 0.0, result).reshape(rewards.shape)

    return cast(F, wrapper)


def count(r: Tensor) -> Tensor:
    """Number of entries along the last axis that are not NaN: ``(..., N) -> (..., 1)``."""
    return (~r.isnan()).sum(-1, keepdim=True)


def mean(r: Tensor) -> Tensor:
    """Mean along the last axis of the entries that are not NaN: ``(..., N) -> (..., 1)``."""
    return _in_range(torch.where(r.isnan(), 0.0, r).sum(-1, keepdim=True)) / count(r)


def center(r: Tensor) -> Tensor:
    """Rewards minus their :func:`mean`. A member is subtracted first, so that equal rewards give exact zeros."""
    shifted = r - r.gather(-1, (~r.isnan()).int().argmax(-1, keepdim=True))
    return _in_range(shifted - mean(shifted))


def spread(r: Tensor, ddof: int) -> Tensor:
    """Standard deviation along the last axis, NaN where it is 0 or undefined: ``(..., N) -> (..., 1)``."""
    return root_mean_square(center(r), ddof)


def root_mean_square(centred: Tensor, ddof: int) -> Tensor:
    """Root mean square along the last axis with divisor ``n − ddof``, NaN where it is 0: ``(..., N) -> (..., 1)``."""
    squares = torch.where(centred.isnan(), 0.0, centred.square()).sum(-1, keepdim=True)
    root = (_in_range(squares) / (count(centred) - ddof)).sqrt()
    return torch.where(root > 0, root, torch.nan)


def _in_range(x: Tensor) -> Tensor:
    """Return ``x``, or raise ``ValueError`` if an entry overflowed.

    Arithmetic turns an overflow into NaN, which would pass for a reward that does not count.
    """
    if bool(x.isinf().any()):
        raise ArgumentError(
            f"rewards differ by more than {x.dtype} can hold; scale them down or use float64",
            argument="rewards",
            value=x.dtype,
            problem="overflow",
        )
    return x


def valid_mask(rewards: Tensor, valid: Tensor | None) -> Tensor:
    """Return ``valid`` as bool ``(P, G)``, all True for None. Checks the shapes and that valid rewards are finite."""
    if valid is None:
        valid = torch.ones_like(rewards, dtype=torch.bool)
    require_shapes(rewards=(rewards, "P G"), valid=(valid, "P G"))
    require_finite_where(valid, rewards=rewards)
    return valid.bool()


# -- without groups ----------------------------------------------------------------------------------------------


@equation(
    "eq:reinforce-advantage",
    source='Williams (1992), "Simple statistical gradient-following algorithms for connectionist reinforcement '
    'learning".',
    gradient=(),
)
def raw_reward(rewards: Tensor, valid: Tensor | None = None) -> Tensor:
    """The reward itself, without a baseline: REINFORCE. Unbiased, with the largest variance of all."""
    return zero_where_masked(rewards.detach(), valid_mask(rewards, valid))


@relative_to_batch
@equation("eq:batch-baseline", source="Williams (1992), REINFORCE with an average-reward baseline.", gradient=())
def batch_center(rewards: Tensor, valid: Tensor | None = None) -> Tensor:
    """Reward minus the mean reward of the whole batch.

    The baseline contains the completion's own reward, so the expected gradient shrinks by (N − 1)/N. If the batch has
    fewer than two valid rewards, all advantages are 0.
    """
    return center(rewards)


@relative_to_batch
@equation(
    "eq:reinforce-pp-advantage",
    source='Hu et al. (2025), "REINFORCE++: Stabilizing Critic-Free Policy Optimization with Global Advantage '
    'Normalization".',
    gradient=(),
)
def batch_zscore(rewards: Tensor, valid: Tensor | None = None, *, ddof: int = 1, eps: float = 1e-8) -> Tensor:
    """Centred and scaled over the whole batch, as in REINFORCE++: ``(r − mean_batch) / (std_batch + eps)``."""
    return center(rewards) / (spread(rewards, ddof) + eps)


@equation(
    "eq:remax-advantage",
    source='Li et al. (2023), "ReMax: A Simple, Effective, and Efficient Reinforcement Learning Method for '
    'Aligning Large Language Models".',
    gradient=(),
)
def remax(rewards: Tensor, greedy_rewards: Tensor, valid: Tensor | None = None) -> Tensor:
    """Reward minus the reward of the greedy completion of the same prompt, ``greedy_rewards (P,)``: ReMax.

    The baseline is independent of the sampled completion, so the expected gradient is the true one, also with one
    sample. If the greedy completion could not be graded, mark all samples of its prompt invalid.

    Raises: ValueError for other shapes, or a reward that counts and is not finite.
    """
    valid = valid_mask(rewards, valid)
    require_shapes(rewards=(rewards, "P G"), greedy_rewards=(greedy_rewards, "P"))
    require_finite_where(valid.any(-1), greedy_rewards=greedy_rewards)
    return zero_where_masked(rewards.detach() - greedy_rewards.detach()[:, None], valid)


# -- relative to the group ---------------------------------------------------------------------------------------


@relative
@equation(
    "eq:drgrpo-advantage",
    source='Liu et al. (2025), "Understanding R1-Zero-Like Training: A Critical Perspective" (Dr. GRPO).',
    gradient=(),
)
def group_center(rewards: Tensor, valid: Tensor | None = None) -> Tensor:
    """Reward minus the mean of its group, the advantage of Dr. GRPO: ``A_i = r_i − mean(r)``.

    The mean includes the completion's own reward, so the expected gradient is (G − 1)/G of the true one.
    """
    return center(rewards)


@relative
@equation(
    "eq:rloo-advantage",
    "eq:rloo-sum-form",
    "eq:rloo-scaled-center",
    source='Kool, van Hoof & Welling (2019), "Buy 4 REINFORCE Samples, Get a Baseline for Free!"; Ahmadian et al. '
    '(2024), "Back to Basics: Revisiting REINFORCE Style Optimization for Learning from Human Feedback in '
    'LLMs".',
    gradient=(),
)
def leave_one_out(rewards: Tensor, valid: Tensor | None = None) -> Tensor:
    """Reward minus the leave-one-out baseline of its group, as in RLOO: ``A_i = r_i − Σ_{j≠i} r_j / (G − 1)``.

    The baseline does not depend on the completion itself, so the expected gradient is the true one. The advantage
    equals G/(G − 1) times :func:`group_center` and is computed that way.
    """
    return center(rewards) * count(rewards) / (count(rewards) - 1)


@relative
@equation(
    "eq:grpo-advantage",
    "eq:difficulty-bias",
    source='Shao et al. (2024), "DeepSeekMath" (GRPO with outcome supervision).',
    gradient=(),
)
def group_zscore(rewards: Tensor, valid: Tensor | None = None, *, ddof: int = 1, eps: float = 1e-4) -> Tensor:
    """Centred reward over the group's standard deviation, as in GRPO: ``A_i = (r_i − mean(r)) / (std(r) + eps)``.

    Implementations disagree on ``ddof``: 1 is the sample standard deviation, 0 the population's.
    """
    return center(rewards) / (spread(rewards, ddof) + eps)


@relative
@equation(
    "eq:lite-ppo-advantage",
    source='Liu et al. (2025), "Part I: Tricks or Traps? A Deep Dive into RL for LLM Reasoning" (Lite PPO).',
    gradient=(),
)
def lite_ppo(rewards: Tensor, valid: Tensor | None = None, *, ddof: int = 1, eps: float = 1e-4) -> Tensor:
    """Group mean, but the standard deviation of the *rewards of the batch*: ``(r − mean_group) / (std_batch + eps)``.

    The small standard deviation of an easy or hard prompt does not inflate its advantages.
    """
    return center(rewards) / (spread(rewards.flatten(), ddof) + eps)


@relative
@equation(
    "eq:reinforce-pp-baseline",
    source='Hu et al. (2025), "REINFORCE++: Stabilizing Critic-Free Policy Optimization with Global Advantage '
    'Normalization".',
    gradient=(),
)
def reinforce_pp_baseline(rewards: Tensor, valid: Tensor | None = None, *, ddof: int = 1, eps: float = 1e-8) -> Tensor:
    """Group-centred reward over the standard deviation of the batch's *centred* rewards: REINFORCE++ with baseline.

    The scale differs from :func:`lite_ppo`: it is measured after centring has removed the variance between prompts.
    """
    centred = center(rewards)  # The mean over the batch is 0 already.
    return centred / (root_mean_square(centred.flatten(), ddof) + eps)


# -- on tokens ---------------------------------------------------------------------------------------------------


@takes(mask=MASK, advantages=shape("P G"))
@equation(
    "eq:token-advantage",
    source='Shao et al. (2024), "DeepSeekMath": with outcome supervision all tokens of a response share its advantage.',
    gradient=(),
)
def broadcast_to_tokens(advantages: Tensor, mask: Tensor) -> Tensor:
    """Give every sampled token its completion's advantage: ``(P, G), (B, T) -> (B, T)``, ``B = P·G``, prompt-major."""
    if advantages.numel() != mask.shape[0]:
        raise ArgumentError(
            f"advantages has shape {tuple(advantages.shape)}; expected P·G = {mask.shape[0]}, "
            f"the rows of mask {tuple(mask.shape)}",
            argument="advantages",
            value=tuple(advantages.shape),
            expected=mask.shape[0],
            problem="shape",
        )
    return zero_where_masked(advantages.detach().reshape(-1, 1).expand(mask.shape), mask)


@takes(mask=MASK, step_rewards=shape("B T"), step_ends=shape("B T"))
@equation("eq:grpo-process", source='Shao et al. (2024), "DeepSeekMath" (GRPO with process supervision).', gradient=())
def process_zscore(
    step_rewards: Tensor, step_ends: Tensor, mask: Tensor, *, num_generations: int, ddof: int = 1, eps: float = 1e-4
) -> Tensor:
    """GRPO with process supervision: ``A_{i,t}`` sums the normalised rewards of all steps that end at t or later.

    The rewards of all steps of all completions of a group are normalised together. With one step per
    completion this is :func:`group_zscore`.

    Args:
        step_rewards: rewards of steps; only the entries where a step ends are used.
        step_ends: bool, True on the last token of each graded step; this token must be inside the mask.
        num_generations: ``G``; rows are prompt-major.
    Returns: ``(B, T)``, 0 outside the mask and in groups with fewer than two steps.
    """
    if num_generations < 2 or mask.shape[0] % num_generations:
        raise ArgumentError(
            f"num_generations = {num_generations} and mask has shape {tuple(mask.shape)}; expected a group size ≥ 2 "
            "that divides the number of rows",
            argument="num_generations",
            value=num_generations,
        )
    if bool((step_ends.bool() & ~mask.bool()).any()):
        raise ArgumentError(
            f"step_ends of shape {tuple(step_ends.shape)} marks tokens outside the mask",
            argument="step_ends",
            problem="outside the mask",
        )
    group_shape = (-1, num_generations * mask.shape[1])  # All steps of a group are in one row.
    normalised = group_zscore(step_rewards.reshape(group_shape), step_ends.reshape(group_shape), ddof=ddof, eps=eps)
    future_sums = normalised.view_as(step_rewards).flip(-1).cumsum(-1).flip(-1)
    return zero_where_masked(future_sums, mask)


@takes(mask=MASK, x=under_mask())
@equation("eq:whitening", source='Huang et al. (2024), "The N+ Implementation Details of RLHF with PPO".', gradient=())
def whiten(x: Tensor, mask: Tensor, *, shift_mean: bool = True, ddof: int = 1, eps: float = 1e-8) -> Tensor:
    """Values of all tokens of the batch scaled to variance 1 and mean 0: ``(x − mean) / sqrt(var + eps)``.

    PPO whitens its advantages. With ``shift_mean=False``, as for rewards, the mean is added back: the values have
    variance 1 and their old mean. The mask needs at least ``ddof + 1`` tokens.

    Returns: ``(B, T)``, 0 outside the mask.
    """
    if int(mask.bool().sum()) <= ddof:
        raise ArgumentError(
            f"mask of shape {tuple(mask.shape)} has {int(mask.bool().sum())} token(s); expected at least {ddof + 1}",
            argument="mask",
            value=int(mask.bool().sum()),
            expected=ddof + 1,
        )
    return masked_whiten(x.detach(), mask, shift_mean, ddof, eps)
