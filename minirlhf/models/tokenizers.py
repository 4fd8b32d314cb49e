"""Tokenizers: one word per id for the tiny worlds, byte-level BPE for real text, and a check of everybody else's.

All are ordinary fast ``transformers`` tokenizers that carry their chat template. Padding is a token of its own: where it is
also the end of a sequence, a model never learns to stop, because masks that leave out padding leave out the end too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer, decoders, pre_tokenizers, trainers
from tokenizers import models as algorithms

from minirlhf.core.errors import ArgumentError, UserError
from minirlhf.data import chat

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

#: What a folder with a tokenizer has at least one of.
FILES = ("tokenizer*", "vocab*", "*.model", "*.tiktoken")
#: The smallest vocabulary of :func:`train_tokenizer`: the special tokens and the 256 bytes.
SMALLEST = len(chat.SPECIAL_TOKENS) + 256


def word_tokenizer(words: Sequence[str], *, chat_template: str = chat.WORDS) -> PreTrainedTokenizerBase:
    """One id per word: the special tokens first, then ``words`` in their order. Text is split at white space.

    Decoding joins with single spaces. A word that is not in the list becomes ``<unk>``.

    Raises:
        ValueError: a word twice, empty, with white space in it, or spelt like a special token.
    """
    odd = [word for word in words if word.split() != [word] or word in chat.SPECIAL_TOKENS]
    if odd or len(set(words)) != len(words):
        raise ArgumentError(
            f"words holds {len(words) - len(set(words))} repetitions and the unusable entries {odd[:5]}; expected distinct "
            f"words without white space, none of {', '.join(chat.SPECIAL_TOKENS)}",
            argument="words",
            value=odd,
        )
    ids = {word: i for i, word in enumerate([*chat.SPECIAL_TOKENS, *words])}
    core = Tokenizer(algorithms.WordLevel(ids, unk_token=chat.UNK))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return _wrap(core, chat_template)


def train_tokenizer(
    texts: Iterable[str], vocab_size: int = 2048, *, chat_template: str = chat.TURNS
) -> PreTrainedTokenizerBase:
    """Byte-level byte-pair encoding learned from ``texts``: any text survives encoding and decoding unchanged.

    Numbers are split into their digits, so that arithmetic does not depend on which numbers were frequent. The vocabulary
    comes out smaller than ``vocab_size`` where the texts have too few repeated pairs. The order of the texts does not
    matter.

    Raises:
        UserError: no text, or a vocabulary too small for the bytes and the special tokens.
    """
    if vocab_size < SMALLEST:
        said = f"vocab_size={vocab_size} is too small: the bytes and special tokens alone are {SMALLEST}"
        raise UserError(said, argument="vocab_size", value=vocab_size, expected=SMALLEST)
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
    kept = [text for text in texts if text]
    if not kept:
        raise UserError("no text to train a tokenizer on", argument="texts", problem="empty")
    core.train_from_iterator(kept, trainer)
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
    """The tokenizer of a local folder or of a hub name.

    Args:
        name: a folder with ``tokenizer.json``, or a hub name.
        complete: add what it lacks, see :func:`complete_tokenizer`.
        own_padding: add a padding token alone; a template is asked for.

    Raises:
        UserError: it cannot be read, or lacks something (see :func:`require_usable`).
    """
    if Path(name).is_dir() and not any(any(Path(name).glob(pattern)) for pattern in FILES):
        # For some models transformers would make up one with hardly any words.
        said = f"{name}: no tokenizer can be loaded from there (no tokenizer.json; save it beside the model)"
        raise UserError(said, argument="tokenizer", file=name, problem="missing")
    from transformers import AutoTokenizer

    loader: Any = AutoTokenizer
    try:
        tokenizer: PreTrainedTokenizerBase = loader.from_pretrained(name)
    except Exception as problem:  # transformers raises almost anything for files it does not understand
        reason = next(iter(str(problem).strip().splitlines()), type(problem).__name__)
        said = f"{name}: no tokenizer can be loaded from there ({reason})"
        raise UserError(said, argument="tokenizer", file=name, problem="unreadable") from problem
    if complete:
        complete_tokenizer(tokenizer)
    elif own_padding:
        _own_padding(tokenizer)
    require_usable(tokenizer)
    return tokenizer


def complete_tokenizer(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """Give a foreign tokenizer what it lacks, in place; returns what was added, in words.

    A padding token ``<pad>`` where there is none or it is the end-of-sequence token (then the model needs a row more:
    :func:`minirlhf.models.loading.fit_vocabulary`), and the plain-words template ``TRANSCRIPT`` where there is none.
    """
    added = _own_padding(tokenizer)
    if not tokenizer.chat_template:
        tokenizer.chat_template = chat.TRANSCRIPT
        added.append("the chat template TRANSCRIPT ('User: ...', 'Assistant: ...')")
    return added


def _own_padding(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    if tokenizer.pad_token is not None and tokenizer.pad_token_id != tokenizer.eos_token_id:
        return []
    tokenizer.add_special_tokens({"pad_token": chat.PAD})
    return [f"the padding token {chat.PAD}"]


def require_usable(tokenizer: PreTrainedTokenizerBase) -> None:
    """Raise :class:`UserError` unless the tokenizer is fast and has an end, a padding of its own and a chat template."""
    name = repr(tokenizer.name_or_path)
    if not tokenizer.is_fast:
        said = f"tokenizer {name} is a slow one; a fast one (tokenizer.json) is needed for loss masks"
        raise UserError(said, argument="tokenizer", value="slow", expected="fast")
    if tokenizer.eos_token_id is None:
        said = f"tokenizer {name} has no end-of-sequence token; set its eos_token to one of its tokens"
        raise UserError(said, argument="tokenizer", value=["eos_token"], problem="missing")
    lacks = {}
    if tokenizer.pad_token_id is None:
        lacks["pad_token"] = "no padding token"
    elif tokenizer.pad_token_id == tokenizer.eos_token_id:
        lacks["pad_token"] = f"a padding token that is also its end-of-sequence token ({tokenizer.eos_token})"
    if not tokenizer.chat_template:
        lacks["chat_template"] = "no chat template"
    if lacks:
        raise UserError(
            f"tokenizer {name} has {' and '.join(lacks.values())}; ask for defaults with complete_tokenizer=True (adds {chat.PAD} and "
            "the template minirlhf.data.chat.TRANSCRIPT), or set them and save it again",
            argument="tokenizer",
            value=list(lacks),
            problem="duplicate" if tokenizer.pad_token_id is not None and "pad_token" in lacks else "missing",
        )
