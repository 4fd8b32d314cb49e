"""Docstrings are for people: without them (``python -OO``) the commands print the same facts."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow


def printed(*command, options=()):
    """What a command prints in a process of its own."""
    process = [sys.executable, *options, "-m", "minirlhf_cli", *command]
    return subprocess.run(process, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    ("command", "start"),
    [("recipes vapo", "vapo: "), ("train grpo --help", "options:"), ("train distill --help", "options:")],
)
def test_command_without_docstrings_prints_sources_and_help_of_options(command, start):
    # A command's own description is the docstring of its module; the options, and what they mean, are not.
    facts = [printed(*command.split(), options=options).partition(start)[2] for options in ((), ("-OO",))]
    assert facts[0] == facts[1] and len(facts[0]) > 500


def test_verify_without_docstrings_proves_an_equation():
    assert "eq:dpo" in printed("verify", "eq:dpo", options=("-OO",))  # it ends with 1 where a check fails


def test_sources_of_losses_do_not_need_docstrings():
    code = "from minirlhf.recipes.offline import PREFERENCES; print([row.name for row in PREFERENCES.values() if not row.source])"
    shown = subprocess.run([sys.executable, "-OO", "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "[]"
