"""The ledger of chapter 13: GRPO's whole objective, and the laws by which lengths, entropy and the weights of prompts move."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from minirlhf.core import exact
from minirlhf.core.masking import zero_where_masked
from minirlhf.equations import advantages as adv
from minirlhf.equations import difficulty, kl
from minirlhf.equations import policy_losses as pg
from minirlhf.equations.aggregation import aggregate, sequence_mean, token_mean
from minirlhf.equations.aggregation import fixed_length as by_budget
from minirlhf_course.chapters.ch13_group_relative_methods import equations
from minirlhf_course.chapters.ch13_group_relative_methods.group_bias import StoppingPolicy, expected_step
from minirlhf_course.ledger.registry import Comparison, Draw, chain, check

# -- GRPO, all of it ---------------------------------------------------------------------------------------------


def grpo_objective(
    logps: Tensor,
    old_logps: Tensor,
    ref_logps: Tensor,
    rewards: Tensor,
    mask: Tensor,
    *,
    epsilon: float,
    beta: float,
    advantage: Callable[[Tensor], Tensor] = adv.group_zscore,
    weights: Callable[[Tensor], Tensor] = sequence_mean,
    objective: Callable[..., Tensor] = pg.ppo_clip,
    estimator: Callable[[Tensor, Tensor], Tensor] = kl.k3,
) -> Tensor:
    """What GRPO maximises, put together from the library's parts. Logps and mask ``(B, T)``, rewards ``(P, G)``."""
    advantages = adv.broadcast_to_tokens(advantage(rewards), mask)
    tokens = objective(logps, old_logps, advantages, mask, epsilon=epsilon)
    penalty = zero_where_masked(estimator(logps, ref_logps), mask)
    return aggregate(tokens - beta * penalty, weights(mask), mask)


