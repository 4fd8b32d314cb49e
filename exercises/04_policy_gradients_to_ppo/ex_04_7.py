# ---
# title: TRPO's step
# kind: implement
# minutes: 40
# ---

# %% [statement]
# Write TRPO's step for a softmax policy with linear logits. In $M$ states, `features` of shape `(M, A, D)` hold a vector $\phi(s,a)$ for each of $A$ actions, and $\pi(a\mid s) \propto e^{\phi(s,a)^{\mathsf T}\theta}$ with `theta` of shape `(D,)`. All vectors below are `(D,)`.
#
# 1. `fisher_product(features, theta, vector, damping)`: $(F + \lambda I)\,v$ with $\lambda$ = `damping` and the Fisher matrix $F = \frac1M\sum_s\sum_a\pi(a\mid s)\,\nabla\log\pi(a\mid s)\,\nabla\log\pi(a\mid s)^{\mathsf T}$. The mean is over the states, and the expectation is over *all* actions, with the policy's
#    probabilities. (The chapter shows that it is also the Hessian of the mean KL, in the old policy's direction.)
# 2. `conjugate_gradient(product, b, iterations)`: solve $Kx = b$ by the chapter's conjugate gradients, from $x = 0$, where the function `product(v)` gives $Kv$ for a symmetric positive definite matrix that you do not see. Call it once per iteration, so at most `iterations` times. Stop before the next call
#    as soon as $q^{\mathsf T}q \le 10^{-20}\,b^{\mathsf T}b$. This holds immediately if $b = 0$, and then $x = 0$. The result is never NaN, however many iterations are allowed.
# 3. `natural_step(features, theta, actions, advantages, max_kl, damping)`: in each state one action was sampled by the policy: `actions`, `(M,)` integers, with `advantages`, `(M,)`. Let $g$ be the gradient at $\theta$ of the surrogate, the mean of $\rho A$ over the $M$ samples, and $u = (F + \lambda I)^{-1}g$. Return the step
#    of the chapter's trust region along $u$, with $\kappa$ = `max_kl` and with $F + \lambda I$ instead of $F$, as implementations do. If $g$ is 0, the step is 0.
# 4. `line_search(theta, step, measure, max_kl, max_halvings)`: `measure(new_theta)` returns two numbers, the gain of the surrogate and the KL. Try `theta + step`, then half of the step, a quarter, and so on, with at most `max_halvings` halvings (so 0 means one try). Return the first parameters whose
#    gain is above 0 and whose KL is at most `max_kl`, and stop measuring. If no try satisfies both, return `theta` itself. A gain or KL that is NaN satisfies nothing.

# %% [given]
import torch


# %% [stub]
def fisher_product(features, theta, vector, damping):
    """features: (M, A, D). theta, vector: (D,). damping: a number. Returns (D,)."""
    raise NotImplementedError


def conjugate_gradient(product, b, iterations):
    """product: a function (D,) -> (D,). b: (D,). iterations: an integer ≥ 1. Returns (D,)."""
    raise NotImplementedError


def natural_step(features, theta, actions, advantages, max_kl, damping):
    """features: (M, A, D). theta: (D,). actions, advantages: (M,). Returns (D,)."""
    raise NotImplementedError


def line_search(theta, step, measure, max_kl, max_halvings):
    """theta, step: (D,). measure: a function (D,) -> (gain, KL). Returns (D,)."""
    raise NotImplementedError


# %% [solution]
def _centred(features, theta):
    """The scores ∇log π(a|s), (M, A, D), and the probabilities, (M, A)."""
    probs = (features @ theta).softmax(-1)
    return features - (probs[..., None] * features).sum(1, keepdim=True), probs


def fisher_product(features, theta, vector, damping):
    scores, probs = _centred(features, theta)
    weighted = probs * (scores @ vector)  # (M, A)
    return (weighted[..., None] * scores).sum(1).mean(0) + damping * vector


def conjugate_gradient(product, b, iterations):
    x, residual, direction = torch.zeros_like(b), b, b
    squared = residual @ residual
    threshold = 1e-20 * squared
    for _ in range(iterations):
        if squared <= threshold:
            break
        image = product(direction)
        size = squared / (direction @ image)
        x, residual = x + size * direction, residual - size * image
        before, squared = squared, residual @ residual
        direction = residual + squared / before * direction
    return x


