"""`minirlhf evaluate`: the numbers against their definitions, and bad input."""

import dataclasses
import json
import math
import re

import numpy as np
import pytest
import torch
from facts import raises, without_pictures

from minirlhf.core.errors import UserError
from minirlhf.data import loaders
from minirlhf.data.chat import conversation
from minirlhf.data.records import Problem
from minirlhf.models import checkpoints
from minirlhf.models.sampling import Sampling
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.trainers.evaluation import Estimate, candidates, evaluate, wilson_interval
from minirlhf_cli import dispatch
from minirlhf_cli.commands.evaluate import OF_THE_HARNESS
from minirlhf_cli.files.measure import SampledCompletions, as_json, compare, measure, sample_completions
from minirlhf_cli.files.tasks import EvaluationRequest

WORDS = word_tokenizer(["cats", "dogs", "birds", "say", "purr"])
POLICY, OTHER = (tiny_model("nano", WORDS, seed=seed) for seed in (0, 1))
PROBLEMS = [Problem(conversation(f"say {name}"), name) for name in ("cats", "dogs", "birds", "purr", "say")]
SAMPLING = Sampling(max_completion_length=5)


def begins_right(problems, completions):
    return [float(p.reference in c) for p, c in zip(problems, completions, strict=True)]


def length(problems, completions):
    return [float(len(c)) for c in completions]


def measured(reward, *, against=None, **how):
    """The numbers of ``POLICY`` on ``PROBLEMS``, by name."""
    other = None if against is None else sample_completions(against, WORDS, PROBLEMS, reward, SAMPLING, **how)
    return as_json(measure(sample_completions(POLICY, WORDS, PROBLEMS, reward, SAMPLING, **how), against=other))


def test_measure_one_reply_equals_evaluate():
    numbers = measured(length, against=OTHER, ref_model=OTHER, batch_size=2)
    plain = evaluate(POLICY, PROBLEMS, length, tokenizer=WORDS, sampling=SAMPLING, ref_model=OTHER)
    assert numbers["reward"]["value"] == pytest.approx(plain.reward.mean)
    assert numbers["reward"]["high"] == pytest.approx(
        plain.reward.mean + 2.7764 * plain.reward.stderr, rel=1e-4
    )  # t, 4 degrees
    assert numbers["KL to the reference (nats)"]["value"] == pytest.approx(plain.divergence.mean, rel=1e-5)
    assert numbers["length (tokens)"]["value"] == pytest.approx(plain.length.mean)
    assert numbers["ended"]["value"] == pytest.approx(plain.terminated.double().mean().item())
    theirs = evaluate(OTHER, PROBLEMS, length, tokenizer=WORDS, sampling=SAMPLING)
    wins = [(a > b) + 0.5 * (a == b) for a, b in zip(plain.rewards.tolist(), theirs.rewards.tolist(), strict=True)]
    assert numbers["win rate"]["value"] == pytest.approx(sum(wins) / len(wins))


def test_evaluate_completions_do_not_depend_on_batch_size():
    whole, split = (
        evaluate(POLICY, PROBLEMS, length, tokenizer=WORDS, sampling=SAMPLING, batch_size=size) for size in (None, 2)
    )
    assert split.completions == whole.completions


def test_measure_rewards_of_0_and_1_are_accuracy():
    numbers = measured(begins_right)
    right = evaluate(POLICY, PROBLEMS, begins_right, tokenizer=WORDS, sampling=SAMPLING).rewards.sum().item()
    low, high = wilson_interval(right, len(PROBLEMS))
    assert numbers["accuracy"] == {"value": right / len(PROBLEMS), "low": low, "high": high}


