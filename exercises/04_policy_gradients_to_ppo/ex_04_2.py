# ---
# title: GAE, with termination and truncation
# kind: implement
# minutes: 25
# ---

# %% [statement]
# Write generalised advantage estimation for one stretch of an episode,
#
# $$A_t = \delta_t + \gamma\lambda A_{t+1}, \qquad \delta_t = r_t + \gamma V(s_{t+1}) - V(s_t).$$
#
# `rewards` and `values` have one entry per step; `values[t]` is $V(s_t)$. `last_value` is the critic's value of the state *after* the last step. A stretch can have some hundreds of steps. The future after the last step depends on why the stretch ends:
#
# * `terminated = True`: the episode terminated there. Nothing follows, and `last_value` has no meaning.
# * `terminated = False`: the stretch was truncated, by a time limit or because the rollout was full. The episode continues, and the critic is the only information about its future.
#
# Write `gae(rewards, values, last_value, terminated, gamma, lam)` and `targets(rewards, values, last_value, terminated, gamma, lam)`. The targets of the critic are the advantage plus the value.
#
# An example to try: rewards 0, 0, 1, values .5, .6, .7, $\gamma = 1$, terminated. $\lambda = .95$ gives .46575, .385, .3.

# %% [given]
import torch


# %% [stub]
def gae(rewards, values, last_value, terminated, gamma, lam):
    """rewards, values: (T,). last_value, gamma, lam: floats. terminated: bool. Returns advantages (T,)."""
    raise NotImplementedError


def targets(rewards, values, last_value, terminated, gamma, lam):
    """The same arguments. Returns the critic's targets (T,)."""
    raise NotImplementedError


# %% [solution]
def gae(rewards, values, last_value, terminated, gamma, lam):
    following = torch.cat([values[1:], values.new_tensor([0.0 if terminated else last_value])])
    residuals = rewards + gamma * following - values
    advantages, after = torch.zeros_like(rewards), 0.0
    for t in reversed(range(len(rewards))):
        after = residuals[t] + gamma * lam * after
        advantages[t] = after
    return advantages


def targets(rewards, values, last_value, terminated, gamma, lam):
    return gae(rewards, values, last_value, terminated, gamma, lam) + values


# %% [tests]
import math

import torch
from minirlhf_course.classroom.testing import expect, test, tidy


def problem(draw):
    """Return four steps; all numbers are far from zero, so that each mistake shows."""
    rewards, values = tidy(draw.uniform(4, low=0.5, high=2.0)), tidy(draw.uniform(4, low=2.0, high=5.0))
    return rewards, values, float(draw.integer(6, 9)), [0.5, 0.8, 0.9][draw.integer(0, 2)]


def mixture(rewards, values, last, gamma, lam):
    """Return (1 − λ) Σ λ^(n−1) A^(n), each n-step advantage written out; beyond the end all are the same."""
    r, v, size = rewards.tolist(), [*values.tolist(), last], len(rewards)
    advantages = []
    for t in range(size):
        total = 0.0
        for n in range(1, size - t + 1):
            n_step = sum(gamma**k * r[t + k] for k in range(n)) + gamma**n * v[t + n] - v[t]
            total += ((1 - lam) * lam ** (n - 1) if n < size - t else lam ** (n - 1)) * n_step
        advantages.append(total)
    return torch.tensor(advantages, dtype=torch.float64)


def shown(rewards, values, last, terminated, gamma, lam):
    return {
        "rewards": rewards,
        "values": values,
        "last_value": last,
        "terminated": terminated,
        "gamma": gamma,
        "lam": lam,
    }


@test(
    points=2,
    against="n-step advantages, mixed by hand",
    hints=(
        "Take λ = 0 first: then the advantage is the TD residual of the step. Which value follows the first step?",
        "Go from the last step to the first, and keep A. Two factors multiply it at each step, not one.",
    ),
)
def to_the_end(sub, draw):
    "`gae` of an episode that terminated, for λ = 0, λ in between, and λ = 1."
    rewards, values, last, gamma = problem(draw)
    for lam in (0.0, 0.6, 1.0):
        want = mixture(rewards, values, 0.0, gamma, lam)
        expect(
            sub.gae(rewards, values, last, True, gamma, lam),
            want,
            what=f"the advantages of an episode that terminated, at λ = {lam}",
            given=shown(rewards, values, last, True, gamma, lam),
            mistakes={
                "the episode terminated, but the critic's last value still counts": mixture(
                    rewards, values, last, gamma, lam
                ),
                "γ is missing from the factor of the recursion": mixture_of(rewards, values, 0.0, gamma, lam),
                "the advantages are standardised": (want - want.mean()) / (want.std() + 1e-8),
                "the value is not subtracted": want + values,
            },
        )
        expect(
            sub.aside.gae(rewards, values, math.nan, True, gamma, lam),
            want,
            what="the advantages of an episode that has ended, with a last value of NaN",
            given=shown(rewards, values, math.nan, True, gamma, lam),
        )
    ones = torch.ones(200, dtype=torch.float64)
    expect(
        sub.aside.gae(ones, torch.zeros_like(ones), last, True, 1.0, 1.0),
        torch.arange(200, 0, -1, dtype=torch.float64),
        what="the advantages of 200 steps with rewards of 1, values of 0 and γ = λ = 1",
    )
    expect(
        sub.aside.gae(
            torch.ones(500, dtype=torch.float64), torch.zeros(500, dtype=torch.float64), last, True, 0.5, 0.2
        ),
        torch.tensor([sum(0.1**k for k in range(500 - t)) for t in range(500)], dtype=torch.float64),
        what="the advantages of 500 steps with rewards of 1, values of 0, γ = 0.5 and λ = 0.2",
    )


