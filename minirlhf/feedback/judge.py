"""A language model as the judge: it reads a question and two replies and writes ``[[A]]``, ``[[B]]`` or, for a tie, ``[[C]]``.

Judges favour a place, so each pair is asked twice, the second time with the replies exchanged; a preference counts where both
answers agree. Replies are taken greedily: the same pair gets the same verdict. Or the judge writes nothing, and what counts is how
likely the two verdicts are (:meth:`Judge.verdict_log_odds`).

Source: Zheng et al. (2023), "Judging LLM-as-a-judge with MT-Bench and Chatbot Arena".
"""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from minirlhf.core.calling import evaluating
from minirlhf.core.errors import UserError
from minirlhf.core.logprobs import sequence_logps
from minirlhf.data.chat import encode_prompt, ends_of
from minirlhf.data.collate import collate
from minirlhf.data.records import Comparison, Conversation, Message, Reply
from minirlhf.data.types import Tokens
from minirlhf.models.forward import completion_logps
from minirlhf.models.sampling import Sampling, sample
from minirlhf.models.texts import completion_texts

ASK = """\
Compare two replies to a question.

Question: {question}

Reply A: {first}

Reply B: {second}

Write [[A]] if reply A is better, [[B]] if reply B is better, [[C]] if they are equally good."""

_VERDICT = re.compile(r"\[\[\s*([ABC])\s*\]\]")
#: The verdict on the exchanged replies, in words of the first order.
EXCHANGED = {"A": "B", "B": "A", "C": "C"}


#: What a question must have a place for.
PLACES = {"question", "first", "second"}


def require_ask(file: Path) -> str:
    """The question in this file.

    Raises:
        UserError: no such file, or not one text with a place for question, first and second reply, and for nothing else.
    """
    try:
        text = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as problem:
        raise UserError(
            f"{file}: cannot be read ({type(problem).__name__}); expected a file with a question",
            problem="unreadable",
            file=file,
        ) from None
    try:
        places = [name for _, name, _, _ in string.Formatter().parse(text) if name is not None]
    except ValueError as problem:
        raise UserError(
            f"{file}: {problem}; a brace that is no place is written twice", problem="brace", file=file
        ) from None
    if set(places) != PLACES:
        raise UserError(
            f"{file}: it has the places {', '.join(sorted(set(places))) or '(none)'}; expected {{question}}, {{first}} and {{second}}",
            argument="places",
            value=sorted(set(places)),
            expected=sorted(PLACES),
            file=file,
        )
    return text


def verdict(text: str) -> str | None:
    """``A``, ``B`` or ``C``, the last that the text gives in double brackets; None if it gives none."""
    found = _VERDICT.findall(text)
    return found[-1] if found else None


def question(prompt: Sequence[Message], first: Reply, second: Reply, *, ask: str = ASK) -> list[Message]:
    """What the judge is asked; turns before the last question are told with their roles."""
    earlier = "\n".join(f"{m['role']}: {m['content']}" for m in prompt)
    told = prompt[0]["content"] if len(prompt) == 1 else earlier
    said = ["\n".join(m["content"] for m in reply) for reply in (first, second)]
    return [{"role": "user", "content": ask.format(question=told, first=said[0], second=said[1])}]


def judge_training_examples(comparisons: Sequence[Comparison], *, ask: str = ASK) -> list[Conversation]:
    """What a judge is trained on: every comparison in both orders, with its verdict."""
    found = []
    for c in comparisons:
        for first, second, letter in ((c.chosen, c.rejected, "A"), (c.rejected, c.chosen, "B")):
            asked = question(c.prompt, first, second, ask=ask)
            found.append(Conversation([*asked, {"role": "assistant", "content": f"[[{letter}]]"}], context=len(asked)))
    return found


@dataclass(frozen=True)
class Verdicts:
    """What a judge said of each pair, as given and exchanged, both in words of the given order; None where it gave no verdict."""

    given: tuple[str | None, ...]
    exchanged: tuple[str | None, ...]

    @property
    def scores(self) -> list[float]:
        """The first reply's share of each pair: 1 where both verdicts are for it, 0 where both are against it, else ½."""
        worth = {("A", "A"): 1.0, ("B", "B"): 0.0}
        return [worth.get((a or "", b or ""), 0.5) for a, b in zip(self.given, self.exchanged, strict=True)]

    @property
    def consistency(self) -> float:
        """Share of the pairs on which both verdicts agree."""
        return self._share([a is not None and a == b for a, b in zip(self.given, self.exchanged, strict=True)])

    @property
    def first_position_rate(self) -> float:
        """Share of all verdicts for a reply that name the one shown first; ½ without a bias of position, NaN without a verdict."""
        shown_first = [v == "A" for v in self.given if v in ("A", "B")]
        shown_first += [v == "B" for v in self.exchanged if v in ("A", "B")]
        return self._share(shown_first)

    @property
    def unreadable(self) -> float:
        """Share of the answers without a verdict."""
        return self._share([v is None for v in (*self.given, *self.exchanged)])

    @staticmethod
    def _share(found: Sequence[bool]) -> float:
        return float(torch.tensor(found, dtype=torch.float64).mean())


