"""A grader of one's own is given what its parameters name, in the forms that people write for three libraries."""

import json
import math

import pytest
import torch
from facts import raises

from minirlhf.core.errors import UserError
from minirlhf.data import loaders
from minirlhf.data.records import Problem
from minirlhf.feedback import custom_rewards, graders, rewards
from minirlhf.feedback.rewards import Part, WeightedReward, score
from minirlhf.feedback.signatures import role_of
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.recipes import GRPO
from minirlhf.trainers.online import OnlineConfig, train_online
from minirlhf_cli import dispatch
from minirlhf_cli.export import write
from minirlhf_cli.files.sources import OnlineSource

PROMPT = [{"role": "user", "content": "2+2?"}]
ROW = {"prompt": "2+2?", "answer": "4", "difficulty": 3, "data_source": "sums", "extra_info": {"index": 7}}
PLAIN = Problem(PROMPT, "4")  # of no row
[OF_ROW] = loaders.load([ROW]).problems()
[OF_MESSAGES] = loaders.load([ROW | {"prompt": PROMPT}]).problems()


def graded(folder, text, problems, completions, name="fn"):
    (folder / "my.py").write_text(text)
    return custom_rewards.custom_reward(f"{folder}/my.py:{name}")(problems, completions)


def seen(folder, signature, problem, *, form="def"):
    """What a function with this signature is called with, by parameter."""
    out = folder / "seen.json"
    text = f"import json\n{form} fn{signature}:\n    json.dump(locals(), open({str(out)!r}, 'w'))\n    return "
    many = "[1.0]" if "completions" in signature or "responses" in signature or "strs" in signature else "1.0"
    assert graded(folder, text + many, [problem], ["said"]) == [1.0]
    return json.loads(out.read_text())


@pytest.mark.parametrize(
    ("signature", "given"),
    [
        ("(completion)", {"completion": "said"}),
        ("(reference, completion)", {"reference": "4", "completion": "said"}),
        ("(prompt, completion, answer)", {"prompt": PROMPT, "completion": "said", "answer": "4"}),
        ("(response, ground_truth)", {"response": "said", "ground_truth": "4"}),
        ("(ground_truth, response)", {"ground_truth": "4", "response": "said"}),
        ("(gold_answer, predicted_answer)", {"gold_answer": "4", "predicted_answer": "said"}),
        ("(model_output, expected_output)", {"model_output": "said", "expected_output": "4"}),
        ("(question, output, target)", {"question": "2+2?", "output": "said", "target": "4"}),
        ("(messages, text)", {"messages": PROMPT, "text": "said"}),
        ("(hypothesis, reference)", {"hypothesis": "said", "reference": "4"}),
        ("(label, prediction, /)", {"label": "4", "prediction": "said"}),
        ("(completion, *, reference)", {"completion": "said", "reference": "4"}),
        ("(a, b, c)", {"a": "said", "b": "4", "c": PROMPT}),  # no name is known: by place
        ("(a, b=None)", {"a": "said", "b": "4"}),
        ("(a, weight=0.5)", {"a": "said", "weight": 0.5}),
        ("(completion, weight=0.5)", {"completion": "said", "weight": 0.5}),
        ("(completion, max_completion_length=9)", {"completion": "said", "max_completion_length": 9}),
        ("(completion, correct_reward=2.0)", {"completion": "said", "correct_reward": 2.0}),
        ("(data_source, solution_str, ground_truth, extra_info=None)", {"data_source": None, "solution_str": "said", "ground_truth": "4", "extra_info": None}),
        ("(completion, reference, model='large')", {"completion": "said", "reference": "4", "model": "large"}),
        ("(completion, reference, model=None)", {"completion": "said", "reference": "4", "model": None}),
        ("(response, target=200)", {"response": "said", "target": 200}),
        ("(completion, gold_answer=None)", {"completion": "said", "gold_answer": "4"}),
        ("(completion, answer='')", {"completion": "said", "answer": "4"}),
        ("(predict, label)", {"predict": "said", "label": "4"}),
        ("(data_source, prompt_str, solution_str)", {"data_source": None, "prompt_str": "2+2?", "solution_str": "said"}),
        ("(solution_str, ground_truth, method='strict', format_score=0.0, score=1.0)", {"solution_str": "said", "ground_truth": "4", "method": "strict", "format_score": 0.0, "score": 1.0}),
        ("(completions, **columns)", {"completions": ["said"], "columns": {"prompts": [PROMPT], "reference": ["4"]}}),
        ("(prompts, completions, answer)", {"prompts": [PROMPT], "completions": ["said"], "answer": ["4"]}),
        ("(data_sources, solution_strs, ground_truths, extra_infos=None)", {"data_sources": [None], "solution_strs": ["said"], "ground_truths": ["4"], "extra_infos": None}),
    ],
)  # fmt: skip
def test_own_grader_is_bound_by_names(signature, given, tmp_path):
    assert seen(tmp_path, signature, PLAIN) == given


