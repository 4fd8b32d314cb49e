"""The losses in the form of a blackboard: tensors in, a scalar out.

The trainers call :func:`policy_loss`, :func:`value_loss`, :func:`preference_loss`, :func:`sft_loss` and
:func:`reward_loss`. The other losses are built from these, so the loss that you differentiate by hand is the loss that
training minimises. A policy-gradient loss takes token log-probabilities ``(B, T)`` and the ``mask`` of the tokens that
the policy sampled. A preference loss takes log-probabilities of whole completions, ``(B,)``. The formulas are defined
in :mod:`minirlhf.equations`; here they are averaged over the batch.

======================  ==================================================================================================
policy gradients        :func:`policy_loss`; built from it: :func:`reinforce_loss`, :func:`grpo_loss`,
                        :func:`dr_grpo_loss`, :func:`dapo_loss`, :func:`gspo_loss`, :func:`cispo_loss`;
                        :func:`value_loss`; :func:`ppo_loss`
preferences             :func:`preference_loss`; built from it: :func:`dpo_loss`, :func:`ipo_loss`,
                        :func:`simpo_loss`, :func:`orpo_loss`, :func:`kto_loss`
imitation, rewards      :func:`sft_loss`, :func:`reward_loss`
======================  ==================================================================================================

Gradients flow through log-probabilities of the policy, ``values``, rewards and ``entropies``; old and reference
log-probabilities, advantages, returns and ``reward_loss``'s ``margin`` are constants. Values outside the mask have no effect. A wrong
shape, or a number out of range, raises a ``ValueError`` that names it. The examples below assume ``import torch`` and
``from minirlhf import *``.

A batch that is too large for one forward pass is split, and the losses of its parts are added. In this case, compute
``weights`` from the mask of the whole batch before the split, by :func:`~minirlhf.equations.aggregation.sequence_mean`,
:func:`~minirlhf.equations.aggregation.token_mean` or :func:`~minirlhf.equations.aggregation.fixed_length`. A loss that
averages over examples instead of tokens takes the ``batch_size`` of the whole batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from minirlhf.core.errors import ArgumentError
from minirlhf.core.masking import zero_where_masked
from minirlhf.core.validate import require_range, require_shapes
from minirlhf.equations import preference_losses as preferences
from minirlhf.equations.aggregation import aggregate, fixed_length, sequence_mean, token_mean
from minirlhf.equations.kl import k3
from minirlhf.equations.policy_losses import cispo, gspo, ppo_clip, reinforce
from minirlhf.equations.preference_losses import ListLogps, PairLogps, UnpairedLogps
from minirlhf.equations.reward_losses import bradley_terry_loss, centring_penalty
from minirlhf.equations.value_losses import value_clip

# -- policy gradients --------------------------------------------------------------------------------------------


def policy_loss(
    logps: Tensor,
    old_logps: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    objective: Callable[..., Tensor] = ppo_clip,
    weights: Tensor | None = None,
    ref_logps: Tensor | None = None,
    beta: float = 0.0,
    estimator: Callable[..., Tensor] = k3,
    entropies: Tensor | None = None,
    entropy_coef: float = 0.0,
) -> Tensor:
    """``−Σ w·objective + β Σ w·KL estimate − entropy_coef Σ w·H``: the policy loss of every online algorithm here.

    Args:
        logps: ``(B, T)``, log-probabilities of the sampled tokens under the policy.
        old_logps: ``(B, T)``, log-probabilities of the same tokens under the policy in the ratio's denominator: usually
            the one that sampled them.
        advantages: ``(B, T)``.
        mask: ``(B, T)`` bool, True where the policy sampled the token (its end-of-sequence token included).
        objective: ``(logps, old_logps, advantages, mask) -> (B, T)``, or ``(B, 1)`` per sequence; it is maximised.
        weights: ``(B, T)``, weight of each token; None: the mean over the tokens of each completion, then over
            completions.
        ref_logps: ``(B, T)`` under the reference policy; required if ``beta`` > 0, otherwise ignored.
        beta: coefficient of the KL penalty, ≥ 0; 0: no penalty.
        estimator: ``(logps, ref_logps) -> (B, T)``, KL estimates in nats.
        entropies: ``(B, T)``, entropy in nats of the policy at each token; required if ``entropy_coef`` > 0.
        entropy_coef: coefficient of the entropy bonus, ≥ 0.

    Source: Schulman et al. (2017), "Proximal Policy Optimization Algorithms", eqs. 7 and 9, without the value loss; the KL
        penalty as in Shao et al. (2024), "DeepSeekMath", eq. 3.

    >>> logps = torch.log(torch.tensor([[0.5, 0.25]], dtype=torch.float64)).requires_grad_()
    >>> advantages, mask = torch.ones(1, 2, dtype=torch.float64), torch.ones(1, 2, dtype=torch.bool)
    >>> loss = policy_loss(logps, logps.detach(), advantages, mask)
    >>> round(loss.item(), 3)  # every ratio is 1
    -1.0
    >>> torch.autograd.grad(loss, logps)[0].tolist()  # both tokens become more probable
    [[-0.5, -0.5]]
    """
    if not (beta >= 0 and entropy_coef >= 0):
        require_range(0.0, math.inf, beta=beta, entropy_coef=entropy_coef)
    if (beta and ref_logps is None) or (entropy_coef and entropies is None):
        missing = ("ref_logps", "beta") if beta and ref_logps is None else ("entropies", "entropy_coef")
        raise ArgumentError(
            "{} is None, but {} is not 0".format(*missing), argument=missing[0], expected=missing[1], problem="missing"
        )
    weights = sequence_mean(mask) if weights is None else weights  # (B, T)
    loss = -aggregate(objective(logps, old_logps, advantages, mask), weights, mask)
    if beta and ref_logps is not None:
        estimate = estimator(zero_where_masked(logps, mask), zero_where_masked(ref_logps.detach(), mask))  # (B, T)
        loss = loss + beta * aggregate(estimate, weights, mask)
    if entropy_coef and entropies is not None:
        require_shapes(mask=(mask, "B T"), entropies=(entropies, "B T"))
        loss = loss - entropy_coef * aggregate(entropies, weights, mask)
    return loss


def reinforce_loss(logps: Tensor, advantages: Tensor, mask: Tensor, *, weights: Tensor | None = None) -> Tensor:
    """``−mean(A log π)``. Its negative gradient estimates the policy gradient, up to the scale that the mean sets.

    Args:
        logps, advantages, mask: ``(B, T)``, as for :func:`policy_loss`.
        weights: ``(B, T)``; None: the mean over all tokens of the batch. The paper has a sum over each episode
            (:func:`~minirlhf.equations.aggregation.sequence_sum`).

    Source: Williams (1992), "Simple statistical gradient-following algorithms for connectionist reinforcement learning".

    >>> logps, mask = torch.tensor([[-1.0, -3.0]]), torch.tensor([[True, True]])
    >>> reinforce_loss(logps, torch.tensor([[1.0, -1.0]]), mask).item()
    -1.0
    """
    weights = token_mean(mask) if weights is None else weights
    return policy_loss(logps, logps.detach(), advantages, mask, objective=reinforce, weights=weights)


def grpo_loss(
    logps: Tensor,
    old_logps: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    epsilon: float = 0.2,
    epsilon_high: float | None = None,
    ref_logps: Tensor | None = None,
    beta: float = 0.0,
    weights: Tensor | None = None,
) -> Tensor:
    """GRPO: PPO's clipped objective, averaged over the tokens of each completion, then over completions, plus ``β·k3``.

    Args:
        logps, old_logps, advantages, mask: ``(B, T)``, as for :func:`policy_loss`. GRPO's advantage is the reward's z-score
            within its group, :func:`~minirlhf.equations.advantages.group_zscore`.
        epsilon, epsilon_high: lower and upper clip range of the ratio, > 0; ``epsilon_high`` None: ``epsilon``.
        ref_logps: ``(B, T)`` under the reference policy; required if ``beta`` > 0.
        beta: coefficient of the KL penalty, ≥ 0; 0.04 in the paper.
        weights: ``(B, T)``, one weight per token; None: computed from ``mask``. For a part of a split batch pass the
            rows of the whole batch's weights.

    Source: Shao et al. (2024), "DeepSeekMath: Pushing the Limits of Mathematical Reasoning in Open Language Models", eqs. 3
        and 4.

    >>> logps, mask = torch.tensor([[-1.0, -1.0], [-2.0, 0.0]]), torch.tensor([[True, True], [True, False]])
    >>> advantages = torch.tensor([[1.0, 1.0], [-1.0, 0.0]])
    >>> round(grpo_loss(logps, logps - 1.0, advantages, mask).item(), 4)  # (e - 1.2) / 2: only the first is clipped
    0.7591
    >>> round(grpo_loss(logps, logps, advantages, mask, ref_logps=logps - 0.1, beta=1.0).item(), 4)  # e^-0.1 - 1 + 0.1
    0.0048
    """
    clipped = partial(ppo_clip, epsilon=epsilon, epsilon_high=epsilon_high)
    return policy_loss(
        logps, old_logps, advantages, mask, objective=clipped, weights=weights, ref_logps=ref_logps, beta=beta
    )


def dr_grpo_loss(
    logps: Tensor,
    old_logps: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    max_completion_length: int,
    epsilon: float = 0.2,
    epsilon_high: float | None = None,
    weights: Tensor | None = None,
) -> Tensor:
    """Dr. GRPO: the sum over tokens, divided by a constant, so that tokens of long completions do not count less.

    Args:
        logps, old_logps, advantages, mask: ``(B, T)``, as for :func:`policy_loss`. Dr. GRPO's advantage is the reward
            minus the mean of its group, :func:`~minirlhf.equations.advantages.group_center`.
        max_completion_length: the constant: the maximum number of tokens of a completion, ≥ 1.
        epsilon, epsilon_high: as for :func:`grpo_loss`.
        weights: ``(B, T)``, one weight per token; None: computed from ``mask``. For a part of a split batch pass the
            rows of the whole batch's weights.

    Source: Liu et al. (2025), "Understanding R1-Zero-Like Training: A Critical Perspective".

    >>> logps, mask = torch.tensor([[-1.0, -1.0]]), torch.tensor([[True, True]])
    >>> dr_grpo_loss(logps, logps, torch.ones(1, 2), mask, max_completion_length=8).item()
    -0.25
    """
    of_this_batch = fixed_length(mask, max_completion_length=max_completion_length)  # validates the length in any case
    weights = of_this_batch if weights is None else weights
    return grpo_loss(logps, old_logps, advantages, mask, epsilon=epsilon, epsilon_high=epsilon_high, weights=weights)


def dapo_loss(
    logps: Tensor,
    old_logps: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    epsilon: float = 0.2,
    epsilon_high: float = 0.28,
    weights: Tensor | None = None,
) -> Tensor:
    """DAPO: the mean over all tokens of the batch, a wider upper clip, no KL penalty.

    Args:
        logps, old_logps, advantages, mask: ``(B, T)``, as for :func:`grpo_loss`.
        epsilon, epsilon_high: clip range of the ratio, > 0.
        weights: ``(B, T)``, one weight per token; None: computed from ``mask``. For a part of a split batch pass the
            rows of the whole batch's weights.

    Source: Yu et al. (2025), "DAPO: An Open-Source LLM Reinforcement Learning System at Scale", eq. 8. Dynamic sampling and
        the soft punishment of length concern rewards and are part of the recipe, not of the loss.

    >>> logps, mask = torch.tensor([[-1.0, -1.0], [-2.0, 0.0]]), torch.tensor([[True, True], [True, False]])
    >>> round(dapo_loss(logps, logps - 1.0, torch.ones(2, 2), mask).item(), 4)  # every ratio is e, clipped at 1.28
    -1.28
    """
    weights = token_mean(mask) if weights is None else weights
    return grpo_loss(logps, old_logps, advantages, mask, epsilon=epsilon, epsilon_high=epsilon_high, weights=weights)


def gspo_loss(
    logps: Tensor,
    old_logps: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    epsilon: float = 3e-4,
    epsilon_high: float | None = 4e-4,
    weights: Tensor | None = None,
) -> Tensor:
    """GSPO: one ratio per completion, the geometric mean of the ratios of its tokens, clipped as a whole.

    Args:
        logps, old_logps, mask: ``(B, T)``, as for :func:`policy_loss`.
        advantages: ``(B, T)``, the same for all tokens of a completion.
        epsilon, epsilon_high: clip range of the sequence ratio, > 0.
        weights: ``(B, T)``, one weight per token; None: computed from ``mask``. For a part of a split batch pass the
            rows of the whole batch's weights.

    Source: Zheng et al. (2025), "Group Sequence Policy Optimization", eq. 5.

    >>> logps, mask = torch.tensor([[-1.0, -1.0]]), torch.tensor([[True, True]])
    >>> old_logps = logps - torch.tensor([[0.1, -0.1]])  # the ratios of the tokens cancel
    >>> round(gspo_loss(logps, old_logps, torch.ones(1, 2), mask).item(), 6)
    -1.0
    """
    clipped = partial(gspo, epsilon=epsilon, epsilon_high=epsilon_high)
    return policy_loss(logps, old_logps, advantages, mask, objective=clipped, weights=weights)


def cispo_loss(
    logps: Tensor,
    old_logps: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    epsilon: float | None = None,
    epsilon_high: float = 4.0,
    weights: Tensor | None = None,
) -> Tensor:
    """CISPO: REINFORCE with clipped importance weights, so that every token keeps its gradient.

    Args:
        logps, old_logps, advantages, mask: ``(B, T)``, as for :func:`policy_loss`.
        epsilon: lower clip range; None, as in the paper's experiments: no lower bound.
        epsilon_high: a weight is at most ``1 + epsilon_high`` (TRL's option of this name is the bound itself). The
            paper does not give its bound; 5 is the bound of Khatri et al. (2025), "The Art of Scaling Reinforcement
            Learning Compute for LLMs".
        weights: ``(B, T)``, one weight per token; None: the mean over all tokens of ``mask``. For a part of a split batch
            pass the rows of the whole batch's weights.

    Source: MiniMax (2025), "MiniMax-M1: Scaling Test-Time Compute Efficiently with Lightning Attention", eqs. 4
        and 5.

    >>> logps, mask = torch.tensor([[-1.0, -1.0]]), torch.tensor([[True, True]])
    >>> cispo_loss(logps, logps - 3.0, torch.ones(1, 2), mask).item()  # e^3 is cut to 5
    5.0
    """
    weights = token_mean(mask) if weights is None else weights
    clipped = partial(cispo, epsilon=epsilon, epsilon_high=epsilon_high)
    return policy_loss(logps, old_logps, advantages, mask, objective=clipped, weights=weights)


def value_loss(
    values: Tensor,
    old_values: Tensor,
    returns: Tensor,
    mask: Tensor,
    *,
    error: Callable[..., Tensor] = value_clip,
    weights: Tensor | None = None,
) -> Tensor:
    """The critic's loss: half the squared error of its predictions, clipped.

    Args:
        values: ``(B, T)``, the critic's predictions before each token; the only input with a gradient.
        old_values: ``(B, T)``, the critic's predictions when the tokens were sampled.
        returns: ``(B, T)``, the targets of the predictions.
        mask: ``(B, T)`` bool.
        error: ``(values, old_values, returns, mask) -> (B, T)``.
        weights: ``(B, T)``; None: the mean over all tokens of the batch.

    Source: OpenAI's implementation of PPO (baselines), which most others follow. Schulman et al. (2017), "Proximal Policy
        Optimization Algorithms", have the plain squared error, without the half and without the clip.

    >>> values, mask = torch.tensor([[0.0, 1.0]]), torch.tensor([[True, True]])
    >>> value_loss(values, values, torch.ones(1, 2), mask).item()
    0.25
    """
    weights = token_mean(mask) if weights is None else weights
    return aggregate(error(values, old_values, returns, mask), weights, mask)


def ppo_loss(
    logps: Tensor,
    old_logps: Tensor,
    advantages: Tensor,
    values: Tensor,
    old_values: Tensor,
    returns: Tensor,
    mask: Tensor,
    *,
    epsilon: float = 0.2,
    cliprange_value: float = 0.2,
    vf_coef: float = 0.5,
    weights: Tensor | None = None,
) -> Tensor:
    """PPO: the clipped objective and ``vf_coef`` times the critic's clipped loss, both averaged over the tokens of the batch.

    Args:
        logps, old_logps, advantages, mask: ``(B, T)``, as for :func:`policy_loss`. PPO's advantage is
            :func:`~minirlhf.equations.returns.gae`.
        values, old_values, returns: ``(B, T)``, as for :func:`value_loss`.
        epsilon: clip range of the ratio, > 0.
        cliprange_value: clip range of the values around ``old_values``, > 0.
        vf_coef: weight of the critic's loss, ≥ 0. That loss contains a factor ½, so the paper's c₁ is ``vf_coef / 2``.
        weights: ``(B, T)``, one weight per token; None: computed from ``mask``. For a part of a split batch pass the
            rows of the whole batch's weights.

    Source: Schulman et al. (2017), "Proximal Policy Optimization Algorithms", eq. 9, without the entropy bonus, and with the
        value loss of :func:`value_loss`.

    >>> logps, values, mask = torch.tensor([[-1.0, -1.0]]), torch.zeros(1, 2), torch.tensor([[True, True]])
    >>> ppo_loss(logps, logps, torch.ones(1, 2), values, values, torch.ones(1, 2), mask).item()  # -1 + 0.5 * 0.5
    -0.75
    """
    require_range(0.0, math.inf, vf_coef=vf_coef)
    weights = token_mean(mask) if weights is None else weights
    clipped, error = partial(ppo_clip, epsilon=epsilon), partial(value_clip, cliprange_value=cliprange_value)
    policy = policy_loss(logps, old_logps, advantages, mask, objective=clipped, weights=weights)
    return policy + vf_coef * value_loss(values, old_values, returns, mask, error=error, weights=weights)


# -- preferences -------------------------------------------------------------------------------------------------


def preference_loss(
    loss: Callable[..., Tensor],
    record: PairLogps | UnpairedLogps | ListLogps,
    *context: Tensor,
    batch_size: int | None = None,
    **numbers: Any,
) -> Tensor:
    """Return the mean over the examples of any loss of :mod:`minirlhf.equations.preference_losses`.

    Args:
        loss: ``(record, *context, **numbers) -> (B,)``.
        record: log-probabilities of whole completions, in the record type that the loss takes.
        context: quantities of the whole batch that the loss takes, such as KTO's reference point.
        batch_size: number of examples in the whole batch, if it was split; None: the number in this record.
        numbers: hyperparameters of the loss, by name.

    >>> from minirlhf.equations.preference_losses import PairLogps, hinge
    >>> pair = PairLogps(*(torch.tensor([x]) for x in (-1.0, -3.0, -2.0, -2.0)))
    >>> round(preference_loss(hinge, pair, beta=0.1).item(), 4)  # 1 - 0.1 * 2
    0.8
    """
    losses, count = loss(record, *context, **numbers), len(next(iter(vars(record).values())))
    if not isinstance(losses, Tensor) or losses.shape != (count,):
        returned = f"shape {tuple(losses.shape)}" if isinstance(losses, Tensor) else f"{losses!r}"
        hint = ": leave out .mean() or .sum()" if isinstance(losses, Tensor) and not losses.dim() else ""
        raise ArgumentError(
            f"the loss returned {returned} for {count} examples; expected ({count},), one value per example{hint}",
            argument="loss",
            value=tuple(losses.shape) if isinstance(losses, Tensor) else losses,
            expected=(count,),
            problem="shape",
        )
    return mean_loss(losses, batch_size=batch_size)


def dpo_loss(
    chosen_logps: Tensor,
    rejected_logps: Tensor,
    ref_chosen_logps: Tensor,
    ref_rejected_logps: Tensor,
    *,
    beta: float = 0.1,
    batch_size: int | None = None,
) -> Tensor:
    """DPO: ``−log σ(β (log-ratio of the chosen − log-ratio of the rejected completion))``; ln 2 where policy and reference agree.

    Args:
        chosen_logps, rejected_logps: ``(B,)``, sums over the tokens of each completion, under the policy.
        ref_chosen_logps, ref_rejected_logps: ``(B,)``, the same sums under the reference policy.
        beta: > 0; a larger value keeps the policy closer to the reference.
        batch_size: number of pairs in the whole batch, if it was split; None: the number given.

    Source: Rafailov et al. (2023), "Direct Preference Optimization: Your Language Model is Secretly a Reward Model", eq. 7.

    >>> logps = torch.tensor([-4.0, -9.0])
    >>> round(dpo_loss(logps, logps, logps, logps).item(), 4)
    0.6931
    """
    pair = PairLogps(chosen_logps, rejected_logps, ref_chosen_logps, ref_rejected_logps)
    return preference_loss(preferences.dpo, pair, batch_size=batch_size, beta=beta)


def ipo_loss(
    chosen_logps: Tensor,
    rejected_logps: Tensor,
    ref_chosen_logps: Tensor,
    ref_rejected_logps: Tensor,
    *,
    beta: float = 0.1,
    batch_size: int | None = None,
) -> Tensor:
    """IPO: ``(h − 1/(2β))²`` for the difference ``h`` of the two log-ratios; the target of ``h`` is always finite.

    Args:
        chosen_logps, rejected_logps, ref_chosen_logps, ref_rejected_logps: ``(B,)``, as for :func:`dpo_loss`. The paper's
            ``h`` is a difference of sums over tokens; for means, divide all four by the lengths of their completions.
        beta: the paper's τ, > 0.
        batch_size: number of pairs in the whole batch, if it was split; None: the number given.

    Source: Azar et al. (2023), "A General Theoretical Paradigm to Understand Learning from Human Preferences", eq. 17.

    >>> logps = torch.tensor([-4.0, -9.0])
    >>> round(ipo_loss(logps, logps, logps, logps, beta=0.5).item(), 4)
    1.0
    """
    pair = PairLogps(chosen_logps, rejected_logps, ref_chosen_logps, ref_rejected_logps)
    return preference_loss(preferences.ipo, pair, batch_size=batch_size, beta=beta)


def simpo_loss(
    chosen_logps: Tensor,
    rejected_logps: Tensor,
    chosen_lengths: Tensor,
    rejected_lengths: Tensor,
    *,
    beta: float = 2.0,
    gamma: float = 1.0,
    batch_size: int | None = None,
) -> Tensor:
    """SimPO: DPO with the mean log-probability per token as the reward, a margin ``γ``, and no reference.

    Args:
        chosen_logps, rejected_logps: ``(B,)``, sums over the tokens of each completion, under the policy.
        chosen_lengths, rejected_lengths: ``(B,)``, number of tokens of each completion, ≥ 1.
        beta: > 0.
        gamma: the margin γ itself, ≥ 0, not the ratio γ/β.
        batch_size: number of pairs in the whole batch, if it was split; None: the number given.

    Source: Meng, Xia and Chen (2024), "SimPO: Simple Preference Optimization with a Reference-Free Reward", eq. 6.

    >>> logps, lengths = torch.tensor([-4.0]), torch.tensor([4])
    >>> round(simpo_loss(logps, 2 * logps, lengths, 2 * lengths, beta=2.0, gamma=0.0).item(), 4)  # both -1 per token
    0.6931
    """
    pair = PairLogps(chosen_logps, rejected_logps, chosen_lengths=chosen_lengths, rejected_lengths=rejected_lengths)
    return preference_loss(preferences.simpo, pair, batch_size=batch_size, beta=beta, gamma=gamma)


def orpo_loss(
    chosen_logps: Tensor,
    rejected_logps: Tensor,
    chosen_lengths: Tensor,
    rejected_lengths: Tensor,
    *,
    beta: float = 0.1,
    batch_size: int | None = None,
) -> Tensor:
    """ORPO: the chosen completion's mean negative log-likelihood plus ``β`` times the loss of the log odds ratio.

    Args:
        chosen_logps, rejected_logps, chosen_lengths, rejected_lengths: ``(B,)``, as for :func:`simpo_loss`.
        beta: the paper's λ, > 0.
        batch_size: number of pairs in the whole batch, if it was split; None: the number given.

    Source: Hong, Lee and Thorne (2024), "ORPO: Monolithic Preference Optimization without Reference Model", eqs. 6 and 7.

    >>> logps, lengths = torch.tensor([-4.0]), torch.tensor([4])
    >>> round(orpo_loss(logps, logps, lengths, lengths, beta=0.1).item(), 4)  # 1 + 0.1 ln 2
    1.0693
    """
    pair = PairLogps(chosen_logps, rejected_logps, chosen_lengths=chosen_lengths, rejected_lengths=rejected_lengths)
    return preference_loss(preferences.orpo, pair, batch_size=batch_size, beta=beta)


def kto_loss(
    logps: Tensor,
    ref_logps: Tensor,
    desirable: Tensor,
    reference_point: Tensor | float,
    *,
    beta: float = 0.1,
    desirable_weight: float = 1.0,
    undesirable_weight: float = 1.0,
    batch_size: int | None = None,
) -> Tensor:
    """KTO: a loss on single completions, with thumbs up or down, by a value function that saturates on both sides.

    Args:
        logps, ref_logps: ``(B,)``, sums over the tokens of each completion, under the policy and the reference policy.
        desirable: ``(B,)`` bool, True for a thumb up.
        reference_point: a number or 0-d tensor, an estimate of KL(π‖π_ref) ≥ 0 over the whole batch,
            :func:`~minirlhf.equations.preference_losses.kto_reference_point`; no gradient.
        beta: > 0.
        desirable_weight, undesirable_weight: weights of the two kinds of examples, > 0.
        batch_size: number of examples in the whole batch, if it was split; None: the number given.

    Source: Ethayarajh et al. (2024), "KTO: Model Alignment as Prospect Theoretic Optimization", eq. 8.

    >>> logps, desirable = torch.tensor([-4.0, -9.0]), torch.tensor([True, False])
    >>> kto_loss(logps, logps, desirable, 0.0).item()
    0.5
    """
    return preference_loss(
        preferences.kto,
        UnpairedLogps(logps, ref_logps, None, desirable),
        torch.as_tensor(reference_point, dtype=logps.dtype, device=logps.device),
        batch_size=batch_size,
        beta=beta,
        desirable_weight=desirable_weight,
        undesirable_weight=undesirable_weight,
    )


# -- imitation, rewards ------------------------------------------------------------------------------------------


def sft_loss(logps: Tensor, mask: Tensor, *, weights: Tensor | None = None) -> Tensor:
    """Supervised fine-tuning: the mean negative log-likelihood of the tokens in the mask, in nats per token.

    Args:
        logps: ``(B, T)``, log-probabilities of the data's tokens under the policy, by
            :func:`~minirlhf.core.logprobs.token_logps` of its logits. The first token of ``input_ids`` has none, and
            the mask leaves it out too.
        mask: ``(B, T)`` bool, True on the tokens to imitate.
        weights: ``(B, T)``; None: the mean over all tokens in the mask.

    >>> sft_loss(torch.tensor([[-1.0, -3.0, -8.0]]), torch.tensor([[True, True, False]])).item()
    2.0
    """
    weights = token_mean(mask) if weights is None else weights
    return -aggregate(logps, weights, mask)


def reward_loss(
    chosen_rewards: Tensor,
    rejected_rewards: Tensor,
    *,
    margin: Tensor | None = None,
    label_smoothing: float = 0.0,
    center_rewards_coefficient: float = 0.0,
    weights: Tensor | None = None,
    batch_size: int | None = None,
) -> Tensor:
    """A reward model's loss on comparisons: ``−log σ(r_chosen − r_rejected − margin)``, after Bradley and Terry.

    Args:
        chosen_rewards, rejected_rewards: ``(B,)``, nats.
        margin: ``(B,)``, required lead of the chosen reward in each pair; None: 0.
        label_smoothing: assumed probability that a label is wrong, at most 0.5.
        center_rewards_coefficient: weight of ``(r_chosen + r_rejected)²``, which centres the rewards, ≥ 0.
        weights: ``(B,)``, factors on the losses of the pairs, 1 on average; None: 1.
        batch_size: number of pairs in the whole batch, if it was split; None: the number given.

    Source: Ouyang et al. (2022), "Training language models to follow instructions with human feedback", eq. 1; the margin
        from Touvron et al. (2023), "Llama 2"; the penalty from Eisenstein et al. (2023), "Helping or herding?".

    >>> round(reward_loss(torch.tensor([1.0]), torch.tensor([1.0])).item(), 4)  # ln 2
    0.6931
    """
    require_range(0.0, math.inf, center_rewards_coefficient=center_rewards_coefficient)
    margin = None if margin is None else margin.detach()
    loss = bradley_terry_loss(chosen_rewards, rejected_rewards, margin=margin, label_smoothing=label_smoothing)
    if center_rewards_coefficient:
        loss = loss + center_rewards_coefficient * centring_penalty(chosen_rewards, rejected_rewards)
    return mean_loss(loss, weights=weights, batch_size=batch_size)


def mean_loss(losses: Tensor, *, weights: Tensor | None = None, batch_size: int | None = None) -> Tensor:
    """Return the mean over examples, ``Σ weights · losses / batch_size``; over the parts of a split batch it adds up.

    Args:
        losses: ``(B,)``.
        weights: ``(B,)``, factors that are 1 on average; None: 1.
        batch_size: number of examples in the whole batch, if it was split; None: B.

    >>> mean_loss(torch.tensor([1.0, 2.0])).item()
    1.5
    """
    if losses.dim() != 1:
        raise ArgumentError(
            f"losses has shape {tuple(losses.shape)}; expected (B,), one loss per example",
            argument="losses",
            value=tuple(losses.shape),
            expected="(B,)",
            problem="shape",
        )
    if weights is not None:
        require_shapes(losses=(losses, "B"), weights=(weights, "B"))
        losses = losses * weights
    return losses.sum() / (len(losses) if batch_size is None else batch_size)