def natural_step(features, theta, actions, advantages, max_kl, damping):
    scores, _ = _centred(features, theta)
    own = scores[torch.arange(len(actions)), actions]  # (M, D)
    gradient = (advantages[:, None] * own).mean(0)
    if not gradient.any():
        return torch.zeros_like(theta)
    product = lambda v: fisher_product(features, theta, v, damping)
    direction = conjugate_gradient(product, gradient, 10 * len(theta))
    return torch.sqrt(2 * max_kl / (direction @ product(direction))) * direction


def line_search(theta, step, measure, max_kl, max_halvings):
    for halvings in range(max_halvings + 1):
        new = theta + 0.5**halvings * step
        gain, kl = measure(new)
        if gain > 0 and kl <= max_kl:
            return new
    return theta


# %% [tests]
import math

import torch

from minirlhf_course.classroom.testing import expect, fail, test, tidy


def policy(draw, states=4, actions=5, size=3):
    features = tidy(draw.normal(states, actions, size))
    return features, tidy(draw.normal(size), 2)


def mean_kl(features, old, new):
    """Mean KL(π_old‖π_new) over the states."""
    a, b = (features @ old).log_softmax(-1), (features @ new).log_softmax(-1)
    return (a.exp() * (a - b)).sum(-1).mean()


def fisher(features, theta):
    """The Fisher matrix as the Hessian of the KL, by autograd."""
    return torch.autograd.functional.hessian(lambda new: mean_kl(features, theta, new), theta.clone())


def surrogate(features, theta, new, actions, advantages):
    log_ratio = (features @ new).log_softmax(-1) - (features @ theta).log_softmax(-1)
    return (log_ratio[torch.arange(len(actions)), actions].exp() * advantages).mean()


@test(
    points=2,
    against="the Hessian of the KL, by autograd",
    hints=(
        "∇log π(a|s) is φ(s,a) minus something. What is its mean under the policy?",
        "∇log π(a|s) = φ(s,a) − Σ π(a'|s) φ(s,a'). Multiply each by its product with v and by π(a|s), sum over the actions, take the mean over the states, and add damping times v.",
    ),
)
def products(sub, draw):
    "`fisher_product` is the damped Fisher matrix times a vector."
    features, theta = policy(draw)
    vector, damping = tidy(draw.normal(3)), [0.2, 0.5][draw.integer(0, 1)]
    matrix, states = fisher(features, theta), len(features)
    probs = (features @ theta).softmax(-1)
    mean = (probs[..., None] * features).sum(1, keepdim=True)
    second = torch.einsum("sa,sai,saj->ij", probs, features, features) / states
    uniform = features - features.mean(1, keepdim=True)
    flat = torch.einsum("sai,saj->ij", uniform, uniform) / (states * features.shape[1])
    unweighted = torch.einsum("sai,saj->ij", features - mean, features - mean) / states
    want = matrix @ vector + damping * vector
    expect(
        sub.fisher_product(features, theta, vector, damping),
        want,
        what="the product",
        given={"features": features, "theta": theta, "vector": vector, "damping": damping},
        mistakes={
            "damping is left out": matrix @ vector,
            "damping also multiplies F": (1 + damping) * matrix @ vector,
            "damping is added to each entry of the product": matrix @ vector + damping,
            "the states are summed; expected their mean": states * matrix @ vector + damping * vector,
            "φ is not centred: this is the mean of φ φᵀ": second @ vector + damping * vector,
            "all actions have the same weight, independent of their probability": flat @ vector + damping * vector,
            "the scores are not weighted by the probabilities": unweighted @ vector + damping * vector,
        },
        tolerance=1e-6,
    )


class Product:
    """The function v -> Kv, which counts its calls."""

    def __init__(self, matrix):
        self.matrix, self.calls = matrix, 0

    def __call__(self, v):
        self.calls += 1
        return self.matrix @ v


