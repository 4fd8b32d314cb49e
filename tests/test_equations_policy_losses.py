"""Policy objectives, corrections for other samplers, diagnostics, the critic: worked examples, properties, limits, bad input."""

import functools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from minirlhf.core import exact
from minirlhf.core.masking import masked_mean
from minirlhf.equations import diagnostics, off_policy, value_losses
from minirlhf.equations import policy_losses as pg
from minirlhf.equations.aggregation import aggregate, sequence_mean, sequence_sum

SEEDS = st.integers(0, 2**31)
fresh = settings(deadline=None, max_examples=25)

TOKEN = {
    "reinforce": pg.reinforce,
    "importance_weighted": pg.importance_weighted,
    "ppo_clip": pg.ppo_clip,
    "ppo_clip, two-sided": functools.partial(pg.ppo_clip, epsilon_high=0.28, delta=3.0),
    "ppo_penalty": functools.partial(pg.ppo_penalty, beta=0.5),
    "cispo": pg.cispo,
    "sapo": pg.sapo,
    "gspo_token": pg.gspo_token,
}
SEQUENCE = {"gspo": functools.partial(pg.gspo, epsilon=0.2), "luspo": pg.luspo, "gmpo": pg.gmpo}
ALL = {**TOKEN, **SEQUENCE}


def each(names):
    return pytest.mark.parametrize("objective", [pytest.param(ALL[name], id=name) for name in names])


def batch(seed, rows=4, width=5, spread=0.3):
    """Inputs whose masks have holes, NaN outside them, one advantage per row."""
    rng = torch.Generator().manual_seed(seed)
    mask = torch.rand(rows, width, generator=rng) < 0.6
    mask[torch.arange(rows), torch.randint(width, (rows,), generator=rng)] = True
    old = -0.05 - 3 * torch.rand(rows, width, dtype=torch.float64, generator=rng)
    logps = old + spread * torch.randn(rows, width, dtype=torch.float64, generator=rng)
    advantages = torch.randn(rows, 1, dtype=torch.float64, generator=rng).expand(rows, width)
    return *(torch.where(mask, x, torch.nan) for x in (logps, old, advantages)), mask


def value_and_gradient(objective, logps, old, advantages, mask):
    leaf = logps.clone().requires_grad_()
    value = objective(leaf, old, advantages, mask)
    return value.detach(), torch.autograd.grad(value.sum(), leaf)[0]


# -- worked examples ---------------------------------------------------------------------------------------------


def test_two_tokens_with_ratios_two_and_two_fifths():
    logps = torch.tensor([[2.0, 0.4]], dtype=torch.float64).log()
    old, ones = torch.zeros(1, 2, dtype=torch.float64), torch.ones(1, 2, dtype=torch.float64)
    grpo = aggregate(pg.ppo_clip(logps, old, ones, ones.bool(), epsilon=0.2), sequence_mean(ones), ones)
    gspo = aggregate(pg.gspo(logps, old, ones, ones.bool(), epsilon=0.2, epsilon_high=0.2), sequence_mean(ones), ones)
    assert grpo.item() == pytest.approx(0.8, abs=1e-12)  # (1.2 + .4)/2: the minimum keeps the low ratio as it is
    assert gspo.item() == pytest.approx(0.894, abs=5e-4)


@pytest.mark.parametrize(
    ("epsilon_high", "old", "threshold"),
    [(0.2, 0.01, 0.012), (0.2, 0.9, 1.08), (0.28, 0.01, 0.0128), (0.28, 0.9, 1.152)],
)
def test_probability_at_which_the_gradient_vanishes(epsilon_high, old, threshold):
    """A threshold above 1 is never reached: a frequent token is not clipped at all."""

    def slope(probability):
        logp = torch.tensor([[math.log(probability)]], dtype=torch.float64, requires_grad=True)
        ones = torch.ones(1, 1, dtype=torch.float64)
        objective = pg.ppo_clip(logp, math.log(old) * ones, ones, ones.bool(), epsilon_high=epsilon_high)
        return torch.autograd.grad(objective.sum(), logp)[0].item()

    assert slope(threshold * (1 - 1e-9)) == pytest.approx(threshold / old)
    assert slope(threshold * (1 + 1e-9)) == 0


