"""DPO and its relatives: losses of the margin ``h = log π(y_w)/π_ref(y_w) − log π(y_l)/π_ref(y_l)``.

The first functions are the steps of DPO's derivation, in order. The other losses change the function of ``β h``.
All losses take :class:`PairLogps` with a reference, return ``(B,)`` in nats, and are minimised.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from minirlhf.core.equation import equation
from minirlhf.core.masking import masked_mean, masked_sum
from minirlhf.core.validate import NOT_NEGATIVE, POSITIVE, number, require_finite, require_shapes, shape, takes
from minirlhf.equations.preference_losses.records import Needs, PairLogps
from minirlhf.equations.reward_losses import bradley_terry, bradley_terry_loss
from minirlhf.equations.rlhf import implicit_reward

_scaled = takes(beta=POSITIVE)

# -- the derivation, step by step --------------------------------------------------------------------------------


@equation("eq:dpo-reparameterisation", source='Rafailov et al. (2023), "Direct preference optimization", eq. 5.')
def reward_of_optimum(logps: Tensor, ref_logps: Tensor, log_z: Tensor, *, beta: float) -> Tensor:
    """The optimum solved for the reward: ``r = β log(π*/π_ref) + β log Z``. Up to a constant per
    prompt, every reward is the implicit reward of its own optimal policy.

    ``log_z``, the log-partition of each prompt, broadcasts against ``logps`` and ``ref_logps``, which have the same
    shape.
    """
    return implicit_reward(logps, ref_logps, beta=beta) + beta * log_z


@Needs(PairLogps, loss=False)
@_scaled
@equation(
    "eq:dpo-cancellation",
    "eq:dpo-likelihood",
    source='Rafailov et al. (2023), "Direct preference optimization", eq. 6.',
)
def preference_probability(pair: PairLogps, *, beta: float) -> Tensor:
    """``p(y_w ≻ y_l) = σ(β h)``: the completions share their prompt's ``β log Z``, which cancels in Bradley–Terry."""
    return bradley_terry(beta * pair.chosen_logratios, beta * pair.rejected_logratios)


@Needs(PairLogps)
@_scaled
@equation("eq:dpo", "eq:spin", source='Rafailov et al. (2023), "Direct preference optimization", eq. 7.')
def dpo(pair: PairLogps, *, beta: float) -> Tensor:
    """DPO ``−log σ(β h)``: the Bradley–Terry loss of the implicit rewards ``β log π/π_ref``. ln 2 if π = π_ref.

    The loss depends on the difference only, so the chosen completion may lose probability as long as the rejected one
    loses more. With demonstrations as chosen and samples of the reference, the policy at the start of the round, as
    rejected completions it is a round of SPIN (Chen et al. 2024, "Self-play fine-tuning").
    """
    return bradley_terry_loss(beta * pair.chosen_logratios, beta * pair.rejected_logratios)


@Needs(PairLogps, loss=False)
@_scaled
@equation("eq:dpo-gradient", source='Rafailov et al. (2023), "Direct preference optimization", section 4.')
def dpo_gradient_weight(pair: PairLogps, *, beta: float) -> Tensor:
    """``β σ(r̂_l − r̂_w)``: the weight of each pair in the gradient, ``∇L = −weight · (∇log π(y_w) − ∇log π(y_l))``.

    It is above β/2 if the implicit rewards rank the pair wrongly. It approaches β or 0 if they rank it wrongly or
    correctly by a large margin.
    """
    return beta * torch.sigmoid(-beta * pair.margins)


@takes(logps=shape("N"), features=shape("N D"))
@equation(
    "eq:dpo-displacement",
    source='the effect in Razin et al. (2024), "Unintentional unalignment: likelihood displacement in direct '
    'preference optimization"; this form is one line from the gradient of a softmax.',
)
def dpo_displacement(logps: Tensor, features: Tensor, chosen: int, rejected: int) -> Tensor:
    """Change of *every* completion's log-probability ``(N,)`` in a DPO step on one pair: ``(φ_y − φ̄)·(φ_w − φ_l)``.

    The policy is ``softmax(φ·θ)`` over N completions; ``chosen`` and ``rejected`` are the indices of the pair. The
    change is per unit of learning rate times :func:`dpo_gradient_weight`, and its mean under the policy is 0. The entry
    of the chosen completion may be negative: DPO does not reinforce features that φ_w and φ_l share.
    """
    centred = features - logps.exp() @ features
    return centred @ (features[chosen] - features[rejected])


