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
from facts import raises
from patience import finished

from minirlhf.core.errors import UserError
from minirlhf.core.folders import write_text_atomic
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


def test_checkpoints_load_returns_saved_bits(model, tmp_path):
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


def test_checkpoints_save_writes_no_pickle(model, tmp_path):
    folder = checkpoints.save(tmp_path / "a", model, TOKENIZER, extra_tensors=EXTRA, extra_json=INFO)
    for path in folder.rglob("*"):
        assert path.suffix in {".json", ".jinja", ".safetensors"}, path.name
        assert not path.read_bytes().startswith((b"\x80", b"PK")), f"{path.name} looks like a pickle"


def test_checkpoints_restore_weights_in_place(model, tmp_path):
    folder = checkpoints.save(tmp_path / "lm", model)
    other = tiny_model("nano", TOKENIZER, seed=2)
    parameter = other.lm_head.weight
    checkpoints.restore_weights(other, folder)
    assert same_weights(other, model) and other.lm_head.weight is parameter, "in place: an optimizer still holds them"
    reward, fresh = RewardModel.from_causal_lm(model, seed=3), RewardModel.from_causal_lm(other, seed=4)
    checkpoints.restore_weights(fresh, checkpoints.save(tmp_path / "reward", reward))
    assert same_weights(fresh, reward)
    with raises(UserError, expected="LlamaForCausalLM", file=str(folder), problem="mismatch"):
        checkpoints.restore_weights(tiny_model("nano", word_tokenizer(["a"])), folder)


def test_checkpoints_load_shows_no_progress_bar(model, tmp_path, capfd):
    load_folder(checkpoints.save(tmp_path / "a", model, TOKENIZER))
    assert capfd.readouterr() == ("", "")


def test_checkpoints_save_replaces_older_checkpoint(model, tmp_path):
    checkpoints.save(tmp_path / "a", model, extra_json={"n": 1})
    checkpoints.save(tmp_path / "a", extra_json={"n": 2})
    assert checkpoints.load(tmp_path / "a").info == {"n": 2}
    assert [p.name for p in tmp_path.iterdir()] == ["a"] and not (tmp_path / "a" / "config.json").exists()


