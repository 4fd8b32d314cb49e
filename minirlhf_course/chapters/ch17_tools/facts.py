"""Facts that change: each place has a usual value, which is still right with a known probability. When does a call pay?

    find red
    answer 4                                                                from memory: the usual value
    <tool_call> lookup(" red ") </tool_call>   7   answer 7                 one call, believed
    <tool_call> … </tool_call> 7   <tool_call> … </tool_call> 7   answer 7  believed if both agree, else the usual value

From memory no policy is right more often than the place's :data:`STEADY`, so the value of a call is known before any
training. A lab of chapter 17.
"""

from __future__ import annotations

import copy
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from minirlhf.core.randomness import numpy_generator
from minirlhf.data import calls
from minirlhf.data.chat import WORDS_AND_TOOLS, conversation, encode
from minirlhf.data.types import Tokens
from minirlhf.models.forward import completion_logps
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.recipes import DR_GRPO
from minirlhf.stages.pipeline import Trained
from minirlhf.trainers.config import OnlineConfig
from minirlhf.trainers.online import train_in_env
from minirlhf.trainers.sft import SFTConfig, train_sft
from minirlhf.trainers.tools import ToolEnv
from minirlhf_course.chapters.ch17_tools.equations import tool_call_value
from minirlhf_course.chapters.ch17_tools.unreliable import Luck

#: Probability that the usual value of each place is still right.
STEADY = {"red": 0.5, "blue": 0.1, "green": 0.9, "gold": 0.3, "pink": 0.7}
USUAL = {"red": "4", "blue": "9", "green": "1", "gold": "6", "pink": "2"}
WAYS = ("head", "once", "twice")
BEGIN, END = 'lookup("', '")'
WORDS = (*"0123456789", *STEADY, "find", BEGIN, END, calls.OPEN, calls.CLOSE, "<tool>", "answer", "error:", "?")
LENGTH = 22  # most tokens of a completion: two calls, their results, and an answer
TWO_WAYS, THREE_WAYS = (0.5, 0.5, 0.0), (0.34, 0.33, 0.33)  # fraction of demonstrations of each way, mean over places
HABIT = 4.0  # total concentration of the Dirichlet distribution of each place's fractions of the ways
DOUBT = 0.3  # probability of a random value per call, in demonstrations with two calls

SHOWN = SFTConfig(max_steps=120, batch_size=64, learning_rate=3e-3)
IMPROVE = OnlineConfig(max_steps=60, batch_size=16, num_generations=8, learning_rate=5e-4, max_completion_length=LENGTH)


@dataclass(frozen=True)
class Fact:
    """A place and its value today."""

    place: str
    value: str

    def example(self) -> dict[str, Any]:
        """Return the fact as an example of the environment."""
        return {"prompt": conversation(f"find {self.place}"), "place": self.place, "value": self.value}


def any_value(rng: np.random.Generator) -> str:
    """A digit."""
    return str(rng.integers(10))


def today(rng: np.random.Generator, place: str) -> Fact:
    """Sample today's fact: the usual value with probability ``STEADY[place]``, else another value."""
    is_usual = rng.random() < STEADY[place]
    value = USUAL[place]
    while not is_usual and value == USUAL[place]:
        value = any_value(rng)
    return Fact(place, value)


def facts(name: str, each: int) -> list[Fact]:
    """Return ``each`` sampled facts of every place, in random order."""
    rng = numpy_generator("facts", name)
    samples = [today(rng, place) for _ in range(each) for place in STEADY]
    return [samples[i] for i in rng.permutation(len(samples))]


@dataclass
class Directories:
    """Factory of registers, one for each episode; a call fails or returns a random value with these probabilities."""

    fail: float = 0.0
    lie: float = 0.0
    seed: int = 0
    made: int = 0

    def __call__(self) -> Directory:
        """Return the next register; every run with the same seed gets the same registers."""
        self.made += 1
        return Directory(Luck(self.fail, self.lie, numpy_generator("register", self.seed, self.made)))


class Directory:
    """A register that knows today's value of one place."""

    def __init__(self, luck: Luck) -> None:
        self._luck = luck

    def reset(self, **example: Any) -> None:
        """Take the value from the example."""
        self._known = {example["place"]: example["value"]}

    def lookup(self, place: str) -> str:
        """Look a place up.

        Args:
            place: its name.
        """
        known = self._known[place.strip()]
        return self._luck.says(lambda: known, any_value)


def grade(asked: Any, text: str) -> float:
    """Return 1 if the last turn is ``answer`` and today's value, else 0."""
    return float(text == f"answer {asked['value']}")


def worths(steady: float, *, fail: float = 0.0, lie: float = 0.0, cost: float = 0.0) -> tuple[float, float, float]:
    """Return the expected reward of each of the :data:`WAYS`.

    The usual value of the place is right with probability ``steady``. A lie is right by chance once in ten.
    """
    wrong = 0.9 * lie
    memory, one = torch.tensor(steady, dtype=torch.float64), torch.tensor(1.0, dtype=torch.float64)
    once = steady + float(tool_call_value(one, memory, fail=fail, lie=wrong, cost=cost))
    both_right, both_wrong = (1 - fail - wrong) ** 2, wrong**2 / 9  # probabilities that both calls agree on a value
    return steady, once, both_right + (1 - both_right - both_wrong) * steady - 2 * cost


# -- models ----------------------------------------------------------------------------------------------------------


