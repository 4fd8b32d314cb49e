"""The page on a pretrained model: its statistics on completions made by hand, the rule of its verdicts, and its records."""

import json
import math
from pathlib import Path

import pytest
import torch

from minirlhf.models import pretrained as wheels
from minirlhf_course import evidence
from minirlhf_course.chapters.ch16_reasoning import (
    pretrained,
    pretrained_claims,
    pretrained_own,
    pretrained_selection,
    study_pretrained_own,
)
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


# -- best-of-n ---------------------------------------------------------------------------------------------------


def selected(texts, grades):
    """Records of one question, for which the base model's completions are also RL's."""
    rows = [row(texts, grades) | {"length": [len(text.split()) for text in texts]}]
    return {"base": rows, "rl": rows, "curves": {"rl": []}}


TEXTS = ["3 + 4 = 7", "it is surely about 8 or so", "7", "8"]
GRADES = [1, 0, 1, 0]


@pytest.mark.parametrize(
    ("name", "best"),
    [("gold", {0, 2}), ("length", {1}), ("phrase", {0}), ("digits", {2, 3})],
)
def test_selection_takes_best_of_every_subset(name, best):
    from itertools import combinations
    from statistics import fmean

    rows = selected(TEXTS, GRADES)["base"]
    scores = pretrained_selection.scores_of(rows, name)[0].tolist()
    assert {i for i, score in enumerate(scores) if score == max(scores)} == best

    def gold(subset):
        top = max(scores[i] for i in subset)
        return fmean(GRADES[i] for i in subset if scores[i] == top)

    expected = [fmean(gold(s) for s in combinations(range(4), n)) for n in range(1, 5)]
    assert pretrained_selection.gold_of_best(rows, name) == pytest.approx(expected)


def test_selection_kl_of_grades_is_kl_of_two_outcomes():
    rows = selected(TEXTS, [1, 0, 0, 0])["base"]
    right = 1 - 0.75**8
    expected = right * math.log(right / 0.25) + (1 - right) * math.log((1 - right) / 0.75)
    assert pretrained_selection.selection_kl(rows, "gold", 8) == pytest.approx(expected)
    assert pretrained_selection.selection_kl(rows, "gold", 1) == pytest.approx(0)


def test_selection_vote_is_mean_over_blocks():
    rows = selected(["7", "7", "8", "8"], [1, 1, 0, 0])["base"]
    assert [pretrained_selection.vote_of(rows, n) for n in (1, 2, 4)] == [0.5, 0.5, 0.5]
    rows = selected(["7", "7", "7", "8"], [1, 1, 1, 0])["base"]
    assert [pretrained_selection.vote_of(rows, n) for n in (1, 2, 4)] == [0.75, 0.75, 1.0]


def test_selection_effects_have_their_directions():
    texts = [*["no idea at all about this sum"] * 6, *["3 + 4 = 7"] * 4, *["8"] * 6]
    record = selected(texts, [0] * 6 + [1] * 4 + [0] * 6)
    effects = {name: claim.effect(record, [0]) for name, claim in pretrained_selection.SELECTION.items()}
    assert effects["verifier"] == pytest.approx(0.75)  # 1, against 4 of 16
    assert effects["long"] == pytest.approx(0.25)
    assert effects["phrase"] == pytest.approx(0.75)
    assert effects["digits"] > 0  # the best of 16 is a bare, wrong number
    assert effects["ties"] == pytest.approx(
        math.log(16) - 15 / 16 - pretrained_selection.selection_kl(record["base"], "gold", 16)
    )


def test_selection_cheaper_reads_both_curves_at_equal_accuracy():
    record = selected(["7"] * 8 + ["8"] * 8, [1] * 8 + [0] * 8)
    record["rl"] = [row(["7"] * 16, [1] * 12 + [0] * 4, logp=-1.0, base=-4.0)]
    curve = pretrained_selection.gold_of_best(record["base"], "gold")
    kl = kl_at([(gold, math.log(n) - (n - 1) / n) for n, gold in enumerate(curve, 1)], 0.75)
    assert pretrained_selection.SELECTION["cheaper"].effect(record, [0]) == pytest.approx(3.0 - kl)


# -- SFT on own right completions --------------------------------------------------------------------------------


def test_own_imitates_one_right_completion_of_each_question():
    plan = pretrained.brief_plan()
    start = pretrained.beginner(plan)
    asked = pretrained.questions(plan, 1)[0]
    examples, written = pretrained_own.right_completions(start, asked, 16, 1)
    questions = {f"{q.a} {q.sign} {q.b}": q for q in asked}
    assert written and len({question for question, _ in written}) == len(written) == len(examples)
    for example, (question, text) in zip(examples, written, strict=True):
        assert pretrained.graders.numeric(text, questions[question].answer)
        marked = [token for token, mine in zip(example.input_ids, example.loss_mask, strict=True) if mine]
        assert start.tokenizer.decode(marked, skip_special_tokens=True).strip() == text.strip()


def test_own_effects_compare_with_the_right_runs():
    rows = {name: [row(["7"] * 8, [1] * right + [0] * (8 - right), logp=-1.0, base=base)]
            for name, right, base in (("base", 1, -1.0), ("sft", 2, -6.0), ("own", 4, -3.0), ("rl", 7, -5.0))}  # fmt: skip
    effects = {name: claim.effect(rows, [0]) for name, claim in pretrained_own.OWN.items()}
    assert effects == pytest.approx({"imitates": 3 / 8, "nearer": 3.0, "better": 2 / 8, "below_rl": 3 / 8})


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_records_give_stored_selection(path):
    stored = evidence.result("ch16_pretrained_selection")["seeds"][path.stem.rpartition("_")[2]]
    record = json.loads(path.read_text(encoding="utf-8"))
    found = claims.measure_claims(pretrained_selection.SELECTION, record)
    found |= pretrained_selection.describe_selection(record)
    assert stored == pytest.approx(found, rel=1e-9, abs=1e-9)
    assert [stored[f"gold_gold_{n}"] for n in (1, 8)] == pytest.approx(
        [pretrained_claims.pass_at(record["base"], n) for n in (1, 8)]
    )


@pytest.mark.parametrize("path", sorted(FOLDER.glob("pretrained_own_*.json")), ids=lambda path: path.stem)
def test_records_give_stored_own(path):
    seed = path.stem.rpartition("_")[2]
    own, main = (
        json.loads((FOLDER / f"pretrained_{name}_{seed}.json").read_text(encoding="utf-8")) for name in ("own", "seed")
    )
    assert evidence.result("ch16_pretrained_own")["seeds"][seed] == pytest.approx(
        study_pretrained_own.measured(own, main), rel=1e-9, abs=1e-9
    )
