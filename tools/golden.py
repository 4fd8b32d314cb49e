"""Record what the project computes and says, and compare it after a change that must not alter it.

    tools/golden.py record  build/golden                      before: what this checkout gives
    tools/golden.py compare build/golden [--renames FILE]     after: exit status 1 where it differs
    tools/golden.py compare build/golden --only runs help     some parts

Parts: the ledger's errors on a pinned seed (verify), the numbers of all studies' probes (probes), the descriptions of all recipes and losses
(recipes), two steps of every trainer, recipe and loss (runs: metrics.jsonl, bit for bit on one machine), what `release` writes (release),
the feedback on all mutants and readers' answers (feedback), the outputs of the notebooks (notebooks), the help of every command (help).

FILE has a line `old<TAB>new` for each renamed thing: a renamed thing is compared with its old self. Names are replaced as whole words in the
recorded texts.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = ROOT / "tests" / "samples"
SEED = 20_261_128
CLOCK = re.compile(r"\d+(?:\.\d+)? ?(?:ms|s|min|MB|GB)\b|\d+(?:\.\d+)? (?:seconds|minutes)\b|\d\d:\d\d:\d\d")
#: Numbers of a run that measure the machine.
TIMES = re.compile(r"second|time|tokens_per|memory|throughput|created")
Record = dict[str, Any]


# -- parts: each gives names and values ----------------------------------------------------------------------------


def said(*command: str) -> str:
    """What a command prints, without times; an error as its text."""
    from minirlhf.core.errors import UserError
    from minirlhf_cli import dispatch

    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            status: object = dispatch(command)
        except SystemExit as end:  # argparse, after --help
            status = end.code
        except UserError as problem:
            status = f"error: {problem}"
    return CLOCK.sub("…", f"{out.getvalue()}\n[{status}]".replace(f"{ROOT}/", ""))


def help_texts() -> Record:
    """The help of every command and trainer, in 100 columns."""
    from minirlhf_cli import COMMANDS
    from minirlhf_cli.commands.train import TRAINERS

    commands = [[], *(name.split() for name in COMMANDS), *(["train", name] for name in TRAINERS)]
    return {" ".join(command): said(*command, "--help") for command in commands}


def verify() -> Record:
    """Errors and values of every check; an error far below its tolerance counts as none, as the order of a sum decides about it."""
    results = without_times(json.loads(said("verify", "--all", "--seed", str(SEED), "--json").rpartition("\n[")[0]))
    for check in results["checks"]:
        if check["error"] is not None and check["error"] < 1e-3 * check["tolerance"]:
            check["error"] = 0.0
    return {"results": results}


def without_times(data: Any) -> Any:
    """Data without what the clock says."""
    if isinstance(data, dict):
        return {k: without_times(v) for k, v in data.items() if not TIMES.search(k) and k != "ms"}
    return [without_times(x) for x in data] if isinstance(data, list) else data


def probes(part: int, parts: int) -> Record:
    """The numbers of the probes of every ``parts``-th study."""
    from minirlhf_course.evidence import study

    scripts = sorted(study.discover().items())[part::parts]
    return {name: study.run_probe(script.load()) for name, script in scripts}


def recipes() -> Record:
    """The descriptions of recipes, losses and distillations."""
    from minirlhf import recipes
    from minirlhf.recipes import distill, offline

    return {
        **{f"recipe {name}": recipes.describe(recipe) for name, recipe in recipes.RECIPES.items()},
        **{f"loss {name}": offline.describe_preference(row) for name, row in offline.PREFERENCES.items()},
        **{f"distill {name}": distill.describe_distillation(row) for name, row in distill.DISTILLATIONS.items()},
    }


SIZES = ["--max-steps", "2", "--batch-size", "4", "--seed", "1"]
TINY = [*SIZES, "--model", "nano", "--vocab-size", "300", "--context", "128", "--drop-long", "true"]
ONLINE = [*SIZES, "--task", "shell_game", "--num-generations", "4"]
DATA = [[*TINY, "--data", str(SAMPLES / name)] for name in ("preference.jsonl", "kto.jsonl", "ranking.jsonl")]
STEPS = [[*TINY, "--data", "steps.jsonl"]]


def runs(part: int, parts: int) -> Record:
    """Metrics of two steps, with what the run prints, on the first data that the trainer takes."""
    from minirlhf import recipes
    from minirlhf.recipes.distill import DISTILLATIONS
    from minirlhf_cli.commands.train import TRAINERS

    ways: dict[str, list[list[str]]] = {}
    for name in TRAINERS:
        online = name in recipes.RECIPES or name in ("online", "rs")
        ways[name] = [ONLINE] if online else [*DATA, *STEPS, ONLINE[:-2]]
    del ways["distill"]
    teacher = ["--teacher", "teacher/model", "--model", "teacher/model", "--data", str(SAMPLES / "messages.jsonl")]
    for name in DISTILLATIONS:
        ways[f"distill --recipe {name}"] = [[*SIZES, "--drop-long", "true", *teacher]]
    found = {}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        rows = [{"prompt": f"{n}+1?", "steps": [f"add 1 to {n}", f"{n + 1}"], "labels": [1, n % 2]} for n in range(24)]
        Path("steps.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        if part == 0:
            said("train", "sft", *TINY, "--data", str(SAMPLES / "messages.jsonl"), "--out", "teacher")
        for number, (name, tries) in enumerate(ways.items()):
            mine = part == 0 if name.startswith("distill") else number % parts == part
            for attempt, flags in enumerate(tries if mine else []):
                out = Path(f"{name.replace(' ', '_')}-{attempt}")
                text = said("train", *name.split(), *flags, "--out", str(out)).replace(folder, "")
                found[name] = {"said": text, "metrics": metrics(out / "metrics.jsonl")}
                if found[name]["metrics"]:
                    break
    return found


def metrics(path: Path) -> list[Any]:
    """The lines of a run's metrics without times; empty if it has none."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return [without_times(json.loads(line)) for line in lines]