@pytest.mark.parametrize(
    ("signature", "given"),
    [
        ("(completion, difficulty)", {"completion": "said", "difficulty": 3}),
        ("(completion, difficulty=1)", {"completion": "said", "difficulty": 3}),
        ("(data_source, solution_str, ground_truth, extra_info=None)", {"data_source": "sums", "solution_str": "said", "ground_truth": "4", "extra_info": {"index": 7}}),
        ("(completions, difficulty, answer)", {"completions": ["said"], "difficulty": [3], "answer": ["4"]}),
        ("(completions, prompts, **kwargs)", {"completions": ["said"], "prompts": ["2+2?"], "kwargs": {"reference": ["4"], **{k: [v] for k, v in ROW.items() if k != "prompt"}}}),
    ],
)  # fmt: skip
def test_own_grader_is_given_columns_of_row(signature, given, tmp_path):
    assert seen(tmp_path, signature, OF_ROW) == given


def test_own_grader_of_verl_for_a_batch_reads_texts_and_columns(tmp_path):
    text = (
        "def fn(data_sources, solution_strs, ground_truths, extra_infos=None):\n"
        "    return [float(s == g) + i['index'] for s, g, i in zip(solution_strs, ground_truths, extra_infos)]"
    )
    assert graded(tmp_path, text, [OF_MESSAGES] * 2, ["4", "5"]) == [8.0, 7.0]


def test_own_grader_of_trl_reads_messages_where_prompt_is_messages(tmp_path):
    text = "def fn(completions, answer, **kwargs):\n    return [float(c[0]['content'] == a) for c, a in zip(completions, answer)]"
    assert graded(tmp_path, text, [OF_MESSAGES] * 2, ["4", "5"]) == [1.0, 0.0]
    text = "def fn(prompts, completions, **kwargs):\n    return [float(p == '2+2?' and c == '4') for p, c in zip(prompts, completions)]"
    assert graded(tmp_path, text, [OF_ROW] * 2, ["4", "5"]) == [1.0, 0.0]


def test_own_grader_is_given_all_right_answers(tmp_path):
    [problem] = loaders.load([{"prompt": "q", "answer": ["4", "four"]}]).problems()
    text = "def fn(completion, answer): return float(completion in answer)"
    assert graded(tmp_path, text, [problem] * 3, ["4", "four", "fou"]) == [1.0, 1.0, 0.0]


def test_own_grader_cannot_change_the_data(tmp_path):
    for text in ("(completion, messages): return float(len(messages) + (messages.append(1) or 0))",
                 "(completions, prompts, **k): return [float(len(p) + (p.append(1) or 0)) for p in prompts]"):  # fmt: skip
        assert graded(tmp_path, f"def fn{text}", [OF_MESSAGES] * 2, ["a", "b"]) == [1.0, 1.0]
    assert OF_MESSAGES.prompt == PROMPT


def test_own_grader_of_trl_is_asked_once_for_all(tmp_path):
    text = "calls = []\ndef fn(completions, **kwargs):\n    calls.append(1)\n    return [float(len(calls))] * len(completions)"
    assert graded(tmp_path, text, [PLAIN] * 3, ["a", "b", "c"]) == [1.0] * 3
    assert graded(tmp_path, text, [], []) == []


@pytest.mark.parametrize(
    "signature",
    [
        "()", "(*args)", "(a, b, c, d)", "(reference)", "(answer, ground_truth)", "(prompt, answer)", "(prompts, answers)",
        "(completion, prompts)", "(completion, responses)", "(completions, response)", "(response, solution_str)",
    ],
)  # fmt: skip
def test_own_grader_of_names_that_contradict_is_refused(signature, tmp_path):
    (tmp_path / "my.py").write_text(f"def fn{signature}: return 1.0")
    with raises(UserError, argument="grader", expected=["completion", "reference", "messages"], problem="parameters"):
        custom_rewards.custom_reward(f"{tmp_path}/my.py:fn")


