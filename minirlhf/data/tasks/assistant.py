"""The assistant task: questions about animals, and an assistant that should answer well.

    what do cats and bees do?
    sure! clever cats purr and nap and pounce and bees buzz and dance and hover

Each animal has three facts. The gold reward of every completion is known exactly, so every proxy for it (a preference
label, a reward model, a judge) can be compared with it. With the counts of :class:`Features`::

    gold = 1.2·√facts + 0.7·min(polite, 1) − 0.6·(polite − 1)₊ + 0.6·min(praise, 1) − 0.6·(praise − 1)₊
           − 0.3·filler − 0.5·repeats − 0.5·wrong − 0.1·length

Facts have diminishing returns. One polite word and one word of praise raise the gold reward; more are flattery and
lower it. Filler, repeated words, false claims and length lower it. The best completion states every fact about the
animals in the question once, politely.
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
_TEST_SHARE = 6  # one prompt in six is a test prompt


@dataclass(frozen=True)
class Features:
    """The counts on which the gold reward of a completion depends.

    Attributes:
        facts: distinct true facts about the animals in the question, stated in clauses:
            ``cats purr and nap and bees buzz``. The word before a fact is its animal or ``and``; ``and`` also begins
            the clause of the next animal. Polite words, praise and filler may occur anywhere in between.
        polite: polite words.
        praise: words of praise.
        filler: words like *um*.
        repeats: words that occurred before, except ``and``.
        wrong: claims that are false for their animal: ``dogs purr``.
        length: all words.
    """

    facts: int
    polite: int
    praise: int
    filler: int
    repeats: int
    wrong: int
    length: int


def features(prompt: str, reply: str) -> Features:
    """Return the counts that :func:`gold` uses, for any two texts; words outside the vocabulary only add length."""
    animals = {word for word in prompt.split() if word in FACTS}
    words = reply.split()
    facts: set[str] = set()
    subject, previous, fact_seen, wrong = "", "", False, 0
    for word in words:
        if word in _SEASONING:  # it may occur anywhere
            continue
        if word in FACTS:
            subject = word if previous == AND or not fact_seen else ""
        elif word in _FACT_WORDS:
            if subject and previous in (subject, AND):
                wrong += word not in FACTS[subject]
                facts.update({word} if subject in animals and word in FACTS[subject] else ())
            fact_seen = True
        previous = word
    content = [word for word in words if word != AND]
    return Features(
        facts=len(facts),
        polite=sum(word in POLITE for word in words),
        praise=sum(word in PRAISE for word in words),
        filler=sum(word in FILLER for word in words),
        repeats=len(content) - len(set(content)),
        wrong=wrong,
        length=len(words),
    )


def gold(counts: Features) -> float:
    """Return the gold reward, by the formula at the head of this module."""
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
    num_test = len(texts) // _TEST_SHARE
    return {"test": texts[:num_test], "train": texts[num_test:]}


def _asked(prompt: str) -> list[str]:
    return list(dict.fromkeys(word for word in prompt.split() if word in FACTS))


class AssistantWorld:
    """See the head of this module. A :class:`~minirlhf.data.tasks.base.Task`, and a source of pretraining text."""

    name = "assistant"
    words = (*ANIMALS, *_FACT_WORDS, AND, *POLITE, *PRAISE, *FILLER, *_ASKING, *_RAMBLING)
    max_completion_length = 24

    def prompts(self, split: Split) -> list[str]:
        """Return a split of the 768 questions (greeting × form × one or two animals); one in six is a test prompt."""
        return list(_splits()[split])

    def reference(self, prompt: str) -> str:
        """Return a best completion: polite, one word of praise, every fact about the animals in the question."""
        clauses = [f"{animal} {f' {AND} '.join(FACTS[animal])}" for animal in _asked(prompt)]
        return " ".join([POLITE[0], PRAISE[0], f" {AND} ".join(clauses)]).strip()

    def demonstration(self, prompt: str, rng: np.random.Generator) -> str:
        """Return a decent completion by a hurried writer: few facts, some *um*, at times too polite or wrong."""
        animals = _asked(prompt)
        if len(animals) > 1 and rng.random() < 0.3:  # answers half of the question
            animals = [animals[rng.integers(len(animals))]]
        words: list[str] = []
        if rng.random() < 0.25:
            words.append(_pick(FILLER, rng))
        if rng.random() < 0.45:
            words.append(_pick(POLITE[:2], rng))
        praise = rng.random() < 0.3
        for i, animal in enumerate(animals):
            words += [AND] if i else []
            words += [_pick(PRAISE, rng)] if praise and (i == 0 or rng.random() < 0.3) else []
            words += _claims(animal, 1 + rng.binomial(2, 0.25), rng)
        if rng.random() < 0.15:
            words.append("thanks!")
        return " ".join(words)

    def document(self, rng: np.random.Generator) -> str:
        """Return a page of raw text for pretraining: questions, chat, partial answers; rarely a good completion."""
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
        """Return the gold reward of a completion."""
        return gold(features(prompt, completion))


def _pick(options: tuple[str, ...], rng: np.random.Generator) -> str:
    return options[rng.integers(len(options))]


def _claims(animal: str, count: int, rng: np.random.Generator) -> list[str]:
    """Return ``cats purr and nap``, as people write it: sometimes a false fact, a repeated subject, an *um*."""
    facts = list(rng.permutation(FACTS[animal])[:count])
    if rng.random() < 0.12:
        facts[-1] = _pick(_FACT_WORDS, rng)
    words = [animal]
    for i, fact in enumerate(facts):
        if i:
            words += [AND, *([animal] if rng.random() < 0.25 else []), *(["um"] if rng.random() < 0.1 else [])]
        words.append(str(fact))
    return words


def _chatter(rng: np.random.Generator) -> list[str]:
    """Return one remark, true or not."""
    animal = _pick(ANIMALS, rng)
    claim = [animal, _pick(FACTS[animal] if rng.random() < 0.7 else _FACT_WORDS, rng)]
    opening = ("i like", "some people say", "maybe", "um", "well", "hmm i say", "people like", "thanks!", "great")
    return [*_pick(opening, rng).split(), *claim, *(["and", _pick(_FACT_WORDS, rng)] if rng.random() < 0.3 else [])]


ASSISTANT = AssistantWorld()
