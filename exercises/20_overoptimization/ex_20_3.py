# ---
# title: Bug hunt: an ensemble that is not conservative
# kind: bughunt
# minutes: 25
# ---

# %% [statement]
# Three engineers wanted their policy to be conservative where its reward models disagree. Each reward model has its own scale, so the scores are first
# *standardised*: over the reference policy's completions each member gets mean 0 and (population) standard deviation 1. Then the reward of a completion is one of two:
#
# * the worst case, which is the smallest of the members' standardised scores;
# * the members' mean minus `coef` times their variance (divisor M).
#
# The two functions below were written for this. The policies that they trained were over-optimised *faster* than with one reward model. One member with a large scale
# dominated the result. And the reward of the same completion changed with the other completions in its batch.
#
# **There are three bugs. Find and fix them.** `scores` `(M, B)` are the members' raw scores of the completions to be rewarded, `ref_scores` `(M, N)` those of completions of the
# reference policy.

# %% [given]
import torch


# %% [stub]
def standardised(scores, ref_scores):
    """Each member on one scale. scores: (M, B). ref_scores: (M, N). Returns (M, B)."""
    mean = scores.mean(-1, keepdim=True)
    deviation = ref_scores.std(correction=0)
    return (scores - mean) / deviation


def careful_reward(scores, ref_scores, coef=None):
    """The reward of each completion: the worst case if coef is None, else mean − coef · variance. Returns (B,)."""
    members = standardised(scores, ref_scores)
    if coef is None:
        return members.amin(0)
    return members.mean(0) + coef * members.var(0, correction=0)


# %% [solution]
def standardised(scores, ref_scores):
    mean = ref_scores.mean(-1, keepdim=True)
    deviation = ref_scores.std(-1, correction=0, keepdim=True)
    return (scores - mean) / deviation


def careful_reward(scores, ref_scores, coef=None):
    members = standardised(scores, ref_scores)
    if coef is None:
        return members.amin(0)
    return members.mean(0) - coef * members.var(0, correction=0)


# %% [tests]
import torch
from minirlhf_course.classroom.testing import expect, fail, test, tidy


def problem(draw):
    """Three members on very different scales; the completions to be rewarded score higher than those of the reference policy."""
    scale = torch.tensor([[0.5], [2.0], [8.0]], dtype=torch.float64)
    ref_scores = tidy(scale * (draw.normal(3, 6) + draw.uniform(3, 1, low=-1, high=1)))
    scores = tidy(scale * (draw.normal(3, 3) + 2))
    return scores, ref_scores


def by_hand(values, reference):
    """Every entry on its own, in plain arithmetic."""
    rows = []
    for row, ref in zip(values.tolist(), reference.tolist(), strict=True):
        mean = sum(ref) / len(ref)
        deviation = (sum((x - mean) ** 2 for x in ref) / len(ref)) ** 0.5
        rows.append([(x - mean) / deviation for x in row])
    return torch.tensor(rows, dtype=torch.float64)


@test(
    points=2,
    hints=(
        "Reward one completion alone, then together with two others. Should its reward change? Over which completions must the mean be taken?",
        "Standardise with statistics of the reference policy's completions: they stay the same while the policy moves.",
    ),
)
def same_in_any_batch(sub, draw):
    "The standardised score of a completion does not depend on the other completions in its batch."
    scores, ref_scores = problem(draw)
    together = sub.standardised(scores, ref_scores)
    if not isinstance(together, torch.Tensor) or together.shape != scores.shape:
        expect(together, scores, what="the result of `standardised`")
    order = scores.argsort(-1)
    if not bool((together.double().gather(-1, order).diff() >= 0).all()) or bool((together == together[:, :1]).all()):
        fail("a higher raw score must have a higher standardised score", scores=scores, yours=together)
    alone = torch.cat([sub.standardised(scores[:, i : i + 1], ref_scores) for i in range(3)], -1)
    expect(
        alone,
        together,
        what="the scores of completions that are rewarded one by one",
        given={"scores": scores, "ref_scores": ref_scores},
        mistakes={"a single completion is its own mean": torch.zeros_like(scores)},
    )


