"""`minirlhf train` on small files of every format, and every kind of bad input: an error with its facts, nothing left behind."""

import json
import math
from itertools import count
from pathlib import Path

import pytest
import torch
from facts import raises

from minirlhf.core.errors import UserError
from minirlhf.core.randomness import threads
from minirlhf.data import tasks
from minirlhf.feedback import graders
from minirlhf.recipes import RECIPES
from minirlhf_cli import dispatch
from minirlhf_cli.files import start

CHATS = [
    {"messages": [{"role": "user", "content": f"say {n}"}, {"role": "assistant", "content": f"{n} it is"}]}
    for n in ("one", "two", "three", "four", "five", "six", "seven", "eight")
]
PAIRS = [{"prompt": f"q{n}", "chosen": f"good answer {n}", "rejected": f"bad {n}"} for n in range(12)]
TRANSCRIPTS = [
    {
        "chosen": f"\n\nHuman: ask {n}\n\nAssistant: kind reply {n}",
        "rejected": f"\n\nHuman: ask {n}\n\nAssistant: rude reply {n}",
    }
    for n in range(12)
]
SUMS = [{"question": f"What is {n}+1?", "answer": f"It is <<{n}+1={n + 1}>>{n + 1}.\n#### {n + 1}"} for n in range(12)]
SMALL = ["--max-steps", "2", "--batch-size", "2", "--vocab-size", "300", "--context", "64", "--eval-fraction", "0.25"]


