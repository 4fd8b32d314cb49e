"""Returns, GAE and importance weights over sampled tokens: examples by hand, limits, precision, bad arguments."""

import math

import pytest
import torch
from facts import called, raises

from minirlhf.core.errors import ArgumentError
from minirlhf.equations.returns import (
    gae,
    gae_mixture,
    gae_sum,
    importance_weights,
    lambda_returns,
    length_adaptive_lambda,
    n_step_advantages,
    n_step_from_residuals,
    returns_to_go,
    subtract_baseline,
    td_residuals,
    total_return,
)
from minirlhf_course.ledger.registry import Draw


def f64(*numbers):
    return torch.tensor(numbers, dtype=torch.float64)


def close(a, b, atol=1e-12):
    torch.testing.assert_close(a, b, rtol=0, atol=atol)


@pytest.fixture(params=range(2))
def draw(request, suite_seed):
    return Draw("returns", suite_seed, request.param)


@pytest.fixture
def batch(draw):
    """Rewards, values, a mask with holes (every row keeps its last token), bootstrap."""
    return draw.normal(4, 6), draw.normal(4, 6), draw.holed_mask(4, 6), draw.normal(4)


# Everything here as a function of (rewards, values, mask, bootstrap), for the properties that all share.
EVERYTHING = {
    "total_return": lambda r, v, m, b: total_return(r, m, gamma=0.9),
    "returns_to_go": lambda r, v, m, b: returns_to_go(r, m, gamma=0.9, bootstrap=b),
    "subtract_baseline": lambda r, v, m, b: subtract_baseline(r, v, m),
    "td_residuals": lambda r, v, m, b: td_residuals(r, v, m, gamma=0.9, bootstrap=b),
    "n_step_advantages": lambda r, v, m, b: n_step_advantages(r, v, m, n=2, gamma=0.9, bootstrap=b),
    "n_step_from_residuals": lambda r, v, m, b: n_step_from_residuals(r, m, n=2, gamma=0.9),
    "gae_mixture": lambda r, v, m, b: gae_mixture(r, v, m, gamma=0.9, lam=0.8, bootstrap=b),
    "gae_sum": lambda r, v, m, b: gae_sum(r, m, gamma=0.9, lam=0.8),
    "gae": lambda r, v, m, b: gae(r, v, m, gamma=0.9, lam=0.8, bootstrap=b),
    "lambda_returns": lambda r, v, m, b: lambda_returns(r, v, m),
    "importance_weights": lambda r, v, m, b: importance_weights(r, v, m),
}
every = pytest.mark.parametrize("f", EVERYTHING.values(), ids=EVERYTHING.keys())


# -- worked examples -------------------------------------------------------------------------------------------------

REWARDS, VALUES, MASK = f64([0, 0, 1]), f64([0.5, 0.6, 0.7]), torch.ones(1, 3, dtype=torch.bool)


@pytest.mark.parametrize(
    ("lam", "expected"), [(0.0, [0.1, 0.1, 0.3]), (0.95, [0.46575, 0.385, 0.3]), (1.0, [0.5, 0.4, 0.3])]
)
def test_gae_of_three_tokens_by_hand(lam, expected):
    close(gae(REWARDS, VALUES, MASK, gamma=1.0, lam=lam), f64(expected))
    close(gae_mixture(REWARDS, VALUES, MASK, gamma=1.0, lam=lam), f64(expected))
    close(gae_sum(td_residuals(REWARDS, VALUES, MASK), MASK, gamma=1.0, lam=lam), f64(expected))
    targets = lambda_returns(gae(REWARDS, VALUES, MASK, gamma=1.0, lam=lam), VALUES, MASK)
    close(targets, f64(expected) + VALUES)


def test_length_adaptive_lambda_by_hand():
    close(length_adaptive_lambda(torch.tensor([10, 20, 200, 1000]), alpha=0.05), f64(0.0, 0.0, 0.9, 0.98))


# -- limits ----------------------------------------------------------------------------------------------------------


def test_n_step_advantages_reach_from_td_residuals_to_returns(batch):
    rewards, values, mask, bootstrap = batch
    options = {"gamma": 0.9, "bootstrap": bootstrap}
    close(n_step_advantages(rewards, values, mask, n=1, **options), td_residuals(rewards, values, mask, **options))
    expected = subtract_baseline(returns_to_go(rewards, mask, **options), values, mask)
    for n in (6, 7, 10**9):
        close(n_step_advantages(rewards, values, mask, n=n, **options), expected)


# -- invariances -----------------------------------------------------------------------------------------------------


@every
def test_returns_of_a_row_do_not_depend_on_other_rows(batch, draw, f):
    rewards, values, mask, bootstrap = batch
    order, together = draw.permutation(4), f(*batch)
    close(f(rewards[order], values[order], mask[order], bootstrap[order]), together[order])
    apart = torch.cat([f(*(x[i : i + 1] for x in batch)) for i in range(4)])
    close(apart, together)


def test_gae_takes_a_lambda_per_row(batch):
    rewards, values, mask, bootstrap = batch
    lam = f64(0.0, 0.3, 0.95, 1.0)
    together = gae(rewards, values, mask, gamma=0.9, lam=lam, bootstrap=bootstrap)
    for i in range(4):
        row = (x[i : i + 1] for x in (rewards, values, mask))
        expected = gae(*row, gamma=0.9, lam=lam[i].item(), bootstrap=bootstrap[i : i + 1])
        close(together[i : i + 1], expected)


