"""Policy objectives, corrections for other samplers, diagnostics, the critic: limits, precision, extremes, bad arguments."""

import functools
import math

import pytest
import torch
from facts import called, raises

from minirlhf.core.errors import ArgumentError
from minirlhf.equations import diagnostics, off_policy, value_losses
from minirlhf.equations import policy_losses as pg
from minirlhf.equations.aggregation import aggregate, sequence_mean

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


# -- examples of the book, by hand -----------------------------------------------------------------------------


def test_ppo_clip_and_gspo_of_two_tokens_by_hand():
    logps = torch.tensor([[2.0, 0.4]], dtype=torch.float64).log()
    old, ones = torch.zeros(1, 2, dtype=torch.float64), torch.ones(1, 2, dtype=torch.float64)
    grpo = aggregate(pg.ppo_clip(logps, old, ones, ones.bool(), epsilon=0.2), sequence_mean(ones), ones)
    gspo = aggregate(pg.gspo(logps, old, ones, ones.bool(), epsilon=0.2, epsilon_high=0.2), sequence_mean(ones), ones)
    assert grpo.item() == pytest.approx(0.8, abs=1e-12)  # (1.2 + .4)/2: the minimum keeps the low ratio as it is
    assert gspo.item() == pytest.approx(0.894, abs=5e-4)


# -- properties --------------------------------------------------------------------------------------------------


@each(ALL)
@pytest.mark.parametrize("seed", range(5))
def test_policy_losses_of_a_row_do_not_depend_on_other_rows(objective, seed):
    """So that no order and no micro-batch can matter."""
    inputs = batch(seed)
    value = objective(*inputs)
    alone = torch.cat([objective(*(x[[i]] for x in inputs)) for i in range(4)])
    torch.testing.assert_close(alone, value)
    torch.testing.assert_close(objective(*(x.flip(0) for x in inputs)), value.flip(0))


# -- limits ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("objective", "limit"),
    [
        (functools.partial(pg.ppo_clip, epsilon=1e9), pg.importance_weighted),
        (functools.partial(pg.ppo_clip, epsilon=math.inf), pg.importance_weighted),
        (functools.partial(pg.ppo_clip, delta=1e9), pg.ppo_clip),
        (functools.partial(pg.ppo_penalty, beta=0.0), pg.importance_weighted),
    ],
    ids=["ppo_clip, wide", "ppo_clip, endless", "ppo_clip, high delta", "ppo_penalty, free"],
)
@pytest.mark.parametrize("seed", range(2))
def test_policy_losses_with_a_limit_setting_equal_a_simpler_loss(objective, limit, seed):
    inputs = batch(seed, spread=1.0)
    torch.testing.assert_close(value_and_gradient(objective, *inputs), value_and_gradient(limit, *inputs))


# -- precision ---------------------------------------------------------------------------------------------------


@each(ALL)
@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 1e-5), (torch.bfloat16, 3e-2)])
def test_policy_losses_in_lower_precision_stay_within_their_error(objective, dtype, error):
    *low, mask = (x.to(dtype) if x.is_floating_point() else x for x in batch(5, rows=16))
    value = objective(*low, mask)
    wanted = objective(*(x.double() for x in low), mask)
    assert value.dtype == dtype
    torch.testing.assert_close(value.double(), wanted, atol=error * wanted.abs().max().item(), rtol=0)


@each(ALL)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_policy_losses_of_extreme_log_probabilities_are_finite(objective, dtype, sign):
    far = torch.tensor([[-1e4, -1e-6, -1e4], [-50.0, -1e4, 0.0]], dtype=dtype)
    old = far.flip(-1).contiguous()
    advantages = torch.full((2, 3), sign * 5, dtype=dtype)
    value, gradient = value_and_gradient(objective, far, old, advantages, torch.ones(2, 3, dtype=torch.bool))
    assert value.isfinite().all()
    assert gradient.isfinite().all()


# -- the critic and what to watch --------------------------------------------------------------------------------


def test_explained_variance_of_equal_returns_is_nan():
    for value in (1.0, 0.1):
        returns = torch.full((1, 7), value)
        assert diagnostics.explained_variance(torch.linspace(0, 1, 7)[None], returns, torch.ones(1, 7)).isnan()


