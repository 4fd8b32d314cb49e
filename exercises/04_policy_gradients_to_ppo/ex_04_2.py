# ---
# title: GAE, with an end and with a cut
# kind: implement
# minutes: 25
# ---

# %% [statement]
# Write generalised advantage estimation for one stretch of an episode,
#
# $$A_t = \delta_t + \gamma\lambda A_{t+1}, \qquad \delta_t = r_t + \gamma V(s_{t+1}) - V(s_t).$$
#
# `rewards` and `values` have one entry per step; `values[t]` is $V(s_t)$. `last_value` is the critic's word on the state *after* the last step. What follows the last step depends on why the stretch is over:
#
# * `terminated = True`: the episode has ended there. Nothing follows, and `last_value` means nothing.
# * `terminated = False`: it was cut off, by a time limit or because the rollout was full. The future goes on, and the critic is all you know of it.
#
# Write `gae(rewards, values, last_value, terminated, gamma, lam)` and `targets(rewards, values, last_value, terminated, gamma, lam)`, what the critic is trained towards: the advantage plus the value.
#
# An example to try: rewards 0, 0, 1, values .5, .6, .7, $\gamma = 1$, ended. $\lambda = .95$ gives .46575, .385, .3.

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
import torch
from minirlhf_course.classroom.testing import expect, test, tidy


def problem(draw):
    """Four steps; all numbers far from zero, so that each mistake shows."""
    rewards, values = tidy(draw.uniform(4, low=0.5, high=2.0)), tidy(draw.uniform(4, low=2.0, high=5.0))
    return rewards, values, float(draw.integer(6, 9)), [0.5, 0.8, 0.9][draw.integer(0, 2)]


def mixture(rewards, values, last, gamma, lam):
    """(1 − λ) Σ λ^(n−1) A^(n), each n-step advantage written out; beyond the end all are the same."""
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
        "Go from the last step to the first, and carry A with you. Two factors shrink it at each step, not one.",
    ),
)
def to_the_end(sub, draw):
    "`gae` of an episode that has ended, for λ = 0, λ in between, and λ = 1."
    rewards, values, last, gamma = problem(draw)
    for lam in (0.0, 0.6, 1.0):
        want = mixture(rewards, values, 0.0, gamma, lam)
        expect(
            sub.gae(rewards, values, last, True, gamma, lam),
            want,
            what=f"the advantages of an episode that has ended, at λ = {lam}",
            given=shown(rewards, values, last, True, gamma, lam),
            mistakes={
                "the episode has ended, and still the critic's last word counts": mixture(
                    rewards, values, last, gamma, lam
                ),
                "γ is missing from the factor of the recursion": mixture_of(rewards, values, 0.0, gamma, lam),
                "the advantages are standardised": (want - want.mean()) / (want.std() + 1e-8),
                "the value is not subtracted": want + values,
            },
        )


def mixture_of(rewards, values, last, gamma, lam):
    """A_t = δ_t + λ A_{t+1}: as if γ stood only in the residual."""
    following = torch.cat([values[1:], torch.tensor([last], dtype=torch.float64)])
    residuals = rewards + gamma * following - values
    return torch.stack([sum(lam ** (k - t) * residuals[k] for k in range(t, 4)) for t in range(4)])


@test(
    points=2,
    hints=(
        "The clock has run out, or the batch was full. Did the pole fall?",
        "At a cut the residual of the last step looks at `last_value`; nothing else changes.",
    ),
)
def to_the_cut(sub, draw):
    "`gae` of a stretch that was cut off believes the critic about what follows."
    rewards, values, last, gamma = problem(draw)
    expect(
        sub.gae(rewards, values, last, False, gamma, 0.6),
        mixture(rewards, values, last, gamma, 0.6),
        what="the advantages of a stretch that was cut off",
        given=shown(rewards, values, last, False, gamma, 0.6),
        mistakes={
            "the cut is taken for the end": mixture(rewards, values, 0.0, gamma, 0.6),
            "the last value is not discounted": mixture(rewards, values, last / gamma, gamma, 0.6),
            "the value of the last step stands in for the state after it": mixture(
                rewards, values, float(values[-1]), gamma, 0.6
            ),
        },
    )


@test(
    points=1,
    hints=(
        "At λ = 1, of an episode that has ended, the target is the return itself.",
        "Advantage is target minus value; turn that around.",
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
            "the critic is trained towards the advantages": advantages,
            "the value is subtracted once more": advantages - values,
        },
    )


# %% [probes]
# no gradient: advantages and targets are data


# %% [mutant] the last value counts after the end too
# caught by: to_the_end
# says: still the critic's last word
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
# says: taken for the end
def gae(rewards, values, last_value, terminated, gamma, lam):
    following = torch.cat([values[1:], values.new_zeros(1)])
    residuals = rewards + gamma * following - values
    advantages, after = torch.zeros_like(rewards), 0.0
    for t in reversed(range(len(rewards))):
        after = residuals[t] + gamma * lam * after
        advantages[t] = after
    return advantages


# %% [mutant] the critic is trained towards advantages
# caught by: what_the_critic_learns
# says: towards the advantages
def targets(rewards, values, last_value, terminated, gamma, lam):
    return gae(rewards, values, last_value, terminated, gamma, lam)


# %% [partial] 4: the advantages are right, the targets not begun
def targets(rewards, values, last_value, terminated, gamma, lam):
    raise NotImplementedError
