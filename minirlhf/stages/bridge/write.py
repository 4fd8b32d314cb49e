"""A run as a folder for TRL: model, data, grader, a script for ``torchrun``, and what is the same and what is not, in words."""

from __future__ import annotations

import json
import pprint
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minirlhf.core.errors import UserError
from minirlhf.data import tasks
from minirlhf.data.records import Comparison, Conversation, Problem
from minirlhf.feedback import own
from minirlhf.feedback.rewards import task_problems
from minirlhf.models import checkpoints, tiny
from minirlhf.models.classifiers import as_classifier
from minirlhf.models.heads import RewardModel
from minirlhf.models.loading import load_folder
from minirlhf.models.tokenizers import load_tokenizer
from minirlhf.recipes import Recipe
from minirlhf.recipes.binding import name_of
from minirlhf.recipes.offline import Preference
from minirlhf.stages import from_files, named
from minirlhf.stages.bridge import trl
from minirlhf.stages.bridge.mapped import Mapped, NoCounterpartError
from minirlhf.trainers.config import OnlineConfig, TrainerConfig

#: What a run there does otherwise, whatever the recipe.
ALWAYS = (
    "random numbers: other prompts meet in a batch, and other replies are sampled",
    "warm-up begins at learning rate 0 there, at one step's share here",
    "weight decay leaves out norms and biases there",
    "a learning-rate schedule counts optimizer steps there, and rollouts here",
)


@dataclass(frozen=True)
class Told:
    """A run as it was asked for: what :func:`minirlhf.cli.train.told` reads from its ``config.json``."""

    trainer: str
    source: from_files.Source
    config: TrainerConfig
    recipe: Recipe | Preference | None


def mapped(told: Told) -> Mapped:
    """What the run is in TRL's words.

    Raises:
        NoCounterpartError: a part of its recipe has no counterpart.
    """
    match told.recipe:
        case Recipe():
            return trl.online(told.recipe, staleness=getattr(told.config, "staleness", 0))
        case Preference():
            return trl.offline(told.recipe)
    if told.trainer == "sft":
        return Mapped("trl.SFTTrainer", {"max_length": None, "completion_only_loss": True})
    if smoothing := getattr(told.config, "label_smoothing", 0.0):
        raise NoCounterpartError(trl.ENGINE, told.trainer, f"label_smoothing = {smoothing:g}")
    weights = {"center_rewards_coefficient": getattr(told.config, "center_rewards_coefficient", 0.0) or None}
    return Mapped("trl.RewardTrainer", {"max_length": None, **weights})


