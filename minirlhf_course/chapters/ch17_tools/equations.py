"""The equations that only chapter 17 needs: observations, credit of turns, the value of calls, token counts.

All functions are pure and differentiable. A *turn* is a run of sampled tokens. Between two turns the environment writes
tokens, at which the mask is 0.
"""

from __future__ import annotations

import torch
from torch import Tensor

from minirlhf.core.equation import equation
from minirlhf.core.errors import ArgumentError
from minirlhf.core.masking import zero_where_masked
from minirlhf.core.validate import MASK, UNIT, at_least, distribution, finite, takes, under_mask


@takes(spoken=distribution("... V"), policy=distribution("... V"), advantages=finite("... V"))
@equation("eq:heard-gradient", source="derived in chapter 17.")
def observation_gradient(spoken: Tensor, policy: Tensor, advantages: Tensor) -> Tensor:
    """Policy gradient at the logits of an unmasked environment token: Σ_o P(o) A(o) ∇log π(o).

    With the same advantage for all tokens it is A · (P − π): a positive advantage trains the policy to imitate the
    tool's output, a negative one pushes the policy away from it without bound. It is 0 for every advantage only if π =
    P.

    Args:
        spoken: P, the environment's distribution of the token.
        policy: π, the policy's distribution of the same token.
        advantages: A, the expected advantage after each token.
    Returns:
        ``(..., V)``, in the direction of each logit.
    """
    weighted = spoken * advantages  # (..., V)
    return weighted - policy * weighted.sum(-1, keepdim=True)


@takes(mask=MASK, rewards=under_mask(), gamma=UNIT)
@equation(
    "eq:turn-return",
    source='Zhou et al. (2024), "ArCHer", arXiv 2402.19446, whose high level acts in turns.',
    positional=True,
)
def turn_returns(rewards: Tensor, mask: Tensor, *, gamma: float = 1.0) -> Tensor:
    """Turn-level return G_k = Σ_{j≥k} γ^(j−k) R_j at every token of turn k; R_j is the sum of the rewards in turn j.

    A gap in the mask ends a turn. A turn is one action: its tokens share its return, regardless of which token has the
    reward, and the discount counts turns, not tokens. With a single reward at the end and γ = 1 it equals the total
    return at every token.
    """
    sampled = mask.bool()
    starts = sampled & ~torch.nn.functional.pad(sampled[:, :-1], (1, 0))
    turn = (starts.cumsum(-1) - 1).clamp(min=0)  # (B, T), from 0
    masked_rewards = zero_where_masked(rewards, sampled)
    turn_rewards = torch.zeros_like(masked_rewards).scatter_add(1, turn, masked_rewards)  # (B, T): turn j in column j
    running, returns = torch.zeros_like(turn_rewards[:, 0]), []
    for column in reversed(turn_rewards.unbind(1)):
        running = column + gamma * running
        returns.append(running)
    return zero_where_masked(torch.stack(returns[::-1], 1).gather(1, turn), sampled)


@takes(mask=MASK, returns=under_mask(), num_generations=at_least(1))
@equation(
    "eq:turn-advantage",
    source="chapter 17; of two turns, without the standard deviations and with weights of 1, it is that of Zeng et "
    "al. (2025), arXiv 2505.11821.",
    gradient=(),
)
def turn_advantages(returns: Tensor, mask: Tensor, *, num_generations: int) -> Tensor:
    """Return from turn k on minus its group mean over episodes with a turn k: A_ik = G_ik − Σ_j m_jk G_jk / Σ_j m_jk.

    A turn is compared with the same turn of other episodes, which may be in other states by then. Rewards before turn k
    are not part of the returns. If only one episode has a turn k, its advantage is 0. Returns are data: no gradient
    flows.

    Args:
        returns: ``(B, K)``, one column per turn.
        mask: ``(B, K)``, True if the episode has the turn.
        num_generations: rows per group, prompt-major.
    Raises: ValueError too if the rows are not whole groups.
    """
    if len(mask) % num_generations:
        raise ArgumentError(
            f"num_generations = {num_generations} and mask has {len(mask)} rows; expected whole groups",
            argument="num_generations",
            value=num_generations,
            expected=len(mask),
        )
    present = mask.bool().unflatten(0, (-1, num_generations))  # (P, G, K)
    grouped = zero_where_masked(returns.detach(), mask.bool()).unflatten(0, (-1, num_generations))
    mean = grouped.sum(1, keepdim=True) / present.sum(1, keepdim=True).clamp(min=1)
    return zero_where_masked((grouped - mean).flatten(0, 1), mask.bool())


