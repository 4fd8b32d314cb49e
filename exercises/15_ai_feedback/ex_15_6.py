# ---
# title: Bug hunt: a judge that votes for itself
# kind: bughunt
# minutes: 30
# ---

# %% [statement]
# There are eight completions with three features each, and a judge whose log-odds are the difference in gold reward plus a position bias. It labels all pairs in both orders, a reward is fitted to the labels, and the reference policy is tilted by the reward: $\pi \propto \pi_{\mathrm{ref}}\,e^{r/\beta}$.
# `report` prints one line for each of several decreasing $\beta$: the policy's gold reward and its KL from the reference policy. The gold reward should rise from top to bottom, and so should the KL, from near 0. The output is different. The labels agree with the gold reward on **fewer pairs than chance**, the fitted reward orders **most pairs wrongly**, and the KL is large at first and **falls** from top to bottom. (Use the given seed of the environment. With other seeds two of the bugs hide each other.)
#
# **There are three bugs, one in each function. Find and fix them.**
#
# * `soft_labels(given, exchanged)`: log-odds `(M,)` with which the judge prefers the completion shown first, for pairs as given and with the completions exchanged. Returns `(M,)`, the probability that the pair's first completion is better, from the mean of the log-odds of both orders, both expressed for the given order.
# * `fit(features, first, second, labels, steps, lr)`: gradient descent on the mean cross-entropy of $\sigma(r_{\text{first}} - r_{\text{second}})$ with the soft labels, from weights 0. `features` is `(N, F)`, `first` and `second` `(M,)` are rows. Returns the rewards `(N,)`, features times weights.
# * `tilted(logps, rewards, beta)`: the log-probabilities `(N,)` of the tilted policy; its probabilities sum to one.

# %% [given]
import torch


def world(seed=33):
    """Features, gold reward, log-probabilities of the reference policy, and the judge's log-odds on all pairs."""
    rng = torch.Generator().manual_seed(seed)
    features = torch.randn(8, 3, generator=rng, dtype=torch.float64)
    gold = features @ torch.tensor([1.0, -0.5, 0.7], dtype=torch.float64)
    logps = torch.randn(8, generator=rng, dtype=torch.float64).log_softmax(0)
    first, second = torch.triu_indices(8, 8, 1)
    place = 3 * torch.rand(len(first), generator=rng, dtype=torch.float64)
    gap = gold[first] - gold[second]
    return features, gold, logps, first, second, gap + place, -gap + place


def report(seed=33):
    """Prints how often labels and reward agree with the gold reward, and gold reward and KL for decreasing β."""
    features, gold, logps, first, second, given, exchanged = world(seed)
    labels = soft_labels(given, exchanged)
    gap = gold[first] - gold[second]
    agree = lambda x: float(((x > 0) == (gap > 0)).double().mean())
    rewards = fit(features, first, second, labels, 300, 0.5)
    print(f"labels agree with gold {agree(labels - 0.5):.2f}, rewards {agree(rewards[first] - rewards[second]):.2f}")
    for beta in (10.0, 3.0, 1.0, 0.3, 0.1):
        new = tilted(logps, rewards, beta)
        kl = float((new.exp() * (new - logps)).sum())
        print(f"β = {beta:5}   gold {float(new.exp() @ gold):6.2f}   KL {kl:6.2f}")


# %% [stub]
def soft_labels(given, exchanged):
    """Returns (M,)."""
    return torch.sigmoid((given + exchanged) / 2)


def fit(features, first, second, labels, steps, lr):
    """Returns (N,)."""
    weights = torch.zeros(features.shape[1], dtype=features.dtype)
    gaps = features[first] - features[second]
    for _ in range(steps):
        p = torch.sigmoid(gaps @ weights)
        weights = weights + lr * gaps.T @ (p - labels) / len(gaps)
    return features @ weights


def tilted(logps, rewards, beta):
    """Returns (N,)."""
    return (logps + beta * rewards).log_softmax(0)


# %% [solution]
def soft_labels(given, exchanged):
    return torch.sigmoid((given - exchanged) / 2)


def fit(features, first, second, labels, steps, lr):
    weights = torch.zeros(features.shape[1], dtype=features.dtype)
    gaps = features[first] - features[second]
    for _ in range(steps):
        p = torch.sigmoid(gaps @ weights)
        weights = weights - lr * gaps.T @ (p - labels) / len(gaps)
    return features @ weights


def tilted(logps, rewards, beta):
    return (logps + rewards / beta).log_softmax(0)


# %% [tests]
import math

import torch
from minirlhf_course.classroom.testing import expect, test, tidy


@test(
    points=2,
    hints=(
        "With the completions exchanged, which completion do positive log-odds prefer?",
        "The second completion of the pair. Flip the sign before you take the mean: (given − exchanged)/2.",
    ),
    against="the log-odds from which the verdicts were made",
)
def places(sub, draw):
    "`soft_labels` is the judge's preference without the position bias."
    gap, place = draw.normal(6), 2 * draw.uniform(6) + 0.3
    given, exchanged = gap + place, -gap + place
    expect(
        sub.soft_labels(given, exchanged), torch.tensor([1 / (1 + math.exp(-x)) for x in gap.tolist()], dtype=torch.float64),
        what="`soft_labels`", given={"given": given, "exchanged": exchanged}, tolerance=1e-9,
        mistakes={
            "this is the position bias": torch.sigmoid(place), "the second order is not used": torch.sigmoid(given),
            "probabilities are averaged in place of log-odds": (torch.sigmoid(given) + torch.sigmoid(-exchanged)) / 2,
            "this is the sum of the two orders, not the mean": torch.sigmoid(2 * gap), "this is the probability of the other completion": torch.sigmoid(-gap),
        },
    )  # fmt: skip