def _rollout(draw: Draw) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Two groups of three completions of one to four tokens, NaN behind the mask; ratios on both sides of the clip and away from it."""
    mask = torch.arange(4)[None, :] < torch.tensor([2, 4, 1, 3, 4, 2])[draw.permutation(6)][:, None]
    ratios = draw.away_from([0.8, 1.2], 6, 4, low=0.4, high=2.0, margin=0.05)
    old, ref = draw.logps(6, 4), draw.logps(6, 4)
    behind = torch.where(mask, 0.0, torch.nan)
    rewards = torch.tensor([[1.0, 0.0, 0.0], [0.5, 2.0, 1.0]], dtype=torch.float64) + 0.1 * draw.normal(2, 3)
    return old + ratios.log() + behind, old + behind, ref + behind, rewards, mask


@check(
    "eq:grpo-objective",
    "value",
    "1/(PG) Σ_i 1/|y_i| Σ_t [min(ρA, clip(ρ)A) − β k3], on a ragged batch of two groups.",
    of=grpo_objective,
    against="the double sum over completions and tokens, in plain Python",
    follows="eq:grpo-advantage",
    wrong={
        "a mean over all tokens": lambda *x, **o: grpo_objective(*x, **o, weights=token_mean),
        "a constant divisor": lambda *x, **o: grpo_objective(
            *x, **o, weights=lambda mask: by_budget(mask, max_completion_length=4)
        ),
        "not divided by the deviation": lambda *x, **o: grpo_objective(*x, **o, advantage=adv.group_center),
        "nothing is clipped": lambda *x, epsilon, beta: grpo_objective(
            *x, epsilon=1e9, beta=beta, objective=lambda *y, epsilon: pg.importance_weighted(*y)
        ),
        "KL by k2": lambda *x, **o: grpo_objective(*x, **o, estimator=kl.k2),
        "log-ratio of the KL reversed": lambda *x, **o: grpo_objective(
            *x, **o, estimator=lambda logps, ref: kl.k3(ref, logps)
        ),
        "reference and old policy exchanged": lambda logps, old, ref, r, mask, **o: grpo_objective(
            logps, ref, old, r, mask, **o
        ),
    },
)
def _(objective, draw: Draw) -> Comparison:
    logps, old, ref, rewards, mask = _rollout(draw)
    epsilon, beta = 0.2, float(draw.uniform(low=0.05, high=0.5))
    got = objective(logps, old, ref, rewards, mask, epsilon=epsilon, beta=beta)
    total = 0.0
    for group, row in enumerate(rewards.tolist()):
        mean = sum(row) / len(row)
        deviation = math.sqrt(sum((r - mean) ** 2 for r in row) / (len(row) - 1))
        for member, reward in enumerate(row):
            i, length = group * len(row) + member, 0
            advantage, completion = (reward - mean) / (deviation + 1e-4), 0.0
            for t in range(4):
                if mask[i, t]:
                    length += 1
                    ratio = math.exp(float(logps[i, t] - old[i, t]))
                    clipped = min(max(ratio, 1 - epsilon), 1 + epsilon)
                    log_ref = float(ref[i, t] - logps[i, t])
                    completion += min(ratio * advantage, clipped * advantage) - beta * (math.exp(log_ref) - 1 - log_ref)
            total += completion / length
    return got, total / rewards.numel()


chain("grpo", "From GRPO's advantage to its objective", ["eq:grpo-advantage", "eq:grpo-objective"], module=__name__)

# -- lengths -----------------------------------------------------------------------------------------------------


@check(
    "eq:length-drift",
    "expected gradient",
    "With a mean per completion and rewards that do not depend on length, correct completions have the gradient "
    "p(1 − p)∇E[1/|y|], wrong ones minus it, both times (G − 1)/G.",
    of=expected_step,
    follows="eq:length-bias",
    against="P(class)·(advantage of the class)·the derivative of Σ P(length | class)/length, by finite differences",
    tolerance=1e-8,
    wrong={
        "sum over the tokens": lambda policy, **o: expected_step(policy, **o | {"per_token_mean": False}),
        "lengths pushed the other way": lambda policy, **o: -expected_step(policy, **o),
        "the own reward is no part of the mean": lambda policy, *, num_generations, **o: (
            expected_step(policy, num_generations=num_generations, **o) * num_generations / (num_generations - 1)
        ),
    },
)
def _(step, draw: Draw) -> Comparison:
    parameters, size, budget = draw.normal(3, scale=0.7), draw.integer(3, 9), 12
    rate = float(parameters[0].sigmoid())
    wanted = []
    for weight, logit in ((rate * (1 - rate), parameters[1]), (-(1 - rate) * rate, parameters[2])):

        def mean_inverse(x: Tensor) -> Tensor:  # a completion of n tokens went on n − 2 times, and then stopped
            on = x.sigmoid()
            inside = sum(on ** (n - 2) * (1 - on) / n for n in range(2, budget))
            return inside + on ** (budget - 2) / budget

        wanted.append(weight * exact.finite_difference(mean_inverse, logit[None])[0])
    got = step(StoppingPolicy(parameters, budget), per_token_mean=True, num_generations=size)
    return got[1:], torch.stack(wanted) * (size - 1) / size


chain(
    "length-drift",
    "What the mean per completion does to the lengths of right and wrong completions",
    ["eq:length-bias", "eq:length-drift"],
    module=__name__,
)

# -- group size against prompts per batch ------------------------------------------------------------------------


def _batch_variance(logits: Tensor, features: Tensor, rewards: Tensor, *, prompts: int, size: int) -> Tensor:
    """Variance of a batch's gradient, over all batches: prompts with equal probability, and all of their groups."""
    scores, chances = [], []
    for x in range(len(features)):
        logps = (features[x] @ logits).log_softmax(-1)
        chances.append(logps.exp())
        scores.append(features[x] - chances[-1] @ features[x])  # ∇ log π(a) for each a
    groups, probability = [], []
    for x in range(len(features)):
        for actions in itertools.product(range(features.shape[1]), repeat=size):
            r = rewards[x, list(actions)]
            advantage = r - (r.sum() - r) / (size - 1)
            groups.append((advantage[:, None] * scores[x][list(actions)]).mean(0))
            probability.append(chances[x][list(actions)].prod() / len(features))
    vectors, weights = torch.stack(groups), torch.stack(probability)
    for _ in range(prompts - 1):  # the mean over independent prompts
        vectors = (vectors[:, None] + torch.stack(groups)[None]).flatten(0, 1)
        weights = (weights[:, None] * torch.stack(probability)[None]).flatten()
    vectors = vectors / prompts
    mean = weights @ vectors
    return weights @ ((vectors - mean) ** 2).sum(-1)