@takes(
    read=finite("...", "[0, 1]"), head=finite("...", "[0, 1]"), fail=UNIT, lie=UNIT,
)  # fmt: skip
@equation("eq:call-worth", source="derived in chapter 17.")
def tool_call_value(read: Tensor, head: Tensor, *, fail: float = 0.0, lie: float = 0.0, cost: float = 0.0) -> Tensor:
    """Value of a tool call: expected reward with the call minus without it, (1 − f − l)·p_read + f·p_head − c − p_head.

    After a failure the policy answers from memory, with accuracy p_head. It believes a wrong output, so the answer is
    wrong. A call pays if its value is > 0. For a perfect tool whose output is read without error this means c < 1 −
    p_head: the error rate from memory exceeds the cost.

    Args:
        read: p_read, probability of a correct answer after a correct output of the tool.
        head: p_head, probability of a correct answer from memory, without the tool.
        fail, lie: probabilities f that the tool reports a failure and l that its output is wrong; together at most 1.
        cost: c, subtracted from the reward for the call.
    Raises: ValueError too if ``fail + lie`` exceeds 1.
    """
    if fail + lie > 1:
        raise ArgumentError(
            f"fail = {fail} and lie = {lie}; expected a sum of at most 1",
            argument="fail, lie",
            value=(fail, lie),
            expected=1,
        )
    return (1 - fail - lie) * read + fail * head - cost - head


@takes(read=finite("...", "[0, 1]"), fallback=finite("...", "[0, 1]"), lie=UNIT, caught=UNIT, alarm=UNIT)
@equation("eq:check-worth", source="derived in chapter 17.")
def verification_value(
    read: Tensor, fallback: Tensor, *, lie: float, caught: float, alarm: float = 0.0, cost: float = 0.0
) -> Tensor:
    """Value of a check of the tool's output before the policy uses it: ℓ·d·v − (1 − ℓ)·a·(p_read − v) − c.

    After an alarm the policy uses a fallback with expected reward v. So a detected wrong output gains v, and a false
    alarm loses p_read − v. The check has no value by itself: its value depends on the fallback.

    Args:
        read: p_read, probability of a correct answer after a correct output.
        fallback: v, expected reward after an alarm.
        lie: ℓ, probability of a wrong output.
        caught: d, probability that the check detects a wrong output.
        alarm: a, probability that the check rejects a correct output.
        cost: c, of the check.
    """
    return lie * caught * fallback - (1 - lie) * alarm * (read - fallback) - cost


@takes(prompt=finite("..."), said=finite("... K"), heard=finite("... K"))
@equation("eq:tokens-read-again", source="derived in chapter 17.")
def prefill_tokens_without_cache(prompt: Tensor, said: Tensor, heard: Tensor) -> Tensor:
    """Prefill tokens if each of K turns reads its context from the start: Σ_k (n + Σ_{j<k} (s_j + e_j)).

    The number grows with the square of the number of turns; :func:`prefill_tokens_with_cache` grows linearly. Both
    exclude the forward passes for the sampled tokens of a turn.

    Args:
        prompt: n, the tokens of the prompt.
        said: s_k, the tokens of turn k.
        heard: e_k, the environment's tokens after turn k; the last e is never read.
    """
    before = (said + heard).cumsum(-1) - (said + heard)  # (..., K), tokens between the prompt and each turn
    return (prompt[..., None] + before).sum(-1)


@takes(prompt=finite("..."), heard=finite("... K"))
@equation("eq:tokens-read-on", source="derived in chapter 17.")
def prefill_tokens_with_cache(prompt: Tensor, heard: Tensor) -> Tensor:
    """Prefill tokens if K turns reuse the KV cache of the episode: n + Σ_{k<K} (1 + e_k).

    A sampled token enters the cache when the next token is computed. The last token of a turn has no next token, so it
    is read together with the environment's tokens.

    Args:
        prompt: n, the tokens of the prompt.
        heard: e_k, the environment's tokens after turn k; the last e is never read.
    """
    return prompt + (1 + heard[..., :-1]).sum(-1)
