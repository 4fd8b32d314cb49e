"""A language model as the judge: it reads a question and two completions, and writes ``[[A]]``, ``[[B]]``, or ``[[C]]``
for a tie.

Judges have a position bias. Each pair is therefore judged twice, the second time with the completions exchanged, and a
preference counts if both verdicts agree. The judge decodes greedily, so the same pair always gets the same verdict.
Alternatively the judge writes nothing, and the log-odds of its two verdicts are used (:meth:`Judge.verdict_log_odds`).

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
from minirlhf.data.chat import encode_prompt, end_tokens
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
#: Maps a verdict on the exchanged completions to the verdict for the given order.
EXCHANGED = {"A": "B", "B": "A", "C": "C"}


#: The placeholders that a judge's prompt template must contain.
PLACES = {"question", "first", "second"}


def require_ask(file: Path) -> str:
    """Read a judge's prompt template from a file.

    Raises:
        UserError: the file cannot be read as text, or its placeholders are not exactly ``question``, ``first`` and
            ``second``.
    """
    try:
        text = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"{file}: cannot be read ({type(error).__name__}); expected a text file with a prompt template",
            problem="unreadable",
            file=file,
        ) from None
    try:
        fields = [name for _, name, _, _ in string.Formatter().parse(text) if name is not None]
    except ValueError as error:
        raise UserError(
            f"{file}: {error}; write a literal brace twice, as {{{{ or }}}}", problem="brace", file=file
        ) from None
    if set(fields) != PLACES:
        raise UserError(
            f"{file}: its placeholders are {', '.join(sorted(set(fields))) or '(none)'}; expected {{question}}, {{first}} and {{second}}",
            argument="places",
            value=sorted(set(fields)),
            expected=sorted(PLACES),
            file=file,
        )
    return text


def verdict(text: str) -> str | None:
    """Return the last verdict (``A``, ``B`` or ``C``) in double brackets, or None if the text has none."""
    letters = _VERDICT.findall(text)
    return letters[-1] if letters else None


def question(prompt: Sequence[Message], first: Reply, second: Reply, *, ask: str = ASK) -> list[Message]:
    """Return the judge's prompt. If the conversation has several turns, each turn is written with its role."""
    dialogue = "\n".join(f"{m['role']}: {m['content']}" for m in prompt)
    text = prompt[0]["content"] if len(prompt) == 1 else dialogue
    pair = ["\n".join(m["content"] for m in completion) for completion in (first, second)]
    return [{"role": "user", "content": ask.format(question=text, first=pair[0], second=pair[1])}]


def judge_training_examples(comparisons: Sequence[Comparison], *, ask: str = ASK) -> list[Conversation]:
    """Return the training examples of a judge: every comparison in both orders, with its verdict."""
    rows = []
    for c in comparisons:
        for first, second, letter in ((c.chosen, c.rejected, "A"), (c.rejected, c.chosen, "B")):
            prompt = question(c.prompt, first, second, ask=ask)
            rows.append(Conversation([*prompt, {"role": "assistant", "content": f"[[{letter}]]"}], context=len(prompt)))
    return rows


@dataclass(frozen=True)
class Verdicts:
    """Verdicts on each pair in the given and in the exchanged order, both in terms of the given order; None is none."""

    given: tuple[str | None, ...]
    exchanged: tuple[str | None, ...]

    @property
    def scores(self) -> list[float]:
        """The score of each first completion: 1 if both verdicts prefer it, 0 if both prefer the second, else ½."""
        score = {("A", "A"): 1.0, ("B", "B"): 0.0}
        return [score.get((a or "", b or ""), 0.5) for a, b in zip(self.given, self.exchanged, strict=True)]

    @property
    def consistency(self) -> float:
        """Fraction of the pairs on which both verdicts agree."""
        return self._share([a is not None and a == b for a, b in zip(self.given, self.exchanged, strict=True)])

    @property
    def first_position_rate(self) -> float:
        """Fraction of the non-tie verdicts for the completion shown first; ½ without position bias, NaN without any."""
        shown_first = [v == "A" for v in self.given if v in ("A", "B")]
        shown_first += [v == "B" for v in self.exchanged if v in ("A", "B")]
        return self._share(shown_first)

    @property
    def unreadable(self) -> float:
        """Fraction of the judge's answers without a verdict."""
        return self._share([v is None for v in (*self.given, *self.exchanged)])

    @staticmethod
    def _share(flags: Sequence[bool]) -> float:
        return float(torch.tensor(flags, dtype=torch.float64).mean())


def verdicts_of(given: Tensor, exchanged: Tensor) -> Verdicts:
    """Turn log-odds ``(N,)`` of both orders into verdicts. Positive prefers the completion shown first, 0 is a tie."""

    def letter(log_odds: float) -> str:
        return "A" if log_odds > 0 else "B" if log_odds < 0 else "C"

    return Verdicts(
        tuple(letter(log_odds) for log_odds in given.tolist()),
        tuple(EXCHANGED[letter(log_odds)] for log_odds in exchanged.tolist()),
    )


