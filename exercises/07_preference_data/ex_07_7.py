# ---
# title: A reward model without the annotator's bias
# kind: implement
# minutes: 35
# ---

# %% [statement]
# `labelled(seed)` returns 1,000 pairs with the labels of one annotator: `(x, length, first_won)`.
#
# * `x`, shape `(N, 4)`: the features that determine quality, first completion minus second;
# * `length`, shape `(N,)`: the length of the first completion minus the length of the second. It is correlated with the first column of `x`: good completions tend to be longer;
# * `first_won`, shape `(N,)`, bool.
#
# You know two things about this annotator: they prefer longer completions, and they prefer the completion that is shown first. Neither makes a completion better.
#
# **Train a reward model that does not inherit these biases.** Write `train(x, length, first_won)`, which returns the weights, shape `(4,)`, of a linear reward of `x` alone. Use any optimiser;
# a few hundred full-batch steps are enough.
#
# Grading: eight seeds, each with another annotator. For each seed we compute the accuracy of your weights: how often they order 4,000 new pairs as the annotator's true weights do. Two other models see the same
# labels: a reward model that ignores the biases, and our solution. Your mean gain in accuracy over the first must be at least half of the gain of our solution, and your accuracy must be higher than the first model's in at least seven of the eight seeds. The *size* of the weights is graded too. On average over the seeds it must be within 20 % of the true size. The mean squared distance of your weights from the true ones must be at most twice the distance of our solution plus .1.

# %% [given]
import torch
from minirlhf_course.ledger.registry import Draw


def labelled(seed):
    """Return pairs of completions with the labels of a biased annotator."""
    draw = Draw("07.7", seed)
    x = draw.normal(1000, 4)
    length = 0.8 * x[:, 0] + 0.6 * draw.normal(1000)
    weights = torch.tensor([0.6, 0.9, -0.7, 0.4], dtype=torch.float64)
    felt = x @ weights + 1.5 * length + 2.0
    return x, length, draw.uniform(1000) < torch.sigmoid(felt)


# %% [stub]
def train(x, length, first_won):
    """Return the weights of a reward without the annotator's biases. x: (N, 4). length: (N,). first_won: (N,) bool. Returns (4,)."""
    raise NotImplementedError


# %% [solution]
def train(x, length, first_won):
    columns = torch.cat([x, length[:, None], torch.ones_like(length)[:, None]], -1)
    weights = torch.zeros(columns.shape[1], dtype=x.dtype, requires_grad=True)
    optimiser = torch.optim.LBFGS([weights], max_iter=30)

    def loss():
        optimiser.zero_grad()
        value = torch.nn.functional.binary_cross_entropy_with_logits(columns @ weights, first_won.to(x.dtype))
        value.backward()
        return value

    optimiser.step(loss)
    return weights.detach()[: x.shape[1]]


# %% [tests]
import functools

import torch
from minirlhf_course.classroom.testing import fail, test


@functools.cache
def labeller(seed):
    """Return the annotator of this seed: weights, length bias and position bias."""
    draw = Draw("07.7 tastes", seed)
    signs = 1 - 2 * (draw.permutation(4) % 2).double()
    at_liking, at_place = (
        (k % 8 + float(draw.uniform())) / 8 for k in (seed, 5 * seed)
    )  # from all parts of the ranges
    liking, place = 0.75 + 2.5 * at_liking, 0.45 + 3 * at_place
    return signs * draw.uniform(4, low=0.35, high=1.05), liking, place


def truth(seed):
    """Return the true weights of this seed's annotator."""
    return labeller(seed)[0]


def asked(seed):
    """Return pairs and labels of this seed's annotator, in the form of `labelled`."""
    draw, (weights, liking, place) = Draw("07.7 asked", seed), labeller(seed)
    x, goes_along = draw.normal(1000, 4), float(draw.uniform(low=0.55, high=0.85))
    length = goes_along * x[:, 0] + (1 - goes_along**2) ** 0.5 * draw.normal(1000)
    return x, length, draw.uniform(1000) < torch.sigmoid(x @ weights + liking * length + place)


def newton(columns, won):
    """Return the maximum-likelihood weights."""
    w = torch.zeros(columns.shape[1], dtype=torch.float64)
    for _ in range(25):
        p = torch.sigmoid(columns @ w)
        w = w + torch.linalg.solve((columns * (p * (1 - p))[:, None]).T @ columns, columns.T @ (won.double() - p))
    return w


def accuracy(weights, seed):
    """Return how often these weights order new pairs as the true ones do."""
    x = Draw("07.7 new", seed).normal(4000, 4)
    return float((((x @ weights) > 0) == ((x @ truth(seed)) > 0)).double().mean())


@functools.cache
def rivals(seed):
    """Return the accuracy of a reward model that ignores the biases, of one that models both, and the squared error of the second."""
    x, length, won = asked(seed)
    ones = torch.ones(len(x), 1, dtype=torch.float64)
    careful = newton(torch.cat([x, length[:, None], ones], -1), won)
    return (
        accuracy(newton(x, won), seed),
        accuracy(careful[:4], seed),
        float((careful[:4] - truth(seed)).square().sum()),
    )


def trained(sub, draw):
    """Return the weights of the answer on eight seeds."""
    seeds = [8 * draw.integer(0, 10**6) + k for k in range(8)]
    found = []
    for seed in seeds:
        x, length, won = asked(seed)
        weights = sub.train(x, length, won)
        if not isinstance(weights, torch.Tensor) or tuple(weights.shape) != (4,) or not bool(weights.isfinite().all()):
            fail("expected four finite weights, shape (4,)", yours=weights)
        found.append(weights.double())
    return seeds, torch.stack(found)


