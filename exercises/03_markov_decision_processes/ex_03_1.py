# ---
# title: The values of a policy
# kind: derive
# minutes: 35
# ---

# %% [statement]
# An environment has $S$ states and $A$ actions. In state $s$ the action $a$ leads to $s'$ with probability $P(s'\mid s,a)$, and *that step* has the reward
# $R(s,a,s')$: the reward depends on the next state. A policy chooses $a$ with probability $\pi(a\mid s)$. A reward that is $k$ steps away has the weight $\gamma^k$,
# with $0 \le \gamma < 1$. No episode ever ends.
#
# Take the first step out of the infinite sum, solve the resulting equation, and write:
#
# 1. `values(P, R, policy, gamma)`: $V(s)$, the expected discounted sum of rewards from each state, shape `(S,)`;
# 2. `action_values(P, R, policy, gamma)`: $Q(s,a)$, the same sum if the first action is $a$ and the policy acts from then on, shape `(S, A)`;
# 3. `time_share(P, policy, start, gamma)`: the fraction of the discounted time in each state,
#    $d(s) = (1-\gamma)\sum_t \gamma^t P(s_t = s)$, with $s_0$ sampled from `start`; shape `(S,)`. It is a distribution.
#
# No loop over time is needed: each answer is a linear system or follows from one. The checker adds up the series term by term and uses no formula.
# `P` is `(S, A, S)`, `R` is `(S, A, S)`, `policy` is `(S, A)`, `start` is `(S,)`.

# %% [given]
import torch


# %% [stub]
def values(P, R, policy, gamma):
    """Return V: (S,)."""
    raise NotImplementedError


def action_values(P, R, policy, gamma):
    """Return Q: (S, A)."""
    raise NotImplementedError


def time_share(P, policy, start, gamma):
    """Return the discounted fraction of time in each state: (S,), sums to 1."""
    raise NotImplementedError


# %% [solution]
def values(P, R, policy, gamma):
    moves = (policy[..., None] * P).sum(1)
    earned = (policy * (P * R).sum(-1)).sum(-1)
    return torch.linalg.solve(torch.eye(len(moves), dtype=moves.dtype) - gamma * moves, earned)


def action_values(P, R, policy, gamma):
    return (P * R).sum(-1) + gamma * P @ values(P, R, policy, gamma)


def time_share(P, policy, start, gamma):
    moves = (policy[..., None] * P).sum(1)
    return torch.linalg.solve(torch.eye(len(moves), dtype=moves.dtype) - gamma * moves.T, (1 - gamma) * start)


# %% [tests]
import torch
from minirlhf.core import exact_mdp
from minirlhf_course.classroom.testing import expect, test, tidy, tidy_distribution


def world(draw):
    """Return two states and two actions with few digits; the second state has larger rewards."""
    P = torch.stack([torch.stack([tidy_distribution(draw, 2) for _ in range(2)]) for _ in range(2)])
    R = tidy(draw.uniform(2, 2, 2, low=-2, high=2)) + torch.tensor([0.0, 1.0], dtype=torch.float64)
    policy = torch.stack([tidy_distribution(draw, 2) for _ in range(2)])
    return P, R, policy, [0.5, 0.6, 0.8][draw.integer(0, 2)]


def shown(P, R, policy, gamma):
    return {"P": P, "R": R, "policy": policy, "gamma": gamma}


@test(
    points=3,
    against="the discounted rewards, added up step by step",
    hints=(
        "Average over the actions first. With what probability does the policy go from s to s', and what is the mean reward of a step from s? Then write one equation per state.",
        "V = r + γ P_π V, with r(s) the sum over a and s' of π · P · R. Bring V to one side and use torch.linalg.solve.",
    ),
)
def states(sub, draw):
    "`values` is the expected discounted sum of rewards from each state."
    P, R, policy, gamma = world(draw)
    mean = (P * R).sum(-1)
    want = exact_mdp.state_values(P, mean, policy, gamma=gamma)
    even = torch.full_like(policy, 0.5)
    early, moves = torch.zeros(2, dtype=torch.float64), (policy[..., None] * P).sum(1)
    for _ in range(10):
        early = (policy * mean).sum(-1) + gamma * moves @ early
    expect(
        sub.values(P, R, policy, gamma),
        want,
        what="the values",
        given=shown(P, R, policy, gamma),
        mistakes={
            "rewards are averaged over the next states without their probabilities": exact_mdp.state_values(
                P, R.mean(-1), policy, gamma=gamma
            ),
            "all actions are taken equally often": exact_mdp.state_values(P, mean, even, gamma=gamma),
            "the sum over time is truncated after ten steps": early,
            "the first reward is discounted too": gamma * want,
            "only the first reward is counted": (policy * mean).sum(-1),
        },
    )
    far = 0.99
    expect(
        sub.aside.values(P, R, policy, far),
        exact_mdp.state_values(P, mean, policy, gamma=far),
        what="the values with γ near 1",
        given=shown(P, R, policy, far),
    )


