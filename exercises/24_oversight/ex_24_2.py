# ---
# title: How fast does it hide?
# kind: derive
# minutes: 25
# ---

# %% [statement]
# A policy is a table of logits, $\pi = \mathrm{softmax}(\theta)$, and is trained by the exact gradient of
# $$J(\theta) = \sum_y \pi(y)\,u(y) - \beta\,\mathrm{KL}(\pi\,\|\,\pi_{\text{ref}}),$$
# where $u$ is the reward minus the mean fine. We watch the log-odds of completion $i$ to completion $j$. Derive closed forms.
#
# 1. `speed(logits, values, i, j)`: for $\beta = 0$, the change of $\theta_i - \theta_j$ per unit of learning rate, to first order. `logits` and `values` are $(N,)$.
# 2. `held(logits, ref_logps, values, beta, i, j)`: the same with the KL penalty. `ref_logps` are log-probabilities.
# 3. `natural(logits, ref_logps, values, beta, i, j)`: the same for a *natural* gradient, for which $\dot\theta(y)$ is the derivative of $J$ with respect to $\pi(y)$, up to a constant that is the same for all $y$.
#
# All results are numbers (tensors without dimensions are fine).

# %% [given]
import torch


# %% [stub]
def speed(logits, values, i, j):
    """logits, values: (N,). Returns a number."""
    raise NotImplementedError


def held(logits, ref_logps, values, beta, i, j):
    """logits, ref_logps, values: (N,). Returns a number."""
    raise NotImplementedError


def natural(logits, ref_logps, values, beta, i, j):
    """logits, ref_logps, values: (N,). Returns a number."""
    raise NotImplementedError


# %% [solution]
def speed(logits, values, i, j):
    p = logits.softmax(-1)
    step = p * (values - p @ values)  # dJ/dθ
    return step[i] - step[j]


def held(logits, ref_logps, values, beta, i, j):
    # the KL's part of the gradient is that of a reward −β log(π/π_ref)
    return speed(logits, values - beta * (logits.log_softmax(-1) - ref_logps), i, j)


def natural(logits, ref_logps, values, beta, i, j):
    earned = values - beta * (logits.log_softmax(-1) - ref_logps)
    return earned[i] - earned[j]


# %% [tests]
import torch
from minirlhf_course.classroom.testing import expect, test, tidy


def case(draw):
    """Return logits, log-probabilities of the reference, values and a pair."""
    n = draw.integer(3, 6)
    logits, values = tidy(draw.normal(n)), tidy(draw.normal(n))
    ref = torch.tensor([float(draw.integer(1, 9)) for _ in range(n)], dtype=torch.float64)
    i, j = draw.permutation(n)[:2].tolist()
    return logits, (ref / ref.sum()).log(), values, i, j


def objective(logits, ref, values, beta):
    law = logits.log_softmax(-1)
    return (law.exp() * values).sum() - beta * (law.exp() * (law - ref)).sum()


def slope(logits, ref, values, beta):
    at = logits.clone().requires_grad_()
    return torch.autograd.grad(objective(at, ref, values, beta), at)[0]


@test(
    points=1,
    hints=("What is the derivative of J with respect to one logit?", "π(y) times the value of y minus the mean value. Take the difference for i and j."),
    against="autograd",
)  # fmt: skip
def free(sub, draw):
    "`speed` is the change of the log-odds without a penalty."
    logits, ref, values, i, j = case(draw)
    step, p = slope(logits, ref, values, 0.0), logits.softmax(-1)
    want = step[i] - step[j]
    expect(
        sub.speed(logits, values, i, j), want, what="`speed`", given={"logits": logits, "values": values, "i, j": (i, j)},
        mistakes={
            "the mean value is not subtracted": p[i] * values[i] - p[j] * values[j],
            "the probabilities are missing; this is the natural gradient's": values[i] - values[j],
            "it is the change of the log-odds of j to i": -want,
            "it is the change of one logit": step[i],
            "the plain mean of the values is subtracted, not their mean under the policy": p[i] * (values[i] - values.mean()) - p[j] * (values[j] - values.mean()),
            "it is for two completions alone: the other completions change the mean": 2 * p[i] * p[j] * (values[i] - values[j]),
        },
    )  # fmt: skip


