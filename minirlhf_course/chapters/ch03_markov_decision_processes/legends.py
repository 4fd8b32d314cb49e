"""Chapter 3: what the printed formulas are made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from minirlhf.core import exact_mdp
from minirlhf.equations import mdp
from minirlhf.equations import value_learning as vl
from minirlhf_course.ledger.formulas.legends import symbols_of
from minirlhf_course.ledger.inputs.printed import until
from minirlhf_course.ledger.inputs.processes import RandomProcess, random_process
from minirlhf_course.ledger.registry import Draw

Legend = Mapping[str, Any]


@symbols_of("eq:return")
def _(draw: Draw) -> Legend:
    r, gamma = draw.normal(5, 3), 0.7
    later = torch.stack([mdp.discounted_return(r[t:].T, gamma=gamma) for t in range(5)])
    return {"t": range(5), "k": range(5), r"\gamma": gamma, "r_t": until(r), "G_t": later, r"\dots": ("2", 0, 5)}


@symbols_of("eq:bellman-matrix", linear=True)
def _(draw: Draw) -> Legend:
    P, r, gamma = draw.distribution(4, 4), draw.normal(4), 0.8
    legend = {"P": P, "r": r, r"\gamma": gamma, "I": torch.eye(4, dtype=torch.float64)}
    return legend | {"V": mdp.mrp_values(P, r, gamma=gamma)}


# -- a decision process ------------------------------------------------------------------------------------------


def process(draw: Draw) -> tuple[RandomProcess, Tensor, dict[str, Any]]:
    """A random decision process, some values V of its states, and the chapter's symbols for them."""
    p, V = random_process(draw, states=4, actions=3), draw.normal(4)
    legend: dict[str, Any] = {"s": range(4), "s'": range(4), "a": range(3), "a'": range(3)}
    legend |= {r"P(s'\mid s,a)": lambda after, s, a: p.transitions[s, a, after], "r(s,a)": p.rewards}
    legend |= {r"\pi(a\mid s)": lambda a, s: p.policy[s, a], r"\gamma": p.gamma}
    return p, V, legend


def values_of(p: RandomProcess) -> Tensor:
    return mdp.policy_values(p.transitions, p.rewards, p.policy, gamma=p.gamma)


@symbols_of("eq:marginalised-mrp")
def _(draw: Draw) -> Legend:
    p, _, legend = process(draw)
    moves, rewards = mdp.marginalise(p.transitions, p.rewards, p.policy)
    return legend | {r"P_\pi(s'\mid s)": lambda after, s: moves[s, after], r"r_\pi(s)": rewards}


@symbols_of("eq:state-value")
def _(draw: Draw) -> Legend:
    # Two layers of two states and the end, so that every episode is over after two steps.
    transitions = torch.zeros(5, 2, 5, dtype=torch.float64)
    transitions[:2, :, 2:4], transitions[2:, :, 4] = draw.distribution(2, 2, 2), 1.0
    rewards, policy = draw.normal(5, 2), draw.distribution(5, 2)
    rewards[4] = 0.0
    paths = exact_mdp.trajectories(5, 2, 2)
    paid = exact_mdp.step_rewards(paths, rewards)
    start = torch.eye(5, dtype=torch.float64)
    mean = lambda x, s: (exact_mdp.probabilities(paths, start[s], transitions, policy) * x).sum()
    legend = {"s": range(5), "k": range(2), r"\gamma": 0.7, "r_{t+k}": paid.T, r"\E_\pi[# \mid s_t = s]": mean}
    return legend | {r"V^\pi(s)": mdp.policy_values(transitions, rewards, policy, gamma=0.7)}


@symbols_of("eq:q-from-v")
def _(draw: Draw) -> Legend:
    p, V, legend = process(draw)
    Q = mdp.action_values(p.transitions, p.rewards, V, gamma=p.gamma)
    return legend | {r"V^\pi(s)": V, r"Q^\pi(s,a)": Q}


@symbols_of("eq:v-from-q")
def _(draw: Draw) -> Legend:
    p, _, legend = process(draw)
    Q = draw.normal(4, 3)
    return legend | {r"V^\pi(s)": mdp.values_from_actions(Q, p.policy), r"Q^\pi(s,a)": Q}


