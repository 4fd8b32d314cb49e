# ---
# title: Bug hunt: Dawid and Skene
# kind: bughunt
# minutes: 30
# ---

# %% [statement]
# The code below implements Dawid and Skene's algorithm with bugs. After some rounds every item gets the same label. Every annotator, also the contrarian of the team, is estimated as almost infallible where this label is true. The logged log-likelihood
# rises to nearly zero, which is impossible for these labels.
#
# **There are three bugs. Find and fix them.** `labels` are `(N, A)` integers, −1 where an annotator did not label the item; there may be a thousand annotators. `posterior` is `(N, C)`. `confusion[a, c, l]` is the probability that annotator a says l where c is true.

# %% [given]
import torch


# %% [stub]
def confusions(labels, posterior):
    """Estimate what each annotator says where c is true. labels: (N, A). posterior: (N, C). Returns (A, C, C)."""
    classes = posterior.shape[1]
    said = torch.nn.functional.one_hot(labels % classes, classes).to(posterior.dtype)
    counts = torch.einsum("nc,nal->acl", posterior, said) + 1e-3
    return counts / counts.sum(1, keepdim=True)


def posteriors(labels, prior, confusion):
    """Return the probability of each true label. prior: (C,). confusion: (A, C, C). Returns (N, C)."""
    classes = len(prior)
    said = torch.nn.functional.one_hot(labels.clamp(min=0), classes) * (labels >= 0).unsqueeze(-1)
    logs = torch.einsum("nal,acl->nc", said.to(prior.dtype), confusion.log())
    return torch.softmax(logs, -1)


# %% [solution]
def confusions(labels, posterior):
    classes = posterior.shape[1]
    said = torch.nn.functional.one_hot(labels.clamp(min=0), classes) * (labels >= 0).unsqueeze(-1)
    counts = torch.einsum("nc,nal->acl", posterior, said.to(posterior.dtype)) + 1e-3
    return counts / counts.sum(-1, keepdim=True)


def posteriors(labels, prior, confusion):
    classes = len(prior)
    said = torch.nn.functional.one_hot(labels.clamp(min=0), classes) * (labels >= 0).unsqueeze(-1)
    logs = torch.einsum("nal,acl->nc", said.to(prior.dtype), confusion.log())
    return torch.softmax(prior.log() + logs, -1)


# %% [tests]
import torch
from minirlhf_course.classroom.testing import expect, test, tidy_distribution


SIZES = ((7, 3, 2), (9, 4, 3))  # items, annotators and classes


def team(draw, gaps, items, raters, classes):
    """Return labels of some annotators, and a probability of each true label."""
    labels = torch.tensor([[draw.integer(0, classes - 1) for _ in range(raters)] for _ in range(items)])
    labels[0, :3], labels[1, :3] = torch.tensor([0, 1, 0]), torch.tensor([1, 1, 0])
    if gaps:
        labels[2, 0] = labels[3, 1] = labels[4, 1] = -1
    posterior = torch.stack([tidy_distribution(draw, classes) for _ in range(items)])
    return labels, posterior


def counted(labels, posterior, over_truth=False, over=2):
    """Return the confusion tables, counted one label at a time."""
    (_, raters), classes = labels.shape, posterior.shape[1]
    out = torch.full((raters, classes, classes), 1e-3, dtype=torch.float64)
    for n, row in enumerate(labels.tolist()):
        for a, said in enumerate(row):
            if said >= 0:
                out[a, :, said] += posterior[n]
    return out / out.sum(1 if over_truth else over, keepdim=True)


@test(
    points=2,
    hints=(
        "Where c is true, an annotator gives one of the labels. Over which axis must the probabilities add up to 1?",
        "confusion[a, c] is a distribution over the label that is *given*: normalise over the last axis.",
    ),
)
def rows(sub, draw):
    "Each row of a confusion table is a distribution over the given label."
    for sizes in SIZES:
        _rows(sub, *team(draw, False, *sizes))


def _rows(sub, labels, posterior):
    classes = posterior.shape[1]
    said = torch.nn.functional.one_hot(labels, classes).double()
    hard = torch.nn.functional.one_hot(posterior.argmax(-1), classes).double()
    bare = torch.einsum("nc,nal->acl", posterior, said)
    smoothed = torch.einsum("nc,nal->acl", posterior, said) + 1
    expect(
        sub.confusions(labels, posterior),
        counted(labels, posterior),
        what="the confusion tables",
        given={"labels": labels, "posterior": posterior},
        mistakes={
            "1 is added to every count instead of 0.001": smoothed / smoothed.sum(-1, keepdim=True),
            "every item counts only for its most probable label": counted(labels, hard),
            "no pseudo-count is added, so an annotator with few labels is estimated as infallible": bare
            / bare.sum(-1, keepdim=True),
            "the table is normalised over the true label": counted(labels, posterior, over_truth=True),
            "the table is normalised over the annotators": counted(labels, posterior, over=0),
        },
    )


@test(
    points=2,
    hints=(
        "A label of −1 must not count. What is −1 modulo the number of classes?",
        "Clamp the −1 so that one_hot accepts it, and then set its row to zero, as the other function does.",
    ),
)
def not_asked(sub, draw):
    "An item without a label of an annotator does not count for this annotator."
    for sizes in SIZES:
        _not_asked(sub, *team(draw, True, *sizes))