def export(run: Path, told: Told, out: Path, *, accept_differences: bool = False, model: str = "start") -> str:
    """Write the folder ``out``; returns ``DIFFERENCES.md``.

    Args:
        model: ``start``, what the run began with (the reference of its KL term), or ``end``, what came out of it.

    Raises:
        UserError: the recipe has no counterpart, differs in a way that was not accepted, the folder exists, or something that the
            run was given is gone.
    """
    found = mapped(told)
    if found.differs and not accept_differences:
        listed = "; ".join(found.differs)
        raise UserError(f"{told.trainer}: not the same in TRL: {listed} (--accept-differences exports it all the same)")
    if out.exists():
        raise UserError(f"{out}: exists already; --out names a new folder")
    records = _rows(told)
    policy, tokenizer = _model(run, told, model)
    partial = out.with_name(f".{out.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        with checkpoints.quietly():
            policy.save_pretrained(partial / "model")
            tokenizer.save_pretrained(partial / "model")
        lines = (json.dumps(row, ensure_ascii=False) for row in records)
        (partial / "data.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        if isinstance(told.recipe, Recipe):
            (partial / "grader.py").write_text(_grader(told, partial), encoding="utf-8")
        (partial / "train.py").write_text(script(told, found), encoding="utf-8")
        text = differences(told, found, model)
        (partial / "DIFFERENCES.md").write_text(text, encoding="utf-8")
        partial.rename(out)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return text


def differences(told: Told, found: Mapped, model: str) -> str:
    """What is the same over there, and what is not."""
    kept = [
        "data, in the order of the file",
        "model weights and tokenizer" + (" as the run began" if model == "start" else " as the run ended"),
    ]
    if isinstance(told.recipe, Recipe):
        kept += ["advantage, objective, aggregation and KL term of a step, on the same completions", "grader"]
    else:
        kept += ["the loss of a step, on the same rows"]
    what = {
        "The same": tuple(kept),
        "Not the same": found.differs or ("nothing in an optimizer step",),
        "Always different": ALWAYS,
    }
    head = f"# {told.recipe.name if told.recipe else told.trainer}, in TRL\n"
    return head + "".join(
        f"\n## {title}\n\n" + "".join(f"* {item}\n" for item in items) for title, items in what.items()
    )


def script(told: Told, found: Mapped) -> str:
    """``train.py``: for ``python train.py``, or ``torchrun --nproc-per-node N train.py``."""
    module, _, trainer = found.trainer.rpartition(".")
    config = told.config
    rows = config.batch_size
    options: dict[str, Any] = {
        "output_dir": "out", "learning_rate": config.learning_rate, "lr_scheduler_type": config.lr_scheduler_type,
        "warmup_steps": config.warmup_steps, "weight_decay": config.weight_decay, "max_grad_norm": config.max_grad_norm,
        "seed": config.seed, "max_steps": config.max_steps, "bf16": False, "logging_steps": 1, "save_strategy": "no", "report_to": [],
    }  # fmt: skip
    if isinstance(config, OnlineConfig) and isinstance(told.recipe, Recipe):
        update = told.recipe.update
        rows = config.batch_size * config.num_generations // update.num_minibatches
        options["max_steps"] *= update.num_iterations * update.num_minibatches  # optimizer steps
        options |= {
            "num_generations": config.num_generations, "max_completion_length": config.max_completion_length,
            "temperature": config.temperature, "top_k": config.top_k, "top_p": config.top_p, "min_p": config.min_p or None,
        }  # fmt: skip
    options |= found.options
    needs = {"GRPOTrainer": GRADED, "RLOOTrainer": GRADED, "DPOTrainer": COMPARED, "RewardTrainer": JUDGED}
    return SCRIPT.format(
        name=told.recipe.name if told.recipe else told.trainer,
        module=module,
        trainer=trainer,
        config=trainer.replace("Trainer", "Config"),
        rows=rows,
        options=pprint.pformat({k: v for k, v in options.items() if v is not None}, width=110, sort_dicts=False),
        extra=needs.get(trainer, PLAIN).format(trainer=trainer),
    )


SCRIPT = '''"""{name}, as minirlhf ran it; see DIFFERENCES.md.

    python train.py                           one process
    torchrun --nproc-per-node 2 train.py      several: the batch is divided among them

`accelerate launch --config_file FSDP.yaml train.py` shards the model; vLLM and other engines are options of the configuration below.
"""

import os

from datasets import load_dataset
from {module} import {config}, {trainer}
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

ROWS = {rows}  # of an optimizer step, over all processes
OPTIONS = {options}

world = int(os.environ.get("WORLD_SIZE", 1))
if ROWS % world:
    raise SystemExit(f"{{ROWS}} rows of a step cannot be divided among {{world}} processes")
print(f"{{world}} process(es), {{ROWS // world}} rows each", flush=True)
tokenizer = AutoTokenizer.from_pretrained("model")
data = load_dataset("json", data_files="data.jsonl", split="train")
arguments = {config}(per_device_train_batch_size=ROWS // world, **OPTIONS)
{extra}
trainer.train()
trainer.save_model("out/model")
'''
PLAIN = """model = AutoModelForCausalLM.from_pretrained("model", dtype="float32")
trainer = {trainer}(model=model, args=arguments, train_dataset=data, processing_class=tokenizer)"""
GRADED = """import grader

model = AutoModelForCausalLM.from_pretrained("model", dtype="float32")
trainer = {trainer}(model=model, reward_funcs=[grader.trl_reward], args=arguments, train_dataset=data, processing_class=tokenizer)"""
COMPARED = """model, reference = (AutoModelForCausalLM.from_pretrained("model", dtype="float32") for _ in range(2))
trainer = {trainer}(model=model, ref_model=reference, args=arguments, train_dataset=data, processing_class=tokenizer)"""
JUDGED = """model = AutoModelForSequenceClassification.from_pretrained("model", dtype="float32")
trainer = {trainer}(model=model, args=arguments, train_dataset=data, processing_class=tokenizer)"""


# -- inside ------------------------------------------------------------------------------------------------------


def _model(run: Path, told: Told, which: str) -> tuple[Any, Any]:
    """The model to go on from, and its tokenizer."""
    source, seed, folder = told.source, told.config.seed, named.model_folder(run)
    if which == "end" and told.trainer == "reward":
        judge, words = RewardModel.load_with_tokenizer(folder)
        return as_classifier(judge, words)[0], words
    if which == "end":
        return load_folder(folder)
    if source.model in tiny.PRESETS:
        tokenizer = load_tokenizer(folder)
        model = tiny.tiny_model(source.model, tokenizer, seed=seed, context=source.context)
    else:
        model, tokenizer = named.model_by_name(source.model)
    if told.trainer == "reward":
        return as_classifier(RewardModel.from_causal_lm(model, seed=seed), tokenizer)[0], tokenizer
    return model, tokenizer


def _rows(told: Told) -> list[dict[str, Any]]:
    """What the run trained on, in TRL's fields."""
    source = told.source
    world = getattr(source, "task", None)
    if world is not None and isinstance(source, from_files.OnlineSource):
        records: Iterable[Any] = task_problems(tasks.get(world), "train")
    elif world is not None:
        raise UserError(f"{told.trainer}: demonstrations of a tiny world are made anew for every run; give --data")
    else:
        train, _ = from_files.read(source, told.config.seed)
        kinds: dict[str, Any] = {"sft": train.conversations, "reward": train.comparisons}
        of_recipe = train.problems if isinstance(told.recipe, Recipe) else train.comparisons
        records = kinds.get(told.trainer, of_recipe)()
    return [_row(record) for record in records]


def _row(record: Conversation | Comparison | Problem) -> dict[str, Any]:
    match record:
        case Conversation(messages, context):
            before = context or len(messages) - 1
            return {"prompt": messages[:before], "completion": messages[before:]}
        case Comparison(prompt, chosen, rejected, margin):
            return {
                "prompt": prompt,
                "chosen": chosen,
                "rejected": rejected,
                **({"margin": margin} if margin is not None else {}),
            }
        case Problem(prompt, reference):
            return {"prompt": prompt, "reference": reference}


def _grader(told: Told, folder: Path) -> str:
    """``grader.py``: the run's grader, with a wrapper for TRL."""
    source, recipe = told.source, told.recipe
    assert isinstance(source, from_files.OnlineSource) and isinstance(recipe, Recipe)
    if source.task is not None:
        made = f"rewards.task_reward(tasks.get({source.task!r}))"
    elif source.reward_model is not None:
        shutil.copytree(named.model_folder(Path(source.reward_model)), folder / "reward_model")
        made = 'rewards.model_reward(*RewardModel.load_with_tokenizer("reward_model"))'
    elif own.is_named(str(source.grader)):
        file, function = own.function(str(source.grader))
        shutil.copy(file, folder / file.name)
        made = f'own.own_reward("{file.name}:{function.__name__}", seconds={source.grader_seconds})'
    else:
        made = f"rewards.reference_reward(graders.get({source.grader!r}))"
    shape = ", ".join(
        f"partial(parts.{name_of(f).partition('(')[0]}, **{getattr(f, 'keywords', {})!r})" for f in recipe.collect.shape
    )
    return GRADER.format(made=made, shape=f"({shape},)" if shape else "()")


GRADER = '''"""The run's grader, for any engine: ``grade(messages, text, reference) -> float``, NaN where it could not be graded.

Needs the package minirlhf (``pip install minirlhf``) beside the engine.
"""

from functools import partial

import torch
from minirlhf.data import tasks
from minirlhf.data.records import Problem
from minirlhf.data.types import Rollout
from minirlhf.feedback import graders, own, rewards
from minirlhf.data.chat import ends_of
from minirlhf.models.heads import RewardModel
from minirlhf.recipes import parts
from transformers import AutoTokenizer

REWARD = {made}
SHAPE = {shape}  # what the recipe does to rewards, which the engine does not do
TOKENIZER = AutoTokenizer.from_pretrained("model")
ENDS = set(ends_of(TOKENIZER).ids)


def grade(messages, text, reference=None):
    return rewards.ask(REWARD, [Problem(messages, reference)], [text])[0][0]


def shaped(values, completion_ids):
    """The rewards with what the recipe charges for length."""
    width = max(map(len, completion_ids))
    mask = torch.tensor([[i < len(ids) for i in range(width)] for ids in completion_ids])
    nothing = torch.zeros(mask.shape)
    ended = torch.tensor([ids[-1] in ENDS for ids in completion_ids])
    rollout = Rollout(mask.long(), mask.long(), mask, nothing, nothing, mask.long(), ended, len(completion_ids))
    found = torch.tensor(values)
    for function in SHAPE:
        found = function(found, rollout)
    return found.tolist()


def trl_reward(prompts, completion_ids, reference=None, **_):
    """For TRL: it takes special tokens out of the text, so the text is made from the tokens."""
    texts = [TOKENIZER.decode(ids[:-1] if ids[-1] in ENDS else ids).strip() for ids in completion_ids]
    asked = zip(prompts, texts, reference or [None] * len(texts))
    values = shaped([grade(*one) for one in asked], completion_ids)
    return [None if value != value else value for value in values]
'''
