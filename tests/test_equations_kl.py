"""Divergences, their estimators, controllers: worked examples, properties, limits, precision, bad input."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from minirlhf.core import exact
from minirlhf.equations import kl

SEEDS = st.integers(0, 2**31)
P, Q = torch.tensor([[0.5, 0.3, 0.2], [0.4, 0.4, 0.2]], dtype=torch.float64)


def logits(seed, *shape, scale=2.0):
    return scale * torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


# -- worked examples ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shift", "bias", "spread"),
    [(0.1, (0, 0.0025, 0), (20, 1.42, 1.42)), (1.0, (0, 0.25, 0), (2, 1.73, 1.7))],
)
def test_bias_and_spread_of_the_estimators_between_gaussians(shift, bias, spread):
    """Samples from N(0, 1), reference N(shift, 1); both columns in units of the KL, shift²/2."""
    divergence = shift**2 / 2
    logp = lambda x, mean: -0.5 * (x - mean) ** 2
    for estimator, expected_bias, expected_spread in zip((kl.k1, kl.k2, kl.k3), bias, spread, strict=True):
        value = lambda x, f=estimator: f(logp(x, 0.0), logp(x, shift))
        mean = exact.gaussian_expectation(value)
        variance = exact.gaussian_expectation(lambda x, v=value: v(x) ** 2) - mean**2
        assert mean / divergence - 1 == pytest.approx(expected_bias, abs=1e-9)
        assert variance.sqrt() / divergence == pytest.approx(expected_spread, abs=5e-3)


def test_three_estimators_as_losses_have_three_gradients():
    def as_loss(estimator):
        x = P.log().requires_grad_()
        (P * estimator(x.log_softmax(-1), Q.log())).sum().backward()
        return x.grad

    x = P.log().requires_grad_()
    value = kl.reverse_kl(x, Q.log())
    value.backward()
    reverse = torch.tensor([0.098938, -0.093885, -0.005053]).double()
    assert value.item() == pytest.approx(0.0252672, abs=5e-8)
    torch.testing.assert_close(x.grad, reverse, atol=5e-7, rtol=0)
    torch.testing.assert_close(as_loss(kl.k1), torch.zeros(3).double(), atol=1e-15, rtol=0)
    torch.testing.assert_close(as_loss(kl.k2), reverse, atol=5e-7, rtol=0)
    torch.testing.assert_close(as_loss(kl.k3), torch.tensor([0.1, -0.1, 0.0], dtype=torch.float64), atol=1e-15, rtol=0)


# -- properties --------------------------------------------------------------------------------------------------

DIVERGENCES = [
    kl.reverse_kl,
    kl.forward_kl,
    kl.js_divergence,
    lambda p, q: kl.generalised_jsd(p, q, beta=0.2),
    *(
        lambda p, q, f=f: kl.f_divergence(f, p, q)
        for f in (kl.f_reverse_kl, kl.f_forward_kl, kl.f_jensen_shannon, kl.f_chi_squared, kl.f_total_variation)
    ),
    lambda p, q: kl.f_divergence(lambda u: kl.f_alpha(u, alpha=0.3), p, q),
]


@given(SEEDS)
def test_divergences_are_positive_and_see_neither_order_nor_constants(seed):
    p, q = logits(seed, 3, 5), logits(seed + 1, 3, 5)
    order = torch.randperm(5, generator=torch.Generator().manual_seed(seed))
    for divergence in DIVERGENCES:
        value = divergence(p, q)
        assert value.shape == (3,)
        assert (value > 0).all()
        torch.testing.assert_close(divergence(p[:, order], q[:, order]), value)
        torch.testing.assert_close(divergence(p + 7, q - 2), value)
        torch.testing.assert_close(divergence(p, p), torch.zeros(3).double(), atol=1e-14, rtol=0)


@given(SEEDS, st.floats(0.01, 0.99))
def test_jensen_shannon_is_bounded_by_the_entropy_of_its_weights(seed, beta):
    p, q = logits(seed, 5, scale=20.0), logits(seed + 1, 5, scale=20.0)
    bound = -beta * math.log(beta) - (1 - beta) * math.log(1 - beta)
    assert kl.generalised_jsd(p, q, beta=beta) <= bound + 1e-12


@given(SEEDS)
def test_k2_and_k3_are_never_negative_and_zero_at_equality(seed):
    logps, ref_logps = -logits(seed, 8).abs(), -logits(seed + 1, 8).abs()
    assert (kl.k2(logps, ref_logps) >= 0).all()
    assert (kl.k3(logps, ref_logps) >= 0).all()
    for estimator in (kl.k1, kl.k2, kl.k3):
        torch.testing.assert_close(estimator(logps, logps), torch.zeros(8).double(), atol=0, rtol=0)


def test_an_impossible_token_costs_nothing_where_neither_allows_it():
    p, q = torch.tensor([0.0, 1.0, -math.inf]).requires_grad_(), torch.tensor([1.0, 0.0, -math.inf])
    for divergence in (kl.reverse_kl, kl.forward_kl, kl.js_divergence):
        value = divergence(p, q)
        torch.testing.assert_close(value, divergence(p[:2], q[:2]))
        (gradient,) = torch.autograd.grad(value, p)
        assert gradient.isfinite().all()
    assert kl.reverse_kl(torch.zeros(2), torch.tensor([0.0, -math.inf])) == math.inf


def test_padding_never_matters():
    mask = torch.tensor([[1, 1, 0], [1, 0, 0]])
    p, q = logits(1, 2, 3, 4), logits(2, 2, 3, 4)
    clean = kl.full_kl(p, q, mask)
    dirty = torch.where(mask[..., None].bool(), p, torch.nan).requires_grad_()
    value = kl.full_kl(dirty, torch.where(mask[..., None].bool(), q, torch.inf), mask)
    torch.testing.assert_close(value, clean)
    (gradient,) = torch.autograd.grad(value.sum(), dirty)
    assert gradient.isfinite().all()
    torch.testing.assert_close(
        clean, torch.stack([kl.reverse_kl(p[0, :2], q[0, :2]).sum(), kl.reverse_kl(p[1, 0], q[1, 0])])
    )


# -- precision ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sums_over_the_vocabulary_are_right_to_a_hundred_thousandth_of_a_nat(dtype):
    """1,000 distributions of 50 tokens, against float64 on the same logits; half precision is summed in float32."""
    p, q = logits(3, 1000, 50).to(dtype), logits(4, 1000, 50).to(dtype)
    for divergence in (kl.reverse_kl, kl.forward_kl, kl.js_divergence):
        got = divergence(p, q)
        assert got.dtype == torch.float32
        assert (got.double() - divergence(p.double(), q.double())).abs().max() < 1e-5


def test_estimators_in_half_precision_err_by_a_hundredth_of_the_log_ratio():
    """bfloat16 keeps 8 bits: the log-probabilities here are exact in it, the arithmetic is not."""
    logps, ref_logps = (-logits(seed, 1000).abs().bfloat16() for seed in (5, 6))
    log_ratio = (logps.double() - ref_logps.double()).abs()
    for estimator, slope in ((kl.k1, 1.0), (kl.k2, log_ratio), (kl.k3, torch.expm1(log_ratio))):
        error = (estimator(logps, ref_logps).double() - estimator(logps.double(), ref_logps.double())).abs()
        assert (error <= 0.01 * log_ratio * (1 + slope)).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_extreme_logits_stay_finite(dtype):
    p = torch.tensor([[1e4, 0.0, -1e4], [0.0, 0.0, 0.0]], dtype=dtype).requires_grad_()
    q = torch.tensor([[-1e4, 0.0, 1e4], [1e4, 0.0, -1e4]], dtype=dtype)
    for divergence in (kl.reverse_kl, kl.forward_kl, kl.js_divergence):
        value = divergence(p, q)
        (gradient,) = torch.autograd.grad(value.sum(), p)
        assert value.isfinite().all()
        assert gradient.isfinite().all()
    logps, ref_logps = torch.tensor([-80.0, -1e-6], dtype=dtype), torch.tensor([-1e-6, -1e4], dtype=dtype)
    for estimator in (kl.k1, kl.k2, kl.k3):
        assert estimator(logps, ref_logps).isfinite().all()


def test_k3_keeps_small_differences_in_single_precision():
    """Written as exp(x) − 1 − x it would lose them: at a log-ratio of 1e-4 only float noise would be left."""
    difference = torch.tensor([1e-3, 1e-2], dtype=torch.float32)
    exact_value = torch.expm1(difference.double()) - difference.double()
    got = kl.k3(torch.zeros(2), difference)
    torch.testing.assert_close(got.double(), exact_value, rtol=2e-4, atol=0)


# -- controllers and the entropy bonus ---------------------------------------------------------------------------


def test_adaptive_controller_by_hand():
    settings = {"target": 6.0, "horizon": 10_000.0, "num_samples": 256}
    assert kl.adaptive_kl_beta(0.2, 6.0, **settings) == pytest.approx(0.2)
    assert kl.adaptive_kl_beta(0.2, 60.0, **settings) == pytest.approx(0.2 * (1 + 0.2 * 0.0256))
    assert kl.adaptive_kl_beta(0.2, 5.4, **settings) == pytest.approx(0.2 * (1 - 0.1 * 0.0256))


def test_entropy_bonus_of_known_distributions():
    assert kl.entropy_bonus(torch.zeros(4).double(), coef=1.0).item() == pytest.approx(math.log(4))
    assert kl.entropy_bonus(torch.tensor([1e4, 0.0]), coef=1.0).item() == 0.0
    assert kl.entropy_bonus(torch.zeros(2, 3, 4), coef=0.0).shape == (2, 3)


# -- bad input ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", [kl.k1, kl.k2, kl.k3, kl.reverse_kl, kl.forward_kl, kl.js_divergence])
def test_shapes_never_broadcast(function):
    with pytest.raises(ValueError, match=r"ref_log(p|it)s has shape \(3,\); expected"):
        function(torch.zeros(2, 3), torch.zeros(3))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: kl.reverse_kl(torch.tensor(0.0), torch.tensor(0.0)), r"logits has shape \(\)"),
        (lambda: kl.generalised_jsd(torch.zeros(3), torch.zeros(3), beta=1.0), "beta = 1.0"),
        (lambda: kl.f_alpha(torch.zeros(3), alpha=0.0), "alpha = 0.0"),
        (lambda: kl.f_alpha(torch.zeros(3), alpha=math.nan), "alpha = nan"),
        (lambda: kl.full_kl(torch.zeros(2, 3, 4), torch.zeros(2, 3, 5), torch.ones(2, 3)), "ref_logits has shape"),
        (lambda: kl.full_kl(torch.zeros(1, 3, 4), torch.zeros(1, 3, 4), torch.zeros(1, 3)), "no sampled token"),
        (lambda: kl.adaptive_kl_beta(0.0, 1.0, target=1.0, horizon=10.0), "beta = 0.0"),
        (lambda: kl.adaptive_kl_beta(0.1, 1.0, target=0.0, horizon=10.0), "target = 0.0"),
        (lambda: kl.adaptive_kl_beta(0.1, math.nan, target=1.0, horizon=10.0), "observed = nan"),
        (
            lambda: kl.adaptive_kl_beta(0.1, 1.0, target=1.0, horizon=10.0, num_samples=50),
            "horizon = 10.0 is too short",
        ),
        (lambda: kl.entropy_bonus(torch.zeros(3), coef=-1.0), "coef = -1.0"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
