# ---
# title: DPO for rankings
# kind: implement
# minutes: 25
# ---

# %% [statement]
# A judge has ranked $K$ completions of each prompt, best first. In the Plackett–Luce model the best completion is sampled from all by a softmax of
# rewards, the second from the remaining ones, and so on:
#
# $$p(y_1 \succ \dots \succ y_K) = \prod_{k=1}^{K} \frac{e^{s_k}}{\sum_{j \ge k} e^{s_j}}, \qquad
# s_k = \beta \log\frac{\pi(y_k)}{\pi_\text{ref}(y_k)}.$$
#
# As with two completions, the normaliser of the prompt has cancelled.
#
# 1. `ranking_loss(logps, ref_logps, beta)`: minus the logarithm of this probability, one number per prompt, shape `(B,)`. The inputs are
#    `(B, K)`, sums over tokens, completions from best to worst.
# 2. `top_loss(logps, ref_logps, beta)`: the judge named the best completion only. Return minus the log-probability that the first is sampled from all.
#    This is InfoNCE.
#
# Log-probabilities of whole completions are large in size. The last point is for a loss that is finite at log-ratios in the thousands.

# %% [given]
import torch


# %% [stub]
def ranking_loss(logps, ref_logps, beta):
    """Return −log p(ranking), (B,). logps, ref_logps: (B, K), best first."""
    raise NotImplementedError


def top_loss(logps, ref_logps, beta):
    """Return −log p(the first is the best), (B,)."""
    raise NotImplementedError


# %% [solution]
def ranking_loss(logps, ref_logps, beta):
    scores = beta * (logps - ref_logps)
    remaining = scores.flip(-1).logcumsumexp(-1).flip(-1)  # log Σ_{j ≥ k} exp(s_j)
    return (remaining - scores).sum(-1)


def top_loss(logps, ref_logps, beta):
    return -(beta * (logps - ref_logps)).log_softmax(-1)[:, 0]


# %% [tests]
import itertools

import torch
from minirlhf_course.classroom.testing import expect, test, tidy


def lists(draw, size):
    """Return log-probabilities of two prompts with ``size`` completions each, and β."""
    return (
        tidy(-draw.uniform(2, size, low=1.0, high=5.0)),
        tidy(-draw.uniform(2, size, low=1.0, high=5.0)),
        [0.5, 0.8, 2.0][draw.integer(0, 2)],
    )


def drawn(weights):
    """Return the probability that items of these weights are sampled in this order, without replacement."""
    chance = 1.0
    for k in range(len(weights)):
        chance *= float(weights[k]) / sum(float(w) for w in weights[k:])
    return chance


@test(
    points=1,
    against="DPO's loss, written out",
    hints=(
        "With two completions there are two factors. What is the last factor of every ranking?",
        "The first factor is e^{s₁}/(e^{s₁} + e^{s₂}), the second is 1. So the loss must be −log σ(s₁ − s₂): check signs and β.",
    ),
)
def two_are_dpo(sub, draw):
    "With two completions `ranking_loss` is DPO."
    logps, ref, beta = lists(draw, 2)
    s = beta * (logps - ref)
    plain = beta * logps
    expect(
        sub.ranking_loss(logps, ref, beta),
        (1 + (s[:, 1] - s[:, 0]).exp()).log(),
        what="the loss of two completions",
        given={"logps": logps, "ref_logps": ref, "beta": beta},
        mistakes={
            "the order is read from worst to best": (1 + (s[:, 0] - s[:, 1]).exp()).log(),
            "the reference is left out": (1 + (plain[:, 1] - plain[:, 0]).exp()).log(),
            "the denominator does not shrink: every rank is sampled from all completions": -s.log_softmax(-1).sum(-1),
        },
    )


@test(
    points=2,
    against="sampling without replacement, multiplied out",
    hints=(
        "Each rank has its own denominator, without the completions that are already ranked.",
        "You need log Σ_{j≥k} e^{s_j} for every k: a cumulative logsumexp from the *end* of the list. `flip` and `logcumsumexp` do it.",
    ),
)
def whole_rankings(sub, draw):
    "`ranking_loss` multiplies one factor per rank."
    logps, ref, beta = lists(draw, 4)
    weights = (beta * (logps - ref)).exp()
    want = torch.tensor([drawn(row) for row in weights.tolist()], dtype=torch.float64)
    s = beta * (logps - ref)
    expect(
        sub.ranking_loss(logps, ref, beta),
        -want.log(),
        what="the loss of four completions",
        given={"logps": logps, "ref_logps": ref, "beta": beta},
        mistakes={
            "the denominator does not shrink: every rank is sampled from all completions": -s.log_softmax(-1).sum(-1),
            "only the first rank is counted": -s.log_softmax(-1)[:, 0],
            "all pairs are compared, as if each were judged independently": sum(
                (1 + (s[:, j] - s[:, i]).exp()).log() for i in range(4) for j in range(i + 1, 4)
            ),
            "the denominators contain the better completions instead of the remaining ones": (
                s.logcumsumexp(-1) - s
            ).sum(-1),
        },
    )
    orders = torch.tensor(list(itertools.permutations(range(3))))
    total = sub.ranking_loss(logps[0][orders], ref[0][orders], beta)
    expect(
        (-torch.as_tensor(total, dtype=torch.float64)).exp().sum(),
        1.0,
        what="the sum of exp(−loss) over all six orders of three completions",
    )


