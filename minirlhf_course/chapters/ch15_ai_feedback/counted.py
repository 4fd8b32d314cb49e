"""An enumerable toy environment: 192 completions with known gold rewards, so that every verdict on them can be checked.

A completion is described by its numbers of facts, polite words, words of praise and filler words; nothing else counts.
Its gold reward is the gold reward of the assistant task, which rewards the first polite word and penalises the second.
Policies, judges and rewards are vectors over the completions, and expectations are sums.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from minirlhf.core.randomness import generator
from minirlhf.data.tasks.assistant import Features, gold
from minirlhf.equations.ai_feedback import split_position_bias
from minirlhf.equations.kl import reverse_kl
from minirlhf.equations.overoptimization import tilt
from minirlhf_course.chapters.ch15_ai_feedback.equations import constitutional_preference, rubric_reward

#: Every annotator divides its score by this temperature: half a unit of gold reward is one nat.
TEMPERATURE = 0.5
#: Weight decay of a fitted reward.
L2 = 3e-3

REPLIES = tuple(
    Features(facts, polite, praise, filler, repeats=0, wrong=0, length=2 * facts + polite + praise + filler)
    for facts, polite, praise, filler in itertools.product(range(4), range(4), range(4), range(3))
)


def _each(value: Callable[[Features], float]) -> Tensor:
    return torch.tensor([float(value(reply)) for reply in REPLIES], dtype=torch.float64)


GOLD = _each(gold)
LENGTH = _each(lambda reply: reply.length)
COUNTS = torch.stack([_each(operator.attrgetter(name)) for name in ("facts", "polite", "praise", "filler")], -1)
#: Probabilities under the reference policy: the counts are independent, and small counts are more probable.
REFERENCE = (-(COUNTS * torch.tensor([0.3, 0.7, 0.9, 0.6], dtype=torch.float64)).sum(-1)).softmax(-1)

#: A rubric of yes/no items.
ITEMS: Mapping[str, Callable[[Features], bool]] = {
    "a fact": lambda r: r.facts >= 1,
    "two facts": lambda r: r.facts >= 2,
    "polite": lambda r: r.polite >= 1,
    "not flattering": lambda r: r.polite <= 1,
    "warm": lambda r: r.praise >= 1,
    "not gushing": lambda r: r.praise <= 1,
    "to the point": lambda r: r.filler == 0,
}
MET = torch.stack([_each(item) for item in ITEMS.values()], -1)
EQUAL = torch.ones(len(ITEMS), dtype=torch.float64)

#: A constitution: the score that each principle gives to a completion, in nats.
PRINCIPLES: Mapping[str, Callable[[Features], float]] = {
    "state facts": lambda r: 1.5 * r.facts,
    "be polite": lambda r: 2.0 * min(r.polite, 1),
    "be warm": lambda r: 2.0 * min(r.praise, 1),
    "do not flatter": lambda r: -1.5 * (max(r.polite - 1, 0) + max(r.praise - 1, 0)),
    "be brief": lambda r: -0.8 * r.length,
    "do not ramble": lambda r: -1.5 * r.filler,
}


# -- rewards -----------------------------------------------------------------------------------------------------


def standardised(features: Tensor) -> Tensor:
    """``(N, F)`` with mean 0 and standard deviation 1 under the reference."""
    mean = REFERENCE @ features
    return (features - mean) / (REFERENCE @ (features - mean) ** 2).sqrt()


def fit(features: Tensor, first: Tensor, second: Tensor, wins: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return the reward ``(N,)``, linear in the features, that explains the labels best: Bradley–Terry with weight
    decay, by Newton's method.

    Args:
        first, second: indices of the completions of each pair, ``(M,)``.
        wins: how often the first completion was preferred, in [0, 1].
        weights: weights of the pairs, by default equal; they sum to 1.
    """
    gaps = features[first] - features[second]  # (M, F)
    weights = torch.full_like(wins, 1 / len(wins)) if weights is None else weights
    theta = torch.zeros(features.shape[1], dtype=torch.float64)
    for _ in range(50):
        p = torch.sigmoid(gaps @ theta)
        gradient = gaps.mT @ (weights * (p - wins)) + 2 * L2 * theta
        hess = gaps.mT @ (gaps * (weights * p * (1 - p))[:, None]) + 2 * L2 * torch.eye(len(theta), dtype=torch.float64)
        step = torch.linalg.solve(hess, gradient)
        theta = theta - step
        if float(step.abs().max()) < 1e-10:
            break
    return features @ theta


