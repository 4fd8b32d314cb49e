"""The steps that all runs from files share: read the data, hold a part out, create or load a model, and tokenise.

After that a run trains and measures, and calls :meth:`Prepared.finish`. The folder ``out`` then holds ``config.json``,
``metrics.jsonl``, ``checkpoints/``, ``result.json`` and ``model/``.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar, get_args

import torch
from torch import nn

from minirlhf.core.calling import context_length, evaluating
from minirlhf.core.errors import UserError
from minirlhf.core.folders import write_text_atomic
from minirlhf.data import loaders
from minirlhf.data.chat import declare_ends, end_tokens
from minirlhf.data.examples import Messages
from minirlhf.data.loaders import Records
from minirlhf.data.records import Example, text_of
from minirlhf.data.tasks.base import Split, Task
from minirlhf.models import adapters, checkpoints, tiny
from minirlhf.models.tokenizers import (
    describe_template,
    find_unknown_tokens,
    find_unread_arguments,
    report_unread,
    set_template_arguments,
    train_tokenizer,
    word_tokenizer,
    write_beginning,
)
from minirlhf.stages import named
from minirlhf.trainers import live
from minirlhf.trainers.config import TrainerConfig, unused_options
from minirlhf.trainers.loop import BEST, RunProvenance, TrainerCallback
from minirlhf_cli.files import start
from minirlhf_cli.files.sources import EMPTY, Source

E = TypeVar("E")


@dataclass(frozen=True)
class Reference:
    """A frozen reference model with the name by which the user chose it."""

    name: str
    model: Any
    tokenizer: Any

    @classmethod
    def load(cls, name: str | None) -> Reference | None:
        """Load the model of this name; return None if ``name`` is None."""
        return None if name is None else cls(name, *named.model_by_name(name))

    @staticmethod
    def digest(reference: Reference | None) -> str | None:
        """Return a digest that identifies the reference model; None if there is no reference."""
        return None if reference is None else start.model_digest(reference.model)


@dataclass(frozen=True)
class Prepared(Generic[E]):
    """A run that is ready to start: a model, and examples that fit into its context.

    Attributes:
        config: the trainer's settings; those that the user did not choose have defaults for the model's size.
        keep: keyword arguments with which a trainer saves its state: folder, tokenizer, resume, origin.
        computing: returns a context in which models compute in bfloat16 and metrics are reported, if configured.
        eval_steps: interval between measurements, in steps; 0: no measurement.
        keep_best: whether the run ends with the weights that measured best.
    """

    model: Any
    tokenizer: Any
    train: list[E]
    held: list[E]
    config: Any
    keep: dict[str, Any]
    computing: Callable[[], AbstractContextManager[Any]]
    eval_steps: int = 0
    keep_best: bool = False

    @property
    def pad(self) -> int:
        """The id of the padding token."""
        return int(self.tokenizer.pad_token_id)

    @property
    def eval_rows(self) -> int:
        """Rows per forward pass on the held-out examples: those of a training step, or 64 if its batch is not split."""
        return int(self.config.micro_batch_size or 64)

    def reference(self, given: Reference | None, role: str = "reference") -> Any:
        """Return the reference model on the policy's device, or None if there is none.

        It must have the policy's vocabulary. ``role`` is the model's name in the error message.
        """
        if given is None:
            return None
        if given.tokenizer.get_vocab() != self.tokenizer.get_vocab():
            raise UserError(
                f"{given.name}: its tokenizer differs from the tokenizer of the {'student' if role == 'teacher' else 'policy'}; a {role} must have the same vocabulary",
                argument=role,
                value=given.name,
                problem="tokenizer",
            )
        return given.model.to(next(self.model.parameters()).device)

    def measured(self, measure: Callable[[], Mapping[str, float]]) -> dict[str, float]:
        """Return ``measure()`` on the held-out examples; nothing if nothing is held out."""
        return dict(measure()) if self.held else {}

    def watching(self, measure: Callable[[], Mapping[str, float]]) -> dict[str, Any]:
        """Return ``keep`` with a callback that calls ``measure`` every ``eval_steps`` steps (0: no callback)."""

        def evaluate() -> dict[str, float]:
            with evaluating(self.model):
                return {f"held_out_{name}": value for name, value in measure().items()}

        every = self.eval_steps if self.held else 0
        return {**self.keep, "watch": TrainerCallback(every, evaluate, self.keep_best) if every else None}

    def finish(self, **measured: Any) -> dict[str, Any]:
        """Write the model and ``result.json``, and return the contents of ``result.json``."""
        out = Path(self.keep["out"])
        best = {"best_step": checkpoints.load(out / BEST).info["step"]} if (out / BEST).is_dir() else {}
        result = {"train": len(self.train), "held_out": len(self.held), **best, **measured}
        plain = adapters.merged(self.model)
        declare_ends(plain, self.tokenizer)
        checkpoints.save(out / "model", plain, self.tokenizer)
        write_text_atomic(out / "result.json", json.dumps(result, indent=2) + "\n")
        print(f"model saved to {out / 'model'}")
        return result


def read(source: Source, seed: int) -> tuple[Records, Records]:
    """Return the records for training and the held-out records."""
    if source.data is None:
        raise UserError("no data; give --data FILE, FOLDER or a hub name", argument="--data", problem="missing")
    load = partial(
        loaders.load,
        format=source.format,
        limit=source.limit,
        drop_identical=source.drop_identical,
        fields=source.fields,
    )
    records = load(source.data, split=source.split)
    print("\n".join([str(records), *records.notes()]))
    if source.eval_data is None:
        train, held = records.hold_out(source.eval_fraction, seed)
        if not len(held):
            reason = "all rows have the same prompt" if source.eval_fraction else "eval_fraction = 0"
            print(f"{source.data}: nothing is held out ({reason}), so nothing is measured on an eval set")
        else:
            print(f"{source.data}: {len(train)} rows to train on, {len(held)} held out")
        return train, held
    held = load(source.eval_data)
    print("\n".join([str(held), *held.notes()]))
    known, new = ([start.digest([replace(e, columns={})]) for e in found.examples] for found in (records, held))
    if again := sum(example in set(known) for example in new):
        these = (
            "the eval set is the training data"
            if again == len(held)
            else f"{again} of {len(held)} rows are also training data"
        )
        print(f"{source.eval_data}: {these}, so its numbers are not those of new data")
    if type(held.examples[0]) is not type(records.examples[0]):
        message = f"{source.eval_data}: in format {held.format}, the data to train on in {records.format}"
        raise UserError(message, argument="format", value=held.format, expected=records.format, file=source.eval_data)
    return records, held


def dataset_from_task(task: Task, given: Callable[[Task, Split], Iterable[Example]]) -> tuple[Records, Records]:
    """Return the training and held-out records of a toy task: ``given(task, split)`` for each split."""
    train, test = (Records(task.name, "toy task", tuple(given(task, split))) for split in get_args(Split))
    return train, test


def prepare(
    source: Source,
    data: tuple[Records, Records],
    texts: Callable[[Records], Iterable[Messages]],
    encoded: Callable[[Any, Records], list[E]],
    config: TrainerConfig,
    *,
    given: Mapping[str, Any],
    resume: bool,
    asks: Mapping[str, Any] | None = None,
    idle: Mapping[str, str] = EMPTY,
    task: Task | None = None,
    size: Callable[[Any, Any], int] = lambda tokenizer, example: len(example),
    room: Callable[[Any], int] = lambda config: 0,
    head: Callable[[Any], Any] = lambda model: model,
    like: Reference | None = None,
) -> Prepared[E]:
    """Create or load the model, and tokenise the examples that fit into its context.

    Args:
        data: records for training, and held-out records.
        texts: ``records -> messages of each record``. A preset's tokenizer is trained on them, unless a ``task`` gives
            its words.
        encoded: ``(tokenizer, records) -> examples`` of the trainer.
        config: the trainer's settings; ``given`` holds those that the user chose.
        asks: further inputs that the run depends on, for its provenance record.
        idle: fields of the source that the recipe does not use, each with the reason.
        size: ``(tokenizer, example) -> tokens``; a completion needs ``room(config)`` more.
        head: turns the causal LM into the model that is trained.
        like: a model whose tokenizer a preset takes over.
    """
    reasons = {**source.unused_options(config.max_steps if config.epochs is None else None), **idle}
    if getattr(config, "disable_dropout", True):
        reasons.setdefault("lora_dropout", "this run trains without dropout")
    unused_settings = {name: why for name, why in config.unused_options().items() if not hasattr(source, name)}
    start.log_unused_options(unused_options(source, reasons, given) + unused_options(config, unused_settings, given))
    out, device, dtype = Path(source.out), start.device_of(source.device), start.dtype_of(source.dtype)
    if not resume and (out / "metrics.jsonl").exists():
        raise UserError(f"{out}: already holds a run; resume it, or choose another folder")
    tokenizer_texts = texts(data[0])
    if source.model not in tiny.PRESETS:
        model, tokenizer = named.model_by_name(source.model, dtype=dtype)
    else:
        corpus = ("\n".join(text_of(message) for message in text) for text in tokenizer_texts)
        if like is not None:
            tokenizer = like.tokenizer
        else:
            tokenizer = train_tokenizer(corpus, source.vocab_size) if task is None else word_tokenizer(task.words)
        model = tiny.tiny_model(source.model, tokenizer, seed=config.seed, context=source.context)
    if source.chat_template is not None:
        tokenizer.chat_template = read_template(source.chat_template)
        write_beginning(tokenizer)
    if source.chat_template_kwargs is not None:
        set_template_arguments(tokenizer, source.chat_template_kwargs)
    spoken = [messages for part in data if len(part) for messages in texts(part)]
    for line in report_unread(find_unread_arguments(tokenizer, spoken)):
        print(line)
    if (unknown := find_unknown_tokens(tokenizer, spoken, source.model)) is not None:
        print(unknown)
    model = nn.Module.to(model, device, dtype)
    start.limit_threads(model)
    config, sources = start.defaults_for_model_size(config, given, model, adapter=bool(source.lora_r))
    train, held_out = (encoded(tokenizer, part) if len(part) else [] for part in data)
    lengths = [size(tokenizer, example) for example in train + held_out]
    short = source.max_length is not None and max(lengths) <= source.max_length and not getattr(config, "packing", 0)
    if short and "max_length" not in reasons:
        start.log_unused_options(unused_options(source, {"max_length": "no example is longer"}, given))
    if source.truncation_mode is not None and "truncation_mode" not in reasons:
        train, held_out = (_truncated(source, model, part) for part in (train, held_out))
    else:
        fits = _fits(source, model, lengths, room(config))
        train, held_out = ([e for e in part if next(fits)] for part in (train, held_out))
    dependencies = {
        "data": {"train": start.digest(data[0].examples), "held out": start.digest(data[1].examples)},
        "tokenizer": start.digest([tokenizer.get_vocab(), tokenizer.chat_template]),
        "model": start.model_digest(model),
        "adapter": [source.lora_r, source.lora_alpha, source.lora_dropout] if source.lora_r else None,
        "numbers": [source.dtype, source.bf16],
        **(asks or {}),
    }
    model = head(model)
    ends, template = end_tokens(tokenizer, model), describe_template(tokenizer)
    said = [m["content"] for part in data if len(part) for messages in texts(part) for m in messages]
    if with_ends := sum(any(name in content for name in ends.names.values()) for content in said):
        print(
            f"{with_ends} of {len(said)} messages contain an end token in their text ({ends}), which ends a turn there"
        )
    print(start.run_banner(source.model, model, ends, config, sources, template))
    trains_with_dropout = not getattr(config, "disable_dropout", True) and start.has_dropout(model)
    if config.micro_batch_size is not None and trains_with_dropout:
        print(
            "the model trains with dropout, whose random numbers depend on micro_batch_size; --disable-dropout true: none"
        )
    if source.lora_r:
        r, alpha, dropout = source.lora_r, source.lora_alpha, source.lora_dropout
        model = adapters.add_lora(model, lora_r=r, lora_alpha=alpha, lora_dropout=dropout, seed=config.seed)
    notes = {"given": dict(given), "source": dataclasses.asdict(source), "versions": start.versions()}
    keep = {"out": source.out, "tokenizer": tokenizer, "resume": resume, "origin": RunProvenance(dependencies, notes)}
    use_bf16 = device.type == "cuda" if source.bf16 is None else source.bf16
    # No autocast cache: it would keep the cast weights from before the first optimiser step.
    computing = partial(
        _computing, source, partial(torch.autocast, device.type, torch.bfloat16, enabled=use_bf16, cache_enabled=False)
    )
    measuring = source.eval_steps, source.load_best_model_at_end
    return Prepared(model, tokenizer, train, held_out, config, keep, computing, *measuring)


@contextmanager
def _computing(source: Source, autocast: Callable[[], AbstractContextManager[Any]]) -> Iterator[None]:
    with live.reporting(source.report_to, Path(source.out)), autocast():
        yield


def read_template(path: str) -> str:
    """Read the chat template from a file."""
    file = Path(path).expanduser()
    if not file.is_file():
        raise UserError(f"chat_template = {path!r}: no such file; expected one with a Jinja template")
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UserError(f"chat_template = {path!r}: not UTF-8 text") from None


def limit_of(source: Source, model: Any) -> int | None:
    """Return the maximum tokens of an example: the context length, or ``max_length`` if that is less."""
    given = [number for number in (context_length(model), source.max_length) if number is not None]
    return min(given, default=None)


def _truncated(source: Source, model: Any, examples: list[Any]) -> list[Any]:
    """Return the examples, the longer ones truncated; without those of which nothing is left to learn.

    Raises:
        UserError: nothing is left of any example.
    """
    limit = limit_of(source, model)
    num_long = sum(limit is not None and len(example) > limit for example in examples)
    if limit is None or not num_long:
        return examples
    cut = [
        example if len(example) <= limit else example.truncated(limit, source.truncation_mode) for example in examples
    ]
    left = [example for example in cut if example is not None]
    words = f"{source.data or 'the task'}: cut {num_long} of {len(examples)} examples to {limit} tokens"
    if not left:
        raise UserError(
            f"{words} ({source.truncation_mode}), and nothing to learn is left of any; raise --max-length",
            argument="--max-length",
            value=limit,
            problem="empty",
        )
    num_empty = len(cut) - len(left)
    print(words + (f"; {num_empty} of them have nothing left to learn and are dropped" if num_empty else ""))
    return left


def _fits(source: Source, model: Any, lengths: list[int], room: int) -> Iterator[bool]:
    """Yield for each example whether it leaves ``room`` tokens in the context, or in ``max_length`` if that is less.

    If some examples do not, raise an error, or with ``drop_long`` print their number.
    """
    context = context_length(model) if room else limit_of(source, model)
    fits = [context is None or n + room <= context for n in lengths]
    source_name, num_long = source.data or "the task", fits.count(False)
    if num_long and (num_long == len(fits) or not source.drop_long):
        longest = max(range(len(lengths)), key=lengths.__getitem__)
        needed = f"{lengths[longest]} tokens" + (f" and {room} for the completion" if room else "")
        cut_short = not room and context != context_length(model)
        reads = "--max-length is" if cut_short else "the model reads"
        remedy = "raise --max-length" if cut_short else "raise --context, use another model"
        remedy += "" if room else ", cut the examples with --truncation-mode keep_start"
        raise UserError(
            f"{source_name}: example {longest + 1} has {needed}, but {reads} {context}: {remedy}, or leave out the "
            f"{num_long} long examples with --drop-long true",
            argument="--max-length" if cut_short else "--context",
            value=lengths[longest] + room,
            expected=context,
            problem="too long",
        )
    if num_long:
        print(f"{source_name}: left out {num_long} of {len(fits)} examples longer than {context} tokens")
    return iter(fits)
