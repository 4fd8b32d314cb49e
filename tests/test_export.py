"""What a run becomes as a folder for another engine: its model, tokenizer, reference, data and grader are the run's own."""

import importlib.util
import json
import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from facts import raises
from patience import finished

from minirlhf.core.errors import UserError
from minirlhf.data.chat import end_tokens
from minirlhf.models.loading import load_folder
from minirlhf.trainers.sft import SFTConfig
from minirlhf_cli import dispatch, main
from minirlhf_cli.export.mapped import NoCounterpartError, RunSpec
from minirlhf_cli.export.write import ENGINES, MOVED
from minirlhf_cli.files.sources import SFTSource

SPEC = importlib.util.spec_from_file_location(
    "foreign_models", Path(__file__).parents[1] / "benchmarks/foreign_models.py"
)
foreign = importlib.util.module_from_spec(SPEC)
sys.modules[SPEC.name] = foreign
SPEC.loader.exec_module(foreign)

QUICK = ["--max-steps", "1", "--batch-size", "2", "--learning-rate", "1e-3", "--eval-fraction", "0.3"]
ONLINE = ["--max-completion-length", "4", "--num-generations", "2"]
GRADER = "def fn(completion):\n    return float(len(completion) % 3)\n"
PROBLEMS = [{"prompt": f"what is {n}", "reference": str(n)} for n in range(10)]
PAIRS = [{"prompt": f"q{n}", "chosen": f"good {n}", "rejected": f"bad {n}"} for n in range(8)]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A model whose template ends replies by another token than the tokenizer's end of sequence, another one of its kind, and data."""
    folder = tmp_path_factory.mktemp("place")
    foreign.stranger(folder / "base", "Qwen2", torch.float32)
    model, tokenizer = load_folder(folder / "base", complete_tokenizer=True)
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(1.1)
    model.save_pretrained(folder / "other")
    tokenizer.save_pretrained(folder / "other")
    (folder / "my.py").write_text(GRADER)
    rows(folder / "p.jsonl", PROBLEMS)
    rows(folder / "d.jsonl", PAIRS)
    return folder


def rows(file, found):
    file.write_text("".join(json.dumps(row) + "\n" for row in found), encoding="utf-8")
    return str(file)


def trained(trainer, place, out, *more):
    asked = {"grpo": ["--data", f"{place}/p.jsonl", *ONLINE], "dpo": ["--data", f"{place}/d.jsonl"]}[trainer]
    graded = ["--grader", f"{place}/my.py:fn"] if trainer == "grpo" and "--grader" not in more else []
    argv = ["train", trainer, "--model", f"{place}/base", "--out", str(out), *asked, *graded, *QUICK, *more]
    assert main(argv) == 0
    return out


def exported(run, out, *more):
    """The files of an exported run."""
    assert dispatch(["export", str(run), "--out", str(out), *more]) == 0
    return out


def script_of(out):
    return next(out.glob("train.*")).read_text()


@contextmanager
def refused(out, **facts):
    """The export ends with an error of these facts, and leaves nothing behind."""
    with raises(UserError, **facts):
        yield
    assert not out.exists() and not list(out.parent.glob(f".{out.name}*"))


def test_export_stops_where_the_template_ends_a_reply(place, tmp_path):
    """TRL and vLLM ask ``generation_config``; so does ``generate`` of what a run leaves behind."""
    run = trained("grpo", place, tmp_path / "run")
    exported(run, tmp_path / "big")
    for folder in (tmp_path / "big/model", run / "model"):
        model, tokenizer = load_folder(folder)
        assert end_tokens(tokenizer).names.keys() == set(model.generation_config.eos_token_id)
        assert tokenizer.convert_tokens_to_ids("<|im_end|>") in model.generation_config.eos_token_id


def test_export_has_the_chat_template_of_the_run(place, tmp_path):
    text = "{% for m in messages %}{{ '|' ~ m['role'] ~ m['content'] ~ '<|im_end|>' }}{% endfor %}{{ '|assistant' if add_generation_prompt }}"
    (tmp_path / "t.jinja").write_text(text)
    exported(trained("grpo", place, tmp_path / "run", "--chat-template", f"{tmp_path}/t.jinja"), tmp_path / "big")
    assert load_folder(tmp_path / "big/model")[1].chat_template == text


def test_export_leaves_out_long_rows_that_the_run_left_out(place, tmp_path):
    data = rows(
        tmp_path / "long.jsonl", [*PROBLEMS, *({"prompt": f"{n} and so on " * 90, "reference": "1"} for n in range(9))]
    )
    run = trained("grpo", place, tmp_path / "run", "--data", data, "--drop-long", "true")
    exported(run, tmp_path / "big")
    found = [json.loads(line) for line in (tmp_path / "big/data.jsonl").read_text().splitlines()]
    assert len(found) == json.loads((run / "result.json").read_text())["train"]
    assert all(len(row["prompt"][0]["content"]) < 50 for row in found)