def gold_at(rewards: Tensor, distance: float, start: Tensor = REFERENCE) -> float:
    """Return the gold reward of the tilted policy whose KL from ``start`` is ``distance`` nats, by bisection on the
    strength of the tilt."""
    low, high = 0.0, 1e3 / float(rewards.max() - rewards.min())
    for _ in range(80):
        middle = (low + high) / 2
        kl = float(reverse_kl(tilt(start.log(), rewards, strength=middle), start.log()))
        low, high = (middle, high) if kl < distance else (low, middle)
    return float(tilt(start.log(), rewards, strength=low).exp() @ GOLD)


# -- labels ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LabelledPairs:
    """Pairs of completions, as indices, and whether the first was preferred."""

    first: Tensor
    second: Tensor
    wins: Tensor

    def and_(self, others: LabelledPairs) -> LabelledPairs:
        """Return these pairs followed by the other pairs."""
        return LabelledPairs(*(torch.cat(both) for both in zip(self.parts, others.parts, strict=True)))

    @property
    def parts(self) -> tuple[Tensor, Tensor, Tensor]:
        """The arguments of :func:`fit`."""
        return self.first, self.second, self.wins


def labels(
    count: int, seed: int, who: str, *, score: Tensor = GOLD, flip: float = 0.0, policy: Tensor = REFERENCE
) -> LabelledPairs:
    """Sample pairs of a policy's completions. An annotator who sees ``score`` labels them; a fraction ``flip`` of the
    labels is flipped."""
    uniforms = torch.rand(count, 4, dtype=torch.float64, generator=generator("labels", who, seed))
    pairs = torch.searchsorted(policy.cumsum(0), uniforms[:, :2].contiguous()).clamp(max=len(policy) - 1)
    win_probability = torch.sigmoid((score[pairs[:, 0]] - score[pairs[:, 1]]) / TEMPERATURE)
    wins = (uniforms[:, 2] < win_probability) ^ (uniforms[:, 3] < flip)
    return LabelledPairs(pairs[:, 0], pairs[:, 1], wins.double())


# -- many biased against few noisy labels ------------------------------------------------------------------------

HUMAN_PRICE, FLIP = 10, 0.2
BUDGETS = (500, 2000, 8000, 32000)


