"""How an answer is written, and what a grader takes for it: a model tuned on one answer format or on two, asked for three.

An item is an operation on three numbers; the prompt names the format of the answer. Before, the model has learned one operation, the last number, in
all three formats, so that it knows how to write them. Then it is tuned on the largest number: in one format only, or in two.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from minirlhf.chapters.ch19_evaluation import word_models as words
from minirlhf.core.errors import ArgumentError
from minirlhf.core.randomness import derive_seed, numpy_generator
from minirlhf.models.sampling import Sampling, sample
from minirlhf.models.texts import completion_texts
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.trainers.sft import SFTConfig

NUMBERS, OPERANDS = 12, 3
EXAMPLES = 3000
#: How an answer is written in each format.
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
    """The words of this world."""
    written = [word for way in FORMATS.values() for word in way("0").split()]
    return word_tokenizer(list(dict.fromkeys([*map(str, range(NUMBERS)), "last", "largest", *FORMATS, *written])))


def items(operation: str, count: int, name: str, seed: int) -> list[Item]:
    """Random ones of an operation."""
    rng = numpy_generator("ch19", "formats", name, seed)
    return [(operation, *map(str, rng.choice(NUMBERS, OPERANDS, replace=False))) for _ in range(count)]


def answer(item: Item) -> str:
    """The last number, or the largest."""
    return item[-1] if item[0] == "last" else str(max(int(word) for word in item[1:]))


def prompt(item: Item, form: str) -> str:
    """As a question that asks for a format."""
    return f"<user> {' '.join(item)} {form} <assistant>"


def examples(asked: Sequence[Item], forms: Sequence[str]) -> list[Any]:
    """Answered in these formats in turn."""
    of = tokenizer()
    return [
        words.answered(of, prompt(item, form), FORMATS[form](answer(item)))
        for i, item in enumerate(asked)
        for form in [forms[i % len(forms)]]
    ]


def learned(*, seed: int, plan: SFTConfig = LEARNING, count: int = EXAMPLES) -> Any:
    """A model that gives the last number in all formats."""
    return words.trained(tokenizer(), examples(items("last", count, "learned", seed), list(FORMATS)), plan, seed=seed)


def tuned(base: Any, how: str, *, seed: int, plan: SFTConfig = TUNING, count: int = EXAMPLES) -> Any:
    """A copy that was tuned on the largest number, in the formats of :data:`TUNED`; the same items for each."""
    if how not in TUNED:
        raise ArgumentError(
            f"how = {how!r}; expected one of {tuple(TUNED)}", argument="how", value=how, expected=tuple(TUNED)
        )
    shown = examples(items("largest", count, "tuned", seed), TUNED[how])
    return words.tuned(copy.deepcopy(base), tokenizer(), shown, plan, seed=seed)


def last_number(text: str) -> str | None:
    """What a lenient grader extracts: the last number, however it is wrapped."""
    found = [word for word in text.split() if word.isdigit()]
    return found[-1] if found else None


def graded(model: Any, form: str, *, seed: int, operation: str = "largest", questions: int = 200) -> dict[str, float]:
    """New items, asked in one format, the likeliest words: shares that are right by a strict grader, which wants the reply as it was asked for, and
    by a lenient one; and the share from which the strict one can extract an answer at all."""
    of, asked = tokenizer(), items(operation, questions, "asked", seed)
    rollout = sample(
        model, [words.ids_of(of, prompt(item, form)) for item in asked], sampling=Sampling(max_completion_length=7, greedy=True),
        eos_token_id=of.eos_token_id, pad_token_id=of.pad_token_id, seed=derive_seed("ch19", "formats", seed),
    )  # fmt: skip
    said = completion_texts(rollout, of)
    possible = {FORMATS[form](str(number)) for number in range(NUMBERS)}
    strict = [text == FORMATS[form](answer(item)) for text, item in zip(said, asked, strict=True)]
    lenient = [last_number(text) == answer(item) for text, item in zip(said, asked, strict=True)]
    shares = {"strict": strict, "lenient": lenient, "extracted": [text in possible for text in said]}
    return {name: float(torch.tensor(hits).double().mean()) for name, hits in shares.items()}
