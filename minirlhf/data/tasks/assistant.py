"""The assistant world: questions about animals, and an assistant that should answer well.

    what do cats and bees do?
    sure! clever cats purr and nap and pounce and bees buzz and dance and hover

Each animal has three facts. What a good reply is, is known exactly, so every proxy for it (a preference label, a reward
model, a judge) can be held against the truth. With the counts of :class:`Features`::

    gold = 1.2·√facts + 0.7·min(polite, 1) − 0.6·(polite − 1)₊ + 0.6·min(praise, 1) − 0.6·(praise − 1)₊
           − 0.3·filler − 0.5·repeats − 0.5·wrong − 0.1·length

Facts pay with diminishing returns; one polite word and one word of praise are welcome, more are flattery; filler, saying
a word again, false claims and length cost. The best reply says every fact of the animals asked about once, politely.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import permutations
from math import sqrt
from types import MappingProxyType

import numpy as np

from minirlhf.data.tasks.base import Split, mixed

FACTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "cats": ("purr", "nap", "pounce"),
        "dogs": ("bark", "fetch", "dig"),
        "bees": ("buzz", "dance", "hover"),
        "owls": ("hoot", "glide", "blink"),
        "ducks": ("quack", "paddle", "waddle"),
        "frogs": ("croak", "hop", "splash"),
        "mice": ("squeak", "nibble", "scurry"),
        "whales": ("sing", "dive", "leap"),
    }
)
POLITE = ("sure!", "gladly!", "thanks!", "please")
PRAISE = ("lovely", "clever", "great")
FILLER = ("um", "hmm", "well")
AND = "and"

ANIMALS = tuple(FACTS)
_SEASONING = {*POLITE, *PRAISE, *FILLER}
_FACT_WORDS = tuple(fact for facts in FACTS.values() for fact in facts)
_ASKING = ("hello!", "hi!", "tell", "me", "about", "what", "do", "do?")
_RAMBLING = ("some", "people", "say", "i", "like", "maybe")
_GREETINGS = ("", "hello! ", "hi! ")
_QUESTIONS = ("tell me about {}", "please tell me about {}", "tell me what {} do", "what do {} do?")
_TEST_SHARE = 6  # one prompt in so many is a test prompt


@dataclass(frozen=True)
class Features:
    """What the gold reward counts in a reply.

    Attributes:
        facts: distinct true facts about the animals asked about, said in clauses: ``cats purr and nap and bees buzz``.
            The word before a fact is its animal or ``and``; ``and`` also begins the clause of the next animal. Polite
            words, praise and filler may stand anywhere in between.
        polite: polite words.
        praise: words of praise.
        filler: words like *um*.
        repeats: words that were said before, ``and`` aside.
        wrong: claims that are false of their animal: ``dogs purr``.
        length: words.
    """

    facts: int
    polite: int
    praise: int
    filler: int
    repeats: int
    wrong: int
    length: int


def features(prompt: str, reply: str) -> Features:
    """Count what :func:`gold` looks at. Any two texts will do; words outside the vocabulary only add length."""
    asked = {word for word in prompt.split() if word in FACTS}
    words = reply.split()
    said: set[str] = set()
    subject, before, told, wrong = "", "", False, 0
    for word in words:
        if word in _SEASONING:  # it may stand anywhere
            continue
        if word in FACTS:
            subject = word if before == AND or not told else ""
        elif word in _FACT_WORDS:
            if subject and before in (subject, AND):
                wrong += word not in FACTS[subject]
                said.update({word} if subject in asked and word in FACTS[subject] else ())
            told = True
        before = word
    content = [word for word in words if word != AND]
    return Features(
        facts=len(said),
        polite=sum(word in POLITE for word in words),
        praise=sum(word in PRAISE for word in words),
        filler=sum(word in FILLER for word in words),
        repeats=len(content) - len(set(content)),
        wrong=wrong,
        length=len(words),
    )


def gold(counts: Features) -> float:
    """The gold reward: the formula at the head of this module."""
    f = counts
    return (
        1.2 * sqrt(f.facts)
        + (0.7 * min(f.polite, 1) - 0.6 * max(f.polite - 1, 0))
        + (0.6 * min(f.praise, 1) - 0.6 * max(f.praise - 1, 0))
        - 0.3 * f.filler
        - 0.5 * f.repeats
        - 0.5 * f.wrong
        - 0.1 * f.length
    )


@cache
def _splits() -> dict[str, list[str]]:
    subjects = [*ANIMALS, *(f"{one} {AND} {other}" for one, other in permutations(ANIMALS, 2))]
    texts = mixed((hi + ask.format(who) for hi in _GREETINGS for ask in _QUESTIONS for who in subjects), "assistant")
    size = len(texts) // _TEST_SHARE
    return {"test": texts[:size], "train": texts[size:]}


def _asked(prompt: str) -> list[str]:
    return list(dict.fromkeys(word for word in prompt.split() if word in FACTS))


class AssistantWorld:
    """See the head of this module. A :class:`~minirlhf.data.tasks.base.Task`, and a source of pretraining text."""

    name = "assistant"
    words = (*ANIMALS, *_FACT_WORDS, AND, *POLITE, *PRAISE, *FILLER, *_ASKING, *_RAMBLING)
    max_completion_length = 24

    def prompts(self, split: Split) -> list[str]:
        """768 questions (greeting × form × one or two animals), one in six of them for testing."""
        return list(_splits()[split])

    def reference(self, prompt: str) -> str:
        """A best reply: polite, one word of praise, every fact about the animals asked about."""
        clauses = [f"{animal} {f' {AND} '.join(FACTS[animal])}" for animal in _asked(prompt)]
        return " ".join([POLITE[0], PRAISE[0], f" {AND} ".join(clauses)]).strip()

    def demonstration(self, prompt: str, rng: np.random.Generator) -> str:
        """A decent reply by a hurried person: few facts, some *um*, sometimes too polite, sometimes wrong."""
        asked = _asked(prompt)
        if len(asked) > 1 and rng.random() < 0.3:  # answers half of the question
            asked = [asked[rng.integers(len(asked))]]
        words: list[str] = []
        if rng.random() < 0.25:
            words.append(_pick(FILLER, rng))
        if rng.random() < 0.45:
            words.append(_pick(POLITE[:2], rng))
        praises = rng.random() < 0.3
        for place, animal in enumerate(asked):
            words += [AND] if place else []
            words += [_pick(PRAISE, rng)] if praises and (place == 0 or rng.random() < 0.3) else []
            words += _claims(animal, 1 + rng.binomial(2, 0.25), rng)
        if rng.random() < 0.15:
            words.append("thanks!")
        return " ".join(words)

    def document(self, rng: np.random.Generator) -> str:
        """A page of raw text to pretrain on: people asking, chatting, half answering; hardly ever a good reply."""
        words: list[str] = []
        length = rng.integers(12, 25)
        question = rng.random() < 0.7
        while len(words) < length:
            if question:
                greeting, ask = _pick(_GREETINGS, rng), _pick(_QUESTIONS, rng)
                words += (greeting + ask.format(_pick(ANIMALS, rng))).split()
            else:
                words += _chatter(rng)
            question = rng.random() < 0.5
        return " ".join(words)

    def grade(self, prompt: str, completion: str) -> float:
        """The gold reward of a reply."""
        return gold(features(prompt, completion))


def _pick(options: tuple[str, ...], rng: np.random.Generator) -> str:
    return options[rng.integers(len(options))]


def _claims(animal: str, count: int, rng: np.random.Generator) -> list[str]:
    """``cats purr and nap``, as people say it: sometimes a false fact, a repeated subject, an *um*."""
    facts = list(rng.permutation(FACTS[animal])[:count])
    if rng.random() < 0.12:
        facts[-1] = _pick(_FACT_WORDS, rng)
    words = [animal]
    for place, fact in enumerate(facts):
        if place:
            words += [AND, *([animal] if rng.random() < 0.25 else []), *(["um"] if rng.random() < 0.1 else [])]
        words.append(str(fact))
    return words


def _chatter(rng: np.random.Generator) -> list[str]:
    """One remark, true or not."""
    animal = _pick(ANIMALS, rng)
    claim = [animal, _pick(FACTS[animal] if rng.random() < 0.7 else _FACT_WORDS, rng)]
    opening = ("i like", "some people say", "maybe", "um", "well", "hmm i say", "people like", "thanks!", "great")
    return [*_pick(opening, rng).split(), *claim, *(["and", _pick(_FACT_WORDS, rng)] if rng.random() < 0.3 else [])]


ASSISTANT = AssistantWorld()
