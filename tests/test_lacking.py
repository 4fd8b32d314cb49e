"""The list of what is lacking: all of a made-up row, and nothing of what has landed."""

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from facts import raises

from minirlhf.core.errors import UserError
from minirlhf.equations.preference_losses import records
from minirlhf.recipes import RECIPES
from minirlhf.recipes.offline import PREFERENCES

SPEC = importlib.util.spec_from_file_location("lacking", Path(__file__).parents[1] / "tools" / "lacking.py")
tool = importlib.util.module_from_spec(SPEC)
sys.modules["lacking"] = tool
SPEC.loader.exec_module(tool)


def lacking(name):
    return {item.name for item in tool.of(name) if not item.found}


@pytest.mark.parametrize("name", ["eq:k3", "eq:dpo", "eq:grpo-objective", "grpo", "DAPO", "kto", "dpo"])
def test_lacking_is_nothing_of_what_has_landed(name, monkeypatch, capsys):
    assert list(tool.of(name)) and lacking(name) == set()
    monkeypatch.setattr(sys, "argv", ["lacking.py", name])
    assert tool.main() == 0 and len(capsys.readouterr().out.splitlines()) < 24


def test_lacking_of_label_that_is_nowhere_is_all():
    assert lacking("eq:made-up") == {"function", "checks", "wrong variants", "printed formula", "page"}


def made_up_objective(logps, old_logps, advantages, mask):
    """Like no other."""
    return logps * advantages


def test_lacking_of_made_up_recipe(monkeypatch):
    monkeypatch.setitem(RECIPES, "made_up", replace(RECIPES["dapo"].with_(objective=made_up_objective), name="made_up"))
    expected = {"name at the door", "transcription", "equation of made_up_objective", "peer of made_up_objective"}
    assert lacking("made_up") == expected
    monkeypatch.setitem(RECIPES, "made_up", replace(RECIPES["dapo"], name="made_up"))
    assert lacking("made_up") == {"name at the door", "transcription"}, "its functions have all that they need"


def made_up_loss(pair, *, beta=0.1):
    """Like no other."""
    return -beta * pair.margins


def test_lacking_of_made_up_loss(monkeypatch, capsys):
    monkeypatch.setattr(records, "_DECLARED", {**records._DECLARED})
    row = replace(
        PREFERENCES["dpo"], name="made_up", loss=records.Needs(records.PairLogps)(made_up_loss), deviations=()
    )
    monkeypatch.setitem(PREFERENCES, "made_up", row)
    expected = {"exported function", "name at the door", "transcription", "source of numbers"}
    assert lacking("made_up") == {*expected, "equation of made_up_loss", "peer of made_up_loss"}
    monkeypatch.setattr(sys, "argv", ["lacking.py", "made_up"])
    assert tool.main() == 1 and capsys.readouterr().out.count("LACKING") == 6


def test_lacking_of_unknown_name_and_missing_table_is_an_error(monkeypatch, capsys):
    with raises(UserError, value="grop", expected="grpo"):
        lacking("grop")
    monkeypatch.setattr(sys, "argv", ["lacking.py", "grop"])
    assert tool.main() == 2 and capsys.readouterr().out == ""
    with raises(UserError, argument="NOWHERE", problem="missing"):
        tool._keys("tests/test_whole_losses.py", "NOWHERE")
