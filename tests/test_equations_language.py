"""Likelihood, temperature and truncation: limits, ties, extremes, agreement with transformers, bad arguments."""

import math

import pytest
import torch
from facts import called, raises
from transformers.generation.logits_process import MinPLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from minirlhf.core.errors import ArgumentError
from minirlhf.equations.language import (
    min_p_logits,
    nll,
    perplexity,
    retained_mass,
    temperature_softmax,
    top_k_logits,
    top_p_logits,
)
from minirlhf_course.chapters.ch02_language_models.equations import completion_logp
from minirlhf_course.ledger.registry import Draw

RULES = [
    pytest.param(lambda x: top_k_logits(x, top_k=3), id="top-k"),
    pytest.param(lambda x: top_p_logits(x, top_p=0.7), id="top-p"),
    pytest.param(lambda x: min_p_logits(x, min_p=0.2), id="min-p"),
]


@pytest.fixture(params=range(2))
def draw(request, suite_seed):
    return Draw("language", suite_seed, request.param)


def close(a, b, atol=1e-12):
    torch.testing.assert_close(a, b, rtol=0, atol=atol)


def f64(*numbers):
    return torch.tensor(numbers, dtype=torch.float64)


# -- sequences ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 1e-5), (torch.bfloat16, 0.1)])
def test_nll_and_perplexity_in_lower_precision_stay_within_their_error(draw, dtype, error):
    """Relative errors: five tokens of up to 4 nats, summed in the dtype given."""
    logps, mask = draw.logps(4, 5), torch.ones(4, 5, dtype=torch.bool)
    for f in (nll, perplexity):
        exact = f(logps, mask)
        assert f(logps.to(dtype), mask).dtype == dtype
        assert ((f(logps.to(dtype), mask).double() - exact).abs() / exact).max() < error


# -- temperature -------------------------------------------------------------------------------------------------


def test_temperature_softmax_limits_share_ties_and_keep_impossible_tokens_impossible():
    logits = f64(2.0, 2.0, 1.0, -math.inf)
    close(temperature_softmax(logits, temperature=0.0), f64(0.5, 0.5, 0.0, 0.0))
    close(temperature_softmax(logits, temperature=1e-3), f64(0.5, 0.5, 0.0, 0.0))
    close(temperature_softmax(logits, temperature=math.inf), f64(1, 1, 1, 0) / 3)
    close(temperature_softmax(logits, temperature=1e12), f64(1, 1, 1, 0) / 3)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("temperature", [0.0, 1e-6, 1.0, 1e6, math.inf])
def test_temperature_softmax_of_extreme_logits_is_finite(dtype, temperature):
    logits = torch.tensor([[1e30, -1e30, 0.0], [-1e30, -1e30, -1e30], [3e4, 3e4, -math.inf]], dtype=dtype)
    probs = temperature_softmax(logits, temperature=temperature)
    assert probs.dtype == dtype
    assert probs.isfinite().all()
    close(probs.double().sum(-1), f64(1, 1, 1), 0.01)


# -- truncation --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "peer"),
    [
        (lambda x: top_k_logits(x, top_k=4), TopKLogitsWarper(4)),
        (lambda x: top_p_logits(x, top_p=0.8), TopPLogitsWarper(0.8)),
        (lambda x: top_p_logits(x, top_p=0.05), TopPLogitsWarper(0.05)),
        (lambda x: min_p_logits(x, min_p=0.1), MinPLogitsWarper(0.1)),
    ],
    ids=called,
)
def test_truncation_keeps_the_same_tokens_as_transformers(draw, rule, peer):
    logits = draw.normal(20, 30, scale=2.0)
    assert torch.equal(rule(logits), peer(None, logits))


def test_top_k_logits_break_ties_by_id():
    cut = top_k_logits(f64([1.0, 2.0, 2.0, 2.0], [0.0, 0.0, 0.0, 0.0]), top_k=2)
    assert cut.isfinite().tolist() == [[False, True, True, False], [True, True, False, False]]


def test_truncation_with_the_widest_settings_changes_nothing(draw):
    logits = draw.normal(2, 6, scale=20.0)
    for cut in (top_k_logits(logits, top_k=6), top_k_logits(logits, top_k=99), top_p_logits(logits, top_p=1.0)):
        assert torch.equal(cut, logits)
    assert torch.equal(min_p_logits(logits, min_p=0.0), logits)
    close(retained_mass(logits, logits), torch.ones(2).double())


