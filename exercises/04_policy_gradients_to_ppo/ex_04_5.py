# ---
# title: Bug hunt: a loss with three bugs
# kind: bughunt
# minutes: 25
# ---

# %% [statement]
# This is the loss of one minibatch of PPO. `logps` and `values` come from the networks, with gradients; `old_logps`, `returns` and `mask` are data. It returns one number to be *minimised*: minus the clipped objective with the advantages $G - V$, plus half the critic's
# squared error times `vf_coef`, both averaged over the steps in the mask.
#
# It runs without an error. But its updates are sometimes far too large, its critic is always a little too low, and with padded batches the loss depends on the padding.
#
# **There are three bugs. Find and fix them.** Entries where the mask is False have no meaning. The checker tests the value of the loss and its gradients.

# %% [given]
import torch


# %% [stub]
def loss(logps, old_logps, values, returns, mask, epsilon=0.2, vf_coef=0.5):
    """All tensors (B, T), mask bool. Returns one number."""
    advantages = returns - values
    ratio = torch.exp(logps - old_logps)
    clipped = ratio.clamp(1 - epsilon, 1 + epsilon)
    policy_loss = -torch.max(ratio * advantages, clipped * advantages)
    value_loss = 0.5 * (values - returns) ** 2
    return (policy_loss + vf_coef * value_loss).mean()


# %% [solution]
def loss(logps, old_logps, values, returns, mask, epsilon=0.2, vf_coef=0.5):
    # Select before you compute: the gradient of `where` behind a NaN is NaN.
    logps, old_logps, values, returns = (x[mask] for x in (logps, old_logps, values, returns))
    advantages = (returns - values).detach()
    ratio = torch.exp(logps - old_logps)
    clipped = ratio.clamp(1 - epsilon, 1 + epsilon)
    policy_loss = -torch.min(ratio * advantages, clipped * advantages)
    value_loss = 0.5 * (values - returns) ** 2
    return (policy_loss + vf_coef * value_loss).mean()


# %% [tests]
import math

import torch
from minirlhf_course.classroom.testing import expect, fail, test, tidy


def problem(draw):
    """Return the six cases of the clip in two rows of three steps, and a fourth column of padding."""
    ratio = torch.tensor([0.6, 1.0, 1.5], dtype=torch.float64).repeat(2, 1) + tidy(draw.uniform(2, 3, high=0.1))
    old_logps = torch.full((2, 4), -1.0, dtype=torch.float64)
    values = tidy(draw.uniform(2, 4, low=1.0, high=2.0))
    gains = torch.tensor([[1.0], [-1.0]], dtype=torch.float64) * tidy(draw.uniform(2, 3, low=0.5, high=2.0))
    returns, logps = values.clone(), old_logps.clone()
    returns[:, :3] += gains
    logps[:, :3] += ratio.log()
    mask = torch.tensor([[True, True, True, False]] * 2)
    returns[:, 3] = values[:, 3] + 5.0
    return logps, old_logps, values, returns, mask


def by_hand(logps, old_logps, values, returns, mask):
    """Return the policy's term and the critic's term, case by case, averaged over the mask."""
    policy, critic, count = 0.0, 0.0, int(mask.sum())
    for i, t in mask.nonzero().tolist():
        rho, a = float((logps[i, t] - old_logps[i, t]).exp()), float(returns[i, t] - values[i, t])
        stopped = (a > 0 and rho > 1.2) or (a < 0 and rho < 0.8)
        edge = 1.2 if rho > 1.2 else 0.8
        policy -= (edge if stopped else rho) * a / count
        critic += 0.5 * a * a / count
    return policy, critic


def shown(logps, old_logps, values, returns, mask):
    return {"logps": logps, "old_logps": old_logps, "values": values, "returns": returns, "mask": mask}


