"""The ledger of chapter 04: from the probability of a trajectory to the policy-gradient theorem."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from minirlhf.core import exact
from minirlhf.equations import policy_gradient as pg
from minirlhf.equations import returns
from minirlhf_course.chapters.ch04_policy_gradients_to_ppo import equations
from minirlhf_course.ledger.inputs.processes import HORIZON, RandomEpisodes, endless, episodes, jacobian
from minirlhf_course.ledger.registry import Comparison, Draw, chain, check


def _trajectory_logps(e: RandomEpisodes, theta: Tensor) -> Tensor:
    before, after = e.paths.states[:, :-1], e.paths.states[:, 1:]
    return equations.trajectory_logp(
        e.start.log()[before[:, 0]],
        theta.log_softmax(-1)[before, e.paths.actions],
        e.transitions.log()[before, e.paths.actions, after],
        e.mask,
    )


# -- from the probability of a trajectory to reward-to-go with a baseline ---------------------------------------------


@check(
    "eq:trajectory-probability",
    "value",
    "The probabilities of all trajectories sum to one and give the expected return.",
    of=equations.trajectory_logp,
    against="expected return from pushing the distribution over states forward",
    wrong={
        "dynamics left out": lambda start, actions, moves, mask: equations.trajectory_logp(
            start, actions, moves * 0, mask
        ),
        "start left out": lambda start, actions, moves, mask: equations.trajectory_logp(
            start * 0, actions, moves, mask
        ),
        "mean over the steps": lambda start, actions, moves, mask: equations.trajectory_logp(
            start, actions / mask.shape[1], moves / mask.shape[1], mask
        ),
    },
)
def _(trajectory_logp, draw: Draw) -> Iterator[Comparison]:
    e = episodes(draw, terminal=False)
    before, after = e.paths.states[:, :-1], e.paths.states[:, 1:]
    logps = trajectory_logp(
        e.start.log()[before[:, 0]],
        e.theta.log_softmax(-1)[before, e.paths.actions],
        e.transitions.log()[before, e.paths.actions, after],
        e.mask,
    )
    yield logps.exp().sum(), 1.0
    yield (logps.exp() * e.rewards.sum(-1)).sum(), e.objective(e.theta)


@check(
    "eq:log-derivative",
    "gradient",
    "∇J = Σ_τ ∇p(τ) R(τ) = E[R(τ) ∇log p(τ)], where the whole log-probability is differentiated.",
    of=equations.log_derivative,
    against="finite differences of the expected return",
    wrong={
        "trajectories equally weighted": lambda probs, values, scores: equations.log_derivative(
            torch.full_like(probs, 1 / len(probs)), values, scores
        ),
        "gradient of p in place of log p": lambda probs, values, scores: equations.log_derivative(
            probs, values, probs[:, None] * scores
        ),
    },
    follows="eq:trajectory-probability",
)
def _(log_derivative, draw: Draw) -> Comparison:
    e = episodes(draw, terminal=False)
    scores = jacobian(lambda theta: _trajectory_logps(e, theta), e.theta)  # (N, D)
    return log_derivative(_trajectory_logps(e, e.theta).exp(), e.rewards.sum(-1), scores), e.gradient()


@check(
    "eq:trajectory-score",
    "value",
    "Initial state and dynamics have no gradient: the score of a trajectory is the sum of the scores of its actions.",
    of=pg.trajectory_score,
    against="derivative of the log-probability of the trajectory, dynamics included",
    wrong={
        "mean over the steps": lambda scores, mask: pg.trajectory_score(scores, mask) / mask.sum(-1)[:, None],
        "first action only": lambda scores, mask: scores[:, 0],
        "steps after the end counted": lambda scores, mask: scores.sum(1),
    },
    follows="eq:log-derivative",
)
def _(trajectory_score, draw: Draw) -> Comparison:
    e = episodes(draw)
    return trajectory_score(e.scores, e.mask), jacobian(lambda theta: _trajectory_logps(e, theta), e.theta)


@check(
    "eq:total-return",
    "gradient",
    "Each action of a trajectory is weighted by the total return.",
    of=returns.total_return,
    against="finite differences of the expected return",
    wrong={
        "immediate reward only": lambda rewards, mask: torch.where(mask, rewards, 0.0),
        "mean reward instead of the sum": lambda rewards, mask: (
            returns.total_return(rewards, mask) / mask.sum(-1, keepdim=True)
        ),
    },
    follows="eq:trajectory-score",
)
def _(total_return, draw: Draw) -> Comparison:
    e = episodes(draw)
    weighted = torch.where(e.mask[..., None], e.scores * total_return(e.rewards, e.mask)[..., None], 0.0)
    return exact.expectation(e.probs, weighted.sum(1).T), e.gradient()


@check(
    "eq:total-return",
    "value",
    "Each sampled token is weighted by the whole discounted return; a token that the policy did not sample adds "
    "no discount.",
    of=returns.total_return,
    against="the rewards of the sampled tokens, listed and discounted one by one",
    wrong={
        "discount by position": lambda rewards, mask, *, gamma: torch.where(
            mask, (gamma ** torch.arange(5) * torch.where(mask, rewards, 0.0)).sum(-1, keepdim=True), 0.0
        ),
        "not discounted": lambda rewards, mask, *, gamma: returns.total_return(rewards, mask),
        "what is still to come": returns.returns_to_go,
    },
)
def _(total_return, draw: Draw) -> Iterator[Comparison]:
    mask, gamma = draw.holed_mask(4, 5), float(draw.uniform(low=0.3, high=0.9))
    mask[0, 1] = mask[0, 0] = False
    rewards = torch.where(mask, 1 + draw.uniform(4, 5), torch.nan)
    total = [
        sum(gamma**k * r for k, r in enumerate(row[kept].tolist())) for row, kept in zip(rewards, mask, strict=True)
    ]
    yield (
        total_return(rewards, mask, gamma=gamma),
        torch.where(mask, torch.tensor(total, dtype=torch.float64)[:, None], 0.0),
    )


@check(
    "eq:returns-to-go",
    "gradient",
    "Rewards before an action do not contribute to the expectation.",
    of=returns.returns_to_go,
    against="the gradient with the total return, and finite differences",
    wrong={
        "rewards before the action": lambda rewards, mask: (
            returns.total_return(rewards, mask) - returns.returns_to_go(rewards, mask)
        ),
        "one step late: the own reward is lost": lambda rewards, mask: (
            returns.returns_to_go(rewards, mask) - torch.where(mask, rewards, 0.0)
        ),
    },
    follows="eq:total-return",
)
def _(returns_to_go, draw: Draw) -> Iterator[Comparison]:
    e = episodes(draw)
    got = pg.policy_gradient(e.probs, e.scores, returns_to_go(e.rewards, e.mask), e.mask)
    yield got, pg.policy_gradient(e.probs, e.scores, returns.total_return(e.rewards, e.mask), e.mask)
    yield got, e.gradient()


@check(
    "eq:baseline-identity",
    "gradient",
    "A baseline that does not depend on the action does not change the gradient: E[∇log π · b] = 0.",
    of=returns.subtract_baseline,
    against="the gradient without a baseline, and finite differences of the expected return",
    wrong={
        "value of the next state": lambda g, b, mask: returns.subtract_baseline(g, b.roll(-1, -1), mask),
        "own return inside the baseline": lambda g, b, mask: returns.subtract_baseline(g, b + g / 4, mask),
    },
    follows="eq:returns-to-go",
)
def _(subtract_baseline, draw: Draw) -> Iterator[Comparison]:
    e = episodes(draw)
    to_go = returns.returns_to_go(e.rewards, e.mask)
    baseline = torch.arange(1.0, 4.0, dtype=torch.float64)[e.paths.states[:, :-1]] * draw.uniform(3, low=1.0, high=2.0)
    got = pg.policy_gradient(e.probs, e.scores, subtract_baseline(to_go, baseline, e.mask), e.mask)
    yield got, pg.policy_gradient(e.probs, e.scores, to_go, e.mask)
    yield got, e.gradient()


def _powers(gamma: float) -> Tensor:
    """1, γ, γ² ... ``(H,)``."""
    return gamma ** torch.arange(HORIZON, dtype=torch.float64)


@check(
    "eq:returns-to-go",
    "discounted gradient",
    "The gradient of the discounted return weights action t with γ^t G_t; practice drops the γ^t.",
    of=returns.returns_to_go,
    against="finite differences of the discounted return",
    wrong={
        "discounted from the start of the episode": lambda rewards, mask, *, gamma: (
            _powers(gamma) * returns.returns_to_go(rewards, mask, gamma=gamma)
        ),
        "not discounted": lambda rewards, mask, *, gamma: returns.returns_to_go(rewards, mask),
    },
)
def _(returns_to_go, draw: Draw) -> Comparison:
    e, gamma = episodes(draw), float(draw.uniform(1, low=0.5, high=0.8))
    psi = _powers(gamma) * returns_to_go(e.rewards, e.mask, gamma=gamma)
    return pg.policy_gradient(e.probs, e.scores, psi, e.mask), e.gradient(gamma)


@check(
    "eq:policy-gradient-psi",
    "six choices",
    "Total return, reward-to-go, reward-to-go minus a baseline, Q, advantage and TD residual give the same gradient.",
    of=pg.policy_gradient,
    against="finite differences of the expected return",
    wrong={
        "mean over the steps": lambda probs, scores, psi, mask: pg.policy_gradient(
            probs, scores, psi / mask.sum(-1, keepdim=True), mask
        ),
        "trajectories equally weighted": lambda probs, scores, psi, mask: pg.policy_gradient(
            torch.full_like(probs, 1 / len(probs)), scores, psi, mask
        ),
    },
)
def _(policy_gradient, draw: Draw) -> Iterator[Comparison]:
    e = episodes(draw)
    expected, to_go = e.gradient(), returns.returns_to_go(e.rewards, e.mask)
    for psi in (
        returns.total_return(e.rewards, e.mask),
        to_go,
        returns.subtract_baseline(to_go, e.values, e.mask),
        e.action_values,
        e.action_values - e.values,
        returns.td_residuals(e.rewards, e.values, e.mask),
    ):
        yield policy_gradient(e.probs, e.scores, psi, e.mask), expected


# -- the theorem ---------------------------------------------------------------------------------------------------


@check(
    "eq:value-gradient",
    "value",
    "The gradient of the values satisfies a Bellman equation.",
    of=equations.value_gradient,
    against="differentiating the discounted rewards summed over time",
    wrong={
        "later steps forgotten": lambda transitions, policy, dpi, q, *, gamma: equations.value_gradient(
            transitions, policy, dpi, q, gamma=0.0
        ),
        "transitions of a uniform policy": lambda transitions, policy, dpi, q, *, gamma: equations.value_gradient(
            transitions, torch.full_like(policy, 0.5), dpi, q, gamma=gamma
        ),
    },
)
def _(value_gradient, draw: Draw) -> Comparison:
    m = endless(draw)
    dpi = jacobian(lambda theta: theta.softmax(-1), m.theta)
    got = value_gradient(m.transitions, m.policy, dpi, m.action_values(), gamma=m.gamma)
    return got, jacobian(m.values, m.theta)


@check(
    "eq:policy-gradient-theorem",
    "value",
    "Unrolled, the recursion becomes a sum over states, weighted by the discounted visits of the policy.",
    of=equations.policy_gradient_theorem,
    against="the gradient of the values, averaged over the initial states",
    wrong={
        "1/(1−γ) forgotten": lambda d, dpi, q, *, gamma: (
            (1 - gamma) * equations.policy_gradient_theorem(d, dpi, q, gamma=gamma)
        ),
        "states equally likely": lambda d, dpi, q, *, gamma: equations.policy_gradient_theorem(
            torch.full_like(d, 1 / len(d)), dpi, q, gamma=gamma
        ),
    },
    follows="eq:value-gradient",
)
def _(policy_gradient_theorem, draw: Draw) -> Comparison:
    m = endless(draw)
    dpi = jacobian(lambda theta: theta.softmax(-1), m.theta)
    q = m.action_values()
    got = policy_gradient_theorem(m.occupancy(m.theta).sum(-1), dpi, q, gamma=m.gamma)
    return got, m.start @ equations.value_gradient(m.transitions, m.policy, dpi, q, gamma=m.gamma)


@check(
    "eq:policy-gradient-expectation",
    "value",
    "With ∇π = π ∇log π the sum over actions becomes an expectation; Q − V gives the same.",
    of=equations.policy_gradient_expectation,
    against="the sum of the theorem, and the derivative of the expected return",
    wrong={
        "1/(1−γ) forgotten": lambda nu, scores, q, *, gamma: (
            (1 - gamma) * equations.policy_gradient_expectation(nu, scores, q, gamma=gamma)
        ),
        "every state and action equally likely": lambda nu, scores, q, *, gamma: equations.policy_gradient_expectation(
            torch.full_like(nu, 1 / nu.numel()), scores, q, gamma=gamma
        ),
    },
    follows="eq:policy-gradient-theorem",
)
def _(policy_gradient_expectation, draw: Draw) -> Iterator[Comparison]:
    m = endless(draw)
    scores, dpi = (jacobian(f, m.theta) for f in (lambda t: t.log_softmax(-1), lambda t: t.softmax(-1)))
    nu, q = m.occupancy(m.theta), m.action_values()
    got = policy_gradient_expectation(nu, scores, q, gamma=m.gamma)
    yield got, equations.policy_gradient_theorem(nu.sum(-1), dpi, q, gamma=m.gamma)
    yield got, m.gradient()
    yield policy_gradient_expectation(nu, scores, m.advantages(), gamma=m.gamma), got


# -- derivations -----------------------------------------------------------------------------------------------------

chain(
    "reward-to-go",
    "From the probability of a trajectory to reward-to-go with a baseline",
    [
        "eq:trajectory-probability",
        "eq:log-derivative",
        "eq:trajectory-score",
        "eq:total-return",
        "eq:returns-to-go",
        "eq:baseline-identity",
    ],
    module=__name__,
)
chain(
    "policy-gradient-theorem",
    "The policy-gradient theorem: the state distribution need not be differentiated",
    ["eq:value-gradient", "eq:policy-gradient-theorem", "eq:policy-gradient-expectation"],
    module=__name__,
)
