"""Enumerable tasks: one question, so few possible completions that all can be listed, and two rewards for each.

The best result that training can reach is known exactly, so a run can be compared with it.
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
    """A question and all its possible completions: ``N`` in the order of ``reference.completions()``.

    Attributes:
        question: the prompt.
        words: the word of each token id; id 0 ends a completion.
        reference: the initial model, which is also the reference policy.
        replies: the ``N`` texts.
        rewards: ``(N,)``, the score of a reward model for each.
        gold: ``(N,)``, the gold reward of each.
    """

    question: str
    words: tuple[str, ...]
    reference: ToyLM
    replies: tuple[str, ...]
    rewards: Tensor
    gold: Tensor


def markov(start: Sequence[float], after: Mapping[int, Sequence[float]], max_len: int) -> ToyLM:
    """Return a toy language model in which the next token depends only on the token before it.

    Args:
        start: ``V`` probabilities of the first token, none 0.
        after: for every token but EOS, the ``V`` probabilities of the next.
        max_len: maximum number of tokens of a completion; a completion of that length ends without EOS.
    """
    size = len(start)
    if set(after) != set(range(1, size)) or any(len(row) != size for row in after.values()):
        raise ArgumentError(
            f"after has rows for {sorted(after)}; expected a row of {size} numbers for each of 1 .. {size - 1}",
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
            # Prefixes of one length are numbered in base V, so the last token is the number modulo V. Prefixes that
            # continue after EOS are never read.
            numbers = torch.arange(size**length)
            lm.table[0, lm.offsets[length] + numbers] = rows[numbers % size].log()
    return lm


def poem_critic() -> Enumerable:
    """*Do you like my poem?* Four tokens, at most three per completion, 40 completions.

    The reward model has learned that "nice" and "very" please, and counts them. The gold reward is 1 for one or more
    "nice", ½ more for "very nice", and 1 less for every repeated word. The two agree well enough on completions that
    are probable under the reference; far from it they do not.
    """
    words = (".", "yes", "very", "nice")
    reference = markov(
        start=(0.15, 0.50, 0.15, 0.20),
        after={1: (0.60, 0.05, 0.15, 0.20), 2: (0.05, 0.05, 0.10, 0.80), 3: (0.80, 0.05, 0.05, 0.10)},
        max_len=3,
    )
    responses = reference.completions()
    completions = tuple(
        " ".join(words[token] for token in row[mask].tolist())
        for row, mask in zip(responses.tokens, responses.mask, strict=True)
    )
    rewards = [1.0 * completion.count("nice") + 0.5 * completion.count("very") for completion in completions]
    gold = []
    for completion in completions:
        spoken = completion.replace(".", "").split()
        repeats = len(spoken) - len(set(spoken))
        gold.append(1.0 * ("nice" in spoken) + 0.5 * ("very nice" in completion) - 1.0 * repeats)
    return Enumerable(
        "do you like my poem?",
        words,
        reference,
        completions,
        torch.tensor(rewards, dtype=torch.float64),
        torch.tensor(gold, dtype=torch.float64),
    )
