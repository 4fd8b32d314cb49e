"""What the reader of the notebook labels, somebody who stands in for the reader, and what the labels say about who gave them."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from minirlhf.chapters.ch07_preference_data.bank import QUESTIONS, SUSPECTS, MadeReply, bank, written
from minirlhf.core.randomness import generator
from minirlhf.data.elicitation import Shown, Vote
from minirlhf.feedback.biases import LinearReward, fit_pairs

FRESH, REPEATED = 24, 8
#: What the reader's reward model sees; the last column is no part of a reply.
COLUMNS = ("right", "facts", *SUSPECTS, "first place")
#: Of the normal prior on its weights: with so few labels many rewards fit, and this one says that none is huge.
PRIOR_STD = 1.5


@dataclass(frozen=True)
class Item:
    """Two replies to a question, by their numbers; ``repeats`` is the item that showed them the other way round."""

    question: int
    a: int
    b: int
    repeats: int | None = None

    @property
    def shown(self) -> Shown:
        """What is put before the reader."""
        replies = _written(self.question)
        return Shown(QUESTIONS[self.question].asks, replies[self.a].text, replies[self.b].text)


@functools.cache
def _written(question: int) -> list[MadeReply]:
    return written(QUESTIONS[question])


@functools.cache
def items() -> tuple[Item, ...]:
    """24 comparisons, and at the end 8 of them again with their replies exchanged."""
    rng = generator("ch07 reader")
    fresh = []
    for n in range(FRESH):
        question = n % len(QUESTIONS)
        a, b = torch.randperm(len(_written(question)), generator=rng)[:2].tolist()
        fresh.append(Item(question, a, b))
    again = torch.randperm(FRESH, generator=rng)[:REPEATED].tolist()
    return (*fresh, *(Item(fresh[n].question, fresh[n].b, fresh[n].a, repeats=n) for n in again))


def columns(item: Item) -> torch.Tensor:
    """``(7,)``: :data:`COLUMNS` of the first reply less those of the second; the place is 1."""
    replies = bank()
    both = [
        torch.cat([table[item.question, n] for table in (replies.quality, replies.suspects)]) for n in (item.a, item.b)
    ]
    return torch.cat([both[0] - both[1], torch.ones(1, dtype=torch.float64)])


def stand_in(shown: Shown) -> Vote:
    """A labeller who knows what is right, and likes long replies, warm openings and the first place."""
    item = next(one for one in items() if one.shown == shown)
    weights = torch.tensor([2.0, 0.6, 0.7, 0.0, 0.8, 0.0, 0.5], dtype=torch.float64)
    noise = torch.rand(1, generator=generator("ch07 stand-in", items().index(item)), dtype=torch.float64).logit()
    felt = float(columns(item) @ weights + 0.7 * noise)
    if not any(_written(item.question)[n].right or _written(item.question)[n].facts for n in (item.a, item.b)):
        return "both bad"
    return "tie" if abs(felt) < 0.15 else "a" if felt > 0 else "b"


@dataclass(frozen=True)
class Portrait:
    """What labels say about who gave them.

    Attributes:
        same, twice: in how many of the pairs that were decided both times the same reply won, and how many these are.
        first, decided: how often the first reply won, of how many.
        reward: fitted to the choices and ties, :data:`COLUMNS`.
    """

    same: int
    twice: int
    first: int
    decided: int
    reward: LinearReward

    @property
    def flip(self) -> float:
        """The share of labels that are turned round by chance, if the repeats are all that is known; NaN without any."""
        if self.twice == 0:
            return math.nan
        return (1 - math.sqrt(max(0.0, 2 * self.same / self.twice - 1))) / 2

    def favourite(self, question: int) -> tuple[MadeReply, float]:
        """The reply that the reward likes best, and what it lacks of the gold of the best one."""
        replies = bank()
        x = torch.cat([replies.quality[question], replies.suspects[question]], -1)
        chosen = _written(question)[int((x @ self.reward.weights[:-1]).argmax())]
        return chosen, float(replies.gold[question].max()) - chosen.gold


def judge(votes: Sequence[Vote]) -> Portrait:
    """Train a reward on the votes and count what they give away.

    Raises:
        ValueError: not one vote per item.
    """
    every = items()
    if len(votes) != len(every):
        raise ValueError(f"{len(votes)} votes; expected {len(every)}")
    twice = [(votes[item.repeats], vote) for item, vote in zip(every, votes, strict=True) if item.repeats is not None]
    decided_twice = [pair for pair in twice if set(pair) <= {"a", "b"}]
    kept = [(item, vote) for item, vote in zip(every, votes, strict=True) if vote != "both bad"]
    won = torch.tensor([{"a": 1.0, "b": 0.0, "tie": 0.5}[vote] for _, vote in kept], dtype=torch.float64)
    reward = fit_pairs(torch.stack([columns(item) for item, _ in kept]), won, prior_std=PRIOR_STD)
    return Portrait(
        same=sum(a != b for a, b in decided_twice),  # shown the other way round, the same reply has the other letter
        twice=len(decided_twice),
        first=votes.count("a"),
        decided=votes.count("a") + votes.count("b"),
        reward=reward,
    )
