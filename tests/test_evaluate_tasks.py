"""`minirlhf evaluate`: clusters, examples before the problem, and intervals where nothing varies."""

import json
import math

import pytest
import torch

from minirlhf.cli import main
from minirlhf.core.errors import UserError
from minirlhf.data import loaders
from minirlhf.data.chat import conversation
from minirlhf.data.records import Conversation, Problem
from minirlhf.models import checkpoints
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.stages.measure import Replies, as_json, clusters_of, compare, measure, over_clusters
from minirlhf.stages.tasks import EvaluationRequest, with_examples
from minirlhf.trainers.evaluation import Measured, wilson_interval


def replied(rewards, clusters=None):
    rewards = torch.tensor(rewards, dtype=torch.float64)
    names = None if clusters is None else torch.tensor(clusters)
    return Replies([["a"] * rewards.shape[1]] * len(rewards), rewards, rewards, rewards > 0, None, names)


# -- where nothing varies ----------------------------------------------------------------------------------------


def test_rewards_that_are_all_alike_have_no_interval():
    numbers = as_json(measure(replied([[2.5], [2.5], [2.5]])))
    assert numbers["reward"] == {"value": 2.5, "low": None, "high": None}
    [number, *_] = measure(replied([[2.5], [2.5]]))
    assert "no interval" in str(number)


def test_a_model_that_always_wins_has_not_proved_that_it_always_will():
    """Were a share u of the problems other than seen, the worst of them would have −1 in place of 1."""
    [pair] = compare({"a": replied([[1.0]] * 8), "b": replied([[0.0]] * 8)})
    u = wilson_interval(0, 8)[1]
    assert pair.difference.value == pair.difference.high == 1.0
    assert pair.difference.low == pytest.approx((1 - u) * 1 + u * -1)
    [back] = compare({"b": replied([[0.0]] * 8), "a": replied([[1.0]] * 8)})
    assert back.difference.high == pytest.approx(-pair.difference.low) and back.difference.low == -1.0


def test_rewards_without_bounds_that_differ_by_one_number_have_no_interval():
    [pair] = compare({"a": replied([[2.0], [5.0]]), "b": replied([[1.5], [4.5]])})
    assert pair.difference.value == 0.5 and not pair.difference.known


# -- clusters ----------------------------------------------------------------------------------------------------


def test_clusters_of_one_problem_are_no_clusters():
    values = torch.tensor([0.3, 1.7, -0.4, 2.2])
    alone = over_clusters(values, torch.tensor([4, 1, 9, 2]))
    assert (alone.mean, alone.stderr) == pytest.approx((Measured.of(values).mean, Measured.of(values).stderr))


