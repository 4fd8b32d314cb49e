"""A user who wants one of four things, and a completion that names one and goes on talking: how much of its KL is
information?

The reference does not know the wish. It names each thing with equal probability and continues with n filler words, each
with probability ½. The judge rewards the right thing and every filler word; the user rewards the right thing and loses
time with every filler word.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from minirlhf.equations.overoptimization import tilt
from minirlhf_course.chapters.ch21_style_and_information.equations import completion_information

WISHES, MOST = 4, 40
RIGHT, PER_WORD, COST = 1.0, 0.25, 0.05


@dataclass(frozen=True)
class WishReplies:
    """All ``N = 4 · 41`` completions.

    Attributes:
        ref_logps: ``(N,)``.
        fillers: ``(N,)``, the number of words after the first.
        right: ``(4, N)``, 1 where the completion names what is wished.
    """

    ref_logps: Tensor
    fillers: Tensor
    right: Tensor


def replies() -> WishReplies:
    """Return all completions, ordered by name and then by the number of fillers."""
    n = torch.arange(MOST + 1, dtype=torch.float64)
    filler_logps = (-math.log(2) * n).log_softmax(0)
    names_wish = torch.eye(WISHES, dtype=torch.float64).repeat_interleave(MOST + 1, -1)
    return WishReplies((filler_logps - math.log(WISHES)).repeat(WISHES), n.repeat(WISHES), names_wish)


def told(strength: float, *, per_word: float = PER_WORD) -> dict[str, float]:
    """Measure the optimal policy for the judge at a strength λ: its KL, and what the user receives from it.

    Returns:
        ``kl`` in nats, and its parts ``information`` and ``style``; ``bits`` of information; ``fillers``; ``judge`` and
        ``asker``: mean rewards of judge and user.
    """
    world = replies()
    judged = RIGHT * world.right + per_word * world.fillers
    logps = tilt(world.ref_logps.expand_as(judged), judged, strength=strength)  # (4, N)
    prior = torch.full((WISHES,), 1 / WISHES, dtype=torch.float64)
    kl = float(prior @ (logps.exp() * (logps - world.ref_logps)).sum(-1))
    information = float(completion_information(prior, logps))
    mean = lambda values: float(prior @ (logps.exp() * values).sum(-1))
    return {
        "kl": kl,
        "information": information,
        "style": kl - information,
        "bits": information / math.log(2),
        "fillers": mean(world.fillers),
        "judge": mean(judged),
        "asker": mean(RIGHT * world.right - COST * world.fillers),
    }