def demonstration(tokenizer: Any, fact: Fact, heard: Sequence[str]) -> Tokens:
    """Return a conversation in which the tool returns the strings ``heard``, one per call.

    The answer is the returned value if all calls agree and none failed, else the usual value.
    """
    call = f"{calls.OPEN} {BEGIN} {fact.place} {END} {calls.CLOSE}"
    messages = conversation(f"find {fact.place}")
    for result in heard:
        messages += [{"role": "assistant", "content": call}, {"role": "tool", "content": result}]
    agreed = len(set(heard)) == 1 and not heard[0].startswith("error")
    answer = heard[0] if agreed else USUAL[fact.place]
    return encode(tokenizer, [*messages, {"role": "assistant", "content": f"answer {answer}"}])


def imitator(seed: int, shares: Sequence[float] = TWO_WAYS, plan: SFTConfig = SHOWN, count: int = 4000) -> Trained:
    """Fine-tune a model on demonstrations of the :data:`WAYS`, of which one call in ten fails.

    Each place has its own random fractions of the ways; their mean is ``shares``.
    """
    rng, tokenizer = numpy_generator("shown", seed), word_tokenizer(WORDS, chat_template=WORDS_AND_TOOLS)
    places, examples = list(STEADY), []
    ways = [number for number, share in enumerate(shares) if share]
    place_shares = {place: rng.dirichlet([HABIT * shares[number] for number in ways]) for place in places}
    for _ in range(count):
        fact = today(rng, places[rng.integers(len(places))])
        num_calls = int(rng.choice(ways, p=place_shares[fact.place]))
        results = [fact.value if num_calls == 1 or rng.random() > DOUBT else any_value(rng) for _ in range(num_calls)]
        outputs = ["error: ?" if rng.random() < 0.1 else result for result in results]
        examples.append(demonstration(tokenizer, fact, outputs))
    model = tiny_model("nano", tokenizer, seed=seed)
    history = train_sft(model, examples, replace(plan, seed=seed), pad_token_id=tokenizer.pad_token_id, quiet=True)
    return Trained(model, tokenizer, history)


def world(
    tokenizer: Any, asked: Sequence[Fact], tools: Directories, cost: float, kind: type[ToolEnv] = ToolEnv
) -> ToolEnv:
    """Return the environment: questions, and a tool with a cost per call and at most two calls."""
    return kind(
        [fact.example() for fact in asked], tools, tokenizer, grade=grade, call_cost=cost, form="python", max_turns=3
    )


def improved(
    start: Trained, cost: float, seed: int, plan: OnlineConfig = IMPROVE, *, fail: float = 0.0, lie: float = 0.0,
    kind: type[ToolEnv] = ToolEnv,
) -> Trained:  # fmt: skip
    """Train a copy with Dr. GRPO on its own conversations."""
    model, questions = copy.deepcopy(start.model), facts(f"train {seed}", 200)
    env = world(start.tokenizer, questions, Directories(fail, lie, seed), cost, kind)
    history = train_in_env(model, env, DR_GRPO, replace(plan, seed=seed), quiet=True)
    return Trained(model, start.tokenizer, history)


@dataclass(frozen=True)
class Conduct:
    """Statistics of a policy's samples at temperature 1.

    Attributes:
        ways: for each place, the fractions of conversations with no call, one call and two calls.
        right: fraction of right answers.
        reward: mean of right answers minus the cost of the calls.
        surprise: −log π of the tool's words, nats per token; NaN without any.
    """

    ways: dict[str, list[float]]
    right: float
    reward: float
    surprise: float

    def asks(self, place: str) -> float:
        """Return the fraction of conversations about a place that have a call."""
        return 1 - self.ways[place][0]

    def mean(self, way: str) -> float:
        """Return the fraction of conversations that go this way, mean over all places."""
        return statistics.fmean(shares[WAYS.index(way)] for shares in self.ways.values())


def measured(trained: Trained, cost: float, *, fail: float = 0.0, lie: float = 0.0, each: int = 80) -> Conduct:
    """Measure a policy on held-out facts."""
    questions = facts("test", each)
    env = world(trained.tokenizer, questions, Directories(fail, lie, 9), cost)
    config = replace(IMPROVE, num_generations=1)
    with torch.no_grad():
        scored = env.generate_and_score(trained.model, config, range(len(questions)), step=0, seed=9, version=0)
        rollout = scored.rollout
        logps = completion_logps(trained.model, rollout.input_ids, rollout.attention_mask, len(rollout.mask.T))
    observation_mask = rollout.attention_mask[:, rollout.prompt_width :].bool() & ~rollout.mask
    num_calls = [len(episode.tool_results) for episode in env.episodes]
    counts = Counter(zip((fact.place for fact in questions), num_calls, strict=True))
    reward = float(scored.rewards.mean())
    return Conduct(
        {place: [counts[place, num] / each for num in range(len(WAYS))] for place in STEADY},
        reward + cost * statistics.fmean(num_calls),
        reward,
        float(-logps[observation_mask].mean()),
    )


def best(cost: float, *, fail: float = 0.0, lie: float = 0.0) -> dict[str, str]:
    """Return, for each place, the way with the highest expected reward."""
    return {
        place: WAYS[(values := worths(steady, fail=fail, lie=lie, cost=cost)).index(max(values))]
        for place, steady in STEADY.items()
    }
