# ---
# title: A learner of your own
# kind: implement
# minutes: 40
# seconds: 30
# ---

# %% [statement]
# Q-learning, whole: your agent walks through a world that it does not know and learns what to do there. The given `walk(world, state, action, rng)` takes one step in it and
# returns `(reward, next_state, over)`. There are `S` states and `A` actions; every episode begins in state 0.
#
# 1. (five minutes) `target(reward, next_values, over, gamma)`: what one step says that the action was worth. `next_values` is the list of action values of the next state.
# 2. `learn(world, episodes, alpha, gamma, epsilon, seed)`: learn action values by $\varepsilon$-greedy Q-learning from so many episodes and return them, a list of `S` lists of `A` numbers,
#    or a tensor `(S, A)`. `world["states"]` and `world["actions"]` say how many there are. An episode is cut off after 100 steps. Use the seed for all random numbers.
#    Keep away from the tables in `world`: a learner that reads the map has learned nothing. Among equally good actions choose at random.
#
# How it is judged: five worlds, 150 episodes in each, $\alpha = 0.3$, $\gamma = 0.9$, $\varepsilon = 0.2$. The score is the exact discounted value of acting greedily by what you return,
# from state 0, and it is compared with our learner's in the same world. Its mean over the five may lie 0.1 below ours, with the whole of its 95 % interval.

# %% [given]
import random


def walk(world, state, action, rng):
    """One step: (reward, next state, whether the episode is over)."""
    if rng.random() < world["slip"]:
        action = rng.randrange(world["actions"])
    after = world["leads"][state][action]
    return world["earns"][after], after, world["ends"][after]


# %% [stub]
def target(reward, next_values, over, gamma):
    """reward: a number. next_values: a list. over: True or False. Returns a number."""
    raise NotImplementedError


def learn(world, episodes, alpha, gamma, epsilon, seed):
    """Returns the action values: S lists of A numbers."""
    raise NotImplementedError


# %% [solution]
def target(reward, next_values, over, gamma):
    return reward if over else reward + gamma * max(next_values)


def learn(world, episodes, alpha, gamma, epsilon, seed):
    rng = random.Random(seed)
    q = [[0.0] * world["actions"] for _ in range(world["states"])]
    for _ in range(episodes):
        state = 0
        for _ in range(100):
            best = max(q[state])
            greedy = [a for a, value in enumerate(q[state]) if value == best]
            action = rng.randrange(world["actions"]) if rng.random() < epsilon else rng.choice(greedy)
            reward, after, over = walk(world, state, action, rng)
            q[state][action] += alpha * (target(reward, q[after], over, gamma) - q[state][action])
            state = after
            if over:
                break
    return q


# %% [tests]
import torch

from minirlhf_course.classroom.testing import expect, fail, test, tidy
from minirlhf_course.classroom.training import trains


@test(
    points=1,
    hints=(
        "What can still be earned from the next state, if one acts as well as one knows? And if there is no next step?",
        "Reward plus γ times the largest value; the reward alone where the episode is over.",
    ),
)
def looks_ahead(sub, draw):
    "`target` is the reward plus γ times the best value of the next state, if there is a next step."
    reward, gamma = float(tidy(draw.uniform(1, low=-1, high=1))), [0.5, 0.9][draw.integer(0, 1)]
    values = tidy(draw.uniform(3, low=0.2, high=3)).tolist()
    for over in (False, True):
        ahead = 0.0 if over else gamma
        expect(
            sub.target(reward, values, over, gamma),
            reward + ahead * max(values),
            what="the target",
            given={"reward": reward, "next_values": values, "over": over, "gamma": gamma},
            mistakes={
                "the end of the episode is overlooked": reward + gamma * max(values),
                "γ is forgotten": reward + max(values),
                "the mean of the next values is taken": reward + ahead * sum(values) / 3,
                "the smallest of the next values is taken": reward + ahead * min(values),
                "the reward of the step is left out": reward if over else gamma * max(values),
                "γ discounts the reward, too": gamma * reward + ahead * max(values),
            },
        )


SIDE = 4


def world(draw):
    """A grid of 4 by 4, its cells numbered at random, with a coin at the far corner, which ends the episode."""
    name = [0, *(1 + draw.permutation(SIDE * SIDE - 1)).tolist()]  # the episode begins in cell 0, which is state 0
    leads = [[0] * 4 for _ in range(SIDE * SIDE)]
    for cell in range(SIDE * SIDE):
        row, column = divmod(cell, SIDE)
        order = draw.permutation(4).tolist()  # what an action means differs from state to state
        for action, (down, right) in zip(order, ((0, 1), (1, 0), (0, -1), (-1, 0)), strict=True):
            to = max(0, min(SIDE - 1, row + down)) * SIDE + max(0, min(SIDE - 1, column + right))
            leads[name[cell]][action] = name[to]
    earns, ends = [0.0] * SIDE**2, [False] * SIDE**2
    earns[name[SIDE**2 - 1]], ends[name[SIDE**2 - 1]] = 1.0, True
    return {"states": SIDE**2, "actions": 4, "slip": 0.1, "leads": leads, "earns": earns, "ends": ends}


