"""A calculator at one's elbow: products that a tiny model cannot do in its head, sums that it can, and a tool that can fail or lie. A lab of chapter 17.

what is 4 7 * 8 3
<tool_call> calculator(" 4 7 * 8 3 ") </tool_call>      the policy
3 9 0 1                                                 the tool
answer 3 9 0 1                                          the policy
"""

from __future__ import annotations

import copy
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from minirlhf.core.randomness import numpy_generator
from minirlhf.data import calls
from minirlhf.data.chat import WORDS_AND_TOOLS, conversation, encode, encode_whole
from minirlhf.data.types import Tokens
from minirlhf.feedback.tools import calculator
from minirlhf.models.forward import completion_logps
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.recipes import DR_GRPO
from minirlhf.recipes.parts import ScoredRollout
from minirlhf.stages.pipeline import Trained
from minirlhf.trainers.config import OnlineConfig
from minirlhf.trainers.online import train_in_env
from minirlhf.trainers.sft import SFTConfig, train_sft
from minirlhf.trainers.tools import ToolEnv

BEGIN, END = 'calculator("', '")'
WORDS = (*"0123456789", "what", "is", "*", "+", BEGIN, END, calls.OPEN, calls.CLOSE, "<tool>", "answer", "error:", "?")
TEST = 500  # products held out, of 8,100
LENGTH = 36  # tokens of a completion at most, the tool's included

IMITATE = SFTConfig(max_steps=300, batch_size=64, learning_rate=3e-3)
MIX = SFTConfig(max_steps=100, batch_size=64, learning_rate=2e-3)
IMPROVE = OnlineConfig(max_steps=36, batch_size=10, num_generations=8, learning_rate=1e-3, max_completion_length=LENGTH)


@dataclass
class Calculators:
    """Makes calculators for an episode each.

    Attributes:
        fail: probability that a call raises.
        lie: probability that it gives a number that has nothing to do with the question.
    """

    fail: float = 0.0
    lie: float = 0.0
    seed: int = 0
    made: int = 0

    def __call__(self) -> Calculator:
        """The next one; the same in every run with the seed."""
        self.made += 1
        return Calculator(self.fail, self.lie, numpy_generator("desk", self.seed, self.made))


class Calculator:
    """A calculator that writes digit by digit, as the policy reads."""

    def __init__(self, fail: float, lie: float, rng: np.random.Generator) -> None:
        self._fail, self._lie, self._rng = fail, lie, rng

    def reset(self, **example: Any) -> None:
        """Nothing is kept from one episode to the next."""

    def calculator(self, expression: str) -> str:
        """Compute.

        Args:
            expression: whole numbers with + and *.
        """
        luck = self._rng.random()
        if luck < self._fail:
            raise RuntimeError("?")
        if luck < self._fail + self._lie:
            return " ".join(str(self._rng.integers(10, 9999)))
        return " ".join(calculator(expression))


# -- questions -------------------------------------------------------------------------------------------------------


def products() -> tuple[list[str], list[str]]:
    """Products of two two-digit numbers to train on, and those held out: ``4 7 * 8 3``."""
    every = [f"{a // 10} {a % 10} * {b // 10} {b % 10}" for a in range(10, 100) for b in range(10, 100)]
    order = numpy_generator("products").permutation(len(every))
    return [every[i] for i in order[TEST:]], [every[i] for i in order[:TEST]]


def sums() -> list[str]:
    """The hundred sums of two digits, which a tiny model learns by heart."""
    return [f"{a} + {b}" for a in range(10) for b in range(10)]


def example(question: str) -> dict[str, Any]:
    """A question as a world takes it, with its answer."""
    return {"prompt": conversation(f"what is {question}"), "value": " ".join(calculator(question))}


def grade(asked: Any, text: str) -> float:
    """1 if the last turn is ``answer`` and the right number."""
    return float(text == f"answer {asked['value']}")


def demonstration(tokenizer: Any, question: str, asks: bool, masked: bool = True) -> Tokens:
    """The right answer, blurted out or after a call; ``masked``: whether the tool's words are left out of the loss."""
    shown = example(question)
    answer = {"role": "assistant", "content": f"answer {shown['value']}"}
    if not asks:
        return encode(tokenizer, [*shown["prompt"], answer])
    call = {"role": "assistant", "content": f"{calls.OPEN} {BEGIN} {question} {END} {calls.CLOSE}"}
    talk = [*shown["prompt"], call, {"role": "tool", "content": shown["value"]}, answer]
    tokens = encode(tokenizer, talk)
    if masked:
        return tokens
    start = tokens.loss_mask.index(True)
    return replace(encode_whole(tokenizer, talk), loss_mask=[i >= start for i in range(len(tokens))])


