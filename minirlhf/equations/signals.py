"""What one example, one reward, one comparison or one judgement teaches a policy: the signals of post-training side by side.

A *push* is the direction ``(..., V)`` in which a gradient step moves the logits z of a choice among V things, which may be
the next tokens or whole replies. It sums to 0.
"""

from __future__ import annotations

import torch
from torch import Tensor

from minirlhf.core.errors import ArgumentError
from minirlhf.core.validate import at_least, finite, shape, takes
from minirlhf.equations.reward_losses import bradley_terry

# -- pushes ------------------------------------------------------------------------------------------------------


@takes(logits="... V")
def softmax_derivative(logits: Tensor) -> Tensor:
    """Derivatives of all probabilities in all logits: ∂π(v)/∂z_u = π(v) (1[u = v] − π(u)), at ``[..., v, u]``.

    What one logit wins, the others lose: every row and every column of the ``(..., V, V)`` sums to 0.

    Label: eq:softmax-derivative
    Source: Bridle (1990), "Probabilistic interpretation of feedforward classification network outputs".
    """
    probs = logits.softmax(-1)
    return torch.diag_embed(probs) - probs[..., :, None] * probs[..., None, :]


@takes(logits="... V", target=shape("..."))
def imitation_logit_gradient(logits: Tensor, target: Tensor) -> Tensor:
    """Push of one demonstration, the index y as target: ∂ log π(y)/∂z_v = 1[v = y] − π(v).

    The demonstrated reply's logit rises; every other logit falls by its probability, good or bad. What that does to the
    probabilities is :func:`probability_change`.

    Label: eq:imitation-push
    Source: Bridle (1990), "Probabilistic interpretation of feedforward classification network outputs".
    """
    if not bool(((target >= 0) & (target < logits.shape[-1])).all()):
        raise ArgumentError(
            f"target of shape {tuple(target.shape)} holds an index outside 0 … {logits.shape[-1] - 1}",
            argument="target",
            expected=(0, logits.shape[-1] - 1),
        )
    demonstrated = torch.nn.functional.one_hot(target, logits.shape[-1]).to(logits.dtype)  # (..., V)
    return demonstrated - logits.softmax(-1)


@takes(logits="... V", rewards="... V")
def reward_logit_gradient(logits: Tensor, rewards: Tensor) -> Tensor:
    """Push of rewards, ∂ E_π[r]/∂z_v = π(v) (r(v) − E_π[r]).

    The logit of what is better than the policy's own average rises, that of what is worse falls: feedback can be negative.
    And it is felt only where the policy goes: what it never says, it cannot learn about.

    Label: eq:reward-push
    Source: Williams (1992), "Simple statistical gradient-following algorithms for connectionist
        reinforcement learning".
    """
    probs = logits.softmax(-1)
    return probs * (rewards - (probs * rewards).sum(-1, keepdim=True))


@takes(logits="... V", push="... V")
def probability_change(logits: Tensor, push: Tensor, *, learning_rate: float) -> Tensor:
    """Change of the probabilities, to first order in η, when the logits move by η g: dπ(v) = η π(v) (g_v − Σ_u π(u) g_u).

    A probability rises where its push is above the policy's average push, and that average is often not zero: a reply whose
    logit falls can become more probable. The same matrix as in :func:`reward_logit_gradient`, since the derivatives are symmetric.

    Label: eq:probability-change
    Source: Ren and Sutherland (2025), "Learning dynamics of LLM finetuning", which builds on this first-order change.
    """
    return learning_rate * reward_logit_gradient(logits, push)


# -- imitation, step by step -------------------------------------------------------------------------------------


@takes(error=finite("...", "[0, 1]"), steps=at_least(1))
def compounding_mistakes(error: Tensor, *, steps: int) -> Tensor:
    """Expected mistakes of a clone that is lost after its first one: Σ_{t=1..T} [1 − (1−ε)^t], about ε T²/2.

    On the expert's states it errs with probability ε. Where an error led, no expert has ever been, and it errs
    from then on.

    Label: eq:compounding-mistakes
    Source: Ross and Bagnell (2010), "Efficient reductions for imitation learning", where such a case shows
        the bound tight.
    """
    t = torch.arange(1, steps + 1, dtype=error.dtype, device=error.device)
    return -torch.expm1(t * torch.log1p(-error)[..., None]).sum(-1)


# -- before language models --------------------------------------------------------------------------------------


@takes(rewards_a="B T", rewards_b="B S")
def trajectory_preference(rewards_a: Tensor, rewards_b: Tensor) -> Tensor:
    """Probability ``(B,)`` that trajectory a is preferred to b: Bradley–Terry on sums, σ(Σ_t a_t − Σ_t b_t).

    Steps are not discounted. With trajectories of one length a constant added to every step's reward cancels.

    Label: eq:trajectory-preference
    Source: Christiano et al. (2017), "Deep reinforcement learning from human preferences", equation 1.
    """
    return bradley_terry(rewards_a.sum(-1), rewards_b.sum(-1))


@takes(feedback="N", scores="N D")
def coach_update(feedback: Tensor, scores: Tensor) -> Tensor:
    """COACH's step ``(N, D)`` for every judged action, f · ∇log π(a|s): what was approved of becomes more likely.

    To be multiplied by a learning rate. If people judge an action by how much better it is than what the learner
    does anyway, f is an advantage and the expected step is the policy gradient.

    Label: eq:coach-update
    Source: MacGlashan et al. (2017), "Interactive learning from policy-dependent human feedback".
    """
    return feedback[:, None] * scores
