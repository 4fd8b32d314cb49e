"""Reward functions, with which an online trainer scores completions.

A :data:`Reward` maps ``B`` problems and ``B`` completions to ``B`` numbers; NaN marks a sample that could not be graded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from minirlhf.core.calling import evaluating
from minirlhf.core.errors import UserError
from minirlhf.data.chat import encode, render
from minirlhf.data.collate import collate
from minirlhf.data.formats import Problem
from minirlhf.data.tasks import TASKS
from minirlhf.data.tasks.base import GradesSteps, Split, Task
from minirlhf.equations.overoptimization import uncertainty_weighted, worst_case
from minirlhf.feedback.graders import ALONE, WHOLE
from minirlhf.feedback.graders.thoughts import THOUGHTS, ThoughtTags, is_open

Reward: TypeAlias = Callable[[Sequence[Problem], Sequence[str]], Sequence[float]]
#: A part of a :class:`WeightedReward`; None marks a sample to which it does not apply.
PartialReward: TypeAlias = Callable[[Sequence[Problem], Sequence[str]], Sequence[float | None]]

#: A step-level reward. It maps ``B`` problems and ``B`` completions (each a list of tokens as text) to one number for
#: every token, which is NaN where no step ends.
StepReward: TypeAlias = Callable[[Sequence[Problem], Sequence[Sequence[str]]], Sequence[Sequence[float]]]


@dataclass(frozen=True)
class Scores:
    """The result of :func:`score`.

    Attributes:
        values: one number per completion, NaN where there is none.
        applies: whether the reward applies to the completion. Where it does and the value is NaN, grading failed.
        failure: the description of the first failure, None without a failure.
        parts: the values of each part of a :class:`WeightedReward` with several parts, by name.
    """

    values: list[float]
    applies: list[bool]
    failure: str | None
    parts: Mapping[str, list[float]] = field(default_factory=dict)


def score(reward: Reward, problems: Sequence[Problem], completions: Sequence[str]) -> Scores:
    """Return the grader's scores.

    If the grader raises on the batch, each completion is graded separately, so that one bad completion costs one
    sample.

    Raises:
        UserError: raised by the grader itself, or because the number of scores is not the number of completions.
    """
    parts = reward.parts if isinstance(reward, WeightedReward) else (Part("reward", reward),)
    scored = [_score_part(part.reward, problems, completions) for part in parts]
    totals = _total(parts, [values for values, _ in scored], len(completions))
    failure = next((failure for _, failure in scored if failure is not None), None)
    by_part = {part.name: _as_numbers(values) for part, (values, _) in zip(parts, scored, strict=True)}
    by_part = by_part if len(parts) > 1 else {}
    return Scores(_as_numbers(totals), [value is not None for value in totals], failure, by_part)


def score_completions(
    reward: Reward, problems: Sequence[Problem], completions: Sequence[str]
) -> tuple[list[float], str | None]:
    """Return the values and the first failure of :func:`score`."""
    scores = score(reward, problems, completions)
    return scores.values, scores.failure


@dataclass(frozen=True)
class Part:
    """A part of a :class:`WeightedReward`; its mean is logged under its name."""

    name: str
    reward: PartialReward
    weight: float = 1.0


@dataclass(frozen=True)
class WeightedReward:
    """The weighted sum of several rewards, of which each is also logged by itself.

    The sum is over the parts that apply to a completion. It is NaN if one of them could not be graded, or if none
    applies.
    """

    parts: tuple[Part, ...]

    def __post_init__(self) -> None:
        """Replace a part that is a sum of one part by that part, so that its None stays "does not apply"."""
        object.__setattr__(self, "parts", tuple(map(_single, self.parts)))

    def __call__(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[float]:
        """Return one score for each completion."""
        values = [list(part.reward(problems, completions)) for part in self.parts]
        return _as_numbers(_total(self.parts, values, len(completions)))


def _single(part: Part) -> Part:
    if not isinstance(part.reward, WeightedReward) or len(part.reward.parts) != 1:
        return part
    [inner] = part.reward.parts
    return Part(part.name, inner.reward, part.weight * inner.weight)


def _as_numbers(values: Sequence[float | None]) -> list[float]:
    return [math.nan if value is None else value for value in values]


def _total(parts: Sequence[Part], values: Sequence[Sequence[float | None]], count: int) -> list[float | None]:
    totals: list[float | None] = []
    for i in range(count):
        applied = [(part.weight, row[i]) for part, row in zip(parts, values, strict=True)]
        terms = [weight * value for weight, value in applied if value is not None]
        totals.append(math.fsum(terms) if len(terms) > 1 else terms[0] if terms else None)
    return totals


def _score_part(
    reward: PartialReward, problems: Sequence[Problem], completions: Sequence[str]
) -> tuple[list[float | None], str | None]:
    """Return the scores of one part, and its first failure."""

    def grade(batch: Sequence[Problem], texts: Sequence[str]) -> list[float | None]:
        values = [None if value is None else float(value) for value in reward(batch, texts)]
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
        values = grade(problems, completions)
    except UserError:
        raise
    except Exception:
        values = []
        for problem, text in zip(problems, completions, strict=True):
            try:
                values += grade([problem], [text])
            except Exception as error:
                values.append(math.nan)
                failure = failure or f"{type(error).__name__}: {error} on the completion {text[:60]!r}"
    for problem, value, text in zip(problems, values, completions, strict=True):
        if failure is None and value is not None and not math.isfinite(value):
            against = "" if problem.reference is None else f", compared with the reference {problem.reference[:60]!r}"
            failure = f"the grade {value} on the completion {text[:60]!r}{against}"
    return values, failure


def task_problems(task: Task, split: Split) -> list[Problem]:
    """Return the prompts of a built-in task as problems."""
    return [Problem([{"role": "user", "content": prompt}]) for prompt in task.prompts(split)]


def with_references(task: Task, problems: Sequence[Problem]) -> list[Problem]:
    """Return the problems of a built-in task, each with a completion that is right, for a grader that compares."""
    return [replace(problem, reference=task.reference(problem.prompt[-1]["content"])) for problem in problems]


@dataclass(frozen=True)
class TaskReward:
    """The grader of a built-in task. White space around a completion is ignored."""

    task: Task

    def __call__(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[float]:
        """Return one score for each completion."""
        pairs = zip(problems, completions, strict=True)
        return [self.task.grade(problem.prompt[-1]["content"], text.strip()) for problem, text in pairs]

    def steps(self, problems: Sequence[Problem], completions: Sequence[Sequence[str]]) -> list[Sequence[float]]:
        """Return a number per token, see :data:`StepReward`; ``UserError`` if the task has no step-level grader."""
        if not isinstance(self.task, GradesSteps):
            supported = ", ".join(name for name, task in TASKS.items() if isinstance(task, GradesSteps))
            raise UserError(f"the task {self.task.name} has no step-level grader; tasks that have one: {supported}")
        pairs = zip(problems, completions, strict=True)
        return [self.task.grade_steps(problem.prompt[-1]["content"], tokens) for problem, tokens in pairs]


def task_reward(task: Task) -> Reward:
    """Return the task's own grader as a reward."""
    return TaskReward(task)


