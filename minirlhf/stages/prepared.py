"""The way that all runs from files go: read and hold out, start a model, tokenise; then train and measure, and :meth:`Prepared.finish`.

``out`` then holds ``config.json``, ``metrics.jsonl``, ``checkpoints/``, ``result.json`` and ``model/``.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar, get_args

import torch
from torch import nn

from minirlhf.core.calling import context_length, evaluating
from minirlhf.core.errors import UserError
from minirlhf.core.folders import write_text_atomic
from minirlhf.data import loaders
from minirlhf.data.chat import declare_ends, ends_of
from minirlhf.data.loaders import Records
from minirlhf.data.records import Example
from minirlhf.data.tasks.base import Split, Task
from minirlhf.models import adapters, checkpoints, tiny
from minirlhf.models.tokenizers import train_tokenizer, word_tokenizer
from minirlhf.report import live
from minirlhf.stages import named, start
from minirlhf.stages.examples import Messages
from minirlhf.stages.sources import EMPTY, Source
from minirlhf.trainers.config import TrainerConfig, unused_options
from minirlhf.trainers.loop import RunProvenance, TrainerCallback

E = TypeVar("E")


@dataclass(frozen=True)
class Reference:
    """A frozen reference with the name it was given by."""

    name: str
    model: Any
    tokenizer: Any

    @classmethod
    def load(cls, name: str | None) -> Reference | None:
        """The model of this name; None if there is no name."""
        return None if name is None else cls(name, *named.model_by_name(name))

    @staticmethod
    def digest(reference: Reference | None) -> str | None:
        """What tells it from others; None if there is none."""
        return None if reference is None else start.model_digest(reference.model)


@dataclass(frozen=True)
class Prepared(Generic[E]):
    """A run that is ready to start: a model, and examples that fit into its context.

    Attributes:
        config: the trainer's settings, where nobody gave them fit for the model's size.
        keep: where a trainer keeps its state.
        computing: gives a context in which models compute in bfloat16, and metrics are reported, if that was asked for.
        eval_steps: measure every so many steps; 0: not.
    """

    model: Any
    tokenizer: Any
    train: list[E]
    held: list[E]
    config: Any
    keep: dict[str, Any]
    computing: Callable[[], AbstractContextManager[Any]]
    eval_steps: int = 0

    @property
    def pad(self) -> int:
        """The token that fills rows up."""
        return int(self.tokenizer.pad_token_id)

    def reference(self, given: Reference | None, role: str = "reference") -> Any:
        """The reference model, where there is one, on the policy's device; it must know the same tokens. ``role``: what it is called."""
        if given is None:
            return None
        if given.tokenizer.get_vocab() != self.tokenizer.get_vocab():
            raise UserError(
                f"{given.name}: its tokenizer is not that of the {'student' if role == 'teacher' else 'policy'}; a {role} must know the same tokens",
                argument=role,
                value=given.name,
                problem="tokenizer",
            )
        return given.model.to(next(self.model.parameters()).device)

    def watching(self, measure: Callable[[], Mapping[str, float]]) -> dict[str, Any]:
        """``keep``, with this measurement on what is held out every so many steps, where that was asked for."""

        def quietly() -> dict[str, float]:
            with evaluating(self.model):
                return {f"held_out_{name}": value for name, value in measure().items()}

        return {**self.keep, "watch": TrainerCallback(self.eval_steps, quietly) if self.eval_steps else None}

    def finish(self, **measured: Any) -> dict[str, Any]:
        """Write the model and ``result.json``, which is also returned."""
        result = {"train": len(self.train), "held_out": len(self.held), **measured}
        out = Path(self.keep["out"])
        plain = adapters.merged(self.model)
        declare_ends(plain, self.tokenizer)
        checkpoints.save(out / "model", plain, self.tokenizer)
        write_text_atomic(out / "result.json", json.dumps(result, indent=2) + "\n")
        return result


def read(source: Source, seed: int) -> tuple[Records, Records]:
    """The records to train on, and those held out."""
    if source.data is None:
        raise UserError("no data; give --data FILE, FOLDER or a hub name", argument="--data", problem="missing")
    load = partial(loaders.load, format=source.format, limit=source.limit, drop_identical=source.drop_identical)
    records = load(source.data, split=source.split)
    print(records)
    if source.eval_data is None:
        return records.hold_out(source.held_out, seed)
    held = load(source.eval_data)
    print(held)
    if type(held.examples[0]) is not type(records.examples[0]):
        message = f"{source.eval_data}: in format {held.format}, the data to train on in {records.format}"
        raise UserError(message, argument="format", value=held.format, expected=records.format, file=source.eval_data)
    return records, held


