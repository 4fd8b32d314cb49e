"""The page on a pretrained model: its statistics on completions made by hand, the rule of its verdicts, and its records."""

import json
import math
from pathlib import Path

import pytest
import torch

from minirlhf.models import pretrained as wheels
from minirlhf_course import evidence
from minirlhf_course.chapters.ch16_reasoning import pretrained, pretrained_claims
from minirlhf_course.chapters.ch16_reasoning.pretrained_claims import CLAIMS, kl_at, measure
from minirlhf_course.evidence import claims, t_distribution
from minirlhf_course.evidence.claims import jackknife, verdicts

FOLDER = Path(pretrained.__file__).parent
RECORDS = sorted(FOLDER.glob("pretrained_seed_*.json"))
CONTROLS = sorted(FOLDER.glob("pretrained_repeated_*.json"))
STORED = evidence.result("ch16_pretrained")["seeds"]


def row(texts, grades, logp=-1.0, base=-2.0):
    """A record of one question."""
    count = len(texts)
    return {
        "question": "3 + 4", "hard": False, "text": texts, "grade": grades,
        "length": [2] * count, "logp": [logp] * count, "base": [base] * count,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("texts", "grades", "accuracy"),
    [
        (["7", "It is 7.", "8", "none"], [1, 1, 0, 0], 1.0),
        (["7", "8", "8", "none"], [1, 0, 0, 0], 0.0),
        (["7", "8", "none", "nothing"], [1, 0, 0, 0], 0.5),
        (["none", "nothing"], [0, 0], 0.0),
    ],
)
def test_vote_counts_numbers_and_splits_ties(texts, grades, accuracy):
    assert pretrained_claims.vote([row(texts, grades)]) == accuracy


def test_zero_variance_is_fraction_of_all_groups_of_eight():
    from itertools import combinations

    grades = [1, 1] + [0] * 10
    groups = list(combinations(grades, 8))
    expected = sum(len(set(group)) == 1 for group in groups) / len(groups)
    assert pretrained_claims.zero_variance([row(["x"] * 12, grades)]) == pytest.approx(expected)


def test_kl_at_reads_first_crossing():
    curve = [(0.1, 0.0), (0.5, 2.0), (0.4, 3.0), (0.9, 8.0)]
    assert kl_at(curve, 0.3) == pytest.approx(1.0)
    assert kl_at(curve, 0.7) == pytest.approx(6.0)
    assert kl_at(curve, 0.9) == pytest.approx(8.0)


def test_entropy_and_divergence_are_means_of_log_probabilities():
    rows = [row(["7", "8"], [1, 0], logp=-3.0, base=-5.0), row(["7", "8"], [1, 0], logp=-1.0, base=-2.0)]
    assert pretrained_claims.entropy(rows) == pytest.approx(1.0)
    assert pretrained_claims.divergence(rows) == pytest.approx(1.5)


def test_repeats_question_needs_both_numbers():
    assert pretrained_claims.repeats_question("7 + 9", "7 + 9 = 16") and pretrained_claims.repeats_question(
        "9 + 9", "9 and 9"
    )
    assert not any(pretrained_claims.repeats_question("9 + 9", text) for text in ("9", "99", "it is 18, from 9"))


def test_form_needs_question_and_result():
    forms = ("7 + 9 = 16", "7 + 9 equals 16.", "So 7+9 is equal to 16", "7 + 9 = 15")
    assert all(pretrained_claims.in_form("7 + 9", text) for text in forms)
    others = ("16", "9 + 7 = 16", "17 + 9 = 26", "7 + 9 =", "7 + 9, so 16", "7 - 9 = 16", "7 + 95 = 16")
    assert not any(pretrained_claims.in_form("7 + 9", text) for text in others)


def test_form_has_own_accuracy():
    rows = [row(["3 + 4 = 7", "3 + 4 is 8", "7", "none", "8"], [1, 0, 1, 0, 0])]
    assert pretrained_claims.form("x", rows) == pytest.approx({"x_form": 0.4, "x_right_form": 0.5})