def verdicts_of(given: Tensor, exchanged: Tensor) -> Verdicts:
    """For whom the leans are, of each order; a lean of 0 is a tie. Both ``(N,)``, towards the reply shown first."""

    def named(lean: float) -> str:
        return "A" if lean > 0 else "B" if lean < 0 else "C"

    return Verdicts(
        tuple(named(lean) for lean in given.tolist()), tuple(EXCHANGED[named(lean)] for lean in exchanged.tolist())
    )


@dataclass(frozen=True)
class Judge:
    """A causal LM that judges.

    Attributes:
        ask: the question, with the places ``{question}``, ``{first}`` and ``{second}``.
        max_completion_length: tokens of its answer; a judge that gives reasons needs more.
    """

    model: Any
    tokenizer: Any
    ask: str = ASK
    max_completion_length: int = 8
    batch_size: int = 64

    @classmethod
    def of(cls, model: Any, tokenizer: Any, *, ask: str | None = None, **options: Any) -> Judge:
        """With the question that the model was taught by, ``judge_ask`` of its config, where it has one and no other is given."""
        own: str = getattr(model.config, "judge_ask", ASK)
        return cls(model, tokenizer, ask=own if ask is None else ask, **options)

    @property
    def verdict_length(self) -> int:
        """Tokens of a verdict."""
        return max(len(self._tokens(letter)) for letter in "AB")

    @property
    def knows_verdicts(self) -> bool:
        """Whether the two verdicts are different words of its vocabulary."""
        first, second = self._tokens("A"), self._tokens("B")
        return first != second and self.tokenizer.unk_token_id not in (*first, *second)

    def _tokens(self, letter: str) -> list[int]:
        return list(self.tokenizer(f"[[{letter}]]", add_special_tokens=False)["input_ids"])

    def verdict_log_odds(
        self, prompts: Sequence[Sequence[Message]], firsts: Sequence[Reply], seconds: Sequence[Reply]
    ) -> tuple[Tensor, Tensor]:
        """Log-odds of ``[[A]]`` against ``[[B]]`` as the answer, for ``N`` pairs as given and exchanged: ``(N,)`` each, float64.

        Positive is for the reply shown first. Where a verdict is one token, the sigmoid of it is eq:letter-preference.
        """
        return self._leans(prompts, firsts, seconds), self._leans(prompts, seconds, firsts)

    @torch.no_grad()
    def _leans(self, *pairs: Any) -> Tensor:
        found = []
        letters = [self._tokens(letter) for letter in "AB"]
        asked = [encode_prompt(self.tokenizer, question(*pair, ask=self.ask)) for pair in zip(*pairs, strict=True)]
        with evaluating(self.model):
            for start in range(0, len(asked), self.batch_size):
                some = asked[start : start + self.batch_size]
                rows = [Tokens([*q, *w], [False] * len(q) + [True] * len(w)) for w in letters for q in some]
                batch = collate(rows, self.tokenizer.pad_token_id).to(next(self.model.parameters()).device)
                width = batch.mask.shape[1]
                logps = completion_logps(self.model, batch.input_ids, batch.attention_mask, width, wanted=batch.mask)
                first, second = sequence_logps(logps, batch.mask).double().cpu().view(2, -1)  # (2, b)
                found.append(first - second)
        return torch.cat(found)

    def __call__(
        self, prompts: Sequence[Sequence[Message]], firsts: Sequence[Reply], seconds: Sequence[Reply]
    ) -> Verdicts:
        """Judge ``N`` pairs in both orders.

        Raises:
            UserError: it gives no verdict on any of them.
        """
        given = self._verdicts([question(*pair, ask=self.ask) for pair in zip(prompts, firsts, seconds, strict=True)])
        other = self._verdicts([question(*pair, ask=self.ask) for pair in zip(prompts, seconds, firsts, strict=True)])
        found = Verdicts(tuple(given), tuple(None if v is None else EXCHANGED[v] for v in other))
        if found.unreadable == 1:
            raise UserError(
                f"the judge gave no [[A]], [[B]] or [[C]] on any of {len(given)} pairs; is it trained to judge?",
                argument="verdicts",
                value=len(given),
                problem="missing",
            )
        return found

    def _verdicts(self, asked: Sequence[list[Message]]) -> list[str | None]:
        rows = [encode_prompt(self.tokenizer, messages) for messages in asked]
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        found: dict[int, str | None] = {}
        for start in range(0, len(rows), self.batch_size):
            some = order[start : start + self.batch_size]
            rollout = sample(
                self.model,
                [rows[i] for i in some],
                sampling=Sampling(greedy=True, max_completion_length=self.max_completion_length),
                eos_token_id=ends_of(self.tokenizer, self.model).ids,
                pad_token_id=self.tokenizer.pad_token_id,
                seed=0,
            )
            found |= dict(zip(some, map(verdict, completion_texts(rollout, self.tokenizer)), strict=True))
        return [found[i] for i in range(len(rows))]
