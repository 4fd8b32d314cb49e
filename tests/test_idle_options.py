"""An option without effect at the given settings says so at the start, or is refused.

Two runs that differ in one option must differ in what they leave in their folders. Where they do not, the second must have named it in
a warning; and what is named must have no effect. One option of each rule is tried always, every option of every trainer before a release.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch

from minirlhf.core.errors import UnusedOptionNotice
from minirlhf.models import checkpoints
from minirlhf.models.heads import RewardModel
from minirlhf.models.tiny import tiny_model
from minirlhf.trainers.config import unused_options
from minirlhf_cli import main
from minirlhf_cli.commands.train import TRAINERS
from minirlhf_cli.files import answering

#: Another value for every option.
OTHER = {
    "limit": "9", "model": "micro", "vocab_size": "265", "context": "60", "dtype": "bfloat16", "bf16": "true",
    "eval_fraction": "0.4", "eval_steps": "1", "report_to": "tensorboard", "lora_r": "2", "lora_alpha": "3", "lora_dropout": "0.5",
    "demonstrations": "30", "pooling": "mean", "reward_aggregation": "worst_case", "grader": "contains",
    "max_steps": "3", "batch_size": "3", "learning_rate": "0.01", "lr_scheduler_type": "linear",
    "warmup_steps": "2", "weight_decay": "0.5", "max_grad_norm": "0.01", "seed": "1", "save_steps": "1",
    "num_generations": "3", "max_completion_length": "5", "temperature": "0.5", "top_k": "2", "top_p": "0.3", "min_p": "0.5",
    "staleness": "1", "num_logged_samples": "1", "num_prompts": "3", "steps_per_round": "1", "selection": "overall", "keep": "3",
    "packing": "true", "max_length": "40", "train_on": "all", "loss_type": "dft", "loss": "plackett_luce", "margin_coefficient": "3", "label_smoothing": "0.1", "balance_prompts": "true",
    "center_rewards_coefficient": "0.1", "nll_coefficient": "0.1", "neutral": "right", "task": "sort_digits",
    "format": "gsm8k", "grader_timeout": "3", "epochs": "3",
}  # fmt: skip
#: Those whose other value is a file: made below.
FILES = {"data", "eval_data", "ptx_data", "ref_model", "teacher", "reward_model", "chat_template"}
#: What may do nothing without a word: ways to compute the same, limits and permissions that nothing in these data comes up against.
SILENT = {
    "out": "names the folder",
    "split": "of a folder or hub data set; of a file it is an error (test_loaders.py)",
    "device": "of the same kind computes the same",
    "micro_batch_size": "does not change the result without dropout",
    "grader_timeout": "a limit of time",
    "drop_identical": "permits to leave out what is an error otherwise",
    "drop_long": "permits to leave out what is an error otherwise",
    "truncation_mode": "permits to cut what is an error otherwise",
    "load_best_model_at_end": "of a run that improves all the time it keeps the last weights too",
    "disable_dropout": "the tiny models have no dropout",
    "max_invalid_fraction": "a limit; nothing fails here",
}

ROWS = {
    "chats": [{"messages": [{"role": "user", "content": f"say {n}"}, {"role": "assistant", "content": f"{n} it is"}]} for n in "abcdefghij"],
    "more": [{"messages": [{"role": "user", "content": n}, {"role": "assistant", "content": f"{n} and {n}"}]} for n in "abcdefghij"],
    "pairs": [{"prompt": f"q{n}", "chosen": f"good answer {n}", "rejected": f"bad {n}"} for n in range(10)],
    "margins": [{"prompt": f"q{n}", "chosen": f"good {n}", "rejected": f"bad {n}", "margin": n + 1} for n in range(10)],
    "rated": [{"prompt": f"q{n}", "responses": [f"good {n}", f"so so {n}", f"bad {n}"][: 2 + n % 2], "scores": [3, 2, 1][: 2 + n % 2]} for n in range(10)],
    "labels": [{"prompt": f"q{n}", "completion": f"some {n}", "label": n % 2 == 1} for n in range(10)],
    "steps": [{"prompt": f"q{n}", "completions": ["one", "two"], "labels": [1, (n % 3) - 1]} for n in range(10)],
    "sums": [{"question": f"What is {n}+1?", "answer": f"<<{n}+1={n + 1}>>{n + 1}.\n#### {n + 1}"} for n in range(10)],
}  # fmt: skip
OF_FILE = {"vocab_size": "300", "context": "64", "eval_fraction": "0.3"}
SHORT = {"max_steps": "2", "batch_size": "2"}
SAMPLED = {**SHORT, "num_generations": "2", "max_completion_length": "6"}

#: trainer, the settings to begin from, the options to try; None: all those of the trainer that no case before has tried.
CASES = {
    "sft": ("sft", {"data": "chats", **OF_FILE, **SHORT}, None),
    "sft on a world": ("sft", {"task": "shell_game", "demonstrations": "20", **SHORT},
                       ("limit", "vocab_size", "eval_fraction", "demonstrations", "format", "eval_data", "data")),
    "sft from a folder": ("sft", {"data": "chats", "model": "MODEL", "eval_fraction": "0.3", **SHORT}, ("vocab_size", "context")),
    "packed": ("sft", {"data": "chats", "packing": "true", **OF_FILE, **SHORT}, ("max_length",)),
    "adapter": ("sft", {"data": "chats", "lora_r": "2", **OF_FILE, **SHORT}, ("lora_alpha", "lora_dropout")),
    "other held-out data": ("sft", {"data": "chats", "eval_data": "chats", "vocab_size": "300", "context": "64", **SHORT}, ("eval_fraction",)),
    "warm-up": ("sft", {"data": "chats", "warmup_steps": "2", **OF_FILE, **SHORT}, ("lr_scheduler_type",)),
    "a late checkpoint": ("sft", {"data": "chats", **OF_FILE, "max_steps": "1", "batch_size": "2"}, ("save_steps",)),
    "reward": ("reward", {"data": "margins", **OF_FILE, **SHORT}, None),
    "reward without margins": ("reward", {"data": "pairs", **OF_FILE, **SHORT}, ("margin_coefficient", "balance_prompts")),
    "reward on rankings": ("reward", {"data": "rated", "loss": "plackett_luce", **OF_FILE, **SHORT},
                           ("margin_coefficient", "label_smoothing", "balance_prompts", "center_rewards_coefficient", "nll_coefficient")),
    "reward on ratings": ("reward", {"data": "rated", "loss": "regression", **OF_FILE, **SHORT}, ("margin_coefficient",)),
    "reward on pairs of rankings": ("reward", {"data": "rated", **OF_FILE, **SHORT}, ("balance_prompts",)),
    "orm": ("orm", {"data": "labels", **OF_FILE, **SHORT}, ("nll_coefficient",)),
    "prm": ("prm", {"data": "steps", **OF_FILE, **SHORT}, ("neutral",)),
    "dpo": ("dpo", {"data": "pairs", **OF_FILE, **SHORT}, ("ref_model",)),
    "simpo": ("simpo", {"data": "pairs", **OF_FILE, **SHORT}, ("ref_model",)),
    "grpo": ("grpo", {"data": "sums", "grader": "SOME", **OF_FILE, **SAMPLED}, None),
    "grpo on a world": ("grpo", {"task": "shell_game", "model": "MODEL", **SAMPLED},
                        ("grader", "reward_model", "reward_aggregation", "data", "limit", "ref_model", "grader_timeout")),
    "ptx": ("grpo", {"task": "shell_game", "model": "MODEL", "ptx_coef": "0.5", "ptx_data": "chats", **SAMPLED}, ("ptx_data",)),
    "one reward model": ("grpo", {"data": "sums", "model": "MODEL", "reward_model": "JUDGE", "eval_fraction": "0.3", **SAMPLED}, ("reward_aggregation", "grader")),
    "two reward models": ("grpo", {"data": "sums", "model": "MODEL", "reward_model": "JUDGES", "eval_fraction": "0.3", **SAMPLED}, ("reward_aggregation",)),
    "distill": ("distill", {"data": "chats", "teacher": "MODEL", "context": "64", "eval_fraction": "0.3", **SHORT},
                ("teacher", "temperature", "vocab_size", "top_k", "demonstrations")),
    "distill on own answers": ("distill", {"data": "chats", "teacher": "MODEL", "recipe": "on_policy_kd", "context": "64", "eval_fraction": "0.3",
                                           "max_completion_length": "6", **SHORT}, ("max_completion_length", "top_k")),
    "rs": ("rs", {"data": "sums", "model": "MODEL", "grader": "SOME", "eval_fraction": "0.3", "num_prompts": "4", "steps_per_round": "2", **SAMPLED},
           ("num_prompts", "steps_per_round", "selection", "keep")),
    "rs overall": ("rs", {"task": "shell_game", "model": "MODEL", "num_prompts": "4", "selection": "overall", **SAMPLED}, ("keep",)),
}  # fmt: skip


def fields(trainer: str) -> list[str]:
    found = TRAINERS[trainer]
    return [f.name for cls in (found.source, found.config) for f in dataclasses.fields(cls)]


def tried(case: str) -> list[str]:
    """The options of a case; a trainer's first case takes all that none before it has."""
    before: set[str] = set()
    for name, (trainer, _, options) in CASES.items():
        mine = [o for o in fields(trainer) if o not in before | SILENT.keys()] if options is None else list(options)
        if name == case:
            return mine
        before |= set(mine) if options is None else set()
    raise KeyError(case)


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    """Files of every kind, a policy, two reward models."""
    folder = tmp_path_factory.mktemp("world")
    for name, rows in ROWS.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (folder / "template.jinja").write_text(
        "{% for m in messages %}{{ m['role'] }}: {% generation %}{{ m['content'] }}{{ eos_token }}{% endgeneration %}{% endfor %}"
    )
    (folder / "own.py").write_text("def some(completion):\n    return float(sum(map(ord, completion)) % 7)\n")
    texts = [text for name in ("chats", "sums", "pairs") for text in (folder / f"{name}.jsonl").read_text().split('"')]
    from minirlhf.models.tokenizers import train_tokenizer

    tokenizer = train_tokenizer(texts, 300)
    for seed, name in enumerate(("model", "other")):
        checkpoints.save(folder / name, tiny_model("nano", tokenizer, seed=seed), tokenizer)
    for seed, name in enumerate(("judge1", "judge2")):
        judge = RewardModel.from_causal_lm(tiny_model("nano", tokenizer, seed=seed), seed=seed)
        with torch.no_grad():
            judge.head.weight.normal_(generator=torch.Generator().manual_seed(seed))
        checkpoints.save(folder / name, judge, tokenizer)
    return folder


