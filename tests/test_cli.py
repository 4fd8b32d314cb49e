"""The small commands: recipes and zoo, and how the command line ends."""

import contextlib
import json
import os
import subprocess
import sys

import pytest
from facts import raises

from minirlhf import recipes
from minirlhf.core.errors import UserError
from minirlhf.stages import zoo
from minirlhf_cli import COMMANDS, dispatch, main


def test_cli_recipes_prints_table_and_page_of_one(capsys):
    assert dispatch(["recipes"]) == 0
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()[1:]}
    assert set(rows) == set(recipes.RECIPES)
    assert "group_zscore" in rows["grpo"] and "k3" in rows["grpo"]
    assert "leave_one_out" in rows["rloo"] and "k1" in rows["rloo"]
    assert dispatch(["recipes", "dr_grpo"]) == 0
    assert "2503.20783" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "facts"),
    [
        (["trian"], {"argument": "command", "value": "trian", "expected": "train"}),
        (["recipes", "grop"], {"value": "grop", "expected": "grpo"}),
        (["models", "assistant-stf"], {"value": "assistant-stf", "expected": "assistant-sft"}),
        (["models", "--all", "--out", "FOLDER/x"], {}),
        (["models", "assistant-sft", "--out", "FOLDER"], {"problem": "exists"}),
    ],
)
def test_cli_unknown_name_or_place_raises_user_error(argv, facts, tmp_path):
    with raises(UserError, **facts):
        dispatch([word.replace("FOLDER", str(tmp_path)) for word in argv])


def test_cli_main_prints_user_error_as_one_line_and_returns_2(capsys):
    assert main(["trian"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and len(err.splitlines()) == 1 and "'train'" in err
    assert main([]) == 0
    usage = capsys.readouterr().out
    assert all(name in usage for name in COMMANDS)


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", ["data inspect", "train sft --out run --data", "train sft --out run --config", "doctor"]
)
def test_cli_main_refuses_name_that_the_system_refuses_in_one_line(command, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main([*command.split(), "x" * 300 + ".jsonl"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "x" * 80 in line and not any(tmp_path.iterdir())


def test_cli_doctor_finds_no_run_in_an_empty_file(tmp_path):
    file = tmp_path / "metrics.jsonl"
    file.touch()
    with raises(UserError, problem="empty", value=0):
        dispatch(["doctor", str(file)])


def test_cli_zoo_lists_entries(capsys):
    assert dispatch(["models"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in zoo.ENTRIES)


@pytest.mark.slow
def test_cli_zoo_copies_entry_that_training_starts_from(tmp_path):
    copy = tmp_path / "sft"
    assert dispatch(["models", "assistant-sft", "--out", str(copy)]) == 0
    flags = ["--max-steps", "1", "--batch-size", "2", "--num-generations", "2", "--max-completion-length", "24"]
    argv = ["train", "grpo", "--task", "assistant", "--model", str(copy), "--out", str(tmp_path / "rl")]
    assert dispatch([*argv, *flags]) == 0


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_cli_help_of_every_command_exits_0(name, capsys):
    with pytest.raises(SystemExit) as ended:
        main([*name.split(), "--help"])
    assert ended.value.code == 0
    assert f"minirlhf {name}" in capsys.readouterr().out


@pytest.mark.slow
def test_cli_exits_quietly_on_closed_pipe():
    shell = f"{sys.executable} -m minirlhf_cli recipes | head -1"
    done = subprocess.run(shell, shell=True, capture_output=True, text=True)
    assert done.returncode == 0 and "Traceback" not in done.stderr


@pytest.mark.slow
def test_cli_prints_question_marks_on_ascii_terminal():
    command = [sys.executable, "-m", "minirlhf_cli", "verify", "--chapter", "5"]
    done = subprocess.run(command, capture_output=True, env=os.environ | {"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0 and b"Traceback" not in done.stderr
    assert b"?" in done.stdout, "nothing had to be replaced: the test proves nothing"


#: Commands whose help and whose mistakes are answered before a second is over; the others build their options from tables of functions.
AT_ONCE = (
    *("chat", "data", "doctor", "doctor faq", "doctor gallery", "doctor metrics", "evaluate", "evaluate bestofn"),
    *("evaluate judge", "evaluate power", "evaluate spec", "explain", "export", "models", "plot", "recipes", "tour"),
    *("challenge", "plan", "tour overopt", "verify", "verify errata", "verify studies"),
)


def test_cli_answers_that_need_no_tensor_load_no_pytorch_and_training_options_no_model_classes(tmp_path):
    """Help of all commands ``AT_ONCE``, lists of texts, the doctor of a healthy run, and mistakes in what is read."""
    rows = [json.dumps({"step": step, "reward": step / 9, "kl": step / 900}) for step in range(9)]
    (tmp_path / "metrics.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    (tmp_path / "config.json").write_text('{"max_grad_norm": 1.0, "num_generations": 4}', encoding="utf-8")
    answers = [["--help"], *([*name.split(), "--help"] for name in AT_ONCE)]
    answers += [["doctor", "faq"], ["doctor", "metrics"], ["doctor", f"{tmp_path}"], ["doctor", f"{tmp_path}/none"]]
    answers += [["plot", f"{tmp_path}/none"], ["plot", f"{tmp_path}", "--metrics", "none"], ["data", "none"], ["verfy"]]
    answers += [["verify", "eq:none"], ["verify", "--show", "eq:none"], ["verify", "--chapter", "99"]]
    answers += [["doctor", "gallery"], ["doctor", "gallery", "none"], ["train", "grpo", "--help"]]
    ask = "try:\n    dispatch({0})\nexcept (SystemExit, UserError):\n    pass\nseen[{1!r}] = sorted({{'torch', 'transformers'}} & {{*sys.modules}})\n"
    lines = "".join(ask.format(argv, " ".join(argv)) for argv in answers)
    end = "models = [m for m in sys.modules if m in ('transformers.modeling_utils', 'transformers.models.llama.modeling_llama')]\nprint(json.dumps([seen, models]), file=sys.stderr)"
    code = f"import json, sys\nfrom minirlhf.core.errors import UserError\nfrom minirlhf_cli import dispatch\nseen = {{}}\n{lines}{end}"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    seen, models = json.loads(ran.stderr.splitlines()[-1])
    assert seen.pop("train grpo --help") != [], "the check cannot see what is loaded"
    assert {name: found for name, found in seen.items() if found} == {} and models == []


@pytest.mark.parametrize("argv", ["train --help", "train distill --recipe gkd --help", "recipes", "recipes vapo"])
def test_cli_prints_options_of_functions_without_importing_what_computes(argv, capsys):
    code = "import sys\nfrom minirlhf_cli import main\ntry:\n    main()\nfinally:\n    print(sys.modules['torch'].nn.Linear, file=sys.stderr)"
    alone = subprocess.run([sys.executable, "-c", code, *argv.split()], capture_output=True, text=True)
    assert "Placeholder" in alone.stderr
    with contextlib.suppress(SystemExit):
        dispatch(argv.split())
    printed = capsys.readouterr().out
    assert alone.stdout == printed and len(printed) > 500
