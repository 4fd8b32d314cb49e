"""Settings of the trainers: frozen dataclasses, filled the same way from flags, YAML or Python."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from minirlhf.core.errors import UnusedOptionNotice, UserError, format_value, unknown
from minirlhf.core.options import option

if TYPE_CHECKING:  # keep PyTorch out of the import of the settings, for example for a command's help
    from minirlhf.models.sampling import Sampling


def unused_options(config: Any, reasons: Mapping[str, str], given: Collection[str] = ()) -> list[UnusedOptionNotice]:
    """Return a message for each field in ``reasons`` that is in ``given`` or differs from its default."""
    defaults = {f.name: f.default for f in dataclasses.fields(config)}
    return [
        UnusedOptionNotice(f"no effect of {name} = {format_value(getattr(config, name))}: {reason}", name)
        for name, reason in reasons.items()
        if name in defaults and (name in given or getattr(config, name) != defaults[name])
    ]


#: Learning-rate factors by name; progress runs from 0 to 1.
SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda progress: 1.0,
    "linear": lambda progress: 1.0 - progress,
    "cosine": lambda progress: 0.5 * (1.0 + math.cos(math.pi * progress)),
}


#: Help of ``disable_dropout``; TRL has the same switch and the same default for each trainer that has it there.
DISABLE_DROPOUT = "train without the model's dropout; the micro-batch size then does not change the result"


@dataclass(frozen=True)
class TrainerConfig:
    """Settings common to all trainers."""

    max_steps: int = option(100, "number of training steps; in online RL one rollout each")
    epochs: float | None = option(None, "passes over the training examples, in place of max_steps, > 0")
    batch_size: int = option(32, "examples per step")
    micro_batch_size: int | None = option(
        None, "rows per forward pass; None: the whole batch; without dropout the result is the same"
    )
    learning_rate: float = option(
        1e-3,
        "peak learning rate of AdamW; a model of 20 M parameters or more has its own default, which the run prints",
    )
    lr_scheduler_type: str = option("constant", "learning-rate schedule after warm-up: constant, linear or cosine")
    warmup_steps: int = option(0, "steps of linear learning-rate warm-up; 0: none")
    weight_decay: float = option(0.0, "decoupled weight decay of AdamW")
    max_grad_norm: float = option(1.0, "maximum norm of the gradient, > 0; a larger gradient is clipped")
    seed: int = option(0, "random seed of the run")
    save_steps: int = option(0, "checkpoint interval in steps; 0: only at the end")

    def __post_init__(self) -> None:
        for name in ("max_steps", "batch_size"):
            _at_least(self, name, 1)
        for name in ("warmup_steps", "save_steps", "seed", "weight_decay"):
            _at_least(self, name, 0)
        if self.micro_batch_size is not None:
            _at_least(self, "micro_batch_size", 1)
        for name in ("learning_rate", "max_grad_norm", *(("epochs",) if self.epochs is not None else ())):
            _positive(self, name)
        if self.lr_scheduler_type not in SCHEDULES:
            raise unknown("lr_scheduler_type", self.lr_scheduler_type, SCHEDULES)

    def unused_options(self) -> dict[str, str]:
        """The fields that do nothing at these settings, and why."""
        if self.epochs is not None:
            return {"max_steps": "epochs sets the number of steps"}
        reasons = {}
        if self.save_steps >= self.max_steps:
            reasons["save_steps"] = f"the run has {self.max_steps} steps and always saves a checkpoint at the end"
        if self.warmup_steps >= self.max_steps:
            reasons["lr_scheduler_type"] = f"the warm-up takes all {self.max_steps} steps of the run"
        return reasons

    def for_examples(self, count: int) -> Self:
        """Return the settings of a run over ``count`` examples, whose number of steps follows from ``epochs``."""
        if self.epochs is None:
            return self
        return dataclasses.replace(self, max_steps=self._steps(math.ceil(round(self.epochs * count, 6))))

    def _steps(self, num_examples: int) -> int:
        """Return the number of steps that take this many examples."""
        return math.ceil(num_examples / self.batch_size)

    def learning_rate_at(self, step: int) -> float:
        """Return the learning rate of a step, counted from 0."""
        if step < self.warmup_steps:
            return self.learning_rate * (step + 1) / self.warmup_steps
        decay_steps = max(1, self.max_steps - self.warmup_steps)
        return self.learning_rate * SCHEDULES[self.lr_scheduler_type]((step - self.warmup_steps) / decay_steps)


@dataclass(frozen=True)
class CompletionsConfig(TrainerConfig):
    """Settings common to all trainers that sample completions."""

    max_completion_length: int = option(
        32,
        "maximum length of a completion in tokens, end-of-sequence token included; a model of 20 M parameters or more has its own default, which the run prints",
    )
    temperature: float = option(
        1.0,
        "sampling temperature, > 0; also of the log-probabilities in online RL and of the divergence in distillation",
    )
    top_k: int = option(0, "sample among the k most probable tokens; 0: all")
    top_p: float = option(1.0, "sample from the smallest set of tokens with this total probability, in (0, 1]; 1: all")
    min_p: float = option(
        0.0, "minimum probability of a token relative to the most probable one, in [0, 1]; 0: all tokens"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        _at_least(self, "max_completion_length", 1)
        self.sampling()  # raises if a sampling option is invalid

    def sampling(self) -> Sampling:
        """Return the sampling options as one object."""
        from minirlhf.models.sampling import Sampling

        return Sampling(
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            max_completion_length=self.max_completion_length,
        )


@dataclass(frozen=True)
class SamplingConfig(CompletionsConfig):
    """Settings common to all trainers that learn from graded completions of their own model."""

    num_generations: int = option(8, "completions per prompt (group size G)")
    max_invalid_fraction: float = option(
        0.5, "stop if grading fails for more than this fraction of a rollout, in [0, 1]"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 <= self.max_invalid_fraction <= 1.0:
            raise UserError(
                f"max_invalid_fraction = {self.max_invalid_fraction!r}; expected a fraction from 0 to 1",
                argument="max_invalid_fraction",
                value=self.max_invalid_fraction,
                expected=(0, 1),
            )
        _at_least(self, "num_generations", 1)


@dataclass(frozen=True)
class OnlineConfig(SamplingConfig):
    """Settings of online reinforcement learning. ``batch_size`` counts prompts."""

    batch_size: int = option(16, "prompts per rollout")
    staleness: int = option(0, "off-policy lag: training steps by which the sampling policy lags behind; 0: no lag")
    num_logged_samples: int = option(4, "logged samples per step, for `minirlhf explain`; 0: none")

    def __post_init__(self) -> None:
        super().__post_init__()
        _at_least(self, "num_logged_samples", 0)
        _at_least(self, "staleness", 0)


#: Selection rules of rejection sampling: see :mod:`minirlhf.trainers.rejection`.
SELECTIONS = ("per_prompt", "overall", "random")


@dataclass(frozen=True)
class RejectionConfig(SamplingConfig):
    """Settings of rejection sampling: a round samples, keeps some completions and imitates them for some steps."""

    max_steps: int = option(60, "optimizer steps of the run, all rounds together")
    batch_size: int = option(32, "kept completions per optimizer step")
    num_prompts: int = option(64, "prompts per round")
    steps_per_round: int = option(20, "optimizer steps per round, on the kept completions")
    selection: str = option(
        "per_prompt",
        f"completions to keep: {', '.join(SELECTIONS)} (best of each prompt, best of the round, or random as a control)",
    )
    keep: int = option(0, "kept completions per round, for overall and random; 0: as many as prompts")
    disable_dropout: bool = option(False, DISABLE_DROPOUT)

    def _steps(self, num_examples: int) -> int:
        """See :meth:`TrainerConfig._steps`; here an example is a prompt, and a round takes ``num_prompts`` of them."""
        return math.ceil(num_examples / self.num_prompts) * self.steps_per_round

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("num_prompts", "steps_per_round"):
            _at_least(self, name, 1)
        _at_least(self, "keep", 0)
        if self.selection not in SELECTIONS:
            raise unknown("selection", self.selection, SELECTIONS)
        if self.keep and self.selection == "per_prompt":
            raise UserError(
                f"keep = {self.keep}; expected 0 with selection = 'per_prompt', which keeps one completion per prompt",
                argument="keep",
                value=self.keep,
                expected=0,
            )
        if self.keep > self.num_prompts * self.num_generations:
            raise UserError(
                f"keep = {format_value(self.keep)}; expected at most num_prompts · num_generations = {self.num_prompts * self.num_generations}",
                argument="keep",
                value=self.keep,
                expected=self.num_prompts * self.num_generations,
            )


def _at_least(config: Any, name: str, low: float) -> None:
    if not getattr(config, name) >= low:
        value = getattr(config, name)
        raise UserError(
            f"{name} = {format_value(value)}; expected at least {low}", argument=name, value=value, expected=low
        )


def _positive(config: Any, name: str) -> None:
    value = getattr(config, name)
    if not 0 < value < math.inf:
        raise UserError(
            f"{name} = {format_value(value)}; expected a finite number > 0", argument=name, value=value, expected="> 0"
        )
