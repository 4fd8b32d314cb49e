"""`minirlhf plan`: its memory is that of real steps, its files are settings that train takes, and its remedies fit."""

from functools import partial
from pathlib import Path

import pytest
import torch
import yaml
from facts import raises
from torch.profiler import ProfilerActivity, profile
from transformers import AutoConfig, AutoModelForCausalLM

from minirlhf.core.errors import UserError
from minirlhf.data.types import Tokens, pair
from minirlhf.models import adapters
from minirlhf.models.heads import RewardModel
from minirlhf.models.memory_estimate import HALF, ModelSizes, Numerics
from minirlhf.recipes import RECIPES
from minirlhf.recipes.offline import PREFERENCES
from minirlhf.trainers.config import OnlineConfig
from minirlhf.trainers.offline import OfflineConfig, train_offline
from minirlhf.trainers.online import train_in_env
from minirlhf.trainers.reward import RewardConfig, train_reward
from minirlhf.trainers.rollouts import RolloutEnv
from minirlhf.trainers.sft import SFTConfig, train_sft
from minirlhf_cli import dispatch
from minirlhf_cli.commands.plan import MACHINE_NAMES, parse_memory
from minirlhf_cli.commands.train import sections, settings_for
from minirlhf_cli.files import planning

FILES = sorted(Path(__file__).parents[1].joinpath("configs").glob("*.yaml"))
#: SmolLM2-135M, every size divided.
SMALL = {
    "hidden_size": 96,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "vocab_size": 2000,
    "tie_word_embeddings": True,
}
PROMPT, COMPLETION = 24, 16


def build(family: str = "llama", **sizes):
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **{**SMALL, **sizes}))


@pytest.mark.parametrize(("family", "tied"), [("llama", True), ("qwen2", False)])
def test_model_sizes_count_parameters_of_real_model_and_its_adapters(family, tied):
    model = build(family, tie_word_embeddings=tied)
    sizes = ModelSizes.from_config(model.config.to_dict(), family)
    assert sizes.parameters() == sum(p.numel() for p in model.parameters())
    judge = RewardModel.from_causal_lm(model, share=True)
    assert sizes.parameters(output_layer=False) == sum(p.numel() for p in judge.backbone.parameters())
    adapted = adapters.add_lora(model, lora_r=3)
    assert sizes.adapter(3) == sum(p.numel() for p in adapted.parameters() if p.requires_grad)


# -- memory of two real steps --------------------------------------------------------------------------------------


def tokens(seed: int, prompt: int) -> Tokens:
    parts = zip((PROMPT, COMPLETION), (10_000 + prompt, seed), strict=True)
    ids = [torch.randint(3, 2000, (n,), generator=torch.Generator().manual_seed(s)).tolist() for n, s in parts]
    return Tokens(ids[0] + ids[1], [False] * PROMPT + [True] * COMPLETION)


class Env(RolloutEnv):
    def sample_prompts(self, count, step, seed):
        return list(range(count))

    def grade(self, picked, rollout, watch):
        rewards = torch.arange(len(rollout)).float().view(-1, rollout.num_generations)
        return rewards, torch.ones_like(rewards, dtype=torch.bool)


def two_steps(trainer: str, settings: dict) -> None:
    """Build the model and train it, so that the profiler sees every tensor."""
    lora, settings = settings.get("lora_r", 0), {k: v for k, v in settings.items() if k != "lora_r"}
    model, options = build(), {"pad_token_id": 0, "quiet": True}
    if trainer == "reward":
        model = RewardModel.from_causal_lm(model, share=True)
    if lora:
        model = adapters.add_lora(model, lora_r=lora)
    settings["max_steps"] = 2
    rows = range(settings["batch_size"])
    pairs = [pair(tokens(i, i), tokens(100 + i, i)) for i in rows]
    if trainer == "sft":
        train_sft(model, [tokens(i, i) for i in rows], SFTConfig(**settings), **options)
    elif trainer == "reward":
        train_reward(model, pairs, RewardConfig(**settings), **options)
    elif trainer == "dpo":
        train_offline(model, pairs, PREFERENCES["dpo"], OfflineConfig(**settings), **options)
    else:
        no_end = SMALL["vocab_size"]  # no token has this id, so every completion has full length
        env = Env([tokens(0, i).input_ids[:PROMPT] for i in rows], eos_token_id=no_end, pad_token_id=0)
        train_in_env(model, env, RECIPES[trainer], OnlineConfig(**settings), quiet=True)


