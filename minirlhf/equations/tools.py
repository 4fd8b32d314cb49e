"""Acting in turns: what a tool's words do to the gradient when they are taken for the policy's own, what a turn is worth, what a call and a check
are, and how many tokens are read.

Everything is pure and differentiable. A *turn* is a run of sampled tokens; between two turns the environment writes, and the mask is 0.
"""

from __future__ import annotations

import torch
from torch import Tensor

from minirlhf.core.errors import ArgumentError
from minirlhf.core.masking import zero_where_masked
from minirlhf.core.validate import MASK, UNIT, at_least, distribution, finite, takes, under_mask


@takes(spoken=distribution("... V"), policy=distribution("... V"), advantages=finite("... V"))
def observation_gradient(spoken: Tensor, policy: Tensor, advantages: Tensor) -> Tensor:
    """What a policy gradient adds at the logits of a token that the environment wrote: Σ_o P(o) A(o) ∇log π(o).

    With the same advantage for all tokens this is A · (P − π): a conversation that went well teaches the policy to speak like the tool,
    one that went badly drives it away, and nothing ends that. It is 0 for every advantage only where π = P.

    Label: eq:heard-gradient
    Source: derived in chapter 17.
    Args:
        spoken: P, from which the environment draws the token; ``policy``: π, of the same token; ``advantages``: A, expected after each token.
    Returns:
        ``(..., V)``, in the direction of each logit.
    """
    pull = spoken * advantages  # (..., V)
    return pull - policy * pull.sum(-1, keepdim=True)


@takes(mask=MASK, rewards=under_mask(), gamma=UNIT)
def turn_returns(rewards: Tensor, mask: Tensor, *, gamma: float = 1.0) -> Tensor:
    """Return from a turn on, G_k = Σ_{j≥k} γ^(j−k) R_j, at every token of turn k; R_j is the sum of the rewards within turn j.

    A gap in the mask ends a turn. A turn is one action: its tokens share its return, whichever of them bears the reward, and a discount counts turns, not words. With a
    single reward at the end and γ = 1 it is the same at every token, as the total return.

    Label: eq:turn-return
    Source: Zhou et al. (2024), "ArCHer", arXiv 2402.19446, whose high level acts in turns.
    """
    sampled = mask.bool()
    starts = sampled & ~torch.nn.functional.pad(sampled[:, :-1], (1, 0))
    turn = (starts.cumsum(-1) - 1).clamp(min=0)  # (B, T), from 0
    kept = zero_where_masked(rewards, sampled)
    earned = torch.zeros_like(kept).scatter_add(1, turn, kept)  # (B, T): turn j in column j
    after, returns = torch.zeros_like(earned[:, 0]), []
    for column in reversed(earned.unbind(1)):
        after = column + gamma * after
        returns.append(after)
    return zero_where_masked(torch.stack(returns[::-1], 1).gather(1, turn), sampled)


@takes(mask=MASK, returns=under_mask(), num_generations=at_least(1))
def turn_advantages(returns: Tensor, mask: Tensor, *, num_generations: int) -> Tensor:
    """Return from turn k on, less the mean of the conversations of the group that have a turn k: A_ik = G_ik − Σ_j m_jk G_jk / Σ_j m_jk.

    A turn is compared with the same turn of other conversations, which stand somewhere else by then; what has been earned before turn k is in
    neither. Who alone comes so far has nothing to be compared with, and 0. Returns are data: no gradient flows.

    Label: eq:turn-advantage
    Source: chapter 17; of two turns, without the standard deviations and with weights of 1, it is that of Zeng et al. (2025), arXiv 2505.11821.
    Args:
        returns: ``(B, K)``, a column for each turn; ``mask``: whether the conversation has it; ``num_generations``: rows of a group, prompt-major.
    Raises: ValueError too if the rows are not whole groups.
    """
    if len(mask) % num_generations:
        raise ArgumentError(
            f"num_generations = {num_generations} and mask has {len(mask)} rows; expected whole groups",
            argument="num_generations",
            value=num_generations,
            expected=len(mask),
        )
    there = mask.bool().unflatten(0, (-1, num_generations))  # (P, G, K)
    earned = zero_where_masked(returns.detach(), mask.bool()).unflatten(0, (-1, num_generations))
    usual = earned.sum(1, keepdim=True) / there.sum(1, keepdim=True).clamp(min=1)
    return zero_where_masked((earned - usual).flatten(0, 1), mask.bool())


