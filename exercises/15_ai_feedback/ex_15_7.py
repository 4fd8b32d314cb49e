# ---
# title: A hundred clean labels
# kind: implement
# minutes: 35
# seconds: 30
# ---

# %% [statement]
# Completions have eight features, of which the last is their length. The gold reward is $w^*\cdot x$, and long completions may well have more of it: $w^*$ has a weight for length, too. You get two sets of labelled pairs:
#
# * **4,000 by an AI**, which sees $w^*\cdot x$ and has an additional length bias of unknown size and sign;
# * **100 by people**, who have no such bias.
#
# Each set is a pair `(gaps, won)`: differences of features `(M, 8)`, first completion minus second, and `(M,)` ones and zeros, 1 where the first was preferred. Write `learn(ai, people)`, which returns weights `(8,)` that order *new* pairs by gold reward. `bradley_terry(gaps, won)` below fits a Bradley–Terry model by Newton's method, with any number of features.
#
# If the AI happens to have no bias, you must order .943 of new pairs correctly, on average over ten data sets. The last test trains on twelve seeds. Your score is the fraction of new pairs that your weights order correctly, and it is compared with our answer on the same data. You pass if the lower end of the 95 % interval of (your score − ours) is above −0.05. Neither set alone is enough, and pooling the two is not enough either.

# %% [given]
import torch


def bradley_terry(gaps, won, decay=1e-3):
    """gaps: (M, F). won: (M,) of zeros and ones. Returns the weights (F,)."""
    w = torch.zeros(gaps.shape[1], dtype=gaps.dtype)
    for _ in range(30):
        p = torch.sigmoid(gaps @ w)
        slope = gaps.T @ (p - won) / len(gaps) + decay * w
        bend = (gaps * (p * (1 - p))[:, None]).T @ gaps / len(gaps) + decay * torch.eye(len(w), dtype=gaps.dtype)
        w = w - torch.linalg.solve(bend, slope)
    return w


# %% [stub]
def learn(ai, people):
    """ai, people: pairs (gaps (M, 8), won (M,)). Returns (8,)."""
    raise NotImplementedError


# %% [solution]
def learn(ai, people):
    # a hundred labels cannot find eight numbers, but they can find two: how much to believe the AI, and what it says too much of
    believed = bradley_terry(*ai)
    gaps, won = people
    scale, length = bradley_terry(torch.stack([gaps @ believed, gaps[:, -1]], -1), won)
    weights = scale * believed
    weights[-1] += length
    return weights


# %% [tests]
import torch
from minirlhf_course.classroom.testing import fail, test
from minirlhf_course.classroom.training import trains


def made(seed, liking, pairs=(4000, 100)):
    """A random bias, the labels of both sets, and new pairs with their gold rewards."""
    rng = torch.Generator().manual_seed(seed)
    taste = torch.randn(8, generator=rng, dtype=torch.float64)
    taste = 2.5 * taste / taste.norm()
    taste[-1] = taste[-1].sign() * taste[-1].abs().clamp(min=0.8)  # length is worth something, or costs something

    def labelled(count, seen):
        gaps = torch.randn(count, 8, generator=rng, dtype=torch.float64)
        gaps[:, -1] += 0.4 * gaps[:, 0]  # who says more needs more words
        won = torch.rand(count, generator=rng, dtype=torch.float64) < torch.sigmoid(gaps @ seen)
        return gaps, won.double()

    wordy = taste.clone()
    wordy[-1] += liking
    ai, people = labelled(pairs[0], wordy), labelled(pairs[1], taste)
    new, _ = labelled(4000, taste)
    return taste, ai, people, new


def share(sub, data):
    taste, ai, people, new = data
    found = sub.learn(ai, people)
    if not isinstance(found, torch.Tensor) or tuple(found.shape) != (8,) or not bool(found.isfinite().all()):
        fail("`learn` must return eight finite weights")
    return float(((new @ found.double() > 0) == (new @ taste > 0)).double().mean())


@test(
    points=1,
    rounds=1,
    hints=(
        "Begin with the AI's labels alone. They are sufficient where the AI has no bias.",
        "In that case `bradley_terry(*ai)` orders nearly all pairs correctly. What you add from the human labels must not make this worse.",
    ),
)
def without_liking(sub, draw):
    "Where the AI has no bias, .943 of new pairs are ordered correctly on average over ten data sets."
    got = [share(sub, made(draw.integer(0, 2**28), 0.0)) for _ in range(10)]
    if sum(got) / len(got) < 0.943:
        fail(
            f"the AI has no bias here, but only {sum(got) / len(got):.3f} of new pairs are ordered correctly; expected at least .943"
        )


@trains(
    points=4,
    hints=(
        "How many numbers can a hundred labels determine? Which numbers do you need from them?",
        "Fit the AI's reward first. Then fit two weights to the human labels: one for that reward, and one for the length.",
    ),
    seeds=12,
    bar=0.05,
    what="the fraction of new pairs in the right order",
)
def learns(sub, draw):
    "With a length bias, the fraction of new pairs in the right order is compared with ours: twelve data sets, twelve biases."
    bias = (1 - 2 * draw.integer(0, 1)) * float(draw.uniform(1, low=0.5, high=5.0))
    return [0.5, share(sub, made(draw.integer(0, 2**28), bias))]


# %% [probes]
# no random: it may start at random, from whichever generator
# no gradient, float32, size, values, keywords, nan, integers: what it finds is judged, however it is computed


# %% [mutant] the AI alone
# caught by: learns
# says: below
def learn(ai, people):
    return bradley_terry(*ai)


# %% [mutant] one pool
# caught by: learns
def learn(ai, people):
    return bradley_terry(torch.cat([ai[0], people[0]]), torch.cat([ai[1], people[1]]))


# %% [mutant] people alone
# caught by: without_liking
# says: no bias here
def learn(ai, people):
    return bradley_terry(*people)


# %% [mutant] length is dropped
# caught by: without_liking
def learn(ai, people):
    weights = bradley_terry(*ai)
    weights[-1] = 0.0
    return weights


# %% [mutant] two parts of the AI, one of people
# caught by: learns
# says: below
def learn(ai, people):
    a, b = bradley_terry(*ai), bradley_terry(*people)
    return 2 * a / a.norm() + b / b.norm()


# %% [cheat] a length bias as in a set that somebody has seen
def learn(ai, people):
    weights = bradley_terry(*ai)
    weights[-1] -= 1.5
    return weights


# %% [partial] 1: the AI alone
def learn(ai, people):
    return bradley_terry(*ai)
