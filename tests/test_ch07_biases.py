"""The bias battery: traits of replies, the fit, tests alone and beside, the command."""

import json
import math

import pytest
import torch
from facts import raises

from minirlhf.core.errors import ArgumentError, UserError
from minirlhf.core.randomness import generator
from minirlhf.core.statistics import holm, sign_test
from minirlhf.data.elicitation import as_completion, as_prompt
from minirlhf.data.records import Comparison
from minirlhf.feedback.biases import FEWEST, TRAITS, differences, fit_pairs, run_bias_tests, style_attributes
from minirlhf_cli import dispatch


@pytest.mark.parametrize(
    ("reply", "trait", "value"),
    [
        ("one two three", "length", 2.0),
        ("- a\n- b\n\n**c** and\n1. d", "markup", math.log2(5)),
        ("a - b", "markup", 0.0),
        ("Great question! Bees dance.", "warm opening", 1.0),
        ("Greatness is rare.", "warm opening", 0.0),
        ("Yes, you’re right.", "agreement", 1.0),
        ("Your right hand.", "agreement", 0.0),
        ("I am SORRY.", "apology", 1.0),
        ("Well, I can’t say.", "refusal", 1.0),
        ("Perhaps.", "hedging", 1.0),
        ("Which one?\n", "question back", 1.0),
        ("Which? That one.", "question back", 0.0),
    ],
)
def test_traits_of_a_reply(reply, trait, value):
    assert float(style_attributes(reply)[list(TRAITS).index(trait)]) == pytest.approx(value)


def test_differences_count_the_assistant_only():
    user = [{"role": "user", "content": "sorry sorry sorry sorry"}]
    pair = Comparison(as_prompt("why?"), [*as_completion("a b c"), *user, *as_completion("d")], as_completion("a"))
    assert differences([pair])[0].tolist()[0] == pytest.approx(math.log2(5) - 1)
    assert differences([pair])[0].abs()[1:].sum() == 0


def drawn(n, weights, key):
    """Pairs with these weights on normal features."""
    rng = generator("pairs", key)
    x = torch.randn(n, len(weights), generator=rng, dtype=torch.float64)
    return x, torch.rand(n, generator=rng) < torch.sigmoid(x @ torch.tensor(weights, dtype=torch.float64))


def test_fit_pairs_zeroes_the_gradient_and_its_errors_cover():
    x, won = drawn(400, [0.5, -0.3], "gradient")
    fit = fit_pairs(x, won)
    assert ((won.double() - torch.sigmoid(x @ fit.weights)) @ x).abs().max() < 1e-6
    inside = 0
    for seed in range(200):
        x, won = drawn(300, [0.5, -0.3], seed)
        fit = fit_pairs(x, won)
        inside += int(abs(float(fit.weights[0]) - 0.5) < 1.96 * float(fit.errors[0]))
    assert 180 <= inside <= 199  # 190 on average; a binomial leaves this range once in 500 times at most


def test_fit_pairs_with_exchanged_sides_and_ties():
    x, won = drawn(200, [0.4, 0.2], "sides")
    turn = torch.where(won, 1.0, -1.0).double().unsqueeze(-1)
    torch.testing.assert_close(fit_pairs(x, won).weights, fit_pairs(x * turn).weights)
    both = fit_pairs(torch.cat([x, x]), torch.cat([torch.ones(200), torch.zeros(200)]))
    torch.testing.assert_close(fit_pairs(x, torch.full((200,), 0.5)).weights, both.weights)


def test_fit_pairs_refuses_columns_without_a_fit():
    x = torch.tensor([[1.0, 2.0], [-1.0, 1.0], [0.5, -1.0]]).double()
    with raises(ArgumentError, argument="x", problem="separable"):
        fit_pairs(torch.ones(20, 1).double())
    with raises(ArgumentError, argument="x", value=1, problem="zero column"):
        fit_pairs(torch.cat([x[:, :1], 0 * x[:, :1]], -1))
    with raises(ArgumentError, argument="x", problem="dependent columns"):
        fit_pairs(torch.cat([x, x[:, :1]], -1))
    assert fit_pairs(torch.ones(20, 1).double(), prior_std=1.0).weights.isfinite().all()


