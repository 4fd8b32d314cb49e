"""Reward models as sequence classifiers of ``transformers``, there and back."""

import pytest
import torch
import transformers

from minirlhf.core.errors import UserError
from minirlhf.models import checkpoints
from minirlhf.models.classifiers import as_classifier
from minirlhf.models.heads import RewardModel, ValueModel
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
def test_the_same_scores_there_and_back(kind, tmp_path):
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


def test_an_encoder_scores_another_place_and_is_refused(tmp_path):
    config = transformers.BertConfig(**SIZES, num_labels=1)
    checkpoints.save(tmp_path / "bert", transformers.BertForSequenceClassification(config))
    with pytest.raises(UserError, match="BertForSequenceClassification does not score by one linear layer at the last"):
        RewardModel.from_pretrained(tmp_path / "bert")


def test_what_cannot_go_is_refused(tmp_path):
    mean = RewardModel.from_causal_lm(KINDS["Llama"](), pooling="mean")
    with pytest.raises(UserError, match="pooling 'mean' cannot be kept"):
        as_classifier(mean, WORDS)
    config = transformers.LlamaConfig(**SIZES, num_labels=3)
    checkpoints.save(tmp_path / "three", transformers.LlamaForSequenceClassification(config))
    with pytest.raises(UserError, match="classifier of 3 labels"):
        RewardModel.from_pretrained(tmp_path / "three")
    plain, _ = as_classifier(judge("Llama"), WORDS)
    checkpoints.save(tmp_path / "plain", plain)
    with pytest.raises(UserError, match="a sequence classifier; a value model is needed"):
        ValueModel.from_pretrained(tmp_path / "plain")
