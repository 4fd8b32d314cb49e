"""`minirlhf power`: what it says is what tests of that many items find, and bad input is one line."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from minirlhf.cli import main
from minirlhf.core.errors import UserError
from minirlhf.equations.evaluation import paired_variance
from minirlhf.evidence import student
from minirlhf.stages.power import Noise, grades

HOW = {"alpha": 0.05, "power": 0.8}


def pilot(problems, replies, rng):
    """Two models of which the second is worse by .15 or better by .25, each on half of the problems."""
    chances = rng.uniform(0.3, 0.7, size=(problems, 1))
    gain = rng.choice([-0.15, 0.25], size=(problems, 1))
    return [torch.from_numpy(rng.binomial(1, p, size=(problems, replies)) * 1.0) for p in (chances, chances + gain)]


def test_the_parts_of_a_pilot_add_up_to_the_variance_of_its_difference():
    ours, theirs = pilot(200, 4, np.random.default_rng(0))
    noise = Noise.measured(ours, theirs, 0.0)
    assert (noise.item + noise.reply / 4) / 200 == pytest.approx(float(paired_variance(ours.mean(1), theirs.mean(1))))


def test_the_parts_of_a_pilot_are_right_on_average():
    """ω² = .2², σ² the mean of p(1 − p) of both, by the law that the pilot is drawn from."""
    chances = np.linspace(0.3, 0.7, 10_001)
    reply = np.mean([(p * (1 - p)).mean() for p in (chances, chances - 0.15, chances, chances + 0.25)]) * 2
    rng, found = np.random.default_rng(1), []
    for _ in range(40):
        noise = Noise.measured(*pilot(3000, 8, rng), 0.0)
        found.append((noise.item, noise.reply))
    means, errors = np.mean(found, axis=0), np.std(found, axis=0) / math.sqrt(len(found))
    assert np.all(np.abs(means - [0.04, reply]) < 5 * errors)


def test_a_pilot_with_the_same_random_numbers_for_both_models_is_told_apart_as_well():
    """As `minirlhf evaluate` draws them: a reply is right where a shared uniform lies below the model's chance, so that two alike replies differ seldom."""
    rng, problems, replies = np.random.default_rng(3), 40_000, 4
    chances = rng.uniform(0.3, 0.7, size=(problems, 1))
    other = chances + rng.choice([-0.15, 0.25], size=(problems, 1))
    shared = rng.uniform(size=(problems, replies))
    ours, theirs = (torch.from_numpy((shared < p) * 1.0) for p in (chances, other))
    noise = Noise.measured(ours, theirs, 0.0)
    # they differ with the chance |d|, always in its direction: of one item d² between and |d| − d² within, d of −.15 or .25
    assert noise.item == pytest.approx(0.04, abs=0.003)
    assert noise.reply == pytest.approx((0.15 - 0.15**2 + 0.25 - 0.25**2) / 2, abs=0.003)
    sum_of_both = float(ours.var(1).mean() + theirs.var(1).mean())
    assert max(0.0, noise.item + noise.reply / replies - sum_of_both / replies) < 0.01  # what their sum would leave


def test_so_many_items_find_the_difference_in_four_of_five_experiments():
    rng, found, rounds, gain = np.random.default_rng(2), 0, 1500, 0.1
    items = math.ceil(Noise.of_shares(0.6, gain, 0.0).items(gain, seeds=1, replies=1, **HOW))
    for _ in range(rounds):
        low, high = rng.binomial(items, 0.6) / items, rng.binomial(items, 0.6 + gain) / items
        error = math.sqrt((low * (1 - low) + high * (1 - high)) / items)
        found += (high - low) / error > 1.96
    assert abs(found / rounds - 0.8) < 0.04  # three standard errors, and the normal approximation


def test_items_and_effect_are_each_the_inverse_of_the_other():
    noise = Noise(0.1, 0.2, 1e-5, "")
    items = noise.items(0.03, seeds=3, replies=2, **HOW)
    assert noise.effect(round(items), seeds=3, replies=2, **HOW) == pytest.approx(0.03, rel=1e-3)


def test_one_seed_fewer_than_it_asks_for_is_not_enough():
    noise = Noise(0.1, 0.2, 0.02**2, "")
    fewest = noise.seeds(0.01, **HOW)
    assert math.isinf(noise.items(0.01, seeds=fewest - 1, replies=1, **HOW))
    assert math.isfinite(noise.items(0.01, seeds=fewest, replies=1, **HOW))


def test_what_a_t_test_over_the_seeds_finds_is_less_than_the_formula_with_a_known_spread_says():
    """Eight seeds are enough by the formula; over eight differences the test finds it in two of three cases, over ten in four of five."""
    noise, rng, rounds = Noise(0.4, 0.0, 0.05**2, ""), np.random.default_rng(4), 20_000
    assert (noise.seeds(0.05, **HOW), noise.seeds_by_t(0.05, **HOW)) == (8, 10)
    found = {}
    for seeds in (8, 10):
        apart = rng.normal(0.05, 0.05, (rounds, seeds))
        t = apart.mean(1) / apart.std(1, ddof=1) * math.sqrt(seeds)
        found[seeds] = float((t > student.quantile(0.05, seeds - 1)).mean())
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


