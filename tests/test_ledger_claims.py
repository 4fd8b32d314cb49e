"""Generic claims: every labelled function keeps its promises on the inputs of its own checks, and each promise can be broken."""

import pytest
import torch

from minirlhf.core.equation import equation
from minirlhf.core.validate import MASK, sampled, takes, under_mask
from minirlhf.equations.preference_losses.records import PairLogps
from minirlhf_course.chapters import load_checks
from minirlhf_course.ledger import claims, pages
from minirlhf_course.ledger.claims import Call

LEDGER = load_checks()
LABELLED = sorted(
    {pages.unwrapped(f): None for homes in pages.homes().values() for f in homes},
    key=lambda f: (f.__module__, f.__name__),
)


@pytest.fixture(scope="module")
def recorded(suite_seed):
    """What the checks hand to each function under test, on a fresh seed and on fixed ones."""
    calls = claims.record(LEDGER.checks.values(), [suite_seed, 0, 1, 2])
    return {pages.unwrapped(f): found for f, found in calls.items()}


@pytest.mark.slow
@pytest.mark.parametrize(
    "function", [pytest.param(f, id=f"{f.__module__.removeprefix('minirlhf.')}.{f.__name__}") for f in LABELLED]
)
def test_broken_is_empty_for_labelled_function(function, recorded, suite_seed):
    """A check is handed the function itself, and on its inputs all generic claims hold."""
    # Of the divergence that this one differentiates nothing is left in a recorded call.
    assert any(map(claims.is_applicable, recorded[function])) == (function.__name__ != "fisher_vector_product")
    assert claims.violated_claims(recorded[function], suite_seed) == []


# -- each promise can be broken ----------------------------------------------------------------------------------


def kept(x, mask):
    """``x²``, 0 outside the mask."""
    return torch.where(mask, x, 0.0).square()


def unmasked_gradient(x, mask):
    """The same, but for the gradient."""
    return torch.where(mask, x.square(), 0.0)


def unmasked(x, mask):
    """A mean over all."""
    return torch.where(mask, x.nan_to_num(), 0.0).mean(-1)


def not_zero(x, mask):
    """1 outside."""
    return torch.where(mask, x, 1.0)


def next_column(x, mask):
    """The next column, whether anybody sampled it or not."""
    inside = torch.where(mask, x, 0.0)
    return torch.where(mask, inside.roll(-1, 1), 0.0)


def by_width(x, mask):
    """Divided by the width."""
    return torch.where(mask, x, 0.0).sum(-1) / x.shape[1]


@equation(gradient=())
def constant(x, mask):
    """Declared without a gradient, which flows."""
    return torch.where(mask, x, 0.0).square()


def detached(x, mask):
    """``x²``, and nobody says that it is held still."""
    return torch.where(mask, x, 0.0).detach().square()


@equation(gradient=("x",))
def half(x, mask):
    """One factor is held still."""
    return torch.where(mask, x * x.detach(), torch.zeros(()))


def in_place(x, mask):
    """Zeros outside."""
    with torch.no_grad():
        x[~mask] = 0.0
    return x.square()


@takes(x="... N")
def across_rows(x):
    """Along the wrong axis."""
    return x.softmax(0)


X = torch.tensor([[0.3, -1.2, 0.7], [1.1, 0.4, 2.0]], dtype=torch.float64)
M = torch.tensor([[True, True, True], [True, True, False]])


@pytest.mark.parametrize(
    ("function", "promise", "kind", "argument"),
    [
        (unmasked_gradient, "mask", "gradient", "x"),
        (unmasked, "mask", "column", None),
        (not_zero, "mask", "not 0", None),
        (next_column, "mask", "column", None),
        (by_width, "mask", "column", None),
        (constant, "gradient", "flows", "x"),
        (detached, "gradient", "derivative", "x"),
        (half, "gradient", "derivative", "x"),
        (in_place, "inputs", "changed", "x"),
    ],
)
def test_broken_names_the_promise_that_is_not_kept(function, promise, kind, argument):
    arguments = {"x": X.masked_fill(~M, 5.0), "mask": M}
    found = claims.violated_claims([Call(function, arguments)] * 8, seed=1)
    assert (promise, kind, argument) in {(p.promise, p.kind, p.argument) for p in found}, found
    assert claims.violated_claims([Call(kept, arguments)] * 8, seed=1) == []


def test_broken_finds_dependent_rows_of_a_stack():
    assert claims.violated_claims([Call(across_rows, {"x": X[0]})], seed=0)[0].kind == "stack"
    assert claims.violated_claims([Call(takes(x="... N")(lambda x: x.softmax(-1)), {"x": X[0]})], seed=0) == []


def through_reference(pair):
    """The reference is part of the graph."""
    return pair.chosen - pair.ref_chosen


def test_broken_knows_which_fields_of_a_record_have_a_gradient():
    pair = PairLogps(*(torch.tensor([float(i), -1.0]) for i in range(4)))
    [found] = claims.violated_claims([Call(through_reference, {"pair": pair})], seed=0)
    assert (found.kind, found.argument) == ("flows", "ref_chosen")
    assert claims.violated_claims([Call(lambda pair: pair.margins, {"pair": pair})], seed=0) == []


def test_keywords_lists_those_that_no_check_varies():
    def function(x, *, beta, ddof=1, flag=False, delta=None):
        return beta * x

    calls = [Call(function, {"x": X, "beta": b, "ddof": 0, "flag": f}) for b, f in ((1.0, True), (2.0, False))]
    assert claims.keywords(function, calls) == {"delta": []}
    assert claims.keywords(function, calls[:1]) == {"beta": [1.0], "delta": []}
    assert claims.keywords(function, calls[1:]) == {"beta": [2.0], "flag": [], "delta": []}


@equation(gradient=("x",))
@takes(mask=MASK, x=under_mask(), y=sampled(gradient=False))
def declared(x, y, mask):
    return torch.where(mask, x, 0.0) * y


def test_broken_is_empty_where_takes_declares_what_holds():
    assert claims.violated_claims([Call(declared, {"x": X, "y": X.flip(0), "mask": M})] * 4, seed=3) == []


def test_keywords_of_labelled_functions_are_all_varied(recorded):
    """Two values that are not the default, one of a flag and of ``ddof``."""
    missing = {f.__name__: claims.keywords(f, recorded[f]) for f in LABELLED}
    assert {name: found for name, found in missing.items() if found} == {}
