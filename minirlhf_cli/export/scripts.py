"""The training script for each engine, with the run's settings under the engine's names.

:data:`SETTINGS` lists those names; appendix C of the book prints it, together with the maps of the recipes.
"""

from __future__ import annotations

import math
import pprint
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from minirlhf.core.errors import UserError
from minirlhf.recipes import Recipe
from minirlhf.recipes.options import head
from minirlhf.recipes.parts import GAE
from minirlhf.trainers.config import OnlineConfig
from minirlhf_cli.export import hooks, openrlhf, verl
from minirlhf_cli.export.mapped import ExportPlan, NoCounterpartError, RunSpec, refuse_settings


@dataclass(frozen=True)
class Data:
    """Properties of the data and the exported folder that a script needs.

    Attributes:
        rows: number of rows.
        prompt: tokens of the longest prompt.
        whole: tokens of the longest row, prompt and completion.
        adapter: whether the folder holds a trained adapter.
        reference: whether the folder holds a reference model that differs from the model.
        several: whether several turns of one conversation are learned.
        marked: whether the chat template marks the assistant's tokens ({% generation %}).
        row: tokens of a packed row; None: rows are not packed.
    """

    rows: int
    prompt: int
    whole: int
    adapter: bool = False
    reference: bool = False
    several: bool = False
    marked: bool = True
    row: int | None = None


_ACTOR, _ROLLOUT = verl.ACTOR, "actor_rollout_ref.rollout"
#: A setting of a run -> its name in TRL, in verl and in OpenRLHF; "" if the engine has no such setting.
SETTINGS: dict[str, tuple[str, str, str]] = {
    "learning_rate": ("learning_rate", f"{_ACTOR}.optim.lr", "actor.adam.lr"),
    "lr_scheduler_type": ("lr_scheduler_type", f"{_ACTOR}.optim.lr_scheduler_type", "actor.lr_scheduler"),
    "warmup_steps": ("warmup_steps", f"{_ACTOR}.optim.lr_warmup_steps", "actor.lr_warmup_ratio"),
    "weight_decay": ("weight_decay", f"{_ACTOR}.optim.weight_decay", "actor.adam.weight_decay"),
    "max_grad_norm": ("max_grad_norm", f"{_ACTOR}.optim.clip_grad", "actor.max_norm"),
    "seed": ("seed", "data.seed", "train.seed"),
    "max_steps": ("max_steps", "trainer.total_training_steps", "train.num_episodes"),
    "batch_size": ("per_device_train_batch_size", "data.train_batch_size", "rollout.batch_size"),
    "num_generations": ("num_generations", f"{_ROLLOUT}.n", "rollout.n_samples_per_prompt"),
    "max_completion_length": ("max_completion_length", "data.max_response_length", "rollout.max_new_tokens"),
    "temperature": ("temperature", f"{_ROLLOUT}.temperature", "rollout.temperature"),
    "top_k": ("top_k", f"{_ROLLOUT}.top_k", ""),
    "top_p": ("top_p", f"{_ROLLOUT}.top_p", "rollout.top_p"),
    "min_p": ("min_p", "", ""),
    "num_minibatches": ("steps_per_generation", f"{_ACTOR}.ppo_mini_batch_size", "train.batch_size"),
    "lora_r": ("LoraConfig.r", "actor_rollout_ref.model.lora_rank", "ds.lora.rank"),
    "lora_alpha": ("LoraConfig.lora_alpha", "actor_rollout_ref.model.lora_alpha", "ds.lora.alpha"),
    "lora_dropout": ("LoraConfig.lora_dropout", "", "ds.lora.dropout"),
}


