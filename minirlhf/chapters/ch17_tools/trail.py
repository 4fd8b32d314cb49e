"""Acts that depend on thoughts: what has been read decides what to look up next, and a name that nothing is known of forces a detour.

    walk 3 red                                                                   look up three digits, beginning at red
    <tool_call> lookup(" red ") </tool_call>
    4
    <think> 0 plus 4 is 4 so green </think> <tool_call> lookup(" green ") </tool_call>    the sum so far leads to a name
    ?                                                                            nothing is known of it
    <think> ? so gold </think> <tool_call> lookup(" gold ") </tool_call>            then the next name
    9
    <think> 4 plus 9 is 3 so blue </think> <tool_call> lookup(" blue ") </tool_call>
    5
    <think> 3 plus 5 is 8 </think> answer 8

Most names belong to two sums, so that a call seldom says which sum it came from. A lab of chapter 17.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from minirlhf.chapters.ch17_tools.thoughts import BEGIN, END, KEYS, MOST
from minirlhf.chapters.ch17_tools.thoughts import WORDS as OF_SUMS
from minirlhf.core.randomness import numpy_generator
from minirlhf.data import calls
from minirlhf.data.chat import WORDS_AND_TOOLS, conversation, encode, encode_prompt, ends_of
from minirlhf.data.types import Tokens
from minirlhf.models.sampling import Sampling, sample
from minirlhf.models.texts import completion_texts
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.stages.pipeline import Trained
from minirlhf.trainers.config import OnlineConfig
from minirlhf.trainers.sft import SFTConfig, train_sft
from minirlhf.trainers.tools import ToolEnv

#: Where each sum leads.
LEADS = ("gold", "red", "pink", "blue", "green", "grey", "pink", "gold", "red", "blue")
UNKNOWN = "?"
MISSING = 0.5  # how often there is a name of which nothing is known
WORDS = (*OF_SUMS, "walk", "so", UNKNOWN)
#: What stands before an action: nothing; the sum so far and the name that it leads to.
WAYS = ("acts", "thinks")

#: Of the learning rates 1.5e-3, 3e-3 and 6e-3 the best for acting alone on seed 100, which is not reported.
SHOWN = SFTConfig(max_steps=300, batch_size=32, learning_rate=3e-3)
ASK = OnlineConfig(batch_size=1, num_generations=1, max_completion_length=160)


@dataclass(frozen=True)
class LookUp:
    """A look-up: of what, what came of it, and the sum before."""

    name: str
    said: str
    before: int

    @property
    def after(self) -> int:
        """The sum with what came, modulo 10."""
        return self.before if self.said == UNKNOWN else (self.before + int(self.said)) % 10

    @property
    def leads(self) -> str:
        """The next name."""
        return KEYS[(KEYS.index(self.name) + 1) % len(KEYS)] if self.said == UNKNOWN else LEADS[self.after]


@dataclass(frozen=True)
class Walk:
    """Where to begin, how many digits to find, and what the register knows."""

    start: str
    count: int
    table: dict[str, str]

    def steps(self) -> Iterator[LookUp]:
        """The right look-ups."""
        name, total, found = self.start, 0, 0
        while found < self.count:
            step = LookUp(name, self.table.get(name, UNKNOWN), total)
            yield step
            name, total, found = step.leads, step.after, found + (step.said != UNKNOWN)

    @property
    def answer(self) -> str:
        """The right last turn, without a thought."""
        *_, last = self.steps()
        return f"answer {last.after}"

    def example(self) -> dict[str, Any]:
        """As a world takes it."""
        asked = conversation(f"walk {self.count} {self.start}")
        return {"prompt": asked, "table": self.table, "right": self.answer}


class Guide:
    """Knows a digit for most names."""

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
    """A random walk of so many digits."""
    table = {name: str(digit) for name, digit in zip(KEYS, rng.integers(0, 10, len(KEYS)).tolist(), strict=True)}
    if rng.random() < MISSING:
        del table[KEYS[rng.integers(len(KEYS))]]
    return Walk(KEYS[rng.integers(len(KEYS))], count, table)


def thought(step: LookUp, way: str, last: bool) -> str:
    """What is thought after a look-up; empty where only acts are shown."""
    if way == "acts":
        return ""
    said = UNKNOWN if step.said == UNKNOWN else f"{step.before} plus {step.said} is {step.after}"
    said = said if last else f"{said} so {step.leads}"
    return f"{calls.THOUGHT} {said} {calls.THOUGHT_ENDS} "


def talk(walk: Walk, way: str) -> list[dict[str, Any]]:
    """The right conversation in one of the :data:`WAYS`."""
    said, before = list(walk.example()["prompt"]), ""
    steps = list(walk.steps())
    for number, step in enumerate(steps, 1):
        call = f"{before}{calls.OPEN} {BEGIN} {step.name} {END} {calls.CLOSE}"
        said += [{"role": "assistant", "content": call}, {"role": "tool", "content": step.said}]
        before = thought(step, way, number == len(steps))
    return [*said, {"role": "assistant", "content": before + walk.answer}]


def shown(way: str, plan: SFTConfig = SHOWN, count: int = 9600) -> Trained:
    """Fine-tuned on walks of one to three digits, as many of each; the same walks in every way. The tool's words are not learned."""
    rng, tokenizer = numpy_generator("walks", plan.seed), word_tokenizer(WORDS, chat_template=WORDS_AND_TOOLS)
    examples: list[Tokens] = [encode(tokenizer, talk(drawn(rng, 1 + i % MOST), way)) for i in range(count)]
    model = tiny_model("nano", tokenizer, seed=plan.seed)
    history = train_sft(model, examples, plan, pad_token_id=tokenizer.pad_token_id, quiet=True)
    return Trained(model, tokenizer, history)


