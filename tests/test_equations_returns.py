"""Returns, GAE and importance weights over sampled tokens: worked examples, limits, holes, padding, precision, bad input."""

import math

import pytest
import torch

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
from minirlhf.ledger.registry import Draw


def f64(*numbers):
    return torch.tensor(numbers, dtype=torch.float64)


def close(a, b, atol=1e-12):
    torch.testing.assert_close(a, b, rtol=0, atol=atol)


@pytest.fixture(params=range(3))
def draw(request, fresh_seed):
    return Draw("returns", fresh_seed, request.param)


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
def test_gae_of_three_tokens(lam, expected):
    close(gae(REWARDS, VALUES, MASK, gamma=1.0, lam=lam), f64(expected))
    close(gae_mixture(REWARDS, VALUES, MASK, gamma=1.0, lam=lam), f64(expected))
    close(gae_sum(td_residuals(REWARDS, VALUES, MASK), MASK, gamma=1.0, lam=lam), f64(expected))
    targets = lambda_returns(gae(REWARDS, VALUES, MASK, gamma=1.0, lam=lam), VALUES, MASK)
    close(targets, f64(expected) + VALUES)


def test_a_tool_call_in_the_middle():
    """The same three tokens with two written by a tool after the first: the same advantages, no discount lost."""
    mask = torch.tensor([[True, False, False, True, True, False]])
    rewards = f64([0, 9, 9, 0, 1, 9])
    values = f64([0.5, 9, 9, 0.6, 0.7, 9])
    close(gae(rewards, values, mask, gamma=1.0, lam=0.95), f64([0.46575, 0, 0, 0.385, 0.3, 0]))
    close(returns_to_go(rewards, mask, gamma=0.5), f64([0.25, 0, 0, 0.5, 1.0, 0]))


def test_truncation_needs_a_bootstrap():
    """A response cut off after its second token: what would have come is worth V(s₃) = .7."""
    whole = td_residuals(REWARDS, VALUES, MASK)
    cut = td_residuals(REWARDS[:, :2], VALUES[:, :2], MASK[:, :2], bootstrap=f64(0.7))
    close(cut, whole[:, :2])
    forgotten = td_residuals(REWARDS[:, :2], VALUES[:, :2], MASK[:, :2])
    close(forgotten, f64([0.1, -0.6]))


def test_length_adaptive_lambda_written_out():
    close(length_adaptive_lambda(torch.tensor([10, 20, 200, 1000]), alpha=0.05), f64(0.0, 0.0, 0.9, 0.98))


# -- limits ----------------------------------------------------------------------------------------------------------


def test_lambda_zero_and_one(batch):
    rewards, values, mask, bootstrap = batch
    options = {"gamma": 0.9, "bootstrap": bootstrap}
    close(gae(rewards, values, mask, lam=0.0, **options), td_residuals(rewards, values, mask, **options))
    to_go = returns_to_go(rewards, mask, **options)
    close(gae(rewards, values, mask, lam=1.0, **options), subtract_baseline(to_go, values, mask))
    close(gae_mixture(rewards, values, mask, lam=1.0, **options), subtract_baseline(to_go, values, mask))


def test_one_step_and_all_steps(batch):
    rewards, values, mask, bootstrap = batch
    options = {"gamma": 0.9, "bootstrap": bootstrap}
    close(n_step_advantages(rewards, values, mask, n=1, **options), td_residuals(rewards, values, mask, **options))
    expected = subtract_baseline(returns_to_go(rewards, mask, **options), values, mask)
    for n in (6, 7, 10**9):
        close(n_step_advantages(rewards, values, mask, n=n, **options), expected)


def test_without_discount_all_rewards_count_alike(batch):
    rewards, _, mask, _ = batch
    total = torch.where(mask, rewards, 0.0).sum(-1)
    first = mask.int().argmax(-1)
    close(returns_to_go(rewards, mask)[torch.arange(4), first], total)
    close(total_return(rewards, mask), total[:, None] * mask)


def test_without_a_future_only_the_own_reward_counts(batch):
    rewards, values, mask, bootstrap = batch
    own = torch.where(mask, rewards, 0.0)
    close(returns_to_go(rewards, mask, gamma=0.0, bootstrap=bootstrap), own)
    close(gae(rewards, values, mask, gamma=0.0, bootstrap=bootstrap), subtract_baseline(rewards, values, mask))


