"""Predictions in a notebook: asked once, kept, revealed and counted; and nothing blocks where nobody is there."""

import builtins
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from facts import raises
from jupyter_client.manager import start_new_kernel
from patience import CEILING

from minirlhf_course.classroom import predictions
from minirlhf_course.classroom.predictions import Predictions

QUESTION = ("Does the loss fall?", "yes", "no")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own for each test."""
    monkeypatch.setenv("MINIRLHF_CACHE", str(tmp_path))
    return tmp_path


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Somebody is there, and types these lines; one more question than lines is a mistake."""
    lines: list[str] = []
    monkeypatch.setattr(predictions, "is_interactive", lambda: True)
    monkeypatch.setattr(builtins, "input", lambda prompt: lines.pop(0))
    return lines


def test_predictions_ask_once_and_keep_answer(
    typed: list[str], cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is no letter of a choice is asked again; the next run does not ask, until the question or its choices change."""
    typed += ["maybe", "c", " B "]
    assert Predictions("03")(*QUESTION).mine == 1 and typed == []
    kept = json.loads((cache / "predictions" / "03.json").read_text(encoding="utf-8"))
    assert kept == {QUESTION[0]: {"choices": ["yes", "no"], "mine": 1}}
    capsys.readouterr()
    assert Predictions("03")(*QUESTION).mine == 1
    *_, first, second, mine = capsys.readouterr().out.splitlines()
    assert first.split() == ["a", "yes"] and second.split() == ["b", "no"] and mine.endswith(" b  no")
    typed += ["a", "a", "a"]
    assert Predictions("03")("Does the loss fall?", "no", "yes").mine == 0
    assert Predictions("04")(*QUESTION).mine == 0  # another notebook's answers are its own
    Predictions("04").forget()
    assert Predictions("04")(*QUESTION).mine == 0 and typed == []


def test_predictions_reveal_counts_right_answers(typed: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Right, wrong and left open; texts and numbers; and the count of them."""
    typed += ["a", "a", "", "b", "c"]
    predict = Predictions("03")
    first, second, third, fourth = (
        predict("First?", "yes", "no"),
        predict("Second?", "yes", "no"),
        predict("Third?", "yes", "no"),
        predict("Fourth?", 0.1, 0.5, 1),
    )
    predict("Never answered?", "yes", "no", "neither")
    capsys.readouterr()
    first.reveal("yes")
    second.reveal("no")
    third.reveal("no")
    fourth.reveal(0.4321)
    predict.tally()
    fourth.reveal(1)
    lines = capsys.readouterr().out.splitlines()
    answers = [
        re.findall(r"(?<= )[a-c](?=  )", line) for line in lines
    ]  # the answer's letter, then the wrong prediction
    assert answers == [[], ["a"], [], ["b", "a"], [], ["b"], [], ["b"], [], [], ["c", "b"]]
    assert "0.432" in lines[7], "what came out stands beside the nearest choice"
    assert re.findall(r"\d+", lines[8]) == ["2", "4", "1"], "right, asked, left open"


def test_predictions_question_asked_again_counts_once(typed: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A cell that is run twice."""
    typed += ["a"]
    predict = Predictions("03")
    for _ in range(2):
        predict(*QUESTION).reveal("yes")
    predict.tally()
    assert re.findall(r"\d+", capsys.readouterr().out.splitlines()[-1]) == ["1", "1"]


def test_predictions_letter_in_cell_needs_no_frontend(capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody is asked, and nothing is kept."""
    predict = Predictions("03")
    predict(*QUESTION, mine="b").reveal("no")
    predict.tally()
    answer, tally = capsys.readouterr().out.splitlines()[-2:]
    assert " b  no" in answer and re.findall(r"\d+", tally) == ["1", "1"]
    assert not predict.file.exists()


@pytest.mark.parametrize(
    "found",
    ["not json", "[1]", '{"Does the loss fall?": 3}', '{"Does the loss fall?": {"choices": ["yes", "no"], "mine": 7}}'],
)
def test_predictions_broken_file_is_asked_again(found: str, typed: list[str]) -> None:
    """It asks again, and the file is whole afterwards."""
    predict = Predictions("03")
    predict.file.parent.mkdir()
    predict.file.write_text(found, encoding="utf-8")
    typed += ["a"]
    assert predict(*QUESTION).mine == 0 and Predictions("03")(*QUESTION).mine == 0


@pytest.mark.parametrize(
    ("choices", "mine", "facts"),
    [
        (("yes",), None, {"argument": "choices", "expected": (2, 10)}),
        (("yes", "yes"), None, {"argument": "choices", "expected": (2, 10)}),
        (("yes", 1), None, {"argument": "choices", "problem": "mixed"}),
        (("yes", "no"), "c", {"argument": "mine", "value": "c", "expected": ["a", "b"]}),
        (("yes", "no"), "ab", {"argument": "mine", "value": "ab"}),
    ],
)
def test_predictions_with_bad_choices_raise(
    choices: tuple[str | int, ...], mine: str | None, facts: dict[str, Any]
) -> None:
    """Before anybody is asked."""
    with raises(ValueError, **facts):
        Predictions("03")("Really?", *choices, mine=mine)


@pytest.mark.parametrize("answer", ["maybe", 0.5])
def test_predictions_reveal_of_no_choice_raises(answer: str | float) -> None:
    """A typing error in a notebook."""
    with raises(ValueError, argument="answer", value=answer):
        Predictions("03")(*QUESTION).reveal(answer)


@pytest.fixture
def kernel() -> Iterator[Any]:
    """A client of a kernel, such as a frontend has."""
    manager, client = start_new_kernel(startup_timeout=CEILING)
    yield client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def run(client: Any, code: str, typed: list[str] | None) -> str:
    """What a cell prints, in a frontend where somebody types these lines, or in a run without a frontend."""
    said: list[str] = []

    def hear(message: dict[str, Any]) -> None:
        if message["msg_type"] in ("stream", "error"):
            said.append(message["content"].get("text") or message["content"]["evalue"])

    answer = (lambda message: client.input(typed.pop(0))) if typed is not None else None
    client.execute_interactive(
        code, allow_stdin=typed is not None, stdin_hook=answer, output_hook=hear, timeout=CEILING
    )
    return "".join(said)


def test_predictions_in_kernel_ask_only_where_somebody_is(kernel: Any) -> None:
    """In a real kernel: what somebody answered is kept, and changes nothing where nobody is there."""
    question = f"from minirlhf_course.classroom.predictions import Predictions\npredict = Predictions('03')\nfalls = predict(*{QUESTION!r})"
    answer = "falls.reveal('no')\npredict.tally()"
    asked = "Does the loss fall?\n   a  yes\n   b  no\n"

    def tally(typed: list[str] | None) -> list[str]:
        """Right and asked ones, as the last line counts them."""
        return re.findall(r"\d+", run(kernel, answer, typed).splitlines()[-1])

    assert run(kernel, question, None) == asked
    assert tally(None) == ["1"], "no predictions; one was asked for"
    assert run(kernel, question, ["x", "b"]) == asked
    assert tally([]) == ["1", "1"]
    assert run(kernel, question, []).removeprefix(asked).endswith(" b  no\n"), "it was not asked again"
    assert run(kernel, question, None) == asked
    assert tally(None) == ["1"]