@equation(
    "eq:ches",
    source='Razin et al. (2025), "Unintentional unalignment: likelihood displacement in direct preference '
    'optimization", the centered hidden embedding similarity; the normalised form is the one that they '
    "filter by.",
)
def ches(
    chosen: Tensor,
    chosen_mask: Tensor,
    rejected: Tensor,
    rejected_mask: Tensor,
    *,
    length_normalised: bool = False,
) -> Tensor:
    """CHES of each pair ``(B,)``: ``⟨Σ h_w, Σ h_l⟩ − ‖Σ h_w‖²``; a risk score for likelihood displacement.

    The chosen completion tends to lose probability in training on pairs with a high CHES.

    Args:
        chosen, rejected: last hidden states ``(B, T, D)``; the two T may differ. The state at a token is the one that
            predicts it: for the first token it is the state at the prompt's end.
        chosen_mask, rejected_mask: ``(B, T)``, True on the completion's tokens, EOS included.
        length_normalised: means over the tokens in place of the sums.
    """
    require_shapes(
        chosen=(chosen, "B T D"),
        chosen_mask=(chosen_mask, "B T"),
        rejected=(rejected, "B S D"),
        rejected_mask=(rejected_mask, "B S"),
    )
    total = masked_mean if length_normalised else masked_sum
    w, l = (total(h, m[..., None].expand_as(h), 1) for h, m in ((chosen, chosen_mask), (rejected, rejected_mask)))
    return (w * l).sum(-1) - w.square().sum(-1)


# -- per token instead of per completion -------------------------------------------------------------------------


@Needs(PairLogps, lengths=True, per_token=True)
@equation("eq:dpo-length-normalised", source='Lambert et al. (2024), "Tülu 3", length-normalised DPO.')
def dpo_length_normalised(pair: PairLogps, *, beta: float) -> Tensor:
    """DPO on mean instead of summed log-ratios, so margins do not grow with length. Scale β up by a typical length."""
    return dpo(pair.per_token(), beta=beta)


# -- label noise -------------------------------------------------------------------------------------------------


@Needs(PairLogps)
@takes(label_smoothing=number("[0, 0.5]"))
@equation("eq:cdpo", source='Mitchell (2023), "A note on DPO with noisy preferences and relationship to IPO".')
def cdpo(pair: PairLogps, *, beta: float, label_smoothing: float) -> Tensor:
    """Conservative DPO: the cross-entropy with labels that are correct with probability 1 − ε.

    The minimum is at ``β h = log((1−ε)/ε)``.
    """
    return (1 - label_smoothing) * dpo(pair, beta=beta) + label_smoothing * dpo(pair.swapped(), beta=beta)


@Needs(PairLogps)
@takes(label_smoothing=number("[0, 0.5)", "as labels that are flips of a coin say nothing"))
@equation(
    "eq:robust-dpo",
    source='Chowdhury, Kini and Natarajan (2024), "Provably robust DPO: aligning language models with noisy feedback".',
)
def robust_dpo(pair: PairLogps, *, beta: float, label_smoothing: float) -> Tensor:
    """Robust DPO: an unbiased estimate of the DPO loss with clean labels, if labels are flipped with probability ε.

    It equals DPO minus ``β ε h/(1 − 2ε)``: convex in the margin, but not bounded below.
    """
    original, flipped = dpo(pair, beta=beta), dpo(pair.swapped(), beta=beta)
    return ((1 - label_smoothing) * original - label_smoothing * flipped) / (1 - 2 * label_smoothing)


# -- other losses of the margin ----------------------------------------------------------------------------------


