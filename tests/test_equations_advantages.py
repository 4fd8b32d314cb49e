"""Advantages: worked examples, what they may not depend on, dead groups and samples without a grade, precision, bad input."""

import functools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from minirlhf.equations import advantages as adv
from minirlhf.equations import difficulty

SEEDS = st.integers(0, 2**31)
fresh = settings(deadline=None, max_examples=40)

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
SHIFTED = [
    *BATCHED,
    *(name for name in GROUPED if name not in ("maxrl", "bnpo", "bnpo, fitted", "pass_rate_weighting")),
]


def each(names):
    return pytest.mark.parametrize("advantage", [pytest.param(ALL[name], id=name) for name in names])


def rewards_in_unit_interval(seed, prompts=3, size=5):
    return torch.rand(prompts, size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


# -- worked examples ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("advantage", "first"),
    [
        (functools.partial(adv.group_zscore, ddof=0, eps=0.0), 1.732),
        (functools.partial(adv.group_zscore, ddof=1, eps=0.0), 1.5),
        (adv.group_center, 0.75),
        (adv.leave_one_out, 1.0),
        (difficulty.maxrl, 3.0),
    ],
)
def test_one_success_in_four(advantage, first):
    result = advantage(torch.tensor([[1.0, 0.0, 0.0, 0.0]], dtype=torch.float64))
    assert result[0, 0].item() == pytest.approx(first, abs=5e-4)
    assert result[0, 1:].tolist() == pytest.approx([-first / 3] * 3, abs=5e-4)
    assert result.sum().item() == pytest.approx(0, abs=1e-12)


def test_lengths_two_six_six():
    """Centred rewards shared out over the tokens of a response: a long wrong answer costs less per token."""
    mask = torch.arange(6)[None, :] < torch.tensor([2, 6, 6])[:, None]
    advantages = adv.group_center(torch.tensor([[1.0, 1.0, -1.0]], dtype=torch.float64))
    assert advantages[0].tolist() == pytest.approx([2 / 3, 2 / 3, -4 / 3])
    per_token = adv.broadcast_to_tokens(advantages, mask) / mask.sum(-1, keepdim=True)
    assert per_token[:, 0].tolist() == pytest.approx([1 / 3, 1 / 9, -2 / 9])
    assert (per_token[0, 2:] == 0).all()


def test_dropping_the_deviation_scales_one_success_in_four_down():
    group = torch.tensor([[1.0, 0.0, 0.0, 0.0]])
    assert adv.group_center(group)[0, 0] < adv.group_zscore(group)[0, 0]


@pytest.mark.parametrize(
    ("name", "weight"),
    [
        ("group_center", lambda p: 1.0),
        ("leave_one_out", lambda p: 4 / 3),
        ("group_zscore, population", lambda p: 1 / math.sqrt(p * (1 - p))),
        ("maxrl", lambda p: 1 / p),
    ],
)
def test_the_family_differs_in_the_weight_of_a_pass_rate(name, weight):
    rewards = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0]], dtype=torch.float64)
    rate = rewards.mean(-1, keepdim=True)
    expected = torch.tensor([[weight(p)] for p in rate.flatten().tolist()]).double() * (rewards - rate)
    torch.testing.assert_close(ALL[name](rewards), expected)


def test_deviation_of_the_group_blows_up_the_easy_prompt_and_that_of_the_batch_does_not():
    """Two prompts, one with a spread a hundred times smaller."""
    rewards = torch.tensor([[0.50, 0.51], [0.0, 1.0]], dtype=torch.float64)
    by_group, by_batch = adv.group_zscore(rewards, eps=0.0).abs(), adv.lite_ppo(rewards, eps=0.0).abs()
    torch.testing.assert_close(by_group[0], by_group[1])
    torch.testing.assert_close(by_batch[0] * 100, by_batch[1])


def test_lite_ppo_and_reinforce_pp_measure_different_spreads():
    """Prompts that differ in level only: the batch's rewards spread widely, what is left after centring does not."""
    rewards = torch.tensor([[0.0, 1.0], [10.0, 11.0]], dtype=torch.float64)
    torch.testing.assert_close(
        adv.reinforce_pp_baseline(rewards, ddof=0), torch.tensor([[-1.0, 1.0]] * 2).double(), atol=1e-6, rtol=0
    )
    assert adv.lite_ppo(rewards, ddof=0).abs().max() < 0.11


# -- properties --------------------------------------------------------------------------------------------------


@each(SHIFTED)
@fresh
@given(seed=SEEDS, shift=st.floats(-100, 100))
def test_a_constant_added_to_all_rewards_changes_nothing(advantage, seed, shift):
    rewards = rewards_in_unit_interval(seed)
    torch.testing.assert_close(advantage(rewards + shift), advantage(rewards), atol=1e-9, rtol=0)


