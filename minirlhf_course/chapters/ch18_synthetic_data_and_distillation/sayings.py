"""Three sayings of three words, a teacher that knows them, and two tabular students: one forgets the beginning.

Eight words: three openers, two links, three closers. The closer of a saying depends on its opener; the link between
them carries no information. The *forgetful* student has one distribution for each position and previous word, so it
cannot represent the teacher. The *full* student has a distribution for every prefix, so it can.
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
    """All 512 sequences of three words, and the teacher's probability of each."""

    def __init__(self) -> None:
        self.ids = torch.tensor(list(itertools.product(range(WORDS), repeat=LENGTH)))  # (512, 3)
        laws = torch.stack([self._one(k) for k, _ in enumerate(SHARES)])
        self.law = torch.tensor(SHARES, dtype=torch.float64) @ laws  # (512,)
        self.mask = torch.ones_like(self.ids, dtype=torch.bool)
        self.styles = torch.stack([(self.ids[:, 0] == OPENERS[k]) & (self.ids[:, 2] == CLOSERS[k]) for k in range(3)])
        probs = [self.law.view(WORDS ** (t + 1), -1).sum(-1).view(-1, WORDS) for t in range(LENGTH)]  # by prefix
        #: Index of the prefix of each sequence at each position; it starts at 0 at every position.
        self.beginnings = torch.stack([self.ids[:, :t] @ WORDS ** torch.arange(t).flip(0) for t in range(LENGTH)], 1)
        logps = [(x / x.sum(-1, keepdim=True)).log()[self.beginnings[:, t]] for t, x in enumerate(probs)]
        self.teacher = torch.stack(logps, 1)  # (512, 3, 8) log-probabilities

    def _one(self, k: int) -> Tensor:
        """Return the probabilities of all sequences for the k-th saying alone; with noise, a word is any word."""
        probs = torch.full((LENGTH, WORDS), NOISE / WORDS, dtype=torch.float64)
        probs[0, OPENERS[k]] += 1 - NOISE
        for link in LINKS:
            probs[1, link] += (1 - NOISE) / len(LINKS)
        probs[2, CLOSERS[k]] += 1 - NOISE
        return torch.stack([probs[t, self.ids[:, t]] for t in range(LENGTH)]).prod(0)


class WordTable:
    """A tabular student: one row of logits for each context that it distinguishes.

    Args:
        forgetful: the context is the position and the previous word; otherwise the whole prefix.
    """

    def __init__(self, world: Sayings, *, forgetful: bool, seed: int) -> None:
        previous = torch.cat([torch.zeros(len(world.ids), 1, dtype=torch.long), world.ids[:, :-1]], 1)
        context = previous if forgetful else world.beginnings
        self.world, self.rows = world, context + torch.arange(LENGTH) * (int(context.max()) + 1)
        size = int(self.rows.max()) + 1, WORDS
        noise = torch.randn(size, dtype=torch.float64, generator=generator("ch18", "table", seed))
        self.logits = (0.5 * noise).requires_grad_()

    def said(self) -> Tensor:
        """Return the logits ``(512, 3, 8)`` at every position of every sequence."""
        return self.logits[self.rows]

    def law(self) -> Tensor:
        """Return the probabilities ``(512,)`` of the sequences."""
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
    """Train a student with Adam on the loss of a recipe; every step uses ``batch`` sequences.

    Args:
        known: size of a fixed data set of the teacher's sequences; 0: new sequences at each step.
    """
    world, rng = student.world, generator("ch18", "sayings", seed)
    data = torch.multinomial(world.law, known, True, generator=rng) if known else None
    optimiser = torch.optim.Adam([student.logits], lr=lr)
    for _ in range(steps):
        on_policy = float(torch.rand((), generator=rng)) < recipe.own_answers
        probs = student.law().detach() if on_policy else world.law
        if on_policy or data is None:
            indices = torch.multinomial(probs, batch, True, generator=rng)
        else:
            indices = data[torch.randint(known, (batch,), generator=rng)]
        mask = world.mask[indices]
        inputs = DistillationBatch(student.said()[indices], world.teacher[indices], world.ids[indices], mask)
        loss = (recipe.weights(mask) * recipe.compared(inputs)).sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()


def standing(student: WordTable) -> dict[str, float]:
    """Return exact statistics of a student.

    ``clean``: probability of a sequence whose closer fits its opener; ``favourite``: the same for the most frequent of
    the three sayings alone; ``forward``, ``reverse``: KL between the distributions of whole sequences, from and to the
    teacher; ``at_teachers``, ``at_own``: mean forward KL per word, on the teacher's prefixes and on the student's own.
    """
    world, law = student.world, student.law().detach()
    styles = [float(law[style].sum()) for style in world.styles]
    logps = student.said().detach().log_softmax(-1)
    word_kl = (world.teacher.exp() * (world.teacher - logps)).sum(-1).mean(-1)  # (512,)
    return {
        "clean": sum(styles),
        "favourite": max(styles),
        "forward": float(exact.divergence(world.law, law)),
        "reverse": float(exact.divergence(law, world.law)),
        "at_teachers": float(world.law @ word_kl),
        "at_own": float(law @ word_kl),
    }