def test_clipping_removes_a_gradient_and_does_not_bound_the_ratio():
    """One plain gradient step from ρ = 1, where nothing is clipped yet, ends far outside the interval."""
    logits = torch.zeros(1, 10, dtype=torch.float64, requires_grad=True)
    old, ones = torch.full((1, 1), math.log(0.1), dtype=torch.float64), torch.ones(1, 1)
    for _ in range(3):
        objective = pg.ppo_clip(logits.log_softmax(-1)[:, :1], old, ones, ones.bool())
        (gradient,) = torch.autograd.grad(objective.sum(), logits)
        with torch.no_grad():
            logits += 3 * gradient
    ratio = logits.softmax(-1)[0, 0].item() / 0.1
    assert ratio > 6  # after the first step; the second and third find no gradient
    assert ratio == pytest.approx(10 * math.exp(3) / (math.exp(3) + 9))


def test_long_wrong_answers_cost_less_per_token_under_the_mean_per_response():
    """Lengths 2, 6, 6 with rewards 1, 1, −1: gradients ⅓, 1⁄9, −2⁄9 per token, each over the three responses."""
    mask = torch.arange(6)[None, :] < torch.tensor([2, 6, 6])[:, None]
    logps = torch.full((3, 6), -1.0, dtype=torch.float64, requires_grad=True)
    advantages = torch.tensor([[2 / 3], [2 / 3], [-4 / 3]], dtype=torch.float64).expand(3, 6)
    objective = pg.ppo_clip(logps, logps.detach(), advantages, mask)
    (gradient,) = torch.autograd.grad(aggregate(objective, sequence_mean(mask), mask), logps)
    assert (3 * gradient[:, 0]).tolist() == pytest.approx([1 / 3, 1 / 9, -2 / 9])


# -- properties --------------------------------------------------------------------------------------------------


@each(ALL)
@fresh
@given(seed=SEEDS)
def test_padding_never_matters_not_even_in_the_gradient(objective, seed):
    logps, old, advantages, mask = batch(seed)
    value, gradient = value_and_gradient(objective, logps, old, advantages, mask)
    junk = [torch.where(mask, x, y) for x, y in ((logps, torch.inf), (old, -7.0), (advantages, 1e9))]
    torch.testing.assert_close(value_and_gradient(objective, *junk, mask), (value, gradient), rtol=0, atol=0)
    assert gradient.isfinite().all()
    assert (gradient[~mask] == 0).all()
    if value.shape[1] > 1:
        assert (value[~mask] == 0).all()


@each(ALL)
@fresh
@given(seed=SEEDS)
def test_left_padding_is_right_padding(objective, seed):
    """Columns that nobody sampled may stand anywhere."""
    logps, old, advantages, mask = batch(seed)
    wider = [torch.cat([torch.full((4, 2), torch.nan), x], 1) for x in (logps, old, advantages)]
    value = objective(logps, old, advantages, mask)
    got = objective(*wider, torch.cat([torch.zeros(4, 2, dtype=torch.bool), mask], 1))
    torch.testing.assert_close(got[:, 2:] if got.shape[1] > 1 else got, value)


@each(ALL)
@fresh
@given(seed=SEEDS)
def test_rows_do_not_see_each_other(objective, seed):
    """So that no order and no micro-batch can matter."""
    inputs = batch(seed)
    value = objective(*inputs)
    alone = torch.cat([objective(*(x[[i]] for x in inputs)) for i in range(4)])
    torch.testing.assert_close(alone, value)
    torch.testing.assert_close(objective(*(x.flip(0) for x in inputs)), value.flip(0))


@each(ALL)
def test_gradients_flow_through_the_new_log_probabilities_only(objective):
    inputs = [x.clone().requires_grad_() for x in batch(3)[:3]]
    grads = torch.autograd.grad(objective(*inputs, batch(3)[3]).sum(), inputs, allow_unused=True)
    assert grads[0] is not None
    assert grads[1] is None and grads[2] is None


