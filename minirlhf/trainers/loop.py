"""The frame of every training loop: steps, progress, metrics, checkpoints, resume, Ctrl-C. It holds no equation.

::

    loop = Loop("sft", model, config, out=folder)
    for step in loop:
        losses = ...                        # an iterable of losses, one per micro-batch, adding up to the batch's loss
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

#: What a resumed run may have other than it was: its end, and the words about its recipe.
MAY_CHANGE = ("max_steps", "recipe")


class NonFiniteLoss(UserError):
    """The loss or the gradient became NaN or infinite; the last good checkpoint is kept."""


@dataclasses.dataclass(frozen=True)
class RunProvenance:
    """What a run depends on beside its settings, for its ``config.json``.

    Attributes:
        depends: JSON values that must be the same when the run goes on: what its data, model and grader are.
        noted: JSON values that are written down and not compared: paths, versions.
    """

    depends: Mapping[str, Any]
    noted: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class TrainerCallback:
    """Measurements while a run goes on: after every so many steps ``measure()``, whose numbers are logged with the step's."""

    every: int
    measure: Callable[[], Mapping[str, float]]


class TrainingLoop:
    """Iterate over the steps of a run.

    Args:
        name: shown beside the progress bar.
        model: what is trained; only parameters that require a gradient are.
        config: the trainer's settings, written to ``out/config.json``.
        settings: more of them, as JSON values: what else a resumed run must have kept (but for :data:`MAY_CHANGE`).
        parts: further models that are trained beside it (a critic), saved in sub-folders of the checkpoint. Parameters that a
            part shares with the model are the model's.
        ratios: learning rate of a part over the model's; 1 by default.
        dropout: train with the model's dropout; without it the policy that is updated is the policy that was sampled from.
        out: the run's folder, or None to keep everything in memory.
        tokenizer: saved beside the model.
        origin: what the run depends on beside its settings.
        watch: what to measure now and then.
        resume: go on from the newest good checkpoint in ``out``. A synchronous run on a CPU ends with the same bits.
        quiet: no progress bar and no closing line.

    Attributes:
        memory: tensors that go from step to step, and into the checkpoints.

    Raises:
        UserError: ``out`` holds a run already and ``resume`` is not asked for, or there is none to resume.
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
        owned = {id(p) for p in model.parameters()}
        groups: list[dict[str, Any]] = [{"name": "", "params": list(model.parameters()), "ratio": 1.0}]
        for key, part in self.parts.items():
            own = [p for p in part.parameters() if id(p) not in owned]
            groups.append({"name": key, "params": own, "ratio": (ratios or {}).get(key, 1.0)})
        for group in groups:
            group["params"] = [p for p in group["params"] if p.requires_grad]
        self.optimizer = torch.optim.AdamW(
            groups, lr=config.learning_rate, weight_decay=config.weight_decay, fused=True
        )
        self.trained: list[nn.Parameter] = [p for group in groups for p in group["params"]]
        self.memory: dict[str, Tensor] = {}
        self._bar: Any = None
        self._tenth = max(1, config.max_steps // 10)  # without a terminal, so many steps between two printed lines
        self.step = 0
        self.history = History()
        if self.out is not None:
            self._open(self.out, resume)

    def _open(self, out: Path, resume: bool) -> None:
        metrics = out / "metrics.jsonl"
        record = {} if self.origin is None else json.loads(json.dumps(dataclasses.asdict(self.origin)))
        if resume:
            file = out / "config.json"
            if not file.is_file():
                raise UserError(
                    f"{out}: no run to resume (no config.json)", argument="resume", problem="missing", file=file
                )
            before = _settings_in(file)
            settings = json.loads(json.dumps(self.settings))
            changed = [k for k, v in settings.items() if before.get(k) != v and k not in MAY_CHANGE]
            if changed:
                values = before.get(changed[0]), self.settings[changed[0]]
                was, now = _apart(*values), _apart(*values[::-1])
                raise UserError(
                    f"{file}: {changed[0]} was {was}, now it is {now}; a resumed run keeps its settings",
                    argument=changed[0],
                    value=values[1],
                    expected=values[0],
                    file=file,
                )
            known = before.get("depends", {})  # a run of an older version wrote down less
            for key in [key for key, value in record.get("depends", {}).items() if known.get(key, value) != value]:
                raise UserError(
                    f"{file}: the run began with {key} = {json.dumps(known[key])}, now it is "
                    f"{json.dumps(record['depends'][key])}; a resumed run keeps its data, model and grader",
                    argument=key,
                    value=record["depends"][key],
                    expected=known[key],
                    file=file,
                )
            found = checkpoints.load_latest(out)
            if found is not None:
                self._restore(found)
                checkpoints.delete_checkpoints_after(out, self.step)  # damaged ones
            self.history = History.resume(metrics, self.step)
        else:
            if metrics.exists():
                raise UserError(
                    f"{out}: holds a run already; resume it, or name another folder",
                    argument="out",
                    value=str(out),
                    problem="exists",
                    file=metrics,
                )
            write_text_atomic(out / "config.json", json.dumps({**self.settings, **record}, indent=2) + "\n")
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

    def _restore(self, found: checkpoints.Loaded) -> None:
        checkpoints.restore_weights(self.model, found.folder)
        for key, part in self.parts.items():
            checkpoints.restore_weights(part, found.folder / key)

        def below(prefix: str) -> dict[str, Tensor]:
            return {k.removeprefix(prefix): v for k, v in found.tensors.items() if k.startswith(prefix)}

        for i, parameter in enumerate(self.trained):
            if state := below(f"{i}."):  # a part that has not learned yet has none
                self.optimizer.state[parameter] = state
        self.memory = below("memory.")
        self.step = int(found.info["step"])

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
                due = self.step == self.config.max_steps or (every > 0 and self.step % every == 0)
                if due or stop():
                    self.save()
                if stop():
                    print(f"{self.name}: stopped after step {self.step} of {self.config.max_steps}", file=sys.stderr)
                    raise KeyboardInterrupt
        for model in (self.model, *self.parts.values()):
            model.eval()
        if not self.quiet and self.history.rows and not progress.in_kernel():  # a notebook prints what it wants to show
            shown = ", ".join(f"{k} {v:.4g}" for k, v in list(self.history.last.items())[1:4])
            print(
                f"{self.name}: {self.step - first} steps in {time.perf_counter() - start:.1f} s ({shown})", flush=True
            )

    def update(self, losses: Iterable[Tensor], *, only: str | None = None) -> dict[str, float]:
        """One optimizer step on the sum of the losses, each back-propagated as it comes.

        Args:
            only: the name of a part; nothing but its own parameters is changed.

        Returns:
            ``loss``, ``learning_rate``, and of what was changed the norm of the gradient before clipping, which is done for each
            part by itself: ``grad_norm`` of the model, ``<part>_grad_norm`` of a part.

        Raises:
            NonFiniteLoss: nothing was updated.
        """
        groups = [g for g in self.optimizer.param_groups if only is None or g["name"] == only]
        learning = None if only is None else [p for group in groups for p in group["params"]]
        self.optimizer.zero_grad(set_to_none=True)
        total = 0.0
        for loss in losses:
            total += loss.item()
            if not math.isfinite(total):
                raise self._non_finite("loss", total, argument="loss")
            loss.backward(inputs=learning)  # type: ignore[no-untyped-call]
        clipped = [float(nn.utils.clip_grad_norm_(g["params"], self.config.max_grad_norm)) for g in groups]
        for norm in clipped:
            if not math.isfinite(norm):
                raise self._non_finite("gradient norm", norm, argument="grad_norm")
        rate = self.config.learning_rate_at(self.step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["ratio"]
        self.optimizer.step()
        norms = {f"{g['name']}_grad_norm".removeprefix("_"): x for g, x in zip(groups, clipped, strict=True)}
        return {"loss": total, **norms, "learning_rate": rate}

    def _non_finite(self, what: str, value: float, *, argument: str) -> NonFiniteLoss:
        kept = "" if self.out is None else f"; the last good checkpoint is kept in {self.out / 'checkpoints'}"
        return NonFiniteLoss(
            f"{self.name}: the {what} is {value} at step {self.step}: lower the learning rate{kept}",
            argument=argument,
            value=value,
            problem="not finite",
            file=None if self.out is None else self.out / "checkpoints",
        )

    def log(self, **metrics: float) -> None:
        """Record the metrics of the current step, and what is measured now and then."""
        if self.watch is not None and (self.step + 1) % self.watch.every == 0:
            metrics |= self.watch.measure()
        self.history.append(self.step, **metrics)
        shown = ", ".join(f"{k} {v:.4g}" for k, v in list(self.history.last.items())[1:4])
        if self._bar is not None and not self._bar.disable:
            self._bar.set_postfix_str(shown, refresh=False)
        elif not self.quiet and self.out is not None and (self.step == 0 or (self.step + 1) % self._tenth == 0):
            print(f"{self.name}: step {self.step + 1} of {self.config.max_steps}: {shown}", file=sys.stderr, flush=True)


def _settings_in(file: Path) -> dict[str, Any]:
    """What a run wrote down when it began."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as problem:
        message = f"{file}: damaged ({problem}); expected the settings of the run"
        raise UserError(message, file=file, problem="damaged") from problem
    if not isinstance(found, dict):
        message = f"{file}: damaged; expected the settings of the run"
        raise UserError(message, file=file, problem="damaged")
    return found


def _apart(mine: Any, other: Any) -> str:
    """A setting as text; of a description over several lines, those that the other one has not."""
    theirs = str(other).splitlines()
    return "; ".join(" ".join(line.split()) for line in str(mine).splitlines() if line not in theirs)


@contextmanager
def _asked_to_stop() -> Iterator[Callable[[], bool]]:
    """Inside, the first Ctrl-C asks the loop to finish its step and save, which the function says; the second stops at once."""
    asked: list[int] = []

    def ask(*_: object) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(1)

    if threading.current_thread() is not threading.main_thread():  # only that one gets signals
        yield lambda: False
        return
    before = signal.signal(signal.SIGINT, ask)
    try:
        yield lambda: bool(asked)
    finally:
        signal.signal(signal.SIGINT, before)
