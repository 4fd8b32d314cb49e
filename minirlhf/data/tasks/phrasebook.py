"""The phrasebook: pages of word pairs in a language that the page does not name and the examples reveal.

    cat > gato , house > casa , milk > lait , dog >

Each page is in Spanish, French or German, and one word in six is an error from one of the other two. A model of such
pages can translate the next word only if it infers the language *in context*, from the earlier pairs. The predictions
of a perfect reader are known exactly, by Bayes' rule, so a model can be compared with them.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from minirlhf.core.randomness import numpy_generator
from minirlhf.data.tasks.base import Split

ENGLISH = ("cat", "dog", "house", "water", "bread", "milk", "book", "night")
LANGUAGES = {
    "Spanish": ("gato", "perro", "casa", "agua", "pan", "leche", "libro", "noche"),
    "French": ("chat", "chien", "maison", "eau", "pain", "lait", "livre", "nuit"),
    "German": ("Katze", "Hund", "Haus", "Wasser", "Brot", "Milch", "Buch", "Nacht"),
}
GIVES, COMMA = ">", ","
SLIP = 1 / 6  # fraction of words in one of the other two languages
PAIRS = 8  # per page of raw text
SIZES = {"train": 2_000, "test": 500}

_NAMES = tuple(LANGUAGES)
_LANGUAGE_OF = {word: number for number, words in enumerate(LANGUAGES.values()) for word in words}


def posterior(examples: list[str]) -> dict[str, float]:
    """Return the probability of each language of a page, given the foreign words on it so far.

    Bayes' rule: all three have the same prior; a word in the page's language has likelihood 5/6, a word in another
    language 1/12. Words that are in no language carry no information.
    """
    log_odds = [0.0] * len(_NAMES)
    for word in examples:
        if word in _LANGUAGE_OF:
            log_odds[_LANGUAGE_OF[word]] += math.log((1 - SLIP) / (SLIP / 2))
    weights = [math.exp(x - max(log_odds)) for x in log_odds]
    return {name: weight / sum(weights) for name, weight in zip(_NAMES, weights, strict=True)}


def predictive(prompt: str) -> dict[str, float]:
    """Return the probability of each translation of a prompt's last word, errors included: a perfect reader's
    prediction.

    Raises:
        ValueError: the prompt does not end in an English word and ``>``.
    """
    *examples, word, gives = ["", "", *prompt.split()]
    if word not in ENGLISH or gives != GIVES:
        raise ValueError(f"prompt = {prompt!r}; expected it to end in an English word and {GIVES!r}")
    languages = posterior(examples)
    index = ENGLISH.index(word)
    return {
        words[index]: (1 - SLIP) * languages[name] + SLIP / 2 * (1 - languages[name])
        for name, words in LANGUAGES.items()
    }


def _pairs(language: str, count: int, rng: np.random.Generator) -> list[str]:
    """Return ``count`` pairs such as ``cat > gato``, with errors."""
    pairs = []
    for _ in range(count):
        index = rng.integers(len(ENGLISH))
        others = [name for name in _NAMES if name != language]
        name = others[rng.integers(len(others))] if rng.random() < SLIP else language
        pairs.append(f"{ENGLISH[index]} {GIVES} {LANGUAGES[name][index]}")
    return pairs


@cache
def _splits() -> dict[str, list[str]]:
    rng, texts = numpy_generator("phrasebook", "prompts"), dict[str, None]()
    while len(texts) < sum(SIZES.values()):  # two to seven examples, then the question
        pairs = _pairs(_NAMES[rng.integers(len(_NAMES))], int(rng.integers(2, PAIRS)), rng)
        question = f"{ENGLISH[rng.integers(len(ENGLISH))]} {GIVES}"
        texts[f" {COMMA} ".join([*pairs, question])] = None
    prompts = list(texts)
    return {"train": prompts[: SIZES["train"]], "test": prompts[SIZES["train"] :]}


class Phrasebook:
    """See the head of this module. A :class:`~minirlhf.data.tasks.base.Task`, and a source of pretraining text."""

    name = "phrasebook"
    words = (*ENGLISH, *_LANGUAGE_OF, GIVES, COMMA)
    max_completion_length = 2

    def prompts(self, split: Split) -> list[str]:
        """Return 2,000 (test: 500) beginnings of a page: two to seven pairs and an English word to translate."""
        return list(_splits()[split])

    def reference(self, prompt: str) -> str:
        """Return the most probable translation, given the pairs before it."""
        probs = predictive(prompt)
        return max(probs, key=probs.__getitem__)

    def demonstration(self, prompt: str, rng: np.random.Generator) -> str:
        """Return a sample of the page's next word: mostly in the right language, sometimes an error."""
        probs = predictive(prompt)
        return str(rng.choice(list(probs), p=list(probs.values())))

    def page(self, rng: np.random.Generator) -> tuple[str, str]:
        """Return a page of raw text and its language."""
        language = _NAMES[rng.integers(len(_NAMES))]
        return f" {COMMA} ".join(_pairs(language, PAIRS, rng)), language

    def document(self, rng: np.random.Generator) -> str:
        """Return a page of raw text for pretraining; it does not name its language."""
        return self.page(rng)[0]

    def grade(self, prompt: str, completion: str) -> float:
        """Return 1 if the completion is a most probable translation (two may be equally probable), else 0."""
        try:
            probs = predictive(prompt)
        except ValueError:
            return 0.0  # no question, no right answer
        return float(probs.get(completion.strip(), 0.0) >= max(probs.values()) - 1e-12)


PHRASEBOOK = Phrasebook()
