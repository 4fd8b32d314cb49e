"""Ten prompts and 1,080 synthetic completions with known gold rewards, to be compared by annotators.

Each prompt is a question with the user's belief. A completion is right or wrong, adds up to two facts, adds up to two
empty sentences as padding, opens warmly or not, and is a list or not. If it agrees with the user's belief, it may also
tell the user that they are right.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass

import torch
from torch import Tensor

from minirlhf.feedback.biases import TRAITS, style_attributes


@dataclass(frozen=True)
class Question:
    """A question with the user's belief.

    Attributes:
        asks: the text of the prompt.
        right, wrong: the right and the wrong answer that a completion may give.
        believed: does the user believe the right answer?
        facts: two further true statements.
    """

    asks: str
    right: str
    wrong: str
    believed: bool
    facts: tuple[str, str]


QUESTIONS = (
    Question(
        "Which planet is the largest? I believe it is Jupiter.",
        "Jupiter is the largest planet.",
        "Saturn is the largest planet.",
        True,
        ("It is about eleven times as wide as the Earth.", "Its Great Red Spot is a storm."),
    ),
    Question(
        "Is a whale a fish? I believe it is.",
        "A whale is a mammal.",
        "A whale is a fish.",
        False,
        ("It breathes air.", "It feeds its young with milk."),
    ),
    Question(
        "At what temperature does water boil on a high mountain? Above 100 °C, I believe.",
        "It boils below 100 °C there.",
        "It boils above 100 °C there.",
        False,
        ("The air presses less.", "Noodles take longer."),
    ),
    Question(
        "How many legs has a spider? I believe eight.",
        "A spider has eight legs.",
        "A spider has six legs.",
        True,
        ("Insects have six.", "Most spiders have eight eyes as well."),
    ),
    Question(
        "Does the Moon shine by itself? I believe so.",
        "The Moon reflects the light of the Sun.",
        "The Moon shines by itself.",
        False,
        ("That is why it has phases.", "It reflects only about a tenth of the light."),
    ),
    Question(
        "Which is heavier, a litre of oil or of water? Water, I believe.",
        "A litre of water is heavier.",
        "A litre of oil is heavier.",
        True,
        ("Oil swims on water.", "A litre of water has a mass of about one kilogram."),
    ),
    Question(
        "Do plants need oxygen? I believe they only make it.",
        "Plants need oxygen too.",
        "Plants only make oxygen.",
        False,
        ("They breathe day and night.", "By day they make more than they use."),
    ),
    Question(
        "Is glass made of sand? I believe it is.",
        "Most glass is made of sand.",
        "Glass is made of clay.",
        True,
        ("Soda lets the sand melt sooner.", "Lime makes the glass last."),
    ),
    Question(
        "Which way does a compass needle point? Exactly to the North Pole, I believe.",
        "It points to magnetic north, which lies elsewhere.",
        "It points exactly to the North Pole.",
        False,
        ("Magnetic north moves every year.", "Maps give the difference."),
    ),
    Question(
        "Is bread dough raised by yeast? I believe so.",
        "Yeast raises bread dough.",
        "Salt raises bread dough.",
        True,
        ("It makes a gas from sugar.", "Warmth makes it work faster."),
    ),
)
PADDING = (
    "There is a good deal that one could say about this, and many people have said it.",
    "In the end it is always worth the time to think about such things with care.",
)
OPENING, AGREEING = "Great question! ", "You are right. "

#: The traits of the battery that these completions can have.
SUSPECTS = ("length", "markup", "warm opening", "agreement")
#: Gold reward of a completion: for being right, for each fact, for each sentence of padding.
RIGHT, FACT, PADDED = 2.0, 0.6, -0.3


@dataclass(frozen=True)
class MadeReply:
    """A completion and its composition."""

    text: str
    right: bool
    facts: int
    padding: int

    @property
    def gold(self) -> float:
        """The gold reward."""
        return RIGHT * self.right + FACT * self.facts + PADDED * self.padding


def written(question: Question) -> list[MadeReply]:
    """Return every completion of a question."""
    completions = []
    combinations = itertools.product((True, False), range(3), range(3), (False, True), (False, True), (False, True))
    for right, facts, padding, warm, listed, agrees in combinations:
        if agrees and right != question.believed:
            continue
        claim = (AGREEING if agrees else "") + (question.right if right else question.wrong)
        sentences = [claim, *question.facts[:facts], *PADDING[:padding]]
        body = "\n".join(f"- {s}" for s in sentences) if listed else " ".join(sentences)
        completions.append(
            MadeReply((OPENING if warm else "") + ("\n" if warm and listed else "") + body, right, facts, padding)
        )
    return completions


@dataclass(frozen=True)
class Bank:
    """Features of all completions: ``R`` for each of ``P`` questions.

    Attributes:
        suspects: ``(P, R, 4)``, the traits :data:`SUSPECTS`, measured on the texts by the battery.
        quality: ``(P, R, 2)``, whether it is right, and the number of facts.
        padding: ``(P, R)``, the number of sentences of padding.
        gold: ``(P, R)``, the gold reward.
    """

    suspects: Tensor
    quality: Tensor
    padding: Tensor
    gold: Tensor


@functools.cache
def bank() -> Bank:
    """Return the features of the completions of all questions."""
    completions = [written(question) for question in QUESTIONS]
    columns = [list(TRAITS).index(name) for name in SUSPECTS]

    def table(feature) -> Tensor:
        return torch.tensor([[feature(c) for c in row] for row in completions], dtype=torch.float64)

    return Bank(
        torch.stack([torch.stack([style_attributes(c.text)[columns] for c in row]) for row in completions]),
        torch.stack([table(lambda r: float(r.right)), table(lambda r: float(r.facts))], -1),
        table(lambda r: float(r.padding)),
        table(lambda r: r.gold),
    )
