"""Metrics that go to TensorBoard while a run goes on."""

import json
import time

import pytest

from minirlhf.cli import main
from minirlhf.report import live

events = pytest.importorskip(
    "tensorboard.backend.event_processing.event_accumulator", reason="needs the extra 'tensorboard'"
)


def scalars(folder, name):
    board = events.EventAccumulator(str(folder)).Reload()
    return [(e.step, e.value) for e in board.Scalars(name)] if name in board.Tags()["scalars"] else []


def seen(folder, name, rows, patience=30.0):
    """Whether these rows are there before long."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        if scalars(folder, name) == rows:
            return True
        time.sleep(0.05)
    return False


def test_rows_are_there_while_the_run_goes_on_and_a_half_written_one_waits(tmp_path):
    file = tmp_path / "metrics.jsonl"
    with live.tensorboard(tmp_path, seconds=0.05):
        file.write_text('{"step": 0, "loss": 2.0}\n{"step": 1, "lo')
        assert seen(tmp_path / live.FOLDER, "loss", [(0, 2.0)])
        with file.open("a") as more:
            more.write('ss": 1.0}\n')
        assert seen(tmp_path / live.FOLDER, "loss", [(0, 2.0), (1, 1.0)])
        with file.open("a") as more:
            more.write('{"step": 2, "loss": 0.5}\n')
    assert scalars(tmp_path / live.FOLDER, "loss") == [(0, 2.0), (1, 1.0), (2, 0.5)]


def test_a_run_reports_what_it_logs_and_a_resumed_one_all_of_it(tmp_path):
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
        "--held-out",
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


def test_another_place_is_refused_before_anything_is_read(tmp_path, capsys):
    argv = ["train", "sft", "--data", "nowhere.jsonl", "--out", str(tmp_path / "run"), "--report-to", "tensorbord"]
    assert main(argv) == 2
    assert "unknown report_to 'tensorbord'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
