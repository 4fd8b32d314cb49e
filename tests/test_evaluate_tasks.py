"""`minirlhf evaluate`: clusters, examples before the problem, and intervals where nothing varies."""

import json
import math

import pytest
import torch
from facts import raises, without_pictures

from minirlhf.core.errors import UserError
from minirlhf.data import loaders
from minirlhf.data.chat import conversation
from minirlhf.data.records import Conversation, Problem
from minirlhf.models import checkpoints
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.trainers.evaluation import Estimate, wilson_interval
from minirlhf_cli import dispatch
from minirlhf_cli.files.measure import SampledCompletions, as_json, clusters_of, compare, measure, over_clusters
from minirlhf_cli.files.tasks import EvaluationRequest, with_examples


def replied(rewards, clusters=None):
    rewards = torch.tensor(rewards, dtype=torch.float64)
    names = None if clusters is None else torch.tensor(clusters)
    return SampledCompletions([["a"] * rewards.shape[1]] * len(rewards), rewards, rewards, rewards > 0, None, names)


# -- where nothing varies ----------------------------------------------------------------------------------------


def test_measure_equal_rewards_have_no_interval():
    numbers = as_json(measure(replied([[2.5], [2.5], [2.5]])))
    assert numbers["reward"] == {"value": 2.5, "low": None, "high": None}


def test_compare_model_that_always_wins_keeps_interval():
    """Were a share u of the problems other than seen, the worst of them would have −1 in place of 1."""
    [pair] = compare({"a": replied([[1.0]] * 8), "b": replied([[0.0]] * 8)})
    u = wilson_interval(0, 8)[1]
    assert pair.difference.value == pair.difference.high == 1.0
    assert pair.difference.low == pytest.approx((1 - u) * 1 + u * -1)
    [back] = compare({"b": replied([[0.0]] * 8), "a": replied([[1.0]] * 8)})
    assert back.difference.high == pytest.approx(-pair.difference.low) and back.difference.low == -1.0


def test_compare_unbounded_rewards_with_equal_differences_have_no_interval():
    [pair] = compare({"a": replied([[2.0], [5.0]]), "b": replied([[1.5], [4.5]])})
    assert pair.difference.value == 0.5 and not pair.difference.known


# -- clusters ----------------------------------------------------------------------------------------------------


def test_over_clusters_of_one_problem_each_equals_mean():
    values = torch.tensor([0.3, 1.7, -0.4, 2.2])
    alone = over_clusters(values, torch.tensor([4, 1, 9, 2]))
    assert (alone.mean, alone.stderr) == pytest.approx((Estimate.of(values).mean, Estimate.of(values).stderr))