@check(
    "eq:group-size",
    "value",
    "The variance between prompts is divided by P, the variance within prompts by P·G, for three prompts of "
    "three answers with shared parameters.",
    of=equations.group_gradient_variance,
    against="the variance over every batch of prompts and every group, enumerated",
    wrong={
        "prompts counted as completions": lambda v, s, w, *, num_prompts, num_generations: (
            equations.group_gradient_variance(
                v / num_generations, s, w, num_prompts=num_prompts, num_generations=num_generations
            )
        ),
        "the baseline is exact": lambda v, s, w, **o: equations.group_gradient_variance(v, s, 0 * w, **o),
        "the own reward is part of the mean": lambda v, s, w, *, num_prompts, num_generations: (
            equations.group_gradient_variance(v, s, w, num_prompts=num_prompts, num_generations=num_generations + 1)
        ),
        "all prompts alike": lambda v, s, w, **o: equations.group_gradient_variance(0 * v, s, w, **o),
    },
)
def _(variance, draw: Draw) -> Iterator[Comparison]:
    theta, features, rewards = draw.normal(4), draw.normal(3, 3, 4), draw.uniform(3, 3)
    gradients, own, baseline = [], [], []
    for x in range(3):
        chances = (features[x] @ theta).softmax(-1)
        scores = features[x] - chances @ features[x]
        gap = rewards[x] - chances @ rewards[x]
        gradients.append(chances @ (gap[:, None] * scores))
        square = (gradients[-1] ** 2).sum()
        own.append(chances @ ((gap**2) * (scores**2).sum(-1)) - square)
        baseline.append((chances @ gap**2) * (chances @ (scores**2).sum(-1)) + square)
    prompt_variance = (torch.stack(gradients) - torch.stack(gradients).mean(0)).pow(2).sum(-1).mean()
    parts = prompt_variance, torch.stack(own).mean(), torch.stack(baseline).mean()
    for prompts, size in ((1, 2), (2, 2), (1, 3)):
        exact_value = _batch_variance(theta, features, rewards, prompts=prompts, size=size)
        yield variance(*parts, num_prompts=prompts, num_generations=size), exact_value


@check(
    "eq:best-group-size",
    "minimum",
    "G·V + S + W/(G − 1) is smallest at 1 + √(W/V).",
    of=equations.best_group_size,
    follows="eq:group-size",
    against="the group size at which the variance begins to rise for fixed P·G, by bisection",
    tolerance=1e-6,
    wrong={
        "one less": lambda v, w: equations.best_group_size(v, w) - 1,
        "no root": lambda v, w: 1 + w / v,
        "the ratio reversed": lambda v, w: equations.best_group_size(w, v),
    },
)
def _(best, draw: Draw) -> Comparison:
    v, s, w = (draw.uniform(1, low=low, high=high) for low, high in ((0.1, 0.3), (0.5, 2.0), (2.0, 9.0)))

    def cost(size: Tensor) -> Tensor:
        return size * v + s + w / (size - 1)

    low, high = torch.full((1,), 1.5, dtype=torch.float64), torch.full((1,), 15.0, dtype=torch.float64)
    for _ in range(45):
        middle = (low + high) / 2
        rises = cost(middle + 1e-4) > cost(middle - 1e-4)
        low, high = torch.where(rises, low, middle), torch.where(rises, middle, high)
    return best(v, w), low


chain(
    "group-size",
    "From the variance of a batch to the group size",
    ["eq:group-size", "eq:best-group-size"],
    module=__name__,
)

# -- entropy -----------------------------------------------------------------------------------------------------


@check(
    "eq:entropy-covariance",
    "derivative",
    "The derivative of H(θ + η ∇E_π[A]) at η = 0 is −Cov_π(log π, π A), if A has mean 0 under π.",
    of=equations.entropy_rate,
    against="derivative of the entropy along one policy-gradient step, by automatic differentiation",
    wrong={
        "sign": lambda logits, a: -equations.entropy_rate(logits, a),
        "covariance with A, not π A": lambda logits, a: equations.entropy_rate(logits, a / logits.softmax(-1)),
        "mean over the choices, not under π": lambda logits, a: (
            -((logits.log_softmax(-1) - logits.log_softmax(-1).mean(-1, keepdim=True)) * logits.softmax(-1) * a).mean(
                -1
            )
        ),
    },
)
def _(rate, draw: Draw) -> Comparison:
    logits, advantages = draw.normal(3, 5), draw.normal(3, 5)
    advantages = advantages - (logits.softmax(-1) * advantages).sum(-1, keepdim=True)
    theta = logits.clone().requires_grad_()
    (step,) = torch.autograd.grad((theta.softmax(-1) * advantages).sum(), theta)
    eta = torch.zeros(3, 1, dtype=torch.float64, requires_grad=True)
    moved = (logits + eta * step).log_softmax(-1)
    (slope,) = torch.autograd.grad(-(moved.exp() * moved).sum(), eta)
    return rate(logits, advantages), slope[:, 0]


