"""The equations that only chapter 15 needs: verdicts from logits, rubrics, tournaments, revisions, the value of labels.

Rewards, and the log-odds with which a judge prefers the completion in the first position, are in nats.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from minirlhf.core.equation import equation
from minirlhf.core.errors import ArgumentError
from minirlhf.core.validate import NOT_NEGATIVE, POSITIVE, at_least, finite, number, shape, takes

_CHANCE = finite("...", "[0, 1]")


# -- verdicts of a judge -----------------------------------------------------------------------------------------


@takes(logits="... V", first=at_least(0), second=at_least(0))
@equation(
    "eq:letter-preference",
    source='Bai et al. (2022), "Constitutional AI: Harmlessness from AI feedback", section 4.1.',
)
def letter_preference(logits: Tensor, *, first: int, second: int) -> Tensor:
    """Probability ``(...)`` of the completion labelled "(A)", from the logits of the next token: σ(z_A − z_B).

    This is the softmax over the two letters only; the mass on all other tokens does not matter.

    Args:
        first, second: the tokens of the two letters.
    """
    if first == second or max(first, second) >= logits.shape[-1]:
        raise ArgumentError(
            f"{first=} and {second=}; expected two tokens of a vocabulary of {logits.shape[-1]}",
            argument="first, second",
            value=(first, second),
            expected=logits.shape[-1],
        )
    return torch.sigmoid(logits[..., first] - logits[..., second])


@takes(probabilities=finite("... K", "[0, 1]"), clamp=number("[0, 0.5)"))
@equation(
    "eq:constitutional-preference",
    source='Bai et al. (2022), "Constitutional AI: Harmlessness from AI feedback", section 4.1.',
)
def constitutional_preference(probabilities: Tensor, *, clamp: float = 0.0) -> Tensor:
    """The label ``(...)`` of K principles: the mean of their preferences, each clamped to [c, 1 − c].

    It is the expected label if one principle is sampled at random for each label. A judge that reasons first gives
    probabilities near 0 or 1, so the paper clamps them to 0.4 to 0.6.
    """
    return probabilities.clamp(clamp, 1 - clamp).mean(-1)


@takes(difference="...", bias="...")
@equation(
    "eq:swap-right",
    "eq:swap-wrong",
    source='derived in the text; the test: Zheng et al. (2023), "Judging LLM-as-a-judge with MT-Bench and Chatbot '
    'Arena", section 3.4.',
)
def swap_outcomes(difference: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """The swap test: probability that both orders prefer the better completion, or both the worse; ``(...)`` each.

    σ(d + b) σ(d − b) and σ(−d − b) σ(−d + b). Otherwise the two verdicts contradict each other, and the pair is dropped
    or counted as a tie.

    Args:
        difference: d ≥ 0, reward of the better completion minus reward of the worse one, as the judge sees them.
        bias: b, the judge's position bias.
    """
    right = torch.sigmoid(difference + bias) * torch.sigmoid(difference - bias)
    wrong = torch.sigmoid(-difference - bias) * torch.sigmoid(-difference + bias)
    return right, wrong


@torch.no_grad()
@takes(judged=finite("N", "[0, 1]"), gold=shape("N"), own=shape("N"))
@equation(
    "eq:self-preference",
    source='Wataoka, Takahashi and Ri (2024), "Self-preference bias in LLM-as-a-judge".',
    gradient=(),
)
def self_preference(judged: Tensor, gold: Tensor, own: Tensor) -> Tensor:
    """Recall of a judge on its own completions minus its recall on others' completions. Scalar.

    The mean of ``judged`` over the completions that annotators prefer and the judge wrote, minus the mean over the
    completions that annotators prefer and the judge did not write. An unbiased judge gets 0 if the preferred
    completions win by the same margin in both parts. If its own completions win by a larger margin, it gets more than
    0.

    Args:
        judged: 1 if the judge prefers the completion to the other one, 0 if not, or the probability that it does.
        gold: True if annotators prefer the completion.
        own: True if the judge wrote the completion.
    """
    gold, own = gold.bool(), own.bool()
    if not bool((gold & own).any() and (gold & ~own).any()):
        raise ArgumentError(
            f"gold and own of shape {tuple(gold.shape)}; expected preferred completions of the judge and of others",
            argument="gold, own",
            problem="empty",
        )
    return judged[gold & own].mean() - judged[gold & ~own].mean()


# -- meta-judges, tournaments ------------------------------------------------------------------------------------


@takes(accuracy=_CHANCE, keeps_right=_CHANCE, keeps_wrong=_CHANCE)
@equation("eq:meta-judge", source='Bayes\' rule; a meta-judge: Wu et al. (2024), "Meta-rewarding language models".')
def meta_judge_precision(accuracy: Tensor, keeps_right: Tensor, keeps_wrong: Tensor) -> Tensor:
    """Fraction of correct verdicts among those that a meta-judge accepts: pt / (pt + (1 − p)f), ``(...)``.

    Args:
        accuracy: p, of the judge.
        keeps_right: t, the fraction of correct verdicts that the meta-judge accepts.
        keeps_wrong: f, the fraction of wrong verdicts that the meta-judge accepts.
    """
    right, wrong = accuracy * keeps_right, (1 - accuracy) * keeps_wrong
    if not bool((right + wrong > 0).all()):
        raise ArgumentError(
            f"keeps_right of shape {tuple(keeps_right.shape)}; expected that some verdict is accepted",
            argument="keeps_right",
            problem="empty",
        )
    return right / (right + wrong)


@takes(wins=finite("K K", "[0, 1]"))
@equation("eq:knockout", source='David (1988), "The method of paired comparisons", chapter 6.')
def knockout(wins: Tensor) -> Tensor:
    """Probability ``(K,)`` that each of K = 2^m completions wins a knockout tournament in the order given.

    The winners of the two halves meet in the final: P(i) = P_half(i) Σ_{j in the other half} P_half(j) p_ij.

    Args:
        wins: p_ij, the probability that i beats j; p_ji = 1 − p_ij, the diagonal is ignored.
    """
    size = len(wins)
    if size & (size - 1) or size < 2:
        raise ArgumentError(
            f"wins of shape {tuple(wins.shape)}; expected 2, 4, 8, ... completions",
            argument="wins",
            value=tuple(wins.shape),
            problem="shape",
        )
    if not torch.allclose(wins.triu(1), (1 - wins.mT).triu(1)):
        raise ArgumentError(
            f"wins of shape {tuple(wins.shape)}; expected wins[i, j] + wins[j, i] = 1",
            argument="wins",
            problem="not symmetric",
        )
    if size == 2:
        return torch.stack([wins[0, 1], wins[1, 0]])
    half = size // 2
    top, bottom = knockout(wins[:half, :half]), knockout(wins[half:, half:])
    return torch.cat([top * (wins[:half, half:] @ bottom), bottom * (wins[half:, :half] @ top)])


# -- principles, rubrics, revisions ------------------------------------------------------------------------------


@takes(met=finite("... K", "[0, 1]"), weights=finite("K", "[0, inf)"))
@equation("eq:rubric-reward", source='Gunjal et al. (2025), "Rubrics as rewards", explicit aggregation.')
def rubric_reward(met: Tensor, weights: Tensor) -> Tensor:
    """The weighted fraction of a rubric's items that a completion meets: Σ_k w_k c_k / Σ_k w_k, ``(...)``."""
    return met @ weights / weights.sum()


