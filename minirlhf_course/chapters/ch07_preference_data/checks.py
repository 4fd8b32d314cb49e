"""The ledger of chapter 07: agreement, and truth recovered from disagreement."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch
from torch import Tensor

from minirlhf.equations import agreement
from minirlhf_course.chapters.ch07_preference_data import equations
from minirlhf_course.ledger.registry import Comparison, Draw, check

NOMINAL = 1 - torch.eye(3, dtype=torch.float64)


def _votes(draw: Draw, items: int, raters: int, classes: int = 3) -> Tensor:
    """``(items, raters)`` labels that agree more often than by chance, never all with one another, each class among them."""
    truth = [draw.integer(0, classes - 1) for _ in range(items)]
    said = [[t if draw.integer(0, 2) else draw.integer(0, classes - 1) for _ in range(raters)] for t in truth]
    said[0], said[1], said[-1] = [0, 1, *said[0][2:]], [1] * raters, [classes - 1] * raters
    return torch.tensor(said)


def _pairwise(votes: Tensor, distance: Tensor) -> tuple[float, float]:
    """Mean distance of two labels of one item, each item weighted by its labels, and of two labels of any items."""
    units = [[int(x) for x in row if x >= 0] for row in votes.tolist()]
    units = [unit for unit in units if len(unit) > 1]
    within = sum(
        float(distance[a, b]) / (len(unit) - 1) for unit in units for a, b in itertools.permutations(unit, 2)
    ) / sum(map(len, units))
    everything = [x for unit in units for x in unit]
    pairs = list(itertools.permutations(everything, 2))
    return within, sum(float(distance[a, b]) for a, b in pairs) / len(pairs)


def _counts(votes: Tensor, classes: int = 3) -> Tensor:
    return torch.stack([(votes == c).sum(-1) for c in range(classes)], -1).double()


@check(
    "eq:cohen-kappa",
    "value",
    "Agreement beyond chance, divided by the largest possible agreement beyond chance.",
    of=equations.cohen_kappa,
    against="pairs of items: one annotator's label of each, with the other's label of every item",
    wrong={
        "raw agreement": lambda table: table.diagonal(dim1=-2, dim2=-1).sum(-1) / table.sum((-2, -1)),
        "all labels taken as equally frequent": lambda table: (
            (table.diagonal(dim1=-2, dim2=-1).sum(-1) / table.sum((-2, -1)) - 1 / table.shape[-1])
            / (1 - 1 / table.shape[-1])
        ),
        "one pool of labels for both, as Scott's π has it": lambda table: equations.cohen_kappa(
            table / 2 + table.mT / 2
        ),
    },
)
def _(cohen_kappa, draw: Draw) -> Iterator[Comparison]:
    table = torch.tensor(
        [[draw.integer(5, 9), 1, 0], [draw.integer(2, 3), draw.integer(1, 2), 1], [2, 0, 1]], dtype=torch.float64
    )  # both say the first label most often, and not equally often
    a, b = zip(*[(i, j) for i in range(3) for j in range(3) for _ in range(int(table[i, j]))], strict=True)
    observed = sum(i == j for i, j in zip(a, b, strict=True)) / len(a)
    chance = sum(i == j for i in a for j in b) / len(a) ** 2
    yield cohen_kappa(table), (observed - chance) / (1 - chance)
    yield (
        cohen_kappa(torch.stack([table, table.flip(0)])),
        torch.stack([cohen_kappa(table), cohen_kappa(table.flip(0))]),
    )


@check(
    "eq:fleiss-kappa",
    "value",
    "The fraction of pairs of annotators that agree on an item, corrected for the agreement of two labels drawn "
    "from the pool.",
    of=equations.fleiss_kappa,
    against="all pairs of annotators of an item, one by one; and all pairs of labels, drawn with replacement",
    wrong={
        "pairs of an annotator with himself are counted": lambda counts: (
            (
                ((counts / counts.sum(-1, keepdim=True)) ** 2).sum(-1).mean()
                - ((counts.sum(0) / counts.sum()) ** 2).sum()
            )
            / (1 - ((counts.sum(0) / counts.sum()) ** 2).sum())
        ),
        "chance taken as 1/C": lambda counts: (
            (((counts * (counts - 1)).sum(-1) / (counts.sum(-1) * (counts.sum(-1) - 1))).mean() - 1 / counts.shape[1])
            / (1 - 1 / counts.shape[1])
        ),
    },
)
def _(fleiss_kappa, draw: Draw) -> Iterator[Comparison]:
    votes = _votes(draw, 9, 4)
    votes[2:5] = 0  # so that the labels are not equally frequent
    for some in (votes, votes[:1]):  # a single item has everything that the formula needs
        agreeing = [a == b for row in some.tolist() for a, b in itertools.combinations(row, 2)]
        pool = some.flatten().tolist()
        observed, chance = sum(agreeing) / len(agreeing), sum(a == b for a in pool for b in pool) / len(pool) ** 2
        yield fleiss_kappa(_counts(some)), (observed - chance) / (1 - chance)


@check(
    "eq:krippendorff-alpha",
    "value",
    "The mean distance of two labels of one item, against that of two labels of any items, with missing labels.",
    of=equations.krippendorff_alpha,
    against="the distances of all pairs of labels, one by one",
    wrong={
        "pairs drawn with replacement": lambda counts, distance: (
            1
            - (1 - equations.krippendorff_alpha(counts, distance))
            * (counts[counts.sum(-1) >= 2].sum() / (counts[counts.sum(-1) >= 2].sum() - 1))
        ),
        "single labels kept in the pool": lambda counts, distance: (
            1
            - (1 - equations.krippendorff_alpha(counts, distance))
            * (
                torch.einsum("c,k,ck->", *[counts[counts.sum(-1) >= 2].sum(0)] * 2, distance)
                / counts[counts.sum(-1) >= 2].sum() ** 2
            )
            / (torch.einsum("c,k,ck->", *[counts.sum(0)] * 2, distance) / counts.sum() ** 2)
        ),
        "distances ignored: names, not numbers": lambda counts, distance: equations.krippendorff_alpha(
            counts, (distance > 0).double()
        ),
    },
)
def _(krippendorff_alpha, draw: Draw) -> Comparison:
    votes = _votes(draw, 8, 4)
    votes[2, :3], votes[3, 2:], votes[4, 0] = -1, -1, -1  # one label, two, three
    grades = torch.tensor([0.0, 1.0, 3.0], dtype=torch.float64)
    distance = (grades[:, None] - grades) ** 2
    within, between = _pairwise(votes, distance)
    return krippendorff_alpha(_counts(votes), distance), 1 - within / between


@check(
    "eq:expected-kappa",
    "value",
    "For two annotators with accuracies p and q, the table of their labels is a sum over the true label.",
    of=equations.expected_kappa,
    against="κ of the table of the two labels, summed over the true label and the errors",
    wrong={
        "as if both labels were equally frequent": lambda accuracy_a, accuracy_b, prevalence: (
            (2 * accuracy_a - 1) * (2 * accuracy_b - 1)
        ),
        "the annotators' shares taken as the prevalence": lambda accuracy_a, accuracy_b, prevalence: (
            ((accuracy_a * accuracy_b + (1 - accuracy_a) * (1 - accuracy_b)) - (prevalence**2 + (1 - prevalence) ** 2))
            / (1 - prevalence**2 - (1 - prevalence) ** 2)
        ),
    },
)
def _(expected_kappa, draw: Draw) -> Comparison:
    p, q, share = (
        draw.uniform(3, low=0.6, high=0.8),
        draw.uniform(3, low=0.85, high=0.95),
        draw.uniform(3, low=0.1, high=0.3),
    )
    kappas = []
    for a, b, one in zip(p.tolist(), q.tolist(), share.tolist(), strict=True):
        table = torch.zeros(2, 2, dtype=torch.float64)
        for truth, wrong_a, wrong_b in itertools.product((0, 1), repeat=3):
            chance = (one if truth else 1 - one) * (1 - a if wrong_a else a) * (1 - b if wrong_b else b)
            table[truth ^ wrong_a, truth ^ wrong_b] += chance
        observed = float(table.trace())
        chance = sum(float(table[i].sum() * table[:, i].sum()) for i in (0, 1))
        kappas.append((observed - chance) / (1 - chance))
    return expected_kappa(p, q, share), torch.tensor(kappas, dtype=torch.float64)


# -- Dawid and Skene ---------------------------------------------------------------------------------------------


def _annotators(draw: Draw) -> tuple[Tensor, Tensor, Tensor]:
    """Labels ``(4, 3)`` with gaps, a prior over two labels and confusions ``(3, 2, 2)``."""
    labels = torch.tensor([[draw.integer(0, 1) for _ in range(3)] for _ in range(4)])
    labels[0, 1], labels[2] = -1, -1  # one missing; an item that nobody has labelled
    prior = torch.tensor([0.3, 0.7], dtype=torch.float64)
    right = draw.uniform(3, 2, low=0.6, high=0.9)
    confusion = torch.stack([torch.stack([r[0], 1 - r[0], 1 - r[1], r[1]]).view(2, 2) for r in right])
    return labels, prior, confusion


@check(
    "eq:dawid-skene-posterior",
    "value",
    "The posterior of the true label given the labels; a missing label is no evidence, and without labels the "
    "prior remains.",
    of=agreement.dawid_skene_posterior,
    against="Bayes' rule over the joint probabilities of truth and labels, multiplied out",
    wrong={
        "prior forgotten": lambda labels, log_prior, log_confusion: agreement.dawid_skene_posterior(
            labels, 0 * log_prior, log_confusion
        ),
        "confusion read the wrong way: truth and label exchanged": lambda labels, log_prior, log_confusion: (
            agreement.dawid_skene_posterior(labels, log_prior, log_confusion.mT)
        ),
    },
)
def _(posterior, draw: Draw) -> Comparison:
    labels, prior, confusion = _annotators(draw)
    rows = []
    for row in labels.tolist():
        joint = [float(p) for p in prior]
        for a, said in enumerate(row):
            joint = [p * (float(confusion[a, c, said]) if said >= 0 else 1.0) for c, p in enumerate(joint)]
        rows.append([p / sum(joint) for p in joint])
    return posterior(labels, prior.log(), confusion.log()), torch.tensor(rows, dtype=torch.float64)


def _likeliest(weights: tuple[float, float]) -> Tensor:
    """The two probabilities of largest w₀ log p + w₁ log(1 − p): where its slope changes sign, by bisection."""
    low, high = 0.0, 1.0
    for _ in range(60):
        p = (low + high) / 2
        low, high = (p, high) if weights[0] / p > weights[1] / (1 - p) else (low, p)
    return torch.tensor([low, 1 - low], dtype=torch.float64)


@check(
    "eq:dawid-skene-update",
    "value",
    "Counts weighted by the posterior, with the smoothing as earlier counts, maximise the expected log-likelihood.",
    of=agreement.dawid_skene_update,
    against="a numerical search for the confusions and the prior of largest expected log-likelihood",
    wrong={
        "normalised over the truth instead of the labels": lambda labels, posterior, *, smoothing=0.0: (
            posterior.sum(0) / posterior.sum(),
            (
                c := torch.einsum(
                    "nc,nal->acl",
                    posterior,
                    torch.nn.functional.one_hot(labels.clamp(min=0), 2) * (labels >= 0).double().unsqueeze(-1),
                )
                + smoothing
            )
            / c.sum(-2, keepdim=True),
        ),
        "a missing label counted as the first": lambda labels, posterior, *, smoothing=0.0: (
            agreement.dawid_skene_update(labels.clamp(min=0), posterior, smoothing=smoothing)
        ),
        "smoothing forgotten": lambda labels, posterior, *, smoothing=0.0: agreement.dawid_skene_update(
            labels, posterior
        ),
    },
)
def _(update, draw: Draw) -> Iterator[Comparison]:
    labels = torch.tensor([[0, 1], [1, 1], [-1, 0], [0, 0], [1, -1]])
    posterior = draw.distribution(5, 2)
    for smoothing in (0.5, 2.0):
        prior, confusion = update(labels, posterior, smoothing=smoothing)
        yield prior, _likeliest((float(posterior[:, 0].sum()), float(posterior[:, 1].sum())))
        for a, c in itertools.product(range(2), repeat=2):
            weights = [
                smoothing + sum(float(posterior[n, c]) for n in range(5) if int(labels[n, a]) == said)
                for said in (0, 1)
            ]
            yield confusion[a, c], _likeliest((weights[0], weights[1]))
