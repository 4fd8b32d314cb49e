"""The inputs of a run from files: data, model, grader, output folder. The fields become command-line flags.

Each class reports which of its fields have no effect (:meth:`Source.unused_options`), and refuses contradictory
settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from minirlhf.core.errors import UserError, format_value, unknown
from minirlhf.core.options import option
from minirlhf.data import tasks
from minirlhf.data.examples import TRAIN_ON
from minirlhf.data.types import TRUNCATION_MODES
from minirlhf.feedback import custom_rewards, graders
from minirlhf.feedback.custom_losses import is_custom
from minirlhf.feedback.rewards import COMBINATIONS
from minirlhf.models import tiny
from minirlhf.models.heads import POOLINGS
from minirlhf.trainers import live
from minirlhf.trainers.sft import LOSSES

#: The empty mapping of settings that the user chose.
EMPTY: Mapping[str, Any] = MappingProxyType({})

TASK = f"toy task in place of data: {', '.join(tasks.TASKS)}"
REFERENCE = "frozen reference model: folder, zoo entry or hub name; None: the initial model"


#: The settings that name fields of the rows, each with the name of the field in the formats.
FIELDS = {
    f"{name}_field": name for name in ("prompt", "completion", "chosen", "rejected", "messages", "answer", "rating")
}


def named_fields(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the fields of the formats whose name in the rows is among the settings."""
    return {name: settings[setting] for setting, name in FIELDS.items() if settings.get(setting) is not None}


