"""Is self-correction in the base model? A wrong position is injected into a chain of the shell game, and the model
continues it.

    ball b swaps ab cd ac bd ad bc
    think b a d no a c c c b answer b

The demonstrator of one base never errs. The demonstrator of the other base writes a wrong cup once in half of its
chains, and after it ``no`` and the right cup.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from minirlhf.core.randomness import numpy_generator
from minirlhf.data import tasks
from minirlhf.data.chat import conversation, encode_prompt, end_tokens
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
    """A :class:`~minirlhf.data.tasks.base.Task`: the shell game, in which chains may retract a position.

    Attributes:
        slips: fraction of chains that write a wrong cup once, after one of the swaps, and retract it.
        thinking: fraction of demonstrations with a chain of thought.
    """

    slips: float = 0.0
    thinking: float = 0.5

    name = "second_thoughts"
    words = (*GAME.words, NO)
    max_completion_length = NUM_SWAPS + 9  # room for two errors

    def prompts(self, split: Split) -> list[str]:
        """Return the prompts of the shell game."""
        return GAME.prompts(split)

    def reference(self, prompt: str) -> str:
        """Return the chain without an error."""
        return GAME.reference(prompt)

    def demonstration(self, prompt: str, rng: np.random.Generator) -> str:
        """Return a chain, possibly with an error that is retracted at once, or the direct answer; always right."""
        path = positions(prompt)
        if rng.random() >= self.thinking:
            return f"answer {path[-1]}"
        words = ["think", prompt.split()[1], *path, "answer", path[-1]]
        if rng.random() < self.slips:
            index = int(rng.integers(NUM_SWAPS))
            words[index + 2 : index + 2] = [wrong(path[index], rng), NO]
        return " ".join(words)

    def grade(self, prompt: str, completion: str) -> float:
        """Return 1 for the right answer at the end."""
        return GAME.grade(prompt, completion)


def wrong(place: str, rng: np.random.Generator) -> str:
    """Return one of the three other cups."""
    other_cups = [cup for cup in CUPS if cup != place]
    return other_cups[int(rng.integers(len(other_cups)))]


BASES = {"plain": SecondThoughts(), "second": SecondThoughts(slips=0.5)}
SFT = SFTPlan(6400, SFTConfig(max_steps=500, batch_size=64, learning_rate=3e-3, lr_scheduler_type="linear"))
RL = RLPlan(DR_GRPO, OnlineConfig(max_steps=60, batch_size=16, num_generations=8, learning_rate=5e-4))


def games(count: int) -> tuple[list[Problem], list[str]]:
    """Return test games, on which no model was trained, as problems and as prompts."""
    problems = task_problems(GAME, "test")[:count]
    return problems, [problem.prompt[-1]["content"] for problem in problems]


def openings(prompts: Sequence[str], seed: int) -> tuple[list[str], list[str]]:
    """Return the beginnings of chains up to one of the first five positions after a swap: with a wrong cup there, and
    with the right one."""
    rng = numpy_generator("planted", seed)
    bad, good = [], []
    for prompt in prompts:
        path, index = positions(prompt), int(rng.integers(NUM_SWAPS - 1))
        prefix = ["think", prompt.split()[1], *path[:index]]
        bad.append(" ".join([*prefix, wrong(path[index], rng)]))
        good.append(" ".join([*prefix, path[index]]))
    return bad, good


def go_on(policy: Trained, prompts: Sequence[str], begun: Sequence[str], seed: int) -> list[str]:
    """Sample one continuation of every completion that was begun."""
    tokenizer = policy.tokenizer
    prompt_ids = [
        [*encode_prompt(tokenizer, conversation(prompt)), *tokenizer(text, add_special_tokens=False).input_ids]
        for prompt, text in zip(prompts, begun, strict=True)
    ]
    rollout = sample(
        policy.model, prompt_ids, sampling=Sampling(max_completion_length=BASES["plain"].max_completion_length),
        num_generations=1, eos_token_id=end_tokens(tokenizer, policy.model).ids, pad_token_id=tokenizer.pad_token_id,
        seed=seed,
    )  # fmt: skip
    return completion_texts(rollout, tokenizer)


def follows(prompt: str, begun: str, rest: str) -> bool:
    """Return whether the continuation applies the remaining swaps to the last position, up to the answer."""
    num_swaps = len(begun.split()) - 2
    _, _, _, *swaps = prompt.split()
    expected = positions(" ".join(["ball", begun.split()[-1], "swaps", *swaps[num_swaps:]]))
    return rest.split() == [*expected, "answer", (expected or [begun.split()[-1]])[-1]]


def measured(policy: Trained, count: int, seed: int) -> dict[str, float]:
    """Measure a policy on test games.

    ``right`` and ``thinks`` are fractions of its own completions; ``takes_back`` (a ``no`` in the chain) is a fraction
    of its own chains. ``right_with_no`` and ``right_without`` are the accuracies of the chains that retract a position
    and of the chains that do not (0 where there are none). After an injected error: ``mended`` (the answer is right),
    ``noticed`` (the next word is ``no``), ``restored`` (of these, the word after it is the right cup), ``carried`` (the
    wrong position is followed to its end). ``false_alarm``: ``no`` after the right position at the same point of the
    chain; ``unplanted``: accuracy from there.
    """
    problems, prompts = games(count)
    evaluation = evaluate(
        policy.model, problems, task_reward(GAME), tokenizer=policy.tokenizer,
        sampling=Sampling(max_completion_length=BASES["plain"].max_completion_length), seed=1000,
    )  # fmt: skip
    graded = zip(evaluation.completions, evaluation.rewards.tolist(), strict=True)
    chains = [(text, reward) for text, reward in graded if text.startswith("think")]
    bad, good = openings(prompts, seed)
    after_bad, after_good = go_on(policy, prompts, bad, seed), go_on(policy, prompts, good, seed)

    def accuracy(continuation: Sequence[str]) -> float:
        return share([GAME.grade(prompt, text) == 1 for prompt, text in zip(prompts, continuation, strict=True)])

    return {
        "right": evaluation.reward.mean,
        "thinks": len(chains) / count,
        "takes_back": share([NO in text.split() for text, _ in chains]),
        "right_with_no": share([reward == 1 for text, reward in chains if NO in text.split()]),
        "right_without": share([reward == 1 for text, reward in chains if NO not in text.split()]),
        "mended": accuracy(after_bad),
        "noticed": share([text.startswith(NO) for text in after_bad]),
        "restored": share(
            [
                continuation.split()[1:2] == prefix.split()[-1:]
                for prefix, continuation in zip(good, after_bad, strict=True)
                if continuation.startswith(NO)
            ]
        ),
        "carried": share([follows(*each) for each in zip(prompts, bad, after_bad, strict=True)]),
        "false_alarm": share([text.startswith(NO) for text in after_good]),
        "unplanted": accuracy(after_good),
    }


def share(found: Sequence[bool]) -> float:
    """Return the fraction of values that are true; 0 if there are none."""
    values: Tensor = torch.tensor(found, dtype=torch.float64)
    return float(values.mean()) if len(found) else 0.0
