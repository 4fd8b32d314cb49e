"""From what people do to records: votes, grades, trees of conversations, constraints, and what a chat window sees.

Each function says what an action is taken to mean. Where it means nothing certain, nothing is recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from minirlhf.core.errors import ArgumentError, unknown
from minirlhf.data.records import Comparison, Message, Ranking, Reply, UnpairedPreference

Vote: TypeAlias = Literal["a", "b", "tie", "both bad"]
VOTES: tuple[Vote, ...] = ("a", "b", "tie", "both bad")

#: What a user does with the reply that is on the screen.
Action: TypeAlias = Literal["copied", "thumb up", "thumb down", "regenerated", "closed"]
ACTIONS: tuple[Action, ...] = ("copied", "thumb up", "thumb down", "regenerated", "closed")


@dataclass(frozen=True)
class Shown:
    """One comparison as it is put before somebody: ``a`` stands first."""

    prompt: str
    a: str
    b: str


def as_completion(text: str) -> Reply:
    """One turn of the assistant."""
    return [{"role": "assistant", "content": text}]


def as_prompt(text: str) -> list[Message]:
    """One turn of the user."""
    return [{"role": "user", "content": text}]


def from_vote(prompt: list[Message], a: str, b: str, vote: Vote) -> list[Comparison | UnpairedPreference]:
    """What a vote on two replies teaches.

    A choice is a comparison. "Both bad" says nothing about which is better, and something about each: two thumbs down. A tie says
    that they are alike, which a comparison without ties cannot say: nothing is recorded.

    Raises:
        UserError: another vote.
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
    """A label on a scale of ``levels``, 1 for "a is much better", made binary; its distance from the middle is the margin.

    The middle of an odd scale is a tie and gives None; an even scale has no middle.

    Raises:
        ValueError: a level that the scale does not have.
    """
    if not 1 <= level <= levels or levels < 2:
        raise ArgumentError(
            f"level = {level}; expected one of 1 … {levels}, of at least two",
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
    """One turn of a conversation that was rated at every turn.

    Attributes:
        question: the user's words.
        replies: what the assistant might have said, best first; the conversation went on after the first.
        then: the next turn, if there was one.
    """

    question: str
    replies: tuple[str, ...]
    then: Branching | None = None


def unroll(tree: Branching) -> list[Ranking]:
    """One ranking per turn, whose prompt is all that was said before: the path through the best replies."""
    rankings, before, node = [], list[Message](), tree
    while True:
        prompt = [*before, *as_prompt(node.question)]
        rankings.append(Ranking(prompt, [[as_completion(reply)] for reply in node.replies]))
        if node.then is None:
            return rankings
        before, node = [*prompt, *as_completion(node.replies[0])], node.then


def from_constraint(question: str, constraint: str, obeying: str, free: str) -> Comparison:
    """The reply that was written under a constraint against one that was not; the prompt asks for the constraint.

    Nobody has judged them: the label is only as good as the writer's obedience, and whatever else the constraint does to a reply
    is preferred with it.
    """
    return Comparison(as_prompt(f"{question} {constraint}"), as_completion(obeying), as_completion(free))


def from_session(prompt: list[Message], shown: Sequence[tuple[str, Action]]) -> list[Comparison | UnpairedPreference]:
    """What a chat window has seen: replies in the order in which they were shown, and what was done with each.

    Thumbs are judgements, and a copied reply is taken as a good one. A reply that is copied after another was regenerated is
    taken to be the better of the two. To regenerate may mean curiosity, and to close the window that all is well or that all is lost:
    alone they give nothing.

    Raises:
        UserError: another action.
    """
    found: list[Comparison | UnpairedPreference] = []
    replaced: str | None = None
    for reply, action in shown:
        if action not in ACTIONS:
            raise unknown("action", action, ACTIONS)
        if action in ("copied", "thumb up", "thumb down"):
            found.append(UnpairedPreference(prompt, as_completion(reply), action != "thumb down"))
        if action in ("copied", "thumb up") and replaced not in (None, reply):
            found.append(Comparison(prompt, as_completion(reply), as_completion(str(replaced))))
        replaced = reply if action == "regenerated" else None
    return found
