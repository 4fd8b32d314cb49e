"""Merging: exact where the model is linear, harmless to its inputs, and refused where it makes no sense."""

import copy

import pytest
import torch
from torch import nn

from minirlhf.core.errors import UserError
from minirlhf.equations.merging import merged_logps, weight_average
from minirlhf.models.merging import merge
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import word_tokenizer

TOKENIZER = word_tokenizer([f"w{i}" for i in range(10)])


def linear(seed):
    torch.manual_seed(seed)
    return nn.Linear(3, 4).double()


def test_a_linear_model_multiplies_distributions():
    one, other, x = linear(0), linear(1), torch.randn(5, 3, dtype=torch.float64)
    weights = torch.tensor([0.3, 0.7], dtype=torch.float64)
    got = merge([one, other], [0.3, 0.7])(x).log_softmax(-1)
    want = merged_logps(torch.stack([m(x).log_softmax(-1) for m in (one, other)]), weights)
    torch.testing.assert_close(got, want)


def test_a_model_merged_with_itself_is_itself():
    model = tiny_model("nano", TOKENIZER, seed=1)
    ids = torch.arange(6, 14)[None]
    torch.testing.assert_close(merge([model, model], [0.4, 0.6])(ids).logits, model(ids).logits)


def test_the_models_are_left_alone():
    models = [tiny_model("nano", TOKENIZER, seed=seed) for seed in (1, 2)]
    before = copy.deepcopy([m.state_dict() for m in models])
    merged = merge(models, [0.5, 0.5])
    with torch.no_grad():
        for parameter in merged.parameters():
            parameter.zero_()
    for model, state in zip(models, before, strict=True):
        for name, tensor in model.state_dict().items():
            assert torch.equal(tensor, state[name])


def test_task_arithmetic_takes_a_change_away():
    start, tuned = linear(0), linear(1)
    undone = merge([tuned, tuned, start], [1.0, -1.0, 1.0])
    torch.testing.assert_close(undone.weight, start.weight)


def test_counters_are_taken_from_the_first():
    one, other = nn.BatchNorm1d(2), nn.BatchNorm1d(2)
    other.num_batches_tracked += 7
    assert int(merge([one, other], [0.5, 0.5]).num_batches_tracked) == 0


def test_different_architectures_are_refused():
    with pytest.raises(UserError, match="shape"):
        merge([nn.Linear(3, 4), nn.Linear(3, 5)], [0.5, 0.5])
    with pytest.raises(UserError, match="only one of them has the weight 'bias'"):
        merge([nn.Linear(3, 4), nn.Linear(3, 4, bias=False)], [0.5, 0.5])


def test_bad_weights_are_refused():
    with pytest.raises(ValueError, match=r"sum to 1\.5"):
        merge([linear(0), linear(1)], [1.0, 0.5])
    with pytest.raises(ValueError, match="2 models and 1 weights"):
        merge([linear(0), linear(1)], [1.0])
    with pytest.raises(ValueError, match=r"weights has shape \(1,\); expected \(K\) with K = 2"):
        weight_average(torch.zeros(2, 3), torch.tensor([1.0]))
    with pytest.raises(ValueError, match="non-finite"):
        weight_average(torch.tensor([[float("nan")]]), torch.tensor([1.0]))
    with pytest.raises(ValueError, match=r"logps has shape \(3,\)"):
        merged_logps(torch.zeros(3), torch.ones(1))
