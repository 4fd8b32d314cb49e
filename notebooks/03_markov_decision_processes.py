# %% [markdown]
# # 03 · What is the value of a state?
#
# Every method of this book that trains a language model estimates, in one way or another, the value of a situation. This notebook asks for values
# in environments of six, sixteen and forty-eight states, where we can compute them. **How do learners that see only
# their own steps find these values, and which of their errors can we predict?**

# %%

import gymnasium
import matplotlib.pyplot as plt
import torch

from minirlhf.control import dqn
from minirlhf.core import exact_mdp
from minirlhf.core.progress import progress
from minirlhf.core.randomness import generator
from minirlhf.equations import mdp
from minirlhf.equations.value_learning import epsilon_greedy, expected_linear_td_step, q_learning_target
from minirlhf.tabular import gym, planning, worlds
from minirlhf.tabular.process import count_occupancy, sample_chain, sample_episodes
from minirlhf_course import evidence
from minirlhf_course.chapters.ch03_markov_decision_processes import runs
from minirlhf_course.classroom.predictions import Predictions
from minirlhf_course.report.plotting import PALETTE

plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})

seen = evidence.StudyResults("ch03")  # five seeds of the runs of this notebook
predict = Predictions("03")


# %% [markdown]
# ## A chain with rewards
#
# There are six states. Each has probabilities of the next state, and a reward.

# %%
# NBVAL_CHECK_OUTPUT
P, r = worlds.SIX_STATES, worlds.SIX_REWARDS
print("from   reward   probabilities of going to s1 … s6")
for i in range(6):
    print(f"s{i + 1} {r[i]:9.0f}     " + "  ".join(f"{p:.1f}" if p else " · " for p in P[i].tolist()))
start = torch.eye(6, dtype=torch.float64)[0]
for walk in sample_chain(P, start, steps=7, count=3, rng=generator("notebook", 3)).tolist():
    print(" → ".join(f"s{i + 1}" for i in walk))

# %% [markdown]
# Discount each step by γ = ½. What is the return of the path s1 → s2 → s3 → s6? Which state has the largest value, and is it more or
# less than the state's own reward of 10? Is any value less than −2? Compute them on paper, then run the cell.

# %%
# NBVAL_CHECK_OUTPUT
print("return of s1 s2 s3 s6:", float(mdp.discounted_return(r[[0, 1, 2, 5]], gamma=0.5)))


def values(P, r, gamma):
    """Return the values V = (I − γP)⁻¹ r."""
    return torch.linalg.solve(torch.eye(len(r)) - gamma * P, r)


V = values(P, r, 0.5)
torch.testing.assert_close(V, mdp.mrp_values(P, r, gamma=0.5))
print("values:", [round(v, 4) + 0.0 for v in V.tolist()])

# %% [markdown]
# ## Merged states: the past can matter again
#
# In this chain, given the state, the earlier states do not matter. That is a property of *what we call the state*. An observer
# cannot distinguish s3 from s4 and calls both "middle". Does the probability of s6 after "middle" then depend on the state before?

# %%
# NBVAL_CHECK_OUTPUT
label = {0: "s1", 1: "s2", 2: "middle", 3: "middle", 4: "s5", 5: "s6"}
once, twice = {}, {}
mass = torch.full((6,), 1 / 6, dtype=torch.float64)  # begin anywhere, take two steps: all 6³ paths
for a in range(6):
    for b in range(6):
        for c in range(6):
            p = float(mass[a] * P[a, b] * P[b, c])
            key = (label[a], label[b])
            twice.setdefault(key, [0.0, 0.0])
            twice[key][0] += p
            twice[key][1] += p * (c == 5)
ends = {before: twice[before, "middle"][1] / twice[before, "middle"][0] for before in ("s2", "s5", "middle")}
for before, chance in ends.items():
    print(f"P(s6 next | middle now, {before:6} before) = {chance:.4f}")
print(f"true states: P(s6 | s3) = {P[2, 5]:.1f}, P(s6 | s4) = {P[3, 5]:.1f}, whatever came before")

