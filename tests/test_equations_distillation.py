"""Distillation losses: what each divergence fits, number types, extremes, bad arguments. Values and gradients: the ledger."""

import functools

import pytest
import torch
from facts import called, raises

from minirlhf.core import exact
from minirlhf.core.errors import ArgumentError
from minirlhf.equations import distillation as kd
from minirlhf_course.ledger.registry import Draw

DIVERGENCES = {
    "soft cross-entropy": kd.soft_cross_entropy,
    "forward KL": kd.forward_kl_distillation,
    "reverse KL": kd.reverse_kl_distillation,
    "Jensen-Shannon": functools.partial(kd.jsd_distillation, beta=0.3),
}
every_divergence = pytest.mark.parametrize("loss", DIVERGENCES.values(), ids=DIVERGENCES)


@pytest.fixture
def draw(suite_seed, request):
    """Random inputs, different in every run and in every test."""
    return Draw(suite_seed, request.node.name)


@every_divergence
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_distillation_in_narrow_types_is_computed_in_float32(loss, dtype, draw):
    """``|loss − float64 loss| ≤ 1e-5 · max(1, |loss|)`` on the same, already rounded, inputs."""
    student, teacher, mask = draw.normal(2, 3, 4).to(dtype), draw.normal(2, 3, 4).to(dtype), draw.mask(2, 3)
    got, expected = loss(student, teacher, mask), loss(student.double(), teacher.double(), mask)
    assert got.dtype == torch.float32
    assert float(((got.double() - expected).abs() / expected.abs().clamp(min=1)).max()) <= 1e-5


@every_divergence
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_distillation_of_extreme_logits_is_finite(loss, dtype):
    student = torch.tensor([[[1e4, -1e4, 0.0]]], dtype=dtype, requires_grad=True)
    value = loss(student, -student.detach(), torch.ones(1, 1, dtype=torch.bool))
    assert bool(value.isfinite().all()) and bool(exact.gradient(value.sum(), student).isfinite().all())


def test_soft_cross_entropy_without_the_sum_over_the_vocabulary_learns_the_square():
    """A source's formula weighs the sampled token's log-probability by p_T: teacher .5, .3, .2 gives .658, .237, .105."""
    teacher = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    one = torch.ones(1, 1, dtype=torch.bool)
    student_of = lambda loss: exact.maximise(lambda q: -loss(q.log()), 3)
    wrong = student_of(lambda log_q: -(teacher * teacher * log_q).sum())  # y ~ p_T, weight p_T(y)
    right = student_of(lambda log_q: kd.soft_cross_entropy(log_q[None, None], teacher.log()[None, None], one).sum())
    torch.testing.assert_close(wrong, torch.tensor([0.658, 0.237, 0.105], dtype=torch.float64), rtol=0, atol=5e-4)
    torch.testing.assert_close(right, teacher, rtol=0, atol=1e-6)


def test_forward_kl_distillation_covers_modes_and_reverse_seeks_one():
    """A student of one free number, fitted to two modes: forward KL spreads over both, reverse KL picks one."""
    grid = torch.arange(-8.0, 9.0, dtype=torch.float64)
    teacher = torch.logaddexp(-((grid - 4) ** 2), -((grid + 4) ** 2))[None, None]
    one = torch.ones(1, 1, dtype=torch.bool)
    best = {}
    for name, loss in (("forward", kd.forward_kl_distillation), ("reverse", kd.reverse_kl_distillation)):
        candidates = [(m, w) for m in (-4.0, 0.0, 4.0) for w in (1.0, 4.0)]
        best[name] = min(
            candidates, key=lambda c: float(loss((-(((grid - c[0]) / c[1]) ** 2))[None, None], teacher, one))
        )
    assert best["forward"] == (0.0, 4.0)
    assert abs(best["reverse"][0]) == 4.0 and best["reverse"][1] == 1.0


X, M = torch.zeros(2, 3, 4), torch.ones(2, 3, dtype=torch.bool)


@pytest.mark.parametrize(
    ("call", "argument", "value"),
    [
        (lambda: kd.soft_cross_entropy(X, torch.zeros(2, 3, 5), M), "teacher_logits", (2, 3, 5)),
        (lambda: kd.soft_cross_entropy(X, X, M, temperature=0.0), "temperature", 0.0),
        (lambda: kd.forward_kl_distillation(X[0], X, M), "student_logits", (3, 4)),
        (lambda: kd.reverse_kl_distillation(X, X, M[:1]), "student_logits", (2, 3, 4)),
        (lambda: kd.reverse_kl_distillation(X, X, M & False), "mask", [0, 1]),
        (lambda: kd.jsd_distillation(X, X, M, beta=1.0), "beta", 1.0),
        (lambda: kd.sequence_level(X, M), "logps", (2, 3, 4)),
        (lambda: kd.sequence_level(X[..., 0] + torch.nan, M), "logps", 6),
        (lambda: kd.on_policy_reward(X[..., 0], X[:, :2, 0], M), "teacher_logps", (2, 2)),
    ],
    ids=called,
)
def test_distillation_names_a_bad_argument(call, argument, value):
    with raises(ArgumentError, argument=argument, value=value):
        call()
