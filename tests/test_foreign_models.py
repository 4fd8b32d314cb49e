"""Models that are not ours: where a reply ends, what weights are in, what a run writes down, and every trainer on a sample of architectures."""

import importlib.util
import json
import shutil
import sys
from pathlib import Path

import pytest
import torch
import transformers
from facts import raises

from minirlhf.core.errors import UserError
from minirlhf.data import chat
from minirlhf.data.chat import end_tokens
from minirlhf.data.records import Problem
from minirlhf.feedback import custom_rewards
from minirlhf.feedback.rewards import score_completions
from minirlhf.models.checkpoints import quietly
from minirlhf.models.loading import load_folder
from minirlhf.models.tokenizers import train_tokenizer
from minirlhf_cli import dispatch
from minirlhf_cli.files import start
from minirlhf_course.report import curves

SPEC = importlib.util.spec_from_file_location(
    "foreign_models", Path(__file__).parents[1] / "benchmarks/foreign_models.py"
)
foreign = importlib.util.module_from_spec(SPEC)
sys.modules[SPEC.name] = foreign
SPEC.loader.exec_module(foreign)

# Each layout, each trainer, both number formats, with and without adapters: not every one with every other one.
SAMPLE = [
    ("Qwen2", "grpo", torch.float32, False),
    ("Gemma3", "sft", torch.bfloat16, False),
    ("Mixtral", "dpo", torch.float32, True),
    ("SmolLM3", "reward", torch.bfloat16, True),
    ("Bloom", "ppo", torch.float32, False),
    ("Llama", "grpo", torch.bfloat16, True),
    ("GPT2", "sft", torch.float32, True),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "trainer", "dtype", "lora"), SAMPLE)
def test_train_two_steps_on_foreign_model(name, trainer, dtype, lora, tmp_path):
    with quietly():
        assert foreign.trained(tmp_path, name, trainer, dtype, lora=lora) == ""


def test_train_bf16_second_step_uses_updated_weights(tmp_path):
    """Weights that are cast to bfloat16 once and kept would make the second step see those of the first."""
    with quietly():
        assert foreign.trained(tmp_path, "Llama", "sft", torch.float32, lora=False, bf16=True) == ""
        (tmp_path / "exact").mkdir()
        assert foreign.trained(tmp_path / "exact", "Llama", "sft", torch.float32, lora=False) == ""
    mixed, exact = (
        [json.loads(line)["loss"] for line in (folder / "run/metrics.jsonl").read_text().splitlines()]
        for folder in (tmp_path, tmp_path / "exact")
    )
    assert mixed != exact
    assert abs(exact[1] - exact[0]) > 0.05, "the second step has to differ visibly from the first"
    assert mixed == pytest.approx(exact, abs=0.02)


@pytest.mark.parametrize("name", list(foreign.ARCHITECTURES))
def test_ends_of_foreign_model_include_token_that_sft_teaches(name, tmp_path):
    with quietly():
        model, tokenizer = load_folder(foreign.stranger(tmp_path, name, torch.float32), complete_tokenizer=True)
    ends = end_tokens(tokenizer, model)
    closing = {foreign.CHATML: "<|im_end|>", foreign.THINKING: "<|im_end|>", foreign.HEADERS: "<|eot_id|>",
               foreign.TURNS: "<end_of_turn>", foreign.INSTRUCT: "</s>", foreign.ROLES: "<|end|>",
               foreign.NONE: "<|endoftext|>"}[foreign.ARCHITECTURES[name][2]]  # fmt: skip
    assert ends.found[tokenizer.convert_tokens_to_ids(closing)] == "chat template"
    assert tokenizer.eos_token_id in ends.ids
    last = chat.encode(tokenizer, chat.conversation("say it", "so"))
    taught = [i for i, mine in zip(last.input_ids, last.loss_mask, strict=True) if mine]
    assert taught[-1] in ends.ids, "what supervised fine-tuning teaches is what the sampler waits for"


def test_ends_of_includes_generation_config(tmp_path):
    with quietly():
        model, tokenizer = load_folder(foreign.stranger(tmp_path, "Phi", torch.float32), complete_tokenizer=True)
    model.generation_config.eos_token_id = [0, 7]
    assert end_tokens(tokenizer, model).found == {0: "chat template", 7: "generation_config"}


def test_load_folder_weights_are_float32_unless_dtype_is_given(tmp_path):
    with quietly():
        folder = foreign.stranger(tmp_path, "Llama", torch.bfloat16)
        assert {p.dtype for p in load_folder(folder, complete_tokenizer=True)[0].parameters()} == {torch.float32}
        half, _ = load_folder(folder, complete_tokenizer=True, dtype=torch.bfloat16)
    assert {p.dtype for p in half.parameters()} == {torch.bfloat16}


