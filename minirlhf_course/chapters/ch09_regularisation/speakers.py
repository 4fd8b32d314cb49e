"""Two writers of letters, one formal and one casual, and a student with a memory of one word that imitates both.

A letter has four words from a vocabulary of six, so there are 1,296 letters. The formal writer begins with *dear* and
ends with *sincerely*, the casual writer with *hey* and *xoxo*. Both put *thank* or *you* in the two
positions between. The last word depends on the first, which the student has forgotten by then.
"""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from minirlhf.core import exact
from minirlhf.core.errors import ArgumentError
from minirlhf.core.randomness import generator

WORDS = ("dear", "hey", "thank", "you", "sincerely", "xoxo")
LENGTH, FORMAL_SHARE, NOISE = 4, 0.6, 0.02


class Letters:
    """All letters and their probabilities."""

    def __init__(self) -> None:
        size = len(WORDS)
        self.words = torch.tensor(list(itertools.product(range(size), repeat=LENGTH)))  # (1296, 4)
        formal, casual = self._writer(0, 0.6, 4), self._writer(1, 0.4, 5)
        self.law = FORMAL_SHARE * formal + (1 - FORMAL_SHARE) * casual
        first, last = self.words[:, 0], self.words[:, -1]
        self.formal, self.casual = (first == 0) & (last == 4), (first == 1) & (last == 5)
        self.mixed = ((first == 0) & (last == 5)) | ((first == 1) & (last == 4))
        no_word = torch.zeros(len(self.words), 1, dtype=torch.long)
        self.before = torch.cat([no_word, self.words[:, :-1]], 1)
        self.places = torch.arange(LENGTH).expand_as(self.words)

    def _writer(self, greeting: int, thanks: float, end: int) -> Tensor:
        """Return one writer's probabilities of all letters; each word is, with a small probability, a random word."""
        probs = torch.full((LENGTH, len(WORDS)), NOISE / len(WORDS), dtype=torch.float64)
        probs[0, greeting] += 1 - NOISE
        probs[1:3, 2] += (1 - NOISE) * thanks
        probs[1:3, 3] += (1 - NOISE) * (1 - thanks)
        probs[3, end] += 1 - NOISE
        return torch.stack([probs[t, self.words[:, t]] for t in range(LENGTH)]).prod(0)

    def logps(self, table: Tensor) -> Tensor:
        """Return a student's letter log-probabilities ``(1296,)``; ``table (4, 6, 6)``: position, last word, word."""
        return table.log_softmax(-1)[self.places, self.before, self.words].sum(-1)

    def shares(self, logps: Tensor) -> dict[str, float]:
        """Return the fractions of formal, casual and mixed letters, and both KL divergences from the two writers."""
        law = logps.detach().exp()
        shares = {name: float(law[getattr(self, name)].sum()) for name in ("formal", "casual", "mixed")}
        return shares | {
            "forward": float(exact.divergence(self.law, law)),
            "reverse": float(exact.divergence(law, self.law)),
        }


def imitate(
    letters: Letters, how: str, seed: int, steps: int = 400, learning_rate: float = 0.05, batch: int = 64
) -> Tensor:
    """Return a student's log-probabilities of all letters after training with Adam on a loss.

    Args:
        how: "forward" or "reverse" KL, summed over all letters; "sft" on letters sampled from the two writers; "rl" on
            letters sampled from the student, each with the reward log(writers/student).
    """
    rng = generator("ch09", "letters", seed)
    table = (0.5 * torch.randn(LENGTH, len(WORDS), len(WORDS), dtype=torch.float64, generator=rng)).requires_grad_()
    optimiser = torch.optim.Adam([table], lr=learning_rate)
    log_law = letters.law.log()
    for _ in range(steps):
        logps = letters.logps(table)
        if how == "forward":
            loss = -letters.law @ logps
        elif how == "reverse":
            loss = logps.exp() @ (logps - log_law)
        elif how == "sft":
            loss = -logps[torch.multinomial(letters.law, batch, True, generator=rng)].mean()
        elif how == "rl":
            indices = torch.multinomial(logps.detach().exp(), batch, True, generator=rng)
            rewards = (log_law - logps.detach())[indices]
            loss = -((rewards - rewards.mean()) * logps[indices]).mean()
        else:
            raise ArgumentError(f"how = {how!r}; expected forward, reverse, sft or rl", argument="how", value=how)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return letters.logps(table).detach()