def worth(found, world, gamma):
    """The exact value of acting greedily by these action values, from state 0; equals share."""
    states, actions = world["states"], world["actions"]
    q = torch.as_tensor(found, dtype=torch.float64)
    best = (q == q.max(-1, keepdim=True).values).double()
    policy = best / best.sum(-1, keepdim=True)
    chosen = (1 - world["slip"]) * policy + world["slip"] / actions
    moves = torch.zeros(states, states, dtype=torch.float64)
    for state in range(states):
        for action in range(actions):
            moves[state, world["leads"][state][action]] += chosen[state, action]
    earns, goes_on = torch.tensor(world["earns"], dtype=torch.float64), ~torch.tensor(world["ends"])
    return torch.linalg.solve(torch.eye(states, dtype=torch.float64) - gamma * moves * goes_on, moves @ earns)[0]


@trains(
    points=4,
    hints=(
        "Which state's value is moved, towards what, and by how much? And does your agent try everything out, also where all values are 0?",
        "q[state][action] += alpha * (target − q[state][action]), with the next state's values in the target; ε-greedy actions, ties broken at random; then state = next state.",
    ),
    seeds=5,
    bar=0.1,
    what="the value of acting greedily",
)
def learns(sub, draw):
    "`learn` finds its way to the coin: five worlds, each beside our learner."
    made = world(draw)
    found = sub.learn(made, 150, 0.3, 0.9, 0.2, draw.integer(0, 2**28))
    try:
        q = torch.as_tensor(found, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        fail("expected the action values: 16 lists of 4 numbers")
    if q.shape != (16, 4) or not bool(q.isfinite().all()):
        fail("expected the action values: 16 lists of 4 finite numbers")
    return [worth(torch.zeros(16, 4), made, 0.9), worth(q, made, 0.9)]


# %% [probes]
# no gradient: values are learned step by step
# no inputs, integers, keywords, size, values, float32 of learn: any learner that finds the way is right


# %% [mutant] the end is overlooked
# caught by: looks_ahead
# says: overlooked
def target(reward, next_values, over, gamma):
    return reward + gamma * max(next_values)


# %% [mutant] the mean of the next values
# caught by: looks_ahead
# says: mean of the next values
def target(reward, next_values, over, gamma):
    return reward if over else reward + gamma * sum(next_values) / len(next_values)


# %% [mutant] no exploration, the first of equals
# caught by: learns
# says: below ours
def learn(world, episodes, alpha, gamma, epsilon, seed):
    rng = random.Random(seed)
    q = [[0.0] * world["actions"] for _ in range(world["states"])]
    for _ in range(episodes):
        state = 0
        for _ in range(100):
            action = q[state].index(max(q[state]))
            reward, after, over = walk(world, state, action, rng)
            q[state][action] += alpha * (target(reward, q[after], over, gamma) - q[state][action])
            state = after
            if over:
                break
    return q


# %% [mutant] the next state's value is moved
# caught by: learns
# says: below ours
def learn(world, episodes, alpha, gamma, epsilon, seed):
    rng = random.Random(seed)
    q = [[0.0] * world["actions"] for _ in range(world["states"])]
    for _ in range(episodes):
        state = 0
        for _ in range(100):
            best = max(q[state])
            greedy = [a for a, value in enumerate(q[state]) if value == best]
            action = rng.randrange(world["actions"]) if rng.random() < epsilon else rng.choice(greedy)
            reward, state, over = walk(world, state, action, rng)
            q[state][action] += alpha * (target(reward, q[state], over, gamma) - q[state][action])
            if over:
                break
    return q


# %% [mutant] the target is added, not approached
# caught by: learns
# says: below ours
def learn(world, episodes, alpha, gamma, epsilon, seed):
    rng = random.Random(seed)
    q = [[0.0] * world["actions"] for _ in range(world["states"])]
    for _ in range(episodes):
        state = 0
        for _ in range(100):
            best = max(q[state])
            greedy = [a for a, value in enumerate(q[state]) if value == best]
            action = rng.randrange(world["actions"]) if rng.random() < epsilon else rng.choice(greedy)
            reward, after, over = walk(world, state, action, rng)
            q[state][action] = min(1e6, q[state][action] + alpha * target(reward, q[after], over, gamma))
            state = after
            if over:
                break
    return q


# %% [mutant] only the reward of the step counts
# caught by: learns
# says: below ours
def learn(world, episodes, alpha, gamma, epsilon, seed):
    rng = random.Random(seed)
    q = [[0.0] * world["actions"] for _ in range(world["states"])]
    for _ in range(episodes):
        state = 0
        for _ in range(100):
            best = max(q[state])
            greedy = [a for a, value in enumerate(q[state]) if value == best]
            action = rng.randrange(world["actions"]) if rng.random() < epsilon else rng.choice(greedy)
            reward, after, over = walk(world, state, action, rng)
            q[state][action] += alpha * (reward - q[state][action])
            state = after
            if over:
                break
    return q


# %% [partial] 1: the target
def learn(world, episodes, alpha, gamma, epsilon, seed):
    raise NotImplementedError
