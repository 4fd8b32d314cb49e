# ---
# title: Labels that like length
# kind: implement
# minutes: 30
# seconds: 30
# ---

# %% [statement]
# Annotators compared pairs of completions. Each completion has features $x$ (four numbers) and a length $l$. Its quality is $w^* \cdot x$, which you do not know. The annotators follow Bradley–Terry, but they prefer longer completions:
# they choose the first completion with probability $\sigma\big(w^*\cdot(x_1 - x_2) + 0.8\,(l_1 - l_2)\big)$. The first feature is correlated with the length. The length also depends on the prompt, and both completions of a pair belong to one prompt.
#
# Write `fit(first, second, first_length, second_length, first_won)`. It **trains** a linear reward model and returns its weights $w$ of shape $(4,)$, such that $w\cdot x$ orders *new* completions by their quality,
# whatever their length. `first` and `second` are $(N, 4)$, the lengths $(N,)$, `first_won` is $(N,)$ of zeros and ones.
#
# **How it is graded.** The score on a data set of 400 pairs is the fraction of new pairs that $w$ orders as $w^*$ does. A plain Bradley–Terry fit that ignores length is trained on the same data. On ten data sets you must be better than the plain fit on at least eight, and by
# .01 on average. On eight further data sets the annotators have no preference for length. There you must order at least 80 % of the new pairs correctly on each, and on average at most 5 points fewer than the plain fit.

# %% [given]
import torch


# %% [stub]
def fit(first, second, first_length, second_length, first_won):
    """first, second: (N, 4); lengths and first_won: (N,). Returns (4,)."""
    raise NotImplementedError


# %% [solution]
def fit(first, second, first_length, second_length, first_won):
    gap = torch.cat(
        [first - second, (first_length - second_length)[:, None]], 1
    )  # the length explains its part, and its weight is then dropped
    w = torch.zeros(5, dtype=first.dtype)
    for _ in range(30):  # Newton on a convex loss, with a little weight decay
        p = torch.sigmoid(gap @ w)
        slope = gap.T @ (p - first_won) / len(gap) + 1e-3 * w
        curvature = (gap * (p * (1 - p))[:, None]).T @ gap / len(gap) + 1e-3 * torch.eye(5, dtype=first.dtype)
        w = w - torch.linalg.solve(curvature, slope)
    return w[:4]


# %% [tests]
import torch
from minirlhf_course.classroom.testing import expect, fail, test


def data(draw, liking, pairs=400):
    """Hidden weights, and comparisons by annotators who prefer length."""
    taste = draw.normal(4) * 0.6

    def replies(n):
        length = draw.normal(n)
        x = draw.normal(n, 4)
        x[:, 0] = 0.5 * x[:, 0] + 0.8 * length
        return x, length

    (a, la), (b, lb) = replies(pairs), replies(pairs)
    usual = 3 * draw.normal(pairs)  # the usual length of completions for this prompt
    la, lb = la + usual, lb + usual
    chance = torch.sigmoid((a - b) @ taste + liking * (la - lb))
    won = (draw.uniform(pairs) < chance).double()
    (c, _), (d, _) = replies(2000), replies(2000)
    return taste, (a, b, la, lb, won), (c - d) @ taste, c - d


def plain(a, b, won):
    """Bradley–Terry without the length."""
    gap, w = a - b, torch.zeros(4, dtype=torch.float64)
    for _ in range(30):
        p = torch.sigmoid(gap @ w)
        curvature = (gap * (p * (1 - p))[:, None]).T @ gap / len(gap) + 1e-3 * torch.eye(4, dtype=torch.float64)
        w = w - torch.linalg.solve(curvature, gap.T @ (p - won) / len(gap) + 1e-3 * w)
    return w


def share(w, truth, gaps):
    return float(((gaps @ w > 0) == (truth > 0)).double().mean())


def answered(sub, given):
    w = sub.fit(*given)
    if not isinstance(w, torch.Tensor) or tuple(w.shape) != (4,) or not bool(w.isfinite().all()):
        fail("the result of `fit` is not four finite weights")
    return w.double()


