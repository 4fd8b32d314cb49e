# ---
# title: Value iteration
# kind: implement
# minutes: 25
# ---

# %% [statement]
# You know the laws of an environment: `P` with $P(s'\mid s,a)$, shape `(S, A, S)`, and expected rewards `r`, shape `(S, A)`. Find the best policy by *value iteration*.
#
# 1. `sweep(P, r, V, gamma)`: one sweep of Bellman's optimality equation, from values `V` `(S,)` to new values `(S,)`. Update all states at once, from the old values.
# 2. `solve(P, r, gamma, error)`: sweep from zero until you can *prove* that no value is further than `error` from the optimal one, and return the values `(S,)`. You do not know the optimal values. But you know by how much
#    the last sweep changed them, and each later sweep changes them by at most $\gamma$ times as much as the sweep before. Add up all later changes. `gamma` is below 1.
# 3. `act(P, r, V, gamma)`: the greedy action of each state, as integers `(S,)`.
#
# It is a common mistake to stop as soon as a sweep changes the values by less than `error`. With $\gamma = .95$ the result may still be wrong by nineteen times `error`.

# %% [given]
import torch


# %% [stub]
def sweep(P, r, V, gamma):
    """Do one sweep: (S,) -> (S,)."""
    raise NotImplementedError


def solve(P, r, gamma, error):
    """Return values (S,) that are within `error` of the optimal ones."""
    raise NotImplementedError


def act(P, r, V, gamma):
    """Return the greedy actions (S,), integers."""
    raise NotImplementedError


# %% [solution]
def sweep(P, r, V, gamma):
    return (r + gamma * P @ V).amax(-1)


def solve(P, r, gamma, error):
    V = torch.zeros(len(r), dtype=r.dtype)
    while True:
        better = sweep(P, r, V, gamma)
        moved = (better - V).abs().max()
        V = better
        if moved * gamma / (1 - gamma) <= error:
            return V


def act(P, r, V, gamma):
    return (r + gamma * P @ V).argmax(-1)


# %% [tests]
import torch
from minirlhf.core import exact_mdp
from minirlhf_course.classroom.testing import expect, fail, test, tidy, tidy_distribution


def world(draw, states=3, actions=2):
    P = torch.stack([torch.stack([tidy_distribution(draw, states) for _ in range(actions)]) for _ in range(states)])
    return P, tidy(draw.uniform(states, actions, low=-2, high=2))


def myopic():
    """Return two states in which action 0 has the larger reward now and action 1 the larger value."""
    P = torch.tensor([[[0.1, 0.9], [0.9, 0.1]], [[0.1, 0.9], [0.8, 0.2]]], dtype=torch.float64)
    return P, torch.tensor([[2.0, 1.0], [-1.0, -2.0]], dtype=torch.float64)


def deterministic(steps):
    """Return a world without chance: ``steps[s]`` holds the next state and the reward of each of two actions."""
    P = torch.zeros(len(steps), 2, len(steps), dtype=torch.float64)
    r = torch.zeros(len(steps), 2, dtype=torch.float64)
    for s, actions in enumerate(steps):
        for a, (after, reward) in enumerate(actions):
            P[s, a, after], r[s, a] = 1.0, reward
    return P, r


def settled(P, r, gamma):
    """Return the values after so many sweeps that only rounding errors are left; too many states to try all policies."""
    V = torch.zeros(len(r), dtype=torch.float64)
    for _ in range(exact_mdp.horizon_for(gamma)):
        V = (r + gamma * P @ V).amax(-1)
    return V


def apart(draw):
    """Return four states that are never left. One of them pays or costs, so only its value changes, to the last sweep."""
    sign, place = [1.0, -1.0][draw.integer(0, 1)], draw.integer(1, 3)
    return deterministic([[(s, sign * (s == place)), (s, sign * (s == place) - 3.0)] for s in range(4)])