# %% [markdown]
# With two states merged, the chain of labels is not Markov. A language model's state is the text in its context, so its own writing is always Markov: the next token depends only on the
# context. That also holds for a context that was truncated at the front. The problem begins when the *reward*, or the user, remembers text that the model no longer sees.
#
# ## A policy turns a decision process into a chain
#
# Now an agent acts. There are five states with two actions each. In s4 the second action is a gamble that may lead back.

# %%
# NBVAL_CHECK_OUTPUT
game = worlds.two_choices()
for s in range(4):
    for a, name in enumerate(game.actions):
        to = [
            f"s{t + 1} with {game.transitions[s, a, t]:.1f}" if game.transitions[s, a, t] < 1 else f"s{t + 1}"
            for t in game.transitions[s, a].nonzero().flatten().tolist()
        ]
        print(f"s{s + 1}, {name:5} → {', '.join(to):37} reward {game.expected_rewards[s, a]:3.0f}")
bold = torch.tensor([[0.6, 0.4], [0.3, 0.7], [0.5, 0.5], [0.1, 0.9], [0.5, 0.5]], dtype=torch.float64)
for name, policy in (("uniform", game.uniform_policy()), ("bold", bold)):
    V = mdp.policy_values(game.transitions, game.expected_rewards, policy, gamma=0.5)
    Q = mdp.action_values(game.transitions, game.expected_rewards, V, gamma=0.5)
    A = mdp.advantage_function(Q, policy)
    print(f"{name:7}: V  ", "  ".join(f"{v + 0.0:7.4f}" for v in V.tolist()))
    print("         Q  ", "  ".join(f"{a:.1f}/{b:.1f}" for a, b in Q[:4].tolist()))
    print("         A  ", "  ".join(f"{a:+.1f}/{b:+.1f}" for a, b in A[:4].tolist()))

# %% [markdown]
# ## Occupancy: where does a policy spend its time?
#
# We compute the fraction of the discounted time that a policy spends on the gamble in s4. We do it exactly, by counting in 20,000 episodes, and by a wrong count that divides, at each time step, by
# the number of episodes *that are still running*.

# %%
among = predict(
    "Is the fraction of the gamble, counted among running episodes, too large or too small?",
    "too large",
    "too small",
    "right",
)

# %%
exact_share, counted, survivors, in_the_limit = {}, {}, {}, {}


def share_among_survivors(policy, steps=60):
    """Return the limit of the wrong count for many episodes: at each time, the fraction among the running episodes."""
    here, total = game.start.clone(), 0.0
    for t in range(steps):
        chosen = here[:, None] * policy  # (S, A)
        total += 0.5 * 0.5**t * float(chosen[3, 1] / here[:4].sum())
        here = torch.einsum("sa,sat->t", chosen, game.transitions)
    return total


print("fraction of time on the gamble in s4")
for name, policy in (("uniform", game.uniform_policy()), ("bold", bold)):
    exact_share[name] = float(mdp.occupancy(game.transitions, policy, game.start, gamma=0.5)[3, 1])
    walks = sample_episodes(game, policy, count=20_000, rng=generator("occupancy", name), time_limit=40)
    counted[name] = float(count_occupancy(walks, num_states=5, num_actions=2, gamma=0.5)[3, 1])
    gambles = (walks.states[:, :-1] == 3) & (walks.actions == 1) & walks.mask
    weight = 0.5 * 0.5 ** torch.arange(gambles.shape[1])
    survivors[name] = float((weight * gambles.sum(0) / walks.mask.sum(0).clamp(min=1)).sum())
    in_the_limit[name] = share_among_survivors(policy)
    print(
        f"{name}: exact {exact_share[name]:.4f}, counted {counted[name]:.3f}; "
        f"among running episodes, counted {survivors[name]:.3f}, in the limit {in_the_limit[name]:.4f}"
    )
excess = [survivors[name] - exact_share[name] for name in survivors]
among.reveal("too large" if min(excess) > 0.01 else "too small" if max(excess) < -0.01 else "right")

# %%
for name in survivors:
    assert abs(counted[name] - exact_share[name]) < 0.01 and abs(survivors[name] - in_the_limit[name]) < 0.015
    assert in_the_limit[name] > exact_share[name] + 0.015

