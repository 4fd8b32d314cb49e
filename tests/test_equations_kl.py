"""Divergences and their estimators: impossible tokens, precision, extremes, bad arguments. Values and gradients: the ledger."""

import math

import pytest
import torch
from facts import called, raises

from minirlhf.core.errors import ArgumentError
from minirlhf.equations import kl
from minirlhf_course.chapters.ch09_regularisation import equations as ch09


def logits(seed, *shape, scale=2.0):
    return scale * torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


# -- examples of the book, by hand -----------------------------------------------------------------------------


P, Q = torch.tensor([[0.5, 0.3, 0.2], [0.4, 0.4, 0.2]], dtype=torch.float64)


def test_k1_k2_k3_as_losses_have_three_gradients_by_hand():
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


def test_divergences_ignore_a_token_that_is_impossible_in_both():
    p, q = torch.tensor([0.0, 1.0, -math.inf]).requires_grad_(), torch.tensor([1.0, 0.0, -math.inf])
    for divergence in (kl.reverse_kl, kl.forward_kl, ch09.js_divergence):
        value = divergence(p, q)
        torch.testing.assert_close(value, divergence(p[:2], q[:2]))
        (gradient,) = torch.autograd.grad(value, p)
        assert gradient.isfinite().all()
    assert kl.reverse_kl(torch.zeros(2), torch.tensor([0.0, -math.inf])) == math.inf


# -- precision ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_divergences_in_lower_precision_err_by_less_than_1e_5_nats(dtype):
    """1,000 distributions of 50 tokens, against float64 on the same logits; half precision is summed in float32."""
    p, q = logits(3, 1000, 50).to(dtype), logits(4, 1000, 50).to(dtype)
    for divergence in (kl.reverse_kl, kl.forward_kl, ch09.js_divergence):
        got = divergence(p, q)
        assert got.dtype == torch.float32
        assert (got.double() - divergence(p.double(), q.double())).abs().max() < 1e-5


def test_k1_k2_k3_in_half_precision_err_by_a_hundredth_of_the_log_ratio():
    """bfloat16 keeps 8 bits: the log-probabilities here are exact in it, the arithmetic is not."""
    logps, ref_logps = (-logits(seed, 1000).abs().bfloat16() for seed in (5, 6))
    log_ratio = (logps.double() - ref_logps.double()).abs()
    for estimator, slope in ((kl.k1, 1.0), (kl.k2, log_ratio), (kl.k3, torch.expm1(log_ratio))):
        error = (estimator(logps, ref_logps).double() - estimator(logps.double(), ref_logps.double())).abs()
        assert (error <= 0.01 * log_ratio * (1 + slope)).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_divergences_and_k1_k2_k3_of_extreme_logits_are_finite(dtype):
    p = torch.tensor([[1e4, 0.0, -1e4], [0.0, 0.0, 0.0]], dtype=dtype).requires_grad_()
    q = torch.tensor([[-1e4, 0.0, 1e4], [1e4, 0.0, -1e4]], dtype=dtype)
    for divergence in (kl.reverse_kl, kl.forward_kl, ch09.js_divergence):
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


# -- bad input ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", [kl.k1, kl.k2, kl.k3, kl.reverse_kl, kl.forward_kl, ch09.js_divergence])
def test_kl_broadcasts_no_shape(function):
    with raises(ArgumentError, value=(3,), problem="shape"):
        function(torch.zeros(2, 3), torch.zeros(3))


@pytest.mark.parametrize(
    ("call", "argument", "value"),
    [
        (lambda: kl.reverse_kl(torch.tensor(0.0), torch.tensor(0.0)), "logits", ()),
        (lambda: kl.generalised_jsd(torch.zeros(3), torch.zeros(3), beta=1.0), "beta", 1.0),
        (lambda: kl.f_alpha(torch.zeros(3), alpha=0.0), "alpha", 0.0),
        (lambda: kl.f_alpha(torch.zeros(3), alpha=math.nan), "alpha", math.nan),
        (lambda: kl.full_kl(torch.zeros(2, 3, 4), torch.zeros(2, 3, 5), torch.ones(2, 3)), "ref_logits", (2, 3, 5)),
        (lambda: kl.full_kl(torch.zeros(1, 3, 4), torch.zeros(1, 3, 4), torch.zeros(1, 3)), "mask", [0]),
        (lambda: kl.adaptive_kl_beta(0.0, 1.0, target=1.0, horizon=10.0), "beta", 0.0),
        (lambda: kl.adaptive_kl_beta(0.1, 1.0, target=0.0, horizon=10.0), "target", 0.0),
        (lambda: kl.entropy_bonus(torch.zeros(3), coef=-1.0), "coef", -1.0),
        (lambda: kl.adaptive_kl_beta(0.1, math.nan, target=1.0, horizon=10.0), "observed", math.nan),
        (lambda: kl.adaptive_kl_beta(0.1, 1.0, target=1.0, horizon=10.0, num_samples=50), "horizon", 10.0),
    ],
    ids=called,
)
def test_kl_names_a_bad_argument(call, argument, value):
    with raises(ArgumentError, argument=argument, value=value):
        call()