def test_load_folder_refuses_encoder(tmp_path):
    sizes = {k: v for k, v in foreign.SIZES.items() if k != "initializer_range"}
    with quietly():
        model = transformers.AutoModelForCausalLM.from_config(transformers.BertConfig(vocab_size=300, **sizes))
        model.save_pretrained(tmp_path)
        train_tokenizer(["some text"], 262).save_pretrained(tmp_path)
        with raises(UserError, argument="model", expected="causal"):
            load_folder(tmp_path)


def test_chat_encode_rewriting_template_serves_last_turn(tmp_path):
    with quietly():
        _, tokenizer = load_folder(foreign.stranger(tmp_path, "Qwen3", torch.float32), complete_tokenizer=True)
    talk = chat.conversation("one", "<think>hm</think>two", "three", "<think>so</think>four")
    found = chat.encode(tokenizer, talk, first_turn=3)
    said = tokenizer.decode([i for i, mine in zip(found.input_ids, found.loss_mask, strict=True) if mine])
    assert said == "<think>so</think>four<|im_end|>"
    with raises(UserError, argument="chat_template", value=2, expected="reasoning_content", problem="leaves out"):
        chat.encode(tokenizer, talk)


# -- what a run says and writes down ---------------------------------------------------------------------------------

CHATS = [{"prompt": f"say {n}", "completion": f"{n} it is"} for n in ("one", "two", "three", "four", "five", "six")]
QUICK = ["--max-steps", "2", "--batch-size", "2", "--vocab-size", "300", "--context", "64", "--eval-fraction", "0.3"]


def rows(path: Path, found: list[dict]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in found), encoding="utf-8")
    return str(path)


def test_train_first_line_names_model_device_and_settings(tmp_path, capsys):
    data = rows(tmp_path / "d.jsonl", CHATS)
    assert dispatch(["train", "sft", "--data", data, "--out", str(tmp_path / "run"), *QUICK]) == 0
    printed = capsys.readouterr()
    [line] = [line for line in (printed.out + printed.err).splitlines() if "LlamaForCausalLM" in line]
    assert all(part in line for part in ("nano", "float32", "cpu", "<eos>", "64", "learning_rate 0.001")), line


def test_train_learning_rate_depends_on_size_and_adapter(tmp_path, monkeypatch):
    monkeypatch.setattr(start, "PRETRAINED", 1000)
    data = rows(tmp_path / "d.jsonl", CHATS)
    for number, (flags, rate) in enumerate(
        (([], 2e-5), (["--lora-r", "2"], 2e-4), (["--learning-rate", "0.01"], 0.01))
    ):
        out = tmp_path / str(number)
        dispatch(["train", "sft", "--data", data, *QUICK, "--out", str(out), *flags])
        assert json.loads((out / "config.json").read_text())["learning_rate"] == pytest.approx(rate)


GRADERS = """
def long(completion):
    return len(completion)

def short(completion, reference, messages):
    assert isinstance(messages, list) and messages[-1]["role"] == "user"
    return -len(completion)
"""


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    """A run of online training that stopped after two steps, and how it was called."""
    folder = tmp_path_factory.mktemp("started")
    (folder / "my.py").write_text(GRADERS)
    data = rows(folder / "d.jsonl", [{"prompt": f"say {n}", "reference": str(n)} for n in range(12)])
    argv = ["train", "grpo", "--data", data, "--grader", f"{folder}/my.py:long", *QUICK]
    argv += ["--max-completion-length", "4", "--num-generations", "2", "--out", str(folder / "run")]
    argv += ["--ptx-coef", "0.1", "--ptx-data", rows(folder / "learned.jsonl", CHATS[::-1])]
    assert dispatch(argv) == 0
    return folder, argv


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("grader", ["--grader", "FOLDER/my.py:short"]),
        ("grader", ["--grader", "numeric"]),
        ("data", ["--eval-fraction", "0.5"]),
        ("data", ["--data", "FOLDER/other.jsonl"]),
        ("model", ["--model", "micro"]),
        ("tokenizer", ["--chat-template", "FOLDER/template.jinja"]),
        ("adapter", ["--lora-r", "2"]),
        ("numbers", ["--bf16", "true"]),
        ("reference", ["--ref-model", "FOLDER/run"]),
        ("texts", ["--ptx-data", "FOLDER/texts.jsonl"]),
    ],
)  # fmt: skip
def test_train_resume_with_other_inputs_is_error(name, change, started):
    folder, argv = started
    (folder / "template.jinja").write_text(chat.TRANSCRIPT)
    rows(folder / "texts.jsonl", CHATS)
    rows(folder / "other.jsonl", [{"prompt": f"tell {n}", "reference": str(n)} for n in range(12)])
    before = {p: p.read_bytes() for p in (folder / "run").rglob("*") if p.is_file()}
    change = [word.replace("FOLDER", str(folder)) for word in change]
    with raises(UserError, argument=name, file=str(folder / "run/config.json")):
        dispatch([*argv, *change, "--resume", "--max-steps", "3"])
    assert before == {p: p.read_bytes() for p in (folder / "run").rglob("*") if p.is_file()}


