"""Reward shaping: places of the reward, grades of any type, precision, bad arguments. Values: the ledger."""

import math

import pytest
import torch
from facts import called, raises

from minirlhf.core.errors import ArgumentError
from minirlhf.equations import kl, shaping
from minirlhf_course.chapters.ch16_reasoning import equations as ch16


def batch(seed, rows=4, width=5):
    """Rewards, log-probabilities of policy and reference (NaN outside the mask), a mask with holes."""
    rng = torch.Generator().manual_seed(seed)
    mask = torch.rand(rows, width, generator=rng) < 0.6
    mask[torch.arange(rows), torch.randint(width, (rows,), generator=rng)] = True
    logps, ref_logps = (-3 * torch.rand(rows, width, dtype=torch.float64, generator=rng) for _ in range(2))
    rewards = torch.randn(rows, dtype=torch.float64, generator=rng)
    return rewards, torch.where(mask, logps, torch.nan), torch.where(mask, ref_logps, torch.nan), mask


# -- KL in the reward --------------------------------------------------------------------------------------------


def test_kl_shaped_token_rewards_put_the_reward_on_the_last_sampled_token():
    """Not on the last column: the first row is padded, the second has tool output in its middle."""
    mask = torch.tensor([[1, 1, 0, 0], [1, 0, 0, 1]]).bool()
    logps = torch.tensor([[-1.0, -2.0, math.nan, math.nan], [-1.0, math.nan, math.nan, -3.0]])
    ref_logps = torch.tensor([[-1.5, -1.0, math.nan, math.nan], [-1.0, math.nan, math.nan, -1.0]])
    got = shaping.kl_shaped_token_rewards(torch.tensor([1.0, -1.0]), logps, ref_logps, mask, beta=0.1, estimator=kl.k1)
    torch.testing.assert_close(got, torch.tensor([[-0.05, 1.1, 0, 0], [0, 0, 0, -0.8]]))


@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 1e-6), (torch.bfloat16, 2e-2)])
def test_kl_shaped_token_rewards_in_lower_precision_stay_within_their_error(dtype, error):
    *low, mask = (x.to(dtype) if x.is_floating_point() else x for x in batch(3))
    options = {"beta": 0.2, "estimator": kl.k1}
    got = shaping.kl_shaped_token_rewards(*low, mask, **options)
    wanted = shaping.kl_shaped_token_rewards(*(x.double() for x in low), mask, **options)
    assert got.dtype == dtype
    torch.testing.assert_close(got.double(), wanted, atol=error * wanted.abs().max().item(), rtol=0)


# -- per response ------------------------------------------------------------------------------------------------


def test_soft_overlong_of_the_papers_budget_by_hand():
    """A budget of 20480 tokens, of which the last 4096 are charged."""
    lengths = torch.tensor([1, 16384, 16385, 18432, 20480, 20481, 10**6])
    got = shaping.soft_overlong(lengths, max_completion_length=20480, soft_punish_cache=4096)
    assert got.tolist() == pytest.approx([0, 0, -1 / 4096, -0.5, -1, -1, -1])


def test_kimi_length_reward_is_zero_for_equal_lengths_or_one_grade():
    right = torch.ones(2, 3)
    lengths = torch.tensor([[7, 7, 7], [1, 5, 9]])
    valid = torch.tensor([[1, 1, 1], [0, 1, 0]]).bool()
    assert (ch16.kimi_length_reward(right, lengths, valid) == 0).all()


def test_format_reward_ignores_grades_of_malformed_completions():
    got = ch16.format_reward(
        torch.tensor([1.0, 0.0, 1.0, math.nan]), torch.tensor([True, True, False, False]), penalty=0.5
    )
    assert got.tolist() == [1, 0, -0.5, -0.5]


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float32, torch.float64])
def test_length_rewards_take_flags_counts_or_numbers(dtype):
    right, n = torch.tensor([1, 0]).to(dtype), torch.tensor([3, 4])
    wanted = dtype if dtype.is_floating_point else torch.float32
    for got in (
        ch16.lcpo_exact(right, n, n),
        ch16.lcpo_max(right, n, n),
        ch16.format_reward(right, torch.tensor([True, True])),
        ch16.kimi_length_reward(right[None], n[None])[0],
    ):
        assert got.dtype == wanted
        assert got.shape == (2,)


# -- bad input ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rewards", "logps", "ref_logps"])
@pytest.mark.parametrize("shape", [(3,), (4, 1), (4, 6)])
def test_kl_shaped_token_rewards_broadcast_nothing(name, shape):
    inputs = dict(zip(("rewards", "logps", "ref_logps", "mask"), batch(0), strict=True))
    inputs[name] = torch.zeros(shape, dtype=torch.float64)
    with raises(ArgumentError, argument=name, value=shape):
        shaping.kl_shaped_token_rewards(**inputs, beta=0.1, estimator=kl.k1)


@pytest.mark.parametrize("name", ["rewards", "logps", "ref_logps"])
def test_kl_shaped_token_rewards_reject_what_is_not_finite(name):
    inputs = dict(zip(("rewards", "logps", "ref_logps", "mask"), batch(0), strict=True))
    inputs[name] = torch.full_like(inputs[name], math.nan)
    with raises(ArgumentError, argument=name, problem="not finite"):
        shaping.kl_shaped_token_rewards(**inputs, beta=0.1, estimator=kl.k1)


FOUR, THREE = torch.ones(4), torch.ones(3)


@pytest.mark.parametrize(
    ("call", "argument", "value"),
    [
        (lambda: shaping.kl_shaped_token_rewards(*batch(0), beta=-0.1, estimator=kl.k1), "beta", -0.1),
        (lambda: shaping.missing_eos_penalty(FOUR, THREE, penalty=1.0), "terminated", (3,)),
        (lambda: shaping.missing_eos_penalty(FOUR, FOUR, penalty=-1.0), "penalty", -1.0),
        (lambda: shaping.length_penalty(FOUR, THREE, coefficient=1.0), "lengths", (3,)),
        (lambda: shaping.length_penalty(FOUR, FOUR, coefficient=math.nan), "coefficient", math.nan),
        (lambda: shaping.soft_overlong(FOUR[None], max_completion_length=9, soft_punish_cache=3), "lengths", (1, 4)),
        (lambda: shaping.soft_overlong(FOUR, max_completion_length=9, soft_punish_cache=0), "soft_punish_cache", 0),
        (lambda: shaping.soft_overlong(FOUR, max_completion_length=9, soft_punish_cache=10), "soft_punish_cache", 10),
        (lambda: ch16.lcpo_exact(FOUR, FOUR, THREE), "target_lengths", (3,)),
        (lambda: ch16.lcpo_exact(FOUR, FOUR, FOUR, alpha=-1.0), "alpha", -1.0),
        (lambda: ch16.lcpo_max(FOUR, THREE, FOUR), "lengths", (3,)),
        (lambda: ch16.kimi_length_reward(FOUR, FOUR), "correct", (4,)),
        (lambda: ch16.format_reward(FOUR, THREE), "well_formed", (3,)),
        (lambda: ch16.format_reward(FOUR * math.nan, FOUR), "correct", 4),
        (lambda: ch16.composite_reward(torch.ones(4, 2), THREE), "weights", (3,)),
        (lambda: ch16.composite_reward(torch.ones(4, 3) * math.inf, THREE), "components", 12),
    ],
    ids=called,
)
def test_shaping_names_a_bad_argument(call, argument, value):
    with raises(ArgumentError, argument=argument, value=value):
        call()
