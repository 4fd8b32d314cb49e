"""Distillation losses: gradients, padding, limits, number types, bad input, the worked example. Oracles: the ledger, chapter 18."""

import functools
import math

import pytest
import torch

from minirlhf.core import exact
from minirlhf.equations import aggregation
from minirlhf.equations import distillation as kd
from minirlhf.ledger.registry import Draw

DIVERGENCES = {
    "soft cross-entropy": kd.soft_cross_entropy,
    "forward KL": kd.forward_kl_distillation,
    "reverse KL": kd.reverse_kl_distillation,
    "Jensen-Shannon": functools.partial(kd.jsd_distillation, beta=0.3),
}
every_divergence = pytest.mark.parametrize("loss", DIVERGENCES.values(), ids=DIVERGENCES)


@pytest.fixture
def draw(fresh_seed, request):
    """Random inputs, different in every run and in every test."""
    return Draw(fresh_seed, request.node.name)


@every_divergence
@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_gradient_is_that_of_finite_differences(loss, temperature, draw):
    student, teacher, mask = draw.normal(2, 3, 4), draw.normal(2, 3, 4), draw.holed_mask(2, 3)
    leaf = student.clone().requires_grad_()
    total = lambda x: loss(x, teacher, mask, temperature=temperature).sum()
    numeric = exact.finite_difference(lambda x: total(x).detach(), student)
    torch.testing.assert_close(exact.gradient(total(leaf), leaf), numeric.flatten(), rtol=1e-7, atol=1e-9)


@every_divergence
def test_no_gradient_reaches_the_teacher(loss, draw):
    teacher = draw.normal(2, 3, 4).requires_grad_()
    loss(draw.normal(2, 3, 4).requires_grad_(), teacher, draw.mask(2, 3)).sum().backward()
    assert teacher.grad is None


@every_divergence
def test_what_stands_outside_the_mask_never_matters(loss, draw):
    student, teacher, mask = draw.normal(3, 4, 5), draw.normal(3, 4, 5), draw.holed_mask(3, 4)
    clean = loss(student, teacher, mask)
    dirty = torch.where(mask[..., None], student, torch.nan).requires_grad_()
    got = loss(dirty, torch.where(mask[..., None], teacher, torch.inf), mask)
    torch.testing.assert_close(got, clean)
    assert bool((got[~mask] == 0).all())
    assert bool(exact.gradient(got.sum(), dirty).isfinite().all())


@every_divergence
def test_shift_of_logits_and_order_of_the_vocabulary_change_nothing(loss, draw):
    student, teacher, mask = draw.normal(2, 3, 4), draw.normal(2, 3, 4), draw.mask(2, 3)
    order = draw.permutation(4)
    moved = loss((student + draw.normal(2, 3, 1))[..., order], (teacher - 7.0)[..., order], mask)
    torch.testing.assert_close(moved, loss(student, teacher, mask))


@pytest.mark.parametrize("loss", list(DIVERGENCES.values())[1:], ids=list(DIVERGENCES)[1:])
def test_a_perfect_student_has_nothing_to_learn(loss, draw):
    logits, mask = draw.normal(2, 3, 4), draw.mask(2, 3)
    leaf = (logits + 1.0).requires_grad_()
    value = loss(leaf, logits, mask)
    torch.testing.assert_close(value, torch.zeros_like(value), rtol=0, atol=1e-12)
    assert float(exact.gradient(value.sum(), leaf).abs().max()) < 1e-12
    assert bool((loss(draw.normal(2, 3, 4), logits, mask)[mask] > 0).all())


def test_jensen_shannon_is_bounded_where_kl_is_not():
    """Opposite, nearly certain distributions."""
    student = torch.tensor([[[50.0, 0.0]]], dtype=torch.float64)
    mask = torch.ones(1, 1, dtype=torch.bool)
    assert float(kd.jsd_distillation(student, -student, mask)) == pytest.approx(math.log(2.0))
    assert float(kd.forward_kl_distillation(student, -student, mask)) == pytest.approx(50.0 * 2, rel=0.6)