@test(
    points=2,
    hints=(
        "Take a batch without padding, and write down the six cases of the clip. What is the objective of a good action whose ratio is 1.5?",
        "PPO maximises the *smaller* of the two terms. The minus sign comes after that.",
    ),
)
def six_cases(sub, draw):
    "Without padding the loss is minus the clipped objective plus the critic's error."
    whole = tuple(x[:, :3] for x in problem(draw))
    logps, old_logps, values, returns, _ = whole
    policy, critic = by_hand(*whole)
    ratio, gains = (logps - old_logps).exp(), returns - values
    larger = -torch.maximum(ratio * gains, ratio.clamp(0.8, 1.2) * gains).mean()
    expect(
        sub.loss(*whole),
        policy + 0.5 * critic,
        what="the loss without padding",
        given=shown(*whole),
        mistakes={
            "it is the larger of the two terms": larger + 0.5 * critic,
            "the ratio is clipped from above only, for both signs": -(ratio.clamp(max=1.2) * gains).mean()
            + 0.5 * critic,
            "nothing is clipped": -(ratio * gains).mean() + 0.5 * critic,
            "the sign of the objective is wrong": -policy + 0.5 * critic,
        },
    )


@test(
    points=2,
    hints=(
        "Change a number where the mask is False. Does the loss change? Over how many steps is it a mean?",
        "Set the entries outside the mask to zero, then divide by the number of steps in the mask.",
    ),
)
def padding_is_nothing(sub, draw):
    "Padding does not count, not even in the denominator."
    inputs = problem(draw)
    mask = inputs[-1]
    mask[draw.integer(0, 1), 2] = False  # rows of two and of three steps
    policy, critic = by_hand(*inputs)
    want = policy + 0.5 * critic
    rows = [
        sum(by_hand(*(x[i : i + 1] for x in inputs[:4]), mask[i : i + 1])[k] * (1, 0.5)[k] for k in (0, 1))
        for i in (0, 1)
    ]
    expect(
        sub.loss(*inputs),
        want,
        what="the loss with padding",
        given=shown(*inputs),
        mistakes={
            "the padding is set to zero, but still counted in the mean": want * 5 / 8,
            "each row is averaged separately": sum(rows) / 2,
        },
    )


@test(
    points=2,
    hints=(
        "Differentiate the loss in the values. The policy's term must not contribute.",
        "An advantage is data, not a function of the critic's weights. Detach it. And select by the mask before you compute: 0 times NaN is NaN in a gradient, too.",
    ),
)
def critic_is_left_alone(sub, draw):
    "The gradient in the values comes from the critic's error alone."
    whole = tuple(x[:, :3] for x in problem(draw))
    _, _, values, returns, _ = whole
    want = 0.5 * (values - returns) / 6
    expect(
        sub.gradient("loss", *whole, wrt=2),
        want,
        what="the gradient of the loss in the values",
        given=shown(*whole),
    )
    inputs = problem(draw)
    mask = inputs[-1]
    empty = [torch.where(mask, x, math.nan) for x in inputs[:4]]
    _, _, values, returns = inputs[:4]
    critic_slope = torch.where(mask, 0.5 * (values - returns) / mask.sum(), 0.0)
    expect(
        sub.aside.gradient("loss", *empty, mask, wrt=2),
        critic_slope,
        what="the gradient of the loss in the values, with NaN in the padding",
        given=shown(*empty, mask),
    )
    slopes = sub.aside.gradient("loss", *empty, mask, wrt=0)
    if isinstance(slopes, torch.Tensor) and not bool(slopes.isfinite().all()):
        fail("the gradient of the loss in `logps` is not finite where the padding holds NaN", yours=slopes)


# %% [picture]
from minirlhf_course.classroom.testing import Panel, Picture


def picture(sub):
    """Plot the gradient of one sample in its log-probability against the ratio."""
    ratio = torch.linspace(0.4, 1.7, 131, dtype=torch.float64)
    shown = []
    for gain, name in ((1.0, "A > 0"), (-1.0, "A < 0")):
        values, old = torch.full((1, 131), 2.0, dtype=torch.float64), torch.full((1, 131), -1.0, dtype=torch.float64)
        inputs = (old + ratio.log(), old, values, values + gain, torch.ones(1, 131, dtype=torch.bool))
        yours = -131 * sub.gradient("loss", *inputs, wrt=0).double()[0]
        alive = ratio <= 1.2 if gain > 0 else ratio >= 0.8
        right = torch.where(alive, ratio * gain, 0.0)
        shown.append(Panel(name, ratio, yours, right, "ratio ρ", "gradient in the log-probability"))
    return Picture(
        "The gradient in a sample's log-probability against its ratio. Right: it grows with the ratio, and is zero above 1.2 for a positive advantage, below 0.8 for a negative one.",
        tuple(shown),
    )


