"""A saved model, problems for it to answer, and what grades the answers: what commands that sample begin with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from minirlhf.core.calling import context_length
from minirlhf.core.errors import UserError
from minirlhf.core.progress import progress
from minirlhf.data import loaders
from minirlhf.data.chat import encode_prompt, ends_of
from minirlhf.data.records import Problem
from minirlhf.equations.estimators import best_of_n_curve
from minirlhf.equations.selection import select_top_per_prompt
from minirlhf.feedback.rewards import Reward
from minirlhf.models.sampling import Sampling
from minirlhf.models.tiny import num_parameters
from minirlhf.stages import named, start
from minirlhf.stages.grading import grading
from minirlhf.stages.sources import unused_grading_options
from minirlhf.trainers.config import unused_options
from minirlhf.trainers.evaluation import Estimate, candidates, names_of

#: Fields of a request that say how replies are drawn and graded.
OF_SAMPLING = (
    *("grader_seconds", "combine", "num_generations", "max_completion_length", "temperature", "top_p", "seed"),
)


@dataclass(frozen=True)
class GenerationRequest:
    """How a command was asked.

    Attributes:
        model: a run, a model folder, a zoo entry or a hub name.
        data, format, split, limit: as :func:`minirlhf.data.loaders.load` takes them.
        grader, reward_model, grader_seconds, combine: as :func:`~minirlhf.stages.grading.grading` takes them.
        temperature: 0 takes the likeliest token.
    """

    model: str
    data: str
    format: str | None = None
    split: str | None = None
    limit: int | None = None
    grader: str | None = None
    grader_seconds: float = 10.0
    reward_model: str | None = None
    combine: str = "mean"
    num_generations: int = 1
    max_completion_length: int = 256
    temperature: float = 1.0
    top_p: float = 1.0
    seed: int = 0
    device: str | None = None
    batch_size: int = 64

    def __post_init__(self) -> None:
        for name in ("num_generations", "batch_size", "max_completion_length"):
            if getattr(self, name) < 1:
                raise UserError(
                    f"--{name.replace('_', '-')} {getattr(self, name)}: expected at least 1",
                    argument=f"--{name.replace('_', '-')}",
                    value=getattr(self, name),
                    expected=1,
                )
        if self.seed < 0:
            raise UserError(f"--seed {self.seed}: expected at least 0", argument="--seed", value=self.seed, expected=0)
        if self.temperature == 0 and self.num_generations > 1:
            raise UserError(
                "--temperature 0 gives the same reply every time; expected --num-generations 1",
                argument="--num-generations",
                value=self.num_generations,
                expected=1,
            )

    def problems(self) -> list[Problem]:
        """What is to be answered, read from ``data``; prints what was found."""
        records = loaders.load(self.data, split=self.split, format=self.format, limit=self.limit)
        print(records)
        return records.problems()

    def unused_options(self) -> dict[str, str]:
        """The fields that do nothing at these settings, and why."""
        greedy = {"top_p": "temperature = 0 takes the likeliest token"}
        return unused_grading_options(self.grader, self.reward_model) | (greedy if self.temperature == 0 else {})

    @property
    def max_new_tokens(self) -> int:
        """How many tokens a reply may need behind its prompt."""
        return self.max_completion_length

    def scored_by(self, device: torch.device) -> tuple[Reward, str]:
        """What grades, and what tells it from others; see :func:`~minirlhf.stages.grading.grading`."""
        return grading(self.grader, self.reward_model, seconds=self.grader_seconds, device=device, combine=self.combine)

    @property
    def sampling(self) -> Sampling:
        """How replies are drawn."""
        return Sampling(
            temperature=self.temperature or 1.0, greedy=self.temperature == 0, top_p=self.top_p,
            max_completion_length=self.max_completion_length,
        )  # fmt: skip


@dataclass(frozen=True)
class Generator:
    """What was asked for, loaded.

    Attributes:
        grader: what tells ``reward`` from others.
    """

    asked: GenerationRequest
    model: Any
    tokenizer: Any
    problems: list[Problem]
    reward: Reward
    grader: str

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device

    @classmethod
    def load(cls, asked: GenerationRequest) -> Generator:
        """Print what was found; a ``UserError`` if a prompt and a reply do not fit into the model's context."""
        asked.sampling  # noqa: B018  its errors come before anything is loaded
        start.log_unused_options(unused_options(asked, asked.unused_options()))
        device = start.device_of(asked.device)
        reward, grader = asked.scored_by(device)
        problems = asked.problems()
        if not problems:
            raise UserError(f"{asked.data}: no problems to answer", argument="data", problem="empty", file=asked.data)
        model, tokenizer = named.model_by_name(asked.model)
        longest, context = max(len(encode_prompt(tokenizer, p.prompt)) for p in problems), context_length(model)
        if context is not None and longest + asked.max_new_tokens > context:
            raise UserError(
                f"the longest prompt has {longest} tokens and a reply may have {asked.max_new_tokens}, the model "
                f"reads {context}: lower --max-completion-length",
                argument="--max-completion-length",
                value=asked.max_new_tokens,
                expected=context - longest,
            )
        model = model.to(device)
        print(
            f"{asked.model}: {num_parameters(model):,} parameters on {device}; replies end at {ends_of(tokenizer, model)}"
        )
        return cls(asked, model, tokenizer, problems, reward, grader)


@dataclass(frozen=True)
class Best:
    """The best of n replies to each prompt.

    Attributes:
        rows: a conversation with the best reply, its score, and the mean score of the n; prompts without a graded reply are left out.
        curve: n -> expected best score, from the same samples, over prompts whose replies were all graded.
    """

    rows: list[dict[str, Any]]
    curve: dict[int, Estimate]


def best_of(found: Generator) -> Best:
    """Sample ``num_generations`` replies to every problem, keep the best of each."""
    asked, rows, curves = found.asked, [], []
    names = names_of(found.problems, found.tokenizer)
    for begin in progress(range(0, len(found.problems), asked.batch_size), "best of n"):
        part = slice(begin, begin + asked.batch_size)
        some = found.problems[part]
        drawn = candidates(
            found.model, some, found.reward, tokenizer=found.tokenizer, sampling=asked.sampling,
            num_generations=asked.num_generations, seed=asked.seed, prompt_keys=names[part],
        )  # fmt: skip
        for problem, texts, scores in zip(some, drawn.completions, drawn.rewards, strict=True):
            known = scores.isfinite()
            if bool(known.all()):
                curves.append(best_of_n_curve(scores))
            if bool(known.any()):
                best = int(select_top_per_prompt(scores.masked_fill(~known, float(scores[known].min()) - 1)[None]))
                reply = {"role": "assistant", "content": texts[best]}
                rows.append(
                    {
                        "messages": [*problem.prompt, reply],
                        "score": float(scores[best]),
                        "mean_score": float(scores.nanmean()),
                    }
                )
    table = torch.stack(curves) if curves else torch.empty(0, asked.num_generations)
    sizes = sorted({2**i for i in range(asked.num_generations.bit_length())} | {asked.num_generations})
    return Best(rows, {n: Estimate.of(table[:, n - 1]) for n in sizes if n <= asked.num_generations})
