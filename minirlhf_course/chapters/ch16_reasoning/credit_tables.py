"""Credit from outcomes and from continuations, for a tabular policy: a chain of steps, each right or wrong, of which
only the end is graded.

A question is a row of twelve steps, each of one of forty kinds. For every kind the policy has a softmax over five
offsets; offset 0 is right. Offsets add up modulo 5, as in the running sum, and the end is right if they add up to 0, so
two errors may cancel. The value of a prefix is exact, by convolution; continuations estimate it by sampling.
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
    """Training on whole completions, with a budget of sampled steps.

    Attributes:
        steps, kinds: steps per question, and number of kinds of steps.
        right: probability of a right step before training.
        group: completions per update, all for one question.
        budget: sampled steps, of completions and of continuations.
        updates: maximum number of updates.
    """

    steps: int = 12
    kinds: int = 40
    right: float = 0.85
    group: int = 16
    budget: int = 100_000
    updates: int = 100_000


@dataclass(frozen=True)
class StepCredit:
    """The source of a step's advantage, and the learning rate.

    ``outcome``: the completion's reward, centred over the group. ``cloned``: the reward itself, so that only right
    completions are learned. ``continued``: the mean reward of ``continuations`` from after the step minus the mean
    reward of ``continuations`` from before it (VinePPO). ``exact``: the same difference of the exact values.
    """

    kind: str
    learning_rate: float
    continuations: int = 0


def begin(plan: StepChain) -> Tensor:
    """Return the logits ``(kinds, 5)`` of the initial policy."""
    probs = torch.full((plan.kinds, OFFSETS), (1 - plan.right) / (OFFSETS - 1), dtype=torch.float64)
    probs[:, 0] = plan.right
    return probs.log()


def values(chances: Tensor) -> Tensor:
    """Return ``(B, steps + 1, 5)``: the probability of a right end after each number of steps, for each sum so far,
    from the probabilities of each step's offsets ``(B, steps, 5)``."""
    after = one_hot(torch.zeros(len(chances), dtype=torch.long), OFFSETS).to(chances)
    step_values = [after]
    for step in chances.unbind(1)[::-1]:
        after = torch.stack([(step * after.roll(-total, -1)).sum(-1) for total in range(OFFSETS)], -1)
        step_values.append(after)
    return torch.stack(step_values[::-1], 1)


def questions(plan: StepChain, count: int, draws: torch.Generator) -> Tensor:
    """Sample ``(count, steps)`` kinds."""
    return torch.randint(plan.kinds, (count, plan.steps), generator=draws)


def right_ends(logits: Tensor, asked: Tensor) -> float:
    """Return the probability of a right end, mean over questions ``(B, steps)``; exact."""
    return float(values(logits.softmax(-1)[asked])[:, 0, 0].mean())


def credited(
    logits: Tensor, asked: Tensor, credit: StepCredit, plan: StepChain, draws: torch.Generator
) -> tuple[Tensor, int]:
    """Return the gradient ``(kinds, 5)`` from a group of completions of one question ``(steps,)``, and the number of
    sampled steps that it took."""
    probs = logits.softmax(-1)[asked]  # (T, 5)
    offsets = probs.multinomial(plan.group, replacement=True, generator=draws).T  # (G, T)
    totals = offsets.cumsum(1) % OFFSETS
    end, num_steps = (totals[:, -1] == 0).to(logits), plan.group * plan.steps
    if credit.kind in ("outcome", "cloned"):
        advantage = (group_center(end[None])[0] if credit.kind == "outcome" else end)[:, None].expand(-1, plan.steps)
    else:
        exact, index = values(probs[None])[0], torch.arange(1, plan.steps)
        before = torch.cat([exact[0, 0].expand(plan.group)[:, None], exact[index, totals[:, :-1]]], 1)
        if credit.kind == "continued":
            # A continuation is right with exactly this probability, so the number of right ones of K is one binomial
            # sample; all completions begin in one state.
            count = float(credit.continuations)
            before = torch.binomial(torch.full_like(before, count), before, generator=draws) / count
            before[:, 0] = before[0, 0]
            num_steps += credit.continuations * (plan.steps + plan.group * int((plan.steps - index).sum()))
        advantage = torch.cat([before[:, 1:], end[:, None]], 1) - before
    score = one_hot(offsets, OFFSETS).to(logits) - probs
    return torch.zeros_like(logits).index_add(0, asked, (advantage[..., None] * score).mean(0)), num_steps


def learned(credit: StepCredit, plan: StepChain, seed: int) -> tuple[Tensor, float]:
    """Train until the budget is spent or the last update; return the logits ``(kinds, 5)`` and the sampled steps per
    update."""
    rng, logits, used = generator(f"credit {credit.kind} {credit.continuations}", seed), begin(plan), 0
    updates = 0
    while used < plan.budget and updates < plan.updates:
        gradient, num_steps = credited(logits, questions(plan, 1, rng)[0], credit, plan, rng)
        logits = logits + credit.learning_rate * gradient
        used, updates = used + num_steps, updates + 1
    return logits, used / updates


def noise(credit: StepCredit, logits: Tensor, plan: StepChain, seed: int, draws: int = 400) -> float:
    """Return the variance of one update's gradient at a policy ``(kinds, 5)``, for one question, summed over the
    logits."""
    rng = generator(f"noise {credit.kind} {credit.continuations}", seed)
    question = torch.arange(plan.steps) % plan.kinds
    return float(torch.stack([credited(logits, question, credit, plan, rng)[0] for _ in range(draws)]).var(0).sum())


def beta_of_best(passed: float, count: int) -> float:
    """Return the β at which the optimum under a KL penalty is the best of ``count`` samples, at a prompt whose
    completions are right with probability ``passed``.

    Both policies keep the proportions within the right completions and within the wrong ones. So they are equal if they
    have the same probability of a right completion: 1 − (1 − p)ⁿ, and p·exp(1/β) against 1 − p.
    """
    missed = (1 - passed) ** count
    return 1 / math.log((1 - missed) / missed * (1 - passed) / passed)
