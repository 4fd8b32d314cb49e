"""The measuring itself: both sides do the same work, the floor counts the tokens that it says, and every number is there."""

import dataclasses
import gc
import importlib.util
import json
import math
import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

if importlib.util.find_spec("trl") is None and not os.environ.get("MINIRLHF_CI"):
    pytest.skip("needs the extra 'peers'", allow_module_level=True)

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import engine
import jobs

sys.path.pop(0)

ONLINE = ("sampling", "grpo")


@pytest.fixture(autouse=True)
def short_collections():
    """The clock collects garbage before each timing; what the test run holds besides need not be looked through each time."""
    gc.freeze()
    yield
    gc.unfreeze()


def small(varying=False, **options):
    return jobs.World("nano", varying, **{"prompt": 4, "groups": 2, "completion": 16, **options})


def spread(world, rows):
    """Five standard deviations of a sum of so many lengths."""
    return 5 * math.sqrt(rows * np.var(world.lengths))


@pytest.mark.slow
@pytest.mark.parametrize("varying", [False, True], ids=["fixed", "varying"])
@pytest.mark.parametrize("name", jobs.JOBS)
def test_benchmark_jobs_do_same_work_on_both_sides(name, varying):
    """As many optimizer steps, which the clock counts, and as many tokens: exactly those of the data, or as they are sampled."""
    world = small(varying)
    job = jobs.JOBS[name](world)
    seen = {}

    def kept(side, run):
        return lambda steps: seen.update({side: run(steps)})

    now = engine.clock(1, "cpu")
    for side, run in {"ours": job.ours, **job.peers}.items():
        seconds = engine.seconds_of(kept(side, run), now, steps=jobs.BATCHES - 1)
        assert len(seconds) == jobs.BATCHES - 1 and min(seconds) > 0
    history = seen.pop("ours")
    assert len(history) == jobs.BATCHES
    tolerance = spread(world, jobs.BATCHES * world.groups * jobs.GENERATIONS) if name in ONLINE else 0
    for tokens in seen.values():
        assert abs(tokens - jobs.BATCHES * job.tokens) <= tolerance
    if name in ONLINE:
        assert abs(sum(history["sampled_tokens"]) - jobs.BATCHES * job.spoken) <= tolerance
    if name == "sft":
        assert sum(history["tokens"]) == jobs.BATCHES * job.spoken


@pytest.mark.parametrize("size", ["nano", "micro"])
def test_benchmark_speaker_completions_have_asked_lengths(size, suite_seed):
    """Whoever samples: none shorter, none longer, all of them about equally often."""
    world = dataclasses.replace(small(True, groups=32), size=size)
    model, rows, longest = world.speaker(), 32 * jobs.GENERATIONS, world.lengths[-1]
    prompt = jobs.encode_prompt(world.tokenizer, world.ask())
    eos, pad = world.tokenizer.eos_token_id, world.tokenizer.pad_token_id
    with jobs.ending(world):
        rollout = jobs.ours_of.sample(
            world.model(), [prompt], sampling=jobs.Sampling(max_completion_length=longest), num_generations=rows,
            eos_token_id=eos, pad_token_id=pad, seed=suite_seed,
        )  # fmt: skip
    torch.manual_seed(suite_seed)
    with torch.no_grad():
        out = model.generate(
            input_ids=torch.tensor([prompt] * rows), attention_mask=torch.ones(rows, len(prompt)).long(), do_sample=True,
            top_k=0, max_new_tokens=longest, eos_token_id=eos, pad_token_id=pad,
        )[:, len(prompt) :]  # fmt: skip
    for lengths in (rollout.mask.sum(1), (out == eos).int().argmax(1) + 1):
        assert set(lengths.tolist()) <= set(world.lengths)
        assert abs(int(lengths.sum()) - rows * world.completion) <= spread(world, rows)
        assert abs(float(lengths.double().var()) / np.var(world.lengths) - 1) < 0.4


def test_benchmark_sampling_of_equal_lengths_never_ends_early():
    world = small()
    history = jobs.sampling(world).ours(2)
    assert history["sampled_tokens"] == [world.groups * jobs.GENERATIONS * world.completion] * 2


@pytest.fixture
def read(monkeypatch):
    """Tokens that the models read and positions that they gave logits for, call by call."""
    calls = []
    forward = jobs.transformers.LlamaForCausalLM.forward

    def counting(self, input_ids, **options):
        out = forward(self, input_ids=input_ids, **options)
        calls.append((input_ids.numel(), out.logits[..., 0].numel()))
        return out

    monkeypatch.setattr(jobs.transformers.LlamaForCausalLM, "forward", counting)
    return calls


@pytest.mark.parametrize("varying", [False, True], ids=["fixed", "varying"])
def test_benchmark_floor_reads_needed_tokens(varying, read):
    """Counted here from the texts: every prompt once, no padding, a last token only where it is not merely predicted."""
    world = small(varying, groups=8)
    rows = world.groups * jobs.GENERATIONS
    sampled = world.groups * world.width + rows * (world.completion - 1)  # the last token of a completion is never read
    job = jobs.grpo(world)
    job.floor()
    *decoding, (trained, predicted) = read
    assert len(decoding) == world.lengths[-1]
    assert abs(sum(n for n, _ in decoding) - sampled) <= len(decoding) / 2  # whole rows
    assert abs(trained - sampled) <= rows / 2
    assert predicted == rows * world.completion
    for name, last, side in (("sft", 1, 4), ("dpo", 2, 2), ("reward", 0, 2)):
        job = jobs.JOBS[name](world)
        read.clear()
        job.floor()
        ((trained, predicted),) = read
        size = side * world.groups
        shared = 0 if name == "sft" else size * world.width
        width = 4 * world.groups  # rows of all three
        assert abs(trained - (job.tokens - shared - last * size)) <= width / 2
        assert abs(predicted - (width if name == "reward" else job.spoken)) <= width / 2


