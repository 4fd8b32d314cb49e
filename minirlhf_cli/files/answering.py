"""A saved model, its problems, and the grader of its completions: the first steps of every command that samples."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from minirlhf.core.calling import context_length
from minirlhf.core.errors import UserError
from minirlhf.core.progress import progress
from minirlhf.data import loaders
from minirlhf.data.chat import encode_prompt, end_tokens
from minirlhf.data.records import Problem
from minirlhf.equations.estimators import best_of_n_curve
from minirlhf.equations.selection import select_top_per_prompt
from minirlhf.feedback.graders.thoughts import THOUGHTS, ThoughtTags, parse_tags
from minirlhf.feedback.rewards import Reward
from minirlhf.models.sampling import Sampling
from minirlhf.models.tiny import num_parameters
from minirlhf.models.tokenizers import (
    describe_template,
    find_unknown_tokens,
    find_unread_arguments,
    report_unread,
    set_template_arguments,
)
from minirlhf.stages import named
from minirlhf.trainers.config import unused_options
from minirlhf.trainers.evaluation import Estimate, candidates, names_of
from minirlhf_cli.files import start
from minirlhf_cli.files.grading import grading
from minirlhf_cli.files.sources import named_fields, unused_grading_options
from minirlhf_cli.settings import require_at_least

#: Fields of a request that set how completions are sampled and graded.
OF_SAMPLING = (
    *(
        "grader_timeout",
        "thought_tags",
        "reward_aggregation",
        "num_generations",
        "max_completion_length",
        "temperature",
        "top_p",
        "seed",
    ),
)


@dataclass(frozen=True)
class GenerationRequest:
    """The options of a command that samples.

    Attributes:
        model: a run, a model folder, a zoo entry or a hub name.
        data, format, split, limit: as :func:`minirlhf.data.loaders.load` takes them.
        grader, reward_model, grader_timeout, thought_tags, reward_aggregation: as :func:`~minirlhf_cli.files.grading.grading` takes them.
        temperature: 0: greedy decoding.
        chat_template_kwargs: arguments of the chat template, a text of JSON.
        prompt_field, answer_field: the names of these fields in the rows.
    """

    model: str
    data: str
    format: str | None = None
    split: str | None = None
    limit: int | None = None
    grader: str | None = None
    grader_timeout: float = 10.0
    thought_tags: str = ",".join(THOUGHTS)
    reward_model: str | None = None
    reward_aggregation: str = "mean"
    num_generations: int = 1
    max_completion_length: int = 256
    temperature: float = 1.0
    top_p: float = 1.0
    seed: int = 0
    device: str | None = None
    batch_size: int = 64
    chat_template_kwargs: str | None = None
    prompt_field: str | None = None
    answer_field: str | None = None

    def __post_init__(self) -> None:
        require_at_least(1, self, "num_generations", "batch_size", "max_completion_length")
        require_at_least(0, self, "seed")
        if self.temperature == 0 and self.num_generations > 1:
            raise UserError(
                "--temperature 0 gives the same completion every time; expected --num-generations 1",
                argument="--num-generations",
                value=self.num_generations,
                expected=1,
            )

    def problems(self) -> list[Problem]:
        """Load the problems from ``data``, and print a summary of the records."""
        records = loaders.load(
            self.data, split=self.split, format=self.format, limit=self.limit, fields=named_fields(vars(self))
        )
        print(records)
        return records.problems()

    def unused_options(self) -> dict[str, str]:
        """Return the fields that have no effect at these settings, each with the reason."""
        greedy = {"top_p": "temperature = 0 is greedy decoding"}
        return unused_grading_options(self.grader, self.reward_model) | (greedy if self.temperature == 0 else {})

    @property
    def max_new_tokens(self) -> int:
        """The maximum number of tokens after the prompt."""
        return self.max_completion_length

    def scored_by(self, device: torch.device) -> tuple[Reward, str]:
        """Return the reward function, and a string that identifies it; see :func:`~minirlhf_cli.files.grading.grading`."""
        return grading(
            self.grader, self.reward_model, seconds=self.grader_timeout, device=device, reward_aggregation=self.reward_aggregation,
            thoughts=self.thoughts,
        )  # fmt: skip

    @property
    def thoughts(self) -> ThoughtTags:
        """The tags that open and close a thought."""
        return parse_tags(self.thought_tags)

    @property
    def sampling(self) -> Sampling:
        """The sampling settings of the completions."""
        return Sampling(
            temperature=self.temperature or 1.0, greedy=self.temperature == 0, top_p=self.top_p,
            max_completion_length=self.max_completion_length,
        )  # fmt: skip


@dataclass(frozen=True)
class Generator:
    """The loaded model, problems and reward of a request.

    Attributes:
        grader: a string that identifies ``reward``.
    """

    request: GenerationRequest
    model: Any
    tokenizer: Any
    problems: list[Problem]
    reward: Reward
    grader: str

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        return next(self.model.parameters()).device

    @classmethod
    def load(cls, request: GenerationRequest) -> Generator:
        """Load everything that the request names, and print a summary.

        Raises:
            UserError: no problems, or a prompt and a completion that do not fit into the model's context.
        """
        request.sampling  # noqa: B018  raises its errors before anything is loaded
        start.log_unused_options(unused_options(request, request.unused_options()))
        device = start.device_of(request.device)
        reward, grader = request.scored_by(device)
        problems = request.problems()
        if trained_on(request.model, request.data):
            print(f"{request.data}: {request.model} was trained on it, so its numbers are not those of new data")
        if not problems:
            raise UserError(
                f"{request.data}: no problems to answer", argument="data", problem="empty", file=request.data
            )
        model, tokenizer = named.model_by_name(request.model)
        if request.chat_template_kwargs is not None:
            set_template_arguments(tokenizer, request.chat_template_kwargs)
        for line in report_unread(find_unread_arguments(tokenizer, [p.prompt for p in problems])):
            print(line)
        if (unknown := find_unknown_tokens(tokenizer, (p.prompt for p in problems), request.model)) is not None:
            print(unknown)
        longest, context = max(len(encode_prompt(tokenizer, p.prompt)) for p in problems), context_length(model)
        if context is not None and longest + request.max_new_tokens > context:
            raise UserError(
                f"the longest prompt has {longest} tokens and a completion may have {request.max_new_tokens}, but the "
                f"context length is {context}: lower --max-completion-length",
                argument="--max-completion-length",
                value=request.max_new_tokens,
                expected=context - longest,
            )
        model = model.to(device)
        template = describe_template(tokenizer)
        print(
            f"{request.model}: {num_parameters(model):,} parameters on {device}; {template + '; ' if template else ''}"
            f"completions end at {end_tokens(tokenizer, model)}"
        )
        return cls(request, model, tokenizer, problems, reward, grader)


def trained_on(model: str, data: str) -> bool:
    """Return whether the model is that of a run whose training data is this file, or one with the same content."""
    folder = Path(model).expanduser()
    for file in (folder / "config.json", folder.parent / "config.json"):
        try:
            used = json.loads(file.read_text(encoding="utf-8"))["noted"]["source"]["data"]
        except (OSError, ValueError, TypeError, KeyError):  # not the settings of a run
            continue
        if not isinstance(used, str) or not Path(data).exists():
            continue
        first, second = Path(used), Path(data)
        are_files = first.is_file() and second.is_file()
        if first.resolve() == second.resolve() or (are_files and start.file_digest(first) == start.file_digest(second)):
            return True
    return False


@dataclass(frozen=True)
class Best:
    """The best of n completions of each prompt.

    Attributes:
        rows: a conversation with the best completion, its score, and the mean score of the n completions. Prompts
            without a graded completion are left out.
        curve: n -> expected best score, from the same samples, over prompts whose completions were all graded.
    """

    rows: list[dict[str, Any]]
    curve: dict[int, Estimate]


def best_of(found: Generator) -> Best:
    """Sample ``num_generations`` completions of every problem, and select the best one of each."""
    request, rows, curves = found.request, [], []
    prompt_keys = names_of(found.problems, found.tokenizer)
    for offset in progress(range(0, len(found.problems), request.batch_size), "best of n"):
        batch = slice(offset, offset + request.batch_size)
        problems = found.problems[batch]
        samples = candidates(
            found.model, problems, found.reward, tokenizer=found.tokenizer, sampling=request.sampling,
            num_generations=request.num_generations, seed=request.seed, prompt_keys=prompt_keys[batch],
        )  # fmt: skip
        for problem, texts, scores in zip(problems, samples.completions, samples.rewards, strict=True):
            graded = scores.isfinite()
            if bool(graded.all()):
                curves.append(best_of_n_curve(scores))
            if bool(graded.any()):
                best = int(select_top_per_prompt(scores.masked_fill(~graded, float(scores[graded].min()) - 1)[None]))
                message = {"role": "assistant", "content": texts[best]}
                rows.append(
                    {
                        "messages": [*problem.prompt, message],
                        "score": float(scores[best]),
                        "mean_score": float(scores.nanmean()),
                    }
                )
    best_rewards = torch.stack(curves) if curves else torch.empty(0, request.num_generations)
    sizes = sorted({2**i for i in range(request.num_generations.bit_length())} | {request.num_generations})
    return Best(rows, {n: Estimate.of(best_rewards[:, n - 1]) for n in sizes if n <= request.num_generations})
