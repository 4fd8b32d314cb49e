"""The pieces of trust-region policy optimisation: how far a step may go, and which step is best within that distance.

Parameters and steps are flat vectors ``(D,)``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from minirlhf.core.validate import require_finite, require_positive, require_range, require_shapes
from minirlhf.equations.mdp import require_discount, require_distributions

# -- what a new policy gains ---------------------------------------------------------------------------------------


def performance_difference(new_occupancy: Tensor, advantages: Tensor, *, gamma: float) -> Tensor:
    """Performance difference, J(π') − J(π) = 1/(1−γ) E_{ν_π'}[A^π]: old advantages where the *new* policy goes. Exact.

    Label: eq:performance-difference
    Source: Kakade and Langford (2002), "Approximately optimal approximate reinforcement learning", lemma 6.1.
    Args: new_occupancy ``(S, A)`` of π', normalised; advantages A^π ``(S, A)``; gamma in [0, 1).
    Returns: a scalar.
    Raises: ValueError if shapes differ, new_occupancy is no distribution, or gamma is outside [0, 1).
    """
    require_shapes(new_occupancy=(new_occupancy, "S A"), advantages=(advantages, "S A"))
    require_distributions(new_occupancy=new_occupancy.flatten())
    require_finite(advantages=advantages)
    require_discount(gamma)
    return (new_occupancy * advantages).sum() / (1 - gamma)


def surrogate_gain(state_occupancy: Tensor, new_policy: Tensor, advantages: Tensor, *, gamma: float) -> Tensor:
    """Surrogate gain 1/(1−γ) Σ_s d_π(s) Σ_a π'(a|s) A^π(s,a): as if the new policy went where the old one does.

    At π' = π it agrees with the true gain in value and in gradient; further away only a trust region vouches for it.

    Label: eq:surrogate-gain
    Source: Schulman et al. (2015), "Trust region policy optimization".
    Args: state_occupancy ``(S,)`` of π, normalised; new_policy ``(S, A)``; advantages A^π ``(S, A)``; gamma in [0, 1).
    Returns: a scalar.
    Raises: ValueError if shapes differ, a row is no distribution, or gamma is outside [0, 1).
    """
    require_shapes(
        state_occupancy=(state_occupancy, "S"), new_policy=(new_policy, "S A"), advantages=(advantages, "S A")
    )
    require_distributions(state_occupancy=state_occupancy, new_policy=new_policy)
    require_finite(advantages=advantages)
    require_discount(gamma)
    return (state_occupancy[:, None] * new_policy * advantages).sum() / (1 - gamma)


# -- how far a step goes -------------------------------------------------------------------------------------------


def fisher_vector_product(kl: Tensor, parameters: Sequence[Tensor], vector: Tensor, *, damping: float = 0.0) -> Tensor:
    """Fisher-vector product (F + damping·I) v, with F = E[∇log π ∇log πᵀ], without ever building F.

    At π' = π, F is the Hessian of KL(π‖π'), so the product is the gradient of ⟨∇KL, v⟩: two backward passes.

    Label: eq:fisher-vector-product
    Source: Schulman et al. (2015), "Trust region policy optimization", appendix C.
    Args: kl, a scalar with its graph: the mean KL(π_old‖π) at π = π_old, π_old detached; parameters, the tensors of π,
        ``D`` numbers in all; vector ``(D,)``; damping ≥ 0.
    Returns: ``(D,)``. The graph of ``kl`` is kept for the next product.
    Raises: ValueError if kl is no scalar, vector is not ``(D,)`` or damping is negative.
    """
    if kl.dim() != 0 or not kl.requires_grad:
        raise ValueError(
            f"kl has shape {tuple(kl.shape)} and requires_grad {kl.requires_grad}; expected a scalar with a graph"
        )
    size = sum(p.numel() for p in parameters)
    require_shapes(vector=(vector, str(size)))
    require_range(0.0, float("inf"), damping=damping)
    slope = torch.cat([g.flatten() for g in torch.autograd.grad(kl, parameters, create_graph=True)])  # (D,)
    product = torch.autograd.grad(slope @ vector, parameters, retain_graph=True)
    return torch.cat([g.flatten() for g in product]) + damping * vector


def quadratic_kl(step: Tensor, fisher_times_step: Tensor) -> Tensor:
    """Quadratic model of the divergence after a small step, KL(π_θ‖π_{θ+x}) ≈ ½ xᵀFx. Its error is of third order.

    Label: eq:quadratic-kl
    Source: Kakade (2002), "A natural policy gradient".
    Args: step x ``(D,)``; fisher_times_step Fx ``(D,)``.
    Returns: a scalar.
    Raises: ValueError if shapes differ or a value is not finite.
    """
    require_shapes(step=(step, "D"), fisher_times_step=(fisher_times_step, "D"))
    require_finite(step=step, fisher_times_step=fisher_times_step)
    return 0.5 * step @ fisher_times_step


# -- the best step -------------------------------------------------------------------------------------------------


def conjugate_gradient(
    matvec: Callable[[Tensor], Tensor], b: Tensor, *, iterations: int, tolerance: float = 1e-20
) -> Tensor:
    """Conjugate gradients: x with Mx = b for a symmetric positive definite M that is known by its products only.

    Exact after ``D`` iterations; a few are enough for a direction.

    Label: eq:conjugate-gradient
    Source: Hestenes and Stiefel (1952), "Methods of conjugate gradients for solving linear systems".
    Args: matvec maps x ``(D,)`` to Mx ``(D,)``; b ``(D,)``; iterations ≥ 1; stops early when ‖Mx − b‖² ≤ tolerance·‖b‖².
    Returns: ``(D,)``.
    Raises: ValueError if b is not ``(D,)`` and finite, iterations < 1, or M turns out not to be positive definite.
    """
    require_shapes(b=(b, "D"))
    require_finite(b=b)
    require_positive(iterations=iterations)
    x = torch.zeros_like(b)
    residual, direction = b, b
    squared = residual @ residual
    goal = tolerance * squared
    for _ in range(iterations):
        if squared <= goal:
            break
        image = matvec(direction)
        curvature = direction @ image
        if not curvature > 0:
            raise ValueError(
                f"matvec is not positive definite: vᵀMv = {float(curvature):.3g} for a v of shape {tuple(b.shape)}"
            )
        size = squared / curvature
        x = x + size * direction
        residual = residual - size * image
        before, squared = squared, residual @ residual
        direction = residual + squared / before * direction
    return x


def trust_region_step(direction: Tensor, fisher_times_direction: Tensor, *, max_kl: float) -> Tensor:
    """The longest step along a direction within the trust region, √(2·max_kl / xᵀFx)·x.

    With x = F⁻¹g it is the step that gains most to first order among all with ½ xᵀFx ≤ max_kl: the natural gradient.

    Label: eq:trust-region-step
    Source: Schulman et al. (2015), "Trust region policy optimization", appendix C.
    Args: direction x ``(D,)``; fisher_times_direction Fx ``(D,)``; max_kl > 0, nats.
    Returns: ``(D,)``.
    Raises: ValueError if shapes differ, max_kl is not positive, or xᵀFx is not.
    """
    require_shapes(direction=(direction, "D"), fisher_times_direction=(fisher_times_direction, "D"))
    require_finite(direction=direction, fisher_times_direction=fisher_times_direction)
    require_positive(max_kl=max_kl)
    squared = direction @ fisher_times_direction
    if not squared > 0:
        raise ValueError(
            f"direction of shape {tuple(direction.shape)} has xᵀFx = {float(squared):.3g}; expected a number > 0"
        )
    return torch.sqrt(2 * max_kl / squared) * direction


# -- a penalty instead of a region ---------------------------------------------------------------------------------


def adaptive_penalty(beta: float, observed: float, *, target: float, band: float = 1.5, factor: float = 2.0) -> float:
    """The next penalty of PPO-penalty: β·2 where the KL came out above 1.5 times its target, β/2 where below target/1.5.

    Only the order of magnitude of the first β matters. It can settle where multiplying β by ``factor`` changes the KL by less than
    ``band²``; where the KL goes as 1/β² it may jump across the band for ever.

    Label: eq:adaptive-penalty
    Source: Schulman et al. (2017), "Proximal Policy Optimization Algorithms", section 4.
    Args: beta > 0 now; observed, the mean KL(π_old‖π) after the update, nats ≥ 0; target > 0; band > 1; factor > 1.
    Returns: the beta of the next update.
    Raises: ValueError if one of them is out of its range.
    """
    require_positive(beta=beta, target=target)
    require_range(0.0, sys.float_info.max, observed=observed)
    if not (band > 1.0 and factor > 1.0):
        raise ValueError(f"band = {band!r} and factor = {factor!r}; expected numbers above 1")
    if observed > band * target:
        return beta * factor
    return beta / factor if observed < target / band else beta
