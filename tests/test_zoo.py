"""The checkpoint cache and the zoo: trained once, found again, rebuilt when damaged, safe for two processes."""

import inspect
import os
import subprocess
import sys
import textwrap
from dataclasses import replace

import pytest
import torch
from patience import limit

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


UPDATE = loop.Loop.update


def builder(calls):
    def build():
        calls.append(1)
        tokenizer = word_tokenizer(("a", "b"))
        return tiny_model("nano", tokenizer, seed=len(calls)), tokenizer

    return build


def test_built_once_then_found(empty_cache):
    calls = []
    first = cache.cached("thing", {"steps": 3}, builder(calls))
    assert cache.cached("thing", {"steps": 3}, builder(calls)) == first and len(calls) == 1
    assert cache.cached("thing", {"steps": 4}, builder(calls)) != first and len(calls) == 2


def test_a_damaged_entry_is_built_again(empty_cache, capsys):
    calls = []
    folder = cache.cached("thing", {}, builder(calls))
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])
    assert cache.cached("thing", {}, builder(calls)) == folder and len(calls) == 2
    assert checkpoints.damage(folder) is None
    assert "model.safetensors has another size" in capsys.readouterr().err
    load_folder(folder)


def test_an_interrupted_build_leaves_nothing(empty_cache):
    def fails():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.cached("thing", {}, fails)
    calls = []
    cache.cached("thing", {}, builder(calls))
    assert len(calls) == 1


def test_a_cache_that_cannot_be_written_is_one_clear_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MINIRLHF_CACHE", str(tmp_path / "file"))
    with pytest.raises(UserError, match="the cache cannot be written"):
        cache.cached("thing", {}, builder([]))


