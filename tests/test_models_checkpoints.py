"""Checkpoints: the same bits back, whole or not at all, and nothing that was tampered with."""

import json
import os
import resource
import subprocess
import sys
import textwrap
import warnings

import pytest
import torch
from patience import finished

from minirlhf.core.errors import UserError
from minirlhf.models import checkpoints
from minirlhf.models.heads import RewardModel, ValueModel
from minirlhf.models.loading import load_folder
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import word_tokenizer

TOKENIZER = word_tokenizer([f"w{i}" for i in range(20)])
EXTRA = {
    "0.step": torch.tensor(3.0),
    "0.exp_avg": torch.randn(4, 3, generator=torch.Generator().manual_seed(0)).t(),
    "half": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
    "ids": torch.arange(5),
}
INFO = {"step": 3, "loss": 0.1 + 0.2, "nested": {"list": [1, None, "ü"]}}


@pytest.fixture(scope="module")
def model():
    return tiny_model("nano", TOKENIZER, seed=1)


def save_step(run, step, model=None):
    return checkpoints.save(checkpoints.step_folder(run, step), model, extra_json={"step": step})


def same_weights(a, b):
    pairs = zip(a.state_dict().items(), b.state_dict().items(), strict=True)
    return all(n == m and torch.equal(x, y) for (n, x), (m, y) in pairs)


