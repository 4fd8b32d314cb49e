# ---
# title: A model of people who disagree
# kind: implement
# minutes: 40
# seconds: 30
# ---

# %% [statement]
# Sixty people have labelled pairs of eight completions, each person 24 pairs. They belong to two hidden groups with nearly opposite tastes. One reward for all predicts their *next* label with an accuracy
# only slightly above chance.
#
# Write `fit(person, first, second, won, people, size)`. The four tensors have one entry per label: the person who labelled (`0 … people−1`), the two completions, and whether the person preferred the first (1.0 or 0.0).
# Return a float tensor of shape `(people, size)`: a reward for every *person* and completion. Person $n$'s next choice between $a$ and $b$ is predicted by the higher reward in row $n$.
#
# Twenty-four labels are too few to fit each person separately, and one reward for all is wrong for half of the people. Train something in between: groups that you estimate, or a few directions of taste that all people share. Use any method
# that runs in a few seconds.
#
# Grading uses several data sets, each with other people and labels, **paired**: on each data set your accuracy on new labels is compared with the accuracy of one reward model for all, and with the accuracy of a separate reward model for each person.
# You get
#
# * 2 points if your mean accuracy exceeds one model for all by at least 0.08 (two data sets);
# * 2 points if your mean accuracy exceeds one model for each person by at least 0.02, and it is higher on at least four data sets of five;
# * 1 point if it also works when all people have the same taste: there your accuracy may be at most 0.03 below one model for all.

# %% [given]
import torch


# %% [stub]
def fit(person, first, second, won, people, size):
    """person, first, second: (N,) integers. won: (N,) of 0.0 and 1.0. Returns rewards (people, size)."""
    raise NotImplementedError


# %% [solution]
def fit(person, first, second, won, people, size):
    torch.manual_seed(0)
    wins = torch.zeros(people, size, size, dtype=torch.float64)
    winner, loser = torch.where(won > 0.5, first, second), torch.where(won > 0.5, second, first)
    wins.index_put_((person, winner, loser), torch.ones(len(won), dtype=torch.float64), accumulate=True)
    best = None
    for _ in range(2):
        rewards = (0.5 * torch.randn(2, size, dtype=torch.float64)).requires_grad_()
        optimiser = torch.optim.Adam([rewards], lr=0.2)
        for _ in range(50):
            choice = torch.nn.functional.logsigmoid(rewards[:, :, None] - rewards[:, None, :])
            each = torch.einsum("nab,gab->ng", wins, choice)
            loss = -torch.logsumexp(each - torch.log(torch.tensor(2.0)), -1).sum() + 0.5 * (rewards**2).sum()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        if best is None or loss.item() < best[0]:
            best = loss.item(), each.detach().softmax(-1) @ rewards.detach()
    return best[1]


# %% [tests]
import torch
from minirlhf_course.classroom.testing import fail, test

PEOPLE, SIZE, EACH, FRESH, DRAWS = 60, 8, 24, 60, 5


def labels(draw, tastes, each):
    """Return the labels of all people: person, pair, and whether the first was preferred."""
    person = torch.arange(PEOPLE).repeat_interleave(each)
    first = (draw.uniform(len(person)) * SIZE).long()
    second = (first + 1 + (draw.uniform(len(person)) * (SIZE - 1)).long()) % SIZE
    chance = torch.sigmoid(tastes[person, first] - tastes[person, second])
    return person, first, second, (draw.uniform(len(person)) < chance).double()


def world(draw, divided):
    """Return the utilities of every person: two groups with nearly opposite tastes, or one taste for all."""
    common = 1.5 * torch.linspace(-1, 1, SIZE, dtype=torch.float64)[draw.permutation(SIZE)]
    other = -common + 0.3 * draw.normal(SIZE)
    in_second = (draw.permutation(PEOPLE) % 2 == 1) & torch.tensor(divided)
    return torch.where(in_second[:, None], other, common)


def smoothed(wins):
    """Fit Bradley–Terry by Zermelo's iteration, with half a win added everywhere. (..., K, K) -> (..., K)."""
    wins = (wins + 0.5) * (1 - torch.eye(SIZE, dtype=torch.float64))
    r = torch.zeros_like(wins[..., 0])
    for _ in range(50):
        either = torch.logaddexp(r[..., :, None], r[..., None, :])
        r = wins.sum(-1).log() - ((wins + wins.mT) * (-either).exp()).sum(-1).log()
        r = r - r.mean(-1, keepdim=True)
    return r


def accuracies(sub, draw, divided):
    """Return the accuracy on new labels of the answer, of one model for all, and of one model for each person."""
    tastes = world(draw, divided)
    train, fresh = labels(draw, tastes, EACH), labels(draw, tastes, FRESH)
    got = sub.fit(*train, PEOPLE, SIZE)
    if not isinstance(got, torch.Tensor) or got.shape != (PEOPLE, SIZE):
        fail(f"`fit` should return a tensor of shape ({PEOPLE}, {SIZE}): a reward for every person and completion")
    if not bool(torch.isfinite(got).all()):
        fail("the rewards contain NaN or an infinity")
    person, first, second, won = train
    winner, loser = torch.where(won > 0.5, first, second), torch.where(won > 0.5, second, first)
    wins = torch.zeros(PEOPLE, SIZE, SIZE, dtype=torch.float64)
    wins.index_put_((person, winner, loser), torch.ones(len(won), dtype=torch.float64), accumulate=True)
    found = []
    for rewards in (got.double(), smoothed(wins.sum(0)).expand(PEOPLE, -1), smoothed(wins)):
        ahead = rewards[fresh[0], fresh[1]] - rewards[fresh[0], fresh[2]]
        right = torch.where(ahead == 0, 0.5, ((ahead > 0) == (fresh[3] > 0.5)).double())
        found.append(float(right.mean()))
    return found


