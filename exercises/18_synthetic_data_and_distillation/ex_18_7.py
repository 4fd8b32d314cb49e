# ---
# title: A student that cannot be its teacher
# kind: implement
# minutes: 35
# seconds: 30
# ---

# %% [statement]
# The teacher says two words. The first is one of three openers, each as often as the others, and the second is the closer that belongs to it; now and then it slips. The student has two distributions over six words, one for the first word
# and one for the second, *whatever the first was*. So it cannot be the teacher. It can say one of the three sayings, over and over; or a mixture in which closers do not fit their openers.
#
# It should say what the teacher would say: minimise the reverse KL of **whole sayings**, $\mathrm{KL}(\pi_S\|\pi_T)$, from its own sayings.
#
# 1. (five minutes) `apart(logits, teacher)`: the reverse KL of the student to the teacher at each word. `logits` `(2, 6)` is the student, `teacher` `(N, 2, 6)` the teacher's log-probabilities for both words after the beginnings of `N` sayings.
#    Returns `(N, 2)`; gradients through `logits` count.
# 2. `update(logits, words, teacher, lr)`: one step on `N` sayings `words` `(N, 2)` that the student has just sampled. Returns new logits `(2, 6)`. What you make of the samples is up to you; plain gradient descent with `lr` is enough.
#
# How it is judged: 150 steps of 64 sayings at `lr = 1`, on six seeds, each beside our run. The curve is minus the KL of whole sayings, exactly. Its mean may lie 0.5 below ours in the end, with the whole of its 95 % interval. A check shows both curves.

# %% [given]
import torch


# %% [stub]
def apart(logits, teacher):
    """logits: (2, 6). teacher: (N, 2, 6) log-probabilities. Returns (N, 2)."""
    raise NotImplementedError


def update(logits, words, teacher, lr):
    """logits: (2, 6). words: (N, 2). teacher: (N, 2, 6). Returns new logits, (2, 6)."""
    raise NotImplementedError


# %% [solution]
def apart(logits, teacher):
    logps = logits.log_softmax(-1)
    return (logps.exp() * (logps - teacher)).sum(-1)


def update(logits, words, teacher, lr):
    logits = logits.detach().clone().requires_grad_()
    each = apart(logits, teacher)
    later = each[:, 1].detach()
    first = logits.log_softmax(-1)[0, words[:, 0]]
    (each.sum(-1) + (later - later.mean()) * first).mean().backward()
    return (logits - lr * logits.grad).detach()


# %% [tests]
import math

import torch

from minirlhf.classroom.testing import expect, test, tidy
from minirlhf.classroom.training import trains, weights_of

SLIP = 0.05


def teacher_table():
    """Log-probabilities of the first word (6,), and of the second after each first word (6, 6)."""
    first = torch.full((6,), SLIP / 6, dtype=torch.float64)
    first[:3] += (1 - SLIP) / 3
    second = torch.full((6, 6), SLIP / 6, dtype=torch.float64)
    for k in range(3):
        second[k, 3 + k] += 1 - SLIP
        second[3 + k, 3:] += (1 - SLIP) / 3
    return first.log(), second.log()


def whole(logits):
    """KL of whole sayings, from all 36."""
    first, second = teacher_table()
    a, b = logits.double().softmax(-1)
    return sum(
        float(a[i] * b[j] * (a[i].log() + b[j].log() - first[i] - second[i, j])) for i in range(6) for j in range(6) if float(a[i] * b[j]) > 0
    )  # fmt: skip


@test(
    points=1,
    hints=(
        "Which of the two distributions weighs the logarithms?",
        "The student's: the sum of π_S (log π_S − log π_T), with log π_S = log_softmax(logits).",
    ),
)
def divergences(sub, draw):
    "`apart` is the reverse KL at each word."
    logits, teacher = tidy(draw.normal(2, 6)), draw.normal(3, 2, 6).log_softmax(-1)
    want = torch.zeros(3, 2, dtype=torch.float64)
    other = torch.zeros(3, 2, dtype=torch.float64)
    for t in range(2):
        total = sum(math.exp(x) for x in logits[t].tolist())
        p = [math.exp(x) / total for x in logits[t].tolist()]
        for n in range(3):
            q = [math.exp(x) for x in teacher[n, t].tolist()]
            want[n, t] = sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
            other[n, t] = sum(b * math.log(b / a) for a, b in zip(p, q, strict=True))
    expect(
        sub.apart(logits, teacher), want, what="`apart`", given={"logits": logits, "teacher": teacher}, tolerance=1e-7,
        mistakes={"that is the forward KL": other, "the sign is the other one": -want},
    )  # fmt: skip


@trains(
    points=4,
    hints=(
        "Look at your curve: does it stay at a mixture in which closers do not fit? What could tell the *first* word that it makes the second one hard?",
        "A first word answers for the divergence of the second: beside the gradient of both divergences you need the policy gradient, the divergence at the second word times the gradient of the log-probability of the first. Subtract the mean.",
    ),
    seeds=6,
    bar=0.5,
    what="minus the KL of whole sayings",
)
def learns(sub, draw):
    "In 150 steps the student decides: six runs, each beside ours."
    logits = draw.normal(2, 6, scale=0.5)
    first, second = teacher_table()
    curve = [-whole(logits)]
    for number in range(1, 151):
        rng = torch.Generator().manual_seed(draw.integer(0, 2**28))
        words = torch.stack([torch.multinomial(logits.softmax(-1)[t], 64, True, generator=rng) for t in range(2)], 1)
        told = torch.stack([first.expand(64, 6), second[words[:, 0]]], 1)
        logits = weights_of(sub.update(logits, words, told, 1.0), logits)
        if number % 25 == 0:
            curve.append(-whole(logits))
    return curve


# %% [probes]
# no inputs, integers, keywords, size, values, float32, gradient of update: any update that learns is right


# %% [mutant] the forward KL
# caught by: divergences
# says: forward KL
def apart(logits, teacher):
    return (teacher.exp() * (teacher - logits.log_softmax(-1))).sum(-1)


# %% [mutant] word by word
# caught by: learns
# says: below ours
def update(logits, words, teacher, lr):
    logits = logits.detach().clone().requires_grad_()
    apart(logits, teacher).sum(-1).mean().backward()
    return (logits - lr * logits.grad).detach()


# %% [mutant] away from the teacher
# caught by: learns
# says: below ours
def update(logits, words, teacher, lr):
    logits = logits.detach().clone().requires_grad_()
    (-apart(logits, teacher).sum(-1).mean()).backward()
    return (logits - lr * logits.grad).detach()


# %% [mutant] rewarded for trouble
# caught by: learns
# says: below ours
def update(logits, words, teacher, lr):
    logits = logits.detach().clone().requires_grad_()
    each = apart(logits, teacher)
    later = each[:, 1].detach()
    first = logits.log_softmax(-1)[0, words[:, 0]]
    (each.sum(-1) - (later - later.mean()) * first).mean().backward()
    return (logits - lr * logits.grad).detach()


# %% [partial] 1: the divergences
def update(logits, words, teacher, lr):
    raise NotImplementedError
