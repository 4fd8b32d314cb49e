# ---
# title: A grade that cannot be bought
# kind: implement
# minutes: 25
# ---

# %% [statement]
# An assistant chooses one of $N$ actions, from a softmax over `logits`. An overseer gives grades, but some actions write into the score sheet:
# `feedback[a, b]` is the grade that action $b$ is given *in a world where $a$ has been carried out*.
#
# Ordinary policy gradient carries out $a$ and learns from the grade of $a$: it climbs $\sum_a \pi(a) F(a, a)$. *Decoupled approval* carries out $a$, draws a second action $b$
# from the same policy, independently, asks for **its** grade, and makes $b$ likelier by it: the expected step is
#
# $$ \sum_{a,b} \pi(a)\,\pi(b)\, F(a, b)\, \nabla \log \pi(b) . $$
#
# Write both expected gradients with respect to the logits, exactly, by summing over actions. $\nabla_{\text{logits}} \log\pi(b)$ is a one-hot vector minus a
# distribution; no autograd is needed.
#
# 1. `coupled_gradient(logits, feedback)`;
# 2. `decoupled_gradient(logits, feedback)`;
# 3. `safe(feedback)`: True if, *whatever the policy is*, what an action does to the grades cannot change the decoupled gradient: that is, if every action moves all grades by one
#    amount, compared with carrying out action 0.

# %% [given]
import torch


# %% [stub]
def coupled_gradient(logits, feedback):
    """Expected policy gradient when each action gets the grade of itself. logits: (N,). feedback: (N, N). Returns (N,)."""
    raise NotImplementedError


def decoupled_gradient(logits, feedback):
    """Expected step of decoupled approval. Returns (N,)."""
    raise NotImplementedError


def safe(feedback):
    """Does every action (row) only add a number of its own to all grades? Returns a bool."""
    raise NotImplementedError


# %% [solution]
def coupled_gradient(logits, feedback):
    p = torch.softmax(logits, -1)
    grade = feedback.diagonal()
    return p * (grade - (p * grade).sum())


def decoupled_gradient(logits, feedback):
    p = torch.softmax(logits, -1)
    grade = p @ feedback
    return p * (grade - (p * grade).sum())


def safe(feedback):
    moved = feedback - feedback[0]
    return bool(torch.allclose(moved, moved[:, :1].expand_as(moved)))


# %% [tests]
import torch

from minirlhf.classroom.testing import expect, fail, test, tidy


def problem(draw):
    """Logits, and feedback in which what is carried out matters and is not symmetric."""
    n = draw.integer(3, 4)
    feedback = tidy(draw.normal(n, n)) + 2 * torch.triu(torch.ones(n, n, dtype=torch.float64))
    return tidy(draw.normal(n)), feedback


def sampled(logits, feedback, coupled):
    """The definition, pair by pair: probability times grade times (one-hot minus policy)."""
    weights = logits.exp()
    p = (weights / weights.sum()).tolist()
    total = [0.0] * len(p)
    for a, pa in enumerate(p):
        for b, pb in enumerate(p):
            chance = (pa if a == b else 0.0) if coupled else pa * pb
            for k, pk in enumerate(p):
                total[k] += chance * float(feedback[a, b]) * (float(k == b) - pk)
    return torch.tensor(total, dtype=torch.float64)


@test(
    points=1,
    hints=(
        "Only the diagonal of `feedback` matters here. Sum π(a) F(a, a) (one-hot(a) − π) over a.",
        "Entry k is π(k) times (the grade of k minus the mean grade).",
    ),
)
def coupled(sub, draw):
    "`coupled_gradient` sums π(a) F(a, a) ∇log π(a)."
    logits, feedback = problem(draw)
    p = torch.softmax(logits, -1)
    expect(
        sub.coupled_gradient(logits, feedback),
        sampled(logits, feedback, coupled=True),
        what="the coupled gradient",
        given={"logits": logits, "feedback": feedback},
        mistakes={
            "the mean grade is not taken away: ∇log π is one-hot minus π": p * feedback.diagonal(),
            "the grades are averaged over what was carried out": sampled(logits, feedback, coupled=False),
        },
    )


