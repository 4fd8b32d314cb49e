# ---
# title: Bug hunt: a KL term that pulls the wrong way
# kind: bughunt
# minutes: 25
# ---

# %% [statement]
# In the token-level view, a reply is paid like this: every token pays for its distance from the reference,
# $-\beta\,(\log\pi(y_t) - \log\pi_\text{ref}(y_t))$, and the last token of the reply, its end-of-sequence token, earns the
# reward $r(y)$ on top. The sum over the reply is $r(y) - \beta \log\frac{\pi(y)}{\pi_\text{ref}(y)}$, whose expectation is the
# objective of this chapter.
#
# The function below was written for that. It runs, its shapes are right, the loss goes down, and the model it trains is a
# ruin: it drifts away from the reference faster the larger you make β, short replies never see their reward, and
# doubling $\beta$ seems to change the reward model.
#
# **There are three bugs. Find and fix them.** Each has been shipped by somebody. `mask` is True on the tokens of the reply,
# which is padded on the right; what stands behind the mask means nothing and must come out as 0.

# %% [given]
import torch


# %% [stub]
def token_rewards(rewards, logps, ref_logps, mask, beta):
    """Reward of every token of every reply.

    rewards: (B,), one per reply. logps, ref_logps: (B, T), of policy and reference. mask: (B, T) bool.
    Returns (B, T), 0 behind the mask.
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
    """A batch of three replies, at least one of them shorter than the batch."""
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
        "Let the policy raise the probability of a token above the reference's. Should that token be paid or charged?",
        "The penalty is minus the log-ratio of policy to reference, in that order. Work out the sign for log π = −1 and "
        "log π_ref = −2.",
    ),
)
def pulls_back(sub, draw):
    "A token that the policy has made more likely than the reference pays; one that it has made less likely is paid."
    _, logps, ref_logps, mask = problem(draw)
    none = torch.zeros(3, dtype=torch.float64)
    ratio = torch.where(mask, logps - ref_logps, 0.0)
    unpaid = -ratio
    unpaid[torch.arange(3), mask.sum(-1) - 1] = 0.0
    expect(
        sub.token_rewards(none, logps, ref_logps, mask, 1.0),
        -ratio,
        what="the token rewards of replies that earn nothing, at β = 1",
        given={"logps": logps, "ref_logps": ref_logps, "mask": mask},
        mistakes={
            "only tokens that have become likelier are charged": -ratio.clamp(min=0),
            "the KL term pushes away from the reference": ratio,
            "the reward takes the place of the last token's penalty instead of coming on top of it": unpaid,
        },
    )


@test(
    points=2,
    hints=(
        "Try two replies that the reference likes exactly as much as the policy does, so that the KL term is zero. What should the "
        "reply be paid, and does it depend on β?",
        "β is the price of KL, so it belongs to the penalty of each token and to nothing else.",
    ),
)
def prices_the_kl(sub, draw):
    "β scales the penalty and leaves the reward alone."
    rewards, logps, ref_logps, mask = problem(draw)
    beta = [0.1, 0.25, 3.0][draw.integer(0, 2)]
    given = {"rewards": rewards, "logps": logps, "mask": mask, "beta": beta}
    slack = sub.token_rewards(rewards, logps, logps, mask, beta)
    expect(
        slack.sum(-1),
        rewards,
        what="what a reply is paid when policy and reference agree",
        given=given | {"ref_logps": logps},
        mistakes={"β scales the reward": beta * rewards},
    )
    charged = sub.token_rewards(torch.zeros_like(rewards), logps, ref_logps, mask, beta)
    size = torch.where(mask, (logps - ref_logps).abs(), 0.0)
    expect(
        charged.abs(),
        beta * size,
        what="the size of the penalties of replies that earn nothing",
        given=given | {"ref_logps": ref_logps},
        mistakes={"the penalty has no price": size},
    )


@test(
    points=2,
    hints=(
        "Print the result for a batch in which one reply is shorter than the other. Where is its reward?",
        "The last column of the batch is the last token of the longest reply only. Count the mask along each row to find each "
        "reply's own last token.",
    ),
)
def pays_the_last_token(sub, draw):
    "The reward stands on the reply's own last token, and padding earns nothing."
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
            "the reward is put into the last column, behind the end of shorter replies": column,
            "the reward is shared among the tokens": shared,
            "every token earns the whole reward": every,
        },
    )


# %% [probes]
# no gradient: rewards are data


# %% [mutant] the log-ratio is still reversed
# caught by: pulls_back
# says: pushes away
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
# says: has no price
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
# says: instead of coming on top
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
