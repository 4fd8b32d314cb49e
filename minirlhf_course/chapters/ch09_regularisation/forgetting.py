"""Measure how much of an old task a small network forgets, for training data of the new task from different sources.

There are twenty classes in 24 dimensions: ten digits and ten letters. The base model names letters well. For a digit it
gives the true digit in about 40 of 100 cases and a random digit otherwise. The new task accepts every digit of the
right parity. Five answers are therefore right, and training data from different sources show different ones of them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from minirlhf.core.randomness import generator
from minirlhf.equations.advantages import group_center
from minirlhf_course.chapters.ch09_regularisation import equations

DIGITS, DIMENSIONS, WIDTH, SPREAD, SURE = 10, 24, 48, 0.9, 0.4
BATCH, GROUP, TARGET, LOOK, MOST = 64, 8, 0.95, 5, 3000

Loss = Callable[[nn.Module, Tensor, Tensor], Tensor]


def right(kinds: Tensor) -> Tensor:
    """Return which of the twenty answers are right for digits ``(B,)``, ``(B, 20)``: the digits of the same parity."""
    answers = torch.arange(2 * DIGITS)
    return (answers < DIGITS)[None] & ((answers % 2)[None] == (kinds % 2)[:, None])


@dataclass(frozen=True)
class Kept:
    """A model after training.

    Attributes:
        new: probability of a right answer to a digit.
        old: fraction of letters that are named correctly.
        kl, forward: KL(π‖base) and KL(base‖π) on digits, nats.
        steps: number of updates; if ``new`` is below its target, training stopped at the limit.
    """

    new: float
    old: float
    kl: float
    forward: float
    steps: int


class LetterReader:
    """The base model of one seed, its data, and losses for training it on the new task."""

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
            is_true = torch.rand(BATCH, generator=self.rng) < SURE
            labels = torch.where(is_true, kinds, torch.randint(DIGITS, (BATCH,), generator=self.rng))
            loss = F.cross_entropy(self.base(digits), labels) + self.letters_loss(self.base)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        self.base.requires_grad_(False)
        self.digits, self.kinds = self.draw(500, letters=False)
        self.letters, self.names = self.draw(1000, letters=True)

    def draw(self, count: int, *, letters: bool) -> tuple[Tensor, Tensor]:
        """Sample inputs ``(count, 24)`` and the digits or letters that they show, 0 to 9."""
        kinds = torch.randint(DIGITS, (count,), generator=self.rng)
        noise = SPREAD * torch.randn(count, DIMENSIONS, generator=self.rng)
        return self.centres[kinds + DIGITS * letters] + noise, kinds

    def letters_loss(self, model: nn.Module) -> Tensor:
        """Return the loss of naming a batch of letters, which a pretraining term adds."""
        letters, names = self.draw(BATCH, letters=True)
        return F.cross_entropy(model(letters), names + DIGITS)

    @torch.no_grad()
    def look(self, model: nn.Module, steps: int) -> Kept:
        """Evaluate a model on digits and letters."""
        logps, base_logps = model(self.digits).log_softmax(-1), self.base(self.digits).log_softmax(-1)
        return Kept(
            new=float((logps.exp() * right(self.kinds)).sum(-1).mean()),
            old=float((model(self.letters).argmax(-1) == self.names + DIGITS).float().mean()),
            kl=float((logps.exp() * (logps - base_logps)).sum(-1).mean()),
            forward=float((base_logps.exp() * (base_logps - logps)).sum(-1).mean()),
            steps=steps,
        )

    def taught(self, loss: Loss, learning_rate: float, most: int = MOST) -> Kept:
        """Train a copy of the base model until it reaches the target on digits, with at most ``most`` updates."""
        model = copy.deepcopy(self.base).requires_grad_(True)
        optimiser = torch.optim.Adam(model.parameters(), lr=learning_rate)
        for step in range(1, most + 1):
            digits, kinds = self.draw(BATCH, letters=False)
            optimiser.zero_grad()
            loss(model, digits, kinds).backward()
            optimiser.step()
            if step % LOOK == 0 and (result := self.look(model, step)).new >= TARGET:
                return result
        return self.look(model, most)

    # -- losses of the new task -----------------------------------------------------------------------------------

    def rl(self, model: nn.Module, digits: Tensor, kinds: Tensor) -> Tensor:
        """Policy gradient on eight sampled answers per input; reward 1 for a right one, minus the group's mean."""
        logps = model(digits).log_softmax(-1)
        answers = torch.multinomial(logps.detach().exp(), GROUP, True, generator=self.rng)  # (B, G)
        rewards = right(kinds).gather(-1, answers).float()
        return -(group_center(rewards) * logps.gather(-1, answers)).sum(-1).mean()

    def nearest(self, model: nn.Module, digits: Tensor, kinds: Tensor) -> Tensor:
        """Cross-entropy to the distribution of the nearest policy that is always right, without sampled labels."""
        target_probs = equations.nearest_correct_logps(self.base(digits).log_softmax(-1), right(kinds)).exp()
        return F.cross_entropy(model(digits), target_probs)

    def own(self, model: nn.Module, digits: Tensor, kinds: Tensor) -> Tensor:
        """Cross-entropy on a right answer of the *base* model, by rejection sampling without a limit on tries."""
        target_probs = equations.nearest_correct_logps(self.base(digits).log_softmax(-1), right(kinds)).exp()
        return F.cross_entropy(model(digits), torch.multinomial(target_probs, 1, generator=self.rng)[:, 0])

    @staticmethod
    def true(model: nn.Module, digits: Tensor, kinds: Tensor) -> Tensor:
        """Cross-entropy on the digit that the input shows."""
        return F.cross_entropy(model(digits), kinds)

    def any(self, model: nn.Module, digits: Tensor, kinds: Tensor) -> Tensor:
        """Cross-entropy on a random right answer."""
        return F.cross_entropy(
            model(digits), kinds % 2 + 2 * torch.randint(DIGITS // 2, kinds.shape, generator=self.rng)
        )

    @staticmethod
    def one(model: nn.Module, digits: Tensor, kinds: Tensor) -> Tensor:
        """Cross-entropy on 0 for even digits and 1 for odd digits."""
        return F.cross_entropy(model(digits), kinds % 2)

    def one_with_letters(self, model: nn.Module, digits: Tensor, kinds: Tensor) -> Tensor:
        """Return the loss of :meth:`one` plus the pretraining term."""
        return self.one(model, digits, kinds) + self.letters_loss(model)