def peak_bytes(work) -> int:
    """The largest sum of all tensors that exist at one time, by PyTorch's own account."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        work()
    events = [e for e in seen.profiler.kineto_results.events() if e.name() == "[memory]"]
    total = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        total += event.nbytes()
        peak = max(peak, total)
    return peak


ONLINE = {"batch_size": 4, "num_generations": 8, "max_completion_length": COMPLETION}


@pytest.mark.parametrize(
    ("trainer", "settings"),
    [
        ("sft", {"batch_size": 16}),
        ("sft", {"batch_size": 16, "lora_r": 4}),
        ("reward", {"batch_size": 8, "micro_batch_size": 4}),
        ("dpo", {"batch_size": 8}),
        ("grpo", ONLINE),
        ("grpo", {**ONLINE, "micro_batch_size": 8, "lora_r": 4}),
        ("ppo", {**ONLINE, "micro_batch_size": 8}),
    ],
    ids=lambda value: value if isinstance(value, str) else "_".join(value),
)
def test_plan_memory_is_within_10_percent_of_two_steps(trainer, settings, tmp_path, monkeypatch):
    monkeypatch.setenv("MINIRLHF_CACHE", str(tmp_path / "cache"))
    (tmp_path / "config.json").write_text(AutoConfig.for_model("llama", **SMALL).to_json_string())
    data = planning.DataSize(PROMPT, COMPLETION)
    values = {**settings, "model": str(tmp_path), "eval_fraction": 0}
    estimated = planning.plan(trainer, values, planning.MACHINES["cpu"], data, "the test").peak
    assert estimated == pytest.approx(peak_bytes(partial(two_steps, trainer, settings)), rel=0.1)


# -- the files and the command -------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_plan_remedies_of_configs_fit_and_keep_what_fits(file):
    values = yaml.safe_load(file.read_text())
    assert set(sections(values)) == {"sft", "reward", "dpo", "grpo", "ppo"}
    for trainer in sections(values):
        for machine in planning.MACHINES.values():
            context = trainer, settings_for(trainer, values, file.name), machine, planning.DataSize(), file.name
            plan, change = planning.plan(*context), planning.remedy(*context)
            assert plan.peak > plan.phases["optimizer step"]["weights"] > 0 and plan.seconds > 0 and plan.steps > 0
            assert not (plan.fits(machine) and change)
            if change is not None:
                assert planning.plan(trainer, {**context[1], **change}, *context[2:]).fits(machine)


def test_plan_known_sizes_have_published_numbers_of_parameters():
    counts = [round(ModelSizes.from_config(config, name).parameters() / 1e6) for name, config in planning.KNOWN.items()]
    assert counts == [135, 494, 1544, 7616]


def test_numerics_of_16_bits_need_less():
    sizes = ModelSizes.from_config({"model_type": "llama", **SMALL}, "small")
    rows = planning.Rows(64, 64, PROMPT, COMPLETION)
    full, autocast, half = (
        planning.MemoryEstimate(sizes, numerics).activations(rows)
        for numerics in (Numerics(), Numerics(autocast=True), Numerics(HALF))
    )
    assert half < autocast < full


def test_plan_exit_status_says_whether_runs_fit(tmp_path, capsys):
    assert tuple(planning.MACHINES) == MACHINE_NAMES
    file = tmp_path / "run.yaml"
    file.write_text("model: micro\nbatch_size: 64\nsft:\n  max-steps: 3\ndpo:\n  beta: 0.2\n")
    assert dispatch(["plan", str(file)]) == 0
    assert dispatch(["plan", str(file), "dpo", "--memory", "200MB"]) == 1
    assert "micro_batch_size" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "arguments", "facts"),
    [
        ("model: micro\n", [], {"argument": "TRAINER", "problem": "missing"}),
        ("model: micro\n", ["distill"], {"argument": "trainer", "value": "distill"}),
        ("sft:\n  beta: 1\n", [], {"value": "beta", "problem": "unknown"}),
        ("sft:\n  batch_size: 0\n", [], {"argument": "batch_size", "value": 0}),
        ("sft:\n  batch_size: 2\n", ["dpo"], {"argument": "section", "value": "dpo"}),
        ("model: micro\n", ["sft", "--memory", "big"], {"argument": "--memory", "value": "big"}),
        ("model: micro\n", ["sft", "--prompt-length", "0"], {"argument": "--prompt-length", "value": 0}),
        ("model: micro\ndtype: float64\n", ["sft"], {"argument": "dtype", "value": "float64"}),
    ],
)
def test_plan_bad_input_raises_user_error(text, arguments, facts, tmp_path):
    file = tmp_path / "run.yaml"
    file.write_text(text)
    with raises(UserError, **facts):
        dispatch(["plan", str(file), *arguments])


def test_parse_memory_takes_gigabytes_and_megabytes():
    assert [parse_memory(text) for text in ("24", "24GB", "1.5 gb", "800MB")] == [24e9, 24e9, 1.5e9, 8e8]


def test_model_sizes_of_other_family_raise_user_error():
    with raises(UserError, argument="model_type", value="gpt2"):
        ModelSizes.from_config({"model_type": "gpt2"}, "gpt2")
