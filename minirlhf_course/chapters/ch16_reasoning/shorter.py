"""Long to short: a model that writes six steps for games of one to six swaps, and four ways to shorten its chains.

ball b swaps ab cd ac no no no        think b a a c c c c answer c        long
                                      think b a a c answer c              as many steps as there are swaps
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from minirlhf.data.formats import Problem
from minirlhf.data.tasks.base import Split
from minirlhf.data.tasks.shell_game import NUM_SWAPS
from minirlhf.data.types import PreferenceExample, pair
from minirlhf.feedback.rewards import Reward, task_problems, task_reward
from minirlhf.models.merging import merge
from minirlhf.models.sampling import Sampling
from minirlhf.recipes import DR_GRPO
from minirlhf.recipes.offline import PREFERENCES
from minirlhf.stages import pipeline
from minirlhf.stages.pipeline import AlignPlan, RLPlan, SFTPlan, Trained
from minirlhf.trainers.config import OnlineConfig
from minirlhf.trainers.evaluation import Candidates, candidates, evaluate
from minirlhf.trainers.offline import OfflineConfig
from minirlhf.trainers.sft import SFTConfig, train_sft
from minirlhf_course.chapters.ch16_reasoning.asked_length import ASKED, NONE, AskedLength, steps
from minirlhf_course.chapters.ch16_reasoning.equations import kimi_length_reward


@dataclass(frozen=True)
class Thinker(AskedLength):
    """A :class:`~minirlhf.data.tasks.base.Task`: the games of :mod:`.asked_length`, without a requested length.

    Attributes:
        usual: the demonstrator's usual number of steps.
        mostly: how often it writes this number; else it writes a random number from 0 to 6.
    """

    usual: int = NUM_SWAPS
    mostly: float = 0.0

    name = "thinker"

    def prompts(self, split: Split) -> list[str]:
        """Return the same games, without the last two words."""
        return [prompt.rsplit(" ", 2)[0] for prompt in super().prompts(split)]

    def reference(self, prompt: str) -> str:
        """Return the usual number of steps and the answer."""
        return self._written(prompt, self.usual)

    def demonstration(self, prompt: str, rng: np.random.Generator) -> str:
        """Return the usual number of steps, or a random number; always right."""
        is_usual = rng.random() < self.mostly
        return self.reference(prompt) if is_usual else self._written(prompt, int(rng.integers(len(ASKED))))


BASE, LONG, SHORT = Thinker(), Thinker(NUM_SWAPS, 0.7), Thinker(1, 0.7)


@dataclass(frozen=True)
class Shortening:
    """The training of every model and every method, and the settings that are tried for every method.

    Attributes:
        prompts, of_each: fine-tuning and DPO select from ``of_each`` completions of the long model to each of
            ``prompts`` games; RL samples the same number during training.
        shares: weights of the short model in the mean.
        rates, dpo_rates: learning rates of fine-tuning and of DPO.
        weights: weights of Kimi's reward in RL; 0 is RL on answers alone.
    """

    base: SFTPlan = SFTPlan(12_000, SFTConfig(max_steps=400, batch_size=64, learning_rate=3e-3))
    long: SFTPlan = SFTPlan(6400, SFTConfig(max_steps=100, batch_size=64, learning_rate=1e-3))
    short: SFTPlan = SFTPlan(6400, SFTConfig(max_steps=100, batch_size=64, learning_rate=1e-3))
    prompts: int = 960
    of_each: int = 8
    shares: tuple[float, ...] = (0.3, 0.5)
    rates: tuple[float, ...] = (3e-4, 2e-3)
    dpo_rates: tuple[float, ...] = (3e-5, 1e-4)
    weights: tuple[float, ...] = (0.0, 0.3)
    kept: SFTConfig = SFTConfig(max_steps=60, batch_size=64, lr_scheduler_type="linear")
    dpo: AlignPlan = AlignPlan(
        PREFERENCES["dpo"].with_(beta=0.2),
        OfflineConfig(max_steps=60, batch_size=32, lr_scheduler_type="linear"),
    )
    rl: RLPlan = RLPlan(DR_GRPO, OnlineConfig(max_steps=60, batch_size=16, num_generations=8, learning_rate=5e-4))

    def with_seed(self, seed: int) -> Shortening:
        """The same with another seed."""
        plans = {name: pipeline.with_seed(getattr(self, name), seed) for name in ("base", "long", "short", "dpo", "rl")}
        return replace(self, **plans, kept=replace(self.kept, seed=seed))


def starts(plan: Shortening) -> dict[str, Trained]:
    """Train a model that writes any number of steps, and fine-tune two models from it: one that mostly writes six
    steps, one that mostly writes one."""
    base = pipeline.sft_from_scratch(BASE, plan.base, quiet=True)
    return {
        "base": base,
        "long": pipeline.sft(LONG, base, plan.long, quiet=True),
        "short": pipeline.sft(SHORT, base, plan.short, quiet=True),
    }


def sampled(policy: Trained, plan: Shortening) -> tuple[list[Problem], Candidates]:
    """Sample several completions of the long model for each of some training games."""
    problems = task_problems(BASE, "train")[: plan.prompts]
    samples = candidates(
        policy.model, problems, task_reward(BASE), tokenizer=policy.tokenizer,
        sampling=Sampling(max_completion_length=BASE.max_completion_length), num_generations=plan.of_each,
        seed=plan.kept.seed,
    )  # fmt: skip
    return problems, samples


def merged(long: Trained, short: Trained, share: float) -> Trained:
    """Return the mean of both models' weights; ``share`` is the weight of the short model."""
    return Trained(merge([long.model, short.model], [1 - share, share]), long.tokenizer)


