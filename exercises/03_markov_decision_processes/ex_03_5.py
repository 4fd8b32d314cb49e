# ---
# title: A learner of your own
# kind: implement
# minutes: 40
# seconds: 30
# ---

# %% [statement]
# Write all of Q-learning: your agent walks through an unknown environment and learns how to act there. The given `walk(world, state, action, rng)` takes one step and
# returns `(reward, next_state, over)`. There are `S` states and `A` actions, and every episode begins in state 0.
#
# 1. (five minutes) `target(reward, next_values, over, gamma)`: the target of one step. `next_values` is the list of action values of the next state.
# 2. `learn(world, episodes, alpha, gamma, epsilon, seed)`: learn action values by $\varepsilon$-greedy Q-learning from this number of episodes and return them, a list of `S` lists of `A` numbers,
#    or a tensor `(S, A)`, all 0 at first. `world["states"]` and `world["actions"]` are the numbers of states and actions. An episode is truncated after 100 steps. Use the seed for all random numbers of your own.
#    You cannot read the tables of the environment: `walk` asks it, and it answers only for the state that the agent is in, or for state 0, where the next episode begins. It counts the episodes. Among equally good actions choose at random.
#
# How your answer is tested: in five environments your learner gets 150 episodes with $\alpha = 0.3$, $\gamma = 0.9$, $\varepsilon = 0.2$. The score is the exact discounted value, from state 0, of acting greedily by the returned values.
# The reference learner has a score in the same environment. You pass if the lower end of the 95 % interval of the mean difference, your score − the reference score, is above −0.1. Then the tests run your learner in small environments
# with other $\alpha$, $\gamma$, $\varepsilon$ and other numbers of episodes, in which Q-learning finds known values. They also run it twice with the same seed, and with another.
# In the five environments, too, the returned values must be those of Q-learning after the steps that you took, each step used once, and the actions must be $\varepsilon$-greedy.

# %% [given]
import random


def walk(world, state, action, rng=None):
    """Take one step: (reward, next state, whether the episode is over). The environment has its own randomness; `rng` is not used."""
    return world["walk"](state, action)


# %% [stub]
def target(reward, next_values, over, gamma):
    """Return the target, a number. reward: a number. next_values: a list. over: True or False."""
    raise NotImplementedError


def learn(world, episodes, alpha, gamma, epsilon, seed):
    """Return the action values: S lists of A numbers."""
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
import random

import torch
from minirlhf_course.classroom.chance import LEVEL, tails
from minirlhf_course.classroom.testing import expect, fail, test, tidy
from minirlhf_course.classroom.training import trains
from minirlhf_course.ledger.registry import Draw


@test(
    points=1,
    hints=(
        "What is the largest value that the agent can expect from the next state? And if there is no next step?",
        "Reward plus γ times the largest value. If the episode is over, the reward alone.",
    ),
)
def looks_ahead(sub, draw):
    "`target` is the reward plus γ times the best value of the next state, if there is a next step."
    reward, gamma = float(tidy(draw.uniform(1, low=-1, high=1))), [0.5, 0.9][draw.integer(0, 1)]
    likely = tidy(draw.uniform(3, low=0.2, high=3))
    for asked, values, over in (
        (sub, likely.tolist(), False),
        (sub, likely.tolist(), True),
        (sub.aside, (likely - 4.0).tolist(), False),  # all below 0
    ):
        ahead = 0.0 if over else gamma
        expect(
            asked.target(reward, values, over, gamma),
            reward + ahead * max(values),
            what="the target",
            given={"reward": reward, "next_values": values, "over": over, "gamma": gamma},
            mistakes={
                "the end of the episode is ignored": reward + gamma * max(values),
                "γ is forgotten": reward + max(values),
                "the mean of the next values is taken": reward + ahead * sum(values) / 3,
                "the smallest of the next values is taken": reward + ahead * min(values),
                "the reward of the step is missing": reward if over else gamma * max(values),
                "γ discounts the reward, too": gamma * reward + ahead * max(values),
            },
        )


SIDE = 4
CUT = 100  # steps of an episode