def test_the_example_of_chapter_19(capsys):
    assert main(["power", "--accuracy", "0.7", "--effect", "0.05"]) == 0
    shown = capsys.readouterr().out
    assert "items needed for a difference of 0.05: 1,248" in shown and "of items with their replies 0.3975" in shown
    assert "t test" not in shown
    for seeds, words in (
        ("1", "One seed cannot measure it"),
        ("10", "A t test over 10 differences measures it, and finds 0.01"),
    ):
        assert main(["power", "--accuracy", "0.7", "--effect", "0.05", "--seeds", seeds, "--seed-sd", "0.01"]) == 0
        assert words in capsys.readouterr().out


def test_a_pilot_in_one_file_or_in_two_says_the_same(file, capsys):
    ours, theirs = (rows.tolist() for rows in pilot(50, 2, np.random.default_rng(3)))
    a, b = file("a.json", one("a", ours)), file("b.json", one("b", theirs))
    both = file("both.json", {"tasks": {"t": {"models": {"a": one("a", ours), "b": one("b", theirs)}, "pairs": []}}})
    shown = []
    for results in ([a, b], [both]):
        assert main(["power", "--results", *results, "--effect", "0.05", "--replies", "4"]) == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1] and "items needed" in shown[0] and "the same 50 items, 2 replies to each" in shown[0]


def test_what_could_not_be_graded_is_left_out(file):
    name = file("a.json", one("a", [[1.0, None], [0.0, 1.0]]))
    assert grades([Path(name)])["a"].isnan().tolist() == [[False, True], [False, False]]


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--effect", "0.1"], "either --accuracy or --results"),
        (["--accuracy", "0.5"], "expected --effect"),
        (["--accuracy", "1.5", "--items", "9"], "--accuracy 1.5: expected a number between 0 and 1"),
        (["--accuracy", "0.9", "--effect", "0.2"], "--effect 0.2: expected at most 0.1"),
        (["--accuracy", "0.9", "--effect", "-0.2"], "expected a number above 0"),
        (["--accuracy", "0.5", "--items", "0"], "--items 0: expected at least 1"),
        (["--accuracy", "0.5", "--items", "9", "--alpha", "nan"], "--alpha nan: expected a number between 0 and 1"),
        (["--accuracy", "0.5", "--items", "9", "--power", "0.01"], "--power 0.01: expected more than half"),
        (["--accuracy", "0.5", "--items", "9", "--seed-sd", "-1"], "--seed-sd -1: expected 0"),
        (["--accuracy", "0.5", "--items", "9", "--replies", "4"], "expected --results of a pilot"),
        (
            ["--accuracy", "0.7", "--effect", "0.01", "--seed-sd", "0.02"],
            "expected at least 32 seeds, or 34 for a t test",
        ),
        (["--results", "nowhere.json", "--effect", "0.1"], "nowhere.json: no such file"),
        (["--results", "broken.json", "--effect", "0.1"], "broken.json: cannot be read"),
        (["--results", "list.json", "--effect", "0.1"], "list.json: holds no grades of models"),
        (["--results", "pairs.json", "--effect", "0.1"], "pairs.json: holds no grades of models"),
        (["--results", "ragged.json", "--effect", "0.1"], "ragged.json: holds no grades of models"),
        (["--results", "two.json", "--effect", "0.1"], "holds the tasks s, t; expected a file of one task"),
        (["--results", "a.json", "--effect", "0.1"], "1 models (a); expected two"),
        (["--results", "a.json", "a.json", "--effect", "0.1"], "a was read already"),
        (["--results", "a.json", "c.json", "--effect", "0.1"], "answered other problems"),
        (["--results", "a.json", "b.json", "--effect", "0.1"], "differ by the same on each of 2 items"),
        (["--results", "a.json", "clustered.json", "--effect", "0.1"], "its problems come in clusters, by passage"),
    ],
)
def test_bad_input_is_one_line(argv, words, file, capsys):
    file("broken.json", "{")
    file("list.json", [1])
    file("pairs.json", {"numbers": {}, "measured on": {"pairs": 3}})
    file("ragged.json", one("a", [[1.0], [1.0, 0.0]]))
    file("two.json", {"tasks": {"s": {"models": {}}, "t": {"models": {}}}})
    file("a.json", one("a", [[1.0], [0.0]]))
    file("b.json", one("b", [[1.0], [0.0]]))
    file("clustered.json", one("d", [[1.0], [0.0]], cluster="passage"))
    file("c.json", one("c", [[1.0], [0.0]], data="other"))
    assert main(["power", *argv]) == 2
    error = capsys.readouterr().err.strip()
    assert words in error and "\n" not in error


def test_a_pilot_without_noise_is_refused():
    same = torch.ones(4, 2)
    with pytest.raises(UserError, match="differ by the same on each of 4 items"):
        Noise.measured(same, same, 0.0)
