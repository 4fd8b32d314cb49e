"""How fast the trainers and the sampler are, beside their own floor and beside TRL and ``generate``: one run, all numbers.

    python benchmarks/engine.py [--json FILE] [--plot FILE.png] [--rounds N] [--parts steps memory scaling profile]
                                [--only sampling grpo dpo sft reward] [--models nano micro] [--threads 1 2] [--prompt 16 48]
    python benchmarks/engine.py --device cuda --bf16 --models half --only grpo --parts steps memory

*steps*: a step is what lies between two optimizer steps, so both sides are measured the same way and leave nothing out. In
every round each side takes a few steps, one after the other; what is reported is the median over all of them, in seconds of
processor time for one thread (what else the machine does hardly shows) and of wall clock otherwise. TRL runs with gradient
checkpointing and bfloat16 switched off; with its defaults it is measured too, but it then takes ten times as long, so once
only: one step at fixed lengths, the first prompt length and the first number of threads. The second and further prompt lengths
are measured at the first number of threads and in half as many rounds. Of several threads, the numbers mean something on an
idle machine only: threads that wait for one another wait for whoever holds a core.

*memory*: the peak of resident memory (on a GPU: of allocated memory) above what the process had before training and after a first
step of a tiny batch; every number from a fresh process.

*scaling*: one round of GRPO's step against the number of groups and against the tokens per completion.

*profile*: where a step of ours goes, at varying lengths: matrix products, attention, other operations on tensors, and Python (what
is not inside an operation). The profiler makes short operations, and Python most of all, look dearer than they are.

What the two sides do, what the floor is and what differs between them: ``benchmarks/jobs.py``. On an idle machine with two cores
the default run takes about a quarter of an hour.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import gc
import io
import itertools
import json
import logging
import multiprocessing
import platform
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jobs import JOBS, Job, World
from torch.optim.optimizer import register_optimizer_step_post_hook

from minirlhf.models.tiny import num_parameters
from minirlhf_course.report import plotting

STEPS = 3  # per round, after one that warms up
FLOORS = 2  # per round, likewise; they hardly vary
GROUPS = (4, 8, 16, 32, 64)
COMPLETIONS = (8, 16, 32, 64, 128)
KINDS = {
    "products": ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm"),
    "attention": ("aten::_scaled_dot_product", "aten::_flash_attention", "aten::_efficient_attention"),
}


def clock(threads: int, device: str) -> Callable[[], float]:
    """Seconds: of processor time where one thread does all of it."""
    if device == "cuda":

        def now() -> float:
            torch.cuda.synchronize()
            return time.perf_counter()

        return now
    return time.process_time if threads == 1 else time.perf_counter


@contextlib.contextmanager
def timed(now: Callable[[], float]) -> Iterator[list[float]]:
    """Collects the moments at which an optimizer has stepped."""
    moments: list[float] = []
    handle = register_optimizer_step_post_hook(lambda *_: moments.append(now()))
    try:
        yield moments
    finally:
        handle.remove()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without what the libraries print, warn of or show as bars."""
    import datasets

    nowhere, before = io.StringIO(), logging.root.manager.disable
    with warnings.catch_warnings(), contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        datasets.disable_progress_bars()
        try:
            yield
        finally:
            datasets.enable_progress_bars()
            logging.disable(before)


def seconds_of(run: Callable[[int], Any], now: Callable[[], float], steps: int = STEPS) -> list[float]:
    """Of each step but the first."""
    gc.collect()
    with quiet(), timed(now) as moments:
        run(steps + 1)
    if len(moments) != steps + 1:
        raise RuntimeError(f"{len(moments)} optimizer steps were taken; expected {steps + 1}")
    return [after - before for before, after in itertools.pairwise(moments)]


def seconds_of_floor(job: Job, now: Callable[[], float]) -> list[float]:
    """Of each time but the first."""
    found = []
    for _ in range(FLOORS + 1):
        start = now()
        job.floor()
        found.append(now() - start)
    return found[1:]


def measure(
    job: Job, rounds: int, now: Callable[[], float], *, peers: Sequence[str], defaults: bool
) -> dict[str, float]:
    """Median seconds of a step: ours, each of the peers', and of the floor."""
    seconds: dict[str, list[float]] = {name: [] for name in ("ours", *peers, "floor")}
    for _ in range(rounds):
        seconds["ours"] += seconds_of(job.ours, now)
        for name in peers:
            seconds[name] += seconds_of(job.peers[name], now)
        seconds["floor"] += seconds_of_floor(job, now)
    if defaults:
        seconds["trl_defaults"] = seconds_of(job.peers["trl_defaults"], now, steps=1)
    return {name: statistics.median(values) for name, values in seconds.items()}