def test_a_critic_that_knows_the_return_leaves_no_advantage(batch):
    rewards, _, mask, bootstrap = batch
    values = returns_to_go(rewards, mask, gamma=0.9, bootstrap=bootstrap)
    for lam in (0.0, 0.5, 1.0):
        advantages = gae(rewards, values, mask, gamma=0.9, lam=lam, bootstrap=bootstrap)
        close(advantages, torch.zeros_like(advantages))
        close(lambda_returns(advantages, values, mask), values)


# -- invariances -----------------------------------------------------------------------------------------------------


@every
def test_holes_close_up(batch, f):
    """Dropping what was not sampled gives the same numbers at the same tokens."""
    for i, keep in enumerate(batch[2]):
        rewards, values, mask, bootstrap = (x[i : i + 1] for x in batch)
        short = f(rewards[:, keep], values[:, keep], mask[:, keep], bootstrap)
        close(f(rewards, values, mask, bootstrap)[:, keep], short)


@every
@pytest.mark.parametrize("content", [math.nan, math.inf, -1e300])
def test_what_was_not_sampled_does_not_matter(batch, f, content):
    rewards, values, mask, bootstrap = batch
    clean = f(rewards, values, mask, bootstrap)
    assert (clean[~mask] == 0).all()
    noise = torch.full_like(rewards, content)
    got = f(torch.where(mask, rewards, noise), torch.where(mask, values, noise), mask, bootstrap)
    assert torch.equal(got, clean)
    assert torch.equal(f(rewards, values, mask.long(), bootstrap), clean)
    wide = [torch.nn.functional.pad(x, (2, 3), value=content) for x in (rewards, values)]
    close(f(*wide, torch.nn.functional.pad(mask, (2, 3)), bootstrap)[:, 2:-3], clean)


@every
def test_the_gradient_is_finite_whatever_stands_in_padding(batch, f):
    rewards, values, mask, bootstrap = batch
    leaves = [torch.where(mask, x, math.nan).requires_grad_() for x in (rewards, values)]
    result = f(*leaves, mask, bootstrap)
    grads = torch.autograd.grad(result.sum(), leaves, allow_unused=True)
    assert any(g is not None for g in grads)
    for g in grads:
        assert g is None or (g.isfinite().all() and (g[~mask] == 0).all())


@every
def test_rows_do_not_see_each_other(batch, draw, f):
    rewards, values, mask, bootstrap = batch
    order, together = draw.permutation(4), f(*batch)
    close(f(rewards[order], values[order], mask[order], bootstrap[order]), together[order])
    apart = torch.cat([f(*(x[i : i + 1] for x in batch)) for i in range(4)])
    close(apart, together)


def test_a_response_may_be_cut_anywhere_if_its_rest_is_the_bootstrap(draw):
    rewards, values, mask = draw.normal(3, 6), draw.normal(3, 6), torch.ones(3, 6, dtype=torch.bool)
    whole = returns_to_go(rewards, mask, gamma=0.9)
    for cut in range(1, 6):
        head = returns_to_go(rewards[:, :cut], mask[:, :cut], gamma=0.9, bootstrap=whole[:, cut])
        close(head, whole[:, :cut])
        residuals = td_residuals(rewards[:, :cut], values[:, :cut], mask[:, :cut], gamma=0.9, bootstrap=values[:, cut])
        close(residuals, td_residuals(rewards, values, mask, gamma=0.9)[:, :cut])


def test_rewards_scale_and_add(batch, draw):
    rewards, values, mask, bootstrap = batch
    other = draw.normal(4, 6), draw.normal(4, 6), mask, draw.normal(4)
    total = gae(rewards + 2 * other[0], values + 2 * other[1], mask, gamma=0.9, bootstrap=bootstrap + 2 * other[3])
    parts = [gae(*x[:3], gamma=0.9, bootstrap=x[3]) for x in (batch, other)]
    close(total, parts[0] + 2 * parts[1], 1e-11)


def test_shifting_all_values_shifts_nothing_without_discount(batch):
    rewards, values, mask, bootstrap = batch
    for lam in (0.0, 0.5, 1.0):
        close(
            gae(rewards, values + 3.0, mask, lam=lam, bootstrap=bootstrap + 3.0),
            gae(rewards, values, mask, lam=lam, bootstrap=bootstrap),
            1e-11,
        )


