# ---
# title: What a policy is worth
# kind: derive
# minutes: 35
# ---

# %% [statement]
# A world has $S$ states and $A$ actions. In state $s$ the action $a$ leads to $s'$ with probability $P(s'\mid s,a)$, and *that step* earns
# $R(s,a,s')$: the reward depends on where it leads. A policy chooses $a$ with probability $\pi(a\mid s)$. A step that is $k$ steps away counts $\gamma^k$,
# with $0 \le \gamma < 1$. Nothing ever ends.
#
# Derive, by taking the first step out of the infinite sum, and solving what you get:
#
# 1. `values(P, R, policy, gamma)`: $V(s)$, the expected discounted sum of rewards from each state, shape `(S,)`;
# 2. `action_values(P, R, policy, gamma)`: $Q(s,a)$, the same if the first action is $a$ and the policy acts from then on, shape `(S, A)`;
# 3. `time_share(P, policy, start, gamma)`: how the discounted time is divided among the states,
#    $d(s) = (1-\gamma)\sum_t \gamma^t P(s_t = s)$, with $s_0$ drawn from `start`; shape `(S,)`. It is a distribution.
#
# No loops over time: each is a linear system or follows from one. The checker adds up the series term by term and knows no formula.
# `P` is `(S, A, S)`, `R` is `(S, A, S)`, `policy` is `(S, A)`, `start` is `(S,)`.

# %% [given]
import torch


# %% [stub]
def values(P, R, policy, gamma):
    """V: (S,)."""
    raise NotImplementedError


def action_values(P, R, policy, gamma):
    """Q: (S, A)."""
    raise NotImplementedError


def time_share(P, policy, start, gamma):
    """Discounted share of time in each state: (S,), sums to 1."""
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
    """Two states, two actions, few digits; the second state pays more."""
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
        "Average the actions away first: what is the chance of going from s to s', and what does a step from s earn on average? Then one equation per state.",
        "V = r + γ P_π V, with r(s) the sum over a and s' of π · P · R. Bring V to one side and let torch.linalg.solve do the rest.",
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
            "the sum over time is cut off after ten steps": early,
            "the first reward is discounted too": gamma * want,
            "only the first step is counted": (policy * mean).sum(-1),
        },
    )


@test(
    points=2,
    against="the discounted rewards, added up step by step",
    hints=(
        "The first action is forced, and nothing else is. After it you are in s', and what that is worth you know already.",
        "Q(s,a) is the mean over s' of R(s,a,s') + γ V(s'). V, not the best Q: the policy goes on as it is.",
    ),
)
def actions(sub, draw):
    "`action_values` is what one forced action, followed by the policy, earns."
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
            "the policy's probability of the action is multiplied in, but the action is given": policy
            * exact_mdp.action_values(P, mean, policy, gamma=gamma),
            "the discount is forgotten": mean + P @ v,
            "after the first action the best policy is followed, not the given one": best,
        },
    )


@test(
    points=2,
    against="the probabilities of being in each state, step by step",
    hints=(
        "Think of flow: the time spent in s comes from the start, and from the states that lead to s. In which direction does the matrix have to act?",
        "d(s') = (1 − γ) start(s') + γ Σ_s d(s) P_π(s'|s). The sum runs over the first index of P_π: transpose it.",
    ),
)
def time(sub, draw):
    "`time_share` is the discounted share of time in each state."
    P, _, policy, gamma = world(draw)
    rare = draw.integer(1, 8) / 20
    start = torch.tensor([rare, 1 - rare], dtype=torch.float64)[draw.permutation(2)]
    want = (1 - gamma) * exact_mdp.visits(start, P, policy, gamma=gamma).sum(-1)
    moves = (policy[..., None] * P).sum(1)
    expect(
        sub.time_share(P, policy, start, gamma),
        want,
        what="the shares of time",
        given={"P": P, "policy": policy, "start": start, "gamma": gamma},
        mistakes={
            "the shares are not normalised by 1 − γ": want / (1 - gamma),
            "every state is taken to be the start equally often": (1 - gamma)
            * exact_mdp.visits(torch.full((2,), 0.5, dtype=torch.float64), P, policy, gamma=gamma).sum(-1),
            "the matrix is not transposed": torch.linalg.solve(
                torch.eye(2, dtype=torch.float64) - gamma * moves, (1 - gamma) * start
            ),
            "only the start is counted": start,
        },
    )


# %% [probes]
# no gradient: a formula is asked for, in whatever library


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


# %% [partial] 5: values and action values, no shares
def time_share(P, policy, start, gamma):
    raise NotImplementedError


# %% [partial] 3: the values only
def action_values(P, R, policy, gamma):
    return (P * R).sum(-1)


def time_share(P, policy, start, gamma):
    return start
