"""Single completions with a rating train a regression; labels may be floats; a run's own training data is named."""

import json

import pytest
from facts import raises

from minirlhf.core.errors import UserError
from minirlhf.data import loaders
from minirlhf.data.records import Ranking, UnpairedPreference
from minirlhf_cli import dispatch
from minirlhf_cli.files.answering import trained_on

SMALL = ["--batch-size", "4", "--vocab-size", "300", "--context", "64", "--eval-fraction", "0.25", "--max-steps", "2"]


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "q", "completion": "good", "rating": 4.5},
        {"prompt": "q", "completion": "good", "score": 4.5},
        {"prompt": "q", "responses": ["good"], "scores": [4.5]},
    ],
)
def test_a_single_rated_completion_is_a_rating_and_no_comparison(row):
    records = loaders.load([row])
    [rating] = records.ratings()
    assert isinstance(rating, Ranking) and rating.scores == (4.5,)
    assert rating.tiers == [[[{"role": "assistant", "content": "good"}]]]
    assert len(records.notes()) == 1
    for needed in (records.comparisons, records.rankings):
        with raises(UserError, problem="empty"):
            needed()


def test_a_single_completion_without_a_score_is_still_dropped():
    with raises(UserError, problem="too few"):
        loaders.load([{"prompt": "q", "responses": ["good"]}])


def test_a_row_without_its_rating_is_dropped():
    rows = [{"prompt": "q", "completion": "a", "rating": rating} for rating in (3, "")]
    records = loaders.load(rows)
    assert len(records) == 1 and records.dropped[0].argument == "rating"


@pytest.mark.parametrize("label", [1.0, True, "true", 1])
def test_labels_may_be_floats(label):
    [row] = loaders.load([{"prompt": "q", "completion": "good", "label": label}]).examples
    assert isinstance(row, UnpairedPreference) and row.desirable
    [steps] = loaders.load([{"prompt": "q", "completions": ["a", "b"], "labels": [1.0, -1.0]}]).stepped()
    assert steps.labels == (1, -1)


def test_a_label_between_true_and_false_is_refused():
    with raises(UserError, argument="label"):
        loaders.load([{"prompt": "q", "completion": "good", "label": 0.5}])


@pytest.mark.slow
def test_train_reward_regression_on_rated_single_completions(tmp_path):
    data = tmp_path / "rated.jsonl"
    rows = [{"prompt": f"q{n}", "completion": "good " * (1 + n % 3), "rating": n % 3} for n in range(12)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = tmp_path / "run"
    argv = ["train", "reward", "--data", str(data), "--out", str(out), *SMALL]
    assert dispatch([*argv, "--loss", "regression"]) == 0
    result = json.loads((out / "result.json").read_text())
    assert result["squared_error"] >= 0 and result["constant"] > 0 and "accuracy" not in result
    metrics = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert len(metrics) == 2 and not any("accuracy" in row for row in metrics)
    assert trained_on(str(out), str(data)) and trained_on(str(out / "model"), str(data))
    assert not trained_on(str(out), str(out / "metrics.jsonl"))
    (tmp_path / "copy.jsonl").write_bytes(data.read_bytes())
    assert trained_on(str(out), str(tmp_path / "copy.jsonl"))
