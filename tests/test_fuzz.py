"""A few hundred damaged inputs, new ones in every run."""

import random

import fuzz
import pytest

from minirlhf.core.errors import UserError, unknown
from minirlhf_course import evidence


@pytest.mark.slow
@pytest.mark.parametrize("name", list(fuzz.TARGETS))
def test_fuzz_target_reads_or_refuses_damaged_input(name, suite_seed):
    outcomes, crashes = fuzz.fuzz(name, {"programs": 120}.get(name, 300), suite_seed)
    assert not crashes, crashes[0]
    assert outcomes["read"] and outcomes["refused"], "the inputs are all alike"


def test_fuzz_inputs_depend_on_seed_and_number_alone(tmp_path):
    for make in fuzz.TARGETS.values():
        target = make(tmp_path)
        first, _, again = (repr(target.make(random.Random(seed))) for seed in ("1 a 5", "1 a 6", "1 a 5"))
        assert first == again


def test_fuzz_attempt_finds_crash():
    def fails(how):
        raise how

    assert fuzz.attempt(fails, UserError("one line"))[0] == "refused"
    assert fuzz.attempt(fails, UserError("two\nlines"))[0] == "crashed"
    assert fuzz.attempt(fails, KeyError("x")) == ("crashed", "KeyError: 'x'")
    assert fuzz.attempt(fails, SystemExit(2))[0] == "crashed"
    assert fuzz.attempt(lambda _: None, 1) == ("read", "")


def test_errors_unknown_cuts_endless_name():
    for length, shown in ((5000, f"'{'9' * 80}…'"), (80, f"'{'9' * 80}'")):
        problem = unknown("pooling", "9" * length, ["last", "mean"])
        assert shown in str(problem) and problem.value == "9" * length and problem.expected == ["last", "mean"]


def test_fuzz_attempt_counts_endless_loop_as_crash(monkeypatch):
    monkeypatch.setattr(fuzz, "SECONDS", 1)

    def endless(_):
        while True:
            pass

    outcome, said = fuzz.attempt(endless, 0)
    assert outcome == "crashed" and said.startswith("TimeoutError")


def test_fuzz_evidence_of_long_run_has_no_crash():
    found = evidence.read(fuzz.RESULT)
    [numbers] = found["seeds"].values()
    for name in fuzz.TARGETS:
        assert numbers[f"{name}_crashed"] == 0
        assert numbers[f"{name}_read"] + numbers[f"{name}_refused"] >= 100_000 * fuzz.SHARE.get(name, 1)
