"""Thought, action, observation: the policy looks numbers up one after another and adds them, with or without thoughts.

    sum red blue gold
    <tool_call> lookup(" red ") </tool_call>                                    the policy
    4                                                                          the tool
    <think> 0 plus 4 is 4 </think> <tool_call> lookup(" blue ") </tool_call>     the policy, with a thought
    9                                                                          the tool
    <think> 4 plus 9 is 3 </think> <tool_call> lookup(" gold ") </tool_call>
    5
    <think> 3 plus 5 is 8 </think> answer 8                                    the last digit of the sum

A lab of chapter 17.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from minirlhf.core.randomness import numpy_generator
from minirlhf.data import calls
from minirlhf.data.chat import WORDS_AND_TOOLS, conversation, encode
from minirlhf.data.types import Tokens
from minirlhf.feedback.tools import lookup
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.stages.pipeline import Trained
from minirlhf.trainers.config import OnlineConfig
from minirlhf.trainers.sft import SFTConfig, train_sft
from minirlhf.trainers.tools import ToolEnv

KEYS = ("red", "blue", "green", "gold", "pink", "grey")
#: Text before an action: none; the sum so far; the same number of filler words; none, with :data:`MOST` times the steps
#: and the questions.
WAYS = ("acts", "thinks", "waits", "longer")
MOST = 3  # names in a question; with thoughts a conversation shows as many sums, without thoughts one
BEGIN, END = 'lookup("', '")'
WORDS = (*"0123456789", *KEYS, "sum", "plus", "is", BEGIN, END, calls.OPEN, calls.CLOSE, calls.THOUGHT, calls.THOUGHT_ENDS, "<tool>", "answer", "error:")  # fmt: skip

SHOWN = SFTConfig(max_steps=300, batch_size=32, learning_rate=3e-3)
ASK = OnlineConfig(batch_size=1, num_generations=1, max_completion_length=80)


@dataclass(frozen=True)
class Sum:
    """A question: names, and the register's digit for each."""

    names: tuple[str, ...]
    digits: tuple[int, ...]

    @property
    def answer(self) -> str:
        """The right last turn, without a thought."""
        return f"answer {sum(self.digits) % 10}"

    def example(self) -> dict[str, Any]:
        """Return the question as an example of the environment."""
        table = {name: str(digit) for name, digit in zip(self.names, self.digits, strict=True)}
        return {"prompt": conversation(f"sum {' '.join(self.names)}"), "table": table, "right": self.answer}

    def thought(self, number: int, way: str) -> str:
        """Return the thought after ``number`` digits; empty before the first digit and in ways without thoughts."""
        if way in ("acts", "longer") or number == 0:
            return ""
        old, new = sum(self.digits[: number - 1]) % 10, self.digits[number - 1]
        text = f"{old} plus {new} is {(old + new) % 10}" if way == "thinks" else "is is is is is"
        return f"{calls.THOUGHT} {text} {calls.THOUGHT_ENDS} "


class Digits:
    """A register that knows a digit for each name."""

    def reset(self, **example: Any) -> None:
        """Take the table from the example."""
        self._table = dict(example["table"])

    def lookup(self, key: str) -> str:
        """Look a name up.

        Args:
            key: the name.
        """
        return lookup(self._table)(key)


def drawn(rng: np.random.Generator, count: int) -> Sum:
    """Sample a question with ``count`` names."""
    names = tuple(KEYS[i] for i in rng.permutation(len(KEYS))[:count].tolist())
    return Sum(names, tuple(rng.integers(0, 10, count).tolist()))


def demonstration(tokenizer: Any, asked: Sum, way: str) -> Tokens:
    """Return the right conversation in one of the :data:`WAYS`; the loss excludes the tool's words."""
    messages = list(asked.example()["prompt"])
    for number, (name, digit) in enumerate(zip(asked.names, asked.digits, strict=True)):
        call = f"{asked.thought(number, way)}{calls.OPEN} {BEGIN} {name} {END} {calls.CLOSE}"
        messages += [{"role": "assistant", "content": call}, {"role": "tool", "content": str(digit)}]
    last = asked.thought(len(asked.names), way) + asked.answer
    return encode(tokenizer, [*messages, {"role": "assistant", "content": last}])


def shown(way: str, plan: SFTConfig = SHOWN, count: int = 6000) -> Trained:
    """Fine-tune a model on demonstrations with one to :data:`MOST` names, in equal numbers.

    The questions are the same in every way; the way "longer" has more of them.
    """
    if way == "longer":
        plan, count = replace(plan, max_steps=MOST * plan.max_steps), MOST * count
    rng, tokenizer = numpy_generator("sums", plan.seed), word_tokenizer(WORDS, chat_template=WORDS_AND_TOOLS)
    examples = [demonstration(tokenizer, drawn(rng, 1 + number % MOST), way) for number in range(count)]
    model = tiny_model("nano", tokenizer, seed=plan.seed)
    history = train_sft(model, examples, plan, pad_token_id=tokenizer.pad_token_id, quiet=True)
    return Trained(model, tokenizer, history)


def examined(trained: Trained, asked: Sequence[Sum]) -> dict[str, float]:
    """Return results of greedy decoding.

    ``right``: fraction of right answers; ``calls``: fraction of conversations with exactly the right calls.
    """
    env = ToolEnv(
        [each.example() for each in asked], Digits, trained.tokenizer, form="python", max_turns=MOST + 1,
        grade=lambda example, text: float(text == example["right"]),
    )  # fmt: skip
    scored = env.generate_and_score(trained.model, ASK, range(len(asked)), step=0, seed=0, version=0, greedy=True)
    called = [[call.arguments["key"].strip() for turn in episode.turns for call in turn.calls if hasattr(call, "arguments")] for episode in env.episodes]  # fmt: skip
    exact = [names == list(each.names) for names, each in zip(called, asked, strict=True)]
    return {"right": float(scored.rewards.mean()), "calls": sum(exact) / len(exact)}


def compared(seed: int, plan: SFTConfig = SHOWN, count: int = 150) -> dict[str, float]:
    """Train a model in every way and test it on sums of one to :data:`MOST` numbers."""
    results = {}
    for way in WAYS:
        trained = shown(way, replace(plan, seed=seed))
        for names in range(1, MOST + 1):
            rng = numpy_generator("asked", names)
            for key, value in examined(trained, [drawn(rng, names) for _ in range(count)]).items():
                results[f"{way}_{names}_{key}"] = value
    return results