def release() -> Record:
    """Every file that students get, as text."""
    with tempfile.TemporaryDirectory() as folder:
        found = said("class", "release", "--out", f"{folder}/out", "--exercises", str(ROOT / "exercises"))
        files = sorted(path for path in Path(folder).rglob("*") if path.is_file())
        texts = {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in files}
        return {"said": found.replace(folder, ""), **texts}


def feedback(part: int, parts: int) -> Record:
    """Points and words for every mutant, partial answer and reader's answer, with one student's numbers."""
    import torch

    from minirlhf_course.classroom import exercise as sources
    from minirlhf_course.classroom import grading, proof

    torch.set_num_threads(1)
    exercises = {e.id: e for e in sources.load(ROOT / "exercises")}
    answers: dict[str, list[tuple[str, str]]] = {}
    for path in sorted((ROOT / "tests" / "answers").glob("ch*.txt")):
        for block in re.split(r"(?m)^(?=# %% )", path.read_text(encoding="utf-8")):
            if head := re.match(r"# %% (?:wrong|right) ([\d.]+):.*\n", block):
                answers.setdefault(head[1], []).append((head[0].strip(), block[head.end() :]))
    found: Record = {}
    for number, e in sorted(exercises.items())[part::parts]:
        own = [(f"{v.note}", v.code) for v in (*e.mutants, *e.partials)]
        for index, (note, code) in enumerate([*own, *answers.get(number, [])]):
            try:
                outcome = grading.run_tests(e, proof.answer(e, e.solution, code), SEED)
                failed = outcome.first_failure
                words = [failed.test.name, failed.message, *failed.lines, *failed.hints] if failed else []
                found[f"{number} {index} {note}"] = [outcome.points, *words]
            except Exception as problem:
                found[f"{number} {index} {note}"] = f"{type(problem).__name__}: {problem}"
    return found


def notebooks(part: int, parts: int) -> Record:
    """What every cell prints, and a digest of every image."""
    import nbformat
    from nbclient import NotebookClient

    found: Record = {}
    for path in sorted((ROOT / "notebooks").glob("*.ipynb"))[part::parts]:
        notebook = nbformat.read(path, as_version=4)
        resources = {"metadata": {"path": str(path.parent)}}
        client = NotebookClient(notebook, timeout=1800, startup_timeout=1800, resources=resources)
        client.execute(env={**os.environ, "MINIRLHF_NO_BAR": "1"})
        for number, cell in enumerate(notebook.cells):
            for output in cell.get("outputs", []):
                data = output.get("data", {})
                text = output.get("text") or "".join(data.get("text/markdown", data.get("text/plain", "")))
                image = hashlib.sha256(data["image/png"].encode()).hexdigest() if "image/png" in data else ""
                found.setdefault(f"{path.stem} cell {number}", []).append([CLOCK.sub("…", text), image])
    return found


#: Part -> its function, and into how many pieces it is cut.
PARTS: dict[str, tuple[Callable[..., Record], int]] = {
    "notebooks": (notebooks, 8),
    "feedback": (feedback, 6),
    "probes": (probes, 6),
    "runs": (runs, 4),
    "verify": (verify, 1),
    "release": (release, 1),
    "help": (help_texts, 1),
    "recipes": (recipes, 1),
}


# -- record and compare --------------------------------------------------------------------------------------------


