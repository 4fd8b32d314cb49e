# ---
# title: The student's own answers
# kind: implement
# minutes: 25
# ---

# %% [statement]
# A strong student learns from weak labels. A part of its target is its own answer, and this part grows during training.
#
# 1. `own_answers(logits)`: $(N,)$ zeros and ones, $N$ even and all logits different. The classes are balanced, so exactly half of the answers are 1: those with the larger logits. (A fixed threshold at 0 would let all answers become 1.)
# 2. `loss(logits, weak, alpha)`: the mean over the $N$ examples of $(1-\alpha)$ times the cross-entropy with the weak label plus $\alpha$ times the cross-entropy with the student's own answer. `weak` is $(N,)$, probabilities of class 1. Gradients run through `logits` only, and not through the own answers.
# 3. `confidence_gap(logits, weak)`: the weak label of an example is 1 if its probability is above ½. Among the examples on which own answer and weak label differ, take the mean of $|{\rm logit}|$; subtract its mean among the examples on which they agree. NaN if one of the two sets is empty. (If the difference is positive, the student is confident where it contradicts its supervisor.)

# %% [given]
import math

import torch


# %% [stub]
def own_answers(logits):
    """logits: (N,). Returns (N,) zeros and ones."""
    raise NotImplementedError


def loss(logits, weak, alpha):
    """logits, weak: (N,). Returns a number."""
    raise NotImplementedError


def confidence_gap(logits, weak):
    """logits, weak: (N,). Returns a number, or NaN."""
    raise NotImplementedError