# %% [probes]
# no gradient of loss.old_logps, loss.returns: data, detached or not


# %% [mutant] the maximum remains
# caught by: six_cases
# says: the larger of the two
def loss(logps, old_logps, values, returns, mask, epsilon=0.2, vf_coef=0.5):
    advantages = (returns - values).detach()
    ratio = torch.exp(logps - old_logps)
    policy_loss = -torch.max(ratio * advantages, ratio.clamp(1 - epsilon, 1 + epsilon) * advantages)
    value_loss = 0.5 * (values - returns) ** 2
    return torch.where(mask, policy_loss + vf_coef * value_loss, 0.0).sum() / mask.sum()


# %% [mutant] the minus sign has moved inside the minimum
# caught by: six_cases
# says: the larger of the two
def loss(logps, old_logps, values, returns, mask, epsilon=0.2, vf_coef=0.5):
    advantages = (returns - values).detach()
    ratio = torch.exp(logps - old_logps)
    policy_loss = torch.min(-ratio * advantages, -ratio.clamp(1 - epsilon, 1 + epsilon) * advantages)
    value_loss = 0.5 * (values - returns) ** 2
    return torch.where(mask, policy_loss + vf_coef * value_loss, 0.0).sum() / mask.sum()


# %% [mutant] the mean over everything
# caught by: padding_is_nothing
# says: still counted
def loss(logps, old_logps, values, returns, mask, epsilon=0.2, vf_coef=0.5):
    advantages = (returns - values).detach()
    ratio = torch.exp(logps - old_logps)
    policy_loss = -torch.min(ratio * advantages, ratio.clamp(1 - epsilon, 1 + epsilon) * advantages)
    value_loss = 0.5 * (values - returns) ** 2
    return torch.where(mask, policy_loss + vf_coef * value_loss, 0.0).mean()


# %% [mutant] the advantage still has a gradient
# caught by: critic_is_left_alone
# says: the gradient of the loss in the values is wrong
def loss(logps, old_logps, values, returns, mask, epsilon=0.2, vf_coef=0.5):
    advantages = returns - values
    ratio = torch.exp(logps - old_logps)
    policy_loss = -torch.min(ratio * advantages, ratio.clamp(1 - epsilon, 1 + epsilon) * advantages)
    value_loss = 0.5 * (values - returns) ** 2
    return torch.where(mask, policy_loss + vf_coef * value_loss, 0.0).sum() / mask.sum()


# %% [mutant] the values are detached everywhere
# caught by: critic_is_left_alone
# says: does not depend on the input
def loss(logps, old_logps, values, returns, mask, epsilon=0.2, vf_coef=0.5):
    values = values.detach()
    advantages = returns - values
    ratio = torch.exp(logps - old_logps)
    policy_loss = -torch.min(ratio * advantages, ratio.clamp(1 - epsilon, 1 + epsilon) * advantages)
    value_loss = 0.5 * (values - returns) ** 2
    return torch.where(mask, policy_loss + vf_coef * value_loss, 0.0).sum() / mask.sum()


# %% [partial] 4: minimum and mask are repaired
def loss(logps, old_logps, values, returns, mask, epsilon=0.2, vf_coef=0.5):
    advantages = returns - values
    ratio = torch.exp(logps - old_logps)
    policy_loss = -torch.min(ratio * advantages, ratio.clamp(1 - epsilon, 1 + epsilon) * advantages)
    value_loss = 0.5 * (values - returns) ** 2
    return torch.where(mask, policy_loss + vf_coef * value_loss, 0.0).sum() / mask.sum()


# %% [partial] 2: only the minimum is repaired
def loss(logps, old_logps, values, returns, mask, epsilon=0.2, vf_coef=0.5):
    advantages = returns - values
    ratio = torch.exp(logps - old_logps)
    policy_loss = -torch.min(ratio * advantages, ratio.clamp(1 - epsilon, 1 + epsilon) * advantages)
    value_loss = 0.5 * (values - returns) ** 2
    return (policy_loss + vf_coef * value_loss).mean()