def pieces(names: list[str]) -> list[tuple[str, int]]:
    """Pieces of work, the longest parts first."""
    return [(name, i) for name, (_, count) in PARTS.items() if name in names for i in range(count)]


def compute(name: str, index: int, cache: str) -> Record:
    """One piece, in a process of its own: one thread, no network, the given cache of trained checkpoints."""
    settings = {
        "OMP_NUM_THREADS": "1",
        "MPLBACKEND": "Agg",
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "COLUMNS": "100",
        "MINIRLHF_CACHE": cache,
    }
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "piece.json"
        command = [sys.executable, __file__, "piece", name, str(index), str(out)]
        done = subprocess.run(command, cwd=ROOT, env=os.environ | settings, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"golden: {name} {index} failed:\n{done.stderr[-3000:]}")
        return json.loads(out.read_text(encoding="utf-8"))


def compute_all(names: list[str], jobs: int) -> dict[str, Record]:
    """All parts, so many pieces at a time."""
    found: dict[str, Record] = {name: {} for name in names}
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as cache, ThreadPoolExecutor(jobs) as pool:
        work = pieces(names)
        for (name, index), piece in zip(work, pool.map(lambda one: compute(*one, cache), work), strict=True):
            found[name] |= piece
            print(f"{name} {index}: {len(piece)} things after {time.monotonic() - begun:.0f} s", flush=True)
    return found


def renamed(record: Record, names: dict[str, str]) -> Record:
    """A record with old names replaced by new ones, as whole words."""
    if not names:
        return record
    words = re.compile(r"(?<![\w])(" + "|".join(map(re.escape, sorted(names, key=len, reverse=True))) + r")(?![\w])")
    return json.loads(words.sub(lambda word: names[word[0]], json.dumps(record, ensure_ascii=False)))


def differences(before: Any, after: Any, place: str = "") -> Iterator[str]:
    """Where two records differ."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted({*before, *after}):
            if key not in after or key not in before:
                yield f"{place} / {key}: {'gone' if key in before else 'new'}"
            else:
                yield from differences(before[key], after[key], f"{place} / {key}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, pair in enumerate(zip(before, after, strict=True)):
            yield from differences(*pair, f"{place}[{number}]")
    elif isinstance(before, str) and isinstance(after, str) and before != after:
        lines = zip([*before.splitlines(), ""], [*after.splitlines(), ""], strict=False)
        at, (old, new) = next(((n, pair) for n, pair in enumerate(lines) if pair[0] != pair[1]), (0, (before, after)))
        yield f"{place}, line {at + 1}: {old[:150]!r} → {new[:150]!r}"
    elif json.dumps(before) != json.dumps(after):  # NaN is itself
        yield f"{place}: {str(before)[:150]} → {str(after)[:150]}"


def main() -> int:
    """Record, compare, or compute one piece."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    subs = parser.add_subparsers(dest="mode", required=True)
    for mode in ("record", "compare"):
        sub = subs.add_parser(mode)
        sub.add_argument("folder", type=Path, help="where the record lies, one JSON file for each part")
        sub.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="some parts (default: all)")
        sub.add_argument("--jobs", type=int, default=2, metavar="INT", help="processes at a time (default: 2)")
    sub.add_argument("--renames", type=Path, metavar="FILE", help="a line old<TAB>new for each renamed thing")
    piece = subs.add_parser("piece")
    piece.add_argument("name", choices=PARTS)
    piece.add_argument("index", type=int)
    piece.add_argument("out", type=Path)
    args = parser.parse_args()
    if args.mode == "piece":
        function, count = PARTS[args.name]
        result = function(args.index, count) if count > 1 else function()
        args.out.write_text(json.dumps(result, ensure_ascii=False), encoding="utf-8")
        return 0
    names = [name for name in PARTS if name in args.only]
    if args.mode == "record":
        args.folder.mkdir(parents=True, exist_ok=True)
        for name, record in compute_all(names, args.jobs).items():
            text = json.dumps(record, ensure_ascii=False, indent=1, sort_keys=True)
            (args.folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")
        return 0
    for name in names:
        if not (args.folder / f"{name}.json").is_file():
            sys.exit(f"golden: no record of {name} in {args.folder}; run: tools/golden.py record {args.folder}")
    lines = args.renames.read_text(encoding="utf-8").splitlines() if args.renames else []
    table = dict(line.split("\t")[:2] for line in lines if line.strip())
    count = 0
    for name, after in compute_all(names, args.jobs).items():
        before = renamed(json.loads((args.folder / f"{name}.json").read_text(encoding="utf-8")), table)
        found = list(differences(before, after, name))
        count += len(found)
        print("\n".join([f"{name}: {len(found)} differences in {len(before)} things", *found[:40]]))
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main())
