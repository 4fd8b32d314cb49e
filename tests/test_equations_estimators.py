"""pass@k, pass^k, maj@k and best-of-n: worked examples, brute force, limits, bad input."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from minirlhf.core import exact
from minirlhf.equations import estimators as es

SEEDS = st.integers(0, 2**31)
NKC = st.integers(1, 12).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n), st.integers(0, n)))


def distribution(seed, size):
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(size, dtype=torch.float64, generator=rng).softmax(-1), torch.randperm(
        size, generator=rng
    ).double()


# -- k of n ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "c", "k", "expected"), [(10, 3, 5, 0.916667), (5, 2, 3, 0.9), (4, 1, 4, 1.0)])
def test_pass_at_k_by_hand(n, c, k, expected):
    assert es.pass_at_k(n, c, k=k).item() == pytest.approx(expected, abs=5e-7)


@given(NKC)
def test_pass_at_k_and_pass_hat_k_mirror_each_other(nkc):
    n, k, c = nkc
    assert es.pass_at_k(n, c, k=k).item() == pytest.approx(1 - es.pass_hat_k(n, n - c, k=k).item(), abs=1e-15)
    assert es.pass_hat_k(n, c, k=k) <= c / n <= es.pass_at_k(n, c, k=k)


def test_one_try_is_the_share_of_correct_samples_and_n_tries_are_any_or_all():
    correct = torch.arange(7)
    torch.testing.assert_close(es.pass_at_k(6, correct, k=1), correct / 6.0, check_dtype=False)
    torch.testing.assert_close(es.pass_hat_k(6, correct, k=1), correct / 6.0, check_dtype=False)
    assert es.pass_at_k(6, correct, k=6).tolist() == [0, 1, 1, 1, 1, 1, 1]
    assert es.pass_hat_k(6, correct, k=6).tolist() == [0, 0, 0, 0, 0, 0, 1]


def test_large_counts_neither_overflow_nor_round_to_nothing():
    assert es.pass_at_k(100_000, 50_000, k=1000).item() == 1.0
    assert es.pass_at_k(100_000, 1, k=1000).item() == pytest.approx(0.01, rel=1e-12)
    assert es.pass_hat_k(20_000, 10_000, k=10).item() == pytest.approx(0.5**10, rel=1e-2)


@given(st.lists(st.integers(0, 3), min_size=2, max_size=4).filter(lambda c: sum(c) >= 2), st.data())
def test_majority_vote_by_brute_force(counts, data):
    k = data.draw(st.integers(1, sum(counts)))
    samples = [answer for answer, count in enumerate(counts) for _ in range(count)]
    wins = torch.zeros(len(counts), dtype=torch.float64)
    subsets = list(itertools.combinations(samples, k))
    for subset in subsets:
        votes = torch.bincount(torch.tensor(subset), minlength=len(counts))
        leaders = votes == votes.max()
        wins += leaders / leaders.sum()
    got = [es.maj_at_k(torch.tensor(counts), correct=i, k=k) for i in range(len(counts))]
    torch.testing.assert_close(torch.tensor(got, dtype=torch.float64), wins / len(subsets))


def test_majority_helps_when_the_right_answer_is_the_most_frequent_and_hurts_otherwise():
    counts = torch.tensor([30, 40, 30])
    curve = [[es.maj_at_k(counts, correct=i, k=k) for k in (1, 3, 9, 33)] for i in (0, 1)]
    assert curve[1] == sorted(curve[1])
    assert curve[0] == sorted(curve[0], reverse=True)
    assert curve[1][0] == pytest.approx(0.4)


# -- best of n ---------------------------------------------------------------------------------------------------


def test_kl_of_best_of_four_by_hand():
    coin = torch.tensor([0.5, 0.5], dtype=torch.float64)
    law = es.best_of_n_distribution(coin, torch.tensor([0.0, 1.0]).double(), n=4)
    assert es.best_of_n_kl(4) == pytest.approx(0.636294, abs=5e-7)
    assert exact.divergence(law, coin).item() == pytest.approx(0.459356, abs=5e-7)


@given(SEEDS, st.integers(1, 200))
def test_the_law_is_a_distribution_within_the_bound_that_rises_with_reward(seed, n):
    probs, rewards = distribution(seed, 6)
    law = es.best_of_n_distribution(probs, rewards, n=n)
    assert law.sum().item() == pytest.approx(1.0)
    assert -1e-12 <= exact.divergence(law, probs) <= es.best_of_n_kl(n) + 1e-12
    ratio = (law / probs)[rewards.argsort()]
    assert (ratio.diff() >= -1e-12).all()


@given(SEEDS, st.integers(1, 20))
def test_the_law_sees_the_order_of_rewards_only_and_follows_permutations(seed, n):
    probs, rewards = distribution(seed, 6)
    law = es.best_of_n_distribution(probs, rewards, n=n)
    torch.testing.assert_close(es.best_of_n_distribution(probs, rewards**3 - 5, n=n), law)
    order = torch.randperm(6, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(es.best_of_n_distribution(probs[order], rewards[order], n=n), law[order])
    twice = es.best_of_n_distribution(torch.stack([probs, probs[order]]), torch.stack([rewards, rewards[order]]), n=n)
    torch.testing.assert_close(twice, torch.stack([law, law[order]]))


def test_limits_of_n():
    probs, rewards = distribution(1, 5)
    torch.testing.assert_close(es.best_of_n_distribution(probs, rewards, n=1), probs)
    best = torch.nn.functional.one_hot(rewards.argmax(), 5).double()
    torch.testing.assert_close(es.best_of_n_distribution(probs, rewards, n=10**6), best)
    torch.testing.assert_close(es.best_of_n_distribution(probs, torch.zeros(5).double(), n=50), probs)
    assert es.best_of_n_kl(1) == 0
    assert es.best_of_n_win_rate(1) == 0.5


def test_impossible_and_nearly_impossible_answers():
    probs = torch.tensor([0.0, 0.5, 1e-30, 0.5, 0.0], dtype=torch.float64)
    law = es.best_of_n_distribution(probs, torch.arange(5.0).double(), n=4)
    torch.testing.assert_close(
        law, torch.tensor([0.0, 1 / 16, 4 * 0.5**3 * 1e-30, 15 / 16, 0.0], dtype=torch.float64), rtol=1e-12, atol=0
    )


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-5), (torch.bfloat16, 0.1)])
def test_relative_error_of_lower_precision(dtype, bound):
    probs, rewards = distribution(2, 8)
    law = es.best_of_n_distribution(probs.to(dtype), rewards.to(dtype), n=8)
    assert law.dtype == dtype
    assert (law.double() - es.best_of_n_distribution(probs, rewards, n=8)).abs().max() < bound


@given(SEEDS, st.integers(1, 6))
def test_curve_starts_at_the_mean_ends_at_the_best_and_ignores_order(seed, size):
    scores = torch.randint(0, 4, (size,), generator=torch.Generator().manual_seed(seed)).double()
    curve = es.best_of_n_curve(scores)
    assert curve[0].item() == pytest.approx(scores.mean().item())
    assert curve[-1].item() == pytest.approx(scores.max().item())
    assert (curve.diff() >= -1e-12).all()
    torch.testing.assert_close(es.best_of_n_curve(scores.flip(0)), curve)


def test_curve_of_binary_scores_is_pass_at_k():
    scores = torch.tensor([[1.0, 0, 0, 1, 0, 0, 1, 0, 0, 0], [0, 0, 1, 0, 0, 0, 0, 0, 0, 0]])
    curve = es.best_of_n_curve(scores)
    for k in range(1, 11):
        torch.testing.assert_close(curve[:, k - 1], es.pass_at_k(10, torch.tensor([3, 1]), k=k))


def test_curve_of_a_gold_reward_falls_when_the_proxy_is_its_opposite():
    gold = torch.tensor([3.0, 1.0, 2.0, 0.0])
    curve = es.best_of_n_curve(-gold, gold)
    assert curve[0] == 1.5
    assert curve[-1] == 0.0
    assert (curve.diff() < 0).all()


def test_curve_of_a_thousand_samples_keeps_its_precision():
    """Best of n uniform samples 1 … N without replacement: n (N+1)/(n+1)."""
    size = 1000
    n = torch.arange(1, size + 1).double()
    torch.testing.assert_close(es.best_of_n_curve(n), n * (size + 1) / (n + 1), rtol=1e-10, atol=0)


# -- bad input ---------------------------------------------------------------------------------------------------

P2 = torch.tensor([0.5, 0.5])


def test_the_law_of_best_of_n_has_a_gradient_where_an_answer_has_no_mass():
    """At probability 0 the law rises by n F^(n−1) for each unit of probability: .8 is below the new answer, n is 3."""
    probs = torch.tensor([0.5, 0.3, 0.2, 0.0], dtype=torch.float64, requires_grad=True)
    rewards = torch.tensor([0.0, 1.0, 2.0, 1.5], dtype=torch.float64)
    law = es.best_of_n_distribution(probs, rewards, n=3)
    (slope,) = torch.autograd.grad(law[3], probs)
    torch.testing.assert_close(slope, torch.tensor([0.0, 0.0, 0.0, 3 * 0.8**2], dtype=torch.float64))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: es.pass_at_k(4, 1, k=5), "k = 5; expected 1 ≤ k ≤ num_samples"),
        (lambda: es.pass_at_k(4, 1, k=0), "k = 0"),
        (lambda: es.pass_at_k(4, 5, k=1), "num_correct"),
        (lambda: es.pass_hat_k(4, torch.tensor([1, -1]), k=1), r"num_correct of shape \(2,\)"),
        (lambda: es.pass_at_k(torch.tensor([4, 4, 4]), torch.tensor([1, 2]), k=1), r"num_correct has shape \(2,\)"),
        (lambda: es.pass_at_k(torch.tensor([4, 2]), torch.tensor([1, 1]), k=3), "k = 3"),
        (lambda: es.pass_at_k(4, torch.tensor([0.5]), k=1), "expected integers"),
        (lambda: es.maj_at_k(torch.tensor([2, 1]), correct=0, k=4), "k = 4; expected 1 ≤ k ≤ 3"),
        (lambda: es.maj_at_k(torch.tensor([2, 1]), correct=2, k=1), "correct = 2"),
        (lambda: es.maj_at_k(torch.tensor([2, -1]), correct=0, k=1), r"counts of shape \(2,\)"),
        (lambda: es.maj_at_k(torch.tensor([[2, 1]]), correct=0, k=1), r"counts has shape \(1, 2\)"),
        (lambda: es.best_of_n_kl(0), "n = 0"),
        (lambda: es.best_of_n_cdf(torch.tensor([1.5]), n=2), "cdf of shape"),
        (lambda: es.best_of_n_density_ratio(torch.tensor([math.nan]), n=2), "quantile of shape"),
        (lambda: es.best_of_n_distribution(P2, torch.zeros(3), n=2), r"rewards has shape \(3,\)"),
        (lambda: es.best_of_n_distribution(P2, torch.tensor([0.0, math.nan]), n=2), "rewards of shape"),
        (lambda: es.best_of_n_distribution(2 * P2, torch.zeros(2), n=2), "expected distributions"),
        (lambda: es.best_of_n_distribution(P2, torch.zeros(2), n=0), "n = 0"),
        (lambda: es.best_of_n_curve(torch.zeros(2, 3), torch.zeros(3)), r"values has shape \(3,\)"),
        (lambda: es.best_of_n_curve(torch.zeros(0)), r"scores has shape \(0,\)"),
        (lambda: es.best_of_n_curve(torch.tensor([1.0, math.nan])), "scores of shape"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
