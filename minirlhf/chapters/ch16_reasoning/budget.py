"""A budget for the thought: chains of the shell game that are cut off and made to answer, or made to go on by a word.

ball b swaps ab cd ac bd ad bc
think b a a answer …                   cut off after two swaps
think b a a c c c b no …               made to take its last position back
"""

from __future__ import annotations

from collections.abc import Sequence

from minirlhf.chapters.ch16_reasoning.planted import GAME, NO, games, go_on, share, wrong
from minirlhf.core.randomness import numpy_generator
from minirlhf.data.tasks.shell_game import CUPS, NUM_SWAPS, positions
from minirlhf.stages.pipeline import Trained


def settled(chain: str) -> list[str]:
    """The positions of a chain without those that ``no`` takes back."""
    path: list[str] = []
    for word in chain.split()[1:]:
        if word == NO:
            path = path[:-1]
        else:
            path.append(word)
    return path


def errs_before(prompt: str, chain: str) -> bool:
    """Does the last of a chain's seven positions follow from the one before it? False also if there are fewer or more."""
    path = settled(chain)
    if len(path) != NUM_SWAPS + 1:
        return False
    return positions(f"ball {path[-2]} swaps {prompt.split()[-1]}") == path[-1:]


def chains(policy: Trained, prompts: Sequence[str], seed: int) -> list[str]:
    """One sampled reply to each prompt that thinks aloud, ``think`` included."""
    return [f"think {rest}" for rest in go_on(policy, prompts, ["think"] * len(prompts), seed)]


def cut(chain: str, swaps: int) -> str:
    """The first position and those after ``swaps`` more words of a chain, and the word that demands an answer."""
    thought = chain.split(" answer")[0].split()
    return " ".join([*thought[: 2 + swaps], "answer"])


def first_cup(text: str) -> str | None:
    """The first cup that is named: a model that is cut off early says ``answer`` once more before it."""
    return next((word for word in text.split() if word in CUPS), None)


def stays(prompt: str, swaps: int) -> bool:
    """Is the ball, after so many swaps, where it is in the end?"""
    path = [prompt.split()[1], *positions(prompt)]
    return path[swaps] == path[-1]


def when_cut(policy: Trained, count: int, seed: int) -> dict[str, float]:
    """Chains cut off after 0 to 6 swaps.

    ``whole``: right answers of the uncut chains. ``right_k``: the right cup is named where the chain was cut after ``k`` swaps; ``last_k``: the cup that is
    named is the chain's last position; ``luck_k``: the ball is in the end where it is after ``k`` swaps.
    """
    _, prompts = games(count)
    own = chains(policy, prompts, seed)
    numbers = {"whole": share(_right(prompts, own))}
    for swaps in range(NUM_SWAPS + 1):
        begun = [cut(text, swaps) for text in own]
        said = [first_cup(text) for text in go_on(policy, prompts, begun, seed)]
        numbers |= {
            f"right_{swaps}": share([cup == positions(prompt)[-1] for prompt, cup in zip(prompts, said, strict=True)]),
            f"last_{swaps}": share([cup == text.split()[-2] for text, cup in zip(begun, said, strict=True)]),
            f"luck_{swaps}": share([stays(prompt, swaps) for prompt in prompts]),
        }
    return numbers


def when_told_to_wait(policy: Trained, count: int, seed: int) -> dict[str, float]:
    """``no`` is written behind every chain, where the model would have answered.

    ``whole``: right answers of the chains as they are, ``waited``: of those that are made to go on. ``spoiled``: of the chains whose last position was
    right, how many answers are wrong then; ``rescued``: of those whose last position was wrong, how many are right; ``before``: how many of the latter have all positions, and the last follows from the one before
    it; ``uneven``: how many have not seven positions. ``mended``: right answers
    where every position was right but the last, which was made wrong.
    """
    _, prompts = games(count)
    own = chains(policy, prompts, seed)
    thoughts = [text.split(" answer")[0] for text in own]
    ends = [text.split()[-1] == positions(prompt)[-1] for prompt, text in zip(prompts, thoughts, strict=True)]
    waited = _go_on_right(policy, prompts, [f"{text} {NO}" for text in thoughts], seed)
    rng = numpy_generator("budget", seed)
    planted = []
    for prompt in prompts:
        path = positions(prompt)
        planted.append(" ".join(["think", prompt.split()[1], *path[:-1], wrong(path[-1], rng), NO]))
    astray = [(prompt, text) for prompt, text, end in zip(prompts, thoughts, ends, strict=True) if not end]
    return {
        "whole": share(_right(prompts, own)),
        "waited": share(waited),
        "ends": share(ends),
        "spoiled": share([not good for good, end in zip(waited, ends, strict=True) if end]),
        "rescued": share([good for good, end in zip(waited, ends, strict=True) if not end]),
        "before": share([errs_before(*each) for each in astray]),
        "uneven": share([len(settled(text)) != NUM_SWAPS + 1 for _, text in astray]),
        "mended": share(_go_on_right(policy, prompts, planted, seed)),
    }


def _go_on_right(policy: Trained, prompts: Sequence[str], begun: Sequence[str], seed: int) -> list[bool]:
    rest = go_on(policy, prompts, begun, seed)
    return _right(prompts, [f"{one} {other}" for one, other in zip(begun, rest, strict=True)])


def _right(prompts: Sequence[str], replies: Sequence[str]) -> list[bool]:
    return [GAME.grade(prompt, text) == 1 for prompt, text in zip(prompts, replies, strict=True)]