@Needs(PairLogps)
@_scaled
@equation(
    "eq:ipo",
    source='Azar et al. (2023), "A general theoretical paradigm to understand learning from human preferences", '
    "eq. 17 (their τ is β).",
)
def ipo(pair: PairLogps, *, beta: float, length_normalised: bool = False) -> Tensor:
    """IPO ``(h − 1/(2β))²``: the margin has a finite target, even if labels are deterministic.

    The paper's ``h`` is a sum over tokens. The authors' experiments and TRL use means: pass ``length_normalised``,
    which needs lengths.
    """
    margins = pair.per_token().margins if length_normalised else pair.margins
    return (margins - 1 / (2 * beta)) ** 2


@Needs(PairLogps)
@_scaled
@equation(
    "eq:dpo-hinge",
    source='Liu et al. (2024), "Statistical rejection sampling improves preference optimization" (hinge on '
    "normalised likelihoods, after SLiC).",
)
def hinge(pair: PairLogps, *, beta: float) -> Tensor:
    """Hinge ``max(0, 1 − β h)``: a support-vector machine's loss on DPO's margin; no gradient beyond ``h = 1/β``."""
    return torch.relu(1 - beta * pair.margins)


@Needs(PairLogps)
@takes(beta=POSITIVE, tau=POSITIVE)
@equation(
    "eq:discopop",
    source='Lu et al. (2024), "Discovering preference optimization algorithms with and for large language models", '
    "eq. 5; β = τ = 0.05 there.",
)
def discopop(pair: PairLogps, *, beta: float, tau: float) -> Tensor:
    """DiscoPOP ``(1 − g)(−log σ(β h)) + g·e^(−β h)``, ``g = σ(β h/τ)``: DPO if h < 0, exponential if h > 0.

    A language model proposed this loss. It is not convex: its slope at ``h = 0`` is ``β((1 − ln 2)/(4τ) − ¾)``. For
    ``τ < (1 − ln 2)/3 ≈ 0.102`` the slope is positive, so a gradient step from ``h = 0`` decreases the margin.

    Args:
        tau: temperature of the transition between the DPO loss and the exponential loss, > 0; smaller is sharper.
    """
    logits = beta * pair.margins
    logistic = torch.sigmoid(-logits / tau) * dpo(pair, beta=beta)
    return logistic + torch.exp(
        logsigmoid(logits / tau) - logits
    )  # g·e^(−βh) in one exponent; the product is 0·∞ at −∞


@Needs(PairLogps, lengths=True)
@equation(
    "eq:wpo",
    source='Zhou et al. (2024), "WPO: enhancing RLHF with weighted preference optimization", eq. 2, without the '
    "alignment of weights.",
    stop_gradient=True,
)
def wpo(pair: PairLogps, *, beta: float) -> Tensor:
    """WPO: DPO, weighted by the policy's own probability of both completions, ``sg[p̄_w·p̄_l]``.

    ``p̄`` is the geometric mean of a completion's token probabilities. Pairs that the policy is unlikely to sample get
    a small weight, which makes the data more like on-policy samples.
    """
    mean = pair.per_token()
    return (mean.chosen + mean.rejected).detach().exp() * dpo(pair, beta=beta)


@Needs(PairLogps, loss=False)
@equation(
    "eq:aot-quantiles",
    source='Melnyk et al. (2024), "Distributional preference alignment of LLMs via optimal transport", section 3.',
    gradient=(),
)
def matched_quantiles(pair: PairLogps) -> Tensor:
    """For each ``log π(y_w) − log π(y_l)`` the reference's difference of equal rank, ``(B,)``. No gradient."""
    policy, reference = pair.chosen - pair.rejected, pair.chosen - pair.rejected - pair.margins
    ranks = policy.argsort(stable=True).argsort(stable=True)
    return reference.sort().values[ranks].detach()


@Needs(PairLogps)
@_scaled
@equation(
    "eq:aot",
    source='Melnyk et al. (2024), "Distributional preference alignment of LLMs via optimal transport", paired, '
    "with the logistic loss.",
    gradient=("pair",),
)
def aot(pair: PairLogps, quantiles: Tensor, *, beta: float) -> Tensor:
    """AOT on pairs: DPO against the reference's difference *of the same rank*, ``−log σ(β(log π(y_w)/π(y_l) − q))``.

    The policy's differences should exceed the reference's quantile by quantile, not pair by pair (stochastic
    dominance). The quantiles q ``(B,)`` are :func:`matched_quantiles` of the whole batch.
    """
    return bradley_terry_loss(beta * pair.chosen, beta * pair.rejected, margin=beta * _per_pair(pair, quantiles))