def _not_asked(sub, labels, posterior):
    expect(
        sub.confusions(labels, posterior),
        counted(labels, posterior),
        what="the confusion tables",
        given={"labels": labels, "posterior": posterior},
        mistakes={
            "−1 is read as the last label": counted(labels % posterior.shape[1], posterior),
            "−1 is read as the first label": counted(labels.clamp(min=0), posterior),
        },
    )


@test(
    points=2,
    hints=(
        "What do we know about an item without any label?",
        "Bayes' rule has three parts: the prior, the likelihood and the normaliser. The function never uses one of its arguments.",
    ),
)
def bayes(sub, draw):
    "The posterior is Bayes' rule; without labels it is the prior."
    for items, raters, classes in SIZES:
        labels, _ = team(draw, True, items, raters, classes)
        rows = lambda classes=classes: torch.stack([tidy_distribution(draw, classes) for _ in range(classes)])
        _bayes(sub, labels, rows()[0], torch.stack([rows() for _ in range(raters)]))
    # so many annotators that the product of their probabilities is no longer a number above 0
    crowd, prior = torch.zeros(1, 1000, dtype=torch.long), tidy_distribution(draw, 2)
    one = torch.tensor([[0.25, 0.75], [0.75, 0.25]], dtype=torch.float64)
    balanced = torch.stack([one, one.flip(1)]).repeat(500, 1, 1)  # half of them speak for each class
    got = sub.aside.posteriors(crowd, prior, balanced)
    expect(got, prior[None], what="the posterior after 1,000 labels that cancel", given={"prior": prior})


def _bayes(sub, labels, prior, confusion):
    labels[6], classes = -1, len(prior)
    if float((prior - 1 / classes).abs().max()) < 0.15:
        prior = torch.tensor([0.7, *[0.3 / (classes - 1)] * (classes - 1)], dtype=torch.float64)
    out = []
    for flat, read in ((False, confusion), (True, confusion), (False, confusion.mT)):
        rows = []
        for row in labels.tolist():
            joint = torch.ones(classes, dtype=torch.float64) if flat else prior.clone()
            for a, said in enumerate(row):
                if said >= 0:
                    joint = joint * read[a, :, said]
            rows.append(joint / joint.sum())
        out.append(torch.stack(rows))
    joints = torch.stack(
        [
            prior * torch.stack([confusion[a, :, said] for a, said in enumerate(row) if said >= 0]).prod(0)
            if max(row) >= 0
            else prior
            for row in labels.tolist()
        ]
    )
    often = out[1] * prior ** (labels >= 0).sum(-1, keepdim=True)
    added = out[1] * prior.exp()
    expect(
        sub.posteriors(labels, prior, confusion),
        out[0],
        what="the posterior",
        given={"labels": labels, "prior": prior, "confusion": confusion},
        mistakes={
            "all true labels are treated as equally frequent": out[1],
            "the true and the given label are exchanged in `confusion`": out[2],
            "the softmax is over the items instead of the labels": joints / joints.sum(0),
            "the prior is multiplied in once for every given label": often / often.sum(-1, keepdim=True),
            "the prior is added to logarithms without its own logarithm": added / added.sum(-1, keepdim=True),
        },
    )


# %% [edges]
# bayes: there may be a thousand annotators


# %% [shared]
# 0.001: what is added to every count, by the statement


# %% [probes]
# no gradient: counts are asked for
# no nan: labels are whole numbers, and the others are probabilities
# no size: the shapes belong together; the tests vary them


# %% [mutant] still over the truth
# caught by: rows
# says: normalised over the true label
def confusions(labels, posterior):
    classes = posterior.shape[1]
    said = torch.nn.functional.one_hot(labels.clamp(min=0), classes) * (labels >= 0).unsqueeze(-1)
    counts = torch.einsum("nc,nal->acl", posterior, said.to(posterior.dtype)) + 1e-3
    return counts / counts.sum(1, keepdim=True)


# %% [mutant] a gap is the last label
# caught by: not_asked
# says: last label
def confusions(labels, posterior):
    classes = posterior.shape[1]
    said = torch.nn.functional.one_hot(labels % classes, classes).to(posterior.dtype)
    counts = torch.einsum("nc,nal->acl", posterior, said) + 1e-3
    return counts / counts.sum(-1, keepdim=True)


# %% [mutant] a gap is the first label
# caught by: not_asked
# says: first label
def confusions(labels, posterior):
    classes = posterior.shape[1]
    said = torch.nn.functional.one_hot(labels.clamp(min=0), classes).to(posterior.dtype)
    counts = torch.einsum("nc,nal->acl", posterior, said) + 1e-3
    return counts / counts.sum(-1, keepdim=True)


# %% [mutant] no prior
# caught by: bayes
# says: equally frequent
def posteriors(labels, prior, confusion):
    classes = len(prior)
    said = torch.nn.functional.one_hot(labels.clamp(min=0), classes) * (labels >= 0).unsqueeze(-1)
    return torch.softmax(torch.einsum("nal,acl->nc", said.to(prior.dtype), confusion.log()), -1)


# %% [partial] 4: the posterior still lacks its prior
def posteriors(labels, prior, confusion):
    classes = len(prior)
    said = torch.nn.functional.one_hot(labels.clamp(min=0), classes) * (labels >= 0).unsqueeze(-1)
    return torch.softmax(torch.einsum("nal,acl->nc", said.to(prior.dtype), confusion.log()), -1)
