"""The tour's report, its claims over five seeds, and one run of it that must lie within them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from facts import raises
from patience import finished

from minirlhf.core.errors import UserError
from minirlhf_cli import dispatch
from minirlhf_course import evidence
from minirlhf_course.tour import stages

ROOT = Path(__file__).resolve().parents[1]
STUDY = ROOT / "minirlhf_course" / "tour" / "study.json"

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
    "RL has a higher fraction of chains of thought than SFT": lambda n: n["game_thinks_rl"] - n["game_thinks_sft"],
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
def test_tour_claim_holds_three_seed_deviations_away(claim, study):
    numbers = [CLAIMS[claim](seed) for seed in study["seeds"].values()]
    assert evidence.margin(numbers, 0.0) >= 3, numbers


@pytest.mark.parametrize("claim", IN_FIVE_OF_FIVE)
def test_tour_claim_holds_in_five_of_five_seeds(claim, study):
    numbers = [IN_FIVE_OF_FIVE[claim](seed) for seed in study["seeds"].values()]
    assert len(numbers) == 5 and all(x > 0 for x in numbers), numbers


def require_report(folder):
    """The report holds everything in itself, with its three figures described."""
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert page.count("data:image/png;base64,") == 3
    assert not re.search(r'(src|href)="(?!data:)', page)
    assert all(re.search(r'alt="[^"]{20,}"', tag) for tag in re.findall(r"<img[^>]*>", page))
    assert (folder / "overview.png").stat().st_size > 10_000


@pytest.mark.slow
def test_tour_of_few_steps_writes_report(tmp_path, monkeypatch, capsys):
    full, few, run = stages.Plans(), {"batch_size": 4, "num_generations": 4}, stages.run
    plans = stages.Plans(
        pretrain=evidence.brief(full.pretrain, documents=64),
        sft=evidence.brief(full.sft, demonstrations=64),
        reward=evidence.brief(full.reward, batch_size=16, pairs=48, held_out=8),
        **{name: evidence.brief(getattr(full, name), **few) for name in ("grpo", "ppo", "game_rl")},
        dpo=evidence.brief(full.dpo, batch_size=8),
        game_sft=evidence.brief(full.game_sft, batch_size=16, demonstrations=64),
    )
    monkeypatch.setattr(stages, "run", lambda seed, **how: run(seed, plans, **how))
    assert dispatch(["tour", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert all(re.search(rf"^{name}\s+-?\d+\.\d+ ±", printed, re.M) for name in stages.IMPROVED)
    require_report(tmp_path)


@pytest.mark.release
@pytest.mark.slow
def test_tour_lies_within_evidence(study, tmp_path):
    command = [sys.executable, "-m", "minirlhf_cli", "tour", "--out", str(tmp_path), "--seed", "0"]
    done = finished(command, usually=200, stderr=subprocess.PIPE)
    assert done.returncode == 0, done.stderr
    for name in stages.IMPROVED:
        gold = float(re.search(rf"^{name}\s+(-?\d+\.\d+) ±", done.stdout, re.M).group(1))
        mean, deviation, _, _ = evidence.summary(study)[f"gold_{name.lower()}"]
        # Of a fresh seed: its own error (0.1) comes on top of the seeds' spread.
        assert abs(gold - mean) <= 4 * deviation + 2 * 0.1, name
    require_report(tmp_path)


def test_tour_bad_folder_or_seed_raises_user_error(tmp_path):
    (tmp_path / "file").write_text("")
    with raises(UserError, argument="--out", file=str(tmp_path / "file")):
        dispatch(["tour", "--out", str(tmp_path / "file")])
    with raises(UserError, argument="--seed", value=-1, expected=0):
        dispatch(["tour", "--seed", "-1"])


def test_evidence_margin_counts_deviations_between_seeds():
    assert evidence.margin([1.0, 2.0, 3.0], 0.0) == pytest.approx(2.0)
    assert evidence.margin([1.0, 1.0, 1.0], 2.0) == float("-inf")
    with raises(ValueError, argument="numbers", value=2, expected=3):
        evidence.margin([1.0, 2.0], 0.0)
