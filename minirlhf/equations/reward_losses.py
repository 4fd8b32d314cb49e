"""Models of preference and the losses that fit a reward model to it.

Rewards are in nats: a difference of 1 between two completions means odds of e to 1. Models of preference take tensors
of any one shape. Every loss is per example ``(B,)``, or per token for the outcome and process models, and is minimised.
The caller reduces over the batch.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, logsigmoid

from minirlhf.core.equation import equation
from minirlhf.core.errors import ArgumentError
from minirlhf.core.masking import zero_where_masked
from minirlhf.core.validate import (
    FINITE,
    MASK,
    NOT_NEGATIVE,
    POSITIVE,
    at_least,
    distribution,
    finite,
    number,
    sampled,
    shape,
    takes,
    under_mask,
)

# -- models of preference ----------------------------------------------------------------------------------------


@takes(rewards_a="...", rewards_b="...")
@equation(
    "eq:bradley-terry",
    source='Bradley and Terry (1952), "Rank analysis of incomplete block designs"; Zermelo (1929).',
)
def bradley_terry(rewards_a: Tensor, rewards_b: Tensor) -> Tensor:
    """Bradley–Terry probability that a is preferred to b: e^a / (e^a + e^b) = σ(a − b)."""
    return torch.sigmoid(rewards_a - rewards_b)


@takes(rewards_a="...", rewards_b="...", std=POSITIVE)
@equation("eq:thurstone", source='Thurstone (1927), "A law of comparative judgment", case V.')
def thurstone(rewards_a: Tensor, rewards_b: Tensor, *, std: float = 1.0) -> Tensor:
    """Thurstone's probability that a is preferred to b: Φ((a − b) / (std √2)).

    Each completion is perceived as its reward plus independent Gaussian noise of this std. Gumbel noise instead
    gives Bradley–Terry.
    """
    return torch.special.ndtr((rewards_a - rewards_b) / (std * math.sqrt(2.0)))


@takes(rewards="... K")
@equation(
    "eq:plackett-luce",
    "eq:plackett-luce-two",
    source='Luce (1959), "Individual choice behavior"; Plackett (1975), "The analysis of permutations".',
)
def plackett_luce_logp(rewards: Tensor) -> Tensor:
    """Plackett–Luce log-probability ``(...)`` of a ranking: Σ_k (r_k − log Σ_{j≥k} e^{r_j}), best completion first.

    A softmax over all completions selects the best one, then a softmax over the rest selects the next one, and so on.
    For K = 2 this is Bradley–Terry, and so is the probability that one of K completions is ranked above another one.
    Minus this log-probability is the listwise loss.
    """
    if rewards.shape[-1] == 0:
        raise ArgumentError(
            f"rewards has shape {tuple(rewards.shape)}; expected (..., K) with K ≥ 1",
            argument="rewards",
            value=tuple(rewards.shape),
            problem="empty",
        )
    remaining = rewards.flip(-1).logcumsumexp(-1).flip(-1)  # (..., K): log Σ over this rank and all ranks below
    return (rewards - remaining).sum(-1)


@takes(order=shape("... K"), dispersion=NOT_NEGATIVE)
@equation("eq:mallows", source='Mallows (1957), "Non-null ranking models. I".')
def mallows_logp(order: Tensor, *, dispersion: float) -> Tensor:
    """Mallows log-probability ``(...)``: −θ d − log Z, d the Kendall distance to the consensus 0, 1, …, K−1.

    d counts the pairs in the wrong order, and Z = Π_{k=1..K} (1 − e^{−kθ}) / (1 − e^{−θ}). θ = 0 is uniform; a
    large dispersion parameter θ means strong agreement. ``order`` holds integers: the completions from best to
    worst, numbered by the consensus ranking. The result is float64.
    """
    size = order.shape[-1]
    if not bool((order.sort(-1).values == torch.arange(size, device=order.device)).all()):
        raise ArgumentError(
            f"order of shape {tuple(order.shape)}; expected (..., K), each row a permutation of 0 … K−1",
            argument="order",
            problem="permutation",
        )
    wrong_order = order.unsqueeze(-1) > order.unsqueeze(-2)  # (..., K, K)
    distance = wrong_order.triu(1).sum((-2, -1)).double()
    k = torch.arange(1, size + 1, dtype=torch.float64, device=order.device)
    factors = k if dispersion == 0 else torch.expm1(-k * dispersion) / math.expm1(-dispersion)
    return -dispersion * distance - factors.log().sum()


@takes(rating_a="...", rating_b="...")
@equation("eq:elo-expected", source='Elo (1978), "The rating of chessplayers, past and present".')
def elo_expected(rating_a: Tensor, rating_b: Tensor) -> Tensor:
    """Elo's expected score of a against b: 1 / (1 + 10^((b − a)/400)); 400 points are odds of ten to one.

    Bradley–Terry with rewards of rating · ln 10 / 400.
    """
    scale = math.log(10.0) / 400.0
    return bradley_terry(scale * rating_a, scale * rating_b)


@takes(rating_a="...", rating_b="...", score=finite("...", "[0, 1]"), k=POSITIVE)
@equation("eq:elo-update", source='Elo (1978), "The rating of chessplayers, past and present".')
def elo_update(rating_a: Tensor, rating_b: Tensor, score: Tensor, *, k: float = 32.0) -> tuple[Tensor, Tensor]:
    """Elo's new ratings of a and b after a game: a gains k (score − expected), and b loses it.

    The score of a is 1 for a win, ½ a tie, 0 a loss. A step of stochastic gradient ascent on the
    Bradley–Terry log-likelihood, of length k · 400/ln 10.
    """
    gain = k * (score - elo_expected(rating_a, rating_b))
    return rating_a + gain, rating_b - gain


# -- losses of a reward model ------------------------------------------------------------------------------------


@takes(chosen="B", rejected="B", margin="B", label_smoothing=number("[0, 0.5]"))
@equation(
    "eq:bradley-terry-loss",
    "eq:margin-loss",
    "eq:reward-shift",
    source='Bradley and Terry (1952), "Rank analysis of incomplete block designs"; as the loss of a reward model '
    'Christiano et al. (2017) and Stiennon et al. (2020); the margin from Touvron et al. (2023), "Llama 2".',
)
def bradley_terry_loss(
    chosen: Tensor, rejected: Tensor, *, margin: Tensor | None = None, label_smoothing: float = 0.0
) -> Tensor:
    """Bradley–Terry loss −log σ(chosen − rejected − margin) = log(1 + exp(rejected − chosen + margin)).

    The loss depends on the difference only: a constant per prompt, added to both rewards, has no effect. The
    margin, usually ≥ 0, requires a larger difference for pairs with more certain annotators. With
    ``label_smoothing`` ε it is the mean of the loss over labels that are wrong with probability ε.
    """
    offset = 0.0 if margin is None else margin
    original, flipped = -logsigmoid(chosen - rejected - offset), -logsigmoid(rejected - chosen - offset)
    return torch.lerp(original, flipped, label_smoothing)


@takes(num_ranked=shape("B"))
@equation(
    "eq:pair-weights",
    source='Ouyang et al. (2022), "Training language models to follow instructions with human feedback", equation 1.',
)
def pair_weights(num_ranked: Tensor) -> Tensor:
    """Weight 1/C(K, 2) of every pair from a ranking of K completions, so that prompts have equal weight.

    Without it, a prompt with 9 ranked completions contributes 36 pairs and one with 4 contributes 6. ``num_ranked``
    holds the integer K ≥ 2 of the prompt that each pair comes from; the weight multiplies its loss.
    """
    if num_ranked.is_floating_point() or not bool((num_ranked >= 2).all()):
        raise ArgumentError(
            f"num_ranked of shape {tuple(num_ranked.shape)}; expected integers ≥ 2", argument="num_ranked", expected=2
        )
    return 2.0 / (num_ranked * (num_ranked - 1))


@takes(rewards="B", labels="B")
@equation(
    "eq:reward-regression",
    source='Gauss (1809), least squares; for reward models from ratings e.g. Wang et al. (2024), "HelpSteer2".',
)
def regression_loss(rewards: Tensor, labels: Tensor) -> Tensor:
    """Squared error (reward − label)² of a reward model fitted to ratings; its minimiser is the mean rating."""
    return (rewards - labels) ** 2


@takes(chosen="B", rejected="B")
@equation(
    "eq:reward-centring",
    source='Eisenstein et al. (2023), "Helping or herding? Reward model ensembles mitigate but do not eliminate '
    'reward hacking".',
)
def centring_penalty(chosen: Tensor, rejected: Tensor) -> Tensor:
    """Penalty (chosen + rejected)², to be added to the Bradley–Terry loss with a small coefficient.

    The loss does not determine a constant per prompt. The penalty sets it, at no cost in likelihood, so that the
    two rewards of a pair are centred at 0.
    """
    return (chosen + rejected) ** 2


@takes(mask=MASK, logits=sampled(gradient=True), labels=finite("B", "[0, 1]"))
@equation("eq:outcome-loss", source='Cobbe et al. (2021), "Training verifiers to solve math word problems".')
def outcome_loss(logits: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    """Outcome reward model: binary cross-entropy ``(B, T)`` of each logit with the completion's label.

    The minimiser at a prefix is the probability that the completion will be correct: its action value.
    A label is 1 for a correct completion; the loss is 0 outside the mask.
    """
    return process_loss(logits, labels.to(logits.dtype).unsqueeze(-1).expand_as(logits), mask)


@takes(mask=MASK, logits=sampled(gradient=True), labels=under_mask(interval="[0, 1]"))
@equation(
    "eq:process-loss",
    source='Lightman et al. (2023), "Let\'s verify step by step"; with labels estimated from completions Wang et '
    'al. (2024), "Math-Shepherd".',
)
def process_loss(logits: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    """Process reward model: cross-entropy ``(B, T)`` at each step's end, ``−y log σ(z) − (1 − y) log(1 − σ(z))``.

    The minimiser at a prefix is the mean label. A label is 1 for a good step and 0 for a bad one. Soft labels in
    between are allowed, such as the fraction of sampled continuations that are correct.

    Args:
        labels: ``(B, T)``, read only at the end of a step.
        mask: 1 on the last token of each labelled step, 0 elsewhere; every row has a step.
    Returns:
        ``(B, T)``, 0 except at the end of a step; its mean over the steps is ``aggregate`` with the weights of this mask.
    """
    loss = binary_cross_entropy_with_logits(logits, labels.to(logits.dtype), reduction="none")
    return zero_where_masked(loss, mask)


# -- inverse RL, calibration and combination of reward models ----------------------------------------------------


@takes(rewards="... N", ref_logps=shape("... N"), demonstrations=distribution("... N"))
@equation("eq:max-entropy-irl", source='Ziebart et al. (2008), "Maximum entropy inverse reinforcement learning".')
def max_entropy_irl_loss(rewards: Tensor, ref_logps: Tensor, demonstrations: Tensor) -> Tensor:
    """Maximum-entropy inverse RL: log Σ_y π_ref e^r − E_demo[r].

    Up to a constant it is the negative log-likelihood of the demonstrations under the optimal policy at β = 1,
    π_ref e^r / Z: log π_ref + r − log Z. The minimiser is r = log(demo/π_ref) + any
    constant.

    Args:
        ref_logps: log-probabilities of all completions under the reference.
        demonstrations: the fraction of demonstrations with each completion.
    Returns: ``(...)``, nats.
    """
    return (ref_logps + rewards).logsumexp(-1) - (demonstrations * rewards).sum(-1)


@torch.no_grad()
@takes(probabilities=finite("N", "[0, 1]"), outcomes=finite("N", "[0, 1]"), num_bins=at_least(1))
@equation(
    "eq:calibration-error",
    source='Guo et al. (2017), "On calibration of modern neural networks", equation 3.',
    gradient=(),
)
def expected_calibration_error(probabilities: Tensor, outcomes: Tensor, *, num_bins: int = 10) -> Tensor:
    """Expected calibration error: Σ_b (n_b/N) |mean outcome − mean probability| over bins of equal width.

    For a reward model the probability is σ(reward difference) for one order of the pair, and the outcome is whether
    the annotator chose the same order. It is 0 if outcomes predicted with 70 % occur in 70 % of cases.

    Returns: a scalar in [0, 1].
    """
    bins = (probabilities * num_bins).long().clamp(max=num_bins - 1)  # (N,)
    gaps = probabilities.new_zeros(num_bins).index_add(0, bins, outcomes.to(probabilities) - probabilities)
    return gaps.abs().sum() / len(probabilities)


@takes(helpful="...", safe="...", threshold=FINITE)
@equation(
    "eq:gated-reward",
    source='Touvron et al. (2023), "Llama 2", section 3.2.3, which also gates all prompts known to be risky.',
)
def gated_reward(helpful: Tensor, safe: Tensor, *, threshold: float) -> Tensor:
    """Two reward models in one: the safety model's reward if it is below the threshold, else the helpfulness model's.

    With a sum, a high helpfulness reward could compensate for a low safety reward. With the gate it cannot.
    """
    return torch.where(safe < threshold, safe, helpful)
