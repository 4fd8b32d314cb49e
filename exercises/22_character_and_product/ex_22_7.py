# ---
# title: Train on the size of the score difference
# kind: implement
# minutes: 30
# seconds: 30
# ---

# %% [statement]
# The pairs of character training know only which of two answers fits the trait better. The scores also know by how much. Write a loss that uses the size.
#
# `loss(logps, ref_logps, prompted_logps, beta)`: three `(Q, K)` tensors, log-probabilities of $K \ge 2$ answers to each of $Q$ queries: under the policy in training, under the reference without the trait, and under the reference with the trait in its system prompt. Returns one number:
#
# 1. For two answers to one query compute one number. Take the policy's preference between them as DPO measures it, $\beta$ times the difference of the log-ratios to the reference. Subtract the difference of their scores. The result is in nats. It is 0 for all pairs if and only if the policy is $\pi^*_\beta$ of the chapter.
# 2. The loss is the mean of its square over all pairs of different answers to one query, and over the queries.
#
# Gradients run through `logps` only. Write it without a loop over pairs if you can.
#
# The last test trains a table of twelve completions of each of eight queries with your loss. A run has 120 steps, each on four answers to every query, sampled from the reference. There are six seeds, each paired with our run. The curve is minus the KL to $\pi^*_\beta$, in nats, exactly. You pass if the lower end of the 95 % interval of (your final value − ours) is above −0.02.

# %% [given]
import torch


# %% [stub]
def loss(logps, ref_logps, prompted_logps, beta):
    """logps, ref_logps, prompted_logps: (Q, K). Returns one number."""
    raise NotImplementedError


# %% [solution]
def loss(logps, ref_logps, prompted_logps, beta):
    ref, prompted = ref_logps.detach(), prompted_logps.detach()
    excess = beta * (logps - ref) - (prompted - ref)  # (Q, K)
    # the mean square of all differences is twice the variance with divisor K − 1
    return 2 * excess.var(-1).mean()


# %% [tests]
import itertools

import torch
from minirlhf_course.classroom.testing import expect, test, tidy
from minirlhf_course.classroom.training import trains


def pair_by_pair(logps, ref, prompted, beta, number):
    """Return the mean over queries and pairs of `number(preference of the policy, difference of the scores)`."""
    rows = []
    for q in range(logps.shape[0]):
        for i, j in itertools.combinations(range(logps.shape[1]), 2):
            prefers = beta * ((logps[q, i] - ref[q, i]) - (logps[q, j] - ref[q, j]))
            gap = (prompted[q, i] - ref[q, i]) - (prompted[q, j] - ref[q, j])
            rows.append(number(prefers, gap))
    return torch.stack(rows).mean()


def batch(draw, queries=3, answers=4):
    three = [tidy(-2.0 + draw.normal(queries, answers)) for _ in range(3)]
    return three[0].requires_grad_(), three[1], three[2]


def known(logps, ref, prompted, beta):
    """Return the results of common mistakes."""
    square = lambda prefers, gap: (prefers - gap) ** 2
    excess = beta * (logps - ref) - (prompted - ref)
    K = logps.shape[-1]
    centred = excess - excess.mean(-1, keepdim=True)
    return {
        "each answer is squared alone: the normaliser is in it, and cancels only in a difference": (excess**2).mean(),
        "an answer and itself are counted as a pair": pair_by_pair(logps, ref, prompted, beta, square) * (K - 1) / K,
        "this is the variance; the mean square of the differences is twice as large": (centred**2).sum(-1).mean() / (K - 1),
        "this is the variance with divisor K, not the mean square of the differences": (centred**2).mean(),
        "β multiplies the scores and not the policy's preference": pair_by_pair(logps, ref, prompted, beta, lambda p, g: (p / beta - beta * g) ** 2),
        "the scores are divided by β, so the result is not in nats of the score": pair_by_pair(logps, ref, prompted, beta, lambda p, g: (p / beta - g / beta) ** 2),
        "β is missing": pair_by_pair(logps, ref, prompted, 1.0, square),
        "the reference is missing, in the policy's preference and in the score": pair_by_pair(logps, torch.zeros_like(ref), prompted, beta, lambda p, g: (p - g) ** 2),
        "the score is not a difference: it lacks the part without the trait": 2 * (beta * (logps - ref) - prompted).var(-1).mean(),
        "the policy's preference does not use log-ratios to the reference": _without_reference(logps, ref, prompted, beta),
        "it is DPO's loss, which knows only which of two is ahead": pair_by_pair(logps, ref, prompted, beta, lambda p, g: -torch.nn.functional.logsigmoid(p * g.sign())),
        "the pairs of a query are summed, and not averaged": pair_by_pair(logps, ref, prompted, beta, square) * (K * (K - 1) / 2),
        "it is the absolute value, and not the square": pair_by_pair(logps, ref, prompted, beta, lambda p, g: (p - g).abs()),
        "the difference of the scores is added": pair_by_pair(logps, ref, prompted, beta, lambda p, g: (p + g) ** 2),
        "the square is halved": pair_by_pair(logps, ref, prompted, beta, square) / 2,
        "answers to different queries form pairs too": 2 * excess.flatten().var(),
    }  # fmt: skip


def _without_reference(logps, ref, prompted, beta):
    excess = beta * logps - (prompted - ref)
    return 2 * excess.var(-1).mean()


