"""Models of preference and reward losses: worked examples, properties, precision, bad input."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from minirlhf.equations import reward_losses as rl
from minirlhf.equations.aggregation import aggregate, token_mean

SEEDS = st.integers(0, 2**31)


def rewards(seed, *shape, scale=2.0):
    return scale * torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


# -- worked examples ---------------------------------------------------------------------------------------------


def test_plackett_luce_by_hand():
    """softmax(2, 1, 0)[0] · softmax(1, 0)[0] = .665241 · .731059."""
    assert rl.plackett_luce_logp(torch.tensor([2.0, 1.0, 0.0]).double()).exp().item() == pytest.approx(
        0.486330, abs=5e-7
    )


def test_elo_by_hand():
    expected = rl.elo_expected(torch.tensor(1800.0), torch.tensor(1400.0))
    assert expected.item() == pytest.approx(0.909091, abs=5e-7)
    winner, loser = rl.elo_update(torch.tensor(1400.0), torch.tensor(1800.0), torch.tensor(1.0), k=32.0)
    assert (winner.item(), loser.item()) == pytest.approx((1400 + 32 * 10 / 11, 1800 - 32 * 10 / 11))


@pytest.mark.parametrize(("ranked", "pairs"), [(2, 1), (4, 6), (9, 36)])
def test_weights_of_the_pairs_of_a_ranking(ranked, pairs):
    assert rl.pair_weights(torch.tensor([ranked])).item() == pytest.approx(1 / pairs)


def test_margin_from_ratings():
    """Rated 5 and 2: the pair counts as undecided until the rewards differ by 3."""
    ratings = torch.tensor([5.0, 2.0])
    loss = rl.bradley_terry_loss(torch.tensor([3.0]), torch.tensor([0.0]), margin=(ratings[0] - ratings[1])[None])
    assert loss.item() == pytest.approx(math.log(2))


def test_a_reward_is_no_probability_of_being_chosen():
    chosen, rejected = rewards(1, 6), rewards(2, 6)
    torch.testing.assert_close(rl.bradley_terry_loss(chosen - 5, rejected - 5), rl.bradley_terry_loss(chosen, rejected))


# -- properties --------------------------------------------------------------------------------------------------


@given(SEEDS)
def test_two_answers_make_plackett_luce_bradley_terry(seed):
    chosen, rejected = rewards(seed, 4), rewards(seed + 1, 4)
    listwise = -rl.plackett_luce_logp(torch.stack([chosen, rejected], -1))
    torch.testing.assert_close(listwise, rl.bradley_terry_loss(chosen, rejected))
    torch.testing.assert_close(rl.bradley_terry(chosen, rejected), (-listwise).exp())


@given(SEEDS, st.floats(-50, 50))
def test_rankings_do_not_see_a_constant_and_sum_to_one(seed, constant):
    r = rewards(seed, 4)
    orders = r[torch.tensor(list(itertools.permutations(range(4))))]
    assert rl.plackett_luce_logp(orders).exp().sum().item() == pytest.approx(1.0)
    torch.testing.assert_close(
        rl.plackett_luce_logp(orders + constant), rl.plackett_luce_logp(orders), atol=1e-10, rtol=1e-10
    )


@given(SEEDS)
def test_preferences_are_complementary_and_agree_on_who_is_better(seed):
    a, b = rewards(seed, 5), rewards(seed + 1, 5)
    for model in (rl.bradley_terry, rl.thurstone, rl.elo_expected):
        torch.testing.assert_close(model(a, b) + model(b, a), torch.ones(5).double())
        assert ((model(a, b) > 0.5) == (a > b)).all()


@given(SEEDS, st.floats(1.0, 64.0))
def test_elo_conserves_points(seed, k):
    a, b = 1500 + 100 * rewards(seed, 3), 1500 + 100 * rewards(seed + 1, 3)
    new_a, new_b = rl.elo_update(a, b, torch.tensor([1.0, 0.5, 0.0]).double(), k=k)
    torch.testing.assert_close(new_a + new_b, a + b)
    assert ((new_a - a)[[0, 2]].sign() == torch.tensor([1, -1])).all()


@pytest.mark.parametrize("dispersion", [0.0, 0.7, 3.0])
def test_mallows_is_a_distribution_with_the_consensus_on_top(dispersion):
    orders = torch.tensor(list(itertools.permutations(range(4))))
    probs = rl.mallows_logp(orders, dispersion=dispersion).exp()
    assert probs.sum().item() == pytest.approx(1.0)
    assert probs.argmax() == 0
    assert rl.mallows_logp(torch.tensor([0]), dispersion=dispersion) == 0


def test_centring_gives_no_reason_to_shrink_a_difference():
    pair = torch.tensor([1.5, 0.5], dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(rl.centring_penalty(pair[:1], pair[1:]).sum(), pair)
    assert gradient[0] == gradient[1] == 4.0


def test_padding_of_the_outcome_loss_never_matters():
    logits = torch.tensor([[0.5, -1.0, math.nan], [2.0, math.inf, -math.inf]], requires_grad=True)
    mask = torch.tensor([[True, True, False], [True, False, False]])
    loss = rl.outcome_loss(logits, torch.tensor([1.0, 0.0]), mask)
    assert (loss[~mask] == 0).all()
    (gradient,) = torch.autograd.grad(loss.sum(), logits)
    expected = torch.where(
        mask, torch.tensor([[0.5, -1.0, 0.0], [2.0, 0.0, 0.0]]).sigmoid() - torch.tensor([[1.0], [0.0]]), 0
    )
    torch.testing.assert_close(gradient, expected)


def test_a_step_without_a_label_has_no_loss_and_the_mean_is_over_steps():
    logits = torch.tensor([[0.5, -1.0, 2.0], [2.0, math.inf, 0.25]], dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([[math.nan, 1.0, 0.25], [0.0, math.nan, math.nan]], dtype=torch.float64)
    ends = torch.tensor([[False, True, True], [True, False, False]])
    loss = rl.process_loss(logits, labels, ends)
    assert (loss[~ends] == 0).all()
    p = torch.tensor([-1.0, 2.0, 2.0], dtype=torch.float64).sigmoid()
    y = torch.tensor([1.0, 0.25, 0.0], dtype=torch.float64)
    mean = aggregate(loss, token_mean(ends), ends)
    torch.testing.assert_close(mean, -(y * p.log() + (1 - y) * (1 - p).log()).mean())
    (gradient,) = torch.autograd.grad(mean, logits)
    torch.testing.assert_close(gradient[ends], (p - y) / 3)
    assert (gradient[~ends] == 0).all()


# -- precision ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_extreme_rewards_stay_finite(dtype):
    chosen = torch.tensor([1e4, -1e4, 0.0], dtype=dtype).requires_grad_()
    rejected = -chosen.detach()
    loss = rl.bradley_terry_loss(chosen, rejected)
    assert loss.dtype == dtype
    torch.testing.assert_close(loss.detach(), torch.tensor([0.0, 2e4, math.log(2)], dtype=dtype))
    (gradient,) = torch.autograd.grad(loss.sum(), chosen)
    torch.testing.assert_close(gradient, torch.tensor([0.0, -1.0, -0.5], dtype=dtype))
    ranking = rl.plackett_luce_logp(torch.stack([rejected, chosen], -1))
    assert ranking.isfinite().all()
    assert rl.thurstone(chosen, rejected).isfinite().all()
    tokens = rl.outcome_loss(chosen[None], torch.tensor([0.0]), torch.ones(1, 3))
    assert tokens.isfinite().all()


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-6), (torch.bfloat16, 0.02)])
def test_relative_error_of_lower_precision(dtype, bound):
    chosen, rejected = rewards(3, 1000).to(dtype), rewards(4, 1000).to(dtype)
    got, expected = rl.bradley_terry_loss(chosen, rejected), rl.bradley_terry_loss(chosen.double(), rejected.double())
    # An error of the difference of rewards counts in full, relative to the larger of reward and loss.
    scale = expected + chosen.double().abs() + rejected.double().abs()
    assert ((got.double() - expected).abs() / scale).max() < bound


# -- bad input ---------------------------------------------------------------------------------------------------

B3, B23 = torch.zeros(3), torch.zeros(2, 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rl.bradley_terry_loss(B3, B23), r"rejected has shape \(2, 3\)"),
        (lambda: rl.bradley_terry_loss(B23, B23), r"chosen has shape \(2, 3\); expected \(B\)"),
        (lambda: rl.bradley_terry_loss(B3, B3 * math.nan), r"rejected of shape \(3,\) holds 3 non-finite"),
        (lambda: rl.bradley_terry_loss(B3, B3, margin=torch.zeros(1)), r"margin has shape \(1,\)"),
        (lambda: rl.bradley_terry(B3, torch.zeros(1)), r"rewards_b has shape \(1,\)"),
        (lambda: rl.thurstone(B3, B3, std=0.0), "std = 0.0"),
        (lambda: rl.plackett_luce_logp(torch.zeros(2, 0)), r"rewards has shape \(2, 0\)"),
        (lambda: rl.plackett_luce_logp(torch.tensor([0.0, math.inf])), "rewards of shape"),
        (lambda: rl.mallows_logp(torch.tensor([0, 0, 1]), dispersion=1.0), "permutation"),
        (lambda: rl.mallows_logp(torch.tensor([1, 2, 3]), dispersion=1.0), "permutation"),
        (lambda: rl.mallows_logp(torch.tensor([0, 1]), dispersion=-1.0), "dispersion = -1.0"),
        (lambda: rl.elo_update(B3, B3, B3 + 2), "score of shape"),
        (lambda: rl.elo_update(B3, B3, B3, k=0.0), "k = 0.0"),
        (lambda: rl.pair_weights(torch.tensor([4, 1])), r"num_ranked of shape \(2,\)"),
        (lambda: rl.pair_weights(torch.tensor([4.0])), "expected integers"),
        (lambda: rl.regression_loss(B3, torch.zeros(3, 1)), r"labels has shape \(3, 1\)"),
        (lambda: rl.centring_penalty(B3, torch.zeros(2)), r"rejected has shape \(2,\)"),
        (lambda: rl.bradley_terry_loss(B3, B3, label_smoothing=0.6), "label_smoothing = 0.6"),
        (lambda: rl.process_loss(B23, B3, torch.ones(2, 3)), r"labels has shape \(3,\)"),
        (lambda: rl.process_loss(B23, B23 + 2, torch.ones(2, 3)), r"labels of shape \(2, 3\) holds values outside"),
        (lambda: rl.process_loss(B23, B23 * math.nan, torch.ones(2, 3)), "under the mask"),
        (lambda: rl.process_loss(B23, B23, torch.zeros(2, 3)), "no sampled token"),
        (lambda: rl.outcome_loss(B23, B3, torch.ones(2, 3)), r"labels has shape \(3,\)"),
        (lambda: rl.outcome_loss(B23, torch.zeros(2), torch.zeros(2, 3)), "no sampled token"),
        (lambda: rl.outcome_loss(B23, torch.tensor([-1.0, 1.0]), torch.ones(2, 3)), "labels of shape"),
        (lambda: rl.outcome_loss(B23 * math.nan, torch.zeros(2), torch.ones(2, 3)), "under the mask"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