@test(
    points=2,
    against="the discounted rewards, added up step by step",
    hints=(
        "Only the first action is fixed. After it you are in s', and you already know the value of s'.",
        "Q(s,a) is the mean over s' of R(s,a,s') + γ V(s'). Use V and not the best Q, because the given policy continues.",
    ),
)
def actions(sub, draw):
    "`action_values` is the value of one fixed action, followed by the policy."
    P, R, policy, gamma = world(draw)
    mean = (P * R).sum(-1)
    v = exact_mdp.state_values(P, mean, policy, gamma=gamma)
    _, best = exact_mdp.best_values(P, mean, gamma=gamma)
    expect(
        sub.action_values(P, R, policy, gamma),
        exact_mdp.action_values(P, mean, policy, gamma=gamma),
        what="the action values",
        given=shown(P, R, policy, gamma),
        mistakes={
            "the value of the state that is left is added, not of the one that is reached": mean + gamma * v[:, None],
            "the result is multiplied by the policy's probability of the action, but the action is given": policy
            * exact_mdp.action_values(P, mean, policy, gamma=gamma),
            "the discount is forgotten": mean + P @ v,
            "after the first action the best policy acts, not the given one": best,
        },
    )


@test(
    points=2,
    against="the probabilities of being in each state, step by step",
    hints=(
        "The time in s comes from the start, and from the states that lead to s. In which direction does the matrix act?",
        "d(s') = (1 − γ) start(s') + γ Σ_s d(s) P_π(s'|s). The sum runs over the first index of P_π, so transpose it.",
    ),
)
def time(sub, draw):
    "`time_share` is the discounted fraction of time in each state."
    P, _, policy, gamma = world(draw)
    rare = draw.integer(1, 8) / 20
    start = torch.tensor([rare, 1 - rare], dtype=torch.float64)[draw.permutation(2)]
    want = (1 - gamma) * exact_mdp.visits(start, P, policy, gamma=gamma).sum(-1)
    moves = (policy[..., None] * P).sum(1)
    expect(
        sub.time_share(P, policy, start, gamma),
        want,
        what="the fractions of time",
        given={"P": P, "policy": policy, "start": start, "gamma": gamma},
        mistakes={
            "the fractions are not normalised by 1 − γ": want / (1 - gamma),
            "every state is assumed to be the start equally often": (1 - gamma)
            * exact_mdp.visits(torch.full((2,), 0.5, dtype=torch.float64), P, policy, gamma=gamma).sum(-1),
            "the matrix is not transposed": torch.linalg.solve(
                torch.eye(2, dtype=torch.float64) - gamma * moves, (1 - gamma) * start
            ),
            "only the start is counted": start,
        },
    )


# %% [probes]
# no gradient: the exercise asks for a formula, in any library


# %% [mutant] the next state's probability is left out of the reward
# caught by: states
# says: without their probabilities
def values(P, R, policy, gamma):
    moves = (policy[..., None] * P).sum(1)
    return torch.linalg.solve(torch.eye(len(moves)).double() - gamma * moves, (policy * R.mean(-1)).sum(-1))


# %% [mutant] the policy is ignored
# caught by: states
# says: equally often
def values(P, R, policy, gamma):
    moves = P.mean(1)
    return torch.linalg.solve(torch.eye(len(moves)).double() - gamma * moves, (P * R).sum(-1).mean(-1))


# %% [mutant] the first reward is discounted
# caught by: states
# says: the first reward is discounted
def values(P, R, policy, gamma):
    moves = (policy[..., None] * P).sum(1)
    earned = (policy * (P * R).sum(-1)).sum(-1)
    return gamma * torch.linalg.solve(torch.eye(len(moves)).double() - gamma * moves, earned)


# %% [mutant] the state that is left, not the one reached
# caught by: actions
# says: the state that is left
def action_values(P, R, policy, gamma):
    return (P * R).sum(-1) + gamma * values(P, R, policy, gamma)[:, None]


# %% [mutant] no discount in Q
# caught by: actions
# says: discount is forgotten
def action_values(P, R, policy, gamma):
    return (P * R).sum(-1) + P @ values(P, R, policy, gamma)


# %% [mutant] the flow runs backwards
# caught by: time
# says: not transposed
def time_share(P, policy, start, gamma):
    moves = (policy[..., None] * P).sum(1)
    return torch.linalg.solve(torch.eye(len(moves)).double() - gamma * moves, (1 - gamma) * start)


# %% [mutant] not normalised
# caught by: time
# says: not normalised
def time_share(P, policy, start, gamma):
    moves = (policy[..., None] * P).sum(1)
    return torch.linalg.solve(torch.eye(len(moves)).double() - gamma * moves.T, start)


# %% [partial] 5: values and action values, no fractions of time
def time_share(P, policy, start, gamma):
    raise NotImplementedError


# %% [partial] 3: the values only
def action_values(P, R, policy, gamma):
    return (P * R).sum(-1)


def time_share(P, policy, start, gamma):
    return start
