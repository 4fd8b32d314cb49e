"""Replies with markup: each reply of the seven-word world may be written as a list or in bold, and judges like the look of it."""

from __future__ import annotations

import functools
import itertools
import math

import torch
from torch import Tensor

from minirlhf.data.seven_words import WORDS, Outcomes, bags

#: How often the reference uses a list, and bold, each whatever it says.
SHARES = {"list": 0.05, "bold": 0.05}
#: What a list is worth to the asker where there is something to list, and where there is not. Bold is worth nothing.
LISTED, POINTLESS = 0.3, -0.2
#: What the labels add for each, beside gold.
LIKED = {"list": 0.6, "bold": 0.4}


def facts(world: Outcomes) -> Tensor:
    """``(N,)``: how many of its words are facts."""
    return world.counts[:, WORDS.index("fact")] + world.counts[:, WORDS.index("detail")]


@functools.cache
def looks() -> Outcomes:
    """3,164 outcomes: every bag of words in four looks; two columns of the counts say which. A list helps from two facts on."""
    plain = bags()
    texts: list[str] = []
    logps, worth, counts = [], [], []
    for listed, bold in itertools.product((False, True), repeat=2):
        chance = math.prod(
            SHARES[name] if used else 1 - SHARES[name] for name, used in (("list", listed), ("bold", bold))
        )
        flags = torch.tensor([float(listed), float(bold)], dtype=torch.float64)
        texts += [dressed(text, listed=listed, bold=bold) for text in plain.texts]
        logps.append(plain.ref_logps + math.log(chance))
        worth.append(plain.gold + flags[0] * torch.where(facts(plain) >= 2, LISTED, POINTLESS))
        counts.append(torch.cat([plain.counts, flags.expand(len(plain), 2)], -1))
    return Outcomes(tuple(texts), torch.cat(logps), torch.cat(worth), torch.cat(counts))


def dressed(text: str, *, listed: bool, bold: bool) -> str:
    """A reply in a look, as Markdown."""
    said = [f"**{word}**" if bold else word for word in text.split()]
    return "\n".join(f"- {word}" for word in said) if listed else " ".join(said)


def liking(world: Outcomes) -> Tensor:
    """``(N,)``: what the labels add to gold."""
    return LIKED["list"] * world.counts[:, 7] + LIKED["bold"] * world.counts[:, 8]


def shares(world: Outcomes, probs: Tensor) -> dict[str, float]:
    """How often a policy ``(N,)`` writes lists and bold, and how many of its lists have fewer than two facts."""
    listed, bold = world.counts[:, 7], world.counts[:, 8]
    lists = float(probs @ listed)
    return {
        "list": lists,
        "bold": float(probs @ bold),
        "pointless": float(probs @ (listed * (facts(world) < 2))) / lists,
    }