def steps(options: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for every job in every setting."""
    rows = []
    for place, prompt in enumerate(options.prompt):
        rounds = options.rounds if place == 0 else max(1, options.rounds // 2)
        for threads in options.threads if place == 0 else options.threads[:1]:
            torch.set_num_threads(threads)
            now = clock(threads, options.device)
            for size, varying in itertools.product(options.models, (False, True)):
                world = World(size, varying, prompt=prompt, device=options.device, bf16=options.bf16)
                lengths = f"{world.lengths[0]}-{world.lengths[-1]}" if varying else str(world.lengths[0])
                print(
                    f"{size} ({num_parameters(world.model()):,} parameters), prompts of {world.width} tokens, completions of "
                    f"{lengths}, {threads} thread(s)",
                    flush=True,
                )
                for name in options.only:
                    job = JOBS[name](world)
                    defaults = (
                        "trl_defaults" in job.peers and not varying and place == 0 and threads == options.threads[0]
                    )
                    peers = [peer for peer in job.peers if peer != "trl_defaults"]
                    found = measure(job, rounds, now, peers=peers, defaults=defaults)
                    rate = job.spoken / found["ours"]
                    print(
                        f"  {name:<9}{found['ours'] * 1e3:7.0f} ms {rate:9,.0f} tokens/s  {ratios(found)}", flush=True
                    )
                    setting = {"size": size, "varying": varying, "prompt": world.width, "threads": threads, "job": name}
                    rows.append({**setting, "tokens": job.tokens, "completion_tokens": job.spoken, "seconds": found})
    return rows


def ratios(found: dict[str, float]) -> str:
    """Our time over each of the others'."""
    return ", ".join(f"{found['ours'] / value:.2f} x {name}" for name, value in found.items() if name != "ours")


def resident(field: str) -> float:
    """Megabytes that this process holds (``VmRSS``), or has held at most (``VmHWM``). Not from ``getrusage``: what that tells survives
    ``exec``, so a child would begin with its parent's peak."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"no {field} in /proc/self/status")


def peak(name: str, side: str, world: World, threads: int) -> float:
    """Megabytes that a trainer needs at most beyond what was there; run in a process of its own."""
    torch.set_num_threads(threads)
    tiny, job = JOBS[name](World("nano", groups=2, device=world.device)), JOBS[name](world)

    def run(of: Job, count: int) -> None:
        with quiet():
            of.ours(count) if side == "ours" else of.peers[side](count)

    run(tiny, 1)
    gc.collect()
    if world.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated()
        run(job, STEPS)
        return (torch.cuda.max_memory_allocated() - held) / 2**20
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # the peak starts again from here
    run(job, STEPS)
    return resident("VmHWM") - before


def memory(options: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for every trainer: the largest of the models, varying lengths, the longest prompts."""
    world = World(options.models[-1], True, prompt=options.prompt[-1], device=options.device, bf16=options.bf16)
    print(f"peak memory: {world.size}, prompts of {world.width} tokens, varying lengths", flush=True)
    rows = []
    for name in options.only:
        if name == "sampling":
            continue
        found = {}
        for side in ("ours", "trl"):
            with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as fresh:
                found[side] = fresh.submit(peak, name, side, world, options.threads[0]).result()
        print(
            f"  {name:<9}{found['ours']:7.0f} MB, {found['ours'] / found['trl']:.2f} x TRL's {found['trl']:.0f} MB",
            flush=True,
        )
        rows.append({"size": world.size, "prompt": world.width, "job": name, "megabytes": found})
    return rows


def fit(x: Sequence[float], y: Sequence[float]) -> dict[str, float]:
    """The line through the points, how much of their variance it explains, and the exponent of the best power law."""
    slope, start = np.polyfit(x, y, 1)
    explained = 1 - np.var(np.array(y) - slope * np.array(x) - start) / np.var(y)
    return {
        "slope": float(slope), "start": float(start), "r2": float(explained),
        "exponent": float(np.polyfit(np.log(x), np.log(y), 1)[0]),
    }  # fmt: skip


def scaling(options: argparse.Namespace) -> dict[str, Any]:
    """GRPO's step and its floor as the work grows, at fixed lengths."""
    threads, result = options.threads[0], {}
    torch.set_num_threads(threads)
    now = clock(threads, options.device)
    for axis, values in (("groups", GROUPS), ("completion", COMPLETIONS)):
        points: dict[str, list[float]] = {"ours": [], "floor": []}
        for value in values:
            amount: dict[str, Any] = {axis: value}
            world = World(
                options.models[0], prompt=options.prompt[0], device=options.device, bf16=options.bf16, **amount
            )
            found = measure(JOBS["grpo"](world), 1, now, peers=[], defaults=False)
            for name, seconds in points.items():
                seconds.append(found[name])
        fits = {name: fit(values, seconds) for name, seconds in points.items()}
        print(f"GRPO step of {options.models[0]} against {axis} {values}", flush=True)
        for name, line in fits.items():
            shown = " ".join(f"{second * 1e3:.0f}" for second in points[name])
            print(
                f"  {name:<6}{shown} ms; line: R² {line['r2']:.4f}; power law: exponent {line['exponent']:.2f}",
                flush=True,
            )
        result[axis] = {
            "size": options.models[0],
            "threads": threads,
            "values": list(values),
            "seconds": points,
            "fits": fits,
        }
    return result


def shares(run: Callable[[int], Any]) -> dict[str, float]:
    """Of the time of the second step in each kind of operation."""
    profiler, moments = torch.profiler.profile(), []

    def stepped(*_: Any) -> None:
        moments.append(time.perf_counter())
        if len(moments) == 1:
            profiler.start()
        else:
            profiler.stop()

    handle = register_optimizer_step_post_hook(stepped)
    with quiet():
        run(2)
    handle.remove()
    found = dict.fromkeys([*KINDS, "other operations"], 0.0)
    for event in profiler.key_averages():
        kind = next((kind for kind, names in KINDS.items() if event.key.startswith(names)), "other operations")
        found[kind] += event.self_cpu_time_total * 1e-6 / (moments[-1] - moments[0])
    return {**found, "Python": max(0.0, 1 - sum(found.values()))}


def profile(options: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for every job and model."""
    torch.set_num_threads(options.threads[0])
    rows = []
    for size in options.models:
        world = World(size, True, prompt=options.prompt[0], device=options.device, bf16=options.bf16)
        print(f"where our steps go: {size}, varying lengths", flush=True)
        for name in options.only:
            found = shares(JOBS[name](world).ours)
            print(f"  {name:<9}" + ", ".join(f"{share:4.0%} {kind}" for kind, share in found.items()), flush=True)
            rows.append({"size": size, "prompt": world.width, "job": name, "shares": found})
    return rows


def draw(result: dict[str, Any]) -> bytes:
    """The figure of *scaling*, as PNG."""
    names = {"groups": "groups of 8 completions", "completion": "tokens per completion"}
    figure, axes = plotting.panels(2)
    for ax, (axis, found) in zip(axes, result.items(), strict=True):
        x = np.array(found["values"])
        for name, label, color in (("ours", "GRPO step", "blue"), ("floor", "floor: the model alone", "orange")):
            line = found["fits"][name]
            ax.plot(x, 1e3 * np.array(found["seconds"][name]), "o", color=plotting.PALETTE[color])
            ax.plot(
                x,
                1e3 * (line["slope"] * x + line["start"]),
                color=plotting.PALETTE[color],
                label=f"{label} (R² = {line['r2']:.4f})",
            )
        ax.set(
            xlabel=names[axis],
            ylabel="milliseconds per step",
            xlim=(0, None),
            ylim=(0, 1.4e3 * max(map(max, found["seconds"].values()))),
            xticks=x[1:],
        )
        ax.legend(frameon=False)
    figure.suptitle(
        f"GRPO's step time as its tokens grow, and the best lines ({found['size']} model, {found['threads']} thread)"
    )
    return plotting.png(figure)


def about(device: str) -> dict[str, Any]:
    """What was measured on what, and when."""
    name = torch.cuda.get_device_name() if device == "cuda" else platform.machine()
    versions = {package: version(package) for package in ("torch", "transformers", "trl")}
    return {"date": datetime.date.today().isoformat(), **versions, "device": device, "machine": name}


PARTS: dict[str, Callable[[argparse.Namespace], Any]] = {
    "steps": steps,
    "memory": memory,
    "scaling": scaling,
    "profile": profile,
}


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="keep everything in this file")
    parser.add_argument("--plot", type=Path, help="draw the scaling in this PNG")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--only", nargs="+", choices=JOBS, default=list(JOBS))
    parser.add_argument("--models", nargs="+", choices=["nano", "micro", "small", "half"], default=["nano", "micro"])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--prompt", nargs="+", type=int, default=[16, 48], help="words of a prompt")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--bf16", action="store_true", help="weights in bfloat16, on both sides")
    options = parser.parse_args(arguments)
    if options.plot and "scaling" not in options.parts:
        parser.error("--plot draws the scaling: add it to --parts")
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    start = time.perf_counter()
    result = about(options.device)
    for part in options.parts:
        result[part] = PARTS[part](options)
        if options.json:  # after every part: a run that is stopped keeps what it has
            options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if options.plot:
        options.plot.write_bytes(draw(result["scaling"]))
    print(f"{(time.perf_counter() - start) / 60:.1f} minutes", flush=True)


if __name__ == "__main__":
    main()
