"""Scalar heads: right whichever side is padded, on several architectures, through files."""

import json

import pytest
import torch
import transformers
from facts import raises

from minirlhf.core.errors import UserError
from minirlhf.models.heads import RewardModel, ValueModel
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import word_tokenizer

TOKENIZER = word_tokenizer([f"w{i}" for i in range(20)])
LENGTHS = [9, 4, 1, 6]


def llama():
    return tiny_model("nano", TOKENIZER, seed=3)


def gpt2():
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=26, n_embd=16, n_layer=2, n_head=2, n_positions=32, initializer_range=0.3
    )
    return transformers.GPT2LMHeadModel(config).eval()


def mistral():
    torch.manual_seed(0)
    config = transformers.MistralConfig(
        vocab_size=26, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, sliding_window=4, initializer_range=0.3, max_position_embeddings=32,
    )  # fmt: skip
    return transformers.MistralForCausalLM(config).eval()


@pytest.fixture(scope="module", params=[llama, gpt2, mistral], ids=lambda f: f.__name__)
def causal_lm(request):
    return request.param()


def sequences():
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(6, 26, (n,), generator=generator) for n in LENGTHS]


def padded(rows, left):
    """Each row shifted by its own number of columns: ``left[i]`` columns of padding before it, the rest after."""
    width = max(LENGTHS) + 3
    ids, mask = torch.zeros(len(rows), width, dtype=torch.long), torch.zeros(len(rows), width, dtype=torch.long)
    for i, row in enumerate(rows):
        start = left(width - len(row))
        ids[i, start : start + len(row)], mask[i, start : start + len(row)] = row, 1
    return ids, mask


SIDES = {"left": lambda spare: spare, "right": lambda spare: 0, "both": lambda spare: spare // 2}


def by_hand(model, row):
    """The scores of one unpadded row: hidden states times the head's weights."""
    hidden = model.backbone(row[None]).last_hidden_state[0]
    return hidden @ model.head.weight[0] + model.head.bias[0]


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("pooling", ["last", "mean"])
def test_reward_model_does_not_depend_on_padding(causal_lm, side, pooling):
    model = RewardModel.from_causal_lm(causal_lm, pooling=pooling).eval()
    with torch.no_grad():
        model.head.bias.fill_(0.3)
        rewards = model(*padded(sequences(), SIDES[side]))
        scores = [by_hand(model, row) for row in sequences()]
    expected = torch.stack([s[-1] if pooling == "last" else s.mean() for s in scores])
    torch.testing.assert_close(rewards, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("side", SIDES)
def test_value_model_does_not_depend_on_padding(causal_lm, side):
    model = ValueModel.from_causal_lm(causal_lm).eval()
    with torch.no_grad():
        model.head.weight.copy_(torch.randn(model.head.weight.shape, generator=torch.Generator().manual_seed(1)))
        ids, mask = padded(sequences(), SIDES[side])
        values = model(ids, mask)
        assert values.shape == ids.shape and (values[mask == 0] == 0).all()
        for i, row in enumerate(sequences()):
            torch.testing.assert_close(values[i][mask[i].bool()], by_hand(model, row), rtol=0, atol=1e-5)


@pytest.mark.parametrize("side", ["left", "right"])
def test_reward_model_gradients_do_not_depend_on_padding(causal_lm, side):
    model = RewardModel.from_causal_lm(causal_lm).eval()
    model(*padded(sequences(), SIDES[side])).sum().backward()
    ours = torch.cat([p.grad.flatten() for p in model.parameters()])
    model.zero_grad()
    sum(by_hand(model, row)[-1] for row in sequences()).backward()
    theirs = torch.cat([p.grad.flatten() for p in model.parameters()])
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5 * float(theirs.abs().max()))


def test_value_model_starts_at_zero_and_reward_model_does_not(causal_lm):
    batch = padded(sequences(), SIDES["left"])
    assert (ValueModel.from_causal_lm(causal_lm)(*batch) == 0).all()
    assert (RewardModel.from_causal_lm(causal_lm)(*batch).abs() > 1e-4).all()


def test_reward_model_head_depends_on_seed_only(causal_lm, suite_seed):
    torch.manual_seed(suite_seed)
    first = RewardModel.from_causal_lm(causal_lm, seed=1)
    torch.manual_seed(suite_seed + 1)
    assert torch.equal(first.head.weight, RewardModel.from_causal_lm(causal_lm, seed=1).head.weight)
    assert not torch.equal(first.head.weight, RewardModel.from_causal_lm(causal_lm, seed=2).head.weight)


def test_heads_from_causal_lm_copy_or_share_parameters(causal_lm):
    copied, shared = RewardModel.from_causal_lm(causal_lm), ValueModel.from_causal_lm(causal_lm, share=True)
    theirs = next(causal_lm.base_model.parameters())
    assert next(shared.backbone.parameters()) is theirs
    ours = next(copied.backbone.parameters())
    assert torch.equal(ours, theirs) and ours.data_ptr() != theirs.data_ptr()


@pytest.mark.parametrize(
    "make", [lambda lm: RewardModel.from_causal_lm(lm, pooling="mean", seed=4), ValueModel.from_causal_lm]
)
def test_heads_save_and_load_same_bits(causal_lm, make, tmp_path):
    model = make(causal_lm).eval()
    with torch.no_grad():
        model.head.bias.fill_(1.5)
    model.save_pretrained(tmp_path)
    TOKENIZER.save_pretrained(tmp_path)
    loaded, tokenizer = type(model).load_with_tokenizer(tmp_path)
    assert tokenizer.get_vocab() == TOKENIZER.get_vocab()
    assert loaded.description() == model.description()
    for (name, a), (_, b) in zip(model.state_dict().items(), loaded.state_dict().items(), strict=True):
        assert torch.equal(a, b), name
    batch = padded(sequences(), SIDES["left"])
    assert torch.equal(loaded.eval()(*batch), model(*batch))
    backbone = transformers.AutoModel.from_pretrained(tmp_path)
    assert torch.equal(next(backbone.parameters()), next(model.backbone.parameters())), "an ordinary folder to others"


def test_heads_from_pretrained_of_bad_folder_is_error(tmp_path):
    with raises(UserError, argument="head.json", expected="reward", problem="missing"):
        RewardModel.from_pretrained(tmp_path)
    ValueModel.from_causal_lm(llama()).save_pretrained(tmp_path)
    with raises(UserError, argument="kind", value="value", expected="reward"):
        RewardModel.from_pretrained(tmp_path)
    whole = (tmp_path / "head.safetensors").read_bytes()
    (tmp_path / "head.safetensors").write_bytes(whole[:-3])
    with raises(UserError, file=str(tmp_path), problem="unreadable"):
        ValueModel.from_pretrained(tmp_path)
    (tmp_path / "head.json").write_text(json.dumps({"kind": "value"}))
    with raises(UserError, file=str(tmp_path / "head.json"), problem="unreadable"):
        ValueModel.from_pretrained(tmp_path)


def test_heads_bad_arguments_are_errors():
    with raises(UserError, argument="pooling", value="lost", expected="last"):
        RewardModel.from_causal_lm(llama(), pooling="lost")
    with pytest.raises(TypeError, match="Linear"):
        RewardModel.from_causal_lm(torch.nn.Linear(2, 2))
    with raises(ValueError, argument="attention_mask", value=[1], problem="empty"):
        RewardModel.from_causal_lm(llama())(torch.full((2, 3), 6), torch.tensor([[1, 1, 1], [0, 0, 0]]))
