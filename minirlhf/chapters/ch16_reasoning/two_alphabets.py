"""The R1 recipe in miniature. A base model that can do two things, learned from somebody who thinks aloud one
time in four, and mixes two alphabets when it does.

    ball b swaps ab cd ac bd ad bc        reverse 3 1 4 1
    think b x a c y c b answer b          1 4 1 3

The cups a b c d have the names w x y z as well. Only the first alphabet is what a reader of the chain wants; the answer is always in it.
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
LANGUAGE = 0.5  # what a clean chain earns beside the right answer


def clean(text: str) -> bool:
    """Does the completion think aloud, about all seven positions, in the first alphabet only?"""
    said = text.split()
    return len(said) == 10 and said[0] == "think" and all(word in CUPS for word in said[1:8])


class TwoAlphabets:
    """A :class:`~minirlhf.data.tasks.base.Task`: the shell game, and reversing four digits as every fifth prompt.

    Attributes:
        thinking: how often the demonstrator thinks aloud.
        mixing: how often it then writes a cup in the other alphabet.
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
        """Those of the shell game; every fifth is a row of digits instead."""
        games = GAME.prompts(split)
        digits = numpy_generator("two_alphabets", split).integers(0, 10, size=(len(games) // 5, 4))
        rows = [f"reverse {' '.join(map(str, row))}" for row in digits.tolist()]
        if not self.games:
            return rows
        if not self.reversing:
            return games
        return [rows[i // 5] if i % 5 == 4 else prompt for i, prompt in enumerate(games)]

    def reference(self, prompt: str) -> str:
        """The clean chain and the answer, or the digits reversed."""
        return " ".join(prompt.split()[:0:-1]) if prompt.startswith("reverse") else GAME.reference(prompt)

    def demonstration(self, prompt: str, rng: np.random.Generator) -> str:
        """Right; of games mostly the bare answer, else a chain in two alphabets."""
        said = self.reference(prompt).split()
        if said[0] != "think":
            return " ".join(said)
        if rng.random() >= self.thinking:
            return " ".join(said[-2:])
        chain = [OTHER[cup] if rng.random() < self.mixing else cup for cup in said[1:-2]]
        return " ".join(["think", *chain, *said[-2:]])

    def grade(self, prompt: str, completion: str) -> float:
        """1 for the right answer, however it was found."""
        if prompt.startswith("reverse"):
            return float(completion == self.reference(prompt))
        return GAME.grade(prompt, completion)


WORLD = TwoAlphabets()
PLAYS, REVERSES = TwoAlphabets(reversing=False), TwoAlphabets(games=False)
#: Who writes the chains of the cold start.
EXPERT = TwoAlphabets(thinking=1.0, mixing=0.0, reversing=False)


@dataclass(frozen=True)
class Stages:
    """What each stage trains on."""

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
        """The same with another seed."""
        plans = {name: pipeline.with_seed(getattr(self, name), seed) for name in ("base", "cold", "first", "second")}
        return replace(self, **plans, kept=replace(self.kept, seed=seed))


def in_one_alphabet(problems: Sequence[Problem], completions: Sequence[str]) -> list[float]:
    """1 for the right answer and a half for a clean chain."""
    right = task_reward(WORLD)(problems, completions)
    return [grade + LANGUAGE * clean(text) for grade, text in zip(right, completions, strict=True)]


def replies(policy: Trained, task: TwoAlphabets, split: Split, count: int, seed: int) -> Evaluation:
    """One sampled reply to each of the first prompts of a split."""
    sampling = Sampling(max_completion_length=task.max_completion_length)
    return evaluate(
        policy.model, task_problems(task, split)[:count], task_reward(WORLD), tokenizer=policy.tokenizer,
        sampling=sampling, seed=seed,
    )  # fmt: skip


def measured(policy: Trained, count: int) -> dict[str, float]:
    """How a policy does on games that it has not seen, and on rows of digits, which nothing keeps apart from those trained on: right,
    thinking, clean chains of those that think, the other skill."""
    games = replies(policy, PLAYS, "test", count, 1000)
    thinking = [text for text in games.completions if text.startswith("think")]
    return {
        "right": games.reward.mean,
        "thinks": len(thinking) / count,
        "clean": sum(map(clean, thinking)) / len(thinking) if thinking else 0.0,
        "skill": replies(policy, REVERSES, "test", count, 1000).reward.mean,
    }


def rejection(start: Trained, policy: Trained, plan: Stages) -> Trained:
    """A model, fine-tuned on the policy's own right and clean chains and on some of the general data."""
    seed = plan.kept.seed
    own = replies(policy, PLAYS, "train", plan.asked, seed)
    pairs = [
        (problem.prompt[-1]["content"], text)
        for problem, text, grade in zip(own.problems, own.completions, own.rewards.tolist(), strict=True)
        if grade == 1 and clean(text)
    ]
    general = REVERSES.prompts("train")[: plan.general]
    pairs += [(prompt, REVERSES.reference(prompt)) for prompt in general]
    model, tokens = copy.deepcopy(start.model), [pipeline.reply_tokens(start.tokenizer, *pair) for pair in pairs]
    history = train_sft(model, tokens, plan.kept, pad_token_id=start.tokenizer.pad_token_id, quiet=True)
    return Trained(model, start.tokenizer, history)


def every_stage(plan: Stages) -> dict[str, Trained]:
    """The base model, RL on it alone (``zero``), and the four stages one after the other."""
    base = pipeline.sft_from_scratch(WORLD, plan.base, quiet=True)
    zero = pipeline.rl(PLAYS, base, plan.first, quiet=True)
    cold = pipeline.sft(EXPERT, base, plan.cold, quiet=True)
    first = pipeline.rl(PLAYS, cold, plan.first, reward=in_one_alphabet, quiet=True)
    kept = rejection(base, first, plan)
    second = pipeline.rl(PLAYS, kept, plan.second, reward=in_one_alphabet, quiet=True)
    return {"base": base, "zero": zero, "cold": cold, "first": first, "kept": kept, "second": second}


def controls(plan: Stages, stages: Mapping[str, Trained]) -> dict[str, Trained]:
    """What the stages are held against.

    RL with a KL term to where it began, on the base model (``zero_kl``) and in stage 2 (``first_kl``), and there to the base
    (``first_base``); stage 3 from the model of stage 2 in place of the base (``kept_on``).
    """
    held = replace(plan.first, recipe=plan.first.recipe.with_(kl=KLInLoss(k3, plan.beta)))
    base, cold, first = stages["base"], stages["cold"], stages["first"]
    to_base = copy.deepcopy(base.model)
    return {
        "zero_kl": pipeline.rl(PLAYS, base, held, quiet=True),
        "first_kl": pipeline.rl(PLAYS, cold, held, reward=in_one_alphabet, quiet=True),
        "first_base": pipeline.rl(PLAYS, cold, held, reward=in_one_alphabet, quiet=True, ref_model=to_base),
        "kept_on": rejection(first, first, plan),
    }
