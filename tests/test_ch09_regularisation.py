"""Chapter 09: the cases that its text works by hand, and the laboratory of its studies against closed forms."""

import math

import pytest
import torch
from facts import raises

from minirlhf.core import exact
from minirlhf.core.errors import ArgumentError
from minirlhf.equations import kl, rlhf
from minirlhf_course.chapters.ch09_regularisation import equations as ch09
from minirlhf_course.chapters.ch09_regularisation.poem import (
    ARMS,
    Poem,
    SampledRun,
    Steering,
    at_kl,
    drift,
    rest,
    train,
)
from minirlhf_course.chapters.ch09_regularisation.speakers import Letters, imitate

REF = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
REWARDS = torch.tensor([1.0, 0.0, -1.0], dtype=torch.float64)


def close(got, want, digits=3):
    torch.testing.assert_close(
        torch.as_tensor(got, dtype=torch.float64),
        torch.tensor(want, dtype=torch.float64),
        atol=0.6 * 10**-digits,
        rtol=0,
    )


@pytest.fixture(scope="module")
def poem():
    return Poem()


# -- by hand -----------------------------------------------------------------------------------------------------


def test_reverse_and_forward_kl_of_three_replies_and_their_gradients():
    logits = REF.log().requires_grad_()
    other = torch.tensor([0.4, 0.4, 0.2], dtype=torch.float64).log()
    close(REF[0] / 0.4, 1.25, 9)
    close(kl.reverse_kl(logits, other), 0.02527, 5)
    close(kl.forward_kl(logits, other), 0.02582, 5)
    close(torch.autograd.grad(kl.reverse_kl(logits, other), logits)[0], [0.0989, -0.0939, -0.0051], 4)
    close(torch.autograd.grad(kl.forward_kl(logits, other), logits)[0], [0.1, -0.1, 0.0], 9)


@pytest.mark.parametrize(
    ("shift", "divergence", "bias", "deviation"),
    [
        (0.1, 0.005, 0.0025, (20, 1.42, 1.42)),
        (1.0, 0.5, 0.25, (2, 1.73, 1.70)),
        (2.0, 2.0, 1.0, (1, 2.45, 3.52)),
    ],
)
def test_gaussian_estimators_of_kl_have_bias_and_deviation_of_the_table(shift, divergence, bias, deviation):
    assert shift**2 / 2 == pytest.approx(divergence)
    found, spread = ch09.gaussian_estimators(torch.tensor(shift, dtype=torch.float64))
    close(found, [0.0, bias, 0.0], 9)
    close(spread, list(map(float, deviation)), 2)


def test_k3_is_noisier_than_k1_from_628_thousandths_on():
    for divergence, noisier in ((0.627, False), (0.629, True)):
        _, spread = ch09.gaussian_estimators(torch.tensor(math.sqrt(2 * divergence), dtype=torch.float64))
        assert bool(spread[2] > spread[0]) == noisier
    assert round((0.627 + 0.629) / 2, 3) == 0.628


@pytest.mark.parametrize(
    ("optimum", "law", "reward", "reverse", "forward"),
    [
        (lambda: rlhf.optimal_logps(REF.log(), REWARDS, beta=1.0), (0.784, 0.173, 0.042), 0.742, 0.192, 0.250),
        (
            lambda: ch09.forward_kl_optimal_logps(REF.log(), REWARDS, beta=1.0),
            (0.746, 0.180, 0.075),
            0.671,
            0.132,
            0.151,
        ),
        (
            lambda: ch09.entropy_bonus_optimal_logps(REF.log(), REWARDS, beta=1.0, coef=0.5),
            (0.663, 0.242, 0.095),
            0.568,
            0.064,
            0.072,
        ),
    ],
    ids=["reverse KL", "forward KL", "entropy bonus"],
)
def test_optimal_logps_of_three_regularisers_on_three_replies(optimum, law, reward, reverse, forward):
    p = optimum().exp()
    close(p, list(law))
    close(exact.expectation(p, REWARDS), reward)
    close(exact.divergence(p, REF), reverse)
    close(exact.divergence(REF, p), forward)


