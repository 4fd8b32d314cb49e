# ---
# title: Choose a threshold of confidence
# kind: implement
# minutes: 20
# ---

# %% [statement]
# A model states its confidence and is overconfident. The threshold $\lambda/(1 + \lambda)$ of the chapter assumes calibration. With some questions whose answers are known, this assumption is not needed. `confidence` `(N,)` is the stated confidence for
# each question, `right` `(N,)` whether its answer was right (1 or 0). A threshold $t$ means: answer if the confidence is at least $t$. So questions with the same confidence are answered together, or not at all.
#
# 1. `risks(confidence, right)`: for each question, the fraction of wrong answers if its own confidence is the threshold. Returns `(N,)`, in the order of the questions.
# 2. `threshold(confidence, right, penalty)`: the threshold with the largest total grade on these questions: 1 for a right answer, −`penalty` for a wrong one. Return one of the confidences, as a number; in a tie the highest, which answers
#    least. If no threshold has a total above 0, the total without answers, return `math.inf`.

# %% [given]
import math

import torch


# %% [stub]
def risks(confidence, right):
    """confidence, right: (N,). Returns (N,)."""
    raise NotImplementedError


def threshold(confidence, right, penalty):
    """confidence, right: (N,). Returns one number."""
    raise NotImplementedError


# %% [solution]
def risks(confidence, right):
    answered = (confidence[None, :] >= confidence[:, None]).to(
        confidence
    )  # (N, N): row i, with the confidence of i as threshold
    return (answered * (1 - right)).sum(1) / answered.sum(1)


def threshold(confidence, right, penalty):
    answered = (confidence[None, :] >= confidence[:, None]).to(confidence)
    earned = (answered * (right - penalty * (1 - right))).sum(1)
    best = earned.max()
    return float(confidence[earned == best].max()) if best > 0 else math.inf


# %% [tests]
import math

import torch
from minirlhf_course.classroom.testing import expect, test


def said(draw, values=(0.5, 0.625, 0.75, 0.875)):
    """Twelve questions, three of each confidence, in no order; of each confidence at least one is right and one is wrong."""
    confidence = torch.tensor(values, dtype=torch.float64).repeat_interleave(3)
    right = torch.tensor([1.0, 0.0, 1.0] * 4, dtype=torch.float64)
    flips = draw.uniform(4, low=0, high=1) < 0.5
    right[2::3] = flips.double()
    order = draw.uniform(12, low=0, high=1).argsort()
    return confidence[order], right[order]


def wrong_from(confidence, right, start, more=False):
    """Wrong ones, and all, of the answers from a confidence on."""
    some = [r for c, r in zip(confidence.tolist(), right.tolist(), strict=True) if (c > start if more else c >= start)]
    return sum(r == 0 for r in some), len(some)


def in_turn(confidence, right):
    """What comes out if the questions are sorted, and those of one confidence stand one after the other."""
    order = confidence.argsort(descending=True, stable=True)
    found = torch.empty_like(confidence)
    wrong = 0
    for count, i in enumerate(order.tolist(), 1):
        wrong += int(right[i] == 0)
        found[i] = wrong / count
    return found


@test(
    points=2,
    hints=(
        "Which questions are answered if question i sets the threshold? Questions with the same confidence are among them.",
        "`confidence[None, :] >= confidence[:, None]` has a row for each threshold. Count the wrong ones in a row, divide by the answered ones.",
    ),
    against="counting",
)
def of_every_threshold(sub, draw):
    "`risks` is the fraction of wrong answers at each threshold."
    confidence, right = said(draw)
    shares = [wrong_from(confidence, right, c) for c in confidence.tolist()]
    expected = torch.tensor([wrong / of for wrong, of in shares], dtype=torch.float64)
    strictly = [wrong_from(confidence, right, c, more=True) for c in confidence.tolist()]
    expect(
        sub.risks(confidence, right),
        expected,
        what="the risks",
        given={"confidence": confidence, "right": right},
        mistakes={
            "questions with the same confidence are taken one after the other": in_turn(confidence, right),
            "that is the fraction of right answers": 1 - expected,
            "it is divided by the number of all questions": torch.tensor(
                [wrong / 12 for wrong, _ in shares], dtype=torch.float64
            ),
            "questions at the threshold itself are left out": torch.tensor(
                [wrong / max(of, 1) for wrong, of in strictly], dtype=torch.float64
            ),
            "they are sorted, not in the order of the questions": expected.sort().values,
        },
    )


