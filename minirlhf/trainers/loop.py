"""The loop of every trainer: steps, progress, metrics, checkpoints, resume, Ctrl-C. It contains no equation.

::

    loop = TrainingLoop("sft", model, config, out=folder)
    for step in loop:
        losses = ...                        # an iterable of losses, one per micro-batch, that sum to the batch's loss
        loop.log(**loop.update(losses))
"""

from __future__ import annotations

import dataclasses
import json
import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from minirlhf.core import progress
from minirlhf.core.errors import UserError
from minirlhf.core.folders import write_text_atomic
from minirlhf.core.randomness import derive_seed
from minirlhf.models import checkpoints
from minirlhf.trainers.config import TrainerConfig
from minirlhf.trainers.history import History

#: Settings that may differ in a resumed run: its number of steps, and the description of its recipe.
MAY_CHANGE = ("max_steps", "epochs", "recipe")


class NonFiniteLoss(UserError):
    """The loss or the gradient became NaN or infinite; the last good checkpoint is kept."""


@dataclasses.dataclass(frozen=True)
class RunProvenance:
    """What a run depends on in addition to its settings, written to its ``config.json``.

    Attributes:
        depends: JSON values that must be the same when the run is resumed: the identity of its data, model and grader.
        noted: JSON values that are recorded but not compared: paths, versions.
    """

    depends: Mapping[str, Any]
    noted: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class TrainerCallback:
    """Measurements during a run: after every ``every`` steps, the numbers of ``measure()`` are logged too.

    Attributes:
        keep_best: the run saves the weights with the best measurement in :data:`BEST`, and ends with them. Which number
            is compared, :func:`number_to_compare` says; of equal ones the first is the best.
    """

    every: int
    measure: Callable[[], Mapping[str, float]]
    keep_best: bool = False


#: The sub-folder of a run for the checkpoint with the best measurement.
BEST = "best"
#: The measurements that a best checkpoint is chosen by, the first that there is; of the loss a smaller one is better.
COMPARED = ("loss", "reward", "accuracy", "margin")


def number_to_compare(measured: Mapping[str, float]) -> tuple[str, float]:
    """Return the measurement by which checkpoints are compared: its name, and its value with the sign that makes more
    better.

    Raises:
        UserError: none of :data:`COMPARED` was measured.
    """
    for kind in COMPARED:
        for name, value in measured.items():
            if name == kind or name.endswith(f"held_out_{kind}"):
                return name, -value if kind == "loss" else value
    raise UserError(
        f"no checkpoint can be the best one: nothing of {', '.join(COMPARED)} is measured, only {', '.join(measured)}",
        argument="load_best_model_at_end",
        value=list(measured),
        expected=list(COMPARED),
    )