def test_forward_kl_optimal_logps_have_one_multiplier():
    p = ch09.forward_kl_optimal_logps(REF.log(), REWARDS, beta=1.0).exp()
    close(REWARDS + REF / p, [1.6707] * 3, 4)


def test_margin_moves_the_point_of_rest():
    for margin, want in ((0.0, 2.197), (1.0, 3.098)):
        difference = torch.tensor(want, dtype=torch.float64, requires_grad=True)
        sigmoid = torch.nn.functional.logsigmoid
        loss = -0.9 * sigmoid(difference - margin) - 0.1 * sigmoid(-difference - margin)  # each pair its own chosen
        assert abs(float(torch.autograd.grad(loss, difference)[0])) < 1e-4


@pytest.mark.parametrize("beta", [0.01, 0.2, 3.0, 100.0])
def test_forward_kl_optimal_logps_are_a_distribution_at_any_beta(beta):
    ref = torch.tensor([1e-9, 0.3, 0.7 - 1e-9], dtype=torch.float64)
    found = ch09.forward_kl_optimal_logps(ref.log(), REWARDS, beta=beta)
    assert float(found.exp().sum()) == pytest.approx(1.0, abs=1e-12) and bool(found.isfinite().all())


def test_nearest_correct_logps_refuses_a_row_without_correct_response():
    with raises(ArgumentError, argument="correct", problem="empty"):
        ch09.nearest_correct_logps(REF.log().expand(2, 3), torch.tensor([[True, False, False], [False] * 3]))


# -- the poem ----------------------------------------------------------------------------------------------------


def test_poem_has_the_exact_kl_and_gold(poem):
    ref = poem.law(poem.start)
    torch.testing.assert_close(ref, poem.world.reference.distribution()[0].detach())
    law = rlhf.optimal_logps(ref.log(), poem.rewards, beta=1.0).exp()
    close(exact.divergence(law, ref), 0.295)
    close(law @ poem.world.gold, 0.706)
    close(-ref[poem.rewards.argmax()].log(), 6.21, 2)
    price = rlhf.beta_for_kl(ref.log(), poem.rewards, budget=0.5)
    close(price, 0.7648, 4)
    factor = lambda gain: float(ch09.adaptive_kl_factor(ref.log(), poem.rewards, beta=price, rate=gain))
    close(factor(0.1), 0.807)
    assert factor(1.03) > -1 > factor(1.04)
    for rate, refreshes, want in ((1.0, 4, 5.80), (0.03, 200, 6.14), (0.003, 200, 2.31)):
        found = ch09.refreshed_optimal_logps(ref.log(), poem.rewards, beta=0.5, rate=rate, refreshes=refreshes)
        close(kl.reverse_kl(found, ref.log()), want, 2)
    found = ch09.forward_kl_optimal_logps(ref.log(), poem.rewards, beta=0.5)
    close(kl.reverse_kl(found, ref.log()), 4.12, 2)


def optimum(poem, reference, beta):
    """The table of RLHF's optimum for a table of token logits: what a token leads to, summed over the replies behind it."""
    passes = torch.zeros(*reference.shape, len(poem.rewards), dtype=torch.bool)
    reply, step = poem.mask.nonzero(as_tuple=True)
    passes[poem.prefixes[reply, step], poem.tokens[reply, step], reply] = True
    weights = poem.token_logps(reference).sum(-1) + poem.rewards / beta
    return torch.where(passes, weights, -torch.inf).logsumexp(-1).log_softmax(-1)


@pytest.mark.parametrize(("rate", "refreshes", "want"), [(1.0, 4, 5.80), (0.03, 199, 6.17), (0.003, 199, 2.45)])
def test_refreshed_reference_of_token_logits_spends_more_than_the_formula(poem, rate, refreshes, want):
    """Formula: eq:refreshed-optimum, exact for one logit a reply. An average of token logits is normalised row by row."""
    reference = poem.start
    for _ in range(refreshes):
        reference = ch09.moving_average(reference, optimum(poem, reference, 0.5), rate=rate)
    spent = poem.place(optimum(poem, reference, 0.5))["kl"]
    close(spent, want, 2)
    ref = poem.law(poem.start).log()
    law = ch09.refreshed_optimal_logps(ref, poem.rewards, beta=0.5, rate=rate, refreshes=refreshes)
    formula = float(kl.reverse_kl(law, ref))
    assert spent == pytest.approx(formula, abs=1e-9) if rate == 1 else spent > formula + 0.03