# -- models ----------------------------------------------------------------------------------------------------------


def imitator(seed: int, plan: SFTConfig = IMITATE, *, asks: float = 0.25, masked: bool = True) -> Trained:
    """Fine-tuned on 4,800 demonstrations of products, of which this share asks the calculator."""
    tokenizer = word_tokenizer(WORDS, chat_template=WORDS_AND_TOOLS)
    start = Trained(tiny_model("nano", tokenizer, seed=seed), tokenizer)
    return shown(start, products()[0], replace(plan, seed=seed), asks=asks, masked=masked)


def shown(
    start: Trained, questions: Sequence[str], plan: SFTConfig, *, asks: float, masked: bool = True, count: int = 4800
) -> Trained:
    """A copy, fine-tuned on demonstrations for these questions."""
    rng, model = numpy_generator("demonstrations", plan.seed), copy.deepcopy(start.model)
    picked = rng.integers(len(questions), size=count)
    examples = [demonstration(start.tokenizer, questions[i], rng.random() < asks, masked) for i in picked]
    history = train_sft(model, examples, plan, pad_token_id=start.tokenizer.pad_token_id, quiet=True)
    return Trained(model, start.tokenizer, history)


def both(seed: int, plan: SFTConfig = IMITATE, mix: SFTConfig = MIX) -> Trained:
    """An imitator that has also seen sums; it asks in two of five questions, whichever they are."""
    hard = products()[0]
    return shown(imitator(seed, plan), mixed(hard), replace(mix, seed=seed), asks=0.4)


def mixed(hard: Sequence[str]) -> list[str]:
    """A thousand products and as many sums."""
    return [question for pair in zip(hard[:1000], sums() * 10, strict=True) for question in pair]


class LearnsAll(ToolEnv):
    """The mistake: the tool's words count as the policy's own."""

    def answers(self, policy: Any, *arguments: Any, **options: Any) -> ScoredRollout:
        """Graded, with a mask that is True at every token of the completion."""
        graded = super().generate_and_score(policy, *arguments, **options)
        rollout = graded.rollout
        real = rollout.attention_mask[:, rollout.prompt_width :].bool()
        with torch.no_grad():
            logps = completion_logps(policy, rollout.input_ids, rollout.attention_mask, rollout.mask.shape[1])
        logps = torch.where(real, logps, 0.0)
        return replace(graded, rollout=replace(rollout, mask=real, old_logps=logps, behavior_logps=logps))


def improved(
    start: Trained, questions: Sequence[str], plan: OnlineConfig, *, masked: bool = True, cost: float = 0.0,
    tools: Calculators | None = None,
) -> Trained:  # fmt: skip
    """A copy, trained by Dr. GRPO on its own conversations; a call costs ``cost``."""
    model = copy.deepcopy(start.model)
    kind = ToolEnv if masked else LearnsAll
    world = kind(
        [example(q) for q in questions], tools or Calculators(seed=plan.seed), start.tokenizer, grade=grade, call_cost=cost,
        form="python",
    )  # fmt: skip
    history = train_in_env(model, world, DR_GRPO, plan, quiet=True)
    return Trained(model, start.tokenizer, history)


def measured(
    trained: Trained, questions: Sequence[str], *, tools: Calculators | None = None, choice: str = "auto"
) -> dict[str, float]:
    """Sampled once each at temperature 1: the share of ``right`` answers, of conversations with a ``call``, and the tool's ``surprise``: −log π
    of its words, nats per token."""
    world = ToolEnv(
        [example(q) for q in questions], tools or Calculators(seed=1), trained.tokenizer, grade=grade, form="python", tool_choice=choice
    )  # fmt: skip
    config = replace(IMPROVE, num_generations=1)
    with torch.no_grad():
        graded = world.generate_and_score(trained.model, config, range(len(questions)), step=0, seed=9, version=0)
        rollout = graded.rollout
        logps = completion_logps(trained.model, rollout.input_ids, rollout.attention_mask, rollout.mask.shape[1])
    heard = rollout.attention_mask[:, rollout.prompt_width :].bool() & ~rollout.mask
    return {
        "right": float(graded.rewards.mean()),
        "call": statistics.fmean(bool(episode.answers) for episode in world.episodes),
        "surprise": float(-logps[heard].mean()) if bool(heard.any()) else 0.0,
    }