class TrainingLoop:
    """Iterate over the steps of a run.

    Args:
        name: label of the progress bar.
        model: the model to train; only parameters that require a gradient are updated.
        config: the trainer's settings, written to ``out/config.json``.
        settings: further settings, as JSON values. A resumed run must have the same ones (except :data:`MAY_CHANGE`).
        parts: further models that are trained too (a critic), saved in sub-folders of the checkpoint. Parameters that a
            part shares with the model belong to the model's parameter group.
        ratios: learning rate of each part divided by the model's; 1 by default.
        dropout: train with the model's dropout. Without dropout the updated policy equals the policy that sampled.
        out: the run's folder, or None to keep everything in memory.
        tokenizer: saved beside the model.
        origin: what the run depends on in addition to its settings.
        watch: periodic measurements.
        resume: continue from the newest good checkpoint in ``out``. A synchronous run on a CPU ends with the same bits.
        quiet: no progress bar and no final line.

    Attributes:
        step: the number of finished steps. Where steps have a number (metrics, samples, checkpoints, messages), the first
            is 1.
        memory: tensors that are carried from step to step and saved in the checkpoints.

    Raises:
        UserError: ``out`` already contains a run and ``resume`` is False, or there is no run to resume.
    """

    def __init__(
        self,
        name: str,
        model: nn.Module,
        config: TrainerConfig,
        *,
        settings: Mapping[str, Any] | None = None,
        parts: Mapping[str, nn.Module] | None = None,
        ratios: Mapping[str, float] | None = None,
        dropout: bool = True,
        out: Path | str | None = None,
        tokenizer: Any = None,
        resume: bool = False,
        origin: RunProvenance | None = None,
        watch: TrainerCallback | None = None,
        quiet: bool = False,
    ) -> None:
        self.name, self.model, self.config, self.tokenizer, self.quiet = name, model, config, tokenizer, quiet
        self.settings = {**dataclasses.asdict(config), **(settings or {})}
        self.origin, self.watch = origin, watch
        self.parts, self.dropout = dict(parts or {}), dropout
        self.out = None if out is None else Path(out)
        model_param_ids = {id(p) for p in model.parameters()}
        groups: list[dict[str, Any]] = [{"name": "", "params": list(model.parameters()), "ratio": 1.0}]
        for key, part in self.parts.items():
            part_params = [p for p in part.parameters() if id(p) not in model_param_ids]
            groups.append({"name": key, "params": part_params, "ratio": (ratios or {}).get(key, 1.0)})
        for group in groups:
            group["params"] = [p for p in group["params"] if p.requires_grad]
        self.optimizer = torch.optim.AdamW(
            groups, lr=config.learning_rate, weight_decay=config.weight_decay, fused=True
        )
        self.trained: list[nn.Parameter] = [p for group in groups for p in group["params"]]
        self.memory: dict[str, Tensor] = {}
        self._bar: Any = None
        self._tenth = max(1, config.max_steps // 10)  # steps between two printed lines if there is no terminal
        self.step = 0
        self.history = History()
        if self.out is not None:
            self._open(self.out, resume)

    def _open(self, out: Path, resume: bool) -> None:
        metrics = out / "metrics.jsonl"
        origin = {} if self.origin is None else json.loads(json.dumps(dataclasses.asdict(self.origin)))
        if resume:
            file = out / "config.json"
            if not file.is_file():
                raise UserError(
                    f"{out}: no run to resume (no config.json)", argument="resume", problem="missing", file=file
                )
            saved = _settings_in(file)
            settings = json.loads(json.dumps(self.settings))
            changed = [k for k, v in settings.items() if saved.get(k) != v and k not in MAY_CHANGE]
            if changed:
                values = saved.get(changed[0]), self.settings[changed[0]]
                old, new = _apart(*values), _apart(*values[::-1])
                raise UserError(
                    f"{file}: {changed[0]} was {old} and is now {new}; a resumed run must keep its settings",
                    argument=changed[0],
                    value=values[1],
                    expected=values[0],
                    file=file,
                )
            depends = saved.get("depends", {})  # runs of older versions recorded fewer keys
            for key in [key for key, value in origin.get("depends", {}).items() if depends.get(key, value) != value]:
                raise UserError(
                    f"{file}: {key} was {json.dumps(depends[key])} when the run began and is now "
                    f"{json.dumps(origin['depends'][key])}; a resumed run must keep its data, model and grader",
                    argument=key,
                    value=origin["depends"][key],
                    expected=depends[key],
                    file=file,
                )
            checkpoint = checkpoints.load_latest(out)
            if checkpoint is not None:
                self._restore(checkpoint)
                checkpoints.delete_checkpoints_after(out, self.step)  # damaged ones
            self.history = History.resume(metrics, self.step)
        else:
            if metrics.exists():
                raise UserError(
                    f"{out}: already contains a run; resume it, or choose another folder",
                    argument="out",
                    value=str(out),
                    problem="exists",
                    file=metrics,
                )
            write_text_atomic(out / "config.json", json.dumps({**self.settings, **origin}, indent=2) + "\n")
            self.history = History(metrics)

    # -- state ---------------------------------------------------------------------------------------------------

    def save(self) -> None:
        """Write a checkpoint of the state after ``self.step`` steps."""
        if self.out is None:
            return
        state = {
            f"{i}.{key}": value
            for i, parameter in enumerate(self.trained)
            for key, value in self.optimizer.state.get(parameter, {}).items()
        }
        checkpoints.save(
            checkpoints.step_folder(self.out, self.step),
            self.model,
            self.tokenizer,
            extra_tensors={**state, **{f"memory.{key}": value for key, value in self.memory.items()}},
            extra_json={"step": self.step},
            parts=self.parts,
        )
        checkpoints.prune(self.out)

    def _restore(self, checkpoint: checkpoints.Loaded) -> None:
        checkpoints.restore_weights(self.model, checkpoint.folder)
        for key, part in self.parts.items():
            checkpoints.restore_weights(part, checkpoint.folder / key)

        def with_prefix(prefix: str) -> dict[str, Tensor]:
            return {k.removeprefix(prefix): v for k, v in checkpoint.tensors.items() if k.startswith(prefix)}

        for i, parameter in enumerate(self.trained):
            if state := with_prefix(f"{i}."):  # parameters that were never updated have no optimizer state
                self.optimizer.state[parameter] = state
        self.memory = with_prefix("memory.")
        self.step = int(checkpoint.info["step"])

    # -- one run -------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[int]:
        start, first = time.perf_counter(), self.step
        self._bar = bar = progress.bar(self.config.max_steps, self.name, initial=first, quiet=self.quiet)
        for model in (self.model, *self.parts.values()):
            model.train(self.dropout)
        with torch.random.fork_rng(), _asked_to_stop() as stop, bar:
            while self.step < self.config.max_steps:
                torch.manual_seed(derive_seed("dropout", self.config.seed, self.step))
                yield self.step
                self.step += 1
                bar.update()
                every = self.config.save_steps
                save_due = self.step == self.config.max_steps or (every > 0 and self.step % every == 0)
                if save_due or stop():
                    self.save()
                if stop():
                    print(f"{self.name}: stopped after step {self.step} of {self.config.max_steps}", file=sys.stderr)
                    raise KeyboardInterrupt
        for model in (self.model, *self.parts.values()):
            model.eval()
        self._load_best()
        if not self.quiet and self.history.rows and not progress.in_kernel():  # a notebook prints its own summary
            text = ", ".join(
                f"{k} {v:.4g}" for i, (k, v) in enumerate(self.history.last.items()) if 0 < i < 4 or k == "kl"
            )
            print(f"{self.name}: {self.step - first} steps in {time.perf_counter() - start:.1f} s ({text})", flush=True)

    def update(self, losses: Iterable[Tensor], *, only: str | None = None) -> dict[str, float]:
        """Take one optimizer step on the sum of the losses; each loss is back-propagated as it is computed.

        Args:
            only: the name of a part; only its own parameters are updated.

        Returns:
            ``loss``, ``learning_rate``, and for the updated parameters the gradient norm before clipping: ``grad_norm``
            of the model, ``<part>_grad_norm`` of a part. The model and each part are clipped separately.

        Raises:
            NonFiniteLoss: the loss or the gradient norm is not finite; no parameter was updated.
        """
        groups = [g for g in self.optimizer.param_groups if only is None or g["name"] == only]
        params = None if only is None else [p for group in groups for p in group["params"]]
        self.optimizer.zero_grad(set_to_none=True)
        total = 0.0
        for loss in losses:
            total += loss.item()
            if not math.isfinite(total):
                raise self._non_finite("loss", total, argument="loss")
            loss.backward(inputs=params)  # type: ignore[no-untyped-call]
        grad_norms = [float(nn.utils.clip_grad_norm_(g["params"], self.config.max_grad_norm)) for g in groups]
        for norm in grad_norms:
            if not math.isfinite(norm):
                raise self._non_finite("gradient norm", norm, argument="grad_norm")
        rate = self.config.learning_rate_at(self.step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["ratio"]
        self.optimizer.step()
        named_norms = {f"{g['name']}_grad_norm".removeprefix("_"): x for g, x in zip(groups, grad_norms, strict=True)}
        return {"loss": total, **named_norms, "learning_rate": rate}

    def _non_finite(self, quantity: str, value: float, *, argument: str) -> NonFiniteLoss:
        hint = "" if self.out is None else f"; the last good checkpoint is kept in {self.out / 'checkpoints'}"
        return NonFiniteLoss(
            f"{self.name}: the {quantity} is {value} at step {self.step + 1}: lower the learning rate{hint}",
            argument=argument,
            value=value,
            problem="not finite",
            file=None if self.out is None else self.out / "checkpoints",
        )

    def log(self, **metrics: float) -> None:
        """Record the metrics of the current step, and the periodic measurements if they are due."""
        measured: Mapping[str, float] = {}
        if self.watch is not None and (self.step + 1) % self.watch.every == 0:
            measured = self.watch.measure()
        self.history.append(self.step + 1, **metrics, **measured)
        if measured and self.watch is not None and self.watch.keep_best:
            self._keep_if_best(measured)
        text = ", ".join(f"{k} {v:.4g}" for i, (k, v) in enumerate(self.history.last.items()) if 0 < i < 4 or k == "kl")
        if self._bar is not None and not self._bar.disable:
            self._bar.set_postfix_str(text, refresh=False)
        elif not self.quiet and self.out is not None and (self.step == 0 or (self.step + 1) % self._tenth == 0):
            print(f"{self.name}: step {self.step + 1} of {self.config.max_steps}: {text}", file=sys.stderr, flush=True)

    # -- the best checkpoint ------------------------------------------------------------------------------------

    def _keep_if_best(self, measured: Mapping[str, float]) -> None:
        """Save the weights if no earlier measurement is as good, and this one is a number."""
        name, value = number_to_compare(measured)
        earlier = (number_to_compare({name: row[name]})[1] for row in self.history.rows[:-1] if name in row)
        if self.out is None or not math.isfinite(value) or any(other >= value for other in earlier):
            return
        info = {"step": self.step + 1, "metric": name, "value": measured[name]}
        checkpoints.save(self.out / BEST, self.model, self.tokenizer, extra_json=info)

    def _load_best(self) -> None:
        if self.watch is None or not self.watch.keep_best or self.out is None or not (self.out / BEST).is_dir():
            return
        checkpoints.restore_weights(self.model, self.out / BEST)
        info = checkpoints.load(self.out / BEST).info
        if not self.quiet:
            print(
                f"{self.name}: best {info['metric']} {info['value']:.4g} after step {info['step']}; its weights are kept"
            )


def _settings_in(file: Path) -> dict[str, Any]:
    """Return the settings that a run recorded when it began."""
    try:
        settings = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as problem:
        message = f"{file}: damaged ({problem}); expected the settings of the run"
        raise UserError(message, file=file, problem="damaged") from problem
    if not isinstance(settings, dict):
        message = f"{file}: damaged; expected the settings of the run"
        raise UserError(message, file=file, problem="damaged")
    return settings


def _apart(value: Any, other: Any) -> str:
    """Return a setting as one line of text, without the lines that ``other`` has too."""
    other_lines = str(other).splitlines()
    return "; ".join(" ".join(line.split()) for line in str(value).splitlines() if line not in other_lines)


@contextmanager
def _asked_to_stop() -> Iterator[Callable[[], bool]]:
    """Yield a function that tells whether Ctrl-C was pressed; a second Ctrl-C raises KeyboardInterrupt at once."""
    requests: list[int] = []

    def handle_signal(*_: object) -> None:
        if requests:
            raise KeyboardInterrupt
        requests.append(1)

    if threading.current_thread() is not threading.main_thread():  # only the main thread receives signals
        yield lambda: False
        return
    previous_handler = signal.signal(signal.SIGINT, handle_signal)
    try:
        yield lambda: bool(requests)
    finally:
        signal.signal(signal.SIGINT, previous_handler)
