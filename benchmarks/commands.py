"""How long a reader waits: ``train`` from its start to its first line, and ``evaluate`` on 500 rows.

    python benchmarks/commands.py --json benchmarks/commands.json

Wall-clock and processor seconds of whole processes, on one thread. *Cold* is without any compiled Python files, as after an installation
(each process is given an empty folder for them); *warm* is the same once more. On a machine that does other work, the processor seconds
are what can be compared.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROWS = 500


def timed(argv: list[str], place: Path, bytecode: Path, until: str = "") -> dict[str, float]:
    """A command of ``minirlhf``: seconds until a line with these words, and until its end."""
    env = {**os.environ, "PYTHONPYCACHEPREFIX": str(bytecode), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # with it every run would be a cold one
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "minirlhf_cli", *argv],
        cwd=place,
        env=env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    found, said = {}, []
    assert process.stdout is not None
    for line in process.stdout:
        said.append(line)
        if until and until in line and "first line" not in found:
            found["first line"] = time.perf_counter() - start
    if process.wait():
        raise SystemExit("".join(said))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {**found, "wall": time.perf_counter() - start, "processor": used}


def measured(rounds: int) -> dict[str, dict[str, float]]:
    """Medians over the rounds; cold only once, for it is the first."""
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        problems = [
            {"prompt": f"What is {n % 23} + {n // 23}?", "reference": str(n % 23 + n // 23)} for n in range(ROWS)
        ]
        talks = [{"prompt": row["prompt"], "completion": f"It is {row['reference']}."} for row in problems]
        for name, rows in (("problems", problems), ("talks", talks)):
            (place / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        train = [
            "train",
            "sft",
            "--data",
            "talks.jsonl",
            "--max-steps",
            "1",
            "--batch-size",
            "8",
            "--vocab-size",
            "400",
        ]
        for size in ("nano", "micro"):
            cold = timed([*train, "--model", size, "--out", size], place, place / f"bytecode_{size}", "parameters")
            found[f"train {size}, cold"] = cold
            runs = [
                timed([*train, "--model", size, "--out", f"{size}{i}"], place, place / f"bytecode_{size}", "parameters")
                for i in range(rounds)
            ]
            found[f"train {size}, warm"] = _medians(runs)
            ask = ["evaluate", size, "--data", "problems.jsonl", "--grader", "numeric", "--max-completion-length", "32"]
            runs = [timed(ask, place, place / f"bytecode_{size}") for _ in range(rounds)]
            found[f"evaluate {size}, {ROWS} rows of up to 32 tokens"] = _medians(runs)
    return found


def _medians(runs: list[dict[str, float]]) -> dict[str, float]:
    return {key: statistics.median(run[key] for run in runs) for key in runs[0]}


def main() -> None:
    """Print the table; write it with --json."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    load = [round(os.getloadavg()[0], 1)]
    found = measured(args.rounds)
    load.append(round(os.getloadavg()[0], 1))
    for name, seconds in found.items():
        print(f"{name:44}", "  ".join(f"{key} {value:.1f} s" for key, value in seconds.items()))
    if args.json:
        told = {"load at begin and end": load, "processors": os.cpu_count(), "seconds": {
            name: {key: round(value, 2) for key, value in one.items()} for name, one in found.items()
        }}  # fmt: skip
        args.json.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