def test_train_resume_with_moved_data_continues(started, tmp_path):
    folder, argv = started
    shutil.copytree(folder / "run", tmp_path / "run")
    shutil.copy(folder / "d.jsonl", tmp_path / "moved.jsonl")
    argv = [str(tmp_path / "run") if word == str(folder / "run") else word for word in argv]
    assert dispatch([*argv, "--data", str(tmp_path / "moved.jsonl"), "--resume", "--max-steps", "3"]) == 0
    noted = json.loads((tmp_path / "run/config.json").read_text())["noted"]
    assert noted["given"]["trainer"] == noted["given"]["recipe"] == "grpo" and noted["given"]["max_steps"] == "2"
    assert noted["source"]["data"].endswith("d.jsonl") and noted["versions"]["torch"] == torch.__version__


@pytest.mark.parametrize(
    ("flag", "argument", "value", "was"),
    [("--beta", "recipe", None, None), ("--learning-rate", "learning_rate", 0.5, 0.001)],
)
def test_train_resume_with_other_settings_is_error(flag, argument, value, was, started):
    _, argv = started
    with pytest.raises(UserError) as caught:
        dispatch([*argv, flag, "0.5", "--resume", "--max-steps", "3"])
    found = caught.value
    assert found.argument.startswith(argument) and "0.5" in str(found) and len(str(found)) < 600
    assert value is None or (found.value, found.expected) == (value, was)


@pytest.mark.parametrize("text", ['{"a":', "[]", ""])
def test_train_resume_with_damaged_config_is_error(text, started, tmp_path):
    folder, argv = started
    shutil.copytree(folder / "run", tmp_path / "run")
    (tmp_path / "run/config.json").write_text(text)
    argv = [str(tmp_path / "run") if word == str(folder / "run") else word for word in argv]
    with raises(UserError, file=str(tmp_path / "run/config.json"), problem="damaged"):
        dispatch([*argv, "--resume", "--max-steps", "3"])


def test_train_sft_template_without_end_or_without_reply(tmp_path, capsys):
    data, template = rows(tmp_path / "d.jsonl", CHATS), tmp_path / "t.jinja"
    argv = ["train", "sft", "--data", data, "--chat-template", str(template), "--out", str(tmp_path / "run"), *QUICK]
    template.write_text("{% for m in messages %}{% if m['role'] == 'user' %}{{ m['content'] }}{% endif %}{% endfor %}")
    with raises(UserError, argument="chat_template", problem="silent"):
        dispatch(argv)
    assert not (tmp_path / "run").exists()
    template.write_text(
        "{% for m in messages %}{{ m['role'] ~ ': ' ~ m['content'] ~ ' ' }}{% endfor %}"
        "{{ 'assistant: ' if add_generation_prompt }}"
    )
    assert dispatch(argv) == 0
    printed = capsys.readouterr()
    assert "<eos> (tokenizer)" in printed.out + printed.err, "the end is the tokenizer's, not the template's"


def test_train_from_adapter_checkpoint_trains_every_weight(tmp_path):
    """peft freezes what it wraps; a run that goes on from base and adapter trains every weight."""
    pytest.importorskip("peft")
    data = rows(tmp_path / "d.jsonl", CHATS)
    model = str(foreign.stranger(tmp_path / "model", "Qwen2", torch.float32))
    first = ["train", "sft", "--data", data, "--model", model, *QUICK, "--learning-rate", "1e-2"]
    assert dispatch([*first, "--lora-r", "2", "--out", str(tmp_path / "a")]) == 0
    [checkpoint] = (tmp_path / "a/checkpoints").glob("step-*")
    assert dispatch([*first, "--model", str(checkpoint), "--out", str(tmp_path / "b")]) == 0
    before, after = load_folder(checkpoint, complete_tokenizer=True)[0], load_folder(tmp_path / "b/model")[0]
    assert all(weight.requires_grad for weight in before.parameters())
    moved = [float((a - b).detach().abs().max()) for a, b in zip(before.parameters(), after.parameters(), strict=True)]
    assert sum(change > 0 for change in moved) > len(moved) / 2  # biases of keys have no gradient


