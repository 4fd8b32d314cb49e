"""Reward models as sequence classifiers of ``transformers``, there and back."""

import json

import pytest
import torch
import transformers
from facts import raises

from minirlhf.core.errors import UserError
from minirlhf.data import chat
from minirlhf.models import checkpoints
from minirlhf.models.classifiers import as_classifier
from minirlhf.models.heads import RewardModel, ValueModel
from minirlhf.models.loading import load_folder
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import word_tokenizer

WORDS = word_tokenizer([f"w{i}" for i in range(20)])
SIZES = {
    "vocab_size": len(WORDS),
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}
KINDS = {
    "Llama": lambda: tiny_model("nano", WORDS),
    "Qwen2": lambda: transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**SIZES, num_key_value_heads=2)),
    "GPT2": lambda: transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=len(WORDS), n_embd=16, n_layer=2, n_head=2)
    ),
}


def rows():
    """Padded on the right, as a classifier of transformers expects; no padding token within."""
    ids = torch.randint(6, len(WORDS), (4, 7), generator=torch.Generator().manual_seed(1))
    mask = (torch.arange(7) < torch.tensor([7, 3, 5, 1])[:, None]).long()
    return torch.where(mask.bool(), ids, WORDS.pad_token_id), mask


def judge(kind):
    torch.manual_seed(0)
    model = RewardModel.from_causal_lm(KINDS[kind](), seed=1).eval()
    with torch.no_grad():
        model.head.bias.fill_(0.7)
    return model


@pytest.mark.parametrize("kind", KINDS)
def test_as_classifier_and_back_keep_scores(kind, tmp_path):
    model = judge(kind)
    plain, constant = as_classifier(model, WORDS)
    checkpoints.save(tmp_path / "plain", plain, WORDS)
    with checkpoints.quietly():
        opened, report = transformers.AutoModelForSequenceClassification.from_pretrained(
            tmp_path / "plain", output_loading_info=True
        )
    assert not report["missing_keys"] and not report["unexpected_keys"]
    ids, mask = rows()
    with torch.no_grad():
        ours, theirs = model(ids, mask), opened(input_ids=ids, attention_mask=mask).logits[:, 0]
        back = RewardModel.from_pretrained(tmp_path / "plain")(ids, mask)
    assert constant == pytest.approx(0.7)
    torch.testing.assert_close(ours - constant, theirs, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(back, theirs, atol=1e-6, rtol=1e-6)


def test_reward_model_of_classifier_that_pads_with_end_token(tmp_path, monkeypatch):
    """As TRL and Qwen have it: our own padding token gets a row of the model, and no score moves."""
    monkeypatch.setattr(chat, "PAD", "<filler>")  # a token that these words do not have
    plain, _ = as_classifier(judge("Qwen2"), WORDS)
    plain.save_pretrained(tmp_path / "plain")
    WORDS.save_pretrained(tmp_path / "plain")
    about = json.loads((tmp_path / "plain" / "tokenizer_config.json").read_text())
    about["pad_token"] = about["eos_token"]
    (tmp_path / "plain" / "tokenizer_config.json").write_text(json.dumps(about))
    model, tokenizer = RewardModel.load_with_tokenizer(tmp_path / "plain")
    assert tokenizer.pad_token_id == len(WORDS) == model.backbone.get_input_embeddings().num_embeddings - 1
    ids, mask = rows()
    ids = torch.where(mask.bool(), ids, tokenizer.pad_token_id)
    with torch.no_grad():
        for row, real in zip(ids, mask.bool(), strict=True):
            alone = plain(input_ids=row[real][None]).logits[0]
            torch.testing.assert_close(model(ids, mask)[(ids == row).all(-1)][:1], alone, atol=1e-6, rtol=1e-6)


def test_load_folder_refuses_classifier_and_missing_tokenizer(tmp_path):
    plain, _ = as_classifier(judge("Qwen2"), WORDS)
    checkpoints.save(tmp_path / "plain", plain, WORDS)
    with raises(UserError, argument="model", expected="language model"):
        load_folder(tmp_path / "plain")
    KINDS["Qwen2"]().save_pretrained(tmp_path / "bare")
    with raises(UserError, argument="tokenizer", file=str(tmp_path / "bare"), problem="missing"):
        load_folder(tmp_path / "bare")


def test_reward_model_from_encoder_classifier_is_error(tmp_path):
    config = transformers.BertConfig(**SIZES, num_labels=1)
    checkpoints.save(tmp_path / "bert", transformers.BertForSequenceClassification(config))
    with raises(UserError, value="BertForSequenceClassification", problem="head"):
        RewardModel.from_pretrained(tmp_path / "bert")


def test_as_classifier_and_reward_model_refuse_other_heads(tmp_path):
    mean = RewardModel.from_causal_lm(KINDS["Llama"](), pooling="mean")
    with raises(UserError, argument="pooling", value="mean", expected="last"):
        as_classifier(mean, WORDS)
    config = transformers.LlamaConfig(**SIZES, num_labels=3)
    checkpoints.save(tmp_path / "three", transformers.LlamaForSequenceClassification(config))
    with raises(UserError, argument="num_labels", value=3, expected=1):
        RewardModel.from_pretrained(tmp_path / "three")
    plain, _ = as_classifier(judge("Llama"), WORDS)
    checkpoints.save(tmp_path / "plain", plain)
    with raises(UserError, value="classifier", expected="value"):
        ValueModel.from_pretrained(tmp_path / "plain")