@test(
    points=2,
    hints=(
        "Standardise the scores of the reference policy's completions. Does every member have standard deviation 1?",
        "One number is computed for all members together, but each member needs its own. Check the axis, and keep it (`keepdim`) for the division.",
    ),
)
def one_scale(sub, draw):
    "Every member's scores have mean 0 and standard deviation 1 over the reference policy's completions."
    scores, ref_scores = problem(draw)
    want = by_hand(scores, ref_scores)
    mean = ref_scores.mean(-1, keepdim=True)
    expect(
        sub.standardised(scores, ref_scores),
        want,
        what="the standardised scores",
        given={"scores": scores, "ref_scores": ref_scores},
        mistakes={
            "all members share one standard deviation": (scores - mean) / ref_scores.std(correction=0),
            "the scores are centred, not scaled": scores - mean,
            "the sample standard deviation is used, with divisor N − 1": (scores - mean)
            / ref_scores.std(-1, keepdim=True),
            "it is divided by the variance, not by the standard deviation": (scores - mean)
            / ref_scores.var(-1, correction=0, keepdim=True),
        },
    )


@test(
    points=2,
    hints=(
        "Take two completions with the same mean score. All members agree about one of them. Which should have the higher reward?",
        "Disagreement must lower the reward. Look at the sign before `coef`; the worst case is already correct.",
    ),
)
def disagreement_costs(sub, draw):
    "With a coefficient the reward is mean minus coef times variance; without one it is the worst case."
    scores, ref_scores = problem(draw)
    members, coef = by_hand(scores, ref_scores), [0.5, 1.0, 2.0][draw.integer(0, 2)]
    given = {"scores": scores, "ref_scores": ref_scores}
    expect(
        sub.careful_reward(scores, ref_scores),
        members.amin(0),
        what="the worst case",
        given=given,
        mistakes={"this is the best case": members.amax(0), "this is the mean": members.mean(0)},
    )
    spread = members.var(0, correction=0)
    expect(
        sub.careful_reward(scores, ref_scores, coef),
        members.mean(0) - coef * spread,
        what="the reward with a penalty on disagreement",
        given=given | {"coef": coef},
        mistakes={
            "disagreement is rewarded": members.mean(0) + coef * spread,
            "the standard deviation is subtracted, not the variance": members.mean(0) - coef * spread.sqrt(),
            "the variance has divisor M − 1": members.mean(0) - coef * members.var(0),
        },
    )


# %% [probes]
# no offset: a deviation may be taken from a mean of squares
# no ties of standardised.ref_scores, careful_reward.ref_scores: a member that gives one score to all has no scale
# no gradient: rewards are data


# %% [mutant] the mean is still the batch's
# caught by: same_in_any_batch
def standardised(scores, ref_scores):
    return (scores - scores.mean(-1, keepdim=True)) / ref_scores.std(-1, correction=0, keepdim=True)


# %% [mutant] one deviation for all
# caught by: one_scale
# says: share one standard deviation
def standardised(scores, ref_scores):
    return (scores - ref_scores.mean(-1, keepdim=True)) / ref_scores.std(correction=0)


# %% [mutant] centred only
# caught by: one_scale
# says: not scaled
def standardised(scores, ref_scores):
    return scores - ref_scores.mean(-1, keepdim=True)


# %% [mutant] disagreement is still rewarded
# caught by: disagreement_costs
# says: disagreement is rewarded
def careful_reward(scores, ref_scores, coef=None):
    members = standardised(scores, ref_scores)
    return members.amin(0) if coef is None else members.mean(0) + coef * members.var(0, correction=0)


# %% [mutant] "fixed" by taking the largest in the worst case
# caught by: disagreement_costs
# says: the best case
def careful_reward(scores, ref_scores, coef=None):
    members = standardised(scores, ref_scores)
    return members.amax(0) if coef is None else members.mean(0) - coef * members.var(0, correction=0)


# %% [partial] 4: the scale is right, disagreement still pays
def careful_reward(scores, ref_scores, coef=None):
    members = standardised(scores, ref_scores)
    return members.amin(0) if coef is None else members.mean(0) + coef * members.var(0, correction=0)
