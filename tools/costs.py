"""What the tests take: ``make costs`` after ``make test ARGS="--costs=build/costs.json"``.

    tools/costs.py build/costs.json           the longest units and tests, and the whole
    tools/costs.py --keep build/costs.json    also write tests/costs.json, by which a fresh clone starts the longest units first
    tools/costs.py --differ A B               outcomes of two runs that differ (build/costs.json of each)

Costs are processor seconds; what a browser does is counted by the clock.
"""

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

import plan  # noqa: E402

Tests = dict[str, dict[str, Any]]


def longest(tests: Tests, of: Callable[[str], str], most: int = 25) -> str:
    """The units or functions that compute longest."""
    cpu: dict[str, float] = defaultdict(float)
    wall: dict[str, float] = defaultdict(float)
    for name, test in tests.items():
        cpu[of(name)] += test["cpu"]
        wall[of(name)] += test["wall"]
    order = sorted(cpu, key=lambda name: -cpu[name])[:most]
    return "\n".join(f"{cpu[name]:7.1f} s computing {wall[name]:7.1f} s in all  {name}" for name in order)


def by_unit(tests: Tests) -> dict[str, int]:
    """Whole processor seconds of every unit that takes more than one."""
    costs: dict[str, float] = defaultdict(float)
    for name, test in tests.items():
        costs[plan.unit(name)] += test["cpu"]
    return {name: round(seconds) for name, seconds in sorted(costs.items()) if seconds > 1}


def differing(one: Tests, other: Tests) -> list[str]:
    """Tests whose outcome differs between two runs, or that ran in one of them only."""
    names = sorted({*one, *other})
    outcomes = [(name, *(run.get(name, {}).get("outcome", "absent") for run in (one, other))) for name in names]
    return [f"{name}: {a}, {b}" for name, a, b in outcomes if a != b]


def main() -> int:
    """Parse the arguments and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "costs", nargs="*", type=Path, default=[ROOT / "build" / "costs.json"], help="what --costs wrote"
    )
    parser.add_argument("--keep", action="store_true", help="write tests/costs.json")
    parser.add_argument("--differ", action="store_true", help="compare the outcomes of two runs")
    args = parser.parse_args()
    for file in args.costs:
        if not file.is_file():
            sys.exit(f'costs: no file {file}; run: make test ARGS="--costs={file}"')
    runs = [json.loads(file.read_text(encoding="utf-8")) for file in args.costs]
    if args.differ and len(runs) != 2:
        sys.exit(f"costs: --differ compares two runs; given: {len(runs)}")
    if args.differ:
        found = differing(*(run["tests"] for run in runs))
        print("\n".join(found) or f"the same outcome of {len(runs[0]['tests'])} tests")
        return int(bool(found))
    tests, wall = runs[0]["tests"], runs[0]["wall"]
    print(f"The longest units\n{longest(tests, plan.unit)}\n")
    print(f"The longest tests\n{longest(tests, lambda name: name.partition('[')[0])}\n")
    computing = sum(test["cpu"] for test in tests.values())
    print(
        f"{len(tests)} tests, {runs[0]['workers']} processes, {wall / 60:.1f} minutes, {computing / wall:.2f} cores in use"
    )
    if args.keep:
        plan.COSTS.write_text(json.dumps(by_unit(tests), indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