class Measure:
    """The function that returns gain and KL of each try, the same for all tries after the last; it stores the parameters."""

    def __init__(self, answers):
        self.answers, self.tries = answers, []

    def __call__(self, new):
        self.tries.append(torch.as_tensor(new, dtype=torch.float64))
        return self.answers[min(len(self.tries), len(self.answers)) - 1]


def first(answers, condition):
    """Return the index of the first try whose gain and KL satisfy the condition; None if there is none."""
    return next((i for i, (gain, kl) in enumerate(answers) if condition(gain, kl)), None)


def spd(draw, size):
    """Return a symmetric positive definite matrix, not too far from the identity, with different eigenvalues."""
    basis = torch.linalg.qr(draw.normal(size, size)).Q
    values = torch.tensor([0.5 + 0.7 * i for i in range(size)], dtype=torch.float64)
    return basis @ torch.diag(values) @ basis.T


def best_in_krylov(matrix, b, iterations):
    """Return the minimiser of ½xᵀKx − bᵀx among all combinations of b, Kb, K²b, …, which conjugate gradients reach."""
    powers = [b]
    for _ in range(iterations - 1):
        powers.append(matrix @ powers[-1])
    basis = torch.linalg.qr(torch.stack(powers, 1)).Q
    return basis @ torch.linalg.solve(basis.T @ matrix @ basis, basis.T @ b)


def steepest(matrix, b, iterations):
    """Return steepest descent: each direction is the residual."""
    x = torch.zeros_like(b)
    for _ in range(iterations):
        residual = b - matrix @ x
        x = x + (residual @ residual) / (residual @ matrix @ residual) * residual
    return x


@test(
    points=2,
    against="the best point in the Krylov space, by a linear solve",
    hints=(
        "Follow the chapter's example by hand: F = diag(1, 4), g = (1, 1). What are x, q and p after one iteration?",
        "Store qᵀq of the old residual until you have the new one. The new direction is q' plus (q'ᵀq')/(qᵀq) times the old direction.",
    ),
)
def solves(sub, draw):
    "`conjugate_gradient` after a few iterations, and after all iterations."
    size = draw.integer(4, 5)
    matrix, b = spd(draw, size), tidy(draw.normal(size)) + 0.05
    for iterations in (2, 3, size):
        product = Product(matrix)
        got = sub.aside.conjugate_gradient(product, b, iterations)
        expect(
            got,
            best_in_krylov(matrix, b, iterations),
            what=f"x after {iterations} iterations",
            given={"K": matrix, "b": b},
            mistakes={
                "each direction is the residual: that is steepest descent": steepest(matrix, b, iterations),
                "one iteration too few is made": best_in_krylov(matrix, b, iterations - 1),
                "the sign is wrong": -best_in_krylov(matrix, b, iterations),
                **({"one iteration too many is made": best_in_krylov(matrix, b, iterations + 1)} if iterations < size else {}),
                "this is the residual": b - matrix @ best_in_krylov(matrix, b, iterations),
                "the last system is solved exactly, and the iterations are ignored": torch.linalg.solve(matrix, b),
            },
            tolerance=1e-6,
        )  # fmt: skip
        if product.calls > iterations:
            fail(f"`product` was called {product.calls} times in {iterations} iterations; expected one call in each")


