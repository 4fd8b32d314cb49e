"""The ledger of chapter 04: how far a step may go, and which is best."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from minirlhf.core import exact
from minirlhf.equations import trust_region
from minirlhf_course.ledger.inputs.processes import Endless, endless, jacobian
from minirlhf_course.ledger.registry import Comparison, Draw, check

# -- trust regions ---------------------------------------------------------------------------------------------------


@check(
    "eq:performance-difference",
    "value",
    "The gain of a new policy is the expected discounted sum of the old advantages under the new policy.",
    of=trust_region.performance_difference,
    against="difference of two expected returns, summed over time",
    wrong={
        "1/(1−γ) forgotten": lambda nu, advantages, *, gamma: (nu * advantages).sum(),
        "every state and action equally likely": lambda nu, advantages, *, gamma: advantages.mean() / (1 - gamma),
    },
)
def _(performance_difference, draw: Draw) -> Comparison:
    m = endless(draw)
    new = m.theta + torch.tensor([-1.0, 1.0], dtype=torch.float64) * draw.uniform(3, 1, low=0.5, high=1.0)
    got = performance_difference(m.occupancy(new), m.advantages(), gamma=m.gamma)
    return got, m.objective(new) - m.objective(m.theta)


@check(
    "eq:surrogate-gain",
    "gradient",
    "At the old policy the surrogate is 0 and its gradient is the gradient of the true objective.",
    of=trust_region.surrogate_gain,
    against="differentiating the expected return",
    wrong={
        "1/(1−γ) forgotten": lambda d, policy, advantages, *, gamma: (d[:, None] * policy * advantages).sum(),
        "states equally likely": lambda d, policy, advantages, *, gamma: trust_region.surrogate_gain(
            torch.full_like(d, 1 / len(d)), policy, advantages, gamma=gamma
        ),
    },
)
def _(surrogate_gain, draw: Draw) -> Iterator[Comparison]:
    m = endless(draw)
    advantages, d = m.advantages(), m.occupancy(m.theta).sum(-1)

    def gain(theta: Tensor) -> Tensor:
        return surrogate_gain(d, theta.softmax(-1), advantages, gamma=m.gamma)

    yield gain(m.theta), 0.0
    yield jacobian(gain, m.theta), m.gradient()


def _divergence(m: Endless, theta: Tensor) -> Tensor:
    """Mean KL(π_old‖π_θ) over the start states."""
    return (m.start * exact.divergence(m.policy.detach(), theta.softmax(-1))).sum()


def _fisher(m: Endless) -> Tensor:
    """E[∇log π ∇log πᵀ] over start states and actions, built in full: ``(D, D)``."""
    scores = jacobian(lambda theta: theta.log_softmax(-1), m.theta)
    return torch.einsum("s,sa,sad,sae->de", m.start, m.policy, scores, scores)


@check(
    "eq:fisher-vector-product",
    "value",
    "The Hessian of KL(π_old‖π) at π = π_old is the Fisher matrix.",
    of=trust_region.fisher_vector_product,
    against="E[∇log π ∇log πᵀ] built in full",
    wrong={
        "damping forgotten": lambda kl, parameters, v, *, damping: trust_region.fisher_vector_product(
            kl, parameters, v
        ),
        "gradient of the divergence instead of its Hessian": lambda kl, parameters, v, *, damping: (
            exact.gradient(kl, *parameters) + damping * v
        ),
    },
)
def _(fisher_vector_product, draw: Draw) -> Iterator[Comparison]:
    m, v = endless(draw), draw.uniform(6, low=0.5, high=1.5) * torch.tensor([1.0, -1.0] * 3, dtype=torch.float64)
    theta = m.theta.clone().requires_grad_()
    for damping in (0.1, float(draw.uniform(low=0.5, high=1.0))):
        got = fisher_vector_product(_divergence(m, theta), [theta], v, damping=damping)
        yield got, _fisher(m) @ v + damping * v


@check(
    "eq:quadratic-kl",
    "limit",
    "KL(π_θ‖π_{θ+hx})/h² tends to ½ xᵀFx.",
    of=trust_region.quadratic_kl,
    against="the divergence after ever smaller steps, divided by their square",
    wrong={
        "½ forgotten": lambda x, fx: x @ fx,
        "Euclidean length": lambda x, fx: 0.5 * x @ x,
    },
    tolerance=1e-7,
)
def _(quadratic_kl, draw: Draw) -> Comparison:
    m, x = endless(draw), draw.uniform(6, low=0.5, high=1.5) * torch.tensor([1.0, -1.0] * 3, dtype=torch.float64)
    direction = x.view(3, 2)

    def scaled(h: float) -> Tensor:
        return (_divergence(m, m.theta + h * direction) + _divergence(m, m.theta - h * direction)) / (2 * h**2)

    return quadratic_kl(x, _fisher(m) @ x), (4 * scaled(0.004) - scaled(0.008)) / 3


def _steepest_descent(
    matvec: Callable[[Tensor], Tensor], b: Tensor, *, iterations: int, tolerance: float = 0.0
) -> Tensor:
    x = torch.zeros_like(b)
    for _ in range(iterations):
        residual = b - matvec(x)
        x = x + (residual @ residual) / (residual @ matvec(residual)) * residual
    return x


@check(
    "eq:conjugate-gradient",
    "value",
    "In D dimensions D iterations solve Mx = b; n < D iterations give the best solution, in the energy norm, in "
    "the n-dimensional Krylov space.",
    of=trust_region.conjugate_gradient,
    against="a direct solve",
    wrong={
        "directions not conjugate: steepest descent": _steepest_descent,
        "one iteration too few": lambda matvec, b, *, iterations, **o: trust_region.conjugate_gradient(
            matvec, b, iterations=max(iterations - 1, 1), **o
        ),
        "tolerance ignored": lambda matvec, b, *, iterations, **_: trust_region.conjugate_gradient(
            matvec, b, iterations=iterations
        ),
    },
    tolerance=1e-8,
)
def _(conjugate_gradient, draw: Draw) -> Iterator[Comparison]:
    rotation = torch.linalg.qr(draw.normal(4, 4)).Q
    scales = torch.tensor([1.0, 2.0, 4.0, 8.0], dtype=torch.float64) + draw.uniform(4, high=0.5)
    matrix = rotation @ torch.diag(scales) @ rotation.T
    b = rotation @ (1.0 + draw.uniform(4))  # has a part along every eigenvector
    matvec = lambda v: matrix @ v
    yield conjugate_gradient(matvec, b, iterations=4), torch.linalg.solve(matrix, b)

    # After n iterations it is the best that n products with M can give: smallest in the energy norm.
    directions = torch.stack([torch.linalg.matrix_power(matrix, n) @ b for n in range(4)], 1)
    best, left = [], []
    for n in range(1, 4):
        basis = torch.linalg.qr(directions[:, :n]).Q
        best.append(basis @ torch.linalg.solve(basis.T @ matrix @ basis, basis.T @ b))
        left.append(float((matrix @ best[-1] - b).square().sum() / b.square().sum()))
        yield conjugate_gradient(matvec, b, iterations=n), best[-1]
    for n in (1, 2):  # stops where the residual has fallen below the tolerance, whatever the size of b
        enough = math.sqrt(left[n - 1] * left[n])
        yield conjugate_gradient(matvec, b, iterations=4, tolerance=enough), best[n]
        yield conjugate_gradient(matvec, 1e-3 * b, iterations=4, tolerance=enough) * 1e3, best[n]


@check(
    "eq:trust-region-step",
    "value",
    "F⁻¹g, scaled to the boundary of the region, has the largest first-order gain of all steps in the region.",
    of=trust_region.trust_region_step,
    against="steepest ascent in coordinates in which the trust region is a ball",
    wrong={
        "2 forgotten": lambda x, fx, *, max_kl: trust_region.trust_region_step(x, fx, max_kl=max_kl / 2),
        "square root forgotten": lambda x, fx, *, max_kl: 2 * max_kl / (x @ fx) * x,
        "Euclidean ball": lambda x, fx, *, max_kl: (2 * max_kl) ** 0.5 * x / x.norm(),
    },
)
def _(trust_region_step, draw: Draw) -> Iterator[Comparison]:
    half, g, max_kl = draw.normal(4, 4), draw.normal(4) + 2.0, float(draw.uniform(low=0.005, high=0.05))
    fisher = half @ half.T + 0.5 * torch.eye(4, dtype=torch.float64)
    direction = torch.linalg.solve(fisher, g)
    got = trust_region_step(direction, fisher @ direction, max_kl=max_kl)
    root = torch.linalg.cholesky(fisher)  # y = Lᵀx makes ½ xᵀFx = ½ ‖y‖²
    slope = torch.linalg.solve_triangular(root, g[:, None], upper=False)[:, 0]
    best = (2 * max_kl) ** 0.5 * slope / slope.norm()
    yield 100 * got, 100 * torch.linalg.solve_triangular(root.T, best[:, None], upper=True)[:, 0]
    yield 100 * trust_region.quadratic_kl(got, fisher @ got), 100 * max_kl


PENALTY_MISTAKES = {
    "too much KL lowers β": lambda beta, observed, *, target, **o: (
        beta**2 / trust_region.adaptive_penalty(beta, observed, target=target, **o)
    ),
    "no band: moves always": lambda beta, observed, *, target, **_: beta * (2.0 if observed > target else 0.5),
    "band not relative to the target": lambda beta, observed, *, target, **o: trust_region.adaptive_penalty(
        beta, observed, target=7.0, **o
    ),
}


@check(
    "eq:adaptive-penalty",
    "closed loop",
    "If the KL is proportional to 1/β, β changes in factors of two until the KL is within a factor 1.5 of its "
    "target, and then stays.",
    of=trust_region.adaptive_penalty,
    against="the power of two nearest to 1 that brings the KL into the band, by trying them all",
    wrong=PENALTY_MISTAKES,
)
def _(adaptive_penalty, draw: Draw) -> Iterator[Comparison]:
    target, first = float(draw.uniform(1, low=0.01, high=0.03)), float(draw.uniform(1, low=0.5, high=2.0))
    # The KL at the first β: several doublings or halvings away from the target, and never near an edge of the band.
    spent = (
        target * 2.0 ** (draw.integer(3, 6) * (2 * draw.integer(0, 1) - 1)) * float(draw.uniform(1, low=0.8, high=1.2))
    )
    inside = [m for m in range(-12, 13) if 1 / 1.5 <= spent / 2.0**m / target <= 1.5]
    settled = first * 2.0 ** min(inside, key=abs)
    beta = first
    for step in range(22):
        beta = adaptive_penalty(beta, spent * first / beta, target=target)
        if step >= 20:
            yield beta, settled


@check(
    "eq:adaptive-penalty",
    "band and factor",
    "β changes by the factor if the KL leaves the band on either side; if the KL is proportional to 1/β² it need "
    "not converge.",
    of=trust_region.adaptive_penalty,
    against="the rule at the edges of the band, and a sequence that jumps across the band for ever",
    wrong=PENALTY_MISTAKES,
)
def _(adaptive_penalty, draw: Draw) -> Iterator[Comparison]:
    beta, target = (float(draw.uniform(low=0.5, high=2.0)) for _ in range(2))
    for band, factor in ((1.2, 1.7), (2.5, 3.0)):
        step = lambda beta, observed, o={"band": band, "factor": factor}: adaptive_penalty(
            beta, observed, target=target, **o
        )
        for observed, expected in ((0.98, 1.0), (1.02, factor)):
            yield step(beta, observed * band * target), beta * expected
            yield step(beta, target / (observed * band)), beta / expected
        walk = [beta]
        for _ in range(4):  # at the first β the KL is too large by the factor, at the next too small by as much
            walk.append(step(walk[-1], factor * target * (beta / walk[-1]) ** 2))
        yield (
            torch.tensor(walk, dtype=torch.float64),
            beta * torch.tensor([1.0, factor, 1.0, factor, 1.0], dtype=torch.float64),
        )