@each([*TOKEN, "luspo"])
@fresh
@given(seed=SEEDS)
def test_on_the_first_step_all_are_reinforce(objective, seed):
    """At ρ = 1 every token has the gradient A: the algorithms differ off-policy only."""
    _, old, advantages, mask = batch(seed)
    _, gradient = value_and_gradient(objective, old, old, advantages, mask)
    torch.testing.assert_close(gradient, torch.where(mask, advantages, 0.0))


@each(["gspo", "gmpo"])
@fresh
@given(seed=SEEDS)
def test_on_the_first_step_these_are_reinforce_with_the_mean_per_response(objective, seed):
    _, old, advantages, mask = batch(seed)
    _, gradient = value_and_gradient(objective, old, old, advantages, mask)
    torch.testing.assert_close(gradient, torch.where(mask, advantages / mask.sum(-1, keepdim=True), 0.0))


@each(ALL)
@fresh
@given(seed=SEEDS)
def test_no_advantage_no_gradient(objective, seed):
    logps, old, advantages, mask = batch(seed)
    if objective is ALL["ppo_penalty"]:
        objective = functools.partial(pg.ppo_penalty, beta=0.0)
    value, gradient = value_and_gradient(objective, logps, old, advantages * 0, mask)
    assert (value == 0).all()
    assert (gradient == 0).all()


@fresh
@given(seed=SEEDS)
def test_the_clip_is_pessimistic(seed):
    """Never above the unclipped objective, equal to it inside the interval."""
    inputs = batch(seed, spread=1.0)
    free, clipped = pg.importance_weighted(*inputs), pg.ppo_clip(*inputs)
    assert (clipped <= free).all()
    inside = (pg.policy_ratio(inputs[0], inputs[1], inputs[3]) - 1).abs() < 0.2
    torch.testing.assert_close(clipped[inside], free[inside])


@fresh
@given(seed=SEEDS)
def test_the_two_sided_clip_bounds_what_the_one_sided_does_not(seed):
    inputs = batch(seed, spread=2.0)
    bounded = pg.ppo_clip(*inputs, delta=3.0)
    mask, advantages = inputs[3], inputs[2]
    assert (bounded.abs() <= 3.0 * torch.where(mask, advantages, 0.0).abs() + 1e-12).all()
    good = mask & (advantages > 0)
    assert torch.equal(bounded[good], pg.ppo_clip(*inputs)[good])


@fresh
@given(seed=SEEDS)
def test_luspo_with_the_mean_per_response_is_gspo_with_the_sum(seed):
    inputs = batch(seed)
    mask = inputs[3]
    weights = sequence_mean(mask)
    left = aggregate(pg.luspo(*inputs), weights, mask)
    per_sequence = aggregate(pg.gspo(*inputs), sequence_sum(mask), mask)  # (B, 1): the weights of |y| tokens, 1/B each
    torch.testing.assert_close(left, per_sequence)


# -- limits ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("objective", "limit"),
    [
        (functools.partial(pg.ppo_clip, epsilon=1e9), pg.importance_weighted),
        (functools.partial(pg.ppo_clip, epsilon=math.inf), pg.importance_weighted),
        (functools.partial(pg.ppo_clip, delta=1e9), pg.ppo_clip),
        (functools.partial(pg.ppo_penalty, beta=0.0), pg.importance_weighted),
    ],
)
@fresh
@given(seed=SEEDS)
def test_limits(objective, limit, seed):
    inputs = batch(seed, spread=1.0)
    torch.testing.assert_close(value_and_gradient(objective, *inputs), value_and_gradient(limit, *inputs))


@fresh
@given(seed=SEEDS)
def test_a_flat_gate_is_no_gate(seed):
    """SAPO with τ → 0 has the gradient of ρA."""
    inputs = batch(seed)
    flat = functools.partial(pg.sapo, sapo_temperature_pos=1e-4, sapo_temperature_neg=1e-4)
    _, gradient = value_and_gradient(flat, *inputs)
    torch.testing.assert_close(gradient, value_and_gradient(pg.importance_weighted, *inputs)[1], rtol=1e-6, atol=1e-8)


