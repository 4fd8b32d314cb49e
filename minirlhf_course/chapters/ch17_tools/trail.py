"""Actions that depend on thoughts: the digits read so far decide the next look-up, and an unknown name forces a detour.

    walk 3 red                                                                   look up three digits, beginning at red
    <tool_call> lookup(" red ") </tool_call>
    4
    <think> 0 plus 4 is 4 so green </think> <tool_call> lookup(" green ") </tool_call>    the sum so far leads to a name
    ?                                                                            the name is unknown
    <think> ? so gold </think> <tool_call> lookup(" gold ") </tool_call>            then the next name
    9
    <think> 4 plus 9 is 3 so blue </think> <tool_call> lookup(" blue ") </tool_call>
    5
    <think> 3 plus 5 is 8 </think> answer 8

Most names belong to two sums, so a call seldom reveals the sum that led to it. A lab of chapter 17.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from minirlhf.core.randomness import numpy_generator
from minirlhf.data import calls
from minirlhf.data.chat import WORDS_AND_TOOLS, conversation, encode, encode_prompt, end_tokens
from minirlhf.data.types import Tokens
from minirlhf.models.sampling import Sampling, sample
from minirlhf.models.texts import completion_texts
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.stages.pipeline import Trained
from minirlhf.trainers.config import OnlineConfig
from minirlhf.trainers.sft import SFTConfig, train_sft
from minirlhf.trainers.tools import ToolEnv
from minirlhf_course.chapters.ch17_tools.thoughts import BEGIN, END, KEYS, MOST
from minirlhf_course.chapters.ch17_tools.thoughts import WORDS as OF_SUMS

#: The name that each sum leads to.
LEADS = ("gold", "red", "pink", "blue", "green", "grey", "pink", "gold", "red", "blue")
UNKNOWN = "?"
MISSING = 0.5  # probability that one name is unknown
WORDS = (*OF_SUMS, "walk", "so", UNKNOWN)
#: Text before an action: none; the sum so far and the name that it leads to.
WAYS = ("acts", "thinks")

#: The learning rate is the best of 1.5e-3, 3e-3 and 6e-3 for "acts" on seed 100, which is not reported.
SHOWN = SFTConfig(max_steps=300, batch_size=32, learning_rate=3e-3)
ASK = OnlineConfig(batch_size=1, num_generations=1, max_completion_length=160)


@dataclass(frozen=True)
class LookUp:
    """A look-up: the name, the tool's output, and the sum before it."""

    name: str
    said: str
    before: int

    @property
    def after(self) -> int:
        """The sum after the look-up, modulo 10; an unknown name does not change it."""
        return self.before if self.said == UNKNOWN else (self.before + int(self.said)) % 10

    @property
    def leads(self) -> str:
        """The next name."""
        return KEYS[(KEYS.index(self.name) + 1) % len(KEYS)] if self.said == UNKNOWN else LEADS[self.after]


@dataclass(frozen=True)
class Walk:
    """A question: the first name, the number of digits to find, and the register's table."""

    start: str
    count: int
    table: dict[str, str]

    def steps(self) -> Iterator[LookUp]:
        """Yield the right look-ups."""
        name, total, num_found = self.start, 0, 0
        while num_found < self.count:
            step = LookUp(name, self.table.get(name, UNKNOWN), total)
            yield step
            name, total, num_found = step.leads, step.after, num_found + (step.said != UNKNOWN)

    @property
    def answer(self) -> str:
        """The right last turn, without a thought."""
        *_, last = self.steps()
        return f"answer {last.after}"

    def example(self) -> dict[str, Any]:
        """Return the walk as an example of the environment."""
        prompt = conversation(f"walk {self.count} {self.start}")
        return {"prompt": prompt, "table": self.table, "right": self.answer}


class Guide:
    """A register that knows a digit for most names."""

    def reset(self, **example: Any) -> None:
        """Take the table from the example."""
        self._table = dict(example["table"])

    def lookup(self, key: str) -> str:
        """Look a name up.

        Args:
            key: the name.
        """
        return str(self._table.get(key.strip(), UNKNOWN))


def drawn(rng: np.random.Generator, count: int) -> Walk:
    """Sample a walk of ``count`` digits."""
    table = {name: str(digit) for name, digit in zip(KEYS, rng.integers(0, 10, len(KEYS)).tolist(), strict=True)}
    if rng.random() < MISSING:
        del table[KEYS[rng.integers(len(KEYS))]]
    return Walk(KEYS[rng.integers(len(KEYS))], count, table)


def thought(step: LookUp, way: str, last: bool) -> str:
    """Return the thought after a look-up; it is empty in the way "acts"."""
    if way == "acts":
        return ""
    text = UNKNOWN if step.said == UNKNOWN else f"{step.before} plus {step.said} is {step.after}"
    text = text if last else f"{text} so {step.leads}"
    return f"{calls.THOUGHT} {text} {calls.THOUGHT_ENDS} "


