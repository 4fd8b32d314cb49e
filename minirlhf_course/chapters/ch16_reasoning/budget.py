"""A budget for the chain of thought: chains of the shell game that are truncated and forced to answer, or forced by a
word to continue.

ball b swaps ab cd ac bd ad bc
think b a a answer …                   truncated after two swaps
think b a a c c c b no …               forced to retract its last position
"""

from __future__ import annotations

from collections.abc import Sequence

from minirlhf.core.randomness import numpy_generator
from minirlhf.data.tasks.shell_game import CUPS, NUM_SWAPS, positions
from minirlhf.stages.pipeline import Trained
from minirlhf_course.chapters.ch16_reasoning.planted import GAME, NO, games, go_on, share, wrong


def settled(chain: str) -> list[str]:
    """Return the positions of a chain, without the positions that ``no`` retracts."""
    path: list[str] = []
    for word in chain.split()[1:]:
        if word == NO:
            path = path[:-1]
        else:
            path.append(word)
    return path


def errs_before(prompt: str, chain: str) -> bool:
    """Return whether the last of a chain's seven positions follows from the one before it; False also if there are
    fewer or more than seven."""
    path = settled(chain)
    if len(path) != NUM_SWAPS + 1:
        return False
    return positions(f"ball {path[-2]} swaps {prompt.split()[-1]}") == path[-1:]


def chains(policy: Trained, prompts: Sequence[str], seed: int) -> list[str]:
    """Sample one completion with a chain of thought for each prompt, ``think`` included."""
    return [f"think {continuation}" for continuation in go_on(policy, prompts, ["think"] * len(prompts), seed)]


def cut(chain: str, swaps: int) -> str:
    """Return the first position of a chain, the next ``swaps`` words, and the word that demands an answer."""
    words = chain.split(" answer")[0].split()
    return " ".join([*words[: 2 + swaps], "answer"])


def first_cup(text: str) -> str | None:
    """Return the first cup that is named: a model that is truncated early writes ``answer`` again before it."""
    return next((word for word in text.split() if word in CUPS), None)


def stays(prompt: str, swaps: int) -> bool:
    """Return whether the ball, after ``swaps`` swaps, is where it is at the end."""
    path = [prompt.split()[1], *positions(prompt)]
    return path[swaps] == path[-1]


def when_cut(policy: Trained, count: int, seed: int) -> dict[str, float]:
    """Measure chains that are truncated after 0 to 6 swaps.

    ``whole``: accuracy of the complete chains. ``right_k``: fraction of chains, truncated after ``k`` swaps, that name
    the right cup; ``last_k``: fraction that name the chain's last position; ``luck_k``: fraction of games in which the
    ball ends where it is after ``k`` swaps.
    """
    _, prompts = games(count)
    completions = chains(policy, prompts, seed)
    metrics = {"whole": share(_right(prompts, completions))}
    for swaps in range(NUM_SWAPS + 1):
        truncated = [cut(text, swaps) for text in completions]
        cups = [first_cup(text) for text in go_on(policy, prompts, truncated, seed)]
        metrics |= {
            f"right_{swaps}": share([cup == positions(prompt)[-1] for prompt, cup in zip(prompts, cups, strict=True)]),
            f"last_{swaps}": share([cup == text.split()[-2] for text, cup in zip(truncated, cups, strict=True)]),
            f"luck_{swaps}": share([stays(prompt, swaps) for prompt in prompts]),
        }
    return metrics


def when_told_to_wait(policy: Trained, count: int, seed: int) -> dict[str, float]:
    """Append ``no`` to every chain, where the model would have answered.

    ``whole``: accuracy of the unchanged chains. ``waited``: accuracy of the chains that are forced to continue.
    ``ends``: fraction of chains whose last position is right. ``spoiled``: error rate after ``no`` if the last position
    was right. ``rescued``: accuracy after ``no`` if the last position was wrong. Of the chains with a wrong last
    position, ``before`` is the fraction that has all positions and whose last position follows from the one before it,
    and ``uneven`` is the fraction that does not have seven positions. ``mended``: accuracy after ``no`` if every
    position was right except the last, which was made wrong.
    """
    _, prompts = games(count)
    completions = chains(policy, prompts, seed)
    thoughts = [text.split(" answer")[0] for text in completions]
    correct = [text.split()[-1] == positions(prompt)[-1] for prompt, text in zip(prompts, thoughts, strict=True)]
    continued = _go_on_right(policy, prompts, [f"{text} {NO}" for text in thoughts], seed)
    rng = numpy_generator("budget", seed)
    corrupted = []
    for prompt in prompts:
        path = positions(prompt)
        corrupted.append(" ".join(["think", prompt.split()[1], *path[:-1], wrong(path[-1], rng), NO]))
    failures = [(prompt, text) for prompt, text, right in zip(prompts, thoughts, correct, strict=True) if not right]
    return {
        "whole": share(_right(prompts, completions)),
        "waited": share(continued),
        "ends": share(correct),
        "spoiled": share([not good for good, right in zip(continued, correct, strict=True) if right]),
        "rescued": share([good for good, right in zip(continued, correct, strict=True) if not right]),
        "before": share([errs_before(*each) for each in failures]),
        "uneven": share([len(settled(text)) != NUM_SWAPS + 1 for _, text in failures]),
        "mended": share(_go_on_right(policy, prompts, corrupted, seed)),
    }


def _go_on_right(policy: Trained, prompts: Sequence[str], prefixes: Sequence[str], seed: int) -> list[bool]:
    continuations = go_on(policy, prompts, prefixes, seed)
    return _right(prompts, [f"{prefix} {rest}" for prefix, rest in zip(prefixes, continuations, strict=True)])


def _right(prompts: Sequence[str], completions: Sequence[str]) -> list[bool]:
    return [GAME.grade(prompt, text) == 1 for prompt, text in zip(prompts, completions, strict=True)]
