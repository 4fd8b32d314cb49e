"""Likelihood, temperature and truncation: definitions, limits, invariances, extreme inputs, agreement with transformers."""

import math

import pytest
import torch
from transformers.generation.logits_process import MinPLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from minirlhf.core.logprobs import token_entropies
from minirlhf.equations.language import (
    kept_mass,
    min_p_logits,
    nll,
    perplexity,
    response_logps,
    temperature_softmax,
    top_k_logits,
    top_p_logits,
)
from minirlhf.ledger.registry import Draw

RULES = [
    pytest.param(lambda x: top_k_logits(x, top_k=3), id="top-k"),
    pytest.param(lambda x: top_p_logits(x, top_p=0.7), id="top-p"),
    pytest.param(lambda x: min_p_logits(x, min_p=0.2), id="min-p"),
]


@pytest.fixture(params=range(4))
def draw(request, fresh_seed):
    return Draw("language", fresh_seed, request.param)


def close(a, b, atol=1e-12):
    torch.testing.assert_close(a, b, rtol=0, atol=atol)


def f64(*numbers):
    return torch.tensor(numbers, dtype=torch.float64)


# -- sequences ---------------------------------------------------------------------------------------------------


def test_a_response_written_out():
    """Prompt, two tokens, padding: log π(1|prompt) + log π(2|prompt, 1)."""
    probs = f64([0.1, 0.6, 0.3], [0.5, 0.25, 0.25], [0.2, 0.2, 0.6], [0.9, 0.05, 0.05])
    ids, mask = torch.tensor([[0, 1, 2, 0]]), torch.tensor([[False, True, True, False]])
    close(response_logps(probs.log()[None], ids, mask), f64(math.log(0.6) + math.log(0.25)))


@pytest.mark.parametrize("extra", [(2, 0), (0, 2)], ids=["left", "right"])
def test_padding_does_not_matter(draw, extra):
    """Neither its side nor what stands in it, NaN included: not for the value, not for the gradient of the rest."""
    logits, ids = draw.normal(2, 4, 3).requires_grad_(), torch.tensor([[0, 1, 2, 1], [0, 2, 2, 0]])
    mask = torch.tensor([[False, True, True, True], [False, False, True, True]])
    expected = response_logps(logits, ids, mask)
    padded = [torch.nn.functional.pad(x, extra) for x in (ids, mask)]
    wide = torch.nn.functional.pad(logits, (0, 0, *extra), value=math.nan)
    got = response_logps(wide, *padded)
    close(got, expected)
    close(torch.autograd.grad(got.sum(), logits)[0], torch.autograd.grad(expected.sum(), logits)[0])


def test_temperature_belongs_to_the_log_probability(draw):
    logits, ids = draw.normal(1, 3, 4), torch.tensor([[0, 3, 1]])
    mask = torch.tensor([[False, True, True]])
    probs = temperature_softmax(logits, temperature=0.7)[0]
    close(response_logps(logits, ids, mask, temperature=0.7), (probs[0, 3] * probs[1, 1]).log()[None])


def test_the_perplexity_of_a_corpus_is_not_the_mean_of_perplexities():
    logps, mask = f64([math.log(0.5)] * 4, [math.log(0.1), 0.0, 0.0, 0.0]), torch.tensor([[1, 1, 1, 1], [1, 0, 0, 0]])
    close(perplexity(logps, mask), f64(2.0, 10.0))
    whole = perplexity(logps.view(1, -1), mask.view(1, -1))
    close(whole, f64(2.0 ** (4 / 5) * 10.0 ** (1 / 5)))
    assert whole.item() < 6.0  # the mean of the two


def test_likelihood_ignores_padding(draw):
    mask = draw.mask(3, 5)
    logps = draw.logps(3, 5)
    noisy = torch.where(mask, logps, math.nan)
    for f in (nll, perplexity):
        close(f(noisy, mask), f(logps, mask))
        close(f(noisy, mask.long()), f(logps, mask))


@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 1e-5), (torch.bfloat16, 0.1)])
def test_likelihood_in_lower_precision(draw, dtype, error):
    """Relative errors: five tokens of up to 4 nats, summed in the dtype given."""
    logps, mask = draw.logps(4, 5), torch.ones(4, 5, dtype=torch.bool)
    for f in (nll, perplexity):
        exact = f(logps, mask)
        assert f(logps.to(dtype), mask).dtype == dtype
        assert ((f(logps.to(dtype), mask).double() - exact).abs() / exact).max() < error


# -- temperature -------------------------------------------------------------------------------------------------


