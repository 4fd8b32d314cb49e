"""Reward functions: what an online trainer asks about completions.

A :data:`Reward` maps ``B`` problems and ``B`` completions to ``B`` numbers; NaN marks a sample that could not be graded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from minirlhf.core.calling import evaluating
from minirlhf.core.errors import UserError
from minirlhf.data.chat import encode
from minirlhf.data.collate import collate
from minirlhf.data.formats import Problem
from minirlhf.data.tasks import TASKS
from minirlhf.data.tasks.base import GradesSteps, Split, Task
from minirlhf.equations.overoptimization import uncertainty_weighted, worst_case
from minirlhf.feedback.graders import ALONE

Reward: TypeAlias = Callable[[Sequence[Problem], Sequence[str]], Sequence[float]]

#: Grades steps: ``B`` problems and ``B`` completions, each a list of tokens as text, to a number for every token, NaN where no step
#: ends.
StepReward: TypeAlias = Callable[[Sequence[Problem], Sequence[Sequence[str]]], Sequence[Sequence[float]]]


def score_completions(
    reward: Reward, problems: Sequence[Problem], completions: Sequence[str]
) -> tuple[list[float], str | None]:
    """What the grader says, NaN where it fails, and its first failure in words (None if there was none).

    A grader that raises on the batch is asked about each completion by itself, so that one bad completion costs one sample.

    Raises:
        UserError: the grader's own, or that it answered another number of completions.
    """

    def once(some: Sequence[Problem], texts: Sequence[str]) -> list[float]:
        values = [float(value) for value in reward(some, texts)]
        if len(values) != len(texts):
            raise UserError(
                f"the reward returned {len(values)} numbers for {len(texts)} completions; expected one for each",
                argument="reward",
                value=len(values),
                expected=len(texts),
                problem="number",
            )
        return values

    failure = None
    try:
        values = once(problems, completions)
    except UserError:
        raise
    except Exception:
        values = []
        for problem, text in zip(problems, completions, strict=True):
            try:
                values += once([problem], [text])
            except Exception as trouble:
                values.append(math.nan)
                failure = failure or f"{type(trouble).__name__}: {trouble} on the completion {text[:60]!r}"
    for value, text in zip(values, completions, strict=True):
        if failure is None and not math.isfinite(value):
            failure = f"the grade {value} on the completion {text[:60]!r}"
    return values, failure


def task_problems(task: Task, split: Split) -> list[Problem]:
    """The prompts of a tiny world as problems."""
    return [Problem([{"role": "user", "content": prompt}]) for prompt in task.prompts(split)]


@dataclass(frozen=True)
class TaskReward:
    """Grading by a tiny world itself, in which white space around a reply means nothing."""

    task: Task

    def __call__(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[float]:
        """One grade for each completion."""
        pairs = zip(problems, completions, strict=True)
        return [self.task.grade(problem.prompt[-1]["content"], text.strip()) for problem, text in pairs]

    def steps(self, problems: Sequence[Problem], completions: Sequence[Sequence[str]]) -> list[Sequence[float]]:
        """A number for every token, see :data:`StepReward`; ``UserError`` for a world that grades none."""
        if not isinstance(self.task, GradesSteps):
            able = ", ".join(name for name, world in TASKS.items() if isinstance(world, GradesSteps))
            raise UserError(f"the world {self.task.name} grades no steps; worlds that do: {able}")
        pairs = zip(problems, completions, strict=True)
        return [self.task.grade_steps(problem.prompt[-1]["content"], words) for problem, words in pairs]


def task_reward(task: Task) -> Reward:
    """Grade by the world itself."""
    return TaskReward(task)


def reference_reward(grader: Callable[[str, str], float]) -> Reward:
    """Grade by comparing with each problem's reference.

    Raises:
        UserError: when called with a problem that has none, unless the grader reads none.
    """

    def reward(problems: Sequence[Problem], completions: Sequence[str]) -> list[float]:
        scores = []
        for problem, completion in zip(problems, completions, strict=True):
            if problem.reference is None and grader not in ALONE:
                raise UserError(
                    f"no reference to grade against for the prompt {problem.prompt[-1]['content'][:60]!r}",
                    argument="reference",
                    problem="missing",
                )
            scores.append(grader(completion, problem.reference or ""))
        return scores

    return reward


#: What several rewards say together, ``(M, B) -> (B,)``.
COMBINATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": lambda rewards: rewards.mean(0),
    "worst_case": worst_case,
    "uncertainty_weighted": partial(uncertainty_weighted, coef=1.0),
}


def combined_reward(rewards: Sequence[Reward], combine: Callable[[Tensor], Tensor]) -> Reward:
    """One reward of several: an ensemble, or a helpful and a safe reward model.

    Args:
        combine: ``(M, B) -> (B,)``, such as :func:`~minirlhf.equations.overoptimization.worst_case`. A completion that one of
            them cannot grade is not graded.
    """
    if not rewards:
        raise ValueError("no rewards to combine; expected at least one")

    def reward(problems: Sequence[Problem], completions: Sequence[str]) -> list[float]:
        grades = torch.tensor([list(one(problems, completions)) for one in rewards], dtype=torch.float64)  # (M, B)
        graded = grades.isfinite().all(0)
        found = torch.full((len(completions),), math.nan, dtype=torch.float64)
        if bool(graded.any()):
            found[graded] = combine(grades[:, graded])
        return found.tolist()

    return reward


def model_reward(model: nn.Module, tokenizer: Any, *, batch_size: int = 256) -> Reward:
    """Grade by a reward model, which reads each completion, without white space around it, as a finished reply."""

    @torch.no_grad()
    def reward(problems: Sequence[Problem], completions: Sequence[str]) -> list[float]:
        rows = [
            encode(tokenizer, [*problem.prompt, {"role": "assistant", "content": completion.strip()}])
            for problem, completion in zip(problems, completions, strict=True)
        ]
        scores: list[float] = []
        for start in range(0, len(rows), batch_size):
            batch = collate(rows[start : start + batch_size], tokenizer.pad_token_id)
            batch = batch.to(next(model.parameters()).device)
            prefix = (batch.loss_mask.cumsum(1) == 0).sum(1)  # before the reply all is the same in a whole group
            with evaluating(model):
                scores += model(batch.input_ids, batch.attention_mask, prefix).tolist()
        return scores

    return reward