def test_checkpoints_save_does_not_replace_other_folder(tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("words")
    with raises(UserError, file=str(tmp_path / "thesis"), problem="not writable"):
        checkpoints.save(tmp_path / "thesis", extra_json={})
    assert (tmp_path / "thesis" / "chapter.txt").read_text() == "words" and len(list(tmp_path.iterdir())) == 1


# -- damage ------------------------------------------------------------------------------------------------------


#: What is done to a folder, and the file and the kind of damage that is found.
DAMAGE = {
    "a bit of the weights": (lambda f: flip_a_bit(f / "model.safetensors"), "model.safetensors", "altered"),
    "the weights cut short": (lambda f: os.truncate(f / "model.safetensors", 1000), "model.safetensors", "size"),
    "a bit of the state": (lambda f: flip_a_bit(f / "state.safetensors"), "state.safetensors", "altered"),
    "a file gone": (lambda f: (f / "config.json").unlink(), "config.json", "missing"),
    "a file added": (lambda f: (f / "pytorch_model.bin").write_bytes(b"\x80"), "pytorch_model.bin", "added"),
    "a setting changed": (
        lambda f: (f / "state.json").write_text((f / "state.json").read_text().replace("5", "6")),
        "state.json",
        "altered",
    ),
    "no manifest": (lambda f: (f / "manifest.json").unlink(), "manifest.json", "missing"),
    "half a manifest": (lambda f: os.truncate(f / "manifest.json", 100), "manifest.json", "unreadable"),
    "an empty manifest": (lambda f: (f / "manifest.json").write_text("[]"), "manifest.json", "unreadable"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_checkpoints_damaged_is_refused_and_one_before_used(kind, model, tmp_path):
    harm, name, problem = DAMAGE[kind]
    save_step(tmp_path, 4, model), save_step(tmp_path, 5, model)
    folder = checkpoints.step_folder(tmp_path, 5)
    assert checkpoints.find_corruption(folder) is None
    harm(folder)
    assert name == checkpoints.find_corruption(folder).argument
    with raises(UserError, argument=name, file=str(folder), problem=problem):
        checkpoints.load(folder)
    with pytest.warns(UserWarning, match="step-000005"):
        assert checkpoints.load_latest(tmp_path).info == {"step": 4}


def test_checkpoints_load_latest_all_damaged_is_error(tmp_path):
    for step in (1, 2):
        (save_step(tmp_path, step) / "state.json").unlink()
    with pytest.warns(UserWarning), raises(UserError, value=["step-000002", "step-000001"], file=str(tmp_path)):
        checkpoints.load_latest(tmp_path)


def test_load_folder_and_reward_model_refuse_damaged_weights(model, tmp_path):
    folder = checkpoints.save(tmp_path / "lm", model, TOKENIZER)
    flip_a_bit(folder / "model.safetensors")
    with raises(UserError, argument="model.safetensors", file=str(folder), problem="altered"):
        load_folder(folder)
    folder = checkpoints.save(tmp_path / "reward", RewardModel.from_causal_lm(model))
    flip_a_bit(folder / "head.safetensors")
    with raises(UserError, argument="head.safetensors", file=str(folder), problem="altered"):
        RewardModel.from_pretrained(folder)


def test_checkpoints_damage_ignores_hidden_files(tmp_path):
    folder = save_step(tmp_path, 1)
    (folder / ".DS_Store").write_bytes(b"x")
    assert checkpoints.find_corruption(folder) is None


# -- a run -------------------------------------------------------------------------------------------------------


def test_checkpoints_load_latest_compares_steps_as_numbers(tmp_path):
    assert checkpoints.load_latest(tmp_path) is None and checkpoints.load_latest(tmp_path / "none") is None
    for step in (9, 10, 1_000_000, 999_999):
        save_step(tmp_path, step)
    assert checkpoints.steps(tmp_path) == [9, 10, 999_999, 1_000_000]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert checkpoints.load_latest(tmp_path).info == {"step": 1_000_000}


def test_checkpoints_prune_keeps_newest(tmp_path):
    for step in (1, 2, 3):
        save_step(tmp_path, step)
    (tmp_path / "checkpoints" / ".step-000004.99.partial").mkdir()
    checkpoints.prune(tmp_path, keep=2)
    assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir()) == ["step-000002", "step-000003"]
    with raises(ValueError, argument="keep", value=0):
        checkpoints.prune(tmp_path, keep=0)


def test_checkpoints_load_missing_folder_is_error(tmp_path):
    with raises(UserError, file=str(tmp_path / "none"), problem="missing"):
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
                assert checkpoints.find_corruption(checkpoints.step_folder(run, step)) is None
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
def test_checkpoints_save_killed_at_any_file_operation_leaves_whole_checkpoint(tmp_path):
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
def test_checkpoints_save_on_full_disk_leaves_nothing(size, model, tmp_path, small_files_only):
    checkpoints.save(tmp_path / "a", model, TOKENIZER, extra_json={"n": 1})
    tensors = {"large": torch.zeros(200_000)}
    small_files_only(size)
    for name in ("a", "b"):
        with raises(UserError, file=str(tmp_path / name), problem="not writable"):
            checkpoints.save(tmp_path / name, model, TOKENIZER, extra_tensors=tensors)
    small_files_only(resource.RLIM_INFINITY)
    assert [p.name for p in tmp_path.iterdir()] == ["a"], "nothing half-written"
    assert checkpoints.load(tmp_path / "a").info == {"n": 1}, "and the older one is as it was"


def test_checkpoints_save_exception_leaves_nothing(tmp_path):
    class Broken:
        def save_pretrained(self, folder):
            raise RuntimeError("own mistake")

    with pytest.raises(RuntimeError, match="own mistake"):
        checkpoints.save(tmp_path / "a", Broken())
    assert list(tmp_path.iterdir()) == []


def test_checkpoints_save_below_file_is_error(tmp_path):
    (tmp_path / "file").write_text("x")
    for target in (tmp_path / "file", tmp_path / "file" / "below"):
        with raises(UserError, file=str(target), problem="not writable"):
            checkpoints.save(target, extra_json={})
        with raises(UserError, file=str(target / "x.json"), problem="not writable"):
            write_text_atomic(target / "x.json", "{}")
    assert (tmp_path / "file").read_text() == "x"


def test_write_text_atomic_on_full_disk_keeps_older_file(tmp_path, small_files_only):
    path = tmp_path / "new" / "config.json"
    write_text_atomic(path, json.dumps(INFO))
    small_files_only(100)
    with raises(UserError, file=str(path), problem="not writable"):
        write_text_atomic(path, "x" * 1000)
    small_files_only(resource.RLIM_INFINITY)
    assert json.loads(path.read_text()) == INFO and [p.name for p in path.parent.iterdir()] == ["config.json"]
