"""Raw, true and length-controlled win rates of policies with known gold reward, in the seven-word world."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from minirlhf.core.randomness import generator
from minirlhf.data.seven_words import MAX_WORDS, WORDS, Outcomes
from minirlhf.feedback.length_control import Controlled, length_controlled
from minirlhf.feedback.proxies import labelled_better
from minirlhf_course.chapters.ch21_style_and_information.chain import BIAS, policy_at, win_rate, words


def padded(world: Outcomes, *, share: float = 0.75) -> Tensor:
    """Return ``(N,)``: probabilities of the reference's completions, of which the fraction ``share`` is filled up to
    five words with *ok*."""
    counts = world.counts.clone()
    counts[:, WORDS.index("ok")] += MAX_WORDS - words(world)
    key = lambda c: (c.long() * 6 ** torch.arange(len(WORDS))).sum(-1)
    sorted_keys, order = key(world.counts).sort()
    padded_index = order[torch.searchsorted(sorted_keys, key(counts))]
    return (1 - share) * world.probs + share * torch.zeros_like(world.probs).index_add(0, padded_index, world.probs)


def contestants(world: Outcomes, biased: Tensor) -> dict[str, Tensor]:
    """Return policies ``(N,)`` as probabilities, by name.

    Args:
        biased: ``(N,)``, a reward model from length-biased labels.
    """
    length = words(world)
    optimal_policy = lambda rewards: policy_at(world.ref_logps, rewards, kl=0.5).exp()
    return {
        "padded": padded(world),
        "biased": optimal_policy(biased),
        "better": optimal_policy(world.gold),
        "shorter": optimal_policy(world.gold - length),
    }


def wanting_length(world: Outcomes, *, per_word: float = 0.35) -> Outcomes:
    """Return the same completions for users who value each word by ``per_word`` more: for them a longer completion
    is better."""
    return replace(world, gold=world.gold + per_word * words(world))


def judged(world: Outcomes, probs: Tensor, *, seed: int, pairs: int = 800, bias: float = BIAS) -> Controlled:
    """Let a length-biased judge compare completions of a policy ``(N,)`` with the reference's, and control for
    length."""
    rng = generator("length control", seed)
    uniforms = torch.rand(pairs, 3, dtype=torch.float64, generator=rng)
    candidate, baseline = (
        torch.searchsorted(dist.cumsum(0), uniforms[:, k].contiguous()).clamp(max=len(world) - 1)
        for k, dist in enumerate((probs, world.probs))
    )
    scores, length = world.gold + bias * words(world), words(world)
    won = uniforms[:, 2] < labelled_better(scores[candidate], scores[baseline])
    return length_controlled(won.double(), length[candidate], length[baseline])


def compared(world: Outcomes, probs: Tensor, *, seed: int, pairs: int = 800, bias: float = BIAS) -> dict[str, float]:
    """Return the win rates of one policy against the reference (``true``: by gold reward; ``raw``: by the judge;
    ``controlled``: at equal length) and its mean number of ``words``."""
    length = words(world)
    controlled = judged(world, probs, seed=seed, pairs=pairs, bias=bias)
    return {
        "true": win_rate(world, probs, world.gold),
        "raw": win_rate(world, probs, world.gold + bias * length),
        "controlled": controlled.win_rate,
        "words": float(probs @ length),
    }
