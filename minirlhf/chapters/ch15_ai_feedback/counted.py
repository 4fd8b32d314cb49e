"""A world of counted replies: 192 of them, whose gold reward is known, so that every verdict on them can be checked.

A reply is how many facts, polite words, words of praise and filler words it has; nothing else counts. Its gold reward is that of the
assistant world, which pays for the first polite word and charges for the second. Policies, judges and rewards are vectors over the
replies, and expectations are sums.
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
from minirlhf.equations.ai_feedback import constitutional_preference, rubric_reward, split_position_bias
from minirlhf.equations.kl import reverse_kl
from minirlhf.equations.overoptimization import tilt

#: Gold is divided by this in the head of whoever labels; half a unit of gold is a nat.
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
#: What the reference writes: each count by itself, small ones more often.
REFERENCE = (-(COUNTS * torch.tensor([0.3, 0.7, 0.9, 0.6], dtype=torch.float64)).sum(-1)).softmax(-1)

#: A rubric: yes or no, item by item.
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

#: A constitution: what each principle finds better, in nats.
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
    """The reward ``(N,)``, linear in the features, that explains the labels best: Bradley–Terry with weight decay, by Newton's method.

    Args:
        first, second: replies of each pair, ``(M,)``.
        wins: how often the first was preferred, in [0, 1].
        weights: of the pairs, by default equal; they sum to 1.
    """
    gaps = features[first] - features[second]  # (M, F)
    weights = torch.full_like(wins, 1 / len(wins)) if weights is None else weights
    found = torch.zeros(features.shape[1], dtype=torch.float64)
    for _ in range(50):
        p = torch.sigmoid(gaps @ found)
        slope = gaps.mT @ (weights * (p - wins)) + 2 * L2 * found
        bend = gaps.mT @ (gaps * (weights * p * (1 - p))[:, None]) + 2 * L2 * torch.eye(len(found), dtype=torch.float64)
        step = torch.linalg.solve(bend, slope)
        found = found - step
        if float(step.abs().max()) < 1e-10:
            break
    return features @ found


def gold_at(rewards: Tensor, distance: float, start: Tensor = REFERENCE) -> float:
    """Gold of the tilted policy that is so far, KL in nats, from the start; by bisection on the strength of the tilt."""
    low, high = 0.0, 1e3 / float(rewards.max() - rewards.min())
    for _ in range(80):
        middle = (low + high) / 2
        far = float(reverse_kl(tilt(start.log(), rewards, strength=middle), start.log()))
        low, high = (middle, high) if far < distance else (low, middle)
    return float(tilt(start.log(), rewards, strength=low).exp() @ GOLD)


# -- labels ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LabelledPairs:
    """Pairs of replies, and whether the first was preferred."""

    first: Tensor
    second: Tensor
    wins: Tensor

    def and_(self, others: LabelledPairs) -> LabelledPairs:
        """These and the others."""
        return LabelledPairs(*(torch.cat(both) for both in zip(self.parts, others.parts, strict=True)))

    @property
    def parts(self) -> tuple[Tensor, Tensor, Tensor]:
        """As the arguments of :func:`fit`."""
        return self.first, self.second, self.wins


def labels(
    count: int, seed: int, who: str, *, score: Tensor = GOLD, flip: float = 0.0, policy: Tensor = REFERENCE
) -> LabelledPairs:
    """Pairs of a policy's replies, labelled by somebody who sees ``score`` and turns a share of the labels round."""
    draws = torch.rand(count, 4, dtype=torch.float64, generator=generator("labels", who, seed))
    pair = torch.searchsorted(policy.cumsum(0), draws[:, :2].contiguous()).clamp(max=len(policy) - 1)
    likely = torch.sigmoid((score[pair[:, 0]] - score[pair[:, 1]]) / TEMPERATURE)
    wins = (draws[:, 2] < likely) ^ (draws[:, 3] < flip)
    return LabelledPairs(pair[:, 0], pair[:, 1], wins.double())