@fresh
@given(seed=SEEDS)
def test_one_token_has_one_ratio(seed):
    inputs = batch(seed, width=1, spread=1.0)
    ranges = {"epsilon": 0.2, "epsilon_high": 0.28}
    wanted = value_and_gradient(functools.partial(pg.ppo_clip, **ranges), *inputs)
    for objective in (pg.gspo, pg.gspo_token, pg.luspo):
        torch.testing.assert_close(value_and_gradient(functools.partial(objective, **ranges), *inputs), wanted)
    logarithmic = functools.partial(pg.gmpo, epsilon=-math.log(0.8), epsilon_high=math.log(1.28))
    torch.testing.assert_close(value_and_gradient(logarithmic, *inputs), wanted)


@fresh
@given(seed=SEEDS)
def test_equal_ratios_have_themselves_as_their_mean(seed):
    _, old, advantages, mask = batch(seed)
    logps = old + 0.1
    tokens = pg.ppo_clip(logps, old, advantages, mask)
    torch.testing.assert_close(masked_mean(tokens, mask, -1)[:, None], ALL["gspo"](logps, old, advantages, mask))
    torch.testing.assert_close(masked_mean(tokens, mask, -1)[:, None], pg.gmpo(logps, old, advantages, mask))


# -- precision ---------------------------------------------------------------------------------------------------


@each(ALL)
@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 1e-5), (torch.bfloat16, 3e-2)])
def test_lower_precision_stays_within_its_error(objective, dtype, error):
    *low, mask = (x.to(dtype) if x.is_floating_point() else x for x in batch(5, rows=16))
    value = objective(*low, mask)
    wanted = objective(*(x.double() for x in low), mask)
    assert value.dtype == dtype
    torch.testing.assert_close(value.double(), wanted, atol=error * wanted.abs().max().item(), rtol=0)


@each(ALL)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_extreme_log_probabilities_stay_finite(objective, dtype, sign):
    far = torch.tensor([[-1e4, -1e-6, -1e4], [-50.0, -1e4, 0.0]], dtype=dtype)
    old = far.flip(-1).contiguous()
    advantages = torch.full((2, 3), sign * 5, dtype=dtype)
    value, gradient = value_and_gradient(objective, far, old, advantages, torch.ones(2, 3, dtype=torch.bool))
    assert value.isfinite().all()
    assert gradient.isfinite().all()


# -- samples of another policy -----------------------------------------------------------------------------------


@fresh
@given(seed=SEEDS)
def test_truncated_weights_never_exceed_their_cap_and_are_exact_below_it(seed):
    logps, old, _, mask = batch(seed, spread=1.0)
    weight = off_policy.truncated_importance_weight(old, logps, mask, importance_sampling_cap=1.5)
    exactly = torch.where(mask, (old - logps).exp(), 0.0)
    assert (weight <= 1.5).all() and (weight >= 0).all()
    torch.testing.assert_close(weight, exactly.clamp(max=1.5))


def test_only_bad_answers_that_have_drifted_away_are_masked():
    mask = torch.ones(4, 2, dtype=torch.bool)
    sampled = torch.full((4, 2), -1.0, dtype=torch.float64)
    drift = torch.tensor([[2.0, 0.0], [2.0, 0.0], [0.1, 0.1], [-5.0, 0.0]]).double()  # nats lost since sampling
    advantages = torch.tensor([[-1.0], [1.0], [-1.0], [-1.0]]).double().expand(4, 2)
    keep = off_policy.off_policy_keep(sampled - drift, sampled, advantages, mask, off_policy_mask_threshold=0.5)
    assert keep.tolist() == [False, True, True, True]
    weights = sequence_mean(mask, keep=keep, renormalise=False)
    assert weights.sum(-1).tolist() == [0, 0.25, 0.25, 0.25]  # the dropped row still counts in 1/G