@takes(
    read=finite("...", "[0, 1]"), head=finite("...", "[0, 1]"), fail=UNIT, lie=UNIT,
)  # fmt: skip
def tool_call_value(read: Tensor, head: Tensor, *, fail: float = 0.0, lie: float = 0.0, cost: float = 0.0) -> Tensor:
    """What a call is worth: the reward expected with it less that without, (1 − f − l)·p_read + f·p_head − c − p_head.

    A tool that fails leaves the policy to its own head; the lie of one that lies is believed, and the answer wrong. A call pays while it is
    above 0: for a perfect tool that is read without error, as long as the head errs more often than the call costs, c < 1 − p_head.

    Label: eq:call-worth
    Source: derived in chapter 17.
    Args:
        read: probability of a right answer after a right output of the tool; ``head``: without the tool.
        fail, lie: probabilities that the tool says it failed, and that it says something wrong; together at most 1.
        cost: taken off the reward for the call.
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
def verification_value(
    read: Tensor, fallback: Tensor, *, lie: float, caught: float, alarm: float = 0.0, cost: float = 0.0
) -> Tensor:
    """What it is worth to check a tool's output before one believes it: ℓ·d·v − (1 − ℓ)·a·(p_read − v) − c.

    A caught lie is replaced by what the fallback earns, a false alarm throws the right output away for it. The check is worth nothing by itself: what
    counts is what is done after the alarm.

    Label: eq:check-worth
    Source: derived in chapter 17.
    Args:
        read: p_read, probability of a right answer after a right output; ``fallback``: v, what is expected after an alarm.
        lie: ℓ, probability of a wrong output; ``caught``: d, that the check notices a wrong one; ``alarm``: a, that it refuses a right one.
        cost: c, of the check.
    """
    return lie * caught * fallback - (1 - lie) * alarm * (read - fallback) - cost


@takes(prompt=finite("..."), said=finite("... K"), heard=finite("... K"))
def prefill_tokens_without_cache(prompt: Tensor, said: Tensor, heard: Tensor) -> Tensor:
    """Tokens that are read when each of K turns reads its conversation from the start: Σ_k (n + Σ_{j<k} (s_j + e_j)).

    It grows with the square of the number of turns; :func:`prefill_tokens_with_cache` does not. The words that a turn says are computed besides, in either way.

    Label: eq:tokens-read-again
    Source: derived in chapter 17.
    Args:
        prompt: n, its tokens; ``said``, ``heard``: s_k and e_k, the tokens of turn k and of what came after it; the last e is never read.
    """
    before = (said + heard).cumsum(-1) - (said + heard)  # (..., K), what stands before each turn
    return (prompt[..., None] + before).sum(-1)


@takes(prompt=finite("..."), heard=finite("... K"))
def prefill_tokens_with_cache(prompt: Tensor, heard: Tensor) -> Tensor:
    """Tokens that are read when K turns go on with the conversation's cache: n + Σ_{k<K} (1 + e_k).

    A sampled token enters the cache when the next one is computed. The one that ended a turn had no next one: it is read with what was heard.

    Label: eq:tokens-read-on
    Source: derived in chapter 17.
    Args:
        prompt: n, its tokens; ``heard``: e_k, the tokens of what came after turn k; the last e is never read.
    """
    return prompt + (1 + heard[..., :-1]).sum(-1)