def test_temperature_one_changes_nothing(draw):
    logits = draw.normal(3, 5)
    close(temperature_softmax(logits, temperature=1.0), logits.softmax(-1))
    close(temperature_softmax(logits + 100.0, temperature=0.5), temperature_softmax(logits, temperature=0.5), 1e-11)


def test_the_limits_share_ties_and_keep_the_impossible_impossible():
    logits = f64(2.0, 2.0, 1.0, -math.inf)
    close(temperature_softmax(logits, temperature=0.0), f64(0.5, 0.5, 0.0, 0.0))
    close(temperature_softmax(logits, temperature=1e-3), f64(0.5, 0.5, 0.0, 0.0))
    close(temperature_softmax(logits, temperature=math.inf), f64(1, 1, 1, 0) / 3)
    close(temperature_softmax(logits, temperature=1e12), f64(1, 1, 1, 0) / 3)


def test_entropy_grows_with_the_temperature(draw):
    logits = draw.normal(6)
    grid = [0.0, 0.1, 0.5, 1.0, 2.0, 10.0, math.inf]
    entropies = [token_entropies(temperature_softmax(logits, temperature=t).log()).item() for t in grid]
    assert entropies == sorted(entropies)
    assert entropies[0] == 0.0
    assert entropies[-1] == pytest.approx(math.log(6))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("temperature", [0.0, 1e-6, 1.0, 1e6, math.inf])
def test_extreme_logits_stay_finite(dtype, temperature):
    logits = torch.tensor([[1e30, -1e30, 0.0], [-1e30, -1e30, -1e30], [3e4, 3e4, -math.inf]], dtype=dtype)
    probs = temperature_softmax(logits, temperature=temperature)
    assert probs.dtype == dtype
    assert probs.isfinite().all()
    close(probs.double().sum(-1), f64(1, 1, 1), 0.01)


# -- truncation --------------------------------------------------------------------------------------------------


def test_truncation_written_out():
    logits = f64(0.5, 0.25, 0.15, 0.1).log()
    kept = lambda cut: cut.isfinite().tolist()
    assert kept(top_k_logits(logits, top_k=2)) == [True, True, False, False]
    assert kept(top_p_logits(logits, top_p=0.4)) == [True, False, False, False]
    assert kept(top_p_logits(logits, top_p=0.6)) == [True, True, False, False]
    assert kept(top_p_logits(logits, top_p=0.8)) == [True, True, True, False]
    assert kept(min_p_logits(logits, min_p=0.4)) == [True, True, False, False]
    assert kept(min_p_logits(logits, min_p=0.25)) == [True, True, True, False]
    close(kept_mass(logits, top_p_logits(logits, top_p=0.8)), f64(0.9)[0])


@pytest.mark.parametrize("rule", RULES)
def test_kept_logits_are_untouched_and_order_does_not_matter(draw, rule):
    logits = draw.normal(3, 8)
    cut = rule(logits)
    kept = cut > -math.inf
    assert kept.any(-1).all()
    assert not kept.all()
    assert torch.equal(cut[kept], logits[kept])
    order = draw.permutation(8)
    assert torch.equal(rule(logits[:, order]), cut[:, order])
    assert torch.equal(rule(logits + 5.0) > -math.inf, kept)
    assert torch.equal(rule(logits.view(3, 1, 8))[:, 0], cut)
    assert (logits.masked_fill(~kept, math.inf).amin(-1) > logits.masked_fill(kept, -math.inf).amax(-1)).all()


@pytest.mark.parametrize(
    ("rule", "peer"),
    [
        (lambda x: top_k_logits(x, top_k=4), TopKLogitsWarper(4)),
        (lambda x: top_p_logits(x, top_p=0.8), TopPLogitsWarper(0.8)),
        (lambda x: top_p_logits(x, top_p=0.05), TopPLogitsWarper(0.05)),
        (lambda x: min_p_logits(x, min_p=0.1), MinPLogitsWarper(0.1)),
    ],
)
def test_the_same_tokens_as_transformers(draw, rule, peer):
    logits = draw.normal(20, 30, scale=2.0)
    assert torch.equal(rule(logits), peer(None, logits))


def test_top_k_breaks_ties_by_id():
    cut = top_k_logits(f64([1.0, 2.0, 2.0, 2.0], [0.0, 0.0, 0.0, 0.0]), top_k=2)
    assert cut.isfinite().tolist() == [[False, True, True, False], [True, True, False, False]]


def test_the_widest_settings_change_nothing(draw):
    logits = draw.normal(2, 6, scale=20.0)
    for cut in (top_k_logits(logits, top_k=6), top_k_logits(logits, top_k=99), top_p_logits(logits, top_p=1.0)):
        assert torch.equal(cut, logits)
    assert torch.equal(min_p_logits(logits, min_p=0.0), logits)
    close(kept_mass(logits, logits), torch.ones(2).double())