@test(
    points=2,
    hints=(
        "Write down the number for one pair. What remains of the normaliser of π*?",
        "With e = β(log π − log π_ref) − s for each answer, the number is e_i − e_j. The mean of its square over the pairs is twice the variance of e with divisor K − 1.",
    ),
    against="pair by pair",
)
def value(sub, draw):
    "`loss` is the mean square over pairs."
    beta = [0.25, 0.5, 2.0][draw.integer(0, 2)]
    for answers in (draw.integer(3, 5), 2):
        logps, ref, prompted = batch(draw, answers=answers)
        want = pair_by_pair(logps, ref, prompted, beta, lambda p, g: (p - g) ** 2).detach()
        mistakes = {say: x.detach() for say, x in known(logps, ref, prompted, beta).items()}
        expect(
            sub.loss(logps.detach(), ref, prompted, beta), want, what="`loss`", given={"logps": logps.detach(), "ref_logps": ref, "prompted_logps": prompted, "beta": beta},
            mistakes={say: x for say, x in mistakes.items() if abs(float(x - want)) > 1e-6 * (1 + abs(float(want)))},
        )  # fmt: skip


@test(
    points=1,
    hints=(
        "What should a step do to the log-probability of each answer?",
        "It is the gradient of the mean square, through `logps` alone. Detach the other two.",
    ),
    against="pair by pair, by autograd",
)
def slope(sub, draw):
    "`loss` has the gradient of this mean square, through `logps` only."
    logps, ref, prompted = batch(draw)
    beta = 0.5
    [want] = torch.autograd.grad(pair_by_pair(logps, ref, prompted, beta, lambda p, g: (p - g) ** 2), logps)
    mistakes = {
        say: torch.autograd.grad(x, logps, retain_graph=True)[0] for say, x in known(logps, ref, prompted, beta).items()
    }
    expect(
        sub.gradient("loss", logps.detach(), ref, prompted, beta, wrt=0), want, what="the gradient of `loss`", given={"logps": logps.detach(), "ref_logps": ref, "prompted_logps": prompted, "beta": beta},
        mistakes={say: x for say, x in mistakes.items() if float((x - want).abs().max()) > 1e-6},
    )  # fmt: skip


@trains(
    points=3,
    hints=(
        "Is your loss 0 at π*, and nowhere else?",
        "Take β times the difference of the log-ratios, subtract the difference of the scores, and square.",
    ),
    seeds=6,
    bar=0.02,
    what="minus the KL to π*",
    fixed=("loss",),
)
def learns(sub, draw):
    "In 120 steps the policy comes near π*, in six runs, each paired with ours."
    rng = torch.Generator().manual_seed(draw.integer(0, 2**28))
    rows = torch.arange(8)[:, None]
    ref = torch.randn(8, 12, generator=rng, dtype=torch.float64).log_softmax(-1)
    prompted = (ref + 0.7 * torch.randn(8, 12, generator=rng, dtype=torch.float64)).log_softmax(-1)
    beta = 0.5
    goal = (ref + (prompted - ref) / beta).log_softmax(-1)
    table = ref.clone()
    apart = lambda: -float((table.softmax(-1) * (table.log_softmax(-1) - goal)).sum(-1).mean())
    curve = [apart()]
    for number in range(1, 121):
        # four different answers to each query, sampled from the reference
        said = torch.multinomial(ref.exp(), 4, generator=rng)
        law = table.log_softmax(-1)
        gradient = sub.gradient("loss", law[rows, said], ref[rows, said], prompted[rows, said], beta, wrt=0)
        gradient = gradient if isinstance(gradient, torch.Tensor) and gradient.shape == said.shape else torch.zeros(said.shape, dtype=torch.float64)  # fmt: skip
        gradient = gradient.double().clamp(-1, 1)
        down = torch.zeros_like(table).scatter_add_(-1, said, gradient) - gradient.sum(-1, keepdim=True) * law.exp()
        table = table - 8.0 * down
        if number % 12 == 0:
            curve.append(apart())
    return curve


# %% [mutant] each answer alone
# caught by: value
# says: the normaliser is in it
def loss(logps, ref_logps, prompted_logps, beta):
    excess = beta * (logps - ref_logps) - (prompted_logps - ref_logps)
    return (excess**2).mean()


# %% [mutant] DPO on every pair
# caught by: value
# says: which of two is ahead
def loss(logps, ref_logps, prompted_logps, beta):
    score, ratio = prompted_logps - ref_logps, logps - ref_logps
    i, j = torch.triu_indices(logps.shape[1], logps.shape[1], 1)
    margin = beta * (ratio[:, i] - ratio[:, j]) * (score[:, i] - score[:, j]).sign()
    return -torch.nn.functional.logsigmoid(margin).mean()


# %% [mutant] the variance
# caught by: value
# says: twice as large
def loss(logps, ref_logps, prompted_logps, beta):
    excess = beta * (logps - ref_logps) - (prompted_logps - ref_logps)
    return excess.var(-1).mean()


# %% [mutant] β with the scores
# caught by: value
# says: divided by β
def loss(logps, ref_logps, prompted_logps, beta):
    excess = (logps - ref_logps) - (prompted_logps - ref_logps) / beta
    return 2 * excess.var(-1).mean()


# %% [mutant] the score without the reference
# caught by: value
# says: the reference is missing
def loss(logps, ref_logps, prompted_logps, beta):
    excess = beta * logps - prompted_logps
    return 2 * excess.var(-1).mean()


# %% [mutant] detached
# caught by: slope
def loss(logps, ref_logps, prompted_logps, beta):
    excess = beta * (logps - ref_logps) - (prompted_logps - ref_logps)
    return 2 * excess.detach().var(-1).mean() + 0 * logps.sum()


# %% [partial] 2: the value alone
def loss(logps, ref_logps, prompted_logps, beta):
    excess = beta * (logps - ref_logps) - (prompted_logps - ref_logps)
    return 2 * excess.detach().var(-1).mean() + 0 * logps.sum()
