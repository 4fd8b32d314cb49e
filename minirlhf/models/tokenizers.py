"""Tokenizers: one word per id for the tiny tasks, byte-level BPE for real text, and a check of tokenizers from
elsewhere.

All are ordinary fast ``transformers`` tokenizers that include their chat template. Padding has a token of its own. If
padding were also the end of a sequence, a model would never learn to stop, because masks that exclude padding would
exclude the end too.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer, decoders, pre_tokenizers, trainers
from tokenizers import models as algorithms

from minirlhf.core.errors import ArgumentError, UserError
from minirlhf.data import chat, rendering
from minirlhf.data.records import Message, text_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

#: Patterns of file names; a folder with a tokenizer has at least one such file.
FILES = ("tokenizer*", "vocab*", "*.model", "*.tiktoken")
#: The largest fraction of unknown tokens in prompts or completions with which a model can be trained or evaluated.
MOST_UNKNOWN = 0.5
#: The smallest vocabulary of :func:`train_tokenizer`: the special tokens and the 256 bytes.
SMALLEST = len(chat.SPECIAL_TOKENS) + 256


def word_tokenizer(words: Sequence[str], *, chat_template: str = chat.WORDS) -> PreTrainedTokenizerBase:
    """Make a tokenizer with one id per word: first the special tokens, then ``words`` in their order.

    Text is split at white space. Decoding joins with single spaces. A word that is not in the list becomes ``<unk>``.

    Raises:
        ValueError: a word is repeated, empty, contains white space, or equals a special token.
    """
    invalid = [word for word in words if word.split() != [word] or word in chat.SPECIAL_TOKENS]
    if invalid or len(set(words)) != len(words):
        raise ArgumentError(
            f"words holds {len(words) - len(set(words))} repetitions and the unusable entries {invalid[:5]}; expected distinct "
            f"words without white space, none of {', '.join(chat.SPECIAL_TOKENS)}",
            argument="words",
            value=invalid,
        )
    ids = {word: i for i, word in enumerate([*chat.SPECIAL_TOKENS, *words])}
    core = Tokenizer(algorithms.WordLevel(ids, unk_token=chat.UNK))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return _wrap(core, chat_template)


def train_tokenizer(
    texts: Iterable[str], vocab_size: int = 2048, *, chat_template: str = chat.TURNS
) -> PreTrainedTokenizerBase:
    """Train a byte-level byte-pair encoding on ``texts``: encoding and decoding return any text unchanged.

    Numbers are split into their digits, so that arithmetic does not depend on which numbers were frequent. The
    vocabulary is smaller than ``vocab_size`` if the texts have too few repeated pairs. The order of the texts does not
    matter.

    Raises:
        UserError: no text, or a vocabulary too small for the bytes and the special tokens.
    """
    if vocab_size < SMALLEST:
        message = f"vocab_size={vocab_size} is too small: the bytes and special tokens alone are {SMALLEST}"
        raise UserError(message, argument="vocab_size", value=vocab_size, expected=SMALLEST)
    core = Tokenizer(algorithms.BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(chat.SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        min_frequency=2,
        show_progress=False,
    )
    non_empty = [text for text in texts if text]
    if not non_empty:
        raise UserError("no text to train a tokenizer on", argument="texts", problem="empty")
    core.train_from_iterator(non_empty, trainer)
    return _wrap(core, chat_template)


def _wrap(core: Tokenizer, chat_template: str) -> PreTrainedTokenizerBase:
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token=chat.PAD,
        eos_token=chat.EOS,
        unk_token=chat.UNK,
        extra_special_tokens=[chat.USER, chat.ASSISTANT, chat.SYSTEM],
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = chat_template
    return tokenizer


def load_tokenizer(name: str | Path, *, complete: bool = False, own_padding: bool = False) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a local folder or of a hub name.

    Args:
        name: a folder with ``tokenizer.json``, or a hub name.
        complete: add a padding token and a chat template where they are missing, see :func:`complete_tokenizer`.
        own_padding: add a padding token if there is none or if it is the end-of-sequence token; the tokenizer must have
            a chat template.

    Raises:
        UserError: the tokenizer cannot be read, or is unusable (see :func:`require_usable`).
    """
    if Path(name).is_dir() and not any(any(Path(name).glob(pattern)) for pattern in FILES):
        # For some models transformers would invent a tokenizer with hardly any words.
        message = f"{name}: no tokenizer can be loaded from there (no tokenizer.json; save it beside the model)"
        raise UserError(message, argument="tokenizer", file=name, problem="missing")
    from transformers import AutoTokenizer

    loader: Any = AutoTokenizer
    try:
        tokenizer: PreTrainedTokenizerBase = loader.from_pretrained(name)
    except Exception as error:  # transformers raises almost anything for files it does not understand
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        message = f"{name}: no tokenizer can be loaded from there ({reason})"
        raise UserError(message, argument="tokenizer", file=name, problem="unreadable") from error
    if complete:
        complete_tokenizer(tokenizer)
    elif own_padding:
        _own_padding(tokenizer)
    write_beginning(tokenizer)
    require_usable(tokenizer)
    return tokenizer