# %% [solution]
def own_answers(logits):
    return (logits.argsort().argsort() >= len(logits) // 2).to(logits.dtype)


def loss(logits, weak, alpha):
    target = (1 - alpha) * weak + alpha * own_answers(logits.detach())
    return torch.nn.functional.binary_cross_entropy_with_logits(logits, target)


def confidence_gap(logits, weak):
    differ = own_answers(logits) != (weak > 0.5).to(logits.dtype)
    if not bool(differ.any()) or bool(differ.all()):
        return math.nan
    return float(logits[differ].abs().mean() - logits[~differ].abs().mean())


# %% [tests]
import math

import torch
from minirlhf_course.classroom.testing import expect, fail, test, tidy


def answers(logits):
    """Return own answers, by sorting."""
    middle = sorted(logits.tolist())[len(logits) // 2]
    return torch.tensor([float(x >= middle) for x in logits.tolist()], dtype=torch.float64)


def batch(draw, n=6):
    """Return different logits, most of them positive, and weak labels; own and weak answers differ on some, not on all."""
    while True:
        logits, weak = tidy(0.8 + draw.normal(n)), tidy(draw.uniform(n, low=0.05, high=0.95))
        differ = answers(logits) != (weak > 0.5).double()
        apart = bool((logits.sort().values.diff() > 0.05).all()) and int((logits > 0).sum()) > n // 2
        if apart and 0 < int(differ.sum()) < n and bool(((weak - 0.5).abs() > 0.02).all()):
            return logits, weak


def entropy(logits, target):
    """Return the cross-entropy of each example, from probabilities."""
    p = 1 / (1 + (-logits).exp())
    return -(target * p.log() + (1 - target) * (1 - p).log())


def value(logits, weak, alpha):
    return ((1 - alpha) * entropy(logits, weak) + alpha * entropy(logits, answers(logits.detach()))).mean()


def known(logits, weak, alpha):
    """Return the results of common mistakes."""
    at_zero, soft = (logits.detach() > 0).double(), logits.detach().sigmoid()
    return {
        "own answers are decided at 0, and more than half are 1": ((1 - alpha) * entropy(logits, weak) + alpha * entropy(logits, at_zero)).mean(),
        "the student's own probability is used, not its answer": ((1 - alpha) * entropy(logits, weak) + alpha * entropy(logits, soft)).mean(),
        "α and 1 − α are exchanged": (alpha * entropy(logits, weak) + (1 - alpha) * entropy(logits, answers(logits.detach()))).mean(),
        "the weak labels keep their whole weight": (entropy(logits, weak) + alpha * entropy(logits, answers(logits.detach()))).mean(),
        "the weak labels are rounded": ((1 - alpha) * entropy(logits, (weak > 0.5).double()) + alpha * entropy(logits, answers(logits.detach()))).mean(),
        "it is the sum over the examples": value(logits, weak, alpha) * len(logits),
    }  # fmt: skip


@test(
    points=1,
    hints=("Which N/2 logits are the larger ones?", "Rank the logits, or compare them with a value between the two middle ones."),
    against="sorting",
)  # fmt: skip
def half_are_one(sub, draw):
    "`own_answers` are 1 for the larger half."
    for n in (6, 8):
        logits, _ = batch(draw, n)
        expect(
            sub.own_answers(logits), answers(logits), what="`own_answers`", given={"logits": logits},
            mistakes={
                "the threshold is 0": (logits > 0).double(),
                "the threshold is the mean": (logits > logits.mean()).double(),
                "the smaller half is 1": 1 - answers(logits),
            },
        )  # fmt: skip


@test(
    points=2,
    hints=("The cross-entropy is linear in its target.", "Use the target (1 − α)·weak + α·own answer with a binary cross-entropy on logits, and take the mean."),
    against="example by example",
)  # fmt: skip
def mixed(sub, draw):
    "`loss` mixes weak labels and own answers."
    for n in (6, 2, 10):
        _mixed(sub, *batch(draw, n), [0.25, 0.4, 0.75][draw.integer(0, 2)])


def _mixed(sub, logits, weak, alpha):
    want = value(logits, weak, alpha)
    expect(
        sub.loss(logits, weak, alpha), want, what="`loss`", given={"logits": logits, "weak": weak, "alpha": alpha},
        mistakes={say: x for say, x in known(logits, weak, alpha).items() if abs(float(x - want)) > 1e-6},
    )  # fmt: skip


@test(
    points=1,
    hints=("Are own answers a function of the logits for autograd?", "They are constants: detach the logits before you compute them."),
    against="autograd, example by example",
)  # fmt: skip
def slope(sub, draw):
    "`loss` has the gradient with own answers as constants."
    logits, weak = batch(draw)
    alpha = 0.4
    at = logits.clone().requires_grad_()
    [want] = torch.autograd.grad(value(at, weak, alpha), at)
    expect(
        sub.gradient("loss", logits, weak, alpha, wrt=0), want, what="the gradient of `loss`",
        given={"logits": logits, "weak": weak, "alpha": alpha},
        mistakes={
            say: torch.autograd.grad(x, at)[0]
            for say, x in known(at, weak, alpha).items()
            if float((torch.autograd.grad(x, at, retain_graph=True)[0] - want).abs().max()) > 1e-6
        },
    )  # fmt: skip


@test(
    points=1,
    hints=("Which examples does the student answer differently from its supervisor?", "Compare own answers with weak > ½. Take two means of the absolute logits."),
    against="example by example",
)  # fmt: skip
def contradicts(sub, draw):
    "`confidence_gap` compares the confidence where the two differ and where they agree."
    logits, weak = batch(draw)
    differ = [a != float(w > 0.5) for a, w in zip(answers(logits).tolist(), weak.tolist(), strict=True)]
    size = [abs(x) for x in logits.tolist()]
    mean = lambda which: sum(s for s, d in zip(size, differ, strict=True) if d == which) / differ.count(which)
    signed = lambda which: (
        sum(x for x, d in zip(logits.tolist(), differ, strict=True) if d == which) / differ.count(which)
    )
    fixed = [float(x > 0) != float(w > 0.5) for x, w in zip(logits.tolist(), weak.tolist(), strict=True)]
    at_zero = {}
    if 0 < sum(fixed) < len(fixed):
        two = [[s for s, d in zip(size, fixed, strict=True) if d == which] for which in (True, False)]
        at_zero = {
            "the student's answers have the threshold 0, and are not balanced": sum(two[0]) / len(two[0])
            - sum(two[1]) / len(two[1])
        }
    expect(
        sub.confidence_gap(logits, weak), mean(True) - mean(False), what="`confidence_gap`", given={"logits": logits, "weak": weak},
        mistakes={
            "the two means are exchanged": mean(False) - mean(True),
            "it is the mean of the logits, without their absolute value": signed(True) - signed(False),
            "it is only the first of the two means": mean(True),
            **at_zero,
        },
    )  # fmt: skip
    # a weak label of exactly one half is 0, so the first example differs, and it alone
    four = torch.tensor([2.0, -1.0, 3.0, -4.0], dtype=torch.float64)
    weak = torch.tensor([0.5, 0.2, 0.9, 0.1], dtype=torch.float64)
    expect(
        sub.aside.confidence_gap(four, weak), 2.0 - 8 / 3, what="`confidence_gap`", given={"logits": four, "weak": weak},
        mistakes={
            "the two means are exchanged": 8 / 3 - 2.0,
            "it is the mean of the logits, without their absolute value": 2.0 + 2 / 3,
            "it is only the first of the two means": 2.0,
        },
    )  # fmt: skip
    for weak in (0.2 + 0.6 * answers(logits), 0.8 - 0.6 * answers(logits)):
        got = float(sub.confidence_gap(logits, weak))
        if not math.isnan(got):
            fail(f"`confidence_gap` is {got:.4g} where one of the two sets is empty; expected NaN", given={"logits": logits, "weak": weak})  # fmt: skip


# %% [edges]
# contradicts: NaN if one of the two sets is empty


# %% [probes]
# no size, single: N is even
# no ties: all logits are different
# no gradient of loss.weak: data, cut off or not
# range 1e-4 to 20: a cross-entropy of probabilities is right here


# %% [mutant] at zero
# caught by: half_are_one
# says: threshold is 0
def own_answers(logits):
    return (logits > 0).to(logits.dtype)


# %% [mutant] soft
# caught by: mixed
# says: own probability
def loss(logits, weak, alpha):
    target = (1 - alpha) * weak + alpha * logits.detach().sigmoid()
    return torch.nn.functional.binary_cross_entropy_with_logits(logits, target)


# %% [mutant] exchanged
# caught by: mixed
# says: exchanged
def loss(logits, weak, alpha):
    target = alpha * weak + (1 - alpha) * own_answers(logits.detach())
    return torch.nn.functional.binary_cross_entropy_with_logits(logits, target)


# %% [mutant] detached
# caught by: slope
def loss(logits, weak, alpha):
    target = (1 - alpha) * weak + alpha * own_answers(logits.detach())
    return torch.nn.functional.binary_cross_entropy_with_logits(logits.detach(), target) + 0 * logits.sum()


# %% [mutant] without sizes
# caught by: contradicts
# says: without their absolute value
def confidence_gap(logits, weak):
    differ = own_answers(logits) != (weak > 0.5).to(logits.dtype)
    if not bool(differ.any()) or bool(differ.all()):
        return math.nan
    return float(logits[differ].mean() - logits[~differ].mean())


# %% [partial] 4: the loss
def confidence_gap(logits, weak):
    return 0.0
