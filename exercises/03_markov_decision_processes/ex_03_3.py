# ---
# title: One log, five targets
# kind: numeric
# minutes: 20
# ---

# %% [statement]
# `log(STUDENT)` is a part of a learner's log, generated for you. Put your student id into `STUDENT` at the top of the notebook. The log holds
#
# * `gamma`;
# * `rewards`: the rewards of three steps, from $s_0$ to $s_1$ to $s_2$ to $s_3$;
# * `V`: the learner's estimates of the values of $s_0$, $s_1$, $s_2$ and $s_3$;
# * `Q1`: its estimates of the values of the actions 0, 1 and 2 in $s_1$, and `Q1_copy`, the estimates of its frozen copy;
# * `next_action`: the action that it took in $s_1$;
# * `terminal`: True if $s_3$ ended the episode, in which case its `V` means nothing.
#
# What is the target of each method? Give it to 0.1 %:
#
# 1. `td`: TD(0), for $V(s_0)$.
# 2. `three_step`: three-step TD, for $V(s_0)$.
# 3. `sarsa`: Sarsa, for the action taken in $s_0$.
# 4. `q_learning`: Q-learning, with the learner's own `Q1`, for the same action.
# 5. `double`: Double DQN, with the learner and its frozen copy.

# %% [given]
from minirlhf_course.ledger.registry import Draw


def log(student):
    """Return this student's log."""
    draw = Draw("03.3", student)
    order = draw.permutation(3).tolist()  # the learner's best, second and third action
    places = draw.permutation(4).tolist()  # no two states have similar values
    Q1, Q1_copy = [0.0] * 3, [0.0] * 3
    for rank, action in enumerate(order):
        Q1[action] = round([3.0, 2.0, -1.0][rank] + float(draw.uniform(low=0.1, high=0.7)), 1)
        Q1_copy[action] = round(2.0 + 0.9 * rank + float(draw.uniform(low=0.1, high=0.7)), 1)
    return {
        "gamma": [0.5, 0.8, 0.9][draw.integer(0, 2)],
        "rewards": [round(float(draw.uniform(low=0.5, high=2.0)), 1) for _ in range(3)],
        "V": [round(1.5 * k + float(draw.uniform(low=1.0, high=2.0)), 1) for k in places],
        "Q1": Q1,
        "Q1_copy": Q1_copy,
        "next_action": order[1],
        "terminal": draw.integer(0, 1) == 1,
    }


# %% [stub]
print(log(STUDENT))

td = None
three_step = None
sarsa = None
q_learning = None
double = None

# %% [solution]
page = log(STUDENT)
g, r, V, Q1 = page["gamma"], page["rewards"], page["V"], page["Q1"]
td = r[0] + g * V[1]
three_step = r[0] + g * r[1] + g**2 * r[2] + (0 if page["terminal"] else g**3 * V[3])
sarsa = r[0] + g * Q1[page["next_action"]]
q_learning = r[0] + g * max(Q1)
double = r[0] + g * page["Q1_copy"][Q1.index(max(Q1))]

# %% [tests]
from minirlhf_course.classroom.testing import expect, test


def ask(sub, name, want, mistakes):
    """Expect the number to 0.1 %, without revealing it."""
    tolerance = 0.001 * abs(want) / max(1.0, abs(want))
    expect(sub.number(name), want, what=f"`{name}`", tolerance=tolerance, reveal=False, mistakes=mistakes)


