"""Length on request: the shell game with one to six swaps; the prompt ends in the requested number of steps.

    ball b swaps ab cd ac no no no steps 2        think b a a answer c
    ball b swaps ab cd ac no no no steps 0        answer c

Games are padded to six swaps; "no" leaves the ball where it is. The demonstrator writes a random number of steps, and
in 20 % of its demonstrations the requested number. It does the swaps after the last written step without writing them,
and it is always right.
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
from minirlhf.feedback.rewards import Reward, task_problems, task_reward
from minirlhf.models.sampling import Sampling
from minirlhf.recipes import DR_GRPO
from minirlhf.stages import pipeline
from minirlhf.stages.pipeline import RLPlan, SFTPlan, Trained
from minirlhf.trainers.config import OnlineConfig
from minirlhf.trainers.evaluation import evaluate
from minirlhf.trainers.sft import SFTConfig
from minirlhf_course.chapters.ch16_reasoning.equations import lcpo_exact, lcpo_max

NONE, OBEYS = "no", 0.2
ASKED = tuple(range(NUM_SWAPS + 1))
SIZES = {"train": 12_000, "test": 700}


def path(prompt: str) -> list[str]:
    """Return the position of the ball at the start and after each of the six swaps."""
    words = prompt.split()
    positions = [words[1]]
    for swap in words[3 : 3 + NUM_SWAPS]:
        positions.append(swap.replace(positions[-1], "") if positions[-1] in swap and swap != NONE else positions[-1])
    return positions


def steps(completion: str) -> int:
    """Return the number of steps in a completion's chain of thought: the words after the first position, up to the
    answer."""
    words = completion.split()
    return max(0, (words.index("answer") if "answer" in words else len(words)) - 2) if words[:1] == ["think"] else 0


class AskedLength:
    """A :class:`~minirlhf.data.tasks.base.Task`."""

    name = "asked_length"
    words = (*CUPS, *SWAPS, NONE, "ball", "swaps", "think", "answer", "steps", *map(str, ASKED))
    max_completion_length = NUM_SWAPS + 5

    def prompts(self, split: Split) -> list[str]:
        """Return games of one to six swaps, each with a request of zero to six steps; every seventh game is a test
        game, for all requests."""
        rng = numpy_generator("asked_length", split)
        games: list[str] = []
        while len(games) < SIZES[split]:
            count, ball = int(rng.integers(1, NUM_SWAPS + 1)), int(rng.integers(len(CUPS)))
            swaps = rng.integers(len(SWAPS), size=count).tolist()
            number = ball + sum((i + 1) * (swap + 1) for i, swap in enumerate(swaps))
            if (number % 7 == 0) == (split == "test"):
                words = [SWAPS[swap] for swap in swaps] + [NONE] * (NUM_SWAPS - count)
                games.append(f"ball {CUPS[ball]} swaps {' '.join(words)} steps {rng.integers(len(ASKED))}")
        return games

    def reference(self, prompt: str) -> str:
        """Return a completion with the requested number of steps and the answer."""
        return self._written(prompt, int(prompt.split()[-1]))

    def demonstration(self, prompt: str, rng: np.random.Generator) -> str:
        """Return a completion with the requested number of steps with probability 20 %, else with a random number;
        always right."""
        obeys = rng.random() < OBEYS
        return self.reference(prompt) if obeys else self._written(prompt, int(rng.integers(len(ASKED))))

    def _written(self, prompt: str, count: int) -> str:
        positions = path(prompt)
        chain = ["think", *positions[: count + 1]] if count else []
        return " ".join([*chain, "answer", positions[-1]])

    def grade(self, prompt: str, completion: str) -> float:
        """1 if the completion ends in ``answer`` and the right cup, else 0."""
        return float(completion.split()[-2:] == ["answer", path(prompt)[-1]])


WORLD = AskedLength()
SFT = SFTPlan(12_000, SFTConfig(max_steps=600, batch_size=64, learning_rate=3e-3))
RL = RLPlan(DR_GRPO, OnlineConfig(max_steps=160, batch_size=16, num_generations=8, learning_rate=5e-4))


def _exact(alpha: float) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    return lambda correct, lengths, requested: lcpo_exact(correct, lengths, requested, alpha=alpha)


#: The reward of each run: ``(right, steps, asked) -> reward``, ``(B,)`` each.
RUNS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "exact": _exact(0.3),
    "cheap": _exact(0.1),
    "most": lambda correct, lengths, requested: lcpo_max(correct, lengths, requested, alpha=0.5, offset=1.0),
}


def reward_of(name: str) -> Reward:
    """Return the reward of a run of :data:`RUNS`; the length is the number of steps."""

    def reward(problems: Sequence[Problem], completions: Sequence[str]) -> list[float]:
        correct = torch.tensor(task_reward(WORLD)(problems, completions))
        lengths = torch.tensor([float(steps(text)) for text in completions])
        requested = torch.tensor([float(problem.prompt[-1]["content"].split()[-1]) for problem in problems])
        return RUNS[name](correct, lengths, requested).tolist()

    return reward


def train(name: str, begin: Trained, seed: int, plan: RLPlan = RL) -> Trained:
    """Train one run from a copy of ``begin``."""
    plan = replace(plan, training=replace(plan.training, seed=seed))
    return pipeline.rl(WORLD, begin, plan, reward=reward_of(name), quiet=True)


def measured(policy: Trained, count: int) -> dict[str, float]:
    """Measure a policy on test games: steps and accuracy for each requested number, how often the number is met exactly
    (``kept``) and how often it is exceeded (``over``)."""
    result = evaluate(
        policy.model, task_problems(WORLD, "test")[:count], task_reward(WORLD), tokenizer=policy.tokenizer,
        sampling=Sampling(max_completion_length=WORLD.max_completion_length), seed=1000,
    )  # fmt: skip
    requested = np.array([int(problem.prompt[-1]["content"].split()[-1]) for problem in result.problems])
    lengths, rewards = np.array([steps(text) for text in result.completions]), result.rewards.numpy()
    metrics = {"kept": float((lengths == requested).mean()), "over": float((lengths > requested).mean())}
    for number in ASKED:
        metrics[f"steps_{number}"] = float(lengths[requested == number].mean())
        metrics[f"right_{number}"] = float(rewards[requested == number].mean())
    return metrics
