"""A few hundred damaged inputs, new ones in every run."""

import random

import fuzz
import pytest

from minirlhf import evidence
from minirlhf.core.errors import UserError, unknown


@pytest.mark.parametrize("name", list(fuzz.TARGETS))
def test_damaged_input_is_read_or_refused(name, fresh_seed):
    outcomes, crashes = fuzz.fuzz(name, {"programs": 120}.get(name, 300), fresh_seed)
    assert not crashes, crashes[0]
    assert outcomes["read"] and outcomes["refused"], "the inputs are all alike"


def test_inputs_depend_on_seed_and_number_alone(tmp_path):
    for make in fuzz.TARGETS.values():
        target = make(tmp_path)
        first, _, again = (repr(target.make(random.Random(seed))) for seed in ("1 a 5", "1 a 6", "1 a 5"))
        assert first == again


def test_a_crash_is_found():
    def fails(how):
        raise how

    assert fuzz.attempt(fails, UserError("one line"))[0] == "refused"
    assert fuzz.attempt(fails, UserError("two\nlines"))[0] == "crashed"
    assert fuzz.attempt(fails, KeyError("x")) == ("crashed", "KeyError: 'x'")
    assert fuzz.attempt(fails, SystemExit(2))[0] == "crashed"
    assert fuzz.attempt(lambda _: None, 1) == ("read", "")


def test_an_endless_name_is_cut_where_it_is_unknown():
    assert str(unknown("pooling", "9" * 5000, ["last", "mean"])) == f"unknown pooling '{'9' * 80}…': known: last, mean"
    assert str(unknown("pooling", "9" * 80, ["last"])) == f"unknown pooling '{'9' * 80}': known: last"


def test_an_endless_loop_is_a_crash(monkeypatch):
    monkeypatch.setattr(fuzz, "SECONDS", 1)

    def endless(_):
        while True:
            pass

    assert fuzz.attempt(endless, 0) == ("crashed", "TimeoutError: no answer in 1 s")


def test_the_long_run():
    found = evidence.read(fuzz.RESULT)
    [numbers] = found["seeds"].values()
    for name in fuzz.TARGETS:
        assert numbers[f"{name}_crashed"] == 0
        assert numbers[f"{name}_read"] + numbers[f"{name}_refused"] >= 100_000 * fuzz.SHARE.get(name, 1)