@dataclass(frozen=True)
class Source:
    """Where data and model come from, and where results go."""

    out: str = option("", "output folder of the run")
    data: str | None = option(None, "training data: file (.jsonl, .json, .csv, .parquet), folder, or hub name")
    format: str | None = option(None, "format of the data; None: detected from its fields")
    split: str | None = option(None, "split of a folder or hub data set")
    limit: int | None = option(None, "maximum number of rows to read")
    prompt_field: str | None = option(None, "field of the rows that holds the prompt; None: prompt")
    completion_field: str | None = option(None, "field of the rows that holds the completion; None: completion")
    chosen_field: str | None = option(None, "field of the rows that holds the better completion; None: chosen")
    rejected_field: str | None = option(None, "field of the rows that holds the worse completion; None: rejected")
    messages_field: str | None = option(None, "field of the rows that holds the messages; None: messages")
    answer_field: str | None = option(None, "field of the rows that holds the right answer; None: answer")
    rating_field: str | None = option(None, "field of the rows that holds the rating of a completion; None: rating")
    model: str = option("nano", "untrained preset (nano, micro, small), model folder, zoo entry or hub name")
    vocab_size: int = option(2048, "maximum vocabulary size of a preset's tokenizer, which is trained on the data")
    context: int = option(512, "context length of a preset, in tokens")
    chat_template: str | None = option(None, "file with a chat template; None: the template of the tokenizer")
    chat_template_kwargs: str | None = option(
        None, 'arguments of the chat template, as JSON: {"enable_thinking": false}'
    )
    dtype: str = option("float32", "dtype of the weights: float32, bfloat16, float16, float64")
    device: str | None = option(None, "device: cpu, cuda, cuda:1, mps; None: the first CUDA GPU, else the CPU")
    bf16: bool | None = option(None, "mixed precision: bfloat16 autocast, weights keep their dtype; None: on CUDA only")
    eval_fraction: float = option(
        0.1, "fraction of the rows held out as the eval set, by prompt, in [0, 1); 0: train on all rows"
    )
    eval_data: str | None = option(
        None, "eval set in the format of --data: file, folder, or hub name; None: held-out prompts"
    )
    eval_steps: int = option(0, "evaluation interval during training, in steps; 0: no evaluation during training")
    report_to: str | None = option(
        None,
        "export the metrics during the run: tensorboard (view: tensorboard --logdir OUT) or wandb (WANDB_PROJECT names "
        "the project)",
    )
    lora_r: int = option(0, "rank of LoRA adapters; 0: full fine-tuning")
    lora_alpha: float | None = option(None, "LoRA alpha: the adapter output is scaled by alpha / rank; None: 2 · rank")
    lora_dropout: float = option(
        0.0, "dropout rate of the LoRA input; online, offline and distill train without dropout"
    )
    drop_identical: bool = option(False, "drop pairs of identical completions and report their number; False: an error")
    drop_long: bool = option(
        False,
        "drop examples that do not fit into the context (with max_completion_length, if completions are sampled) and report their number; False: an error",
    )

    max_length: int | None = option(
        None, "maximum tokens of an example; with --packing also of a row; None: the context length"
    )
    truncation_mode: str | None = option(
        None,
        "part of a longer example to keep: keep_start (cut on the right) or keep_end (cut on the left); None: refuse "
        "longer examples, or drop them with --drop-long",
    )
    load_best_model_at_end: bool = option(
        False,
        "end with the checkpoint that measured best on the eval set (loss, reward or accuracy, every --eval-steps)",
    )

    def __post_init__(self) -> None:
        if not self.out:
            raise UserError("no output folder; give --out FOLDER", argument="--out", problem="missing")
        if self.eval_steps < 0:
            raise UserError(f"eval_steps = {self.eval_steps}; expected at least 0")
        if self.max_length is not None and self.max_length < 2:
            message = f"max_length = {self.max_length}; expected at least 2"
            raise UserError(message, argument="max_length", value=self.max_length, expected=2)
        if self.truncation_mode is not None and self.truncation_mode not in TRUNCATION_MODES:
            raise unknown("truncation_mode", self.truncation_mode, TRUNCATION_MODES)
        if self.truncation_mode is not None and self.drop_long:
            message = f"truncation_mode = {self.truncation_mode!r} and drop_long: give one of the two"
            raise UserError(message, argument="drop_long", expected="truncation_mode", problem="exclusive")
        if self.load_best_model_at_end and not self.eval_steps:
            message = "load_best_model_at_end: nothing is measured during training; give --eval-steps N"
            raise UserError(message, argument="eval_steps", value=0, expected=1, problem="missing")
        live.require(self.report_to)

    @property
    def fields(self) -> dict[str, str]:
        """The names that fields have in the rows, where they differ from those of the formats."""
        return named_fields(vars(self))

    def unused_options(self, max_steps: int | None) -> dict[str, str]:
        """Return the fields that have no effect in a run of ``max_steps`` steps (None: not known), each with the reason."""
        unused: dict[str, str] = {}
        if not self.lora_r:
            unused |= dict.fromkeys(("lora_alpha", "lora_dropout"), "without --lora-r there is no adapter")
        if self.model not in tiny.PRESETS:
            unused |= dict.fromkeys(
                ("vocab_size", "context"), f"only for a preset; {self.model} has its own tokenizer and context length"
            )
        if self.eval_data is not None:
            unused["eval_fraction"] = "--eval-data is the eval set"
        elif self.eval_fraction == 0:
            unused |= dict.fromkeys(("eval_steps", "load_best_model_at_end"), "eval_fraction = 0: there is no eval set")
        if max_steps is not None and self.eval_steps > max_steps:
            few = f"the run has only {max_steps} steps"
            unused |= dict.fromkeys(("eval_steps", "load_best_model_at_end"), few)
        return unused


#: Inputs that a toy task provides itself, and data settings, which have no effect for a toy task.
PROVIDED_BY_TASK = ("data", "eval_data")
DATA_ONLY_OPTIONS = (
    "format",
    "split",
    "limit",
    *FIELDS,
    "eval_fraction",
    "vocab_size",
    "drop_identical",
)


@dataclass(frozen=True)
class TaskSource(Source):
    """For trainers that accept a toy task in place of data and grader."""

    task: str | None = option(None, TASK)

    def __post_init__(self) -> None:
        super().__post_init__()
        conflicts = [
            name for name in PROVIDED_BY_TASK if self.task is not None and getattr(self, name, None) is not None
        ]
        if conflicts:
            flags = " and ".join(f"--{name.replace('_', '-')}" for name in conflicts)
            raise UserError(
                f"task = {format_value(self.task)} cannot be combined with {flags}, which it replaces; give one of the two"
            )

    def unused_options(self, max_steps: int | None) -> dict[str, str]:
        """Add the data settings if the source is a toy task."""
        data_options = (
            {} if self.task is None else dict.fromkeys(DATA_ONLY_OPTIONS, f"the toy task {self.task} replaces the data")
        )
        return {**super().unused_options(max_steps), **data_options}