def _named(engine: int, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings under the engine's names."""
    return {SETTINGS[name][engine]: value for name, value in values.items()}


def _lora(spec: RunSpec) -> dict[str, Any]:
    source = spec.source
    alpha = 2 * source.lora_r if source.lora_alpha is None else source.lora_alpha
    return {"lora_r": source.lora_r, "lora_alpha": alpha, "lora_dropout": source.lora_dropout} if source.lora_r else {}


# -- TRL ---------------------------------------------------------------------------------------------------------


class AtRunTime(str):
    """An expression that the script evaluates when it runs."""

    __repr__ = str.__str__


#: Whether to compute in bfloat16. The default is that of this library: on a GPU.
HALF = AtRunTime("torch.cuda.is_available() and torch.cuda.is_bf16_supported()")


def for_trl(spec: RunSpec, plan: ExportPlan, data: Data) -> str:
    """Return ``train.py``, for ``python train.py`` or ``torchrun --nproc-per-node N train.py``.

    Raises:
        NoCounterpartError: a setting has no counterpart.
    """
    module, _, trainer = plan.trainer.rpartition(".")
    config, source = spec.config, spec.source
    rows, steps = config.batch_size, config.max_steps
    names = ["learning_rate", "lr_scheduler_type", "warmup_steps", "weight_decay", "max_grad_norm", "seed"]
    if isinstance(config, OnlineConfig) and isinstance(spec.recipe, Recipe):
        update = spec.recipe.update
        rows = config.batch_size * config.num_generations // update.num_minibatches
        steps *= update.num_iterations * update.num_minibatches  # optimizer steps
        names += ["num_generations", "max_completion_length", "temperature", "top_k", "top_p", "min_p"]
    options = {
        "output_dir": "out", **_named(0, {name: getattr(config, name) for name in names}), "max_steps": steps,
        "bf16": HALF if source.bf16 is None else source.bf16, "logging_steps": 1, "save_strategy": "no", "report_to": [],
        **plan.options, **_replies(spec, data),
    }  # fmt: skip
    options = {name: value for name, value in options.items() if value is not None and (name, value) != ("min_p", 0.0)}
    # TRL's defaults: truncation at 1,024 tokens; dropout in online training, where we have none.
    options |= {"disable_dropout": True} if isinstance(spec.recipe, Recipe) else {"max_length": data.row}
    # The rows left over at the end of an epoch: one process takes them as a smaller batch, several fill it up with others.
    whole_batches = not isinstance(spec.recipe, Recipe) and data.row is None and data.rows >= rows
    options |= {"dataloader_drop_last": True} if whole_batches else {}
    options |= {"disable_dropout": getattr(config, "disable_dropout", True)} if spec.trainer == "reward" else {}
    task_type = "SEQ_CLS" if spec.trainer == "reward" else "CAUSAL_LM"
    lora = {SETTINGS[name][0].removeprefix("LoraConfig."): value for name, value in _lora(spec).items()}
    new_lora = (
        f"\n    peft_config=LoraConfig(**{lora!r}, target_modules='all-linear', task_type={task_type!r}),"
        if lora
        else ""
    )
    peft_argument, preamble = ("", ADAPTER) if data.adapter else (new_lora, "")
    imports, trainer_code = _hook(trainer, plan)
    templates = {
        "GRPOTrainer": GRADED,
        "GMPOTrainer": GRADED,
        "RLOOTrainer": GRADED,
        "DPOTrainer": COMPARED,
        "KTOTrainer": COMPARED,
        "RewardTrainer": JUDGED,
    }
    return SCRIPT.format(
        name=spec.name,
        module=module,
        trainer=trainer,
        config=trainer.replace("Trainer", "Config"),
        imports=imports + (f"from peft import {'PeftModel' if data.adapter else 'LoraConfig'}\n" if lora else ""),
        rows=rows,
        options=pprint.pformat(options, width=110, sort_dicts=False),
        extra=templates.get(trainer, PLAIN).format(
            trainer=trainer_code,
            more=peft_argument,
            before=preamble + (ELSEWHERE if data.reference else ""),
            reference="" if lora else "\n    ref_model=reference,",
            place="reference" if data.reference else "model",
        ),
    )


def _replies(spec: RunSpec, data: Data) -> dict[str, Any]:
    """Return the options for the learned turns of a conversation."""
    if not data.several or getattr(spec.source, "train_on", "") == "all":
        return {}
    if not data.marked:
        raise NoCounterpartError(
            "TRL",
            spec.name,
            "several replies of a conversation to learn from, without {% generation %} in the chat template",
            argument="chat_template",
        )
    return {"assistant_only_loss": True, "completion_only_loss": False}


def _hook(trainer: str, plan: ExportPlan) -> tuple[str, str]:
    """Return the imports and the trainer expression, with the recipe's advantage and sample filter."""
    functions = {"advantage": plan.advantage, "sample_filter": plan.sample_filter}
    if not any(functions.values()):
        return "", trainer
    hook = hooks.adapted
    imports, arguments = ["from functools import partial", f"from {hook.__module__} import {hook.__name__}"], []
    for name, function in functions.items():
        if function is None:
            continue
        unbound = head(function)
        imports.append(f"from {unbound.__module__} import {unbound.__name__}")
        arguments.append(f"{name}=partial({unbound.__name__}, **{getattr(function, 'keywords', {})!r})")
    return "".join(f"{line}\n" for line in imports), f"{hook.__name__}({trainer}, {', '.join(arguments)})"


SCRIPT = '''"""{name}, as minirlhf ran it; see DIFFERENCES.md.

    python train.py                           one process
    torchrun --nproc-per-node 2 train.py      several: the batch is divided among them

`accelerate launch --config_file FSDP.yaml train.py` shards the model; vLLM and other engines are options of the configuration below.
"""

import os

import torch
from datasets import load_dataset
from {module} import {config}, {trainer}
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer
{imports}
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
tokenizer.save_pretrained("out/model")
'''
ADAPTER = """model = PeftModel.from_pretrained(model, "adapter", is_trainable=True)
"""
ELSEWHERE = """model.config._name_or_path = "reference"  # where the trainer reads its reference from
"""
PLAIN = """model = AutoModelForCausalLM.from_pretrained("model", dtype="float32")
{before}trainer = {trainer}(
    model=model, args=arguments, train_dataset=data, processing_class=tokenizer,{more}
)"""
GRADED = """import grader

model = AutoModelForCausalLM.from_pretrained("model", dtype="float32")
{before}trainer = {trainer}(
    model=model, reward_funcs=[grader.trl_reward], args=arguments, train_dataset=data, processing_class=tokenizer,{more}
)"""
COMPARED = """model, reference = (AutoModelForCausalLM.from_pretrained(f, dtype="float32") for f in ("model", "{place}"))
{before}trainer = {trainer}(
    model=model, args=arguments, train_dataset=data, processing_class=tokenizer,{reference}{more}
)"""
JUDGED = """model = AutoModelForSequenceClassification.from_pretrained("model", dtype="float32")
{before}trainer = {trainer}(
    model=model, args=arguments, train_dataset=data, processing_class=tokenizer,{more}
)"""


# -- verl --------------------------------------------------------------------------------------------------------


def for_verl(spec: RunSpec, plan: ExportPlan, data: Data) -> str:
    """Return ``train.sh``, for ``GPUS=8 bash train.sh``.

    Raises:
        NoCounterpartError: a setting has no counterpart.
        UserError: the minibatches are not whole groups.
    """
    config = spec.config
    refuse_settings(verl.ENGINE, spec.name, lr_scheduler_type="linear" if config.lr_scheduler_type == "linear" else "")
    refuse_settings(verl.ENGINE, spec.name, lora_dropout=spec.source.lora_dropout if spec.source.lora_r else 0)
    optim_names = {"learning_rate": "lr", "lr_scheduler_type": "lr_scheduler_type", "warmup_steps": "lr_warmup_steps",
             "weight_decay": "weight_decay", "max_grad_norm": "clip_grad"}  # fmt: skip
    if not isinstance(config, OnlineConfig) or not isinstance(spec.recipe, Recipe):
        options: dict[str, Any] = {f"optim.{key}": getattr(config, name) for name, key in optim_names.items()}
        options |= {
            "data.train_files": ScriptRelativePath("data.parquet"), "data.messages_key": "messages", "data.train_batch_size": config.batch_size,
            "data.max_length": data.whole, "data.use_dynamic_bsz": False, "data.micro_batch_size_per_gpu": Shell("${MICRO:-1}"), "model.path": ScriptRelativePath("model"),
            "trainer.total_training_steps": config.max_steps, "trainer.total_epochs": _epochs(config.batch_size, spec, data),
            "trainer.logger": "[console]", "trainer.default_local_dir": ScriptRelativePath("out"),
            "trainer.save_freq": config.max_steps, "trainer.n_gpus_per_node": Shell("$GPUS"),
            "checkpoint.save_contents": "[model,optimizer,extra,hf_model]", **_verl_lora(spec, data, "model"), **plan.options,
        }  # fmt: skip
        return _verl('torchrun --standalone --nproc-per-node "$GPUS" -m', spec, plan, options)
    update = spec.recipe.update
    refuse_settings(verl.ENGINE, spec.name, min_p=config.min_p)
    prompts = config.batch_size // update.num_minibatches
    if prompts * update.num_minibatches != config.batch_size:
        raise UserError(
            f"{spec.name}: verl's minibatches are whole groups; {config.batch_size} prompts (batch_size) cannot be divided into "
            f"{update.num_minibatches} of them (num_minibatches)",
            argument="num_minibatches",
            value=update.num_minibatches,
        )
    names = ["learning_rate", "lr_scheduler_type", "warmup_steps", "weight_decay", "max_grad_norm", "seed", "max_steps",
              "batch_size", "num_generations", "max_completion_length", "temperature", "top_p"]  # fmt: skip
    options = _named(1, {name: getattr(config, name) for name in names}) | {
        f"{_ROLLOUT}.seed": config.seed, f"{_ACTOR}.data_loader_seed": config.seed,
        f"{_ROLLOUT}.top_k": config.top_k or -1, f"{_ACTOR}.ppo_mini_batch_size": prompts, f"{_ROLLOUT}.name": "vllm",
        f"{_ROLLOUT}.tensor_model_parallel_size": 1, f"{_ROLLOUT}.log_prob_micro_batch_size_per_gpu": Shell("${MICRO:-1}"),
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu": Shell("${MICRO:-1}"),
        f"{_ACTOR}.ppo_micro_batch_size_per_gpu": Shell("${MICRO:-1}"), f"{_ACTOR}.entropy_coeff": 0,
        f"{_ACTOR}.checkpoint.save_contents": "[model,optimizer,extra,hf_model]", "actor_rollout_ref.model.path": ScriptRelativePath("model"),
        "data.train_files": ScriptRelativePath("data.parquet"), "data.val_files": ScriptRelativePath("data.parquet"), "data.prompt_key": "prompt",
        "data.max_prompt_length": data.prompt, "reward.custom_reward_function.path": ScriptRelativePath("grader.py"),
        "reward.custom_reward_function.name": "compute_score", "trainer.total_epochs": _epochs(config.batch_size, spec, data),
        "trainer.nnodes": 1, "trainer.n_gpus_per_node": Shell("$GPUS"), "trainer.logger": "[console]", "trainer.val_before_train": False,
        "trainer.test_freq": -1, "trainer.save_freq": config.max_steps, "trainer.default_local_dir": ScriptRelativePath("out"),
        **_verl_lora(spec, data, "actor_rollout_ref.model"),
    }  # fmt: skip
    if isinstance(spec.recipe.credit, GAE):
        ratio = spec.recipe.credit.critic.critic_learning_rate_ratio
        options |= {f"critic.optim.{key}": getattr(config, name) for name, key in optim_names.items()}
        options |= {
            "critic.optim.lr": config.learning_rate * ratio, "critic.data_loader_seed": config.seed, "critic.model.path": ScriptRelativePath("model"),
            "critic.ppo_micro_batch_size_per_gpu": Shell("${MICRO:-1}"),
        }  # fmt: skip
    if plan.options.get(f"{_ACTOR}.policy_loss.loss_mode") == "geo_mean":
        # verl's mean is over a micro-batch, and micro-batches are summed: use one micro-batch per step and GPU.
        rows = prompts * config.num_generations
        options[f"{_ACTOR}.ppo_micro_batch_size_per_gpu"] = Shell(f"$(({rows} / GPUS))")
    return _verl("python3 -m", spec, plan, options | dict(plan.options))


def _verl(cmd: str, spec: RunSpec, plan: ExportPlan, options: Mapping[str, Any]) -> str:
    arguments = [f"{name}={_written(value)}" for name, value in options.items()]
    return SHELL.format(
        name=spec.name, engine="verl", version=verl.VERSION, back="out/global_step_N/…/huggingface", start=cmd,
        module=plan.trainer, options=" \\\n    ".join(arguments),
    )  # fmt: skip


def _verl_lora(spec: RunSpec, data: Data, prefix: str) -> dict[str, Any]:
    lora = _lora(spec)
    adapter = {f"{prefix}.lora_adapter_path": ScriptRelativePath("adapter")} if data.adapter else {}
    return (
        {f"{prefix}.lora_rank": lora["lora_r"], f"{prefix}.lora_alpha": lora["lora_alpha"], **adapter} if lora else {}
    )


# -- OpenRLHF ----------------------------------------------------------------------------------------------------


def for_openrlhf(spec: RunSpec, plan: ExportPlan, data: Data) -> str:
    """Return ``train.sh``, for ``GPUS=8 bash train.sh``.

    Raises:
        NoCounterpartError: a setting has no counterpart.
    """
    config = spec.config
    if data.adapter:
        part = "a trained adapter to go on from; take --model end"
        raise NoCounterpartError("OpenRLHF", spec.name, part, argument="--model", value="adapter")
    if data.several:
        part = "several replies of a conversation to learn from"
        raise NoCounterpartError("OpenRLHF", spec.name, part, argument="messages")
    warmup = config.warmup_steps and config.lr_scheduler_type == "constant"
    optim = {"lr_scheduler": "constant_with_warmup" if warmup else config.lr_scheduler_type,
            "lr_warmup_ratio": config.warmup_steps / config.max_steps, "max_norm": config.max_grad_norm,
            "adam.lr": config.learning_rate, "adam.weight_decay": config.weight_decay, "adam.betas": (0.9, 0.999)}  # fmt: skip
    lora = _named(2, _lora(spec))
    shared = {
        "train.seed": config.seed, "train.micro_batch_size": Shell("${MICRO:-1}"), "ds.zero_stage": 2, "ds.param_dtype": "bf16",
        "data.apply_chat_template": True, "ckpt.output_dir": ScriptRelativePath("out/model"), **lora,
    }  # fmt: skip
    if not isinstance(config, OnlineConfig) or not isinstance(spec.recipe, Recipe):
        columns = {"data.input_key": "prompt", "data.output_key": "completion"}
        if spec.trainer != "sft":
            columns = {"data.prompt_key": "prompt", "data.chosen_key": "chosen", "data.rejected_key": "rejected"}
        options: dict[str, Any] = {
            "data.dataset": ScriptRelativePath("data.jsonl"), **columns, "data.max_len": data.whole, "model.model_name_or_path": ScriptRelativePath("model"),
            "train.batch_size": config.batch_size, "train.max_epochs": _epochs(config.batch_size, spec, data), **optim, **shared,
        }  # fmt: skip
        if spec.recipe is not None:
            options["ref.model_name_or_path"] = ScriptRelativePath("reference" if data.reference else "model")
        return _openrlhf('deepspeed --num_gpus "$GPUS" --module', spec, plan, options)
    update = spec.recipe.update
    refuse_settings(openrlhf.ENGINE, spec.name, top_k=config.top_k, min_p=config.min_p)
    rows = config.batch_size * config.num_generations
    if rows % update.num_minibatches:
        raise UserError(
            f"{spec.name}: {rows} completions cannot be divided into {update.num_minibatches} minibatches of OpenRLHF",
            argument="num_minibatches",
            value=update.num_minibatches,
        )
    names = ["batch_size", "num_generations", "max_completion_length", "temperature", "top_p"]
    options = _named(2, {name: getattr(config, name) for name in names}) | {
        **{f"actor.{name}": value for name, value in optim.items()}, "train.batch_size": rows // update.num_minibatches,
        "train.num_episodes": _epochs(config.batch_size, spec, data), "rollout.micro_batch_size": Shell("${MICRO:-1}"),
        "data.max_len": data.prompt + config.max_completion_length, "data.prompt_dataset": ScriptRelativePath("data.jsonl"),
        "data.input_key": "prompt", "data.label_key": "reference", "actor.model_name_or_path": ScriptRelativePath("model"),
        "reward.remote_url": ScriptRelativePath("grader.py"), "vllm.num_engines": Shell("$GPUS"), "vllm.tensor_parallel_size": 1,
        "vllm.gpu_memory_utilization": 0.5, "vllm.enable_sleep": True, "ds.enable_sleep": True, "train.colocate_all": True,
        **{f"{model}.num_gpus_per_node": Shell("$GPUS") for model in ("actor", "ref", "critic", "reward")}, **shared,
    }  # fmt: skip
    if isinstance(spec.recipe.credit, GAE):
        ratio = spec.recipe.credit.critic.critic_learning_rate_ratio
        options |= {f"critic.{name}": value for name, value in optim.items()}
        options |= {
            "critic.adam.lr": config.learning_rate * ratio,
            "critic.model_name_or_path": ScriptRelativePath("model"),
        }
    return _openrlhf("python3 -m", spec, plan, options | dict(plan.options))


def _openrlhf(cmd: str, spec: RunSpec, plan: ExportPlan, options: Mapping[str, Any]) -> str:
    arguments = []
    for name, value in {**options, **plan.options}.items():
        if value is not False:
            values = value if isinstance(value, tuple) else () if value is True else (value,)
            arguments.append(" ".join([f"--{name}", *map(_written, values)]))
    return SHELL.format(
        name=spec.name, engine="OpenRLHF", version=openrlhf.VERSION, back="out/model", start=cmd, module=plan.trainer,
        options=" \\\n    ".join(arguments),
    )  # fmt: skip


# -- inside ------------------------------------------------------------------------------------------------------

SHELL = """#!/usr/bin/env bash
# {name}, as minirlhf ran it, in the words of {engine} {version}; see DIFFERENCES.md.
# The names of the options are held to that version's; minirlhf never started it.
#
#   GPUS=8 MICRO=4 bash train.sh      so many GPUs, and rows of a forward pass on each
#   minirlhf chat {back}      and back
set -euo pipefail
HERE="$(cd "$(dirname "${{BASH_SOURCE[0]}}")" && pwd)"
GPUS="${{GPUS:-1}}"
cd "$HERE"
{start} {module} \\
    {options} \\
    "$@"
"""


class ScriptRelativePath(str):
    """A path relative to the folder of the script."""


class Shell(str):
    """A value that the shell expands."""


def _written(value: Any) -> str:
    """Return a value as a shell word."""
    if isinstance(value, ScriptRelativePath):
        return f'"$HERE/{value}"'
    if isinstance(value, Shell):
        return f'"{value}"'
    return "null" if value is None else shlex.quote(repr(value) if isinstance(value, float) else str(value))


def _epochs(rows: int, spec: RunSpec, data: Data) -> int:
    """Return the number of epochs that contain at least ``max_steps`` batches of ``rows`` rows."""
    return max(1, math.ceil(spec.config.max_steps / max(1, data.rows // rows)))


SCRIPTS: dict[str, tuple[str, Callable[[RunSpec, ExportPlan, Data], str]]] = {
    "trl": ("train.py", for_trl),
    "verl": ("train.sh", for_verl),
    "openrlhf": ("train.sh", for_openrlhf),
}
