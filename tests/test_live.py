"""Metrics that go to TensorBoard while a run goes on."""

import json

import pytest
from facts import raises
from patience import until

from minirlhf.core.errors import UserError
from minirlhf.trainers import live
from minirlhf_cli import dispatch, main

events = pytest.importorskip(
    "tensorboard.backend.event_processing.event_accumulator", reason="needs the extra 'tensorboard'"
)


def scalars(folder, name):
    board = events.EventAccumulator(str(folder)).Reload()
    return [(e.step, e.value) for e in board.Scalars(name)] if name in board.Tags()["scalars"] else []


def wait_for(folder, name, rows):
    until(lambda: scalars(folder, name) == rows, f"{name} {rows}")


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
