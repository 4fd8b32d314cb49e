# ---
# title: What one step says about another prompt
# kind: derive
# minutes: 30
# ---

# %% [statement]
# A policy has logits that are linear in features of the prompt: with the weights $W$ of shape $(Y, D)$ and the features $\varphi$ of shape $(D,)$, the probabilities of the $Y$ answers are the softmax of $W\varphi$. We take one small gradient step on one prompt, and ask what it changes at **another** prompt, to first order.
#
# 1. `spill(weights, features, other, answer, lr)`: the step ascends the log-probability of `answer`, an index, at the prompt with `features`. Return the change of the log-probabilities of all answers at the prompt with features `other`, a tensor $(Y,)$.
# 2. `reward_spill(weights, features, other, rewards, lr)`: the step ascends the expected reward at the first prompt, with `rewards` of shape $(Y,)$. Return the same.
#
# All tensors are float64. Derive the closed forms.

# %% [given]
import torch


# %% [stub]
def spill(weights, features, other, answer, lr):
    """weights: (Y, D); features, other: (D,); answer: int. Returns (Y,)."""
    raise NotImplementedError


def reward_spill(weights, features, other, rewards, lr):
    """weights: (Y, D); features, other: (D,); rewards: (Y,). Returns (Y,)."""
    raise NotImplementedError


# %% [solution]
def spread(weights, features, other, push, lr):
    logits = lr * (features @ other) * push
    return logits - torch.softmax(weights @ other, -1) @ logits


def spill(weights, features, other, answer, lr):
    push = -torch.softmax(weights @ features, -1)
    push[answer] += 1
    return spread(weights, features, other, push, lr)


def reward_spill(weights, features, other, rewards, lr):
    p = torch.softmax(weights @ features, -1)
    return spread(weights, features, other, p * (rewards - p @ rewards), lr)


# %% [tests]
import torch
from minirlhf_course.classroom.testing import expect, test, tidy


def stepped(weights, features, other, objective, lr):
    """Return the derivative of the log-probabilities at the other prompt along a gradient step, both by autograd."""
    leaf = weights.clone().requires_grad_()
    [step] = torch.autograd.grad(objective(torch.log_softmax(leaf @ features, -1)), leaf)
    at = lambda w: torch.log_softmax(w @ other, -1)
    return lr * torch.autograd.functional.jvp(at, weights, step)[1]


def world(draw, answers, width):
    return tidy(draw.normal(answers, width)), tidy(draw.normal(width)), tidy(draw.normal(width))


@test(
    points=2,
    hints=(
        "First find the gradient of log π(answer) with respect to W, and the change of the logits at the other prompt.",
        "The logits change by lr (φ·φ') (e − π), with the probabilities of the first prompt. A log-probability changes by its logit minus the mean over the other prompt's policy.",
    ),
    against="autograd at the first prompt, and a directional derivative at the other",
)
def likelihood(sub, draw):
    "`spill` is the first-order change after a step on a log-probability."
    for answers, width in ((3, 3), (4, 2), (2, 5)):
        w, x, z = world(draw, answers, width)
        answer, lr = draw.integer(0, answers - 1), [0.1, 0.3, 0.5][draw.integer(0, 2)]
        want = stepped(w, x, z, lambda logp, answer=answer: logp[answer], lr)
        p, p2 = torch.softmax(w @ x, -1), torch.softmax(w @ z, -1)
        e = torch.eye(answers, dtype=torch.float64)[answer]
        k = lr * (x @ z)
        expect(
            sub.spill(w, x, z, answer, lr), want, what="`spill`", given={"weights": w, "features": x, "other": z, "answer": answer, "lr": lr},
            mistakes={
                "these are the changes of the logits; log-probabilities are normalised": k * (e - p),
                "the two prompts' features have no effect": lr * ((e - p) - p2 @ (e - p)),
                "the gradient at the first prompt uses the other prompt's probabilities": k * ((e - p2) - p2 @ (e - p2)),
                "the mean is taken with the first prompt's probabilities": k * ((e - p) - p @ (e - p)),
                "the learning rate is missing": want / lr,
                "it is the change after the whole step, and not to first order": torch.log_softmax(w @ z + k * (e - p), -1) - torch.log_softmax(w @ z, -1),
                "these are the changes of the probabilities": p2 * want,
                "the sign is wrong": -want,
            },
        )  # fmt: skip


@test(
    points=2,
    hints=(
        "What is the gradient of the expected reward with respect to the logits?",
        "It is π (r − E[r]) at the first prompt, in place of e − π. The rest is as in part 1.",
    ),
    against="autograd at the first prompt, and a directional derivative at the other",
)
def reward(sub, draw):
    "`reward_spill` is the first-order change after a step on the expected reward."
    for answers, width in ((3, 3), (4, 2), (2, 5)):
        w, x, z = world(draw, answers, width)
        r, lr = tidy(draw.normal(answers)), [0.1, 0.3, 0.5][draw.integer(0, 2)]
        want = stepped(w, x, z, lambda logp, r=r: logp.exp() @ r, lr)
        p, p2 = torch.softmax(w @ x, -1), torch.softmax(w @ z, -1)
        k = lr * (x @ z)
        change = lambda push, k=k, p2=p2: k * (push - p2 @ push)
        expect(
            sub.reward_spill(w, x, z, r, lr), want, what="`reward_spill`", given={"weights": w, "features": x, "other": z, "rewards": r, "lr": lr},
            mistakes={
                "the mean reward is not subtracted": change(p * r),
                "the plain mean of the rewards is subtracted, and not their mean under the policy": change(p * (r - r.mean())),
                "the probability of each answer is missing in the gradient": change(r - p @ r),
                "the two prompts' features have no effect": change(p * (r - p @ r)) / (x @ z),
                "the sign is wrong": -want,
            },
        )  # fmt: skip


# %% [probes]
# no gradient: only the numbers are required
# no size: the tests vary the width of the features and the number of answers
# no float32: the statement promises float64


# %% [mutant] logits
# caught by: likelihood
# says: log-probabilities are normalised
def spill(weights, features, other, answer, lr):
    push = -torch.softmax(weights @ features, -1)
    push[answer] += 1
    return lr * (features @ other) * push


# %% [mutant] no features
# caught by: likelihood
# says: have no effect
def spill(weights, features, other, answer, lr):
    push = -torch.softmax(weights @ features, -1)
    push[answer] += 1
    return lr * (push - torch.softmax(weights @ other, -1) @ push)


# %% [mutant] no mean reward
# caught by: reward
# says: mean reward is not subtracted
def reward_spill(weights, features, other, rewards, lr):
    p = torch.softmax(weights @ features, -1)
    return spread(weights, features, other, p * rewards, lr)


# %% [partial] 2: the likelihood alone
def reward_spill(weights, features, other, rewards, lr):
    return torch.zeros(len(weights), dtype=torch.float64)