@test(
    points=2,
    hints=(
        "First average over what is carried out: what grade does b get on average? Then it is the same sum as before.",
        "The averages are π times the matrix, over its rows. Check which axis of `feedback` is the action carried out.",
    ),
)
def decoupled(sub, draw):
    "`decoupled_gradient` sums π(a) π(b) F(a, b) ∇log π(b)."
    logits, feedback = problem(draw)
    p = torch.softmax(logits, -1)
    expect(
        sub.decoupled_gradient(logits, feedback),
        sampled(logits, feedback, coupled=False),
        what="the decoupled gradient",
        given={"logits": logits, "feedback": feedback},
        mistakes={
            "each action gets the grade of itself, as in ordinary policy gradient": sampled(logits, feedback, True),
            "the policy is squared where the mean grade is taken away": p * (p @ feedback)
            - p * p * (p @ feedback).sum(),
            "the action carried out is made likelier, not the one that was asked about": sampled(
                logits, feedback.T, False
            ),
            "the mean grade is not taken away: ∇log π is one-hot minus π": p * (p @ feedback),
        },
    )


@test(
    points=1,
    hints=(
        "If a adds the number Δ(a) to all grades, how do the rows of `feedback` differ from each other?",
        "Subtract the first row from every row: what is left must be constant along each row (not the same for all rows).",
    ),
)
def when_it_is_safe(sub, draw):
    "`safe` is True for grades that are moved alike, and False if an action changes what is liked."
    _, feedback = problem(draw)
    n = len(feedback)
    alike = feedback[0][None, :] + tidy(draw.normal(n))[:, None]
    praise = alike.clone()
    action = draw.integer(0, n - 1)
    praise[action, draw.integer(0, n - 1)] += [1.0, -1.0][
        draw.integer(0, 1)
    ]  # carrying one out changes what one is worth
    hidden = alike.clone()
    hidden[action] += torch.arange(n) - (n - 1) / 2  # its mean is what it was
    for grades, want in (
        (alike, True),
        (feedback[:1].expand(n, n).clone(), True),
        (praise, False),
        (hidden, False),
        (1e-3 * praise, False),
    ):
        got = sub.safe(grades)
        if bool(got) is not want:
            fail(f"`safe` says {bool(got)}, and it should be {want}", feedback=grades)


# %% [probes]
# no gradient: a formula is asked for, in whatever library


# %% [mutant] the mean grade stays in
# caught by: coupled
# says: one-hot minus
def coupled_gradient(logits, feedback):
    return torch.softmax(logits, -1) * feedback.diagonal()


# %% [mutant] decoupled in name only
# caught by: decoupled
# says: the grade of itself
def decoupled_gradient(logits, feedback):
    return coupled_gradient(logits, feedback)


# %% [mutant] the wrong axis is averaged
# caught by: decoupled
# says: the action carried out is made likelier
def decoupled_gradient(logits, feedback):
    p = torch.softmax(logits, -1)
    grade = feedback @ p
    return p * (grade - (p * grade).sum())


# %% [mutant] safe only if nothing is touched at all
# caught by: when_it_is_safe
# says: it should be True
def safe(feedback):
    return bool(torch.allclose(feedback, feedback[:1].expand_as(feedback)))


# %% [mutant] always safe
# caught by: when_it_is_safe
# says: it should be False
def safe(feedback):
    return True


# %% [partial] 1: only the ordinary gradient
def decoupled_gradient(logits, feedback):
    raise NotImplementedError


def safe(feedback):
    raise NotImplementedError


# %% [partial] 3: both gradients
def safe(feedback):
    raise NotImplementedError