@test(
    points=1,
    rounds=1,
    hints=(
        "TD(0) takes one real reward and then uses its own estimate. Of which state?",
        "The reward of the first step plus γ times the value of the next state.",
    ),
)
def one_step(sub, draw):
    "`td` is the one-step target of s₀."
    p = log(sub.student)
    r, g, V = p["rewards"], p["gamma"], p["V"]
    ask(
        sub,
        "td",
        r[0] + g * V[1],
        {
            "the value of the state that was left is used": r[0] + g * V[0],
            "the discount is forgotten": r[0] + V[1],
            "this is the TD error, not the target": r[0] + g * V[1] - V[0],
        },
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "Take three real rewards, each discounted once more than the one before, then an estimate. Has the episode ended by then?",
        "r₀ + γ r₁ + γ² r₂, and γ³ V(s₃) unless s₃ is terminal.",
    ),
)
def three_steps(sub, draw):
    "`three_step` is the three-step target of s₀."
    p = log(sub.student)
    r, g, V = p["rewards"], p["gamma"], p["V"]
    real = r[0] + g * r[1] + g**2 * r[2]
    right, other = (real, real + g**3 * V[3]) if p["terminal"] else (real + g**3 * V[3], real)
    ask(
        sub,
        "three_step",
        right,
        {
            "the last state's value counts, although the episode has ended"
            if p["terminal"]
            else "the last state's value is left out, although the episode continues": other,
            "the estimate at the end is discounted only once": real + g * V[3],
            "rewards are not discounted": sum(r) + (0 if p["terminal"] else g**3 * V[3]),
        },
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "Sarsa is named after the five things it needs. The last one is an action.",
        "It uses the value of the action that the learner really took in s₁.",
    ),
)
def on_policy(sub, draw):
    "`sarsa` uses the action that was taken."
    p = log(sub.student)
    r, g, Q = p["rewards"][0], p["gamma"], p["Q1"]
    ask(
        sub,
        "sarsa",
        r + g * Q[p["next_action"]],
        {"it takes the best action; that is another method": r + g * max(Q), "it takes the mean": r + g * sum(Q) / 3},
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "What would the greedy policy do in s₁, whatever the learner did?",
        "The largest of the learner's own three numbers, discounted, plus the reward.",
    ),
)
def off_policy(sub, draw):
    "`q_learning` uses the best action."
    p = log(sub.student)
    r, g, Q = p["rewards"][0], p["gamma"], p["Q1"]
    ask(
        sub,
        "q_learning",
        r + g * max(Q),
        {
            "it takes the action that was taken; that is another method": r + g * Q[p["next_action"]],
            "the copy's estimates are used, not the learner's": r + g * max(p["Q1_copy"]),
            "the discount is forgotten": r + max(Q),
        },
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "One network chooses the action, and the other estimates its value. Which does which?",
        "Find the learner's best action in s₁, then take the copy's estimate of that action. It need not be the copy's largest.",
    ),
)
def two_networks(sub, draw):
    "`double` lets the learner choose and the copy evaluate."
    p = log(sub.student)
    r, g, Q, C = p["rewards"][0], p["gamma"], p["Q1"], p["Q1_copy"]
    ask(
        sub,
        "double",
        r + g * C[Q.index(max(Q))],
        {
            "the copy both chooses and evaluates; that is DQN": r + g * max(C),
            "the roles are exchanged": r + g * Q[C.index(max(C))],
            "the learner both chooses and evaluates": r + g * max(Q),
        },
    )


# %% [mutant] the value of the wrong state
# caught by: one_step
# says: that was left
td = r[0] + g * V[0]

# %% [mutant] the end is ignored, or assumed where there is none
# caught by: three_steps
# says: the episode
three_step = r[0] + g * r[1] + g**2 * r[2] + (g**3 * V[3] if page["terminal"] else 0)

# %% [mutant] Sarsa takes the maximum
# caught by: on_policy
# says: another method
sarsa = r[0] + g * max(Q1)

# %% [mutant] Q-learning follows the action taken
# caught by: off_policy
# says: another method
q_learning = r[0] + g * Q1[page["next_action"]]

# %% [mutant] Double DQN is plain DQN
# caught by: two_networks
# says: that is DQN
double = r[0] + g * max(page["Q1_copy"])

# %% [mutant] the roles are exchanged
# caught by: two_networks
# says: roles are exchanged
double = r[0] + g * Q1[page["Q1_copy"].index(max(page["Q1_copy"]))]

# %% [partial] 4: all except Double DQN
double = None

# %% [partial] 2: the two targets of state values
sarsa, q_learning, double = None, None, None
