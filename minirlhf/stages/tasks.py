"""What an evaluation asks for beside a grader and a way to sample: examples in the prompt, and problems that belong together."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from minirlhf.core.errors import UserError
from minirlhf.core.randomness import generator
from minirlhf.data import loaders
from minirlhf.data.chat import Message
from minirlhf.data.records import Conversation, Problem
from minirlhf.stages.answering import Request


@dataclass(frozen=True)
class EvaluationRequest(Request):
    """A request whose problems may have examples before them, and clusters.

    Attributes:
        cluster: the field of the rows that says which problems belong together, as questions about one text do.
        num_fewshot: examples before each problem, as turns of the conversation.
        fewshot_data, fewshot_split: where they are drawn from, for each problem anew, so that neither one order nor one choice of
            examples decides; never the problem itself.
        fewshot_seed: the same seed draws the same examples, for every model.
    """

    cluster: str | None = None
    num_fewshot: int = 0
    fewshot_data: str | None = None
    fewshot_split: str | None = None
    fewshot_seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("num_fewshot", "fewshot_seed"):
            if getattr(self, name) < 0:
                raise UserError(f"--{name.replace('_', '-')} {getattr(self, name)}: expected at least 0")
        if self.num_fewshot and self.fewshot_data is None:
            raise UserError(f"--num-fewshot {self.num_fewshot}: expected --fewshot-data, where examples come from")

    def without_effect(self) -> dict[str, str]:
        """See :meth:`Request.without_effect`."""
        idle = super().without_effect()
        if not self.num_fewshot:
            why = "num_fewshot = 0 puts no examples before a problem"
            idle |= dict.fromkeys(("fewshot_data", "fewshot_split", "fewshot_seed"), why)
        return idle

    def problems(self) -> list[Problem]:
        """See :meth:`Request.problems`; with clusters and examples.

        Raises:
            UserError: a row without its cluster, or fewer examples than are asked for.
        """
        records = loaders.load(self.data, split=self.split, format=self.format, limit=self.limit, cluster=self.cluster)
        print(records)
        found = records.problems()
        if not self.num_fewshot or self.fewshot_data is None:
            return found
        examples = loaders.load(self.fewshot_data, split=self.fewshot_split)
        print(f"{self.num_fewshot} examples before each problem, from {examples}")
        pool = examples.conversations()
        return [replace(p, prompt=with_examples(p.prompt, self._drawn(pool, p))) for p in found]

    def _drawn(self, pool: list[Conversation], problem: Problem) -> list[Conversation]:
        asked = problem.prompt[-1]["content"]
        others = [c for c in pool if all(m["content"] != asked for m in c.messages if m["role"] == "user")]
        if len(others) < self.num_fewshot:
            raise UserError(
                f"{self.fewshot_data}: {len(others)} examples that are not the problem itself; --num-fewshot asks for {self.num_fewshot}"
            )
        order = torch.randperm(len(others), generator=generator(self.fewshot_seed, "examples", asked))
        return [others[i] for i in order[: self.num_fewshot].tolist()]


def with_examples(prompt: list[Message], examples: list[Conversation]) -> list[Message]:
    """The prompt with these conversations as turns before its first user turn; their own system messages are left out."""
    head = 1 if prompt[0]["role"] == "system" else 0
    turns = [message for example in examples for message in example.messages if message["role"] != "system"]
    return [*prompt[:head], *turns, *prompt[head:]]