@takes(
    met=finite("... K", "[0, 1]"),
    weights=finite("K", "[0, inf)"),
    miss=finite("K", "[0, 1]"),
    invent=finite("K", "[0, 1]"),
)
@equation("eq:rubric-mean", "eq:rubric-variance", source="derived in the text.")
def rubric_noise(met: Tensor, weights: Tensor, *, miss: Tensor, invent: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance ``(...)`` of a rubric's score if its judge errs independently on each item.

    The judge reports an item as met with probability q_k = c_k(1 − m_k) + (1 − c_k) v_k: mean Σ w_k q_k / Σ w_k,
    variance Σ w_k² q_k(1 − q_k) / (Σ w_k)².

    Args:
        miss: m_k, the probability that an item that is met is reported as not met.
        invent: v_k, the probability that an item that is not met is reported as met.
    """
    prob_met = met * (1 - miss) + (1 - met) * invent
    return rubric_reward(prob_met, weights), prob_met * (1 - prob_met) @ weights**2 / weights.sum() ** 2


@takes(
    start=number("[0, 1]"), rounds=at_least(0), principles=at_least(1), repair=number("[0, 1]"), harm=number("[0, 1]")
)
@equation(
    "eq:flaws-left",
    source='derived in the text; the procedure: Bai et al. (2022), "Constitutional AI: Harmlessness from AI '
    'feedback", section 3.',
)
def remaining_flaws(*, start: float, rounds: int, principles: int, repair: float, harm: float) -> float:
    """Fraction of flaws after n rounds of critique and revision: f_∞ + (f_0 − f_∞)(1 − (q + h)/K)^n, f_∞ = h/(q + h).

    Each round samples one of K principles and treats its flaw: a present flaw is repaired with probability q, an absent
    flaw is introduced with probability h. Computed as f_0 λ^n + (h/K) Σ_{m<n} λ^m with λ = 1 − (q + h)/K, which is also
    defined for q = h = 0.
    """
    decay = 1 - (repair + harm) / principles
    return float(start * decay**rounds + harm / principles * sum(decay**n for n in range(rounds)))


@takes(agrees=finite("... G", "[0, inf)"), votes=finite("... G", "[0, inf)"))
@equation(
    "eq:group-consensus",
    source='Small et al. (2021), "Polis: scaling deliberation by mapping high dimensional opinion spaces"; used by '
    'Huang et al. (2024), "Collective Constitutional AI".',
)
def group_consensus(agrees: Tensor, votes: Tensor) -> Tensor:
    """Consensus of all groups on a principle: Π_g (a_g + 1)/(n_g + 2), ``(...)``.

    The product over groups of the probability that the next member agrees, so that a large group cannot outvote a small
    one.

    Args:
        agrees: a_g, votes of group g for the principle.
        votes: n_g ≥ a_g, all votes of group g on the principle.
    """
    if not bool((agrees <= votes).all()):
        raise ArgumentError(
            f"agrees of shape {tuple(agrees.shape)}; expected agrees ≤ votes", argument="agrees", problem="above votes"
        )
    return ((agrees + 1) / (votes + 2)).prod(-1)


# -- the value of labels -----------------------------------------------------------------------------------------


@takes(bias=finite("..."), cost=POSITIVE, information=POSITIVE, budget=finite("...", "(0, inf)"))
@equation("eq:label-error", source='Fisher (1925), "Theory of statistical estimation"; the bias of the labels added.')
def label_error(budget: Tensor, bias: Tensor, *, cost: float, information: float) -> Tensor:
    """Mean squared error ``(...)`` of a reward difference fitted to the labels that a budget C buys: b² + c/(C I).

    For many labels. A larger budget reduces the variance; the bias stays.

    Args:
        bias: b, of the annotator, in nats.
        cost: c, of one label.
        information: I, Fisher information of one label about the difference; see eq:flipped-information.
    """
    return bias**2 + cost / (budget * information)


@takes(bias=finite("..."), cost=POSITIVE, information=POSITIVE, ai_cost=POSITIVE, ai_information=POSITIVE)
@equation("eq:label-crossover", source="derived in the text.")
def label_crossover(bias: Tensor, *, cost: float, information: float, ai_cost: float, ai_information: float) -> Tensor:
    """The budget ``(...)`` above which few unbiased labels beat many biased labels: max(0, c_h/I_h − c_a/I_a) / b².

    Below it the AI labels have the smaller :func:`label_error`. It is 0 if the unbiased labels are better at any
    budget, and infinite if the AI labels have no bias and are better at any budget.

    Args:
        bias: b, of the AI labels, in nats.
        cost, information: of one unbiased label, c_h and I_h.
        ai_cost, ai_information: of one biased label, c_a and I_a.
    """
    noise_gap = max(0.0, cost / information - ai_cost / ai_information)
    return noise_gap / bias**2 if noise_gap else torch.zeros_like(bias)


@takes(variance=finite("...", "(0, inf)"), ai_error=finite("...", "(0, inf)"))
@equation(
    "eq:mixed-labels",
    source='derived in the text; weights inverse to errors: Gauss (1821), "Theoria combinationis".',
)
def mixed_error(variance: Tensor, ai_error: Tensor) -> Tensor:
    """Error ``(...)`` of the best weighted mean of an unbiased estimate and a biased one: v e / (v + e).

    The weight of the biased estimate is v/(v + e). Its error e is its squared bias plus its variance, so the size of
    the bias must be known.
    """
    return variance * ai_error / (variance + ai_error)


@takes(
    bias=POSITIVE, cost=POSITIVE, information=POSITIVE, ai_cost=POSITIVE, ai_information=POSITIVE, budget=NOT_NEGATIVE
)
@equation("eq:ai-budget", source="derived in the text, from eq:mixed-labels.")
def ai_budget(
    budget: float, *, bias: float, cost: float, information: float, ai_cost: float, ai_information: float
) -> float:
    """Optimal spending of a budget C on biased labels, if both kinds are mixed: min(C, (√(k_a/k_h) − 1)₊ / (b² k_a)).

    k = I/c is the information per unit of cost. The budget goes to AI labels up to a fixed amount, and beyond it to
    human labels.

    Args:
        bias: b, of the AI labels, in nats.
        cost, information: of one unbiased label, c_h and I_h.
        ai_cost, ai_information: of one biased label, c_a and I_a.
    """
    human, ai = information / cost, ai_information / ai_cost
    return min(budget, max(0.0, math.sqrt(ai / human) - 1) / (bias**2 * ai))
