"""A study: a script that measures several seeds, and its result beside it. The result is *fresh* as long as the code
behaves as it did.

A script declares its study, and is also the command that runs it::

    STUDY = Study(one_seed, probe, seeds=5)

    if __name__ == "__main__":
        STUDY.main(__file__)

The result is stale if the shape of the script or the sizes in its lab (:mod:`.code`) have changed, or if the numbers of
its probe have moved. The probe does not run again if no imported code has changed since it last passed on this machine.
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
from minirlhf_course.evidence import code, paired
from minirlhf_course.evidence.code import Code
from minirlhf_course.evidence.paired import name_of
from minirlhf_course.evidence.probe import SETTING, Numbers, moved

#: The message about a lab with the same sizes in another order; and the name that accepts this change.
ORDER, SIZES = "sizes stand in another order", "sizes"

Seeds = Mapping[int, Mapping[str, float]]


@dataclass(frozen=True)
class Study:
    """The measurements of a script.

    Attributes:
        one_seed: all measurements with one seed, by name.
        probe: a run of a few seconds on each code path of ``one_seed``: numbers that move if the code behaves
            differently.
        seeds, first_seed: number of seeds, and the first one.
        labs: modules that were written for this study, outside its script's folder.
    """

    one_seed: Callable[[int], Mapping[str, float]]
    probe: Callable[[], Numbers]
    seeds: int = 5
    first_seed: int = 0
    labs: tuple[str, ...] = ()

    def main(self, file: str) -> None:
        """Run the script ``file``: measure every seed on one thread, write the evidence, print its summary.

        ``--seeds N`` changes the number of seeds; ``--probe`` only prints the numbers of the probe.
        """
        parser = argparse.ArgumentParser(description="Measure several seeds and store the numbers.")
        parser.add_argument("--seeds", type=int, default=self.seeds, help=f"number of seeds (default: {self.seeds})")
        parser.add_argument("--probe", action="store_true", help="only print the numbers of the probe")
        args = parser.parse_args()
        if args.probe:
            print(json.dumps(run_probe(self), indent=1))
            return
        script = StudyScript(Path(file).resolve())
        behaviour = script.behaviour(self)  # now, because files may be edited during the run
        numbers = {}
        for seed in range(self.first_seed, self.first_seed + args.seeds):
            numbers[seed] = self.one_seed(seed)
            print(seed, {name: round(value, 3) for name, value in numbers[seed].items()}, flush=True)
        write(script.result, behaviour, numbers)
        for name, (mean, std, low, high) in paired.summary(paired.read(script.result)).items():
            print(f"{name:40} {mean:9.4f} ± {std:.4f} between seeds, {low:.4f} to {high:.4f}")


def write(path: Path, made_by: Mapping[str, Any], seeds: Seeds) -> None:
    """Write the numbers of each seed, with a description of the code that produced them."""
    _store(path, {**made_by, "torch": version("torch"), "machine": platform.machine(), "seeds": dict(seeds)})


def _store(path: Path, evidence: Mapping[str, Any]) -> None:
    from minirlhf.core.folders import write_text_atomic

    write_text_atomic(path, json.dumps(evidence, indent=1) + "\n")


def run_probe(study: Study) -> dict[str, float | str]:
    """Return the numbers of a probe, on one thread and with an empty cache, which holds no models of older code."""
    import torch

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.dict(os.environ, MINIRLHF_CACHE=folder):
        return dict(study.probe())


class Reason(str):
    """Why a study is stale, in words.

    Attributes:
        kind: the kind of reason, for programs: ``"result"``, ``"script"``, ``"names"``, ``"sizes"``, ``"order"``,
            ``"seeds"`` or ``"probe"``.
    """

    kind: str

    def __new__(cls, kind: str, text: str) -> Reason:
        """Create a reason from its kind and a sentence."""
        reason = super().__new__(cls, text)
        reason.kind = kind
        return reason

    def __reduce__(self) -> tuple[Any, ...]:  # for copies
        return Reason, (self.kind, str(self))


class StudyScript:
    """The script of a study. Its text is read at once, the lab's code when :attr:`code` is first used.

    Attributes:
        path: path of the script; its result lies beside it.
        name: see :func:`~minirlhf_course.evidence.paired.name_of`.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.result = path, path.with_suffix(".json")
        self.name = name_of(path)
        self._text = path.read_text(encoding="utf-8")

    @cached_property
    def code(self) -> Code:
        """The code of the study. Reading takes 0.1 seconds, so that a list of all scripts does not do it."""
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
        """Return the description of the code's behaviour that is stored beside the numbers, to detect later changes."""
        made_by = {"shape": self.code.shape, "names": self.code.names, "sizes": self.code.sizes}
        probe = run_probe(study)
        settings = [value for name, value in probe.items() if SETTING in name and isinstance(value, str)]
        names = sorted({name for name in [*self.code.names, *settings] if provenance.is_ours(name)})
        defined = {name: code.definition(name) for name in names}
        return {**made_by, "defined": defined, "probed_by": self.code.probe, "probe": probe}

    def stale(self) -> list[Reason]:
        """Return the reasons to run the study again; none if it is fresh. Runs its probe if any code has changed."""
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
        """Return the reasons in the source of the study itself: its differences from the measured version."""
        if "defined" not in stored:
            return [Reason("result", "its result does not say how what it names was defined")]
        reasons: list[Reason] = []
        if stored["shape"] != self.code.shape or len(stored["names"]) != len(self.code.names):
            reasons.append(Reason("script", "its script has changed"))
        elif replaced := [
            f"{was} → {now}"
            for was, now in zip(stored["names"], self.code.names, strict=True)
            if was != now and not code.renamed(was, now, stored["defined"].get(was))
        ]:
            reasons.append(Reason("names", f"its script names others: {_some(replaced)}"))
        old, new = (
            Counter(a) - Counter(b) for a, b in ((stored["sizes"], self.code.sizes), (self.code.sizes, stored["sizes"]))
        )
        if old or new:
            reasons.append(Reason("sizes", f"sizes have changed: {_some(old.elements())} → {_some(new.elements())}"))
        elif stored["sizes"] != self.code.sizes:
            pairs = zip(stored["sizes"], self.code.sizes, strict=True)
            reasons.append(Reason("order", f"{ORDER}: {_some(f'{a} → {b}' for a, b in pairs if a != b)}"))
        return reasons

    def _moved(self, stored: Mapping[str, Any]) -> list[str]:
        """Return the changes of the probe's numbers. A pass is cached until code that the script imports changes."""
        cache_file, key = cache_folder() / "probes" / self.name, self._everything(stored["probe"])
        if cache_file.is_file() and cache_file.read_text(encoding="utf-8") == key:
            return []
        changes = moved(stored["probe"], run_probe(self.load()), stored["defined"])
        if not changes:
            cache_file.parent.mkdir(parents=True, exist_ok=True)
            cache_file.write_text(key, encoding="utf-8")
        return changes

    def _everything(self, stored: Numbers) -> str:
        """Return a hash of everything that the numbers of a probe depend on."""
        imported = provenance.imported(self._text, str(self.path))
        parts = [provenance.code_without_docs(self._text), provenance.source_hash(*imported), json.dumps(stored)]
        parts += [version(name) for name in ("torch", "transformers", "numpy")]
        return hashlib.sha256("\n".join([*parts, platform.platform(), sys.version]).encode()).hexdigest()

    def record(self, accepted: Collection[str] = ()) -> list[str]:
        """Store the behaviour of the current code beside numbers measured before, after a rewrite of the probe.

        Args:
            accepted: names of numbers of the probe that may have changed or disappeared, and of new settings. You know
                that the probe's own change is the reason, not the code that the study runs, or that the value of a new
                setting is the behaviour without it. ``sizes``: the lab's sizes have another order because its code was
                moved.

        Returns:
            The unverified assumptions, one line each: nothing here checks that the study would still give its numbers.

        Raises:
            UserError: the study has changed, or its probe has moved without a rewrite, so that the study must run
                again; or numbers moved that are not accepted, or accepted numbers did not move.
        """
        stored = paired.read(self.result)
        reasons = self.rewritten(stored)
        if SIZES in accepted and len(reasons) == 1 and reasons[0].kind == "order":
            reordered, reasons, accepted = reasons, [], [name for name in accepted if name != SIZES]
        else:
            reordered = []
        behaviour = self.behaviour(self.load())
        old, new = stored["probe"], behaviour["probe"]
        added = {name for name in accepted if SETTING in name and name in new and name not in old}
        defined = stored["defined"]
        changes = moved(old, {name: value for name, value in new.items() if name not in added}, defined)
        if not reasons and changes and stored["probed_by"] == behaviour["probed_by"]:
            reasons = [Reason("probe", f"its probe has moved and is the same that it was: {_some(changes)}")]
        if reasons:
            raise UserError(
                f"{self.name}: {'; '.join(reasons)}; run it (minirlhf verify studies --run {self.name})",
                argument=self.name,
                value=[reason.kind for reason in reasons],
                problem="changed",
            )
        # A number that disappeared may have moved under another name.
        by_name = {
            name: texts[0]
            for name in old
            if (texts := moved({name: old[name]}, {name: new[name]} if name in new else {}, defined))
        }
        if by_name.keys() != set(accepted) - added:
            not_accepted, not_moved = by_name.keys() - set(accepted), set(accepted) - added - by_name.keys()
            lines = [f"moved: {', '.join(by_name[name] for name in sorted(not_accepted))}"] * bool(not_accepted)
            lines += [f"did not move: {', '.join(sorted(not_moved))}"] * bool(not_moved)
            raise UserError(
                f"{self.name}: {'; '.join(lines)}; if the probe itself changed, --accept each that moved, by its name",
                argument=self.name,
                value=sorted(not_accepted),
                expected=sorted(not_moved),
                problem="moved",
            )
        _store(self.result, {**behaviour, **{k: stored[k] for k in ("torch", "machine", "seeds")}})
        return [
            f"the numbers of {len(stored['seeds'])} seeds stay as they were measured",
            f"{len(changes) - len(by_name)} numbers of the probe are new",
            *(
                f"accepted: {text}"
                for text in [*reordered, *by_name.values(), *(f"{name} = {new[name]}" for name in sorted(added))]
            ),
        ]


def _some(texts: Iterable[str]) -> str:
    """Return the first three texts and the number of the others."""
    items = list(texts)
    return ", ".join(items[:3]) + (f" and {len(items) - 3} more" if len(items) > 3 else "") or "nothing"


def discover(folder: Path | None = None) -> dict[str, StudyScript]:
    """Return the scripts (``study.py``, ``study_topic.py``) of the package or a folder that declare a study, by name.

    Raises:
        UserError: there are no studies, for example because only the package is installed.
    """
    paths = provenance.files("study*.py") if folder is None else sorted(folder.rglob("study*.py"))
    scripts = [StudyScript(path) for path in paths if code.declaration(path.read_text(encoding="utf-8")) is not None]
    if not scripts:
        raise UserError(
            f"no studies in {folder or provenance.ROOT}",
            argument="studies",
            problem="missing",
            file=folder or provenance.ROOT,
        )
    return {script.name: script for script in scripts}
