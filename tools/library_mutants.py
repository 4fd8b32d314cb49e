"""How many single-line mistakes outside the equations do the tests notice? Results in ``benchmarks/library_mutants.json``.

    make test ARGS="--touched=build/touched.json"       first: which test runs which function
    tools/library_mutants.py                            a sample of 300 mutants, the same at every run
    tools/library_mutants.py --only trainers.ppo        mutants whose name holds this; nothing is written
    tools/library_mutants.py --again                    those that survived, after tests were mended

The mutants are those of :mod:`mutations`. Each runs in a forked process that shares one imported torch, against the quickest tests that run
the changed function and the quickest files whose fixtures do. A survivor is judged by hand: ``benchmarks/library_survivors.toml`` says why it is
equivalent or harmless; every other survivor counts against the tests.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import mutants as equations
from mutations import ROOT, Mutant, of_module

RESULT = ROOT / "benchmarks" / "library_mutants.json"
SURVIVORS = ROOT / "benchmarks" / "library_survivors.toml"
FOLDERS = (
    *(
        f"minirlhf/{name}"
        for name in ["core", "engine", "data", "models", "feedback", "recipes", "trainers", "stages", "sandbox"]
    ),
    "minirlhf_course/classroom",
    "minirlhf_cli/files",
    "minirlhf_cli/export",
)
SAMPLE, SEED = 300, 21
TESTS, FILES = 12, 3  # at most, for one mutant
LIMIT = 240  # processor seconds of one mutant

Touched = dict[str, dict[str, list[str]]]


def mutants() -> list[Mutant]:
    """All mutants of the packages that hold no equation."""
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    return [mutant for path in paths for mutant in of_module(path)]


def tests_of(mutant: Mutant, touched: Touched) -> list[str]:
    """The quickest tests that run the function, then the quickest files whose fixtures run it."""
    found = touched.get(f"{mutant.module}.{mutant.place}") or touched.get(mutant.module, {"tests": [], "files": []})
    files = found["files"][:FILES]
    return [*(test for test in found["tests"][:TESTS] if test.partition("::")[0] not in files), *files]


def judge(mutant: Mutant, touched: Touched) -> str:
    """The test that notices the mutant, or an empty text."""
    tests = tests_of(mutant, touched)
    return equations.start(lambda: equations.by_tests(mutant, tests), LIMIT)() if tests else ""


def main() -> int:
    """Judge the sample and write the result; exit status 1 if a survivor is neither equivalent nor harmless."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--touched", type=Path, default=ROOT / "build" / "touched.json", help="what pytest --touched wrote"
    )
    parser.add_argument("--only", metavar="TEXT", help="mutants whose name holds this; nothing is written")
    parser.add_argument("--again", action="store_true", help="judge again what survived before")
    parser.add_argument("--jobs", type=int, default=2, metavar="INT", help="processes at a time (default: 2)")
    args = parser.parse_args()
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    touched = json.loads(args.touched.read_text(encoding="utf-8"))
    everything = {mutant.name: mutant for mutant in mutants()}
    if args.only:
        chosen = [mutant for name, mutant in everything.items() if args.only in name]
    else:
        chosen = random.Random(SEED).sample(list(everything.values()), SAMPLE)
    before: dict[str, Any] = json.loads(RESULT.read_text(encoding="utf-8")) if args.again else {"killed": {}}
    todo = [mutant for mutant in chosen if mutant.name not in before["killed"]]
    begun = time.monotonic()

    def part(first: int) -> str:
        found = {}
        for mutant in todo[first :: args.jobs]:
            found[mutant.name] = judge(mutant, touched)
            print(f"{found[mutant.name] or 'SURVIVES'}  {mutant.kind}  {mutant.name}", flush=True)
        return json.dumps(found)

    waiting = [equations.start(lambda first=first: part(first)) for first in range(args.jobs)]
    outcomes: dict[str, str] = {name: test for wait in waiting for name, test in json.loads(wait()).items()}
    killed = before["killed"] | {name: test for name, test in outcomes.items() if test}
    reasons = tomllib.loads(SURVIVORS.read_text(encoding="utf-8")) if SURVIVORS.is_file() else {}
    survivors = {m.name: reasons.get(m.name, "not noticed") for m in chosen if m.name not in killed}
    open_ = [name for name, reason in survivors.items() if reason.split(":")[0] not in ("equivalent", "harmless")]
    counted = len(chosen) - len(survivors) + len(open_)
    result = {
        "mutants": len(chosen),
        "of": len(everything),
        "share killed": round((len(chosen) - len(survivors)) / max(1, counted), 4),
        "minutes": round((time.monotonic() - begun) / 60, 1),
        "killed": {m.name: killed[m.name] for m in chosen if m.name in killed},
        "survivors": survivors,
    }
    print(json.dumps({key: value for key, value in result.items() if not isinstance(value, dict)}, indent=1))
    print("\n".join(f"not noticed: {name}" for name in open_))
    if not args.only:
        RESULT.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return int(bool(open_))


if __name__ == "__main__":
    sys.exit(main())