def late():
    """Return a world in which the best action of a state shows only after that of the state behind it.

    State 0 is the end, and 1 to 12 are a chain to a reward of 9.
    """
    chain = [[(0, 0.0), (s + 1 if s < 12 else 0, -0.1 if s < 12 else 9.0)] for s in range(1, 13)]
    return deterministic([[(0, 0.0), (0, -1.0)], *chain])


def waiting():
    """Return a world in which the greedy action of state 0 changes after the third sweep, and none before."""
    paid = [(4, 6.0), (4, 5.0)]
    return deterministic(
        [[(4, 3.0), (1, 0.0)], [(2, 0.0), (2, -1.0)], [(3, 0.0), (3, -1.0)], paid, [(4, 0.0), (4, -1.0)]]
    )


def small_gains():
    """Return a world in which each round of policy iteration adds less than 0.1 to any value, and the later rounds together more.

    On the way 0, 1, 2, 3 (the end) each state has a detour of 2, 3 or 4 states, at the end of which 0.09 is earned.
    """
    steps = [[], [], [], [(3, 0.0), (3, -1.0)]]
    for state, length in ((0, 2), (1, 3), (2, 4)):
        begin = len(steps)
        steps[state] = [(state + 1, 0.0), (begin, -0.001)]
        for k in range(length):
            last = k == length - 1
            steps.append([(state + 1, 0.0), (state + 1, 0.09) if last else (begin + k + 1, -0.001)])
    return deterministic(steps)


@test(
    points=2,
    hints=(
        "For each state and action, add the reward and the discounted value of the next state. Then choose.",
        "`P @ V` averages the values over the next states: (S, A). Multiply by γ, add r, and take the largest over the last axis.",
    ),
)
def one_sweep(sub, draw):
    "`sweep` applies Bellman's optimality equation once."
    P, r = world(draw)
    V, gamma = tidy(draw.uniform(3, low=1, high=3)) * torch.tensor([1.0, 2.0, -1.0], dtype=torch.float64), 0.9
    # In state 0 the action with the smaller reward leads to the better state and is always the better choice.
    P[0] = torch.tensor([[0.1, 0.8, 0.1], [0.1, 0.1, 0.8]], dtype=torch.float64)
    r[0, 0] = r[0, 1] - 1.0
    q = torch.zeros(3, 2, dtype=torch.float64)
    for s in range(3):
        for a in range(2):
            q[s, a] = r[s, a] + gamma * sum(float(P[s, a, t]) * float(V[t]) for t in range(3))
    within = V.clone()
    for s in range(3):
        within[s] = (r[s] + gamma * P[s] @ within).max()
    expect(
        sub.sweep(P, r, V, gamma),
        q.amax(-1),
        what="the values after one sweep",
        given={"P": P, "r": r, "V": V, "gamma": gamma},
        mistakes={
            "actions are averaged instead of chosen": q.mean(-1),
            "the action is chosen by its reward alone": q.gather(1, r.argmax(-1, keepdim=True))[:, 0],
            "the discount is forgotten": (r + P @ V).amax(-1),
            "a state's new value is already used for the states after it": within,
            "the best next state is assumed to follow": (r + gamma * V.max()).amax(-1),
        },
    )