# -- the critic and what to watch --------------------------------------------------------------------------------


@fresh
@given(seed=SEEDS)
def test_a_wide_value_clip_is_no_clip(seed):
    values, old, _, mask = batch(seed)
    returns = torch.where(mask, old * 2 + 1, torch.nan)
    for function in (
        value_losses.value_mse,
        lambda v, r, m: value_losses.value_clip(v, old, r, m, cliprange_value=1e6),
    ):
        leaf = values.clone().requires_grad_()
        loss = function(leaf, returns, mask)
        torch.testing.assert_close(loss.detach(), torch.where(mask, (values - returns) ** 2 / 2, 0.0))
        (gradient,) = torch.autograd.grad(loss.sum(), leaf)
        torch.testing.assert_close(gradient, torch.where(mask, values - returns, 0.0))


@fresh
@given(seed=SEEDS)
def test_the_clipped_value_loss_is_pessimistic(seed):
    values, old, _, mask = batch(seed, spread=1.0)
    returns = torch.where(mask, old.flip(0).nan_to_num(), torch.nan)
    clipped = value_losses.value_clip(values, old, returns, mask, cliprange_value=0.2)
    assert (clipped >= value_losses.value_mse(values, returns, mask)).all()


def test_a_least_squares_critic_explains_its_squared_correlation():
    x = torch.tensor([0.0, 1.0, 2.0, 3.0], dtype=torch.float64)
    returns = torch.tensor([1.0, 0.0, 2.0, 3.0], dtype=torch.float64)
    slope = ((x - x.mean()) * (returns - returns.mean())).sum() / ((x - x.mean()) ** 2).sum()
    values = returns.mean() + slope * (x - x.mean())
    correlation = torch.corrcoef(torch.stack([x, returns]))[0, 1]
    got = diagnostics.explained_variance(values[None], returns[None], torch.ones(1, 4))
    torch.testing.assert_close(got, correlation**2)


def test_returns_that_are_all_equal_have_no_variance_to_explain():
    for value in (1.0, 0.1):
        returns = torch.full((1, 7), value)
        assert diagnostics.explained_variance(torch.linspace(0, 1, 7)[None], returns, torch.ones(1, 7)).isnan()


@fresh
@given(seed=SEEDS)
def test_diagnostics_see_no_padding_and_vanish_on_a_fresh_batch(seed):
    logps, old, advantages, mask = batch(seed, spread=1.0)
    filled = [torch.where(mask, x, 99.0) for x in (logps, old, advantages)]
    assert diagnostics.clip_fraction(logps, old, advantages, mask) == diagnostics.clip_fraction(*filled, mask)
    assert diagnostics.approx_kl(logps, old, mask) == diagnostics.approx_kl(*filled[:2], mask)
    assert diagnostics.approx_kl(logps, old, mask) > 0
    assert diagnostics.approx_kl(old, old, mask) == 0
    assert diagnostics.clip_fraction(old, old, advantages, mask) == 0
    assert not diagnostics.approx_kl(logps.clone().requires_grad_(), old, mask).requires_grad


def test_the_kl_estimate_is_right_where_the_naive_form_cancels():
    """(ρ − 1) − log ρ ≈ x²/2 for a tiny log-ratio x; subtracting 1 from exp(x) would leave nothing in float32."""
    old = torch.full((1, 2), -1.0)
    logps = old + torch.tensor([[1e-3, -1e-3]])
    x = (logps - old).double()
    wanted = (torch.expm1(x) - x).mean()
    assert diagnostics.approx_kl(logps, old, torch.ones(1, 2)).item() == pytest.approx(wanted.item(), rel=1e-3)


def test_the_gradient_of_a_mixed_objective_matches_finite_differences():
    """A smooth composition of ratio, clip range and aggregation, once more by brute force."""
    logps, old, advantages, mask = batch(8, spread=0.05)
    logps = logps.nan_to_num(-1.0)

    def value(x):
        return aggregate(pg.ppo_penalty(x, old, advantages, mask, beta=0.7), sequence_mean(mask), mask)

    leaf = logps.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(value(leaf), leaf)
    torch.testing.assert_close(gradient, exact.finite_difference(value, logps), atol=1e-8, rtol=0)