@symbols_of("eq:advantage-function")
def _(draw: Draw) -> Legend:
    p, _, legend = process(draw)
    Q = draw.normal(4, 3)
    legend |= {r"V^\pi(s)": (p.policy * Q).sum(-1), r"Q^\pi(s,a)": Q}
    return legend | {r"A^\pi(s,a)": mdp.advantage_function(Q, p.policy)}


@symbols_of("eq:bellman-expectation")
def _(draw: Draw) -> Legend:
    p, _, legend = process(draw)
    backed_up = mdp.bellman_expectation(p.transitions, p.rewards, p.policy, values_of(p), gamma=p.gamma)
    return legend | {r"V^\pi(s)": backed_up}


@symbols_of("eq:occupancy")
def _(draw: Draw) -> Legend:
    p, _, legend = process(draw)
    start = draw.distribution(4)
    moves, law = mdp.marginalise(p.transitions, p.rewards, p.policy)[0], [start]
    for _ in range(60):
        law.append(law[-1] @ moves)
    legend |= {"t": range(60), r"\Pr\nolimits_\pi(s_t = s, a_t = a)": lambda t, s, a: law[t][s] * p.policy[s, a]}
    return legend | {r"\nu^\pi(s,a)": mdp.occupancy(p.transitions, p.policy, start, gamma=p.gamma)}


@symbols_of("eq:policy-evaluation")
def _(draw: Draw) -> Legend:
    p, V, legend = process(draw)
    after = mdp.bellman_expectation(p.transitions, p.rewards, p.policy, V, gamma=p.gamma)
    return legend | {"V_k(s)": V, "V_{k+1}(s)": after}


@symbols_of("eq:policy-improvement")
def _(draw: Draw) -> Legend:
    _, _, legend = process(draw)
    Q = draw.normal(4, 3)
    return legend | {r"Q^\pi(s,a)": Q, r"\pi'(s)": mdp.greedy_policy(Q).argmax(-1)}


@symbols_of("eq:bellman-optimality")
def _(draw: Draw) -> Legend:
    p, V, legend = process(draw)
    for _ in range(80):
        V = mdp.bellman_optimality(p.transitions, p.rewards, V, gamma=p.gamma)
    return legend | {"V^*(s)": V}


@symbols_of("eq:bellman-q")
def _(draw: Draw) -> Legend:
    p, _, legend = process(draw)
    Q = mdp.action_values(p.transitions, p.rewards, values_of(p), gamma=p.gamma)
    legend |= {r"\pi(a'\mid s')": lambda a, s: p.policy[s, a]}
    return legend | {r"Q^\pi(s,a)": mdp.bellman_q_expectation(p.transitions, p.rewards, p.policy, Q, gamma=p.gamma)}


@symbols_of("eq:bellman-q-optimality")
def _(draw: Draw) -> Legend:
    p, _, legend = process(draw)
    Q = torch.zeros(4, 3, dtype=torch.float64)
    for _ in range(80):
        Q = mdp.bellman_q_optimality(p.transitions, p.rewards, Q, gamma=p.gamma)
    return legend | {"Q^*(s,a)": Q}


# -- learning ----------------------------------------------------------------------------------------------------


def never(size: int) -> Tensor:
    return torch.zeros(size, dtype=torch.bool)


@symbols_of("eq:td-target")
def _(draw: Draw) -> Legend:
    r, V, after, eta = draw.normal(4), draw.normal(4), draw.normal(4), 0.3
    y = vl.td_target(r, after, never(4), gamma=0.9)
    legend = {"r": r, r"\gamma": 0.9, r"\eta": eta, "V(s')": after, "V(s)": V, "y": y}
    legend |= {r"\text{(only } r \text{ if } s' \text{ is terminal)}": None}
    return legend | {r"V(s) \leftarrow": torch.lerp(V, y, eta)}


@symbols_of("eq:n-step-target")
def _(draw: Draw) -> Legend:
    r, last = draw.normal(3, 4), draw.normal(3)
    target = vl.n_step_target(r, last, gamma=0.8)
    legend = {"t": range(1), "n": 4, r"\gamma": 0.8, "r_t": until(r.T), "V(s_{t+n})": lambda t: last, "y^{(n)}": target}
    return legend | {r"\dots": ("n-1", 0)}