@each(["group_center", "leave_one_out", "group_zscore", "reinforce_pp_baseline"])
@fresh
@given(seed=SEEDS)
def test_a_constant_per_prompt_changes_nothing(advantage, seed):
    """What a reward model leaves undetermined."""
    rewards, shift = rewards_in_unit_interval(seed), 10 * rewards_in_unit_interval(seed + 1, size=1)
    torch.testing.assert_close(advantage(rewards + shift), advantage(rewards), atol=1e-9, rtol=0)


@each(ALL)
@fresh
@given(seed=SEEDS)
def test_the_order_within_a_group_never_matters(advantage, seed):
    rewards = rewards_in_unit_interval(seed)
    order = torch.randperm(5, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(advantage(rewards[:, order]), advantage(rewards)[:, order])


@each(ALL)
@fresh
@given(seed=SEEDS)
def test_the_order_of_the_prompts_never_matters(advantage, seed):
    rewards = rewards_in_unit_interval(seed)
    torch.testing.assert_close(advantage(rewards.flip(0)), advantage(rewards).flip(0))


@each([*GROUPED, *BATCHED])
@fresh
@given(seed=SEEDS)
def test_advantages_against_a_mean_sum_to_zero(advantage, seed):
    rewards = rewards_in_unit_interval(seed)
    assert advantage(rewards).sum().item() == pytest.approx(0, abs=1e-9)


@each(ALL)
@fresh
@given(seed=SEEDS, junk=st.sampled_from([math.nan, math.inf, -math.inf, 1e300]))
def test_what_could_not_be_graded_never_matters(advantage, seed, junk):
    """An ungraded sample gets 0, its number is not read, and the others get what they would get without it."""
    rewards = rewards_in_unit_interval(seed, size=4)
    wider = torch.cat([rewards[:, :2], torch.full((3, 1), junk, dtype=torch.float64), rewards[:, 2:]], 1)
    valid = torch.tensor([[True, True, False, True, True]] * 3)
    result = advantage(wider, valid)
    assert (result[:, 2] == 0).all()
    torch.testing.assert_close(result[:, [0, 1, 3, 4]], advantage(rewards))


@each(GROUPED)
def test_a_group_with_fewer_than_two_grades_drops_out(advantage):
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
def test_equal_rewards_carry_exactly_no_signal(advantage, value, size):
    """Also where the mean of equal floats is not that float, and without any eps."""
    assert (advantage(torch.full((2, size), value)) == 0).all()
    assert (advantage(torch.full((2, size), value, dtype=torch.float64)) == 0).all()


@fresh
@given(seed=SEEDS)
def test_leave_one_out_is_centring_times_n_over_n_minus_one(seed):
    rewards = rewards_in_unit_interval(seed, 4, 5)
    valid = torch.rand(4, 5, generator=torch.Generator().manual_seed(seed)) < 0.7
    n = valid.sum(-1, keepdim=True)
    expected = adv.group_center(rewards, valid) * n / (n - 1).clamp(min=1)
    torch.testing.assert_close(adv.leave_one_out(rewards, valid), expected)


@each(ALL)
def test_advantages_are_data(advantage):
    rewards = rewards_in_unit_interval(3).requires_grad_()
    assert not advantage(rewards).requires_grad


@each(ALL)
@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 2e-5), (torch.bfloat16, 6e-2)])
def test_lower_precision_stays_within_its_error(advantage, dtype, error):
    low = rewards_in_unit_interval(11).to(dtype)
    exact = advantage(low.double())
    result = advantage(low)
    assert result.dtype == dtype
    torch.testing.assert_close(result.double(), exact, atol=error * exact.abs().max().item(), rtol=0)


def test_large_offsets_keep_their_differences():
    """float32 has 1e6 ± .0625: the spread survives because it is measured from a member, not from 0."""
    group = 1e6 + torch.tensor([[0.0, 0.25, 0.5, 1.0]])
    torch.testing.assert_close(adv.group_center(group), adv.group_center(group - 1e6), atol=1e-6, rtol=0)


# -- tokens ------------------------------------------------------------------------------------------------------


def test_tokens_get_the_advantage_of_their_row_prompt_by_prompt():
    mask = torch.tensor([[1, 1], [1, 0], [0, 1], [1, 1]]).bool()
    got = adv.broadcast_to_tokens(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), mask)
    assert got.tolist() == [[1, 1], [2, 0], [0, 3], [4, 4]]


