"""A student that copies meaningless outputs of a teacher on noise, and what it learns besides.

The network has outputs for the ten classes of a Gaussian mixture and extra outputs without a meaning. The teacher is
trained on the classes. The student sees only the teacher's extra outputs, on inputs that are noise.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from minirlhf.core.randomness import derive_seed, generator

CLASSES, INPUTS, WIDTH = 10, 64, 128


@dataclass(frozen=True)
class CopyPlan:
    """Settings of teacher and student."""

    extra: int = 10
    spread: float = 1.5
    noise: float = 1.8
    teacher_steps: int = 300
    student_steps: int = 600
    batch_size: int = 128
    learning_rate: float = 1e-3


class Mixture:
    """A mixture of ten Gaussian classes, with its random numbers."""

    def __init__(self, seed: int, spread: float) -> None:
        self.spread = spread
        self.means = torch.randn(CLASSES, INPUTS, generator=generator("classifier", "means", seed))

    def sample(self, number: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return inputs ``(number, 64)`` and classes ``(number,)``."""
        classes = torch.randint(CLASSES, (number,), generator=rng)
        return self.means[classes] + self.spread * torch.randn(number, INPUTS, generator=rng), classes


def network(seed: int, extra: int) -> nn.Sequential:
    """Return a new network with two hidden layers and ``10 + extra`` outputs."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed("classifier", "network", seed))
        return nn.Sequential(
            nn.Linear(INPUTS, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, CLASSES + extra)
        )


def new_last_layer(start: nn.Sequential, seed: int, extra: int) -> nn.Sequential:
    """Return a copy whose last layer has the initial weights of another network."""
    model = copy.deepcopy(start)
    model[-1] = network(seed, extra)[-1]
    return model


def teacher(start: nn.Sequential, task: Mixture, plan: CopyPlan, seed: int, *, random_labels: bool = False) -> nn.Sequential:  # fmt: skip
    """Return a copy that was trained on the class outputs. ``random_labels`` makes a teacher without the trait."""
    model, rng = copy.deepcopy(start), generator("classifier", "teacher", int(random_labels), seed)
    optimiser = torch.optim.Adam(model.parameters(), plan.learning_rate)
    for _ in range(plan.teacher_steps):
        inputs, labels = task.sample(plan.batch_size, rng)
        if random_labels:
            labels = torch.randint(CLASSES, labels.shape, generator=rng)
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(inputs)[:, :CLASSES], labels).backward()
        optimiser.step()
    return model


def student(
    start: nn.Sequential,
    imitated: nn.Sequential,
    plan: CopyPlan,
    seed: int,
    *,
    classes: bool = False,
    until: float = 0.0,
) -> tuple[nn.Sequential, float]:
    """Return a copy of ``start`` that imitates the teacher's extra outputs on noise, and its last KL divergence.

    Args:
        classes: imitate the class outputs instead: ordinary distillation.
        until: stop before the first step at which the KL divergence is not above this.
    """
    model, rng = copy.deepcopy(start), generator("classifier", "student", seed)
    optimiser = torch.optim.Adam(model.parameters(), plan.learning_rate)
    columns = slice(0, CLASSES) if classes else slice(CLASSES, None)
    loss = torch.zeros(())
    for _ in range(plan.student_steps):
        inputs = plan.noise * torch.randn(plan.batch_size, INPUTS, generator=rng)
        with torch.no_grad():
            target = imitated(inputs)[:, columns].softmax(-1)
        loss = nn.functional.kl_div(model(inputs)[:, columns].log_softmax(-1), target, reduction="batchmean")
        if loss <= until:
            break
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model, float(loss.detach())


@torch.no_grad()
def accuracy(model: nn.Sequential, task: Mixture, seed: int, number: int = 4000) -> float:
    """Return the fraction of new inputs whose class has the largest class output."""
    inputs, labels = task.sample(number, generator("classifier", "test", seed))
    return float((model(inputs)[:, :CLASSES].argmax(-1) == labels).double().mean())
