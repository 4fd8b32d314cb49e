# ---
# title: The best policy under a KL penalty
# kind: derive
# minutes: 30
# ---

# %% [statement]
# A model can answer a prompt with $n$ completions. The reference model gives them probabilities $\pi_\text{ref}(y)$, all positive,
# and a reward model gives them rewards $r(y)$. You may choose any policy $\pi$. Its objective is
#
# $$J(\pi) = \mathbb{E}_{y\sim\pi}[r(y)] \;-\; \beta\,\mathrm{KL}(\pi\,\|\,\pi_\text{ref}), \qquad \beta > 0.$$
#
# With $\beta = 0$ the best policy always writes the completion with the highest reward. A penalty on the KL from the reference changes this.
#
# **Find the policy that maximises $J$, and the value of $J$ there, as formulas.** There are two ways, and either will do. You can
# maximise $J$ with a Lagrange multiplier for the condition that the probabilities sum to one. Or you can regroup the terms of $J$ until
# they read "a constant minus $\beta$ times a KL divergence".
#
# Then write both formulas as functions of tensors:
#
# * `best_policy(ref, rewards, beta)`: the best $\pi$, shape `(n,)`;
# * `best_value(ref, rewards, beta)`: $\max_\pi J(\pi)$, one number. It needs only `ref`, `rewards` and `beta`, and neither the best
#   policy nor its KL.
#
# The checker knows no formula. It searches all distributions numerically. If its search finds a better policy than yours, it shows
# you how much better. The last point is for formulas that work with a very small coefficient (`beta` near 0.001), where $e^{1000}$ would overflow, and for a policy that is right with a very large one (`beta` = 1,000,000).

# %% [given]
import torch


# %% [stub]
def best_policy(ref, rewards, beta):
    """The policy that maximises E[r] − β KL(π‖ref).

    ref: (n,) probabilities. rewards: (n,). beta: a float > 0. Returns (n,) probabilities.
    """
    raise NotImplementedError


def best_value(ref, rewards, beta):
    """The largest value that E[r] − β KL(π‖ref) can take: one number."""
    raise NotImplementedError


# %% [solution]
def best_policy(ref, rewards, beta):
    return torch.softmax(ref.log() + rewards / beta, -1)


def best_value(ref, rewards, beta):
    return beta * torch.logsumexp(ref.log() + rewards / beta, -1)


# %% [tests]
import torch
from minirlhf.core import exact
from minirlhf_course.classroom.testing import expect, fail, test, tidy, tidy_distribution


def problem(draw):
    """Reference, rewards and β with few digits, so that a counterexample can be followed by hand."""
    n = draw.integer(3, 4)
    beta = [0.4, 0.5, 2.0, 2.5][draw.integer(0, 3)]
    rewards = tidy(draw.uniform(n, low=-2, high=2))
    rewards[0], rewards[-1] = rewards[0] + 0.5, rewards[-1] - 0.5  # never all alike
    return tidy_distribution(draw, n), rewards, beta


@test(
    points=3,
    against="a numerical search over all distributions",
    hints=(
        "A check for any candidate: two completions with equal reward must keep the odds that the reference gives them. "
        "And the policy must sum to one. Which step of your derivation ensures this?",
        "Set the derivative of J with respect to π(y) equal to the same constant for all y. Then log π(y) − log π_ref(y) is the "
        "reward in units of β, plus a constant. Solve for π(y) and choose the constant that normalises it.",
    ),
)
def optimum(sub, draw):
    "No policy has a higher objective than `best_policy`."
    ref, rewards, beta = problem(draw)
    policy = sub.best_policy(ref, rewards, beta)
    given = {"ref": ref, "rewards": rewards, "beta": beta}
    if isinstance(policy, torch.Tensor) and policy.shape == ref.shape:
        policy = policy.double()
        if not bool((policy >= 0).all()) or abs(float(policy.sum()) - 1) > 1e-6:
            fail("your policy is not a distribution: its entries must be ≥ 0 and sum to 1", **given, yours=policy)
    best = exact.maximise(lambda p: exact.regularised_value(p, ref, rewards, beta), len(ref))
    if isinstance(policy, torch.Tensor) and policy.shape == ref.shape:
        given["J of your policy"] = exact.regularised_value(policy, ref, rewards, beta)
        given["J of the best one found"] = exact.regularised_value(best, ref, rewards, beta)
    expect(
        policy,
        best,
        what="the best policy",
        given=given,
        tolerance=1e-4,
        mistakes={
            "β multiplies the reward instead of dividing it": torch.softmax(ref.log() + beta * rewards, -1),
            "the reference is left out": torch.softmax(rewards / beta, -1),
            "the square root of β is used": torch.softmax(ref.log() + rewards / beta**0.5, -1),
            "β is not used": torch.softmax(ref.log() + rewards, -1),
        },
    )


