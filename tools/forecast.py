"""What the tests take, and what they will take with 22 chapters: ``make forecast``.

    make test ARGS="--costs=build/costs.json"    measure: processor seconds and waiting of every test
    tools/forecast.py build/costs.json           the longest units and tests, and the forecast
    tools/forecast.py --keep build/costs.json    also write tests/costs.json, by which the longest units start first

The forecast adds up processor seconds. A chapter's tests (its notebook, its exercises, its checks, its page) are counted by kind:
a chapter with a long notebook costs as much as the mean of those that exist, a short one likewise. A test for all chapters at once
(marked ``every_chapter``) grows with their number; everything else is fixed. The processes compute as much of the time as they did
in the run that was measured, start and end included; beside one more busy process, two of them get two thirds of two cores. What
a browser does is counted by the clock, so measure on a machine that is otherwise idle.
"""

import argparse
import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

import plan  # noqa: E402

CHAPTERS = 22
LONG = {4, 12, 13, 14, 16, 20}  # chapters whose notebook may take 90 seconds
CORES = 2
BUSY = CORES / (CORES + 1)  # what is left of an idle machine beside one busy process

Tests = dict[str, dict[str, Any]]


def forecast(tests: Tests, chapters: int) -> list[tuple[str, float, float]]:
    """Rows ``(part, seconds now, seconds with so many chapters)``: fixed, for all chapters, chapters by kind."""
    by_chapter: dict[int, float] = defaultdict(float)
    fixed = grows = 0.0
    for test in tests.values():
        if test["chapter"] is not None:
            by_chapter[test["chapter"]] += test["cpu"]
        elif test["grows"]:
            grows += test["cpu"]
        else:
            fixed += test["cpu"]
    written = {test["chapter"] for name, test in tests.items() if "test_notebooks.py" in name and test["chapter"]}
    rows = [("fixed", fixed, fixed), ("for all chapters at once", grows, grows * chapters / len(written))]
    for kind, kin in (("long", LONG), ("short", set(range(1, chapters + 1)) - LONG)):
        now = [by_chapter[c] for c in written if c in kin]
        rows.append((f"chapters with a {kind} notebook", sum(now), sum(now) / len(now) * len(kin)))
    others = sum(seconds for chapter, seconds in by_chapter.items() if chapter not in written)
    return [*rows, ("checks of chapters still to be written", others, 0.0)]


def table(run: dict[str, Any]) -> str:
    """The forecast in words: seconds of computing by part, then minutes idle and beside a busy core."""
    rows = forecast(run["tests"], CHAPTERS)
    now, then = sum(row[1] for row in rows), sum(row[2] for row in rows)
    lines = [f"{'processor seconds':<42} {'now':>8} {f'{CHAPTERS} chapters':>12}"]
    lines += [f"{name:<42} {a:8.0f} {b:12.0f}" for name, a, b in [*rows, ("sum", now, then)]]
    speed = now / run["wall"]  # processor seconds per second
    lines.append(f"\nThis run: {run['workers']} processes, {run['wall'] / 60:.1f} minutes, {speed:.2f} cores in use.")
    for name, cores in (("as in this run", speed), ("beside one more busy process", speed * BUSY)):
        lines.append(f"{name:<42} {now / cores / 60:8.1f} {then / cores / 60:12.1f}  minutes")
    return "\n".join(lines)


def longest(tests: Tests, of: Any, most: int = 20) -> str:
    """The units or functions that compute longest."""
    cpu: dict[str, float] = defaultdict(float)
    wall: dict[str, float] = defaultdict(float)
    for name, test in tests.items():
        cpu[of(name)] += test["cpu"]
        wall[of(name)] += test["wall"]
    order = sorted(cpu, key=lambda name: -cpu[name])[:most]
    return "\n".join(f"{cpu[name]:7.1f} s computing {wall[name]:7.1f} s in all  {name}" for name in order)


def keep(tests: Tests) -> None:
    """Write ``tests/costs.json``: whole processor seconds of every unit that takes more than one."""
    costs: dict[str, float] = defaultdict(float)
    for name, test in tests.items():
        costs[plan.unit(name)] += test["cpu"]
    kept = {name: round(seconds) for name, seconds in sorted(costs.items()) if seconds > 1}
    plan.COSTS.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Parse the arguments and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("costs", nargs="?", type=Path, default=ROOT / "build" / "costs.json", help="what --costs wrote")
    parser.add_argument("--keep", action="store_true", help="write tests/costs.json")
    args = parser.parse_args()
    if not args.costs.is_file():
        sys.exit(f'forecast: no {args.costs}; run: make test ARGS="--costs {args.costs}"')
    run = json.loads(args.costs.read_text(encoding="utf-8"))
    print(f"The longest units\n{longest(run['tests'], plan.unit)}\n")
    print(f"The longest tests\n{longest(run['tests'], lambda name: name.partition('[')[0])}\n")
    print(table(run))
    if args.keep:
        keep(run["tests"])


if __name__ == "__main__":
    main()