@test(
    points=2,
    rounds=1,
    hints=(
        "One reward per completion cannot serve two groups. Does the reward depend on the person, and on the labels of this person?",
        "Give every person a weight between two reward vectors, and train vectors and weights on the likelihood of all labels; or alternate between guessing the groups and fitting one model to each.",
    ),
)
def better_than_one_for_all(sub, draw):
    "On new labels of the same people, the accuracy of `fit` exceeds one reward model for all by at least 0.08."
    pairs = [accuracies(sub, draw, True) for _ in range(2)]
    lead = sum(mine - pooled for mine, pooled, _ in pairs) / 2
    if lead < -0.05:
        fail(
            f"the accuracy is {-lead:.3f} below one model for all: does each person have the rewards of their own group?"
        )
    if lead < 0.08:
        fail(f"the mean accuracy over two data sets exceeds one model for all by {lead:.3f}; expected at least 0.08")


@test(
    points=2,
    rounds=1,
    hints=(
        "Twenty-four noisy labels are few for eight completions. Which labels of other people are informative about a person?",
        "A person's rewards should be a mixture of a few reward vectors that are trained on the labels of all people. Only the mixture weights belong to the person.",
    ),
)
def better_than_alone(sub, draw):
    "Its accuracy also exceeds one model for each person, by at least 0.02 and on four data sets of five."
    pairs = [accuracies(sub, draw, True) for _ in range(DRAWS)]
    leads = [mine - alone for mine, _, alone in pairs]
    if sum(leads) / DRAWS < 0.02 or sum(x > 0 for x in leads) < 4:
        fail(
            f"the accuracy is higher in {sum(x > 0 for x in leads)} of {DRAWS} data sets, by {sum(leads) / DRAWS:.3f} on average; expected four and 0.02"
        )


@test(
    points=1,
    rounds=1,
    hints=(
        "If all people agree, two groups fit only noise. How can you limit the damage?",
        "Weigh the two reward vectors by their posterior probability given the person's labels, instead of choosing one. A small weight decay keeps the vectors close to each other.",
    ),
)
def harmless_where_all_agree(sub, draw):
    "If all people have the same taste, its accuracy is at most 0.03 below one model for all."
    pairs = [accuracies(sub, draw, False) for _ in range(2)]
    loss = sum(pooled - mine for mine, pooled, _ in pairs) / 2
    if loss > 0.03:
        fail(f"with one taste for all the accuracy is {loss:.3f} below one model for all; expected at most 0.03")


# %% [probes]
# no random: it may start at random, from whichever generator
# no varied of fit.people, fit.size, fit.person, fit.first, fit.second, fit.won: sixty people and eight completions, as the statement says
# no gradient: it trains, whatever way
# no size, values, float32, keywords: a whole training run is judged, not a formula


# %% [mutant] one model for all
# caught by: better_than_one_for_all
# says: one model for all
def fit(person, first, second, won, people, size):
    rewards = torch.zeros(size, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.Adam([rewards], lr=0.1)
    for _ in range(60):
        loss = torch.nn.functional.binary_cross_entropy_with_logits(rewards[first] - rewards[second], won)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return rewards.detach().expand(people, size)


# %% [mutant] everybody alone
# caught by: better_than_alone
# says: data sets
def fit(person, first, second, won, people, size):
    wins = torch.zeros(people, size, dtype=torch.float64)
    sign = 2 * won - 1
    wins.index_put_((person, first), sign, accumulate=True)
    wins.index_put_((person, second), -sign, accumulate=True)
    return wins


# %% [mutant] the loser's reward rises
# caught by: better_than_one_for_all
# says: one model for all
def fit(person, first, second, won, people, size):
    wins = torch.zeros(people, size, dtype=torch.float64)
    wins.index_put_((person, first), 1 - 2 * won, accumulate=True)
    wins.index_put_((person, second), 2 * won - 1, accumulate=True)
    return wins


# %% [mutant] two groups by the person's number
# caught by: better_than_one_for_all
def fit(person, first, second, won, people, size):
    score = torch.zeros(2, size, dtype=torch.float64)
    score.index_put_((person % 2, first), 2 * won - 1, accumulate=True)
    score.index_put_((person % 2, second), 1 - 2 * won, accumulate=True)
    return score[torch.arange(people) % 2]


# %% [partial] 1: one model for all is harmless where all agree, and no more
def fit(person, first, second, won, people, size):
    score = torch.zeros(size, dtype=torch.float64)
    score.index_put_((first,), 2 * won - 1, accumulate=True)
    score.index_put_((second,), 1 - 2 * won, accumulate=True)
    return score.expand(people, size)
