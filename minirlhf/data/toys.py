"""Enumerable worlds: one question, so few possible replies that all of them can be written down, and two rewards for each.

What training a policy on them can reach at best is known exactly, so a run can be held against it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from minirlhf.core.errors import ArgumentError
from minirlhf.core.exact import ToyLM


@dataclass(frozen=True)
class Enumerable:
    """A question and everything that can be replied to it, ``N`` replies in the order of ``reference.responses()``.

    Attributes:
        question: what is asked.
        words: the word of each token id; id 0 ends a reply.
        reference: the model to start from and to stay near.
        replies: ``N`` texts.
        rewards: ``(N,)``, what a reward model thinks of each.
        gold: ``(N,)``, what each is worth in truth.
    """

    question: str
    words: tuple[str, ...]
    reference: ToyLM
    replies: tuple[str, ...]
    rewards: Tensor
    gold: Tensor


def markov(start: Sequence[float], after: Mapping[int, Sequence[float]], max_len: int) -> ToyLM:
    """A toy language model in which the next token depends on the one before only.

    Args:
        start: ``V`` probabilities of the first token, none 0.
        after: for every token but EOS, the ``V`` probabilities of the next.
        max_len: tokens of a reply at most; one of that length ends without EOS.
    """
    size = len(start)
    if set(after) != set(range(1, size)) or any(len(row) != size for row in after.values()):
        raise ArgumentError(
            f"after has rows for {sorted(after)}; expected one of {size} numbers for each of 1 .. {size - 1}",
            argument="after",
            value=sorted(after),
            expected=list(range(1, size)),
        )
    rows = torch.tensor(
        [start, *(after[token] for token in range(1, size))], dtype=torch.float64
    )  # row 0: at the start
    if not bool((rows > 0).all()) or not torch.allclose(rows.sum(-1), torch.ones_like(rows[0])):
        raise ArgumentError(
            "every row of start and after must hold positive probabilities that sum to 1",
            argument="start, after",
            problem="distribution",
        )
    lm = ToyLM(size, max_len)
    with torch.no_grad():
        lm.table[0, 0] = rows[0].log()
        for length in range(1, max_len):
            # Prefixes of one length are numbered in base V, so the last token is the number modulo V. Those that go on
            # after EOS are never read.
            numbers = torch.arange(size**length)
            lm.table[0, lm.offsets[length] + numbers] = rows[numbers % size].log()
    return lm


def poem_critic() -> Enumerable:
    """*Do you like my poem?* Four tokens, three at most, 40 replies.

    The reward model has learned that "nice" and "very" please, and counts them. In truth one "nice" is worth 1, "very nice" ½
    more, and every word that is said again costs 1. Where the reference goes the two agree well enough; far from it they do not.
    """
    words = (".", "yes", "very", "nice")
    reference = markov(
        start=(0.15, 0.50, 0.15, 0.20),
        after={1: (0.60, 0.05, 0.15, 0.20), 2: (0.05, 0.05, 0.10, 0.80), 3: (0.80, 0.05, 0.05, 0.10)},
        max_len=3,
    )
    responses = reference.responses()
    replies = tuple(
        " ".join(words[token] for token in row[kept].tolist())
        for row, kept in zip(responses.tokens, responses.mask, strict=True)
    )
    rewards = [1.0 * reply.count("nice") + 0.5 * reply.count("very") for reply in replies]
    gold = []
    for reply in replies:
        said = reply.replace(".", "").split()
        repeats = len(said) - len(set(said))
        gold.append(1.0 * ("nice" in said) + 0.5 * ("very nice" in reply) - 1.0 * repeats)
    return Enumerable(
        "do you like my poem?",
        words,
        reference,
        replies,
        torch.tensor(rewards, dtype=torch.float64),
        torch.tensor(gold, dtype=torch.float64),
    )
