"""Diagnose a run from its metrics; or this machine: are all packages installed, what will be slow, and why?

minirlhf doctor runs/grpo    check the metrics by a list of rules; exit status 1 if a rule detects a problem
minirlhf doctor              check the machine: takes a few seconds and times a training step, sampling and a matrix
                             product; exit status 1 if something that is needed does not work
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from minirlhf import __version__
from minirlhf.core.errors import UserError
from minirlhf.core.folders import cache_folder

GB = 2**30


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments: runs, or none for this machine."""
    parser.add_argument("runs", nargs="*", metavar="RUN", help="the folder of a run, or its metrics.jsonl")
    parser.add_argument("--no-timing", action="store_true", help="skip the time measurements")


def run(args: argparse.Namespace) -> int:
    """Diagnose the runs; without runs, print the state of the machine, what is wrong, and what will be slow."""
    if args.runs:
        return max([examine(folder) for folder in args.runs])
    wrong: list[str] = []
    slow: list[str] = []
    for title, check in (
        ("versions", versions),
        ("machine", machine),
        ("device", device),
        ("disk", disk),
        ("zoo", cached),
    ):
        _section(title, check(wrong, slow))
    if not args.no_timing:
        _section("speed", speed(slow))
    _section("wrong", wrong or ["nothing"])
    _section("slow", slow or ["nothing in particular"])
    return 1 if wrong else 0


def examine(folder: str) -> int:
    """Print the problems that the rules detect in the metrics of a run; return 1 if there is one."""
    from minirlhf.trainers.history import History
    from minirlhf_course.gallery.questions import questions
    from minirlhf_course.report.diagnosis import RULES, Curves, diagnose

    history = History.read(folder)
    if not len(history):
        message = f"{folder}: its metrics have no rows; expected a run of at least one step"
        raise UserError(message, argument="RUN", value=0, file=folder, problem="empty")
    curves = Curves(history)
    findings = diagnose(history, **_known(Path(folder), has_implicit_rewards=curves.has("chosen_reward")))
    num_applicable = sum(curves.has(*rule.needs, rows=rule.rows) for rule in RULES)
    print(f"{folder}: {len(history)} rows; {num_applicable} of {len(RULES)} rules are applicable to its metrics")
    for finding in findings:
        print(f"  {finding.title}: {finding.evidence}")
        for name in _failures_with(finding.name):
            print(f"      example: minirlhf doctor gallery {name}")
        for question in questions().values():
            if finding.name in question.findings:
                print(f"      question: minirlhf doctor faq {question.name}")
    if not findings:
        print("  no problem detected; the rules do not cover every fault: read a few samples")
    return 1 if findings else 0


def _failures_with(finding: str) -> list[str]:
    """Return the names of the gallery's failures with this finding; they import PyTorch, so they are asked last."""
    from minirlhf_course.gallery.catalogue import gallery

    return [failure.name for failure in gallery().values() if finding in failure.findings]


