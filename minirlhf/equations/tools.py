"""Acting in turns: what a tool's words do to the gradient when they are taken for the policy's own, what a turn is worth, and what a call is.

Everything is pure and differentiable. A *turn* is a run of sampled tokens; between two turns the environment writes, and the mask is 0.
"""

from __future__ import annotations

import torch
from torch import Tensor

from minirlhf.core.masking import zero_where_masked
from minirlhf.core.validate import MASK, UNIT, distribution, finite, takes, under_mask


@takes(spoken=distribution("... V"), policy=distribution("... V"), advantages=finite("... V"))
def heard_gradient(spoken: Tensor, policy: Tensor, advantages: Tensor) -> Tensor:
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


@takes(
    read=finite("...", "[0, 1]"), head=finite("...", "[0, 1]"), fail=UNIT, lie=UNIT,
)  # fmt: skip
def call_worth(read: Tensor, head: Tensor, *, fail: float = 0.0, lie: float = 0.0, cost: float = 0.0) -> Tensor:
    """What a call is worth: the reward expected with it less that without, (1 − f − l)·p_read + f·p_head − c − p_head.

    A tool that fails leaves the policy to its own head; the lie of one that lies is believed, and the answer wrong. A call pays while it is
    above 0: for a perfect tool, as long as the head errs more often than the call costs, c < 1 − p_head.

    Label: eq:call-worth
    Source: derived in chapter 17.
    Args:
        read: probability of a right answer after a right output of the tool; ``head``: without the tool.
        fail, lie: probabilities that the tool says it failed, and that it says something wrong; together at most 1.
        cost: taken off the reward for the call.
    Raises: ValueError too if ``fail + lie`` exceeds 1.
    """
    if fail + lie > 1:
        raise ValueError(f"fail = {fail} and lie = {lie}; expected a sum of at most 1")
    return (1 - fail - lie) * read + fail * head - cost - head


@takes(prompt=finite("..."), said=finite("... K"), heard=finite("... K"))
def tokens_read_again(prompt: Tensor, said: Tensor, heard: Tensor) -> Tensor:
    """Tokens that are read when each of K turns reads its conversation from the start: Σ_k (p + Σ_{j<k} (s_j + h_j)).

    It grows with the square of the number of turns; going on with the cache reads p + Σ_{j<K} (s_j + h_j), each token once.

    Label: eq:tokens-read-again
    Source: derived in chapter 17.
    Args:
        prompt: p, its tokens; ``said``, ``heard``: s_k and h_k, the tokens of turn k and of what came after it; the last h is never read.
    """
    before = (said + heard).cumsum(-1) - (said + heard)  # (..., K), what stands before each turn
    return (prompt[..., None] + before).sum(-1)