# %% [markdown]
# An episode that has ended still counts, because it spends its time in the terminal state. Without ended episodes the average describes only the running
# ones, and all states before the end look more frequent than they are.
#
# ## Planning: values spread by sweeps
#
# On the frozen lake a step goes in the chosen direction with probability ⅓ only, and to either side otherwise. Reaching G gives a reward of 1, H is a hole. Value iteration starts at zero
# everywhere. Which cells have a value after two sweeps?

# %%
away = predict(
    "Where does the best policy step in the second cell of the first column, with a hole on its right?",
    "←",
    "↓",
    "→",
    "↑",
)

# %%
lake = worlds.frozen_lake()
plan = planning.value_iteration(lake.process, gamma=0.95)
Q = mdp.action_values(lake.process.transitions, lake.process.expected_rewards, plan.values, gamma=0.95)
away.reveal(lake.process.actions[Q[lake.columns].argmax()])

# %%
# figure: lake
# alt: Four maps of the frozen lake after 2, 4, 10 and all sweeps of value iteration with discount 0.95. After two sweeps only the three cells within two steps of the
#   goal have a value; it spreads to the start. In the last map arrows show the best policy, which in several cells points away from
#   holes and into the wall rather than towards the goal.
shown = [2, 4, 10, len(plan.history) - 1]
fig, axes = plt.subplots(1, 4, figsize=(9, 2.7), layout="constrained")
for ax, sweep in zip(axes, shown, strict=True):
    V = plan.history[sweep]
    Q = mdp.action_values(lake.process.transitions, lake.process.expected_rewards, V, gamma=0.95)
    best = mdp.greedy_policy(Q).argmax(-1)
    ax.imshow(lake.table(V), cmap="Blues", vmin=0, vmax=1)
    for state, cell in enumerate(lake.cells):
        row, column = divmod(state, lake.columns)
        if cell in "HG":
            text = cell
        elif V[state] > 0:
            text = f"{lake.process.actions[best[state]]}\n{V[state]:.2f}"
        else:
            text = "·"
        ax.text(column, row, text, ha="center", va="center", color="white" if V[state] > 0.6 else "black")
    title = f"sweep {sweep}" if sweep < 20 else f"converged (sweep {sweep})"
    ax.set(title=title, xticks=[], yticks=[])
plt.show()

# %%
# NBVAL_CHECK_OUTPUT
for name, world, gamma in (
    ("lake", lake, 1.0),
    ("cliff", worlds.cliff_walking(), 1.0),
    ("5×5", worlds.five_by_five(), 0.9),
):
    sweeps, rounds = (
        planning.value_iteration(world.process, gamma=gamma),
        planning.policy_iteration(world.process, gamma=gamma),
    )
    torch.testing.assert_close(sweeps.values, rounds.values, atol=1e-6, rtol=0)
    begin = int(world.process.start.argmax())
    print(
        f"{name:5} γ={gamma}: value iteration {len(sweeps.history) - 1:4} sweeps, policy iteration {len(rounds.history)} rounds; "
        f"value of the start {rounds.values[begin]:.4f}"
    )
field = worlds.five_by_five()
even = mdp.policy_values(
    field.process.transitions, field.process.expected_rewards, field.process.uniform_policy(), gamma=0.9
)
print("5×5, first row, uniform policy:", [round(v, 1) for v in even[:5].tolist()])
print("5×5, first row, best policy:   ", [round(v, 1) for v in rounds.values[:5].tolist()])
square = worlds.four_by_four()
print(
    "4×4, first row, uniform policy:",
    [
        round(v, 1)
        for v in planning.evaluate(square.process, square.process.uniform_policy(), gamma=1.0)[-1][:4].tolist()
    ],
)

# %% [markdown]
# Why does policy iteration stop? Each round is at least as good as the last, but that alone would allow it to cycle among equally good policies. Here both actions are equally good, and the improvement step always prefers the action that the
# policy does not use:

