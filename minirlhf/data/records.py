"""What a row of data means, whatever format it came in: one record for each way of learning from it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, product
from typing import TypeAlias

from minirlhf.core.errors import Facts

#: One turn: who speaks (one of :data:`ROLES`, under ``role``) and what (``content``).
Message: TypeAlias = dict[str, str]
ROLES = ("system", "user", "assistant", "tool")
Reply: TypeAlias = list[Message]


class InvalidRecordError(Facts, Exception):
    """This row is well formed and nothing can be learned from it; the message says why."""


class IdenticalPairError(InvalidRecordError):
    """Its replies are equal: more likely a slip in making the data than a row to pass over in silence."""


@dataclass(frozen=True)
class Conversation:
    """Something to imitate: messages that end with an assistant turn, of which the first ``context`` are given."""

    messages: list[Message]
    context: int = 0


@dataclass(frozen=True)
class Comparison:
    """Two ways to go on from a prompt, which ends with a user turn; each begins and ends with an assistant turn.

    ``margin`` says by how much the chosen one is better, and ``subset`` what kind of comparison it is, where the data do.
    ``num_ranked`` replies were ranked at once, of which these are two.
    """

    prompt: list[Message]
    chosen: Reply
    rejected: Reply
    margin: float | None = None
    num_ranked: int = 2
    subset: str | None = None


@dataclass(frozen=True)
class UnpairedPreference:
    """One reply and whether it is a good one: a thumb up or down."""

    prompt: list[Message]
    completion: Reply
    desirable: bool


@dataclass(frozen=True)
class Ranking:
    """Replies in tiers, the best first; those of one tier are tied. ``scores`` holds one number per tier, where the data do."""

    prompt: list[Message]
    tiers: list[list[Reply]]
    scores: tuple[float, ...] | None = None

    def comparisons(self) -> list[Comparison]:
        """Every pair in which one reply is better: C(K, 2) of K replies without ties. The margin is the gap in score."""
        pairs = []
        num_ranked = sum(map(len, self.tiers))
        for i, j in combinations(range(len(self.tiers)), 2):
            margin = None if self.scores is None else self.scores[i] - self.scores[j]
            sides = product(self.tiers[i], self.tiers[j])
            pairs += [Comparison(self.prompt, a, b, margin, num_ranked) for a, b in sides]
        return pairs

    def strict(self) -> list[Reply]:
        """The first reply of every tier, best first: an order without ties, as Plackett–Luce needs."""
        return [tier[0] for tier in self.tiers]


@dataclass(frozen=True)
class StepLabeledCompletion:
    """A reply in steps, each with a label: 1 for a valid step, −1 for a wrong one, 0 for one that is neither."""

    prompt: list[Message]
    steps: list[str]
    labels: tuple[int, ...]


@dataclass(frozen=True)
class Problem:
    """Something to answer. ``reference`` is what a grader compares with, ``solution`` a worked answer to imitate.

    Problems with the same ``cluster`` belong together, as questions about one text do. ``choices``, if there are any, are answers of which
    ``reference`` is one.
    """

    prompt: list[Message]
    reference: str | None = None
    solution: str | None = None
    cluster: str | None = None
    choices: tuple[str, ...] = ()


Example: TypeAlias = Conversation | Comparison | UnpairedPreference | Ranking | StepLabeledCompletion | Problem