class World:
    """An environment that answers and counts. A learner gets :meth:`handle`, and no table.

    Args:
        leads, earns, ends: the next state of each state and action, the reward of a state, and whether it is terminal.
        slip: the probability that a random action replaces the chosen one.
        luck: a seed.
    """

    def __init__(self, leads, earns, ends, slip=0.0, luck=0):
        self.leads, self.earns, self.ends, self.slip = leads, earns, ends, slip
        self.rng = random.Random(luck)
        self.taken = []  # (state, action) of every step
        self.seen = []  # (state, action, reward, next state, whether it is over) of every step
        self.state, self.steps, self.episodes, self.problem = -1, 0, 0, ""

    def handle(self):
        return {"states": len(self.leads), "actions": len(self.leads[0]), "walk": self.walk}

    def walk(self, state, action):
        begins = state == 0 and (self.state != 0 or self.steps >= CUT)
        if begins:
            self.episodes, self.steps = self.episodes + 1, 0
        elif state != self.state:
            self.problem = self.problem or f"`walk` was called for state {state}, but the agent is in another state"
        elif self.steps >= CUT:
            self.problem = self.problem or f"an episode continues after {CUT} steps"
        self.steps += 1
        self.taken.append((state, action))
        if self.rng.random() < self.slip:
            action = self.rng.randrange(len(self.leads[0]))
        after = self.leads[state][action]
        self.state = -1 if self.ends[after] else after
        self.seen.append((state, self.taken[-1][1], self.earns[after], after, self.ends[after]))
        return self.earns[after], after, self.ends[after]


def grid(draw):
    """Return a 4 × 4 grid with randomly numbered cells and a goal in the far corner, which ends the episode."""
    name = [0, *(1 + draw.permutation(SIDE * SIDE - 1)).tolist()]  # the episode begins in cell 0, which is state 0
    leads = [[0] * 4 for _ in range(SIDE * SIDE)]
    for cell in range(SIDE * SIDE):
        row, column = divmod(cell, SIDE)
        order = draw.permutation(4).tolist()  # the meaning of an action differs from state to state
        for action, (down, right) in zip(order, ((0, 1), (1, 0), (0, -1), (-1, 0)), strict=True):
            to = max(0, min(SIDE - 1, row + down)) * SIDE + max(0, min(SIDE - 1, column + right))
            leads[name[cell]][action] = name[to]
    earns, ends = [0.0] * SIDE**2, [False] * SIDE**2
    earns[name[SIDE**2 - 1]], ends[name[SIDE**2 - 1]] = 1.0, True
    return World(leads, earns, ends, 0.1, draw.integer(0, 2**28))


def worth(found, world, gamma):
    """Return the exact value of acting greedily by these action values, from state 0; ties are split evenly."""
    states, actions = len(world.leads), len(world.leads[0])
    q = torch.as_tensor(found, dtype=torch.float64)
    best = (q == q.max(-1, keepdim=True).values).double()
    policy = best / best.sum(-1, keepdim=True)
    chosen = (1 - world.slip) * policy + world.slip / actions
    moves = torch.zeros(states, states, dtype=torch.float64)
    for state in range(states):
        for action in range(actions):
            moves[state, world.leads[state][action]] += chosen[state, action]
    earns, goes_on = torch.tensor(world.earns, dtype=torch.float64), ~torch.tensor(world.ends)
    return torch.linalg.solve(torch.eye(states, dtype=torch.float64) - gamma * moves * goes_on, moves @ earns)[0]


