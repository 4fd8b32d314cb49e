"""Chapter 4: what the printed formulas are made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from minirlhf.control import policy_optimisation as po
from minirlhf.equations import policy_gradient as pg
from minirlhf.equations import policy_losses, returns, trust_region, value_losses
from minirlhf_course.chapters.ch04_policy_gradients_to_ppo import equations
from minirlhf_course.chapters.ch04_policy_gradients_to_ppo.checks_ppo import minibatch
from minirlhf_course.ledger.formulas.legends import symbols_of
from minirlhf_course.ledger.inputs.printed import until
from minirlhf_course.ledger.inputs.processes import HORIZON, Endless, endless, episodes, jacobian
from minirlhf_course.ledger.inputs.rollouts import all_groups
from minirlhf_course.ledger.registry import Draw

Legend = Mapping[str, Any]


# -- episodes, hidden in the last axis ---------------------------------------------------------------------------


def played(draw: Draw, gamma: float = 0.7) -> tuple[Any, dict[str, Any]]:
    """All episodes of a small process, and the chapter's symbols for their steps."""
    e = episodes(draw, terminal=False)
    theta = e.theta.clone().requires_grad_()
    before, after, actions = e.paths.states[:, :-1], e.paths.states[:, 1:], e.paths.actions
    logps = theta.log_softmax(-1)
    chosen = logps[before, actions]
    legend = {"t": range(HORIZON), "k": range(HORIZON), "a": range(2), r"\theta": theta, r"\gamma": gamma}
    legend |= {r"\E": e.probs, "r_k": e.rewards.T, "J": e.objective(theta, gamma), "p(s_0)": e.start[before[:, 0]]}
    legend |= {r"\pi_\theta(a_t\mid s_t)": lambda t: chosen[:, t].exp()}
    legend |= {r"\pi_\theta(a\mid s_t)": lambda a, t: logps[before[:, t], a].exp()}
    legend |= {r"P(s_{t+1}\mid s_t,a_t)": e.transitions[before, actions, after].T}
    return e, legend


@symbols_of("eq:trajectory-probability")
def _(draw: Draw) -> Legend:
    _, legend = played(draw)
    chosen = torch.stack([legend[r"\pi_\theta(a_t\mid s_t)"](t) for t in range(HORIZON)], -1).log()
    moved = legend[r"P(s_{t+1}\mid s_t,a_t)"].T.log()
    total = equations.trajectory_logp(legend["p(s_0)"].log(), chosen, moved, torch.ones_like(chosen, dtype=torch.bool))
    return legend | {r"\log p_\theta(\tau)": total}


@symbols_of("eq:log-derivative")
def _(draw: Draw) -> Legend:
    theta, earned = draw.normal(5).requires_grad_(), draw.normal(5)
    p = theta.softmax(-1)
    scores = jacobian(lambda t: t.log_softmax(-1), theta)
    legend = {r"\tau": range(5), r"\theta": theta, r"p_\theta(\tau)": p, r"R(\tau)": earned, r"\E": (r"\tau", p)}
    return legend | {r"\nabla J": equations.log_derivative(p.detach(), earned, scores)}


@symbols_of("eq:trajectory-score")
def _(draw: Draw) -> Legend:
    e, legend = played(draw)
    return legend | {r"\nabla\log p_\theta(\tau)": pg.trajectory_score(e.scores, torch.ones_like(e.mask)).T}


@symbols_of("eq:total-return")
def _(draw: Draw) -> Legend:
    e, legend = played(draw)
    return legend | {r"R(\tau)": returns.total_return(e.rewards, torch.ones_like(e.mask), gamma=0.7)[:, 0]}


@symbols_of("eq:returns-to-go")
def _(draw: Draw) -> Legend:
    e, legend = played(draw)
    return legend | {"G_t": returns.returns_to_go(e.rewards, torch.ones_like(e.mask), gamma=0.7).T}


@symbols_of(
    "eq:baseline-identity",
    harmless={r"\nabla 2": "any constant will do", "b ( s _ a )": "a baseline of the wrong state has mean 0 too"},
)
def _(draw: Draw) -> Legend:
    e, legend = played(draw)
    b = draw.normal(HORIZON, 2)
    return legend | {"b(s_t)": lambda t: b[t, e.paths.states[:, t]]}


@symbols_of("eq:policy-gradient-psi")
def _(draw: Draw) -> Legend:
    e, legend = played(draw)
    psi = e.action_values
    return legend | {r"\Psi_t": psi.T, r"\nabla J": pg.policy_gradient(e.probs, e.scores, psi, torch.ones_like(e.mask))}


