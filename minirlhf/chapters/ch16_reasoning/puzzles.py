"""Knights and knaves with a strict form: what a reward for answers, one for the form, and their sum teach.

    A says part , B says A same C , C says all
    think try k k k no try k k n yes no try k n k yes no try k n n yes yes yes answer k n n

The strict form is a chain that begins with ``think``, then ``answer``, once, and one kind for each person. Half of the demonstrations keep to it;
the others give a bare answer, begin their chain without ``think``, or say the answer twice. All are right.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from minirlhf.data.formats import Problem
from minirlhf.data.tasks.base import Split
from minirlhf.data.tasks.knights_and_knaves import KINDS, KnightsAndKnaves, read, solutions
from minirlhf.equations.shaping import composite_reward
from minirlhf.feedback.rewards import Reward, task_problems, task_reward
from minirlhf.models.sampling import Sampling
from minirlhf.recipes import DR_GRPO
from minirlhf.stages import pipeline
from minirlhf.stages.pipeline import RLPlan, SFTPlan, Trained
from minirlhf.trainers.config import OnlineConfig
from minirlhf.trainers.evaluation import evaluate
from minirlhf.trainers.sft import SFTConfig

GAME = KnightsAndKnaves(thinking_share=1.0)
SLOPPY = 0.5
LEVELS = (1, 2, 3)  # no puzzle with statements about single persons only has exactly one solution


@dataclass(frozen=True)
class Puzzles:
    """A :class:`~minirlhf.data.tasks.base.Task`: puzzles of three people, and a demonstrator who is careless of the form."""

    name = "puzzles"
    words = GAME.words
    max_completion_length = GAME.max_completion_length

    def prompts(self, split: Split) -> list[str]:
        """Those of knights and knaves, of three people."""
        return GAME.prompts(split)

    def reference(self, prompt: str) -> str:
        """A chain in the strict form."""
        return GAME.reference(prompt)

    def demonstration(self, prompt: str, rng: np.random.Generator) -> str:
        """In the strict form, or in one of three others; always right."""
        whole = GAME.demonstration(prompt, rng)
        if rng.random() >= SLOPPY:
            return whole
        answer = whole[whole.index("answer") :]
        return (answer, whole.removeprefix("think "), f"{whole} {answer}")[int(rng.integers(3))]

    def grade(self, prompt: str, completion: str) -> float:
        """1 if the kinds behind the last ``answer`` are the solution, whatever the form."""
        said = read(prompt)
        found = solutions(said) if said else []
        _, marked, kinds = completion.rpartition("answer ")
        wanted = [KINDS[0] if knight else KINDS[1] for knight in found[0]] if len(found) == 1 else None
        return float(bool(marked) and kinds.split() == wanted)


def difficulty(prompt: str) -> int:
    """How many of the three statements are about more than one person."""
    return sum(len(statement.split()) != 2 for statement in read(prompt) or [])


def in_form(completion: str) -> float:
    """1 for the strict form: a chain behind ``think``, ``answer`` once, one kind for each person; right or wrong."""
    return float(completion.startswith("think ") and GAME.well_formed(completion))


WORLD = Puzzles()
SFT = SFTPlan(6400, SFTConfig(max_steps=700, batch_size=64, learning_rate=3e-3, lr_scheduler_type="linear"))
RL = RLPlan(DR_GRPO, OnlineConfig(max_steps=60, batch_size=12, num_generations=8, learning_rate=5e-4))
#: What a run is paid: the weights of the form and of the answer.
RUNS = {"answer": (0.0, 1.0), "both": (0.2, 0.8), "form": (1.0, 0.0)}


def reward_of(name: str) -> Reward:
    """The weighted sum of a run of :data:`RUNS`."""
    weights = torch.tensor(RUNS[name])

    def reward(problems: Sequence[Problem], completions: Sequence[str]) -> list[float]:
        form = torch.tensor(formed(problems, completions))
        right = torch.tensor(task_reward(WORLD)(problems, completions))
        return composite_reward(torch.stack([form, right], -1), weights).tolist()

    return reward


def formed(problems: Sequence[Problem], completions: Sequence[str]) -> list[float]:
    """:func:`in_form` of each."""
    return [in_form(text) for text in completions]


def train(name: str, begin: Trained, seed: int, plan: RLPlan = RL) -> Trained:
    """One run from a copy of ``begin``."""
    plan = replace(plan, training=replace(plan.training, seed=seed))
    return pipeline.rl(WORLD, begin, plan, reward=reward_of(name), quiet=True)


def measured(policy: Trained, split: Split, count: int) -> dict[str, float]:
    """On the first puzzles of a split: right answers, replies in the strict form, such as are both, and chains, with or without their ``think``;
    right answers also by :func:`difficulty`, and among chains and bare answers; and :func:`thoughts`. 0 where there is nothing to count."""
    problems = task_problems(WORLD, split)[:count]
    result = evaluate(
        policy.model, problems, task_reward(WORLD), tokenizer=policy.tokenizer,
        sampling=Sampling(max_completion_length=WORLD.max_completion_length), seed=1000,
    )  # fmt: skip
    prompts = [problem.prompt[-1]["content"] for problem in result.problems]
    hard = np.array([difficulty(prompt) for prompt in prompts])
    right, form = result.rewards.numpy(), np.array(formed(result.problems, result.completions))
    chains = np.array([is_chain(text) for text in result.completions])
    numbers = {"right": _mean(right), "form": _mean(form), "both": _mean(right * form), "chains": _mean(chains)}
    numbers |= {f"right_{level}": _mean(right[hard == level]) for level in LEVELS}
    numbers |= {"right_chains": _mean(right[chains]), "right_bare": _mean(right[~chains])}
    return numbers | thoughts(prompts, result.completions)


def is_chain(text: str) -> bool:
    """Whether a reply begins as a chain does, with or without its ``think``."""
    return text.startswith(("think", "try"))


def thoughts(prompts: Sequence[str], completions: Sequence[str]) -> dict[str, float]:
    """What the chains among replies are: how many worlds each tries (``tries``) and how many verdicts it gives (``asked``); the share of verdicts
    that are right (``verdicts``), and that should be a yes (``agreeing``); the share of chains behind whose last try the same kinds are answered (``follows``), and of all replies those
    that are in the form and try nothing (``hollow``). 0 where there is nothing to count."""
    texts = [(prompt, text) for prompt, text in zip(prompts, completions, strict=True) if is_chain(text)]
    right, agreeing = [], []
    for prompt, text in texts:
        words = text.split()
        for word, grade in zip(words, GAME.grade_steps(prompt, words), strict=True):
            if not math.isnan(grade):
                right.append(grade)
                agreeing.append(float((word == "yes") == bool(grade)))
    return {
        "tries": _mean([float(text.split().count("try")) for _, text in texts]),
        "asked": len(right) / max(len(texts), 1),
        "verdicts": _mean(right),
        "agreeing": _mean(agreeing),
        "follows": _mean([_follows(text) for _, text in texts]),
        "hollow": _mean([in_form(text) * ("try" not in text.split()) for text in completions]),
    }


def _follows(text: str) -> float:
    thought, marked, kinds = text.rpartition("answer ")
    _, tried, rest = thought.rpartition("try ")
    return float(bool(marked and tried) and kinds.split() == rest.split()[: GAME.people])


def _mean(values: np.ndarray | Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else 0.0
