"""The equations that only chapter 16 needs: votes and uninformative rewards, and rewards of length and format.

``answers`` are integers, one for each of N completions of a prompt; equal integers are equal answers. Shaped rewards
are ``(B,)``, one number per completion, unless stated otherwise. ``lengths`` count sampled tokens, EOS included;
``correct`` is 1 or True for a correct answer. Results are float.
"""

from __future__ import annotations

import torch
from torch import Tensor

from minirlhf.core.equation import equation
from minirlhf.core.validate import (
    FINITE,
    MASK,
    NOT_NEGATIVE,
    at_least,
    distribution,
    require_finite_where,
    shape,
    takes,
)
from minirlhf.equations.advantages import valid_mask
from minirlhf.equations.reasoning import vote_totals

# -- voting and rewards ------------------------------------------------------------------------------------------


@takes(answers=shape("P G"))
@equation("eq:majority-reward", source='Zuo et al. (2025), "TTRL: Test-Time Reinforcement Learning".')
def majority_reward(answers: Tensor) -> Tensor:
    """1 for completions with the group's most frequent answer (if tied, the first such answer), else 0, ``(P, G)``."""
    totals = vote_totals(answers, torch.ones(answers.shape, device=answers.device))
    first = (totals == totals.amax(-1, keepdim=True)).byte().argmax(-1, keepdim=True)
    return (answers == answers.gather(-1, first)).to(totals.dtype)


@takes(probs=distribution("... A"), old_probs=distribution("... A"), epsilon=NOT_NEGATIVE)
@equation(
    "eq:random-reward-push",
    source='derived in chapter 16; the bias was found by Shao et al. (2025), "Spurious Rewards: Rethinking '
    'Training Signals in RLVR".',
)
def random_reward_gradient(probs: Tensor, old_probs: Tensor, *, epsilon: float) -> Tensor:
    """Expected logit gradient of the clipped objective for random advantages, ±1 with probability ½: ``(..., A)``.

    It is Σ_y π(y) c_y (e_y − π), with c_y = ½ if the ratio π/π_old is below 1 − ε, −½ if it is above 1 + ε, otherwise
    0. Without clipping it is 0: an uninformative reward has no effect on the logits on average. The advantages must be
    independent of π, which does not hold if π has already been updated on the same completions and advantages. The
    kinks, ratios of exactly 1 ± ε, are ignored.

    Args:
        probs: π, the current policy.
        old_probs: π_old, the policy that sampled, positive.
        epsilon: ε of the clip.
    """
    ratio = probs / old_probs
    coefficients = 0.5 * ((ratio < 1 - epsilon).to(probs.dtype) - (ratio > 1 + epsilon).to(probs.dtype))
    weighted = probs * coefficients
    return weighted - probs * weighted.sum(-1, keepdim=True)


# -- reward shaping ----------------------------------------------------------------------------------------------


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