def talk(walk: Walk, way: str) -> list[dict[str, Any]]:
    """Return the right conversation in one of the :data:`WAYS`."""
    messages, prefix = list(walk.example()["prompt"]), ""
    steps = list(walk.steps())
    for number, step in enumerate(steps, 1):
        call = f"{prefix}{calls.OPEN} {BEGIN} {step.name} {END} {calls.CLOSE}"
        messages += [{"role": "assistant", "content": call}, {"role": "tool", "content": step.said}]
        prefix = thought(step, way, number == len(steps))
    return [*messages, {"role": "assistant", "content": prefix + walk.answer}]


def shown(way: str, plan: SFTConfig = SHOWN, count: int = 9600) -> Trained:
    """Fine-tune a model on walks of one to three digits, in equal numbers and the same in every way.

    The loss excludes the tool's words.
    """
    rng, tokenizer = numpy_generator("walks", plan.seed), word_tokenizer(WORDS, chat_template=WORDS_AND_TOOLS)
    examples: list[Tokens] = [encode(tokenizer, talk(drawn(rng, 1 + i % MOST), way)) for i in range(count)]
    model = tiny_model("nano", tokenizer, seed=plan.seed)
    history = train_sft(model, examples, plan, pad_token_id=tokenizer.pad_token_id, quiet=True)
    return Trained(model, tokenizer, history)


def examined(trained: Trained, asked: Sequence[Walk]) -> dict[str, float]:
    """Return results of greedy decoding on walks.

    ``right``: fraction of right answers; ``calls``: fraction of walks with exactly the right calls; ``detour``: the
    same among walks with an unknown name on the way; ``call_2``, ``call_3``: fraction of walks whose first two and
    first three calls are right, among walks that need at least as many calls.
    """
    env = ToolEnv(
        [each.example() for each in asked], Guide, trained.tokenizer, form="python", max_turns=2 * MOST + 1,
        grade=lambda example, text: float(text == example["right"]),
    )  # fmt: skip
    scored = env.generate_and_score(trained.model, ASK, range(len(asked)), step=0, seed=0, version=0, greedy=True)
    called = [[call.arguments["key"].strip() for turn in episode.turns for call in turn.calls if hasattr(call, "arguments")] for episode in env.episodes]  # fmt: skip
    pairs = list(zip(called, [list(walk.steps()) for walk in asked], strict=True))
    routes = [(calls_made, [step.name for step in steps]) for calls_made, steps in pairs]
    return {
        "right": float(scored.rewards.mean()),
        "calls": _share([a == b for a, b in routes]),
        "detour": _share([a == b for (a, b), (_, steps) in zip(routes, pairs, strict=True) if any(step.said == UNKNOWN for step in steps)]),
        **{f"call_{count}": _share([a[:count] == b[:count] for a, b in routes if len(b) >= count]) for count in (2, 3)},
    }  # fmt: skip


def _share(flags: Sequence[bool]) -> float:
    return sum(flags) / len(flags)


@torch.no_grad()
def misled(trained: Trained, asked: Sequence[Walk]) -> dict[str, float]:
    """Write a wrong sum into the thought after the first digit, and return where the next call goes.

    ``follows``: fraction of calls with the name that the wrong sum leads to; ``keeps``: with the name of the right sum.
    """
    prompts, wrong_names, right_names = [], [], []
    for walk in asked:
        first = next(walk.steps())
        if first.said == UNKNOWN:
            continue
        wrong_sum = next(s for s in range(first.after + 1, first.after + 10) if LEADS[s % 10] != first.leads) % 10
        call = f"{calls.OPEN} {BEGIN} {first.name} {END} {calls.CLOSE}"
        context = [
            *walk.example()["prompt"],
            {"role": "assistant", "content": call},
            {"role": "tool", "content": first.said},
        ]
        prefix = f"{calls.THOUGHT} {first.before} plus {first.said} is {wrong_sum}"
        prompts.append(
            encode_prompt(trained.tokenizer, context) + trained.tokenizer(prefix, add_special_tokens=False)["input_ids"]
        )
        wrong_names.append(LEADS[wrong_sum])
        right_names.append(first.leads)
    rollout = sample(
        trained.model, prompts, sampling=Sampling(max_completion_length=12, greedy=True), eos_token_id=end_tokens(trained.tokenizer).ids,
        pad_token_id=trained.tokenizer.pad_token_id, prompt_keys=[str(i) for i in range(len(prompts))], seed=0,
    )  # fmt: skip
    names = [
        text.partition(BEGIN)[2].partition(END)[0].strip() for text in completion_texts(rollout, trained.tokenizer)
    ]
    return {
        "follows": _share([a == b for a, b in zip(names, wrong_names, strict=True)]),
        "keeps": _share([a == b for a, b in zip(names, right_names, strict=True)]),
    }


def compared(seed: int, plan: SFTConfig = SHOWN, count: int = 300) -> dict[str, float]:
    """Train a model in every way and test it on walks of two and three digits; the way "thinks" is also misled."""
    results = dict[str, float]()
    for way in WAYS:
        trained = shown(way, replace(plan, seed=seed))
        for digits in (2, MOST):
            rng = numpy_generator("asked to walk", digits)
            walks = [drawn(rng, digits) for _ in range(count)]
            numbers = examined(trained, walks)
            if way == "thinks":
                numbers |= misled(trained, walks)
            results |= {f"{way}_{digits}_{key}": value for key, value in numbers.items()}
    return results