def test_approx_kl_of_small_log_ratios_is_exact_in_float32():
    """(ρ − 1) − log ρ ≈ x²/2 for a tiny log-ratio x; subtracting 1 from exp(x) would leave nothing in float32."""
    old = torch.full((1, 2), -1.0)
    logps = old + torch.tensor([[1e-3, -1e-3]])
    x = (logps - old).double()
    wanted = (torch.expm1(x) - x).mean()
    assert diagnostics.approx_kl(logps, old, torch.ones(1, 2)).item() == pytest.approx(wanted.item(), rel=1e-3)


# -- bad input ---------------------------------------------------------------------------------------------------


@each(ALL)
@pytest.mark.parametrize("name", ["logps", "old_logps", "advantages"])
@pytest.mark.parametrize("shape", [(4,), (4, 1), (1, 5)])
def test_policy_losses_broadcast_nothing(objective, name, shape):
    inputs = dict(zip(("logps", "old_logps", "advantages", "mask"), batch(0), strict=True))
    inputs[name] = torch.zeros(shape, dtype=torch.float64)
    with raises(ArgumentError, argument=name, value=shape):
        objective(**inputs)


@each(ALL)
@pytest.mark.parametrize("name", ["logps", "old_logps", "advantages"])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_policy_losses_reject_sampled_tokens_that_are_not_finite(objective, name, bad):
    inputs = dict(zip(("logps", "old_logps", "advantages", "mask"), batch(0), strict=True))
    inputs[name] = torch.where(inputs["mask"], bad, inputs[name])
    with raises(ArgumentError, argument=name, problem="not finite"):
        objective(**inputs)


@each(ALL)
def test_policy_losses_reject_a_row_without_a_token(objective):
    logps, old, advantages, mask = batch(0)
    mask[2] = False
    with raises(ArgumentError, argument="mask", value=[2], problem="empty"):
        objective(logps, old, advantages, mask)


@each(SEQUENCE)
def test_sequence_losses_reject_advantages_that_differ_within_a_row(objective):
    logps, old, advantages, mask = batch(0)
    mask[1] = True
    logps, old, advantages = (x.nan_to_num(0.5) for x in (logps, old, advantages))
    advantages[1, 0] += 1
    with raises(ArgumentError, argument="advantages", problem="differ within a row"):
        objective(logps, old, advantages, mask)


@pytest.mark.parametrize(
    ("call", "argument", "value"),
    [
        (lambda *x: pg.ppo_clip(*x, epsilon=0.0), "epsilon", 0.0),
        (lambda *x: pg.ppo_clip(*x, epsilon=math.nan), "epsilon", math.nan),
        (lambda *x: pg.ppo_penalty(*x, beta=-1.0), "beta", -1.0),
        (lambda *x: pg.gspo(*x, epsilon=-1.0), "epsilon", -1.0),
        (lambda *x: pg.gmpo(*x, epsilon=0.0), "epsilon", 0.0),
        (lambda *x: pg.cispo(*x, epsilon_high=0.0), "epsilon_high", 0.0),
        (lambda *x: pg.sapo(*x, sapo_temperature_neg=0.0), "sapo_temperature_neg", 0.0),
        (lambda *x: off_policy.off_policy_keep(*x, off_policy_mask_threshold=0.0), "off_policy_mask_threshold", 0.0),
        (
            lambda a, b, c, m: off_policy.truncated_importance_weight(a, b, m, importance_sampling_cap=0.0),
            "importance_sampling_cap",
            0.0,
        ),
        (lambda a, b, c, m: value_losses.value_clip(a, b, c, m, cliprange_value=0.0), "cliprange_value", 0.0),
        (lambda a, b, c, m: value_losses.value_clip(a, b[:, :1], c, m), "old_values", (4, 1)),
        (lambda a, b, c, m: value_losses.value_mse(a, b[:, 0], m), "returns", (4,)),
        (lambda a, b, c, m: diagnostics.explained_variance(a, b[:1], m), "returns", (1, 5)),
        (lambda *x: pg.ppo_clip(*x, epsilon_high=-0.1), "epsilon_high", -0.1),
        (lambda *x: pg.ppo_clip(*x, delta=1.1), "delta", 1.1),
    ],
    ids=called,
)
def test_policy_losses_name_a_bad_argument(call, argument, value):
    with raises(ArgumentError, argument=argument, value=value):
        call(*batch(0))