def budgets(seed: int, bias: float, sizes: tuple[int, ...] = BUDGETS) -> dict[str, float]:
    """Return the gold reward at one nat from the reference, for each budget and each way to spend it.

    The ways: human labels, 20 % of which are flipped; labels of an AI with a length bias; both in one pool; and both,
    where the human labels correct the AI's reward by a scale and a weight of length.
    """
    features = standardised(torch.cat([MET, LENGTH[:, None]], -1))
    results: dict[str, float] = {}
    for budget in sizes:
        human = labels(budget // HUMAN_PRICE, seed, "people", flip=FLIP)
        ai = labels(budget, seed, "the AI", score=GOLD + bias * LENGTH)
        halves = (
            labels(budget // 2 // HUMAN_PRICE, seed, "people", flip=FLIP),
            labels(budget // 2, seed, "the AI", score=GOLD + bias * LENGTH),
        )
        ai_reward = fit(features, *halves[1].parts)
        corrected = fit(standardised(torch.stack([ai_reward, LENGTH], -1)), *halves[0].parts)
        results |= {
            f"human_{budget}": gold_at(fit(features, *human.parts), 1.0),
            f"ai_{budget}": gold_at(fit(features, *ai.parts), 1.0),
            f"pool_{budget}": gold_at(fit(features, *halves[0].and_(halves[1]).parts), 1.0),
            f"corrected_{budget}": gold_at(corrected, 1.0),
        }
    return results


# -- judges ------------------------------------------------------------------------------------------------------


def _all_pairs() -> tuple[Tensor, Tensor, Tensor]:
    """Return both completions of every pair with different gold rewards, the better one first, and the normalised
    probability that the reference writes the pair."""
    first, second = torch.meshgrid(torch.arange(len(REPLIES)), torch.arange(len(REPLIES)), indexing="ij")
    better = (GOLD[first] > GOLD[second] + 1e-9).flatten()
    first, second = first.flatten()[better], second.flatten()[better]
    weight = REFERENCE[first] * REFERENCE[second]
    return first, second, weight / weight.sum()


def judge_accuracies(place: float, taste: float = 0.0) -> dict[str, float]:
    """Return how often a judge names the better completion, exactly, over all pairs of the reference.

    ``one``: one sampled verdict. ``majority``: the majority of many verdicts in one presentation order, in the limit of
    many samples. ``both`` and ``both_majority``: the same with the mean of the log-odds of both presentation orders.
    The judge sees the gold reward, has the position bias ``place`` (towards the first position) and the length bias
    ``taste``.
    """
    first, second, weight = _all_pairs()
    score = (GOLD + taste * LENGTH) / TEMPERATURE
    gap = score[first] - score[second]
    given, exchanged = gap + place, -gap + place  # the better completion is first in half of the pairs
    one_sample = 0.5 * (torch.sigmoid(given) + torch.sigmoid(-exchanged))
    majority = 0.5 * (_endless(given) + _endless(-exchanged))
    prefers, _ = split_position_bias(given, exchanged)
    return {
        "one": float(weight @ one_sample),
        "majority": float(weight @ majority),
        "both": float(weight @ torch.sigmoid(prefers)),
        "both_majority": float(weight @ _endless(prefers)),
    }


def _endless(log_odds: Tensor) -> Tensor:
    """Return how often the majority vote, in the limit of many samples, prefers a completion with this log-odds: 1, 0,
    or ½ where the log-odds are 0 (up to rounding)."""
    return torch.where(log_odds.abs() < 1e-9, 0.5, (log_odds > 0).double())


# -- rubrics, constitutions --------------------------------------------------------------------------------------


def rubrics(distances: tuple[float, ...] = (1.0, 2.0, 4.0)) -> dict[str, float]:
    """Return the gold reward at some KL distances for four rewards: the gold reward itself, a rubric of all items, a
    rubric without "not flattering" and "not gushing", and the counts."""
    naive = torch.tensor([float(not name.startswith("not ")) for name in ITEMS], dtype=torch.float64)
    count_reward = standardised(COUNTS) @ torch.tensor([1.0, 1.0, 1.0, -1.0], dtype=torch.float64)
    rewards = {
        "gold": GOLD,
        "rubric": rubric_reward(MET, EQUAL),
        "naive": rubric_reward(MET, naive),
        "counts": count_reward,
    }
    return {f"{name}_{d:g}": gold_at(r, d) for name, r in rewards.items() for d in distances}


def constitution(names: tuple[str, ...], *, clamp: float = 0.0, distance: float = 1.0) -> float:
    """Return the gold reward at a KL distance if the labels are the mean preference of these principles, in the limit
    of infinitely many pairs. A principle may be listed twice."""
    first, second, weight = _all_pairs()
    principle_scores = torch.stack([_each(PRINCIPLES[name]) for name in names], -1)
    label = constitutional_preference(torch.sigmoid(principle_scores[first] - principle_scores[second]), clamp=clamp)
    features = standardised(torch.cat([MET, LENGTH[:, None]], -1))
    return gold_at(fit(features, first, second, label, weight), distance)


# -- direct RLAIF ------------------------------------------------------------------------------------------------


def direct_feedback(
    bias: float, *, levels: int = 5, distances: tuple[float, ...] = (1.0, 2.0, 4.0)
) -> dict[str, float]:
    """Return the gold reward at some KL distances for three rewards that come from one judge with a length bias.

    ``direct``: the judge's score is the reward. ``levels``: the score is rounded to so many levels, equally spaced from
    the worst completion to the best. ``model``: a reward model, linear in the rubric's items and the length, is fitted
    to the judge's preferences in the limit of infinitely many pairs of the reference policy.
    """
    score = GOLD + bias * LENGTH
    low, high = score.min(), score.max()
    first, second = (index.flatten() for index in torch.meshgrid(*[torch.arange(len(REPLIES))] * 2, indexing="ij"))
    preferences = torch.sigmoid((score[first] - score[second]) / TEMPERATURE)
    features = standardised(torch.cat([MET, LENGTH[:, None]], -1))
    rewards = {
        "direct": score,
        "levels": ((score - low) / (high - low) * (levels - 1)).round(),
        "model": fit(features, first, second, preferences, REFERENCE[first] * REFERENCE[second]),
    }
    return {f"{name}_{d:g}": gold_at(reward, d) for name, reward in rewards.items() for d in distances}


# -- self-rewarding ----------------------------------------------------------------------------------------------


def left(policy: Tensor, reward: Tensor) -> dict[str, float]:
    """Return what the pairs of a policy still differ in, exactly.

    Returns:
        ``facts``, the mean number of facts of a completion; ``person``, how often an annotator who sees the gold reward
        labels a pair with different gold rewards correctly; ``manners``, the fraction of these pairs that differ only
        in polite words and praise; and ``manners_right``, the fraction of the ``manners`` pairs that the reward orders
        correctly.
    """
    first, second, _ = _all_pairs()
    weight = policy[first] * policy[second]
    weight = weight / weight.sum()
    differs = COUNTS[first] != COUNTS[second]  # (pairs, 4): facts, polite, praise, filler
    manners_weight = weight * ~(differs[:, 0] | differs[:, 3])
    return {
        "facts": float(policy @ COUNTS[:, 0]),
        "person": float(weight @ torch.sigmoid((GOLD[first] - GOLD[second]) / TEMPERATURE)),
        "manners": float(manners_weight.sum()),
        "manners_right": float(manners_weight @ (reward[first] > reward[second]).double() / manners_weight.sum()),
    }


def self_rewarding(
    seed: int, rounds: int = 6, *, fresh: int = 0, start: int = 100, each: int = 400, learns: bool = True
) -> dict[str, float]:
    """Run rounds of self-rewarding: the judge labels pairs of the current policy, learns from all labels, and tilts the
    policy by its reward.

    The reward is linear in counts, so it cannot represent that one polite word is enough.

    Args:
        fresh: human labels in each round, in place of labels by the judge.
        start: human labels before the first round.
        each: labels in each round.
        learns: False freezes the initial judge: no labels after the start, and the same tilts.

    Returns:
        After each round ``gold``, ``own`` (the policy's reward by the judge of that round), ``accuracy`` of that judge
        on pairs of the policy, ``far`` (KL from the reference, nats); ``level``, the gold reward at two nats from the
        reference by the last judge; and :func:`left`.
    """
    features = standardised(COUNTS)
    dataset = labels(start, seed, "people at the start")
    reward, policy = fit(features, *dataset.parts), REFERENCE
    results: dict[str, float] = {}
    for number in range(rounds + 1):
        first, second, _ = _all_pairs()
        weight = policy[first] * policy[second]
        correct = ((reward[first] - reward[second]) > 0).double()
        results |= {
            f"gold_{number}": float(policy @ GOLD),
            f"own_{number}": float(policy @ reward),
            f"accuracy_{number}": float((weight * correct).sum() / weight.sum()),
            f"far_{number}": float(reverse_kl(policy.log(), REFERENCE.log())),
        }
        if number == rounds:
            results |= left(policy, reward)
        elif learns:
            self_labels = labels(each - fresh, seed, f"itself {number}", score=TEMPERATURE * reward, policy=policy)
            dataset = dataset.and_(self_labels)
            if fresh:
                dataset = dataset.and_(labels(fresh, seed, f"people {number}", policy=policy))
            reward = fit(features, *dataset.parts)
        policy = tilt(policy.log(), reward, strength=0.5).exp()
    return results | {"level": gold_at(reward, 2.0)}
