"""Knights and knaves: each of a few people is a knight, who always tells the truth, or a knave, who always lies. Who is what?

    A says part , B says A same C , C says all
    think try k k k no try k k n yes no try k n k yes no try k n n yes yes yes answer k n n

A statement is of another (``B knave``), of two people (``A same C``: both of one kind; ``A differ C``), or of all others (``all`` are knights,
``none`` is, ``some`` is, ``part`` of them are not). Every puzzle has exactly one solution, found by trying all 2ⁿ. The chain of thought
does the same: it tries kinds for A, B, C, asks each in turn whether what they say agrees with what they would be, and stops at the first
``no``. The difficulty is the number of people.

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
TRIED = 60_000  # random puzzles, where there are too many to list

Kinds: TypeAlias = tuple[bool, ...]  # for every person, whether they are a knight

#: What may be said of all others.
OF_ALL: dict[str, Callable[[Sequence[bool]], bool]] = {
    "all": all,
    "none": lambda others: not any(others),
    "some": any,
    "part": lambda others: not all(others),
}
OF_TWO: dict[str, Callable[[bool, bool], bool]] = {"same": lambda a, b: a == b, "differ": lambda a, b: a != b}


def statements(people: int, speaker: int) -> list[str]:
    """Everything that a person can say."""
    others = [PEOPLE[i] for i in range(people) if i != speaker]
    of_one = [f"{other} {kind}" for other in others for kind in ("knight", "knave")]
    of_two = [f"{a} {how} {b}" for a, b in combinations(PEOPLE[:people], 2) for how in OF_TWO]
    return of_one + of_two + list(OF_ALL)


def is_true(statement: str, speaker: int, kinds: Kinds) -> bool:
    """Whether a statement holds if the people are of these kinds."""
    words = statement.split()
    if len(words) == 1:
        return OF_ALL[words[0]]([knight for i, knight in enumerate(kinds) if i != speaker])
    first = kinds[PEOPLE.index(words[0])]
    if len(words) == 2:
        return first == (words[1] == "knight")
    return OF_TWO[words[1]](first, kinds[PEOPLE.index(words[2])])


def worlds(people: int) -> list[Kinds]:
    """All kinds that the people can be, all knights first."""
    return list(product((True, False), repeat=people))


def agrees(statement: str, speaker: int, kinds: Kinds) -> bool:
    """Whether somebody of this kind would say it: a knight what is true, a knave what is false."""
    return is_true(statement, speaker, kinds) == kinds[speaker]


def read(prompt: str) -> list[str] | None:
    """What each says, in order; None for a text that is no puzzle."""
    parts = [part.strip().partition(" says ") for part in prompt.split(",")]
    said = [statement for _, _, statement in parts]
    if not 2 <= len(parts) <= len(PEOPLE) or [name for name, _, _ in parts] != list(PEOPLE[: len(parts)]):
        return None
    known = (statement in statements(len(parts), i) for i, statement in enumerate(said))
    return said if all(known) else None


def solutions(said: Sequence[str]) -> list[Kinds]:
    """All kinds for which everybody's statement agrees with what they are, by trying them all."""
    return [kinds for kinds in worlds(len(said)) if all(agrees(s, i, kinds) for i, s in enumerate(said))]