def with_generation_prompts(tokenizer: Any, problems: Sequence[Problem]) -> list[Problem]:
    """Return the problems, each with the text that the chat template writes between the prompt and the completion."""
    texts = [(render(tokenizer, p.prompt), render(tokenizer, p.prompt, add_generation_prompt=True)) for p in problems]
    shared = [sum(1 for _ in takewhile(bool, map(str.__eq__, prompt, begun))) for prompt, begun in texts]
    return [
        replace(problem, generation_prompt=begun[count:])
        for problem, (_, begun), count in zip(problems, texts, shared, strict=True)
    ]


def reference_reward(grader: Callable[[str, str], float], thoughts: ThoughtTags = THOUGHTS) -> Reward:
    """Return a reward that compares each completion with the reference of its problem.

    If the problem's generation prompt opens a thought and the completion does not close it, the completion is graded as
    an unfinished thought.

    Raises:
        UserError: when called with a problem without a reference, unless the grader ignores the reference.
    """

    def reward(problems: Sequence[Problem], completions: Sequence[str]) -> list[float]:
        scores = []
        for problem, completion in zip(problems, completions, strict=True):
            if problem.reference is None and grader not in ALONE:
                columns = f"; found the fields {', '.join(problem.columns)}" if problem.columns else ""
                raise UserError(
                    f"no reference to grade against for the prompt {problem.prompt[-1]['content'][:60]!r}{columns}; "
                    "--answer-field NAME reads another field",
                    argument="reference",
                    problem="missing",
                )
            is_unfinished = is_open(problem.generation_prompt, thoughts) and thoughts[1] not in completion
            text = thoughts[0] + completion if is_unfinished and grader not in WHOLE else completion
            grades = [grader(text, answer) for answer in problem.answers]
            scores.append(max([grade for grade in grades if not math.isnan(grade)], default=math.nan))
        return scores

    return reward


