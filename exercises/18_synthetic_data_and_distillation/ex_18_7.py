# ---
# title: A student that cannot be its teacher
# kind: implement
# minutes: 35
# seconds: 30
# ---

# %% [statement]
# The teacher says two words. The first is one of three openers, each equally frequent. The second is the closer that belongs to it; now and then the teacher errs. The student has two distributions over six words, one for the first word
# and one for the second, *whatever the first was*. So it cannot represent the teacher. It can say one of the three sayings, over and over, or a mixture in which closers do not fit their openers.
#
# It should say what the teacher would say: minimise the reverse KL of **whole sayings**, $\mathrm{KL}(\pi_S\|\pi_T)$, from its own sayings.
#
# 1. (five minutes) `apart(logits, teacher)`: the reverse KL of the student to the teacher at each word. `logits` `(2, 6)` is the student, `teacher` `(N, 2, 6)` has the teacher's log-probabilities for both words after the prefixes of `N` sayings.
#    Returns `(N, 2)`; gradients through `logits` count.
# 2. `update(logits, words, teacher, lr)`: one step on `N` sayings `words` `(N, 2)` that the student has just sampled. Returns new logits `(2, 6)`. You choose what to make of the samples; plain gradient descent with `lr` is enough. But where every saying appears in `words` with the student's frequency, the step has to follow the negative gradient of that KL, at any length; `lr = 0` changes nothing, and twice the `lr` moves twice as far.
#
# How it is judged: 150 steps of 64 sayings at `lr = 1`, on six seeds, each paired with our run. The curve is minus the KL of whole sayings, computed exactly. You pass if the lower end of the 95 % interval of (the mean of your final values − ours) is at least −0.5. A check shows both curves.

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
from minirlhf_course.classroom.testing import expect, test, tidy
from minirlhf_course.classroom.training import moved, points_along, steps_by, trains, weights_of

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
        "Which of the two distributions weights the logarithms?",
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
        mistakes={"that is the forward KL": other, "the sign is reversed": -want},
    )  # fmt: skip


def exactly(rows):
    """Every saying as often as a student says it whose words have the probabilities 32, 16, 8, 4, 2, 2 of 64, in these two orders."""
    often = torch.tensor([32, 16, 8, 4, 2, 2])[torch.tensor(rows)]
    pairs = torch.tensor([(i, j) for i in range(6) for j in range(6)])
    return (often / 64).double().log(), pairs.repeat_interleave((often[0][:, None] * often[1]).flatten(), 0)


def down(loss, logits):
    """The direction of a step down a loss of the logits."""
    leaf = logits.clone().requires_grad_()
    return one_long(-torch.autograd.grad(loss(leaf.log_softmax(-1)), leaf)[0])


def one_long(step):
    """Of length 1; what is added to all logits of a word changes nothing."""
    step = step.double() - step.double().mean(-1, keepdim=True)
    return step / step.norm().clamp(min=1e-12)


@test(
    points=1,
    hints=(
        "The gradient of the whole KL has two parts. One comes from the divergences at both words. The other comes from the sampling: the student decides how often it reaches each prefix.",
        "The second part is the mean of the divergence at the second word, as a plain number, times the gradient of the log-probability of the first: `.detach()` it, and subtract its mean.",
    ),
    against="the gradient of the KL of whole sayings, from all 36",
)
def downhill(sub, draw):
    "Where every saying appears in `words` with the student's frequency, `update` follows the negative gradient."
    logits, words = exactly([draw.permutation(6).tolist() for _ in range(2)])
    words = words[draw.permutation(len(words))]
    first, second = teacher_table()
    told = torch.stack([first.expand(len(words), 6), second[words[:, 0]]], 1)

    def whole_kl(logps):
        both = logps[0][:, None] + logps[1]
        return (both.exp() * (both - first[:, None] - second)).sum()

    def parts(logps):
        each = (logps.exp() * (logps - told)).sum(-1)
        return each.sum(-1).mean(), each[:, 1], logps[0, words[:, 0]]

    def bare(logps):
        here, later, said = parts(logps)
        return here + ((later - later.mean()) * said).mean()

    def often(times):
        def loss(logps):
            here, later, said = parts(logps)
            return here + times * ((later - later.mean()).detach() * said).mean()

        return loss

    moved = sub.update(logits.clone(), words, told, 1.0)
    expect(
        one_long(torch.as_tensor(moved) - logits), down(whole_kl, logits), what="the direction of the step",
        given={"logits": logits, "sayings": len(words)}, tolerance=2e-3, reveal=False,
        mistakes={
            "a gradient runs through the divergence that is only the weight of the first word": down(bare, logits),
            "the first word gets no credit for the divergence at the second": down(often(0), logits),
            "the first word gets twice the credit for the divergence at the second": down(often(2), logits),
            "the first word gets three times the credit for the divergence at the second": down(often(3), logits),
            "the first word is rewarded for the divergence at the second; it should be penalised": down(often(-1), logits),
            "the step goes up": -down(whole_kl, logits),
            "the student is pushed away from the teacher, word by word": -down(often(0), logits),
        },
    )  # fmt: skip