@test(
    points=1,
    hints=(
        "Only the first factor of the ranking counts here.",
        "A log-softmax over the K scores, its first column, with a minus sign.",
    ),
)
def names_the_best(sub, draw):
    "`top_loss` compares the best completion with all."
    logps, ref, beta = lists(draw, 3)
    weights = (beta * (logps - ref)).exp()
    s = beta * (logps - ref)
    expect(
        sub.top_loss(logps, ref, beta),
        -(weights[:, 0] / weights.sum(-1)).log(),
        what="the loss of the best of three",
        given={"logps": logps, "ref_logps": ref, "beta": beta},
        mistakes={
            "the positive is missing from the denominator": s[:, 1:].logsumexp(-1) - s[:, 0],
            "the best is compared with each other completion in a separate pair": torch.nn.functional.softplus(
                s[:, 1:] - s[:, :1]
            ).sum(-1),
            "the whole ranking is scored": torch.tensor([-drawn_log(row) for row in s.tolist()], dtype=torch.float64),
        },
    )


def drawn_log(scores):
    """Return the logarithm of :func:`drawn` for log-weights."""
    return sum(s - float(torch.tensor(scores[k:], dtype=torch.float64).logsumexp(-1)) for k, s in enumerate(scores))


@test(
    points=1,
    hints=(
        "exp(1000) is infinite in float64. Where does your loss exponentiate?",
        "Never build the weights e^{s}: `logcumsumexp` and `log_softmax` subtract the largest score before they exponentiate.",
    ),
)
def far_away(sub, draw):
    "The loss is finite and correct at log-ratios in the thousands."
    step = float(draw.integer(1000, 2000))
    logps = torch.tensor([[0.0, -step, -2 * step], [-2 * step, -step, 0.0]], dtype=torch.float64)
    ref = torch.zeros_like(logps)
    expect(
        sub.ranking_loss(logps, ref, 1.0),
        torch.tensor([0.0, 3 * step], dtype=torch.float64),
        what="the loss of a certain ranking and of its reverse",
        given={"logps": logps, "ref_logps": ref, "beta": 1.0},
    )
    expect(
        sub.top_loss(logps, ref, 1.0),
        torch.tensor([0.0, 2 * step], dtype=torch.float64),
        what="`top_loss` where the best is certain, and where it is the least probable,",
        given={"logps": logps, "ref_logps": ref, "beta": 1.0},
    )


# %% [probes]
# no gradient of ranking_loss.ref_logps, top_loss.ref_logps: data, cut off or not


# %% [mutant] one denominator for all ranks
# caught by: two_are_dpo
# says: does not shrink
def ranking_loss(logps, ref_logps, beta):
    return -(beta * (logps - ref_logps)).log_softmax(-1).sum(-1)


# %% [mutant] worst first
# caught by: two_are_dpo
# says: from worst to best
def ranking_loss(logps, ref_logps, beta):
    scores = (beta * (logps - ref_logps)).flip(-1)
    return (scores.flip(-1).logcumsumexp(-1).flip(-1) - scores).sum(-1)


# %% [mutant] no reference
# caught by: two_are_dpo
# says: the reference is left out
def ranking_loss(logps, ref_logps, beta):
    scores = beta * logps
    return (scores.flip(-1).logcumsumexp(-1).flip(-1) - scores).sum(-1)


# %% [mutant] the first rank only
# caught by: whole_rankings
# says: only the first rank
def ranking_loss(logps, ref_logps, beta):
    return -(beta * (logps - ref_logps)).log_softmax(-1)[:, 0]


# %% [mutant] InfoNCE without the positive in the denominator
# caught by: names_the_best
# says: missing from the denominator
def top_loss(logps, ref_logps, beta):
    scores = beta * (logps - ref_logps)
    return scores[:, 1:].logsumexp(-1) - scores[:, 0]


# %% [mutant] weights built by exp
# caught by: far_away
def ranking_loss(logps, ref_logps, beta):
    weights = (beta * (logps - ref_logps)).exp()
    remaining = weights.flip(-1).cumsum(-1).flip(-1)
    return -(weights / remaining).log().sum(-1)


# %% [partial] 4: right, but it overflows
def ranking_loss(logps, ref_logps, beta):
    weights = (beta * (logps - ref_logps)).exp()
    remaining = weights.flip(-1).cumsum(-1).flip(-1)
    return -(weights / remaining).log().sum(-1)


# %% [partial] 1: only InfoNCE is written
def ranking_loss(logps, ref_logps, beta):
    raise NotImplementedError
