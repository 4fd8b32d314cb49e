"""Predictions: a reader of a notebook commits an answer before the result is shown, and hears afterwards what the run says.

    predict = Predictions("03")
    falls = predict("Does the loss fall?", "yes", "no")     # asks, once; the answer is kept
    falls.reveal("yes" if history["loss"][-1] < history["loss"][0] else "no")
    predict.tally()

It asks with ``input``, which every frontend of Jupyter knows, so it needs no extension, and "run all" waits for the reader.
Where nobody can answer (a run without a frontend) it asks nothing, reads no kept answer, and says the same words at every run.
In a frontend that cannot ask, the letter is written into the cell: ``predict("…", "yes", "no", mine="a")``.
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
    """One question, its choices, and what the reader said.

    Args:
        question: one sentence.
        choices: two to ten, all texts or all numbers.
        mine: the index of the reader's choice, or None.
    """

    def __init__(self, question: str, choices: Sequence[Choice], mine: int | None = None) -> None:
        self.question, self.choices, self.mine = question, tuple(choices), mine
        self.answer: int | None = None

    def __str__(self) -> str:
        return "\n".join([self.question, *(f"   {self.lettered(i)}" for i in range(len(self.choices)))])

    def lettered(self, index: int) -> str:
        """A choice with its letter."""
        return f"{ascii_lowercase[index]}  {self.choices[index]}"

    def reveal(self, answer: Choice) -> None:
        """Print what came out, beside what was predicted.

        Args:
            answer: what the run says: one of the choices; where these are numbers any number, of which the nearest choice is right.

        Raises:
            ValueError: an answer that is no choice.
        """
        said = ""
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
                said = f"{answer:.3g}, nearest to "
        mine = ""
        if self.mine is not None:
            mine = ", as you predicted" if self.mine == self.answer else f"; you predicted {self.lettered(self.mine)}"
        print(self.question)  # first: a folded output shows its first line in JupyterLab
        print(f"Answer: {said}{self.lettered(self.answer)}{mine}")


class Predictions:
    """The predictions of one notebook, kept in ``predictions/NAME.json`` in the package's cache.

    Args:
        notebook: its name, such as "03".
    """

    def __init__(self, notebook: str) -> None:
        self.file = cache_folder() / "predictions" / f"{notebook}.json"
        self.asked: dict[str, Prediction] = {}

    def __call__(self, question: str, *choices: Choice, mine: str | None = None) -> Prediction:
        """Ask, unless there is an answer already.

        Args:
            question: one sentence.
            choices: two to ten, all texts or all numbers.
            mine: the letter of the reader's choice, for frontends that cannot ask.

        Raises:
            ValueError: fewer than two choices or more than ten, a choice twice, texts and numbers, or a letter of no choice.
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
        found = self.asked[question] = Prediction(question, choices)
        print(found)
        if mine is not None:
            found.mine = letters.index(mine)
        elif is_interactive():
            found.mine = self._kept(found)
            if found.mine is None:
                found.mine = _ask(letters)
                self._keep(found)
            else:
                print(f"You predicted {found.lettered(found.mine)}")
        return found

    def tally(self) -> None:
        """Print how many of the predictions came true."""
        asked = [x for x in self.asked.values() if x.answer is not None]
        made = [x for x in asked if x.mine is not None]
        if not made:
            print(f"No predictions were made; the notebook asks for {len(asked)}.")
            return
        right = sum(x.mine == x.answer for x in made)
        left_open = len(asked) - len(made)
        print(f"You predicted {right} of {len(asked)}" + (f" ({left_open} left open)." if left_open else "."))

    def forget(self) -> None:
        """Be asked everything again."""
        self.file.unlink(missing_ok=True)

    def _read(self) -> dict[str, Any]:
        """All that is kept; nothing if the file is no such file."""
        try:
            kept = json.loads(self.file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return kept if isinstance(kept, dict) else {}

    def _kept(self, prediction: Prediction) -> int | None:
        """The index of the choice that was kept, if question and choices are still the same."""
        kept = self._read().get(prediction.question)
        if not isinstance(kept, dict) or kept.get("choices") != list(prediction.choices):
            return None
        index = kept.get("mine")
        return index if index in range(len(prediction.choices)) else None

    def _keep(self, prediction: Prediction) -> None:
        if prediction.mine is None:
            return
        kept = self._read() | {prediction.question: {"choices": list(prediction.choices), "mine": prediction.mine}}
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(json.dumps(kept, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def _ask(letters: str) -> int | None:
    """The index of the letter that the reader types; None for an empty line."""
    while True:
        said = (
            input(f"Your prediction ({', '.join(letters[:-1])} or {letters[-1]}; Enter to leave it open): ")
            .strip()
            .lower()
        )
        if said == "" or (len(said) == 1 and said in letters):
            return letters.index(said) if said else None


def is_interactive() -> bool:
    """Can a question be answered? A frontend says so with each request to its kernel; without a kernel, a terminal can."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    if shell is None or not hasattr(shell, "get_parent"):
        return sys.stdin.isatty()
    return bool(shell.get_parent().get("content", {}).get("allow_stdin", False))
