# ---
# title: Bug hunt: a KL term that pulls the wrong way
# kind: bughunt
# minutes: 25
# ---

# %% [statement]
# In the token-level view, every token of a completion has a KL penalty,
# $-\beta\,(\log\pi(y_t) - \log\pi_\text{ref}(y_t))$, and the last token, the end-of-sequence token, also receives the
# reward $r(y)$. The sum over the completion is $r(y) - \beta \log\frac{\pi(y)}{\pi_\text{ref}(y)}$. Its expectation is the
# objective of this chapter.
#
# The function below should compute these token rewards. It runs, its shapes are right and the loss decreases, but the model that it trains is
# useless. The model moves away from the reference faster when β is larger, short completions never receive their reward, and
# doubling $\beta$ seems to change the reward model.
#
# **There are three bugs. Find and fix them.** Real code has had each of them. `mask` is True on the tokens of the completion,
# which is padded on the right. Values outside the mask mean nothing, and there the result must be 0.

# %% [given]
import torch


# %% [stub]
def token_rewards(rewards, logps, ref_logps, mask, beta):
    """Reward of every token of every completion.

    rewards: (B,), one per completion. logps, ref_logps: (B, T), of policy and reference. mask: (B, T) bool.
    Returns (B, T), 0 where the mask is False.
    """
    log_ratio = ref_logps - logps
    shaped = torch.where(mask, -log_ratio, 0.0)
    shaped[:, -1] += beta * rewards
    return shaped


# %% [solution]
def token_rewards(rewards, logps, ref_logps, mask, beta):
    log_ratio = logps - ref_logps
    shaped = torch.where(mask, -beta * log_ratio, 0.0)
    last = mask.sum(-1) - 1
    shaped[torch.arange(len(rewards)), last] += rewards
    return shaped


# %% [tests]
import torch
from minirlhf_course.classroom.testing import expect, test, tidy


def problem(draw):
    """A batch of three completions, at least one of them shorter than the batch."""
    mask = draw.mask(3, 4)
    mask[draw.integer(0, 2), 3] = False
    return (
        tidy(draw.away_from([0.0], 3, low=-2, high=2, margin=0.2)),
        tidy(draw.logps(3, 4)),
        tidy(draw.logps(3, 4)),
        mask,
    )


@test(
    points=2,
    hints=(
        "Suppose that the policy gives a token a higher probability than the reference does. Should its KL term be positive or negative?",
        "The penalty is minus the log-ratio of policy to reference, in this order. Compute its sign for log π = −1 and "
        "log π_ref = −2.",
    ),
)
def pulls_back(sub, draw):
    "A token that is more probable under the policy than under the reference has a negative reward, and a less probable one a positive reward."
    _, logps, ref_logps, mask = problem(draw)
    none = torch.zeros(3, dtype=torch.float64)
    ratio = torch.where(mask, logps - ref_logps, 0.0)
    unpaid = -ratio
    unpaid[torch.arange(3), mask.sum(-1) - 1] = 0.0
    expect(
        sub.token_rewards(none, logps, ref_logps, mask, 1.0),
        -ratio,
        what="the token rewards of completions with reward 0, at β = 1",
        given={"logps": logps, "ref_logps": ref_logps, "mask": mask},
        mistakes={
            "only tokens that have become more probable are penalised": -ratio.clamp(min=0),
            "the KL term rewards distance from the reference": ratio,
            "the reward replaces the last token's penalty instead of being added to it": unpaid,
        },
    )


@test(
    points=2,
    hints=(
        "Try two completions with equal probabilities under policy and reference, so that the KL term is zero. What should their "
        "token rewards be, and do they depend on β?",
        "β is the coefficient of the KL, so it multiplies the penalty of each token and nothing else.",
    ),
)
def prices_the_kl(sub, draw):
    "β scales the penalty and not the reward."
    rewards, logps, ref_logps, mask = problem(draw)
    beta = [0.1, 0.25, 3.0][draw.integer(0, 2)]
    given = {"rewards": rewards, "logps": logps, "mask": mask, "beta": beta}
    slack = sub.token_rewards(rewards, logps, logps, mask, beta)
    expect(
        slack.sum(-1),
        rewards,
        what="the token rewards when policy and reference agree",
        given=given | {"ref_logps": logps},
        mistakes={"β scales the reward": beta * rewards},
    )
    charged = sub.token_rewards(torch.zeros_like(rewards), logps, ref_logps, mask, beta)
    size = torch.where(mask, (logps - ref_logps).abs(), 0.0)
    expect(
        charged.abs(),
        beta * size,
        what="the size of the penalties of completions with reward 0",
        given=given | {"ref_logps": ref_logps},
        mistakes={"the penalty is not multiplied by β": size},
    )


