"""The checkpoint cache and the zoo: trained once, found again, rebuilt when damaged, built once by two that ask at once."""

import functools
import inspect
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier
from types import SimpleNamespace

import pytest
import torch
from facts import raises

from minirlhf import recipes
from minirlhf.core.errors import UserError
from minirlhf.data.tasks import shell_game
from minirlhf.equations import policy_losses
from minirlhf.models import cache, checkpoints
from minirlhf.models.loading import load_folder
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.recipes import DR_GRPO, GRPO
from minirlhf.recipes.offline import get_preference
from minirlhf.stages import pipeline, zoo
from minirlhf.trainers import likelihood, loop, reward, sft
from minirlhf.trainers.sft import SFTConfig


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MINIRLHF_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def other_seed(sample):
    return lambda *args, seed, **options: sample(*args, seed=seed + 1, **options)


def scaled_rate(self, losses):
    """An update after which every weight is a hundredth too large."""
    metrics = UPDATE(self, losses)
    with torch.no_grad():
        for weight in self.trained:
            weight *= 1.01
    return metrics


UPDATE = loop.TrainingLoop.update


def builder(calls):
    def build():
        calls.append(1)
        tokenizer = word_tokenizer(("a", "b"))
        return tiny_model("nano", tokenizer, seed=len(calls)), tokenizer

    return build


def test_cached_builds_once(empty_cache):
    calls = []
    first = cache.cached("thing", {"steps": 3}, builder(calls))
    assert cache.cached("thing", {"steps": 3}, builder(calls)) == first and len(calls) == 1
    assert cache.cached("thing", {"steps": 4}, builder(calls)) != first and len(calls) == 2


def test_cached_rebuilds_damaged_entry(empty_cache, capsys):
    calls = []
    folder = cache.cached("thing", {}, builder(calls))
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])
    assert cache.cached("thing", {}, builder(calls)) == folder and len(calls) == 2
    assert checkpoints.find_corruption(folder) is None
    assert "model.safetensors" in capsys.readouterr().err
    load_folder(folder)


def test_cached_interrupted_build_leaves_nothing(empty_cache):
    def fails():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.cached("thing", {}, fails)
    calls = []
    cache.cached("thing", {}, builder(calls))
    assert len(calls) == 1


def test_cached_unwritable_folder_is_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MINIRLHF_CACHE", str(tmp_path / "file"))
    with raises(UserError, file=str(tmp_path / "file"), problem="not writable"):
        cache.cached("thing", {}, builder([]))


def test_cached_two_at_once_build_once(empty_cache):
    """Each opens the lock's file by itself, as two processes do."""
    calls, start = [], Barrier(2)

    def build():
        time.sleep(0.5)
        return builder(calls)()

    def find():
        start.wait()
        return cache.cached("thing", {"a": 1}, build)

    with ThreadPoolExecutor(2) as pool:
        first, second = (run.result() for run in [pool.submit(find), pool.submit(find)])
    assert first == second and len(calls) == 1


# -- what makes an entry anew -------------------------------------------------------------------------------------


def keys():
    return {name: cache.fingerprint(zoo.cache_key_inputs(name)) for name in zoo.ENTRIES}


@pytest.fixture(scope="module")
def before():
    """The key of every entry, and what the training of each does."""
    return keys(), {entry: zoo.behaviour(entry) for entry in zoo.ENTRIES.values()}


def changed(before):
    """The entries whose keys are others now."""
    after = keys()
    return {name for name in after if after[name] != before[0][name]}


@pytest.fixture
def same_training(before, monkeypatch):
    """What an entry's training does is not tried again; of an entry that was not there before, it is."""
    behaviour = zoo.behaviour
    monkeypatch.setattr(zoo, "behaviour", lambda entry: before[1].get(entry) or behaviour(entry))


EVERYTHING = set(zoo.ENTRIES)
JUDGE = {"assistant-reward"}
JUDGES = JUDGE | {"assistant-judge"}  # which learn from sampled replies


def scaled(function):
    return lambda *args, **options: 1.01 * function(*args, **options)


def fails(*args, **options):
    raise AssertionError("no entry of the zoo needs this")