def complete_tokenizer(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """Add what a tokenizer from elsewhere lacks, in place; return descriptions of what was added.

    A padding token ``<pad>`` is added if there is none or if it is the end-of-sequence token. The model then needs one
    more embedding row: :func:`minirlhf.models.loading.resize_embeddings`. If there is no chat template, the plain-text
    template ``TRANSCRIPT`` is added. The template also gets the tokens of :func:`write_beginning`.
    """
    added = _own_padding(tokenizer)
    if not tokenizer.chat_template:
        tokenizer.chat_template = chat.TRANSCRIPT
        added.append("the chat template TRANSCRIPT ('User: ...', 'Assistant: ...')")
    if start := write_beginning(tokenizer):
        added.append(f"{start} at the beginning of the chat template")
    return added


@dataclass(frozen=True)
class UnknownTokens:
    """Which part of the texts a tokenizer does not know.

    Attributes:
        shares: ``prompts`` and ``completions`` -> fraction of their tokens that are the unknown token.
        words: some of the unknown words.
    """

    shares: dict[str, float]
    words: tuple[str, ...]

    def __str__(self) -> str:
        """``unknown tokens: 12.5 % of the prompts, 0.0 % of the completions; for instance 'bees'``."""
        parts = ", ".join(f"{share:.1%} of the {name}" for name, share in self.shares.items())
        return f"unknown tokens: {parts}; for instance {', '.join(map(repr, self.words))}"


def find_unread_arguments(
    tokenizer: PreTrainedTokenizerBase, conversations: Iterable[Sequence[Message]]
) -> dict[str, int]:
    """Return the arguments of rows (``chat_template_kwargs``) that the chat template does not read, each with the
    number of conversations that have it.

    They have no effect, as in ``transformers``: rows that are made for several models have arguments of one of them.
    """
    names = Counter(name for messages in conversations for name in rendering.row_arguments(messages))
    return {name: count for name, count in names.items() if not rendering.reads(rendering.template_of(tokenizer), name)}


def report_unread(found: Mapping[str, int]) -> list[str]:
    """Return a line for each argument that :func:`find_unread_arguments` found."""
    return [
        f"chat_template_kwargs: {count} conversations set {name}, which the chat template does not read, so it has no effect"
        for name, count in found.items()
    ]


def find_unknown_tokens(
    tokenizer: PreTrainedTokenizerBase, conversations: Iterable[Sequence[Message]], name: str
) -> UnknownTokens | None:
    """Return which part of the conversations the tokenizer does not know; None if it knows everything.

    Args:
        name: the model's name in the error message.

    Raises:
        UserError: more than half of the tokens of the prompts or of the completions are unknown.
    """
    unknown_id = tokenizer.unk_token_id
    texts: dict[str, list[str]] = {"prompts": [], "completions": []}
    for messages in conversations:
        for message in messages:
            texts["completions" if message["role"] == "assistant" else "prompts"].append(text_of(message))
    if unknown_id is None or not any(texts.values()):
        return None
    ids = {part: tokenizer(said, add_special_tokens=False)["input_ids"] for part, said in texts.items() if said}
    flat = {part: [token for row in rows for token in row] for part, rows in ids.items()}
    shares = {part: tokens.count(unknown_id) / max(1, len(tokens)) for part, tokens in flat.items()}
    if not any(shares.values()):
        return None
    rows = ((text, row) for part, said in texts.items() for text, row in zip(said, ids.get(part, []), strict=True))
    words = (word for text, row in rows if unknown_id in row for word in text.split())
    is_unknown = lambda word: unknown_id in tokenizer(word, add_special_tokens=False)["input_ids"]
    found = UnknownTokens(shares, tuple(islice(dict.fromkeys(filter(is_unknown, islice(words, 1000))), 3)))
    if max(shares.values()) > MOST_UNKNOWN:
        raise UserError(
            f"{name}: its tokenizer does not know most of the data ({found}); expected data in the words of the model, or "
            "a model for these data",
            argument="model",
            value=shares,
            expected=MOST_UNKNOWN,
            problem="unknown tokens",
        )
    return found


def write_beginning(tokenizer: PreTrainedTokenizerBase) -> str:
    """Make the chat template write the tokens that the tokenizer, called plainly, puts in front of a text, in place.

    A model that was trained with a beginning-of-sequence token needs it, and a chat template is encoded without the
    tokenizer's own special tokens. A template that writes the tokens already stays unchanged. Because the template
    itself writes them, every program that reads the saved tokenizer gives the model the same tokens.

    Returns:
        The text that was added; empty if nothing was.
    """
    ids = rendering.beginning(tokenizer)
    if not ids or not tokenizer.chat_template or _begins(tokenizer, ids):
        return ""
    tokens = [str(token) for token in tokenizer.convert_ids_to_tokens(ids)]
    name = "bos_token" if tokens == [tokenizer.bos_token] else repr("".join(tokens))
    templates: Any = tokenizer.chat_template
    write = lambda template: f"{{{{ {name} }}}}{template}"
    several = isinstance(templates, dict)
    tokenizer.chat_template = {k: write(v) for k, v in templates.items()} if several else write(templates)
    return "".join(tokens)


def set_template_arguments(tokenizer: PreTrainedTokenizerBase, arguments: str) -> None:
    """Fix arguments of the chat template, in place: JSON such as ``{"enable_thinking": false}``.

    They stand at the beginning of the template, so that the saved tokenizer has them too. An argument of a single row
    (``chat_template_kwargs``) still has precedence.

    Raises:
        UserError: not a JSON object, or a name that the template does not read.
    """
    try:
        values = json.loads(arguments)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise UserError(
            f'chat_template_kwargs = {arguments[:60]!r}; expected a JSON object such as {{"enable_thinking": false}}',
            argument="chat_template_kwargs",
            value=arguments,
            expected="object",
        )
    template = str(tokenizer.get_chat_template())
    for name, value in values.items():
        if not name.isidentifier() or not rendering.reads(template, name):
            raise UserError(
                f"chat_template_kwargs: the chat template does not read {name!r}",
                argument="chat_template_kwargs",
                value=name,
                problem="unknown",
            )
        template = f"{{%- set {name} = {name} if {name} is defined else {value!r} -%}}{template}"
    tokenizer.chat_template = template


def _begins(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> bool:
    """Return whether the chat template writes these tokens first; true if it cannot be told."""
    dialogue = chat.conversation("a", "b")
    for messages in (dialogue[:1], dialogue):
        try:
            text = chat.render(tokenizer, messages)
        except UserError:  # a template for other conversations
            continue
        return list(tokenizer(text, add_special_tokens=False)["input_ids"])[: len(ids)] == list(ids)
    return True


def describe_template(tokenizer: PreTrainedTokenizerBase) -> str:
    """Return what was added to a tokenizer from elsewhere: a chat template, a padding token, tokens at the beginning."""
    start = "".join(str(token) for token in tokenizer.convert_ids_to_tokens(rendering.beginning(tokenizer)))
    template = tokenizer.chat_template
    named = isinstance(template, str) and template.endswith(chat.TRANSCRIPT)
    parts = ["chat template TRANSCRIPT ('User: ...', 'Assistant: ...')"] if named else []
    if str(tokenizer.init_kwargs.get("pad_token")) != str(tokenizer.pad_token):
        parts.append(f"padding token {tokenizer.pad_token} added, for which the embedding has a row of its own")
    if rendering.folds_system(tokenizer):
        parts.append("chat template without a system role, so a system message goes in front of the first user turn")
    return ", ".join([*parts, f"texts begin with {start}"] if start else parts)


def _own_padding(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    if tokenizer.pad_token is not None and tokenizer.pad_token_id != tokenizer.eos_token_id:
        return []
    tokenizer.add_special_tokens({"pad_token": chat.PAD})
    return [f"the padding token {chat.PAD}"]


def require_usable(tokenizer: PreTrainedTokenizerBase) -> None:
    """Raise :class:`UserError` unless the tokenizer is fast and has an end token, another padding token and a chat
    template."""
    name = repr(tokenizer.name_or_path)
    if not tokenizer.is_fast:
        message = f"tokenizer {name} is a slow one; a fast one (tokenizer.json) is needed for loss masks"
        raise UserError(message, argument="tokenizer", value="slow", expected="fast")
    if tokenizer.eos_token_id is None:
        message = f"tokenizer {name} has no end-of-sequence token; set its eos_token to one of its tokens"
        raise UserError(message, argument="tokenizer", value=["eos_token"], problem="missing")
    missing = {}
    if tokenizer.pad_token_id is None:
        missing["pad_token"] = "no padding token"
    elif tokenizer.pad_token_id == tokenizer.eos_token_id:
        missing["pad_token"] = f"a padding token that is also its end-of-sequence token ({tokenizer.eos_token})"
    if not tokenizer.chat_template:
        missing["chat_template"] = "no chat template"
    if missing:
        raise UserError(
            f"tokenizer {name} has {' and '.join(missing.values())}; add defaults with complete_tokenizer=True (it adds {chat.PAD} and "
            "the template minirlhf.data.chat.TRANSCRIPT), or set them and save the tokenizer again",
            argument="tokenizer",
            value=list(missing),
            problem="duplicate" if tokenizer.pad_token_id is not None and "pad_token" in missing else "missing",
        )
