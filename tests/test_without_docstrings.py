"""Docstrings are for people: without them (``python -OO``) the commands print the same facts."""

import contextlib
import io
import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

FACTS = {"recipes vapo": "vapo: ", "train grpo --help": "options:", "train distill --help": "options:"}
CODE = f"""
import contextlib, io, json
from minirlhf.recipes.offline import PREFERENCES
from minirlhf_cli import main

printed = {{"without source": [row.name for row in PREFERENCES.values() if not row.source]}}
for command in {[*FACTS, "verify eq:dpo"]!r}:
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
        if main(command.split()) != 0:  # no assert: -OO drops it
            raise RuntimeError(command)
    printed[command] = text.getvalue()
print(json.dumps(printed))
"""


@pytest.fixture(scope="module")
def printed():
    """What the commands print with docstrings, here, and without, in a process of its own."""
    here, without = io.StringIO(), [sys.executable, "-OO", "-c", CODE]
    with contextlib.redirect_stdout(here):
        exec(CODE, {})
    there = subprocess.run(without, capture_output=True, text=True, check=True).stdout
    return [json.loads(here.getvalue()), json.loads(there)]


@pytest.mark.parametrize("command", FACTS)
def test_command_without_docstrings_prints_sources_and_help_of_options(command, printed):
    # A command's own description is the docstring of its module; the options, and what they mean, are not.
    facts = [texts[command].partition(FACTS[command])[2] for texts in printed]
    assert facts[0] == facts[1] and len(facts[0]) > 500


def test_verify_without_docstrings_proves_an_equation(printed):
    assert "eq:dpo" in printed[1]["verify eq:dpo"]  # it ends with 1 where a check fails


def test_sources_of_losses_do_not_need_docstrings(printed):
    assert printed[1]["without source"] == []
