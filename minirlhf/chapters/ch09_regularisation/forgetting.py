"""A small network knows letters and half knows digits; it learns that any digit of the right parity will do. What is left of the letters?

Twenty classes in 24 dimensions: ten digits, ten letters. The base model names letters well, and says the true digit in about
40 of 100 cases and any digit otherwise. The new task asks for a digit of the right parity: five of the answers are right, so there are
many ways to be right, and data of different origin show different ones.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from minirlhf.core.randomness import generator
from minirlhf.equations import regularisation
from minirlhf.equations.advantages import group_center

DIGITS, DIMENSIONS, WIDTH, SPREAD, SURE = 10, 24, 48, 0.9, 0.4
BATCH, GROUP, TARGET, LOOK, MOST = 64, 8, 0.95, 5, 3000

Loss = Callable[[nn.Module, Tensor, Tensor], Tensor]


def right(kinds: Tensor) -> Tensor:
    """Which of the twenty answers ``(B, 20)`` are right for digits ``(B,)``: digits of the same parity."""
    answers = torch.arange(2 * DIGITS)
    return (answers < DIGITS)[None] & ((answers % 2)[None] == (kinds % 2)[:, None])


@dataclass(frozen=True)
class Kept:
    """A model after training.

    Attributes:
        new: probability of a right answer to a digit.
        old: share of letters that are named rightly.
        kl, forward: KL(π‖base) and KL(base‖π) on digits, nats.
        steps: updates made; the limit was reached if ``new`` is short of its target.
    """

    new: float
    old: float
    kl: float
    forward: float
    steps: int


class LetterReader:
    """The base model of one seed, its world, and ways to teach it the new task."""

    def __init__(self, seed: int, pretraining: int = 400) -> None:
        self.rng = generator("ch09", "letters and digits", seed)
        self.centres = torch.randn(2 * DIGITS, DIMENSIONS, generator=self.rng)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            layers = (
                nn.Linear(DIMENSIONS, WIDTH),
                nn.Tanh(),
                nn.Linear(WIDTH, WIDTH),
                nn.Tanh(),
                nn.Linear(WIDTH, 2 * DIGITS),
            )
        self.base: nn.Module = nn.Sequential(*layers)
        optimiser = torch.optim.Adam(self.base.parameters(), lr=3e-3)
        for _ in range(pretraining):
            digits, kinds = self.draw(BATCH, letters=False)
            sure = torch.rand(BATCH, generator=self.rng) < SURE
            said = torch.where(sure, kinds, torch.randint(DIGITS, (BATCH,), generator=self.rng))
            loss = F.cross_entropy(self.base(digits), said) + self.letters_loss(self.base)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        self.base.requires_grad_(False)
        self.digits, self.kinds = self.draw(500, letters=False)
        self.letters, self.names = self.draw(1000, letters=True)

    def draw(self, count: int, *, letters: bool) -> tuple[Tensor, Tensor]:
        """Pictures ``(count, 24)`` and what they show, 0 to 9."""
        kinds = torch.randint(DIGITS, (count,), generator=self.rng)
        noise = SPREAD * torch.randn(count, DIMENSIONS, generator=self.rng)
        return self.centres[kinds + DIGITS * letters] + noise, kinds

    def letters_loss(self, model: nn.Module) -> Tensor:
        """The loss of naming a batch of letters: what a pretraining term adds."""
        letters, names = self.draw(BATCH, letters=True)
        return F.cross_entropy(model(letters), names + DIGITS)

    @torch.no_grad()
    def look(self, model: nn.Module, steps: int) -> Kept:
        """What a model knows."""
        logps, base = model(self.digits).log_softmax(-1), self.base(self.digits).log_softmax(-1)
        return Kept(
            new=float((logps.exp() * right(self.kinds)).sum(-1).mean()),
            old=float((model(self.letters).argmax(-1) == self.names + DIGITS).float().mean()),
            kl=float((logps.exp() * (logps - base)).sum(-1).mean()),
            forward=float((base.exp() * (base - logps)).sum(-1).mean()),
            steps=steps,
        )

    def taught(self, loss: Loss, learning_rate: float, most: int = MOST) -> Kept:
        """A copy of the base model, trained until it answers digits as well as asked for."""
        model = copy.deepcopy(self.base).requires_grad_(True)
        optimiser = torch.optim.Adam(model.parameters(), lr=learning_rate)
        for step in range(1, most + 1):
            digits, kinds = self.draw(BATCH, letters=False)
            optimiser.zero_grad()
            loss(model, digits, kinds).backward()
            optimiser.step()
            if step % LOOK == 0 and (found := self.look(model, step)).new >= TARGET:
                return found
        return self.look(model, most)

    # -- ways to teach -------------------------------------------------------------------------------------------

    def rl(self, model: nn.Module, digits: Tensor, kinds: Tensor) -> Tensor:
        """Eight own answers to each picture; 1 for a right one, less the group's mean."""
        logps = model(digits).log_softmax(-1)
        answers = torch.multinomial(logps.detach().exp(), GROUP, True, generator=self.rng)  # (B, G)
        rewards = right(kinds).gather(-1, answers).float()
        return -(group_center(rewards) * logps.gather(-1, answers)).sum(-1).mean()

    def nearest(self, model: nn.Module, digits: Tensor, kinds: Tensor) -> Tensor:
        """Supervised on the nearest policy that is always right, as a distribution: no label is drawn."""
        nearest = regularisation.nearest_correct_logps(self.base(digits).log_softmax(-1), right(kinds)).exp()
        return F.cross_entropy(model(digits), nearest)

    def own(self, model: nn.Module, digits: Tensor, kinds: Tensor) -> Tensor:
        """Supervised on a right answer drawn from the *base* model: rejection sampling, with as many tries as it takes."""
        nearest = regularisation.nearest_correct_logps(self.base(digits).log_softmax(-1), right(kinds)).exp()
        return F.cross_entropy(model(digits), torch.multinomial(nearest, 1, generator=self.rng)[:, 0])

    @staticmethod
    def true(model: nn.Module, digits: Tensor, kinds: Tensor) -> Tensor:
        """Supervised on the digit that the picture shows."""
        return F.cross_entropy(model(digits), kinds)

    def any(self, model: nn.Module, digits: Tensor, kinds: Tensor) -> Tensor:
        """Supervised on a right answer at random."""
        return F.cross_entropy(
            model(digits), kinds % 2 + 2 * torch.randint(DIGITS // 2, kinds.shape, generator=self.rng)
        )

    @staticmethod
    def one(model: nn.Module, digits: Tensor, kinds: Tensor) -> Tensor:
        """Supervised on 0 for even digits and 1 for odd ones."""
        return F.cross_entropy(model(digits), kinds % 2)

    def one_with_letters(self, model: nn.Module, digits: Tensor, kinds: Tensor) -> Tensor:
        """The same beside the pretraining term."""
        return self.one(model, digits, kinds) + self.letters_loss(model)
