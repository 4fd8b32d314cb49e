"""Where an exercise asks for a function of the library, its solution and the library agree on the same inputs."""

from types import SimpleNamespace

import pytest
import torch
from plan import of_chapter, own_seed

from minirlhf.core import provenance
from minirlhf.equations import estimators, preference_losses
from minirlhf.equations.preference_losses import PairLogps
from minirlhf_course.classroom import exercise as sources
from minirlhf_course.classroom.side_by_side import solution
from minirlhf_course.ledger.registry import Draw

ROOT = provenance.ROOT / "exercises"


def agrees_on_losses_without_reference(answer, draw):
    lengths = torch.arange(1, 6), torch.tensor([4, 1, 3, 9, 2])
    sums = [draw.logps(5) * n for n in lengths]
    pair = PairLogps(*sums, chosen_lengths=lengths[0], rejected_lengths=lengths[1])
    for beta, gamma in ((2.0, 0.5), (0.3, 0.0)):
        yield answer.simpo(*sums, *lengths, beta, gamma), preference_losses.simpo(pair, beta=beta, gamma=gamma)
        yield answer.orpo(*sums, *lengths, beta), preference_losses.orpo(pair, beta=beta)


def agrees_on_pass_at_k(answer, draw):
    n = 2 + draw.permutation(40)[:6]
    c = torch.stack([x % (m + 1) for x, m in zip(draw.permutation(40)[:6], n, strict=True)])
    for k in (1, 2):
        yield answer.pass_at_k(n, c, k), estimators.pass_at_k(n, c, k=k)


AGREEMENTS = {
    "14.8": agrees_on_losses_without_reference,
    "19.9": agrees_on_pass_at_k,
}


@pytest.mark.parametrize("number", [of_chapter(number[:2], number, id=number) for number in AGREEMENTS])
def test_solution_agrees_with_library(number):
    (exercise,) = sources.load(ROOT, [number])
    answer = SimpleNamespace(**solution(exercise, "ada"))
    pairs = list(AGREEMENTS[number](answer, Draw(own_seed(exercise.id), "library")))
    assert pairs
    for candidate, library in pairs:
        torch.testing.assert_close(torch.as_tensor(candidate).double(), torch.as_tensor(library).double())