@test(
    points=1,
    hints=(
        "After D iterations the residual is nearly 0. What is qᵀq/pᵀKp one iteration later?",
        "Compare qᵀq with 10⁻²⁰ bᵀb before you compute the next product, and stop there. For b = 0 both are 0.",
    ),
)
def stops(sub, draw):
    "`conjugate_gradient` stops when the residual is 0."
    size = draw.integer(3, 4)
    matrix, b = torch.diag(torch.tensor([2.0] * size, dtype=torch.float64)), tidy(draw.normal(size)) + 0.05
    zero = torch.zeros(size, dtype=torch.float64)
    for right, allowed, most in ((b, 50, 2), (zero, 5, 0), (1e-9 * b, 50, 2)):
        product = Product(matrix)
        got = sub.aside.conjugate_gradient(product, right, allowed)
        scale = float(right.abs().max()) or 1.0
        expect(
            got / scale,
            right / 2 / scale,
            what="x, in units of the largest entry of b,",
            given={"K": "twice the identity matrix", "b": right},
            tolerance=1e-6,
        )
        if product.calls > most:
            fail(
                f"`product` was called {product.calls} times; expected at most {most}, because the residual is 0 then",
                b=right,
            )
    hard, c = spd(draw, size), tidy(draw.normal(size)) + 0.05
    near = torch.diag(torch.tensor([1.0, 1.000018], dtype=torch.float64))  # after one iteration qᵀq is 10⁻¹⁰ bᵀb
    for matrix, right in ((hard, c), (hard, 1e-9 * c), (near, torch.ones(2, dtype=torch.float64))):
        expect(
            sub.aside.conjugate_gradient(lambda v, matrix=matrix: matrix @ v, right, 200) / right.abs().max(),
            torch.linalg.solve(matrix, right) / right.abs().max(),
            what="x after at most 200 iterations, in units of the largest entry of b,",
            given={"K": matrix, "b": right},
            tolerance=1e-6,
        )


@test(
    points=3,
    against="the solution of the linear system, with the Hessian and the gradient by autograd",
    hints=(
        "For which multiple of u = (F + λI)⁻¹g is the quadratic KL ½xᵀ(F + λI)x exactly κ?",
        "g is the mean of A ∇log π(a|s) over the samples, because ρ = 1 at θ. Then x = √(2κ/uᵀ(F + λI)u) u. Treat g = 0 separately.",
    ),
)
def along_the_natural_gradient(sub, draw):
    "`natural_step` is the longest step along the natural gradient in the trust region."
    for states, size in ((4, 3), (7, 6)):
        _along_the_natural_gradient(sub, draw, *policy(draw, states=states, size=size))


def _along_the_natural_gradient(sub, draw, features, theta):
    states, size = len(features), len(theta)
    actions = torch.tensor([0, 2, 4, *(draw.integer(0, 4) for _ in range(states - 3))])[draw.permutation(states)]
    advantages = tidy(draw.away_from([0.0], states, low=-2.0, high=2.0, margin=0.3)) + 0.05 * torch.arange(states)
    max_kl, damping = [0.01, 0.03][draw.integer(0, 1)], [0.1, 0.3][draw.integer(0, 1)]
    matrix = fisher(features, theta)
    damped = matrix + damping * torch.eye(size, dtype=torch.float64)
    new = theta.clone().requires_grad_()
    (g,) = torch.autograd.grad(surrogate(features, theta, new, actions, advantages), new)
    u = torch.linalg.solve(damped, g)
    want = (2 * max_kl / (u @ damped @ u)).sqrt() * u
    own = features[torch.arange(states), actions]
    raw = torch.linalg.solve(damped, (advantages[:, None] * own).mean(0))
    free = torch.linalg.solve(matrix, g)
    expect(
        sub.natural_step(features, theta, actions, advantages, max_kl, damping),
        want,
        what="the step",
        given={"features": features, "theta": theta, "actions": actions, "advantages": advantages, "max_kl": max_kl, "damping": damping},
        mistakes={
            "the step follows the plain gradient": (2 * max_kl / (g @ damped @ g)).sqrt() * g,
            "the 2 is missing: the step has half of the KL": want / math.sqrt(2),
            "the square root is missing": 2 * max_kl / (u @ damped @ u) * u,
            "the length uses κ in the parameters, and not in the KL": (2 * max_kl / (u @ u)).sqrt() * u,
            "the step is u itself, and κ is ignored": u,
            "damping is left out of the solution": (2 * max_kl / (free @ matrix @ free)).sqrt() * free,
            "damping is left out of the length": (2 * max_kl / (u @ matrix @ u)).sqrt() * u,
            "the step descends": -want,
            "the gradient of log π is φ(s,a), without the mean over the actions": (2 * max_kl / (raw @ damped @ raw)).sqrt() * raw,
            "the length uses g, and not u": (2 * max_kl / (g @ u)) * u,
        },
        tolerance=1e-5,
    )  # fmt: skip
    expect(
        sub.aside.natural_step(features, theta, actions, 0 * advantages, max_kl, damping),
        torch.zeros(size),
        what="the step if all advantages are 0",
    )