def test_battery_finds_planted_biases_and_a_place():
    rng = generator("battery")
    traits = torch.randn(800, 2, generator=rng, dtype=torch.float64)
    place = torch.ones(800, 1, dtype=torch.float64)
    quality = torch.randn(800, 1, generator=rng, dtype=torch.float64)
    won = torch.rand(800, generator=rng) < torch.sigmoid(quality[:, 0] + 0.6 * traits[:, 0] + 0.5)
    found = run_bias_tests(torch.cat([traits, place], -1), ["liked", "ignored", "first"], won, quality=quality)
    assert [one.joint_p_value < 0.05 for one in found] == [True, False, True]
    assert found[0].weight == pytest.approx(0.6, abs=3.5 * found[0].error)
    assert found[2].fraction == pytest.approx(float(won.double().mean()))
    assert all(
        one.smallest == pytest.approx((2.3940 + 0.8416) * one.error, rel=1e-3) for one in found
    )  # .05/3, two-sided; four of five


def test_battery_gives_nan_for_too_few_pairs():
    x = torch.zeros(50, 2, dtype=torch.float64)
    x[:, 0] = torch.tensor([1.0, -1.0, 0.5, -0.5, 1.0] * 10)
    x[: FEWEST - 1, 1] = 1.0
    found = run_bias_tests(x, ["plenty", "few"])
    assert math.isfinite(found[0].weight) and math.isnan(found[1].weight) and found[1].differ == FEWEST - 1
    assert math.isnan(run_bias_tests(0 * x, ["a", "b"])[0].fraction)


def test_sign_test_is_binomial_and_holm_is_stepwise():
    assert sign_test(0, 0) == 1 and sign_test(3, 3) == 1
    assert sign_test(10, 0) == pytest.approx(2 / 1024)
    assert sign_test(2, 8) == pytest.approx(2 * (1 + 10 + 45) / 1024)
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([]) == []


# -- the command -------------------------------------------------------------------------------------------------


def write(path, rows):
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n", encoding="utf-8")
    return str(path)


def test_data_biases_command_finds_the_longer_reply(tmp_path, capsys):
    rng = generator("file")
    rows = []
    for n in range(120):
        replies = [" ".join(["word"] * int(torch.randint(5, 30, (1,), generator=rng))) + f" {k}" for k in "ab"]
        if torch.rand(1, generator=rng) < 0.8:
            replies.sort(key=len, reverse=True)
        rows.append({"prompt": f"question {n}", "chosen": replies[0], "rejected": replies[1]})
    assert dispatch(["data", "biases", write(tmp_path / "pairs.jsonl", rows)]) == 0
    out = capsys.readouterr().out
    [length] = [line for line in out.splitlines() if line.startswith("length  ")]
    assert "120 " in out and float(length.split()[3]) < 0.01 and "×" in length


@pytest.mark.parametrize(
    ("rows", "facts"),
    [
        ([{"prompt": "a", "completion": "b", "label": True}], {}),
        (
            [{"prompt": "q", "chosen": "word " * (n + 2), "rejected": "x"} for n in range(30)],
            {"argument": "x", "problem": "separable"},
        ),
    ],
    ids=["no pairs", "always longer"],
)
def test_data_biases_command_refuses_what_cannot_be_tested(tmp_path, rows, facts):
    file = write(tmp_path / "odd.jsonl", rows)
    with raises(UserError, **facts):
        dispatch(["data", "biases", file])


def test_data_biases_command_warns_of_pairs_of_one_ranking(tmp_path, capsys):
    """A line more than for the same pairs, each from a prompt of its own."""
    told = []
    for replies in (["a b c", "a b", "a"], ["a b c", "a b"]):
        rows = [{"prompt": f"q{n}", "responses": replies} for n in range(3)]
        dispatch(["data", "biases", write(tmp_path / "ranked.jsonl", rows)])
        told.append(len(capsys.readouterr().out.splitlines()))
    assert told[0] == told[1] + 1
