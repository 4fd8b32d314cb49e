"""The reader of the notebook as an annotator: the items, a simulated stand-in, and an analysis of the labels."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from minirlhf.core.randomness import generator
from minirlhf.data.elicitation import DisplayedPair, Vote
from minirlhf.feedback.biases import LinearReward, fit_pairs
from minirlhf_course.chapters.ch07_preference_data.bank import QUESTIONS, SUSPECTS, MadeReply, bank, written

FRESH, REPEATED = 24, 8
#: Features of the reader's reward model. The last one, the position, is no feature of a completion.
COLUMNS = ("right", "facts", *SUSPECTS, "first position")
#: Standard deviation of the normal prior on the weights. Few labels fit many rewards; the prior disfavours huge ones.
PRIOR_STD = 1.5


@dataclass(frozen=True)
class Item:
    """Two completions of a question, by index; ``repeats`` is the item that showed the same pair in reverse order."""

    question: int
    a: int
    b: int
    repeats: int | None = None

    @property
    def shown(self) -> DisplayedPair:
        """The prompt and the two completions as shown to the reader."""
        completions = _written(self.question)
        return DisplayedPair(QUESTIONS[self.question].asks, completions[self.a].text, completions[self.b].text)


@functools.cache
def _written(question: int) -> list[MadeReply]:
    return written(QUESTIONS[question])


@functools.cache
def items() -> tuple[Item, ...]:
    """Return 24 comparisons, then 8 of them again with the two completions in reverse order."""
    rng = generator("ch07 reader")
    fresh = []
    for n in range(FRESH):
        question = n % len(QUESTIONS)
        a, b = torch.randperm(len(_written(question)), generator=rng)[:2].tolist()
        fresh.append(Item(question, a, b))
    repeated = torch.randperm(FRESH, generator=rng)[:REPEATED].tolist()
    return (*fresh, *(Item(fresh[n].question, fresh[n].b, fresh[n].a, repeats=n) for n in repeated))


def columns(item: Item) -> torch.Tensor:
    """``(7,)``: :data:`COLUMNS` of the first completion minus those of the second; the position is 1."""
    pool = bank()
    features = [
        torch.cat([table[item.question, n] for table in (pool.quality, pool.suspects)]) for n in (item.a, item.b)
    ]
    return torch.cat([features[0] - features[1], torch.ones(1, dtype=torch.float64)])


def stand_in(shown: DisplayedPair) -> Vote:
    """Vote as an annotator who knows what is right and prefers length, warm openings and the first position."""
    item = next(candidate for candidate in items() if candidate.shown == shown)
    weights = torch.tensor([2.0, 0.6, 0.7, 0.0, 0.8, 0.0, 0.5], dtype=torch.float64)
    noise = torch.rand(1, generator=generator("ch07 stand-in", items().index(item)), dtype=torch.float64).logit()
    utility = float(columns(item) @ weights + 0.7 * noise)
    if not any(_written(item.question)[n].right or _written(item.question)[n].facts for n in (item.a, item.b)):
        return "both bad"
    return "tie" if abs(utility) < 0.15 else "a" if utility > 0 else "b"


@dataclass(frozen=True)
class Portrait:
    """Summary of an annotator's labels.

    Attributes:
        same, twice: number of repeated pairs in which the same completion won both times, and number of repeated pairs
            that were decided both times.
        first, decided: number of wins of the first completion, and number of decided items.
        reward: the reward fitted to the choices and ties, with features :data:`COLUMNS`.
    """

    same: int
    twice: int
    first: int
    decided: int
    reward: LinearReward

    @property
    def flip(self) -> float:
        """Fraction of randomly flipped labels, estimated from the repeats alone; NaN without decided repeats."""
        if self.twice == 0:
            return math.nan
        return (1 - math.sqrt(max(0.0, 2 * self.same / self.twice - 1))) / 2

    def favourite(self, question: int) -> tuple[MadeReply, float]:
        """Return the completion of highest reward, and how far its gold reward is below the largest."""
        pool = bank()
        x = torch.cat([pool.quality[question], pool.suspects[question]], -1)
        chosen = _written(question)[int((x @ self.reward.weights[:-1]).argmax())]
        return chosen, float(pool.gold[question].max()) - chosen.gold


def judge(votes: Sequence[Vote]) -> Portrait:
    """Fit a reward to the votes, and count repeated choices and wins of the first position.

    Raises:
        ValueError: the number of votes is not the number of items.
    """
    pool = items()
    if len(votes) != len(pool):
        raise ValueError(f"{len(votes)} votes; expected {len(pool)}")
    twice = [(votes[item.repeats], vote) for item, vote in zip(pool, votes, strict=True) if item.repeats is not None]
    decided_pairs = [pair for pair in twice if set(pair) <= {"a", "b"}]
    usable = [(item, vote) for item, vote in zip(pool, votes, strict=True) if vote != "both bad"]
    targets = torch.tensor([{"a": 1.0, "b": 0.0, "tie": 0.5}[vote] for _, vote in usable], dtype=torch.float64)
    reward = fit_pairs(torch.stack([columns(item) for item, _ in usable]), targets, prior_std=PRIOR_STD)
    return Portrait(
        same=sum(a != b for a, b in decided_pairs),  # in reverse order, the same completion has the other letter
        twice=len(decided_pairs),
        first=votes.count("a"),
        decided=votes.count("a") + votes.count("b"),
        reward=reward,
    )
