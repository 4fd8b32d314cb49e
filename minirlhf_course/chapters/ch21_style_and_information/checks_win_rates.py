"""Chapter 21: win rates at equal length, and what of a policy's KL is style, against plain sums and other solvers."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator

import torch
from torch import Tensor

from minirlhf.core import exact
from minirlhf.equations import style as st
from minirlhf_course.chapters.ch21_style_and_information import equations
from minirlhf_course.ledger.registry import Comparison, Draw, check


@check(
    "eq:length-term",
    "value",
    "(e^{2u} − 1)/(e^{2u} + 1) of the difference divided by its deviation; 0 for two answers of equal length.",
    of=st.length_term,
    against="the standard library's deviation and exponentials",
    wrong={
        "centred as well": lambda ours, theirs: torch.tanh(((d := ours - theirs) - d.mean()) / d.std()),
        "divided by the deviation of our lengths": lambda ours, theirs: torch.tanh((ours - theirs) / ours.std()),
        "not squashed": lambda ours, theirs: (ours - theirs) / (ours - theirs).std(),
        "divisor N": lambda ours, theirs: torch.tanh((ours - theirs) / (ours - theirs).std(correction=0)),
    },
)
def _(length_term, draw: Draw) -> Comparison:
    ours, theirs = draw.uniform(7, low=3.0, high=40.0), draw.uniform(7, low=3.0, high=20.0)
    theirs[2] = ours[2]
    deviation = statistics.stdev((ours - theirs).tolist())
    twice = [math.exp(2 * x / deviation) for x in (ours - theirs).tolist()]
    return length_term(ours, theirs), torch.tensor([(e - 1) / (e + 1) for e in twice], dtype=torch.float64)


@check(
    "eq:length-controlled-logit",
    "value",
    "The odds are a product of three factors: e^θ (e^φ)^t (e^ψ)^γ.",
    of=st.length_controlled_probability,
    against="odds: one factor for each part",
    wrong={
        "length taken away": lambda term, difficulty, *, skill, liking, sensitivity: st.length_controlled_probability(
            -term, difficulty, skill=skill, liking=liking, sensitivity=sensitivity
        ),
        "difficulty not weighted": lambda term, difficulty, *, skill, liking, sensitivity: (
            st.length_controlled_probability(term, difficulty, skill=skill, liking=liking, sensitivity=1.0)
        ),
        "chances added up": lambda term, difficulty, *, skill, liking, sensitivity: (
            torch.sigmoid(torch.as_tensor(skill)) + liking * term / 4 + sensitivity * difficulty / 4
        ),
    },
)
def _(length_controlled_probability, draw: Draw) -> Iterator[Comparison]:
    term, difficulty = draw.uniform(5, low=-0.9, high=0.9), draw.normal(5)
    for skill, liking, sensitivity in ((0.4, 1.2, 0.6), (-0.7, 0.5, 1.6)):
        odds = [math.exp(skill) * math.exp(liking) ** t * math.exp(sensitivity) ** g for t, g in zip(term.tolist(), difficulty.tolist(), strict=True)]  # fmt: skip
        yield (
            length_controlled_probability(term, difficulty, skill=skill, liking=liking, sensitivity=sensitivity),
            torch.tensor([o / (1 + o) for o in odds], dtype=torch.float64),
        )


CONTROL_MISTAKES = {
    "the mean difficulty put in": lambda difficulty, *, skill, sensitivity: torch.sigmoid(
        skill + sensitivity * difficulty.mean()
    ),
    "difficulty left out": lambda difficulty, *, skill, sensitivity: torch.sigmoid(
        torch.as_tensor(skill, dtype=torch.float64)
    ),
    "the baseline's win rate": lambda difficulty, *, skill, sensitivity: st.length_controlled_win_rate(
        difficulty, skill=-skill, sensitivity=-sensitivity
    ),
}


@check(
    "eq:length-controlled-win-rate",
    "value",
    "The mean of the regression's win probabilities with all length terms at 0; with the models exchanged it is "
    "one minus this, and for a model against itself it is ½.",
    of=st.length_controlled_win_rate,
    against="the mean of the model's probabilities at equal lengths, and the other model's",
    wrong=CONTROL_MISTAKES,
)
def _(length_controlled_win_rate, draw: Draw) -> Iterator[Comparison]:
    difficulty = draw.normal(6, scale=1.5)
    for skill, sensitivity in ((0.5, 0.8), (-0.9, 1.7)):
        chances = [1 / (1 + math.exp(-skill - sensitivity * g)) for g in difficulty.tolist()]
        ours = length_controlled_win_rate(difficulty, skill=skill, sensitivity=sensitivity)
        yield ours, statistics.fmean(chances)
        yield ours + length_controlled_win_rate(difficulty, skill=-skill, sensitivity=-sensitivity), 1.0
    yield length_controlled_win_rate(difficulty, skill=0.0, sensitivity=0.0), 0.5


GAP_MISTAKES = {
    "the raw mean": lambda margins, differences: margins.mean(),
    "slope through the origin": lambda margins, differences: (
        margins.mean() - (margins @ differences) / (differences @ differences) * differences.mean()
    ),
    "length added": lambda margins, differences: 2 * margins.mean() - equations.controlled_gap(margins, differences),
}


@check(
    "eq:controlled-gap",
    "value",
    "The intercept of the regression of margins on differences; a length bias in the margins does not change it.",
    of=equations.controlled_gap,
    against="the standard library's linear regression; and the gap of quality alone",
    wrong=GAP_MISTAKES,
)
def _(controlled_gap, draw: Draw) -> Iterator[Comparison]:
    differences = draw.normal(8) + 0.9
    quality = draw.normal(8) + 0.4 * differences
    pairs = list(zip(differences.tolist(), quality.tolist(), strict=True))
    _, intercept = statistics.linear_regression(*zip(*pairs, strict=True))
    for bias in (0.0, 0.7, -1.5):
        yield controlled_gap(quality + bias * differences, differences), intercept


# -- of KL and information ---------------------------------------------------------------------------------------


def _by_groups(logps: Tensor, ref_logps: Tensor, style: Tensor) -> tuple[Tensor, Tensor]:
    """Both parts, style by style."""
    of_style = of_content = torch.zeros((), dtype=torch.float64)
    for s in style.unique():
        here = style == s
        p, q = logps[here].exp(), ref_logps[here].exp()
        of_style = of_style + p.sum() * (p.sum() / q.sum()).log()
        of_content = of_content + p.sum() * exact.divergence(p / p.sum(), q / q.sum())
    return of_style, of_content


@check(
    "eq:style-content-kl",
    "value",
    "The KL between the distributions of styles, plus the mean under the policy of the KL within a style.",
    of=equations.style_and_content,
    against="the sum over styles",
    wrong={
        "weighted by the reference": lambda logps, ref_logps, style: (
            equations.style_and_content(logps, ref_logps, style)[0],
            sum(
                ref_logps[style == s].exp().sum()
                * exact.divergence(logps[style == s].softmax(-1), ref_logps[style == s].softmax(-1))
                for s in style.unique()
            ),
        ),
        "the parts exchanged": lambda *given: equations.style_and_content(*given)[::-1],
        "KL reversed": lambda logps, ref_logps, style: equations.style_and_content(ref_logps, logps, style),
    },
)
def _(style_and_content, draw: Draw) -> Iterator[Comparison]:
    logps, ref_logps = draw.distribution(8).log(), draw.distribution(8).log()
    style = torch.tensor([0.0, 1, 1, 2, 2, 2, 3, 0])[draw.permutation(8)].double()
    got, expected = style_and_content(logps, ref_logps, style), _by_groups(logps, ref_logps, style)
    yield got[0], expected[0]
    yield got[1], expected[1]
    yield got[0] + got[1], exact.divergence(logps.exp(), ref_logps.exp())


INFORMATION_MISTAKES = {
    "the entropy of all replies": lambda prior, logps: exact.entropy(prior @ logps.exp()),
    "all things asked for alike often": lambda prior, logps: equations.completion_information(
        torch.full_like(prior, 1 / len(prior)), logps
    ),
    "KL reversed": lambda prior, logps: sum(
        p * exact.divergence(prior @ logps.exp(), row.exp()) for p, row in zip(prior, logps, strict=True)
    ),
}


@check(
    "eq:reply-information",
    "value",
    "H(Y) − H(Y|W), the mutual information of wish and reply.",
    of=equations.completion_information,
    against=(
        "the entropy of the replies minus that of the replies to each wish; KL of the joint distribution to the product"
    ),
    wrong=INFORMATION_MISTAKES,
)
def _(completion_information, draw: Draw) -> Iterator[Comparison]:
    prior, probs = draw.distribution(3), draw.distribution(3, 5)
    entropies = torch.stack([exact.entropy(row) for row in probs])
    yield completion_information(prior, probs.log()), exact.entropy(prior @ probs) - prior @ entropies
    together = prior[:, None] * probs
    apart = torch.outer(together.sum(1), together.sum(0))
    yield completion_information(prior, probs.log()), exact.divergence(together.flatten(), apart.flatten())


@check(
    "eq:information-budget",
    "value",
    "For any reference that is the same for all wishes, the mean KL is the mutual information plus the KL of the "
    "mean policy.",
    of=equations.completion_information,
    against="the KL to the reference, wish by wish, minus that of the mean policy",
    wrong=INFORMATION_MISTAKES,
)
def _(completion_information, draw: Draw) -> Comparison:
    prior, probs, ref = draw.distribution(3), draw.distribution(3, 5), draw.distribution(5)
    spent = sum(p * exact.divergence(row, ref) for p, row in zip(prior, probs, strict=True))
    return completion_information(prior, probs.log()), spent - exact.divergence(prior @ probs, ref)


@check(
    "eq:markup-odds",
    "value",
    "The reference's odds, times e^(λm), times the ratio of the content's normalisers with and without markup.",
    of=equations.markup_odds,
    against="three factors from the reference alone",
    wrong={
        "what the content earns left out": lambda ref_logps, rewards, marked, *, liking, strength: (
            (ref_logps.exp() @ marked) / (ref_logps.exp() @ (1 - marked)) * math.exp(strength * liking)
        ),
        "the liking not sharpened": lambda ref_logps, rewards, marked, *, liking, strength: equations.markup_odds(
            ref_logps, rewards, marked, liking=liking / strength, strength=strength
        ),
        "the share in place of the odds": lambda *given, **how: (
            (odds := equations.markup_odds(*given, **how)) / (1 + odds)
        ),
    },
)
def _(markup_odds, draw: Draw) -> Iterator[Comparison]:
    ref, rewards = draw.distribution(7), draw.normal(7)
    marked = torch.tensor([1.0, 1, 0, 0, 0, 1, 0], dtype=torch.float64)[draw.permutation(7)]
    for liking, strength in ((0.6, 1.4), (-0.3, 2.2)):
        earned = [(ref * has * (strength * rewards).exp()).sum() / (ref * has).sum() for has in (marked, 1 - marked)]
        before = (ref @ marked) / (ref @ (1 - marked))
        yield (
            markup_odds(ref.log(), rewards, marked, liking=liking, strength=strength),
            before * math.exp(strength * liking) * earned[0] / earned[1],
        )
