"""Components of trust-region policy optimisation: the size of a trust region, and the best step within it.

Parameters and steps are flat vectors ``(D,)``; gains are scalars. Advantages are the advantages of the old policy.
Occupancies are normalised.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from minirlhf.core.equation import equation
from minirlhf.core.errors import ArgumentError
from minirlhf.core.validate import NOT_NEGATIVE, POSITIVE, distribution, require_distributions, require_shapes, takes
from minirlhf.equations.mdp import DISCOUNT

# -- the gain of a new policy --------------------------------------------------------------------------------------


@takes(new_occupancy="S A", advantages="S A", gamma=DISCOUNT)
@equation(
    "eq:performance-difference",
    source='Kakade and Langford (2002), "Approximately optimal approximate reinforcement learning", lemma 6.1.',
)
def performance_difference(new_occupancy: Tensor, advantages: Tensor, *, gamma: float) -> Tensor:
    """Performance difference, J(π') − J(π) = 1/(1−γ) E_{ν_π'}[A^π]: old advantages under the *new* occupancy.

    The identity is exact.
    """
    require_distributions(new_occupancy=new_occupancy.flatten())
    return (new_occupancy * advantages).sum() / (1 - gamma)


@takes(state_occupancy=distribution("S"), new_policy=distribution("S A"), advantages="S A", gamma=DISCOUNT)
@equation("eq:surrogate-gain", source='Schulman et al. (2015), "Trust region policy optimization".')
def surrogate_gain(state_occupancy: Tensor, new_policy: Tensor, advantages: Tensor, *, gamma: float) -> Tensor:
    """Surrogate gain 1/(1−γ) Σ_s d_π(s) Σ_a π'(a|s) A^π(s,a): with the state distribution of the old policy.

    At π' = π its value and gradient equal those of the true gain. Away from π it is accurate only within a
    trust region.
    """
    return (state_occupancy[:, None] * new_policy * advantages).sum() / (1 - gamma)


# -- how far a step goes -------------------------------------------------------------------------------------------


@takes(damping=NOT_NEGATIVE)
@equation("eq:fisher-vector-product", source='Schulman et al. (2015), "Trust region policy optimization", appendix C.')
def fisher_vector_product(kl: Tensor, parameters: Sequence[Tensor], vector: Tensor, *, damping: float = 0.0) -> Tensor:
    """Fisher-vector product (F + damping·I) v, with F = E[∇log π ∇log πᵀ], without building F.

    At π' = π, F is the Hessian of KL(π‖π'), so the product is the gradient of ⟨∇KL, v⟩: two backward passes.
    The graph of ``kl`` is retained for the next product.

    Args:
        kl: a scalar with its graph: the mean KL(π_old‖π) at π = π_old, π_old detached.
        parameters: the tensors of π, ``D`` numbers in all.
    """
    if kl.dim() != 0 or not kl.requires_grad:
        raise ArgumentError(
            f"kl has shape {tuple(kl.shape)} and requires_grad {kl.requires_grad}; expected a scalar with a graph",
            argument="kl",
            value=(tuple(kl.shape), kl.requires_grad),
        )
    require_shapes(vector=(vector, str(sum(p.numel() for p in parameters))))
    slope = torch.cat([g.flatten() for g in torch.autograd.grad(kl, parameters, create_graph=True)])  # (D,)
    product = torch.autograd.grad(slope @ vector, parameters, retain_graph=True)
    return torch.cat([g.flatten() for g in product]) + damping * vector


@takes(step="D", fisher_times_step="D")
@equation("eq:quadratic-kl", source='Kakade (2002), "A natural policy gradient".')
def quadratic_kl(step: Tensor, fisher_times_step: Tensor) -> Tensor:
    """Quadratic model of the divergence after a small step x, KL(π_θ‖π_{θ+x}) ≈ ½ xᵀFx. Its error is of third order."""
    return 0.5 * step @ fisher_times_step


# -- the best step -------------------------------------------------------------------------------------------------


@takes(b="D", iterations=POSITIVE)
@equation(
    "eq:conjugate-gradient",
    source='Hestenes and Stiefel (1952), "Methods of conjugate gradients for solving linear systems".',
)
def conjugate_gradient(
    matvec: Callable[[Tensor], Tensor], b: Tensor, *, iterations: int, tolerance: float = 1e-20
) -> Tensor:
    """Conjugate gradients: x with Mx = b for a symmetric positive definite M that is given by products with it.

    ``matvec`` maps x to Mx. The result is exact after ``D`` iterations; a few give a good direction. It stops early if
    ‖Mx − b‖² ≤ tolerance·‖b‖².
    """
    x = torch.zeros_like(b)
    residual, direction = b, b
    squared = residual @ residual
    threshold = tolerance * squared
    for _ in range(iterations):
        if squared <= threshold:
            break
        product = matvec(direction)
        curvature = direction @ product
        if not curvature > 0:
            raise ArgumentError(
                f"matvec is not positive definite: vᵀMv = {float(curvature):.3g} for a v of shape {tuple(b.shape)}",
                argument="matvec",
                value=float(curvature),
                problem="not positive definite",
            )
        step_size = squared / curvature
        x = x + step_size * direction
        residual = residual - step_size * product
        previous, squared = squared, residual @ residual
        direction = residual + squared / previous * direction
    return x


@takes(direction="D", fisher_times_direction="D", max_kl=POSITIVE)
@equation("eq:trust-region-step", source='Schulman et al. (2015), "Trust region policy optimization", appendix C.')
def trust_region_step(direction: Tensor, fisher_times_direction: Tensor, *, max_kl: float) -> Tensor:
    """The longest step along a direction x within the trust region, √(2·max_kl / xᵀFx)·x; max_kl in nats.

    With x = F⁻¹g it is the step with the largest first-order gain among all with ½ xᵀFx ≤ max_kl: the natural
    gradient.
    """
    squared = direction @ fisher_times_direction
    if not squared > 0:
        raise ArgumentError(
            f"direction of shape {tuple(direction.shape)} has xᵀFx = {float(squared):.3g}; expected a number > 0",
            argument="direction",
            value=float(squared),
        )
    return torch.sqrt(2 * max_kl / squared) * direction


# -- a penalty instead of a region ---------------------------------------------------------------------------------


@takes(beta=POSITIVE, observed=NOT_NEGATIVE, target=POSITIVE)
@equation("eq:adaptive-penalty", source='Schulman et al. (2017), "Proximal Policy Optimization Algorithms", section 4.')
def adaptive_penalty(beta: float, observed: float, *, target: float, band: float = 1.5, factor: float = 2.0) -> float:
    """The next penalty of PPO-penalty: β·2 if the KL is above 1.5 times its target, β/2 if below target/1.5.

    Only the order of magnitude of the initial β matters. β can converge if multiplying it by ``factor`` changes the KL
    by a factor of less than ``band²``. If the KL is proportional to 1/β², the KL may jump across the band forever.

    Args:
        observed: the mean KL(π_old‖π) after the update, nats ≥ 0.
        band, factor: both above 1.
    """
    if not (band > 1.0 and factor > 1.0):
        raise ArgumentError(
            f"band = {band!r} and factor = {factor!r}; expected numbers above 1",
            argument="band, factor",
            value=(band, factor),
            expected=1,
        )
    if observed > band * target:
        return beta * factor
    return beta / factor if observed < target / band else beta
