"""How training on one thing moves another: the formulas of the chapter."""

from __future__ import annotations

import torch
from torch import Tensor

from minirlhf.core.equation import equation


@equation(
    "eq:gradient-kernel",
    source='First-order expansion; as a kernel, Jacot, Gabriel and Hongler (2018), "Neural tangent kernel".',
)
def first_order_change(trained: Tensor, measured: Tensor, learning_rate: float) -> Tensor:
    """Return the first-order change of a measured quantity after one gradient step.

    Args:
        trained: gradient ``(..., P)`` of the log-likelihood, or of the objective, that the step ascends.
        measured: gradient ``(..., P)`` of the quantity.
        learning_rate: size of the step.

    Returns:
        The change ``(...)``.
    """
    return learning_rate * (trained * measured).sum(-1)


@equation("eq:author-gradient", source="Own derivation, from Bayes' rule.")
def author_gradient(careless: Tensor, harmful: Tensor) -> Tensor:
    """Return d log P(harmful answer) / d s, where s is the log-odds of a careless author.

    Args:
        careless: probability ``(...)`` of a careless author.
        harmful: probability ``(..., 2)`` that a careful, and a careless, author writes the answer.

    Returns:
        The posterior minus the prior probability of a careless author ``(...)``.
    """
    evidence = (1 - careless) * harmful[..., 0] + careless * harmful[..., 1]
    return careless * harmful[..., 1] / evidence - careless


@equation("eq:author-spread", source="Own derivation, from eq:gradient-kernel and eq:author-gradient.")
def author_spread(
    careless: Tensor, here: Tensor, elsewhere: Tensor, learning_rate: float, careless_read: Tensor | None = None
) -> Tensor:
    """Return the first-order change of P(harmful answer) in another domain after one step on an answer here, if only
    the log-odds of a careless author are trained.

    Args:
        careless: probability ``(...)`` of a careless author under the header of training.
        here, elsewhere: probability ``(..., 2)`` of the harmful answer by a careful, and by a careless, author.
        learning_rate: size of the step on the log-odds.
        careless_read: probability ``(...)`` of a careless author under the header of reading; None: that of training.
            The step moves the log-odds under both headers alike.
    """
    read = careless if careless_read is None else careless_read
    gap = elsewhere[..., 1] - elsewhere[..., 0]
    return learning_rate * author_gradient(careless, here) * read * (1 - read) * gap


@equation("eq:imitation-step", source='Own derivation; the theorem is by Cloud et al. (2025), "Subliminal learning".')
def imitation_step(jacobian: Tensor, probs: Tensor, teacher_step: Tensor) -> Tensor:
    """Return the student's gradient step, per unit of learning rate, on a teacher that is one small step away.

    Args:
        jacobian: derivatives ``(N, Y, P)`` of the log-probabilities of ``Y`` outcomes of ``N`` inputs.
        probs: probabilities ``(N, Y)`` at the common initial weights.
        teacher_step: step ``(P,)`` of the teacher away from them.

    Returns:
        The Fisher matrix of the student's inputs times the teacher's step, ``(P,)``.
    """
    along = jacobian @ teacher_step
    return torch.einsum("ny,ny,nyp->p", probs, along, jacobian) / len(probs)


@equation(
    "eq:trait-change",
    source='Own derivation, from eq:imitation-step; the theorem is by Cloud et al. (2025), "Subliminal learning".',
)
def trait_change(jacobian: Tensor, probs: Tensor, trait_gradient: Tensor, learning_rate: float) -> Tensor:
    """Return the first-order change of the trait's loss when the student imitates a teacher that took one step of size
    1 down that loss; it is never positive.

    Args:
        jacobian, probs: as for :func:`imitation_step`.
        trait_gradient: gradient ``(P,)`` of the trait's loss at the common initial weights.
        learning_rate: size of the student's step.
    """
    along = jacobian @ trait_gradient
    return -learning_rate * (probs * along**2).sum() / len(probs)


@equation("eq:vanishing-signal", source="Chain rule through the log-odds.")
def trained_signal(probs: Tensor, derivative: Tensor) -> Tensor:
    """Return the norm of the gradient of the log-likelihood of a right answer.

    Args:
        probs: probability ``(...)`` of the answer.
        derivative: gradient ``(..., P)`` of the answer's log-odds.
    """
    return (1 - probs) * derivative.norm(dim=-1)


@equation("eq:reward-signal", source="Chain rule through the log-odds.")
def reward_signal(probs: Tensor, derivative: Tensor) -> Tensor:
    """Return the norm of the gradient of the expected reward, if only one answer is rewarded, with 1; arguments as for :func:`trained_signal`."""
    return probs * (1 - probs) * derivative.norm(dim=-1)


def trait_direction(with_trait: Tensor, without: Tensor) -> Tensor:
    """Return the mean state with a trait minus the mean state without, ``(n, H), (m, H) -> (H,)``."""
    return with_trait.mean(0) - without.mean(0)


@equation("eq:steering", source='Linear read-out; adding the direction is from Chen et al. (2025), "Persona vectors".')
def steered_log_odds(log_odds: Tensor, readout: Tensor, direction: Tensor, strength: float) -> Tensor:
    """Return the log-odds of two answers after ``strength`` times a direction was added to the last state, if the
    read-out is linear.

    Args:
        log_odds: log-odds ``(...)`` before.
        readout: difference ``(H,)`` of the two answers' output vectors.
        direction: the direction ``(H,)``.
        strength: its factor.
    """
    return log_odds + strength * (readout @ direction)


@equation("eq:set-component", source="Orthogonal projection onto a plane.")
def set_component(states: Tensor, direction: Tensor, target: float) -> Tensor:
    """Return the states with their component along a direction set to ``target``,
    ``(..., H) -> (..., H)``."""
    unit = direction / direction.norm()
    return states - ((states @ unit) - target)[..., None] * unit