# -- bad input ---------------------------------------------------------------------------------------------------


@each(ALL)
@pytest.mark.parametrize("name", ["logps", "old_logps", "advantages"])
@pytest.mark.parametrize("shape", [(4,), (5,), (4, 1), (1, 5), (3, 5), (4, 5, 1)])
def test_nothing_is_broadcast(objective, name, shape):
    inputs = dict(zip(("logps", "old_logps", "advantages", "mask"), batch(0), strict=True))
    inputs[name] = torch.zeros(shape, dtype=torch.float64)
    with pytest.raises(ValueError, match=rf"{name} has shape \({shape[0]},?"):
        objective(**inputs)


@each(ALL)
@pytest.mark.parametrize("name", ["logps", "old_logps", "advantages"])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_sampled_tokens_are_finite(objective, name, bad):
    inputs = dict(zip(("logps", "old_logps", "advantages", "mask"), batch(0), strict=True))
    inputs[name] = torch.where(inputs["mask"], bad, inputs[name])
    with pytest.raises(ValueError, match=rf"{name} of shape \(4, 5\) holds"):
        objective(**inputs)


@each(ALL)
def test_a_row_without_a_token_is_an_error(objective):
    logps, old, advantages, mask = batch(0)
    mask[2] = False
    with pytest.raises(ValueError, match=r"mask of shape \(4, 5\) has no sampled token in row\(s\) \[2\]"):
        objective(logps, old, advantages, mask)


@each(SEQUENCE)
def test_a_sequence_has_one_advantage(objective):
    logps, old, advantages, mask = batch(0)
    mask[1] = True
    logps, old, advantages = (x.nan_to_num(0.5) for x in (logps, old, advantages))
    advantages[1, 0] += 1
    with pytest.raises(ValueError, match=r"advantages of shape \(4, 5\) differ within a row"):
        objective(logps, old, advantages, mask)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda *x: pg.ppo_clip(*x, epsilon=0.0), "epsilon = 0.0"),
        (lambda *x: pg.ppo_clip(*x, epsilon=math.nan), "epsilon = nan"),
        (lambda *x: pg.ppo_clip(*x, epsilon_high=-0.1), "epsilon_high = -0.1"),
        (lambda *x: pg.ppo_clip(*x, delta=1.1), r"delta = 1.1; expected more than 1 \+ epsilon_high = 1.2"),
        (lambda *x: pg.ppo_penalty(*x, beta=-1.0), "beta = -1.0"),
        (lambda *x: pg.gspo(*x, epsilon=-1.0), "epsilon = -1.0"),
        (lambda *x: pg.gmpo(*x, epsilon=0.0), "epsilon = 0.0"),
        (lambda *x: pg.cispo(*x, epsilon_high=0.0), "epsilon_high = 0.0"),
        (lambda *x: pg.sapo(*x, sapo_temperature_neg=0.0), "sapo_temperature_neg = 0.0"),
        (lambda *x: off_policy.off_policy_keep(*x, off_policy_mask_threshold=0.0), "off_policy_mask_threshold = 0.0"),
        (
            lambda a, b, c, m: off_policy.truncated_importance_weight(a, b, m, importance_sampling_cap=0.0),
            "importance_sampling_cap = 0.0",
        ),
        (lambda a, b, c, m: value_losses.value_clip(a, b, c, m, cliprange_value=0.0), "cliprange_value = 0.0"),
        (lambda a, b, c, m: value_losses.value_clip(a, b[:, :1], c, m), r"old_values has shape \(4, 1\)"),
        (lambda a, b, c, m: value_losses.value_mse(a, b[:, 0], m), r"returns has shape|old_values has shape"),
        (lambda a, b, c, m: diagnostics.explained_variance(a, b[:1], m), r"returns has shape \(1, 5\)"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call(*batch(0))