def test_two_processes_that_start_at_once_train_once(empty_cache):
    program = textwrap.dedent(
        """
        import sys, time
        from minirlhf.models import cache
        from minirlhf.models.tiny import tiny_model
        from minirlhf.models.tokenizers import word_tokenizer
        def build():
            print("BUILDING", flush=True)
            time.sleep(1.0)
            tokenizer = word_tokenizer(("a", "b"))
            return tiny_model("nano", tokenizer), tokenizer
        print(cache.cached("thing", {"a": 1}, build))
        """
    )
    runs = [
        subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=dict(os.environ))
        for _ in range(2)
    ]
    outputs = [run.communicate(timeout=limit(usually=10))[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0]
    assert "".join(outputs).count("BUILDING") == 1
    assert outputs[0].splitlines()[-1] == outputs[1].splitlines()[-1]


# -- what makes an entry anew -------------------------------------------------------------------------------------


def keys():
    zoo.behaviour.cache_clear()
    return {name: cache.fingerprint(zoo.determinants(name)) for name in zoo.ENTRIES}


@pytest.fixture(scope="module")
def before():
    yield keys()
    zoo.behaviour.cache_clear()


def anew(before):
    after = keys()
    return {name for name in after if after[name] != before[name]}


EVERYTHING = set(zoo.ENTRIES)
JUDGE = {"assistant-reward"}
JUDGES = JUDGE | {"assistant-judge"}  # which learn from sampled replies


def scaled(function):
    return lambda *args, **options: 1.01 * function(*args, **options)


def fails(*args, **options):
    raise AssertionError("no entry of the zoo needs this")


@pytest.mark.parametrize(
    ("edits", "expected"),
    [
        pytest.param({(likelihood, "aggregate"): scaled(likelihood.aggregate)}, EVERYTHING, id="the SFT loss"),
        pytest.param(
            {(sft, "prediction_weights"): lambda mask: sft.token_mean(mask[:, 1:] | True)},
            EVERYTHING - {"phrasebook-base"},  # its pages are equally long, so every token is marked anyway
            id="a mask",
        ),
        pytest.param({(loop.Loop, "update"): scaled_rate}, EVERYTHING, id="the optimizer"),
        pytest.param({(reward, "bradley_terry_loss"): scaled(reward.bradley_terry_loss)}, JUDGE, id="the reward loss"),
        pytest.param({(pipeline, "sample"): other_seed(pipeline.sample)}, JUDGES, id="what is sampled"),
        pytest.param(
            {(recipes, "GRPO"): GRPO.with_(beta=0.7), (policy_losses, "ppo_clip"): fails}, set(), id="a recipe"
        ),
        pytest.param(
            dict.fromkeys(((pipeline, "train_online"), (pipeline, "align"), (likelihood, "mean_nll")), fails),
            set(),
            id="what no entry calls",
        ),
    ],
)
def test_what_trains_otherwise_is_made_anew_and_nothing_else(edits, expected, before, monkeypatch):
    for (owner, name), value in edits.items():
        monkeypatch.setattr(owner, name, value)
    assert anew(before) == expected


@pytest.mark.parametrize(
    ("edit", "expected"), [("\nSLIP = 0.5\n", {"shell-game-sft"}), ("  # a comment\n", set())], ids=["code", "comment"]
)
def test_the_module_of_its_world_belongs_to_an_entry(edit, expected, before, monkeypatch):
    source = inspect.getsource
    monkeypatch.setattr(zoo.inspect, "getsource", lambda m: source(m) + (edit if m is shell_game else ""))
    assert anew(before) == expected


def test_another_plan_counts_for_the_entry_and_for_what_starts_from_it(before, monkeypatch):
    base = zoo.ENTRIES["assistant-base"]
    monkeypatch.setitem(zoo.ENTRIES, "assistant-base", replace(base, plan=replace(base.plan, documents=4001)))
    assert anew(before) == {"assistant-base", "assistant-sft"} | JUDGES


def test_a_plan_with_a_recipe_is_known_by_its_values():
    plan = lambda **options: pipeline.RLPlan(GRPO.with_(**options))
    key = lambda plan: cache.fingerprint({"plan": plan})
    assert key(plan(beta=0.5)) == key(plan(beta=0.5)) != key(plan(beta=0.6))
    assert key(plan(beta=0.5)) != key(pipeline.RLPlan(DR_GRPO))
    assert key(pipeline.AlignPlan()) == key(pipeline.AlignPlan(get_preference("dpo").with_(beta=0.2)))
    assert {pipeline.RLPlan(), pipeline.RLPlan()} == {pipeline.RLPlan()} and hash(pipeline.AlignPlan())
    with pytest.raises(TypeError, match="cannot be part of a cache key"):
        key(plan(objective=lambda logps, old_logps, advantages, mask: logps))


def test_a_training_shows_itself(empty_cache, capsys, monkeypatch):
    """A module of notebooks that happens to be imported is no notebook."""
    pytest.importorskip("ipykernel")
    monkeypatch.delenv("MINIRLHF_NO_BAR", raising=False)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    short = SFTConfig(max_steps=2, batch_size=4)
    entry = zoo.Entry("two steps", "sort_digits", zoo._sft, pipeline.SFTPlan(8, short))
    monkeypatch.setitem(zoo.ENTRIES, "tiny", entry)
    zoo.load("tiny")
    said = capsys.readouterr()
    assert "zoo: training tiny once (two steps)" in said.err and "training tiny once:   0%|" in said.err
    assert "training tiny once: 2 steps in" in said.out
    zoo.load("tiny")
    assert capsys.readouterr() == ("", "")


def test_an_entry_is_trained_on_one_thread(empty_cache, monkeypatch):
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


def test_unknown_entries_name_the_nearest():
    with pytest.raises(UserError, match="did you mean 'assistant-sft'"):
        zoo.load("asistant-sft")
    with pytest.raises(TypeError, match="cannot be part of a cache key"):
        cache.fingerprint({"f": object()})


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(zoo.ENTRIES))
def test_every_entry_trains_and_loads_to_the_same_weights(name):
    model, tokenizer = zoo.load(name)
    again, _ = zoo.load(name)
    for a, b in zip(model.state_dict().values(), again.state_dict().values(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)
    assert tokenizer.pad_token_id != tokenizer.eos_token_id
    assert zoo.is_cached(name)