@test(
    points=2,
    hints=(
        "The gradient of the cross-entropy is the mean of (p − label) times the gap of features. In which direction is a descent step?",
        "Against the gradient: weights − lr · gradient. The gradient itself is already correct.",
    ),
    against="gradient descent by autograd",
)
def descends(sub, draw):
    "`fit` descends on the cross-entropy."
    for size, width, pairs, steps in ((5, 2, 7, draw.integer(2, 4)), (4, 3, 9, 1), (6, 2, 5, 40), (4, 2, 5, 0)):
        descends_from(sub, draw, draw.normal(size, width), pairs, steps)


def descends_from(sub, draw, features, pairs, steps):
    """Compare the rewards after some steps on random pairs of these completions."""
    size, lr, labels = len(features), float(tidy(draw.uniform(1, low=0.1, high=0.6))), draw.uniform(pairs)
    first, second = (draw.permutation(60) % size)[:pairs], (draw.permutation(60) % size)[:pairs]
    second = torch.where(first == second, (second + 1) % size, second)

    def descended(sign=-1.0, reduce=lambda x: x.mean(), hard=False):
        w = torch.zeros(features.shape[1], dtype=torch.float64, requires_grad=True)
        told = (labels > 0.5).double() if hard else labels
        for _ in range(steps):
            p = torch.sigmoid((features[first] - features[second]) @ w)
            loss = reduce(-(told * p.log() + (1 - told) * (1 - p).log()))
            w = (w + sign * lr * torch.autograd.grad(loss, w)[0]).detach().requires_grad_()
        return (features @ w).detach()

    expect(
        sub.fit(features, first, second, labels, steps, lr), descended(), what="the rewards of `fit`", given={"labels": labels, "steps": steps, "lr": lr}, tolerance=1e-9,
        mistakes={
            "the loss is increased": descended(1.0), "the loss is the mean over the pairs, not the sum": descended(reduce=lambda x: x.sum()),
            "the labels are rounded, but soft labels should stay as they are": descended(hard=True), "rewards are features times weights": torch.zeros(size, dtype=torch.float64),
        },
    )  # fmt: skip


@test(
    points=2,
    hints=(
        "Which policy is the limit for very large β?",
        "The reference policy: rewards are *divided* by β. The sum over completions is already correct.",
    ),
    against="the definition, in plain numbers",
)
def tilts(sub, draw):
    "`tilted` is the reference policy times e^(r/β), normalised."
    for beta in ([0.3, 0.5, 2.0, 4.0][draw.integer(0, 3)], 0.05):
        tilts_by(sub, draw.logps(5), 1.5 * draw.normal(5), beta)


def tilts_by(sub, logps, rewards, beta):
    """Compare the tilted policy with the definition at one β."""
    raw = [math.exp(a + r / beta) for a, r in zip(logps.tolist(), rewards.tolist(), strict=True)]
    want = torch.tensor([math.log(x / sum(raw)) for x in raw], dtype=torch.float64)
    expect(
        sub.tilted(logps, rewards, beta), want, what="`tilted`", given={"rewards": rewards, "beta": beta}, tolerance=1e-9,
        mistakes={
            "rewards are multiplied by β": (logps + beta * rewards).log_softmax(0), "the probabilities do not sum to one": logps + rewards / beta,
            "the reference policy is missing": (rewards / beta).log_softmax(0), "these are probabilities, not log-probabilities": want.exp(),
        },
    )  # fmt: skip


# %% [shared]
# 0.1, 0.3: a β and the edge of a range; the tests draw their own


# %% [probes]
# no gradient: the three are parts of a fit, and nobody differentiates through them
# no values of fit: labels are probabilities, and the fit has to converge


# %% [mutant] one order
# caught by: places
# says: second order is not used
def soft_labels(given, exchanged):
    return torch.sigmoid(given)


# %% [mutant] probabilities
# caught by: places
# says: in place of log-odds
def soft_labels(given, exchanged):
    return (torch.sigmoid(given) + torch.sigmoid(-exchanged)) / 2


# %% [mutant] the labels turned round and the climb kept
# caught by: descends
def fit(features, first, second, labels, steps, lr):
    weights = torch.zeros(features.shape[1], dtype=features.dtype)
    gaps = features[first] - features[second]
    for _ in range(steps):
        p = torch.sigmoid(gaps @ weights)
        weights = weights + lr * gaps.T @ (p + labels - 1) / len(gaps)
    return features @ weights


# %% [mutant] the sum
# caught by: descends
# says: not the sum
def fit(features, first, second, labels, steps, lr):
    weights = torch.zeros(features.shape[1], dtype=features.dtype)
    gaps = features[first] - features[second]
    for _ in range(steps):
        p = torch.sigmoid(gaps @ weights)
        weights = weights - lr * gaps.T @ (p - labels)
    return features @ weights


# %% [mutant] divided, and not normalised
# caught by: tilts
# says: do not sum to one
def tilted(logps, rewards, beta):
    return logps + rewards / beta


# %% [partial] 4: the tilt is as it was
def tilted(logps, rewards, beta):
    return (logps + beta * rewards).log_softmax(0)
