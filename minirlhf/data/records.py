"""Records that the loaders return, independent of the file format: one type for each kind of training signal."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations, product
from typing import Any, TypeAlias

from minirlhf.core.errors import Facts

#: One turn: ``role`` (one of :data:`ROLES`) and ``content``, a text. A turn of the assistant may also have
#: ``reasoning_content``, the thought before the content, and ``tool_calls``, a list of ``{"type": "function",
#: "function": {"name": ..., "arguments": {...}}}``. The first turn may carry what the chat template gets for the whole
#: conversation: ``tools``, the descriptions of the functions, and ``chat_template_kwargs``.
Message: TypeAlias = dict[str, Any]
#: The field of a message, true, whose content is the whole text: no chat template is written around it.
VERBATIM = "verbatim"
ROLES = ("system", "user", "assistant", "tool")
Reply: TypeAlias = list[Message]


def thought_and_answer(message: Mapping[str, Any]) -> tuple[str, str]:
    """Return the thought of a turn and what follows it; the thought is a field of its own, or stands in the content
    before the last ``</think>``."""
    before, mark, answer = str(message["content"]).rpartition("</think>")
    inline = before.rpartition("<think>")[2] if mark else ""
    return str(message.get("reasoning_content") or inline).strip(), answer.strip()


def call_texts(calls: Any) -> list[str]:
    """Return tool calls as lines of JSON with ``name`` and ``arguments``."""
    functions = [call["function"] for call in calls or ()]
    return [json.dumps({k: f[k] for k in ("name", "arguments")}, ensure_ascii=False) for f in functions]


def text_of(message: Mapping[str, Any]) -> str:
    """Return everything that a turn says as one text: thought, content, tool calls, descriptions of tools."""
    tools = [json.dumps(tool, ensure_ascii=False) for tool in message.get("tools") or ()]
    thought = message.get("reasoning_content") or ""
    parts = [*tools, thought, message["content"], *call_texts(message.get("tool_calls"))]
    return "\n".join(part for part in parts if part)


class InvalidRecordError(Facts, Exception):
    """A well-formed row from which nothing can be learned; the message gives the reason."""


class IdenticalPairError(InvalidRecordError):
    """A row whose completions are equal: more likely an error in making the data than a row to drop silently."""


@dataclass(frozen=True, kw_only=True)
class FromRow:
    """A record with the fields of its row, as ``columns``: the answer for a grader, and what a user-defined grader reads."""

    columns: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True)
class Conversation(FromRow):
    """Messages to imitate. They end with an assistant turn; the first ``context`` messages are not trained on."""

    messages: list[Message]
    context: int = 0


@dataclass(frozen=True)
class Comparison(FromRow):
    """Two completions of a prompt. The prompt ends with a user turn or with what a tool returned; each completion begins
    and ends with an assistant turn.

    ``margin`` is by how much the chosen completion is better, and ``subset`` the kind of comparison, if the data have
    them. ``num_ranked`` completions were ranked together, of which these are two.
    """

    prompt: list[Message]
    chosen: Reply
    rejected: Reply
    margin: float | None = None
    num_ranked: int = 2
    subset: str | None = None


@dataclass(frozen=True)
class UnpairedPreference(FromRow):
    """One completion and its label, desirable or not: a thumb up or down."""

    prompt: list[Message]
    completion: Reply
    desirable: bool


@dataclass(frozen=True)
class Ranking(FromRow):
    """Completions in tiers, the best first; completions of one tier are tied. ``scores`` has one number per tier, if
    the data do. ``subset`` is the kind of its comparisons."""

    prompt: list[Message]
    tiers: list[list[Reply]]
    scores: tuple[float, ...] | None = None
    subset: str | None = None

    def comparisons(self) -> list[Comparison]:
        """Return all pairs of unequal rank: C(K, 2) for K completions without ties. The margin is the difference in
        score."""
        pairs = []
        num_ranked = sum(map(len, self.tiers))
        for i, j in combinations(range(len(self.tiers)), 2):
            margin = None if self.scores is None else self.scores[i] - self.scores[j]
            tier_pairs = product(self.tiers[i], self.tiers[j])
            pairs += [
                Comparison(self.prompt, chosen, rejected, margin, num_ranked, self.subset)
                for chosen, rejected in tier_pairs
            ]
        return pairs

    def strict(self) -> list[Reply]:
        """Return the first completion of every tier, best first: an order without ties, as Plackett–Luce needs."""
        return [tier[0] for tier in self.tiers]


@dataclass(frozen=True)
class StepLabeledCompletion(FromRow):
    """A completion in steps, each with a label: 1 for a valid step, −1 for a wrong step, 0 for a step that is
    neither."""

    prompt: list[Message]
    steps: list[str]
    labels: tuple[int, ...]


@dataclass(frozen=True)
class Problem(FromRow):
    """A prompt to answer. ``reference`` is the answer that a grader compares with, ``solution`` a worked solution to
    imitate.

    Problems with the same ``cluster`` belong together, as questions about one text do. ``choices``, if there are any,
    are the possible answers, of which ``reference`` is one. ``alternatives`` are further right answers. ``generation_prompt`` is the text of the chat template
    after the prompt, where it is known: some templates open a thought there.
    """

    prompt: list[Message]
    reference: str | None = None
    solution: str | None = None
    cluster: str | None = None
    choices: tuple[str, ...] = ()
    alternatives: tuple[str, ...] = ()
    generation_prompt: str = field(default="", compare=False)

    @property
    def answers(self) -> tuple[str, ...]:
        """All right answers, ``reference`` first; an empty text if there is none."""
        return (self.reference or "", *self.alternatives)


Example: TypeAlias = Conversation | Comparison | UnpairedPreference | Ranking | StepLabeledCompletion | Problem
