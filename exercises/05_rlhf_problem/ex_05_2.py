# ---
# title: One long decision, or many small ones
# kind: implement
# minutes: 30
# ---

# %% [statement]
# A completion of $L$ tokens can be described in two ways. As a *bandit*, the whole completion is one action out of $n^L$, and
# its reward is $r(y)$. As a *token-level MDP*, there are $L$ decisions. The state is the text so far, and only the last token
# receives a reward, $r(y)$. Nothing in this environment is random except the policy: each token leads to exactly one
# next state.
#
# Both descriptions are about the same model, so they must agree about its expected reward. You can verify this on a model that is small enough to be
# listed: $n$ tokens, completions of exactly $L$ tokens, no end-of-sequence token.
#
# * `step_probs` is a list of $L$ tensors. `step_probs[t]` has $t+1$ axes of size $n$: its last axis is the distribution of token
#   $t$, and the axes before it are the tokens already written. So `step_probs[0]` is `(n,)`, `step_probs[1][a]` is the
#   distribution of the second token after the first token was `a`, and so on.
# * `reward` has $L$ axes of size $n$: `reward[a, b]` is $r$ of the completion "a b" when $L = 2$.
#
# Write three functions:
#
# 1. `bandit_value(step_probs, reward)`: $\sum_y \pi(y)\,r(y)$, with $\pi(y)$ from the chain rule. One number.
# 2. `prefix_values(step_probs, reward)`: the value of each state, $V(y_{<t})$. This is the expected reward when the policy completes
#    the prefix $y_{<t}$. Return a list of $L$ tensors: the first has no axes (nothing written yet), the next has one axis, and so on. Work
#    backwards from the last token.
# 3. `token_advantages(step_probs, reward)`: how much better each token is than the policy's average there,
#    $A_t = Q(y_{<t}, y_t) - V(y_{<t})$. Return a list of $L$ tensors shaped like `step_probs`.
#
# When it works, add the advantages along any completion. The sum is $r(y) - V(\emptyset)$. In this way one reward at the end is
# divided among the tokens that caused it.

# %% [given]
import torch


# %% [stub]
def bandit_value(step_probs, reward):
    """Expected reward, with the completion as one action. Returns one number (a tensor without axes)."""
    raise NotImplementedError


def prefix_values(step_probs, reward):
    """Value of every unfinished completion: a list of L tensors, of 0, 1, …, L−1 axes of size n."""
    raise NotImplementedError


def token_advantages(step_probs, reward):
    """Advantage of every token after every prefix: a list of L tensors, shaped like step_probs."""
    raise NotImplementedError


# %% [solution]
def bandit_value(step_probs, reward):
    joint = step_probs[0]
    for step in step_probs[1:]:
        joint = joint[..., None] * step
    return (joint * reward).sum()


def prefix_values(step_probs, reward):
    values = [reward]
    for step in reversed(step_probs):
        values.insert(0, (step * values[0]).sum(-1))
    return values[:-1]


def token_advantages(step_probs, reward):
    values = [*prefix_values(step_probs, reward), reward]
    return [after - before[..., None] for before, after in zip(values, values[1:])]


# %% [tests]
import itertools

import torch
from minirlhf_course.classroom.testing import expect, fail, test, tidy


def problem(draw, length=0):
    """A random model of n tokens and completions of L, and rewards with one decimal."""
    size, length = draw.integer(2, 3), length or draw.integer(2, 3)
    steps = [draw.distribution(*[size] * (t + 1)) for t in range(length)]
    return steps, tidy(draw.uniform(*[size] * length, low=-2, high=2))


def conditional_mean(steps, reward, prefix):
    """Expected reward of completions that begin with prefix, by enumerating them and multiplying their probabilities."""
    total, mass = 0.0, 0.0
    size, length = reward.shape[0], reward.dim()
    for reply in itertools.product(range(size), repeat=length):
        if reply[: len(prefix)] == prefix:
            p = 1.0
            for t in range(length):
                p *= float(steps[t][reply[: t + 1]])
            total, mass = total + p * float(reward[reply]), mass + p
    return total / mass


def table(steps, reward, axes):
    """`conditional_mean` of every prefix of this length, as a tensor."""
    size = reward.shape[0]
    flat = [conditional_mean(steps, reward, p) for p in itertools.product(range(size), repeat=axes)]
    return torch.tensor(flat, dtype=torch.float64).reshape([size] * axes)


def shown(steps, reward):
    return {f"step_probs[{t}]": s for t, s in enumerate(steps)} | {"reward": reward}


def as_list(got, length, what):
    if not isinstance(got, list | tuple) or len(got) != length:
        fail(f"{what} is not a list of {length} tensors")
    return got


