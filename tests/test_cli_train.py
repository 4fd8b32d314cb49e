"""`minirlhf train` on small files of every format, and every kind of bad input: one line, exit status 2, nothing left behind."""

import json
import math
from itertools import count
from pathlib import Path

import pytest

from minirlhf.cli import main
from minirlhf.data import tasks
from minirlhf.feedback import graders

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
SMALL = ["--max-steps", "2", "--batch-size", "2", "--vocab-size", "300", "--context", "64", "--held-out", "0.25"]


def write(path: Path, rows: list[dict]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def result(folder: Path) -> dict:
    return json.loads((folder / "result.json").read_text())


@pytest.mark.parametrize(
    ("trainer", "rows"), [("sft", CHATS), ("sft", SUMS), ("reward", PAIRS), ("reward", TRANSCRIPTS)]
)
def test_train_from_a_file(trainer, rows, tmp_path, capsys):
    out = tmp_path / "run"
    assert main(["train", trainer, "--data", write(tmp_path / "d.jsonl", rows), "--out", str(out), *SMALL]) == 0
    found = result(out)
    assert found["train"] + found["held_out"] == len(rows)
    assert {"config.json", "metrics.jsonl", "result.json", "model", "checkpoints"} <= {p.name for p in out.iterdir()}
    if trainer == "reward":
        assert found["interval"][0] <= found["accuracy"] <= found["interval"][1]
        assert "the longer reply wins" in capsys.readouterr().out


def test_sft_then_reward_then_rl_from_the_folders_before(tmp_path):
    sums = write(tmp_path / "sums.jsonl", SUMS)
    pairs = write(tmp_path / "pairs.jsonl", PAIRS)
    sft, judge = tmp_path / "sft", tmp_path / "judge"
    assert main(["train", "sft", "--data", sums, "--out", str(sft), *SMALL]) == 0
    start = ["--model", str(sft / "model"), "--max-steps", "1", "--batch-size", "2", "--held-out", "0.25"]
    assert main(["train", "reward", "--data", pairs, "--out", str(judge), *start]) == 0
    short = ["--max-completion-length", "6", "--num-generations", "2"]
    graded = tmp_path / "graded"
    assert main(["train", "grpo", "--data", sums, "--grader", "numeric", "--out", str(graded), *start, *short]) == 0
    assert 0 <= result(graded)["held_out_reward"] <= 1
    judged = tmp_path / "judged"
    flags = ["--data", sums, "--reward-model", str(judge / "model"), "--out", str(judged), "--beta", "0.1"]
    assert main(["train", "online", "--recipe", "rloo", *flags, *start, *short]) == 0


def test_replies_that_cannot_be_graded_are_left_out_of_the_held_out_reward_and_counted(tmp_path, capsys, monkeypatch):
    asked = count()
    monkeypatch.setitem(graders.GRADERS, "exact", lambda completion, reference: (math.nan, 1.0)[next(asked) % 2])
    out, data = tmp_path / "run", write(tmp_path / "d.jsonl", SUMS)
    flags = [*SMALL, "--held-out", "0.5", "--num-generations", "2", "--max-completion-length", "6"]
    assert main(["train", "grpo", "--data", data, "--grader", "exact", "--out", str(out), *flags]) == 0
    found = result(out)
    held, sampled = found["held_out"], 2 * 2 * 2  # steps, prompts, generations
    failed = [n % 2 == 0 for n in range(held + sampled + held)]
    before, after = sum(failed[:held]) / held, sum(failed[-held:]) / held
    assert held > 2 and found["held_out_reward_before"] == found["held_out_reward"] == 1.0
    assert found["held_out_frac_invalid_before"] == pytest.approx(before)
    assert found["held_out_frac_invalid"] == pytest.approx(after)
    assert (
        f"left out, as they could not be graded: {before:.1%} -> {after:.1%} of the replies" in capsys.readouterr().out
    )


def test_yaml_holds_the_same_names_and_flags_win(tmp_path):
    data = write(tmp_path / "d.jsonl", CHATS)
    settings = tmp_path / "run.yaml"
    settings.write_text(f"data: {data}\nmax-steps: 3\nbatch_size: 2\nvocab_size: 300\ncontext: 64\nheld_out: 0.25\n")
    out = tmp_path / "run"
    assert main(["train", "sft", "--config", str(settings), "--out", str(out), "--max-steps", "2"]) == 0
    assert json.loads((out / "config.json").read_text())["max_steps"] == 2


def test_a_recipe_by_name_says_in_what_it_departs_from_its_paper(tmp_path, capsys):
    out = tmp_path / "dapo"
    flags = [
        "--max-steps",
        "1",
        "--batch-size",
        "2",
        "--num-generations",
        "4",
        "--epsilon-high",
        "0.3",
        "--staleness",
        "1",
    ]
    assert main(["train", "online", "--recipe", "dapo", "--task", "shell_game", "--out", str(out), *flags]) == 0
    said = capsys.readouterr().out
    assert "arXiv:2503.14476" in said and "epsilon_high=0.3" in said and "deviates: refilling ends" in said


@pytest.mark.parametrize("trainer", ["sft", "online"])
def test_the_help_names_every_world_and_grader(trainer, capsys):
    with pytest.raises(SystemExit):
        main(["train", trainer, "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert f"a tiny world in place of data: {', '.join(tasks.TASKS)}" in said
    assert trainer == "sft" or f"by: {', '.join(graders.GRADERS)}" in said


@pytest.mark.parametrize("task", tasks.TASKS)
def test_every_world_has_demonstrations_to_imitate(task, tmp_path):
    flags = ["--max-steps", "1", "--batch-size", "2", "--demonstrations", "20"]
    assert main(["train", "sft", "--task", task, "--out", str(tmp_path / "run"), *flags]) == 0
    found = result(tmp_path / "run")
    assert (found["train"], found["held_out"]) == (20, 2)


def test_a_task_in_place_of_data(tmp_path):
    out = tmp_path / "run"
    flags = ["--max-steps", "1", "--batch-size", "2", "--num-generations", "2", "--max-completion-length", "10"]
    assert main(["train", "dr_grpo", "--task", "shell_game", "--out", str(out), *flags]) == 0
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
def test_train_on_given_preferences(argv, rows, tmp_path, capsys):
    out = tmp_path / "run"
    assert main(["train", *argv, "--data", write(tmp_path / "d.jsonl", rows), "--out", str(out), *SMALL]) == 0
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


def bad(tmp_path: Path, name: str, text: str) -> str:
    (tmp_path / name).write_text(text, encoding="utf-8")
    return str(tmp_path / name)


@pytest.mark.parametrize(
    ("argv", "file", "expected"),
    [
        (["sft"], None, ["no output folder", "--out"]),
        (["sft", "--out", "OUT"], None, ["no data", "--data"]),
        (["sft", "--out", "OUT", "--data", "missing.jsonl"], None, ["missing.jsonl"]),
        (["sft", "--out", "OUT", "--data", "FILE"], "", ["d.jsonl"]),
        (
            ["sft", "--out", "OUT", "--data", "FILE"],
            '{"prompt": "a", "completion": "b"}\n{oops\n',
            ["d.jsonl", "line 2"],
        ),
        (
            ["sft", "--out", "OUT", "--data", "FILE"],
            '{"prompt": "a", "completion": "b"}\n{"prompt": "c"}\n',
            ["line 2", "completion"],
        ),
        (["sft", "--out", "OUT", "--data", "FILE"], '{"text": "a"}\n', ["line 1", "text", "messages"]),
        (
            ["reward", "--out", "OUT", "--data", "FILE"],
            '{"prompt": "a", "chosen": "b", "rejected": "b"}\n',
            ["line 1", "chosen"],
        ),
        (
            ["reward", "--out", "OUT", "--data", "FILE"],
            '{"prompt": "a", "completion": "b"}\n{"prompt": "c", "completion": "d"}\n',
            ["rejected"],
        ),
        (["sft", "--out", "OUT", "--data", "FILE", "--model", "nanno"], "CHATS", ["nanno", "nano"]),
        (
            ["sft", "--out", "OUT", "--data", "FILE", "--context", "4", "--vocab-size", "300"],
            "CHATS",
            ["tokens", "--context", "4"],
        ),
        (["sft", "--out", "OUT", "--data", "FILE", "--learning-rate", "much"], "CHATS", ["learning_rate", "'much'"]),
        (
            ["sft", "--out", "OUT", "--data", "FILE", "--learnin-rate", "1"],
            "CHATS",
            ["--learnin-rate", "--learning-rate"],
        ),
        (["sft", "--out", "OUT", "--data", "FILE", "--format", "gsm9k"], "CHATS", ["gsm9k", "gsm8k"]),
        (["grpo", "--out", "OUT", "--task", "shel_game"], None, ["shel_game", "shell_game"]),
        (["grpo", "--out", "OUT", "--data", "FILE"], "SUMS", ["--grader", "--reward-model"]),
        (["grpo", "--out", "OUT", "--data", "FILE", "--grader", "numerik"], "SUMS", ["numerik", "numeric"]),
        (["online", "--recipe", "grop", "--out", "OUT", "--task", "shell_game"], None, ["grop", "grpo"]),
        (
            ["online", "--recipe", "rloo", "--epsilon", "0.1", "--out", "OUT", "--task", "shell_game"],
            None,
            ["epsilon", "rloo"],
        ),
        (["grop", "--out", "OUT"], None, ["grop"]),
        (["ppo", "--out", "OUT", "--task", "shell_game", "--lam", "1.5"], None, ["PPO with lam=1.5", "[0, 1]"]),
        (
            ["ppo", "--out", "OUT", "--task", "shell_game", "--epsilon", "0"],
            None,
            ["PPO with epsilon=0", "epsilon = 0"],
        ),
        (["grpo", "--out", "OUT", "--task", "shell_game", "--beta", "-1"], None, ["GRPO with beta=-1", "beta = -1"]),
        (["grpo", "--out", "OUT", "--task", "shell_game", "--num-generations", "1"], None, ["grpo", "G ≥ 2"]),
        (
            ["online", "--recipe", "ppo", "--out", "OUT", "--task", "shell_game", "--max-invalid", "2"],
            None,
            ["max_invalid"],
        ),
        (
            ["ppo", "--out", "OUT", "--task", "shell_game", "--ptx-coef", "0.1"],
            None,
            ["ptx_coef", "no pretraining texts"],
        ),
        (["grpo", "--out", "OUT", "--task", "shell_game", "--lora-r", "-1"], None, ["lora_r=-1", "rank"]),
        (["dpo", "--out", "OUT", "--data", "FILE", "--beta", "0"], "PAIRS", ["DPO with beta=0", "beta = 0"]),
        (["offline", "--loss", "dop", "--out", "OUT", "--data", "FILE"], "PAIRS", ["dop", "dpo"]),
        (["dpo", "--gamma", "1", "--out", "OUT", "--data", "FILE"], "PAIRS", ["gamma", "dpo"]),
        (["dpo", "--out", "OUT", "--data", "FILE", *SMALL], "LABELS", ["dpo", "losses that take those: bco, kto"]),
        (["odpo", "--out", "OUT", "--data", "FILE", *SMALL], "PAIRS", ["margin"]),
        (["info_nca", "--out", "OUT", "--data", "FILE", *SMALL], "PAIRS", ["score"]),
        (["dpo", "--out", "OUT", "--data", "FILE", "--ref-model", "nowhere/"], "PAIRS", ["nowhere"]),
        (["sft", "--config", "nowhere.yaml", "--out", "OUT"], None, ["nowhere.yaml"]),
        (["sft", "--config", "FILE", "--out", "OUT"], "max_steps: [1\n", ["d.jsonl", "line"]),
        (["sft", "--config", "FILE", "--out", "OUT"], "max_stepz: 1\n", ["max_stepz", "max_steps"]),
        (["grpo", "--config", "FILE", "--out", "OUT"], "recipe: ppo\n", ["unknown recipe 'ppo'", "grpo"]),
    ],
)
def test_bad_input_is_one_line_and_exit_status_2(argv, file, expected, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    known = {"CHATS": CHATS, "SUMS": SUMS, "PAIRS": PAIRS, "LABELS": LABELS}
    if file in known:
        write(tmp_path / "d.jsonl", known[file])
    elif file is not None:
        bad(tmp_path, "d.jsonl", file)
    out = tmp_path / "run"
    assert main(["train", *(str(out) if a == "OUT" else "d.jsonl" if a == "FILE" else a for a in argv)]) == 2
    error = capsys.readouterr().err
    lines = [line for line in error.splitlines() if line.startswith("minirlhf:")]
    assert len(lines) == 1 and "Traceback" not in error, error
    for part in expected:
        assert part in lines[0], lines[0]
    assert not out.exists(), "half-written output"


def test_unknown_command_names_the_nearest(capsys):
    assert main(["trian"]) == 2
    assert "did you mean 'train'" in capsys.readouterr().err
    assert main([]) == 0 and "usage" in capsys.readouterr().out
