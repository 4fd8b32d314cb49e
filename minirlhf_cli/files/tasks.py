"""Evaluation options beyond grader and sampling: few-shot examples, clusters of problems, multiple choice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from minirlhf.core.errors import UserError, unknown
from minirlhf.core.randomness import generator
from minirlhf.data import loaders, tasks
from minirlhf.data.records import Conversation, Message, Problem
from minirlhf.feedback.rewards import Reward, task_problems, task_reward, with_references
from minirlhf_cli.files.answering import OF_SAMPLING, GenerationRequest
from minirlhf_cli.files.choices import WAYS
from minirlhf_cli.files.sources import named_fields
from minirlhf_cli.settings import require_at_least

#: Generate a completion, or choose the most probable answer. Names as in the LM Evaluation Harness.
OUTPUT_TYPES = ("generate_until", "multiple_choice")


@dataclass(frozen=True)
class EvaluationRequest(GenerationRequest):
    """An evaluation request, with few-shot examples and clusters of problems.

    Attributes:
        cluster: the field of the rows whose value names the cluster of a problem, for example questions on one text.
        num_fewshot: examples before each problem, as turns of the conversation.
        fewshot_data, fewshot_split: data set and split of the few-shot examples. They are sampled for each problem, so
            that the result does not depend on one choice or order of examples; the problem itself is never sampled.
        fewshot_seed: seed of the few-shot examples; with the same seed, all models get the same examples.
        output_type: one of :data:`OUTPUT_TYPES`.
        choices: the field of the rows that lists the answers to choose from.
        world: the name of a toy task, whose held-out prompts are the problems, and whose grader grades, unless another is
            given. Then ``data`` is only a name.
        scoring: one of :data:`~minirlhf_cli.files.choices.WAYS`: the scoring method whose accuracy compares the
            models; the accuracies of the other methods are also reported.
    """

    cluster: str | None = None
    num_fewshot: int = 0
    fewshot_data: str | None = None
    fewshot_split: str | None = None
    fewshot_seed: int = 0
    output_type: str = "generate_until"
    choices: str = "choices"
    scoring: str = "sum"
    world: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(0, self, "num_fewshot", "fewshot_seed")
        if self.world is not None and (self.num_fewshot or self.chooses):
            name = "num_fewshot" if self.num_fewshot else "output_type"
            raise UserError(
                f"--{name.replace('_', '-')}: the toy task {self.world} has neither examples nor choices; give --data",
                argument=f"--{name.replace('_', '-')}",
                value=getattr(self, name),
                problem="toy task",
            )
        if self.num_fewshot and self.fewshot_data is None:
            raise UserError(
                f"--num-fewshot {self.num_fewshot}: expected --fewshot-data, the source of the examples",
                argument="--fewshot-data",
                problem="missing",
            )
        for name, known in (("output_type", OUTPUT_TYPES), ("scoring", WAYS)):
            if getattr(self, name) not in known:
                raise unknown(name, getattr(self, name), known)

    @property
    def chooses(self) -> bool:
        """Whether the likelihoods of given answers are compared without generation."""
        return self.output_type == "multiple_choice"

    @property
    def max_new_tokens(self) -> int:
        """See :attr:`GenerationRequest.max_new_tokens`; the lengths of choices are checked when they are scored."""
        return 1 if self.chooses else super().max_new_tokens

    def scored_by(self, device: torch.device) -> tuple[Reward, str]:
        """See :meth:`GenerationRequest.scored_by`; choices need no grader."""
        if self.chooses:
            return _unasked, f"likelihood ({self.scoring})"
        if self.world is not None and self.grader is None and self.reward_model is None:
            task = tasks.get(self.world)
            return task_reward(task), task.name
        return super().scored_by(device)

    def unused_options(self) -> dict[str, str]:
        """See :meth:`GenerationRequest.unused_options`."""
        unused = super().unused_options()
        if self.chooses:
            reason = "output_type = multiple_choice compares likelihoods; nothing is sampled or graded"
            unused = dict.fromkeys(("grader", "reward_model", *OF_SAMPLING), reason)
        else:
            unused |= dict.fromkeys(("choices", "scoring"), "only for output_type = multiple_choice")
        if self.world is not None:
            unused |= dict.fromkeys(("cluster", "split", "format"), f"the toy task {self.world} replaces the data")
        if not self.num_fewshot:
            reason = "num_fewshot = 0: no few-shot examples"
            unused |= dict.fromkeys(("fewshot_data", "fewshot_split", "fewshot_seed"), reason)
        return unused

    def problems(self) -> list[Problem]:
        """See :meth:`GenerationRequest.problems`; with clusters and few-shot examples.

        Raises:
            UserError: a row without its cluster, or fewer examples than ``num_fewshot``.
        """
        if self.world is not None:
            task = tasks.get(self.world)
            of_world = with_references(task, task_problems(task, "test"))[: self.limit]
            print(f"{task.name}: {len(of_world)} held-out prompts of the toy task")
            return of_world
        records = loaders.load(
            self.data,
            split=self.split,
            format=self.format,
            limit=self.limit,
            cluster=self.cluster,
            choices=self.choices if self.chooses else None,
            fields=named_fields(vars(self)),
        )
        print(records)
        problems = records.problems()
        if not self.num_fewshot or self.fewshot_data is None:
            return problems
        example_records = loaders.load(self.fewshot_data, split=self.fewshot_split)
        print(f"{self.num_fewshot} examples before each problem, from {example_records}")
        pool = example_records.conversations()
        return [replace(p, prompt=with_examples(p.prompt, self._drawn(pool, p))) for p in problems]

    def _drawn(self, pool: list[Conversation], problem: Problem) -> list[Conversation]:
        question = problem.prompt[-1]["content"]
        candidates = [c for c in pool if all(m["content"] != question for m in c.messages if m["role"] == "user")]
        if len(candidates) < self.num_fewshot:
            raise UserError(
                f"{self.fewshot_data}: {len(candidates)} examples other than the problem itself; --num-fewshot needs {self.num_fewshot}",
                argument="--num-fewshot",
                value=self.num_fewshot,
                expected=len(candidates),
                file=self.fewshot_data,
            )
        order = torch.randperm(len(candidates), generator=generator(self.fewshot_seed, "examples", question))
        return [candidates[i] for i in order[: self.num_fewshot].tolist()]


def _unasked(problems: Sequence[Problem], completions: Sequence[str]) -> Sequence[float]:
    raise ValueError("multiple choice compares likelihoods; nothing should be graded")


def with_examples(prompt: list[Message], examples: list[Conversation]) -> list[Message]:
    """Return the prompt with these conversations before its first user turn, without their system messages."""
    start = 1 if prompt[0]["role"] == "system" else 0
    turns = [message for example in examples for message in example.messages if message["role"] != "system"]
    return [*prompt[:start], *turns, *prompt[start:]]