def shortest(long: Trained, found: tuple[list[Problem], Candidates], plan: Shortening, rate: float) -> Trained:
    """Fine-tune on the shortest right completion of every game that has one."""
    pairs = []
    for problem, texts, rewards in zip(found[0], found[1].completions, found[1].rewards.tolist(), strict=True):
        correct = [text for text, reward in zip(texts, rewards, strict=True) if reward == 1]
        if correct:
            pairs.append((problem.prompt[-1]["content"], min(correct, key=steps)))
    model, tokens = copy.deepcopy(long.model), [pipeline.completion_tokens(long.tokenizer, *each) for each in pairs]
    config = replace(plan.kept, learning_rate=rate)
    train_sft(model, tokens, config, pad_token_id=long.tokenizer.pad_token_id, quiet=True)
    return Trained(model, long.tokenizer)


def preferred(long: Trained, found: tuple[list[Problem], Candidates], plan: Shortening, rate: float) -> Trained:
    """Train by DPO: the shortest right completion against a longer one, right or wrong; a right one is at least two
    steps longer."""
    examples: list[PreferenceExample] = []
    for problem, texts, rewards in zip(found[0], found[1].completions, found[1].rewards.tolist(), strict=True):
        prompt = problem.prompt[-1]["content"]
        correct = [text for text, reward in zip(texts, rewards, strict=True) if reward == 1]
        if not correct:
            continue
        best = min(correct, key=steps)
        longer = [
            text
            for text, reward in zip(texts, rewards, strict=True)
            if steps(text) >= steps(best) + (2 if reward == 1 else 1)
        ]
        if longer:
            rejected = max(longer, key=steps)
            short, other = (pipeline.completion_tokens(long.tokenizer, prompt, text) for text in (best, rejected))
            examples.append(pair(short, other))
    training = replace(plan.dpo.training, learning_rate=rate)
    return pipeline.align(long, examples, replace(plan.dpo, training=training), quiet=True)


def paid(group: int, weight: float) -> Reward:
    """Return the reward: right answers, plus ``weight`` times Kimi's reward for being shorter than the rest of the
    group."""

    def reward(problems: Sequence[Problem], completions: Sequence[str]) -> list[float]:
        correct = torch.tensor(task_reward(BASE)(problems, completions)).view(-1, group)
        lengths = torch.tensor([float(steps(text)) for text in completions]).view(-1, group)
        return (correct + weight * kimi_length_reward(correct, lengths)).flatten().tolist()

    return reward


def reinforced(long: Trained, plan: Shortening, weight: float) -> Trained:
    """Train by RL with the reward :func:`paid`."""
    return pipeline.rl(BASE, long, plan.rl, reward=paid(plan.rl.training.num_generations, weight), quiet=True)


def measured(policy: Trained, count: int) -> dict[str, float]:
    """Measure a policy on test games: accuracy, number of steps, steps beyond the game's swaps (``wasted``) and steps
    short of them (``missing``)."""
    problems = task_problems(BASE, "test")[:count]
    result = evaluate(
        policy.model, problems, task_reward(BASE), tokenizer=policy.tokenizer,
        sampling=Sampling(max_completion_length=BASE.max_completion_length), seed=1000,
    )  # fmt: skip
    lengths = np.array([steps(text) for text in result.completions])
    swaps = np.array([sum(w != NONE for w in problem.prompt[-1]["content"].split()[3:]) for problem in problems])
    return {
        "right": result.reward.mean,
        "steps": float(lengths.mean()),
        "wasted": float(np.maximum(lengths - swaps, 0).mean()),
        "missing": float(np.maximum(swaps - lengths, 0).mean()),
    }
