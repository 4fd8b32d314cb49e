"""LoRA on every trainer: only the adapter learns, the base with the adapter off is the reference, a run resumes to the same bits."""

import copy
import importlib.util
import sys

import pytest
import torch
from facts import raises

from minirlhf import recipes
from minirlhf.core.errors import UserError
from minirlhf.data.chat import conversation, encode
from minirlhf.data.formats import Problem
from minirlhf.data.types import pair
from minirlhf.models import checkpoints
from minirlhf.models.adapters import AdapterOff, add_lora, copy_of_reference, is_adapted, merged, reference_of
from minirlhf.models.critics import new_critic
from minirlhf.models.forward import completion_logps
from minirlhf.models.heads import RewardModel
from minirlhf.models.loading import load_folder
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.recipes.offline import get_preference
from minirlhf.trainers.offline import OfflineConfig, train_offline
from minirlhf.trainers.online import OnlineConfig, train_online
from minirlhf.trainers.reward import RewardConfig, train_reward
from minirlhf.trainers.sft import SFTConfig, train_sft

# Not imported here: that takes seconds in every process, also in those that run none of these tests.
pytestmark = pytest.mark.skipif(importlib.util.find_spec("peft") is None, reason="needs the extra 'lora'")


@pytest.fixture(scope="module")
def tokenizer():
    return word_tokenizer(("one", "two", "three", "go", "stop"))


def adapted(tokenizer, head=False):
    model = tiny_model("nano", tokenizer, seed=3)
    return add_lora(RewardModel.from_causal_lm(model) if head else model, lora_r=4, seed=1)


def train(kind, model, tokenizer, steps, **run):
    """A few steps of one trainer."""
    settings = {"max_steps": steps, "learning_rate": 1e-2, "save_steps": 2}
    run = {"tokenizer": tokenizer, "quiet": True, **run}
    chat = lambda *texts: encode(tokenizer, conversation(*texts))
    chats = [chat("go", "one two"), chat("stop", "stop"), chat("two", "two three")]
    if kind == "sft":
        return train_sft(model, chats, SFTConfig(batch_size=2, **settings), pad_token_id=0, **run)
    if kind == "reward":
        pairs = [pair(chat("go", "one"), chat("go", "two")), pair(chat("stop", "two"), chat("stop", "one"))]
        return train_reward(model, pairs, RewardConfig(batch_size=2, **settings), pad_token_id=0, **run)
    if kind == "dpo":
        pairs = [pair(chat("go", "one"), chat("go", "two")), pair(chat("stop", "two"), chat("stop", "one two"))]
        config = OfflineConfig(batch_size=2, **settings)
        return train_offline(model, pairs, get_preference("dpo"), config, pad_token_id=0, **run)
    problems = [Problem(conversation(text)) for text in ("go", "stop", "go one")]
    config = OnlineConfig(batch_size=2, num_generations=4, max_completion_length=4, **settings)
    likes = lambda problems, texts: [float(text.split().count("two")) for text in texts]
    recipe = recipes.get(kind.split("-")[0]).with_(**({"shared": True} if "shared" in kind else {}))
    return train_online(model, problems, likes, recipe, config, **run)


def state(model):
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sft", "reward", "dpo", "grpo", "ppo", "ppo-shared"])
def test_lora_trains_adapter_only_and_resumes_to_same_bits(kind, tokenizer, tmp_path):
    head = kind == "reward"
    model = adapted(tokenizer, head)
    before = state(model)
    history = train(kind, model, tokenizer, 4, out=tmp_path / "whole")
    for name, tensor in state(model).items():
        learns = "lora_" in name or name.startswith("head.")
        assert learns or torch.equal(tensor, before[name]), f"{name} changed"
    assert any(not torch.equal(t, before[n]) for n, t in state(model).items() if "lora_B" in n)
    if kind in ("dpo", "grpo"):
        assert history["loss"][0] == pytest.approx(0.693147 if kind == "dpo" else 0.0, abs=1e-4)
    saved = tmp_path / "whole/checkpoints/step-000004"
    assert (saved / "adapter_model.safetensors").is_file() and not (saved / "model.safetensors").exists()
    torch.manual_seed(99)  # what else happens in the process is of no matter
    train(kind, adapted(tokenizer, head), tokenizer, 2, out=tmp_path / "parts")
    resumed = adapted(tokenizer, head)
    train(kind, resumed, tokenizer, 4, out=tmp_path / "parts", resume=True)
    files = [p.relative_to(saved) for p in saved.rglob("*.safetensors")]
    assert len(files) == {"reward": 3, "ppo": 4, "ppo-shared": 3}.get(kind, 2)
    for name in files:
        assert (saved / name).read_bytes() == (tmp_path / "parts/checkpoints/step-000004" / name).read_bytes(), name


