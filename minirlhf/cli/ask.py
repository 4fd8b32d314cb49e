"""Questions that people ask in trackers, each with an answer and a command that shows it.

minirlhf ask                         all of them
minirlhf ask loss starts at 0        those that fit these words, or none
minirlhf ask loss_zero               one by its name, whole
"""

from __future__ import annotations

import argparse
import shutil
import textwrap
from typing import TYPE_CHECKING

from minirlhf.core.errors import UserError

if TYPE_CHECKING:
    from minirlhf.gallery.questions import AskedQuestion


def configure(parser: argparse.ArgumentParser) -> None:
    """Words."""
    parser.add_argument("words", nargs="*", help="what you would type into a search box, or the name of a question")


def run(args: argparse.Namespace) -> int:
    """The list, or the best three: the first whole, the others by name."""
    from minirlhf.gallery import questions

    every = questions.questions()
    if not args.words:
        for question in every.values():
            print(f"{question.name:<24}{question.asked}")
        return 0
    text = " ".join(args.words)
    found = [every[text]] if text in every else questions.search(text)
    if not found:
        raise UserError(
            f"no question fits {text!r}; `minirlhf ask` lists all of them",
            argument="question",
            value=text,
            problem="unknown",
        )
    show(found[0])
    if found[1:]:
        print("\nalso:")
    for question in found[1:]:
        print(f"  minirlhf ask {question.name:<24}{question.asked}")
    return 0


def show(question: AskedQuestion) -> None:
    """One, whole."""
    width = min(shutil.get_terminal_size((100, 24)).columns, 120)
    print(f"{question.asked}\n")
    for paragraph in question.answer.split("\n\n"):
        print(textwrap.fill(" ".join(paragraph.split()), width), end="\n\n")
    print(textwrap.fill(f"See it: {question.command}", width))
    print(textwrap.fill(question.shows, width))
    if question.threads:
        print(textwrap.fill(f"Asked in: {', '.join(question.threads)}", width))
