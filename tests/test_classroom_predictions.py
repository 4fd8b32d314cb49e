"""Predictions in a notebook: asked once, kept, revealed and counted; and nothing blocks where nobody is there."""

import builtins
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.manager import start_new_kernel

from minirlhf.classroom import predictions
from minirlhf.classroom.predictions import Predictions

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
    monkeypatch.setattr(predictions, "somebody_is_there", lambda: True)
    monkeypatch.setattr(builtins, "input", lambda prompt: lines.pop(0))
    return lines


def test_a_prediction_is_asked_once_and_kept(typed: list[str], cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is no letter of a choice is asked again; the next run does not ask, until the question or its choices change."""
    typed += ["maybe", "c", " B "]
    assert Predictions("03")(*QUESTION).mine == 1 and typed == []
    kept = json.loads((cache / "predictions" / "03.json").read_text(encoding="utf-8"))
    assert kept == {QUESTION[0]: {"choices": ["yes", "no"], "mine": 1}}
    capsys.readouterr()
    assert Predictions("03")(*QUESTION).mine == 1
    assert capsys.readouterr().out.endswith("   a  yes\n   b  no\nYou predicted b  no\n")
    typed += ["a", "a", "a"]
    assert Predictions("03")("Does the loss fall?", "no", "yes").mine == 0
    assert Predictions("04")(*QUESTION).mine == 0  # another notebook's answers are its own
    Predictions("04").forget()
    assert Predictions("04")(*QUESTION).mine == 0 and typed == []


def test_what_the_run_says_stands_beside_what_was_predicted(
    typed: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
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
    assert capsys.readouterr().out.splitlines() == [
        "First?",
        "Answer: a  yes, as you predicted",
        "Second?",
        "Answer: b  no; you predicted a  yes",
        "Third?",
        "Answer: b  no",
        "Fourth?",
        "Answer: 0.432, nearest to b  0.5, as you predicted",
        "You predicted 2 of 4 (1 left open).",
        "Fourth?",
        "Answer: c  1; you predicted b  0.5",
    ]


def test_a_question_that_is_asked_again_counts_once(typed: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A cell that is run twice."""
    typed += ["a"]
    predict = Predictions("03")
    for _ in range(2):
        predict(*QUESTION).reveal("yes")
    predict.tally()
    assert capsys.readouterr().out.endswith("You predicted 1 of 1.\n")


def test_a_letter_in_the_cell_needs_no_frontend(capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody is asked, and nothing is kept."""
    predict = Predictions("03")
    predict(*QUESTION, mine="b").reveal("no")
    predict.tally()
    assert capsys.readouterr().out.splitlines()[-2:] == ["Answer: b  no, as you predicted", "You predicted 1 of 1."]
    assert not predict.file.exists()


@pytest.mark.parametrize(
    "found",
    ["not json", "[1]", '{"Does the loss fall?": 3}', '{"Does the loss fall?": {"choices": ["yes", "no"], "mine": 7}}'],
)
def test_a_broken_file_is_no_answer(found: str, typed: list[str]) -> None:
    """It asks again, and the file is whole afterwards."""
    predict = Predictions("03")
    predict.file.parent.mkdir()
    predict.file.write_text(found, encoding="utf-8")
    typed += ["a"]
    assert predict(*QUESTION).mine == 0 and Predictions("03")(*QUESTION).mine == 0


@pytest.mark.parametrize(
    ("choices", "mine", "said"),
    [
        (("yes",), None, "choices: expected two to ten"),
        (("yes", "yes"), None, "choices: expected two to ten different"),
        (("yes", 1), None, "choices: expected texts or numbers"),
        (("yes", "no"), "c", "mine: expected one of a, b"),
        (("yes", "no"), "ab", "mine: expected one of a, b"),
    ],
)
def test_a_question_that_cannot_be_asked_is_refused(
    choices: tuple[str | int, ...], mine: str | None, said: str
) -> None:
    """Before anybody is asked."""
    with pytest.raises(ValueError, match=re.escape(said)):
        Predictions("03")("Really?", *choices, mine=mine)


@pytest.mark.parametrize("answer", ["maybe", 0.5])
def test_an_answer_that_is_no_choice_is_refused(answer: str | float) -> None:
    """A typing error in a notebook."""
    with pytest.raises(ValueError, match="answer: expected one of"):
        Predictions("03")(*QUESTION).reveal(answer)


@pytest.fixture
def kernel() -> Iterator[Any]:
    """A client of a kernel, such as a frontend has."""
    manager, client = start_new_kernel()
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
    client.execute_interactive(code, allow_stdin=typed is not None, stdin_hook=answer, output_hook=hear, timeout=60)
    return "".join(said)


def test_a_frontend_asks_and_a_run_without_one_knows_nothing(kernel: Any) -> None:
    """In a real kernel: what somebody answered is kept, and changes nothing where nobody is there."""
    question = f"from minirlhf.classroom.predictions import Predictions\npredict = Predictions('03')\nfalls = predict(*{QUESTION!r})"
    answer = "falls.reveal('no')\npredict.tally()"
    asked = "Does the loss fall?\n   a  yes\n   b  no\n"

    assert run(kernel, question, None) == asked
    assert (
        run(kernel, answer, None)
        == f"{QUESTION[0]}\nAnswer: b  no\nNo predictions were made; the notebook asks for 1.\n"
    )
    assert run(kernel, question, ["x", "b"]) == asked
    assert run(kernel, answer, []) == f"{QUESTION[0]}\nAnswer: b  no, as you predicted\nYou predicted 1 of 1.\n"
    assert run(kernel, question, []) == asked + "You predicted b  no\n"
    assert run(kernel, question, None) == asked
    assert (
        run(kernel, answer, None)
        == f"{QUESTION[0]}\nAnswer: b  no\nNo predictions were made; the notebook asks for 1.\n"
    )