def test_the_narrowest_settings_are_greedy(draw):
    logits = draw.normal(2, 6)
    greedy = temperature_softmax(logits, temperature=0.0)
    for cut in (top_k_logits(logits, top_k=1), top_p_logits(logits, top_p=1e-9), min_p_logits(logits, min_p=1.0)):
        close(cut.softmax(-1), greedy)


def test_what_was_cut_before_stays_cut(draw):
    logits = top_k_logits(draw.normal(2, 6), top_k=4)
    for rule in (
        lambda x: top_k_logits(x, top_k=5),
        lambda x: top_p_logits(x, top_p=0.999999),
        lambda x: min_p_logits(x, min_p=1e-9),
    ):
        assert (rule(logits)[logits == -math.inf] == -math.inf).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rule", RULES)
def test_half_precision_decides_as_double_does(draw, rule, dtype):
    """The same numbers, stored in fewer bits: what is kept is decided in float32 at least."""
    logits = (torch.arange(40.0)[draw.permutation(40)] / 8).to(dtype)  # exact in bfloat16, no ties
    assert torch.equal(rule(logits).double(), rule(logits.double()))


def test_extreme_logits_are_truncated_without_nan():
    logits = torch.tensor([1e30, -1e30, 1e30 * (1 - 1e-6), -math.inf])
    for rule in (
        lambda x: top_k_logits(x, top_k=2),
        lambda x: top_p_logits(x, top_p=0.9),
        lambda x: min_p_logits(x, min_p=0.5),
    ):
        cut = rule(logits)
        assert cut[0] == 1e30
        assert kept_mass(logits, cut).item() == pytest.approx(1.0)


# -- bad input ---------------------------------------------------------------------------------------------------

LOGITS, IDS = torch.zeros(2, 3, 4), torch.zeros(2, 3, dtype=torch.long)
MASK = torch.tensor([[False, True, True], [False, False, True]])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: response_logps(LOGITS, IDS, MASK[:, 1:]), r"mask has shape \(2, 2\)"),
        (lambda: response_logps(LOGITS, IDS[:1], MASK), r"input_ids has shape \(1, 3\)"),
        (lambda: response_logps(LOGITS, IDS, torch.ones(2, 3)), "mask of shape .* first token"),
        (lambda: response_logps(LOGITS, IDS, torch.zeros(2, 3)), "mask of shape .* no sampled token"),
        (lambda: response_logps(LOGITS, IDS, MASK, temperature=0.0), "temperature"),
        (lambda: nll(torch.zeros(2), torch.ones(2, 3)), r"logps has shape \(2,\)"),
        (lambda: nll(torch.full((1, 2), math.nan), torch.ones(1, 2)), r"logps of shape \(1, 2\).*non-finite"),
        (lambda: perplexity(torch.zeros(2, 3), torch.tensor([[1, 1, 1], [0, 0, 0]])), r"row\(s\) \[1\]"),
        (lambda: temperature_softmax(torch.zeros(3), temperature=-1.0), "temperature = -1.0"),
        (lambda: temperature_softmax(torch.zeros(3), temperature=math.nan), "temperature = nan"),
        (lambda: temperature_softmax(torch.tensor(1.0), temperature=1.0), r"logits has shape \(\)"),
        (lambda: top_k_logits(torch.zeros(3), top_k=0), "top_k = 0"),
        (lambda: top_k_logits(torch.tensor([1.0, math.nan]), top_k=1), r"logits of shape \(2,\) holds 1"),
        (lambda: top_k_logits(torch.tensor([1.0, math.inf]), top_k=1), r"\+inf"),
        (lambda: top_p_logits(torch.zeros(3), top_p=0.0), "top_p = 0.0"),
        (lambda: top_p_logits(torch.zeros(3), top_p=1.1), "top_p = 1.1"),
        (lambda: top_p_logits(torch.full((2, 3), -math.inf), top_p=0.5), "no token is possible"),
        (lambda: min_p_logits(torch.zeros(3), min_p=-0.1), "min_p = -0.1"),
        (lambda: min_p_logits(torch.zeros(2, 0), min_p=0.1), r"logits has shape \(2, 0\)"),
        (lambda: kept_mass(torch.zeros(3), torch.zeros(2)), r"truncated_logits has shape \(2,\)"),
        (lambda: kept_mass(torch.tensor([1.0, 2.0]), torch.tensor([0.5, 1.0])), "differs from logits on a kept token"),
    ],
)
def test_bad_input_names_the_argument(call, message):
    with pytest.raises(ValueError, match=message):
        call()