@every_divergence
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_narrow_types_are_widened_to_float32(loss, dtype, draw):
    """``|loss − float64 loss| ≤ 1e-5 · max(1, |loss|)`` on the same, already rounded, inputs."""
    student, teacher, mask = draw.normal(2, 3, 4).to(dtype), draw.normal(2, 3, 4).to(dtype), draw.mask(2, 3)
    got, expected = loss(student, teacher, mask), loss(student.double(), teacher.double(), mask)
    assert got.dtype == torch.float32
    assert float(((got.double() - expected).abs() / expected.abs().clamp(min=1)).max()) <= 1e-5


@every_divergence
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extreme_logits_stay_finite(loss, dtype):
    student = torch.tensor([[[1e4, -1e4, 0.0]]], dtype=dtype, requires_grad=True)
    value = loss(student, -student.detach(), torch.ones(1, 1, dtype=torch.bool))
    assert bool(value.isfinite().all()) and bool(exact.gradient(value.sum(), student).isfinite().all())


@every_divergence
def test_any_split_of_the_batch_gives_the_same_loss(loss, draw):
    """The weights come from the whole batch, the losses from its parts."""
    student, teacher, mask = draw.normal(4, 3, 5), draw.normal(4, 3, 5), draw.mask(4, 3)
    weights = aggregation.token_mean(mask)
    whole = (weights * loss(student, teacher, mask)).sum()
    cut = draw.integer(1, 3)
    parts = [
        (weights[rows] * loss(student[rows], teacher[rows], mask[rows])).sum() for rows in (slice(cut), slice(cut, 4))
    ]
    torch.testing.assert_close(sum(parts), whole)


def test_without_the_sum_over_the_vocabulary_the_student_learns_the_square():
    """A source's formula weighs the sampled token's log-probability by p_T: teacher .5, .3, .2 gives .658, .237, .105."""
    teacher = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    one = torch.ones(1, 1, dtype=torch.bool)
    student_of = lambda loss: exact.maximise(lambda q: -loss(q.log()), 3)
    wrong = student_of(lambda log_q: -(teacher * teacher * log_q).sum())  # y ~ p_T, weight p_T(y)
    right = student_of(lambda log_q: kd.soft_cross_entropy(log_q[None, None], teacher.log()[None, None], one).sum())
    torch.testing.assert_close(wrong, torch.tensor([0.658, 0.237, 0.105], dtype=torch.float64), rtol=0, atol=5e-4)
    torch.testing.assert_close(right, teacher, rtol=0, atol=1e-6)


def test_forward_covers_and_reverse_seeks():
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


def test_sequence_level_and_on_policy_reward_ignore_padding(draw):
    logps, other, mask = draw.logps(3, 4), draw.logps(3, 4), draw.mask(3, 4)
    dirty = torch.where(mask, logps, torch.nan).requires_grad_()
    torch.testing.assert_close(kd.sequence_level(dirty, mask), kd.sequence_level(logps, mask))
    reward = kd.on_policy_reward(dirty, other, mask)
    assert not reward.requires_grad
    torch.testing.assert_close(reward, torch.where(mask, other - logps, 0.0))


X, M = torch.zeros(2, 3, 4), torch.ones(2, 3, dtype=torch.bool)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: kd.soft_cross_entropy(X, torch.zeros(2, 3, 5), M), r"teacher_logits has shape \(2, 3, 5\).* V = 4"),
        (lambda: kd.forward_kl_distillation(X[0], X, M), r"student_logits has shape \(3, 4\)"),
        (lambda: kd.reverse_kl_distillation(X, X, M[:1]), r"student_logits has shape \(2, 3, 4\).* B = 1"),
        (lambda: kd.reverse_kl_distillation(X, X, M & False), "no sampled token"),
        (lambda: kd.soft_cross_entropy(X, X, M, temperature=0.0), "temperature = 0.0"),
        (lambda: kd.jsd_distillation(X, X, M, beta=1.0), "beta = 1.0"),
        (lambda: kd.sequence_level(X, M), r"logps has shape \(2, 3, 4\)"),
        (lambda: kd.sequence_level(X[..., 0] + torch.nan, M), r"logps of shape \(2, 3\) holds 6 non-finite"),
        (lambda: kd.on_policy_reward(X[..., 0], X[:, :2, 0], M), r"teacher_logps has shape \(2, 2\)"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
