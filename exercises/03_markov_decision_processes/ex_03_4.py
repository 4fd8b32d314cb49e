# ---
# title: Bug hunt: a learner that three people have broken
# kind: bughunt
# minutes: 20
# ---

# %% [statement]
# This is one update of Q-learning. It gets the table of action values and one step, and returns the table after it. It runs and its numbers stay finite,
# but it learns the wrong values: rewards have too little effect, every state seems good because of itself, and where episodes are limited to a hundred steps the learner becomes short-sighted.
#
# **There are three bugs. Find and fix them.** `terminated` is True if the next state is the end of the episode. `truncated` is True if a time limit stopped the episode here, although it could have continued.

# %% [given]
import torch


# %% [stub]
def update(q, state, action, reward, next_state, terminated, truncated, alpha, gamma):
    """Do one update of Q-learning.

    q: (S, A). state, action, next_state: integers. reward, alpha, gamma: floats. terminated, truncated: bools.
    Returns the new (S, A).
    """
    q = q.clone()
    future = 0.0 if terminated or truncated else q[state].max()
    target = gamma * (reward + future)
    q[state, action] = (1 - alpha) * q[state, action] + alpha * target
    return q


# %% [solution]
def update(q, state, action, reward, next_state, terminated, truncated, alpha, gamma):
    q = q.clone()
    future = 0.0 if terminated else q[next_state].max()
    target = reward + gamma * future
    q[state, action] = (1 - alpha) * q[state, action] + alpha * target
    return q


# %% [tests]
import torch
from minirlhf_course.classroom.testing import expect, test, tidy


def problem(draw):
    """Return a table of three states and two actions, a step from 0 to 1, and the other numbers."""
    q = tidy(draw.uniform(3, 2, low=1, high=2)) + torch.tensor([[0.0], [2.0], [4.0]], dtype=torch.float64)
    action = draw.integer(0, 1)
    q[1, 1 - action] += 1.2  # in the state that is reached, the action just taken is never the best
    reward = 1.0 + draw.integer(1, 9) / 10
    return (
        q,
        (0, action, reward, 1),
        [0.1, 0.25, 0.5][draw.integer(0, 2)],
        [0.5, 0.8, 0.9][draw.integer(0, 2)],
    )


def shown(q, step, terminated, truncated, alpha, gamma):
    names = ("state", "action", "reward", "next_state")
    flags = {"terminated": terminated, "truncated": truncated, "alpha": alpha, "gamma": gamma}
    return {"q": q} | dict(zip(names, step, strict=True)) | flags


def after(q, step, alpha, target):
    """Return the table with one entry moved towards the target."""
    table = [list(row) for row in q.tolist()]
    table[step[0]][step[1]] += alpha * (target - table[step[0]][step[1]])
    return torch.tensor(table, dtype=torch.float64)


@test(
    points=2,
    hints=(
        "Take a step that ends the episode. What is the return from this step on, its own reward included?",
        "The reward of the step itself is not discounted. Only later rewards are.",
    ),
)
def pays_in_full(sub, draw):
    "At the end of an episode the target is the reward."
    q, step, alpha, gamma = problem(draw)
    expect(
        sub.update(q, *step, True, False, alpha, gamma),
        after(q, step, alpha, step[2]),
        what="the table after a step that ends the episode",
        given=shown(q, step, True, False, alpha, gamma),
        mistakes={
            "the reward is discounted": after(q, step, alpha, gamma * step[2]),
            "the next state is used, although the episode has ended": after(
                q, step, alpha, step[2] + gamma * float(q[1].max())
            ),
            "the old value is discarded": after(q, step, 1.0, step[2]),
        },
    )


