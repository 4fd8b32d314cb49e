"""A calculator as a tool. A tiny model cannot compute products from memory, but it can compute sums.

The tool can fail or return a wrong value. A lab of chapter 17.

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
TEST = 500  # held-out products, of 8,100
LENGTH = 36  # most tokens of a completion, the tool's included

IMITATE = SFTConfig(max_steps=300, batch_size=64, learning_rate=3e-3)
MIX = SFTConfig(max_steps=100, batch_size=64, learning_rate=2e-3)
IMPROVE = OnlineConfig(max_steps=36, batch_size=10, num_generations=8, learning_rate=1e-3, max_completion_length=LENGTH)


@dataclass
class Calculators:
    """Factory of calculators, one for each episode.

    Attributes:
        fail: probability that a call raises.
        lie: probability that a call returns a number that is unrelated to the question.
    """

    fail: float = 0.0
    lie: float = 0.0
    seed: int = 0
    made: int = 0

    def __call__(self) -> Calculator:
        """Return the next calculator; every run with the same seed gets the same calculators."""
        self.made += 1
        return Calculator(self.fail, self.lie, numpy_generator("desk", self.seed, self.made))


class Calculator:
    """A calculator that writes its result digit by digit, as the policy reads it."""

    def __init__(self, fail: float, lie: float, rng: np.random.Generator) -> None:
        self._fail, self._lie, self._rng = fail, lie, rng

    def reset(self, **example: Any) -> None:
        """Do nothing: a calculator has no state to reset."""

    def calculator(self, expression: str) -> str:
        """Compute.

        Args:
            expression: whole numbers with + and *.
        """
        uniform = self._rng.random()
        if uniform < self._fail:
            raise RuntimeError("?")
        if uniform < self._fail + self._lie:
            return " ".join(str(self._rng.integers(10, 9999)))
        return " ".join(calculator(expression))


# -- questions -------------------------------------------------------------------------------------------------------


def products() -> tuple[list[str], list[str]]:
    """Return the products of two two-digit numbers for training, and the held-out ones: ``4 7 * 8 3``."""
    questions = [f"{a // 10} {a % 10} * {b // 10} {b % 10}" for a in range(10, 100) for b in range(10, 100)]
    order = numpy_generator("products").permutation(len(questions))
    return [questions[i] for i in order[TEST:]], [questions[i] for i in order[:TEST]]


def sums() -> list[str]:
    """Return the hundred sums of two digits, which a tiny model memorises."""
    return [f"{a} + {b}" for a in range(10) for b in range(10)]


def example(question: str) -> dict[str, Any]:
    """Return a question as an example of the environment, with its answer."""
    return {"prompt": conversation(f"what is {question}"), "value": " ".join(calculator(question))}


def grade(asked: Any, text: str) -> float:
    """Return 1 if the last turn is ``answer`` and the right number, else 0."""
    return float(text == f"answer {asked['value']}")


def demonstration(tokenizer: Any, question: str, asks: bool, masked: bool = True) -> Tokens:
    """Return the right conversation as tokens.

    Args:
        asks: the policy calls the tool first; otherwise it answers directly.
        masked: exclude the tool's words from the loss.
    """
    record = example(question)
    answer = {"role": "assistant", "content": f"answer {record['value']}"}
    if not asks:
        return encode(tokenizer, [*record["prompt"], answer])
    call = {"role": "assistant", "content": f"{calls.OPEN} {BEGIN} {question} {END} {calls.CLOSE}"}
    messages = [*record["prompt"], call, {"role": "tool", "content": record["value"]}, answer]
    tokens = encode(tokenizer, messages)
    if masked:
        return tokens
    start = tokens.loss_mask.index(True)
    return replace(encode_whole(tokenizer, messages), loss_mask=[i >= start for i in range(len(tokens))])


# -- models ----------------------------------------------------------------------------------------------------------


def imitator(seed: int, plan: SFTConfig = IMITATE, *, asks: float = 0.25, masked: bool = True) -> Trained:
    """Fine-tune a model on 4,800 demonstrations of products; the fraction ``asks`` of them calls the calculator."""
    tokenizer = word_tokenizer(WORDS, chat_template=WORDS_AND_TOOLS)
    initial = Trained(tiny_model("nano", tokenizer, seed=seed), tokenizer)
    return shown(initial, products()[0], replace(plan, seed=seed), asks=asks, masked=masked)


def shown(
    start: Trained, questions: Sequence[str], plan: SFTConfig, *, asks: float, masked: bool = True, count: int = 4800
) -> Trained:
    """Fine-tune a copy of a model on demonstrations for these questions."""
    rng, model = numpy_generator("demonstrations", plan.seed), copy.deepcopy(start.model)
    indices = rng.integers(len(questions), size=count)
    examples = [demonstration(start.tokenizer, questions[i], rng.random() < asks, masked) for i in indices]
    history = train_sft(model, examples, plan, pad_token_id=start.tokenizer.pad_token_id, quiet=True)
    return Trained(model, start.tokenizer, history)


def both(seed: int, plan: SFTConfig = IMITATE, mix: SFTConfig = MIX) -> Trained:
    """Fine-tune an imitator further on products and sums; 40 % of both kinds of demonstrations call the tool."""
    hard = products()[0]
    return shown(imitator(seed, plan), mixed(hard), replace(mix, seed=seed), asks=0.4)


def mixed(hard: Sequence[str]) -> list[str]:
    """Return a thousand products and a thousand sums, in turn."""
    return [question for pair in zip(hard[:1000], sums() * 10, strict=True) for question in pair]


class LearnsAll(ToolEnv):
    """A deliberate mistake: the loss treats the tool's words as the policy's own."""

    def generate_and_score(self, policy: Any, *arguments: Any, **options: Any) -> ScoredRollout:
        """Return the scored rollout with a mask that is True at every token of the completion."""
        scored = super().generate_and_score(policy, *arguments, **options)
        rollout = scored.rollout
        mask = rollout.attention_mask[:, rollout.prompt_width :].bool()
        with torch.no_grad():
            logps = completion_logps(policy, rollout.input_ids, rollout.attention_mask, rollout.mask.shape[1])
        logps = torch.where(mask, logps, 0.0)
        return replace(scored, rollout=replace(rollout, mask=mask, old_logps=logps, behavior_logps=logps))


def improved(
    start: Trained, questions: Sequence[str], plan: OnlineConfig, *, masked: bool = True, cost: float = 0.0,
    tools: Calculators | None = None,
) -> Trained:  # fmt: skip
    """Train a copy with Dr. GRPO on its own conversations; each call costs ``cost``."""
    model = copy.deepcopy(start.model)
    env_class = ToolEnv if masked else LearnsAll
    env = env_class(
        [example(q) for q in questions], tools or Calculators(seed=plan.seed), start.tokenizer, grade=grade, call_cost=cost,
        form="python",
    )  # fmt: skip
    history = train_in_env(model, env, DR_GRPO, plan, quiet=True)
    return Trained(model, start.tokenizer, history)


def measured(
    trained: Trained, questions: Sequence[str], *, tools: Calculators | None = None, choice: str = "auto"
) -> dict[str, float]:
    """Sample one conversation per question at temperature 1 and return its statistics.

    ``right``: fraction of right answers; ``call``: fraction of conversations with a call; ``surprise``: −log π of the
    tool's words, nats per token (0 without any).
    """
    env = ToolEnv(
        [example(q) for q in questions], tools or Calculators(seed=1), trained.tokenizer, grade=grade, form="python", tool_choice=choice
    )  # fmt: skip
    config = replace(IMPROVE, num_generations=1)
    with torch.no_grad():
        scored = env.generate_and_score(trained.model, config, range(len(questions)), step=0, seed=9, version=0)
        rollout = scored.rollout
        logps = completion_logps(trained.model, rollout.input_ids, rollout.attention_mask, rollout.mask.shape[1])
    observation_mask = rollout.attention_mask[:, rollout.prompt_width :].bool() & ~rollout.mask
    return {
        "right": float(scored.rewards.mean()),
        "call": statistics.fmean(bool(episode.tool_results) for episode in env.episodes),
        "surprise": float(-logps[observation_mask].mean()) if bool(observation_mask.any()) else 0.0,
    }
