"""Reward shaping: terms that are added to a reward before advantages are computed.

Tensors are ``(B,)``, one number per completion, unless stated otherwise. ``lengths`` count sampled tokens, EOS
included; ``correct`` is 1 or True for a correct answer. Results are float.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from minirlhf.core.equation import equation
from minirlhf.core.errors import ArgumentError
from minirlhf.core.masking import last_index, zero_where_masked
from minirlhf.core.validate import FINITE, MASK, NOT_NEGATIVE, at_least, require_finite_where, sampled, shape, takes
from minirlhf.equations.advantages import valid_mask


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
    return -((lengths.to(_float(lengths)) - unpenalised) / soft_punish_cache).clamp(0.0, 1.0)


_asked = takes(correct=shape("B"), lengths=shape("B"), target_lengths=shape("B"), alpha=NOT_NEGATIVE)


@_asked
@equation(
    "eq:lcpo-exact",
    source='Aggarwal & Welleck (2025), "L1: Controlling How Long A Reasoning Model Thinks With Reinforcement '
    'Learning", eq. 1.',
)
def lcpo_exact(correct: Tensor, lengths: Tensor, target_lengths: Tensor, *, alpha: float = 3e-4) -> Tensor:
    """``correct − α·|n_target − n|``: rewards a correct answer and the length that the prompt requests.

    Args:
        alpha: reward per token of deviation, ≥ 0.
    """
    score = correct.to(_float(correct))
    return score - alpha * (target_lengths.to(score.dtype) - lengths.to(score.dtype)).abs()


@_asked
@equation("eq:lcpo-max", source="Aggarwal & Welleck (2025), as above, eq. 2 (``offset`` is their δ).")
def lcpo_max(
    correct: Tensor, lengths: Tensor, target_lengths: Tensor, *, alpha: float = 3e-4, offset: float = 0.5
) -> Tensor:
    """``correct · clip(α·(n_max − n) + offset, 0, 1)``: rewards a correct answer within a soft token budget.

    Args:
        alpha: reward per token, ≥ 0.
        offset: the factor for a completion that uses exactly its budget.
    """
    score = correct.to(_float(correct))
    remaining = target_lengths.to(score.dtype) - lengths.to(score.dtype)
    return score * (alpha * remaining + offset).clamp(0.0, 1.0)


@takes(correct=shape("P G"), lengths=shape("P G"))
@equation(
    "eq:kimi-length",
    source='Kimi Team (2025), "Kimi k1.5: Scaling Reinforcement Learning with LLMs", length penalty.',
)
def kimi_length_reward(correct: Tensor, lengths: Tensor, valid: Tensor | None = None) -> Tensor:
    """Within a group: from ½ for the shortest to −½ for the longest; at most 0 for wrong answers, ``min(0, ·)``.

    ``λ_i = ½ − (n_i − n_min) / (n_max − n_min)``, ``(P, G)``; 0 for all if all completions have the same length.
    Completions that are not ``valid (P, G)`` get 0 and do not count for the minimum and maximum. Add it to the reward.
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
@equation(
    "eq:cosine-length",
    source='Yeo et al. (2025), "Demystifying Long Chain-of-Thought Reasoning in LLMs", section 4.',
)
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
    """``b + (a − b)(1 + cos(πn/L))/2``: half a cosine from a at 0 tokens to b at the limit L.

    Correct and wrong answers have their own a and b. With the defaults the reward of a correct answer decreases with
    the length, and the reward of a wrong answer increases. From ``L`` tokens on the completion is truncated, and the
    reward is ``exceeded``.

    Args:
        max_completion_length: L, in tokens.
        right_first, right_last: a and b of a correct answer.
        wrong_first, wrong_last: a and b of a wrong answer.
        exceeded: the reward from L tokens on.
    """
    n = lengths.to(_float(correct))
    weight = (1 + torch.cos(torch.pi * n / max_completion_length)) / 2
    right = right_last + (right_first - right_last) * weight
    wrong = wrong_last + (wrong_first - wrong_last) * weight
    return torch.where(n >= max_completion_length, exceeded, torch.where(correct > 0, right, wrong))


@takes(tokens=shape("B T"), mask=MASK, n=at_least(1))
@equation(
    "eq:repetition-penalty",
    source="Yeo et al. (2025), as above, section 4 and their code (``RepetitionDensePenalty``).",
)
def repeated_tokens(tokens: Tensor, mask: Tensor, *, n: int) -> Tensor:
    """Which tokens are part of an n-gram that occurred earlier in the completion. ``(B, T)`` bool

    The first occurrence of an n-gram is not marked. Multiply by a coefficient to get a penalty per token.
    """
    repeated = torch.zeros_like(mask, dtype=torch.bool)
    for row, row_mask in enumerate(mask.bool()):
        positions = row_mask.nonzero().squeeze(-1)  # (n_row,)
        sampled_tokens, earlier = tokens[row, positions].tolist(), set()
        for start in range(len(sampled_tokens) - n + 1):
            ngram = tuple(sampled_tokens[start : start + n])
            if ngram in earlier:
                repeated[row, positions[start : start + n]] = True
            earlier.add(ngram)
    return repeated


@takes(correct=shape("B"), well_formed=shape("B"), penalty=NOT_NEGATIVE)
@equation(
    "eq:format-reward",
    source='elementary; DeepSeek-AI (2025), "DeepSeek-R1", adds a reward for the form to that of the answer, and '
    "does not gate.",
)
def format_reward(correct: Tensor, well_formed: Tensor, *, penalty: float = 1.0) -> Tensor:
    """``correct`` if the completion is ``well_formed``, else ``−penalty``: an answer that cannot be parsed is wrong.

    Args:
        correct: a score such as 0 or 1; read, and required to be finite, only if well formed.
    """
    require_finite_where(well_formed, correct=correct)
    return torch.where(well_formed.bool(), correct.to(_float(correct)), -penalty)


@takes(components="B K", weights="K")
@equation("eq:composite-reward", source="elementary.")
def composite_reward(components: Tensor, weights: Tensor) -> Tensor:
    """``Σ_k w_k·r_k``: the weighted sum of several rewards, one per column."""
    return components @ weights.to(components.dtype)


def _float(x: Tensor) -> torch.dtype:
    """The floating dtype of a result computed from ``x``, which may be bool or integer."""
    return x.dtype if x.is_floating_point() else torch.get_default_dtype()