def test_detectable_distance_gives_three_runs_the_power():
    errors = (0.05, 0.1, 0.08)
    level = claims.ALPHA / len(CLAIMS)
    shift = claims.detectable(errors, 40, level) / max(errors)
    critical = t_distribution.quantile(level, 39)
    draws = torch.randn(20_000, 3, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    t = (draws.mean(-1) + shift / math.sqrt(40)) / draws.std(-1) * math.sqrt(40)
    assert float((t > critical).all(1).double().mean()) == pytest.approx(0.8, abs=0.01)


def test_jackknife_of_mean_is_its_standard_error():
    x = torch.tensor([0.3, 0.9, 0.1, 0.5, 0.8], dtype=torch.float64)
    effect, error = jackknife(lambda some: float(x[list(some)].mean()), len(x))
    assert effect == pytest.approx(float(x.mean()))
    assert error == pytest.approx(float(x.std()) / math.sqrt(len(x)))


def runs_with(effects, error=0.05):
    """Three runs, in which the first claim has these effects and all other claims have none."""
    others = {f"{name}_{part}": value for name in CLAIMS for part, value in (("effect", 0.0), ("error", 0.0))}
    others |= {f"{name}_clusters": 40.0 for name in CLAIMS}
    return [others | {"accuracy_effect": effect, "accuracy_error": error} for effect in effects]


@pytest.mark.parametrize(
    ("effects", "word"),
    [
        ((0.5, 0.4, 0.3), "confirmed"),
        ((0.5, 0.4, 0.1), "not decided"),  # one run is too weak after Holm's correction
        ((0.5, 0.4, -0.4), "not decided"),
        ((-0.5, -0.4, -0.3), "not confirmed"),
    ],
)
def test_verdict_needs_all_runs(effects, word):
    found = verdicts(CLAIMS, runs_with(effects))
    assert found["accuracy"].word == word
    assert {verdict.word for name, verdict in found.items() if name != "accuracy"} == {"not decided"}
    assert found["accuracy"].lowest < min(effects) and found["accuracy"].highest > max(effects)


@pytest.mark.parametrize("seed", range(3))
def test_questions_of_training_and_measurement_share_no_pair(seed):
    train, held_out, transfer = pretrained.questions(pretrained.PLAN, seed)
    pairs = [{frozenset((q.a, q.b)) for q in part} for part in (train, held_out)]
    assert not pairs[0] & pairs[1] and [len(p) for p in pairs] == [len(train), len(held_out)]
    assert sum(q.hard for q in held_out) == len(held_out) // 2 and all(q.a >= q.b for q in transfer)


def test_records_are_of_plan_and_model():
    assert len(RECORDS) == len(STORED)
    for path in RECORDS:
        record = json.loads(path.read_text(encoding="utf-8"))
        seed = int(path.stem.rpartition("_")[2])
        assert record["made_by"]["model"] == wheels.WHEELS[pretrained.MODEL].sha256
        assert record["data"] == pretrained.digest(*pretrained.questions(pretrained.PLAN, seed))
        assert path.stat().st_size < 110_000 and pretrained.compact(record) == record


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_records_give_stored_measurements(path):
    stored = STORED[path.stem.rpartition("_")[2]]
    found = measure(json.loads(path.read_text(encoding="utf-8")))
    assert {name: stored[name] for name in found} == pytest.approx(found, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("path", CONTROLS, ids=lambda path: path.stem)
def test_controls_give_stored_measurements(path):
    seed = path.stem.rpartition("_")[2]
    record = json.loads(path.read_text(encoding="utf-8"))
    assert record["made_by"]["model"] == wheels.WHEELS[pretrained.MODEL].sha256
    assert record["data"] == pretrained.digest(*pretrained.questions(pretrained.PLAN, int(seed)))
    for asked in record["repeated"]:
        a, sign, b = asked["question"].split()
        question = pretrained.Calculation(int(a), int(b), sign)
        assert all(text.startswith(question.repeated) for text in asked["text"])
        assert [pretrained.graders.numeric(text, question.answer) for text in asked["text"]] == asked["grade"]
    run = json.loads(path.with_name(f"pretrained_seed_{seed}.json").read_text(encoding="utf-8"))
    assert [asked["question"] for asked in run["rl"]] == [asked["question"] for asked in record["repeated"]]
    found = pretrained_claims.describe_repeated(record, run)
    assert {name: STORED[seed][name] for name in found} == pytest.approx(found, rel=1e-9, abs=1e-9)


def test_every_seed_has_a_control():
    assert len(CONTROLS) == len(RECORDS)


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_records_are_graded_as_the_grader_grades(path):
    record = json.loads(path.read_text(encoding="utf-8"))
    for part in ("base", "rl", "sft", "base_transfer", "rl_transfer"):
        for asked in record[part]:
            a, sign, b = asked["question"].split()
            question = pretrained.Calculation(int(a), int(b), sign)
            assert [pretrained.graders.numeric(text, question.answer) for text in asked["text"]] == asked["grade"]