def test_measure_several_replies_give_pass_at_k_with_errors_over_problems():
    numbers = measured(begins_right, num_generations=4)
    drawn = candidates(POLICY, PROBLEMS, begins_right, tokenizer=WORDS, sampling=SAMPLING, num_generations=4)
    right = drawn.rewards.sum(1)
    assert [name for name in numbers if name.startswith("pass@")] == ["pass@1", "pass@2", "pass@4"]
    assert numbers["pass@4"]["value"] == pytest.approx((right > 0).double().mean().item())
    assert numbers["pass@1"]["value"] == pytest.approx(numbers["accuracy"]["value"])
    spread = (right / 4).double().std().item() / math.sqrt(len(PROBLEMS))
    mean = numbers["accuracy"]["value"]
    alone = mean * (1 - mean) / spread**2  # so many independent replies would have this standard error
    assert len(PROBLEMS) - 1 <= alone <= 4 * len(PROBLEMS)
    assert (numbers["accuracy"]["low"], numbers["accuracy"]["high"]) == pytest.approx(
        wilson_interval(mean * alone, alone)
    )


@pytest.mark.parametrize(("grade", "end"), [(1.0, "high"), (0.0, "low")])
def test_measure_all_right_or_wrong_keeps_wilson_interval(grade, end):
    """Of one draw from each prompt, as replies to a prompt may be all alike; and no share is below 0 or above 1."""
    always = lambda problems, completions: [grade] * len(problems)
    numbers = measured(always, num_generations=4, against=OTHER)
    for name in ("accuracy", "pass@1", "pass@4"):
        assert numbers[name]["value"] == numbers[name][end] == grade
        assert (numbers[name]["low"], numbers[name]["high"]) == wilson_interval(grade * len(PROBLEMS), len(PROBLEMS))
    for name, number in numbers.items():
        if name not in ("length (tokens)", "reward of the other"):
            assert 0 <= number["low"] <= number["value"] <= number["high"] <= 1, name


@pytest.mark.slow
def test_measure_maj_pass_and_win_rate_intervals_cover_truth():
    """Sixty problems of all difficulties, eight replies; the truths are means over the law of the difficulty. No interval is far off .95."""
    rng, rounds = np.random.default_rng(0), 250
    law = rng.beta(0.5, 0.5, 200_000)
    truths = {
        "accuracy": 0.5,
        "pass@4": float(np.mean(1 - (1 - law) ** 4)),
        "pass^4": float(np.mean(law**4)),
        "maj@4": float(np.mean(law**4 + 4 * law**3 * (1 - law) + 6 * law**2 * (1 - law) ** 2 / 2)),  # one wrong answer
        "win rate": 0.5,  # of two models that are alike, ties counted half
    }
    held = dict.fromkeys([*truths, "pair"], 0)
    for _ in range(rounds):
        chances = rng.beta(0.5, 0.5, (60, 1))
        ours, theirs = (torch.from_numpy((rng.random((60, 8)) < chances).astype(float)) for _ in range(2))
        made = lambda right: SampledCompletions(
            [[""] * 8] * 60, right, torch.ones(60, 8).long(), torch.ones(60, 8, dtype=torch.bool), None,
            answers=[[int(r) for r in row] for row in right.tolist()],
        )  # fmt: skip
        found = {number.name: number for number in measure(made(ours), against=made(theirs))}
        for name, truth in truths.items():
            held[name] += found[name].low <= truth <= found[name].high
        [pair] = compare({"a": made(ours), "b": made(theirs)})
        held["pair"] += pair.difference.low <= 0 <= pair.difference.high
    assert all(0.9 <= count / rounds <= 0.995 for count in held.values()), held


@pytest.mark.slow
def test_measure_and_compare_intervals_of_six_problems_cover_truth():
    """By ± 1.96 standard errors a mean of six normal lengths is held in 89 % of the cases, and so is the difference of few problems."""
    rng, rounds, held = np.random.default_rng(0), 2000, {"mean": 0, "pair": 0, "clusters": 0}
    ones = torch.ones(6, 1)
    made = lambda rewards, clusters=None: SampledCompletions(
        [[""]] * 6, rewards, ones.long(), ones.bool(), None, clusters
    )
    for _ in range(rounds):
        ours, theirs = (torch.from_numpy(rng.normal(1.0, 1.0, (6, 1))) for _ in range(2))
        [reward, *_] = measure(made(ours))
        held["mean"] += reward.low <= 1 <= reward.high
        for name, clusters in (("pair", None), ("clusters", torch.arange(6))):
            [pair] = compare({"a": made(ours, clusters), "b": made(theirs, clusters)})
            held[name] += pair.difference.low <= 0 <= pair.difference.high
    assert all(abs(count / rounds - 0.95) < 0.02 for count in held.values()), held  # four standard errors


