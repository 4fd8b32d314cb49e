"""`minirlhf evaluate power`: what it says is what tests of that many items find, and bad input is one line."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from facts import raises

from minirlhf.core.errors import UserError
from minirlhf_cli import dispatch
from minirlhf_cli.files.power import VarianceComponents, grades
from minirlhf_course.chapters.ch19_evaluation.equations import paired_variance
from minirlhf_course.evidence import t_distribution

HOW = {"alpha": 0.05, "power": 0.8}


def pilot(problems, replies, rng):
    """Two models of which the second is worse by .15 or better by .25, each on half of the problems."""
    chances = rng.uniform(0.3, 0.7, size=(problems, 1))
    gain = rng.choice([-0.15, 0.25], size=(problems, 1))
    return [torch.from_numpy(rng.binomial(1, p, size=(problems, replies)) * 1.0) for p in (chances, chances + gain)]


def test_noise_measured_parts_add_up_to_paired_variance():
    ours, theirs = pilot(200, 4, np.random.default_rng(0))
    noise = VarianceComponents.measured(ours, theirs, 0.0)
    assert (noise.item + noise.reply / 4) / 200 == pytest.approx(float(paired_variance(ours.mean(1), theirs.mean(1))))


def test_noise_measured_is_unbiased():
    """ω² = .2², σ² the mean of p(1 − p) of both, by the law that the pilot is drawn from."""
    chances = np.linspace(0.3, 0.7, 10_001)
    reply = np.mean([(p * (1 - p)).mean() for p in (chances, chances - 0.15, chances, chances + 0.25)]) * 2
    rng, found = np.random.default_rng(1), []
    for _ in range(40):
        noise = VarianceComponents.measured(*pilot(3000, 8, rng), 0.0)
        found.append((noise.item, noise.reply))
    means, errors = np.mean(found, axis=0), np.std(found, axis=0) / math.sqrt(len(found))
    assert np.all(np.abs(means - [0.04, reply]) < 5 * errors)


def test_noise_measured_with_common_random_numbers():
    """As `minirlhf evaluate` draws them: a reply is right where a shared uniform lies below the model's chance, so that two alike replies differ seldom."""
    rng, problems, replies = np.random.default_rng(3), 40_000, 4
    chances = rng.uniform(0.3, 0.7, size=(problems, 1))
    other = chances + rng.choice([-0.15, 0.25], size=(problems, 1))
    shared = rng.uniform(size=(problems, replies))
    ours, theirs = (torch.from_numpy((shared < p) * 1.0) for p in (chances, other))
    noise = VarianceComponents.measured(ours, theirs, 0.0)
    # they differ with the chance |d|, always in its direction: of one item d² between and |d| − d² within, d of −.15 or .25
    assert noise.item == pytest.approx(0.04, abs=0.003)
    assert noise.reply == pytest.approx((0.15 - 0.15**2 + 0.25 - 0.25**2) / 2, abs=0.003)
    sum_of_both = float(ours.var(1).mean() + theirs.var(1).mean())
    assert max(0.0, noise.item + noise.reply / replies - sum_of_both / replies) < 0.01  # what their sum would leave


def test_noise_items_reach_power():
    rng, found, rounds, gain = np.random.default_rng(2), 0, 1500, 0.1
    items = math.ceil(VarianceComponents.of_shares(0.6, gain, 0.0).items(gain, seeds=1, replies=1, **HOW))
    for _ in range(rounds):
        low, high = rng.binomial(items, 0.6) / items, rng.binomial(items, 0.6 + gain) / items
        error = math.sqrt((low * (1 - low) + high * (1 - high)) / items)
        found += (high - low) / error > 1.96
    assert abs(found / rounds - 0.8) < 0.04  # three standard errors, and the normal approximation


def test_noise_effect_inverts_items():
    noise = VarianceComponents(0.1, 0.2, 1e-5, "")
    items = noise.items(0.03, seeds=3, replies=2, **HOW)
    assert noise.minimum_detectable_effect(round(items), seeds=3, replies=2, **HOW) == pytest.approx(0.03, rel=1e-3)


def test_noise_seeds_is_fewest_that_suffice():
    noise = VarianceComponents(0.1, 0.2, 0.02**2, "")
    fewest = noise.seeds(0.01, **HOW)
    assert math.isinf(noise.items(0.01, seeds=fewest - 1, replies=1, **HOW))
    assert math.isfinite(noise.items(0.01, seeds=fewest, replies=1, **HOW))


def test_noise_seeds_by_t_reach_power_of_t_test():
    """Eight seeds are enough by the formula; over eight differences the test finds it in two of three cases, over ten in four of five."""
    noise, rng, rounds = VarianceComponents(0.4, 0.0, 0.05**2, ""), np.random.default_rng(4), 20_000
    assert (noise.seeds(0.05, **HOW), noise.seeds_by_t(0.05, **HOW)) == (8, 10)
    found = {}
    for seeds in (8, 10):
        apart = rng.normal(0.05, 0.05, (rounds, seeds))
        t = apart.mean(1) / apart.std(1, ddof=1) * math.sqrt(seeds)
        found[seeds] = float((t > t_distribution.quantile(0.05, seeds - 1)).mean())
    assert found[8] == pytest.approx(0.68, abs=0.015) and found[10] == pytest.approx(0.80, abs=0.015)
    assert noise.effect_by_t(seeds=10, **HOW) < 0.05 < noise.effect_by_t(seeds=9, **HOW)
    assert noise.effect_by_t(seeds=1, **HOW) == math.inf


