"""Tiny presets: sizes, tied embeddings, initial weights that depend on their seed and on nothing else."""

import pytest
import torch
from facts import raises

from minirlhf.core.errors import UserError
from minirlhf.models.tiny import INIT_STD, PRESETS, num_parameters, tiny_model
from minirlhf.models.tokenizers import word_tokenizer

WORDS = [f"w{i}" for i in range(90)]
TOKENIZER = word_tokenizer(WORDS)


@pytest.mark.parametrize("name, low, high", [("nano", 0.09e6, 0.12e6), ("micro", 0.75e6, 0.85e6), ("small", 4e6, 6e6)])
def test_tiny_model_has_size_of_preset(name, low, high):
    assert low < num_parameters(tiny_model(name, TOKENIZER)) < high


@pytest.mark.parametrize("name", ["nano", "micro"])
def test_tiny_model_ties_embeddings_and_takes_tokens_of_tokenizer(name):
    model = tiny_model(name, TOKENIZER)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert model.config.vocab_size == len(TOKENIZER)
    assert (model.config.eos_token_id, model.config.pad_token_id) == (TOKENIZER.eos_token_id, TOKENIZER.pad_token_id)
    assert model.dtype == torch.float32


def test_tiny_model_initial_weights_have_stated_spread():
    """Every matrix has the stated standard deviation (each has thousands of entries: 5 % is far outside the noise)."""
    model = tiny_model("micro", TOKENIZER, seed=5)
    for name, weight in model.named_parameters():
        if weight.dim() == 2 and "embed" not in name:
            assert abs(weight.std().item() / INIT_STD - 1) < 0.05, name


def test_tiny_model_depends_on_seed_only(suite_seed):
    torch.manual_seed(suite_seed)
    before = torch.get_rng_state()
    first = tiny_model("nano", TOKENIZER, seed=1)
    assert torch.equal(before, torch.get_rng_state()), "building a model must not move the global generator"
    torch.manual_seed(suite_seed + 1)
    again, other = tiny_model("nano", TOKENIZER, seed=1), tiny_model("nano", TOKENIZER, seed=2)
    for a, b in zip(first.parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b)
    assert not torch.equal(first.lm_head.weight, other.lm_head.weight)


def test_tiny_model_unknown_preset_names_nearest():
    with raises(UserError, argument="model preset", value="nanno", expected="nano"):
        tiny_model("nanno", TOKENIZER)
    assert sorted(PRESETS) == ["micro", "nano", "small"]