def test_curves_group_separates_runs_on_other_data(started, tmp_path):
    _, argv = started
    other = rows(tmp_path / "d.jsonl", [{"prompt": f"tell {n}", "reference": str(n)} for n in range(12)])
    shared = argv[: argv.index("--out")]
    for number, extra in enumerate(
        (["--seed", "0"], ["--seed", "0", "--data", other], ["--seed", "0", "--data", argv[3]])
    ):
        assert dispatch([*shared, *extra, "--out", str(tmp_path / f"run-s{number}")]) == 0
    groups = curves.group(curves.read([tmp_path]))
    assert sorted(map(len, groups.values())) == [1, 2]


TRAINED_ON = {
    "sft": (CHATS, "held_out_loss"),
    "reward": (
        [{"prompt": f"q{n}", "chosen": f"good {n}", "rejected": f"bad {n}"} for n in range(8)],
        "held_out_accuracy",
    ),
    "dpo": ([{"prompt": f"q{n}", "chosen": f"good {n}", "rejected": f"bad {n}"} for n in range(8)], "held_out_margin"),
    "grpo": ([{"prompt": f"say {n}", "reference": str(n)} for n in range(8)], "held_out_reward"),
}


@pytest.mark.slow
@pytest.mark.parametrize("trainer", TRAINED_ON)
def test_train_eval_steps_change_nothing_of_run(trainer, tmp_path, capsys):
    """On other data, every second step; the run is the same as without looking, and says lines where there is no terminal."""
    found, name = TRAINED_ON[trainer]
    data = rows(tmp_path / "d.jsonl", found)
    argv = ["train", trainer, "--data", data, "--eval-data", data, *QUICK, "--max-steps", "4"]
    argv += (
        ["--grader", "contains", "--max-completion-length", "4", "--num-generations", "2"] if trainer == "grpo" else []
    )
    assert dispatch([*argv, "--eval-steps", "2", "--out", str(tmp_path / "a")]) == 0
    progress = [line for line in capsys.readouterr().err.splitlines() if line.startswith(f"{trainer}: ")]
    assert len(progress) == 4 and {"1", "4"} <= set(progress[0].replace(":", "").split())
    assert dispatch([*argv, "--out", str(tmp_path / "b")]) == 0
    watched, plain = (
        [json.loads(line) for line in (tmp_path / run / "metrics.jsonl").read_text().splitlines()] for run in "ab"
    )
    assert [name in row for row in watched] == [False, True, False, True]
    assert result(tmp_path / "a")["held_out"] == len(found)
    for a, b in zip(watched, plain, strict=True):
        assert {k: v for k, v in a.items() if not k.startswith(("held_out_", "seconds"))} == {
            k: v for k, v in b.items() if not k.startswith("seconds")
        }


def result(folder: Path) -> dict:
    return json.loads((folder / "result.json").read_text())


def test_train_eval_data_of_other_kind_is_error(tmp_path):
    data, pairs = rows(tmp_path / "d.jsonl", CHATS), rows(tmp_path / "p.jsonl", TRAINED_ON["dpo"][0])
    with raises(UserError, value="preference", expected="prompt-completion", file=pairs):
        dispatch(["train", "sft", "--data", data, "--eval-data", pairs, "--out", str(tmp_path / "run"), *QUICK])


# -- a grader of one's own -------------------------------------------------------------------------------------------

PROBLEM = Problem([{"role": "user", "content": "2+2?"}], "4")


def grader(folder: Path, text: str) -> str:
    (folder / "my.py").write_text(text)
    return f"{folder}/my.py:fn"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("def fn(completion): return 3", 3.0),
        ("def fn(completion, reference): return completion == reference", 1.0),
        ("def fn(a, b, c): return len(c)", 1.0),
        ("def fn(completion, reference=None, *, strict=True): return int(strict)", 1.0),
        ("import math\nclass Judge:\n    def __call__(self, text): return math.pi\nfn = Judge()", 3.141592653589793),
    ],
)
def test_own_grader_is_given_what_it_takes(text, value, tmp_path):
    assert custom_rewards.custom_reward(grader(tmp_path, text))([PROBLEM], ["4"]) == [value]