# -- BNPO --------------------------------------------------------------------------------------------------------


def _integral(f: Callable[[Tensor], Tensor], points: int = 4000) -> float:
    """∫₀¹ f(p) dp by the midpoint rule in the logit's tangent: p = (1 + tanh(sinh(x)))/2, whose ends decay doubly fast."""
    x = torch.linspace(-4.0, 4.0, points, dtype=torch.float64)
    p = (1 + torch.tanh(torch.sinh(x))) / 2
    weight = 0.5 * torch.cosh(x) / torch.cosh(torch.sinh(x)) ** 2 * (x[1] - x[0])
    inside = (p > 0) & (p < 1)
    return float((f(p[inside]) * weight[inside]).sum())


@check(
    "eq:bnpo-variance",
    "value",
    "∫ p(1 − p) Beta(p; a, b)/Beta(p; u, v)² dp is a ratio of Beta functions.",
    of=equations.bnpo_variance,
    against="the integral, by quadrature",
    tolerance=1e-7,
    wrong={
        "B(u, v) once": lambda a, b, *, shape: (
            equations.bnpo_variance(a, b, shape=shape)
            / math.exp(math.lgamma(shape[0]) + math.lgamma(shape[1]) - math.lgamma(sum(shape)))
        ),
        "variance of a reward forgotten": lambda a, b, *, shape: equations.bnpo_variance(
            a - 1, b - 1, shape=(shape[0] - 0.5, shape[1] - 0.5)
        ),
        "a and b exchanged": lambda a, b, *, shape: equations.bnpo_variance(b, a, shape=shape),
    },
)
def _(variance, draw: Draw) -> Iterator[Comparison]:
    def density(p: Tensor, x: float, y: float) -> Tensor:
        return torch.distributions.Beta(torch.tensor(x).double(), torch.tensor(y).double()).log_prob(p).exp()

    for _ in range(2):
        a, b = float(draw.uniform(low=2.0, high=2.6)), float(draw.uniform(low=3.0, high=4.0))
        u, v = float(draw.uniform(low=1.2, high=1.6)), float(draw.uniform(low=1.7, high=2.2))

        def integrand(p: Tensor, a: float = a, b: float = b, u: float = u, v: float = v) -> Tensor:
            return p * (1 - p) * density(p, a, b) / density(p, u, v) ** 2

        yield variance(a, b, shape=(u, v)), _integral(integrand)


@check(
    "eq:bnpo-shape",
    "minimum",
    "No shape near (1 + a/3, 1 + b/3) has a smaller variance: a minimum, since the logarithm of a Beta function "
    "is convex.",
    of=difficulty.bnpo_shape,
    against="the variance at shapes around it is larger",
    wrong={
        "the fitted Beta itself": lambda rates: tuple(3 * (x - 1) for x in difficulty.bnpo_shape(rates)),
        "GRPO's shape": lambda rates: (1.5, 1.5),
        "no normalisation": lambda rates: (1.0, 1.0),
    },
)
def _(shape_of, draw: Draw) -> Comparison:
    a, b = float(draw.uniform(low=1.8, high=2.5)), float(draw.uniform(low=3.0, high=4.0))
    mean, spread = a / (a + b), math.sqrt(a * b / ((a + b) ** 2 * (a + b + 1)) / 2)
    u, v = shape_of(torch.tensor([mean - spread, mean + spread], dtype=torch.float64))
    here = equations.bnpo_variance(a, b, shape=(u, v))
    angles = torch.arange(12) * math.pi / 6
    around = [
        equations.bnpo_variance(a, b, shape=(u + 0.05 * math.cos(x), v + 0.05 * math.sin(x))) for x in angles.tolist()
    ]
    return float(sum(other < here for other in around)) + (not math.isfinite(here)), 0.0
