"""Chapter 23: what one step moves elsewhere, against steps that are taken, and directions, against linear algebra."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from minirlhf.core import exact
from minirlhf_course.chapters.ch23_misalignment import spread
from minirlhf_course.ledger.registry import Comparison, Draw, check

# -- a small policy with shared weights ----------------------------------------------------------------------------

INPUTS, HIDDEN, OUTCOMES = 4, 3, 3
SIZE = HIDDEN * (INPUTS + OUTCOMES)
Policy = Callable[[Tensor], Tensor]


def network(theta: Tensor) -> Tensor:
    """Return the log-probabilities ``(INPUTS, OUTCOMES)`` of a network whose weights ``(SIZE,)`` all inputs share."""
    first, last = theta[: INPUTS * HIDDEN].view(INPUTS, HIDDEN), theta[INPUTS * HIDDEN :].view(HIDDEN, OUTCOMES)
    return (torch.tanh(first) @ last).log_softmax(-1)


def table(theta: Tensor) -> Tensor:
    """Return the log-probabilities ``(INPUTS, OUTCOMES)`` of a table, which has its own weights for each input."""
    return theta[: INPUTS * OUTCOMES].view(INPUTS, OUTCOMES).log_softmax(-1)


def taught(policy: Policy, theta: Tensor) -> Tensor:
    """Return the log-probability of the answer that a step teaches, on the first input."""
    return policy(theta)[0, 0]


def log_odds(policy: Policy, theta: Tensor) -> Tensor:
    """Return log-odds of two answers to the second input."""
    return policy(theta)[1, 1] - policy(theta)[1, 2]


def gradient(f: Callable[[Tensor], Tensor], theta: Tensor) -> Tensor:
    """Return the gradient of a number by autograd."""
    leaf = theta.clone().requires_grad_()
    [found] = torch.autograd.grad(f(leaf), leaf)
    return found


def along(f: Callable[[Tensor], Tensor], theta: Tensor, step: Tensor) -> Tensor:
    """Return the derivative of ``f`` at ``theta`` along a step, from steps that are taken."""
    return exact.finite_difference(lambda size: f(theta + size * step), torch.tensor(0.0, dtype=torch.float64))


@check(
    "eq:gradient-kernel",
    "value",
    "The change of a second input's log-odds per step on a first input's answer, for small steps; in a table it is 0.",
    of=spread.first_order_change,
    against="small steps, forwards and backwards",
    tolerance=1e-6,
    wrong={
        "the learning rate left out": lambda trained, measured, learning_rate: (trained * measured).sum(-1),
        "only the signs of the gradients": lambda trained, measured, learning_rate: (
            learning_rate * (trained.sign() * measured.sign()).sum(-1)
        ),
        "the cosine": lambda trained, measured, learning_rate: (
            learning_rate * torch.cosine_similarity(trained, measured, -1)
        ),
        "the sign of a descent": lambda trained, measured, learning_rate: (
            -spread.first_order_change(trained, measured, learning_rate)
        ),
    },
)
def _(first_order_change, draw: Draw) -> Iterator[Comparison]:
    theta, rate = draw.normal(SIZE), float(draw.uniform(low=0.2, high=0.6))
    for policy in (network, table):
        step = gradient(partial(taught, policy), theta)
        measured = partial(log_odds, policy)
        change = first_order_change(step, gradient(measured, theta), rate)
        yield change, rate * along(measured, theta, step)
        if policy is table:
            yield change, torch.tensor(0.0)


# -- authors -------------------------------------------------------------------------------------------------------


def mixture(draw: Draw) -> tuple[Tensor, Tensor, Tensor]:
    """Return log-odds of a careless author ``(12,)``, and harmful answers by both kinds here and elsewhere ``(12, 2)``.

    With fewer mixtures, no step in any of them may be large enough to tell a wrong variant.
    """
    return draw.normal(12), draw.uniform(12, 2, low=0.05, high=0.95), draw.uniform(12, 2, low=0.05, high=0.95)


def harmful(by: Tensor, log_odds: Tensor) -> Tensor:
    """Return the probability of a harmful answer, a sum over both kinds of author."""
    prior = torch.stack([torch.sigmoid(-log_odds), torch.sigmoid(log_odds)], -1)
    return (prior * by).sum(-1)


def evidence(by: Tensor, log_odds: Tensor) -> Tensor:
    """Return the log-probability of a harmful answer."""
    return harmful(by, log_odds).log()


@check(
    "eq:author-gradient",
    "value",
    "The gradient of the log-likelihood with respect to the log-odds of a careless author is posterior minus prior.",
    of=spread.author_gradient,
    against="finite differences of the mixture",
    tolerance=1e-6,
    wrong={
        "prior minus posterior": lambda careless, by: -spread.author_gradient(careless, by),
        "the posterior": lambda careless, by: spread.author_gradient(careless, by) + careless,
        "the gradient of the probability": lambda careless, by: careless * (1 - careless) * (by[..., 1] - by[..., 0]),
        "kinds swapped": lambda careless, by: spread.author_gradient(careless, by.flip(-1)),
    },
)
def _(author_gradient, draw: Draw) -> Comparison:
    s, here, _ = mixture(draw)
    slopes = [along(partial(evidence, q), at, torch.ones_like(at)) for at, q in zip(s, here, strict=True)]
    return author_gradient(torch.sigmoid(s), here), torch.stack(slopes)


@check(
    "eq:author-spread",
    "value",
    "The first-order change in another domain after a step on the author's log-odds.",
    of=spread.author_spread,
    against="small steps in the mixture",
    tolerance=1e-6,
    wrong={
        "posterior in place of the difference": lambda careless, here, elsewhere, rate, read=None: (
            spread.author_spread(careless, here, elsewhere, rate, read)
            * (1 + careless / spread.author_gradient(careless, here))
        ),
        "the variance left out": lambda careless, here, elsewhere, rate, read=None: (
            rate * spread.author_gradient(careless, here) * (elsewhere[..., 1] - elsewhere[..., 0])
        ),
        "the difference of this domain": lambda careless, here, elsewhere, rate, read=None: spread.author_spread(
            careless, here, here, rate, read
        ),
        "the careless author's answers alone": lambda careless, here, elsewhere, rate, read=None: spread.author_spread(
            careless, here, elsewhere * torch.tensor([0.0, 1.0], dtype=torch.float64), rate, read
        ),
        "read under the header of training": lambda careless, here, elsewhere, rate, read=None: spread.author_spread(
            careless, here, elsewhere, rate
        ),
    },
)
def _(author_spread, draw: Draw) -> Iterator[Comparison]:
    s, here, elsewhere = mixture(draw)
    rate, other = float(draw.uniform(low=2.0, high=6.0)), draw.normal(12)
    for read in (s, other):  # the header of training, and another
        changes = []
        for at, to, q, there in zip(s, read, here, elsewhere, strict=True):
            step = gradient(partial(evidence, q), at)
            changes.append(rate * along(partial(harmful, there), to, step))
        arguments = (torch.sigmoid(s), here, elsewhere, rate)
        got = author_spread(*arguments) if read is s else author_spread(*arguments, torch.sigmoid(read))
        yield got, torch.stack(changes)
    # authors who do not differ elsewhere carry nothing there
    same = elsewhere[:, :1].expand(-1, 2)
    yield author_spread(torch.sigmoid(s), here, same, rate), torch.zeros_like(s)


# -- a student of a teacher with the same start --------------------------------------------------------------------

DATA = slice(2, INPUTS)  # the inputs of imitation; the trait shows on the others


def trait_loss(policy: Policy, theta: Tensor) -> Tensor:
    """Return the cross-entropy of outcome 0 on the inputs that the student never sees."""
    return -policy(theta)[:2, 0].mean()


def imitation_gradient(policy: Policy, theta: Tensor, teacher: Tensor) -> Tensor:
    """Return minus the gradient of the mean KL from the teacher to the student on the data, by autograd."""
    target = policy(teacher)[DATA].detach()
    kl = lambda z: (target.exp() * (target - policy(z)[DATA])).sum(-1).mean()
    return -gradient(kl, theta)


def start(policy: Policy, draw: Draw) -> tuple[Tensor, Tensor, Tensor]:
    """Return weights, the Jacobian of the log-probabilities on the data ``(N, Y, P)``, and the probabilities."""
    theta = 0.5 * draw.normal(SIZE)  # larger weights saturate the units, and little is shared
    jacobian = torch.autograd.functional.jacobian(lambda z: policy(z)[DATA], theta)
    assert isinstance(jacobian, Tensor)
    return theta, jacobian, policy(theta)[DATA].exp()


@check(
    "eq:imitation-step",
    "value",
    "The student's gradient step per unit of the teacher's step, for small steps of the teacher.",
    of=spread.imitation_step,
    against="autograd on the KL divergence from teachers that are a small step away",
    tolerance=1e-6,
    wrong={
        "without the probabilities": lambda jacobian, probs, step: spread.imitation_step(
            jacobian, torch.ones_like(probs), step
        ),
        "a sum over inputs": lambda jacobian, probs, step: spread.imitation_step(jacobian, probs, step) * len(probs),
        "the teacher's step itself": lambda jacobian, probs, step: step,
        "away from the teacher": lambda jacobian, probs, step: -spread.imitation_step(jacobian, probs, step),
    },
)
def _(imitation_step, draw: Draw) -> Iterator[Comparison]:
    for policy in (network, table):
        theta, jacobian, probs = start(policy, draw)
        step, h = draw.normal(SIZE), 1e-4
        ahead, behind = (imitation_gradient(policy, theta, theta + size * step) for size in (h, -h))
        yield imitation_step(jacobian, probs, step), (ahead - behind) / (2 * h)


@check(
    "eq:trait-change",
    "value",
    "The change of the trait's loss, per unit of both steps: never positive for a shared initial model, and 0 in "
    "a table.",
    of=spread.trait_change,
    against="a trained student, for teachers that are small steps away",
    tolerance=1e-8,
    wrong={
        "the sign of a gain": lambda jacobian, probs, trait, rate: -spread.trait_change(jacobian, probs, trait, rate),
        "without the probabilities": lambda jacobian, probs, trait, rate: spread.trait_change(
            jacobian, torch.ones_like(probs), trait, rate
        ),
        "the mean along the trait, squared": lambda jacobian, probs, trait, rate: (
            -rate * (probs[..., None] * jacobian).sum(1).mean(0).dot(trait) ** 2
        ),
        "the trait's own gradient step": lambda jacobian, probs, trait, rate: -rate * trait.dot(trait),
    },
)
def _(trait_change, draw: Draw) -> Iterator[Comparison]:
    rate = float(draw.uniform(low=20.0, high=60.0))
    for policy in (network, table):
        theta, jacobian, probs = start(policy, draw)
        trait = gradient(partial(trait_loss, policy), theta)
        h = 1e-5
        ahead, behind = (imitation_gradient(policy, theta, theta - side * trait) for side in (h, -h))
        per_step = (ahead - behind) / (2 * h)
        moved = along(partial(trait_loss, policy), theta, per_step)
        size = trait.dot(trait)  # both sides grow with it, so divide: small gradients would hide a wrong variant
        yield trait_change(jacobian, probs, trait, rate) / size, rate * moved / size
        yield torch.clamp(trait_change(jacobian, probs, trait, rate), min=0.0), torch.tensor(0.0)


# -- a signal that vanishes ----------------------------------------------------------------------------------------


def chance(theta: Tensor) -> Tensor:
    """Return the probability of an answer."""
    return network(theta)[0, 0].exp()


def answer(draw: Draw) -> tuple[Tensor, Tensor, Tensor]:
    """Return weights, the probability of the answer, and the gradient of its log-odds."""
    theta = 2 * draw.normal(SIZE)
    odds = lambda z: network(z)[0, 0] - torch.logsumexp(network(z)[0, 1:], -1)
    return theta, chance(theta), gradient(odds, theta)


@check(
    "eq:vanishing-signal",
    "value",
    "The norm of the gradient of the log-likelihood of an answer, from its probability and its log-odds.",
    of=spread.trained_signal,
    against="autograd on the log-probability",
    wrong={
        "the probability in place of its complement": lambda p, derivative: p * derivative.norm(dim=-1),
        "the reward's factor": lambda p, derivative: spread.reward_signal(p, derivative),
        "the squared norm": lambda p, derivative: (1 - p) * (derivative**2).sum(-1),
    },
)
def _(trained_signal, draw: Draw) -> Iterator[Comparison]:
    for _ in range(3):
        theta, p, derivative = answer(draw)
        yield trained_signal(p, derivative), gradient(partial(taught, network), theta).norm()


@check(
    "eq:reward-signal",
    "value",
    "The norm of the gradient of the expected reward of one rewarded answer; it vanishes at both ends.",
    of=spread.reward_signal,
    against="autograd on the expected reward",
    wrong={
        "the log-likelihood's factor": lambda p, derivative: spread.trained_signal(p, derivative),
        "only the small probability": lambda p, derivative: p * derivative.norm(dim=-1),
        "the standard deviation": lambda p, derivative: (p * (1 - p)).sqrt() * derivative.norm(dim=-1),
    },
)
def _(reward_signal, draw: Draw) -> Iterator[Comparison]:
    for _ in range(3):
        theta, p, derivative = answer(draw)
        yield reward_signal(p, derivative), gradient(chance, theta).norm()


# -- directions ----------------------------------------------------------------------------------------------------


@check(
    "eq:steering",
    "value",
    "The log-odds of two answers after a direction was added to a state with a linear read-out.",
    of=spread.steered_log_odds,
    against="the softmax over all answers at the changed state",
    wrong={
        "a unit direction": lambda odds, readout, v, strength: odds + strength * (readout @ (v / v.norm())),
        "the strength left out": lambda odds, readout, v, strength: odds + readout @ v,
        "subtracted": lambda odds, readout, v, strength: odds - strength * (readout @ v),
    },
)
def _(steered_log_odds, draw: Draw) -> Iterator[Comparison]:
    outputs, state, v = draw.normal(5, 4), draw.normal(4), draw.normal(4)
    law = lambda h: (outputs @ h).softmax(-1)
    odds = lambda h: (law(h)[1] / law(h)[0]).log()
    for strength in (-0.7, 1.6):
        got = steered_log_odds(odds(state), outputs[1] - outputs[0], v, strength)
        yield got, odds(state + strength * v)


@check(
    "eq:set-component",
    "value",
    "The nearest state with this component: the solution of a constrained least-squares problem; twice is once.",
    of=spread.set_component,
    against="the equations of a Lagrange multiplier, solved",
    wrong={
        "the direction not normalised": lambda h, v, target: h - ((h @ v) - target)[..., None] * v,
        "removed, without a target": lambda h, v, target: spread.set_component(h, v, 0.0),
        "the target added": lambda h, v, target: h + target * v / v.norm(),
    },
)
def _(set_component, draw: Draw) -> Iterator[Comparison]:
    size = 4
    h, v, target = draw.normal(3, size), draw.normal(size), float(draw.uniform(low=0.3, high=1.5))
    unit = v / v.norm()
    system = torch.zeros(size + 1, size + 1, dtype=torch.float64)
    system[:size, :size] = torch.eye(size, dtype=torch.float64)
    system[:size, size] = system[size, :size] = unit
    right = torch.cat([h, torch.full((3, 1), target, dtype=torch.float64)], 1)
    changed = set_component(h, v, target)
    yield changed, torch.linalg.solve(system, right.T).T[:, :size]
    yield set_component(changed, v, target), changed