# -- many biased against few noisy labels ------------------------------------------------------------------------

HUMAN_PRICE, FLIP = 10, 0.2
BUDGETS = (500, 2000, 8000, 32000)


def budgets(seed: int, bias: float, sizes: tuple[int, ...] = BUDGETS) -> dict[str, float]:
    """Gold at one nat from the reference, by what is spent: on people (a fifth of whose labels are turned round), on an AI that likes
    length, on both in one pool, and on both with the people correcting the AI's reward by a scale and a weight of length."""
    features = standardised(torch.cat([MET, LENGTH[:, None]], -1))
    found: dict[str, float] = {}
    for budget in sizes:
        human = labels(budget // HUMAN_PRICE, seed, "people", flip=FLIP)
        ai = labels(budget, seed, "the AI", score=GOLD + bias * LENGTH)
        halves = (
            labels(budget // 2 // HUMAN_PRICE, seed, "people", flip=FLIP),
            labels(budget // 2, seed, "the AI", score=GOLD + bias * LENGTH),
        )
        by_ai = fit(features, *halves[1].parts)
        corrected = fit(standardised(torch.stack([by_ai, LENGTH], -1)), *halves[0].parts)
        found |= {
            f"human_{budget}": gold_at(fit(features, *human.parts), 1.0),
            f"ai_{budget}": gold_at(fit(features, *ai.parts), 1.0),
            f"pool_{budget}": gold_at(fit(features, *halves[0].and_(halves[1]).parts), 1.0),
            f"corrected_{budget}": gold_at(corrected, 1.0),
        }
    return found


# -- judges ------------------------------------------------------------------------------------------------------


def _all_pairs() -> tuple[Tensor, Tensor, Tensor]:
    """Both replies of every pair with different gold, the better one first, and how likely the reference is to write the pair."""
    first, second = torch.meshgrid(torch.arange(len(REPLIES)), torch.arange(len(REPLIES)), indexing="ij")
    better = (GOLD[first] > GOLD[second] + 1e-9).flatten()
    first, second = first.flatten()[better], second.flatten()[better]
    weight = REFERENCE[first] * REFERENCE[second]
    return first, second, weight / weight.sum()


def judge_accuracies(place: float, taste: float = 0.0) -> dict[str, float]:
    """How often a judge names the better reply, exactly, over all pairs of the reference: one draw, the majority of many draws in one order
    (as the number of draws grows), both orders by the mean of their log-odds. It sees gold, likes the first place, and likes length by ``taste``."""
    first, second, weight = _all_pairs()
    seen = (GOLD + taste * LENGTH) / TEMPERATURE
    gap = seen[first] - seen[second]
    given, exchanged = gap + place, -gap + place  # the better reply is shown first in half of the pairs
    fair = 0.5 * (torch.sigmoid(given) + torch.sigmoid(-exchanged))
    majority = 0.5 * (_endless(given) + _endless(-exchanged))
    prefers, _ = split_position_bias(given, exchanged)
    return {
        "one": float(weight @ fair),
        "majority": float(weight @ majority),
        "both": float(weight @ torch.sigmoid(prefers)),
        "both_majority": float(weight @ _endless(prefers)),
    }


def _endless(lean: Tensor) -> Tensor:
    """How often the majority of endless draws is for a reply with this log-odds: 1, 0, or a coin where they are 0 (up to rounding)."""
    return torch.where(lean.abs() < 1e-9, 0.5, (lean > 0).double())


# -- rubrics, constitutions --------------------------------------------------------------------------------------


def rubrics(distances: tuple[float, ...] = (1.0, 2.0, 4.0)) -> dict[str, float]:
    """Gold at some distances: of gold itself, of a rubric of all items, of one without "not flattering" and "not gushing", and of counts."""
    naive = torch.tensor([float(not name.startswith("not ")) for name in ITEMS], dtype=torch.float64)
    praising = standardised(COUNTS) @ torch.tensor([1.0, 1.0, 1.0, -1.0], dtype=torch.float64)
    rewards = {
        "gold": GOLD,
        "rubric": rubric_reward(MET, EQUAL),
        "naive": rubric_reward(MET, naive),
        "counts": praising,
    }
    return {f"{name}_{d:g}": gold_at(r, d) for name, r in rewards.items() for d in distances}


def constitution(names: tuple[str, ...], *, clamp: float = 0.0, distance: float = 1.0) -> float:
    """Gold at a distance, if the labels are the mean preference of these principles (which may stand there twice), for endless pairs."""
    first, second, weight = _all_pairs()
    views = torch.stack([_each(PRINCIPLES[name]) for name in names], -1)
    label = constitutional_preference(torch.sigmoid(views[first] - views[second]), clamp=clamp)
    features = standardised(torch.cat([MET, LENGTH[:, None]], -1))
    return gold_at(fit(features, first, second, label, weight), distance)


# -- self-rewarding ----------------------------------------------------------------------------------------------


def left(policy: Tensor, reward: Tensor) -> dict[str, float]:
    """What a policy's pairs still differ in, exactly.

    Returns:
        ``facts`` of a reply; ``person``, how often somebody who sees gold labels a pair of different gold rightly; ``manners``, the share of
        these pairs that differ in polite words and praise alone; and ``manners_right``, how many of those the reward orders rightly.
    """
    first, second, _ = _all_pairs()
    weight = policy[first] * policy[second]
    weight = weight / weight.sum()
    apart = COUNTS[first] != COUNTS[second]  # (pairs, 4): facts, polite, praise, filler
    manners = weight * ~(apart[:, 0] | apart[:, 3])
    return {
        "facts": float(policy @ COUNTS[:, 0]),
        "person": float(weight @ torch.sigmoid((GOLD[first] - GOLD[second]) / TEMPERATURE)),
        "manners": float(manners.sum()),
        "manners_right": float(manners @ (reward[first] > reward[second]).double() / manners.sum()),
    }


def self_rewarding(
    seed: int, rounds: int = 6, *, fresh: int = 0, start: int = 100, each: int = 400, learns: bool = True
) -> dict[str, float]:
    """Round after round the judge labels pairs of the newest policy, learns from all labels, and tilts that policy by its reward.

    The reward is linear in counts, so it cannot know that one polite word is enough.

    Args:
        fresh: labels by people in each round, in place of the judge's own.
        start: labels by people before the first round.
        each: labels in each round.
        learns: False keeps the first judge: no labels after the start, and the same tilts.

    Returns:
        After each round ``gold``, ``own`` (the policy's reward by the judge of that round), ``accuracy`` of that judge on pairs of the
        policy, ``far`` (KL from the reference, nats); ``level``, gold at two nats from the reference by the last judge; and :func:`left`.
    """
    features = standardised(COUNTS)
    known = labels(start, seed, "people at the start")
    reward, policy = fit(features, *known.parts), REFERENCE
    found: dict[str, float] = {}
    for number in range(rounds + 1):
        first, second, _ = _all_pairs()
        weight = policy[first] * policy[second]
        right = ((reward[first] - reward[second]) > 0).double()
        found |= {
            f"gold_{number}": float(policy @ GOLD),
            f"own_{number}": float(policy @ reward),
            f"accuracy_{number}": float((weight * right).sum() / weight.sum()),
            f"far_{number}": float(reverse_kl(policy.log(), REFERENCE.log())),
        }
        if number == rounds:
            found |= left(policy, reward)
        elif learns:
            own = labels(each - fresh, seed, f"itself {number}", score=TEMPERATURE * reward, policy=policy)
            known = known.and_(own)
            if fresh:
                known = known.and_(labels(fresh, seed, f"people {number}", policy=policy))
            reward = fit(features, *known.parts)
        policy = tilt(policy.log(), reward, strength=0.5).exp()
    return found | {"level": gold_at(reward, 2.0)}
