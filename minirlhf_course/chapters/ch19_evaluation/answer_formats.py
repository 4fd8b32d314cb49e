"""How the answer format affects grading: a model is tuned on one answer format or on two, and asked for three.

An item is an operation on three numbers; the prompt names the format of the answer. The base model has learned one
operation, the last number, in all three formats, so that it can write each of them. Then it is tuned on the largest
number: in one format only, or in two.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from minirlhf.core.errors import ArgumentError
from minirlhf.core.randomness import derive_seed, numpy_generator
from minirlhf.models.sampling import Sampling, sample
from minirlhf.models.texts import completion_texts
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.trainers.sft import SFTConfig
from minirlhf_course.chapters.ch19_evaluation import word_models as words

NUMBERS, OPERANDS = 12, 3
EXAMPLES = 3000
#: The text of an answer in each format.
FORMATS: Mapping[str, Callable[[str], str]] = {
    "plain": lambda answer: answer,
    "sentence": lambda answer: f"the answer is {answer} .",
    "boxed": lambda answer: f"box {answer} end",
}
#: The formats in which a model is tuned.
TUNED = {"one": ("sentence",), "two": ("sentence", "boxed")}
LEARNING = SFTConfig(max_steps=250, batch_size=48, learning_rate=3e-3, lr_scheduler_type="linear")
TUNING = SFTConfig(max_steps=150, batch_size=48, learning_rate=1e-3, lr_scheduler_type="linear")

Item = tuple[str, ...]


def tokenizer() -> Any:
    """Return the word tokenizer of this task."""
    format_words = [word for write in FORMATS.values() for word in write("0").split()]
    return word_tokenizer(list(dict.fromkeys([*map(str, range(NUMBERS)), "last", "largest", *FORMATS, *format_words])))


def items(operation: str, count: int, name: str, seed: int) -> list[Item]:
    """Return ``count`` random items of one operation."""
    rng = numpy_generator("ch19", "formats", name, seed)
    return [(operation, *map(str, rng.choice(NUMBERS, OPERANDS, replace=False))) for _ in range(count)]


def answer(item: Item) -> str:
    """Return the correct answer: the last number, or the largest."""
    return item[-1] if item[0] == "last" else str(max(int(word) for word in item[1:]))


def prompt(item: Item, form: str) -> str:
    """Return the item as a question that asks for an answer in the format ``form``."""
    return f"<user> {' '.join(item)} {form} <assistant>"


def examples(asked: Sequence[Item], forms: Sequence[str]) -> list[Any]:
    """Return training examples of these items, with answers in these formats in turn."""
    vocabulary = tokenizer()
    return [
        words.answered(vocabulary, prompt(item, form), FORMATS[form](answer(item)))
        for i, item in enumerate(asked)
        for form in [forms[i % len(forms)]]
    ]


def learned(*, seed: int, plan: SFTConfig = LEARNING, count: int = EXAMPLES) -> Any:
    """Train a model that answers with the last number, in all formats."""
    return words.trained(tokenizer(), examples(items("last", count, "learned", seed), list(FORMATS)), plan, seed=seed)


def tuned(base: Any, how: str, *, seed: int, plan: SFTConfig = TUNING, count: int = EXAMPLES) -> Any:
    """Return a copy that was tuned on the largest number, in the formats of :data:`TUNED`; the items are the same
    for each."""
    if how not in TUNED:
        raise ArgumentError(
            f"how = {how!r}; expected one of {tuple(TUNED)}", argument="how", value=how, expected=tuple(TUNED)
        )
    training_examples = examples(items("largest", count, "tuned", seed), TUNED[how])
    return words.tuned(copy.deepcopy(base), tokenizer(), training_examples, plan, seed=seed)


def last_number(text: str) -> str | None:
    """Return the answer that a lenient grader extracts: the last number, whatever text surrounds it."""
    numbers = [word for word in text.split() if word.isdigit()]
    return numbers[-1] if numbers else None


def graded(model: Any, form: str, *, seed: int, operation: str = "largest", questions: int = 200) -> dict[str, float]:
    """Grade greedy completions of new items, all asked for in one format.

    Returns:
        Fractions of completions: ``strict``, right by a grader that requires the requested format; ``lenient``, right
        by a lenient grader; ``extracted``, the strict grader can extract an answer at all.
    """
    vocabulary, test_items = tokenizer(), items(operation, questions, "asked", seed)
    rollout = sample(
        model, [words.ids_of(vocabulary, prompt(item, form)) for item in test_items], sampling=Sampling(max_completion_length=7, greedy=True),
        eos_token_id=vocabulary.eos_token_id, pad_token_id=vocabulary.pad_token_id, seed=derive_seed("ch19", "formats", seed),
    )  # fmt: skip
    completions = completion_texts(rollout, vocabulary)
    valid_texts = {FORMATS[form](str(number)) for number in range(NUMBERS)}
    strict = [text == FORMATS[form](answer(item)) for text, item in zip(completions, test_items, strict=True)]
    lenient = [last_number(text) == answer(item) for text, item in zip(completions, test_items, strict=True)]
    hits_by_grader = {"strict": strict, "lenient": lenient, "extracted": [text in valid_texts for text in completions]}
    return {name: float(torch.tensor(hits).double().mean()) for name, hits in hits_by_grader.items()}