def test_over_clusters_and_measure_ignore_copies_of_problem():
    """Each problem three times: the mean and its error are those of the problems."""
    values = torch.tensor([0.3, 1.7, -0.4, 2.2])
    thrice = over_clusters(values.repeat_interleave(3), torch.arange(4).repeat_interleave(3))
    once = Estimate.of(values)
    assert (thrice.mean, thrice.stderr) == pytest.approx((once.mean, once.stderr))
    rewards = torch.tensor([[1.0], [0.0], [1.0], [1.0], [0.0]])
    few, many = (
        replied(rewards.tolist(), [0, 1, 2, 3, 4]),
        replied(rewards.repeat_interleave(3, 0).tolist(), [i // 3 for i in range(15)]),
    )
    small, large = (as_json(measure(x))["accuracy"] for x in (few, many))
    assert large == pytest.approx(small)


def test_over_clusters_of_one_cluster_has_no_error():
    assert math.isnan(over_clusters(torch.tensor([1.0, 0.0]), torch.tensor([3, 3])).stderr)


def test_clusters_of_problems_without_cluster_stand_alone():
    assert clusters_of([Problem([], cluster=None), Problem([], cluster=None)]) is None
    assert (
        clusters_of([Problem([], cluster="x"), Problem([]), Problem([], cluster="x"), Problem([])]).unique().numel()
        == 3
    )


def rows(folder, *, name="data.jsonl", **fields):
    words = ("cats", "dogs", "birds", "purr")
    lines = [
        {"prompt": f"say {w}", "ground_truth": w} | {key: values[i] for key, values in fields.items()}
        for i, w in enumerate(words)
    ]
    (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(folder / name)


def test_loaders_read_cluster_from_field(tmp_path):
    records = loaders.load(rows(tmp_path, text=["x", "x", 7, "y"]), cluster="text")
    assert [p.cluster for p in records.problems()] == ["x", "x", "7", "y"]
    assert records.ignored == ()


@pytest.mark.parametrize("bad", [None, "", True, ["x"], 1.5])
def test_loaders_row_without_cluster_raises_user_error(tmp_path, bad):
    with raises(UserError, argument="text", value=bad, line=3):
        loaders.load(rows(tmp_path, text=["x", "x", bad, "y"]), cluster="text")


# -- examples ----------------------------------------------------------------------------------------------------


def task(**how):
    return EvaluationRequest(model="m", data=how.pop("data", "d"), **how)


def test_with_examples_follow_system_message_and_precede_problem():
    system = {"role": "system", "content": "be kind"}
    shown = [
        Conversation([{"role": "system", "content": "other"}, *conversation("one?", "1")]),
        Conversation(conversation("two?", "2")),
    ]
    prompt = with_examples([system, *conversation("three?")], shown)
    assert prompt == [system, *conversation("one?", "1", "two?", "2", "three?")]


@pytest.fixture
def worked(tmp_path):
    lines = [{"messages": conversation(f"say {w}", w)} for w in ("cats", "dogs", "birds", "purr")]
    (tmp_path / "worked.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(tmp_path / "worked.jsonl")


def test_evaluation_request_draws_examples_other_than_problem(tmp_path, worked):
    asked = task(data=rows(tmp_path), num_fewshot=3, fewshot_data=worked)
    prompts = [[m["content"] for m in p.prompt] for p in asked.problems()]
    for words in prompts:
        assert len(words) == 7 and len(set(words[::2])) == 4  # three examples and the problem, all different
    assert prompts == [[m["content"] for m in p.prompt] for p in asked.problems()]
    other = task(data=rows(tmp_path), num_fewshot=3, fewshot_data=worked, fewshot_seed=1)
    assert prompts != [[m["content"] for m in p.prompt] for p in other.problems()]


@pytest.mark.parametrize(
    ("how", "facts"),
    [
        ({"num_fewshot": 2}, {"argument": "--fewshot-data", "problem": "missing"}),
        ({"num_fewshot": -1}, {"argument": "--num-fewshot", "value": -1, "expected": 0}),
        ({"fewshot_seed": -1}, {"argument": "--fewshot-seed", "value": -1, "expected": 0}),
    ],
)
def test_evaluation_request_bad_setting_raises_user_error(how, facts):
    with raises(UserError, **facts):
        task(**how)


def test_evaluation_request_too_few_examples_raises_user_error(tmp_path, worked):
    with raises(UserError, argument="--num-fewshot", value=4, expected=3):
        task(data=rows(tmp_path), num_fewshot=4, fewshot_data=worked).problems()


def test_evaluation_request_announces_unused_examples():
    assert "fewshot_data" in task(fewshot_data="x").unused_options()
    assert "fewshot_data" not in task(num_fewshot=1, fewshot_data="x").unused_options()


def test_evaluate_task_file_sets_examples_and_clusters(tmp_path, worked, capsys):
    words = word_tokenizer(["cats", "dogs", "birds", "say", "purr"])
    checkpoints.save(tmp_path / "model", tiny_model("nano", words, seed=0), words)
    rows(tmp_path, text=["x", "x", "y", "y"])
    (tmp_path / "t.yaml").write_text(
        "data: data.jsonl\ngrader: contains\nmax_completion_length: 4\nnum_fewshot: 2\nfewshot_data: worked.jsonl\ncluster: text\n"
    )
    page = tmp_path / "page.html"
    assert (
        dispatch(["evaluate", str(tmp_path / "model"), "--task", str(tmp_path / "t.yaml"), "--report", str(page)]) == 0
    )
    shown = capsys.readouterr().out
    assert "worked.jsonl" in shown and " 2 clusters" in shown
    assert "nan" not in without_pictures(page.read_text())
    (tmp_path / "t.yaml").write_text("data: data.jsonl\ngrader: contains\ncluster: tetx\n")
    with raises(UserError, argument="tetx"):
        dispatch(["evaluate", str(tmp_path / "model"), "--task", str(tmp_path / "t.yaml")])
