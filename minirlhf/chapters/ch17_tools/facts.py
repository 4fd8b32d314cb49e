"""Facts that change: each place has a usual value, which is still right with a known probability. When is it worth asking?

    find red
    answer 4                                                                from the head: the usual value
    <tool_call> lookup(" red ") </tool_call>   7   answer 7                 one call, believed
    <tool_call> … </tool_call> 7   <tool_call> … </tool_call> 7   answer 7  two calls, believed if they agree, else the usual value

From the head no policy does better than the place's :data:`STEADY`, so that what a call is worth is known before anything is trained. A lab of
chapter 17.
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

from minirlhf.chapters.ch17_tools.unreliable import Luck
from minirlhf.core.randomness import numpy_generator
from minirlhf.data import calls
from minirlhf.data.chat import WORDS_AND_TOOLS, conversation, encode
from minirlhf.data.types import Tokens
from minirlhf.equations.tools import tool_call_value
from minirlhf.models.forward import completion_logps
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.recipes import DR_GRPO
from minirlhf.stages.pipeline import Trained
from minirlhf.trainers.config import OnlineConfig
from minirlhf.trainers.online import train_in_env
from minirlhf.trainers.sft import SFTConfig, train_sft
from minirlhf.trainers.tools import ToolEnv

#: How often the usual value of each place is still right.
STEADY = {"red": 0.5, "blue": 0.1, "green": 0.9, "gold": 0.3, "pink": 0.7}
USUAL = {"red": "4", "blue": "9", "green": "1", "gold": "6", "pink": "2"}
WAYS = ("head", "once", "twice")
BEGIN, END = 'lookup("', '")'
WORDS = (*"0123456789", *STEADY, "find", BEGIN, END, calls.OPEN, calls.CLOSE, "<tool>", "answer", "error:", "?")
LENGTH = 22  # tokens of a completion at most: two calls, what they gave, and an answer
TWO_WAYS, THREE_WAYS = (0.5, 0.5, 0.0), (0.34, 0.33, 0.33)  # how often each way is shown, on average over the places
HABIT = 4.0  # of the Dirichlet distribution from which each place's shares of the ways come
DOUBT = 0.3  # how often the tool of the demonstrations lies where it is asked twice

SHOWN = SFTConfig(max_steps=120, batch_size=64, learning_rate=3e-3)
IMPROVE = OnlineConfig(max_steps=60, batch_size=16, num_generations=8, learning_rate=5e-4, max_completion_length=LENGTH)


@dataclass(frozen=True)
class Fact:
    """A place and its value today."""

    place: str
    value: str

    def example(self) -> dict[str, Any]:
        """As a world takes it."""
        return {"prompt": conversation(f"find {self.place}"), "place": self.place, "value": self.value}


def any_value(rng: np.random.Generator) -> str:
    """A digit."""
    return str(rng.integers(10))


def today(rng: np.random.Generator, place: str) -> Fact:
    """The usual value, or one that is not."""
    usual = rng.random() < STEADY[place]
    value = USUAL[place]
    while not usual and value == USUAL[place]:
        value = any_value(rng)
    return Fact(place, value)


def facts(name: str, each: int) -> list[Fact]:
    """So many days of each place, in an order of their own."""
    rng = numpy_generator("facts", name)
    every = [today(rng, place) for _ in range(each) for place in STEADY]
    return [every[i] for i in rng.permutation(len(every))]


@dataclass
class Directories:
    """Makes a register for each episode, which fails and lies with these probabilities."""

    fail: float = 0.0
    lie: float = 0.0
    seed: int = 0
    made: int = 0

    def __call__(self) -> Directory:
        """The next one; the same in every run with the seed."""
        self.made += 1
        return Directory(Luck(self.fail, self.lie, numpy_generator("register", self.seed, self.made)))


class Directory:
    """Knows one place's value of today."""

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
    """1 if the last turn is ``answer`` and today's value."""
    return float(text == f"answer {asked['value']}")


def worths(steady: float, *, fail: float = 0.0, lie: float = 0.0, cost: float = 0.0) -> tuple[float, float, float]:
    """The reward to expect from each of the :data:`WAYS`, at a place whose usual value is right so often. A lie is right by chance once in ten."""
    wrong = 0.9 * lie
    head, one = torch.tensor(steady, dtype=torch.float64), torch.tensor(1.0, dtype=torch.float64)
    once = steady + float(tool_call_value(one, head, fail=fail, lie=wrong, cost=cost))
    true, false = (1 - fail - wrong) ** 2, wrong**2 / 9  # both calls agree
    return steady, once, true + (1 - true - false) * steady - 2 * cost


# -- models ----------------------------------------------------------------------------------------------------------