def left_behind(out: Path) -> str:
    """A hash of what a run has written, but for times and for the settings that it was given."""
    found = hashlib.sha256()
    for file in sorted(p for p in out.rglob("*") if p.is_file() and p != out / "config.json"):
        found.update(file.name.split("tfevents")[0].encode())
        if file.name == "metrics.jsonl":
            rows = [json.loads(line) for line in file.read_text().splitlines()]
            found.update(repr([{k: v for k, v in row.items() if "seconds" not in k} for row in rows]).encode())
        elif (
            file.name in ("result.json", "config.json")
            or file.parent.name == "samples"
            or (file.suffix == ".safetensors" and "checkpoints" not in file.parts)
        ):
            found.update(file.read_bytes())
    return found.hexdigest()


def train(world: Path, trainer: str, settings: dict[str, str], out: Path, caplog) -> tuple[str, set[str]]:
    """What the run leaves behind, or "refused"; and the options that it called idle."""
    named = {
        **{name: str(world / f"{name}.jsonl") for name in ROWS}, "SOME": f"{world}/own.py:some",
        "MODEL": str(world / "model"), "OTHER": str(world / "other"), "TEMPLATE": str(world / "template.jinja"),
        "JUDGE": str(world / "judge1"), "JUDGES": f"{world}/judge1,{world}/judge2",
    }  # fmt: skip
    flags = [part for k, v in settings.items() for part in (f"--{k.replace('_', '-')}", named.get(v, v))]
    caplog.clear()
    status = main(["train", trainer, *flags, "--out", str(out)])
    said = [part for record in caplog.records for part in record.args or () if isinstance(part, UnusedOptionNotice)]
    idle = {option for sentence in said for option in sentence.options}
    return (left_behind(out) if status == 0 else "refused"), idle


