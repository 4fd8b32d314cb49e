"""Two people write letters, one formal and one casual; a student that remembers one word imitates both.

Four words a letter, six words: 1,296 letters. The formal one begins with *dear* and ends with *sincerely*, the casual one with *hey* and
*xoxo*; between them stand two words that tell nothing. The last word depends on the first, and the student has forgotten it by then.
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
    """Every letter, and how often it is written."""

    def __init__(self) -> None:
        size = len(WORDS)
        self.words = torch.tensor(list(itertools.product(range(size), repeat=LENGTH)))  # (1296, 4)
        formal, casual = self._writer(0, 0.6, 4), self._writer(1, 0.4, 5)
        self.law = FORMAL_SHARE * formal + (1 - FORMAL_SHARE) * casual
        first, last = self.words[:, 0], self.words[:, -1]
        self.formal, self.casual = (first == 0) & (last == 4), (first == 1) & (last == 5)
        self.mixed = ((first == 0) & (last == 5)) | ((first == 1) & (last == 4))
        start = torch.zeros(len(self.words), 1, dtype=torch.long)
        self.before = torch.cat([start, self.words[:, :-1]], 1)
        self.places = torch.arange(LENGTH).expand_as(self.words)

    def _writer(self, greeting: int, thanks: float, end: int) -> Tensor:
        """Probabilities of all letters of one of the two; each word is any word with a small probability."""
        wanted = torch.full((LENGTH, len(WORDS)), NOISE / len(WORDS), dtype=torch.float64)
        wanted[0, greeting] += 1 - NOISE
        wanted[1:3, 2] += (1 - NOISE) * thanks
        wanted[1:3, 3] += (1 - NOISE) * (1 - thanks)
        wanted[3, end] += 1 - NOISE
        return torch.stack([wanted[t, self.words[:, t]] for t in range(LENGTH)]).prod(0)

    def logps(self, table: Tensor) -> Tensor:
        """Log-probabilities ``(1296,)`` of a student's letters; ``table (4, 6, 6)``: place, word before, word."""
        return table.log_softmax(-1)[self.places, self.before, self.words].sum(-1)

    def shares(self, logps: Tensor) -> dict[str, float]:
        """How much is formal, casual and mixed, and both divergences from the two writers."""
        law = logps.detach().exp()
        shares = {name: float(law[getattr(self, name)].sum()) for name in ("formal", "casual", "mixed")}
        return shares | {
            "forward": float(exact.divergence(self.law, law)),
            "reverse": float(exact.divergence(law, self.law)),
        }


def imitate(
    letters: Letters, how: str, seed: int, steps: int = 400, learning_rate: float = 0.05, batch: int = 64
) -> Tensor:
    """A student's log-probabilities of all letters after Adam on a loss.

    Args:
        how: "forward" or "reverse" KL, summed over all letters; "sft" on sampled letters of the two writers; "rl" on sampled letters
            of the student's own, each rewarded with log(writers/student).
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
            drawn = torch.multinomial(logps.detach().exp(), batch, True, generator=rng)
            rewards = (log_law - logps.detach())[drawn]
            loss = -((rewards - rewards.mean()) * logps[drawn]).mean()
        else:
            raise ArgumentError(f"how = {how!r}; expected forward, reverse, sft or rl", argument="how", value=how)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return letters.logps(table).detach()