def any_size(sub, draw):
    """One step at any `lr`, on sayings as in the training."""
    logits, words = exactly([draw.permutation(6).tolist() for _ in range(2)])
    first, second = teacher_table()
    told = torch.stack([first.expand(len(words), 6), second[words[:, 0]]], 1)
    lr = float(draw.uniform(1, low=0.2, high=2))
    step = lambda rate: sub.update(logits, words, told, rate)
    steps_by(step, logits, lr)
    few = draw.permutation(len(words))[:64]  # as many as in the training
    steps_by(lambda rate: sub.update(logits, words[few], told[few], rate), logits, lr)

    def kl(logps):
        both = logps[0][:, None] + logps[1]
        return (both.exp() * (both - first[:, None] - second)).sum()

    leaf = logits.clone().requires_grad_()
    [slope] = torch.autograd.grad(kl(leaf.log_softmax(-1)), leaf)
    points_along(moved(step(lr), logits), -lr * slope)


@trains(
    points=3,
    hints=(
        "Look at your curve: does it stay at a mixture in which closers do not fit? Which term of the gradient connects the *first* word with the divergence at the second?",
        "The first word needs credit for the divergence at the second. In addition to the gradient of both divergences you need the policy gradient: the divergence at the second word times the gradient of the log-probability of the first. Subtract the mean.",
    ),
    seeds=6,
    bar=0.5,
    what="minus the KL of whole sayings",
    also=(any_size,),
    alike=("update",),
)
def learns(sub, draw):
    "In 150 steps the student commits to a saying: six runs, each paired with our reference run."
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
# no cheats of update.lr: the statement asks for the direction, however far
# no integers, keywords, size, values, float32, gradient of update: any update that learns is right
# no gradient of apart.teacher: data, cut off or not


# %% [mutant] the forward KL
# caught by: divergences
# says: forward KL
def apart(logits, teacher):
    return (teacher.exp() * (teacher - logits.log_softmax(-1))).sum(-1)


# %% [mutant] word by word
# caught by: downhill
# says: gets no credit
def update(logits, words, teacher, lr):
    logits = logits.detach().clone().requires_grad_()
    apart(logits, teacher).sum(-1).mean().backward()
    return (logits - lr * logits.grad).detach()


# %% [mutant] away from the teacher
# caught by: downhill
# says: away from the teacher
def update(logits, words, teacher, lr):
    logits = logits.detach().clone().requires_grad_()
    (-apart(logits, teacher).sum(-1).mean()).backward()
    return (logits - lr * logits.grad).detach()


# %% [mutant] rewarded for trouble
# caught by: downhill
# says: is rewarded
def update(logits, words, teacher, lr):
    logits = logits.detach().clone().requires_grad_()
    each = apart(logits, teacher)
    later = each[:, 1].detach()
    first = logits.log_softmax(-1)[0, words[:, 0]]
    (each.sum(-1) - (later - later.mean()) * first).mean().backward()
    return (logits - lr * logits.grad).detach()


# %% [mutant] a hundredth of the step
# caught by: learns
# says: below ours
def update(logits, words, teacher, lr):
    logits = logits.detach().clone().requires_grad_()
    each = apart(logits, teacher)
    later = each[:, 1].detach()
    first = logits.log_softmax(-1)[0, words[:, 0]]
    (each.sum(-1) + (later - later.mean()) * first).mean().backward()
    return (logits - 0.01 * lr * logits.grad).detach()


# %% [mutant] through the weight as well
# caught by: downhill
# says: only the weight
def update(logits, words, teacher, lr):
    logits = logits.detach().clone().requires_grad_()
    each = apart(logits, teacher)
    later = each[:, 1]
    first = logits.log_softmax(-1)[0, words[:, 0]]
    (each.sum(-1) + (later - later.mean()) * first).mean().backward()
    return (logits - lr * logits.grad).detach()


# %% [mutant] three times the credit
# caught by: downhill
# says: three times
def update(logits, words, teacher, lr):
    logits = logits.detach().clone().requires_grad_()
    each = apart(logits, teacher)
    later = each[:, 1].detach()
    first = logits.log_softmax(-1)[0, words[:, 0]]
    (each.sum(-1) + 3 * (later - later.mean()) * first).mean().backward()
    return (logits - lr * logits.grad).detach()


# %% [partial] 1: the divergences
def update(logits, words, teacher, lr):
    raise NotImplementedError