def _known(run: Path, *, has_implicit_rewards: bool) -> dict[str, Any]:
    """Return facts that are not in the metrics: reference-free loss, one completion per prompt, gradient clipping.

    Only a run with implicit rewards has a loss to look up, which imports the recipes and with them PyTorch.
    """
    try:
        settings = json.loads((run / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    known = {"alone": settings.get("num_generations") == 1, "max_grad_norm": settings.get("max_grad_norm")}
    if has_implicit_rewards:
        from minirlhf.recipes.offline import PreferenceRecipe
        from minirlhf_cli.commands.train import load_run_spec

        try:
            recipe = load_run_spec(run).recipe
        except UserError:
            return {}
        known["reference_free"] = isinstance(recipe, PreferenceRecipe) and not recipe.needs.reference
    return known


def _section(title: str, lines: list[str]) -> None:
    for i, line in enumerate(lines):
        print(f"{title if i == 0 else '':<10}{line}", flush=True)


def versions(wrong: list[str], slow: list[str]) -> list[str]:
    """Return the versions of Python and the required packages, and which extras are installed."""
    from packaging.requirements import Requirement

    lines = [f"minirlhf {__version__}, Python {platform.python_version()} ({sys.executable})"]
    required, extras = [], dict[str, list[str]]()
    for specification in importlib.metadata.requires("minirlhf") or []:
        requirement = Requirement(specification)
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            extra = specification.rpartition("extra == ")[2].strip("\"' )")
            extras.setdefault(extra, []).append(requirement.name)
            continue
        try:
            version = importlib.metadata.version(requirement.name)
            required.append(f"{requirement.name} {version}")
            if not requirement.specifier.contains(version, prereleases=True):
                wrong.append(
                    f"{requirement.name} {version} does not fit {requirement.specifier}: pip install -U minirlhf"
                )
        except importlib.metadata.PackageNotFoundError:
            wrong.append(f"{requirement.name} is missing: pip install minirlhf")
    half = (len(required) + 1) // 2
    lines += [", ".join(required[:half]), ", ".join(required[half:])]
    lines.append("extras: " + ", ".join(f"{name} {_there(names)}" for name, names in extras.items() if name != "all"))
    return lines


def _there(packages: list[str]) -> str:
    for name in packages:
        try:
            importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            return "no"
    return "yes"


def machine(wrong: list[str], slow: list[str]) -> list[str]:
    """Return the lines about cores, threads, load and memory."""
    import torch

    total = os.cpu_count() or 1
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else total
    threads = torch.get_num_threads()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    lines = [f"{platform.system()} {platform.release()} on {platform.machine()}, {usable} of {total} cores"]
    lines.append(f"PyTorch uses {threads} threads (OMP_NUM_THREADS is {os.environ.get('OMP_NUM_THREADS', 'not set')})")
    if load > 0.5 * usable:
        slow.append(f"other programs keep {load:.1f} of {usable} cores busy: everything takes longer, timings vary")
    if threads > usable:
        slow.append(f"{threads} threads share {usable} cores and wait for one another: OMP_NUM_THREADS={usable}")
    if usable < 2:
        slow.append("one core: the tour takes about twice its two minutes")
    if (free := _free_memory()) is not None:
        lines.append(f"{free / GB:.1f} GB of memory free")
        if free < 2 * GB:
            slow.append(f"{free / GB:.1f} GB of memory free: the tour needs up to 2 GB; beyond that the machine swaps")
    return lines


def _free_memory() -> int | None:
    """Return the available memory in bytes, or None if the system does not report it."""
    info = Path("/proc/meminfo")
    if info.is_file():
        fields = dict(line.split(":", 1) for line in info.read_text().splitlines())
        return int(fields["MemAvailable"].split()[0]) * 1024
    return None


def device(wrong: list[str], slow: list[str]) -> list[str]:
    """Return the lines about GPUs."""
    import torch

    if torch.cuda.is_available():
        gpus = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
        return [f"{gpu.name}, {gpu.total_memory / GB:.0f} GB" for gpu in gpus]
    name = (
        "Apple GPU (mps); models are trained on the CPU unless moved there"
        if torch.backends.mps.is_available()
        else None
    )
    return [name or f"no GPU that PyTorch {torch.__version__} can use; the CPU"]


def disk(wrong: list[str], slow: list[str]) -> list[str]:
    """Return the lines about the caches: their folder, their size, and whether they are writable."""
    lines = []
    hub = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    for name, folder in (("checkpoints", cache_folder()), ("hub", hub)):
        parent = folder
        while not parent.exists():
            parent = parent.parent
        free = shutil.disk_usage(parent).free
        used = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file() and not file.is_symlink())
        lines.append(f"{name}: {folder}, {used / GB:.2f} GB used, {free / GB:.1f} GB free")
        if not os.access(parent, os.W_OK):
            wrong.append(f"{parent} cannot be written; set {'MINIRLHF_CACHE' if name == 'checkpoints' else 'HF_HOME'}")
        elif free < GB:
            wrong.append(f"{parent}: {free / GB:.2f} GB free; checkpoints may not fit")
    if os.environ.get("HF_HUB_OFFLINE") == "1":
        lines.append("HF_HUB_OFFLINE=1: names on the hub are looked up in its cache only")
    return lines


def cached(wrong: list[str], slow: list[str]) -> list[str]:
    """Return the line about cached checkpoints."""
    from minirlhf.stages import zoo

    missing = [name for name in zoo.ENTRIES if not zoo.is_cached(name)]
    if missing:
        slow.append(
            f"{', '.join(missing)}: trained at first use, seconds to a minute each (minirlhf models --all does it now)"
        )
    return [f"{len(zoo.ENTRIES) - len(missing)} of {len(zoo.ENTRIES)} checkpoints cached"]


def speed(slow: list[str]) -> list[str]:
    """Time a training step of the smallest preset, sampling, and a matrix product; extrapolate to a larger model."""
    import torch

    from minirlhf.models.sampling import Sampling, sample
    from minirlhf.models.tiny import num_parameters, tiny_model
    from minirlhf.models.tokenizers import word_tokenizer

    model = tiny_model("nano", word_tokenizer([f"w{i}" for i in range(200)]))
    ids = torch.arange(32 * 32).reshape(32, 32) % 200

    def step() -> None:
        model(input_ids=ids, labels=ids).loss.backward()

    def generate() -> None:
        no_token = model.config.vocab_size  # no token has this id, so every completion has full length
        sampling = Sampling(max_completion_length=32)
        sample(model, [[1, 2, 3]], sampling=sampling, num_generations=64, eos_token_id=no_token, pad_token_id=0, seed=0)

    square = torch.randn(512, 512)
    training, sampling_s, matmul = fastest(step), fastest(generate), fastest(lambda: square @ square)
    flops = 2 * 512**3 / matmul
    lines = [f"training, nano ({num_parameters(model) / 1e6:.1f} M parameters): {32 * 32 / training:,.0f} tokens/s"]
    lines += [
        f"sampling, nano, 64 at once: {64 * 32 / sampling_s:,.0f} tokens/s",
        f"matrix product: {flops / 1e9:,.0f} GFLOP/s",
    ]
    if not torch.cuda.is_available():
        # 6 operations per parameter and token (forward and backward), at most at the speed of a matrix product
        step_of_half_a_billion = 6 * 0.5e9 * 4096 / flops
        slow.append(
            f"no GPU: a step on 4,096 tokens with a model of 0.5 B parameters takes at least {step_of_half_a_billion:,.0f} s; "
            "the presets nano, micro and small are made for this machine"
        )
    return lines


def fastest(work: Callable[[], object], repeats: int = 3) -> float:
    """Return the seconds of the fastest of ``repeats`` runs, after one warm-up run."""
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times[1:])