def write(path: Path, rows: list[dict]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def result(folder: Path) -> dict:
    return json.loads((folder / "result.json").read_text())


@pytest.mark.parametrize(
    ("trainer", "rows"), [("sft", CHATS), ("sft", SUMS), ("reward", PAIRS), ("reward", TRANSCRIPTS)]
)
def test_train_reads_files_of_every_format(trainer, rows, tmp_path):
    out = tmp_path / "run"
    assert dispatch(["train", trainer, "--data", write(tmp_path / "d.jsonl", rows), "--out", str(out), *SMALL]) == 0
    found = result(out)
    assert found["train"] + found["held_out"] == len(rows)
    assert {"config.json", "metrics.jsonl", "result.json", "model", "checkpoints"} <= {p.name for p in out.iterdir()}
    if trainer == "reward":
        assert found["interval"][0] <= found["accuracy"] <= found["interval"][1]


def test_train_sft_reward_and_grpo_start_from_earlier_runs(tmp_path):
    sums = write(tmp_path / "sums.jsonl", SUMS)
    pairs = write(tmp_path / "pairs.jsonl", PAIRS)
    sft, judge = tmp_path / "sft", tmp_path / "judge"
    assert dispatch(["train", "sft", "--data", sums, "--out", str(sft), *SMALL]) == 0
    start = ["--model", str(sft / "model"), "--max-steps", "1", "--batch-size", "2", "--eval-fraction", "0.25"]
    assert dispatch(["train", "reward", "--data", pairs, "--out", str(judge), *start]) == 0
    short = ["--max-completion-length", "6", "--num-generations", "2"]
    graded = tmp_path / "graded"
    assert dispatch(["train", "grpo", "--data", sums, "--grader", "numeric", "--out", str(graded), *start, *short]) == 0
    assert 0 <= result(graded)["held_out_reward"] <= 1
    judged = tmp_path / "judged"
    flags = ["--data", sums, "--reward-model", str(judge / "model"), "--out", str(judged), "--beta", "0.1"]
    assert dispatch(["train", "online", "--recipe", "rloo", *flags, *start, *short]) == 0


def test_train_grpo_held_out_reward_excludes_ungraded_replies_and_counts_them(tmp_path, capsys, monkeypatch):
    asked = count()
    monkeypatch.setitem(graders.GRADERS, "exact", lambda completion, reference: (math.nan, 1.0)[next(asked) % 2])
    out, data = tmp_path / "run", write(tmp_path / "d.jsonl", SUMS)
    flags = [*SMALL, "--eval-fraction", "0.5", "--num-generations", "2", "--max-completion-length", "6"]
    assert dispatch(["train", "grpo", "--data", data, "--grader", "exact", "--out", str(out), *flags]) == 0
    found = result(out)
    held, sampled = found["held_out"], 2 * 2 * 2  # steps, prompts, generations
    failed = [n % 2 == 0 for n in range(held + sampled + held)]
    before, after = sum(failed[:held]) / held, sum(failed[-held:]) / held
    assert held > 2 and found["held_out_reward_before"] == found["held_out_reward"] == 1.0
    assert found["held_out_frac_invalid_before"] == pytest.approx(before)
    assert found["held_out_frac_invalid"] == pytest.approx(after)
    assert f"{before:.1%} -> {after:.1%}" in capsys.readouterr().out


def test_train_config_file_and_its_section_set_options_and_flags_override(tmp_path):
    data = write(tmp_path / "d.jsonl", CHATS)
    file = tmp_path / "run.yaml"
    file.write_text(
        f"data: {data}\nmax-steps: 4\nbatch_size: 2\nvocab_size: 300\ncontext: 64\neval_fraction: 0.25\n"
        "sft:\n  max-steps: 3\n  learning_rate: 2e-4\nreward:\n  label_smoothing: 0.1\n"
    )
    out = tmp_path / "run"
    assert dispatch(["train", "sft", "--config", str(file), "--out", str(out), "--max-steps", "2"]) == 0
    settings = json.loads((out / "config.json").read_text())
    assert settings["max_steps"] == 2 and settings["learning_rate"] == 2e-4


@pytest.mark.slow
def test_train_online_prints_paper_changes_and_deviations_of_recipe(tmp_path, capsys):
    out = tmp_path / "dapo"
    flags = ["--max-steps", "1", "--batch-size", "2", "--num-generations", "4", "--epsilon-high", "0.3"]
    assert dispatch(["train", "online", "--recipe", "dapo", "--task", "shell_game", "--out", str(out), *flags]) == 0
    said = capsys.readouterr().out
    assert "arXiv:2503.14476" in said and "epsilon_high=0.3" in said
    assert all(deviation in said for deviation in RECIPES["dapo"].deviations)


@pytest.mark.parametrize("trainer", ["sft", "online"])
def test_train_help_names_every_task_and_grader(trainer, capsys):
    with pytest.raises(SystemExit):
        dispatch(["train", trainer, "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert ", ".join(tasks.TASKS) in said
    assert trainer == "sft" or ", ".join(graders.GRADERS) in said


@pytest.mark.slow
@pytest.mark.parametrize("task", tasks.TASKS)
def test_train_sft_imitates_demonstrations_of_every_task(task, tmp_path):
    flags = ["--max-steps", "1", "--batch-size", "2", "--demonstrations", "20"]
    assert dispatch(["train", "sft", "--task", task, "--out", str(tmp_path / "run"), *flags]) == 0
    found = result(tmp_path / "run")
    assert (found["train"], found["held_out"]) == (20, 2)


@pytest.mark.slow
def test_train_dr_grpo_takes_task_in_place_of_data(tmp_path):
    out = tmp_path / "run"
    flags = ["--max-steps", "1", "--batch-size", "2", "--num-generations", "2", "--max-completion-length", "10"]
    assert dispatch(["train", "dr_grpo", "--task", "shell_game", "--out", str(out), *flags]) == 0
    assert result(out)["held_out"] == 256


LABELS = [
    {"prompt": f"q{n}", "completion": f"{'good' if n % 2 else 'bad'} {n}", "label": n % 2 == 1} for n in range(12)
]


@pytest.mark.parametrize(
    ("argv", "rows"),
    [
        (["dpo", "--beta", "0.2"], PAIRS),
        (["offline", "--loss", "simpo", "--gamma", "0.5"], PAIRS),
        (["kto", "--desirable-weight", "1.5"], LABELS),
        (["bco"], PAIRS),
        (["plackett_luce_dpo", "--lora-r", "2"], PAIRS),
    ],
)
def test_train_preference_losses_on_given_data(argv, rows, tmp_path):
    out = tmp_path / "run"
    assert dispatch(["train", *argv, "--data", write(tmp_path / "d.jsonl", rows), "--out", str(out), *SMALL]) == 0
    found = result(out)
    assert found["steps"] == 2 and found["train"] + found["held_out"] >= len(rows)
    assert found["rejected_logp"] < 0
    if argv[0] != "kto":  # one label is held out
        assert found["margin"] == pytest.approx(found["chosen_reward"] - found["rejected_reward"])
    settings = json.loads((out / "config.json").read_text())
    assert (
        any(name.startswith("recipe.") and name.endswith(".beta") for name in settings)
        and (out / "model" / "model.safetensors").is_file()
    )


OUT_DATA = ["--out", "OUT", "--data", "FILE"]
OUT_TASK = ["--out", "OUT", "--task", "shell_game"]
ROW = '{"prompt": "a", "completion": "b"}\n'


@pytest.mark.parametrize(
    ("argv", "file", "facts"),
    [
        (["sft"], None, {"argument": "--out", "problem": "missing"}),
        (["sft", "--out", "OUT"], None, {"argument": "--data", "problem": "missing"}),
        (["sft", "--out", "OUT", "--data", "missing.jsonl"], None, {"file": "missing.jsonl"}),
        (["sft", *OUT_DATA], "", {"file": "d.jsonl"}),
        (["sft", *OUT_DATA], ROW + "{oops\n", {"file": "d.jsonl", "line": 2}),
        (["sft", *OUT_DATA], ROW + '{"prompt": "c"}\n', {"argument": "completion", "line": 2}),
        (["sft", *OUT_DATA], '{"words": "a"}\n', {"argument": "format", "value": ["words"], "line": 1}),
        (
            ["reward", *OUT_DATA],
            '{"prompt": "a", "chosen": "b", "rejected": "b"}\n',
            {"problem": "duplicate", "line": 1},
        ),
        (["reward", *OUT_DATA], ROW + ROW.replace("a", "c"), {"file": "d.jsonl", "value": "prompt-completion"}),
        (["sft", *OUT_DATA, "--model", "nanno"], "CHATS", {"value": "nanno", "expected": "nano"}),
        (["sft", *OUT_DATA, "--context", "4"], "CHATS", {"argument": "--context", "expected": 4}),
        (["sft", *OUT_DATA, "--learning-rate", "much"], "CHATS", {"argument": "learning_rate", "value": "much"}),
        (
            ["sft", *OUT_DATA, "--learnin-rate", "1"],
            "CHATS",
            {"value": "--learnin-rate", "expected": "--learning-rate"},
        ),
        (["sft", *OUT_DATA, "--format", "gsm9k"], "CHATS", {"value": "gsm9k", "expected": "gsm8k"}),
        (["grpo", "--out", "OUT", "--task", "shel_game"], None, {"value": "shel_game", "expected": "shell_game"}),
        (["grpo", *OUT_DATA], "SUMS", {"expected": ("--grader", "--reward-model")}),
        (["grpo", *OUT_DATA, "--grader", "numerik"], "SUMS", {"value": "numerik", "expected": "numeric"}),
        (["online", "--recipe", "grop", *OUT_TASK], None, {"value": "grop", "expected": "grpo"}),
        (
            ["online", "--recipe", "rloo", "--epsilon", "0.1", *OUT_TASK],
            None,
            {"value": "epsilon", "problem": "unknown"},
        ),
        (["grop", "--out", "OUT"], None, {"problem": "usage"}),
        (["ppo", *OUT_TASK, "--lam", "1.5"], None, {"argument": "lam", "value": 1.5, "expected": "[0, 1]"}),
        (["ppo", *OUT_TASK, "--epsilon", "0"], None, {"argument": "epsilon", "value": 0}),
        (["grpo", *OUT_TASK, "--beta", "-1"], None, {"argument": "beta", "value": -1}),
        (["grpo", *OUT_TASK, "--num-generations", "1"], None, {"argument": "rewards"}),
        (
            ["online", "--recipe", "ppo", *OUT_TASK, "--max-invalid-fraction", "2"],
            None,
            {"argument": "max_invalid_fraction", "value": 2.0},
        ),
        (["ppo", *OUT_TASK, "--ptx-coef", "0.1"], None, {"argument": "pretraining", "problem": "missing"}),
        (["grpo", *OUT_TASK, "--lora-r", "-1"], None, {"argument": "lora_r", "value": -1}),
        (["dpo", *OUT_DATA, "--beta", "0"], "PAIRS", {"argument": "beta", "value": 0}),
        (["offline", "--loss", "dop", *OUT_DATA], "PAIRS", {"value": "dop", "expected": "dpo"}),
        (["dpo", "--gamma", "1", *OUT_DATA], "PAIRS", {"value": "--gamma", "problem": "unknown"}),
        (["dpo", *OUT_DATA, *SMALL], "LABELS", {"value": "dpo", "expected": ["bco", "kto"]}),
        (["odpo", *OUT_DATA, *SMALL], "PAIRS", {"argument": "margin", "problem": "missing"}),
        (["info_nca", *OUT_DATA, *SMALL], "PAIRS", {"argument": "score", "problem": "missing"}),
        (["dpo", *OUT_DATA, "--ref-model", "nowhere/"], "PAIRS", {"argument": "model", "value": "nowhere/"}),
        (["sft", "--config", "nowhere.yaml", "--out", "OUT"], None, {"file": "nowhere.yaml", "problem": "missing"}),
        (["sft", "--config", "FILE", "--out", "OUT"], "max_steps: [1\n", {"file": "d.jsonl", "line": 2}),
        (
            ["sft", "--config", "FILE", "--out", "OUT"],
            "max_stepz: 1\n",
            {"value": "max_stepz", "expected": "max_steps"},
        ),
        (["grpo", "--config", "FILE", "--out", "OUT"], "recipe: ppo\n", {"value": "ppo", "expected": "grpo"}),
    ],
)
def test_train_bad_input_raises_user_error_and_writes_nothing(argv, file, facts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    known = {"CHATS": CHATS, "SUMS": SUMS, "PAIRS": PAIRS, "LABELS": LABELS}
    if file in known:
        write(tmp_path / "d.jsonl", known[file])
    elif file is not None:
        (tmp_path / "d.jsonl").write_text(file, encoding="utf-8")
    out = tmp_path / "run"
    with raises(UserError, **facts) as caught:
        dispatch(["train", *(str(out) if a == "OUT" else "d.jsonl" if a == "FILE" else a for a in argv)])
    assert len(str(caught.value).splitlines()) == 1
    assert not out.exists(), "half-written output"


@pytest.mark.parametrize(("environment", "expected"), [({}, 1), ({"OMP_NUM_THREADS": "2"}, 2)])
def test_limit_threads_of_a_tiny_model_unless_the_user_has_set_them(environment, expected, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with threads(2):
        start.limit_threads(torch.nn.Linear(2, 2))
        assert torch.get_num_threads() == expected
        start.limit_threads(torch.nn.Linear(1000, 1001, device="meta"))
        assert torch.get_num_threads() == expected