@test(
    points=2,
    hints=(
        "When does the search end, and what does it return then? What if no try is accepted?",
        "Try step, step/2, step/4, … At the first try with gain > 0 and KL ≤ max_kl return theta plus this part of the step. Comparisons with NaN are False.",
    ),
)
def searches(sub, draw):
    "`line_search` returns the first try that gains within the KL."
    size = draw.integer(2, 6)
    theta, step = tidy(draw.normal(size)), tidy(draw.normal(size)) + 0.05
    max_kl = round(float(draw.uniform(low=0.012, high=0.025)), 3)
    nan, over, under = math.nan, 1.5 * max_kl, 0.5 * max_kl
    cases = {
        "the first try": ([(0.1, under), (0.2, under)], 3, 0),
        "a KL of exactly the limit": ([(0.1, max_kl), (0.2, under)], 3, 0),
        "a KL too large, then a gain of 0, then both": ([(0.3, over), (0.0, under), (0.1, under), (0.2, under)], 5, 2),
        "a gain below 0 first": ([(-0.2, under), (0.1, under)], 3, 1),
        "NaN first": ([(nan, under), (0.1, nan), (0.05, under)], 4, 2),
        "the last try": ([(0.3, over), (0.2, over), (0.1, under)], 2, 2),
        "a single try that fails": ([(0.3, over), (0.1, under)], 0, None),
        "no try within the KL": ([(0.3, over)] * 8, 3, None),
        "a KL half a per cent above the limit first": ([(0.1, 1.005 * max_kl), (0.05, under)], 3, 1),
        "many halvings": ([(0.3, over)] * 15 + [(0.1, under)], 20, 15),
    }
    for what, (answers, max_halvings, right) in cases.items():
        measure = Measure(answers)
        got = sub.aside.line_search(theta, step, measure, max_kl, max_halvings)
        points = [theta + step / 2**count for count in range(max_halvings + 1)]
        place = lambda count, points=points: theta if count is None else points[count]
        within = [answers[min(i, len(answers) - 1)] for i in range(max_halvings + 1)]
        mistakes = {
            "it is the step; expected the parameters": place(right) - theta,
            "the whole step is used, although it was not accepted": points[0],
            "the last try is returned, although it was not accepted": points[-1],
            "the parameters do not change": theta,
            "the KL is ignored": place(first(within, lambda gain, kl: gain > 0)),
            "the gain is ignored": place(first(within, lambda gain, kl: kl <= max_kl)),
            "a gain of 0 is accepted": place(first(within, lambda gain, kl: gain >= 0 and kl <= max_kl)),
            "a KL of exactly the limit is refused": place(first(within, lambda gain, kl: gain > 0 and kl < max_kl)),
        }
        if what == "NaN first":
            mistakes = {"a gain of NaN is accepted": points[0], "a KL of NaN is accepted": points[1]}
        expect(
            got,
            place(right),
            what=f"the parameters ({what})",
            given={
                "theta": theta,
                "step": step,
                "gain and KL": answers,
                "max_kl": max_kl,
                "max_halvings": max_halvings,
            },
            mistakes={say: value for say, value in mistakes.items() if not torch.equal(value, place(right))},
            tolerance=1e-9,
        )
        tries = max_halvings + 1 if right is None else right + 1
        if len(measure.tries) != tries:
            fail(f"{what}: `measure` was called {len(measure.tries)} times; expected {tries}")
        for count, (new, point) in enumerate(zip(measure.tries, points, strict=False), 1):
            expect(
                new, point, what=f"the parameters of try {count}", given={"theta": theta, "step": step}, tolerance=1e-9
            )


# %% [edges]
# stops: however many iterations are allowed
# stops: as soon as $q^{\mathsf T}q \le 10^{-20}\,b^{\mathsf T}b$
# stops: if $b = 0$, and then $x = 0$
# along_the_natural_gradient: If $g$ is 0, the step is 0
# searches: so 0 means one try
# searches: A gain or KL that is NaN satisfies nothing


# %% [shared]
# 0.5: half of a step, as in the statement


