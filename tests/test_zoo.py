"""The checkpoint cache and the zoo: trained once, found again, rebuilt when damaged, safe for two processes."""

import os
import subprocess
import sys
import textwrap
from dataclasses import replace

import pytest
import torch

from minirlhf.core.errors import UserError
from minirlhf.models import cache, checkpoints
from minirlhf.models.loading import load_folder
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.stages import zoo


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MINIRLHF_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


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
    outputs = [run.communicate(timeout=100)[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0]
    assert "".join(outputs).count("BUILDING") == 1
    assert outputs[0].splitlines()[-1] == outputs[1].splitlines()[-1]


def test_the_key_covers_plans_parents_and_code(monkeypatch):
    before = cache.fingerprint(zoo.determinants("assistant-sft"))
    base = zoo.ENTRIES["assistant-base"]
    changed = replace(base, plan=replace(base.plan, documents=7))
    monkeypatch.setitem(zoo.ENTRIES, "assistant-base", changed)
    assert cache.fingerprint(zoo.determinants("assistant-sft")) != before
    monkeypatch.setitem(zoo.ENTRIES, "assistant-base", base)
    assert cache.fingerprint(zoo.determinants("assistant-sft")) == before
    monkeypatch.setattr(zoo, "source_hash", lambda *names: "other code")
    assert cache.fingerprint(zoo.determinants("assistant-sft")) != before


def test_unknown_entries_name_the_nearest():
    with pytest.raises(UserError, match="did you mean 'assistant-sft'"):
        zoo.load("asistant-sft")
    with pytest.raises(TypeError, match="cannot be part of a cache key"):
        cache.fingerprint({"f": object()})


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(zoo.ENTRIES))
def test_every_entry_trains_and_loads_to_the_same_weights(name):
    model, tokenizer = zoo.load(name, quiet=True)
    again, _ = zoo.load(name, quiet=True)
    for a, b in zip(model.state_dict().values(), again.state_dict().values(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)
    assert tokenizer.pad_token_id != tokenizer.eos_token_id
    assert zoo.is_cached(name)
