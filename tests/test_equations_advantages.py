"""Advantages: groups without a signal, samples without a grade, precision, bad arguments. Values and invariances: the ledger."""

import functools
import math

import pytest
import torch
from facts import called, raises, require

from minirlhf.core.errors import ArgumentError
from minirlhf.equations import advantages as adv
from minirlhf.equations import difficulty

GROUPED = {
    "group_center": adv.group_center,
    "leave_one_out": adv.leave_one_out,
    "group_zscore": adv.group_zscore,
    "group_zscore, population": functools.partial(adv.group_zscore, ddof=0, eps=0.0),
    "lite_ppo": adv.lite_ppo,
    "reinforce_pp_baseline": adv.reinforce_pp_baseline,
    "maxrl": difficulty.maxrl,
    "bnpo": functools.partial(difficulty.bnpo, shape=(1.4, 1.2)),
    "bnpo, fitted": difficulty.bnpo,
    "pass_rate_weighting": functools.partial(difficulty.pass_rate_weighting, weight=torch.rsqrt),
}
BATCHED = {"batch_center": adv.batch_center, "batch_zscore": adv.batch_zscore}
ALL = {
    **GROUPED,
    **BATCHED,
    "raw_reward": adv.raw_reward,
    "remax": lambda rewards, valid=None: adv.remax(rewards, torch.full((len(rewards),), 0.5).to(rewards), valid),
}


def each(names):
    return pytest.mark.parametrize("advantage", [pytest.param(ALL[name], id=name) for name in names])


def rewards_in_unit_interval(seed, prompts=3, size=5):
    return torch.rand(prompts, size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


# -- examples of the book, by hand -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("advantage", "first"),
    [
        pytest.param(functools.partial(adv.group_zscore, ddof=0, eps=0.0), 1.732, id="group_zscore, population"),
        pytest.param(functools.partial(adv.group_zscore, ddof=1, eps=0.0), 1.5, id="group_zscore"),
        (adv.group_center, 0.75),
        (adv.leave_one_out, 1.0),
        (difficulty.maxrl, 3.0),
    ],
)
def test_group_advantages_of_one_success_in_four_by_hand(advantage, first):
    result = advantage(torch.tensor([[1.0, 0.0, 0.0, 0.0]], dtype=torch.float64))
    assert result[0, 0].item() == pytest.approx(first, abs=5e-4)
    assert result[0, 1:].tolist() == pytest.approx([-first / 3] * 3, abs=5e-4)
    assert result.sum().item() == pytest.approx(0, abs=1e-12)


# -- properties --------------------------------------------------------------------------------------------------


@each(GROUPED)
def test_group_advantages_of_a_group_with_fewer_than_two_grades_are_zero(advantage):
    rewards = rewards_in_unit_interval(7)
    valid = torch.ones(3, 5, dtype=torch.bool)
    valid[1], valid[2] = torch.tensor([0, 0, 1, 0, 0]).bool(), False
    result = advantage(rewards, valid)
    assert (result[1:] == 0).all()
    assert result[0].abs().max() > 0
    torch.testing.assert_close(result[:1], advantage(rewards[:1]))  # and is part of no statistic of the batch


@each([*GROUPED, *BATCHED])
@pytest.mark.parametrize("value", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("size", [2, 3, 7])
def test_advantages_of_equal_rewards_are_exactly_zero(advantage, value, size):
    """Also where the mean of equal floats is not that float, and without any eps."""
    assert (advantage(torch.full((2, size), value)) == 0).all()
    assert (advantage(torch.full((2, size), value, dtype=torch.float64)) == 0).all()


@each(ALL)
@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 2e-5), (torch.bfloat16, 6e-2)])
def test_advantages_in_lower_precision_stay_within_their_error(advantage, dtype, error):
    low = rewards_in_unit_interval(11).to(dtype)
    exact = advantage(low.double())
    result = advantage(low)
    assert result.dtype == dtype
    torch.testing.assert_close(result.double(), exact, atol=error * exact.abs().max().item(), rtol=0)


def test_group_center_with_a_large_offset_keeps_differences():
    """float32 has 1e6 ± .0625: the spread survives because it is measured from a member, not from 0."""
    group = 1e6 + torch.tensor([[0.0, 0.25, 0.5, 1.0]])
    torch.testing.assert_close(adv.group_center(group), adv.group_center(group - 1e6), atol=1e-6, rtol=0)


# -- which prompts and responses count ---------------------------------------------------------------------------


def test_mixed_groups_with_ungraded_samples_are_those_with_a_signal():
    rewards = torch.tensor([[1, 1, 1], [0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 1, 0]]).double()
    valid = torch.tensor([[1, 1, 1], [1, 1, 1], [1, 1, 1], [1, 0, 1], [0, 1, 0]]).bool()
    rewards[~valid] = torch.nan
    assert difficulty.nonzero_variance_groups(rewards, valid).tolist() == [False, False, True, False, False]


def test_gfpo_filter_breaks_ties_by_order_and_keeps_no_invalid_sample():
    scores = torch.tensor([[1.0, 1.0, 1.0, 1.0], [5.0, 1.0, 2.0, 3.0]])
    valid = torch.tensor([[1, 1, 1, 1], [0, 1, 0, 0]]).bool()
    assert difficulty.gfpo_filter(scores, valid, num_kept=2).tolist() == [[1, 1, 0, 0], [0, 1, 0, 0]]


