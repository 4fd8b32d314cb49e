"""Convert user feedback to records: votes, grades, conversation trees, constraints, and actions in a chat window.

Each function documents how it interprets an action. An action without a clear meaning gives no record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from minirlhf.core.errors import ArgumentError, unknown
from minirlhf.data.records import Comparison, Message, Ranking, Reply, UnpairedPreference

Vote: TypeAlias = Literal["a", "b", "tie", "both bad"]
VOTES: tuple[Vote, ...] = ("a", "b", "tie", "both bad")

#: Actions of a user on the completion that is shown.
Action: TypeAlias = Literal["copied", "thumb up", "thumb down", "regenerated", "closed"]
ACTIONS: tuple[Action, ...] = ("copied", "thumb up", "thumb down", "regenerated", "closed")


@dataclass(frozen=True)
class DisplayedPair:
    """One comparison as an annotator sees it: ``a`` is shown first."""

    prompt: str
    a: str
    b: str


def as_completion(text: str) -> Reply:
    """Return the text as one assistant turn."""
    return [{"role": "assistant", "content": text}]


def as_prompt(text: str) -> list[Message]:
    """Return the text as one user turn."""
    return [{"role": "user", "content": text}]


def from_vote(prompt: list[Message], a: str, b: str, vote: Vote) -> list[Comparison | UnpairedPreference]:
    """Return the records of a vote on two completions.

    A choice gives a comparison. "Both bad" does not say which one is better; it gives two thumbs down. A tie says that
    they are equally good, which a comparison without ties cannot express: nothing is recorded.

    Raises:
        UserError: an unknown vote.
    """
    match vote:
        case "a":
            return [Comparison(prompt, as_completion(a), as_completion(b))]
        case "b":
            return [Comparison(prompt, as_completion(b), as_completion(a))]
        case "both bad":
            return [
                UnpairedPreference(prompt, as_completion(a), False),
                UnpairedPreference(prompt, as_completion(b), False),
            ]
        case "tie":
            return []
    raise unknown("vote", vote, VOTES)


def from_grade(prompt: list[Message], a: str, b: str, level: int, *, levels: int) -> Comparison | None:
    """Convert a label on a scale of ``levels`` (1: "a is much better") to a comparison; its distance from the middle is
    the margin.

    The middle of an odd scale is a tie and gives None; an even scale has no middle.

    Raises:
        ValueError: the level is not on the scale.
    """
    if not 1 <= level <= levels or levels < 2:
        raise ArgumentError(
            f"level = {level}; expected 1 … {levels}, on a scale of at least two levels",
            argument="level",
            value=level,
            expected=f"[1, {levels}]",
        )
    towards_a = (levels + 1) / 2 - level
    if towards_a == 0:
        return None
    better, worse = (a, b) if towards_a > 0 else (b, a)
    return Comparison(prompt, as_completion(better), as_completion(worse), margin=abs(towards_a))


@dataclass(frozen=True)
class Branching:
    """One turn of a conversation in which every turn was rated.

    Attributes:
        question: the user's text.
        completions: candidate assistant turns, best first; the conversation continued after the first.
        then: the next turn, if there is one.
    """

    question: str
    completions: tuple[str, ...]
    then: Branching | None = None


def unroll(tree: Branching) -> list[Ranking]:
    """Return one ranking per turn; its prompt is the conversation so far, along the best completions."""
    rankings, history, node = [], list[Message](), tree
    while True:
        prompt = [*history, *as_prompt(node.question)]
        rankings.append(Ranking(prompt, [[as_completion(completion)] for completion in node.completions]))
        if node.then is None:
            return rankings
        history, node = [*prompt, *as_completion(node.completions[0])], node.then


def from_constraint(question: str, constraint: str, obeying: str, free: str) -> Comparison:
    """Prefer the completion written under a constraint to one written without it; the prompt asks for the constraint.

    No annotator has judged them. The label is only as good as the writer's obedience, and every side effect of the
    constraint on a completion is preferred with it.
    """
    return Comparison(as_prompt(f"{question} {constraint}"), as_completion(obeying), as_completion(free))


def from_session(prompt: list[Message], shown: Sequence[tuple[str, Action]]) -> list[Comparison | UnpairedPreference]:
    """Return the records of a chat session: the completions in the order in which they were shown, with the user's
    actions.

    Thumbs are labels, and a copied completion counts as desirable. A completion that is copied, or gets a thumb up,
    after another was regenerated counts as the better of the two. Regenerating may express curiosity, and closing the
    window satisfaction or frustration: alone they give no record.

    Raises:
        UserError: an unknown action.
    """
    records: list[Comparison | UnpairedPreference] = []
    replaced: str | None = None
    for completion, action in shown:
        if action not in ACTIONS:
            raise unknown("action", action, ACTIONS)
        if action in ("copied", "thumb up", "thumb down"):
            records.append(UnpairedPreference(prompt, as_completion(completion), action != "thumb down"))
        if action in ("copied", "thumb up") and replaced not in (None, completion):
            records.append(Comparison(prompt, as_completion(completion), as_completion(str(replaced))))
        replaced = completion if action == "regenerated" else None
    return records