def flip_a_bit(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


# -- there and back ----------------------------------------------------------------------------------------------


def test_everything_comes_back_bit_for_bit(model, tmp_path):
    critic = ValueModel.from_causal_lm(model)
    folder = checkpoints.save(
        tmp_path / "a" / "b", model, TOKENIZER, extra_tensors=EXTRA, extra_json=INFO, parts={"critic": critic}
    )
    loaded = checkpoints.load(folder)
    assert loaded.info == INFO and loaded.tensors.keys() == EXTRA.keys()
    for name, tensor in EXTRA.items():
        assert loaded.tensors[name].dtype == tensor.dtype and torch.equal(loaded.tensors[name], tensor), name
    again, tokenizer = load_folder(folder)
    assert same_weights(again, model) and tokenizer.get_vocab() == TOKENIZER.get_vocab()
    assert again.lm_head.weight is again.model.embed_tokens.weight, "still tied"
    assert same_weights(ValueModel.from_pretrained(folder / "critic"), critic)


def test_nothing_is_pickled(model, tmp_path):
    folder = checkpoints.save(tmp_path / "a", model, TOKENIZER, extra_tensors=EXTRA, extra_json=INFO)
    for path in folder.rglob("*"):
        assert path.suffix in {".json", ".jinja", ".safetensors"}, path.name
        assert not path.read_bytes().startswith((b"\x80", b"PK")), f"{path.name} looks like a pickle"


def test_weights_into_an_existing_model(model, tmp_path):
    folder = checkpoints.save(tmp_path / "lm", model)
    other = tiny_model("nano", TOKENIZER, seed=2)
    parameter = other.lm_head.weight
    checkpoints.restore_weights(other, folder)
    assert same_weights(other, model) and other.lm_head.weight is parameter, "in place: an optimizer still holds them"
    reward, fresh = RewardModel.from_causal_lm(model, seed=3), RewardModel.from_causal_lm(other, seed=4)
    checkpoints.restore_weights(fresh, checkpoints.save(tmp_path / "reward", reward))
    assert same_weights(fresh, reward)
    with pytest.raises(UserError, match="do not fit this LlamaForCausalLM"):
        checkpoints.restore_weights(tiny_model("nano", word_tokenizer(["a"])), folder)


def test_no_progress_bars(model, tmp_path, capfd):
    load_folder(checkpoints.save(tmp_path / "a", model, TOKENIZER))
    assert capfd.readouterr() == ("", "")


def test_an_older_checkpoint_is_replaced(model, tmp_path):
    checkpoints.save(tmp_path / "a", model, extra_json={"n": 1})
    checkpoints.save(tmp_path / "a", extra_json={"n": 2})
    assert checkpoints.load(tmp_path / "a").info == {"n": 2}
    assert [p.name for p in tmp_path.iterdir()] == ["a"] and not (tmp_path / "a" / "config.json").exists()


def test_a_folder_of_another_kind_is_not_replaced(tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("words")
    with pytest.raises(UserError, match="exists and is not a checkpoint"):
        checkpoints.save(tmp_path / "thesis", extra_json={})
    assert (tmp_path / "thesis" / "chapter.txt").read_text() == "words" and len(list(tmp_path.iterdir())) == 1


# -- damage ------------------------------------------------------------------------------------------------------


DAMAGE = {
    "a bit of the weights": (lambda f: flip_a_bit(f / "model.safetensors"), "model.safetensors was altered"),
    "the weights cut short": (
        lambda f: os.truncate(f / "model.safetensors", 1000),
        "model.safetensors has another size",
    ),
    "a bit of the state": (lambda f: flip_a_bit(f / "state.safetensors"), "state.safetensors was altered"),
    "a file gone": (lambda f: (f / "config.json").unlink(), "config.json is missing"),
    "a file added": (lambda f: (f / "pytorch_model.bin").write_bytes(b"\x80"), "pytorch_model.bin was added"),
    "a setting changed": (
        lambda f: (f / "state.json").write_text((f / "state.json").read_text().replace("5", "6")),
        "state.json was altered",
    ),
    "no manifest": (lambda f: (f / "manifest.json").unlink(), "no manifest.json"),
    "half a manifest": (lambda f: os.truncate(f / "manifest.json", 100), "manifest.json is unreadable"),
    "an empty manifest": (lambda f: (f / "manifest.json").write_text("[]"), "manifest.json is unreadable"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_checkpoint_is_refused_and_the_one_before_used(kind, model, tmp_path):
    harm, complaint = DAMAGE[kind]
    save_step(tmp_path, 4, model), save_step(tmp_path, 5, model)
    folder = checkpoints.step_folder(tmp_path, 5)
    assert checkpoints.damage(folder) is None
    harm(folder)
    assert complaint in (checkpoints.damage(folder) or "")
    with pytest.raises(UserError, match="damaged checkpoint"):
        checkpoints.load(folder)
    with pytest.warns(UserWarning, match="step-000005: damaged.*using the one before"):
        assert checkpoints.load_latest(tmp_path).info == {"step": 4}


def test_every_checkpoint_damaged(tmp_path):
    for step in (1, 2):
        (save_step(tmp_path, step) / "state.json").unlink()
    with (
        pytest.warns(UserWarning),
        pytest.raises(UserError, match=r"every checkpoint is damaged \(step-000002, step-000001\)"),
    ):
        checkpoints.load_latest(tmp_path)


def test_a_damaged_model_does_not_load(model, tmp_path):
    folder = checkpoints.save(tmp_path / "lm", model, TOKENIZER)
    flip_a_bit(folder / "model.safetensors")
    with pytest.raises(UserError, match="damaged checkpoint"):
        load_folder(folder)
    folder = checkpoints.save(tmp_path / "reward", RewardModel.from_causal_lm(model))
    flip_a_bit(folder / "head.safetensors")
    with pytest.raises(UserError, match="damaged checkpoint"):
        RewardModel.from_pretrained(folder)


def test_hidden_files_of_desktops_are_ignored(tmp_path):
    folder = save_step(tmp_path, 1)
    (folder / ".DS_Store").write_bytes(b"x")
    assert checkpoints.damage(folder) is None


# -- a run -------------------------------------------------------------------------------------------------------


def test_the_latest_step_counts_as_a_number(tmp_path):
    assert checkpoints.load_latest(tmp_path) is None and checkpoints.load_latest(tmp_path / "none") is None
    for step in (9, 10, 1_000_000, 999_999):
        save_step(tmp_path, step)
    assert checkpoints.steps(tmp_path) == [9, 10, 999_999, 1_000_000]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert checkpoints.load_latest(tmp_path).info == {"step": 1_000_000}


def test_prune(tmp_path):
    for step in (1, 2, 3):
        save_step(tmp_path, step)
    (tmp_path / "checkpoints" / ".step-000004.99.partial").mkdir()
    checkpoints.prune(tmp_path, keep=2)
    assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir()) == ["step-000002", "step-000003"]
    with pytest.raises(ValueError, match="keep=0"):
        checkpoints.prune(tmp_path, keep=0)


def test_missing_folder(tmp_path):
    with pytest.raises(UserError, match="no such checkpoint folder"):
        checkpoints.load(tmp_path / "none")


# -- interrupted and out of space --------------------------------------------------------------------------------


KILLED = """
    import os, signal, sys
    import torch
    from minirlhf.models import checkpoints
    from minirlhf.models.tokenizers import word_tokenizer

    tokenizer = word_tokenizer(["a", "b"])
    tensors = {"x": torch.zeros(1000)}

    def save(run, name, step):
        folder = checkpoints.step_folder(run, name)
        checkpoints.save(folder, tokenizer, extra_tensors=tensors, extra_json={"step": step}, parts={"part": tokenizer})

    def kill_at(event_number, run):
        "Die at this file operation below the run's folder (Python reports each to its audit hooks)."
        seen = 0
        def hook(event, args):
            nonlocal seen
            if event in ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir") and any(run in str(a) for a in args):
                seen += 1
                if seen == event_number:
                    os.kill(os.getpid(), signal.SIGKILL)
        sys.addaudithook(hook)

    def kill_everywhere(run, name, allowed):
        save(run, 1, 1)
        save(run, 2, 2)
        kills = half_written = 0
        while True:
            child = os.fork()
            if child == 0:
                kill_at(kills + 1, run)
                save(run, name, 3)
                os._exit(0)
            _, status = os.waitpid(child, 0)
            for step in checkpoints.steps(run):
                assert checkpoints.damage(checkpoints.step_folder(run, step)) is None
            newest = checkpoints.load_latest(run).info["step"]
            if status == 0:
                assert newest == 3
                return kills, half_written
            assert os.WTERMSIG(status) == signal.SIGKILL and newest in allowed
            kills += 1
            folder = os.path.join(run, "checkpoints")
            half_written += any(name.endswith(".partial") for name in os.listdir(folder))
            checkpoints.prune(run, keep=2)
            assert not any(name.endswith(".partial") for name in os.listdir(folder))
            if newest == 1:
                save(run, 2, 2)

    print(*kill_everywhere(sys.argv[1], 3, (2, 3)), *kill_everywhere(sys.argv[2], 2, (1, 2, 3)))
"""


@pytest.mark.slow
def test_killed_at_every_file_operation(tmp_path):
    """A save is killed at its first, second, third ... file operation until one comes through: a new one, a replacement.

    What is there by name is always whole. Between the two renames of a replacement there is nothing by that name.
    """
    command = [
        sys.executable,
        "-W",
        "error::UserWarning",
        "-c",
        textwrap.dedent(KILLED),
        tmp_path / "a",
        tmp_path / "b",
    ]
    done = finished(command, usually=6, stderr=subprocess.PIPE)
    assert done.returncode == 0, done.stderr[-2000:]
    counts = list(map(int, done.stdout.split()[-4:]))
    assert min(counts) >= 10, f"kills and half-written folders, new and replaced: {counts}; this shows little"


@pytest.fixture
def small_files_only():
    """No file may grow beyond the given size: the system's way to fail in the middle of a write, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("size", [0, 100, 5_000, 100_000])
def test_a_disk_that_is_full(size, model, tmp_path, small_files_only):
    checkpoints.save(tmp_path / "a", model, TOKENIZER, extra_json={"n": 1})
    tensors = {"large": torch.zeros(200_000)}
    small_files_only(size)
    for name in ("a", "b"):
        with pytest.raises(UserError, match=f"{name}: the checkpoint cannot be written"):
            checkpoints.save(tmp_path / name, model, TOKENIZER, extra_tensors=tensors)
    small_files_only(resource.RLIM_INFINITY)
    assert [p.name for p in tmp_path.iterdir()] == ["a"], "nothing half-written"
    assert checkpoints.load(tmp_path / "a").info == {"n": 1}, "and the older one is as it was"


def test_an_exception_leaves_nothing_behind(tmp_path):
    class Broken:
        def save_pretrained(self, folder):
            raise RuntimeError("own mistake")

    with pytest.raises(RuntimeError, match="own mistake"):
        checkpoints.save(tmp_path / "a", Broken())
    assert list(tmp_path.iterdir()) == []


def test_a_file_where_the_folder_should_be(tmp_path):
    (tmp_path / "file").write_text("x")
    for target in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(UserError, match="cannot be written"):
            checkpoints.save(target, extra_json={})
        with pytest.raises(UserError, match="cannot be written"):
            checkpoints.write_text_atomic(target / "x.json", "{}")
    assert (tmp_path / "file").read_text() == "x"


def test_small_files_whole_or_not_at_all(tmp_path, small_files_only):
    path = tmp_path / "new" / "config.json"
    checkpoints.write_text_atomic(path, json.dumps(INFO))
    small_files_only(100)
    with pytest.raises(UserError, match=r"config.json: cannot be written"):
        checkpoints.write_text_atomic(path, "x" * 1000)
    small_files_only(resource.RLIM_INFINITY)
    assert json.loads(path.read_text()) == INFO and [p.name for p in path.parent.iterdir()] == ["config.json"]
