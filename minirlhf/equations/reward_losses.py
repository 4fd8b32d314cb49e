"""Models of preference and the losses that fit a reward model to it.

Rewards are in nats: a difference of 1 between two answers means odds of e to 1. Every loss is per example ``(B,)`` (per
token for the outcome model) and is minimised; reducing over the batch is the caller's.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, logsigmoid

from minirlhf.core.masking import zero_where_masked
from minirlhf.core.validate import (
    require_finite,
    require_finite_where,
    require_mask,
    require_positive,
    require_range,
    require_shapes,
)


def _require_alike(**tensors: Tensor) -> None:
    """All of one shape, whatever it is, and finite."""
    axes = " ".join(f"axis{i}" for i in range(next(iter(tensors.values())).dim()))
    require_shapes(**{name: (x, axes) for name, x in tensors.items()})
    require_finite(**tensors)


# -- models of preference ----------------------------------------------------------------------------------------


def bradley_terry(rewards_a: Tensor, rewards_b: Tensor) -> Tensor:
    """Bradley–Terry probability that a is preferred to b: e^a / (e^a + e^b) = σ(a − b).

    Label: eq:bradley-terry
    Source: Bradley and Terry (1952), "Rank analysis of incomplete block designs"; Zermelo (1929).
    Args: rewards_a, rewards_b: any shape, the same.
    Returns: the same shape, in [0, 1].
    Raises: ValueError if shapes differ or a reward is not finite.
    """
    _require_alike(rewards_a=rewards_a, rewards_b=rewards_b)
    return torch.sigmoid(rewards_a - rewards_b)


def thurstone(rewards_a: Tensor, rewards_b: Tensor, *, std: float = 1.0) -> Tensor:
    """Thurstone's probability that a is preferred to b: Φ((a − b) / (std √2)).

    Each answer is felt as its reward plus Gaussian noise of this std, independent of the other's. Gumbel noise instead
    would give Bradley–Terry.

    Label: eq:thurstone
    Source: Thurstone (1927), "A law of comparative judgment", case V.
    Args: rewards_a, rewards_b: any shape, the same; std > 0 of one answer's noise.
    Returns: the same shape, in [0, 1].
    Raises: ValueError if shapes differ, a reward is not finite, or std is not > 0.
    """
    _require_alike(rewards_a=rewards_a, rewards_b=rewards_b)
    require_positive(std=std)
    return torch.special.ndtr((rewards_a - rewards_b) / (std * math.sqrt(2.0)))


def plackett_luce_logp(rewards: Tensor) -> Tensor:
    """Plackett–Luce log-probability of a ranking: Σ_k (r_k − log Σ_{j≥k} e^{r_j}), best answer first.

    The best is chosen from all by softmax, then the next from the rest, and so on. With two answers this is
    Bradley–Terry, and so is the chance that one of K answers is ranked above another. Its negative is the listwise loss.

    Label: eq:plackett-luce, eq:plackett-luce-two
    Source: Luce (1959), "Individual choice behavior"; Plackett (1975), "The analysis of permutations".
    Args: rewards ``(..., K)`` in the order of the ranking, the winner's first.
    Returns: ``(...)``, nats, ≤ 0.
    Raises: ValueError if there is no axis, or a reward is not finite.
    """
    if rewards.dim() == 0 or rewards.shape[-1] == 0:
        raise ValueError(f"rewards has shape {tuple(rewards.shape)}; expected (..., K) with K ≥ 1")
    require_finite(rewards=rewards)
    remaining = rewards.flip(-1).logcumsumexp(-1).flip(-1)  # (..., K): log Σ over this answer and all ranked below it
    return (rewards - remaining).sum(-1)


def mallows_logp(order: Tensor, *, dispersion: float) -> Tensor:
    """Mallows log-probability of a ranking: −θ d − log Z, d its Kendall distance to the consensus 0, 1, …, K−1.

    d counts the pairs in the wrong order, and Z = Π_{k=1..K} (1 − e^{−kθ}) / (1 − e^{−θ}). θ = 0 is uniform, large θ
    means that everybody agrees.

    Label: eq:mallows
    Source: Mallows (1957), "Non-null ranking models. I".
    Args: order ``(..., K)`` integer, answers from best to worst, numbered by the consensus; dispersion θ ≥ 0.
    Returns: ``(...)``, float64, nats.
    Raises: ValueError if a row is not a permutation of 0 … K−1, or dispersion is negative.
    """
    require_range(0.0, math.inf, dispersion=dispersion)
    if order.dim() == 0 or not bool(
        (order.sort(-1).values == torch.arange(order.shape[-1], device=order.device)).all()
    ):
        raise ValueError(f"order of shape {tuple(order.shape)}; expected (..., K), each row a permutation of 0 … K−1")
    size = order.shape[-1]
    wrong_order = order.unsqueeze(-1) > order.unsqueeze(-2)  # (..., K, K)
    distance = wrong_order.triu(1).sum((-2, -1)).double()
    k = torch.arange(1, size + 1, dtype=torch.float64, device=order.device)
    if dispersion == 0:
        log_z = k.log().sum()
    else:
        log_z = (torch.expm1(-k * dispersion) / math.expm1(-dispersion)).log().sum()
    return -dispersion * distance - log_z


def elo_expected(rating_a: Tensor, rating_b: Tensor) -> Tensor:
    """Elo's expected score of a against b: 1 / (1 + 10^((b − a)/400)); 400 points are odds of ten to one.

    Bradley–Terry with rewards of rating · ln 10 / 400.

    Label: eq:elo-expected
    Source: Elo (1978), "The rating of chessplayers, past and present".
    Args: rating_a, rating_b: any shape, the same.
    Returns: the same shape, in [0, 1].
    Raises: ValueError if shapes differ or a rating is not finite.
    """
    _require_alike(rating_a=rating_a, rating_b=rating_b)
    scale = math.log(10.0) / 400.0
    return bradley_terry(scale * rating_a, scale * rating_b)


def elo_update(rating_a: Tensor, rating_b: Tensor, score: Tensor, *, k: float = 32.0) -> tuple[Tensor, Tensor]:
    """Elo's ratings after a game: a gains k (score − expected), and b loses it.

    A step of stochastic gradient ascent on the Bradley–Terry log-likelihood, of length k · 400/ln 10.

    Label: eq:elo-update
    Source: Elo (1978), "The rating of chessplayers, past and present".
    Args: rating_a, rating_b, score: any shape, the same; score of a: 1 win, ½ tie, 0 loss; k > 0 points.
    Returns: the new ratings of a and of b.
    Raises: ValueError if shapes differ, a value is not finite, a score is outside [0, 1], or k is not > 0.
    """
    require_positive(k=k)
    _require_alike(rating_a=rating_a, rating_b=rating_b, score=score)
    if not bool(((score >= 0) & (score <= 1)).all()):
        raise ValueError(f"score of shape {tuple(score.shape)} holds values outside [0, 1]")
    gain = k * (score - elo_expected(rating_a, rating_b))
    return rating_a + gain, rating_b - gain


# -- losses of a reward model ------------------------------------------------------------------------------------


def bradley_terry_loss(chosen: Tensor, rejected: Tensor, *, margin: Tensor | None = None) -> Tensor:
    """Bradley–Terry loss −log σ(chosen − rejected − margin) = log(1 + exp(rejected − chosen + margin)).

    Only the difference counts: a shift of both rewards, e.g. a constant per prompt, changes nothing. The margin asks
    for a larger difference where the annotators were more certain.

    Label: eq:bradley-terry-loss, eq:margin-loss, eq:reward-shift
    Source: Bradley and Terry (1952), "Rank analysis of incomplete block designs"; as the loss of a reward model
        Christiano et al. (2017) and Stiennon et al. (2020); the margin from Touvron et al. (2023), "Llama 2".
    Args: chosen, rejected, margin ``(B,)``; margin is ≥ 0 by custom.
    Returns: ``(B,)``, nats.
    Raises: ValueError if shapes differ or a value is not finite.
    """
    require_shapes(chosen=(chosen, "B"), rejected=(rejected, "B"))
    require_finite(chosen=chosen, rejected=rejected)
    if margin is None:
        return -logsigmoid(chosen - rejected)
    require_shapes(chosen=(chosen, "B"), margin=(margin, "B"))
    require_finite(margin=margin)
    return -logsigmoid(chosen - rejected - margin)


def pair_weights(num_ranked: Tensor) -> Tensor:
    """Weight 1/C(K, 2) of every pair that comes from a ranking of K answers, so that each prompt counts once.

    Without it a prompt with 9 ranked answers has 36 votes and one with 4 has 6.

    Label: eq:pair-weights
    Source: Ouyang et al. (2022), "Training language models to follow instructions with human feedback", equation 1.
    Args: num_ranked ``(B,)`` integer: K of the prompt that each pair comes from, ≥ 2.
    Returns: ``(B,)`` in the default float type, to multiply the loss of each pair.
    Raises: ValueError if the shape is not ``(B,)`` or a K is below 2.
    """
    require_shapes(num_ranked=(num_ranked, "B"))
    if num_ranked.is_floating_point() or not bool((num_ranked >= 2).all()):
        raise ValueError(f"num_ranked of shape {tuple(num_ranked.shape)}; expected integers ≥ 2")
    return 2.0 / (num_ranked * (num_ranked - 1))


def regression_loss(rewards: Tensor, labels: Tensor) -> Tensor:
    """Squared error (reward − label)² of a reward model fitted to ratings; its minimiser is the mean rating.

    Label: eq:reward-regression
    Source: Gauss (1809), least squares; for reward models from ratings e.g. Wang et al. (2024), "HelpSteer2".
    Args: rewards, labels ``(B,)``.
    Returns: ``(B,)``.
    Raises: ValueError if shapes differ or a value is not finite.
    """
    require_shapes(rewards=(rewards, "B"), labels=(labels, "B"))
    require_finite(rewards=rewards, labels=labels)
    return (rewards - labels) ** 2


def centring_penalty(chosen: Tensor, rejected: Tensor) -> Tensor:
    """Penalty (chosen + rejected)², to be added to the Bradley–Terry loss with a small coefficient.

    The loss leaves a constant per prompt open; the penalty closes it, at no cost in likelihood, so that the two rewards
    of a pair lie around 0.

    Label: eq:reward-centring
    Source: Eisenstein et al. (2023), "Helping or herding? Reward model ensembles mitigate but do not eliminate reward
        hacking".
    Args: chosen, rejected ``(B,)``.
    Returns: ``(B,)``.
    Raises: ValueError if shapes differ or a reward is not finite.
    """
    require_shapes(chosen=(chosen, "B"), rejected=(rejected, "B"))
    require_finite(chosen=chosen, rejected=rejected)
    return (chosen + rejected) ** 2


def outcome_loss(logits: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    """Outcome reward model: binary cross-entropy of every token's logit against the label of the whole response.

    The minimiser at a prefix is the probability that the response ends well from there: its action value.

    Label: eq:outcome-loss
    Source: Cobbe et al. (2021), "Training verifiers to solve math word problems".
    Args: logits, mask ``(B, T)``; labels ``(B,)`` in [0, 1], 1 for a correct response.
    Returns: ``(B, T)``, nats, 0 outside the mask.
    Raises: ValueError if shapes do not fit, a row of the mask is empty, a logit under it is not finite, or a label lies
        outside [0, 1].
    """
    require_mask(mask)
    require_shapes(mask=(mask, "B T"), logits=(logits, "B T"), labels=(labels, "B"))
    require_finite_where(mask, logits=logits)
    if not bool(((labels >= 0) & (labels <= 1)).all()):
        raise ValueError(f"labels of shape {tuple(labels.shape)} holds values outside [0, 1]")
    kept = zero_where_masked(logits, mask)  # before the loss, so that no NaN of the padding reaches a gradient
    targets = labels.to(logits.dtype).unsqueeze(-1).expand_as(logits)  # (B, T)
    return zero_where_masked(binary_cross_entropy_with_logits(kept, targets, reduction="none"), mask)
