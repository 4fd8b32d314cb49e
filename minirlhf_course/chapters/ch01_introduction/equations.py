"""The equations that only chapter 1 needs: the signals of post-training side by side.

They compare one demonstration, reward, comparison or judgement. A logit gradient is the direction ``(..., V)`` in which
a gradient step moves the logits z of a choice among V outcomes, which are next tokens or whole completions. It sums
to 0.
"""

from __future__ import annotations

import torch
from torch import Tensor

from minirlhf.core.equation import equation
from minirlhf.core.errors import ArgumentError
from minirlhf.core.validate import at_least, finite, shape, takes
from minirlhf.equations.reward_losses import bradley_terry

# -- logit gradients ---------------------------------------------------------------------------------------------


@takes(logits="... V")
@equation(
    "eq:softmax-derivative",
    source='Bridle (1990), "Probabilistic interpretation of feedforward classification network outputs".',
)
def softmax_derivative(logits: Tensor) -> Tensor:
    """Derivatives of all probabilities in all logits: ∂π(v)/∂z_u = π(v) (1[u = v] − π(u)), at ``[..., v, u]``.

    Every row and every column of the ``(..., V, V)`` result sums to 0.
    """
    probs = logits.softmax(-1)
    return torch.diag_embed(probs) - probs[..., :, None] * probs[..., None, :]


@takes(logits="... V", target=shape("..."))
@equation(
    "eq:imitation-push",
    source='Bridle (1990), "Probabilistic interpretation of feedforward classification network outputs".',
)
def imitation_logit_gradient(logits: Tensor, target: Tensor) -> Tensor:
    """Logit gradient of one demonstration, with the index y as target: ∂ log π(y)/∂z_v = 1[v = y] − π(v).

    The logit of the demonstrated outcome rises; every other logit falls in proportion to its probability, whether good
    or bad. :func:`probability_change` gives the effect on the probabilities.
    """
    if not bool(((target >= 0) & (target < logits.shape[-1])).all()):
        raise ArgumentError(
            f"target of shape {tuple(target.shape)} contains an index outside 0 … {logits.shape[-1] - 1}",
            argument="target",
            expected=(0, logits.shape[-1] - 1),
        )
    demonstrated = torch.nn.functional.one_hot(target, logits.shape[-1]).to(logits.dtype)  # (..., V)
    return demonstrated - logits.softmax(-1)


@takes(logits="... V", rewards="... V")
@equation(
    "eq:reward-push",
    source='Williams (1992), "Simple statistical gradient-following algorithms for connectionist reinforcement '
    'learning".',
)
def reward_logit_gradient(logits: Tensor, rewards: Tensor) -> Tensor:
    """Logit gradient of rewards, ∂ E_π[r]/∂z_v = π(v) (r(v) − E_π[r]).

    Logits of outcomes above the policy's average reward rise, and logits of outcomes below it fall: feedback can be
    negative. The policy learns only from outcomes that it samples: at probability 0 the gradient is 0.
    """
    probs = logits.softmax(-1)
    return probs * (rewards - (probs * rewards).sum(-1, keepdim=True))


@takes(logits="... V", push="... V")
@equation(
    "eq:probability-change",
    source='Ren and Sutherland (2025), "Learning dynamics of LLM finetuning", which builds on this first-order change.',
)
def probability_change(logits: Tensor, push: Tensor, *, learning_rate: float) -> Tensor:
    """Change of the probabilities, to first order in η, if logits move by η g: dπ(v) = η π(v) (g_v − Σ_u π(u) g_u).

    A probability rises if its g_v exceeds the policy's average of g, which is often not 0. So an outcome whose logit
    falls can become more probable. The matrix is the same as in :func:`reward_logit_gradient`, because the derivatives
    are symmetric.
    """
    return learning_rate * reward_logit_gradient(logits, push)


# -- imitation, step by step -------------------------------------------------------------------------------------


@takes(error=finite("...", "[0, 1]"), steps=at_least(1))
@equation(
    "eq:compounding-mistakes",
    source='Ross and Bagnell (2010), "Efficient reductions for imitation learning", where such a case shows the '
    "bound tight.",
)
def compounding_mistakes(error: Tensor, *, steps: int) -> Tensor:
    """Expected errors of a cloned policy that cannot recover from its first: Σ_{t=1..T} [1 − (1−ε)^t], about ε T²/2.

    On the expert's states it errs with probability ε. After an error it is in a state without expert data, and it errs
    at every later step.
    """
    t = torch.arange(1, steps + 1, dtype=error.dtype, device=error.device)
    return -torch.expm1(t * torch.log1p(-error)[..., None]).sum(-1)


# -- before language models --------------------------------------------------------------------------------------


@takes(rewards_a="B T", rewards_b="B S")
@equation(
    "eq:trajectory-preference",
    source='Christiano et al. (2017), "Deep reinforcement learning from human preferences", equation 1.',
)
def trajectory_preference(rewards_a: Tensor, rewards_b: Tensor) -> Tensor:
    """Probability ``(B,)`` that trajectory a is preferred to b: Bradley–Terry on sums, σ(Σ_t a_t − Σ_t b_t).

    Steps are not discounted. With trajectories of one length a constant added to every step's reward cancels.
    """
    return bradley_terry(rewards_a.sum(-1), rewards_b.sum(-1))


@takes(feedback="N", scores="N D")
@equation(
    "eq:coach-update",
    source='MacGlashan et al. (2017), "Interactive learning from policy-dependent human feedback".',
)
def coach_update(feedback: Tensor, scores: Tensor) -> Tensor:
    """COACH's step ``(N, D)`` for every judged action, f · ∇log π(a|s): approved actions become more probable.

    Multiply it by a learning rate. If annotators judge an action relative to the current policy's behaviour, f is an
    advantage, and the expected step is the policy gradient.
    """
    return feedback[:, None] * scores
