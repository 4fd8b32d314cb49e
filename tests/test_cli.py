"""The small commands: recipes and zoo, and how the command line ends."""

import os
import subprocess
import sys

import pytest

from minirlhf import recipes
from minirlhf.cli import COMMANDS, main
from minirlhf.stages import zoo


def test_recipes_are_a_table_and_a_page(capsys):
    assert main(["recipes"]) == 0
    table = capsys.readouterr().out
    rows = {line.split()[0]: line for line in table.splitlines()[1:]}
    assert set(rows) == set(recipes.RECIPES)
    assert "group_zscore" in rows["grpo"] and "k3 in loss" in rows["grpo"]
    assert "leave_one_out" in rows["rloo"] and "k1 in reward" in rows["rloo"]
    assert main(["recipes", "dr_grpo"]) == 0
    assert "2503.20783" in capsys.readouterr().out
    assert main(["recipes", "grop"]) == 2
    assert "did you mean 'grpo'" in capsys.readouterr().err


def test_zoo_lists_its_entries_and_refuses_bad_names(capsys, tmp_path):
    assert main(["zoo"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in zoo.ENTRIES)
    assert main(["zoo", "assistant-stf"]) == 2
    assert "did you mean 'assistant-sft'" in capsys.readouterr().err
    assert main(["zoo", "--all", "--out", str(tmp_path / "x")]) == 2
    assert main(["zoo", "assistant-sft", "--out", str(tmp_path)]) == 2
    assert "exists already" in capsys.readouterr().err


@pytest.mark.slow
def test_zoo_copies_an_entry_that_the_trainers_can_start_from(tmp_path):
    copy = tmp_path / "sft"
    assert main(["zoo", "assistant-sft", "--out", str(copy)]) == 0
    flags = ["--max-steps", "1", "--batch-size", "2", "--num-generations", "2", "--max-completion-length", "24"]
    assert (
        main(["train", "grpo", "--task", "assistant", "--model", str(copy), "--out", str(tmp_path / "rl"), *flags]) == 0
    )


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_help(name, capsys):
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    assert "usage: minirlhf " + name in capsys.readouterr().out


def test_a_closed_pipe_is_no_crash():
    shell = f"{sys.executable} -m minirlhf.cli recipes | head -1"
    done = subprocess.run(shell, shell=True, capture_output=True, text=True)
    assert done.returncode == 0 and "Traceback" not in done.stderr


def test_a_terminal_that_knows_ascii_only_is_no_crash():
    command = [sys.executable, "-m", "minirlhf.cli", "verify", "--chapter", "5"]
    done = subprocess.run(command, capture_output=True, env=os.environ | {"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0 and b"Traceback" not in done.stderr
    assert b"?" in done.stdout, "nothing had to be replaced: the test proves nothing"
