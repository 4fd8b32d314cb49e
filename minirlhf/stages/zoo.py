"""Trained checkpoints by name. The first use trains (seconds to a minute, with a bar), later ones load from the cache.

``zoo.load("assistant-sft")`` returns ``(model, tokenizer)``. A new entry is one row of the table. All entries are
trained on one thread, so that they are the same for all users of one machine.

An entry is trained again if its plan changes, the code in the module of its task, the *behaviour* of its training, or
any of these in its parent entry. The behaviour is measured, not read from the code: three steps on a few examples, from
an untrained model (:func:`behaviour`). So an edit of the SFT loss, of the optimizer or of a chat template retrains the
affected entries. A new RL recipe, a renamed function or a moved file retrains none.
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

STEPS, EXAMPLES = 3, 40  # of the training by which the behaviour is measured


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
    """A checkpoint that the library can train.

    Attributes:
        about: one line for ``minirlhf models``.
        task: the name of its toy task.
        stage: ``(task, start, plan, **run) -> Trained``; without a parent ``start`` is None.
        plan: all settings that determine the checkpoint.
        parent: the entry of the initial model; None: an untrained model.
        reads: ``folder -> (model, tokenizer)``.
    """

    about: str
    task: str
    stage: Callable[..., Trained]
    plan: Any
    parent: str | None = None
    reads: Callable[[Path], tuple[Any, Any]] = load_folder

    def build(self, start: Trained | None, plan: Any, **run: Any) -> Trained:
        """Train the entry by a plan."""
        return self.stage(tasks.get(self.task), start, plan, **run)


ENTRIES: dict[str, Entry] = {
    "assistant-base": Entry("pretrained on the raw text of the assistant task", "assistant", _pretrain, PretrainPlan()),
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
        "writes which of two completions of the assistant task is better",
        "assistant",
        written_judge,
        WrittenJudgePlan(),
        "assistant-sft",
    ),
    "shell-game-sft": Entry(
        "plays the shell game, sometimes with a chain of thought", "shell_game", _sft, pipeline.SHELL_GAME_SFT
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
    """Return the entry of this name; an unknown name raises a :class:`UserError` with the nearest name."""
    if name not in ENTRIES:
        raise unknown("zoo entry", name, ENTRIES)
    return ENTRIES[name]


@functools.cache
def behaviour(entry: Entry) -> tuple[str, ...]:
    """Return loss and gradient norm of a few training steps of an entry.

    Four digits, so that the machine makes no difference. The examples are few, so that epochs end, and the learning
    rate goes through its whole schedule.
    """
    sizes = {f.name: min(EXAMPLES, n) for f in fields(entry.plan) if isinstance(n := getattr(entry.plan, f.name), int)}
    plan = replace(entry.plan, training=replace(entry.plan.training, max_steps=STEPS), **sizes)
    untrained = pipeline.fresh(tasks.get(entry.task), seed=plan.training.seed)
    with threads(1):
        history = entry.build(untrained if entry.parent else None, plan, quiet=True).history
    return tuple(f"{row[name]:.4g}" for row in history for name in ("loss", "grad_norm"))


def cache_key_inputs(name: str) -> dict[str, Any]:
    """Return everything that determines the entry, as the docstring of this module explains."""
    entry = get(name)
    world = code_without_docs(inspect.getsource(inspect.getmodule(type(tasks.get(entry.task)))))  # type: ignore[arg-type]
    return {
        "plan": entry.plan,
        "world": hashlib.sha256(world.encode()).hexdigest(),
        "behaviour": behaviour(entry),
        "parent": None if entry.parent is None else cache_key_inputs(entry.parent),
    }


def path(name: str, *, quiet: bool = False) -> Path:
    """Return the folder of the checkpoint, which is trained first if it is not in the cache."""
    entry = get(name)

    def build() -> tuple[Any, Any]:
        start = None if entry.parent is None else Trained(*load(entry.parent, quiet=quiet))
        with threads(1):
            trained = entry.build(start, entry.plan, name=f"training {name} once", quiet=quiet)
        return trained.model, trained.tokenizer

    note = "" if quiet else f"zoo: training {name} once ({entry.about})"
    return cache.cached(name, cache_key_inputs(name), build, note=note)


def is_cached(name: str) -> bool:
    """Return whether the cache has a folder for this entry; its contents are checked on loading."""
    return cache.folder_of(name, cache_key_inputs(name)).is_dir()


def load(name: str, *, quiet: bool = False) -> tuple[Any, Any]:
    """Return ``(model, tokenizer)`` of an entry; one not in the cache is trained first, with a bar unless ``quiet``."""
    return get(name).reads(path(name, quiet=quiet))
