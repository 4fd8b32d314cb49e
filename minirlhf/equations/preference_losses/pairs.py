"""DPO and its relatives: losses of the margin ``h = log π(y_w)/π_ref(y_w) − log π(y_l)/π_ref(y_l)``.

The first functions are the displayed steps of DPO's derivation, in order; the rest change what is asked of ``β h``.
All losses take :class:`PairLogps` with a reference, return ``(B,)`` in nats, and are minimised.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from minirlhf.core.validate import require_finite, require_positive, require_range, require_shapes
from minirlhf.equations.preference_losses.records import Needs, PairLogps
from minirlhf.equations.reward_losses import bradley_terry, bradley_terry_loss
from minirlhf.equations.rlhf import implicit_reward

# -- the derivation, step by step --------------------------------------------------------------------------------


def reward_of_optimum(logps: Tensor, ref_logps: Tensor, log_z: Tensor, *, beta: float) -> Tensor:
    """The optimum solved for the reward: ``r = β log(π*/π_ref) + β log Z``. Every reward is its own policy's reward.

    Label: eq:dpo-reparameterisation
    Source: Rafailov et al. (2023), "Direct preference optimization", eq. 5.
    Args: logps of the optimum and ref_logps, one shape; log_z, the log-partition of each prompt, broadcasts against it.
    Returns: the shape of ``logps``, in units of reward.
    Raises: ValueError for other shapes or beta ≤ 0.
    """
    return implicit_reward(logps, ref_logps, beta=beta) + beta * log_z


@Needs(PairLogps, loss=False)
def preference_probability(pair: PairLogps, *, beta: float) -> Tensor:
    """``p(y_w ≻ y_l) = σ(β h)``: both answers share their prompt's ``β log Z``, so it cancels from Bradley–Terry.

    Label: eq:dpo-cancellation, eq:dpo-likelihood
    Source: Rafailov et al. (2023), "Direct preference optimization", eq. 6.
    Args: pair with a reference; beta > 0.
    Returns: ``(B,)``, probabilities.
    Raises: ValueError for beta ≤ 0 or a missing reference.
    """
    require_positive(beta=beta)
    return bradley_terry(beta * pair.chosen_logratios, beta * pair.rejected_logratios)


@Needs(PairLogps)
def dpo(pair: PairLogps, *, beta: float) -> Tensor:
    """DPO ``−log σ(β h)``: the Bradley–Terry loss of the implicit rewards ``β log π/π_ref``. ln 2 where π = π_ref.

    Only the difference is asked for, so the chosen answer may lose probability as long as the rejected one loses more.

    Label: eq:dpo
    Source: Rafailov et al. (2023), "Direct preference optimization", eq. 7.
    Args: pair with a reference; beta > 0.
    Returns: ``(B,)``.
    Raises: ValueError for beta ≤ 0 or a missing reference.
    """
    require_positive(beta=beta)
    return bradley_terry_loss(beta * pair.chosen_logratios, beta * pair.rejected_logratios)


@Needs(PairLogps, loss=False)
def dpo_gradient_weight(pair: PairLogps, *, beta: float) -> Tensor:
    """``β σ(r̂_l − r̂_w)``: how much each pair pushes, ``∇L = −weight · (∇log π(y_w) − ∇log π(y_l))``.

    Large where the implicit rewards have the pair the wrong way round, 0 where they are already sure of it.

    Label: eq:dpo-gradient
    Source: Rafailov et al. (2023), "Direct preference optimization", section 4.
    Args: pair with a reference; beta > 0.
    Returns: ``(B,)``, in (0, β).
    Raises: ValueError for beta ≤ 0 or a missing reference.
    """
    require_positive(beta=beta)
    return beta * torch.sigmoid(-beta * pair.margins)


def dpo_displacement(logps: Tensor, features: Tensor, chosen: int, rejected: int) -> Tensor:
    """Which way the log-probability of *every* answer moves when DPO sees one pair: ``(φ_y − φ̄)·(φ_w − φ_l)``.

    For a policy ``softmax(φ·θ)`` over N answers, per unit of learning rate times :func:`dpo_gradient_weight`. The entry of the
    chosen answer may be negative: where φ_w and φ_l are alike, what is common to them is not reinforced.

    Label: eq:dpo-displacement
    Source: the effect in Razin et al. (2024), "Unintentional unalignment: likelihood displacement in direct preference
        optimization"; this form is one line from the gradient of a softmax.
    Args: logps ``(N,)``; features φ ``(N, D)``; chosen, rejected: rows.
    Returns: ``(N,)``; its mean under the policy is 0.
    Raises: ValueError for other shapes.
    """
    require_shapes(logps=(logps, "N"), features=(features, "N D"))
    centred = features - logps.exp() @ features
    return centred @ (features[chosen] - features[rejected])


# -- per token instead of per answer -----------------------------------------------------------------------------


@Needs(PairLogps, lengths=True)
def dpo_length_normalised(pair: PairLogps, *, beta: float) -> Tensor:
    """DPO on mean instead of summed log-ratios, so that a longer answer has no larger lever. β grows by a length.

    Label: eq:dpo-length-normalised
    Source: Lambert et al. (2024), "Tülu 3", length-normalised DPO.
    Args: pair with a reference and lengths; beta > 0.
    Returns: ``(B,)``.
    Raises: ValueError for beta ≤ 0, a missing reference or missing lengths.
    """
    return dpo(pair.per_token(), beta=beta)


# -- labels that may be wrong ------------------------------------------------------------------------------------


@Needs(PairLogps)
def cdpo(pair: PairLogps, *, beta: float, label_smoothing: float) -> Tensor:
    """Conservative DPO: the cross-entropy with labels that are right with probability 1 − ε. Smallest at ``β h = log((1−ε)/ε)``.

    Label: eq:cdpo
    Source: Mitchell (2023), "A note on DPO with noisy preferences and relationship to IPO".
    Args: pair with a reference; beta > 0; label_smoothing ε in [0, 0.5].
    Returns: ``(B,)``.
    Raises: ValueError for an argument out of range or a missing reference.
    """
    require_range(0.0, 0.5, label_smoothing=label_smoothing)
    return (1 - label_smoothing) * dpo(pair, beta=beta) + label_smoothing * dpo(pair.swapped(), beta=beta)


@Needs(PairLogps)
def robust_dpo(pair: PairLogps, *, beta: float, label_smoothing: float) -> Tensor:
    """Robust DPO: over labels flipped with probability ε its mean is the DPO loss of the clean labels.

    Unbiased, but no longer convex in the margin nor bounded below: the second term is subtracted.

    Label: eq:robust-dpo
    Source: Chowdhury, Kini and Natarajan (2024), "Provably robust DPO: aligning language models with noisy feedback".
    Args: pair with a reference; beta > 0; label_smoothing ε in [0, 0.5).
    Returns: ``(B,)``.
    Raises: ValueError for an argument out of range or a missing reference.
    """
    require_range(0.0, 0.5, label_smoothing=label_smoothing)
    if label_smoothing == 0.5:
        raise ValueError("label_smoothing = 0.5: labels that are flips of a coin say nothing; expected less than 0.5")
    kept, flipped = dpo(pair, beta=beta), dpo(pair.swapped(), beta=beta)
    return ((1 - label_smoothing) * kept - label_smoothing * flipped) / (1 - 2 * label_smoothing)


# -- other demands on the margin ---------------------------------------------------------------------------------


@Needs(PairLogps)
def ipo(pair: PairLogps, *, beta: float, length_normalised: bool = False) -> Tensor:
    """IPO ``(h − 1/(2β))²``: the margin has a target, so deterministic labels do not drive it to infinity.

    The paper's ``h`` is a sum over tokens; its authors' experiments and TRL use means, which is ``length_normalised``.

    Label: eq:ipo
    Source: Azar et al. (2023), "A general theoretical paradigm to understand learning from human preferences", eq. 17
        (their τ is β).
    Args: pair with a reference (and lengths, if length_normalised); beta > 0.
    Returns: ``(B,)``.
    Raises: ValueError for beta ≤ 0, a missing reference or missing lengths.
    """
    require_positive(beta=beta)
    margins = pair.per_token().margins if length_normalised else pair.margins
    return (margins - 1 / (2 * beta)) ** 2


@Needs(PairLogps)
def hinge(pair: PairLogps, *, beta: float) -> Tensor:
    """Hinge ``max(0, 1 − β h)``: DPO's margin as a support-vector machine sees it; no gradient beyond ``h = 1/β``.

    Label: eq:dpo-hinge
    Source: Liu et al. (2024), "Statistical rejection sampling improves preference optimization" (hinge on normalised
        likelihoods, after SLiC).
    Args: pair with a reference; beta > 0.
    Returns: ``(B,)``.
    Raises: ValueError for beta ≤ 0 or a missing reference.
    """
    require_positive(beta=beta)
    return torch.relu(1 - beta * pair.margins)


@Needs(PairLogps)
def dpo_positive(pair: PairLogps, *, beta: float, penalty: float) -> Tensor:
    """DPO-Positive: the margin loses ``penalty · max(0, log π_ref(y_w)/π(y_w))``, so the chosen answer must not sink.

    Label: eq:dpo-positive
    Source: Pal et al. (2024), "Smaug: fixing failure modes of preference optimisation with DPO-Positive", eq. 3.
    Args: pair with a reference; beta > 0; penalty λ ≥ 0 (0 is DPO).
    Returns: ``(B,)``.
    Raises: ValueError for an argument out of range or a missing reference.
    """
    require_positive(beta=beta)
    require_range(0.0, float("inf"), penalty=penalty)
    sunk = torch.relu(-pair.chosen_logratios)
    return -logsigmoid(beta * (pair.margins - penalty * sunk))


@Needs(PairLogps, lengths=True)
def dpo_nll(pair: PairLogps, *, beta: float, nll_weight: float) -> Tensor:
    """DPO plus ``nll_weight`` times the chosen answer's mean negative log-likelihood per token.

    Label: eq:dpo-nll
    Source: Pang et al. (2024), "Iterative reasoning preference optimization".
    Args: pair with a reference and lengths; beta > 0; nll_weight ≥ 0.
    Returns: ``(B,)``.
    Raises: ValueError for an argument out of range, a missing reference or missing lengths.
    """
    require_range(0.0, float("inf"), nll_weight=nll_weight)
    return dpo(pair, beta=beta) - nll_weight * pair.per_token().chosen


# -- preferences with a size -------------------------------------------------------------------------------------


@Needs(PairLogps)
def odpo(pair: PairLogps, offset: Tensor, *, beta: float) -> Tensor:
    """DPO with an offset, ``−log σ(β h − Δ)``: the better the chosen answer is, the larger its margin must be.

    Label: eq:odpo
    Source: Amini, Vieira and Cotterell (2024), "Direct preference optimization with an offset".
    Args: pair with a reference; offset Δ ``(B,)``, e.g. an increasing function of the score difference; beta > 0.
    Returns: ``(B,)``.
    Raises: ValueError for beta ≤ 0, other shapes or a missing reference.
    """
    require_positive(beta=beta)
    return bradley_terry_loss(beta * pair.chosen_logratios, beta * pair.rejected_logratios, margin=offset)


@Needs(PairLogps)
def rpo(pair: PairLogps, reward_margin: Tensor, *, beta: float, eta: float = 1.0) -> Tensor:
    """Reward-aware preference optimisation: the KL from Bernoulli ``σ(η Δr)`` to Bernoulli ``σ(β h)``. Smallest at ``β h = η Δr``.

    Label: eq:rpo
    Source: Adler et al. (2024), "Nemotron-4 340B technical report", reward-aware preference optimization.
    Args: pair with a reference; reward_margin Δr ``(B,)``, chosen minus rejected; beta, eta > 0.
    Returns: ``(B,)``, ≥ 0.
    Raises: ValueError for beta or eta ≤ 0, other shapes or a missing reference.
    """
    require_positive(beta=beta, eta=eta)
    logits, target = beta * pair.margins, eta * _per_pair(pair, reward_margin=reward_margin)
    won = torch.sigmoid(target) * (logsigmoid(target) - logsigmoid(logits))
    lost = torch.sigmoid(-target) * (logsigmoid(-target) - logsigmoid(-logits))
    return won + lost


@Needs(PairLogps)
def rebel(pair: PairLogps, reward_margin: Tensor, *, beta: float) -> Tensor:
    """REBEL ``(β h − Δr)²``: regress the implicit reward difference onto the given one. Zero on ``π ∝ π_ref exp(r/β)``.

    Label: eq:rebel
    Source: Gao et al. (2024), "REBEL: reinforcement learning via regressing relative rewards" (their η is 1/β and
        their reference the policy of the last iteration).
    Args: pair with a reference; reward_margin Δr ``(B,)``, chosen minus rejected; beta > 0.
    Returns: ``(B,)``.
    Raises: ValueError for beta ≤ 0, other shapes or a missing reference.
    """
    require_positive(beta=beta)
    return (beta * pair.margins - _per_pair(pair, reward_margin=reward_margin)) ** 2


def _per_pair(pair: PairLogps, **named: Tensor) -> Tensor:
    """One tensor ``(B,)``, checked against the pairs and without gradient."""
    ((name, tensor),) = named.items()
    require_shapes(chosen=(pair.chosen, "B"), **{name: (tensor, "B")})
    require_finite(**{name: tensor})
    return tensor.detach()
