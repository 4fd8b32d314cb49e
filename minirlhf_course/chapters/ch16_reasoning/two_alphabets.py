"""The R1 recipe in miniature. A base model can do two things; its demonstrator writes a chain of thought 25 % of the
time, in a mixture of two alphabets.

    ball b swaps ab cd ac bd ad bc        reverse 3 1 4 1
    think b x a c y c b answer b          1 4 1 3

The cups a b c d are also called w x y z. A reader of the chain wants only the first alphabet; the answer is always in
it.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from minirlhf.core.randomness import numpy_generator
from minirlhf.data import tasks
from minirlhf.data.formats import Problem
from minirlhf.data.tasks.base import Split
from minirlhf.data.tasks.shell_game import CUPS
from minirlhf.equations.kl import k3
from minirlhf.feedback.rewards import task_problems, task_reward
from minirlhf.models.sampling import Sampling
from minirlhf.recipes import DR_GRPO, KLInLoss
from minirlhf.stages import pipeline
from minirlhf.stages.pipeline import RLPlan, SFTPlan, Trained
from minirlhf.trainers.config import OnlineConfig
from minirlhf.trainers.evaluation import Evaluation, evaluate
from minirlhf.trainers.sft import SFTConfig, train_sft

GAME = tasks.get("shell_game")
OTHER = dict(zip(CUPS, "wxyz", strict=True))
DIGITS = tuple("0123456789")
LANGUAGE = 0.5  # reward of a clean chain, beside the reward of the right answer


def clean(text: str) -> bool:
    """Return whether the completion has a chain of thought with all seven positions, in the first alphabet only."""
    words = text.split()
    return len(words) == 10 and words[0] == "think" and all(word in CUPS for word in words[1:8])


class TwoAlphabets:
    """A :class:`~minirlhf.data.tasks.base.Task`: the shell game, and reversing four digits as every fifth prompt.

    Attributes:
        thinking: probability that the demonstrator writes a chain of thought.
        mixing: probability that it writes a cup of the chain in the other alphabet.
        games, reversing: which prompts there are.
    """

    name = "two_alphabets"
    words = (*GAME.words, *OTHER.values(), *DIGITS, "reverse")
    max_completion_length = 13

    def __init__(
        self, thinking: float = 0.25, mixing: float = 0.35, games: bool = True, reversing: bool = True
    ) -> None:
        self.thinking, self.mixing, self.games, self.reversing = thinking, mixing, games, reversing

    def prompts(self, split: Split) -> list[str]:
        """Return the prompts of the shell game; every fifth is a row of digits instead."""
        games = GAME.prompts(split)
        digits = numpy_generator("two_alphabets", split).integers(0, 10, size=(len(games) // 5, 4))
        rows = [f"reverse {' '.join(map(str, row))}" for row in digits.tolist()]
        if not self.games:
            return rows
        if not self.reversing:
            return games
        return [rows[i // 5] if i % 5 == 4 else prompt for i, prompt in enumerate(games)]

    def reference(self, prompt: str) -> str:
        """Return the clean chain and the answer, or the digits reversed."""
        return " ".join(prompt.split()[:0:-1]) if prompt.startswith("reverse") else GAME.reference(prompt)

    def demonstration(self, prompt: str, rng: np.random.Generator) -> str:
        """Return a right completion; for games mostly the direct answer, else a chain in two alphabets."""
        words = self.reference(prompt).split()
        if words[0] != "think":
            return " ".join(words)
        if rng.random() >= self.thinking:
            return " ".join(words[-2:])
        chain = [OTHER[cup] if rng.random() < self.mixing else cup for cup in words[1:-2]]
        return " ".join(["think", *chain, *words[-2:]])

    def grade(self, prompt: str, completion: str) -> float:
        """Return 1 for the right answer, with or without a chain."""
        if prompt.startswith("reverse"):
            return float(completion == self.reference(prompt))
        return GAME.grade(prompt, completion)


WORLD = TwoAlphabets()
PLAYS, REVERSES = TwoAlphabets(reversing=False), TwoAlphabets(games=False)
#: The demonstrator of the chains for the cold start.
EXPERT = TwoAlphabets(thinking=1.0, mixing=0.0, reversing=False)


@dataclass(frozen=True)
class Stages:
    """The training of each stage."""

    base: SFTPlan = SFTPlan(6400, SFTConfig(max_steps=400, batch_size=64, learning_rate=3e-3))
    cold: SFTPlan = SFTPlan(64, SFTConfig(max_steps=25, batch_size=32, learning_rate=1e-3))
    first: RLPlan = RLPlan(DR_GRPO, OnlineConfig(max_steps=40, batch_size=12, num_generations=8, learning_rate=5e-4))
    kept: SFTConfig = SFTConfig(max_steps=80, batch_size=64, learning_rate=1e-3)
    second: RLPlan = RLPlan(DR_GRPO, OnlineConfig(max_steps=25, batch_size=12, num_generations=8, learning_rate=5e-4))
    asked: int = 600
    general: int = 150
    measured: int = 200
    beta: float = 0.05

    def with_seed(self, seed: int) -> Stages:
        """Return the same stages with another seed."""
        plans = {name: pipeline.with_seed(getattr(self, name), seed) for name in ("base", "cold", "first", "second")}
        return replace(self, **plans, kept=replace(self.kept, seed=seed))


def in_one_alphabet(problems: Sequence[Problem], completions: Sequence[str]) -> list[float]:
    """Return 1 for the right answer plus ½ for a clean chain."""
    rewards = task_reward(WORLD)(problems, completions)
    return [reward + LANGUAGE * clean(text) for reward, text in zip(rewards, completions, strict=True)]


def replies(policy: Trained, task: TwoAlphabets, split: Split, count: int, seed: int) -> Evaluation:
    """Sample one completion of each of the first prompts of a split."""
    sampling = Sampling(max_completion_length=task.max_completion_length)
    return evaluate(
        policy.model, task_problems(task, split)[:count], task_reward(WORLD), tokenizer=policy.tokenizer,
        sampling=sampling, seed=seed,
    )  # fmt: skip


def measured(policy: Trained, count: int) -> dict[str, float]:
    """Measure a policy on test games and on rows of digits: accuracy, fraction of chains of thought, fraction of clean
    chains among them, and the other skill.

    Nothing keeps the rows of digits apart from the rows in training.
    """
    evaluation = replies(policy, PLAYS, "test", count, 1000)
    chains = [text for text in evaluation.completions if text.startswith("think")]
    return {
        "right": evaluation.reward.mean,
        "thinks": len(chains) / count,
        "clean": sum(map(clean, chains)) / len(chains) if chains else 0.0,
        "skill": replies(policy, REVERSES, "test", count, 1000).reward.mean,
    }


def rejection(start: Trained, policy: Trained, plan: Stages) -> Trained:
    """Fine-tune a model on the policy's own right and clean chains and on some of the general data."""
    seed = plan.kept.seed
    samples = replies(policy, PLAYS, "train", plan.asked, seed)
    pairs = [
        (problem.prompt[-1]["content"], text)
        for problem, text, reward in zip(samples.problems, samples.completions, samples.rewards.tolist(), strict=True)
        if reward == 1 and clean(text)
    ]
    general = REVERSES.prompts("train")[: plan.general]
    pairs += [(prompt, REVERSES.reference(prompt)) for prompt in general]
    model, tokens = copy.deepcopy(start.model), [pipeline.completion_tokens(start.tokenizer, *pair) for pair in pairs]
    history = train_sft(model, tokens, plan.kept, pad_token_id=start.tokenizer.pad_token_id, quiet=True)
    return Trained(model, start.tokenizer, history)