def test_truncation_with_the_narrowest_settings_is_greedy(draw):
    logits = draw.normal(2, 6)
    greedy = temperature_softmax(logits, temperature=0.0)
    for cut in (top_k_logits(logits, top_k=1), top_p_logits(logits, top_p=1e-9), min_p_logits(logits, min_p=1.0)):
        close(cut.softmax(-1), greedy)


def test_truncation_keeps_cut_tokens_cut(draw):
    logits = top_k_logits(draw.normal(2, 6), top_k=4)
    for rule in (
        lambda x: top_k_logits(x, top_k=5),
        lambda x: top_p_logits(x, top_p=0.999999),
        lambda x: min_p_logits(x, min_p=1e-9),
    ):
        assert (rule(logits)[logits == -math.inf] == -math.inf).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rule", RULES)
def test_truncation_in_lower_precision_decides_as_float64(draw, rule, dtype):
    """The same numbers, stored in fewer bits: what is kept is decided in float32 at least."""
    logits = (torch.arange(40.0)[draw.permutation(40)] / 8).to(dtype)  # exact in bfloat16, no ties
    assert torch.equal(rule(logits).double(), rule(logits.double()))


def test_truncation_of_extreme_logits_gives_no_nan():
    logits = torch.tensor([1e30, -1e30, 1e30 * (1 - 1e-6), -math.inf])
    for rule in (
        lambda x: top_k_logits(x, top_k=2),
        lambda x: top_p_logits(x, top_p=0.9),
        lambda x: min_p_logits(x, min_p=0.5),
    ):
        cut = rule(logits)
        assert cut[0] == 1e30
        assert retained_mass(logits, cut).item() == pytest.approx(1.0)


# -- bad input ---------------------------------------------------------------------------------------------------

LOGITS, IDS = torch.zeros(2, 3, 4), torch.zeros(2, 3, dtype=torch.long)
MASK = torch.tensor([[False, True, True], [False, False, True]])


@pytest.mark.parametrize(
    ("call", "argument", "value"),
    [
        (lambda: completion_logp(LOGITS, IDS, MASK[:, 1:]), "mask", (2, 2)),
        (lambda: completion_logp(LOGITS, IDS[:1], MASK), "input_ids", (1, 3)),
        (lambda: completion_logp(LOGITS, IDS, MASK, temperature=0.0), "temperature", 0.0),
        (lambda: nll(torch.zeros(2), torch.ones(2, 3)), "logps", (2,)),
        (lambda: nll(torch.full((1, 2), math.nan), torch.ones(1, 2)), "logps", 2),
        (lambda: perplexity(torch.zeros(2, 3), torch.tensor([[1, 1, 1], [0, 0, 0]])), "mask", [1]),
        (lambda: temperature_softmax(torch.zeros(3), temperature=-1.0), "temperature", -1.0),
        (lambda: temperature_softmax(torch.zeros(3), temperature=math.nan), "temperature", math.nan),
        (lambda: temperature_softmax(torch.tensor(1.0), temperature=1.0), "logits", ()),
        (lambda: top_k_logits(torch.zeros(3), top_k=0), "top_k", 0),
        (lambda: top_k_logits(torch.tensor([1.0, math.nan]), top_k=1), "logits", 1),
        (lambda: top_k_logits(torch.tensor([1.0, math.inf]), top_k=1), "logits", 1),
        (lambda: top_p_logits(torch.zeros(3), top_p=0.0), "top_p", 0.0),
        (lambda: top_p_logits(torch.zeros(3), top_p=1.1), "top_p", 1.1),
        (lambda: top_p_logits(torch.full((2, 3), -math.inf), top_p=0.5), "logits", None),
        (lambda: min_p_logits(torch.zeros(3), min_p=-0.1), "min_p", -0.1),
        (lambda: min_p_logits(torch.zeros(2, 0), min_p=0.1), "logits", (2, 0)),
        (lambda: retained_mass(torch.zeros(3), torch.zeros(2)), "truncated_logits", (2,)),
        (lambda: retained_mass(torch.tensor([1.0, 2.0]), torch.tensor([0.5, 1.0])), "truncated_logits", None),
        (lambda: completion_logp(LOGITS, IDS, torch.ones(2, 3)), "mask", None),
    ],
    ids=called,
)
def test_language_names_a_bad_argument(call, argument, value):
    with raises(ArgumentError, argument=argument, value=value):
        call()