@fresh
@given(seed=SEEDS)
def test_one_step_at_the_end_is_outcome_supervision(seed):
    rewards = rewards_in_unit_interval(seed, 2, 3)
    mask = torch.arange(5)[None, :] < torch.tensor([5, 2, 3, 1, 5, 4])[:, None]
    ends = torch.nn.functional.one_hot(mask.sum(-1) - 1, 5).bool()
    step_rewards = torch.where(ends, rewards.flatten()[:, None], torch.nan)
    got = adv.process_zscore(step_rewards, ends, mask, num_generations=3)
    torch.testing.assert_close(got, adv.broadcast_to_tokens(adv.group_zscore(rewards), mask))


def test_a_token_is_credited_with_later_steps_only():
    mask = torch.ones(2, 4, dtype=torch.bool)
    ends = torch.tensor([[0, 1, 0, 1], [0, 0, 0, 1]]).bool()
    rewards = torch.tensor([[0, 1.0, 0, 0.0], [0, 0, 0, 0.5]], dtype=torch.float64)  # mean .5, deviation .5
    got = adv.process_zscore(rewards, ends, mask, num_generations=2, eps=0.0)
    assert got.tolist() == [[0, 0, -1, -1], [0, 0, 0, 0]]


@fresh
@given(seed=SEEDS)
def test_whitening_is_blind_to_padding_and_to_affine_maps(seed):
    x = rewards_in_unit_interval(seed)
    mask = torch.arange(5)[None, :] < torch.tensor([5, 2, 3])[:, None]
    white = adv.whiten(x, mask, eps=0.0)  # which would weigh less after the map
    torch.testing.assert_close(adv.whiten(torch.where(mask, x, torch.nan), mask, eps=0.0), white)
    torch.testing.assert_close(adv.whiten(3 * x - 7, mask, eps=0.0), white, atol=1e-6, rtol=0)
    assert (white[~mask] == 0).all()


# -- which prompts and responses count ---------------------------------------------------------------------------


def test_mixed_groups_are_those_with_a_signal():
    rewards = torch.tensor([[1, 1, 1], [0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 1, 0]]).double()
    valid = torch.tensor([[1, 1, 1], [1, 1, 1], [1, 1, 1], [1, 0, 1], [0, 1, 0]]).bool()
    rewards[~valid] = torch.nan
    assert difficulty.mixed_groups(rewards, valid).tolist() == [False, False, True, False, False]


@pytest.mark.parametrize(
    ("rate", "size", "dead"), [(0.5, 2, 0.5), (0.5, 8, 2 / 256), (0.9, 8, 0.43046722), (1.0, 4, 1.0)]
)
def test_dead_groups(rate, size, dead):
    got = difficulty.dead_group_probability(torch.tensor([rate], dtype=torch.float64), num_generations=size)
    assert got.item() == pytest.approx(dead)


def test_the_filter_keeps_the_short_and_grades_them_among_themselves():
    lengths = torch.tensor([[30.0, 10.0, 20.0, 40.0]])
    kept = difficulty.gfpo_filter(-lengths, num_kept=3)
    assert kept.tolist() == [[True, True, True, False]]
    rewards = torch.tensor([[1.0, 0.0, 1.0, 1.0]], dtype=torch.float64)
    got = adv.group_zscore(rewards, kept)
    assert got[0, 3] == 0
    torch.testing.assert_close(got[:, :3], adv.group_zscore(rewards[:, :3]))


def test_the_filter_breaks_ties_by_order_and_never_keeps_what_is_not_valid():
    scores = torch.tensor([[1.0, 1.0, 1.0, 1.0], [5.0, 1.0, 2.0, 3.0]])
    valid = torch.tensor([[1, 1, 1, 1], [0, 1, 0, 0]]).bool()
    assert difficulty.gfpo_filter(scores, valid, num_kept=2).tolist() == [[1, 1, 0, 0], [0, 1, 0, 0]]


@pytest.mark.parametrize("rates", [[0.4, 0.4, 0.4], [0.0, 1.0], [0.3], []])
def test_pass_rates_that_fit_no_beta_reweight_nothing(rates):
    assert difficulty.bnpo_shape(torch.tensor(rates, dtype=torch.float64)) == (1.0, 1.0)


def test_bnpo_takes_its_shape_from_the_groups_that_count():
    rewards = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 0, 0, 0]], dtype=torch.float64)
    valid = torch.ones(4, 4, dtype=torch.bool)
    valid[3, 1:] = False  # one grade only
    shape = difficulty.bnpo_shape(torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64))
    assert shape == pytest.approx((1.5, 1.5))  # mean 1/2, variance 1/16: a = b = 3/2
    torch.testing.assert_close(difficulty.bnpo(rewards, valid), difficulty.bnpo(rewards, valid, shape=shape))


# -- bad input ---------------------------------------------------------------------------------------------------