@test(
    points=3,
    rounds=1,
    hints=(
        "Which features predict the labels of this annotator, in addition to `x`?",
        "Train with a weight for length and a weight for the first position, and drop these two weights afterwards.",
    ),
)
def order(sub, draw):
    "On eight seeds the weights order new pairs better than a model that ignores the biases."
    seeds, found = trained(sub, draw)
    mine = [accuracy(w, s) for w, s in zip(found, seeds, strict=True)]
    plain, ours, _ = zip(*[rivals(s) for s in seeds], strict=True)
    gains = [a - b for a, b in zip(mine, plain, strict=True)]
    best = sum(ours) / 8 - sum(plain) / 8
    if sum(gains) / 8 < 0.5 * best or sum(g > 0 for g in gains) < 7:
        why = (
            "the accuracy is no better than for a reward model that ignores the biases"
            if sum(gains) / 8 < 0.1 * best
            else "the accuracy is better, but not by enough"
        )
        fail(why, better_in=f"{sum(g > 0 for g in gains)} of 8", gain=sum(gains) / 8, gain_of_ours=best)


@test(
    points=2,
    rounds=1,
    hints=(
        "Has your optimiser converged? And does your model contain both biases of this annotator?",
        "A bias that is missing from the model acts as noise, and noise flattens the reward. A penalty on the weights, too few steps or dropped labels change their size as well.",
    ),
)
def size(sub, draw):
    "On average over eight seeds, the weights have the size of the true ones."
    seeds, found = trained(sub, draw)
    right = torch.stack([truth(seed) for seed in seeds])
    ratio = float(((found * right).sum(-1) / (right**2).sum(-1)).mean())
    if not 0.8 < ratio < 1.2:
        fail("the weights are too small" if ratio < 1 else "the weights are too large", yours=found[0], ratio=ratio)
    distances = [float((w - truth(seed)).square().sum()) for w, seed in zip(found, seeds, strict=True)]
    if sum(distances) > 2 * sum(rivals(seed)[2] for seed in seeds) + 0.8:
        fail("the weights are far from the annotator's", yours=found[0], annotators=truth(seeds[0]))


# %% [probes]
# no varied of train.x, train.length, train.first_won: an annotator has labelled 1,000 pairs, as the statement says
# no random: it may start at random, from whichever generator
# no gradient, float32, values, size, nan: it trains, which takes long


# %% [mutant] the bias is ignored
# caught by: order
# says: no better
def train(x, length, first_won):
    weights = torch.zeros(4, dtype=x.dtype, requires_grad=True)
    optimiser = torch.optim.LBFGS([weights], max_iter=30)

    def loss():
        optimiser.zero_grad()
        value = torch.nn.functional.binary_cross_entropy_with_logits(x @ weights, first_won.to(x.dtype))
        value.backward()
        return value

    optimiser.step(loss)
    return weights.detach()


# %% [mutant] only the place is known
# caught by: order
# says: no better
def train(x, length, first_won):
    columns = torch.cat([x, torch.ones_like(length)[:, None]], -1)
    weights = torch.zeros(5, dtype=x.dtype, requires_grad=True)
    optimiser = torch.optim.LBFGS([weights], max_iter=30)

    def loss():
        optimiser.zero_grad()
        value = torch.nn.functional.binary_cross_entropy_with_logits(columns @ weights, first_won.to(x.dtype))
        value.backward()
        return value

    optimiser.step(loss)
    return weights.detach()[:4]


# %% [mutant] only the length is known
# caught by: size
# says: too small
def train(x, length, first_won):
    columns = torch.cat([x, length[:, None]], -1)
    weights = torch.zeros(5, dtype=x.dtype, requires_grad=True)
    optimiser = torch.optim.LBFGS([weights], max_iter=30)

    def loss():
        optimiser.zero_grad()
        value = torch.nn.functional.binary_cross_entropy_with_logits(columns @ weights, first_won.to(x.dtype))
        value.backward()
        return value

    optimiser.step(loss)
    return weights.detach()[:4]


# %% [mutant] too few steps
# caught by: order or size
def train(x, length, first_won):
    columns = torch.cat([x, length[:, None], torch.ones_like(length)[:, None]], -1)
    weights = torch.zeros(6, dtype=x.dtype, requires_grad=True)
    optimiser = torch.optim.SGD([weights], lr=0.3)
    for _ in range(50):
        loss = torch.nn.functional.binary_cross_entropy_with_logits(columns @ weights, first_won.to(x.dtype))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return weights.detach()[:4]


# %% [mutant] the tastes of another labeller are subtracted
# caught by: order or size
def train(x, length, first_won):
    weights = torch.zeros(4, dtype=x.dtype, requires_grad=True)
    optimiser = torch.optim.LBFGS([weights], max_iter=30)

    def loss():
        optimiser.zero_grad()
        felt = x @ weights + 1.5 * length + 2.0
        value = torch.nn.functional.binary_cross_entropy_with_logits(felt, first_won.to(x.dtype))
        value.backward()
        return value

    optimiser.step(loss)
    return weights.detach()


# %% [partial] 3: the order is right, the size is not
def train(x, length, first_won):
    columns = torch.cat([x, length[:, None], torch.ones_like(length)[:, None]], -1)
    weights = torch.zeros(6, dtype=x.dtype, requires_grad=True)
    optimiser = torch.optim.LBFGS([weights], max_iter=30)

    def loss():
        optimiser.zero_grad()
        value = torch.nn.functional.binary_cross_entropy_with_logits(columns @ weights, first_won.to(x.dtype))
        value.backward()
        return value

    optimiser.step(loss)
    return 2 * weights.detach()[:4]