@pytest.mark.parametrize(
    ("signature", "name"),
    [
        *((signature, "lucky") for signature in ("(completion, lucky)", "(lucky, completion)", "(completion, *, lucky)", "(completions, lucky)")),
        ("(completions, completion_ids)", "completion_ids"),
        ("(a, b, c, *, d)", "d"),
    ],
)  # fmt: skip
def test_own_grader_parameter_that_is_no_column_is_refused(signature, name, tmp_path):
    with raises(UserError, argument=name, problem="parameters"):
        graded(tmp_path, f"def fn{signature}: return 1.0", [OF_ROW], ["said"])


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("return float(text)", [1.0, 2.0]),
        ("return {'score': float(text), 'acc': 0}", [1.0, 2.0]),
        ("return torch.tensor(float(text))", [1.0, 2.0]),
        ("return text == '1'", [1.0, 0.0]),
        ("return None if text == '1' else 2", [math.nan, 2.0]),
    ],
)
def test_own_grader_returns_number_or_none(text, values, tmp_path):
    for form in ("def", "async def"):
        grades = graded(tmp_path, f"import torch\n{form} fn(text):\n    {text}", [PLAIN] * 2, ["1", "2"])
        assert grades == pytest.approx(values, nan_ok=True)
    many = f"import torch\ndef one(text):\n    {text}\n"
    for form in ("def", "async def"):
        grades = graded(tmp_path, f"{many}{form} fn(completions, **_):\n    return [one(c) for c in completions]", [PLAIN] * 2, ["1", "2"])  # fmt: skip
        assert grades == pytest.approx(values, nan_ok=True)


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("def fn(completions): return [1.0]", {"value": 1, "expected": 2, "problem": "number"}),
        ("def fn(completions): return 1.0", {"value": 1.0, "expected": "numbers"}),
        ("def fn(completions): return None", {"value": None, "expected": "numbers"}),
        ("def fn(completions): return ['a', 'b']", {"value": "a", "expected": "number"}),
        ("async def fn(completion): return 'a'", {"value": "a", "expected": "number"}),
        ("import asyncio\nasync def fn(completion): await asyncio.sleep(9)", {"value": 2, "problem": "timeout"}),
        ("import time\ndef fn(completions): time.sleep(9)", {"value": 1, "problem": "timeout"}),
    ],
)
def test_own_grader_bad_result_is_error(text, facts, tmp_path):
    (tmp_path / "my.py").write_text(text)
    with raises(UserError, **facts):
        custom_rewards.custom_reward(f"{tmp_path}/my.py:fn", seconds=0.05 if "sleep" in text else 60)(
            [PLAIN] * 2, ["a", "b"]
        )


def test_own_async_graders_run_at_same_time(tmp_path):
    text = """
import asyncio
waiting = []
async def fn(completion):
    waiting.append(completion)
    while len(waiting) < 3:
        await asyncio.sleep(0.001)
    return len(waiting)
"""
    assert graded(tmp_path, text, [PLAIN] * 3, ["a", "b", "c"]) == [3.0] * 3


def test_own_async_grader_failure_costs_one_sample(tmp_path):
    (tmp_path / "my.py").write_text("async def fn(text):\n    return int(text)")
    scores = score(custom_rewards.custom_reward(f"{tmp_path}/my.py:fn"), [PLAIN] * 3, ["1", "two", "3"])
    assert scores.values == pytest.approx([1, math.nan, 3], nan_ok=True) and scores.applies == [True] * 3
    assert all(part in scores.failure for part in ("my.py", " 2", "ValueError"))


def test_weighted_reward_sums_parts_that_apply():
    def some(problems, completions):
        return [None if text == "none" else math.nan if text == "nan" else 1.0 for text in completions]

    texts = ["one", "none", "nan"]
    both = WeightedReward((Part("some", some, 0.5), Part("all", lambda problems, texts: [2.0] * len(texts))))
    scores = score(both, [PLAIN] * 3, texts)
    assert scores.values == pytest.approx([2.5, 2.0, math.nan], nan_ok=True) and scores.applies == [True] * 3
    assert (
        scores.parts["some"] == pytest.approx([1, math.nan, math.nan], nan_ok=True) and scores.parts["all"] == [2.0] * 3
    )
    alone = score(WeightedReward((Part("some", some),)), [PLAIN] * 3, texts)
    assert alone.applies == [True, False, True] and math.isnan(alone.values[1]) and not alone.parts
    assert score(WeightedReward((Part("some", some),)), [PLAIN], ["none"]).failure is None


def test_weighted_reward_sums_parts_of_one_name():
    parts = tuple(Part("f", lambda problems, texts, value=value: [value] * len(texts)) for value in (1.0, 2.0))
    assert score(WeightedReward(parts), [PLAIN], ["a"]).values == [3.0]


def test_exported_sum_of_own_graders_grades_alike(tmp_path):
    (tmp_path / "a.py").write_text("def one(completion): return 1.0")
    (tmp_path / "b.py").write_text("def two(reference, completion): return float(reference == completion)")
    out = tmp_path / "out"
    out.mkdir()
    source = OnlineSource(
        out=str(out),
        model="m",
        grader=f"{tmp_path}/a.py:one+{tmp_path}/b.py:two*0.5+numeric*2",
        thought_tags="<a>,</a>",
    )
    code = write._own_reward(source, out)
    for file in ("a.py", "b.py"):
        (tmp_path / file).unlink()
    scope = {"HERE": out, "rewards": rewards, "custom_rewards": custom_rewards, "graders": graders}
    assert eval(code, scope)([PLAIN] * 2, ["4", "<a>4</a>5"]) == [3.5, 1.0]


