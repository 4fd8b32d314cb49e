"""Merging: exact where the model is linear, harmless to its inputs, and refused where it makes no sense."""

import copy

import torch
from facts import raises
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


def test_merge_of_linear_models_multiplies_distributions():
    one, other, x = linear(0), linear(1), torch.randn(5, 3, dtype=torch.float64)
    weights = torch.tensor([0.3, 0.7], dtype=torch.float64)
    got = merge([one, other], [0.3, 0.7])(x).log_softmax(-1)
    want = merged_logps(torch.stack([m(x).log_softmax(-1) for m in (one, other)]), weights)
    torch.testing.assert_close(got, want)


def test_merge_of_model_with_itself_is_same_model():
    model = tiny_model("nano", TOKENIZER, seed=1)
    ids = torch.arange(6, 14)[None]
    torch.testing.assert_close(merge([model, model], [0.4, 0.6])(ids).logits, model(ids).logits)


def test_merge_leaves_inputs_unchanged():
    models = [tiny_model("nano", TOKENIZER, seed=seed) for seed in (1, 2)]
    before = copy.deepcopy([m.state_dict() for m in models])
    merged = merge(models, [0.5, 0.5])
    with torch.no_grad():
        for parameter in merged.parameters():
            parameter.zero_()
    for model, state in zip(models, before, strict=True):
        for name, tensor in model.state_dict().items():
            assert torch.equal(tensor, state[name])


def test_merge_with_negative_weight_removes_change():
    start, tuned = linear(0), linear(1)
    undone = merge([tuned, tuned, start], [1.0, -1.0, 1.0])
    torch.testing.assert_close(undone.weight, start.weight)


def test_merge_takes_counters_from_first_model():
    one, other = nn.BatchNorm1d(2), nn.BatchNorm1d(2)
    other.num_batches_tracked += 7
    assert int(merge([one, other], [0.5, 0.5]).num_batches_tracked) == 0


def test_merge_different_architectures_is_error():
    with raises(UserError, argument="weight", value=(5, 3), expected=(4, 3), problem="shape"):
        merge([nn.Linear(3, 4), nn.Linear(3, 5)], [0.5, 0.5])
    with raises(UserError, argument="bias", value=2, problem="missing"):
        merge([nn.Linear(3, 4), nn.Linear(3, 4, bias=False)], [0.5, 0.5])


def test_merge_bad_weights_are_errors():
    with raises(ValueError, argument="weights", value=1.5, expected=1):
        merge([linear(0), linear(1)], [1.0, 0.5])
    with raises(ValueError, argument="weights", value=1, expected=2):
        merge([linear(0), linear(1)], [1.0])
    with raises(ValueError, argument="weights", value=(1,), problem="shape"):
        weight_average(torch.zeros(2, 3), torch.tensor([1.0]))
    with raises(ValueError, value=1, problem="not finite"):
        weight_average(torch.tensor([[float("nan")]]), torch.tensor([1.0]))
    with raises(ValueError, argument="logps", value=(3,), problem="shape"):
        merged_logps(torch.zeros(3), torch.ones(1))