# %% [probes]
# no offset of fisher_product, natural_step: the covariance may be taken as a mean of squares less a square
# no ties of natural_step.features: equal features have no direction
# no gradient: steps are computed, and nothing is learned through them


# %% [mutant] not centred
# caught by: products
# says: not centred
def fisher_product(features, theta, vector, damping):
    probs = (features @ theta).softmax(-1)
    weighted = probs * (features @ vector)
    return (weighted[..., None] * features).sum(1).mean(0) + damping * vector


# %% [mutant] the sum over states
# caught by: products
# says: expected their mean
def fisher_product(features, theta, vector, damping):
    scores, probs = _centred(features, theta)
    return ((probs * (scores @ vector))[..., None] * scores).sum((0, 1)) + damping * vector


# %% [mutant] steepest descent
# caught by: solves
# says: steepest descent
def conjugate_gradient(product, b, iterations):
    x, residual = torch.zeros_like(b), b
    for _ in range(iterations):
        if residual @ residual <= 1e-20 * (b @ b):
            break
        image = product(residual)
        size = (residual @ residual) / (residual @ image)
        x, residual = x + size * residual, residual - size * image
    return x


# %% [mutant] it never stops
# caught by: stops
def conjugate_gradient(product, b, iterations):
    x, residual, direction = torch.zeros_like(b), b, b
    for _ in range(iterations):
        image, squared = product(direction), residual @ residual
        size = squared / (direction @ image)
        x, residual = x + size * direction, residual - size * image
        direction = residual + (residual @ residual) / squared * direction
    return x


# %% [mutant] the plain gradient
# caught by: along_the_natural_gradient
# says: follows the plain gradient
def natural_step(features, theta, actions, advantages, max_kl, damping):
    scores, _ = _centred(features, theta)
    gradient = (advantages[:, None] * scores[torch.arange(len(actions)), actions]).mean(0)
    if not gradient.any():
        return torch.zeros_like(theta)
    return torch.sqrt(2 * max_kl / (gradient @ fisher_product(features, theta, gradient, damping))) * gradient


# %% [mutant] the 2 is missing
# caught by: along_the_natural_gradient
# says: the 2 is missing
def natural_step(features, theta, actions, advantages, max_kl, damping):
    scores, _ = _centred(features, theta)
    gradient = (advantages[:, None] * scores[torch.arange(len(actions)), actions]).mean(0)
    if not gradient.any():
        return torch.zeros_like(theta)
    direction = conjugate_gradient(lambda v: fisher_product(features, theta, v, damping), gradient, 30)
    return torch.sqrt(max_kl / (direction @ fisher_product(features, theta, direction, damping))) * direction


# %% [mutant] NaN without advantages
# caught by: along_the_natural_gradient
def natural_step(features, theta, actions, advantages, max_kl, damping):
    scores, _ = _centred(features, theta)
    gradient = (advantages[:, None] * scores[torch.arange(len(actions)), actions]).mean(0)
    direction = conjugate_gradient(lambda v: fisher_product(features, theta, v, damping), gradient, 30)
    return torch.sqrt(2 * max_kl / (direction @ fisher_product(features, theta, direction, damping))) * direction


# %% [mutant] the last try is always returned
# caught by: searches
# says: although it was not accepted
def line_search(theta, step, measure, max_kl, max_halvings):
    for halvings in range(max_halvings + 1):
        new = theta + 0.5**halvings * step
        gain, kl = measure(new)
        if gain > 0 and kl <= max_kl:
            break
    return new


# %% [mutant] the gain is ignored
# caught by: searches
# says: the gain is ignored
def line_search(theta, step, measure, max_kl, max_halvings):
    for halvings in range(max_halvings + 1):
        new = theta + 0.5**halvings * step
        if measure(new)[1] <= max_kl:
            return new
    return theta


# %% [partial] 5: direction and length not begun
def natural_step(features, theta, actions, advantages, max_kl, damping):
    raise NotImplementedError


def line_search(theta, step, measure, max_kl, max_halvings):
    raise NotImplementedError


# %% [partial] 8: no line search
def line_search(theta, step, measure, max_kl, max_halvings):
    return theta + step