@pytest.mark.parametrize("what", ["data", "grader", "model"])
def test_export_of_changed_inputs_is_refused(what, place, tmp_path):
    copy = tmp_path / "place"
    subprocess.run(["cp", "-r", str(place), str(copy)], check=True)
    run = trained("grpo", copy, tmp_path / "run")
    match what:
        case "data":
            rows(copy / "p.jsonl", PROBLEMS[1:])
        case "grader":
            (copy / "my.py").write_text(GRADER.replace("3", "4"))
        case "model":
            (copy / "base").rename(copy / "gone")
            (copy / "other").rename(copy / "base")
    with refused(tmp_path / "big", argument=what):
        exported(run, tmp_path / "big")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("grader.py", GRADER),
        ("train.py", GRADER),
        ("my.py", "from functools import partial\ndef by(completion, n):\n    return float(len(completion) % n)\nfn = partial(by, n=3)\n"),
        ("my.py", "class Judge:\n    def __call__(self, completion):\n        return float(len(completion) % 3)\nfn = Judge()\n"),
        ("my.py", "fn = lambda completion: float(len(completion) % 3)\n"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("engine", ["trl", "verl"])
def test_export_has_a_grader_of_any_kind_and_name(engine, name, text, place, tmp_path):
    (tmp_path / name).write_text(text)
    run = trained("grpo", place, tmp_path / "run", "--grader", f"{tmp_path}/{name}:fn")
    exported(run, tmp_path / "big", "--to", engine, "--allow-differences")
    spec = importlib.util.spec_from_file_location("exported_grader", tmp_path / "big/grader.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.grade([{"role": "user", "content": "x"}], "four") == 1.0


# -- the reference ---------------------------------------------------------------------------------------------------


def digest(folder):
    return sum(
        float(p.detach().double().abs().sum()) for p in load_folder(folder, complete_tokenizer=True)[0].parameters()
    )


@pytest.mark.slow
@pytest.mark.parametrize("trainer", ["grpo", "dpo"])
@pytest.mark.parametrize("how", ["named", "end"])
def test_export_reference_is_the_runs(trainer, how, place, tmp_path):
    run = trained(trainer, place, tmp_path / "run", *(["--ref-model", f"{place}/other"] if how == "named" else []))
    exported(run, tmp_path / "big", *(["--model", "end"] if how == "end" else []))
    expected = place / {"named": "other", "end": "base"}[how]
    assert digest(tmp_path / "big/reference") == pytest.approx(digest(expected), rel=1e-6)
    assert digest(tmp_path / "big/model") != pytest.approx(digest(tmp_path / "big/reference"), rel=1e-6)
    script = (tmp_path / "big/train.py").read_text()
    reads = 'model.config._name_or_path = "reference"' if trainer == "grpo" else '("model", "reference")'
    assert reads in script


def test_export_without_a_reference_writes_none(place, tmp_path):
    run = tmp_path / "run"
    argv = [
        "train",
        "dr_grpo",
        "--data",
        f"{place}/p.jsonl",
        "--grader",
        f"{place}/my.py:fn",
        "--model",
        f"{place}/base",
    ]
    assert main([*argv, "--ref-model", f"{place}/other", "--out", str(run), *QUICK, *ONLINE]) == 0
    exported(run, tmp_path / "big", "--model", "end")
    assert not (tmp_path / "big/reference").exists()


@pytest.mark.parametrize(("engine", "lora"), [("verl", False), ("openrlhf", False), ("trl", True)])
def test_export_of_another_reference_than_the_model_is_refused(engine, lora, place, tmp_path):
    pytest.importorskip("peft")
    asked = ["--ref-model", f"{place}/other", *(["--lora-r", "2"] if lora else [])]
    run = trained("grpo", place, tmp_path / "run", *asked)
    with refused(tmp_path / "big", argument="ref_model"):
        exported(run, tmp_path / "big", "--to", engine)


def test_export_of_the_end_of_a_lora_run_has_another_reference(place, tmp_path):
    pytest.importorskip("peft")
    run, out = trained("grpo", place, tmp_path / "run", "--lora-r", "2"), tmp_path / "big"
    with refused(out, argument="--allow-differences", value=(MOVED,)):
        exported(run, out, "--model", "end")
    exported(run, out, "--model", "end", "--allow-differences")
    assert MOVED in (out / "DIFFERENCES.md").read_text()


@pytest.mark.slow
def test_export_to_trl_learns_from_the_named_reference(place, tmp_path):
    """Launched: the KL of the first step is that to the other model, and not 0 as it would be to the model itself."""
    run = trained("grpo", place, tmp_path / "run", "--ref-model", f"{place}/other")
    exported(run, tmp_path / "big")
    env = {"PATH": "/usr/bin:/bin", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": ":".join(sys.path)}
    done = finished([sys.executable, "train.py"], usually=10, cwd=tmp_path / "big", env=env)
    assert done.returncode == 0, done.stdout[-2000:]
    [kl] = re.findall(r"'kl': '?([-\d.e]+)", done.stdout)
    assert float(kl) > 1e-4


# -- conversations of several replies --------------------------------------------------------------------------------

TALKS = [
    {"messages": [{"role": who, "content": f"{who} {n} {i}"} for i in range(2) for who in ("user", "assistant")]}
    for n in range(8)
]


#: A prompt in which the assistant speaks, and one reply behind it, or two.
ONE_MORE = [{"prompt": talk["messages"][:3], "completion": talk["messages"][3:]} for talk in TALKS]
TWO_MORE = [{**row, "completion": row["completion"] + TALKS[0]["messages"][:2]} for row in ONE_MORE]


def sft_run(data, place, tmp_path, *asked, model="nano"):
    argv = ["train", "sft", "--data", rows(tmp_path / "t.jsonl", data), "--out", str(tmp_path / "run"), *QUICK]
    argv += ["--vocab-size", "300", "--context", "96", "--model", f"{place}/base" if model == "base" else model]
    assert main([*argv, *asked]) == 0
    return tmp_path / "run"


def sft_exported(data, place, tmp_path, *asked, to="trl", model="nano"):
    """The rows and the script of a run that was asked this."""
    run = sft_run(data, place, tmp_path, *asked, model=model)
    out = exported(run, tmp_path / "big", "--to", to, "--allow-differences")
    found = out / "data.jsonl"
    return [json.loads(line) for line in found.read_text().splitlines()] if found.exists() else [], script_of(out)


def test_export_of_several_replies_has_them_all_learned(place, tmp_path):
    found, script = sft_exported(TALKS, place, tmp_path)
    assert "'assistant_only_loss': True" in script
    assert [message["role"] for message in found[0]["messages"]] == ["user", "assistant"] * 2
    assert "data.messages_key=messages" in script_of(
        exported(tmp_path / "run", tmp_path / "other", "--to", "verl", "--allow-differences")
    )
    with refused(tmp_path / "third", argument="messages"):
        exported(tmp_path / "run", tmp_path / "third", "--to", "openrlhf", "--allow-differences")


def test_export_of_several_replies_needs_marks_in_the_template(place, tmp_path):
    run = sft_run(TALKS, place, tmp_path, model="base")
    with refused(tmp_path / "big", argument="chat_template"):
        exported(run, tmp_path / "big")


@pytest.mark.parametrize("engine", ["trl", "openrlhf"])
def test_export_of_one_reply_behind_a_prompt_needs_no_marks(engine, place, tmp_path):
    found, script = sft_exported(ONE_MORE, place, tmp_path, to=engine, model="base")
    assert {len(row["prompt"]) for row in found} == {3}
    assert script and "'assistant_only_loss': True" not in script


def test_export_trained_on_the_last_reply_has_all_else_as_prompt(place, tmp_path):
    found, script = sft_exported(TALKS, place, tmp_path, "--train-on", "last", model="base")
    assert {(len(row["prompt"]), len(row["completion"])) for row in found} == {(3, 1)}
    assert "'completion_only_loss': True" in script and "assistant_only_loss" not in script


def test_export_of_a_packed_run_has_its_settings_in_the_script(place, tmp_path):
    asked = ["--packing", "true", "--max-length", "80", "--loss-type", "dft", "--train-on", "all"]
    found, script = sft_exported(TALKS, place, tmp_path, *asked)
    named = {
        "packing": True,
        "packing_strategy": "bfd",
        "max_length": 80,
        "loss_type": "dft",
        "completion_only_loss": False,
    }
    assert all(f"'{name}': {value!r}" in script for name, value in named.items())
    assert {tuple(row) for row in found} == {("messages",)} and "assistant_only_loss" not in script


def test_export_with_replies_in_the_context_is_refused(place, tmp_path):
    run = sft_run(TWO_MORE, place, tmp_path)
    with refused(tmp_path / "big", argument="train_on"):
        exported(run, tmp_path / "big")


@pytest.mark.parametrize("engine", ["verl", "openrlhf"])
def test_bridge_sft_refuses_settings_that_only_trl_has(engine):
    asked = lambda config, **source: RunSpec("sft", SFTSource(out="x", **source), config, None)
    for told, argument, value in (
        (asked(SFTConfig(packing=True)), "packing", True),
        (asked(SFTConfig(), loss_type="dft"), "loss_type", "dft"),
        (asked(SFTConfig(), train_on="all"), "train_on", "all"),
    ):
        with raises(NoCounterpartError, argument=argument, value=value):
            ENGINES[engine].mapped(told)


@pytest.mark.parametrize("trainer", ["sft", "dpo", "reward"])
def test_export_to_trl_cuts_nothing(trainer, tmp_path):
    """TRL's default is 1,024 tokens."""
    data = rows(tmp_path / "d.jsonl", PAIRS)
    argv = ["train", trainer, "--data", data, "--out", str(tmp_path / "run"), *QUICK, "--vocab-size", "300"]
    assert main(argv) == 0
    assert "'max_length': None" in script_of(exported(tmp_path / "run", tmp_path / "big"))
