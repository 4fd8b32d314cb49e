"""Models of preference and reward losses: missing labels, precision, extremes, bad arguments. Values: the ledger."""

import itertools
import math

import pytest
import torch
from facts import called, raises

from minirlhf.core.errors import ArgumentError
from minirlhf.equations import reward_losses as rl
from minirlhf.equations.aggregation import aggregate, token_mean


def rewards(seed, *shape, scale=2.0):
    return scale * torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


# -- examples of the book, by hand -----------------------------------------------------------------------------


def test_plackett_luce_logp_by_hand():
    """softmax(2, 1, 0)[0] · softmax(1, 0)[0] = .665241 · .731059."""
    assert rl.plackett_luce_logp(torch.tensor([2.0, 1.0, 0.0]).double()).exp().item() == pytest.approx(
        0.486330, abs=5e-7
    )


# -- properties --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dispersion", [0.0, 0.7, 3.0])
def test_mallows_logp_is_a_distribution_with_the_consensus_on_top(dispersion):
    orders = torch.tensor(list(itertools.permutations(range(4))))
    probs = rl.mallows_logp(orders, dispersion=dispersion).exp()
    assert probs.sum().item() == pytest.approx(1.0)
    assert probs.argmax() == 0
    assert rl.mallows_logp(torch.tensor([0]), dispersion=dispersion) == 0


def test_process_loss_ignores_steps_without_a_label():
    logits = torch.tensor([[0.5, -1.0, 2.0], [2.0, math.inf, 0.25]], dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([[math.nan, 1.0, 0.25], [0.0, math.nan, math.nan]], dtype=torch.float64)
    ends = torch.tensor([[False, True, True], [True, False, False]])
    loss = rl.process_loss(logits, labels, ends)
    assert (loss[~ends] == 0).all()
    p = torch.tensor([-1.0, 2.0, 2.0], dtype=torch.float64).sigmoid()
    y = torch.tensor([1.0, 0.25, 0.0], dtype=torch.float64)
    mean = aggregate(loss, token_mean(ends), ends)
    torch.testing.assert_close(mean, -(y * p.log() + (1 - y) * (1 - p).log()).mean())
    (gradient,) = torch.autograd.grad(mean, logits)
    torch.testing.assert_close(gradient[ends], (p - y) / 3)
    assert (gradient[~ends] == 0).all()


# -- precision ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_reward_losses_of_extreme_rewards_are_finite(dtype):
    chosen = torch.tensor([1e4, -1e4, 0.0], dtype=dtype).requires_grad_()
    rejected = -chosen.detach()
    loss = rl.bradley_terry_loss(chosen, rejected)
    assert loss.dtype == dtype
    torch.testing.assert_close(loss.detach(), torch.tensor([0.0, 2e4, math.log(2)], dtype=dtype))
    (gradient,) = torch.autograd.grad(loss.sum(), chosen)
    torch.testing.assert_close(gradient, torch.tensor([0.0, -1.0, -0.5], dtype=dtype))
    ranking = rl.plackett_luce_logp(torch.stack([rejected, chosen], -1))
    assert ranking.isfinite().all()
    assert rl.thurstone(chosen, rejected).isfinite().all()
    tokens = rl.outcome_loss(chosen[None], torch.tensor([0.0]), torch.ones(1, 3))
    assert tokens.isfinite().all()


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-6), (torch.bfloat16, 0.02)])
def test_bradley_terry_loss_in_lower_precision_stays_within_its_error(dtype, bound):
    chosen, rejected = rewards(3, 1000).to(dtype), rewards(4, 1000).to(dtype)
    got, expected = rl.bradley_terry_loss(chosen, rejected), rl.bradley_terry_loss(chosen.double(), rejected.double())
    # An error of the difference of rewards counts in full, relative to the larger of reward and loss.
    scale = expected + chosen.double().abs() + rejected.double().abs()
    assert ((got.double() - expected).abs() / scale).max() < bound


# -- bad input ---------------------------------------------------------------------------------------------------

B3, B23 = torch.zeros(3), torch.zeros(2, 3)


@pytest.mark.parametrize(
    ("call", "argument", "value"),
    [
        (lambda: rl.bradley_terry_loss(B3, B23), "rejected", (2, 3)),
        (lambda: rl.bradley_terry_loss(B23, B23), "chosen", (2, 3)),
        (lambda: rl.bradley_terry_loss(B3, B3, label_smoothing=0.6), "label_smoothing", 0.6),
        (lambda: rl.bradley_terry(B3, torch.zeros(1)), "rewards_b", (1,)),
        (lambda: rl.thurstone(B3, B3, std=0.0), "std", 0.0),
        (lambda: rl.plackett_luce_logp(torch.zeros(2, 0)), "rewards", (2, 0)),
        (lambda: rl.plackett_luce_logp(torch.tensor([0.0, math.inf])), "rewards", 1),
        (lambda: rl.mallows_logp(torch.tensor([0, 0, 1]), dispersion=1.0), "order", None),
        (lambda: rl.mallows_logp(torch.tensor([1, 2, 3]), dispersion=1.0), "order", None),
        (lambda: rl.mallows_logp(torch.tensor([0, 1]), dispersion=-1.0), "dispersion", -1.0),
        (lambda: rl.elo_update(B3, B3, B3 + 2), "score", None),
        (lambda: rl.elo_update(B3, B3, B3, k=0.0), "k", 0.0),
        (lambda: rl.pair_weights(torch.tensor([4, 1])), "num_ranked", None),
        (lambda: rl.pair_weights(torch.tensor([4.0])), "num_ranked", None),
        (lambda: rl.regression_loss(B3, torch.zeros(3, 1)), "labels", (3, 1)),
        (lambda: rl.centring_penalty(B3, torch.zeros(2)), "rejected", (2,)),
        (lambda: rl.process_loss(B23, B3, torch.ones(2, 3)), "labels", (3,)),
        (lambda: rl.process_loss(B23, B23 + 2, torch.ones(2, 3)), "labels", None),
        (lambda: rl.outcome_loss(B23, B3, torch.ones(2, 3)), "labels", (3,)),
        (lambda: rl.outcome_loss(B23, torch.zeros(2), torch.zeros(2, 3)), "mask", [0, 1]),
        (lambda: rl.bradley_terry_loss(B3, B3, margin=torch.zeros(1)), "margin", (1,)),
        (lambda: rl.process_loss(B23, B23 * math.nan, torch.ones(2, 3)), "labels", 6),
        (lambda: rl.outcome_loss(B23, torch.tensor([-1.0, 1.0]), torch.ones(2, 3)), "labels", None),
        (lambda: rl.outcome_loss(B23 * math.nan, torch.zeros(2), torch.ones(2, 3)), "logits", 6),
    ],
    ids=called,
)
def test_reward_losses_name_a_bad_argument(call, argument, value):
    with raises(ArgumentError, argument=argument, value=value):
        call()