def mixture_of(rewards, values, last, gamma, lam):
    """Return A_t = δ_t + λ A_{t+1}, with γ only in the residual."""
    following = torch.cat([values[1:], torch.tensor([last], dtype=torch.float64)])
    residuals = rewards + gamma * following - values
    return torch.stack([sum(lam ** (k - t) * residuals[k] for k in range(t, 4)) for t in range(4)])


@test(
    points=2,
    hints=(
        "The time limit was reached, or the rollout was full. Has the episode terminated?",
        "At a truncation the residual of the last step uses `last_value`. Nothing else changes.",
    ),
)
def to_the_cut(sub, draw):
    "`gae` of a truncated stretch uses the critic's value of the future."
    rewards, values, last, gamma = problem(draw)
    expect(
        sub.gae(rewards, values, last, False, gamma, 0.6),
        mixture(rewards, values, last, gamma, 0.6),
        what="the advantages of a truncated stretch",
        given=shown(rewards, values, last, False, gamma, 0.6),
        mistakes={
            "the truncation is treated as termination": mixture(rewards, values, 0.0, gamma, 0.6),
            "the last value is not discounted": mixture(rewards, values, last / gamma, gamma, 0.6),
            "the value of the last step is used for the state after it": mixture(
                rewards, values, float(values[-1]), gamma, 0.6
            ),
        },
    )


@test(
    points=1,
    hints=(
        "At λ = 1, for an episode that terminated, the target is the return itself.",
        "The advantage is the target minus the value. Solve for the target.",
    ),
)
def what_the_critic_learns(sub, draw):
    "`targets` are the λ-returns."
    rewards, values, last, gamma = problem(draw)
    advantages = mixture(rewards, values, last, gamma, 0.6)
    expect(
        sub.targets(rewards, values, last, False, gamma, 0.6),
        advantages + values,
        what="the critic's targets",
        given=shown(rewards, values, last, False, gamma, 0.6),
        mistakes={
            "the targets are the advantages": advantages,
            "the value is subtracted a second time": advantages - values,
        },
    )
    expect(
        sub.aside.targets(rewards, values, math.nan, True, gamma, 0.6),
        mixture(rewards, values, 0.0, gamma, 0.6) + values,
        what="the critic's targets of an episode that has ended, with a last value of NaN",
        given=shown(rewards, values, math.nan, True, gamma, 0.6),
    )


# %% [edges]
# to_the_end: some hundreds of steps
# to_the_end: `last_value` has no meaning
# what_the_critic_learns: `last_value` has no meaning


# %% [probes]
# no gradient: advantages and targets are data


# %% [mutant] the last value counts after the end too
# caught by: to_the_end
# says: the critic's last value still counts
def gae(rewards, values, last_value, terminated, gamma, lam):
    following = torch.cat([values[1:], values.new_tensor([last_value])])
    residuals = rewards + gamma * following - values
    advantages, after = torch.zeros_like(rewards), 0.0
    for t in reversed(range(len(rewards))):
        after = residuals[t] + gamma * lam * after
        advantages[t] = after
    return advantages


# %% [mutant] γ is missing from the recursion
# caught by: to_the_end
# says: γ is missing
def gae(rewards, values, last_value, terminated, gamma, lam):
    following = torch.cat([values[1:], values.new_tensor([0.0 if terminated else last_value])])
    residuals = rewards + gamma * following - values
    advantages, after = torch.zeros_like(rewards), 0.0
    for t in reversed(range(len(rewards))):
        after = residuals[t] + lam * after
        advantages[t] = after
    return advantages


# %% [mutant] every stretch ends
# caught by: to_the_cut
# says: treated as termination
def gae(rewards, values, last_value, terminated, gamma, lam):
    following = torch.cat([values[1:], values.new_zeros(1)])
    residuals = rewards + gamma * following - values
    advantages, after = torch.zeros_like(rewards), 0.0
    for t in reversed(range(len(rewards))):
        after = residuals[t] + gamma * lam * after
        advantages[t] = after
    return advantages


# %% [mutant] the targets are the advantages
# caught by: what_the_critic_learns
# says: the targets are the advantages
def targets(rewards, values, last_value, terminated, gamma, lam):
    return gae(rewards, values, last_value, terminated, gamma, lam)


# %% [partial] 4: the advantages are right, the targets not begun
def targets(rewards, values, last_value, terminated, gamma, lam):
    raise NotImplementedError
