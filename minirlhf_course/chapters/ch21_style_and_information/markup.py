"""Completions with markup: each completion of the seven-word world may be written as a list or in bold, and judges
are biased towards markup."""

from __future__ import annotations

import functools
import itertools
import math

import torch
from torch import Tensor

from minirlhf.data.seven_words import WORDS, Outcomes, bags

#: How often the reference uses a list, and bold, independently of the content.
SHARES = {"list": 0.05, "bold": 0.05}
#: Gold reward of a list where there is something to list, and where there is not. Bold has no gold reward.
LISTED, POINTLESS = 0.3, -0.2
#: Bias of the labels for each, added to gold.
LIKED = {"list": 0.6, "bold": 0.4}


def facts(world: Outcomes) -> Tensor:
    """Return ``(N,)``: how many of the words are facts."""
    return world.counts[:, WORDS.index("fact")] + world.counts[:, WORDS.index("detail")]


@functools.cache
def looks() -> Outcomes:
    """Return 3,164 outcomes: every bag of words in four looks, given by two further columns of the counts. A list
    helps from two facts on."""
    plain = bags()
    texts: list[str] = []
    logps, gold, counts = [], [], []
    for listed, bold in itertools.product((False, True), repeat=2):
        probability = math.prod(
            SHARES[name] if used else 1 - SHARES[name] for name, used in (("list", listed), ("bold", bold))
        )
        flags = torch.tensor([float(listed), float(bold)], dtype=torch.float64)
        texts += [dressed(text, listed=listed, bold=bold) for text in plain.texts]
        logps.append(plain.ref_logps + math.log(probability))
        gold.append(plain.gold + flags[0] * torch.where(facts(plain) >= 2, LISTED, POINTLESS))
        counts.append(torch.cat([plain.counts, flags.expand(len(plain), 2)], -1))
    return Outcomes(tuple(texts), torch.cat(logps), torch.cat(gold), torch.cat(counts))


def dressed(text: str, *, listed: bool, bold: bool) -> str:
    """Return a completion in a look, as Markdown."""
    words = [f"**{word}**" if bold else word for word in text.split()]
    return "\n".join(f"- {word}" for word in words) if listed else " ".join(words)


def liking(world: Outcomes) -> Tensor:
    """Return ``(N,)``: the bias that the labels add to gold."""
    return LIKED["list"] * world.counts[:, 7] + LIKED["bold"] * world.counts[:, 8]


def shares(world: Outcomes, probs: Tensor) -> dict[str, float]:
    """Return how often a policy ``(N,)`` writes lists and bold, and the fraction of its lists with fewer than two
    facts."""
    listed, bold = world.counts[:, 7], world.counts[:, 8]
    lists = float(probs @ listed)
    return {
        "list": lists,
        "bold": float(probs @ bold),
        "pointless": float(probs @ (listed * (facts(world) < 2))) / lists,
    }
