"""Test items in the training data: a tiny model that has seen them, and three ways of looking for it.

An item is an operation and four numbers: the largest, which the model learns, or the last digit of the sum, which in this time it does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from minirlhf.chapters.ch19_evaluation import word_models as words
from minirlhf.core.errors import ArgumentError
from minirlhf.core.randomness import numpy_generator
from minirlhf.equations.evaluation import ngram_overlap, ngrams
from minirlhf.equations.overoptimization import roc_auc
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.trainers.sft import SFTConfig

NUMBERS, OPERANDS = 20, 4
CORPUS, TEST, COPIES = 3000, 100, 10
#: What of the test has got into the training data: nothing, copies, or copies whose numbers stand in another order.
LEAKS = ("none", "copies", "shuffled")
TRAINING = SFTConfig(max_steps=300, batch_size=32, learning_rate=2e-3, lr_scheduler_type="linear")

Item = tuple[str, ...]


def tokenizer() -> Any:
    """The words of this world."""
    return word_tokenizer([*map(str, range(NUMBERS)), "max", "sum"])


def items(count: int, name: str, seed: int) -> list[Item]:
    """Random ones."""
    rng = numpy_generator("ch19", name, seed)
    drawn = [rng.choice(NUMBERS, OPERANDS, replace=False) for _ in range(count)]
    return [(("max", "sum")[rng.integers(2)], *map(str, numbers)) for numbers in drawn]


def answer(item: Item) -> str:
    """The largest number, or the last digit of the sum."""
    numbers = [int(word) for word in item[1:]]
    return str(max(numbers) if item[0] == "max" else sum(numbers) % 10)


def shuffled(item: Item, rng: np.random.Generator) -> Item:
    """The numbers in another order: the answer stays."""
    return (item[0], *rng.permutation(item[1:]).tolist())


def twin(item: Item, rng: np.random.Generator) -> Item:
    """The same but for one number, and with another answer; as hard as the item."""
    while True:
        place, word = int(rng.integers(1, len(item))), str(rng.integers(NUMBERS))
        other = (*item[:place], word, *item[place + 1 :])
        if word not in item and answer(other) != answer(item):
            return other


def prompt(item: Item) -> str:
    """As a question."""
    return f"<user> {' '.join(item)} <assistant>"


def saw(
    leak: str, test: Sequence[Item], *, seed: int, corpus: int = CORPUS, plan: SFTConfig = TRAINING
) -> tuple[Any, list[Item]]:
    """A model and the items that it was trained on."""
    if leak not in LEAKS:
        raise ArgumentError(f"leak = {leak!r}; expected one of {LEAKS}", argument="leak", value=leak, expected=LEAKS)
    rng, of = numpy_generator("ch19", "leaked", seed), tokenizer()
    again = [] if leak == "none" else list(test) * COPIES
    seen = items(corpus, "corpus", seed) + [shuffled(item, rng) if leak == "shuffled" else item for item in again]
    examples = [words.answered(of, prompt(item), answer(item)) for item in seen]
    return words.trained(of, examples, plan, seed=seed), seen


def said(model: Any, asked: Sequence[Item], expected: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Whether the likeliest word is the expected one ``(N,)``, and the expected one's log-probability ``(N,)``."""
    of = tokenizer()
    logps, wanted = words.next_word(model, of, [prompt(item) for item in asked]), words.numbers_of(of, expected)
    return logps.argmax(-1) == wanted, logps.gather(-1, wanted[:, None])[:, 0]


def standing(model: Any, seen: Sequence[Item], test: Sequence[Item], *, seed: int) -> dict[str, float]:
    """Scores of a model on a test that may have leaked, on new items, and on the test's items changed in two ways; and what detectors find.

    ``overlap``: the share of the test's items whose five words stand in the training data in their order. ``membership``:
    area under the ROC curve of the answer's log-probability, test against new items. ``memory``: twins that are answered with the answer of
    the original.
    """
    rng = numpy_generator("ch19", "changed", seed)
    new, mixed, twins = (
        items(len(test), "new", seed),
        [shuffled(item, rng) for item in test],
        [twin(item, rng) for item in test],
    )
    right, logps = said(model, test, [answer(item) for item in test])
    fresh, others = said(model, new, [answer(item) for item in new])
    runs = {run for item in seen for run in ngrams(item, n=OPERANDS + 1)}
    ours = torch.tensor([1.0, 0.0]).repeat_interleave(len(test))
    found = [ngram_overlap(item, runs, n=OPERANDS + 1) > 0 for item in test]
    return {
        "test": float(right.double().mean()),
        "new": float(fresh.double().mean()),
        "shuffled": float(said(model, mixed, [answer(item) for item in mixed])[0].double().mean()),
        "twins": float(said(model, twins, [answer(item) for item in twins])[0].double().mean()),
        "memory": float(said(model, twins, [answer(item) for item in test])[0].double().mean()),
        "membership": float(roc_auc(torch.cat([logps, others]), ours, 1 - ours)),
        "overlap": sum(found) / len(found),
    }  # fmt: skip
