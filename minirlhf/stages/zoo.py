"""Trained checkpoints by name. The first use trains (seconds to a minute, with a bar), later ones load from the cache.

``zoo.load("assistant-sft")`` gives ``(model, tokenizer)``. A new entry is one row of the table. All are trained on one thread,
so that on one machine everybody has the same ones.

What makes an entry anew: another plan; other code in the module of its world; a training that *does* something else; or any
of these in the entry that it starts from. What a training does is looked at, not read: three steps of it on a few examples,
from an untrained model (:func:`behaviour`). So an edit of the SFT loss, of the optimizer or of a chat template makes the
entries that it concerns anew; another RL recipe, a renamed function or a file that moved makes none.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from minirlhf.core.errors import unknown
from minirlhf.core.provenance import code_without_docs
from minirlhf.core.randomness import threads
from minirlhf.data import tasks
from minirlhf.data.tasks.base import Task
from minirlhf.models import cache
from minirlhf.models.heads import RewardModel
from minirlhf.models.loading import load_folder
from minirlhf.models.tokenizers import load_tokenizer
from minirlhf.stages import pipeline
from minirlhf.stages.judging import WrittenJudgePlan, written_judge
from minirlhf.stages.pipeline import PretrainPlan, RewardPlan, SFTPlan, Trained

STEPS, EXAMPLES = 3, 40  # of the look at what a training does


def _pretrain(task: Task, start: None, plan: PretrainPlan, **run: Any) -> Trained:
    return pipeline.pretrain(task, plan, **run)


def _sft(task: Task, start: Trained | None, plan: SFTPlan, **run: Any) -> Trained:
    return pipeline.sft_from_scratch(task, plan, **run) if start is None else pipeline.sft(task, start, plan, **run)


def _judge(task: Task, start: Trained, plan: RewardPlan, **run: Any) -> Trained:
    pairs, _ = pipeline.preferences(task, start, plan)
    return pipeline.reward_model(start, pairs, plan, **run)


def _load_reward(folder: Path) -> tuple[Any, Any]:
    return RewardModel.from_pretrained(folder), load_tokenizer(str(folder))


@dataclass(frozen=True)
class Entry:
    """A checkpoint that can be made.

    Attributes:
        about: one line for ``minirlhf zoo``.
        world: the name of its tiny world.
        stage: ``(task, start, plan, **run) -> Trained``; without a parent ``start`` is None.
        plan: everything adjustable that determines it.
        parent: the entry that it starts from; None: from an untrained model.
        reads: ``folder -> (model, tokenizer)``.
    """

    about: str
    world: str
    stage: Callable[..., Trained]
    plan: Any
    parent: str | None = None
    reads: Callable[[Path], tuple[Any, Any]] = load_folder

    def build(self, start: Trained | None, plan: Any, **run: Any) -> Trained:
        """What comes out of it by a plan."""
        return self.stage(tasks.get(self.world), start, plan, **run)


ENTRIES: dict[str, Entry] = {
    "assistant-base": Entry(
        "pretrained on the raw text of the assistant world", "assistant", _pretrain, PretrainPlan()
    ),
    "assistant-sft": Entry(
        "assistant-base after imitating demonstrations", "assistant", _sft, SFTPlan(), "assistant-base"
    ),
    "assistant-reward": Entry(
        "reward model from labelled pairs of assistant-sft's replies",
        "assistant",
        _judge,
        RewardPlan(),
        "assistant-sft",
        _load_reward,
    ),
    "assistant-judge": Entry(
        "writes which of two replies of the assistant world is better",
        "assistant",
        written_judge,
        WrittenJudgePlan(),
        "assistant-sft",
    ),
    "shell-game-sft": Entry(
        "plays the shell game, thinks aloud now and then", "shell_game", _sft, pipeline.SHELL_GAME_SFT
    ),
    "running-sum-sft": Entry(
        "adds six numbers modulo 5, as carelessly as who taught it", "running_sum", _sft, pipeline.RUNNING_SUM_SFT
    ),
    "sort-digits-sft": Entry("sorts six digits, not very well", "sort_digits", _sft, pipeline.SORT_DIGITS_SFT),
    "phrasebook-base": Entry(
        "pretrained on pages of word pairs, learns their language in context",
        "phrasebook",
        _pretrain,
        pipeline.PHRASEBOOK_PRETRAIN,
    ),
}


def get(name: str) -> Entry:
    """The entry of this name; a :class:`UserError` with the nearest one otherwise."""
    if name not in ENTRIES:
        raise unknown("zoo entry", name, ENTRIES)
    return ENTRIES[name]


@functools.cache
def behaviour(entry: Entry) -> tuple[str, ...]:
    """What the training of an entry does: loss and norm of the gradient of a few steps, to four digits, so that another
    machine is not another behaviour. The examples are few, so epochs end; the learning rate goes through its schedule."""
    few = {f.name: min(EXAMPLES, n) for f in fields(entry.plan) if isinstance(n := getattr(entry.plan, f.name), int)}
    plan = replace(entry.plan, training=replace(entry.plan.training, max_steps=STEPS), **few)
    untrained = pipeline.fresh(tasks.get(entry.world), seed=plan.training.seed)
    with threads(1):
        history = entry.build(untrained if entry.parent else None, plan, quiet=True).history
    return tuple(f"{row[name]:.4g}" for row in history for name in ("loss", "grad_norm"))


def cache_key_inputs(name: str) -> dict[str, Any]:
    """All that decides what the entry is, as the head of this module says."""
    entry = get(name)
    world = code_without_docs(inspect.getsource(inspect.getmodule(type(tasks.get(entry.world)))))  # type: ignore[arg-type]
    return {
        "plan": entry.plan,
        "world": hashlib.sha256(world.encode()).hexdigest(),
        "behaviour": behaviour(entry),
        "parent": None if entry.parent is None else cache_key_inputs(entry.parent),
    }


def path(name: str, *, quiet: bool = False) -> Path:
    """The folder of the checkpoint, trained first if it is not in the cache."""
    entry = get(name)

    def build() -> tuple[Any, Any]:
        start = None if entry.parent is None else Trained(*load(entry.parent, quiet=quiet))
        with threads(1):
            trained = entry.build(start, entry.plan, name=f"training {name} once", quiet=quiet)
        return trained.model, trained.tokenizer

    note = "" if quiet else f"zoo: training {name} once ({entry.about})"
    return cache.cached(name, cache_key_inputs(name), build, note=note)


def is_cached(name: str) -> bool:
    """Is there a folder for this entry? Whether it is sound is looked at when it is loaded."""
    return cache.folder_of(name, cache_key_inputs(name)).is_dir()


def load(name: str, *, quiet: bool = False) -> tuple[Any, Any]:
    """``(model, tokenizer)`` of an entry, trained first if it is not in the cache; that shows itself unless ``quiet``."""
    return get(name).reads(path(name, quiet=quiet))