@dataclass(frozen=True)
class Judge:
    """A causal LM that judges.

    Attributes:
        ask: the prompt template, with the placeholders ``{question}``, ``{first}`` and ``{second}``.
        max_completion_length: tokens of its answer; a judge that gives reasons needs more.
    """

    model: Any
    tokenizer: Any
    ask: str = ASK
    max_completion_length: int = 8
    batch_size: int = 64

    @classmethod
    def of(cls, model: Any, tokenizer: Any, *, ask: str | None = None, **options: Any) -> Judge:
        """Build a judge; ``ask`` is by default the ``judge_ask`` of the model's config, or else :data:`ASK`."""
        default: str = getattr(model.config, "judge_ask", ASK)
        return cls(model, tokenizer, ask=default if ask is None else ask, **options)

    @property
    def verdict_length(self) -> int:
        """Number of tokens of a verdict, the longer of the two."""
        return max(len(self._tokens(letter)) for letter in "AB")

    @property
    def knows_verdicts(self) -> bool:
        """Whether the two verdicts have different tokens, none of them unknown to the tokenizer."""
        first, second = self._tokens("A"), self._tokens("B")
        return first != second and self.tokenizer.unk_token_id not in (*first, *second)

    def _tokens(self, letter: str) -> list[int]:
        return list(self.tokenizer(f"[[{letter}]]", add_special_tokens=False)["input_ids"])

    def verdict_log_odds(
        self, prompts: Sequence[Sequence[Message]], firsts: Sequence[Reply], seconds: Sequence[Reply]
    ) -> tuple[Tensor, Tensor]:
        """Log-odds of ``[[A]]`` against ``[[B]]`` as the answer, for ``N`` pairs as given and exchanged: ``(N,)`` each, float64.

        Positive log-odds prefer the completion shown first. If a verdict is one token, their sigmoid is
        eq:letter-preference.
        """
        return self._leans(prompts, firsts, seconds), self._leans(prompts, seconds, firsts)

    @torch.no_grad()
    def _leans(self, *pairs: Any) -> Tensor:
        log_odds = []
        verdicts = [self._tokens(letter) for letter in "AB"]
        prompts = [encode_prompt(self.tokenizer, question(*pair, ask=self.ask)) for pair in zip(*pairs, strict=True)]
        with evaluating(self.model):
            for start in range(0, len(prompts), self.batch_size):
                chunk = prompts[start : start + self.batch_size]
                rows = [Tokens([*x, *y], [False] * len(x) + [True] * len(y)) for y in verdicts for x in chunk]
                batch = collate(rows, self.tokenizer.pad_token_id).to(next(self.model.parameters()).device)
                width = batch.mask.shape[1]
                logps = completion_logps(self.model, batch.input_ids, batch.attention_mask, width, wanted=batch.mask)
                first, second = sequence_logps(logps, batch.mask).double().cpu().view(2, -1)  # (2, b)
                log_odds.append(first - second)
        return torch.cat(log_odds)

    def __call__(
        self, prompts: Sequence[Sequence[Message]], firsts: Sequence[Reply], seconds: Sequence[Reply]
    ) -> Verdicts:
        """Judge ``N`` pairs in both orders.

        Raises:
            UserError: the judge gives no verdict on any of the pairs.
        """
        given = self._verdicts([question(*pair, ask=self.ask) for pair in zip(prompts, firsts, seconds, strict=True)])
        swapped = self._verdicts([question(*pair, ask=self.ask) for pair in zip(prompts, seconds, firsts, strict=True)])
        verdicts = Verdicts(tuple(given), tuple(None if v is None else EXCHANGED[v] for v in swapped))
        if verdicts.unreadable == 1:
            raise UserError(
                f"the judge gave no [[A]], [[B]] or [[C]] on any of {len(given)} pairs; is it trained to judge?",
                argument="verdicts",
                value=len(given),
                problem="missing",
            )
        return verdicts

    def _verdicts(self, prompts: Sequence[list[Message]]) -> list[str | None]:
        rows = [encode_prompt(self.tokenizer, messages) for messages in prompts]
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        verdicts: dict[int, str | None] = {}
        for start in range(0, len(rows), self.batch_size):
            chunk = order[start : start + self.batch_size]
            rollout = sample(
                self.model,
                [rows[i] for i in chunk],
                sampling=Sampling(greedy=True, max_completion_length=self.max_completion_length),
                eos_token_id=end_tokens(self.tokenizer, self.model).ids,
                pad_token_id=self.tokenizer.pad_token_id,
                seed=0,
            )
            verdicts |= dict(zip(chunk, map(verdict, completion_texts(rollout, self.tokenizer)), strict=True))
        return [verdicts[i] for i in range(len(rows))]