def test_role_of_measures_is_none():
    for name in ("completion_ids", "target_length", "score_weight", "model_name", "answer_format", "lucky"):
        assert role_of(name) is None
    assert [role_of(n) for n in ("student_answer", "true_answer", "Response")] == [
        "completion",
        "reference",
        "completion",
    ]


@pytest.mark.slow
def test_train_logs_each_of_several_graders(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.py").write_text(
        "def one(completion): return 1.0\nasync def odd(completions, n, **_): return [None if x % 2 == 0 else 3.0 for x in n]"
    )
    (tmp_path / "d.jsonl").write_text("\n".join(json.dumps({"prompt": f"say {n}", "n": n}) for n in range(12)))
    argv = [
        "train",
        "grpo",
        "--data",
        "d.jsonl",
        "--model",
        "nano",
        "--grader",
        "my.py:one+my.py:odd*0.5+think*0.1",
        "--max-steps",
        "2",
    ]
    argv += [
        "--num-generations",
        "2",
        "--max-completion-length",
        "4",
        "--batch-size",
        "4",
        "--out",
        "run",
        "--vocab-size",
        "300",
    ]
    assert dispatch(argv) == 0
    for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        assert row["rewards/one"] == 1.0 and row["rewards/think"] == 0.0 and row.get("rewards/odd", 3.0) == 3.0
        assert 1.0 <= row["reward"] <= 2.5


def test_weighted_reward_leaves_out_a_part_that_does_not_apply(tmp_path):
    (tmp_path / "my.py").write_text("def odd(completion, n): return 3.0 if n % 2 else None")
    odd = custom_rewards.custom_reward(f"{tmp_path}/my.py:odd")
    total = rewards.WeightedReward(
        (rewards.Part("one", lambda problems, texts: [1.0] * len(texts)), rewards.Part("odd", odd, 0.5))
    )
    problems = [Problem([{"role": "user", "content": f"say {n}"}], columns={"n": n}) for n in range(2)]
    assert total(problems, ["a", "b"]) == [1.0, 2.5]
    assert rewards.score(total, problems, ["a", "b"]).applies == [True, True]


def test_train_online_warns_once_where_grader_applies_to_nothing(caplog):
    words = word_tokenizer(["hi", "cats"])
    config = OnlineConfig(max_steps=2, batch_size=2, num_generations=2, max_completion_length=2)
    nothing = rewards.WeightedReward((rewards.Part("none", lambda problems, texts: [None] * len(texts)),))
    problems = [Problem([{"role": "user", "content": "hi"}])]
    train_online(tiny_model("nano", words), problems, nothing, GRPO, config, tokenizer=words, quiet=True)
    assert sum("applies to none of the 4 completions" in record.getMessage() for record in caplog.records) == 1


@pytest.mark.slow
def test_train_leaves_out_samples_to_which_grader_does_not_apply(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.py").write_text("def fn(completion, n): return None if n % 2 else 1.0")
    (tmp_path / "d.jsonl").write_text("\n".join(json.dumps({"prompt": f"say {n}", "n": n}) for n in range(12)))
    argv = [
        "train",
        "grpo",
        "--data",
        "d.jsonl",
        "--model",
        "nano",
        "--grader",
        "my.py:fn",
        "--max-steps",
        "2",
        "--max-invalid-fraction",
        "0",
    ]
    argv += [
        "--num-generations",
        "2",
        "--max-completion-length",
        "4",
        "--batch-size",
        "8",
        "--out",
        "run",
        "--vocab-size",
        "300",
    ]
    assert dispatch(argv) == 0
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert all(row["reward"] == 1.0 for row in rows)
    assert torch.isfinite(torch.tensor([row["loss"] for row in rows])).all()


def test_train_online_grades_each_problem_with_what_its_template_begins():
    """Two steps are an epoch of four problems; the template opens every completion with a word of its own."""
    words, heard = word_tokenizer([*"abcd", "so"]), []
    words.chat_template = "{% for m in messages %}{{ m.content }} {% endfor %}{{ 'so' if add_generation_prompt }}"

    def reward(problems, completions):
        heard.extend((problem.prompt[0]["content"], problem.generation_prompt) for problem in problems)
        return [float(n % 2) for n, _ in enumerate(completions)]

    problems = [Problem([{"role": "user", "content": letter}]) for letter in "abcd"]
    config = OnlineConfig(max_steps=2, batch_size=2, num_generations=2, max_completion_length=2)
    train_online(tiny_model("nano", words), problems, reward, GRPO, config, tokenizer=words, quiet=True)
    assert sorted(heard) == sorted(2 * [(letter, "so") for letter in "abcd"])
    assert heard[::2] == heard[1::2]