# -- the command -------------------------------------------------------------------------------------------------


def one(model, rows, data="d", **asked):
    return {"numbers": {}, "grades": rows, "measured on": {"data": data, "asked": {"model": model, **asked}}}


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(name, content):
        (tmp_path / name).write_text(content if isinstance(content, str) else json.dumps(content))
        return name

    return write


def test_power_prints_items_of_chapter_19_and_effect_of_seeds(capsys):
    argv = ["evaluate", "power", "--accuracy", "0.7", "--effect", "0.05"]
    assert dispatch(argv) == 0
    shown = capsys.readouterr().out
    assert " 1,248" in shown and " 0.3975" in shown
    noise = VarianceComponents.of_shares(0.7, 0.05, 0.01**2)
    assert dispatch([*argv, "--seeds", "10", "--seed-sd", "0.01"]) == 0
    assert f" {noise.effect_by_t(seeds=10, **HOW):.2g}" in capsys.readouterr().out


def test_power_results_in_one_file_or_two_agree(file, capsys):
    ours, theirs = (rows.tolist() for rows in pilot(50, 2, np.random.default_rng(3)))
    a, b = file("a.json", one("a", ours)), file("b.json", one("b", theirs))
    both = file("both.json", {"tasks": {"t": {"models": {"a": one("a", ours), "b": one("b", theirs)}, "pairs": []}}})
    shown = []
    for results in ([a, b], [both]):
        assert dispatch(["evaluate", "power", "--results", *results, "--effect", "0.05", "--replies", "4"]) == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1] and " 50 " in shown[0]


def test_power_grades_mark_ungraded_replies(file):
    name = file("a.json", one("a", [[1.0, None], [0.0, 1.0]]))
    assert grades([Path(name)])["a"].isnan().tolist() == [[False, True], [False, False]]


@pytest.mark.parametrize(
    ("argv", "facts"),
    [
        (["--effect", "0.1"], {"expected": ("--accuracy", "--results")}),
        (["--accuracy", "0.5"], {"expected": ("--effect", "--items")}),
        (["--accuracy", "1.5", "--items", "9"], {"argument": "--accuracy", "value": 1.5}),
        (["--accuracy", "0.9", "--effect", "0.2"], {"argument": "--effect", "value": 0.2, "expected": "(0, 0.1]"}),
        (["--accuracy", "0.9", "--effect", "-0.2"], {"argument": "--effect", "value": -0.2}),
        (["--accuracy", "0.5", "--items", "0"], {"argument": "--items", "value": 0, "expected": 1}),
        (["--accuracy", "0.5", "--items", "9", "--alpha", "nan"], {"argument": "--alpha"}),
        (["--accuracy", "0.5", "--items", "9", "--power", "0.01"], {"argument": "--power", "value": 0.01}),
        (["--accuracy", "0.5", "--items", "9", "--seed-sd", "-1"], {"argument": "--seed-sd", "value": -1}),
        (["--accuracy", "0.5", "--items", "9", "--replies", "4"], {"argument": "--replies", "expected": "--results"}),
        (["--accuracy", "0.7", "--effect", "0.01", "--seed-sd", "0.02"], {"argument": "--seeds", "expected": (32, 34)}),
        (["--results", "nowhere.json", "--effect", "0.1"], {"problem": "missing", "file": "nowhere.json"}),
        (["--results", "broken.json", "--effect", "0.1"], {"problem": "unreadable", "file": "broken.json"}),
        (["--results", "list.json", "--effect", "0.1"], {"argument": "grades", "file": "list.json"}),
        (["--results", "pairs.json", "--effect", "0.1"], {"argument": "grades", "file": "pairs.json"}),
        (["--results", "ragged.json", "--effect", "0.1"], {"argument": "grades", "file": "ragged.json"}),
        (["--results", "two.json", "--effect", "0.1"], {"argument": "tasks", "value": ["s", "t"]}),
        (["--results", "a.json", "--effect", "0.1"], {"argument": "--results", "value": ["a"], "expected": 2}),
        (["--results", "a.json", "a.json", "--effect", "0.1"], {"value": "a", "problem": "duplicate"}),
        (["--results", "a.json", "c.json", "--effect", "0.1"], {"argument": "data", "problem": "mismatch"}),
        (["--results", "a.json", "b.json", "--effect", "0.1"], {"value": 2, "problem": "no noise"}),
        (["--results", "a.json", "clustered.json", "--effect", "0.1"], {"argument": "cluster", "value": "passage"}),
    ],
)
def test_power_bad_input_raises_user_error(argv, facts, file):
    file("broken.json", "{")
    file("list.json", [1])
    file("pairs.json", {"numbers": {}, "measured on": {"pairs": 3}})
    file("ragged.json", one("a", [[1.0], [1.0, 0.0]]))
    file("two.json", {"tasks": {"s": {"models": {}}, "t": {"models": {}}}})
    file("a.json", one("a", [[1.0], [0.0]]))
    file("b.json", one("b", [[1.0], [0.0]]))
    file("clustered.json", one("d", [[1.0], [0.0]], cluster="passage"))
    file("c.json", one("c", [[1.0], [0.0]], data="other"))
    with raises(UserError, **facts) as caught:
        dispatch(["evaluate", "power", *argv])
    assert "\n" not in str(caught.value)


def test_noise_measured_without_noise_raises_user_error():
    same = torch.ones(4, 2)
    with raises(UserError, value=4, problem="no noise"):
        VarianceComponents.measured(same, same, 0.0)
