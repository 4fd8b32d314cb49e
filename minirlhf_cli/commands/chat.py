"""Talk to a model, and see the most probable tokens at each position.

  minirlhf chat assistant-sft                         a zoo entry, a run's folder, a model folder or a hub name
  minirlhf chat runs/grpo --top 3                     with the most probable tokens and their probabilities
  minirlhf chat assistant-sft runs/grpo               two models side by side
  minirlhf chat assistant-sft --prompt "say hello"    one completion, then exit
  echo "say hello" | minirlhf chat assistant-sft      each line is a turn of one conversation

During the chat: /reset starts a new conversation, /top N shows the N most probable tokens (0: none), /quit or Ctrl-D
ends the chat.
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

from minirlhf.core.errors import UserError, unknown
from minirlhf.data.records import Message
from minirlhf_cli.commands.data import visible
from minirlhf_cli.settings import require_at_least

if TYPE_CHECKING:
    from minirlhf.data.types import Rollout
    from minirlhf.models.sampling import Sampling


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments: one or two models, and sampling options."""
    parser.add_argument("models", nargs="+", metavar="MODEL", help="one model, or two to compare")
    parser.add_argument("--prompt", help="complete this prompt and exit")
    parser.add_argument("--system", help="text of the system message")
    parser.add_argument("--top", type=int, default=0, metavar="N", help="show the N most probable tokens per position")
    parser.add_argument("--max-completion-length", type=int, default=64, help="tokens per completion (default: 64)")
    parser.add_argument("--temperature", type=float, default=1.0, help="0: greedy decoding (default: 1)")
    parser.add_argument("--top-k", type=int, default=0, help="sample among the k most probable tokens; 0: all")
    parser.add_argument("--top-p", type=float, default=1.0, help="sample from the smallest set with this probability")
    parser.add_argument(
        "--min-p", type=float, default=0.0, help="minimum probability of a token, relative to the most probable one"
    )
    parser.add_argument("--seed", type=int, default=0, help="random seed of sampling (default: 0)")


@dataclass
class Speaker:
    """A model and its side of the conversation."""

    name: str
    model: Any
    tokenizer: Any
    system: str | None
    messages: list[Message] = field(default_factory=list)

    def reset(self) -> None:
        """Start a new conversation: keep only the system message."""
        self.messages = [] if self.system is None else [{"role": "system", "content": self.system}]

    def reply(self, said: str, sampling: Sampling, seed: int, top: int) -> list[str]:
        """Sample a completion and return the lines to print. After an error the conversation is unchanged.

        Raises:
            UserError: the message does not fit into the model's context, even without the earlier ones.
        """
        from minirlhf.data.chat import end_tokens
        from minirlhf.models.sampling import sample
        from minirlhf.models.texts import completion_texts

        conversation, ids = self.fitting([*self.messages, {"role": "user", "content": said}], sampling)
        rollout = sample(
            self.model,
            [ids],
            sampling=sampling,
            eos_token_id=end_tokens(self.tokenizer, self.model).ids,
            pad_token_id=self.tokenizer.pad_token_id,
            seed=seed,
            step=len(conversation),
        )
        [text] = (text.strip() for text in completion_texts(rollout, self.tokenizer))
        self.messages = [*conversation, {"role": "assistant", "content": text}]
        lines = (text if rollout.terminated[0] else f"{text} [cut off]").splitlines() or ["[says nothing]"]
        # Control characters in a completion must not reach the terminal.
        printable_lines = ["".join(c if c.isprintable() else "�" for c in line.expandtabs(4)) for line in lines]
        return printable_lines + (["", *self.alternatives(rollout, sampling.temperature, top)] if top else [])

    def fitting(self, conversation: list[Message], sampling: Sampling) -> tuple[list[Message], list[int]]:
        """Return the conversation and its token ids, without the oldest exchanges that do not fit into the context."""
        from minirlhf.core.calling import context_length
        from minirlhf.data.chat import encode_prompt

        context, start = context_length(self.model), int(self.system is not None)
        ids = encode_prompt(self.tokenizer, conversation)
        num_old = len(conversation)
        while (
            context is not None
            and len(ids) + sampling.max_completion_length > context
            and len(conversation) > start + 1
        ):
            conversation = [*conversation[:start], *conversation[start + 2 :]]
            ids = encode_prompt(self.tokenizer, conversation)
        if forgotten := num_old - len(conversation):
            print(f"({self.name}: the oldest {forgotten} messages no longer fit into the context)", file=sys.stderr)
        return conversation, ids

    def alternatives(self, rollout: Rollout, temperature: float, top: int) -> list[str]:
        """Return, for each token of a completion, its probability and the most probable tokens at its position."""
        import torch

        from minirlhf.core.calling import evaluating
        from minirlhf.models.forward import completion_logits

        width = rollout.mask.shape[1]
        with torch.no_grad(), evaluating(self.model):
            logits = completion_logits(self.model, rollout.input_ids, rollout.attention_mask, width)[0, :-1]  # (T, V)
        probabilities = (logits.float() / temperature).softmax(-1)
        sampled_ids = rollout.completion_ids[0]  # (T,)
        rows = [("said", "p", f"likeliest {top}")]
        for token, p in zip(sampled_ids.tolist(), probabilities, strict=True):
            top_k = p.topk(min(top, len(p)))
            alternatives = "  ".join(
                f"{self.show(i)} {q:.2f}" for i, q in zip(top_k.indices.tolist(), top_k.values.tolist(), strict=True)
            )
            rows.append((self.show(token), f"{p[token]:.2f}", alternatives))
        width_of_token = max(len(row[0]) for row in rows)
        return [f"{token_text:<{width_of_token}}  {p:>4}  {alternatives}" for token_text, p, alternatives in rows]

    def show(self, token: int) -> str:
        """Return a token as text with visible white space."""
        text = self.tokenizer.decode([token]) or self.tokenizer.convert_ids_to_tokens(token)
        return visible(str(text))

    def strange(self, said: str) -> list[str]:
        """Return the words that the tokenizer maps to the unknown token."""
        unk = self.tokenizer.unk_token_id
        return [
            word
            for word in said.split()
            if unk is not None and unk in self.tokenizer(word, add_special_tokens=False)["input_ids"]
        ]