def dataset_from_task(task: Task, given: Callable[[Task, Split], Iterable[Example]]) -> tuple[Records, Records]:
    """The same from a tiny world: what is ``given`` for each split."""
    train, test = (Records(task.name, "tiny world", tuple(given(task, split))) for split in get_args(Split))
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
    """Start the model, and tokenise what fits into its context.

    Args:
        data: for training and held out.
        texts: ``records -> messages each``: a preset's tokenizer is trained on them, if it is not a ``task`` that has the words.
        encoded: ``(tokenizer, records) -> examples`` of the trainer.
        config: the trainer's settings, of which ``given`` were chosen by somebody.
        asks: what else the run depends on, for its record.
        idle: fields of the source that its recipe makes nothing of, and why.
        size: ``(tokenizer, example) -> tokens``; a completion needs ``room(config)`` more.
        head: what is trained, from a causal LM.
        like: a preset gets this model's tokenizer.
    """
    reasons = {**source.unused_options(config.max_steps), **idle}
    start.log_unused_options(
        unused_options(source, reasons, given) + unused_options(config, config.unused_options(), given)
    )
    out, device, dtype = Path(source.out), start.device_of(source.device), start.dtype_of(source.dtype)
    if not resume and (out / "metrics.jsonl").exists():
        raise UserError(f"{out}: holds a run already; resume it, or name another folder")
    texts_of_preset = texts(data[0])
    if source.model not in tiny.PRESETS:
        model, tokenizer = named.model_by_name(source.model, dtype=dtype)
    else:
        joined = ("\n".join(message["content"] for message in text) for text in texts_of_preset)
        if like is not None:
            tokenizer = like.tokenizer
        else:
            tokenizer = train_tokenizer(joined, source.vocab_size) if task is None else word_tokenizer(task.words)
        model = tiny.tiny_model(source.model, tokenizer, seed=config.seed, context=source.context)
    if source.chat_template is not None:
        tokenizer.chat_template = _template(source.chat_template)
    model = nn.Module.to(model, device, dtype)
    config, sources = start.defaults_for_model_size(config, given, model, adapter=bool(source.lora_r))
    train, held = (encoded(tokenizer, part) for part in data)
    fits = _fits(source, model, [size(tokenizer, example) for example in train + held], room(config))
    train, held = ([e for e in part if next(fits)] for part in (train, held))
    depends = {
        "data": {"train": start.digest(data[0].examples), "held out": start.digest(data[1].examples)},
        "tokenizer": start.digest([tokenizer.get_vocab(), tokenizer.chat_template]),
        "model": start.model_digest(model),
        "adapter": [source.lora_r, source.lora_alpha, source.lora_dropout] if source.lora_r else None,
        "numbers": [source.dtype, source.bf16],
        **(asks or {}),
    }
    model = head(model)
    print(start.run_banner(source.model, model, ends_of(tokenizer, model), config, sources))
    if source.lora_r:
        r, alpha, dropout = source.lora_r, source.lora_alpha, source.lora_dropout
        model = adapters.add_lora(model, lora_r=r, lora_alpha=alpha, lora_dropout=dropout, seed=config.seed)
    noted = {"given": dict(given), "source": dataclasses.asdict(source), "versions": start.versions()}
    keep = {"out": source.out, "tokenizer": tokenizer, "resume": resume, "origin": RunProvenance(depends, noted)}
    halved = device.type == "cuda" if source.bf16 is None else source.bf16
    # Without a cache: weights that were cast once would stay as they were before the first step.
    computing = partial(
        _computing, source, partial(torch.autocast, device.type, torch.bfloat16, enabled=halved, cache_enabled=False)
    )
    return Prepared(model, tokenizer, train, held, config, keep, computing, source.eval_steps)


@contextmanager
def _computing(source: Source, autocast: Callable[[], AbstractContextManager[Any]]) -> Iterator[None]:
    with live.reporting(source.report_to, Path(source.out)), autocast():
        yield


def _template(path: str) -> str:
    """The chat template in a file."""
    file = Path(path).expanduser()
    if not file.is_file():
        raise UserError(f"chat_template = {path!r}: no such file; expected one with a Jinja template")
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UserError(f"chat_template = {path!r}: not UTF-8 text") from None


def _fits(source: Source, model: Any, lengths: list[int], room: int) -> Iterator[bool]:
    """Which examples leave ``room`` tokens in the context; an error, or a printed count, if some do not."""
    context = context_length(model)
    fits = [context is None or n + room <= context for n in lengths]
    where, long = source.data or "the task", fits.count(False)
    if long and (long == len(fits) or not source.drop_long):
        worst = max(range(len(lengths)), key=lengths.__getitem__)
        needed = f"{lengths[worst]} tokens" + (f" and {room} for the completion" if room else "")
        raise UserError(
            f"{where}: example {worst + 1} has {needed}, the model reads {context}: raise --context, use another model, or "
            f"leave out the {long} long examples with --drop-long true",
            argument="--context",
            value=lengths[worst] + room,
            expected=context,
            problem="too long",
        )
    if long:
        print(f"{where}: left out {long} of {len(fits)} examples longer than {context} tokens")
    return iter(fits)