def every_stage(plan: Stages) -> dict[str, Trained]:
    """Train the base model, RL on it alone (``zero``), and the four stages one after the other."""
    base = pipeline.sft_from_scratch(WORLD, plan.base, quiet=True)
    zero = pipeline.rl(PLAYS, base, plan.first, quiet=True)
    cold = pipeline.sft(EXPERT, base, plan.cold, quiet=True)
    first = pipeline.rl(PLAYS, cold, plan.first, reward=in_one_alphabet, quiet=True)
    finetuned = rejection(base, first, plan)
    second = pipeline.rl(PLAYS, finetuned, plan.second, reward=in_one_alphabet, quiet=True)
    return {"base": base, "zero": zero, "cold": cold, "first": first, "kept": finetuned, "second": second}


def controls(plan: Stages, stages: Mapping[str, Trained]) -> dict[str, Trained]:
    """Train the controls of the stages.

    RL with a KL penalty to the initial policy of the run, on the base model (``zero_kl``) and in stage 2
    (``first_kl``), and in stage 2 with the base as reference (``first_base``); stage 3 from the model of stage 2 in
    place of the base (``kept_on``).
    """
    with_kl = replace(plan.first, recipe=plan.first.recipe.with_(kl=KLInLoss(k3, plan.beta)))
    base, cold, first = stages["base"], stages["cold"], stages["first"]
    ref_model = copy.deepcopy(base.model)
    return {
        "zero_kl": pipeline.rl(PLAYS, base, with_kl, quiet=True),
        "first_kl": pipeline.rl(PLAYS, cold, with_kl, reward=in_one_alphabet, quiet=True),
        "first_base": pipeline.rl(PLAYS, cold, with_kl, reward=in_one_alphabet, quiet=True, ref_model=ref_model),
        "kept_on": rejection(first, first, plan),
    }