def best_of(confidence, right, penalty, pick=max):
    """By trying all thresholds."""
    earned = {}
    for start in set(confidence.tolist()):
        wrong, of = wrong_from(confidence, right, start)
        earned[start] = of - wrong - penalty * wrong
    top = max(earned.values())
    return pick(start for start, value in earned.items() if value == top), top


def one_by_one(confidence, right, cost):
    """As if a threshold could stand between questions of one confidence."""
    order = confidence.argsort(descending=True, stable=True)
    earned = (right[order] - cost * (1 - right[order])).cumsum(0)
    return float(confidence[order][earned.argmax()])


def least_risky(confidence, right, cost):
    """The lowest confidence from which on at most 1/(1 + penalty) of the answers are wrong."""
    fit = [
        start
        for start in set(confidence.tolist())
        if (of := wrong_from(confidence, right, start))[0] * (1 + cost) <= of[1]
    ]
    return min(fit, default=math.inf)


@test(
    points=2,
    hints=(
        "What is the total grade of each threshold on these questions? Sum; do not average over the answered ones.",
        "`(answered * (right - penalty * (1 - right))).sum(1)` is the total of each threshold. Take the confidence with the largest total.",
    ),
    against="trying all thresholds",
)
def that_earns_most(sub, draw):
    "`threshold` is the confidence with the largest total grade."
    confidence = torch.tensor([0.9, 0.9, 0.8, 0.8, 0.7, 0.7, 0.7, 0.6, 0.6, 0.6], dtype=torch.float64)
    right = torch.tensor([1.0, 1, 1, 1, 1, 1, 0, 0, 0, 1], dtype=torch.float64)
    order = draw.uniform(10, low=0, high=1).argsort()
    confidence, right = confidence[order], right[order]
    for penalty in (0.25, 3.0):
        expected, _ = best_of(confidence, right, penalty)
        expect(
            sub.threshold(confidence, right, penalty),
            expected,
            what="the threshold",
            given={"confidence": confidence, "right": right, "penalty": penalty},
            mistakes={
                "that is the chapter's threshold, which assumes calibration": penalty / (1 + penalty),
                "the mean over the answered questions is maximised, which answers too little": 0.9,
                "wrong answers cost 1 for every penalty": best_of(confidence, right, 1.0)[0],
                "questions with the same confidence are taken one after the other": one_by_one(
                    confidence, right, cost=penalty
                ),
                "the fraction of wrong answers is bounded; the total grade should be maximised": least_risky(
                    confidence, right, cost=penalty
                ),
                "wrong answers cost nothing": 0.6,
            },
        )
    # A group that loses above one that wins, and a group that pays for itself below one that loses more.
    for shares in (((0.9, 2, 2), (0.8, 1, 2), (0.7, 6, 6)), ((0.9, 4, 4), (0.8, 0, 2), (0.7, 2, 2))):
        confidence = torch.tensor([c for c, _, of in shares for _ in range(of)], dtype=torch.float64)
        right = torch.tensor([float(i < good) for _, good, of in shares for i in range(of)], dtype=torch.float64)
        expected, _ = best_of(confidence, right, 3.0)
        stops = next(shares[i - 1][0] for i, (_, good, of) in enumerate(shares) if good - 3.0 * (of - good) < 0)
        lowest = min(c for c, good, of in shares if good - 3.0 * (of - good) > 0)
        others = {
            "it stops at the first confidence whose own answers lose; lower ones may compensate": stops,
            "that is the lowest confidence whose own answers win; higher ones may lose more": lowest,
            "that is the chapter's threshold, which assumes calibration": 0.75,
        }
        expect(
            sub.threshold(confidence, right, 3.0),
            expected,
            what="the threshold",
            given={"confidence": confidence, "right": right, "penalty": 3.0},
            mistakes={say: value for say, value in others.items() if value != expected},
        )