@symbols_of("eq:epsilon-greedy")
def _(draw: Draw) -> Legend:
    Q = draw.normal(4, 3)
    probs = vl.epsilon_greedy(Q, epsilon=0.2)
    legend = {
        "s": range(4),
        "a": range(3),
        "a'": range(3),
        "Q(s,a)": Q,
        r"\varepsilon": 0.2,
        r"\lvert\mathcal A\rvert": 3,
    }
    return legend | {r"\pi_\varepsilon(a\mid s)": lambda a, s: probs[s, a]}


def next_action(draw: Draw) -> tuple[Tensor, Tensor, dict[str, Any]]:
    """A reward, action values of the next state, and the chapter's symbols for them."""
    r, Q = draw.normal(1), draw.normal(1, 4)
    return r, Q, {"a'": range(4), "r": r, r"\gamma": 0.9, "Q(s',a')": Q[0]}


@symbols_of("eq:sarsa")
def _(draw: Draw) -> Legend:
    r, Q, _ = next_action(draw)
    y = vl.sarsa_target(r, Q, torch.tensor([2]), never(1), gamma=0.9)
    remark = r"a' \text{ the action that the policy takes next,}"
    return {"r": r, r"\gamma": 0.9, "Q(s',a')": Q[0, 2], remark: None, "y": y}


@symbols_of("eq:q-learning")
def _(draw: Draw) -> Legend:
    r, Q, legend = next_action(draw)
    return legend | {"y": vl.q_learning_target(r, Q, never(1), gamma=0.9)}


@symbols_of("eq:double-dqn")
def _(draw: Draw) -> Legend:
    r, Q, legend = next_action(draw)
    other = draw.normal(1, 4)
    return legend | {r"\bar Q(s',a')": other[0], "y": vl.double_dqn_target(r, Q, other, never(1), gamma=0.9)}


@symbols_of("eq:regret")
def _(draw: Draw) -> Legend:
    means, pulled = draw.uniform(4), torch.tensor([0, 3, 1, 1, 2, 0])
    legend = {"t": range(1, 7), "T": 6, "m^*": means.max(), "m_{a_t}": means[pulled]}
    return legend | {"R_T": vl.regret(means, pulled)[-1]}


@symbols_of("eq:ucb")
def _(draw: Draw) -> Legend:
    means, n = draw.uniform(4), torch.tensor([1.0, 2.0, 3.0, 5.0], dtype=torch.float64)
    scores = vl.ucb_scores(means, n, step=11, c=1.1)
    return {"i": range(4), "t": 11, "c": 1.1, r"\bar m_i": means, "n_i": n, "U_i": scores}


@symbols_of("eq:beta-posterior")
def _(draw: Draw) -> Legend:
    grid = draw.uniform(5, low=0.1, high=0.9)
    won, lost = torch.tensor([3.0]).double(), torch.tensor([5.0]).double()
    density = lambda a, b: torch.distributions.Beta(a, b).log_prob(grid).exp()
    legend = {"k_1": 1.5, "k_0": 0.8, "n_1": won, "n_0": lost, r"\mathrm{Beta}(#,#)": density}
    posterior = vl.beta_posterior(won, lost, prior=(1.5, 0.8))
    return legend | {r"p \mid n_1, n_0": density(*posterior)}


@symbols_of("eq:linear-td", linear=True)
def _(draw: Draw) -> Legend:
    phi, w, r, P, d = draw.normal(4, 2), draw.normal(2), draw.normal(4), draw.distribution(4, 4), draw.distribution(4)
    legend: dict[str, Any] = {"s": range(4), "s'": range(4), r"\phi(s)": phi, "w": w, "r(s)": r, "d(s)": d}
    legend |= {r"P(s'\mid s)": lambda after, s: P[s, after], r"\gamma": 0.8, r"\eta": 0.3}
    return legend | {"w'": vl.expected_linear_td_step(w, phi, P, r, d, gamma=0.8, step_size=0.3)}