SIGNATURE = {"argument": "grader", "expected": ["completion", "reference", "messages"], "problem": "parameters"}
ENDLESS = "def fn(a):\n    while True: pass"


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("def fn(a, b, c, d): return 1", SIGNATURE),
        ("fn = 3", SIGNATURE),
        ("def gn(a): return 1", {"value": "fn", "expected": "gn", "problem": "unknown"}),
        ("def fn(a)\n    return 1", {"line": 1, "value": "SyntaxError"}),
        ("x = 1\ny = 1 / 0\ndef fn(a): return 1", {"line": 2, "value": "ZeroDivisionError"}),
        ("raise SystemExit(3)", {"line": 1, "value": "SystemExit"}),
        ("def fn(a): return [1, 2]", {"value": [1, 2], "expected": "number"}),
        (ENDLESS, {"value": 3, "problem": "timeout"}),
        (
            "def fn(a):\n    while True:\n        try:\n            while True: pass\n        except Exception: pass",
            {"value": 3, "problem": "timeout"},
        ),
    ],
)
def test_own_grader_bad_function_is_error(text, facts, tmp_path):
    seconds = 0.05 if "while" in text else 60.0
    with raises(UserError, **facts):
        custom_rewards.custom_reward(grader(tmp_path, text), seconds=seconds)([PROBLEM] * 4, ["4"] * 4)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("def fn(a):\n    raise KeyError('no such thing')", ("my.py", " 2", "KeyError", "no such thing")),
        ("def fn(a):\n    import sys\n    sys.exit(3)", ("my.py", " 3", "SystemExit", "3")),
        ("def fn(a): return [1.0, 2.0]", ("my.py", "[1.0, 2.0]")),
        (ENDLESS, ("my.py", "0.05 s")),
        ("while True: pass\ndef fn(a): return 1", ("my.py", "0.5 s")),
    ],
    ids=["fails", "exits", "list", "endless", "endless file"],
)
def test_own_grader_that_cannot_grade_ends_run_before_it_writes(text, parts, tmp_path, monkeypatch):
    if text.startswith("while"):
        monkeypatch.setattr(custom_rewards, "READING", 0.5)
    monkeypatch.chdir(tmp_path)
    rows(
        tmp_path / "d.jsonl", [{"prompt": f"say {n}", "reference": str(n)} for n in range(12)]
    )  # of which four are held out
    argv = ["--data", "d.jsonl", "--num-generations", "2", "--max-completion-length", "4", "--out", "run", *QUICK]
    argv += ["--grader", grader(Path(), text), "--grader-timeout", "0.05" if text == ENDLESS else "60"]
    with pytest.raises(UserError) as caught:
        dispatch(["train", "grpo", *argv])
    assert all(part in str(caught.value) for part in parts), caught.value
    assert sorted(p.name for p in tmp_path.iterdir() if p.name != "__pycache__") == ["d.jsonl", "my.py"]


def test_own_grader_that_swallows_every_exception_ends_process(tmp_path, monkeypatch, capsys):
    """``except:`` in an endless loop cannot be stopped in any other way."""
    ended = []

    def end(status):
        ended.append(status)
        (tmp_path / "enough").touch()

    monkeypatch.setattr(custom_rewards.os, "_exit", end)
    text = """
from pathlib import Path
from time import sleep
def fn(completion):
    while not Path(__file__).with_name("enough").exists():
        try:
            sleep(9)
        except:
            pass
    return 1.0
"""
    custom_rewards.custom_reward(grader(tmp_path, text), seconds=0.1)([PROBLEM], ["4"])
    assert ended == [2]
    error = capsys.readouterr().err
    assert "my.py" in error and "0.1 s" in error


def test_own_grader_failure_costs_one_sample(tmp_path):
    reward = custom_rewards.custom_reward(grader(tmp_path, "def fn(text, reference):\n    return int(text)"))
    values, failure = score_completions(reward, [PROBLEM] * 3, ["1", "two", "3"])
    assert values[0] == 1.0 and values[1] != values[1] and values[2] == 3.0
    assert all(part in failure for part in ("my.py", " 2", "ValueError"))


def test_own_grader_of_readme(tmp_path):
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    text = readme.partition("my.py:polite")[2].partition("```python\n")[2].partition("```")[0]
    (tmp_path / "my.py").write_text(text, encoding="utf-8")
    grades = custom_rewards.custom_reward(f"{tmp_path}/my.py:polite")([PROBLEM] * 2, ["yes please", "no"])
    assert grades == [1 - 0.02, -0.01]


@pytest.mark.parametrize("named", ["my.py", "nowhere.py:fn", ":fn.py", "d.py:"])
def test_own_grader_missing_is_error(named, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = rows(tmp_path / "d.jsonl", [{"prompt": f"say {n}"} for n in range(4)])
    with raises(UserError, value=named):
        dispatch(["train", "grpo", "--data", data, "--grader", named, "--out", "run", *QUICK])
    assert not Path("run").exists()
