"""pass@k, pass^k, maj@k and best-of-n: large counts, ties, precision, bad arguments. Values: the ledger."""

import math

import pytest
import torch
from facts import called, raises

from minirlhf.core.errors import ArgumentError
from minirlhf.equations import estimators as es
from minirlhf_course.chapters.ch11_rejection_sampling import equations as ch11


def distribution(seed, size):
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(size, dtype=torch.float64, generator=rng).softmax(-1), torch.randperm(
        size, generator=rng
    ).double()


# -- k of n ------------------------------------------------------------------------------------------------------


def test_pass_at_k_of_large_counts_is_exact():
    assert es.pass_at_k(100_000, 50_000, k=1000).item() == 1.0
    assert es.pass_at_k(100_000, 1, k=1000).item() == pytest.approx(0.01, rel=1e-12)
    assert es.pass_hat_k(20_000, 10_000, k=10).item() == pytest.approx(0.5**10, rel=1e-2)


# -- best of n ---------------------------------------------------------------------------------------------------


def test_best_of_n_distribution_limits_and_ties():
    probs, rewards = distribution(1, 5)
    torch.testing.assert_close(es.best_of_n_distribution(probs, rewards, n=1), probs)
    best = torch.nn.functional.one_hot(rewards.argmax(), 5).double()
    torch.testing.assert_close(es.best_of_n_distribution(probs, rewards, n=10**6), best)
    torch.testing.assert_close(es.best_of_n_distribution(probs, torch.zeros(5).double(), n=50), probs)
    assert es.best_of_n_kl(1) == 0
    assert ch11.best_of_n_win_rate(1) == 0.5


def test_best_of_n_distribution_of_impossible_answers():
    probs = torch.tensor([0.0, 0.5, 1e-30, 0.5, 0.0], dtype=torch.float64)
    law = es.best_of_n_distribution(probs, torch.arange(5.0).double(), n=4)
    torch.testing.assert_close(
        law, torch.tensor([0.0, 1 / 16, 4 * 0.5**3 * 1e-30, 15 / 16, 0.0], dtype=torch.float64), rtol=1e-12, atol=0
    )


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-5), (torch.bfloat16, 0.1)])
def test_best_of_n_distribution_in_lower_precision_stays_within_its_error(dtype, bound):
    probs, rewards = distribution(2, 8)
    law = es.best_of_n_distribution(probs.to(dtype), rewards.to(dtype), n=8)
    assert law.dtype == dtype
    assert (law.double() - es.best_of_n_distribution(probs, rewards, n=8)).abs().max() < bound


def test_best_of_n_curve_of_a_thousand_samples_keeps_its_precision():
    """Best of n uniform samples 1 … N without replacement: n (N+1)/(n+1)."""
    size = 1000
    n = torch.arange(1, size + 1).double()
    torch.testing.assert_close(es.best_of_n_curve(n), n * (size + 1) / (n + 1), rtol=1e-10, atol=0)


# -- bad input ---------------------------------------------------------------------------------------------------

P2 = torch.tensor([0.5, 0.5])


def test_best_of_n_distribution_has_a_gradient_at_probability_zero():
    """At probability 0 the law rises by n F^(n−1) for each unit of probability: .8 is below the new answer, n is 3."""
    probs = torch.tensor([0.5, 0.3, 0.2, 0.0], dtype=torch.float64, requires_grad=True)
    rewards = torch.tensor([0.0, 1.0, 2.0, 1.5], dtype=torch.float64)
    law = es.best_of_n_distribution(probs, rewards, n=3)
    (slope,) = torch.autograd.grad(law[3], probs)
    torch.testing.assert_close(slope, torch.tensor([0.0, 0.0, 0.0, 3 * 0.8**2], dtype=torch.float64))


@pytest.mark.parametrize(
    ("call", "argument", "value"),
    [
        (lambda: es.pass_at_k(4, 1, k=5), "k", 5),
        (lambda: es.pass_at_k(4, 1, k=0), "k", 0),
        (lambda: es.pass_at_k(4, 5, k=1), "num_correct", None),
        (lambda: es.pass_at_k(torch.tensor([4, 4, 4]), torch.tensor([1, 2]), k=1), "num_correct", (2,)),
        (lambda: es.pass_hat_k(4, torch.tensor([1, -1]), k=1), "num_correct", None),
        (lambda: es.maj_at_k(torch.tensor([2, 1]), correct=0, k=4), "k", 4),
        (lambda: es.maj_at_k(torch.tensor([2, 1]), correct=2, k=1), "correct", 2),
        (lambda: es.maj_at_k(torch.tensor([2, -1]), correct=0, k=1), "counts", None),
        (lambda: es.maj_at_k(torch.tensor([[2, 1]]), correct=0, k=1), "counts", (1, 2)),
        (lambda: es.best_of_n_kl(0), "n", 0),
        (lambda: es.best_of_n_cdf(torch.tensor([1.5]), n=2), "cdf", None),
        (lambda: es.best_of_n_density_ratio(torch.tensor([math.nan]), n=2), "quantile", 1),
        (lambda: es.best_of_n_distribution(P2, torch.zeros(3), n=2), "rewards", (3,)),
        (lambda: es.best_of_n_distribution(P2, torch.tensor([0.0, math.nan]), n=2), "rewards", 1),
        (lambda: es.best_of_n_distribution(P2, torch.zeros(2), n=0), "n", 0),
        (lambda: es.best_of_n_curve(torch.zeros(2, 3), torch.zeros(3)), "values", (3,)),
        (lambda: es.best_of_n_curve(torch.zeros(0)), "scores", (0,)),
        (lambda: es.best_of_n_curve(torch.tensor([1.0, math.nan])), "scores", 1),
        (lambda: es.pass_at_k(torch.tensor([4, 2]), torch.tensor([1, 1]), k=3), "k", 3),
        (lambda: es.pass_at_k(4, torch.tensor([0.5]), k=1), "num_samples, num_correct", (torch.float32, torch.float32)),
        (lambda: es.best_of_n_distribution(2 * P2, torch.zeros(2), n=2), "probs", None),
    ],
    ids=called,
)
def test_estimators_name_a_bad_argument(call, argument, value):
    with raises(ArgumentError, argument=argument, value=value):
        call()