def demonstration(tokenizer: Any, fact: Fact, heard: Sequence[str]) -> Tokens:
    """A conversation in which the tool says what is ``heard``, call by call, and the answer is what the way of asking makes of it."""
    call = f"{calls.OPEN} {BEGIN} {fact.place} {END} {calls.CLOSE}"
    talk = conversation(f"find {fact.place}")
    for said in heard:
        talk += [{"role": "assistant", "content": call}, {"role": "tool", "content": said}]
    agreed = len(set(heard)) == 1 and not heard[0].startswith("error")
    answer = heard[0] if agreed else USUAL[fact.place]
    return encode(tokenizer, [*talk, {"role": "assistant", "content": f"answer {answer}"}])


def imitator(seed: int, shares: Sequence[float] = TWO_WAYS, plan: SFTConfig = SHOWN, count: int = 4000) -> Trained:
    """Fine-tuned on demonstrations of the :data:`WAYS`; each place has shares of its own by chance, whose mean these are. One call in ten fails."""
    rng, tokenizer = numpy_generator("shown", seed), word_tokenizer(WORDS, chat_template=WORDS_AND_TOOLS)
    places, examples = list(STEADY), []
    shown = [number for number, share in enumerate(shares) if share]
    habits = {place: rng.dirichlet([HABIT * shares[number] for number in shown]) for place in places}
    for _ in range(count):
        fact = today(rng, places[rng.integers(len(places))])
        asks = int(rng.choice(shown, p=habits[fact.place]))
        said = [fact.value if asks == 1 or rng.random() > DOUBT else any_value(rng) for _ in range(asks)]
        heard = ["error: ?" if rng.random() < 0.1 else each for each in said]
        examples.append(demonstration(tokenizer, fact, heard))
    model = tiny_model("nano", tokenizer, seed=seed)
    history = train_sft(model, examples, replace(plan, seed=seed), pad_token_id=tokenizer.pad_token_id, quiet=True)
    return Trained(model, tokenizer, history)


def world(
    tokenizer: Any, asked: Sequence[Fact], tools: Directories, cost: float, kind: type[ToolEnv] = ToolEnv
) -> ToolEnv:
    """Questions with a tool, whose calls cost something; at most two."""
    return kind(
        [fact.example() for fact in asked], tools, tokenizer, grade=grade, call_cost=cost, form="python", max_turns=3
    )


def improved(
    start: Trained, cost: float, seed: int, plan: OnlineConfig = IMPROVE, *, fail: float = 0.0, lie: float = 0.0,
    kind: type[ToolEnv] = ToolEnv,
) -> Trained:  # fmt: skip
    """A copy, trained by Dr. GRPO on its own conversations."""
    model, asked = copy.deepcopy(start.model), facts(f"train {seed}", 200)
    there = world(start.tokenizer, asked, Directories(fail, lie, seed), cost, kind)
    history = train_in_env(model, there, DR_GRPO, replace(plan, seed=seed), quiet=True)
    return Trained(model, start.tokenizer, history)


@dataclass(frozen=True)
class Conduct:
    """What a policy does, over its samples at temperature 1.

    Attributes:
        ways: place by place, the shares of conversations with no call, one and two.
        right: share of right answers.
        reward: right answers less the cost of the calls, the mean.
        surprise: −log π of the tool's words, nats per token; NaN where it said none.
    """

    ways: dict[str, list[float]]
    right: float
    reward: float
    surprise: float

    def asks(self, place: str) -> float:
        """Share of conversations about a place with a call."""
        return 1 - self.ways[place][0]

    def mean(self, way: str) -> float:
        """Share of conversations that go this way, over all places."""
        return statistics.fmean(shares[WAYS.index(way)] for shares in self.ways.values())


def measured(trained: Trained, cost: float, *, fail: float = 0.0, lie: float = 0.0, each: int = 80) -> Conduct:
    """On days that nobody was trained on."""
    asked = facts("test", each)
    there = world(trained.tokenizer, asked, Directories(fail, lie, 9), cost)
    config = replace(IMPROVE, num_generations=1)
    with torch.no_grad():
        graded = there.generate_and_score(trained.model, config, range(len(asked)), step=0, seed=9, version=0)
        rollout = graded.rollout
        logps = completion_logps(trained.model, rollout.input_ids, rollout.attention_mask, len(rollout.mask.T))
    heard = rollout.attention_mask[:, rollout.prompt_width :].bool() & ~rollout.mask
    number = [len(episode.answers) for episode in there.episodes]
    went = Counter(zip((fact.place for fact in asked), number, strict=True))
    reward = float(graded.rewards.mean())
    return Conduct(
        {place: [went[place, made] / each for made in range(len(WAYS))] for place in STEADY},
        reward + cost * statistics.fmean(number),
        reward,
        float(-logps[heard].mean()),
    )


def best(cost: float, *, fail: float = 0.0, lie: float = 0.0) -> dict[str, str]:
    """Of each place, the way that is worth most."""
    return {
        place: WAYS[(found := worths(steady, fail=fail, lie=lie, cost=cost)).index(max(found))]
        for place, steady in STEADY.items()
    }
