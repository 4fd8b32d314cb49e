"""`minirlhf chat`, `plot`, `doctor`: what they show is what the models and runs say."""

import io
import json
import sys

import numpy as np
import pytest
import torch
from facts import raises

from minirlhf.core.errors import UserError
from minirlhf.data.chat import conversation, encode_prompt
from minirlhf.models import checkpoints, texts
from minirlhf.models.heads import RewardModel
from minirlhf.models.sampling import Sampling
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.stages import named
from minirlhf_cli import dispatch
from minirlhf_cli.commands import chat, doctor
from minirlhf_course.report import curves

WORDS = ["hi", "cats", "sleep", "much", "dogs", "bark"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Two untrained models: a checkpoint, and a run with a checkpoint of its sixth step."""
    root = tmp_path_factory.mktemp("models")
    tokenizer = word_tokenizer(WORDS)
    for seed, folder in ((0, root / "one"), (1, checkpoints.step_folder(root / "run", 6))):
        checkpoints.save(folder, tiny_model("nano", tokenizer, seed=seed, context=64), tokenizer)
    (root / "run" / "config.json").write_text("{}")
    (root / "run" / "metrics.jsonl").write_text('{"step": 0, "loss": 1}\n')
    return str(root / "one"), str(root / "run")


def say(text, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))


# -- chat -------------------------------------------------------------------------------------------------------------


def test_chat_answer_repeats_with_seed(folders, capsys):
    def answer(*flags):
        assert dispatch(["chat", folders[0], "--prompt", "hi cats", "--max-completion-length", "8", *flags]) == 0
        return capsys.readouterr().out

    assert answer() == answer() != answer("--seed", "1")
    assert answer("--temperature", "0") == answer("--temperature", "0", "--seed", "1")


def test_chat_top_prints_probabilities_of_model(folders, capsys):
    flags = ["--top", "2", "--temperature", "0.5", "--max-completion-length", "3"]
    assert dispatch(["chat", folders[0], "--prompt", "hi", *flags]) == 0
    rows = [
        row for line in capsys.readouterr().out.splitlines() if len(row := line.split()) == 6 and row[1][0].isdigit()
    ]
    model, tokenizer = named.model_by_name(folders[0])
    ids = encode_prompt(tokenizer, conversation("hi"))
    assert rows
    for said, p, first, q, second, r in rows:
        with torch.no_grad():
            expected = (model(torch.tensor([ids])).logits[0, -1] / 0.5).softmax(-1)
        best = expected.topk(2)
        token = tokenizer.convert_tokens_to_ids(said)
        assert float(p) == pytest.approx(float(expected[token]), abs=0.006)
        assert [tokenizer.convert_tokens_to_ids(t) for t in (first, second)] == best.indices.tolist()
        assert [float(q), float(r)] == pytest.approx(best.values.tolist(), abs=0.006)
        ids.append(token)


def test_chat_two_models_answer_side_by_side(folders, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    assert dispatch(["chat", *folders, "--prompt", "hi", "--max-completion-length", "4"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert "│" in out[0] and all(len(line) <= 100 for line in out)
    for i, folder in enumerate(folders):
        assert dispatch(["chat", folder, "--prompt", "hi", "--max-completion-length", "4"]) == 0
        alone = capsys.readouterr().out.strip()
        assert out[2].split("│")[i].strip() == alone


def test_chat_piped_lines_are_turns_of_one_conversation(folders, capsys, monkeypatch):
    flags = [folders[0], "--max-completion-length", "4"]
    say("hi\n\nhi\n/reset\nhi\n", monkeypatch)
    assert dispatch(["chat", *flags]) == 0
    first, second, third = capsys.readouterr().out.splitlines()
    assert first == third
    speaker = chat.Speaker("x", *named.model_by_name(folders[0]), system=None)
    sampling = Sampling(max_completion_length=4)
    replies = [speaker.reply("hi", sampling, 0, 0) for _ in range(2)]
    assert replies == [[first], [second]]
    assert [m["role"] for m in speaker.messages] == ["user", "assistant"] * 2


def test_chat_terminal_continues_after_bad_command(folders, capsys, monkeypatch):
    lines = iter(["/rest", "/top x", "/top 1", "hi", "/quit", "never"])
    monkeypatch.setattr("builtins.input", lambda *_: next(lines))
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    assert dispatch(["chat", folders[0], "--max-completion-length", "4"]) == 0
    said = capsys.readouterr()
    assert "'/reset'" in said.err and "/top x" in said.err
    assert said.out.strip() and "never" not in said.out


def test_chat_message_beyond_context_raises_and_is_forgotten(folders):
    speaker = chat.Speaker("x", *named.model_by_name(folders[0]), system="much")
    speaker.reset()
    with raises(UserError, argument="max_completion_length", value=74 + 4, expected=64):
        chat._turn([speaker], "hi " * 70, Sampling(max_completion_length=4), 0, 0)
    assert speaker.messages == [{"role": "system", "content": "much"}]


def test_chat_leaves_out_oldest_messages_beyond_context(folders, capsys, monkeypatch):
    say("hi\n" * 12, monkeypatch)
    assert dispatch(["chat", folders[0], "--system", "much", "--max-completion-length", "8"]) == 0
    said = capsys.readouterr()
    assert len(said.out.splitlines()) >= 12 and "no longer fit" in said.err
    speaker = chat.Speaker("x", *named.model_by_name(folders[0]), system="much")
    speaker.reset()
    for _ in range(12):
        speaker.reply("hi", Sampling(max_completion_length=8), 0, 0)
    assert [m["role"] for m in speaker.messages[:2]] == ["system", "user"] and len(speaker.messages) < 25


def test_chat_names_words_unknown_to_tokenizer(folders, capsys):
    assert dispatch(["chat", folders[0], "--prompt", "hi zebra", "--max-completion-length", "4"]) == 0
    assert "zebra" in capsys.readouterr().err


def test_chat_replaces_control_characters_of_model(folders, monkeypatch):
    monkeypatch.setattr(texts, "completion_texts", lambda *_: ["a\x1b[2Jb\tc\nd\x07"])
    speaker = chat.Speaker("x", *named.model_by_name(folders[0]), system=None)
    lines = speaker.reply("hi", Sampling(max_completion_length=4), 0, 0)
    assert [line.partition(" [cut")[0] for line in lines] == ["a�[2Jb  c", "d�"]


def test_named_model_folder_of_run_checkpoint_and_folder(folders, tmp_path):
    assert named.model_folder(tmp_path) == tmp_path
    run = checkpoints.step_folder(folders[1], 6).parent.parent
    assert named.model_folder(run) == checkpoints.step_folder(run, 6)
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "metrics.jsonl").write_text("")
    with raises(UserError, argument="model", problem="missing", file=str(tmp_path)):
        named.model_folder(tmp_path)
    (tmp_path / "model").mkdir()
    assert named.model_folder(tmp_path) == tmp_path / "model"


@pytest.mark.parametrize(
    ("argv", "facts"),
    [
        (["nano"], {"argument": "model", "value": "nano"}),
        (["assistant-stf"], {"expected": "assistant-sft"}),
        (["assistant-reward"], {"value": "assistant-reward", "expected": "language model"}),
        (["./nowhere"], {"value": "./nowhere", "problem": "missing"}),
        (["ONE", "ONE", "ONE"], {"argument": "models", "value": 3}),
        (["ONE", "--prompt", " "], {"argument": "prompt", "problem": "empty"}),
        (["ONE", "--prompt", "hi", "--top-p", "2"], {"argument": "top_p", "value": 2.0}),
        (["ONE", "--prompt", "hi", "--temperature", "-1"], {"argument": "temperature", "value": -1.0}),
        (["ONE", "--prompt", "hi", "--top", "-1"], {"argument": "--top", "value": -1, "expected": 0}),
        (["REWARD", "--prompt", "hi"], {"argument": "model", "expected": "language model"}),
    ],
)
def test_chat_bad_input_raises_user_error(argv, facts, folders, tmp_path):
    if "REWARD" in argv:
        model, tokenizer = named.model_by_name(folders[0])
        checkpoints.save(tmp_path / "rm", RewardModel.from_causal_lm(model, seed=0), tokenizer)
    names = {"ONE": folders[0], "REWARD": str(tmp_path / "rm")}
    with raises(UserError, **facts):
        dispatch(["chat", *(names.get(a, a) for a in argv)])


# -- plot -------------------------------------------------------------------------------------------------------------


def run_folder(path, seed, rows, **settings):
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps({"seed": seed, **settings}))
    (path / "metrics.jsonl").write_text("".join(json.dumps({"step": i, **row}) + "\n" for i, row in enumerate(rows)))
    return path


@pytest.fixture
def runs(tmp_path):
    for seed, rewards in enumerate(([1, 2, 3], [3, 4], [5, float("nan"), 0])):
        run_folder(tmp_path / f"a-s{seed}", seed, [{"reward": r, "seconds": 1.0} for r in rewards], lr=1)
    run_folder(tmp_path / "a-s3", 3, [{"reward": 0.0}], lr=2)  # the same name, other settings
    run_folder(tmp_path / "b", 0, [{"reward": 9.0, "kl": 1.0}] * 2, lr=1)
    return tmp_path


def test_curves_group_runs_that_differ_by_seed(runs):
    found = curves.read([runs])
    assert [run.path.name for run in found] == ["a-s0", "a-s1", "a-s2", "a-s3", "b"]
    groups = curves.group(found)
    assert {label: len(members) for label, members in groups.items()} == {"a": 3, "a-s3": 1, "b": 1}
    assert set(curves.group(found, separate=True)) == {"a-s0", "a-s1", "a-s2", "a-s3", "b"}
    drawn = curves.curve(groups["a"], "reward")
    assert drawn.steps.tolist() == [0, 1, 2]
    assert drawn.mean().tolist() == [3, 3, 1.5]
    assert [edge.tolist() for edge in drawn.band()] == [[1, 2, 0], [5, 4, 3]]
    nothing = curves.MetricCurve(np.arange(2), np.full((2, 2), np.nan))
    assert np.isnan([nothing.mean(), *nothing.band()]).all()


def test_curves_figure_draws_means_and_bands(runs):
    found = curves.read([runs / "a-s0", runs / "a-s1", runs / "b" / "metrics.jsonl"])
    assert curves.choose(found) == ["reward", "kl"]
    assert curves.choose(found, ["seconds"]) == ["seconds"]
    drawn = curves.figure(curves.group(found), ["reward", "kl"])
    panel, other = drawn.axes
    assert [line.get_ydata().tolist() for line in panel.lines] == [[2, 3, 3], [9, 9]]
    assert len(panel.collections) == 1  # the band
    assert [len(line.get_ydata()) for line in other.lines] == [2]
    assert (other.get_title(), other.get_ylabel()) == ("kl", "nats per completion")


@pytest.mark.parametrize(("ending", "begins"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")])
def test_plot_writes_identical_figures_twice(ending, begins, runs):
    files = [runs / f"{name}{ending}" for name in "xy"]
    for file in files:
        assert dispatch(["plot", str(runs / "a-s0"), str(runs / "b"), "--metrics", "reward", "--out", str(file)]) == 0
    assert files[0].read_bytes() == files[1].read_bytes() and files[0].read_bytes().startswith(begins)


def test_plot_prints_last_values_with_spread(runs, capsys):
    assert dispatch(["plot", str(runs), "--out", str(runs / "x.png")]) == 0
    out = capsys.readouterr().out
    assert "2.333 ± 2.1" in out  # of 3, 4 and 0


def test_plot_tensorboard_replaces_event_file(runs):
    event_file_loader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    for _ in range(2):  # a second time replaces what the first wrote
        assert dispatch(["plot", str(runs / "a-s0"), str(runs / "b"), "--tensorboard", str(runs / "tb")]) == 0
    board = event_file_loader.EventAccumulator(str(runs / "tb" / "b")).Reload()
    assert [(e.step, e.value) for e in board.Scalars("kl")] == [(0, 1.0), (1, 1.0)]


@pytest.mark.parametrize(
    ("metrics", "facts"),
    [
        ("", {"argument": "run", "problem": "empty"}),
        ("[1]\n", {"argument": "step", "line": 1}),
        ('{"step": 0}\n{"loss": 1}\n', {"argument": "step", "line": 2}),
        ('{"step": 0, "loss": "low"}\n', {"line": 1}),
        ('{"step": 0}\n{"st', {"line": 2}),
    ],
)
def test_plot_broken_metrics_raise_user_error_with_line(metrics, facts, tmp_path):
    (tmp_path / "metrics.jsonl").write_text(metrics)
    with raises(UserError, **facts) as caught:
        dispatch(["plot", str(tmp_path), "--out", str(tmp_path / "x.png")])
    assert str(tmp_path) in caught.value.file and not (tmp_path / "x.png").exists()


@pytest.mark.parametrize(
    ("argv", "facts"),
    [
        (["nowhere"], {"problem": "missing", "file": "nowhere"}),
        (["RUNS/empty"], {"argument": "run", "problem": "missing"}),
        (["RUNS", "--metrics", "rewards"], {"value": "rewards", "expected": "reward"}),
        (["RUNS", "--out", "x.gif"], {"value": ".gif", "expected": [".png", ".svg", ".pdf"]}),
        (["RUNS", "--smooth", "0"], {"argument": "--smooth", "value": 0, "expected": 1}),
    ],
)
def test_plot_bad_input_raises_user_error(argv, facts, runs):
    (runs / "empty").mkdir()
    with raises(UserError, **facts):
        dispatch(["plot", *(a.replace("RUNS", str(runs)) for a in argv)])


# -- doctor -----------------------------------------------------------------------------------------------------------


def test_doctor_of_sound_machine_returns_0(capsys):
    assert dispatch(["doctor", "--no-timing"]) == 0
    assert torch.__version__ in capsys.readouterr().out


def test_doctor_names_wrong_packages_disk_threads_and_missing_zoo(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("MINIRLHF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: doctor.shutil._ntuple_diskusage(9, 9, 1000))
    monkeypatch.setattr(doctor.importlib.metadata, "requires", lambda _: ["torch>=99", "no-such-package"])
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1000)
    assert dispatch(["doctor", "--no-timing"]) == 1
    out = capsys.readouterr().out
    for part in ("torch 2", ">=99", "no-such-package", "0.00 GB", "1000", "assistant-sft"):
        assert part in out, part


def test_doctor_speed_measures_three_numbers():
    lines = doctor.speed(slow := [])
    assert all(any(c.isdigit() for c in line) for line in lines) and len(lines) == 3
    assert bool(slow) != torch.cuda.is_available() and all("0.5 B" in line for line in slow)


# -- settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["seed: \x00\n", "seed: " + "9" * 5000, "seed: 2001-99-99", "[" * 5000, "? [a]: 1\n- b", "\ufeffseed: [", "5"],
)
def test_settings_unreadable_yaml_raises_user_error(text, tmp_path):
    file = tmp_path / "run.yaml"
    file.write_text(text, encoding="utf-8")
    with raises(UserError, file=str(file)) as caught:
        dispatch(["train", "sft", "--config", str(file), "--out", str(tmp_path / "out")])
    assert len(str(caught.value).splitlines()) == 1 and not (tmp_path / "out").exists()
