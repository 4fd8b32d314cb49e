"""What one example, one reward, one comparison or one judgement teaches a policy: the signals of post-training side by side.

A *push* is the direction in which a gradient step moves the logits z of a choice among V things, which may be the next
tokens or whole replies.
"""

from __future__ import annotations

import torch
from torch import Tensor

from minirlhf.core.validate import require_finite, require_shapes
from minirlhf.equations.reward_losses import bradley_terry

# -- pushes ------------------------------------------------------------------------------------------------------


def softmax_derivative(logits: Tensor) -> Tensor:
    """Derivatives of all probabilities in all logits: ∂π(v)/∂z_u = π(v) (1[u = v] − π(u)), at ``[..., v, u]``.

    What one logit wins, the others lose: every row and every column sums to 0.

    Label: eq:softmax-derivative
    Source: Bridle (1990), "Probabilistic interpretation of feedforward classification network outputs".
    Args: logits ``(..., V)``.
    Returns: ``(..., V, V)``.
    Raises: ValueError if a logit is not finite.
    """
    require_finite(logits=logits)
    probs = logits.softmax(-1)
    return torch.diag_embed(probs) - probs[..., :, None] * probs[..., None, :]


def imitation_push(logits: Tensor, target: Tensor) -> Tensor:
    """Push of one demonstration, ∂ log π(y)/∂z_v = 1[v = y] − π(v).

    What was demonstrated goes up; everything else goes down in proportion to its probability, good or bad.

    Label: eq:imitation-push
    Source: Bridle (1990), "Probabilistic interpretation of feedforward classification network outputs".
    Args: logits ``(..., V)``; target ``(...)``, the index y of what was demonstrated.
    Returns: ``(..., V)``, sums to 0.
    Raises: ValueError if shapes do not match, a logit is not finite, or a target lies outside 0 … V−1.
    """
    if logits.dim() == 0 or target.shape != logits.shape[:-1]:
        raise ValueError(
            f"target has shape {tuple(target.shape)} and logits {tuple(logits.shape)}; expected (...), (..., V)"
        )
    if not bool(((target >= 0) & (target < logits.shape[-1])).all()):
        raise ValueError(f"target of shape {tuple(target.shape)} holds an index outside 0 … {logits.shape[-1] - 1}")
    require_finite(logits=logits)
    demonstrated = torch.nn.functional.one_hot(target, logits.shape[-1]).to(logits.dtype)  # (..., V)
    return demonstrated - logits.softmax(-1)


def reward_push(logits: Tensor, rewards: Tensor) -> Tensor:
    """Push of rewards, ∂ E_π[r]/∂z_v = π(v) (r(v) − E_π[r]).

    What is better than the policy's own average goes up, what is worse goes down: feedback can be negative. And it is felt
    only where the policy goes: what it never says, it cannot learn about.

    Label: eq:reward-push
    Source: Williams (1992), "Simple statistical gradient-following algorithms for connectionist reinforcement learning".
    Args: logits ``(..., V)``; rewards ``(..., V)``.
    Returns: ``(..., V)``, sums to 0.
    Raises: ValueError if shapes differ or a value is not finite.
    """
    if logits.dim() == 0 or logits.shape != rewards.shape:
        raise ValueError(f"rewards has shape {tuple(rewards.shape)}; expected {tuple(logits.shape)}, as logits")
    require_finite(logits=logits, rewards=rewards)
    probs = logits.softmax(-1)
    return probs * (rewards - (probs * rewards).sum(-1, keepdim=True))


# -- imitation, step by step -------------------------------------------------------------------------------------


def compounding_mistakes(error: Tensor, *, steps: int) -> Tensor:
    """Expected mistakes of a clone that is lost after its first one: Σ_{t=1..T} [1 − (1−ε)^t], about ε T²/2.

    On the expert's states it errs with probability ε. Where an error led, no expert has ever been, and it errs from then on.

    Label: eq:compounding-mistakes
    Source: Ross and Bagnell (2010), "Efficient reductions for imitation learning", where such a case shows the bound tight.
    Args: error ε ``(...)``, in [0, 1]; steps T ≥ 1.
    Returns: ``(...)``, between 0 and T.
    Raises: ValueError if an error is outside [0, 1] or steps < 1.
    """
    if steps < 1:
        raise ValueError(f"{steps=}; expected at least 1")
    require_finite(error=error)
    if not bool(((error >= 0) & (error <= 1)).all()):
        raise ValueError(f"error of shape {tuple(error.shape)} holds a value outside [0, 1]")
    t = torch.arange(1, steps + 1, dtype=error.dtype, device=error.device)
    return -torch.expm1(t * torch.log1p(-error)[..., None]).sum(-1)


# -- before language models --------------------------------------------------------------------------------------


def trajectory_preference(rewards_a: Tensor, rewards_b: Tensor) -> Tensor:
    """Probability that trajectory a is preferred to b: Bradley–Terry on the sums of their step rewards, σ(Σ_t a_t − Σ_t b_t).

    Steps are not discounted. With trajectories of one length a constant added to every step's reward cancels.

    Label: eq:trajectory-preference
    Source: Christiano et al. (2017), "Deep reinforcement learning from human preferences", equation 1.
    Args: rewards_a ``(B, T)``; rewards_b ``(B, S)``.
    Returns: ``(B,)``, in [0, 1].
    Raises: ValueError if the batches differ in size or a reward is not finite.
    """
    require_shapes(rewards_a=(rewards_a, "B T"), rewards_b=(rewards_b, "B S"))
    require_finite(rewards_a=rewards_a, rewards_b=rewards_b)
    return bradley_terry(rewards_a.sum(-1), rewards_b.sum(-1))


def coach_update(feedback: Tensor, scores: Tensor) -> Tensor:
    """COACH's step for every judged action, f · ∇log π(a|s): what was approved of becomes more likely.

    If people judge an action by how much better it is than what the learner does anyway, f is an advantage and the expected
    step is the policy gradient.

    Label: eq:coach-update
    Source: MacGlashan et al. (2017), "Interactive learning from policy-dependent human feedback".
    Args: feedback f ``(N,)``; scores ∇log π(a|s) ``(N, D)``.
    Returns: ``(N, D)``, to be multiplied by a learning rate.
    Raises: ValueError if shapes do not match or a value is not finite.
    """
    require_shapes(feedback=(feedback, "N"), scores=(scores, "N D"))
    require_finite(feedback=feedback, scores=scores)
    return feedback[:, None] * scores