# %%
# NBVAL_CHECK_OUTPUT
stay = torch.ones(1, 2, 1, dtype=torch.float64)  # one state; both actions stay there
pay = torch.ones(1, 2, dtype=torch.float64)  # and both give a reward of 1
policy, used = torch.tensor([[1.0, 0.0]], dtype=torch.float64), []
for _ in range(6):
    V = mdp.policy_values(stay, pay, policy, gamma=0.9)
    Q = mdp.action_values(stay, pay, V, gamma=0.9)
    used.append(int(policy.argmax()))
    policy = mdp.greedy_policy(Q - 1e-9 * policy)  # among equal actions, the other one
print("actions used, round by round:", used, "  value in every round:", round(float(V), 3))

# %% [markdown]
# It never stops. The remedy is to change an action only if another is *strictly* better. Then the improved policy is strictly better somewhere, no policy occurs twice, and there are finitely many.
#
# Gymnasium publishes the tables of its small environments. We read them, plan, and run the policy in Gymnasium itself:

# %%
# NBVAL_CHECK_OUTPUT
env = gymnasium.make("CliffWalking-v1")
planned = planning.policy_iteration(gym.from_gymnasium(env), gamma=1.0)
print("predicted", float(planned.values[36]), "observed", gym.play(env, planned.policy, episodes=1, seed=0).tolist())

# %% [markdown]
# ## Prediction from steps alone
#
# From here on the learners do not see the tables. A walk has five cells, and each step goes left or right with probability ½. Leaving on the right gives a reward of 1. The true values are 1/6 … 5/6. The
# step size is .05, and the initial values are ½. Monte Carlo waits for the end of each episode. TD(0) uses its own estimate of the next cell.

# %%
waits = predict(
    "Which of the two has the smaller error after 20 episodes, and which after 100?",
    "Monte Carlo, then Monte Carlo",
    "Monte Carlo, then TD(0)",
    "TD(0), then Monte Carlo",
    "TD(0), then TD(0)",
)

# %%
depths = {"TD(0)": 1, "4-step TD": 4, "Monte Carlo": None}
error = {name: runs.prediction_error(n, 0.05, seed=0) for name, n in progress(depths.items(), "walks")}  # (101, 100)
for name, e in error.items():
    print(f"{name:12} after 20 episodes {e[20].mean():.3f}, after 100 {e[100].mean():.3f}")
closer = [min(("TD(0)", "Monte Carlo"), key=lambda name: float(error[name][after].mean())) for after in (20, 100)]
waits.reveal(", then ".join(closer))

# %%
# figure: prediction
# alt: Root mean square error of the values against episodes for TD(0), four-step TD and Monte Carlo on the random walk, mean over 100 learners with bands from the
#   tenth to the ninetieth percentile. TD(0) falls slowly and ends lowest. Four-step TD falls faster at first and then stays higher. Monte Carlo falls about as fast as TD(0) at first and stays highest, with the widest band.
fig, ax = plt.subplots(figsize=(6.4, 3), layout="constrained")
for name, colour in zip(error, ("blue", "green", "red"), strict=True):
    ax.plot(error[name].mean(1), color=PALETTE[colour], label=name)
    low, high = error[name].quantile(torch.tensor([0.1, 0.9], dtype=torch.float64), dim=1)
    ax.fill_between(range(101), low, high, color=PALETTE[colour], alpha=0.15, lw=0)
ax.set(xlabel="episodes", ylabel="error of the values (RMS)", xlim=(0, 100), ylim=(0, None))
ax.legend(frameon=False)
plt.show()

# %% [markdown]
# ## Control: the cliff
#
# Every step costs 1. Stepping off the cliff costs 100 and leads back to the start. First we do one update of Q-learning by hand. The table is zero except in one cell.

# %%
# NBVAL_CHECK_OUTPUT
Q = torch.zeros(48, 4, dtype=torch.float64)
Q[24] = torch.tensor([-3.0, -2.0, -4.0, -3.0])  # the cell above the start: up, right, down, left
target = q_learning_target(
    torch.tensor([-1.0], dtype=torch.float64), Q[24][None], torch.tensor([False]), gamma=1.0
)  # up from the start, reward −1
Q[36, 0] += 0.5 * (float(target) - Q[36, 0])
print(
    f"target −1 + max(−3, −2, −4, −3) = {float(target):.0f}; with step size .5, Q(start, up) goes from 0 to {float(Q[36, 0]):.1f}"
)