@pytest.mark.parametrize("rates", [[0.4, 0.4, 0.4], [0.0, 1.0], [0.3], []])
def test_bnpo_shape_without_a_fit_is_uniform(rates):
    assert difficulty.bnpo_shape(torch.tensor(rates, dtype=torch.float64)) == (1.0, 1.0)


def test_bnpo_fits_its_shape_to_groups_with_two_grades():
    rewards = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 0, 0, 0]], dtype=torch.float64)
    valid = torch.ones(4, 4, dtype=torch.bool)
    valid[3, 1:] = False  # one grade only
    shape = difficulty.bnpo_shape(torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64))
    assert shape == pytest.approx((1.5, 1.5))  # mean 1/2, variance 1/16: a = b = 3/2
    torch.testing.assert_close(difficulty.bnpo(rewards, valid), difficulty.bnpo(rewards, valid, shape=shape))


# -- bad input ---------------------------------------------------------------------------------------------------


@each(GROUPED)
@pytest.mark.parametrize("shape", [(4, 1), (1, 1)])
def test_group_advantages_reject_groups_of_one(advantage, shape):
    with raises(ArgumentError, argument="rewards", value=shape, problem="group size"):
        advantage(torch.ones(shape))


@each(["raw_reward", "remax", *BATCHED])
def test_batch_advantages_take_one_completion_per_prompt(advantage):
    assert advantage(rewards_in_unit_interval(0, 4, 1)).shape == (4, 1)


@each(ALL)
@pytest.mark.parametrize("shape", [(4,), (2, 2, 2)])
def test_advantages_reject_rewards_without_a_group_axis(advantage, shape):
    with raises(ArgumentError, argument="rewards", value=shape, expected="(P, G)"):
        advantage(torch.ones(shape))


@each(ALL)
@pytest.mark.parametrize("shape", [(3, 1), (1, 5)])
def test_advantages_do_not_broadcast_valid(advantage, shape):
    with raises(ArgumentError, argument="valid", value=shape):
        advantage(rewards_in_unit_interval(0), torch.ones(shape, dtype=torch.bool))


@each(GROUPED | BATCHED)
@pytest.mark.parametrize("rewards", [[-3e38, 3e38, 0.0], [3e38, 2e38, 1e38], [1e20, 2e20, 2e20], [3e-39, 0.0, 1e38]])
def test_advantages_beyond_float32_are_right_or_rejected(advantage, rewards):
    """A difference, a sum or a sum of squares overflows though each reward is within: right to rounding, or refused."""
    try:
        exact = advantage(torch.tensor([rewards], dtype=torch.float64))
    except ArgumentError as problem:  # rewards that are no pass rates
        require(problem, argument="rewards")
        assert problem.problem != "overflow"
        return
    try:
        got = advantage(torch.tensor([rewards]))
    except ArgumentError as problem:
        require(problem, argument="rewards", value=torch.float32, problem="overflow")
    else:
        torch.testing.assert_close(got.double(), exact, rtol=1e-5, atol=1e-30)


def test_advantages_reject_differences_beyond_the_dtype():
    for advantage in (adv.group_center, adv.leave_one_out, adv.group_zscore, adv.batch_center):
        with raises(ArgumentError, argument="rewards", value=torch.float32, problem="overflow"):
            advantage(torch.tensor([[-3e38, 3e38, 0.0]]))


@each(ALL)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_advantages_reject_a_reward_that_is_not_finite(advantage, bad):
    rewards = rewards_in_unit_interval(0)
    rewards[1, 2] = bad
    with raises(ArgumentError, argument="rewards", value=1, problem="not finite"):
        advantage(rewards)


@pytest.mark.parametrize(
    ("call", "argument", "value"),
    [
        (lambda r: adv.group_zscore(r, ddof=2), "ddof", 2),
        (lambda r: adv.group_zscore(r, eps=-1e-4), "eps", -0.0001),
        (lambda r: adv.remax(r, torch.zeros(3, 1)), "greedy_rewards", (3, 1)),
        (lambda r: adv.remax(r, torch.tensor([0.0, 0.0, math.nan])), "greedy_rewards", 1),
        (lambda r: difficulty.maxrl(r - 2), "rewards", None),
        (lambda r: difficulty.bnpo(r + 2), "rewards", None),
        (lambda r: difficulty.bnpo(r, shape=(0.0, 1.0)), "shape", (0.0, 1.0)),
        (lambda r: difficulty.gfpo_filter(r, num_kept=6), "num_kept", 6),
        (lambda r: difficulty.gfpo_filter(r, num_kept=1), "num_kept", 1),
        (lambda r: difficulty.zero_variance_group_probability(r + 1, num_generations=2), "pass_rate", None),
        (lambda r: difficulty.zero_variance_group_probability(r, num_generations=0), "num_generations", 0),
        (lambda r: adv.broadcast_to_tokens(r, torch.ones(14, 2)), "advantages", (3, 5)),
        (lambda r: adv.broadcast_to_tokens(r.flatten(), torch.ones(15, 2)), "advantages", (15,)),
        (lambda r: adv.whiten(r[:1, :1], torch.ones(1, 1)), "mask", 1),
        (lambda r: adv.process_zscore(r, r > 2, torch.ones(3, 5), num_generations=2), "num_generations", 2),
        (
            lambda r: adv.process_zscore(r, r < 2, torch.arange(5).expand(3, 5) < 3, num_generations=3),
            "step_ends",
            None,
        ),
    ],
    ids=called,
)
def test_advantages_name_a_bad_argument(call, argument, value):
    with raises(ArgumentError, argument=argument, value=value):
        call(rewards_in_unit_interval(0))
