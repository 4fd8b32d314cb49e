"""Frequent questions from issue trackers, each with an answer and a command that demonstrates it.

minirlhf doctor faq                         list all questions
minirlhf doctor faq loss starts at 0        the questions that match these words
minirlhf doctor faq loss_zero               one question by its name, in full
"""

from __future__ import annotations

import argparse
import shutil
import textwrap
from typing import TYPE_CHECKING

from minirlhf.core.errors import UserError

if TYPE_CHECKING:
    from minirlhf_course.gallery.questions import FrequentQuestion


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the argument: search words."""
    parser.add_argument("words", nargs="*", help="what you would type into a search box, or the name of a question")


def run(args: argparse.Namespace) -> int:
    """Print the list, or the best three matches: the first in full, the others by name."""
    from minirlhf_course.gallery import questions

    all_questions = questions.questions()
    if not args.words:
        for question in all_questions.values():
            print(f"{question.name:<25} {question.question}")
        return 0
    query = " ".join(args.words)
    matches = [all_questions[query]] if query in all_questions else questions.search(query)
    if not matches:
        raise UserError(
            f"no question matches {query!r}; `minirlhf doctor faq` lists all questions",
            argument="question",
            value=query,
            problem="unknown",
        )
    show(matches[0])
    if matches[1:]:
        print("\nalso:")
    for question in matches[1:]:
        print(f"  minirlhf doctor faq {question.name:<25} {question.question}")
    return 0


def show(question: FrequentQuestion) -> None:
    """Print one question in full."""
    width = min(shutil.get_terminal_size((100, 24)).columns, 120)
    print(f"{question.question}\n")
    for paragraph in question.answer.split("\n\n"):
        print(textwrap.fill(" ".join(paragraph.split()), width), end="\n\n")
    print(textwrap.fill(f"Try it: {question.command}", width))
    print(textwrap.fill(question.shows, width))
    if question.threads:
        print(textwrap.fill(f"Asked in: {', '.join(question.threads)}", width))
