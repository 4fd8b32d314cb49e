"""Predictions: a reader of a notebook predicts a result before it is shown, and then compares it with the run's result.

    predict = Predictions("03")
    falls = predict("Does the loss fall?", "yes", "no")     # asks once; the answer is stored
    falls.reveal("yes" if history["loss"][-1] < history["loss"][0] else "no")
    predict.tally()

It asks with ``input``, which every Jupyter frontend supports, so it needs no extension, and "run all" waits for the
reader. Without a frontend it asks nothing and reads no stored answer, so that every run prints the same text. In a
frontend that does not support ``input``, the reader writes the letter into the cell:
``predict("…", "yes", "no", mine="a")``.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from string import ascii_lowercase
from typing import Any

from minirlhf.core.errors import ArgumentError
from minirlhf.core.folders import cache_folder

Choice = str | int | float


class Prediction:
    """One question, its choices, and the reader's prediction.

    Args:
        question: one sentence.
        choices: two to ten choices, all strings or all numbers.
        mine: the index of the reader's choice, or None.
    """

    def __init__(self, question: str, choices: Sequence[Choice], mine: int | None = None) -> None:
        self.question, self.choices, self.mine = question, tuple(choices), mine
        self.answer: int | None = None

    def __str__(self) -> str:
        return "\n".join([self.question, *(f"   {self.lettered(i)}" for i in range(len(self.choices)))])

    def lettered(self, index: int) -> str:
        """Return a choice with its letter."""
        return f"{ascii_lowercase[index]}  {self.choices[index]}"

    def reveal(self, answer: Choice) -> None:
        """Print the run's result beside the reader's prediction.

        Args:
            answer: the run's result: one of the choices, or, if the choices are numbers, any number; the nearest
                choice is right.

        Raises:
            ValueError: the answer is not one of the choices, or is NaN.
        """
        prefix = ""
        if isinstance(answer, str):
            if answer not in self.choices:
                message = f"answer: expected one of {self.choices}, got {answer!r}"
                raise ArgumentError(message, argument="answer", value=answer, expected=self.choices)
            self.answer = self.choices.index(answer)
        else:
            numbers = [c for c in self.choices if not isinstance(c, str)]
            if len(numbers) < len(self.choices):
                message = f"answer: expected one of {self.choices}, got {answer!r}"
                raise ArgumentError(message, argument="answer", value=answer, expected=self.choices)
            if math.isnan(answer):
                raise ValueError("answer: expected a number, got nan")
            self.answer = min(range(len(numbers)), key=lambda i: abs(numbers[i] - answer))
            if numbers[self.answer] != answer:
                prefix = f"{answer:.3g}, nearest to "
        suffix = ""
        if self.mine is not None:
            suffix = ", as you predicted" if self.mine == self.answer else f"; you predicted {self.lettered(self.mine)}"
        print(self.question)  # first, because JupyterLab shows the first line of a collapsed output
        print(f"Answer: {prefix}{self.lettered(self.answer)}{suffix}")


class Predictions:
    """The predictions of one notebook, stored in ``predictions/NAME.json`` in the package's cache.

    Args:
        notebook: the notebook's name, such as "03".
    """

    def __init__(self, notebook: str) -> None:
        self.file = cache_folder() / "predictions" / f"{notebook}.json"
        self.asked: dict[str, Prediction] = {}

    def __call__(self, question: str, *choices: Choice, mine: str | None = None) -> Prediction:
        """Ask the question, unless an answer is already stored.

        Args:
            question: one sentence.
            choices: two to ten choices, all strings or all numbers.
            mine: the letter of the reader's choice, for frontends that do not support ``input``.

        Raises:
            ValueError: fewer than two or more than ten choices, a duplicate choice, strings mixed with numbers, or an
                invalid letter.
        """
        letters = ascii_lowercase[: len(choices)]
        if not 2 <= len(choices) <= 10 or len(set(choices)) < len(choices):
            message = f"choices: expected two to ten different ones, got {choices}"
            raise ArgumentError(message, argument="choices", value=choices, expected=(2, 10))
        if len({isinstance(c, str) for c in choices}) > 1:
            message = f"choices: expected texts or numbers, not both, got {choices}"
            raise ArgumentError(message, argument="choices", value=choices, problem="mixed")
        if mine is not None and mine not in list(letters):
            message = f"mine: expected one of {', '.join(letters)}, got {mine!r}"
            raise ArgumentError(message, argument="mine", value=mine, expected=list(letters))
        prediction = self.asked[question] = Prediction(question, choices)
        print(prediction)
        if mine is not None:
            prediction.mine = letters.index(mine)
        elif is_interactive():
            prediction.mine = self._kept(prediction)
            if prediction.mine is None:
                prediction.mine = _ask(letters)
                self._keep(prediction)
            else:
                print(f"You predicted {prediction.lettered(prediction.mine)}")
        return prediction

    def tally(self) -> None:
        """Print how many of the predictions were right."""
        revealed = [x for x in self.asked.values() if x.answer is not None]
        predicted = [x for x in revealed if x.mine is not None]
        if not predicted:
            print(f"No predictions were made; the notebook asks for {len(revealed)}.")
            return
        num_correct = sum(x.mine == x.answer for x in predicted)
        num_open = len(revealed) - len(predicted)
        print(f"You predicted {num_correct} of {len(revealed)}" + (f" ({num_open} left open)." if num_open else "."))

    def forget(self) -> None:
        """Delete the stored predictions, so that every question is asked again."""
        self.file.unlink(missing_ok=True)

    def _read(self) -> dict[str, Any]:
        """Read all stored predictions; empty if the file is missing or invalid."""
        try:
            stored = json.loads(self.file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return stored if isinstance(stored, dict) else {}

    def _kept(self, prediction: Prediction) -> int | None:
        """Return the index of the stored choice, if the question and the choices are unchanged."""
        stored = self._read().get(prediction.question)
        if not isinstance(stored, dict) or stored.get("choices") != list(prediction.choices):
            return None
        index = stored.get("mine")
        return index if index in range(len(prediction.choices)) else None

    def _keep(self, prediction: Prediction) -> None:
        if prediction.mine is None:
            return
        data = self._read() | {prediction.question: {"choices": list(prediction.choices), "mine": prediction.mine}}
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(json.dumps(data, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def _ask(letters: str) -> int | None:
    """Ask for a letter and return its index; None for an empty line."""
    while True:
        key = (
            input(f"Your prediction ({', '.join(letters[:-1])} or {letters[-1]}; Enter to leave it open): ")
            .strip()
            .lower()
        )
        if key == "" or (len(key) == 1 and key in letters):
            return letters.index(key) if key else None


def is_interactive() -> bool:
    """Whether ``input`` can be answered: by a frontend that sets ``allow_stdin`` in its requests, or by a terminal."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    if shell is None or not hasattr(shell, "get_parent"):
        return sys.stdin.isatty()
    return bool(shell.get_parent().get("content", {}).get("allow_stdin", False))