def examined(trained: Trained, asked: Sequence[Walk]) -> dict[str, float]:
    """Greedy, over walks: the share of ``right`` answers; of walks whose ``calls`` are just the right ones, and of these among walks with a ``detour``;
    and of walks whose first two and first three calls are right, ``call_2`` and ``call_3``, among those that need as many."""
    world = ToolEnv(
        [each.example() for each in asked], Guide, trained.tokenizer, form="python", max_turns=2 * MOST + 1,
        grade=lambda example, text: float(text == example["right"]),
    )  # fmt: skip
    graded = world.generate_and_score(trained.model, ASK, range(len(asked)), step=0, seed=0, version=0, greedy=True)
    made = [[call.arguments["key"].strip() for reply in episode.replies for call in reply.calls if hasattr(call, "arguments")] for episode in world.episodes]  # fmt: skip
    pairs = list(zip(made, [list(walk.steps()) for walk in asked], strict=True))
    names = [(calls_made, [step.name for step in steps]) for calls_made, steps in pairs]
    return {
        "right": float(graded.rewards.mean()),
        "calls": _share([a == b for a, b in names]),
        "detour": _share([a == b for (a, b), (_, steps) in zip(names, pairs, strict=True) if any(step.said == UNKNOWN for step in steps)]),
        **{f"call_{count}": _share([a[:count] == b[:count] for a, b in names if len(b) >= count]) for count in (2, 3)},
    }  # fmt: skip


def _share(flags: Sequence[bool]) -> float:
    return sum(flags) / len(flags)


@torch.no_grad()
def misled(trained: Trained, asked: Sequence[Walk]) -> dict[str, float]:
    """A wrong sum is written into the thought after the first digit. The next call: the share that goes where the wrong sum leads (``follows``), and where the right one does (``keeps``)."""
    prompts, wrong, right = [], [], []
    for walk in asked:
        first = next(walk.steps())
        if first.said == UNKNOWN:
            continue
        other = next(s for s in range(first.after + 1, first.after + 10) if LEADS[s % 10] != first.leads) % 10
        call = f"{calls.OPEN} {BEGIN} {first.name} {END} {calls.CLOSE}"
        before = [
            *walk.example()["prompt"],
            {"role": "assistant", "content": call},
            {"role": "tool", "content": first.said},
        ]
        begun = f"{calls.THOUGHT} {first.before} plus {first.said} is {other}"
        prompts.append(
            encode_prompt(trained.tokenizer, before) + trained.tokenizer(begun, add_special_tokens=False)["input_ids"]
        )
        wrong.append(LEADS[other])
        right.append(first.leads)
    rollout = sample(
        trained.model, prompts, sampling=Sampling(max_completion_length=12, greedy=True), eos_token_id=ends_of(trained.tokenizer).ids,
        pad_token_id=trained.tokenizer.pad_token_id, prompt_keys=[str(i) for i in range(len(prompts))], seed=0,
    )  # fmt: skip
    names = [
        text.partition(BEGIN)[2].partition(END)[0].strip() for text in completion_texts(rollout, trained.tokenizer)
    ]
    return {
        "follows": _share([a == b for a, b in zip(names, wrong, strict=True)]),
        "keeps": _share([a == b for a, b in zip(names, right, strict=True)]),
    }


def compared(seed: int, plan: SFTConfig = SHOWN, count: int = 300) -> dict[str, float]:
    """Every way, asked for walks of two and of three digits; the one that thinks is misled, too."""
    found = dict[str, float]()
    for way in WAYS:
        trained = shown(way, replace(plan, seed=seed))
        for digits in (2, MOST):
            rng = numpy_generator("asked to walk", digits)
            asked = [drawn(rng, digits) for _ in range(count)]
            numbers = examined(trained, asked)
            if way == "thinks":
                numbers |= misled(trained, asked)
            found |= {f"{way}_{digits}_{key}": value for key, value in numbers.items()}
    return found