def test_measure_leaves_out_ungraded_replies_and_counts_them():
    def moody(problems, completions):
        return [math.nan if p.reference == "cats" else 1.0 for p in problems]

    numbers = measured(moody, num_generations=2)
    assert numbers["accuracy"]["value"] == 1.0 and numbers["pass@2"]["value"] == 1.0
    assert numbers["not graded"]["value"] == pytest.approx(0.2)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    checkpoints.save(folder / "model", POLICY, WORDS)
    rows = [{"prompt": f"say {p.reference}", "ground_truth": p.reference} for p in PROBLEMS]
    (folder / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_evaluate_json_says_what_was_measured_on(files, capsys):
    out = files / "found.json"
    argv = ["evaluate", str(files / "model"), "--data", str(files / "test.jsonl"), "--grader", "contains"]
    assert dispatch([*argv, "--max-completion-length", "5", "--num-generations", "2", "--json", str(out)]) == 0
    shown = capsys.readouterr().out
    found = json.loads(out.read_text())
    assert "pass@2" in shown and "<eos>" in shown
    assert found["measured on"]["problems"] == 5 and found["measured on"]["grader"] == "contains"
    assert set(found["numbers"]) == {"accuracy", "pass@1", "pass@2", "pass^2", "length (tokens)", "ended"}
    assert len(found["grades"]) == 5 and sum(map(sum, found["grades"])) / 10 == found["numbers"]["accuracy"]["value"]


# -- several models ----------------------------------------------------------------------------------------------


def replied(*rows):
    rewards = torch.tensor(rows, dtype=torch.float64)
    return SampledCompletions([["a"] * rewards.shape[1]] * len(rows), rewards, rewards, rewards > 0, None)


def test_compare_two_models_problem_by_problem():
    """The interval is that of a mean of differences; the sign test counts problems on which one of them did better."""
    ours, theirs = (torch.tensor(x) for x in ([[1.0], [1], [1], [0], [1]], [[0.0], [1], [0], [1], [1]]))
    [pair] = compare({"a": replied(*ours.tolist()), "b": replied(*theirs.tolist())})
    found = Estimate.of((ours - theirs).flatten())
    assert pair.difference.value == pytest.approx(0.2) == pytest.approx(found.mean)
    assert pair.difference.high - pair.difference.low == pytest.approx(
        2 * 2.7764 * found.stderr, rel=1e-4
    )  # t, 4 degrees
    assert (pair.better, pair.worse, pair.p_value) == (2, 1, 1.0)  # two of three tosses or more uneven: always


def test_compare_leaves_out_problems_ungraded_for_either():
    [pair] = compare({"a": replied([1.0], [math.nan], [0.0]), "b": replied([0.0], [0.0], [0.0])})
    assert pair.difference.value == 0.5 and (pair.better, pair.worse) == (1, 0)
    with raises(UserError, argument="rewards", problem="too few"):
        compare({"a": replied([math.nan], [1.0]), "b": replied([0.0], [0.0])})


def test_compare_models_that_never_differ_keeps_interval():
    [pair] = compare({"a": replied([1.0], [0.0]), "b": replied([1.0], [0.0])})
    assert pair.difference.low == -pair.difference.high == -wilson_interval(0, 2)[1]


def test_compare_several_pairs_corrects_chances_together():
    one, none = [[1.0]] * 8, [[0.0]] * 8
    pairs = compare({"a": replied(*one), "b": replied(*none), "c": replied(*none)})
    assert [pair.p_value for pair in pairs] == pytest.approx([3 * 2 / 2**8, 3 * 2 / 2**8, 1.0])


@pytest.fixture(scope="module")
def course(files):
    """Two models, two tasks."""
    checkpoints.save(files / "other", OTHER, WORDS)
    for name in ("first", "second"):
        (files / f"{name}.yaml").write_text("data: test.jsonl\ngrader: contains\nmax-completion-length: 5\n")
    return files


def test_evaluate_tasks_and_models_make_one_page_and_one_file(course, capsys):
    models, out, page = [str(course / name) for name in ("model", "other")], course / "all.json", course / "page.html"
    tasks = [str(course / f"{name}.yaml") for name in ("first", "second")]
    assert dispatch(["evaluate", *models, "--task", *tasks, "--json", str(out), "--report", str(page)]) == 0
    shown, found, text = (
        capsys.readouterr().out,
        json.loads(out.read_text())["tasks"],
        without_pictures(page.read_text()),
    )
    assert list(found) == ["first", "second"] and found["first"]["pairs"] == found["second"]["pairs"]
    for task in found.values():
        assert list(task["models"]) == models
        [pair] = task["pairs"]
        ours, theirs = (task["models"][name]["numbers"]["accuracy"]["value"] for name in models)
        assert pair[f"{models[0]} − {models[1]}"]["value"] == pytest.approx(ours - theirs)
    assert all(shown.count(name) >= 2 for name in models)
    assert text.count("<img") == 2 and "say birds" in text and "http" not in text


@pytest.mark.parametrize(
    ("task", "more", "facts"),
    [
        ("grader: contains\n", [], {"argument": "data", "problem": "missing"}),
        ("data: test.jsonl\ngradr: contains\n", [], {"value": "gradr", "expected": "grader"}),
        ("data: test.jsonl\nmodel: gpt\n", [], {"value": "model", "problem": "unknown"}),
        ("data: test.jsonl\nrepeats: 4\n", [], {"argument": "repeats", "expected": "num_generations"}),
        ("data: test.jsonl\nlimit: many\n", [], {"argument": "limit", "value": "many", "expected": int}),
        ("data: test.jsonl\ngrader: contains\n", ["--grader", "exact"], {"argument": "grader", "problem": "duplicate"}),
        ("data: [\n", [], {"expected": "YAML", "line": 2}),
        ("data: test.jsonl\n", ["--task", "first.yaml", "x/first.yaml"], {"value": "first", "problem": "duplicate"}),
    ],
)
def test_evaluate_bad_task_file_raises_user_error(task, more, facts, course, tmp_path, monkeypatch):
    (tmp_path / "bad.yaml").write_text(task)
    monkeypatch.chdir(course)
    with raises(UserError, **facts):
        dispatch(["evaluate", "model", "--task", str(tmp_path / "bad.yaml"), *more])


def test_evaluate_names_of_harness_map_to_known_settings():
    known = {field.name for field in dataclasses.fields(EvaluationRequest)}
    assert not known & set(OF_THE_HARNESS)
    assert {name for said in OF_THE_HARNESS.values() for name in re.findall(r"[a-z]+_[a-z_]+", said)} <= known


@pytest.mark.parametrize(
    ("argv", "facts"),
    [
        (["m", "m", "--data", "d"], {"argument": "models", "value": "m", "problem": "duplicate"}),
        (["m"], {"argument": "--data", "problem": "missing"}),
        (["MODEL", "--grader", "nemeric"], {"value": "nemeric", "expected": "numeric"}),
        (["MODEL", "--num-generations", "0"], {"argument": "--num-generations", "value": 0, "expected": 1}),
        (["MODEL", "--temperature", "0", "--num-generations", "2"], {"argument": "--num-generations", "expected": 1}),
        (["MODEL", "--max-completion-length", "5000"], {"argument": "--max-completion-length", "value": 5000}),
        (["MODEL", "--reward-model", "nowhere"], {"expected": ("--grader", "--reward-model")}),
        (["MODEL", "--device", "cuda:7"], {"argument": "device", "value": "cuda:7"}),
        (["MODEL", "--data", "nowhere.jsonl"], {"file": "nowhere.jsonl"}),
        (["MODEL", "--baseline-model", "nano"], {"argument": "model", "value": "nano"}),
        (["MODEL", "--seed", "-1"], {"argument": "--seed", "value": -1, "expected": 0}),
        (["MODEL", "--split", "test"], {"argument": "split", "value": "test"}),
        (
            ["MODEL", "--reward-aggregation", "worst_case"],
            {"argument": "reward_aggregation", "expected": "--reward-model"},
        ),
        (["MODEL", "--json", "."], {"expected": "file", "file": "."}),
        (["MODEL", "--json", "test.jsonl/x.json"], {"problem": "not writable", "file": "test.jsonl/x.json"}),
    ],
)
def test_evaluate_bad_input_raises_user_error_before_work(argv, facts, files, monkeypatch, capsys):
    monkeypatch.chdir(files)
    if argv[0] == "MODEL":
        argv = ["model", "--data", "test.jsonl", "--grader", "contains", "--json", "never.json", *argv[1:]]
    with raises(UserError, **facts):
        dispatch(["evaluate", *argv])
    assert not (files / "never.json").exists()
    assert "--json" not in argv[6:] or not capsys.readouterr().out


# -- formats that others write ---------------------------------------------------------------------------------------


def read(tmp_path, text, name="d.jsonl"):
    (tmp_path / name).write_text(text, encoding="utf-8")
    return loaders.load(tmp_path / name).examples


def test_loaders_read_sharegpt_and_alpaca(tmp_path):
    [one] = read(tmp_path, json.dumps({"system": "be kind", "conversations": [
        {"from": "human", "value": "hi"}, {"from": "gpt", "value": "  hello\n"}, {"from": "human", "value": "bye"}]}))  # fmt: skip
    assert [m["role"] for m in one.messages] == ["system", "user", "assistant"]
    assert one.messages[-1]["content"] == "  hello\n", "white space is the writer's"
    [two] = read(tmp_path, json.dumps({"instruction": "add", "input": "1 2", "output": "3"}))
    assert two.messages == conversation("add\n\n1 2", "3") and two.context == 1


def test_loaders_read_roles_of_tools_and_developers(tmp_path):
    talk = [{"role": "developer", "content": "a"}, {"role": "user", "content": "b"}, {"role": "assistant", "content": "c"},
            {"role": "tool", "content": "d"}, {"role": "assistant", "content": "e"}]  # fmt: skip
    [one] = read(tmp_path, json.dumps({"messages": talk}))
    assert [m["role"] for m in one.messages] == ["system", "user", "assistant", "tool", "assistant"]


@pytest.mark.parametrize("name", ["reference", "answer", "ground_truth"])
def test_loaders_read_answer_by_any_of_its_names(name, tmp_path):
    [problem] = read(tmp_path, json.dumps({"prompt": "1+1", name: 2}))
    assert problem.reference == "2"


def test_loaders_read_json_over_several_lines(tmp_path):
    rows = [{"prompt": f"q{i}", "completion": f"a{i}"} for i in range(3)]
    pretty = "\n\n".join(json.dumps(row, indent=2) for row in rows)
    assert len(read(tmp_path, pretty, "d.json")) == 3
    with raises(UserError, line=8):
        read(tmp_path, pretty.replace('"a1"', "a1"), "d.json")


def test_loaders_read_sharegpt_turns_by_other_names(tmp_path):
    by = lambda who, said: {"from": who, "value": said}
    talk = [by("human", "3 + 4?"), by("function_call", "add(3, 4)"), by("observation", "7"), by("gpt", "It is 7.")]
    [one] = read(tmp_path, json.dumps({"conversations": talk}))
    assert [m["role"] for m in one.messages] == ["user", "assistant", "tool", "assistant"]
    [two] = read(tmp_path, json.dumps({"conversations": conversation("hi", "yo"), "system": "be kind"}))
    assert two.messages == [{"role": "system", "content": "be kind"}, *conversation("hi", "yo")]


def test_loaders_read_tool_calls_and_report_unused_fields(tmp_path):
    ask, reply = conversation("w?", "rain")
    call = {"type": "function", "function": {"name": "weather", "arguments": "{}"}}
    for content in (None, ""):
        called = {**reply, "content": content, "tool_calls": [call]}
        [one] = read(tmp_path, json.dumps({"messages": [ask, called, ask, reply]}))
        assert one.messages[1]["tool_calls"][0]["function"]["name"] == "weather"
    (tmp_path / "d.jsonl").write_text(json.dumps({"messages": [ask, {**reply, "audio": "x", "tool_calls": None}]}))
    assert loaders.load(tmp_path / "d.jsonl").ignored == ("messages.audio",)
