"""Runs killed at random moments: a sample of the study, and what the whole study found."""

import json
import re
import sys
from pathlib import Path

import pytest
from patience import finished

STUDY = Path(__file__).resolve().parents[1] / "benchmarks" / "killed_runs.py"
TRAINERS = ("sft", "reward", "grpo", "ppo", "dpo", "bco")


@pytest.mark.slow
def test_killed_runs_resume_to_same_bits(suite_seed):
    command = [sys.executable, "-W", "ignore", str(STUDY), "--moments", "2", "--seed", str(suite_seed)]
    done = finished(command, usually=30)
    assert done.returncode == 0, done.stdout
    lines = dict(re.findall(r"^(\w+)\s+(\{.*\})", done.stdout, re.M))
    assert tuple(lines) == TRAINERS
    found = [json.loads(line) for line in lines.values()]
    assert all(trainer["runs"] == trainer["same_bits"] == 1 for trainer in found)
    assert any(
        trainer["killed"] for trainer in found
    )  # how many of the 12 hit a running process depends on the machine


def test_killed_runs_study_killed_each_trainer_often():
    found = json.loads(STUDY.with_suffix(".json").read_text(encoding="utf-8"))
    assert set(found["trainers"]) == set(TRAINERS)
    for trainer in found["trainers"].values():
        assert trainer["runs"] >= 10 and trainer["same_bits"] == trainer["runs"]
        assert trainer["killed"] >= 16 and trainer["distinct_steps"] >= 4
