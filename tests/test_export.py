"""What a run becomes as a folder for another engine: its model, tokenizer, reference, data and grader are the run's own."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from minirlhf.cli import main
from minirlhf.data.chat import ends_of
from minirlhf.models.loading import load_folder

SPEC = importlib.util.spec_from_file_location(
    "foreign_models", Path(__file__).parents[1] / "benchmarks/foreign_models.py"
)
foreign = importlib.util.module_from_spec(SPEC)
sys.modules[SPEC.name] = foreign
SPEC.loader.exec_module(foreign)

QUICK = ["--max-steps", "1", "--batch-size", "2", "--learning-rate", "1e-3", "--held-out", "0.3"]
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


def exported(run, out, capsys, *more):
    capsys.readouterr()
    status = main(["export", str(run), "--out", str(out), *more])
    said, err = capsys.readouterr()
    assert (status == 0) == out.exists()
    return said if status == 0 else err.splitlines()[-1]


def test_others_stop_where_the_template_ends_a_reply(place, tmp_path, capsys):
    """TRL and vLLM ask ``generation_config``; so does ``generate`` of what a run leaves behind."""
    run = trained("grpo", place, tmp_path / "run")
    exported(run, tmp_path / "big", capsys)
    for folder in (tmp_path / "big/model", run / "model"):
        model, tokenizer = load_folder(folder)
        assert ends_of(tokenizer).names.keys() == set(model.generation_config.eos_token_id)
        assert tokenizer.convert_tokens_to_ids("<|im_end|>") in model.generation_config.eos_token_id


def test_the_template_of_the_run_goes_with_it(place, tmp_path, capsys):
    text = "{% for m in messages %}{{ '|' ~ m['role'] ~ m['content'] ~ '<|im_end|>' }}{% endfor %}{{ '|assistant' if add_generation_prompt }}"
    (tmp_path / "t.jinja").write_text(text)
    exported(
        trained("grpo", place, tmp_path / "run", "--chat-template", f"{tmp_path}/t.jinja"), tmp_path / "big", capsys
    )
    assert load_folder(tmp_path / "big/model")[1].chat_template == text


def test_long_rows_that_the_run_left_out_stay_out(place, tmp_path, capsys):
    data = rows(
        tmp_path / "long.jsonl", [*PROBLEMS, *({"prompt": f"{n} and so on " * 90, "reference": "1"} for n in range(9))]
    )
    run = trained("grpo", place, tmp_path / "run", "--data", data, "--drop-long", "true")
    exported(run, tmp_path / "big", capsys)
    found = [json.loads(line) for line in (tmp_path / "big/data.jsonl").read_text().splitlines()]
    assert len(found) == json.loads((run / "result.json").read_text())["train"]
    assert all(len(row["prompt"][0]["content"]) < 50 for row in found)


@pytest.mark.parametrize("what", ["data", "grader", "model"])
def test_what_is_no_longer_what_the_run_was_given_is_refused(what, place, tmp_path, capsys):
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
    assert f"not what the run was given: its {what} was" in exported(run, tmp_path / "big", capsys)
    assert not list(tmp_path.glob(".big*"))


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
def test_a_grader_of_any_kind_and_name_goes(engine, name, text, place, tmp_path, capsys):
    (tmp_path / name).write_text(text)
    run = trained("grpo", place, tmp_path / "run", "--grader", f"{tmp_path}/{name}:fn")
    exported(run, tmp_path / "big", capsys, "--to", engine, "--accept-differences")
    spec = importlib.util.spec_from_file_location("exported_grader", tmp_path / "big/grader.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.grade([{"role": "user", "content": "x"}], "four") == 1.0


# -- the reference ---------------------------------------------------------------------------------------------------


def digest(folder):
    return sum(
        float(p.detach().double().abs().sum()) for p in load_folder(folder, complete_tokenizer=True)[0].parameters()
    )


@pytest.mark.parametrize("trainer", ["grpo", "dpo"])
@pytest.mark.parametrize("how", ["named", "end"])
def test_the_reference_is_the_runs(trainer, how, place, tmp_path, capsys):
    run = trained(trainer, place, tmp_path / "run", *(["--ref-model", f"{place}/other"] if how == "named" else []))
    exported(run, tmp_path / "big", capsys, *(["--model", "end"] if how == "end" else []))
    expected = place / {"named": "other", "end": "base"}[how]
    assert digest(tmp_path / "big/reference") == pytest.approx(digest(expected), rel=1e-6)
    assert digest(tmp_path / "big/model") != pytest.approx(digest(tmp_path / "big/reference"), rel=1e-6)
    script = (tmp_path / "big/train.py").read_text()
    reads = 'model.config._name_or_path = "reference"' if trainer == "grpo" else '("model", "reference")'
    assert reads in script


def test_without_a_reference_none_is_written(place, tmp_path, capsys):
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
    exported(run, tmp_path / "big", capsys, "--model", "end")
    assert not (tmp_path / "big/reference").exists()


@pytest.mark.parametrize(
    ("engine", "asked", "model", "words"),
    [
        ("verl", ["--ref-model", "other"], "start", "a reference that is not the model to begin with"),
        ("openrlhf", ["--ref-model", "other"], "start", "a reference that is not the model to begin with"),
        ("trl", ["--ref-model", "other", "--lora-r", "2"], "start", "a reference that is not the model to begin with"),
        ("trl", ["--lora-r", "2"], "end", "the reference is the exported model"),
    ],
)
def test_a_reference_that_cannot_go_is_refused_or_said(engine, asked, model, words, place, tmp_path, capsys):
    pytest.importorskip("peft")
    run = trained("grpo", place, tmp_path / "run", *(f"{place}/{word}" if word == "other" else word for word in asked))
    assert words in exported(run, tmp_path / "big", capsys, "--to", engine, "--model", model)
    if model == "end":
        assert words in exported(run, tmp_path / "big", capsys, "--model", model, "--accept-differences")


def test_trl_learns_from_the_reference_that_was_named(place, tmp_path, capsys):
    """Launched: the KL of the first step is that to the other model, and not 0 as it would be to the model itself."""
    run = trained("grpo", place, tmp_path / "run", "--ref-model", f"{place}/other")
    exported(run, tmp_path / "big", capsys)
    done = subprocess.run(
        [sys.executable, "train.py"], cwd=tmp_path / "big", capture_output=True, text=True, timeout=300,
        env={"PATH": "/usr/bin:/bin", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": ":".join(sys.path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    [kl] = re.findall(r"'kl': '?([-\d.e]+)", done.stdout)
    assert float(kl) > 1e-4


# -- conversations of several replies --------------------------------------------------------------------------------

TALKS = [
    {"messages": [{"role": who, "content": f"{who} {n} {i}"} for i in range(2) for who in ("user", "assistant")]}
    for n in range(8)
]


@pytest.mark.parametrize(
    ("engine", "model", "words"),
    [
        ("trl", "nano", "'assistant_only_loss': True"),
        ("trl", "base", "without {% generation %} in the chat template"),
        ("openrlhf", "nano", "several replies of a conversation"),
        ("verl", "nano", "data.messages_key=messages"),
    ],
)
def test_every_reply_of_a_conversation_is_learned_over_there_too(engine, model, words, place, tmp_path, capsys):
    data = rows(tmp_path / "t.jsonl", TALKS)
    argv = ["train", "sft", "--data", data, "--out", str(tmp_path / "run"), *QUICK, "--vocab-size", "300"]
    assert main([*argv, "--model", f"{place}/base" if model == "base" else model]) == 0
    said = exported(tmp_path / "run", tmp_path / "big", capsys, "--to", engine, "--accept-differences")
    script = next((file.read_text() for file in (tmp_path / "big").glob("train.*")), "")
    assert words in said + script
    if "True" in words:
        [row, *_] = map(json.loads, (tmp_path / "big/data.jsonl").read_text().splitlines())
        assert [message["role"] for message in row["messages"]] == ["user", "assistant"] * 2


#: A prompt in which the assistant speaks, and one reply behind it, or two.
ONE_MORE = [{"prompt": talk["messages"][:3], "completion": talk["messages"][3:]} for talk in TALKS]
TWO_MORE = [{**row, "completion": row["completion"] + TALKS[0]["messages"][:2]} for row in ONE_MORE]


def sft_exported(data, place, tmp_path, capsys, *asked, to="trl", model="nano"):
    """The rows, the script and what was said of a run that was asked this."""
    argv = ["train", "sft", "--data", rows(tmp_path / "t.jsonl", data), "--out", str(tmp_path / "run"), *QUICK]
    argv += ["--vocab-size", "300", "--context", "96", "--model", f"{place}/base" if model == "base" else model]
    assert main([*argv, *asked]) == 0
    said = exported(tmp_path / "run", tmp_path / "big", capsys, "--to", to, "--accept-differences")
    out = tmp_path / "big/data.jsonl"
    found = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    return found, next((file.read_text() for file in (tmp_path / "big").glob("train.*")), ""), said


@pytest.mark.parametrize("engine", ["trl", "openrlhf"])
def test_one_reply_behind_a_prompt_goes_without_marks_in_the_template(engine, place, tmp_path, capsys):
    found, script, said = sft_exported(ONE_MORE, place, tmp_path, capsys, to=engine, model="base")
    assert script, said
    assert {len(row["prompt"]) for row in found} == {3}
    assert "'assistant_only_loss': True" not in script


def test_of_the_last_reply_all_else_is_the_prompt(place, tmp_path, capsys):
    found, script, _ = sft_exported(TALKS, place, tmp_path, capsys, "--train-on", "last", model="base")
    assert {(len(row["prompt"]), len(row["completion"])) for row in found} == {(3, 1)}
    assert "'completion_only_loss': True" in script and "assistant_only_loss" not in script


def test_what_a_packed_run_was_told_stands_in_the_script(place, tmp_path, capsys):
    asked = ["--packing", "true", "--max-length", "80", "--loss-type", "dft", "--train-on", "all"]
    found, script, _ = sft_exported(TALKS, place, tmp_path, capsys, *asked)
    for words in (
        "packing': True",
        "packing_strategy': 'bfd'",
        "max_length': 80",
        "loss_type': 'dft'",
        "completion_only_loss': False",
    ):
        assert words in script
    assert "told apart by their positions" in (tmp_path / "big/DIFFERENCES.md").read_text()
    assert {tuple(row) for row in found} == {("messages",)} and "assistant_only_loss" not in script


def test_replies_of_the_context_are_not_learned_over_there(place, tmp_path, capsys):
    _, script, said = sft_exported(TWO_MORE, place, tmp_path, capsys)
    assert not script and "behind a prompt in which the assistant speaks" in said


@pytest.mark.parametrize("engine", ["verl", "openrlhf"])
@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (["--packing", "true"], "no counterpart of packing = True"),
        (["--loss-type", "dft"], "no counterpart of loss_type = dft"),
        (["--train-on", "all"], "no counterpart of train_on = all"),
    ],
)
def test_what_only_trl_can_be_told_is_refused_elsewhere(engine, asked, words, place, tmp_path, capsys):
    _, script, said = sft_exported(TALKS, place, tmp_path, capsys, *asked, to=engine)
    assert words in said and not script


@pytest.mark.parametrize("trainer", ["sft", "dpo", "reward"])
def test_nothing_is_cut(trainer, tmp_path, capsys):
    """TRL's default is 1,024 tokens."""
    data = rows(tmp_path / "d.jsonl", PAIRS)
    argv = ["train", trainer, "--data", data, "--out", str(tmp_path / "run"), *QUICK, "--vocab-size", "300"]
    assert main(argv) == 0
    exported(tmp_path / "run", tmp_path / "big", capsys)
    assert "'max_length': None" in (tmp_path / "big/train.py").read_text()
