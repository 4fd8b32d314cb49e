"""The tour's report, its claims over five seeds, and one run of it that must lie within them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from patience import finished

from minirlhf import evidence

ROOT = Path(__file__).resolve().parents[1]
STUDY = ROOT / "minirlhf" / "tour" / "study.json"

# What the report and the README say, as "this number exceeds that one".
CLAIMS = {
    "SFT answers better than the base model": lambda n: n["gold_sft"] - n["gold_base"],
    **{
        f"{name.upper()} answers better than SFT": lambda n, name=name: n[f"gold_{name}"] - n["gold_sft"]
        for name in ("grpo", "ppo", "dpo")
    },
    **{
        f"{name.upper()} wins more than half of the comparisons with SFT": lambda n, name=name: (
            n[f"win_rate_{name}"] - 0.5
        )
        for name in ("grpo", "dpo")
    },
    "the reward model ranks better than a coin": lambda n: n["judge_accuracy"] - 0.5,
    "RL plays the shell game better than SFT": lambda n: n["game_sampled_rl"] - n["game_sampled_sft"],
    "the shell game is won in nine of ten samples": lambda n: n["game_sampled_rl"] - 0.9,
    "RL thinks aloud more than SFT": lambda n: n["game_thinks_rl"] - n["game_thinks_sft"],
}
# What spreads too much between seeds for that, and is said with its count.
IN_FIVE_OF_FIVE = {
    "PPO wins more than half of the comparisons with SFT": lambda n: n["win_rate_ppo"] - 0.5,
    "DPO rates the chosen replies of its last batch above the rejected ones": lambda n: n["dpo_margin"],
}


@pytest.fixture(scope="module")
def study():
    return evidence.read(STUDY)


@pytest.mark.parametrize("claim", CLAIMS)
def test_claims_hold_three_seed_deviations_away(claim, study):
    numbers = [CLAIMS[claim](seed) for seed in study["seeds"].values()]
    assert evidence.margin(numbers, 0.0) >= 3, numbers


@pytest.mark.parametrize("claim", IN_FIVE_OF_FIVE)
def test_claims_with_a_count(claim, study):
    numbers = [IN_FIVE_OF_FIVE[claim](seed) for seed in study["seeds"].values()]
    assert len(numbers) == 5 and all(x > 0 for x in numbers), numbers


@pytest.mark.slow
def test_one_tour_lies_within_the_evidence(study, tmp_path):
    command = [sys.executable, "-m", "minirlhf.cli", "tour", "--out", str(tmp_path), "--seed", "0"]
    done = finished(command, usually=200, stderr=subprocess.PIPE)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert re.search(r"^\d+ s in all", done.stdout, re.M)
    for name in ("GRPO", "PPO", "DPO"):
        gold = float(re.search(rf"^{name}\s+(-?\d+\.\d+) ±", done.stdout, re.M).group(1))
        mean, deviation, _, _ = evidence.summary(study)[f"gold_{name.lower()}"]
        assert abs(gold - mean) <= 4 * deviation + 2 * 0.1, (
            f"{name}, a fresh seed: its own error (0.1) comes on top of the seeds' spread"
        )
    assert page.count("data:image/png;base64,") == 3
    assert not re.search(r'(src|href)="(?!data:)', page), "the report must hold everything in itself"
    assert all(re.search(r'alt="[^"]{20,}"', tag) for tag in re.findall(r"<img[^>]*>", page))
    assert (tmp_path / "overview.png").stat().st_size > 10_000


def test_bad_output_folder_is_one_clear_error(tmp_path, capsys):
    from minirlhf.cli import main

    (tmp_path / "file").write_text("")
    assert main(["tour", "--out", str(tmp_path / "file")]) == 2
    assert "is a file" in capsys.readouterr().err
    assert main(["tour", "--seed", "-1"]) == 2


def test_margin_counts_deviations_between_seeds():
    assert evidence.margin([1.0, 2.0, 3.0], 0.0) == pytest.approx(2.0)
    assert evidence.margin([1.0, 1.0, 1.0], 2.0) == float("-inf")
    with pytest.raises(ValueError, match="2 seeds"):
        evidence.margin([1.0, 2.0], 0.0)
