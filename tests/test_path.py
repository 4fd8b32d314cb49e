"""What a reader meets on the way of one algorithm stays within a bound: ``benchmarks/path.py`` counts it."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import path

sys.path.pop(0)


@pytest.mark.parametrize("name", path.RUNS)
def test_two_steps_pass_through_no_more_than_this(name):
    found = path.RUNS[name]()
    for measured, bound, what in zip(found.sums(), path.BOUNDS[name], ("files", "functions", "lines"), strict=True):
        assert measured <= bound, f"{name} passes through {measured} {what}; see `python benchmarks/path.py {name} -v`"
        assert measured > bound / 2  # it is counted at all