@each(GROUPED)
@pytest.mark.parametrize("shape", [(4, 1), (1, 1)])
def test_groups_of_one_have_no_baseline(advantage, shape):
    with pytest.raises(ValueError, match=rf"rewards has shape \({shape[0]}, 1\); a group baseline needs G ≥ 2"):
        advantage(torch.ones(shape))


@each(["raw_reward", "remax", *BATCHED])
def test_other_baselines_take_one_response_per_prompt(advantage):
    assert advantage(rewards_in_unit_interval(0, 4, 1)).shape == (4, 1)


@each(ALL)
@pytest.mark.parametrize("shape", [(4,), (2, 2, 2)])
def test_rewards_have_a_group_axis(advantage, shape):
    with pytest.raises(ValueError, match=r"rewards has shape .*expected \(P, G\)"):
        advantage(torch.ones(shape))


@each(ALL)
@pytest.mark.parametrize("shape", [(3,), (3, 1), (1, 5), (2, 5)])
def test_valid_is_not_broadcast(advantage, shape):
    with pytest.raises(ValueError, match="valid has shape"):
        advantage(rewards_in_unit_interval(0), torch.ones(shape, dtype=torch.bool))


@each(GROUPED | BATCHED)
@pytest.mark.parametrize("rewards", [[-3e38, 3e38, 0.0], [3e38, 2e38, 1e38], [1e20, 2e20, 2e20], [3e-39, 0.0, 1e38]])
def test_what_float32_cannot_hold_is_an_error_and_never_a_zero(advantage, rewards):
    """A difference, a sum or a sum of squares overflows though each reward is within: right to rounding, or refused."""
    try:
        exact = advantage(torch.tensor([rewards], dtype=torch.float64))
    except ValueError as problem:  # rewards that are no pass rates
        assert "holds" in str(problem)
        return
    try:
        got = advantage(torch.tensor([rewards]))
    except ValueError as problem:
        assert "rewards differ by more than torch.float32 can hold" in str(problem)
    else:
        torch.testing.assert_close(got.double(), exact, rtol=1e-5, atol=1e-30)


def test_a_difference_beyond_the_dtype_is_refused():
    for advantage in (adv.group_center, adv.leave_one_out, adv.group_zscore, adv.batch_center):
        with pytest.raises(ValueError, match=r"rewards differ by more than torch\.float32 can hold"):
            advantage(torch.tensor([[-3e38, 3e38, 0.0]]))


@each(ALL)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_reward_that_counts_is_finite(advantage, bad):
    rewards = rewards_in_unit_interval(0)
    rewards[1, 2] = bad
    with pytest.raises(ValueError, match=r"rewards of shape \(3, 5\) holds 1 non-finite"):
        advantage(rewards)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda r: adv.group_zscore(r, ddof=2), "ddof = 2; expected 0 or 1"),
        (lambda r: adv.group_zscore(r, eps=-1e-4), "eps = -0.0001; expected a finite number ≥ 0"),
        (lambda r: adv.remax(r, torch.zeros(3, 1)), r"greedy_rewards has shape \(3, 1\); expected \(P\)"),
        (lambda r: adv.remax(r, torch.tensor([0.0, 0.0, math.nan])), "greedy_rewards of shape"),
        (lambda r: difficulty.maxrl(r - 2), "holds negative values"),
        (lambda r: difficulty.bnpo(r + 2), r"outside \[0, 1\]"),
        (lambda r: difficulty.bnpo(r, shape=(0.0, 1.0)), "shape = .*two positive"),
        (lambda r: difficulty.gfpo_filter(r, num_kept=6), "num_kept = 6"),
        (lambda r: difficulty.gfpo_filter(r, num_kept=1), "num_kept = 1"),
        (lambda r: difficulty.dead_group_probability(r + 1, num_generations=2), r"outside \[0, 1\]"),
        (lambda r: difficulty.dead_group_probability(r, num_generations=0), "num_generations = 0"),
        (lambda r: adv.broadcast_to_tokens(r, torch.ones(14, 2)), r"expected P·G = 14, the rows of mask \(14, 2\)"),
        (lambda r: adv.broadcast_to_tokens(r.flatten(), torch.ones(15, 2)), r"advantages has shape \(15,\)"),
        (
            lambda r: adv.whiten(r[:1, :1], torch.ones(1, 1)),
            r"mask of shape \(1, 1\) has 1 token\(s\); expected at least 2",
        ),
        (lambda r: adv.process_zscore(r, r > 2, torch.ones(3, 5), num_generations=2), "num_generations = 2"),
        (
            lambda r: adv.process_zscore(r, r < 2, torch.arange(5).expand(3, 5) < 3, num_generations=3),
            "marks tokens outside the mask",
        ),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call(rewards_in_unit_interval(0))
