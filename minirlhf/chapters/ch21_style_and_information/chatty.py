"""An asker who wants one of four things, and a reply that names one and goes on talking: how much of it is information.

The reference knows nothing of the wish: it names each thing alike often and goes on with n filler words, each one with probability ½.
The judge pays for the right thing and for every filler word; the asker pays for the right thing and loses time with every word.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from minirlhf.equations.overoptimization import tilt
from minirlhf.equations.style import reply_information

WISHES, MOST = 4, 40
RIGHT, PER_WORD, COST = 1.0, 0.25, 0.05


@dataclass(frozen=True)
class WishReplies:
    """All ``N = 4 · 41`` replies.

    Attributes:
        ref_logps: ``(N,)``.
        fillers: ``(N,)``, words behind the first.
        right: ``(4, N)``, 1 where the reply names what is wished.
    """

    ref_logps: Tensor
    fillers: Tensor
    right: Tensor


def replies() -> WishReplies:
    """Name by name, and for each the number of fillers."""
    n = torch.arange(MOST + 1, dtype=torch.float64)
    law = (-math.log(2) * n).log_softmax(0)
    named = torch.eye(WISHES, dtype=torch.float64).repeat_interleave(MOST + 1, -1)
    return WishReplies((law - math.log(WISHES)).repeat(WISHES), n.repeat(WISHES), named)


def told(strength: float, *, per_word: float = PER_WORD) -> dict[str, float]:
    """The best policy for the judge at a strength λ: what it spends and what the asker gets of it.

    Returns:
        ``kl`` in nats, of it ``information`` and ``style``; ``bits`` of information; ``fillers``; ``judge`` and ``asker``: mean rewards.
    """
    world = replies()
    judged = RIGHT * world.right + per_word * world.fillers
    logps = tilt(world.ref_logps.expand_as(judged), judged, strength=strength)  # (4, N)
    prior = torch.full((WISHES,), 1 / WISHES, dtype=torch.float64)
    kl = float(prior @ (logps.exp() * (logps - world.ref_logps)).sum(-1))
    known = float(reply_information(prior, logps))
    mean = lambda values: float(prior @ (logps.exp() * values).sum(-1))
    return {
        "kl": kl,
        "information": known,
        "style": kl - known,
        "bits": known / math.log(2),
        "fillers": mean(world.fillers),
        "judge": mean(judged),
        "asker": mean(RIGHT * world.right - COST * world.fillers),
    }