# %% [markdown]
# Now thirty learners of each kind explore with ε = .1. Q-learning learns the shortest path, thirteen steps along the edge.

# %%
richer = predict("Which of the two has the higher return while it learns?", "Sarsa", "Q-learning")

# %%
cliff = worlds.cliff_walking()
ways = progress({"Sarsa": False, "Q-learning": True}.items(), "learners")
learned = {name: runs.cliff(greedy, seed=0) for name, greedy in ways}
late = {name: float(result.returns[:, -40:].mean()) for name, result in learned.items()}
print("mean return of the last 40 episodes")
for name, x in late.items():
    print(f"{name:10} {x:6.1f}")
richer.reveal(max(late, key=late.get))

# %%
# figure: cliff
# alt: Left, mean return per episode of Sarsa and Q-learning over 120 episodes with bands; both rise from below minus 200, Sarsa to about minus 30, Q-learning to about minus 50. Right, two
#   maps of the path of the ε-greedy policy for the mean table of each: Sarsa goes along the upper rows, Q-learning along the edge of the cliff.
fig = plt.figure(figsize=(9, 3.3), layout="constrained")
grid = fig.add_gridspec(2, 2, width_ratios=(1, 1.25))
ax = fig.add_subplot(grid[:, 0])
for row, (name, result) in enumerate(learned.items()):
    colour = PALETTE["blue" if name == "Sarsa" else "red"]
    blocks = result.returns.view(30, 24, 5).mean(-1)  # (learners, blocks of five episodes)
    ax.plot(torch.arange(24) * 5 + 2, blocks.mean(0), color=colour, label=name)
    low, high = blocks.quantile(torch.tensor([0.1, 0.9], dtype=torch.float64), dim=0)
    ax.fill_between(torch.arange(24) * 5 + 2, low, high, color=colour, alpha=0.15, lw=0)
    world = fig.add_subplot(grid[row, 1])
    policy = epsilon_greedy(result.action_values.mean(0), epsilon=0.1)
    visits = exact_mdp.visits(cliff.process.start, cliff.process.transitions, policy, gamma=1.0, steps=100).sum(-1)
    visits[cliff.process.terminal] = 0
    world.imshow(cliff.table(visits.clamp(max=1)), cmap="Blues", vmin=0, vmax=1)
    world.add_patch(plt.Rectangle((0.5, 2.5), 10, 1, color="0.75"))
    arrows = result.action_values.mean(0).argmax(-1)
    for state in [*range(37), 47]:
        dark = visits[state] > 0.5
        mark = cliff.process.actions[arrows[state]] if state < 36 else cliff.cells[state]
        world.text(state % 12, state // 12, mark, ha="center", va="center", color="white" if dark else "0.3")
    world.text(5.5, 3, "cliff", ha="center", va="center")
    world.set(title=name, xticks=[], yticks=[])
ax.set(xlabel="episode", ylabel="return (mean of 5 episodes)", ylim=(-250, 0))
ax.legend(frameon=False, loc="lower right")
plt.show()

# %%
assert late["Sarsa"] > -38 > late["Q-learning"]
assert seen.holds("sarsa_late_return", above=-38) and seen.holds("q_late_return", below=-38)

# %% [markdown]
# Both methods are right, about different questions. Q-learning estimates the values of the greedy policy, which never takes a random step. Sarsa estimates the values of the policy that
# acts, with a random step one time in ten. Here are the exact returns, without any learning. "Along the edge" has a range, because it depends on the actions in cells that only
# a random step reaches: many policies are equally good for ε = 0, and we take the best and the worst of them for ε = .1.

# %%
# NBVAL_CHECK_OUTPUT
best = planning.policy_iteration(cliff.process, gamma=1.0).policy  # along the edge


def with_random_steps(pick, epsilon=0.1):
    """Return the policy that is best (or worst) with random steps, among all that are optimal without them."""
    tables = cliff.process.transitions, cliff.process.expected_rewards
    value = mdp.policy_values(*tables, best, gamma=1.0)
    worth = mdp.action_values(*tables, value, gamma=1.0)
    optimal = worth > worth.amax(-1, keepdim=True) - 1e-9  # (S, A)
    policy = best
    for _ in range(50):
        V = mdp.policy_values(*tables, epsilon_greedy(policy, epsilon=epsilon), gamma=1.0)
        Q = mdp.action_values(*tables, V, gamma=1.0)
        choice = torch.where(optimal, pick * Q, -1e6)
        better = choice.amax(-1) > (choice * policy).sum(-1) + 1e-9
        policy = torch.where(better[:, None], mdp.greedy_policy(choice), policy)
    return policy


safe = best.clone()  # up to the top row, along it, and down
up, right, down, _ = range(4)
for state in range(48):
    row, column = divmod(state, 12)
    safe[state] = torch.eye(4, dtype=torch.float64)[down if column == 11 else right if row == 0 else up]
print("                            ε = 0    ε = .1")
ways = {
    "along the edge, best": with_random_steps(+1),
    "along the edge, worst": with_random_steps(-1),
    "along the top (17 steps)": safe,
}
for name, policy in ways.items():
    earned = [
        float(
            mdp.policy_values(
                cliff.process.transitions, cliff.process.expected_rewards, epsilon_greedy(policy, epsilon=e), gamma=1.0
            )[36]
        )
        for e in (0.0, 0.1)
    ]
    print(f"{name:26} {earned[0]:6.1f}  {earned[1]:8.1f}")

# %% [markdown]
# ## Dyna-Q: learn from stored transitions
#
# A maze has 54 cells, with 14 steps from S to G. Dyna-Q stores the result of each action and learns from 0, 5 or 20 stored transitions after each real step. How many episodes does each version need?

# %%
lengths = {n: runs.maze(n, seed=0).lengths.double() for n in progress((0, 5, 20), "mazes")}
for n, x in lengths.items():
    print(
        f"{n:2} planning steps: {x[:, 5:10].mean():6.1f} steps per episode in episodes 6 to 10, {x.sum(1).mean():5.0f} in all"
    )

# %%
# figure: dyna
# alt: Steps per episode over 20 episodes in the maze, on a logarithmic axis, for Q-learning and Dyna-Q with 5 and 20 planning steps, with bands. The shortest way has 14. With 20 planning steps the learners
#   need about 30 steps in the fifth episode, 20 in the eighth and 16 in the twentieth; with 5 about 24 in the fifteenth; Q-learning still needs about fifty in the twentieth.
fig, ax = plt.subplots(figsize=(6.4, 3), layout="constrained")
for (n, x), colour in zip(lengths.items(), ("black", "orange", "blue"), strict=True):
    ax.plot(range(1, 21), x.mean(0), color=PALETTE[colour], label=f"{n} planning steps" if n else "Q-learning")
    low, high = x.quantile(torch.tensor([0.1, 0.9], dtype=torch.float64), dim=0)
    ax.fill_between(range(1, 21), low, high, color=PALETTE[colour], alpha=0.15, lw=0)
ax.axhline(14, color="0.5", lw=0.8, ls=":")
ax.set(xlabel="episode", ylabel="steps to the goal", yscale="log", xticks=range(1, 21, 2))
ax.set_yticks([14, 20, 50, 100, 200, 500], labels=["14", "20", "50", "100", "200", "500"])
ax.minorticks_off()
ax.legend(frameon=False)
plt.show()

# %%
assert seen.holds("dyna_20_length_5_10", below=25) and seen.holds("dyna_0_length_5_10", above=50)

# %% [markdown]
# ## A bandit with five arms
#
# There are no states, only five arms that pay with probability .3, .4, .5, .6 and .7. Each strategy has two hundred players. Regret is the loss compared with always pulling the best arm. Greedy and ε-greedy pull each arm once before they compare means, and ties are broken at random. UCB has
# its textbook constant √2 or the constant ½.

# %%
least = predict("Which strategy has lost least after a thousand pulls?", *runs.STRATEGIES)

# %%
players = progress(runs.STRATEGIES.items(), "players")
lost = {name: runs.bandit_regret(strategy, seed=0) for name, strategy in players}  # (200, 1000) each
for name, x in lost.items():
    print(f"{name:18} {x[:, -1].mean():6.1f}")
worse = (lost["greedy"][:, -1] > lost["greedy"][:, -101]).double().mean()
print(
    f"greedy: median regret {lost['greedy'][:, -1].median():.0f}; {worse:.0%} of the players pull a worse arm in the last 100 pulls"
)
least.reveal(min(lost, key=lambda name: float(lost[name][:, -1].mean())))

# %%
# figure: regret
# alt: Regret against pulls for five strategies, mean of 200 players with bands. UCB with constant root two has the largest mean. Greedy rises in a nearly straight line, with the widest band, from nearly zero to above all other bands. Epsilon-greedy
#   has a wide band too. Thompson sampling and UCB with one half have the smallest means, both flattening.
fig, ax = plt.subplots(figsize=(6.4, 3.2), layout="constrained")
for (name, x), colour in zip(lost.items(), ("black", "orange", "red", "purple", "blue"), strict=True):
    ax.plot(x.mean(0), color=PALETTE[colour], label=name)
    low, high = x.quantile(torch.tensor([0.1, 0.9], dtype=torch.float64), dim=0)
    ax.fill_between(range(1_000), low, high, color=PALETTE[colour], alpha=0.12, lw=0)
ax.set(xlabel="pulls", ylabel="regret", ylim=(0, 160), xlim=(0, 1_000))
ax.legend(frameon=False, ncols=2)
plt.show()

# %% [markdown]
# Greedy players are lucky and lose nearly nothing, or they pull a worse arm until the end and make the mean large. UCB's textbook
# constant is made for the worst case and explores too much here.
#
# ## A failure on purpose: a time limit is not an end
#
# Back to the walk of five cells. A learner limits episodes to six steps, to save time, and treats the limit like the end of the walk: no value of the next state. The
# environment and its values have not changed. How does this change the learned value of the cell on the right, 5/6, and of the cell in the middle, ½?

# %%
ways = progress({"limit is not an end": False, "limit treated as an end": True}.items(), "walks")
limited = {name: runs.cut_off_values(wrong, seed=0).mean(0) for name, wrong in ways}
for name, found in limited.items():
    print(f"{name:24}", [round(v, 2) for v in found.tolist()])

# %%
# figure: limit
# alt: Values learned for the five cells. With bootstrapping at the time limit they are on the true line from one sixth to five sixths. With the limit treated as an end all are below it, the middle one far below one half.
fig, ax = plt.subplots(figsize=(5, 2.8), layout="constrained")
cells = range(1, 6)
ax.plot(cells, torch.arange(1, 6) / 6, color="0.6", ls=":", label="true")
for (name, found), colour, marker in zip(limited.items(), ("blue", "red"), "o^", strict=True):
    ax.plot(cells, found, color=PALETTE[colour], marker=marker, label=name)
ax.set(xlabel="cell", ylabel="value", xticks=cells, ylim=(0, 1))
ax.legend(frameon=False)
plt.show()

# %%
assert (
    limited["limit treated as an end"][2] < 0.45
    and seen.holds("limit_right_last", above=0.78)
    and seen.holds("limit_wrong_last", below=0.78)
)

# %% [markdown]
# A language model has the same bug if a completion that was truncated at the maximum length is treated as finished. Chapters 4 and 12 return to that line of code.
#
# ## Maximisation bias: a network instead of a table
#
# An agent can go home for a reward of 0, or enter a hall with ten doors. Each door leads to −0.1, plus noise of standard deviation 1. Entering has the value −.09 at γ = .9. DQN
# uses the maximum over ten noisy estimates as its target. What does it estimate?

# %%
targets = progress({"DQN": dqn.dqn, "Double DQN": dqn.double_dqn}.items(), "networks")
believed = {name: runs.doors(target, seed=0) for name, target in targets}
for name, x in believed.items():
    print(
        f"{name:11} estimates {x.mean():+.3f} (four networks: {', '.join(f'{v:+.2f}' for v in x.tolist())}); the true value is −0.090"
    )
higher = [a > b for a, b in zip(seen.values("dqn_belief"), seen.values("double_belief"), strict=True)]
print(f"DQN estimates more than Double DQN in {sum(higher)} of {len(higher)} seeds")

# %% [markdown]
# The largest of ten noisy estimates is too large, and DQN uses it as a value. In Double DQN one network chooses the action and the other estimates its value. Its estimate is lower than DQN's. Over the five seeds it does not differ significantly from the true value.
#
# ## A second failure on purpose: the deadly triad
#
# Bootstrapping, function approximation and off-policy learning are each useful, and the three together can diverge. The smallest case has two states. The first leads to the second. The second leads back to itself with probability .9, and otherwise to the end.
# There is no reward, so all values are 0. One weight $w$ describes both values, $V(1) = w$ and $V(2) = 2w$, and γ = .95. We can compute the mean TD step exactly.

# %%
runaway = predict(
    "Only the first state is ever updated (the steps come from another policy). Where does w go, from 1?",
    "to 0",
    "it stays near 1",
    "to infinity",
)

# %%
one_weight, two_weights = torch.tensor([[1.0], [2.0]]).double(), torch.eye(2, dtype=torch.float64)
onward, none = torch.tensor([[0.0, 1.0], [0.0, 0.9]]).double(), torch.zeros(2, dtype=torch.float64)
others, own = (
    torch.tensor([1.0, 0.0]).double(),
    torch.tensor([1.0, 10.0]).double() / 11,
)  # how often each state is updated
ended = torch.zeros(2, 2, dtype=torch.float64)  # no bootstrap: the target is the return, which is 0
cases = {
    "all three": (one_weight, onward, others),
    "own steps": (one_weight, onward, own),
    "no bootstrap": (one_weight, ended, others),
    "a table": (two_weights, onward, others),
}
traces = {}
for name, (features, transitions, visits) in cases.items():
    w = torch.ones(features.shape[1], dtype=torch.float64)
    if name == "a table":
        w = torch.tensor([1.0, 2.0]).double()  # the same first values
    trace = [float((features @ w).abs().max())]
    for _ in range(150):
        w = expected_linear_td_step(w, features, transitions, none, visits, gamma=0.95, step_size=0.1)
        trace.append(float((features @ w).abs().max()))
    traces[name] = trace
    print(
        f"{name:13} largest |value| after 0, 10, 50, 150 steps: "
        + ", ".join(f"{trace[k]:.3g}" for k in (0, 10, 50, 150))
    )
runaway.reveal(
    "to infinity" if traces["all three"][-1] > 100 else "to 0" if traces["all three"][-1] < 0.5 else "it stays near 1"
)

# %%
# figure: triad
# alt: The largest absolute value of two states against the number of mean TD steps, on a logarithmic axis; the true values are 0. With bootstrapping, one shared weight and off-policy steps the values grow
#   without bound. With the learner's own steps, or without bootstrapping, they fall to zero; with a table they stay at two.
fig, ax = plt.subplots(figsize=(5.6, 2.8), layout="constrained")
for (name, trace), colour in zip(traces.items(), ("red", "blue", "green", "orange"), strict=True):
    ax.plot(trace, color=PALETTE[colour], label=name)
ax.set(xlabel="mean TD steps", ylabel="largest |value|, true: 0", yscale="log", ylim=(1e-3, 1e4))
ax.legend(frameon=False)
plt.show()

# %%
assert traces["all three"][-1] > 100 and traces["own steps"][-1] < 0.01 and traces["no bootstrap"][-1] < 0.01
assert abs(traces["a table"][-1] - 2) < 0.01

# %% [markdown]
# Each step moves the first value towards the second. But both values move together, so the second moves away, and with 2γ > 1 the first never reaches it. A smaller step size only slows the divergence. With the learner's own steps the second state is updated too, ten times as often, and its updates reduce
# the weight. A table cannot diverge here: the second value is never updated.

# %%
predict.tally()

# %% [markdown]
# ## Now you
#
# * Give the gamble in s4 a reward of 2 instead of 1. Does the optimal policy change? At which reward does it?
# * Change the maze: open a shortcut after ten episodes. How does this affect Dyna-Q with its stored transitions?
# * Decrease ε over time at the cliff. Which path does Sarsa take in the end?
#
# The graded exercises of this chapter: `minirlhf check 03`.