@test(
    points=2,
    hints=(
        "In which state is the learner after the step?",
        "The future begins in the next state, so the maximum runs over the next state's row.",
    ),
)
def looks_ahead(sub, draw):
    "In the middle of an episode the target uses the next state."
    q, step, alpha, gamma = problem(draw)
    expect(
        sub.update(q, *step, False, False, alpha, gamma),
        after(q, step, alpha, step[2] + gamma * float(q[1].max())),
        what="the table after a step in the middle of an episode",
        given=shown(q, step, False, False, alpha, gamma),
        mistakes={
            "the state that was left is used, not the one that was reached": after(
                q, step, alpha, step[2] + gamma * float(q[0].max())
            ),
            "the worst action of the next state is used": after(q, step, alpha, step[2] + gamma * float(q[1].min())),
            "the future is left out": after(q, step, alpha, step[2]),
        },
    )
    low, loop = q - 9.0, (1, int(q[1].argmax()), step[2], 1)
    expect(
        sub.aside.update(low, *loop, False, False, alpha, gamma),
        after(low, loop, alpha, loop[2] + gamma * float(low[1].max())),
        what="the table after a step back to the same state, with values below 0,",
        given=shown(low, loop, False, False, alpha, gamma),
    )


@test(
    points=2,
    hints=(
        "The time limit was reached. Did the process end?",
        "A time limit ends the record and not the process: only `terminated` removes the value of the next state.",
    ),
)
def clock_is_no_end(sub, draw):
    "A step at which the episode was truncated still has a future."
    q, step, alpha, gamma = problem(draw)
    expect(
        sub.update(q, *step, False, True, alpha, gamma),
        after(q, step, alpha, step[2] + gamma * float(q[1].max())),
        what="the table after a step at which the time limit was reached",
        given=shown(q, step, False, True, alpha, gamma),
        mistakes={
            "the time limit is treated as the end": after(q, step, alpha, step[2]),
            "half of the future is dropped": after(q, step, alpha, step[2] + 0.5 * gamma * float(q[1].max())),
            "a truncated step is not learned from at all": q,
        },
    )


# %% [probes]
# no gradient: the answer changes a table, nothing is differentiated
# no keywords of update.action: the exercise does not ask about an action that does not exist
# no keywords of update.truncated: truncation changes nothing


# %% [mutant] the reward is still discounted
# caught by: pays_in_full
# says: the reward is discounted
def update(q, state, action, reward, next_state, terminated, truncated, alpha, gamma):
    q = q.clone()
    target = gamma * (reward + (0.0 if terminated else q[next_state].max()))
    q[state, action] = (1 - alpha) * q[state, action] + alpha * target
    return q


# %% [mutant] the end is ignored
# caught by: pays_in_full
# says: although the episode has ended
def update(q, state, action, reward, next_state, terminated, truncated, alpha, gamma):
    q = q.clone()
    q[state, action] += alpha * (reward + gamma * q[next_state].max() - q[state, action])
    return q


# %% [mutant] it still uses the state that was left
# caught by: looks_ahead
# says: that was left
def update(q, state, action, reward, next_state, terminated, truncated, alpha, gamma):
    q = q.clone()
    future = 0.0 if terminated else q[state].max()
    q[state, action] = (1 - alpha) * q[state, action] + alpha * (reward + gamma * future)
    return q


# %% [mutant] the time limit is still the end
# caught by: clock_is_no_end
# says: treated as the end
def update(q, state, action, reward, next_state, terminated, truncated, alpha, gamma):
    q = q.clone()
    future = 0.0 if terminated or truncated else q[next_state].max()
    q[state, action] = (1 - alpha) * q[state, action] + alpha * (reward + gamma * future)
    return q


# %% [mutant] truncated steps are skipped
# caught by: clock_is_no_end
# says: not learned from
def update(q, state, action, reward, next_state, terminated, truncated, alpha, gamma):
    q = q.clone()
    if truncated:
        return q
    future = 0.0 if terminated else q[next_state].max()
    q[state, action] = (1 - alpha) * q[state, action] + alpha * (reward + gamma * future)
    return q


# %% [partial] 2: only the reward is repaired
def update(q, state, action, reward, next_state, terminated, truncated, alpha, gamma):
    q = q.clone()
    future = 0.0 if terminated or truncated else q[state].max()
    q[state, action] = (1 - alpha) * q[state, action] + alpha * (reward + gamma * future)
    return q


# %% [partial] 4: reward and next state are repaired, the time limit is not
def update(q, state, action, reward, next_state, terminated, truncated, alpha, gamma):
    q = q.clone()
    future = 0.0 if terminated or truncated else q[next_state].max()
    q[state, action] = (1 - alpha) * q[state, action] + alpha * (reward + gamma * future)
    return q