@test(
    points=2,
    rounds=1,
    hints=(
        "Suppose the last sweep changed values by at most m. By how much can the next sweep change them? And all later sweeps together?",
        "At most γm, γ²m, and so on: a geometric series. Stop when its sum is at most the given error.",
    ),
)
def near_enough(sub, draw):
    "`solve` is within `error` of the best values, also when γ is near 1."
    P, r = world(draw, 2)
    expect(
        sub.aside.solve(P, r, 0.0, 0.1),
        r.amax(-1),
        what="the values with γ = 0, where one sweep proves all,",
        given={"P": P, "r": r, "gamma": 0.0, "error": 0.1},
    )
    cases = [
        (sub, P, r, 0.5, 1e-6),
        (sub, P, r.abs() + 1.0, 0.95, 0.1),  # all rewards positive: the values rise slowly from zero
        (sub.aside, *world(draw, 4, 3), 0.8, 0.01),
        (sub.aside, P, -r.abs() - 1.0, 0.95, 0.1),  # all rewards negative: the values fall
        (sub.aside, P, r.abs() + 1.0, 0.998, 0.1),  # a thousand sweeps are too few
        (sub.aside, *apart(draw), 0.95, 0.05),  # the last change, times γ/(1 − γ), is the error itself
        (sub.aside, *late(), 0.9, 0.1),
        (sub.aside, *waiting(), 0.9, 0.1),
        (sub.aside, *small_gains(), 0.95, 0.1),
    ]
    for asked, P, r, gamma, error in cases:
        best = exact_mdp.best_values(P, r, gamma=gamma)[0] if len(r) < 5 else settled(P, r, gamma)
        got = asked.solve(P, r, gamma, error)
        given = {"P": P, "r": r, "gamma": gamma, "error": error}
        if not isinstance(got, torch.Tensor) or got.shape != best.shape:
            expect(got, best, what="the values", given=given)
        off = float((got.double() - best).abs().max())
        if not off <= error * (1 + 1e-9) + 1e-9:
            fail(
                f"the values are {off:.3g} away from the optimal ones; at most {error:g} is required"
                + (
                    ": it stopped as soon as one sweep changed the values by less than that"
                    if asked is sub and off <= 1.01 * gamma / (1 - gamma) * error
                    else ""
                ),
                **given,
                yours=got,
            )


@test(
    points=1,
    hints=(
        "The best action depends on its reward *and* on its next state.",
        "Use the same table as in `sweep`. This time return the index of the largest entry, not its value.",
    ),
)
def greedy(sub, draw):
    "`act` takes the best action by the given values, not the one with the largest reward."
    P, r = myopic()
    r = r + 0.2 * draw.uniform(2, 2)
    best, q = exact_mdp.best_values(P, r, gamma=0.9)
    expect(
        sub.act(P, r, best, 0.9),
        q.argmax(-1),
        what="the greedy actions",
        given={"P": P, "r": r, "V": best, "gamma": 0.9},
        mistakes={
            "the action with the largest reward is taken": r.argmax(-1),
            "the worst action is taken": q.argmin(-1),
        },
    )


# %% [probes]
# no gradient: a table of values, not a loss
# no keywords, size, values, float32 of solve: all values within `error` are right


# %% [mutant] the mean over actions
# caught by: one_sweep
# says: averaged instead of chosen
def sweep(P, r, V, gamma):
    return (r + gamma * P @ V).mean(-1)


# %% [mutant] chooses by the reward alone
# caught by: one_sweep
# says: by its reward alone
def sweep(P, r, V, gamma):
    return (r + gamma * P @ V).gather(1, r.argmax(-1, keepdim=True))[:, 0]


# %% [mutant] assumes the best next state
# caught by: one_sweep
# says: assumed to follow
def sweep(P, r, V, gamma):
    return (r + gamma * V.max()).amax(-1)


# %% [mutant] stops when a sweep changes little
# caught by: near_enough
# says: changed the values by less than that
def solve(P, r, gamma, error):
    V = torch.zeros(len(r), dtype=r.dtype)
    while True:
        better = sweep(P, r, V, gamma)
        if (better - V).abs().max() <= error:
            return better
        V = better


# %% [mutant] ten sweeps, whatever happens
# caught by: near_enough
def solve(P, r, gamma, error):
    V = torch.zeros(len(r), dtype=r.dtype)
    for _ in range(10):
        V = sweep(P, r, V, gamma)
    return V


# %% [mutant] acts by the reward alone
# caught by: greedy
# says: with the largest reward
def act(P, r, V, gamma):
    return r.argmax(-1)


# %% [partial] 3: the sweep and the greedy action, but it stops too early
def solve(P, r, gamma, error):
    V = torch.zeros(len(r), dtype=r.dtype)
    while True:
        better = sweep(P, r, V, gamma)
        if (better - V).abs().max() <= error:
            return better
        V = better


# %% [partial] 2: the sweep only
def solve(P, r, gamma, error):
    raise NotImplementedError


def act(P, r, V, gamma):
    raise NotImplementedError
