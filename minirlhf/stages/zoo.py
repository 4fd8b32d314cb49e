"""Layer 7: trained checkpoints by name. The first use trains (seconds), later ones load from the cache.

``zoo.load("assistant-sft")`` gives ``(model, tokenizer)``. A new entry is one function and one line of the table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minirlhf.core.errors import unknown
from minirlhf.core.provenance import source_hash
from minirlhf.data import tasks
from minirlhf.models import cache
from minirlhf.models.heads import RewardModel
from minirlhf.models.loading import load_folder
from minirlhf.models.tokenizers import load_tokenizer
from minirlhf.stages import pipeline
from minirlhf.stages.pipeline import Trained
from minirlhf.trainers.history import History
from minirlhf.trainers.sft import SFTConfig


def _load_reward(folder: Path) -> tuple[Any, Any]:
    return RewardModel.from_pretrained(folder), load_tokenizer(str(folder))


@dataclass(frozen=True)
class Entry:
    """A checkpoint that can be made.

    Attributes:
        about: one line for ``minirlhf zoo``.
        plan: everything adjustable that determines it.
        build: ``(plan, quiet) -> Trained``; asks the zoo for what it starts from.
        parents: entries that it starts from; a change in one makes this one anew.
        reads: ``folder -> (model, tokenizer)``.
    """

    about: str
    plan: Any
    build: Callable[[Any, bool], Trained]
    parents: tuple[str, ...] = ()
    reads: Callable[[Path], tuple[Any, Any]] = load_folder


def _assistant_base(plan: Any, quiet: bool) -> Trained:
    return pipeline.pretrain(tasks.get("assistant"), plan, quiet=quiet)


def _assistant_sft(plan: Any, quiet: bool) -> Trained:
    return pipeline.sft(tasks.get("assistant"), _start("assistant-base", quiet), plan, quiet=quiet)


def _assistant_reward(plan: Any, quiet: bool) -> Trained:
    start = _start("assistant-sft", quiet)
    pairs, _ = pipeline.preferences(tasks.get("assistant"), start, plan)
    return pipeline.reward_model(start, pairs, plan, quiet=quiet)


def _shell_game_sft(plan: Any, quiet: bool) -> Trained:
    return pipeline.sft_from_scratch(tasks.get("shell_game"), plan, quiet=quiet)


def _sort_digits_sft(plan: Any, quiet: bool) -> Trained:
    return pipeline.sft_from_scratch(tasks.get("sort_digits"), plan, quiet=quiet)


def _phrasebook_base(plan: Any, quiet: bool) -> Trained:
    return pipeline.pretrain(tasks.get("phrasebook"), plan, quiet=quiet)


#: No page is read twice, so there is nothing to memorise: the language has to be read off each page.
PHRASEBOOK = pipeline.PretrainPlan(
    documents=20_000,
    training=SFTConfig(max_steps=300, batch_size=64, learning_rate=3e-3, lr_scheduler_type="linear"),
)

ENTRIES: dict[str, Entry] = {
    "assistant-base": Entry(
        "pretrained on the raw text of the assistant world", pipeline.PretrainPlan(), _assistant_base
    ),
    "assistant-sft": Entry(
        "assistant-base after imitating demonstrations", pipeline.SFTPlan(), _assistant_sft, ("assistant-base",)
    ),
    "assistant-reward": Entry(
        "reward model from labelled pairs of assistant-sft's replies",
        pipeline.RewardPlan(),
        _assistant_reward,
        ("assistant-sft",),
        _load_reward,
    ),
    "shell-game-sft": Entry(
        "plays the shell game, thinks aloud now and then", pipeline.SHELL_GAME_SFT, _shell_game_sft
    ),
    "sort-digits-sft": Entry("sorts six digits, not very well", pipeline.SORT_DIGITS_SFT, _sort_digits_sft),
    "phrasebook-base": Entry(
        "pretrained on pages of word pairs, learns their language in context", PHRASEBOOK, _phrasebook_base
    ),
}


def get(name: str) -> Entry:
    """The entry of this name; a :class:`UserError` with the nearest one otherwise."""
    if name not in ENTRIES:
        raise unknown("zoo entry", name, ENTRIES)
    return ENTRIES[name]


def determinants(name: str) -> dict[str, Any]:
    """All that decides what the entry is: its plan, the code of the stages, and the same of its parents."""
    entry = get(name)
    return {
        "plan": entry.plan,
        "code": source_hash("minirlhf.stages.pipeline"),
        "parents": {parent: determinants(parent) for parent in entry.parents},
    }


def path(name: str, *, quiet: bool = False) -> Path:
    """The folder of the checkpoint, trained first if it is not in the cache."""
    entry = get(name)

    def build() -> tuple[Any, Any]:
        trained = entry.build(entry.plan, quiet)
        return trained.model, trained.tokenizer

    note = "" if quiet else f"zoo: training {name} once ({entry.about})"
    return cache.cached(name, determinants(name), build, note=note)


def is_cached(name: str) -> bool:
    """Is there a folder for this entry? Whether it is sound is looked at when it is loaded."""
    return cache.folder_of(name, determinants(name)).is_dir()


def load(name: str, *, quiet: bool = False) -> tuple[Any, Any]:
    """``(model, tokenizer)`` of an entry, trained first if it is not in the cache."""
    return get(name).reads(path(name, quiet=quiet))


def _start(name: str, quiet: bool) -> Trained:
    return Trained(*load(name, quiet=quiet), History())
