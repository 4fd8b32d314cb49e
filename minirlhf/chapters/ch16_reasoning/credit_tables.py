"""Credit from outcomes and from continuations, in a table: a chain of steps, each right or off, and only the end is graded.

A question is a row of twelve steps, each of one of forty kinds. For every kind the policy has a softmax over five offsets; offset 0 is right.
Offsets add up modulo 5, as in the running sum, and the end is right where they add up to 0: two slips may cancel. What a prefix is worth is then
exact, by convolution, and what continuations say of it is sampled.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from minirlhf.core.randomness import generator
from minirlhf.equations.advantages import group_center

OFFSETS = 5


@dataclass(frozen=True)
class StepChain:
    """Training on whole replies, with so many sampled steps in all.

    Attributes:
        steps, kinds: of a question, and from how many kinds.
        right: chance of a right step before training.
        group: replies per update, all to one question.
        budget: sampled steps, of replies and of continuations.
        updates: at most so many.
    """

    steps: int = 12
    kinds: int = 40
    right: float = 0.85
    group: int = 16
    budget: int = 100_000
    updates: int = 100_000


@dataclass(frozen=True)
class StepCredit:
    """Where the advantage of a step comes from, and the learning rate.

    ``outcome``: the reply's reward, centred over the group. ``cloned``: the reward itself, so that only right replies are learned. ``continued``:
    the difference of the mean rewards of ``continuations`` from behind the step and from before it (VinePPO). ``exact``: the same difference of
    the exact values.
    """

    kind: str
    learning_rate: float
    continuations: int = 0


def begin(plan: StepChain) -> Tensor:
    """Logits ``(kinds, 5)`` of the first policy."""
    chances = torch.full((plan.kinds, OFFSETS), (1 - plan.right) / (OFFSETS - 1), dtype=torch.float64)
    chances[:, 0] = plan.right
    return chances.log()


def values(chances: Tensor) -> Tensor:
    """``(B, steps + 1, 5)``: the chance of a right end after so many steps, for each sum so far, from those of each step's offsets ``(B, steps, 5)``."""
    after = one_hot(torch.zeros(len(chances), dtype=torch.long), OFFSETS).to(chances)
    found = [after]
    for step in chances.unbind(1)[::-1]:
        after = torch.stack([(step * after.roll(-total, -1)).sum(-1) for total in range(OFFSETS)], -1)
        found.append(after)
    return torch.stack(found[::-1], 1)


def questions(plan: StepChain, count: int, draws: torch.Generator) -> Tensor:
    """``(count, steps)`` kinds."""
    return torch.randint(plan.kinds, (count, plan.steps), generator=draws)


def right_ends(logits: Tensor, asked: Tensor) -> float:
    """The chance of a right end, mean over questions ``(B, steps)``; exact."""
    return float(values(logits.softmax(-1)[asked])[:, 0, 0].mean())


def credited(
    logits: Tensor, asked: Tensor, credit: StepCredit, plan: StepChain, draws: torch.Generator
) -> tuple[Tensor, int]:
    """The gradient ``(kinds, 5)`` that a group of replies to one question ``(steps,)`` gives, and the sampled steps that this took."""
    chances = logits.softmax(-1)[asked]  # (T, 5)
    said = chances.multinomial(plan.group, replacement=True, generator=draws).T  # (G, T)
    totals = said.cumsum(1) % OFFSETS
    end, taken = (totals[:, -1] == 0).to(logits), plan.group * plan.steps
    if credit.kind in ("outcome", "cloned"):
        advantage = (group_center(end[None])[0] if credit.kind == "outcome" else end)[:, None].expand(-1, plan.steps)
    else:
        worth, at = values(chances[None])[0], torch.arange(1, plan.steps)
        before = torch.cat([worth[0, 0].expand(plan.group)[:, None], worth[at, totals[:, :-1]]], 1)
        if credit.kind == "continued":
            # A continuation is right with exactly this chance, so the number of right ones of K can be drawn at once; all replies begin in one state.
            count = float(credit.continuations)
            before = torch.binomial(torch.full_like(before, count), before, generator=draws) / count
            before[:, 0] = before[0, 0]
            taken += credit.continuations * (plan.steps + plan.group * int((plan.steps - at).sum()))
        advantage = torch.cat([before[:, 1:], end[:, None]], 1) - before
    score = one_hot(said, OFFSETS).to(logits) - chances
    return torch.zeros_like(logits).index_add(0, asked, (advantage[..., None] * score).mean(0)), taken


def learned(credit: StepCredit, plan: StepChain, seed: int) -> tuple[Tensor, float]:
    """The logits ``(kinds, 5)`` after the budget or the last update, and the sampled steps of an update."""
    draws, logits, used = generator(f"credit {credit.kind} {credit.continuations}", seed), begin(plan), 0
    updates = 0
    while used < plan.budget and updates < plan.updates:
        slope, taken = credited(logits, questions(plan, 1, draws)[0], credit, plan, draws)
        logits = logits + credit.learning_rate * slope
        used, updates = used + taken, updates + 1
    return logits, used / updates


def noise(credit: StepCredit, logits: Tensor, plan: StepChain, seed: int, draws: int = 400) -> float:
    """The variance of one update's gradient at a policy ``(kinds, 5)``, for one question, summed over the logits."""
    rng = generator(f"noise {credit.kind} {credit.continuations}", seed)
    asked = torch.arange(plan.steps) % plan.kinds
    return float(torch.stack([credited(logits, asked, credit, plan, rng)[0] for _ in range(draws)]).var(0).sum())


def beta_of_best(passed: float, count: int) -> float:
    """The β at which the optimum under a KL term is the best of ``count`` tries, at a prompt whose replies are right with this chance.

    Both leave the proportions among right replies and among wrong ones as they were; so it is enough that they agree on how many are right:
    1 − (1 − p)ⁿ, and p·exp(1/β) against 1 − p.
    """
    missed = (1 - passed) ** count
    return 1 / math.log((1 - missed) / missed * (1 - passed) / passed)
