"""What a reader meets on the way of one algorithm stays within a bound: ``benchmarks/path.py`` counts it."""

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import path

sys.path.pop(0)
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", path.RUNS)
def test_path_of_two_steps_stays_within_bounds(name):
    # In a process of its own: what another test has looked up before, and is kept, would not be counted.
    printed = subprocess.run([sys.executable, path.__file__, name], capture_output=True, text=True, check=True).stdout
    sums = next(line.split()[1:] for line in printed.splitlines() if line.split()[0] == "all")
    for measured, bound, what in zip(map(int, sums), path.BOUNDS[name], ("files", "functions", "lines"), strict=True):
        assert measured <= bound, f"{name} passes through {measured} {what}; see `python benchmarks/path.py {name} -v`"
        assert measured > bound / 2  # it is counted at all
