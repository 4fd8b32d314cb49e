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
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from tqdm import tqdm

from minirlhf.core.errors import UserError
from minirlhf.models import checkpoints
from minirlhf.trainers.config import TrainerConfig
from minirlhf.trainers.history import History


class NonFiniteLoss(UserError):
    """The loss or the gradient became NaN or infinite; the last good checkpoint is kept."""


class Loop:
    """Iterate over the steps of a run.

    Args:
        name: shown beside the progress bar.
        model: what is trained; only parameters that require a gradient are.
        config: the trainer's settings, written to ``out/config.json``.
        out: the run's folder, or None to keep everything in memory.
        tokenizer: saved beside the model.
        resume: go on from the newest good checkpoint in ``out``. A synchronous run on a CPU ends with the same bits.
        quiet: no progress bar and no closing line.

    Raises:
        UserError: ``out`` holds a run already and ``resume`` is not asked for, or there is none to resume.
    """

    def __init__(
        self,
        name: str,
        model: nn.Module,
        config: TrainerConfig,
        *,
        out: Path | str | None = None,
        tokenizer: Any = None,
        resume: bool = False,
        quiet: bool = False,
    ) -> None:
        self.name, self.model, self.config, self.tokenizer, self.quiet = name, model, config, tokenizer, quiet
        self.out = None if out is None else Path(out)
        self.trained = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(self.trained, lr=config.learning_rate, weight_decay=config.weight_decay)
        self.step = 0
        self.history = History()
        if self.out is not None:
            self._open(self.out, resume)

    def _open(self, out: Path, resume: bool) -> None:
        metrics = out / "metrics.jsonl"
        if resume:
            settings = out / "config.json"
            if not settings.is_file():
                raise UserError(f"{out}: no run to resume (no config.json)")
            before = json.loads(settings.read_text(encoding="utf-8"))
            changed = [k for k, v in dataclasses.asdict(self.config).items() if before.get(k) != v and k != "max_steps"]
            if changed:
                raise UserError(
                    f"{settings}: {changed[0]} was {before.get(changed[0])!r}; a resumed run keeps its settings"
                )
            found = checkpoints.load_latest(out)
            if found is not None:
                self._restore(found)
            self.history = History.read(metrics) if metrics.exists() else History(metrics)
            self.history.truncate(self.step)
        else:
            if metrics.exists():
                raise UserError(f"{out}: holds a run already; resume it, or name another folder")
            checkpoints.write_text_atomic(
                out / "config.json", json.dumps(dataclasses.asdict(self.config), indent=2) + "\n"
            )
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
            extra_tensors=state,
            extra_json={"step": self.step},
        )
        checkpoints.prune(self.out)

    def _restore(self, found: checkpoints.Loaded) -> None:
        checkpoints.restore_weights(self.model, found.folder)
        for i, parameter in enumerate(self.trained):
            prefix = f"{i}."
            self.optimizer.state[parameter] = {
                key.removeprefix(prefix): value for key, value in found.tensors.items() if key.startswith(prefix)
            }
        self.step = int(found.info["step"])

    # -- one run -------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[int]:
        start, first = time.perf_counter(), self.step
        show = (
            not self.quiet
            and (sys.stderr.isatty() or "ipykernel" in sys.modules)
            and "MINIRLHF_NO_BAR" not in os.environ
        )
        bar = tqdm(total=self.config.max_steps, initial=first, desc=self.name, leave=False, disable=not show)
        self.model.train()
        with _Interrupt() as interrupt, bar:
            while self.step < self.config.max_steps:
                yield self.step
                self.step += 1
                bar.update()
                every = self.config.save_steps
                due = self.step == self.config.max_steps or (every > 0 and self.step % every == 0)
                if due or interrupt.asked:
                    self.save()
                if interrupt.asked:
                    print(f"{self.name}: stopped after step {self.step} of {self.config.max_steps}", file=sys.stderr)
                    raise KeyboardInterrupt
        self.model.eval()
        if not self.quiet and self.history.rows:
            shown = ", ".join(f"{k} {v:.4g}" for k, v in list(self.history.last.items())[1:4])
            print(
                f"{self.name}: {self.step - first} steps in {time.perf_counter() - start:.1f} s ({shown})", flush=True
            )

    def update(self, losses: Iterable[Tensor]) -> dict[str, float]:
        """One optimizer step on the sum of the losses, each back-propagated as it comes.

        Returns:
            ``loss``, ``grad_norm`` (before clipping) and ``learning_rate``.

        Raises:
            NonFiniteLoss: nothing was updated.
        """
        self.optimizer.zero_grad(set_to_none=True)
        total = 0.0
        for loss in losses:
            total += loss.item()
            if not math.isfinite(total):
                raise self._non_finite("loss", total)
            loss.backward()  # type: ignore[no-untyped-call]
        norm = float(nn.utils.clip_grad_norm_(self.trained, self.config.max_grad_norm))
        if not math.isfinite(norm):
            raise self._non_finite("gradient norm", norm)
        rate = self.config.learning_rate_at(self.step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        return {"loss": total, "grad_norm": norm, "learning_rate": rate}

    def _non_finite(self, what: str, value: float) -> NonFiniteLoss:
        kept = "" if self.out is None else f"; the last good checkpoint is kept in {self.out / 'checkpoints'}"
        return NonFiniteLoss(f"{self.name}: the {what} is {value} at step {self.step}: lower the learning rate{kept}")

    def log(self, **metrics: float) -> None:
        """Record the metrics of the current step."""
        self.history.append(self.step, **metrics)


class _Interrupt:
    """While active, the first Ctrl-C asks the loop to finish its step and save; the second stops at once."""

    def __init__(self) -> None:
        self.asked = False

    def __enter__(self) -> _Interrupt:
        self.installed = threading.current_thread() is threading.main_thread()
        if self.installed:
            self.previous = signal.signal(signal.SIGINT, self._ask)
        return self

    def _ask(self, *_: object) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

    def __exit__(self, *_: object) -> None:
        if self.installed:
            signal.signal(signal.SIGINT, self.previous)