@test(
    points=1,
    hints=(
        "Try it with two thresholds that have the same total, and with a model that is always wrong.",
        "Of the confidences with the largest total take the largest; if this total is not above 0, return `math.inf`.",
    ),
)
def at_the_edges(sub, draw):
    "In a tie `threshold` takes the highest, and it returns `math.inf` if no total is positive."
    high, low = 0.8 + draw.uniform(1, low=0, high=0.1).item(), 0.5 + draw.uniform(1, low=0, high=0.1).item()
    confidence = torch.tensor([low, high, low, high, low], dtype=torch.float64)
    right = torch.tensor([1.0, 1, 1, 1, 0], dtype=torch.float64)
    expect(
        sub.threshold(confidence, right, 2.0),
        high,
        what="the threshold in a tie",
        given={"confidence": confidence, "right": right, "penalty": 2.0},
        mistakes={"that is the lowest of the tied thresholds": low},
    )
    for right in (torch.zeros(5, dtype=torch.float64), torch.tensor([0.0, 0, 0, 1, 0], dtype=torch.float64)):
        expect(
            sub.threshold(confidence, right, 1.0),
            math.inf,
            what="the threshold if answering never has a positive total",
            given={"confidence": confidence, "right": right, "penalty": 1.0},
            mistakes={"a threshold is returned although its total is not positive": high},
        )


# %% [edges]
# at_the_edges: in a tie the highest


# %% [probes]
# no gradient: it counts
# no float32: equal confidences stay equal only as they are
# no nan: there is no mask
# no values of risks.right, threshold.right: an answer is right or wrong, 1 or 0


# %% [mutant] one after the other
# caught by: of_every_threshold
# says: one after the other
def risks(confidence, right):
    order = confidence.argsort(descending=True, stable=True)
    shares = (1 - right[order]).cumsum(0) / torch.arange(1, len(right) + 1)
    return torch.empty_like(shares).index_copy(0, order, shares)


# %% [mutant] surer only
# caught by: of_every_threshold
# says: at the threshold itself
def risks(confidence, right):
    answered = (confidence[None, :] > confidence[:, None]).to(confidence)
    return (answered * (1 - right)).sum(1) / answered.sum(1).clamp(min=1)


# %% [mutant] of all questions
# caught by: of_every_threshold
# says: number of all questions
def risks(confidence, right):
    answered = (confidence[None, :] >= confidence[:, None]).to(confidence)
    return (answered * (1 - right)).mean(1)


# %% [mutant] believes
# caught by: that_earns_most
# says: assumes calibration
def threshold(confidence, right, penalty):
    return penalty / (1 + penalty)


# %% [mutant] per answer
# caught by: that_earns_most
# says: answers too little
def threshold(confidence, right, penalty):
    answered = (confidence[None, :] >= confidence[:, None]).to(confidence)
    earned = (answered * (right - penalty * (1 - right))).sum(1) / answered.sum(1)
    return float(confidence[earned == earned.max()].max())


# %% [mutant] down until it does not pay
# caught by: that_earns_most
# says: may compensate
def threshold(confidence, right, penalty):
    best = math.inf
    for level in sorted(set(confidence.tolist()), reverse=True):
        own = right[confidence == level]
        if float((own - penalty * (1 - own)).sum()) <= 0:
            break
        best = level
    return best


# %% [mutant] the lowest that pays
# caught by: that_earns_most
# says: may lose more
def threshold(confidence, right, penalty):
    paying = [math.inf]
    for level in set(confidence.tolist()):
        own = right[confidence == level]
        if float((own - penalty * (1 - own)).sum()) > 0:
            paying.append(level)
    return min(paying)


# %% [mutant] the lowest
# caught by: at_the_edges
# says: lowest of the tied
def threshold(confidence, right, penalty):
    answered = (confidence[None, :] >= confidence[:, None]).to(confidence)
    earned = (answered * (right - penalty * (1 - right))).sum(1)
    best = earned.max()
    return float(confidence[earned == best].min()) if best > 0 else math.inf


# %% [mutant] always answers something
# caught by: at_the_edges
# says: total is not positive
def threshold(confidence, right, penalty):
    answered = (confidence[None, :] >= confidence[:, None]).to(confidence)
    earned = (answered * (right - penalty * (1 - right))).sum(1)
    return float(confidence[earned == earned.max()].max())


# %% [partial] 2: the risks alone
def threshold(confidence, right, penalty):
    return 0.75
