"""Length on request: the shell game with one to six swaps, and how many steps to think as the last word of the prompt.

    ball b swaps ab cd ac no no no steps 2        think b a a answer c
    ball b swaps ab cd ac no no no steps 0        answer c

Games are padded to six swaps, "no" leaves the ball where it is. A demonstrator thinks as many steps as it likes, and one time in five as many as
it was asked to; whatever follows the last step it does in its head, and it is always right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from minirlhf.core.randomness import numpy_generator
from minirlhf.data.formats import Problem
from minirlhf.data.tasks.base import Split
from minirlhf.data.tasks.shell_game import CUPS, NUM_SWAPS, SWAPS
from minirlhf.equations.shaping import lcpo_exact, lcpo_max
from minirlhf.feedback.rewards import Reward, task_problems, task_reward
from minirlhf.models.sampling import Sampling
from minirlhf.recipes import DR_GRPO
from minirlhf.stages import pipeline
from minirlhf.stages.pipeline import RLPlan, SFTPlan, Trained
from minirlhf.trainers.config import OnlineConfig
from minirlhf.trainers.evaluation import evaluate
from minirlhf.trainers.sft import SFTConfig

NONE, OBEYS = "no", 0.2
ASKED = tuple(range(NUM_SWAPS + 1))
SIZES = {"train": 12_000, "test": 700}


def path(prompt: str) -> list[str]:
    """Where the ball is at first and after each of the six swaps."""
    said = prompt.split()
    places = [said[1]]
    for swap in said[3 : 3 + NUM_SWAPS]:
        places.append(swap.replace(places[-1], "") if places[-1] in swap and swap != NONE else places[-1])
    return places


def steps(completion: str) -> int:
    """How many steps a completion thinks: the words after the first position, up to the answer."""
    said = completion.split()
    return max(0, (said.index("answer") if "answer" in said else len(said)) - 2) if said[:1] == ["think"] else 0


class AskedLength:
    """A :class:`~minirlhf.data.tasks.base.Task`."""

    name = "asked_length"
    words = (*CUPS, *SWAPS, NONE, "ball", "swaps", "think", "answer", "steps", *map(str, ASKED))
    max_completion_length = NUM_SWAPS + 5

    def prompts(self, split: Split) -> list[str]:
        """Games of one to six swaps, each asking for zero to six steps; every seventh game is for testing, whatever it asks for."""
        rng = numpy_generator("asked_length", split)
        found: list[str] = []
        while len(found) < SIZES[split]:
            count, ball = int(rng.integers(1, NUM_SWAPS + 1)), int(rng.integers(len(CUPS)))
            swaps = rng.integers(len(SWAPS), size=count).tolist()
            number = ball + sum((i + 1) * (swap + 1) for i, swap in enumerate(swaps))
            if (number % 7 == 0) == (split == "test"):
                named = [SWAPS[swap] for swap in swaps] + [NONE] * (NUM_SWAPS - count)
                found.append(f"ball {CUPS[ball]} swaps {' '.join(named)} steps {rng.integers(len(ASKED))}")
        return found

    def reference(self, prompt: str) -> str:
        """As many steps as were asked for, and the answer."""
        return self._written(prompt, int(prompt.split()[-1]))

    def demonstration(self, prompt: str, rng: np.random.Generator) -> str:
        """As many steps as were asked for one time in five, else any number; always right."""
        obeys = rng.random() < OBEYS
        return self.reference(prompt) if obeys else self._written(prompt, int(rng.integers(len(ASKED))))

    def _written(self, prompt: str, count: int) -> str:
        places = path(prompt)
        thought = ["think", *places[: count + 1]] if count else []
        return " ".join([*thought, "answer", places[-1]])

    def grade(self, prompt: str, completion: str) -> float:
        """1 if the completion ends in ``answer`` and the right cup, else 0."""
        return float(completion.split()[-2:] == ["answer", path(prompt)[-1]])


WORLD = AskedLength()
SFT = SFTPlan(12_000, SFTConfig(max_steps=600, batch_size=64, learning_rate=3e-3))
RL = RLPlan(DR_GRPO, OnlineConfig(max_steps=160, batch_size=16, num_generations=8, learning_rate=5e-4))


def _exact(alpha: float) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    return lambda right, thought, asked: lcpo_exact(right, thought, asked, alpha=alpha)


#: What a run is paid: ``(right, steps, asked) -> reward``, ``(B,)`` each.
RUNS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "exact": _exact(0.3),
    "cheap": _exact(0.1),
    "most": lambda right, thought, asked: lcpo_max(right, thought, asked, alpha=0.5, offset=1.0),
}


def reward_of(name: str) -> Reward:
    """The reward of a run of :data:`RUNS`, with steps as the length."""

    def reward(problems: Sequence[Problem], completions: Sequence[str]) -> list[float]:
        right = torch.tensor(task_reward(WORLD)(problems, completions))
        thought = torch.tensor([float(steps(text)) for text in completions])
        asked = torch.tensor([float(problem.prompt[-1]["content"].split()[-1]) for problem in problems])
        return RUNS[name](right, thought, asked).tolist()

    return reward


def train(name: str, begin: Trained, seed: int, plan: RLPlan = RL) -> Trained:
    """One run from a copy of ``begin``."""
    plan = replace(plan, training=replace(plan.training, seed=seed))
    return pipeline.rl(WORLD, begin, plan, reward=reward_of(name), quiet=True)


def measured(policy: Trained, count: int) -> dict[str, float]:
    """On games that it has not seen: steps and right answers for each number that was asked for, and how often it was kept exactly."""
    result = evaluate(
        policy.model, task_problems(WORLD, "test")[:count], task_reward(WORLD), tokenizer=policy.tokenizer,
        sampling=Sampling(max_completion_length=WORLD.max_completion_length), seed=1000,
    )  # fmt: skip
    asked = np.array([int(problem.prompt[-1]["content"].split()[-1]) for problem in result.problems])
    thought, right = np.array([steps(text) for text in result.completions]), result.rewards.numpy()
    numbers = {"kept": float((thought == asked).mean()), "over": float((thought > asked).mean())}
    for number in ASKED:
        numbers[f"steps_{number}"] = float(thought[asked == number].mean())
        numbers[f"right_{number}"] = float(right[asked == number].mean())
    return numbers
