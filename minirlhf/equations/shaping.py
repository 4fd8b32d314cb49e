"""Reward shaping: what is added to a reward before any advantage is computed.

Everything is ``(B,)``, one number per response, unless said otherwise. ``lengths`` count sampled tokens, EOS included;
``correct`` is 1 or True for a right answer, and the result float.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from minirlhf.core.errors import ArgumentError
from minirlhf.core.masking import last_index, zero_where_masked
from minirlhf.core.validate import FINITE, MASK, NOT_NEGATIVE, at_least, require_finite_where, sampled, shape, takes
from minirlhf.equations.advantages import valid_mask


@takes(mask=MASK, rewards="B", logps=sampled(gradient=False), ref_logps=sampled(gradient=False), beta=NOT_NEGATIVE)
def kl_shaped_token_rewards(
    rewards: Tensor,
    logps: Tensor,
    ref_logps: Tensor,
    mask: Tensor,
    *,
    beta: float,
    estimator: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    """A KL charge on every token and the reward on the last, ``(B, T)``: ``r_t = −β·kl_t + [t last]·r``.

    With the estimator ``log π − log π_ref`` the rewards of a response sum to ``r − β log(π(y)/π_ref(y))``, whose
    expectation is the objective of RLHF. The last token is the last *sampled* one, EOS included. No gradient flows.

    Label: eq:kl-shaped-rewards
    Source: Ziegler et al. (2019), "Fine-Tuning Language Models from Human Preferences"; per token in Ouyang
        et al. (2022).
    Args:
        logps: of the policy that sampled.
        beta: KL coefficient, ≥ 0.
        estimator: ``(logps, ref_logps) -> (B, T)``, e.g. :func:`~minirlhf.equations.kl.k1`.
    """
    shaped = -beta * zero_where_masked(estimator(logps, ref_logps), mask)
    return shaped.scatter_add(-1, last_index(mask)[:, None], rewards.detach().to(shaped.dtype)[:, None])


@takes(rewards=shape("B"), terminated=shape("B"), penalty=NOT_NEGATIVE)
def missing_eos_penalty(rewards: Tensor, terminated: Tensor, *, penalty: float) -> Tensor:
    """``r − penalty`` where a response was not ``terminated`` by EOS but cut off.

    A reward model has not learned to judge half an answer.

    Label: eq:missing-eos
    Source: Huang et al. (2024), "The N+ Implementation Details of RLHF with PPO" (the EOS trick).
    Args:
        penalty: ≥ 0, in units of the reward.
    """
    return rewards - penalty * (~terminated.bool()).to(rewards.dtype)


@takes(rewards=shape("B"), lengths=shape("B"), coefficient=NOT_NEGATIVE)
def length_penalty(rewards: Tensor, lengths: Tensor, *, coefficient: float) -> Tensor:
    """``r − α·|y|``: each token costs the same, whatever the answer is worth.

    Label: eq:length-penalty
    Source: elementary; the linear counterpart of the rules below.
    Args:
        coefficient: α ≥ 0, reward per token.
    """
    return rewards - coefficient * lengths.to(rewards.dtype)


@takes(lengths=shape("B"))
def soft_overlong(lengths: Tensor, *, max_completion_length: int, soft_punish_cache: int) -> Tensor:
    """DAPO's soft overlong punishment: 0 up to ``L − c`` tokens, linear down to −1 at ``L``, −1 beyond.

    Add it to the reward.

    Label: eq:dapo-overlong
    Source: Yu et al. (2025), "DAPO: An Open-Source LLM Reinforcement Learning System at Scale", soft
        overlong punishment.
    Args:
        max_completion_length: ``L``, in tokens.
        soft_punish_cache: ``c``, from 1 to ``L``: the tokens before ``L`` that are charged.
    """
    if not 1 <= soft_punish_cache <= max_completion_length:
        raise ArgumentError(
            f"soft_punish_cache = {soft_punish_cache!r}; expected 1 .. {max_completion_length}",
            argument="soft_punish_cache",
            value=soft_punish_cache,
            expected=(1, max_completion_length),
        )
    free = max_completion_length - soft_punish_cache
    return -((lengths.to(_float(lengths)) - free) / soft_punish_cache).clamp(0.0, 1.0)


_asked = takes(correct=shape("B"), lengths=shape("B"), target_lengths=shape("B"), alpha=NOT_NEGATIVE)


@_asked
def lcpo_exact(correct: Tensor, lengths: Tensor, target_lengths: Tensor, *, alpha: float = 3e-4) -> Tensor:
    """``correct − α·|n_target − n|``: be right, and as long as the prompt asked for.

    Label: eq:lcpo-exact
    Source: Aggarwal & Welleck (2025), "L1: Controlling How Long A Reasoning Model Thinks With
        Reinforcement Learning", eq. 1.
    Args:
        alpha: reward per token of deviation, ≥ 0.
    """
    right = correct.to(_float(correct))
    return right - alpha * (target_lengths.to(right.dtype) - lengths.to(right.dtype)).abs()


@_asked
def lcpo_max(
    correct: Tensor, lengths: Tensor, target_lengths: Tensor, *, alpha: float = 3e-4, offset: float = 0.5
) -> Tensor:
    """``correct · clip(α·(n_max − n) + offset, 0, 1)``: be right in the budget; slightly late still counts.

    Label: eq:lcpo-max
    Source: Aggarwal & Welleck (2025), as above, eq. 2 (``offset`` is their δ).
    Args:
        alpha: reward per token, ≥ 0.
        offset: the factor of an answer that is exactly as long as its budget.
    """
    right = correct.to(_float(correct))
    spare = target_lengths.to(right.dtype) - lengths.to(right.dtype)
    return right * (alpha * spare + offset).clamp(0.0, 1.0)


@takes(correct=shape("P G"), lengths=shape("P G"))
def kimi_length_reward(correct: Tensor, lengths: Tensor, valid: Tensor | None = None) -> Tensor:
    """Within a group: ½ for the shortest down to −½ for the longest; wrong answers are never paid, ``min(0, ·)``.

    ``λ_i = ½ − (n_i − n_min) / (n_max − n_min)``, ``(P, G)``; 0 for all if every response is equally long.
    Those that are not ``valid (P, G)`` get 0 and set no minimum or maximum. Add it to the reward.

    Label: eq:kimi-length
    Source: Kimi Team (2025), "Kimi k1.5: Scaling Reinforcement Learning with LLMs", length penalty.
    """
    valid = valid_mask(correct, valid)
    n = lengths.to(_float(correct))
    shortest = torch.where(valid, n, torch.inf).amin(-1, keepdim=True)  # (P, 1)
    longest = torch.where(valid, n, -torch.inf).amax(-1, keepdim=True)
    differ = longest > shortest
    bonus = 0.5 - (n - shortest) / torch.where(differ, longest - shortest, 1.0)
    bonus = torch.where(correct > 0, bonus, bonus.clamp(max=0.0))
    return torch.where(differ & valid, bonus, 0.0)


@takes(correct=shape("B"), lengths=shape("B"), max_completion_length=at_least(1), right_first=FINITE, right_last=FINITE,
       wrong_first=FINITE, wrong_last=FINITE, exceeded=FINITE)  # fmt: skip
def cosine_length_reward(
    correct: Tensor,
    lengths: Tensor,
    *,
    max_completion_length: int,
    right_first: float = 2.0,
    right_last: float = 1.0,
    wrong_first: float = -10.0,
    wrong_last: float = 0.0,
    exceeded: float = -10.0,
) -> Tensor:
    """``b + (a − b)(1 + cos(πn/L))/2``: half a cosine from a at no tokens to b at the limit, for right and for wrong answers another.

    With the defaults a right answer is worth less the longer it is, a wrong one costs less the longer it tried. The reward is
    ``exceeded`` from ``L`` tokens on: the answer was cut off.

    Label: eq:cosine-length
    Source: Yeo et al. (2025), "Demystifying Long Chain-of-Thought Reasoning in LLMs", section 4.
    Args:
        max_completion_length: L, in tokens.
        right_first, right_last: a and b of a right answer.
        wrong_first, wrong_last: a and b of a wrong one.
    """
    n = lengths.to(_float(correct))
    falls = (1 + torch.cos(torch.pi * n / max_completion_length)) / 2
    right = right_last + (right_first - right_last) * falls
    wrong = wrong_last + (wrong_first - wrong_last) * falls
    return torch.where(n >= max_completion_length, exceeded, torch.where(correct > 0, right, wrong))


@takes(tokens=shape("B T"), mask=MASK, n=at_least(1))
def repeated_tokens(tokens: Tensor, mask: Tensor, *, n: int) -> Tensor:
    """Which tokens are part of a run of n that the response has held before; the first occurrence is not. ``(B, T)`` bool

    Times a price, it is a charge token by token beside the reward on the last one.

    Label: eq:repetition-penalty
    Source: Yeo et al. (2025), as above, section 4 and their code (``RepetitionDensePenalty``).
    """
    found = torch.zeros_like(mask, dtype=torch.bool)
    for row, kept in enumerate(mask.bool()):
        places = kept.nonzero().squeeze(-1)  # (n_row,)
        said, seen = tokens[row, places].tolist(), set()
        for start in range(len(said) - n + 1):
            run = tuple(said[start : start + n])
            if run in seen:
                found[row, places[start : start + n]] = True
            seen.add(run)
    return found


@takes(correct=shape("B"), well_formed=shape("B"), penalty=NOT_NEGATIVE)
def format_reward(correct: Tensor, well_formed: Tensor, *, penalty: float = 1.0) -> Tensor:
    """``correct`` if the answer is ``well_formed``, else ``−penalty``: what cannot be parsed cannot be right.

    Label: eq:format-reward
    Source: elementary; DeepSeek-AI (2025), "DeepSeek-R1", adds a reward for the form to that of the answer, and does not gate.
    Args:
        correct: a grade such as 0 or 1; read, and finite, only where well formed.
    """
    require_finite_where(well_formed, correct=correct)
    return torch.where(well_formed.bool(), correct.to(_float(correct)), -penalty)


@takes(components="B K", weights="K")
def composite_reward(components: Tensor, weights: Tensor) -> Tensor:
    """``Σ_k w_k·r_k``: several graders, a column each, one number.

    Label: eq:composite-reward
    Source: elementary.
    """
    return components @ weights.to(components.dtype)


def _float(x: Tensor) -> torch.dtype:
    """The floating dtype of a result computed from ``x``, which may be bool or integer."""
    return x.dtype if x.is_floating_point() else torch.get_default_dtype()