# -- a process without end ---------------------------------------------------------------------------------------


def lasting(draw: Draw) -> tuple[Endless, Tensor, dict[str, Any]]:
    """A process without end, its policy's Jacobian, and the chapter's symbols."""
    e = endless(draw)
    theta = e.theta.clone().requires_grad_()
    policy, visited = theta.softmax(-1), e.occupancy(e.theta)
    moves = torch.einsum("sa,sat->st", e.policy, e.transitions)
    legend = {"s": range(3), "s'": range(3), "a": range(2), r"\theta": theta, r"\gamma": e.gamma}
    legend |= {r"\pi_\theta(a\mid s)": lambda a, s: policy[s, a], r"P_\pi(s'\mid s)": lambda after, s: moves[s, after]}
    legend |= {"Q(s,a)": e.action_values(), "A(s,a)": e.advantages(), "d(s)": visited.sum(-1)}
    return e, jacobian(lambda t: t.softmax(-1), e.theta), legend | {r"\nu^\pi(s,a)": visited}


@symbols_of("eq:value-gradient")
def _(draw: Draw) -> Legend:
    e, slopes, legend = lasting(draw)
    found = equations.value_gradient(e.transitions, e.policy, slopes, e.action_values(), gamma=e.gamma)
    return legend | {r"\nabla V(s)": found}


@symbols_of("eq:policy-gradient-theorem")
def _(draw: Draw) -> Legend:
    e, slopes, legend = lasting(draw)
    found = equations.policy_gradient_theorem(legend["d(s)"], slopes, e.action_values(), gamma=e.gamma)
    return legend | {r"\nabla J": found}


@symbols_of("eq:policy-gradient-expectation")
def _(draw: Draw) -> Legend:
    e, _, legend = lasting(draw)
    scores = jacobian(lambda t: t.log_softmax(-1), e.theta)
    found = equations.policy_gradient_expectation(e.occupancy(e.theta), scores, e.action_values(), gamma=e.gamma)
    return legend | {r"\nabla J": found}


# -- variance ----------------------------------------------------------------------------------------------------


@symbols_of("eq:gradient-variance")
def _(draw: Draw) -> Legend:
    p, g = draw.distribution(6), draw.normal(6, 3)
    return {r"\E": p, "g": g.T, r"\operatorname{Var} g": pg.gradient_variance(p, g)}


@symbols_of("eq:optimal-baseline")
def _(draw: Draw) -> Legend:
    theta, Q = draw.normal(4).requires_grad_(), draw.normal(4)
    scores = jacobian(lambda t: t.log_softmax(-1), theta)
    best = pg.optimal_baseline(theta.softmax(-1).detach(), scores, Q)
    return {r"\theta": theta, r"\pi": theta.softmax(-1), r"\E": theta.softmax(-1).detach(), "Q": Q, "b^*": best}


@symbols_of("eq:own-mean-shrinkage")
def _(draw: Draw) -> Legend:
    theta, earned, K = draw.normal(3).requires_grad_(), draw.normal(3), 3
    p, group = theta.softmax(-1), all_groups(3, K)  # (P, K)
    scores = jacobian(lambda t: t.log_softmax(-1), theta)
    legend = {"i": range(K), "K": K, r"\theta": theta, r"\E": p.detach()[group].prod(-1), "J": (p * earned).sum()}
    legend |= {"G_i": earned[group].T, r"\bar G": earned[group].mean(-1), r"\xi_i": lambda i: scores[group[:, i]].T}
    return legend


# -- advantages --------------------------------------------------------------------------------------------------


def steps(draw: Draw) -> tuple[Any, dict[str, Any]]:
    """Two responses of five steps (hidden in the last axis) with rewards and values; nothing follows the last step."""
    r, V, gamma, lam = draw.normal(2, 5), draw.normal(2, 5), 0.8, 0.6
    mask = torch.ones(2, 5, dtype=torch.bool)
    delta = returns.td_residuals(r, V, mask, gamma=gamma)
    legend = {"t": range(5), "l": range(5), r"\gamma": gamma, r"\lambda": lam}
    legend |= {"r_t": until(r.T), "V(s_t)": until(V.T), r"\delta_t": until(delta.T)}
    return (r, V, mask, delta), legend


@symbols_of("eq:td-residual")
def _(draw: Draw) -> Legend:
    return steps(draw)[1]


