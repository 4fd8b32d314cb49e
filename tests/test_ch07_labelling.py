"""The labelling widget: who answers, what is kept, and what counts as the same pairs."""

import json

import pytest

from minirlhf.data.elicitation import DisplayedPair
from minirlhf_course.classroom import labelling as widget
from minirlhf_course.classroom.labelling import Labelling

PAIRS = [DisplayedPair("why?", f"a{n}", f"b{n}") for n in range(3)]


@pytest.fixture
def reader(monkeypatch, tmp_path):
    """A reader who types the given lines; typing more than there are is an error."""
    monkeypatch.setattr(widget, "cache_folder", lambda: tmp_path)

    def types(*lines):
        left = iter(lines)
        monkeypatch.setattr(widget, "is_interactive", lambda: True)
        monkeypatch.setattr("builtins.input", lambda prompt: next(left))
        return left

    return types


def made():
    return Labelling("07", PAIRS, stand_in=lambda pair: "tie")


def test_labelling_without_a_frontend_asks_nobody_and_keeps_nothing(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(widget, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr("builtins.input", lambda prompt: pytest.fail("asked"))
    labelling = made()
    assert labelling.ask() == ["tie"] * 3 and labelling.by_reader == 0
    assert capsys.readouterr().out and not list(tmp_path.iterdir())


def test_labelling_asks_again_after_an_unknown_letter(reader, capsys):
    reader("a", "x", "N", "t")
    labelling = made()
    assert labelling.ask() == ["a", "both bad", "tie"] and labelling.by_reader == 3
    assert capsys.readouterr().out.count("\nA  a0\n") == 1  # shown once, however often it is asked


def test_labelling_keeps_votes_and_leaves_the_rest_to_the_stand_in(reader):
    reader("b", "")
    assert made().ask() == ["b", "tie", "tie"]
    left = reader("a", "a")
    again = made()
    assert again.ask() == ["b", "a", "a"] and again.by_reader == 3 and list(left) == []
    again.forget()
    reader("")
    assert made().ask() == ["tie"] * 3


def test_labelling_ignores_votes_on_other_pairs(reader):
    reader("a", "a", "a")
    made().ask()
    reader("")
    other = Labelling("07", [*PAIRS[1:], PAIRS[0]], stand_in=lambda pair: "tie")
    assert other.ask() == ["tie"] * 3


@pytest.mark.parametrize("text", ["", "[]", "3", json.dumps({"pairs": [["why?", "a0", "b0"]] * 3})])
def test_labelling_ignores_a_broken_file(reader, text):
    labelling = made()
    labelling.file.parent.mkdir()
    labelling.file.write_text(text)
    reader("")
    assert made().ask() == ["tie"] * 3
