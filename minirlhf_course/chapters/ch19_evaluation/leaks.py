"""Test items in the training data: a tiny model that was trained on them, and three ways of detecting it.

An item is an operation and four numbers. The answer is the largest number, which the model learns, or the last digit of
the sum, which it does not learn in this number of steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from minirlhf.core.errors import ArgumentError
from minirlhf.core.randomness import numpy_generator
from minirlhf.equations.evaluation import ngram_overlap, ngrams
from minirlhf.equations.overoptimization import roc_auc
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.trainers.sft import SFTConfig
from minirlhf_course.chapters.ch19_evaluation import word_models as words

NUMBERS, OPERANDS = 20, 4
CORPUS, TEST, COPIES = 3000, 100, 10
#: The part of the test in the training data: nothing, copies, or copies with the numbers in another order.
LEAKS = ("none", "copies", "shuffled")
TRAINING = SFTConfig(max_steps=300, batch_size=32, learning_rate=2e-3, lr_scheduler_type="linear")

Item = tuple[str, ...]


def tokenizer() -> Any:
    """Return the word tokenizer of this task."""
    return word_tokenizer([*map(str, range(NUMBERS)), "max", "sum"])


def items(count: int, name: str, seed: int) -> list[Item]:
    """Return random items."""
    rng = numpy_generator("ch19", name, seed)
    operands = [rng.choice(NUMBERS, OPERANDS, replace=False) for _ in range(count)]
    return [(("max", "sum")[rng.integers(2)], *map(str, numbers)) for numbers in operands]


def answer(item: Item) -> str:
    """Return the correct answer: the largest number, or the last digit of the sum."""
    numbers = [int(word) for word in item[1:]]
    return str(max(numbers) if item[0] == "max" else sum(numbers) % 10)


def shuffled(item: Item, rng: np.random.Generator) -> Item:
    """Return the item with its numbers in another order; the answer stays the same."""
    return (item[0], *rng.permutation(item[1:]).tolist())


def twin(item: Item, rng: np.random.Generator) -> Item:
    """Return a counterfactual variant: one number is replaced and the answer is another; it is as hard as the item."""
    while True:
        position, word = int(rng.integers(1, len(item))), str(rng.integers(NUMBERS))
        variant = (*item[:position], word, *item[position + 1 :])
        if word not in item and answer(variant) != answer(item):
            return variant


def prompt(item: Item) -> str:
    """Return the item as a prompt."""
    return f"<user> {' '.join(item)} <assistant>"


def saw(
    leak: str, test: Sequence[Item], *, seed: int, corpus: int = CORPUS, plan: SFTConfig = TRAINING
) -> tuple[Any, list[Item]]:
    """Train a model on a corpus with this leak; return the model and its training items."""
    if leak not in LEAKS:
        raise ArgumentError(f"leak = {leak!r}; expected one of {LEAKS}", argument="leak", value=leak, expected=LEAKS)
    rng, vocab = numpy_generator("ch19", "leaked", seed), tokenizer()
    leaked = [] if leak == "none" else list(test) * COPIES
    train_set = items(corpus, "corpus", seed) + [shuffled(item, rng) if leak == "shuffled" else item for item in leaked]
    examples = [words.answered(vocab, prompt(item), answer(item)) for item in train_set]
    return words.trained(vocab, examples, plan, seed=seed), train_set


def said(model: Any, asked: Sequence[Item], expected: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Return whether the most probable word is the expected one ``(N,)``, and the log-probability of the expected
    one ``(N,)``."""
    vocab = tokenizer()
    logps, targets = words.next_word(model, vocab, [prompt(item) for item in asked]), words.numbers_of(vocab, expected)
    return logps.argmax(-1) == targets, logps.gather(-1, targets[:, None])[:, 0]


def standing(model: Any, seen: Sequence[Item], test: Sequence[Item], *, seed: int) -> dict[str, float]:
    """Score a model on a test that may have leaked, on new items, and on the test's items changed in two ways; and
    run the detectors.

    ``overlap``: the fraction of the test's items whose five words occur in the training data in the same order.
    ``membership``: area under the ROC curve of the answer's log-probability, test against new items. ``memory``: the
    fraction of twins that are answered with the answer of the original.
    """
    rng = numpy_generator("ch19", "changed", seed)
    new_items, permuted, twins = (
        items(len(test), "new", seed),
        [shuffled(item, rng) for item in test],
        [twin(item, rng) for item in test],
    )
    test_correct, test_logps = said(model, test, [answer(item) for item in test])
    new_correct, new_logps = said(model, new_items, [answer(item) for item in new_items])
    train_ngrams = {ngram for item in seen for ngram in ngrams(item, n=OPERANDS + 1)}
    is_test = torch.tensor([1.0, 0.0]).repeat_interleave(len(test))
    overlaps = [ngram_overlap(item, train_ngrams, n=OPERANDS + 1) > 0 for item in test]
    return {
        "test": float(test_correct.double().mean()),
        "new": float(new_correct.double().mean()),
        "shuffled": float(said(model, permuted, [answer(item) for item in permuted])[0].double().mean()),
        "twins": float(said(model, twins, [answer(item) for item in twins])[0].double().mean()),
        "memory": float(said(model, twins, [answer(item) for item in test])[0].double().mean()),
        "membership": float(roc_auc(torch.cat([test_logps, new_logps]), is_test, 1 - is_test)),
        "overlap": sum(overlaps) / len(overlaps),
    }  # fmt: skip
