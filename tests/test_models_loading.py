"""Models by name: presets, folders, hub names; and every way in which that can go wrong, in one line each."""

import os
import socket

import pytest
import torch
import transformers
from architectures import ARCHITECTURES, build
from facts import raises
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers import models as algorithms

from minirlhf.core import hub
from minirlhf.core.errors import UserError
from minirlhf.models.forward import completion_logps
from minirlhf.models.heads import RewardModel
from minirlhf.models.loading import load_folder, load_model, resize_embeddings
from minirlhf.models.sampling import Sampling, sample
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import word_tokenizer

TOKENIZER = word_tokenizer([f"w{i}" for i in range(13)])  # 19 tokens, as many as the test models have


@pytest.fixture
def folder(tmp_path):
    """A sound folder as other tools write it: no manifest."""
    tiny_model("nano", TOKENIZER, seed=1).save_pretrained(tmp_path)
    TOKENIZER.save_pretrained(tmp_path)
    return tmp_path


def foreign_tokenizer(folder):
    """As many published ones are: its padding is its end-of-sequence token, and it has no template."""
    words = {"<unk>": 0, "</s>": 1} | {f"w{i}": 2 + i for i in range(17)}
    core = Tokenizer(algorithms.WordLevel(words, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=core, eos_token="</s>", pad_token="</s>")
    tokenizer.save_pretrained(folder)


def test_load_model_preset_is_tiny_model():
    model, tokenizer = load_model("nano", tokenizer=TOKENIZER, seed=4)
    assert tokenizer is TOKENIZER
    assert torch.equal(model.lm_head.weight, tiny_model("nano", TOKENIZER, seed=4).lm_head.weight)


@pytest.mark.parametrize("name", list(ARCHITECTURES))
def test_load_model_folder_of_any_architecture(name, tmp_path):
    saved = build(name)
    saved.save_pretrained(tmp_path)
    TOKENIZER.save_pretrained(tmp_path)
    for model, tokenizer in (load_model(str(tmp_path)), load_folder(tmp_path)):
        assert type(model) is type(saved) and len(tokenizer) == 19
        for (n, a), (_, b) in zip(model.state_dict().items(), saved.state_dict().items(), strict=True):
            assert torch.equal(a, b), n


@pytest.mark.parametrize("name", ["mirco", "./none", "/none/at/all", "a/b/c", "~/none"])
def test_load_model_misspelt_preset_or_path_does_not_ask_hub(name, monkeypatch):
    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", lambda *a, **k: pytest.fail("asked"))
    expected, problem = ("micro", "unknown") if name == "mirco" else (None, "missing")
    with raises(UserError, argument="model", value=name, expected=expected, problem=problem):
        load_model(name)


def test_load_model_unknown_hub_name_is_one_line():
    assert os.environ["HF_HUB_OFFLINE"] == "1"
    with raises(UserError, argument="model", value="someone/something", problem="unknown") as caught:
        load_model("someone/something")
    assert "\n" not in str(caught.value)


def test_load_model_tokenizer_is_for_presets_only(folder):
    with raises(UserError, argument="tokenizer", value="nano", problem="missing"):
        load_model("nano")
    with raises(UserError, argument="tokenizer", value=str(folder), problem="exclusive"):
        load_model(str(folder), tokenizer=TOKENIZER)


def test_load_model_folder_without_model_is_error(tmp_path, folder):
    empty = tmp_path / "empty"
    empty.mkdir()
    with raises(UserError, argument="config.json", file=str(empty), problem="missing"):
        load_model(str(empty))
    with raises(UserError, argument="model", value=str(folder / "config.json"), problem="missing"):
        load_model(str(folder / "config.json"))


@pytest.mark.parametrize("size", [0, 50, 5000])
def test_load_folder_weights_cut_short_is_error(folder, size):
    os.truncate(folder / "model.safetensors", size)
    with raises(UserError, argument="model", file=str(folder), problem="unreadable") as caught:
        load_folder(folder)
    assert "\n" not in str(caught.value)


def test_load_folder_broken_config_is_error(folder):
    for text in ('{"model_type": "unheard_of"}', "{"):
        (folder / "config.json").write_text(text)
        with raises(UserError, argument="model", file=str(folder), problem="unreadable"):
            load_folder(folder)


def test_load_folder_does_not_open_pickled_weights(folder):
    model = tiny_model("nano", TOKENIZER)
    (folder / "model.safetensors").unlink()
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    with raises(UserError, argument="model", file=str(folder), problem="unreadable"):
        load_folder(folder)


def test_load_folder_refuses_reward_model_and_backbone(tmp_path):
    RewardModel.from_causal_lm(build("Llama")).save_pretrained(tmp_path / "reward")
    with raises(UserError, argument="model", expected="language model", file=str(tmp_path / "reward")):
        load_folder(tmp_path / "reward")
    backbone = build("Llama").model
    backbone.save_pretrained(tmp_path / "backbone")
    TOKENIZER.save_pretrained(tmp_path / "backbone")
    with raises(UserError, argument="weights", value=["lm_head.weight"], problem="missing"):
        load_folder(tmp_path / "backbone")


def test_load_folder_without_tokenizer_is_error(folder):
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").unlink()
    with raises(UserError, argument="tokenizer", file=str(folder), problem="missing"):
        load_folder(folder)


@pytest.mark.parametrize("name", ["Llama", "GPT2", "Phi"])
def test_load_folder_completes_foreign_tokenizer_and_embeddings(name, tmp_path):
    """Refused as it is; completed on request, with an embedding for the new padding token; usable then."""
    build(name).save_pretrained(tmp_path)
    foreign_tokenizer(tmp_path)
    with raises(UserError, argument="tokenizer", value=["pad_token", "chat_template"], problem="duplicate"):
        load_folder(tmp_path)
    model, tokenizer = load_folder(tmp_path, complete_tokenizer=True)
    assert len(tokenizer) == 20 == model.get_input_embeddings().weight.shape[0] == model.config.vocab_size
    for layer in (model.get_input_embeddings(), model.get_output_embeddings()):
        torch.testing.assert_close(layer.weight[19], layer.weight[:19].mean(0), rtol=0, atol=1e-6)
    rollout = sample(
        model,
        [tokenizer("w1 w2")["input_ids"], tokenizer("w3")["input_ids"]],
        sampling=Sampling(max_completion_length=6),
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        seed=0,
    )
    assert completion_logps(model, rollout.input_ids, rollout.attention_mask, rollout.mask.shape[1]).isfinite().all()


def test_fit_vocabulary_keeps_spare_rows():
    model = build("Llama")
    resize_embeddings(model, word_tokenizer(["a"]))
    assert model.get_input_embeddings().weight.shape[0] == 19


def test_load_model_unreachable_hub_is_not_retried(monkeypatch):
    """The hub's client would try five times, for most of a minute."""
    from huggingface_hub import constants

    modes = []

    def refuse(*args, **options):
        modes.append(constants.HF_HUB_OFFLINE)
        raise OSError("not there")

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", refuse)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    for reachable in (False, True):
        monkeypatch.setattr(hub, "_is_reachable", lambda endpoint, answer=reachable: answer)
        with raises(UserError, argument="model", value="some/model"):
            load_model("some/model")
    assert modes == [True, False] and constants.HF_HUB_OFFLINE is False


def test_hub_closed_port_is_unreachable(monkeypatch):
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{server.getsockname()[1]}"
        assert not hub._is_reachable(endpoint)
        server.listen()
        assert hub._is_reachable(endpoint)
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    assert hub._is_reachable(endpoint)