@test(
    points=1,
    hints=(
        "You need the probability of each whole completion. The chain rule multiplies the probabilities of its tokens, each given "
        "the tokens before it.",
        "Start with `step_probs[0]`. Add one axis per step, so that the product with the next step's tensor aligns "
        "prefixes with prefixes. The last product has one probability per completion and the shape of `reward`.",
    ),
)
def one_decision(sub, draw):
    "`bandit_value` is the sum over whole completions of probability times reward."
    for asked, length in ((sub, 2), (sub, 3), (sub.aside, 5)):
        steps, reward = problem(draw, length)
        greedy = steps[0]
        for step in steps[1:]:
            greedy = greedy[..., None] * step.mean(tuple(range(step.dim() - 1)))
        expect(
            asked.bandit_value(steps, reward),
            conditional_mean(steps, reward, ()),
            what="the bandit's value",
            given=shown(steps, reward),
            mistakes={
                "all completions are equally probable": reward.mean(),
                "only the first token follows the policy": (steps[0] * reward.flatten(1).mean(1)).sum(),
                "each token ignores the tokens before it": (greedy * reward).sum(),
            },
        )


@test(
    points=2,
    hints=(
        "Begin at the end. Before the last token, the value of a state is the mean of the rewards that can follow, weighted by the "
        "policy. Then go back by one token, and repeat.",
        "Each step is one line: multiply `step_probs[t]` by the values *after* token t, which have the same shape, and sum over "
        "the last axis. After the last token the value is the reward itself.",
    ),
)
def many_decisions(sub, draw):
    "`prefix_values` gives the expected final reward after every prefix."
    steps, reward = problem(draw)
    length = len(steps)
    got = as_list(sub.prefix_values(steps, reward), length, "the result of `prefix_values`")
    best, plain = [reward], [reward]
    for _ in steps:
        best.insert(0, best[0].amax(-1))
        plain.insert(0, plain[0].mean(-1))
    for t in reversed(range(length)):
        expect(
            got[t],
            table(steps, reward, t),
            what=f"the value after {t} tokens",
            given=shown(steps, reward),
            mistakes={
                "the best next token is taken, not the policy's mean": best[t],
                "it stays at zero": torch.zeros_like(table(steps, reward, t)),
                "all next tokens are equally probable": plain[t],
            },
        )


@test(
    points=2,
    hints=(
        "Q of a prefix and a token needs no new computation here: a token leads to exactly one next prefix, and there is no reward on "
        "the way. So Q is the value of this next prefix.",
        "Subtract each value from the values one token later. The earlier value needs a new last axis. For the last token, the value "
        "one token later is the reward.",
    ),
)
def credit(sub, draw):
    "`token_advantages` is, for each token, the value after it minus the value before it."
    steps, reward = problem(draw)
    length = len(steps)
    got = as_list(sub.token_advantages(steps, reward), length, "the result of `token_advantages`")
    values = [table(steps, reward, t) for t in range(length + 1)]
    for t in range(length):
        right = values[t + 1] - values[t][..., None]
        expect(
            got[t],
            right,
            what=f"the advantage of token {t}",
            given=shown(steps, reward),
            mistakes={
                "the sign is reversed": -right,
                "the value before the token is not subtracted": values[t + 1],
                "next tokens are averaged without their probabilities": values[t + 1]
                - values[t + 1].mean(-1, keepdim=True),
                "every token is compared with the empty completion": values[t + 1] - values[0],
            },
        )


# %% [probes]
# no size: the tests draw the sizes, which hang together
# no gradient: values are asked for, however they are computed


# %% [mutant] completions taken as equally probable
# caught by: one_decision
# says: equally probable
def bandit_value(step_probs, reward):
    return reward.mean()


# %% [mutant] the values of an optimal policy, not of this one
# caught by: many_decisions
# says: the best next token
def prefix_values(step_probs, reward):
    values = [reward]
    for _ in step_probs:
        values.insert(0, values[0].amax(-1))
    return values[:-1]


# %% [mutant] sums over the first axis instead of the last
# caught by: many_decisions
def prefix_values(step_probs, reward):
    values = [reward]
    for step in reversed(step_probs):
        values.insert(0, (step * values[0]).sum(0))
    return values[:-1]


# %% [mutant] the full completions stay in the list
# caught by: many_decisions
# says: not a list of
def prefix_values(step_probs, reward):
    values = [reward]
    for step in reversed(step_probs):
        values.insert(0, (step * values[0]).sum(-1))
    return values


def token_advantages(step_probs, reward):
    values = prefix_values(step_probs, reward)
    return [after - before[..., None] for before, after in zip(values, values[1:])]


# %% [mutant] action values passed off as advantages
# caught by: credit
# says: is not subtracted
def token_advantages(step_probs, reward):
    return [*prefix_values(step_probs, reward)[1:], reward]


# %% [mutant] the sign of the advantage is reversed
# caught by: credit
# says: the sign is reversed
def token_advantages(step_probs, reward):
    values = [*prefix_values(step_probs, reward), reward]
    return [before[..., None] - after for before, after in zip(values, values[1:])]


# %% [partial] 1: only the bandit's view is written
def prefix_values(step_probs, reward):
    raise NotImplementedError


def token_advantages(step_probs, reward):
    raise NotImplementedError


# %% [partial] 3: both views are right, the advantages not begun
def token_advantages(step_probs, reward):
    raise NotImplementedError
