"""A study: a script that measures several seeds, and its result beside it. It is *fresh* as long as its code behaves as it did.

A script declares itself, and is its own command::

    STUDY = Study(one_seed, probe, seeds=5)

    if __name__ == "__main__":
        STUDY.main(__file__)

Its result is stale if the shape of the script or the sizes in its lab (:mod:`.code`) are others, or if the numbers of its probe have moved.
Where nothing that the script imports has changed since its probe last passed on this machine, the probe need not run.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import platform
import sys
import tempfile
import unittest.mock
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from minirlhf.core import provenance
from minirlhf.core.errors import UserError
from minirlhf.core.folders import cache_folder
from minirlhf.evidence import code, paired
from minirlhf.evidence.code import Code
from minirlhf.evidence.paired import name_of
from minirlhf.evidence.probe import SETTING, Numbers, moved

#: What is said of a lab whose sizes are the same and stand elsewhere; and the name by which somebody accepts it.
ORDER, SIZES = "sizes stand in another order", "sizes"

Seeds = Mapping[int, Mapping[str, float]]


@dataclass(frozen=True)
class Study:
    """What a script measures.

    Attributes:
        one_seed: all measurements with one seed, by name.
        probe: a few seconds of the same on every path that it takes: numbers that move if the code behaves otherwise.
        seeds, first_seed: how many, from which on.
        labs: modules that were written for this study and do not lie in its script's folder.
    """

    one_seed: Callable[[int], Mapping[str, float]]
    probe: Callable[[], Numbers]
    seeds: int = 5
    first_seed: int = 0
    labs: tuple[str, ...] = ()

    def main(self, file: str) -> None:
        """The body of the script ``file``: measure every seed on one thread, write the evidence, print its summary.

        ``--seeds N`` measures another number of them; ``--probe`` prints the probe and measures nothing.
        """
        parser = argparse.ArgumentParser(description="Measure several seeds and write the numbers down.")
        parser.add_argument("--seeds", type=int, default=self.seeds, help=f"how many; {self.seeds} by default")
        parser.add_argument("--probe", action="store_true", help="print the probe's numbers; measure nothing")
        args = parser.parse_args()
        if args.probe:
            print(json.dumps(run_probe(self), indent=1))
            return
        script = StudyScript(Path(file).resolve())
        behaviour = script.behaviour(self)  # a study runs for minutes, in which files may be edited: this is of now
        numbers = {}
        for seed in range(self.first_seed, self.first_seed + args.seeds):
            numbers[seed] = self.one_seed(seed)
            print(seed, {name: round(value, 3) for name, value in numbers[seed].items()}, flush=True)
        write(script.result, behaviour, numbers)
        for name, (mean, deviation, low, high) in paired.summary(paired.read(script.result)).items():
            print(f"{name:40} {mean:9.4f} ± {deviation:.4f} between seeds, {low:.4f} to {high:.4f}")


def write(path: Path, made_by: Mapping[str, Any], seeds: Seeds) -> None:
    """Write the numbers of each seed, with what made them."""
    _store(path, {**made_by, "torch": version("torch"), "machine": platform.machine(), "seeds": dict(seeds)})


def _store(path: Path, evidence: Mapping[str, Any]) -> None:
    from minirlhf.core.folders import write_text_atomic

    write_text_atomic(path, json.dumps(evidence, indent=1) + "\n")


def run_probe(study: Study) -> dict[str, float | str]:
    """The numbers of its probe, on one thread and with an empty cache: what code of another day has left there does not count."""
    import torch

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.dict(os.environ, MINIRLHF_CACHE=folder):
        return dict(study.probe())


class Reason(str):
    """Why a study is stale, in words.

    Attributes:
        kind: the same for programs: ``"result"``, ``"script"``, ``"names"``, ``"sizes"``, ``"order"``, ``"seeds"`` or ``"probe"``.
    """

    kind: str

    def __new__(cls, kind: str, text: str) -> Reason:
        """A sentence and its kind."""
        reason = super().__new__(cls, text)
        reason.kind = kind
        return reason

    def __reduce__(self) -> tuple[Any, ...]:  # for copies
        return Reason, (self.kind, str(self))


class StudyScript:
    """The script of a study: its text as it was when this was made, what it reaches in its lab as it is when first asked for.

    Attributes:
        path: of the script; its result lies beside it.
        name: see :func:`~minirlhf.evidence.paired.name_of`.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.result = path, path.with_suffix(".json")
        self.name = name_of(path)
        self._text = path.read_text(encoding="utf-8")

    @cached_property
    def code(self) -> Code:
        """What is read from the source; it takes a tenth of a second, which a list of all scripts need not wait for."""
        return code.read(self.path, self._text)

    def load(self) -> Study:
        """Import the script."""
        spec = importlib.util.spec_from_file_location(f"study of {self.name}", self.path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        study: Study = module.STUDY
        return study

    def behaviour(self, study: Study) -> dict[str, Any]:
        """What is stored beside the numbers, so that one can tell later whether the code still behaves like this."""
        made_by = {"shape": self.code.shape, "names": self.code.names, "sizes": self.code.sizes}
        found = run_probe(study)
        settings = [value for name, value in found.items() if SETTING in name and isinstance(value, str)]
        named = sorted({name for name in [*self.code.names, *settings] if code.is_project_module(name)})
        defined = {name: code.definition(name) for name in named}
        return {**made_by, "defined": defined, "probed_by": self.code.probe, "probe": found}

    def stale(self) -> list[Reason]:
        """Why the study has to run again, one line each; nothing if it is fresh. Runs its probe if the code has changed at all."""
        if not self.result.is_file():
            return [Reason("result", "it has never run")]
        stored = paired.read(self.result)
        if "probe" not in stored:
            return [Reason("result", "its result has no probe")]
        reasons = self.rewritten(stored)
        seeds = Study.seeds if self.code.seeds is None else self.code.seeds
        if len(stored["seeds"]) < seeds:
            reasons.append(Reason("seeds", f"{len(stored['seeds'])} of {seeds} seeds were measured"))
        if not reasons and (changes := self._moved(stored)):
            reasons.append(Reason("probe", f"its probe has moved: {_some(changes)}"))
        return reasons

    def rewritten(self, stored: Mapping[str, Any]) -> list[Reason]:
        """What of the study itself is written otherwise than when it was measured."""
        if "defined" not in stored:
            return [Reason("result", "its result does not say how what it names was defined")]
        reasons: list[Reason] = []
        if stored["shape"] != self.code.shape or len(stored["names"]) != len(self.code.names):
            reasons.append(Reason("script", "its script has changed"))
        elif exchanged := [
            f"{was} → {now}"
            for was, now in zip(stored["names"], self.code.names, strict=True)
            if was != now and not code.renamed(was, now, stored["defined"].get(was))
        ]:
            reasons.append(Reason("names", f"its script names others: {_some(exchanged)}"))
        gone, new = (
            Counter(a) - Counter(b) for a, b in ((stored["sizes"], self.code.sizes), (self.code.sizes, stored["sizes"]))
        )
        if gone or new:
            reasons.append(Reason("sizes", f"sizes have changed: {_some(gone.elements())} → {_some(new.elements())}"))
        elif stored["sizes"] != self.code.sizes:
            pairs = zip(stored["sizes"], self.code.sizes, strict=True)
            reasons.append(Reason("order", f"{ORDER}: {_some(f'{a} → {b}' for a, b in pairs if a != b)}"))
        return reasons

    def _moved(self, stored: Mapping[str, Any]) -> list[str]:
        """What has changed in the probe; remembered as long as no code that it imports changes."""
        record, now = cache_folder() / "probes" / self.name, self._everything(stored["probe"])
        if record.is_file() and record.read_text(encoding="utf-8") == now:
            return []
        changes = moved(stored["probe"], run_probe(self.load()), stored["defined"])
        if not changes:
            record.parent.mkdir(parents=True, exist_ok=True)
            record.write_text(now, encoding="utf-8")
        return changes

    def _everything(self, stored: Numbers) -> str:
        """Hash of all that the outcome of a probe depends on."""
        imported = provenance.imported(self._text, str(self.path))
        parts = [provenance.code_without_docs(self._text), provenance.source_hash(*imported), json.dumps(stored)]
        parts += [version(name) for name in ("torch", "transformers", "numpy")]
        return hashlib.sha256("\n".join([*parts, platform.platform(), sys.version]).encode()).hexdigest()

    def record(self, accepted: Collection[str] = ()) -> list[str]:
        """Store the behaviour of today's code beside numbers that were measured before, for a probe that was written anew.

        Args:
            accepted: by name, numbers of the probe that may be others than they were, or gone, and settings that were not there before:
                somebody knows that the probe's own change is the reason, and not the code that the study runs, or that a new
                setting's value is what was done without it. ``sizes``: the lab's stand in another order because its code was moved about.

        Returns:
            What is taken on trust, one line each: that the study itself would still give its numbers is nothing that can be seen here.

        Raises:
            UserError: the study has changed, or its probe has moved without having been written anew: it has to run. Or numbers
                moved that are not accepted, or some that are did not.
        """
        stored = paired.read(self.result)
        changed = self.rewritten(stored)
        if SIZES in accepted and len(changed) == 1 and changed[0].kind == "order":
            moved_about, changed, accepted = changed, [], [name for name in accepted if name != SIZES]
        else:
            moved_about = []
        behaviour = self.behaviour(self.load())
        was, now = stored["probe"], behaviour["probe"]
        new = {name for name in accepted if SETTING in name and name in now and name not in was}
        defined = stored["defined"]
        moves = moved(was, {name: value for name, value in now.items() if name not in new}, defined)
        if not changed and moves and stored["probed_by"] == behaviour["probed_by"]:
            changed = [Reason("probe", f"its probe has moved and is the same that it was: {_some(moves)}")]
        if changed:
            raise UserError(
                f"{self.name}: {'; '.join(changed)}; run it (minirlhf studies --run {self.name})",
                argument=self.name,
                value=[reason.kind for reason in changed],
                problem="changed",
            )
        # A number that is gone may have moved under another name.
        other = {
            name: said[0]
            for name in was
            if (said := moved({name: was[name]}, {name: now[name]} if name in now else {}, defined))
        }
        if other.keys() != set(accepted) - new:
            unseen, wrong = other.keys() - set(accepted), set(accepted) - new - other.keys()
            lines = [f"moved: {', '.join(other[name] for name in sorted(unseen))}"] * bool(unseen)
            lines += [f"did not move: {', '.join(sorted(wrong))}"] * bool(wrong)
            raise UserError(
                f"{self.name}: {'; '.join(lines)}; if the probe's own change is why, --accept each that moved, by its name",
                argument=self.name,
                value=sorted(unseen),
                expected=sorted(wrong),
                problem="moved",
            )
        _store(self.result, {**behaviour, **{k: stored[k] for k in ("torch", "machine", "seeds")}})
        return [
            f"the numbers of {len(stored['seeds'])} seeds stay as they were measured",
            f"{len(moves) - len(other)} numbers of the probe are new",
            *(
                f"accepted: {text}"
                for text in [*moved_about, *other.values(), *(f"{name} = {now[name]}" for name in sorted(new))]
            ),
        ]


def _some(texts: Iterable[str]) -> str:
    """The first three of them, and how many more there are."""
    all_ = list(texts)
    return ", ".join(all_[:3]) + (f" and {len(all_) - 3} more" if len(all_) > 3 else "") or "nothing"


def discover(package: Path | None = None) -> dict[str, StudyScript]:
    """The scripts of the package, or of another folder, that declare a study, by name: ``study.py`` and ``study_topic.py``.

    Raises:
        UserError: there are none, as where only the package is installed.
    """
    folder = provenance.PACKAGE if package is None else package
    paths = sorted(folder.rglob("study*.py"))
    found = [StudyScript(path) for path in paths if code.declaration(path.read_text(encoding="utf-8")) is not None]
    if not found:
        raise UserError(f"no studies in {folder}", argument="studies", problem="missing", file=folder)
    return {script.name: script for script in found}