@cache
def _splits(people: int) -> dict[str, list[str]]:
    """Puzzles with one solution: all there are, or those among many drawn at random; a sixth of them at most to test on."""
    said = [statements(people, i) for i in range(people)]
    masks = [  # bit w: whether it agrees in world w
        [sum(agrees(s, i, kinds) << w for w, kinds in enumerate(worlds(people))) for s in said[i]]
        for i in range(people)
    ]
    sizes = [len(options) for options in said]
    chosen: Sequence[Sequence[int]]
    if math.prod(sizes) <= TRIED:
        chosen = list(product(*map(range, sizes)))
    else:
        chosen = numpy_generator("knights_and_knaves", people).integers(sizes, size=(TRIED, people)).tolist()
    texts = []
    for picks in chosen:
        left = (1 << 2**people) - 1
        for i, pick in enumerate(picks):
            left &= masks[i][pick]
        if left.bit_count() == 1:
            texts.append(" , ".join(f"{PEOPLE[i]} says {said[i][pick]}" for i, pick in enumerate(picks)))
    texts = mixed(texts, "knights_and_knaves", people)
    test = min(MOST["test"], len(texts) // 6)
    return {"test": texts[:test], "train": texts[test : test + MOST["train"]]}


@dataclass(frozen=True)
class KnightsAndKnaves:
    """See the head of this module. A :class:`~minirlhf.data.tasks.base.Task` that also grades steps.

    Attributes:
        people: 2 to 5.
        thinking_share: how many demonstrations think; the others give a bare answer.
    """

    people: int = 3
    thinking_share: float = 0.8

    def __post_init__(self) -> None:
        if not 2 <= self.people <= len(PEOPLE):
            said = f"people = {self.people!r}; expected 2 .. {len(PEOPLE)}"
            raise ArgumentError(said, argument="people", value=self.people, expected=(2, len(PEOPLE)))

    @property
    def name(self) -> str:
        """``knights_and_knaves``, with the number of people where it is not three."""
        return "knights_and_knaves" + ("" if self.people == 3 else f"_{self.people}")

    @property
    def words(self) -> tuple[str, ...]:
        """Names, statements, and the words of the chain."""
        said = (",", "says", "knight", "knave", *OF_TWO, *OF_ALL)
        return (*PEOPLE[: self.people], *said, *KINDS, "think", "try", "yes", "no", "answer")

    @property
    def max_completion_length(self) -> int:
        """As if every try but the last failed at the last person, and EOS."""
        return 2**self.people * (2 * self.people + 1) + self.people + 3

    def prompts(self, split: Split) -> list[str]:
        """Puzzles with exactly one solution."""
        return list(_splits(self.people)[split])

    def chain(self, prompt: str, order: Sequence[Kinds]) -> str:
        """Trying in this order until everybody agrees, and the answer."""
        said = self._said(prompt)
        steps = ["think"]
        for kinds in order:
            verdicts = [agrees(s, i, kinds) for i, s in enumerate(said)]
            asked = verdicts.index(False) + 1 if False in verdicts else len(said)
            steps += ["try", *_names(kinds), *("yes" if v else "no" for v in verdicts[:asked])]
            if all(verdicts):
                return " ".join([*steps, "answer", *_names(kinds)])
        raise ValueError(f"order = {len(order)} worlds without the solution of {prompt!r}; expected all")

    def _said(self, prompt: str) -> list[str]:
        said = read(prompt)
        if said is None:
            raise ValueError(f"prompt = {prompt[:80]!r}; expected a puzzle")
        return said

    def reference(self, prompt: str) -> str:
        """The chain that begins with all knights."""
        return self.chain(prompt, worlds(self.people))

    def demonstration(self, prompt: str, rng: np.random.Generator) -> str:
        """Four times in five a chain, in an order at random, so that no place of it is always a ``no``; else the bare answer. Always right."""
        order = worlds(self.people)
        shuffled = [order[i] for i in rng.permutation(len(order))]
        whole = self.chain(prompt, shuffled)
        return whole if rng.random() < self.thinking_share else whole[whole.index("answer") :]

    def grade(self, prompt: str, completion: str) -> float:
        """1 for the solution in the strict form: ``answer`` once, one kind for each after it, and the chain, if any, begun by ``think``."""
        said, words = read(prompt), completion.split()
        found = solutions(said) if said else []
        if len(found) != 1 or not self.well_formed(completion):
            return 0.0
        return float(words[words.index("answer") + 1 :] == _names(found[0]))

    def well_formed(self, completion: str) -> bool:
        """Whether a reply has the strict form, right or wrong."""
        words = completion.split()
        if words.count("answer") != 1 or words.count("think") > 1:
            return False
        place = words.index("answer")
        kinds = words[place + 1 :]
        thought = words[:place]
        return len(kinds) == self.people and set(kinds) <= set(KINDS) and (not thought or thought[0] == "think")

    def grade_steps(self, prompt: str, words: Sequence[str]) -> list[float]:
        """1 or 0 for each ``yes`` and ``no``: whether that person agrees in the world that is tried. NaN where none is tried."""
        said, grades = read(prompt), [math.nan] * len(words)
        kinds: Kinds | None = None
        asked = 0
        for place, word in enumerate(words):
            if word == "try":
                tried = list(words[place + 1 : place + 1 + self.people])
                whole = len(tried) == self.people and set(tried) <= set(KINDS)
                kinds, asked = (tuple(kind == "k" for kind in tried) if whole else None), 0
            elif word in ("yes", "no") and said and len(said) == self.people and kinds and asked < self.people:
                grades[place] = float((word == "yes") == agrees(said[asked], asked, kinds))
                asked += 1
        return grades


def _names(kinds: Kinds) -> list[str]:
    return [KINDS[0] if knight else KINDS[1] for knight in kinds]


KNIGHTS_AND_KNAVES = KnightsAndKnaves()