def test_lora_reference_of_is_base_with_adapter_off(tokenizer):
    base = tiny_model("nano", tokenizer, seed=3)
    model = adapted(tokenizer)
    ids = torch.tensor([[4, 6, 7, 5, 8], [4, 7, 8, 5, 6]])
    wanted = completion_logps(base, ids, torch.ones_like(ids), 3)
    torch.testing.assert_close(completion_logps(model, ids, torch.ones_like(ids), 3), wanted)  # a fresh adapter is none
    train("sft", model, tokenizer, 3)
    assert not torch.allclose(completion_logps(model, ids, torch.ones_like(ids), 3), wanted, atol=1e-3)
    reference = reference_of(model)
    assert isinstance(reference, AdapterOff) and isinstance(copy_of_reference(model), AdapterOff)
    torch.testing.assert_close(completion_logps(reference, ids, torch.ones_like(ids), 3), wanted)
    assert any(p.requires_grad for p in model.parameters()), "asking the reference must not freeze the adapter"
    assert reference_of(base) is base and copy_of_reference(base) is not base


def test_lora_merged_equals_adapted_model(tokenizer, tmp_path):
    ids = torch.tensor([[4, 6, 7, 5, 8]])
    for head in (False, True):
        model = adapted(tokenizer, head)
        train("reward" if head else "sft", model, tokenizer, 3)
        plain = merged(model)
        assert is_adapted(model) and not is_adapted(plain) and merged(plain) is plain
        outputs = [m(ids, torch.ones_like(ids)) if head else m(ids).logits for m in (model, plain)]
        torch.testing.assert_close(*outputs, rtol=1e-4, atol=1e-5)
        checkpoints.save(tmp_path / str(head), plain, tokenizer)
        again = type(plain).from_pretrained(tmp_path / str(head))
        torch.testing.assert_close(
            again(ids, torch.ones_like(ids)) if head else again(ids).logits, outputs[1], rtol=1e-5, atol=1e-6
        )


def test_lora_new_critic_has_adapter_of_its_own(tokenizer):
    model = adapted(tokenizer)
    critic = new_critic(model, shared=False)
    assert is_adapted(critic) and is_adapted(model)
    learning = {name for name, p in critic.named_parameters() if p.requires_grad}
    assert learning and all("lora_" in name or name.startswith("head.") for name in learning)
    shared = {id(p) for p in model.parameters()} & {id(p) for p in critic.parameters()}
    assert not shared


def test_lora_restore_weights_of_other_rank_is_error(tokenizer, tmp_path):
    model = adapted(tokenizer)
    checkpoints.save(tmp_path / "a", model)
    other = add_lora(tiny_model("nano", tokenizer, seed=3), lora_r=2)
    with raises(UserError, expected="PeftModelForCausalLM", problem="mismatch"):
        checkpoints.restore_weights(other, tmp_path / "a")


@pytest.mark.parametrize("part", ["adapter_model.safetensors", "adapter_config.json"])
def test_lora_load_folder_refuses_damaged_adapter(part, tokenizer, tmp_path):
    """Before it is read: a changed description could name another base."""
    tiny_model("nano", tokenizer, seed=3).save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    base, _ = load_folder(tmp_path / "base")
    folder = checkpoints.save(tmp_path / "checkpoint", add_lora(base, lora_r=4))
    load_folder(folder)
    bytes_ = bytearray((folder / part).read_bytes())
    bytes_[-2] ^= 1
    (folder / part).write_bytes(bytes_)
    with raises(UserError, argument=part, file=str(folder), problem="altered"):
        load_folder(folder)


def test_add_lora_bad_numbers_and_missing_peft_are_errors(tokenizer, monkeypatch):
    model = tiny_model("nano", tokenizer, seed=3)
    for bad in (
        {"lora_r": 0},
        {"lora_r": 100_000},
        {"lora_r": 4, "lora_alpha": -1.0},
        {"lora_r": 4, "lora_dropout": 1.0},
    ):
        with raises(UserError, argument="lora_r", value=bad["lora_r"]):
            add_lora(copy.deepcopy(model), **bad)
    monkeypatch.setitem(sys.modules, "peft", None)
    with raises(UserError, argument="peft", expected="minirlhf[lora]"):
        add_lora(model, lora_r=4)
