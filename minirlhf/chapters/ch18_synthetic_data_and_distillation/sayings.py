"""Three sayings of three words, a teacher who knows them, and students as tables: one that has forgotten the beginning, one that has not.

Eight words: three openers, two links, three closers. The closer of a saying depends on its opener, and between them stands a link that
tells nothing. The *forgetful* student has one distribution for each place and the word before; it cannot be the teacher. The *full* one
has a distribution for every beginning, and can.
"""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from minirlhf.core import exact
from minirlhf.core.randomness import generator
from minirlhf.recipes.distill import Distillation, DistillationBatch

OPENERS, LINKS, CLOSERS = (0, 1, 2), (3, 4), (5, 6, 7)
SHARES, LENGTH, NOISE = (0.5, 0.3, 0.2), 3, 0.02
WORDS = len(OPENERS) + len(LINKS) + len(CLOSERS)


class Sayings:
    """All 512 of them, and how often the teacher says each."""

    def __init__(self) -> None:
        self.ids = torch.tensor(list(itertools.product(range(WORDS), repeat=LENGTH)))  # (512, 3)
        each = torch.stack([self._one(k) for k, _ in enumerate(SHARES)])
        self.law = torch.tensor(SHARES, dtype=torch.float64) @ each  # (512,)
        self.mask = torch.ones_like(self.ids, dtype=torch.bool)
        self.styles = torch.stack([(self.ids[:, 0] == OPENERS[k]) & (self.ids[:, 2] == CLOSERS[k]) for k in range(3)])
        after = [self.law.view(WORDS ** (t + 1), -1).sum(-1).view(-1, WORDS) for t in range(LENGTH)]  # by beginning
        #: Which beginning each saying has at each place, counted from 0 at each place.
        self.beginnings = torch.stack([self.ids[:, :t] @ WORDS ** torch.arange(t).flip(0) for t in range(LENGTH)], 1)
        said = [(x / x.sum(-1, keepdim=True)).log()[self.beginnings[:, t]] for t, x in enumerate(after)]
        self.teacher = torch.stack(said, 1)  # (512, 3, 8) log-probabilities

    def _one(self, k: int) -> Tensor:
        """Probabilities of all sayings if only the k-th were known; each word is any word with a small probability."""
        wanted = torch.full((LENGTH, WORDS), NOISE / WORDS, dtype=torch.float64)
        wanted[0, OPENERS[k]] += 1 - NOISE
        for link in LINKS:
            wanted[1, link] += (1 - NOISE) / len(LINKS)
        wanted[2, CLOSERS[k]] += 1 - NOISE
        return torch.stack([wanted[t, self.ids[:, t]] for t in range(LENGTH)]).prod(0)


class WordTable:
    """A student: logits by what it remembers.

    Args:
        forgetful: it remembers the place and the word before; otherwise all.
    """

    def __init__(self, world: Sayings, *, forgetful: bool, seed: int) -> None:
        before = torch.cat([torch.zeros(len(world.ids), 1, dtype=torch.long), world.ids[:, :-1]], 1)
        known = before if forgetful else world.beginnings
        self.world, self.rows = world, known + torch.arange(LENGTH) * (int(known.max()) + 1)
        size = int(self.rows.max()) + 1, WORDS
        noise = torch.randn(size, dtype=torch.float64, generator=generator("ch18", "table", seed))
        self.logits = (0.5 * noise).requires_grad_()

    def said(self) -> Tensor:
        """Logits ``(512, 3, 8)`` at every place of every saying."""
        return self.logits[self.rows]

    def law(self) -> Tensor:
        """Probabilities ``(512,)`` of the sayings."""
        logps = self.said().log_softmax(-1).gather(-1, self.world.ids[..., None])[..., 0]
        return logps.sum(-1).exp()


def distil(
    student: WordTable,
    recipe: Distillation,
    *,
    seed: int,
    steps: int = 400,
    batch: int = 64,
    known: int = 0,
    lr: float = 0.05,
) -> None:
    """Adam on the loss of a recipe; every step sees ``batch`` sayings.

    Args:
        known: the given answers are so many sayings of the teacher, the same all the time; 0: new ones for each step.
    """
    world, rng = student.world, generator("ch18", "sayings", seed)
    data = torch.multinomial(world.law, known, True, generator=rng) if known else None
    optimiser = torch.optim.Adam([student.logits], lr=lr)
    for _ in range(steps):
        own = float(torch.rand((), generator=rng)) < recipe.own_answers
        law = student.law().detach() if own else world.law
        if own or data is None:
            drawn = torch.multinomial(law, batch, True, generator=rng)
        else:
            drawn = data[torch.randint(known, (batch,), generator=rng)]
        mask = world.mask[drawn]
        seen = DistillationBatch(student.said()[drawn], world.teacher[drawn], world.ids[drawn], mask)
        loss = (recipe.weights(mask) * recipe.compared(seen)).sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()


def standing(student: WordTable) -> dict[str, float]:
    """What a student says, exactly.

    ``clean``: share of sayings whose closer fits its opener; ``favourite``: of the commonest of the three alone; ``forward``, ``reverse``: KL of
    whole sayings from and to the teacher; ``at_teachers``, ``at_own``: mean forward KL at a word, after the teacher's beginnings and after its own.
    """
    world, law = student.world, student.law().detach()
    styles = [float(law[one].sum()) for one in world.styles]
    logps = student.said().detach().log_softmax(-1)
    at = (world.teacher.exp() * (world.teacher - logps)).sum(-1).mean(-1)  # (512,)
    return {
        "clean": sum(styles),
        "favourite": max(styles),
        "forward": float(exact.divergence(world.law, law)),
        "reverse": float(exact.divergence(law, world.law)),
        "at_teachers": float(world.law @ at),
        "at_own": float(law @ at),
    }