UNUSED = ((policy_losses, "ppo_clip"), (pipeline, "train_online"), (pipeline, "align"), (likelihood, "mean_nll"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("edits", "expected"),
    [
        pytest.param(
            {(sft, "prediction_weights"): lambda mask: sft.token_mean(mask[:, 1:] | True)},
            EVERYTHING - {"phrasebook-base"},  # its pages are equally long, so every token is marked anyway
            id="a mask",
        ),
        pytest.param({(loop.TrainingLoop, "update"): scaled_rate}, EVERYTHING, id="the optimizer"),
        pytest.param({(reward, "reward_loss"): scaled(reward.reward_loss)}, JUDGE, id="the reward loss"),
        pytest.param({(pipeline, "sample"): other_seed(pipeline.sample)}, JUDGES, id="what is sampled"),
        pytest.param(
            {(recipes, "GRPO"): GRPO.with_(beta=0.7)} | dict.fromkeys(UNUSED, fails), set(), id="what no entry calls"
        ),
    ],
)
def test_zoo_key_changes_with_behaviour_of_training_only(edits, expected, before, monkeypatch):
    for (owner, name), value in edits.items():
        monkeypatch.setattr(owner, name, value)
    monkeypatch.setattr(zoo, "behaviour", functools.cache(zoo.behaviour.__wrapped__))
    assert changed(before) == expected


@pytest.mark.parametrize(
    ("edit", "expected"), [("\nSLIP = 0.5\n", {"shell-game-sft"}), ("  # a comment\n", set())], ids=["code", "comment"]
)
def test_zoo_key_changes_with_code_of_world_only(edit, expected, before, same_training, monkeypatch):
    source = inspect.getsource
    monkeypatch.setattr(zoo.inspect, "getsource", lambda m: source(m) + (edit if m is shell_game else ""))
    assert changed(before) == expected


def test_zoo_key_changes_with_plan_of_entry_and_parents(before, same_training, monkeypatch):
    base = zoo.ENTRIES["assistant-base"]
    monkeypatch.setitem(zoo.ENTRIES, "assistant-base", replace(base, plan=replace(base.plan, documents=4001)))
    assert changed(before) == {"assistant-base", "assistant-sft"} | JUDGES


def test_fingerprint_of_plan_is_that_of_its_values():
    plan = lambda **options: pipeline.RLPlan(GRPO.with_(**options))
    key = lambda plan: cache.fingerprint({"plan": plan})
    assert key(plan(beta=0.5)) == key(plan(beta=0.5)) != key(plan(beta=0.6))
    assert key(plan(beta=0.5)) != key(pipeline.RLPlan(DR_GRPO))
    assert key(pipeline.AlignPlan()) == key(pipeline.AlignPlan(get_preference("dpo").with_(beta=0.2)))
    assert {pipeline.RLPlan(), pipeline.RLPlan()} == {pipeline.RLPlan()} and hash(pipeline.AlignPlan())
    with pytest.raises(TypeError, match="lambda"):
        key(plan(objective=lambda logps, old_logps, advantages, mask: logps))


def test_zoo_load_shows_training_once(empty_cache, capsys, monkeypatch):
    """Where IPython is imported and no notebook runs, too."""
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: None))
    monkeypatch.delenv("MINIRLHF_NO_BAR", raising=False)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    short = SFTConfig(max_steps=2, batch_size=4)
    entry = zoo.Entry("two steps", "sort_digits", zoo._sft, pipeline.SFTPlan(8, short))
    monkeypatch.setitem(zoo.ENTRIES, "tiny", entry)
    zoo.load("tiny")
    said = capsys.readouterr()
    assert "tiny" in said.err and "(two steps)" in said.err and "0%|" in said.err, "a note and a bar"
    assert "tiny" in said.out and "2" in said.out, "what was trained, and how many steps"
    zoo.load("tiny")
    assert capsys.readouterr() == ("", "")


def test_zoo_load_trains_on_one_thread(empty_cache, monkeypatch):
    """Two would add in another order; and the caller's number of threads stands again behind it."""
    seen = []

    def stage(*args, **run):
        seen.append(torch.get_num_threads())
        return zoo._sft(*args, **run)

    entry = zoo.Entry("two steps", "sort_digits", stage, pipeline.SFTPlan(8, SFTConfig(max_steps=2, batch_size=4)))
    monkeypatch.setitem(zoo.ENTRIES, "tiny", entry)
    torch.set_num_threads(2)
    try:
        zoo.load("tiny", quiet=True)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    assert seen == [1, 1], "the look at what the training does, and the training"


def test_zoo_load_unknown_entry_names_nearest():
    with raises(UserError, value="asistant-sft", expected="assistant-sft"):
        zoo.load("asistant-sft")
    with pytest.raises(TypeError, match="object"):
        cache.fingerprint({"f": object()})


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=[pytest.mark.release] * (n == "phrasebook-base")) for n in sorted(zoo.ENTRIES)
    ],  # it takes longest
)
def test_zoo_load_every_entry_twice_gives_same_weights(name):
    model, tokenizer = zoo.load(name)
    again, _ = zoo.load(name)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))
    assert tokenizer.pad_token_id != tokenizer.eos_token_id
    assert zoo.is_cached(name)