def other(option: str, settings: dict[str, str]) -> str:
    made = {
        "data": "more",
        "eval_data": settings.get("data", "chats"),
        "ptx_data": "more",
        "ref_model": "OTHER",
        "teacher": "OTHER",
    }
    return OTHER.get(option) or {**made, "reward_model": "JUDGE", "chat_template": "TEMPLATE"}[option]


def wrong_warnings(case: str, options: Iterable[str], world: Path, out: Path, caplog: pytest.LogCaptureFixture) -> dict:
    """Those of the options that warn and have an effect, or have none and do not warn: whether the run was the same."""
    trainer, settings, _ = CASES[case]
    base, idle = train(world, trainer, settings, out / "base", caplog)
    assert base != "refused" and idle <= {"epsilon", "epsilon_high"}
    wrong = {}
    for option in options:
        found, idle = train(world, trainer, {**settings, option: other(option, settings)}, out / option, caplog)
        if (found == base) is not (option in idle):
            wrong[option] = found == base
    return wrong


#: One option of every rule, with and without effect, in every class of trainers.
BY_CLASS = {
    "sft": ("lora_alpha", "eval_steps", "demonstrations", "max_length", "train_on"),
    "sft on a world": ("limit", "demonstrations"),
    "warm-up": ("lr_scheduler_type",),
    "reward": ("margin_coefficient",),
    "reward without margins": ("margin_coefficient", "balance_prompts"),
    "reward on pairs of rankings": ("balance_prompts",),
    "prm": ("neutral",),
    "dpo": ("ref_model",),
    "simpo": ("ref_model",),
    "one reward model": ("reward_aggregation",),
    "distill": ("top_k", "vocab_size"),
    "rs": ("keep", "selection"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", BY_CLASS)
def test_unused_options_warns_where_and_only_where_a_run_is_the_same(case, world, tmp_path, caplog):
    assert wrong_warnings(case, BY_CLASS[case], world, tmp_path, caplog) == {}


@pytest.mark.slow
@pytest.mark.release
@pytest.mark.parametrize("case", CASES)
def test_unused_options_warns_of_each_option_where_and_only_where_a_run_is_the_same(case, world, tmp_path, caplog):
    assert wrong_warnings(case, tried(case), world, tmp_path, caplog) == {}


def test_unused_options_is_asked_about_every_option_or_has_a_reason_not_to():
    known = {option for case in CASES for option in tried(case)} | SILENT.keys()
    assert {option for trainer in TRAINERS for option in fields(trainer)} == known
    assert all(set(options) <= set(fields(CASES[case][0])) for case, options in BY_CLASS.items())


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ({"reward_aggregation": "worst_case"}, "reward_aggregation"),
        ({"grader_timeout": 3.0}, "grader_timeout"),
        ({"temperature": 0.0, "top_p": 0.5}, "top_p"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_unused_options_of_an_answering_command_names_the_option(flags, named):
    asked = answering.GenerationRequest("model", "data", grader="exact", **flags)
    assert [idle.options for idle in unused_options(asked, asked.unused_options())] == [(named,)]
    assert not unused_options(answering.GenerationRequest("m", "d", grader="exact"), asked.unused_options())