@test(
    points=2,
    hints=(
        "Print the result for a batch in which one completion is shorter than the other. Where is its reward?",
        "The last column of the batch is the last token of the longest completion only. Sum the mask along each row to find the last token "
        "of each completion.",
    ),
)
def pays_the_last_token(sub, draw):
    "The reward is at the last token of each completion, and padding has reward 0."
    rewards, logps, _, mask = problem(draw)
    want, column, every, shared = (torch.zeros(3, 4, dtype=torch.float64) for _ in range(4))
    for i in range(3):
        want[i, int(mask[i].sum()) - 1] = rewards[i]
        column[i, -1] = rewards[i]
        every[i, mask[i]] = rewards[i]
        shared[i, mask[i]] = rewards[i] / mask[i].sum()
    expect(
        sub.token_rewards(rewards, logps, logps, mask, 1.0),
        want,
        what="the token rewards when policy and reference agree, at β = 1",
        given={"rewards": rewards, "logps": logps, "ref_logps": logps, "mask": mask},
        mistakes={
            "the reward is in the last column, after the end of shorter completions": column,
            "the reward is divided among the tokens": shared,
            "every token receives the whole reward": every,
        },
    )


# %% [probes]
# no gradient: rewards are data


# %% [mutant] the log-ratio is still reversed
# caught by: pulls_back
# says: rewards distance
def token_rewards(rewards, logps, ref_logps, mask, beta):
    shaped = torch.where(mask, -beta * (ref_logps - logps), 0.0)
    shaped[torch.arange(len(rewards)), mask.sum(-1) - 1] += rewards
    return shaped


# %% [mutant] β still scales the reward
# caught by: prices_the_kl
# says: β scales the reward
def token_rewards(rewards, logps, ref_logps, mask, beta):
    shaped = torch.where(mask, ref_logps - logps, 0.0)
    shaped[torch.arange(len(rewards)), mask.sum(-1) - 1] += beta * rewards
    return shaped


# %% [mutant] the penalty has lost its price
# caught by: prices_the_kl
# says: not multiplied
def token_rewards(rewards, logps, ref_logps, mask, beta):
    shaped = torch.where(mask, ref_logps - logps, 0.0)
    shaped[torch.arange(len(rewards)), mask.sum(-1) - 1] += rewards
    return shaped


# %% [mutant] the reward stays in the last column
# caught by: pays_the_last_token
# says: the last column
def token_rewards(rewards, logps, ref_logps, mask, beta):
    shaped = torch.where(mask, -beta * (logps - ref_logps), 0.0)
    shaped[:, -1] += rewards
    return shaped


# %% [mutant] the last token's penalty is overwritten
# caught by: pulls_back
# says: instead of being added
def token_rewards(rewards, logps, ref_logps, mask, beta):
    shaped = torch.where(mask, -beta * (logps - ref_logps), 0.0)
    shaped[torch.arange(len(rewards)), mask.sum(-1) - 1] = rewards
    return shaped


# %% [mutant] the reward is put one token too early
# caught by: pays_the_last_token
def token_rewards(rewards, logps, ref_logps, mask, beta):
    shaped = torch.where(mask, -beta * (logps - ref_logps), 0.0)
    shaped[torch.arange(len(rewards)), mask.sum(-1) - 2] += rewards
    return shaped


# %% [partial] 2: the direction is repaired, the rest is as it was
def token_rewards(rewards, logps, ref_logps, mask, beta):
    shaped = torch.where(mask, ref_logps - logps, 0.0)
    shaped[:, -1] += beta * rewards
    return shaped


# %% [partial] 2: β is where it belongs, the rest is as it was
def token_rewards(rewards, logps, ref_logps, mask, beta):
    shaped = torch.where(mask, -beta * (ref_logps - logps), 0.0)
    shaped[:, -1] += rewards
    return shaped


# %% [partial] 4: direction and price are repaired, the reward is still in the last column
def token_rewards(rewards, logps, ref_logps, mask, beta):
    shaped = torch.where(mask, -beta * (logps - ref_logps), 0.0)
    shaped[:, -1] += rewards
    return shaped