def test_importance_weights_of_extreme_log_probabilities():
    """Equal extremes cancel; what the target forbids gets 0, what only it allows overflows to infinity, never NaN."""
    mask = torch.ones(1, 3, dtype=torch.bool)
    close(importance_weights(f64([-1e5] * 3), f64([-1e5] * 3), mask), f64([1, 1, 1]))
    close(importance_weights(f64([-1e5, 0, 0]), f64([0, 0, 0]), mask), f64([0, 0, 0]))
    assert importance_weights(f64([0, 0, 0]), f64([-1e5, 0, 0]), mask).tolist() == [[math.inf] * 3]


def test_gae_of_a_long_completion_is_exact():
    """4,000 tokens, one reward at the end: GAE in closed form, (γλ)^k (1 − V) + the residuals of a constant critic."""
    length, gamma, lam = 4000, 0.999, 0.99
    rewards, mask = torch.zeros(1, length).double(), torch.ones(1, length, dtype=torch.bool)
    rewards[0, -1] = 1.0
    got = gae(rewards, torch.full_like(rewards, 0.5), mask, gamma=gamma, lam=lam)[0]
    left = torch.arange(length - 1, -1, -1).double()
    decay = (gamma * lam) ** left
    expected = decay * 0.5 + (gamma - 1) * 0.5 * (1 - decay) / (1 - gamma * lam)
    close(got, expected)


# -- precision -------------------------------------------------------------------------------------------------------


LINEAR = ("total_return", "returns_to_go", "td_residuals", "n_step_advantages", "gae_mixture", "gae_sum", "gae")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", LINEAR)
def test_returns_in_lower_precision_stay_within_their_error(batch, name, dtype):
    """Six tokens in the dtype given: within 8 ε of the sum of what goes in, ε being 1.2e-7 in float32, .0078 in bfloat16."""
    rewards, values, mask, bootstrap = batch
    low = EVERYTHING[name](rewards.to(dtype), values.to(dtype), mask, bootstrap.to(dtype))
    assert low.dtype == dtype
    scale = torch.where(mask, rewards.abs() + 2 * values.abs(), 0.0).sum(-1) + bootstrap.abs()
    error = (low.double() - EVERYTHING[name](*batch)).abs().amax(-1)
    assert (error <= 8 * torch.finfo(dtype).eps * scale).all()


# -- bad input -------------------------------------------------------------------------------------------------------

X, M = torch.zeros(2, 3), torch.tensor([[1, 1, 0], [1, 0, 0]])
NAN = torch.tensor([[0.0, math.nan, 0.0], [0.0, 0.0, 0.0]])


@pytest.mark.parametrize(
    ("call", "argument", "value"),
    [
        (lambda: gae(torch.zeros(2), X, M), "rewards", (2,)),
        (lambda: gae(torch.zeros(2, 1), X, M), "rewards", (2, 1)),
        (lambda: gae(X, X, M, lam=1.5), "lam", 1.5),
        (lambda: gae(X, X, M, gamma=-0.1), "gamma", -0.1),
        (lambda: gae_mixture(X, X, M, lam=2.0), "lam", 2.0),
        (lambda: gae_sum(X, M, lam=-1.0), "lam", -1.0),
        (lambda: returns_to_go(X[0], M), "rewards", (3,)),
        (lambda: total_return(NAN, M), "rewards", 1),
        (lambda: td_residuals(X, X, M, bootstrap=torch.zeros(3)), "bootstrap", (3,)),
        (lambda: n_step_advantages(X, X, M, n=0), "n", 0),
        (lambda: n_step_from_residuals(X, M, n=-1), "n", -1),
        (lambda: n_step_from_residuals(NAN, M, n=1), "residuals", 1),
        (lambda: subtract_baseline(X, X[:, :2], M), "baseline", (2, 2)),
        (lambda: lambda_returns(X, NAN, M), "values", 1),
        (lambda: importance_weights(X, torch.zeros(2), M), "behavior_logps", (2,)),
        (lambda: importance_weights(X, NAN, M), "behavior_logps", 1),
        (lambda: length_adaptive_lambda(torch.tensor([0, 3])), "lengths", None),
        (lambda: length_adaptive_lambda(torch.tensor(3)), "lengths", ()),
        (lambda: length_adaptive_lambda(torch.tensor([3]), alpha=0.0), "alpha", 0.0),
        (lambda: gae(X, NAN, M), "values", 1),
        (lambda: gae(NAN, X, M), "rewards", 1),
        (lambda: gae(X, X, M, bootstrap=torch.tensor([0.0, math.nan])), "bootstrap", 1),
        (lambda: gae(X, X, M, lam=torch.tensor([0.5, -0.1])), "lam", None),
        (lambda: gae(X, X, M, lam=torch.tensor([0.5])), "lam", (1,)),
    ],
    ids=called,
)
def test_returns_name_a_bad_argument(call, argument, value):
    with raises(ArgumentError, argument=argument, value=value):
        call()