def test_benchmark_clock_other_number_of_steps_raises():
    with pytest.raises(RuntimeError, match=r"\b0\b.*\b2\b"):
        engine.seconds_of(lambda steps: None, engine.clock(1, "cpu"), steps=1)


def test_benchmark_fit_of_line_and_power_law():
    line = engine.fit([1, 2, 4], [3.0, 5.0, 9.0])
    assert line["r2"] == pytest.approx(1) and line["slope"] == pytest.approx(2) and line["start"] == pytest.approx(1)
    square = engine.fit([1, 2, 4], [1.0, 4.0, 16.0])
    assert square["exponent"] == pytest.approx(2) and square["r2"] < 0.99


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="memory is measured on Linux")
def test_benchmark_peak_is_memory_held_at_once(monkeypatch):
    """Not what went before, and not the sum of what came after one another."""

    def take(megabytes):
        return lambda steps: [torch.ones(megabytes * 2**18).sum() for _ in range(steps)] and None

    torch.ones(200 * 2**18).sum()
    fake = jobs.Job(take(64), {"trl": take(96)}, lambda: None, 1, 1)
    monkeypatch.setitem(jobs.JOBS, "sft", lambda world: fake)
    assert 60 < engine.peak("sft", "ours", small(), 1) < 80
    assert 92 < engine.peak("sft", "trl", small(), 1) < 112


@pytest.mark.release
@pytest.mark.slow
def test_benchmark_engine_run_writes_every_number(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(Path(engine.__file__).parent))  # the child processes look there too
    monkeypatch.setattr(engine, "GROUPS", (1, 2, 3))
    monkeypatch.setattr(engine, "COMPLETIONS", (4, 8, 12))
    file, picture = tmp_path / "engine.json", tmp_path / "scaling.png"
    engine.main(
        f"--rounds 1 --models nano --threads 1 --prompt 4 6 --only sampling sft --json {file} --plot {picture}".split()
    )
    result = json.loads(file.read_text(encoding="utf-8"))
    assert {"date", "torch", "transformers", "trl", "device", "machine"} < set(result)
    found = {(r["prompt"], r["varying"], r["job"]): r["seconds"] for r in result["steps"]}
    assert set(found) == {(p, v, j) for p in (6, 8) for v in (False, True) for j in ("sampling", "sft")}
    for (prompt, varying, name), seconds in found.items():
        once = {"trl_defaults"} if prompt == 6 and not varying else set()
        others = {"generate"} if name == "sampling" else {"trl"} | once
        assert set(seconds) == {"ours", "floor"} | others
        assert all(value > 0 for value in seconds.values())
    (row,) = result["memory"]
    assert row["job"] == "sft" and set(row["megabytes"]) == {"ours", "trl"}
    assert [row["job"] for row in result["profile"]] == ["sampling", "sft"]
    for row in result["profile"]:
        assert set(row["shares"]) == {*engine.KINDS, "other operations", "Python"}
        assert sum(row["shares"].values()) == pytest.approx(1) and min(row["shares"].values()) >= 0
    assert set(result["scaling"]) == {"groups", "completion"}
    for axis in result["scaling"].values():
        assert len(axis["values"]) == len(axis["seconds"]["ours"]) == len(axis["seconds"]["floor"]) == 3
        assert set(axis["fits"]["ours"]) == {"slope", "start", "r2", "exponent"}
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "x trl" in capsys.readouterr().out


def test_benchmark_engine_plot_without_scaling_exits(capsys):
    with pytest.raises(SystemExit):
        engine.parse(["--plot", "x.png", "--parts", "steps"])
    assert "--parts" in capsys.readouterr().err


def test_benchmark_half_world_has_358_million_parameters():
    """Half a billion parameters with a full vocabulary; here without one, and nothing is allocated."""
    with torch.device("meta"):
        model = jobs.transformers.LlamaForCausalLM(jobs.World("half").config)
    assert sum(p.numel() for p in model.parameters()) == pytest.approx(358e6, rel=0.01)


def test_benchmark_readme_holds_measured_ratios():
    """Nano, one thread, fixed and varying lengths."""
    rows = json.loads((Path(engine.__file__).parent / "engine.json").read_text(encoding="utf-8"))["steps"]

    def ratios(job, prompt, above, below):
        keys = ("job", "size", "threads", "prompt", "varying")
        found = {tuple(row[key] for key in keys): row["seconds"] for row in rows}
        both = [found[job, "nano", 1, prompt, varying] for varying in (False, True)]
        return [seconds[above] / seconds[below] for seconds in both]

    faster = [f"{ratio:.1f}" for ratio in ratios("sampling", 18, "generate", "ours")]
    shares = [
        f"{ratio:.2f}".removeprefix("0") for prompt in (18, 50) for ratio in ratios("grpo", prompt, "ours", "trl")
    ]
    readme = " ".join((Path(engine.__file__).parents[1] / "README.md").read_text(encoding="utf-8").split())
    assert re.search(r"\D.*?".join(map(re.escape, [*faster, *shares])), readme), (faster, shares)
