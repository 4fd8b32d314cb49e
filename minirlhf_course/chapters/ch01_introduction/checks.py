"""The ledger of chapter 01: what examples, rewards, comparisons and judgements teach, and what merging does."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from minirlhf.core import exact
from minirlhf.equations import merging
from minirlhf_course.chapters.ch01_introduction import equations
from minirlhf_course.ledger.inputs.processes import endless, jacobian
from minirlhf_course.ledger.registry import Comparison, Draw, chain, check

chain(
    "learning-signals",
    "From the derivative of a softmax to the gradients of imitation and of reward",
    ["eq:softmax-derivative", "eq:imitation-push", "eq:reward-push"],
    module=__name__,
)


def _softmax(logits: Tensor) -> Tensor:
    return logits.exp() / logits.exp().sum(-1, keepdim=True)


@check(
    "eq:softmax-derivative",
    "value",
    "Raising one logit raises its own probability and lowers all other probabilities.",
    of=equations.softmax_derivative,
    against="finite differences of e^z / Σ e^z",
    wrong={
        "as if every logit moved its own probability only": lambda z: torch.diag_embed(
            z.softmax(-1) * (1 - z.softmax(-1))
        ),
        "the cross term has the wrong sign": lambda z: (
            torch.diag_embed(z.softmax(-1)) + z.softmax(-1)[:, None] * z.softmax(-1)
        ),
        "derivative of the logarithm": lambda z: torch.eye(len(z)) - z.softmax(-1).expand(len(z), len(z)),
    },
    tolerance=1e-8,
)
def _(derivative, draw: Draw) -> Comparison:
    logits = draw.normal(4)

    def row(v: int) -> Tensor:
        return exact.finite_difference(lambda z: _softmax(z)[v], logits)

    return derivative(logits), torch.stack([row(v) for v in range(4)])


@check(
    "eq:imitation-push",
    "gradient",
    "∂ log π(y)/∂z = (∂π(y)/∂z) / π(y): the logit of the demonstrated reply increases by 1 − π(y), every other "
    "logit decreases by its probability.",
    of=equations.imitation_logit_gradient,
    against="the derivatives of the probabilities, divided by that of the example",
    wrong={
        "only the example is moved": lambda z, y: torch.nn.functional.one_hot(y, z.shape[-1]).to(z.dtype),
        "all others are pushed down alike": lambda z, y: (
            torch.nn.functional.one_hot(y, z.shape[-1]) - 1.0 / z.shape[-1]
        ).to(z.dtype),
        "sign reversed: the gradient of the loss, not the push": lambda z, y: -equations.imitation_logit_gradient(z, y),
    },
    tolerance=1e-8,
    follows="eq:softmax-derivative",
)
def _(push, draw: Draw) -> Iterator[Comparison]:
    logits, y = draw.normal(4), draw.integer(0, 3)
    got = push(logits, torch.tensor(y))
    yield got, equations.softmax_derivative(logits)[y] / _softmax(logits)[y]
    yield got, exact.finite_difference(lambda z: _softmax(z)[y].log(), logits)


@check(
    "eq:reward-push",
    "gradient",
    "The gradient of the expected reward is the expectation, under the policy, of reward times the imitation "
    "gradient of the sample.",
    of=equations.reward_logit_gradient,
    against=(
        "finite differences of Σ π r, and the imitation gradients of all replies, weighted by probability and reward"
    ),
    wrong={
        "the average is not taken off": lambda z, r: z.softmax(-1) * r,
        "every reply counts alike, however rare": lambda z, r: r - (z.softmax(-1) * r).sum(-1, keepdim=True),
        "compared with the plain mean of the rewards": lambda z, r: z.softmax(-1) * (r - r.mean(-1, keepdim=True)),
    },
    tolerance=1e-8,
    follows="eq:imitation-push",
)
def _(push, draw: Draw) -> Iterator[Comparison]:
    logits = draw.permutation(4) * 0.6 + draw.uniform(4, high=0.3)
    rewards = draw.permutation(4) * 1.0 + draw.uniform(4, low=0.5, high=0.8)
    got = push(logits, rewards)
    samples = torch.stack([equations.imitation_logit_gradient(logits, torch.tensor(y)) for y in range(4)])  # (V, V)
    yield got, (_softmax(logits) * rewards) @ samples
    yield got, exact.finite_difference(lambda z: (_softmax(z) * rewards).sum(), logits)


@check(
    "eq:compounding-mistakes",
    "value",
    "In a state of the expert the clone makes a mistake with probability ε and leaves the expert's states; "
    "outside them it always makes mistakes.",
    of=equations.compounding_mistakes,
    against="a Markov chain of two states (on the expert's path, off it), pushed forward step by step",
    wrong={
        "mistakes do not compound": lambda error, *, steps: error * steps,
        "the quadratic approximation": lambda error, *, steps: error * steps**2 / 2,
        "the first step cannot fail": lambda error, *, steps: (
            equations.compounding_mistakes(error, steps=steps) - (1 - (1 - error) ** steps)
        ),
    },
)
def _(mistakes, draw: Draw) -> Comparison:
    error, steps = draw.uniform(3, low=0.05, high=0.3), draw.integer(4, 9)
    on, total = torch.ones(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
    for _ in range(steps):
        total = total + on * error + (1 - on)
        on = on * (1 - error)
    return mistakes(error, steps=steps), total


def _gumbel(x: Tensor) -> Tensor:
    return (-x - (-x).exp()).exp()


@check(
    "eq:trajectory-preference",
    "value",
    "The probability that a judge who perceives each trajectory's return plus Gumbel noise prefers trajectory a.",
    of=equations.trajectory_preference,
    against="the probability that one noisy return exceeds the other, by quadrature",
    wrong={
        "means instead of sums": lambda a, b: torch.sigmoid(a.mean(-1) - b.mean(-1)),
        "only the last step counts": lambda a, b: torch.sigmoid(a[:, -1] - b[:, -1]),
        "steps discounted": lambda a, b: torch.sigmoid(
            (a * 0.9 ** torch.arange(a.shape[1])).sum(-1) - (b * 0.9 ** torch.arange(b.shape[1])).sum(-1)
        ),
    },
    tolerance=1e-8,
)
def _(preference, draw: Draw) -> Comparison:
    a, b = draw.uniform(2, 4, low=0.3, high=0.7), draw.uniform(2, 2, low=0.05, high=0.2)
    gaps = a.sum(-1) - b.sum(-1)

    def wins(gap: Tensor) -> Tensor:
        return exact.integrate(lambda x: _gumbel(x) * (-(-x - gap).exp()).exp(), -5.0, 45.0)

    return preference(a, b), torch.stack([wins(gap) for gap in gaps])


@check(
    "eq:coach-update",
    "gradient",
    "Where people's feedback is the advantage of the learner's own policy, COACH's expected step is the policy "
    "gradient.",
    of=equations.coach_update,
    against="gradient of the expected return, by differentiating the sum over time",
    wrong={
        "the probability is pushed, not its logarithm": lambda feedback, scores: (
            equations.coach_update(feedback, scores) * torch.linspace(0.2, 0.8, len(feedback))[:, None]
        ),
        "praise only": lambda feedback, scores: equations.coach_update(feedback.clamp(min=0), scores),
        "only the sign of the feedback": lambda feedback, scores: equations.coach_update(feedback.sign(), scores),
    },
)
def _(update, draw: Draw) -> Comparison:
    e = endless(draw)
    scores = jacobian(lambda theta: theta.log_softmax(-1), e.theta).flatten(0, 1)  # (S·A, D)
    steps = update(e.advantages().flatten(), scores)
    return e.occupancy(e.theta).flatten() @ steps / (1 - e.gamma), e.gradient()


# -- merging -----------------------------------------------------------------------------------------------------

chain(
    "merging",
    "From the mean of weights to the geometric mean of distributions",
    ["eq:weight-average", "eq:merged-distribution"],
    module=__name__,
)


def _weights(draw: Draw) -> Tensor:
    """Three positive weights that sum to one, none near a third."""
    return torch.tensor([0.5, 0.35, 0.15], dtype=torch.float64)[draw.permutation(3)]


@check(
    "eq:weight-average",
    "minimiser",
    "The weighted mean of the weights minimises the weighted squared distance to all models.",
    of=merging.weight_average,
    against="the smallest weighted sum of squared distances to the models, by finite differences",
    wrong={
        "all models count alike": lambda parameters, weights: parameters.mean(0),
        "weights forgotten": lambda parameters, weights: parameters.sum(0),
        "geometric mean of the magnitudes": lambda parameters, weights: torch.tensordot(
            weights, parameters.abs().log(), dims=1
        ).exp(),
    },
    tolerance=1e-8,
)
def _(average, draw: Draw) -> Comparison:
    models, weights = draw.permutation(3)[:, None, None] + draw.uniform(3, 2, 2, high=0.4) - 1.3, _weights(draw)
    distance = lambda theta: (weights * ((theta - models) ** 2).sum((-2, -1))).sum()
    return exact.finite_difference(distance, average(models, weights)), torch.zeros(2, 2)


@check(
    "eq:merged-distribution",
    "value",
    "If logits are linear in the weights, averaging weights multiplies the distributions; the result minimises "
    "the weighted mean of KL(π‖π_k) over the models.",
    of=merging.merged_logps,
    against="a linear model at the mean of the weights, and numerical minimisation of Σ w KL(π ‖ π_k)",
    wrong={
        "mean of the probabilities": lambda logps, weights: torch.tensordot(weights, logps.exp(), dims=1).log(),
        "not normalised": lambda logps, weights: torch.tensordot(weights, logps, dims=1),
        "all models count alike": lambda logps, weights: logps.mean(0).log_softmax(-1),
    },
    tolerance=1e-8,
    follows="eq:weight-average",
)
def _(merged, draw: Draw) -> Iterator[Comparison]:
    features = draw.distribution(4, 3) * 3  # four replies, three features
    models, weights = 2 * draw.normal(3, 3) + 2 * torch.eye(3), _weights(draw)
    logps = (models @ features.T).log_softmax(-1)  # (K, V)
    got = merged(logps, weights)
    yield got, (features @ merging.weight_average(models, weights)).log_softmax(-1)
    nearest = exact.maximise(lambda p: -(weights * torch.stack([exact.divergence(p, q.exp()) for q in logps])).sum(), 4)
    yield got.exp(), nearest
