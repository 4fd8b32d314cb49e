"""Agreement: other people's libraries, published examples, limits; and truth recovered from disagreement."""

import json
from pathlib import Path

import pytest
import torch
from facts import raises

from minirlhf.core.errors import ArgumentError
from minirlhf.core.randomness import generator
from minirlhf.equations import agreement
from minirlhf.feedback.annotators import dawid_skene, vote_fractions
from minirlhf_course.chapters.ch07_preference_data import equations as ch07

# What krippendorff 0.9, scikit-learn 1.9 and statsmodels 0.15 say of tables that were drawn at random.
PEERS = json.loads((Path(__file__).parent / "samples" / "agreement.json").read_text(encoding="utf-8"))["cases"]


def counts(labels, classes):
    return torch.stack([(labels == c).sum(-1) for c in range(classes)], -1).double()


@pytest.mark.parametrize("case", PEERS)
def test_kappa_and_alpha_agree_with_three_libraries(case):
    classes, whole, gaps = case["classes"], torch.tensor(case["labels"]), torch.tensor(case["with_gaps"])
    table = torch.zeros(classes, classes, dtype=torch.float64)
    for a, b in whole[:, :2].tolist():
        table[a, b] += 1
    assert float(ch07.cohen_kappa(table)) == pytest.approx(case["cohen"], abs=1e-12)
    assert float(ch07.fleiss_kappa(counts(whole, classes))) == pytest.approx(case["fleiss"], abs=1e-12)
    grades = torch.arange(classes).double()
    distances = {"nominal": 1 - torch.eye(classes).double(), "interval": (grades[:, None] - grades) ** 2}
    for level, distance in distances.items():
        found = float(ch07.krippendorff_alpha(counts(gaps, classes), distance))
        assert found == pytest.approx(case[level], abs=1e-12), level


def test_agreement_refuses_what_is_no_table_of_labels():
    with raises(ArgumentError, argument="counts", problem="sums"):
        ch07.fleiss_kappa(torch.tensor([[2.0, 1], [1, 1]]))
    with raises(ArgumentError, argument="distance", problem="diagonal"):
        ch07.krippendorff_alpha(torch.ones(3, 2), torch.ones(2, 2))
    with raises(ArgumentError, argument="counts", problem="no pair"):
        ch07.krippendorff_alpha(torch.eye(2), 1 - torch.eye(2))
    with raises(ArgumentError, argument="labels", expected=(-1, 1)):
        agreement.dawid_skene_update(torch.tensor([[2]]), torch.ones(1, 2) / 2)


def labelled(accuracies, items, *keys):
    """A truth of two equally frequent labels, and what annotators of these accuracies say."""
    rng = generator("dawid-skene", *keys)
    truth = torch.randint(2, (items,), generator=rng)
    right = torch.rand(items, len(accuracies), generator=rng) < torch.tensor(accuracies)
    return truth, torch.where(right, truth[:, None], 1 - truth[:, None])


def test_dawid_skene_weighs_annotators_and_inverts_a_contrarian():
    better = []
    for seed in range(5):
        truth, labels = labelled([0.95, 0.8, 0.65, 0.55, 0.2], 500, seed)
        found = dawid_skene(labels, 2)
        majority = (vote_fractions(labels, 2).argmax(-1) == truth).double().mean()
        better.append(float((found.posterior.argmax(-1) == truth).double().mean() - majority))
        accuracy = found.accuracy
        assert int(accuracy.argmin()) == 4 and float(accuracy[4]) < 0.4
    assert min(better) > 0.02


def test_vote_shares_ignore_missing_labels():
    labels = torch.tensor([[0, -1], [-1, -1]])
    torch.testing.assert_close(vote_fractions(labels, 2), torch.tensor([[1.0, 0], [0.5, 0.5]]).double())


def test_dawid_skene_accuracy_is_the_expected_share_of_right_labels():
    _, labels = labelled([0.9, 0.7, 0.6], 80, "accuracy")
    labels[:30] = 1  # so that the two labels are not equally frequent
    found = dawid_skene(labels, 2, smoothing=0.0, max_steps=2000)
    right = found.posterior[:, :, None] * torch.nn.functional.one_hot(labels, 2).mT
    torch.testing.assert_close(found.accuracy, right.sum((0, 1)) / len(labels), atol=1e-6, rtol=0)


def test_dawid_skene_runs_max_steps_with_smoothing():
    """A round is an update and Bayes' rule; without a limit it goes on until neither changes anything."""
    _, labels = labelled([0.9, 0.7, 0.4], 60, "rounds")
    labels[:25] = 1  # so that the two labels are not equally frequent
    posterior = vote_fractions(labels, 2)
    for steps in (1, 2):
        prior, confusion = agreement.dawid_skene_update(labels, posterior, smoothing=0.3)
        posterior = agreement.dawid_skene_posterior(labels, prior.log(), confusion.log())
        torch.testing.assert_close(dawid_skene(labels, 2, smoothing=0.3, max_steps=steps).posterior, posterior)
    rest = dawid_skene(labels, 2, smoothing=0.3, max_steps=5000)
    prior, confusion = agreement.dawid_skene_update(labels, rest.posterior, smoothing=0.3)
    again = agreement.dawid_skene_posterior(labels, prior.log(), confusion.log())
    torch.testing.assert_close(again, rest.posterior, atol=2e-8, rtol=0)
