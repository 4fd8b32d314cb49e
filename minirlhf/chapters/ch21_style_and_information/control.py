"""Raw, true and length-controlled win rates of policies whose worth is known, in the seven-word world."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from minirlhf.chapters.ch21_style_and_information.chain import BIAS, policy_at, win_rate, words
from minirlhf.core.randomness import generator
from minirlhf.data.seven_words import MAX_WORDS, WORDS, Outcomes
from minirlhf.feedback.length_control import Controlled, length_controlled
from minirlhf.feedback.proxies import labelled_better


def padded(world: Outcomes, *, share: float = 0.75) -> Tensor:
    """``(N,)``: probabilities of the reference's replies, a share of which is filled up to five words with *ok*."""
    counts = world.counts.clone()
    counts[:, WORDS.index("ok")] += MAX_WORDS - words(world)
    key = lambda c: (c.long() * 6 ** torch.arange(len(WORDS))).sum(-1)
    known, order = key(world.counts).sort()
    filled = order[torch.searchsorted(known, key(counts))]
    return (1 - share) * world.probs + share * torch.zeros_like(world.probs).index_add(0, filled, world.probs)


def contestants(world: Outcomes, biased: Tensor) -> dict[str, Tensor]:
    """Policies ``(N,)`` as probabilities, by name.

    Args:
        biased: ``(N,)``, a reward model from labels that like length.
    """
    length = words(world)
    at = lambda rewards: policy_at(world.ref_logps, rewards, kl=0.5).exp()
    return {
        "padded": padded(world),
        "biased": at(biased),
        "better": at(world.gold),
        "shorter": at(world.gold - length),
    }


def wanting_length(world: Outcomes, *, per_word: float = 0.35) -> Outcomes:
    """The same replies for askers to whom each word is worth this much more: what is longer is better for them."""
    return replace(world, gold=world.gold + per_word * words(world))


def judged(world: Outcomes, probs: Tensor, *, seed: int, pairs: int = 800, bias: float = BIAS) -> Controlled:
    """Let a judge that likes length compare replies of a policy ``(N,)`` with the reference's, and control for length."""
    rng = generator("length control", seed)
    draws = torch.rand(pairs, 3, dtype=torch.float64, generator=rng)
    ours, theirs = (
        torch.searchsorted(law.cumsum(0), draws[:, k].contiguous()).clamp(max=len(world) - 1)
        for k, law in enumerate((probs, world.probs))
    )
    score, length = world.gold + bias * words(world), words(world)
    won = draws[:, 2] < labelled_better(score[ours], score[theirs])
    return length_controlled(won.double(), length[ours], length[theirs])


def compared(world: Outcomes, probs: Tensor, *, seed: int, pairs: int = 800, bias: float = BIAS) -> dict[str, float]:
    """The win rates of one policy against the reference: in truth, as the judge says, at equal length."""
    length = words(world)
    found = judged(world, probs, seed=seed, pairs=pairs, bias=bias)
    return {
        "true": win_rate(world, probs, world.gold),
        "raw": win_rate(world, probs, world.gold + bias * length),
        "controlled": found.win_rate,
        "words": float(probs @ length),
    }
