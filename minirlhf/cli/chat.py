"""Talk to a model, and see what else it might have said.

  minirlhf chat assistant-sft                         a zoo entry, a run's folder, a model folder or a hub name
  minirlhf chat runs/grpo --top 3                     with the likeliest next tokens and their probabilities
  minirlhf chat assistant-sft runs/grpo               two models side by side
  minirlhf chat assistant-sft --prompt "say hello"    one answer, then it ends
  echo "say hello" | minirlhf chat assistant-sft      every line is a turn of one conversation

While you talk: /reset begins anew, /top N shows N likely tokens (0: none), /quit ends. So does Ctrl-D.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from minirlhf.cli.data import visible
from minirlhf.core.errors import UserError, unknown
from minirlhf.data.records import Message

if TYPE_CHECKING:
    from minirlhf.data.types import Rollout
    from minirlhf.models.sampling import Sampling


def configure(parser: argparse.ArgumentParser) -> None:
    """One or two models, and how they are sampled."""
    parser.add_argument("models", nargs="+", metavar="MODEL", help="one, or two to compare")
    parser.add_argument("--prompt", help="answer this and end")
    parser.add_argument("--system", help="what the system message says")
    parser.add_argument("--top", type=int, default=0, metavar="N", help="show the N likeliest tokens at every place")
    parser.add_argument("--max-completion-length", type=int, default=64, help="tokens of a reply at most (default: 64)")
    parser.add_argument("--temperature", type=float, default=1.0, help="0 takes the likeliest token (default: 1)")
    parser.add_argument("--top-k", type=int, default=0, help="sample among the k likeliest tokens; 0: all")
    parser.add_argument("--top-p", type=float, default=1.0, help="sample from the smallest set with this probability")
    parser.add_argument(
        "--min-p", type=float, default=0.0, help="sample tokens at least this likely, relative to the best"
    )
    parser.add_argument("--seed", type=int, default=0, help="the same seed gives the same replies (default: 0)")


@dataclass
class Speaker:
    """A model and its side of the conversation."""

    name: str
    model: Any
    tokenizer: Any
    system: str | None
    messages: list[Message] = field(default_factory=list)

    def reset(self) -> None:
        """Forget all that was said."""
        self.messages = [] if self.system is None else [{"role": "system", "content": self.system}]

    def reply(self, said: str, sampling: Sampling, seed: int, top: int) -> list[str]:
        """Answer; the lines to print. If there is no answer, nothing was said.

        Raises:
            UserError: the conversation no longer fits into the model's context.
        """
        from minirlhf.data.chat import encode_prompt, ends_of
        from minirlhf.models.sampling import sample
        from minirlhf.models.texts import completion_texts

        asked: list[Message] = [*self.messages, {"role": "user", "content": said}]
        ids = encode_prompt(self.tokenizer, asked)
        rollout = sample(
            self.model,
            [ids],
            sampling=sampling,
            eos_token_id=ends_of(self.tokenizer, self.model).ids,
            pad_token_id=self.tokenizer.pad_token_id,
            seed=seed,
            step=len(asked),
        )
        [text] = (text.strip() for text in completion_texts(rollout, self.tokenizer))
        self.messages = [*asked, {"role": "assistant", "content": text}]
        shown = (text if rollout.terminated[0] else f"{text} [cut off]").splitlines() or ["[says nothing]"]
        # What a model writes must not steer the terminal.
        lines = ["".join(c if c.isprintable() else "�" for c in line.expandtabs(4)) for line in shown]
        return lines + (["", *self.alternatives(rollout, sampling.temperature, top)] if top else [])

    def alternatives(self, rollout: Rollout, temperature: float, top: int) -> list[str]:
        """For every token of a reply its probability, and the likeliest ones at its place."""
        import torch

        from minirlhf.core.calling import evaluating
        from minirlhf.models.forward import completion_logits

        width = rollout.mask.shape[1]
        with torch.no_grad(), evaluating(self.model):
            logits = completion_logits(self.model, rollout.input_ids, rollout.attention_mask, width)[0, :-1]  # (T, V)
        probabilities = (logits.float() / temperature).softmax(-1)
        chosen = rollout.completion_ids[0]  # (T,)
        rows = [("said", "p", f"likeliest {top}")]
        for token, p in zip(chosen.tolist(), probabilities, strict=True):
            best = p.topk(min(top, len(p)))
            others = "  ".join(
                f"{self.show(i)} {q:.2f}" for i, q in zip(best.indices.tolist(), best.values.tolist(), strict=True)
            )
            rows.append((self.show(token), f"{p[token]:.2f}", others))
        wide = max(len(row[0]) for row in rows)
        return [f"{said:<{wide}}  {p:>4}  {others}" for said, p, others in rows]

    def show(self, token: int) -> str:
        """A token as text with its white space visible."""
        text = self.tokenizer.decode([token]) or self.tokenizer.convert_ids_to_tokens(token)
        return visible(str(text))

    def strange(self, said: str) -> list[str]:
        """The words that its tokenizer does not know."""
        unk = self.tokenizer.unk_token_id
        return [
            w
            for w in said.split()
            if unk is not None and unk in self.tokenizer(w, add_special_tokens=False)["input_ids"]
        ]


def run(args: argparse.Namespace) -> int:
    """Talk until the input ends."""
    from minirlhf.models.sampling import Sampling
    from minirlhf.stages import named

    if len(args.models) > 2:
        raise UserError(
            f"{len(args.models)} models; expected one, or two to compare",
            argument="models",
            value=len(args.models),
            expected=(1, 2),
        )
    if args.top < 0:
        raise UserError(f"--top {args.top}; expected at least 0", argument="--top", value=args.top, expected=0)
    sampling = Sampling(
        max_completion_length=args.max_completion_length,
        temperature=args.temperature if args.temperature != 0 else 1.0,
        top_k=args.top_k,
        top_p=args.top_p,
        min_p=args.min_p,
        greedy=args.temperature == 0,
    )
    speakers = [Speaker(name, *named.model_by_name(name), system=args.system) for name in args.models]
    for speaker in speakers:
        speaker.reset()
    if args.prompt is not None:
        _turn(speakers, args.prompt, sampling, args.seed, args.top)
        return 0
    return _converse(speakers, sampling, args.seed, args.top)


def _converse(speakers: list[Speaker], sampling: Sampling, seed: int, top: int) -> int:
    talking = sys.stdin.isatty()
    for said in _lines(talking):
        word, _, rest = said.partition(" ")
        try:
            if word == "/quit":
                break
            elif word == "/reset":
                for speaker in speakers:
                    speaker.reset()
            elif word == "/top":
                if not rest.isdecimal():
                    raise UserError(f"/top {rest}: expected a number, 0 for none", argument="/top", value=rest)
                top = int(rest)
            elif word.startswith("/"):
                raise unknown("command", word, ("/reset", "/top", "/quit"))
            else:
                _turn(speakers, said, sampling, seed, top)
        except UserError as problem:
            if not talking:
                raise
            print(f"{problem} (/reset begins anew)", file=sys.stderr)
    return 0


def _lines(talking: bool) -> Iterator[str]:
    """What the user says, without empty lines."""
    if talking:
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401, lines can be edited and called back
        print("/reset begins anew, /top N shows likely tokens, /quit ends", file=sys.stderr)
    while True:
        try:
            said = (input("you: ") if talking else input()).strip()
        except EOFError:
            return
        except UnicodeDecodeError as problem:
            raise UserError(f"standard input: not UTF-8 text ({problem.reason})") from None
        if said:
            yield said


def _turn(speakers: list[Speaker], said: str, sampling: Sampling, seed: int, top: int) -> None:
    """One exchange. If one of the models has no answer, none has heard the question."""
    if not said.strip():
        raise UserError("an empty prompt; expected some text", argument="prompt", problem="empty")
    before = [speaker.messages for speaker in speakers]
    try:
        replies = [speaker.reply(said, sampling, seed, top) for speaker in speakers]
    except UserError:
        for speaker, messages in zip(speakers, before, strict=True):
            speaker.messages = messages
        raise
    for speaker in speakers:
        if strange := speaker.strange(said):
            print(f"({speaker.name} does not know the words {', '.join(strange)})", file=sys.stderr)
    print(
        "\n".join(replies[0] if len(speakers) == 1 else _side_by_side([s.name for s in speakers], replies)), flush=True
    )


def _side_by_side(names: list[str], replies: list[list[str]]) -> list[str]:
    """Two columns, the width of the terminal."""
    width = (shutil.get_terminal_size((100, 24)).columns - 3) // 2
    columns = []
    for name, lines in zip(names, replies, strict=True):
        wrapped = [part for line in lines for part in (textwrap.wrap(line, width, drop_whitespace=False) or [""])]
        columns.append([textwrap.shorten(name, width, placeholder="…"), "─" * width, *wrapped])
    return [f"{a:<{width}} │ {b}".rstrip() for a, b in zip_longest(*columns, fillvalue="")]
