"""A study: a script that measures several seeds, and its result beside it. The result is *fresh* as long as the code
behaves as it did.

A script declares its study, and is also the command that runs it::

    STUDY = Study(one_seed, probe, seeds=5)

    if __name__ == "__main__":
        STUDY.main(__file__)

The result is stale if the study's own code has changed (the script, and the modules of its chapter that it imports), or
if the numbers of its probe have moved. The probe does not run again if no imported code has changed since it last
passed on this machine.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import importlib.util
import inspect
import json
import os
import platform
import sys
import tempfile
import textwrap
import unittest.mock
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from minirlhf.core import provenance
from minirlhf.core.errors import UserError
from minirlhf.core.folders import cache_folder
from minirlhf_course.evidence import paired
from minirlhf_course.evidence.paired import name_of
from minirlhf_course.evidence.probe import SETTING, Numbers, moved

Seeds = Mapping[int, Mapping[str, float]]


@dataclass(frozen=True)
class Study:
    """The measurements of a script.

    Attributes:
        one_seed: all measurements with one seed, by name.
        probe: a run of a few seconds on each code path of ``one_seed``: numbers that move if the code behaves
            differently.
        seeds, first_seed: number of seeds, and the first one.
    """

    one_seed: Callable[[int], Mapping[str, float]]
    probe: Callable[[], Numbers]
    seeds: int = 5
    first_seed: int = 0

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
        kind: the kind of reason, for programs: ``"result"``, ``"code"``, ``"seeds"`` or ``"probe"``.
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
    """The script of a study. Its text is read at once, the code that it imports when it is needed.

    Attributes:
        path: path of the script; its result lies beside it.
        name: see :func:`~minirlhf_course.evidence.paired.name_of`.
        seeds: the number of seeds that the script declares.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.result = path, path.with_suffix(".json")
        self.name = name_of(path)
        self._text = path.read_text(encoding="utf-8")
        call = declaration(self._text)
        if call is None or len(call.args) != 2:
            raise UserError(
                f"{path}: no study is declared; expected 'STUDY = Study(one_seed, probe)' at its top level",
                argument="STUDY",
                problem="missing",
                file=path,
            )
        given = {keyword.arg: keyword.value for keyword in call.keywords}
        self.seeds = ast.literal_eval(given["seeds"]) if "seeds" in given else Study.seeds

    def load(self) -> Study:
        """Import the script."""
        spec = importlib.util.spec_from_file_location(f"study of {self.name}", self.path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        study: Study = module.STUDY
        return study

    @cached_property
    def own_modules(self) -> dict[str, Path]:
        """The modules of the script's folder that it imports, directly or indirectly."""
        imported = provenance.closure(provenance.imported(self._text, str(self.path)))
        paths = {name: provenance.module_path(name) for name in sorted(imported)}
        return {name: path for name, path in paths.items() if path.is_relative_to(self.path.parent)}

    @cached_property
    def own_code(self) -> str:
        """A hash (16 hex digits) of the script and its own modules, without comments and docstrings."""
        texts = [self._text, *(provenance.source(name) for name in self.own_modules)]
        return _hash(*map(provenance.code_without_docs, texts))

    def behaviour(self, study: Study) -> dict[str, Any]:
        """Return the description of the code's behaviour that is stored beside the numbers, to detect later changes."""
        probe_code = provenance.code_without_docs(textwrap.dedent(inspect.getsource(study.probe)))
        return {"code": self.own_code, "probed_by": _hash(probe_code), "probe": run_probe(study)}

    def stale(self) -> list[Reason]:
        """Return the reasons to run the study again; none if it is fresh. Runs its probe if any code has changed."""
        if not self.result.is_file():
            return [Reason("result", "it has never run")]
        stored = paired.read(self.result)
        if "probe" not in stored:
            return [Reason("result", "its result has no probe")]
        reasons = self.edited(stored)
        if len(stored["seeds"]) < self.seeds:
            reasons.append(Reason("seeds", f"{len(stored['seeds'])} of {self.seeds} seeds were measured"))
        if not reasons and (changes := self._moved(stored)):
            reasons.append(Reason("probe", f"its probe has moved: {_some(changes.values())}"))
        return reasons

    def edited(self, stored: Mapping[str, Any]) -> list[Reason]:
        """Return the reason in the study's own code: that it is not the measured code."""
        if stored.get("code") == self.own_code:
            return []
        files = ", ".join([self.path.name, *(path.name for path in self.own_modules.values())])
        return [Reason("code", f"its own code has changed ({files})")]

    def _moved(self, stored: Mapping[str, Any]) -> dict[str, str]:
        """Return the changes of the probe's numbers. A pass is cached until code that the script imports changes."""
        cache_file, key = cache_folder() / "probes" / self.name, self._everything(stored["probe"])
        if cache_file.is_file() and cache_file.read_text(encoding="utf-8") == key:
            return {}
        changes = moved(stored["probe"], run_probe(self.load()))
        if not changes:
            cache_file.parent.mkdir(parents=True, exist_ok=True)
            cache_file.write_text(key, encoding="utf-8")
        return changes

    def _everything(self, stored: Numbers) -> str:
        """Return a hash of everything that the numbers of a probe depend on."""
        imported = provenance.imported(self._text, str(self.path))
        parts = [provenance.code_without_docs(self._text), provenance.source_hash(*imported), json.dumps(stored)]
        parts += [version(name) for name in ("torch", "transformers", "numpy")]
        return _hash(*parts, platform.platform(), sys.version)

    def record(self, accepted: Collection[str] = ()) -> list[str]:
        """Store the behaviour of the current code beside numbers measured before, after an edit that does not change it.

        Args:
            accepted: names of numbers of the probe that moved, disappeared or are new settings, because the probe itself
                was rewritten.

        Returns:
            The unverified assumptions, one line each: only the probe checks that the study would still give its numbers.

        Raises:
            UserError: the probe has moved without a rewrite, so that the study must run again; or numbers moved that are
                not accepted, or accepted numbers did not move.
        """
        stored = paired.read(self.result)
        behaviour = self.behaviour(self.load())
        old, new = stored["probe"], behaviour["probe"]
        changes = {name: text for name, text in moved(old, new).items() if name in old or SETTING in name}
        measured = [text for name, text in changes.items() if name in old]
        if measured and stored["probed_by"] == behaviour["probed_by"]:
            raise UserError(
                f"{self.name}: its probe has moved and is the same that it was: {_some(measured)}; run it "
                f"(minirlhf verify studies --run {self.name})",
                argument=self.name,
                value=["probe"],
                problem="changed",
            )
        if changes.keys() != set(accepted):
            not_accepted, not_moved = changes.keys() - set(accepted), set(accepted) - changes.keys()
            lines = [f"moved: {', '.join(changes[name] for name in sorted(not_accepted))}"] * bool(not_accepted)
            lines += [f"did not move: {', '.join(sorted(not_moved))}"] * bool(not_moved)
            raise UserError(
                f"{self.name}: {'; '.join(lines)}; if the probe itself changed, --accept each that moved, by its name",
                argument=self.name,
                value=sorted(not_accepted),
                expected=sorted(not_moved),
                problem="moved",
            )
        _store(self.result, {**behaviour, **{k: stored[k] for k in ("torch", "machine", "seeds")}})
        notes = (
            [] if stored.get("code") == self.own_code else ["its own code has changed, without effect on its numbers"]
        )
        notes.append(f"the numbers of {len(stored['seeds'])} seeds stay as they were measured")
        return notes + [f"accepted: {text}" for text in changes.values()]


def declaration(text: str) -> ast.Call | None:
    """Return the call of ``STUDY = Study(...)`` at a script's top level, or None."""
    for statement in ast.parse(text).body:
        match statement:
            case ast.Assign(targets=[ast.Name(id="STUDY")], value=ast.Call() as call):
                return call
    return None


def _hash(*texts: str) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


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
    scripts = [StudyScript(path) for path in paths if declaration(path.read_text(encoding="utf-8")) is not None]
    if not scripts:
        raise UserError(
            f"no studies in {folder or provenance.ROOT}",
            argument="studies",
            problem="missing",
            file=folder or provenance.ROOT,
        )
    return {script.name: script for script in scripts}
