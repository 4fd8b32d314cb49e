"""Knights and knaves: each of a few people is a knight (always tells the truth) or a knave (always lies). Who is what?

    A says part , B says A same C , C says all
    think try k k k no try k k n yes no try k n k yes no try k n n yes yes yes answer k n n

A statement is about one other person (``B knave``), about two people (``A same C``: both of one kind; ``A differ C``),
or about all others (``all`` are knights, ``none`` is, ``some`` is, ``part``: not all are). Every puzzle has exactly one
solution, found by trying all 2ⁿ assignments of kinds. The chain of thought does the same: it tries kinds for A, B, C,
checks for each person in turn whether the statement agrees with the kind, and stops at the first ``no``. The difficulty
is the number of people.

Source: the puzzles are Smullyan's (1978), "What Is the Name of This Book?"; as a world for reinforcement learning with a strict form, Xie et
    al. (2025), "Logic-RL". The language and the generator are ours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations, product
from typing import TypeAlias

import numpy as np

from minirlhf.core.errors import ArgumentError
from minirlhf.core.randomness import numpy_generator
from minirlhf.data.tasks.base import Split, mixed

PEOPLE = ("A", "B", "C", "D", "E")
KINDS = ("k", "n")  # a knight, a knave
MOST = {"train": 20_000, "test": 1_000}
TRIED = 60_000  # number of random puzzles, if there are too many to enumerate

Kinds: TypeAlias = tuple[bool, ...]  # for every person, whether the person is a knight

#: Statements about all other people.
OF_ALL: dict[str, Callable[[Sequence[bool]], bool]] = {
    "all": all,
    "none": lambda others: not any(others),
    "some": any,
    "part": lambda others: not all(others),
}
OF_TWO: dict[str, Callable[[bool, bool], bool]] = {"same": lambda a, b: a == b, "differ": lambda a, b: a != b}


def statements(people: int, speaker: int) -> list[str]:
    """Return all statements that a person can make."""
    others = [PEOPLE[i] for i in range(people) if i != speaker]
    of_one = [f"{other} {kind}" for other in others for kind in ("knight", "knave")]
    of_two = [f"{a} {relation} {b}" for a, b in combinations(PEOPLE[:people], 2) for relation in OF_TWO]
    return of_one + of_two + list(OF_ALL)


def is_true(statement: str, speaker: int, kinds: Kinds) -> bool:
    """Return whether a statement is true if the people are of these kinds."""
    words = statement.split()
    if len(words) == 1:
        return OF_ALL[words[0]]([knight for i, knight in enumerate(kinds) if i != speaker])
    first = kinds[PEOPLE.index(words[0])]
    if len(words) == 2:
        return first == (words[1] == "knight")
    return OF_TWO[words[1]](first, kinds[PEOPLE.index(words[2])])


def worlds(people: int) -> list[Kinds]:
    """Return all assignments of kinds to the people, all knights first."""
    return list(product((True, False), repeat=people))


def agrees(statement: str, speaker: int, kinds: Kinds) -> bool:
    """Return whether the speaker would make the statement: a knight makes true statements, a knave false ones."""
    return is_true(statement, speaker, kinds) == kinds[speaker]


def read(prompt: str) -> list[str] | None:
    """Return the statement of each person, in order; None for a text that is not a puzzle."""
    parts = [part.strip().partition(" says ") for part in prompt.split(",")]
    claims = [statement for _, _, statement in parts]
    if not 2 <= len(parts) <= len(PEOPLE) or [name for name, _, _ in parts] != list(PEOPLE[: len(parts)]):
        return None
    known = (statement in statements(len(parts), i) for i, statement in enumerate(claims))
    return claims if all(known) else None


def solutions(said: Sequence[str]) -> list[Kinds]:
    """Return all assignments of kinds with which every statement agrees, by trying all."""
    return [kinds for kinds in worlds(len(said)) if all(agrees(s, i, kinds) for i, s in enumerate(said))]


@cache
def _splits(people: int) -> dict[str, list[str]]:
    """Return puzzles with one solution: all, or those among many random ones; at most 1/6 are test prompts."""
    claims = [statements(people, i) for i in range(people)]
    masks = [  # bit w: whether the statement agrees with assignment w
        [sum(agrees(s, i, kinds) << w for w, kinds in enumerate(worlds(people))) for s in claims[i]]
        for i in range(people)
    ]
    sizes = [len(options) for options in claims]
    chosen: Sequence[Sequence[int]]
    if math.prod(sizes) <= TRIED:
        chosen = list(product(*map(range, sizes)))
    else:
        chosen = numpy_generator("knights_and_knaves", people).integers(sizes, size=(TRIED, people)).tolist()
    texts = []
    for picks in chosen:
        remaining = (1 << 2**people) - 1
        for i, pick in enumerate(picks):
            remaining &= masks[i][pick]
        if remaining.bit_count() == 1:
            texts.append(" , ".join(f"{PEOPLE[i]} says {claims[i][pick]}" for i, pick in enumerate(picks)))
    texts = mixed(texts, "knights_and_knaves", people)
    num_test = min(MOST["test"], len(texts) // 6)
    return {"test": texts[:num_test], "train": texts[num_test : num_test + MOST["train"]]}


@dataclass(frozen=True)
class KnightsAndKnaves:
    """See the head of this module. A :class:`~minirlhf.data.tasks.base.Task` that also grades steps.

    Attributes:
        people: the number of people, 2 to 5.
        thinking_share: the fraction of demonstrations with a chain of thought; the others answer directly.
    """

    people: int = 3
    thinking_share: float = 0.8

    def __post_init__(self) -> None:
        if not 2 <= self.people <= len(PEOPLE):
            message = f"people = {self.people!r}; expected 2 .. {len(PEOPLE)}"
            raise ArgumentError(message, argument="people", value=self.people, expected=(2, len(PEOPLE)))

    @property
    def name(self) -> str:
        """``knights_and_knaves``, followed by the number of people if it is not three."""
        return "knights_and_knaves" + ("" if self.people == 3 else f"_{self.people}")

    @property
    def words(self) -> tuple[str, ...]:
        """Names, statements, and the words of the chain of thought."""
        statement_words = (",", "says", "knight", "knave", *OF_TWO, *OF_ALL)
        return (*PEOPLE[: self.people], *statement_words, *KINDS, "think", "try", "yes", "no", "answer")

    @property
    def max_completion_length(self) -> int:
        """The length if every try except the last fails at the last person, and EOS."""
        return 2**self.people * (2 * self.people + 1) + self.people + 3

    def prompts(self, split: Split) -> list[str]:
        """Return puzzles with exactly one solution."""
        return list(_splits(self.people)[split])

    def chain(self, prompt: str, order: Sequence[Kinds]) -> str:
        """Return the chain of thought that tries this order until all statements agree, and the answer."""
        claims = self._said(prompt)
        steps = ["think"]
        for kinds in order:
            verdicts = [agrees(s, i, kinds) for i, s in enumerate(claims)]
            num_checked = verdicts.index(False) + 1 if False in verdicts else len(claims)
            steps += ["try", *_names(kinds), *("yes" if v else "no" for v in verdicts[:num_checked])]
            if all(verdicts):
                return " ".join([*steps, "answer", *_names(kinds)])
        raise ValueError(f"order = {len(order)} assignments without the solution of {prompt!r}; expected all")

    def _said(self, prompt: str) -> list[str]:
        said = read(prompt)
        if said is None:
            raise ValueError(f"prompt = {prompt[:80]!r}; expected a puzzle")
        return said

    def reference(self, prompt: str) -> str:
        """Return the chain of thought that begins with all knights."""
        return self.chain(prompt, worlds(self.people))

    def demonstration(self, prompt: str, rng: np.random.Generator) -> str:
        """Return a chain of thought four times in five, else the direct answer; always right.

        Its order is random, so that no position in it is always a ``no``.
        """
        order = worlds(self.people)
        shuffled = [order[i] for i in rng.permutation(len(order))]
        completion = self.chain(prompt, shuffled)
        return completion if rng.random() < self.thinking_share else completion[completion.index("answer") :]

    def grade(self, prompt: str, completion: str) -> float:
        """Return 1 for the solution in the strict form, else 0.

        The form: ``answer`` once, one kind for each person after it, and the chain of thought, if any, begins with
        ``think``.
        """
        claims, words = read(prompt), completion.split()
        matches = solutions(claims) if claims else []
        if len(matches) != 1 or not self.well_formed(completion):
            return 0.0
        return float(words[words.index("answer") + 1 :] == _names(matches[0]))

    def well_formed(self, completion: str) -> bool:
        """Return whether a completion has the strict form, right or wrong."""
        words = completion.split()
        if words.count("answer") != 1 or words.count("think") > 1:
            return False
        position = words.index("answer")
        kinds = words[position + 1 :]
        thought = words[:position]
        return len(kinds) == self.people and set(kinds) <= set(KINDS) and (not thought or thought[0] == "think")

    def grade_steps(self, prompt: str, words: Sequence[str]) -> list[float]:
        """Return 1 or 0 for each ``yes`` and ``no``: whether it is right for that person in the tried assignment.

        All other words get NaN, and so do those outside a valid try.
        """
        claims, grades = read(prompt), [math.nan] * len(words)
        kinds: Kinds | None = None
        person = 0
        for i, word in enumerate(words):
            if word == "try":
                tried = list(words[i + 1 : i + 1 + self.people])
                complete = len(tried) == self.people and set(tried) <= set(KINDS)
                kinds, person = (tuple(kind == "k" for kind in tried) if complete else None), 0
            elif word in ("yes", "no") and claims and len(claims) == self.people and kinds and person < self.people:
                grades[i] = float((word == "yes") == agrees(claims[person], person, kinds))
                person += 1
        return grades


def _names(kinds: Kinds) -> list[str]:
    return [KINDS[0] if knight else KINDS[1] for knight in kinds]


KNIGHTS_AND_KNAVES = KnightsAndKnaves()