def test_copies_of_a_problem_add_nothing():
    """Each problem three times: the mean and its error are those of the problems."""
    values = torch.tensor([0.3, 1.7, -0.4, 2.2])
    thrice = over_clusters(values.repeat_interleave(3), torch.arange(4).repeat_interleave(3))
    once = Measured.of(values)
    assert (thrice.mean, thrice.stderr) == pytest.approx((once.mean, once.stderr))
    rewards = torch.tensor([[1.0], [0.0], [1.0], [1.0], [0.0]])
    few, many = (
        replied(rewards.tolist(), [0, 1, 2, 3, 4]),
        replied(rewards.repeat_interleave(3, 0).tolist(), [i // 3 for i in range(15)]),
    )
    small, large = (as_json(measure(x))["accuracy"] for x in (few, many))
    assert large == pytest.approx(small)


def test_pairs_in_clusters_toss_one_coin_for_each():
    ours, theirs = [[1.0], [1.0], [1.0], [0.0], [1.0]], [[0.0], [0.0], [0.0], [1.0], [1.0]]
    [alone] = compare({"a": replied(ours), "b": replied(theirs)})
    [pair] = compare({"a": replied(ours, [0, 0, 0, 1, 2]), "b": replied(theirs, [0, 0, 0, 1, 2])})
    assert (alone.better, alone.worse) == (3, 1) and (pair.better, pair.worse) == (1, 1)
    assert pair.difference.value == alone.difference.value
    assert pair.difference.high - pair.difference.low > alone.difference.high - alone.difference.low


def test_one_cluster_says_nothing_of_the_error():
    assert math.isnan(over_clusters(torch.tensor([1.0, 0.0]), torch.tensor([3, 3])).stderr)


def test_problems_without_a_cluster_stand_alone():
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


def test_a_field_of_the_rows_is_the_cluster(tmp_path):
    records = loaders.load(rows(tmp_path, text=["x", "x", 7, "y"]), cluster="text")
    assert [p.cluster for p in records.problems()] == ["x", "x", "7", "y"]
    assert records.ignored == ()


@pytest.mark.parametrize("bad", [None, "", True, ["x"], 1.5])
def test_a_row_without_its_cluster_is_named(tmp_path, bad):
    with pytest.raises(UserError, match=r"line 3.*field 'text', its cluster.*expected a name or a whole number"):
        loaders.load(rows(tmp_path, text=["x", "x", bad, "y"]), cluster="text")


# -- examples ----------------------------------------------------------------------------------------------------


def task(**how):
    return EvaluationRequest(model="m", data=how.pop("data", "d"), **how)


def test_examples_stand_behind_the_system_message_and_before_the_problem():
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


def test_every_problem_has_examples_and_never_itself(tmp_path, worked):
    asked = task(data=rows(tmp_path), num_fewshot=3, fewshot_data=worked)
    prompts = [[m["content"] for m in p.prompt] for p in asked.problems()]
    for words in prompts:
        assert len(words) == 7 and len(set(words[::2])) == 4  # three examples and the problem, all different
    assert prompts == [[m["content"] for m in p.prompt] for p in asked.problems()]
    other = task(data=rows(tmp_path), num_fewshot=3, fewshot_data=worked, fewshot_seed=1)
    assert prompts != [[m["content"] for m in p.prompt] for p in other.problems()]


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"num_fewshot": 2}, "--num-fewshot 2: expected --fewshot-data"),
        ({"num_fewshot": -1}, "--num-fewshot -1: expected at least 0"),
        ({"fewshot_seed": -1}, "--fewshot-seed -1: expected at least 0"),
    ],
)
def test_settings_that_make_no_sense(how, said):
    with pytest.raises(UserError, match=said):
        task(**how)


def test_too_few_examples_are_counted(tmp_path, worked):
    with pytest.raises(UserError, match=r"3 examples that are not the problem itself; --num-fewshot asks for 4"):
        task(data=rows(tmp_path), num_fewshot=4, fewshot_data=worked).problems()


def test_examples_that_nobody_asks_for_are_announced():
    assert "fewshot_data" in task(fewshot_data="x").without_effect()
    assert "fewshot_data" not in task(num_fewshot=1, fewshot_data="x").without_effect()


def test_a_task_file_names_examples_and_clusters(tmp_path, worked, capsys):
    words = word_tokenizer(["cats", "dogs", "birds", "say", "purr"])
    checkpoints.save(tmp_path / "model", tiny_model("nano", words, seed=0), words)
    rows(tmp_path, text=["x", "x", "y", "y"])
    (tmp_path / "t.yaml").write_text(
        "data: data.jsonl\ngrader: contains\nmax_completion_length: 4\nnum_fewshot: 2\nfewshot_data: worked.jsonl\ncluster: text\n"
    )
    page = tmp_path / "page.html"
    assert main(["evaluate", str(tmp_path / "model"), "--task", str(tmp_path / "t.yaml"), "--report", str(page)]) == 0
    shown = capsys.readouterr().out
    assert "2 examples before each problem" in shown and "95 % intervals over 2 clusters" in shown
    assert "nan" not in page.read_text()
    (tmp_path / "t.yaml").write_text("data: data.jsonl\ngrader: contains\ncluster: tetx\n")
    assert main(["evaluate", str(tmp_path / "model"), "--task", str(tmp_path / "t.yaml")]) == 2
    assert "field 'tetx', its cluster" in capsys.readouterr().err