def test_each_row_may_have_its_own_lambda(batch):
    rewards, values, mask, bootstrap = batch
    lam = f64(0.0, 0.3, 0.95, 1.0)
    together = gae(rewards, values, mask, gamma=0.9, lam=lam, bootstrap=bootstrap)
    for i in range(4):
        row = (x[i : i + 1] for x in (rewards, values, mask))
        expected = gae(*row, gamma=0.9, lam=lam[i].item(), bootstrap=bootstrap[i : i + 1])
        close(together[i : i + 1], expected)


def test_importance_weights_of_one_policy_are_one(draw):
    logps, mask = draw.logps(3, 5), draw.holed_mask(3, 5)
    close(importance_weights(logps, logps, mask), mask.double())


def test_importance_weights_at_extreme_log_probabilities():
    """Equal extremes cancel; what the target forbids gets 0, what only it allows overflows to infinity, never NaN."""
    mask = torch.ones(1, 3, dtype=torch.bool)
    close(importance_weights(f64([-1e5] * 3), f64([-1e5] * 3), mask), f64([1, 1, 1]))
    close(importance_weights(f64([-1e5, 0, 0]), f64([0, 0, 0]), mask), f64([0, 0, 0]))
    assert importance_weights(f64([0, 0, 0]), f64([-1e5, 0, 0]), mask).tolist() == [[math.inf] * 3]


def test_a_long_response(fresh_seed):
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
def test_lower_precision(batch, name, dtype):
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
    ("call", "message"),
    [
        (lambda: gae(torch.zeros(2), X, M), r"rewards has shape \(2,\)"),
        (lambda: gae(torch.zeros(2, 1), X, M), r"rewards has shape \(2, 1\)"),
        (lambda: gae(X, torch.zeros(2, 4), M), r"values has shape \(2, 4\)"),
        (lambda: gae(X, X, M[:1]), r"shape \(1, 3\)|shape \(2, 3\)"),
        (lambda: gae(X, X, torch.zeros(2, 3)), r"mask of shape \(2, 3\) has no sampled token in row\(s\) \[0, 1\]"),
        (lambda: gae(X, X, M * 2), "mask .* values other than 0 and 1"),
        (lambda: gae(NAN, X, M), r"rewards of shape \(2, 3\) holds 1 non-finite"),
        (lambda: gae(X, NAN, M), r"values of shape \(2, 3\) holds 1 non-finite"),
        (lambda: gae(X, X, M, bootstrap=torch.zeros(2, 1)), r"bootstrap has shape \(2, 1\)"),
        (lambda: gae(X, X, M, bootstrap=torch.tensor([0.0, math.nan])), "bootstrap of shape"),
        (lambda: gae(X, X, M, lam=1.5), "lam = 1.5"),
        (lambda: gae(X, X, M, lam=torch.tensor([0.5, -0.1])), r"lam of shape \(2,\)"),
        (lambda: gae(X, X, M, lam=torch.tensor([0.5])), r"lam has shape \(1,\)"),
        (lambda: gae(X, X, M, gamma=-0.1), "gamma = -0.1"),
        (lambda: gae_mixture(X, X, M, lam=2.0), "lam = 2.0"),
        (lambda: gae_sum(X, M, lam=-1.0), "lam = -1.0"),
        (lambda: returns_to_go(X[0], M), r"rewards has shape \(3,\)"),
        (lambda: total_return(NAN, M), "rewards of shape"),
        (lambda: td_residuals(X, X, M, bootstrap=torch.zeros(3)), r"bootstrap has shape \(3,\)"),
        (lambda: n_step_advantages(X, X, M, n=0), "n = 0"),
        (lambda: n_step_from_residuals(X, M, n=-1), "n = -1"),
        (lambda: n_step_from_residuals(NAN, M, n=1), "residuals of shape"),
        (lambda: subtract_baseline(X, X[:, :2], M), r"baseline has shape \(2, 2\)"),
        (lambda: lambda_returns(X, NAN, M), "values of shape"),
        (lambda: importance_weights(X, torch.zeros(2), M), r"behavior_logps has shape \(2,\)"),
        (lambda: importance_weights(X, NAN, M), "behavior_logps of shape"),
        (lambda: length_adaptive_lambda(torch.tensor([0, 3])), r"lengths of shape \(2,\)"),
        (lambda: length_adaptive_lambda(torch.tensor(3)), r"lengths has shape \(\)"),
        (lambda: length_adaptive_lambda(torch.tensor([3]), alpha=0.0), "alpha = 0.0"),
    ],
)
def test_bad_input_names_the_argument(call, message):
    with pytest.raises(ValueError, match=message):
        call()