@symbols_of("eq:n-step-advantage")
def _(draw: Draw) -> Legend:
    (r, V, mask, _), legend = steps(draw)
    found = returns.n_step_advantages(r, V, mask, n=3, gamma=0.8)
    return legend | {"n": 3, r"\dots": ("n-1", 0), "A^{(n)}_t": found.T}


@symbols_of("eq:n-step-telescoped")
def _(draw: Draw) -> Legend:
    (_, _, mask, delta), legend = steps(draw)
    return legend | {"n": 3, "A^{(n)}_t": returns.n_step_from_residuals(delta, mask, n=3, gamma=0.8).T}


@symbols_of("eq:gae-mixture", harmless={r"\lambda ^ { n - 1 } A _ t": "the weights sum to 1"})
def _(draw: Draw) -> Legend:
    (r, V, mask, _), legend = steps(draw)
    each = [returns.n_step_advantages(r, V, mask, n=n, gamma=0.8).T for n in range(1, 6)]
    mixture = returns.gae_mixture(r, V, mask, gamma=0.8, lam=0.6)
    return legend | {"n": range(1, 61), "A^{(n)}_t": lambda n, t: each[min(n, 5) - 1][t], "A_t": mixture.T}


@symbols_of("eq:gae-sum")
def _(draw: Draw) -> Legend:
    (_, _, mask, delta), legend = steps(draw)
    return legend | {"A_t": returns.gae_sum(delta, mask, gamma=0.8, lam=0.6).T}


@symbols_of("eq:gae")
def _(draw: Draw) -> Legend:
    (r, V, mask, _), legend = steps(draw)
    return legend | {"A_t": until(returns.gae(r, V, mask, gamma=0.8, lam=0.6).T)}


@symbols_of("eq:lambda-return")
def _(draw: Draw) -> Legend:
    (_, V, mask, _), legend = steps(draw)
    A = draw.normal(2, 5)
    return legend | {"A_t": A.T, r"G^\lambda_t": returns.lambda_returns(A, V, mask).T}


@symbols_of("eq:length-adaptive-lambda")
def _(draw: Draw) -> Legend:
    lengths = torch.tensor([3.0, 40, 90, 250], dtype=torch.float64) + draw.uniform(4)
    return {
        r"\alpha": 0.05,
        r"\lvert y\rvert": lengths,
        r"\lambda": returns.length_adaptive_lambda(lengths, alpha=0.05),
    }


@symbols_of("eq:importance-weights")
def _(draw: Draw) -> Legend:
    pi, mu = draw.logps(2, 5), draw.logps(2, 5)
    found = returns.importance_weights(pi, mu, torch.ones(2, 5, dtype=torch.bool))
    legend = {"t": range(5), "k": range(5), r"\pi(a_k\mid s_k)": pi.exp().T, r"\mu(a_k\mid s_k)": mu.exp().T}
    return legend | {"w_t": found.T}


# -- trust regions -----------------------------------------------------------------------------------------------


@symbols_of("eq:performance-difference")
def _(draw: Draw) -> Legend:
    e, _, legend = lasting(draw)
    theta = e.theta + draw.normal(3, 2)
    there, A = e.occupancy(theta), e.advantages()
    gain = trust_region.performance_difference(there, A, gamma=e.gamma)
    return legend | {r"\nu^{\pi'}(s,a)": there, r"A^\pi(s,a)": A, r"J(\pi') - J(\pi)": gain}


@symbols_of("eq:surrogate-gain")
def _(draw: Draw) -> Legend:
    e, _, legend = lasting(draw)
    policy, A = draw.distribution(3, 2), e.advantages()
    gain = trust_region.surrogate_gain(legend["d(s)"], policy, A, gamma=e.gamma)
    legend |= {r"d^\pi(s)": legend["d(s)"], r"\pi'(a\mid s)": lambda a, s: policy[s, a], r"A^\pi(s,a)": A}
    return legend | {r"L(\pi')": gain}


def curved(draw: Draw) -> tuple[Tensor, Tensor, Tensor]:
    """A positive definite matrix F and two vectors."""
    B = draw.normal(3, 3)
    return B @ B.T + torch.eye(3, dtype=torch.float64), draw.normal(3), draw.normal(3)


@symbols_of("eq:quadratic-kl", linear=True)
def _(draw: Draw) -> Legend:
    theta, x = draw.normal(4), draw.normal(4, scale=1e-5)
    p = theta.softmax(-1)
    far = (p * (theta.log_softmax(-1) - (theta + x).log_softmax(-1))).sum()
    return {"x": x, "F": p.diag() - torch.outer(p, p), r"\KL(\pi_\theta\|\pi_{\theta+x})": far}