@dataclass(frozen=True)
class SFTSource(TaskSource):
    """For supervised fine-tuning: learned tokens and loss; a toy task's demonstrations can replace the data."""

    demonstrations: int = option(2000, "number of demonstrations of a toy task")
    train_on: str = option(
        "assistant",
        "tokens in the loss: assistant (all assistant turns with their end tokens), last (last assistant turn only), "
        "all (also user turns and template tokens)",
    )
    loss_type: str = option(
        "nll",
        "nll (negative log-likelihood), dft (dynamic fine-tuning: each token weighted by its probability), or your own "
        "function: FILE.py:NAME",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, table in (("train_on", TRAIN_ON), ("loss_type", LOSSES)):
            if getattr(self, name) not in table and not (name == "loss_type" and is_custom(self.loss_type)):
                raise unknown(name, getattr(self, name), table)

    def unused_options(self, max_steps: int | None) -> dict[str, str]:
        """Add the task settings if there is no toy task."""
        task_options = {"demonstrations": "only for a toy task (--task)"} if self.task is None else {}
        return {**super().unused_options(max_steps), **task_options}


@dataclass(frozen=True)
class DistillSource(TaskSource):
    """For distillation from a teacher; a toy task's demonstrations can replace the data."""

    teacher: str | None = option(None, "teacher model: zoo entry, model folder or hub name")
    demonstrations: int = option(2000, "number of demonstrations of a toy task")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.teacher is None:
            raise UserError(
                "no teacher; give --teacher, a zoo entry, model folder or hub name",
                argument="--teacher",
                problem="missing",
            )

    def unused_options(self, max_steps: int | None) -> dict[str, str]:
        """Add the task settings if there is no toy task."""
        task_options = {"demonstrations": "only for a toy task (--task)"} if self.task is None else {}
        preset = {"vocab_size": "the student uses the teacher's tokenizer"}
        return {**super().unused_options(max_steps), **preset, **task_options}


@dataclass(frozen=True)
class RewardSource(Source):
    """For a reward model."""

    pooling: str = option(
        "last", f"pooling of the token scores: {', '.join(POOLINGS)} (last token, or mean over tokens)"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pooling not in POOLINGS:
            raise unknown("pooling", self.pooling, POOLINGS)


@dataclass(frozen=True)
class OfflineSource(Source):
    """For learning from given preferences."""

    ref_model: str | None = option(None, REFERENCE)


@dataclass(frozen=True)
class GradedSource(TaskSource):
    """For learning from graded on-policy completions; a toy task can replace data and grader."""

    grader: str | None = option(
        None,
        "grader, by default the toy task's own if there is one: "
        f"{', '.join(graders.GRADERS)}, a weighted sum such as gsm8k*0.9+think*0.1, your own function: "
        "FILE.py:NAME, or field:NAME, a field of the rows that names the grader of each",
    )
    grader_timeout: float = option(10.0, "time limit of your own grader function, in seconds per completion")
    thought_tags: str = option(
        ",".join(graders.THOUGHTS), "tags that open and close a thought; graders read the answer after it"
    )
    reward_model: str | None = option(None, "folder of the reward model that grades; A,B: an ensemble")
    reward_aggregation: str = option(
        "mean", f"ensemble aggregation of several reward models: {', '.join(COMBINATIONS)}"
    )

    def unused_options(self, max_steps: int | None) -> dict[str, str]:
        """Add the settings of graders of another kind, and those of examples that have a completion."""
        no_cut = dict.fromkeys(("max_length", "truncation_mode"), "the data are prompts, which are never cut")
        return {**unused_grading_options(self.grader, self.reward_model), **no_cut, **super().unused_options(max_steps)}


def unused_grading_options(grader: str | None, reward_model: str | None) -> dict[str, str]:
    """Return the grading settings that have no effect with this grader, each with the reason."""
    unused = {}
    if grader is None or not custom_rewards.is_named(grader):
        unused["grader_timeout"] = "only your own function (--grader FILE.py:NAME) has a time limit"
    if grader is None or custom_rewards.is_named(grader):
        unused["thought_tags"] = "reward models and your own functions read the whole completion"
    if reward_model is None or "," not in reward_model:
        unused["reward_aggregation"] = "only for an ensemble (--reward-model A,B)"
    return unused


@dataclass(frozen=True)
class OnlineSource(GradedSource):
    """For online reinforcement learning."""

    ref_model: str | None = option(None, REFERENCE)
    ptx_data: str | None = option(
        None, "texts for the pretraining (ptx) term: conversations, in the format of train sft"
    )