@Needs(PairLogps)
@takes(beta=POSITIVE, penalty=NOT_NEGATIVE)
@equation(
    "eq:dpo-positive",
    source='Pal et al. (2024), "Smaug: fixing failure modes of preference optimisation with DPO-Positive", eq. 3.',
)
def dpo_positive(pair: PairLogps, *, beta: float, penalty: float) -> Tensor:
    """DPO-Positive: the margin loses ``penalty · max(0, log π_ref(y_w)/π(y_w))``.

    The term penalises a chosen completion that is less probable than under the reference. A penalty of 0 is DPO.
    """
    decrease = torch.relu(-pair.chosen_logratios)
    return -logsigmoid(beta * (pair.margins - penalty * decrease))


@Needs(PairLogps, lengths=True)
@takes(nll_weight=NOT_NEGATIVE)
@equation("eq:dpo-nll", source='Pang et al. (2024), "Iterative reasoning preference optimization".')
def dpo_nll(pair: PairLogps, *, beta: float, nll_weight: float) -> Tensor:
    """DPO plus ``nll_weight`` times the chosen completion's mean negative log-likelihood per token."""
    return dpo(pair, beta=beta) - nll_weight * pair.per_token().chosen


# -- graded preferences ------------------------------------------------------------------------------------------


@Needs(PairLogps)
@_scaled
@equation("eq:odpo", source='Amini, Vieira and Cotterell (2024), "Direct preference optimization with an offset".')
def odpo(pair: PairLogps, offset: Tensor, *, beta: float) -> Tensor:
    """DPO with an offset, ``−log σ(β h − Δ)``: a clearer preference requires a larger margin.

    The offset Δ ``(B,)`` is, for example, an increasing function of the score difference.
    """
    return bradley_terry_loss(beta * pair.chosen_logratios, beta * pair.rejected_logratios, margin=offset)


@Needs(PairLogps)
@takes(beta=POSITIVE, eta=POSITIVE)
@equation(
    "eq:rpo",
    "eq:dno",
    source='Adler et al. (2024), "Nemotron-4 340B technical report", reward-aware preference optimization.',
    gradient=("pair",),
)
def rpo(pair: PairLogps, reward_margin: Tensor, *, beta: float, eta: float = 1.0) -> Tensor:
    """Reward-aware preference optimisation: the KL from Bernoulli ``σ(η Δr)`` to Bernoulli ``σ(β h)``.

    The minimum is at ``β h = η Δr``. The reward margin Δr ``(B,)`` is chosen minus rejected. If rewards are win rates against the policy itself, it is a round of DNO (Rosset et al. 2024, "Direct
    Nash optimization").
    """
    logits, target = beta * pair.margins, eta * _per_pair(pair, reward_margin)
    chosen_term = torch.sigmoid(target) * (logsigmoid(target) - logsigmoid(logits))
    rejected_term = torch.sigmoid(-target) * (logsigmoid(-target) - logsigmoid(-logits))
    return chosen_term + rejected_term


@Needs(PairLogps)
@_scaled
@equation(
    "eq:rebel",
    source='Gao et al. (2024), "REBEL: reinforcement learning via regressing relative rewards" (their η is 1/β and '
    "their reference the policy of the last iteration).",
    gradient=("pair",),
)
def rebel(pair: PairLogps, reward_margin: Tensor, *, beta: float) -> Tensor:
    """REBEL ``(β h − Δr)²``: regression of the implicit reward difference on Δr ``(B,)``, chosen minus rejected.

    Zero for ``π ∝ π_ref exp(r/β)``.
    """
    return (beta * pair.margins - _per_pair(pair, reward_margin)) ** 2


def _per_pair(pair: PairLogps, reward_margin: Tensor) -> Tensor:
    """``(B,)``, checked against the shape of the pairs, without gradient."""
    require_shapes(chosen=(pair.chosen, "B"), reward_margin=(reward_margin, "B"))
    require_finite(reward_margin=reward_margin)
    return reward_margin.detach()