@symbols_of("eq:trust-region-step", linear=True)
def _(draw: Draw) -> Legend:
    F, u, _ = curved(draw)
    return {r"\kappa": 0.1, "u": u, "F": F, "x": trust_region.trust_region_step(u, F @ u, max_kl=0.1)}


@symbols_of("eq:fisher-vector-product", linear=True)
def _(draw: Draw) -> Legend:
    theta, vector = draw.normal(4).requires_grad_(), draw.normal(4)
    old = theta.detach().softmax(-1)
    kl = (old * (old.log() - theta.log_softmax(-1))).sum()
    legend: dict[str, Any] = {r"\theta": theta, "v": vector, r"\KL(\pi_{\theta_\text{old}}\|\pi_\theta)": kl}
    legend |= {r"\big|_{\theta = \theta_\text{old}}": None}
    return legend | {"Fv": trust_region.fisher_vector_product(kl, [theta], vector)}


@symbols_of("eq:conjugate-gradient", linear=True)
def _(draw: Draw) -> Legend:
    # The second of three rounds: x, q and p after the first one by its formulas, what follows by the library.
    F, g, _ = curved(draw)
    after = [trust_region.conjugate_gradient(lambda v: F @ v, g, iterations=n) for n in (1, 2)]
    q, left = (g - F @ x for x in after)
    p = q + (q @ q) / (g @ g) * g
    legend = {"F": F, "x": after[0], "q": q, "p": p, "q'": left, r"x \leftarrow": after[1], r"q \leftarrow": left}
    return legend | {r"p \leftarrow": left + (left @ left) / (q @ q) * p}


@symbols_of("eq:adaptive-penalty")
def _(draw: Draw) -> Legend:
    seen = 0.05 * (torch.linspace(0.3, 3.0, 91, dtype=torch.float64) + draw.uniform(1, low=0.001, high=0.028))
    following = [trust_region.adaptive_penalty(0.3, float(kl), target=0.05) for kl in seen]
    return {
        r"\kappa": 0.05,
        r"\beta": 0.3,
        r"\KL": seen,
        r"\beta \leftarrow": torch.tensor(following, dtype=torch.float64),
    }


# -- PPO ---------------------------------------------------------------------------------------------------------


@symbols_of("eq:entropy-gradient")
def _(draw: Draw) -> Legend:
    theta = draw.normal(4).requires_grad_()
    p = theta.softmax(-1)
    legend = {r"\theta": theta, r"\pi(a)": p, r"\E_{a\sim\pi}": p.detach()}
    return legend | {r"H(\pi)": -(p * p.log()).sum()}


@symbols_of("eq:clipped-surrogate")
def _(draw: Draw) -> Legend:
    ratio, A = draw.away_from([0.8, 1.2], 12, low=0.4, high=1.7), draw.normal(12)
    mask = torch.ones(12, 1, dtype=torch.bool)
    found = policy_losses.ppo_clip(ratio.log()[:, None], torch.zeros(12, 1).double(), A[:, None], mask, epsilon=0.2)
    return {r"\rho": ratio, "A": A, r"\epsilon": 0.2, r"L^{\text{clip}}": found[:, 0]}


@symbols_of("eq:clipped-value-loss")
def _(draw: Draw) -> Legend:
    V, old, G = draw.normal(1, 12), draw.normal(1, 12), draw.normal(1, 12, scale=3.0)
    mask = torch.ones(1, 12, dtype=torch.bool)
    found = value_losses.value_clip(V, old, G, mask, cliprange_value=0.4)
    return {r"V_\phi": V[0], r"V_{\text{old}}": old[0], "G": G[0], "c": 0.4, "L^{V}": found[0]}


@symbols_of("eq:ppo-objective")
def _(draw: Draw) -> Legend:
    run, batch, ratios = minibatch(draw)
    method = po.Method(entropy_coef=0.3, vf_coef=0.7)
    with torch.no_grad():
        logps, values = run.policy(batch.observations).log_softmax(-1), run.critic(batch.observations)[:, 0]
        descended = po.loss(run, method, batch)
    legend = {"i": range(1, len(ratios) + 1), "M": len(ratios), r"\rho_i": ratios, "A_i": batch.advantages[:, 0]}
    legend |= {r"\epsilon": 0.2, "c_H": 0.3, "c_V": 0.7, r"V_\phi(s_i)": values, "G_i": batch.targets[:, 0]}
    return legend | {r"H\big(\pi(\cdot\mid s_i)\big)": -(logps.exp() * logps).sum(-1), r"\mathcal L": descended}