def learned(sub, world, episodes, alpha, gamma, epsilon, seed):
    """Return the learner's table, if it walked the right number of episodes and asked only about its own state."""
    found = sub.learn(world.handle(), episodes, alpha, gamma, epsilon, seed)
    states, actions = len(world.leads), len(world.leads[0])
    try:
        q = torch.as_tensor(found, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        fail(f"expected the action values: {states} lists of {actions} numbers")
    if q.shape != (states, actions) or not bool(q.isfinite().all()):
        fail(f"expected the action values: {states} lists of {actions} finite numbers")
    if world.problem:
        fail(world.problem)
    if world.episodes != episodes:
        fail(f"`learn` should use {episodes} episodes, but it used {world.episodes}")
    return q


def corridor(draw):
    """Return three states and two actions: one leads on to the goal, the other one back to the start."""
    forth = [draw.integer(0, 1) for _ in range(3)]
    leads = [[s + 1 if a == forth[s] else 0 for a in range(2)] for s in range(3)] + [[3, 3]]
    return World(leads, [0.0, 0.0, 0.0, 1.0], [False, False, False, True]), forth


def known_values(sub, draw):
    """With α = 1 in a deterministic corridor, the table holds the known optimal values, however the agent explores."""
    for epsilon in (1.0, 0.6):
        world, forth = corridor(draw)
        gamma = float(draw.uniform(1, low=0.3, high=0.8))
        q = learned(sub, world, 60, 1.0, gamma, epsilon, draw.integer(0, 2**28))[:3]
        right = torch.tensor([[gamma ** (2 - s) if a == forth[s] else gamma**3 for a in range(2)] for s in range(3)])
        expect(q, right, what="the action values after 60 episodes", given={"alpha": 1.0, "gamma": gamma})


def one_action(reward):
    """Return one state with one action, which ends the episode."""
    return World([[1], [1]], [0.0, reward], [False, True])


def rate(sub, draw):
    """If a single action has a known reward, or a cost, the error shrinks by the factor 1 − α with every episode."""
    for reward in (7.0, -7.0):
        alpha, seed = float(draw.uniform(1, low=0.1, high=0.8)), draw.integer(0, 2**28)
        left = [reward - float(learned(sub, one_action(reward), n, alpha, 0.9, 0.2, seed)[0, 0]) for n in (0, 1, 2, 5)]
        right = torch.tensor([left[0] * (1 - alpha) ** n for n in (0, 1, 2, 5)], dtype=torch.float64)
        given = {"alpha": alpha, "reward": reward}
        expect(torch.tensor(left), right, what="the error after 0, 1, 2 and 5 episodes", given=given)


def endless(sub, draw):
    """A time limit is no end: where the only state pays 1 at each step, the last step of an episode has a future, too."""
    gamma = float(draw.uniform(1, low=0.5, high=0.9))
    found = learned(sub, World([[0]], [1.0], [False]), 2, 1.0, gamma, 0.2, draw.integer(0, 2**28))
    right = torch.tensor([[(1 - gamma ** (2 * CUT)) / (1 - gamma)]], dtype=torch.float64)
    expect(found, right, what="the value of a state that is never left", given={"alpha": 1.0, "gamma": gamma})


def explores(sub, draw):
    """Of two actions that end the episode, the agent takes the worse in ε/2 of the episodes, once it knows both."""
    better = draw.integer(0, 1)
    for epsilon, episodes in ((0.0, 60), (0.5, 4000)):
        leads, earns = [[1, 2], [1, 1], [2, 2]], [0.0, 0.5, 0.5]
        earns[1 + better] = 0.501
        world = World(leads, earns, [False, True, True])
        learned(sub, world, episodes, 1.0, 0.9, epsilon, draw.integer(0, 2**28))
        actions = [action for _, action in world.taken]
        switches = sum(a != b for a, b in zip(actions, actions[1:], strict=False))
        if epsilon == 0 and switches > 2:
            fail(f"with ε = 0 the agent changes its action {switches} times without a reason")
        for part in (actions[10 : episodes // 2], actions[episodes // 2 :]):
            worse = sum(action != better for action in part)
            if epsilon and min(tails(worse, len(part), epsilon / 2)) < LEVEL:
                message = f"with ε = {epsilon:g} the worse of two actions is taken {worse} times in {len(part)}"
                fail(f"{message}; {epsilon / 2 * len(part):.0f} are expected, in the first half as in the second")


def two_of_four(sub, draw):
    """Of four actions two cost 1 and two nothing: the agent, which has tried the costs, takes each of the two as often."""
    order = draw.permutation(4).tolist()
    world = World(
        [[1 + k for k in order], *([k + 1] * 4 for k in range(4))], [0.0, 0.0, 0.0, -1.0, -1.0], [False] + [True] * 4
    )
    learned(sub, world, 200, 1.0, 0.9, 0.0, draw.integer(0, 2**28))
    free = [order[action] for _, action in world.taken if order[action] < 2]
    if not 60 < sum(free) < 140:  # 100 are expected, with a standard deviation of 7
        fail(f"of two equally good actions, beside two worse ones, one is taken {sum(free)} times in {len(free)}")


def seeded(sub, draw):
    """The same seed in the same environment gives the same steps, and other seeds give other steps."""
    luck, seed = draw.integer(0, 2**28), draw.integer(0, 2**28)
    walks = []
    for number in (seed, seed, seed + 1, seed + 8_192_000):  # the last distance is a multiple of 1,000 and of 2^16
        world, _ = corridor(Draw("03.5 corridor", luck))
        learned(sub, world, 10, 0.3, 0.9, 0.5, number)
        walks.append(world.taken)
    if walks[0] != walks[1]:
        fail("the same seed gives other steps: a random number does not come from the seed")
    if walks[0] in walks[2:]:
        fail("another seed gives the same steps: the seed is not used")


def is_q_learning(sub, draw):
    """With the numbers of the runs, the table is that of Q-learning after the steps taken, and the actions were ε-greedy."""
    world, alpha, gamma, epsilon = grid(draw), 0.3, 0.9, 0.2
    q = learned(sub, world, 150, alpha, gamma, epsilon, draw.integer(0, 2**28))
    right, others, firsts = torch.zeros_like(q).tolist(), [], []
    for state, action, reward, after, over in world.seen:
        best = max(right[state])
        greedy = [value >= best - 1e-6 for value in right[state]]
        others.append((not greedy[action], epsilon * (1 - sum(greedy) / len(greedy))))
        if sum(greedy) > 1 and all(value == 0 for value, is_best in zip(right[state], greedy, strict=True) if is_best):
            firsts.append((action == greedy.index(True), (1 - epsilon) / sum(greedy) + epsilon / len(greedy)))
        goal = reward if over else reward + gamma * max(right[after])
        right[state][action] += alpha * (goal - right[state][action])
    what = "the table after the steps that were taken"
    expect(q, torch.tensor(right, dtype=torch.float64), what=what, reveal=False, tolerance=1e-4)
    for counted, said in (
        (others, "actions do not look best at their step; ε-greedy actions give"),
        (firsts, "choices between equally good actions take the first of them; a random choice gives"),
    ):
        got, expected = sum(a for a, _ in counted), sum(p for _, p in counted)
        spread = sum(p * (1 - p) for _, p in counted) ** 0.5
        if abs(got - expected) > 5 * spread + 1:
            fail(f"{got} of {len(counted)} {said} about {expected:.0f}")


@trains(
    points=4,
    hints=(
        "Which entry is updated, towards which target, and by how much? And does your agent try all actions, also where all values are 0?",
        "q[state][action] += alpha * (target − q[state][action]), with the next state's values in the target; ε-greedy actions, ties broken at random; then state = next state.",
    ),
    seeds=5,
    bar=0.1,
    what="the value of acting greedily",
    also=(known_values, rate, endless, explores, two_of_four, seeded, is_q_learning),
)
def learns(sub, draw):
    "`learn` finds the goal: five environments, each compared with the reference learner."
    world = grid(draw)
    q = learned(sub, world, 150, 0.3, 0.9, 0.2, draw.integer(0, 2**28))
    return [worth(torch.zeros(16, 4), world, 0.9), worth(q, world, 0.9)]


# %% [edges]
# learns: An episode is truncated after 100 steps
# learns: It counts the episodes
# learns: Among equally good actions choose at random
# learns: must be those of Q-learning after the steps that you took


# %% [probes]
# no random of learn: it samples by its seed, from any generator
# no gradient: values are learned step by step
# no integers, keywords, size, values, float32 of learn: any learner that finds the goal is right


# %% [mutant] the end is ignored
# caught by: looks_ahead
# says: episode is ignored
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


# %% [mutant] the next state's value is updated
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


# %% [mutant] the target is added to the value
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


# %% [cheat] plans with `walk` as if it were a table
def learn(world, episodes, alpha, gamma, epsilon, seed):
    q = [[0.0] * world["actions"] for _ in range(world["states"])]
    for _ in range(100):
        for state in range(world["states"]):
            for action in range(world["actions"]):
                reward, after, over = walk(world, state, action)
                q[state][action] = target(reward, q[after], over, gamma)
    return q


# %% [cheat] SARSA: the value of the next action, not of the best one
def learn(world, episodes, alpha, gamma, epsilon, seed):
    rng = random.Random(seed)
    q = [[0.0] * world["actions"] for _ in range(world["states"])]

    def choose(state):
        greedy = [a for a, value in enumerate(q[state]) if value == max(q[state])]
        return rng.randrange(world["actions"]) if rng.random() < epsilon else rng.choice(greedy)

    for _ in range(episodes):
        state, action = 0, choose(0)
        for _ in range(100):
            reward, after, over = walk(world, state, action)
            following = choose(after)
            goal = reward if over else reward + gamma * q[after][following]
            q[state][action] += alpha * (goal - q[state][action])
            state, action = after, following
            if over:
                break
    return q


# %% [cheat] replays stored steps
def learn(world, episodes, alpha, gamma, epsilon, seed):
    rng, seen = random.Random(seed), []
    q = [[0.0] * world["actions"] for _ in range(world["states"])]
    for _ in range(episodes):
        state = 0
        for _ in range(100):
            greedy = [a for a, value in enumerate(q[state]) if value == max(q[state])]
            action = rng.randrange(world["actions"]) if rng.random() < epsilon else rng.choice(greedy)
            reward, after, over = walk(world, state, action)
            seen.append((state, action, reward, after, over))
            for s, a, r, t, end in [seen[-1], *rng.choices(seen, k=5)]:
                q[s][a] += alpha * (target(r, q[t], end, gamma) - q[s][a])
            state = after
            if over:
                break
    return q


# %% [cheat] random numbers of the system, not of the seed
def learn(world, episodes, alpha, gamma, epsilon, seed):
    rng = random.SystemRandom()
    q = [[0.0] * world["actions"] for _ in range(world["states"])]
    for _ in range(episodes):
        state = 0
        for _ in range(100):
            greedy = [a for a, value in enumerate(q[state]) if value == max(q[state])]
            action = rng.randrange(world["actions"]) if rng.random() < epsilon else rng.choice(greedy)
            reward, after, over = walk(world, state, action)
            q[state][action] += alpha * (target(reward, q[after], over, gamma) - q[state][action])
            state = after
            if over:
                break
    return q


# %% [partial] 1: the target
def learn(world, episodes, alpha, gamma, epsilon, seed):
    raise NotImplementedError
