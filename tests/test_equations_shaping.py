"""Reward shaping: worked examples, credit through the returns, padding, limits, bad input."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from minirlhf.equations import kl, returns, shaping

SEEDS = st.integers(0, 2**31)
fresh = settings(deadline=None, max_examples=30)


def batch(seed, rows=4, width=5):
    """Rewards, log-probabilities of policy and reference (NaN outside the mask), a mask with holes."""
    rng = torch.Generator().manual_seed(seed)
    mask = torch.rand(rows, width, generator=rng) < 0.6
    mask[torch.arange(rows), torch.randint(width, (rows,), generator=rng)] = True
    logps, ref_logps = (-3 * torch.rand(rows, width, dtype=torch.float64, generator=rng) for _ in range(2))
    rewards = torch.randn(rows, dtype=torch.float64, generator=rng)
    return rewards, torch.where(mask, logps, torch.nan), torch.where(mask, ref_logps, torch.nan), mask


# -- KL in the reward --------------------------------------------------------------------------------------------


def test_the_reward_stands_on_the_last_sampled_token():
    """Not on the last column: the first row is padded, the second has tool output in its middle."""
    mask = torch.tensor([[1, 1, 0, 0], [1, 0, 0, 1]]).bool()
    logps = torch.tensor([[-1.0, -2.0, math.nan, math.nan], [-1.0, math.nan, math.nan, -3.0]])
    ref_logps = torch.tensor([[-1.5, -1.0, math.nan, math.nan], [-1.0, math.nan, math.nan, -1.0]])
    got = shaping.kl_shaped_token_rewards(torch.tensor([1.0, -1.0]), logps, ref_logps, mask, beta=0.1, estimator=kl.k1)
    torch.testing.assert_close(got, torch.tensor([[-0.05, 1.1, 0, 0], [0, 0, 0, -0.8]]))


@fresh
@given(seed=SEEDS)
def test_rewards_to_go_start_with_the_penalised_reward(seed):
    """Undiscounted, the first sampled token is credited with r − β Σ log(π/π_ref), the last with r and its own charge."""
    rewards, logps, ref_logps, mask = batch(seed)
    shaped = shaping.kl_shaped_token_rewards(rewards, logps, ref_logps, mask, beta=0.3, estimator=kl.k1)
    to_go = returns.returns_to_go(shaped, mask)
    first = mask.int().argmax(-1, keepdim=True)
    whole = rewards - 0.3 * (logps - ref_logps).nan_to_num().sum(-1)
    torch.testing.assert_close(to_go.gather(-1, first).squeeze(-1), whole)


@pytest.mark.parametrize("estimator", [kl.k1, kl.k2, kl.k3])
@fresh
@given(seed=SEEDS)
def test_without_a_penalty_the_reward_is_sparse(estimator, seed):
    rewards, logps, ref_logps, mask = batch(seed)
    for beta, reference in ((0.0, ref_logps), (0.7, logps)):
        shaped = shaping.kl_shaped_token_rewards(rewards, logps, reference, mask, beta=beta, estimator=estimator)
        assert ((shaped != 0).sum(-1) <= 1).all()
        torch.testing.assert_close(shaped.sum(-1), rewards)


@fresh
@given(seed=SEEDS)
def test_padding_never_matters_and_stays_zero(seed):
    rewards, logps, ref_logps, mask = batch(seed)
    options = {"beta": 0.2, "estimator": kl.k3}
    shaped = shaping.kl_shaped_token_rewards(rewards, logps, ref_logps, mask, **options)
    junk = shaping.kl_shaped_token_rewards(rewards, logps.nan_to_num(5e3), ref_logps.nan_to_num(-9e3), mask, **options)
    assert torch.equal(shaped, junk)
    assert (shaped[~mask] == 0).all()


def test_shaped_rewards_are_data():
    rewards, logps, ref_logps, mask = batch(0)
    shaped = shaping.kl_shaped_token_rewards(
        rewards.requires_grad_(), logps.requires_grad_(), ref_logps, mask, beta=0.1, estimator=kl.k1
    )
    assert not shaped.requires_grad


@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 1e-6), (torch.bfloat16, 2e-2)])
def test_lower_precision_stays_within_its_error(dtype, error):
    *low, mask = (x.to(dtype) if x.is_floating_point() else x for x in batch(3))
    options = {"beta": 0.2, "estimator": kl.k1}
    got = shaping.kl_shaped_token_rewards(*low, mask, **options)
    wanted = shaping.kl_shaped_token_rewards(*(x.double() for x in low), mask, **options)
    assert got.dtype == dtype
    torch.testing.assert_close(got.double(), wanted, atol=error * wanted.abs().max().item(), rtol=0)


# -- per response ------------------------------------------------------------------------------------------------


def test_only_what_was_cut_off_is_punished():
    got = shaping.missing_eos_penalty(torch.tensor([1.0, 1.0]), torch.tensor([True, False]), penalty=1.5)
    assert got.tolist() == [1.0, -0.5]


def test_a_token_costs_the_same_everywhere():
    got = shaping.length_penalty(torch.tensor([1.0, 1.0]), torch.tensor([10, 30]), coefficient=0.01)
    assert got.tolist() == pytest.approx([0.9, 0.7])


def test_soft_overlong_with_the_numbers_of_the_paper():
    """A budget of 20480 tokens, of which the last 4096 are charged."""
    lengths = torch.tensor([1, 16384, 16385, 18432, 20480, 20481, 10**6])
    got = shaping.soft_overlong(lengths, max_completion_length=20480, soft_punish_cache=4096)
    assert got.tolist() == pytest.approx([0, 0, -1 / 4096, -0.5, -1, -1, -1])


def test_soft_overlong_falls_and_never_jumps():
    lengths = torch.arange(1, 40, dtype=torch.float64)
    steps = shaping.soft_overlong(lengths, max_completion_length=30, soft_punish_cache=8).diff()
    assert (steps <= 0).all()
    assert steps.min().item() == pytest.approx(-1 / 8)


def test_lcpo_rewards_the_length_that_was_asked_for():
    lengths, target = torch.arange(1, 200), torch.full((199,), 80)
    right = torch.ones(199, dtype=torch.bool)
    exactly = shaping.lcpo_exact(right, lengths, target)
    at_most = shaping.lcpo_max(right, lengths, target, alpha=0.01)
    assert lengths[exactly.argmax()] == 80
    assert exactly.max() == 1
    assert at_most[79].item() == pytest.approx(0.5)
    assert (at_most.diff() <= 0).all()
    assert at_most.min() == 0 and at_most.max() == 1
    assert (shaping.lcpo_max(~right, lengths, target) == 0).all()
    assert (shaping.lcpo_exact(~right, lengths, target) <= 0).all()


def test_kimi_pays_short_right_answers_only():
    right = torch.tensor([[1.0, 1.0, 1.0, 0.0, 0.0]])
    lengths = torch.tensor([[100, 200, 300, 100, 300]])
    assert shaping.kimi_length_reward(right, lengths).tolist() == [[0.5, 0.0, -0.5, 0.0, -0.5]]


def test_kimi_is_silent_where_all_are_equally_long_or_only_one_was_graded():
    right = torch.ones(2, 3)
    lengths = torch.tensor([[7, 7, 7], [1, 5, 9]])
    valid = torch.tensor([[1, 1, 1], [0, 1, 0]]).bool()
    assert (shaping.kimi_length_reward(right, lengths, valid) == 0).all()


@fresh
@given(seed=SEEDS, scale=st.integers(1, 50), shift=st.integers(0, 500))
def test_kimi_sees_relative_lengths_only(seed, scale, shift):
    rng = torch.Generator().manual_seed(seed)
    right, lengths = torch.rand(3, 4, generator=rng).round(), torch.randint(1, 60, (3, 4), generator=rng)
    got = shaping.kimi_length_reward(right, lengths)
    torch.testing.assert_close(shaping.kimi_length_reward(right, scale * lengths + shift), got)
    order = torch.randperm(4, generator=rng)
    torch.testing.assert_close(shaping.kimi_length_reward(right[:, order], lengths[:, order]), got[:, order])


def test_what_cannot_be_parsed_cannot_be_right():
    got = shaping.format_reward(
        torch.tensor([1.0, 0.0, 1.0, math.nan]), torch.tensor([True, True, False, False]), penalty=0.5
    )
    assert got.tolist() == [1, 0, -0.5, -0.5]


def test_a_composite_is_a_weighted_sum():
    parts = torch.tensor([[1.0, 0.0, 20.0], [0.0, 1.0, 10.0]])
    got = shaping.composite_reward(parts, torch.tensor([1.0, -2.0, -0.01]))
    assert got.tolist() == pytest.approx([0.8, -2.1])


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float32, torch.float64])
def test_grades_may_be_flags_counts_or_numbers(dtype):
    right, n = torch.tensor([1, 0]).to(dtype), torch.tensor([3, 4])
    wanted = dtype if dtype.is_floating_point else torch.float32
    for got in (
        shaping.lcpo_exact(right, n, n),
        shaping.lcpo_max(right, n, n),
        shaping.format_reward(right, torch.tensor([True, True])),
        shaping.kimi_length_reward(right[None], n[None])[0],
    ):
        assert got.dtype == wanted
        assert got.shape == (2,)


# -- bad input ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rewards", "logps", "ref_logps"])
@pytest.mark.parametrize("shape", [(3,), (1,), (4, 1), (4, 6), (4, 5, 1)])
def test_nothing_is_broadcast(name, shape):
    inputs = dict(zip(("rewards", "logps", "ref_logps", "mask"), batch(0), strict=True))
    inputs[name] = torch.zeros(shape, dtype=torch.float64)
    with pytest.raises(ValueError, match=rf"{name} has shape \({shape[0]},?"):
        shaping.kl_shaped_token_rewards(**inputs, beta=0.1, estimator=kl.k1)


@pytest.mark.parametrize("name", ["rewards", "logps", "ref_logps"])
def test_what_counts_is_finite(name):
    inputs = dict(zip(("rewards", "logps", "ref_logps", "mask"), batch(0), strict=True))
    inputs[name] = torch.full_like(inputs[name], math.nan)
    with pytest.raises(ValueError, match=rf"{name} of shape .*non-finite"):
        shaping.kl_shaped_token_rewards(**inputs, beta=0.1, estimator=kl.k1)


FOUR, THREE = torch.ones(4), torch.ones(3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: shaping.kl_shaped_token_rewards(*batch(0), beta=-0.1, estimator=kl.k1), "beta = -0.1"),
        (lambda: shaping.missing_eos_penalty(FOUR, THREE, penalty=1.0), r"terminated has shape \(3,\)"),
        (lambda: shaping.missing_eos_penalty(FOUR, FOUR, penalty=-1.0), "penalty = -1.0"),
        (lambda: shaping.length_penalty(FOUR, THREE, coefficient=1.0), r"lengths has shape \(3,\)"),
        (lambda: shaping.length_penalty(FOUR, FOUR, coefficient=math.nan), "coefficient = nan"),
        (lambda: shaping.soft_overlong(FOUR[None], max_completion_length=9, soft_punish_cache=3), r"lengths has shape"),
        (lambda: shaping.soft_overlong(FOUR, max_completion_length=9, soft_punish_cache=0), "soft_punish_cache = 0"),
        (lambda: shaping.soft_overlong(FOUR, max_completion_length=9, soft_punish_cache=10), "expected 1 .. 9"),
        (lambda: shaping.lcpo_exact(FOUR, FOUR, THREE), r"target_lengths has shape \(3,\)"),
        (lambda: shaping.lcpo_max(FOUR, THREE, FOUR), r"lengths has shape \(3,\)"),
        (lambda: shaping.lcpo_exact(FOUR, FOUR, FOUR, alpha=-1.0), "alpha = -1.0"),
        (lambda: shaping.kimi_length_reward(FOUR, FOUR), r"correct has shape \(4,\); expected \(P, G\)"),
        (lambda: shaping.format_reward(FOUR, THREE), r"well_formed has shape \(3,\)"),
        (lambda: shaping.format_reward(FOUR * math.nan, FOUR), "correct of shape"),
        (lambda: shaping.composite_reward(torch.ones(4, 2), THREE), r"weights has shape \(3,\)"),
        (lambda: shaping.composite_reward(torch.ones(4, 3) * math.inf, THREE), "components of shape"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
