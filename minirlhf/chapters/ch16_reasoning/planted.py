"""Is the second thought in the base model? A wrong position is planted in a chain of the shell game, and the model writes on.

    ball b swaps ab cd ac bd ad bc
    think b a d no a c c c b answer b

The demonstrator of one base never errs. That of the other writes a wrong cup once in half of its chains, and behind it ``no`` and the
right one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from minirlhf.core.randomness import numpy_generator
from minirlhf.data import tasks
from minirlhf.data.chat import conversation, encode_prompt, ends_of
from minirlhf.data.formats import Problem
from minirlhf.data.tasks.base import Split
from minirlhf.data.tasks.shell_game import CUPS, NUM_SWAPS, positions
from minirlhf.feedback.rewards import task_problems, task_reward
from minirlhf.models.sampling import Sampling, sample
from minirlhf.models.texts import completion_texts
from minirlhf.recipes import DR_GRPO
from minirlhf.stages.pipeline import RLPlan, SFTPlan, Trained
from minirlhf.trainers.config import OnlineConfig
from minirlhf.trainers.evaluation import evaluate
from minirlhf.trainers.sft import SFTConfig

GAME = tasks.get("shell_game")
NO = "no"


@dataclass(frozen=True)
class SecondThoughts:
    """A :class:`~minirlhf.data.tasks.base.Task`: the shell game, in which chains may take a position back.

    Attributes:
        slips: how many of its chains write a wrong cup once, behind one of the swaps, and take it back.
        thinking: how many demonstrations think aloud.
    """

    slips: float = 0.0
    thinking: float = 0.5

    name = "second_thoughts"
    words = (*GAME.words, NO)
    max_completion_length = NUM_SWAPS + 9  # room for two slips

    def prompts(self, split: Split) -> list[str]:
        """Those of the shell game."""
        return GAME.prompts(split)

    def reference(self, prompt: str) -> str:
        """The chain without a slip."""
        return GAME.reference(prompt)

    def demonstration(self, prompt: str, rng: np.random.Generator) -> str:
        """A chain, with a slip that is taken back at once, or the bare answer; always right."""
        path = positions(prompt)
        if rng.random() >= self.thinking:
            return f"answer {path[-1]}"
        said = ["think", prompt.split()[1], *path, "answer", path[-1]]
        if rng.random() < self.slips:
            at = int(rng.integers(NUM_SWAPS))
            said[at + 2 : at + 2] = [wrong(path[at], rng), NO]
        return " ".join(said)

    def grade(self, prompt: str, completion: str) -> float:
        """1 for the right answer at the end."""
        return GAME.grade(prompt, completion)


def wrong(place: str, rng: np.random.Generator) -> str:
    """One of the three other cups."""
    others = [cup for cup in CUPS if cup != place]
    return others[int(rng.integers(len(others)))]


BASES = {"plain": SecondThoughts(), "second": SecondThoughts(slips=0.5)}
SFT = SFTPlan(6400, SFTConfig(max_steps=500, batch_size=64, learning_rate=3e-3, lr_scheduler_type="linear"))
RL = RLPlan(DR_GRPO, OnlineConfig(max_steps=60, batch_size=16, num_generations=8, learning_rate=5e-4))


def games(count: int) -> tuple[list[Problem], list[str]]:
    """Games that no model has been trained on, as problems and as prompts."""
    problems = task_problems(GAME, "test")[:count]
    return problems, [problem.prompt[-1]["content"] for problem in problems]


def openings(prompts: Sequence[str], seed: int) -> tuple[list[str], list[str]]:
    """The beginnings of chains up to one of the first five positions after a swap: with a wrong cup there, and as it should be."""
    rng = numpy_generator("planted", seed)
    bad, good = [], []
    for prompt in prompts:
        path, at = positions(prompt), int(rng.integers(NUM_SWAPS - 1))
        before = ["think", prompt.split()[1], *path[:at]]
        bad.append(" ".join([*before, wrong(path[at], rng)]))
        good.append(" ".join([*before, path[at]]))
    return bad, good


def go_on(policy: Trained, prompts: Sequence[str], begun: Sequence[str], seed: int) -> list[str]:
    """One sampled continuation of every reply that was begun."""
    tokenizer = policy.tokenizer
    given = [
        [*encode_prompt(tokenizer, conversation(prompt)), *tokenizer(text, add_special_tokens=False).input_ids]
        for prompt, text in zip(prompts, begun, strict=True)
    ]
    rollout = sample(
        policy.model, given, sampling=Sampling(max_completion_length=BASES["plain"].max_completion_length),
        num_generations=1, eos_token_id=ends_of(tokenizer, policy.model).ids, pad_token_id=tokenizer.pad_token_id,
        seed=seed,
    )  # fmt: skip
    return completion_texts(rollout, tokenizer)


def follows(prompt: str, begun: str, rest: str) -> bool:
    """Does the continuation carry the position that was reached through the swaps that are left, to the answer?"""
    at = len(begun.split()) - 2
    _, _, _, *swaps = prompt.split()
    carried = positions(" ".join(["ball", begun.split()[-1], "swaps", *swaps[at:]]))
    return rest.split() == [*carried, "answer", (carried or [begun.split()[-1]])[-1]]


def measured(policy: Trained, count: int, seed: int) -> dict[str, float]:
    """On games that it has not seen.

    ``right``, ``thinks`` and ``takes_back`` (a ``no`` among its chains) of its own replies, and how often those of its chains are right that take
    something back, and that do not (0 where there are none). Behind a planted error: ``mended`` (the answer is right), ``noticed`` (the next word
    is ``no``), ``restored`` (of these, the word after it is the right cup), ``carried`` (the wrong position is followed to its end).
    ``false_alarm``: ``no`` behind the right position at the same place; ``unplanted``: right answers from there.
    """
    problems, prompts = games(count)
    own = evaluate(
        policy.model, problems, task_reward(GAME), tokenizer=policy.tokenizer,
        sampling=Sampling(max_completion_length=BASES["plain"].max_completion_length), seed=1000,
    )  # fmt: skip
    graded = zip(own.completions, own.rewards.tolist(), strict=True)
    thinking = [(text, grade) for text, grade in graded if text.startswith("think")]
    bad, good = openings(prompts, seed)
    after_bad, after_good = go_on(policy, prompts, bad, seed), go_on(policy, prompts, good, seed)

    def right(rest: Sequence[str]) -> float:
        return share([GAME.grade(prompt, text) == 1 for prompt, text in zip(prompts, rest, strict=True)])

    return {
        "right": own.reward.mean,
        "thinks": len(thinking) / count,
        "takes_back": share([NO in text.split() for text, _ in thinking]),
        "right_with_no": share([grade == 1 for text, grade in thinking if NO in text.split()]),
        "right_without": share([grade == 1 for text, grade in thinking if NO not in text.split()]),
        "mended": right(after_bad),
        "noticed": share([text.startswith(NO) for text in after_bad]),
        "restored": share(
            [
                rest.split()[1:2] == begun.split()[-1:]
                for begun, rest in zip(good, after_bad, strict=True)
                if rest.startswith(NO)
            ]
        ),
        "carried": share([follows(*each) for each in zip(prompts, bad, after_bad, strict=True)]),
        "false_alarm": share([text.startswith(NO) for text in after_good]),
        "unplanted": right(after_good),
    }


def share(found: Sequence[bool]) -> float:
    """How many are true, of all; 0 of none."""
    values: Tensor = torch.tensor(found, dtype=torch.float64)
    return float(values.mean()) if len(found) else 0.0