def test_adaptive_kl_controller_with_high_gain_leaves_adam_stuck(poem):
    """The controller with too high a gain: with a new Adam after a hundred steps the policy moves again, else it stands."""

    def run(renewed_after):
        steering = Steering(0.5, target=0.5, gain=2.0)
        plan = SampledRun(steps=150, constant=True, renewed_after=renewed_after)
        train(poem, ARMS["k1_reward"], steering, plan, 0)
        return steering

    left, renewed = run(None), run(100)
    assert max(left.betas) > 100 and left.betas.index(max(left.betas)) < 70
    assert renewed.kls[:100] == left.kls[:100]
    assert renewed.kls[-1] > 2 > 0.5 > left.kls[-1]


def test_rest_of_k1_reward_and_k3_reply_is_the_closed_form(poem):
    ref = poem.law(poem.start)
    table, slowest = rest(poem, ARMS["k1_reward"], 2.0, poem.start)
    torch.testing.assert_close(poem.law(table), rlhf.optimal_logps(ref.log(), poem.rewards, beta=2.0).exp())
    assert slowest < 0
    table, _ = rest(poem, ARMS["k3_reply"], 4.0, poem.start)
    want = ch09.forward_kl_optimal_logps(ref.log(), poem.rewards, beta=4.0).exp()
    torch.testing.assert_close(poem.law(table), want)


def test_k2_loss_and_full_loss_have_one_expected_gradient(poem):
    tilted = (poem.start + torch.linspace(-1, 1, 4, dtype=torch.float64)).requires_grad_()
    torch.testing.assert_close(drift(poem, ARMS["k2_loss"], 0.7, tilted), drift(poem, ARMS["full_loss"], 0.7, tilted))


@pytest.mark.slow
def test_rest_of_k2_loss_and_k3_loss_and_at_kl(poem):
    for name, want in (("k2_loss", 1.267), ("k3_loss", 1.396)):
        table = poem.start
        for beta in (8.0, 4.0, 2.0, 1.0, 0.7, 0.5):
            table, _ = rest(poem, ARMS[name], beta, table)
        close(poem.place(table)["kl"], want)
    beta, table = at_kl(poem, ARMS["k1_reward"], 1.0, high=1.0, low=0.45)
    assert beta == pytest.approx(
        rlhf.beta_for_kl(poem.law(poem.start).log(), poem.rewards, budget=1.0), rel=1e-4
    ) and poem.place(table)["kl"] == pytest.approx(1.0, abs=1e-3)


def test_rest_without_a_kl_does_not_exist(poem):
    with pytest.raises(RuntimeError):
        rest(poem, ARMS["none"], 1.0, poem.start, most=5)


def test_train_steers_beta_and_reference(poem):
    fixed, controlled, moving = Steering(0.5), Steering(0.5, target=8.0), Steering(0.5, rate=1.0, every=2)
    for steering in (fixed, controlled, moving):
        train(poem, ARMS["k1_reward"], steering, SampledRun(steps=4), 0)
    assert fixed.betas == [0.5] * 4 and controlled.betas == sorted(controlled.betas, reverse=True)
    assert fixed.kls[:2] == moving.kls[:2] and fixed.kls[2:] != moving.kls[2:]


# -- the letters -------------------------------------------------------------------------------------------------


def test_letters_are_a_law_of_two_writers():
    letters = Letters()
    assert float(letters.law.sum()) == pytest.approx(1.0) and len(letters.law) == 1296
    assert float(letters.law[letters.formal].sum()) == pytest.approx(0.6, abs=0.03)
    assert float(letters.law[letters.casual].sum()) == pytest.approx(0.4, abs=0.03)
    even = torch.zeros(4, 6, 6, dtype=torch.float64)
    assert float(letters.logps(even).exp().sum()) == pytest.approx(1.0)
    with raises(ArgumentError, argument="how", value="guess"):
        imitate(letters, "guess", 0, steps=1)