@test(
    points=2,
    against="a numerical search over all distributions",
    hints=(
        "Insert your best policy into J. Its log-probability has three terms, and two of them cancel against other terms of J.",
        "At the optimum, J depends only on the normaliser of the best policy. Take its logarithm. Then check the units: "
        "J is measured in units of reward, and a logarithm is not.",
    ),
)
def value(sub, draw):
    "`best_value` is the objective of the best policy, KL penalty included."
    ref, rewards, beta = problem(draw)
    best = exact.maximise(lambda p: exact.regularised_value(p, ref, rewards, beta), len(ref))
    log_z = (ref * (rewards / beta).exp()).sum().log()
    expect(
        sub.best_value(ref, rewards, beta),
        exact.regularised_value(best, ref, rewards, beta),
        what="the best value",
        given={"ref": ref, "rewards": rewards, "beta": beta},
        mistakes={
            "the logarithm of the normaliser lacks its factor β": log_z,
            "it is the largest reward, which is the optimum only without a KL term": rewards.max(),
            "the KL penalty is not subtracted": exact.expectation(best, rewards),
            "the policy stays at the reference": exact.expectation(ref, rewards),
        },
    )


@test(
    points=1,
    hints=(
        "With a small β, r/β is in the hundreds, and its exponential is infinite in floating point. The policy itself is finite.",
        "Use logarithms until the end. One torch function turns log-weights into normalised probabilities; it "
        "subtracts the largest log-weight before it exponentiates.",
    ),
)
def small_penalty(sub, draw):
    "`best_policy` and `best_value` work with β = 0.001, and with β = 1,000,000 the policy is the reference."
    ref, rewards, _ = problem(draw)
    winner = torch.zeros_like(ref)
    winner[rewards.argmax()] = 1.0
    rewards = rewards + winner  # one clear winner
    rewards = rewards - rewards.max() + 2  # and its exp(r / 0.001) is beyond float64
    given = {"ref": ref, "rewards": rewards}
    expect(sub.best_policy(ref, rewards, 1e-3), winner, what="the policy at β = 0.001", given=given)
    expect(sub.best_policy(ref, rewards, 1e6), ref, what="the policy at β = 1,000,000", given=given)
    top = float(rewards.max() + 1e-3 * ref[rewards.argmax()].log())  # all others weigh less than e^-900
    expect(sub.best_value(ref, rewards, 1e-3), top, what="the best value at β = 0.001", given=given)


# %% [shared]
# 0.001: the extreme β is named, and the answer to it is drawn


# %% [probes]
# no gradient: a formula is asked for, in whatever library


# %% [mutant] β multiplies the reward
# caught by: optimum
# says: β multiplies the reward
def best_policy(ref, rewards, beta):
    return torch.softmax(ref.log() + beta * rewards, -1)


# %% [mutant] the reference is omitted: a plain softmax of rewards
# caught by: optimum
# says: the reference is left out
def best_policy(ref, rewards, beta):
    return torch.softmax(rewards / beta, -1)


# %% [mutant] the weights are never normalised
# caught by: optimum
# says: sum to 1
def best_policy(ref, rewards, beta):
    return ref * torch.exp(rewards / beta)


# %% [mutant] greedy: always the best completion
# caught by: optimum
# says: the best policy is wrong
def best_policy(ref, rewards, beta):
    return torch.nn.functional.one_hot(rewards.argmax(), len(ref)).double()


# %% [mutant] the value lacks its factor β
# caught by: value
# says: lacks its factor
def best_value(ref, rewards, beta):
    return torch.logsumexp(ref.log() + rewards / beta, -1)


# %% [mutant] the value omits the KL penalty
# caught by: value
# says: the KL penalty is not subtracted
def best_value(ref, rewards, beta):
    return (best_policy(ref, rewards, beta) * rewards).sum()


# %% [partial] 5: both formulas are right, but the policy overflows with a small coefficient
def best_policy(ref, rewards, beta):
    weights = ref * torch.exp(rewards / beta)
    return weights / weights.sum()


# %% [partial] 3: the policy is derived, the value is not
def best_value(ref, rewards, beta):
    raise NotImplementedError


# %% [partial] 2: the value is right, the policy is the reference
def best_policy(ref, rewards, beta):
    return ref
