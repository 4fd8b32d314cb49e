"""Metrics that go to TensorBoard while a run goes on."""

import json
import sys
import types

import pytest
from facts import raises
from patience import until

from minirlhf.core.errors import UserError
from minirlhf.trainers import live
from minirlhf_cli import dispatch, main

try:
    from tensorboard.backend.event_processing import event_accumulator as events
except ImportError:
    events = None
needs_tensorboard = pytest.mark.skipif(events is None, reason="needs the extra 'tensorboard'")


def scalars(folder, name):
    board = events.EventAccumulator(str(folder)).Reload()
    return [(e.step, e.value) for e in board.Scalars(name)] if name in board.Tags()["scalars"] else []


def wait_for(folder, name, rows):
    until(lambda: scalars(folder, name) == rows, f"{name} {rows}")


@needs_tensorboard
def test_tensorboard_writes_whole_rows_while_run_goes_on(tmp_path):
    file = tmp_path / "metrics.jsonl"
    with live.tensorboard(tmp_path, seconds=0.05):
        file.write_text('{"step": 0, "loss": 2.0}\n{"step": 1, "lo')
        wait_for(tmp_path / live.FOLDER, "loss", [(0, 2.0)])
        with file.open("a") as more:
            more.write('ss": 1.0}\n')
        wait_for(tmp_path / live.FOLDER, "loss", [(0, 2.0), (1, 1.0)])
        with file.open("a") as more:
            more.write('{"step": 2, "loss": 0.5}\n')
    assert scalars(tmp_path / live.FOLDER, "loss") == [(0, 2.0), (1, 1.0), (2, 0.5)]


@needs_tensorboard
def test_cli_train_report_to_tensorboard_logs_all_metrics(tmp_path):
    data = tmp_path / "d.jsonl"
    data.write_text("".join(json.dumps({"prompt": f"q{n}", "completion": f"good {n}"}) + "\n" for n in range(8)))
    argv = [
        "train",
        "sft",
        "--data",
        str(data),
        "--out",
        str(tmp_path / "run"),
        "--batch-size",
        "2",
        "--eval-fraction",
        "0.3",
    ]
    argv += ["--vocab-size", "300", "--context", "64", "--report-to", "tensorboard", "--save-steps", "1"]
    for more in (["--max-steps", "2"], ["--max-steps", "4", "--resume"]):
        assert main([*argv, *more]) == 0
        rows = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
        assert len(rows) == int(more[1])
        for name in rows[0].keys() - {"step"}:
            told = scalars(tmp_path / "run" / live.FOLDER, name)
            assert told == [(row["step"], pytest.approx(row[name], rel=1e-6)) for row in rows]


def test_cli_train_report_to_unknown_is_refused_first(tmp_path):
    argv = ["train", "sft", "--data", "nowhere.jsonl", "--out", str(tmp_path / "run"), "--report-to", "tensorbord"]
    with raises(UserError, argument="report_to", value="tensorbord", expected="tensorboard"):
        dispatch(argv)
    assert list(tmp_path.iterdir()) == []


class FakeWandb(types.ModuleType):
    """The part of ``wandb`` that a run calls: ``init`` returns a run with ``log`` and ``finish``."""

    def __init__(self, problem=None):
        super().__init__("wandb")
        self.problem, self.started, self.rows, self.num_finished = problem, [], [], 0

    def init(self, *, project, name):
        if self.problem:
            raise self.problem
        self.started.append((project, name))
        return self

    def log(self, row, *, step):
        self.rows.append((step, row))

    def finish(self):
        self.num_finished += 1


def chats(folder):
    data = folder / "d.jsonl"
    data.write_text("".join(json.dumps({"prompt": f"q{n}", "completion": f"good {n}"}) + "\n" for n in range(8)))
    return ["train", "sft", "--data", str(data), "--vocab-size", "300", "--context", "64", "--batch-size", "2"]


def test_cli_train_report_to_wandb_logs_all_rows_and_finishes(tmp_path, monkeypatch):
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    assert main([*chats(tmp_path), "--max-steps", "3", "--out", str(tmp_path / "run"), "--report-to", "wandb"]) == 0
    rows = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert [(row.pop("step"), row) for row in rows] == fake.rows and len(rows) == 3
    assert fake.started == [("mine", "run")] and fake.num_finished == 1


@pytest.mark.parametrize(("module", "problem"), [(None, "missing"), (FakeWandb(RuntimeError("no login")), "fails")])
def test_cli_train_report_to_wandb_that_is_not_there_or_fails_is_refused(module, problem, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", module)
    with raises(UserError, argument="report_to", value="wandb", problem=problem):
        dispatch([*chats(tmp_path), "--max-steps", "1", "--out", str(tmp_path / "run"), "--report-to", "wandb"])
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