def reward_of_field(field: str, rewards: Callable[[str], Reward]) -> Reward:
    """Return a reward that grades each problem by the grader that a field of its row names.

    Args:
        rewards: the reward of a grader's name. The names of data sets that other libraries write there are known, too.

    Raises:
        UserError: when called with a row that lacks the field or names several graders or an unknown one.
    """
    known: dict[str, Reward] = {}

    def reward_for(problem: Problem) -> Reward:
        value = problem.columns.get(field)
        name = value[0] if isinstance(value, list | tuple) and len(value) == 1 else value
        if not isinstance(name, str) or not name:
            raise UserError(
                f"field {field!r}, which names the grader, is {str(value)[:40]!r} for the prompt "
                f"{problem.prompt[-1]['content'][:60]!r}; expected the name of one grader",
                argument=field,
                value=value,
                expected="grader",
            )
        if name not in known:
            known[name] = rewards(GRADERS_ELSEWHERE.get(field, {}).get(name, name))
        return known[name]

    def reward(problems: Sequence[Problem], completions: Sequence[str]) -> list[float]:
        chosen = [reward_for(problem) for problem in problems]
        scores = [math.nan] * len(problems)
        for each in dict.fromkeys(chosen):
            rows = [i for i, other in enumerate(chosen) if other is each]
            for i, score in zip(rows, each([problems[i] for i in rows], [completions[i] for i in rows]), strict=True):
                scores[i] = score
        return scores

    return reward


#: Field -> name in it -> grader: the names of data sets in the columns of open-instruct (``dataset``) and verl
#: (``data_source``). For GSM8K the former reads the last number of a completion, the latter what follows ``####``.
GRADERS_ELSEWHERE = {
    "dataset": {"gsm8k": "numeric", "math": "maths", "strict_math": "maths", "string_matcher": "exact"},
    "data_source": {
        "openai/gsm8k": "gsm8k",
        "lighteval/MATH": "maths",
        "DigitalLearningGmbH/MATH-lighteval": "maths",
        "HuggingFaceH4/MATH-500": "maths",
        "math_dapo": "maths",
    },
}

#: Ways to combine several rewards into one, ``(M, B) -> (B,)``.
COMBINATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": lambda rewards: rewards.mean(0),
    "worst_case": worst_case,
    "uncertainty_weighted": partial(uncertainty_weighted, coef=1.0),
}


def combined_reward(rewards: Sequence[Reward], combine: Callable[[Tensor], Tensor]) -> Reward:
    """Combine several rewards into one, for example an ensemble, or a helpfulness and a safety reward model.

    Args:
        combine: ``(M, B) -> (B,)``, such as :func:`~minirlhf.equations.overoptimization.worst_case`. A completion that one of
            the rewards cannot grade gets NaN.
    """
    if not rewards:
        raise ValueError("no rewards to combine; expected at least one")

    def reward(problems: Sequence[Problem], completions: Sequence[str]) -> list[float]:
        scores = torch.tensor([list(fn(problems, completions)) for fn in rewards], dtype=torch.float64)  # (M, B)
        is_graded = scores.isfinite().all(0)
        combined = torch.full((len(completions),), math.nan, dtype=torch.float64)
        if bool(is_graded.any()):
            combined[is_graded] = combine(scores[:, is_graded])
        return combined.tolist()

    return reward


def model_reward(model: nn.Module, tokenizer: Any, *, batch_size: int = 256) -> Reward:
    """Grade by a reward model, which reads each completion, stripped of white space, as a finished message."""

    @torch.no_grad()
    def reward(problems: Sequence[Problem], completions: Sequence[str]) -> list[float]:
        rows = [
            encode(tokenizer, [*problem.prompt, {"role": "assistant", "content": completion.strip()}], strict=False)
            for problem, completion in zip(problems, completions, strict=True)
        ]
        scores: list[float] = []
        for start in range(0, len(rows), batch_size):
            batch = collate(rows[start : start + batch_size], tokenizer.pad_token_id)
            batch = batch.to(next(model.parameters()).device)
            prefix = (batch.loss_mask.cumsum(1) == 0).sum(1)  # tokens before the completion, the same within a group
            with evaluating(model):
                scores += model(batch.input_ids, batch.attention_mask, prefix).tolist()
        return scores

    return reward