def run(args: argparse.Namespace) -> int:
    """Chat until the input ends."""
    from minirlhf.models.sampling import Sampling
    from minirlhf.stages import named

    if len(args.models) > 2:
        raise UserError(
            f"{len(args.models)} models; expected one or two",
            argument="models",
            value=len(args.models),
            expected=(1, 2),
        )
    require_at_least(0, args, "top")
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
    interactive = sys.stdin.isatty()
    for line in _lines(interactive):
        command, _, argument = line.partition(" ")
        try:
            if command == "/quit":
                break
            elif command == "/reset":
                for speaker in speakers:
                    speaker.reset()
            elif command == "/top":
                if not argument.isdecimal():
                    raise UserError(f"/top {argument}: expected a whole number", argument="/top", value=argument)
                top = int(argument)
            elif command.startswith("/"):
                raise unknown("command", command, ("/reset", "/top", "/quit"))
            else:
                _turn(speakers, line, sampling, seed, top)
        except UserError as error:
            if not interactive:
                raise
            print(f"{error} (/reset starts a new conversation)", file=sys.stderr)
    return 0


def _lines(interactive: bool) -> Iterator[str]:
    """Yield the lines of the user, without empty ones."""
    if interactive:
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401, adds line editing and a history to input()
        print("/reset starts a new conversation, /top N shows the most probable tokens, /quit ends", file=sys.stderr)
    while True:
        try:
            line = (input("you: ") if interactive else input()).strip()
        except EOFError:
            return
        except UnicodeDecodeError as error:
            raise UserError(f"standard input: not UTF-8 text ({error.reason})") from None
        if line:
            yield line


def _turn(speakers: list[Speaker], text: str, sampling: Sampling, seed: int, top: int) -> None:
    """Run one exchange. If one of the models fails, the conversations of all models stay unchanged."""
    if not text.strip():
        raise UserError("an empty prompt; expected some text", argument="prompt", problem="empty")
    conversations = [speaker.messages for speaker in speakers]
    try:
        outputs = [speaker.reply(text, sampling, seed, top) for speaker in speakers]
    except UserError:
        for speaker, messages in zip(speakers, conversations, strict=True):
            speaker.messages = messages
        raise
    for speaker in speakers:
        if unknown_words := speaker.strange(text):
            print(f"({speaker.name} does not know these words: {', '.join(unknown_words)})", file=sys.stderr)
    print(
        "\n".join(outputs[0] if len(speakers) == 1 else _side_by_side([s.name for s in speakers], outputs)), flush=True
    )


def _side_by_side(names: list[str], outputs: list[list[str]]) -> list[str]:
    """Return two columns that fill the width of the terminal."""
    width = (shutil.get_terminal_size((100, 24)).columns - 3) // 2
    columns = []
    for name, lines in zip(names, outputs, strict=True):
        wrapped = [segment for line in lines for segment in (textwrap.wrap(line, width, drop_whitespace=False) or [""])]
        columns.append([textwrap.shorten(name, width, placeholder="…"), "─" * width, *wrapped])
    return [f"{left:<{width}} │ {right}".rstrip() for left, right in zip_longest(*columns, fillvalue="")]