@test(
    points=1,
    rounds=1,
    hints=(
        "Begin with a plain Bradley–Terry fit of the feature differences. It should order most new pairs correctly where annotators ignore length.",
        "Minimise the mean of −log σ(w·(x₁ − x₂)), with the sign reversed where the second completion won. A few hundred gradient steps are enough.",
    ),
)
def without_bias(sub, draw):
    "Where annotators ignore length, at least 80 % of new pairs are in the right order, nearly as many as with the plain fit."
    losses = []
    while len(losses) < 8:
        taste, given, truth, gaps = data(draw, 0.0)
        if taste.norm() < 0.7:  # weights this small cannot be learned from 400 votes
            continue
        found = share(answered(sub, given), truth, gaps)
        if found < 0.8:
            fail(f"only {found:.2f} of new pairs are in the right order")
        losses.append(share(plain(given[0], given[1], given[4]), truth, gaps) - found)
    if sum(losses) / len(losses) > 0.05:
        fail(
            f"where annotators ignore length, your fraction of pairs in the right order is {sum(losses) / len(losses):.3f} below the plain fit's; expected at most .05"
        )


@test(
    points=3,
    rounds=1,
    hints=(
        "The annotators' choices depend on two things. A model that sees only one of them attributes everything to it.",
        "Give the model the length difference as a fifth feature, fit all five weights together, and return the four weights of the features.",
    ),
)
def against_plain(sub, draw):
    "With a length bias in the labels, better than the plain fit on eight of ten data sets, and by .01 on average."
    gains = []
    while len(gains) < 10:
        taste, given, truth, gaps = data(draw, 0.8)
        if taste.norm() < 0.7:
            continue
        a, b, _, _, won = given
        gains.append(share(answered(sub, given), truth, gaps) - share(plain(a, b, won), truth, gaps))
    better = sum(gain > 0 for gain in gains)
    if better < 8 or sum(gains) / len(gains) < 0.01:
        fail(f"better than the plain fit on {better} of 10 data sets, by {sum(gains) / len(gains):+.3f} on average")


# %% [shared]
# 0.8: the bias stands in the statement, and data sets without a bias refuse an answer that subtracts it


# %% [probes]
# no varied of fit.first, fit.second, fit.first_length, fit.second_length, fit.first_won: a data set has 400 pairs, as the statement says
# no random: it may start at random, from whichever generator
# no gradient, float32, size, values, keywords, nan, integers: what it finds is judged, however it is computed


# %% [mutant] length is ignored
# caught by: against_plain
# says: of 10 data sets
def fit(first, second, first_length, second_length, first_won):
    gap, w = first - second, torch.zeros(4, dtype=first.dtype)
    for _ in range(30):
        p = torch.sigmoid(gap @ w)
        curvature = (gap * (p * (1 - p))[:, None]).T @ gap / len(gap) + 1e-3 * torch.eye(4, dtype=first.dtype)
        w = w - torch.linalg.solve(curvature, gap.T @ (p - first_won) / len(gap) + 1e-3 * w)
    return w


# %% [mutant] chosen and rejected are exchanged
# caught by: without_bias
# says: in the right order
def fit(first, second, first_length, second_length, first_won):
    gap, w = second - first, torch.zeros(4, dtype=first.dtype)
    for _ in range(300):
        w = w - 0.5 * gap.T @ (torch.sigmoid(gap @ w) - first_won) / len(gap)
    return w


# %% [mutant] the weight of the length is added to the first feature
# caught by: against_plain
def fit(first, second, first_length, second_length, first_won):
    gap = torch.cat([first - second, (first_length - second_length)[:, None]], 1)
    w = torch.zeros(5, dtype=first.dtype)
    for _ in range(300):
        w = w - 0.5 * gap.T @ (torch.sigmoid(gap @ w) - first_won) / len(gap)
    return torch.cat([w[:1] + w[4:], w[1:4]])


# %% [partial] 1: a plain fit
def fit(first, second, first_length, second_length, first_won):
    gap, w = first - second, torch.zeros(4, dtype=first.dtype)
    for _ in range(300):
        w = w - 0.5 * gap.T @ (torch.sigmoid(gap @ w) - first_won) / len(gap)
    return w