@test(
    points=2,
    hints=(
        "The KL is a mean over the policy, so its gradient looks like the gradient of a reward.",
        "Use the reward u − β log(π/π_ref). The term from the derivative of log π itself has mean 0.",
    ),
    against="autograd",
)
def with_penalty(sub, draw):
    "`held` is the change with a KL penalty."
    logits, ref, values, i, j = case(draw)
    beta = [0.3, 0.7, 1.5][draw.integer(0, 2)]
    step, p, law = slope(logits, ref, values, beta), logits.softmax(-1), logits.log_softmax(-1)
    want = step[i] - step[j]
    short = lambda v: p[i] * (v[i] - p @ v) - p[j] * (v[j] - p @ v)
    expect(
        sub.held(logits, ref, values, beta, i, j), want, what="`held`",
        given={"logits": logits, "ref_logps": ref, "values": values, "beta": beta, "i, j": (i, j)},
        mistakes={
            "the penalty is missing": short(values),
            "the sign of the penalty is wrong": short(values + beta * (law - ref)),
            "the reference is missing: this is an entropy bonus": short(values - beta * law),
            "logits are used as if they were log-probabilities, and the mean of the log-ratio is not subtracted": short(values) - beta * (p[i] * (logits[i] - ref[i]) - p[j] * (logits[j] - ref[j])),
            "the mean of the log-ratio is not subtracted": short(values) - beta * (p[i] * (law[i] - ref[i]) - p[j] * (law[j] - ref[j])),
        },
    )  # fmt: skip


@test(
    points=2,
    hints=("What is the derivative of J with respect to π(y)?", "u(y) − β log(π(y)/π_ref(y)) − β. The constant cancels in the difference. Where does it vanish?"),
    against="autograd over probabilities; and the optimum, where it vanishes",
)  # fmt: skip
def by_nature(sub, draw):
    "`natural` is the change under a natural gradient, and vanishes at the optimum."
    logits, ref, values, i, j = case(draw)
    beta = [0.3, 0.7, 1.5][draw.integer(0, 2)]
    probs = logits.softmax(-1).requires_grad_()
    [step] = torch.autograd.grad((probs * values).sum() - beta * (probs * (probs.log() - ref)).sum(), probs)
    want, p, law = (step[i] - step[j]).detach(), logits.softmax(-1), logits.log_softmax(-1)
    given = {"logits": logits, "ref_logps": ref, "values": values, "beta": beta, "i, j": (i, j)}
    expect(
        sub.natural(logits, ref, values, beta, i, j), want, what="`natural`", given=given,
        mistakes={
            "the probabilities belong to the plain gradient": p[i] * step[i].detach() - p[j] * step[j].detach(),
            "the penalty is missing": values[i] - values[j],
            "the sign of the penalty is wrong": 2 * (values[i] - values[j]) - want,
            "the reference is missing": values[i] - values[j] - beta * (law[i] - law[j]),
        },
    )  # fmt: skip
    best = ref + values / beta
    expect(sub.natural(best, ref, values, beta, i, j), 0.0, what="`natural` at the optimum", given=given | {"logits": best})  # fmt: skip


# %% [probes]
# no gradient, size, keywords: a number for one pair of completions
# no offset of held: beside a penalty or logits of ten million, what remains is rounding


# %% [mutant] without the mean
# caught by: free
# says: mean value is not subtracted
def speed(logits, values, i, j):
    p = logits.softmax(-1)
    return p[i] * values[i] - p[j] * values[j]


# %% [mutant] two alone
# caught by: free
# says: two completions alone
def speed(logits, values, i, j):
    p = logits.softmax(-1)
    return 2 * p[i] * p[j] * (values[i] - values[j])


# %% [mutant] an entropy bonus
# caught by: with_penalty
# says: entropy bonus
def held(logits, ref_logps, values, beta, i, j):
    return speed(logits, values - beta * logits.log_softmax(-1), i, j)


# %% [mutant] the wrong sign
# caught by: with_penalty
# says: sign of the penalty
def held(logits, ref_logps, values, beta, i, j):
    return speed(logits, values + beta * (logits.log_softmax(-1) - ref_logps), i, j)


# %% [mutant] plain
# caught by: by_nature
# says: plain gradient
def natural(logits, ref_logps, values, beta, i, j):
    earned = values - beta * (logits.log_softmax(-1) - ref_logps) - beta
    p = logits.softmax(-1)
    return p[i] * earned[i] - p[j] * earned[j]


# %% [partial] 3: the plain gradient
def natural(logits, ref_logps, values, beta, i, j):
    return 0.0
