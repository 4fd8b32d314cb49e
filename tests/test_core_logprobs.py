"""Token log-probabilities against the naive formula, in every dtype and at the edges."""

import math

import pytest
import torch
from facts import raises

from minirlhf.core.errors import ArgumentError
from minirlhf.core.logprobs import sequence_logps, token_entropies, token_logps
from minirlhf_course.ledger.registry import Draw


@pytest.fixture
def draw(suite_seed):
    return Draw("logprobs", suite_seed)


def ids(draw, rows, width, vocab):
    return (draw.uniform(rows, width) * vocab).long()


def naive(logits, input_ids, temperature=1.0):
    """What the docstring promises, one entry at a time."""
    rows, width, _ = logits.shape
    result = torch.zeros(rows, width - 1, dtype=torch.float64)
    for b in range(rows):
        for t in range(width - 1):
            scores = (logits[b, t].double() / temperature).tolist()
            top = max(scores)
            total = sum(math.exp(s - top) for s in scores)
            result[b, t] = scores[input_ids[b, t + 1]] - top - math.log(total)
    return result


@pytest.mark.parametrize("temperature", [1.0, 0.5, 3.0])
def test_token_logps_equal_the_naive_formula(draw, temperature):
    logits, tokens = draw.normal(3, 6, 11, scale=4.0), ids(draw, 3, 6, 11)
    torch.testing.assert_close(
        token_logps(logits, tokens, temperature), naive(logits, tokens, temperature), rtol=0, atol=1e-12
    )


def test_token_logps_have_the_gradient_of_log_softmax_and_gather(draw):
    logits, tokens, weight = draw.normal(2, 5, 7), ids(draw, 2, 5, 7), draw.normal(2, 4)
    ours, theirs = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    (weight * token_logps(ours, tokens, 0.7)).sum().backward()
    gathered = torch.log_softmax(theirs / 0.7, -1)[:, :-1].gather(-1, tokens[:, 1:, None]).squeeze(-1)
    (weight * gathered).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=0, atol=1e-12)
    assert (ours.grad[:, -1] == 0).all(), "the last position predicts nothing"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_token_logps_of_narrow_logits_are_computed_in_float32(draw, dtype):
    """Computed in float32: as exact as float32 allows for the logits given, however coarse these are."""
    logits, tokens = draw.normal(3, 6, 50, scale=4.0).to(dtype), ids(draw, 3, 6, 50)
    result = token_logps(logits, tokens)
    assert result.dtype == torch.float32
    torch.testing.assert_close(result.double(), naive(logits, tokens), rtol=0, atol=1e-5)
    assert token_entropies(logits).dtype == torch.float32


def test_token_logps_and_entropies_of_extreme_logits_are_finite(draw):
    logits = torch.tensor([1e4, -1e4, 0.0], dtype=torch.float32).expand(1, 3, 3)
    assert token_logps(logits, torch.tensor([[0, 0, 1]])).tolist() == [[0.0, -2e4]]
    assert token_entropies(logits).tolist() == [[0.0, 0.0, 0.0]]


def test_token_logps_and_entropies_ignore_excluded_tokens(draw):
    """A logit of −inf has probability 0 and takes part in nothing else, in value and gradient."""
    logits, tokens = draw.normal(2, 4, 5), ids(draw, 2, 4, 4)
    logits[..., 4] = -math.inf
    leaf = logits.clone().requires_grad_()
    torch.testing.assert_close(token_logps(leaf, tokens), token_logps(logits[..., :4], tokens))
    torch.testing.assert_close(token_entropies(leaf), token_entropies(logits[..., :4]))
    assert token_logps(logits, torch.full_like(tokens, 4)).eq(-math.inf).all()
    (token_logps(leaf, tokens).sum() + token_entropies(leaf, 0.5).sum()).backward()
    assert leaf.grad.isfinite().all()
    assert (leaf.grad[..., 4] == 0).all()


@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_token_entropies_are_the_expected_surprise(draw, temperature):
    logits = draw.normal(2, 3, 6, scale=2.0)
    p = (logits / temperature).exp()
    p = p / p.sum(-1, keepdim=True)
    torch.testing.assert_close(token_entropies(logits, temperature), -(p * p.log()).sum(-1))
    torch.testing.assert_close(token_entropies(torch.zeros(1, 8)), torch.tensor([math.log(8)]))


def test_sequence_logps_sum_the_sampled_tokens(draw):
    logps, mask = draw.logps(4, 6), draw.holed_mask(4, 6)
    mask[0, 0] = False
    logps[0, 0] = math.nan
    expected = [sum(logps[b, t].item() for t in range(6) if mask[b, t]) for b in range(4)]
    torch.testing.assert_close(sequence_logps(logps, mask), torch.tensor(expected, dtype=torch.float64))


def test_token_logps_name_a_bad_argument():
    logits = torch.zeros(2, 3, 5)
    with raises(ArgumentError, value=((2, 3, 5), (2, 4)), problem="shape"):
        token_logps(logits, torch.zeros(2, 4, dtype=torch.long))
    with raises(ArgumentError, value=((3, 5), (3,)), problem="shape"):
        token_logps(logits[0], torch.zeros(3, dtype=torch.long))
    for temperature in (0.0, -1.0, math.nan):
        with raises(ArgumentError, argument="temperature", value=temperature):
            token_logps(logits, torch.zeros(2, 3, dtype=torch.long), temperature)
