"""Reward functions: what an online trainer asks about completions.

A :data:`Reward` maps ``B`` problems and ``B`` completions to ``B`` numbers; NaN marks a sample that could not be graded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import nn

from minirlhf.core.errors import UserError
from minirlhf.data.chat import encode
from minirlhf.data.collate import collate
from minirlhf.data.formats import Problem
from minirlhf.data.tasks.base import Split, Task

Reward: TypeAlias = Callable[[Sequence[Problem], Sequence[str]], Sequence[float]]


def task_problems(task: Task, split: Split) -> list[Problem]:
    """The prompts of a tiny world as problems."""
    return [Problem([{"role": "user", "content": prompt}]) for prompt in task.prompts(split)]


def task_reward(task: Task) -> Reward:
    """Grade by the world itself."""
    return lambda problems, completions: [
        task.grade(problem.prompt[-1]["content"], completion)
        for problem, completion in zip(problems, completions, strict=True)
    ]


def reference_reward(grader: Callable[[str, str], float]) -> Reward:
    """Grade by comparing with each problem's reference.

    Raises:
        UserError: when called with a problem that has none.
    """

    def reward(problems: Sequence[Problem], completions: Sequence[str]) -> list[float]:
        scores = []
        for problem, completion in zip(problems, completions, strict=True):
            if problem.reference is None:
                raise UserError(f"no reference to grade against for the prompt {problem.prompt[-1]['content'][:60]!r}")
            scores.append(grader(completion, problem.reference))
        return scores

    return reward


def model_reward(model: nn.Module, tokenizer: Any, *, batch_size: int = 256) -> Reward:
    """Grade by a reward model, which reads each completion as a finished reply."""

    @torch.no_grad()
    def reward(problems: Sequence[Problem], completions: Sequence[str]) -> list[float]:
        model.eval()
        rows = [
            encode(tokenizer, [*problem.prompt, {"role": "assistant", "content": completion}])
            for problem, completion in zip(problems, completions, strict=True)
        ]
        scores: list[float] = []
        for start in range(0, len(rows), batch_size):
            batch = collate(rows[start : start + batch_size], tokenizer.pad_token_id)
            batch = batch.to(next(model.parameters()).device)
            scores += model(batch.input_ids, batch.attention_mask).tolist()
        return scores

    return reward
