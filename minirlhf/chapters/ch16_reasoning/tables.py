"""Three questions about RL on verifiable rewards, in tables without a network: does it narrow, what does a coin teach, which prompts to keep.

* *Strategies*: 48 ways to attack a problem, 300 problems that look alike, each solved by some of the ways. The policy is one softmax over the
  ways, so every try at a problem draws a way. What k tries are worth is then exact: 1 − (1 − q)^k, q the mass of the ways that solve it.
* *Habits*: a policy of two actions, paid by a coin.
* *Difficulties*: one skill s; a prompt of difficulty d is solved with probability σ(s − d), or, for a part of the prompts, never.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from minirlhf.core.errors import ArgumentError
from minirlhf.core.randomness import generator
from minirlhf.equations.advantages import group_center
from minirlhf.equations.difficulty import nonzero_variance_groups

# -- strategies --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Narrowing:
    """RL over strategies: rollouts of ``prompts`` groups of ``group`` tries."""

    problems: int = 300
    strategies: int = 48
    steps: int = 300
    prompts: int = 16
    group: int = 8
    learning_rate: float = 3.5


def solved_by(seed: int, plan: Narrowing) -> Tensor:
    """``(problems, strategies)`` of 0 and 1: which way solves which problem. The best way solves up to four fifths, most ways few."""
    draws = generator("strategies", seed)
    share = 0.8 * torch.rand(plan.strategies, generator=draws) ** 3
    return (torch.rand(plan.problems, plan.strategies, generator=draws) < share).double()


def pass_at(logits: Tensor, table: Tensor, k: int) -> float:
    """The chance that one of k tries solves a problem, mean over the problems; exact."""
    return float((1 - (1 - table @ logits.softmax(-1)) ** k).mean())


def sole_success(rewards: Tensor) -> Tensor:
    """Pays a try only if it is the one success of its group, which is what it adds to the chance that the group has any; centred. ``(P, G)``"""
    return group_center(rewards * (rewards.sum(-1, keepdim=True) == 1))


def improve(table: Tensor, seed: int, plan: Narrowing, *, beta: float = 0.0, sole: bool = False) -> Tensor:
    """Logits ``(S,)`` after RL on groups of tries with centred rewards, from the uniform policy; ``beta`` weighs the KL to it."""
    draws = generator("narrowing", seed)
    logits = torch.zeros(plan.strategies, dtype=torch.float64)
    for _ in range(plan.steps):
        pi = logits.softmax(-1)
        asked = torch.randint(plan.problems, (plan.prompts,), generator=draws)
        tried = pi.expand(plan.prompts, -1).multinomial(plan.group, replacement=True, generator=draws)  # (P, G)
        rewards = table[asked].gather(1, tried)
        credit = sole_success(rewards) if sole else group_center(rewards)
        push = torch.zeros_like(pi).index_add(0, tried.flatten(), credit.flatten()) - credit.sum() * pi
        distance = (pi * plan.strategies).log()  # log of the ratio to the uniform policy
        logits = logits + plan.learning_rate * (push / rewards.numel() - beta * pi * (distance - pi @ distance))
    return logits


@dataclass(frozen=True)
class StrategyArm:
    """One kind of RL over strategies, with its own learning rate for 1,200 steps; the rest are arguments of :func:`improve`."""

    learning_rate: float
    beta: float = 0.0
    sole: bool = False

    def improve(self, table: Tensor, seed: int, plan: Narrowing) -> Tensor:
        """Logits ``(S,)`` after it."""
        plan = replace(plan, learning_rate=self.learning_rate)
        return improve(table, seed, plan, beta=self.beta, sole=self.sole)


ARMS = {
    "rl": StrategyArm(1.0),
    "kl": StrategyArm(3.5, beta=0.05),
    "held": StrategyArm(1.0, beta=0.1),
    "sole": StrategyArm(14.0, sole=True),
    "sole_fast": StrategyArm(56.0, sole=True),
}


# -- habits ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Coin:
    """Many runs side by side of a policy of two actions that is paid by a coin; ``batch`` replies in a rollout."""

    runs: int = 100
    steps: int = 400
    batch: int = 64
    updates: int = 4
    learning_rate: float = 0.5


def paid_by_a_coin(share: float, epsilon: float | None, seed: int, plan: Coin, *, reused: bool = False) -> Tensor:
    """The probability of the first action after training, ``(runs,)``; at the beginning it was ``share``.

    Args:
        share: where it begins.
        epsilon: of the clip; None: nothing is clipped.
        seed: of replies and coins.
        plan: sizes and the learning rate.
        reused: every update of a rollout learns from all its replies, with the same coins. Else each has a part of them to itself, so
            that no coin is met by a policy that it has moved already. Either way a rollout adds as much noise to the logit.
    """
    draws = generator("coin", seed)
    logit = torch.full((plan.runs, 1), share, dtype=torch.float64).logit()
    for _ in range(plan.steps):
        old = logit.sigmoid()
        first = torch.rand(plan.runs, plan.batch, generator=draws, dtype=torch.float64) < old
        coins = torch.randint(2, first.shape, generator=draws).double() * 2 - 1
        before = torch.where(first, old, 1 - old)
        for part in range(plan.updates):
            own = slice(None) if reused else slice(part, None, plan.updates)
            mine, advantage, now = first[:, own], group_center(coins[:, own]), logit.sigmoid()
            ratio = torch.where(mine, now, 1 - now) / before[:, own]
            learns = torch.ones_like(ratio)
            if epsilon is not None:
                learns = torch.where(advantage > 0, ratio < 1 + epsilon, ratio > 1 - epsilon).double()
            slope = torch.where(mine, 1 - now, -now)  # of log π in the logit
            logit = logit + plan.learning_rate * (advantage * learns * ratio * slope).mean(-1, keepdim=True)
    return logit.sigmoid().squeeze(-1)


# -- difficulties ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pool:
    """Prompts of which a share is impossible, and training on them until the solvable ones of middle difficulty are solved nine times in ten."""

    size: int = 1000
    impossible: float = 0.5
    spread: float = 4.0
    start: float = -2.0
    prompts: int = 16
    group: int = 8
    learning_rate: float = 1.5
    goal: float = 0.9
    most: int = 4000
    graded: int = 8
    refills: int = 8


#: The ways to choose prompts that :func:`samples_to_goal` knows.
FILTERING = ("all", "offline", "online", "curriculum")


def samples_to_goal(
    filtering: str, seed: int, plan: Pool, *, kept: tuple[int, int] = (2, 6), pace: int = 400
) -> dict[str, float]:
    """Replies that training sampled until the goal or the last step, whether the goal was reached, and the share of groups without a signal.

    ``offline`` keeps the prompts of which the first model solves at least and at most so many of ``graded`` replies, as ``kept`` says; grading
    the pool is not counted. ``online`` samples groups until enough of them are mixed, and pays for the others. ``curriculum`` asks from easy to
    hard, the difficulties being known, and comes to the hardest after ``pace`` steps.

    Raises:
        ValueError: for another word, a pace below 1, or limits that keep no prompt.
    """
    if filtering not in FILTERING:
        raise ArgumentError(
            f"filtering = {filtering!r}; expected one of {', '.join(FILTERING)}",
            argument="filtering",
            value=filtering,
            expected=FILTERING,
        )
    if pace < 1:
        raise ArgumentError(f"pace = {pace!r}; expected a number of steps, at least 1", argument="pace", value=pace)
    draws = generator("pool", seed)
    difficulty = plan.spread * torch.randn(plan.size, generator=draws, dtype=torch.float64)
    never = torch.rand(plan.size, generator=draws) < plan.impossible
    middle = ~never & (difficulty.abs() < plan.spread)
    skill, used, dead, groups = plan.start, 0, 0, 0

    def chance(prompts: Tensor) -> Tensor:
        return torch.where(never[prompts], 0.0, (skill - difficulty[prompts]).sigmoid())

    everything = torch.arange(plan.size)
    pool = everything
    if filtering == "offline":
        solved = torch.binomial(
            torch.full((plan.size,), float(plan.graded)).double(), chance(everything), generator=draws
        )
        pool = everything[(solved >= kept[0]) & (solved <= kept[1])]
        if not len(pool):
            raise ArgumentError(
                f"kept = {kept!r}; no prompt of the pool is solved so often out of {plan.graded} times",
                argument="kept",
                value=kept,
            )
    ranked = difficulty.argsort()
    for step in range(plan.most):
        if filtering == "curriculum":  # a window of a fifth of the pool that moves from the easiest to the hardest
            at = min(step / pace, 1.0) * 0.8 * plan.size
            pool = ranked[int(at) : int(at) + plan.size // 5]
        slope, live = 0.0, 0
        for _ in range(plan.refills if filtering == "online" else 1):
            asked = pool[torch.randint(len(pool), (plan.prompts,), generator=draws)]
            rewards = (
                torch.rand(plan.prompts, plan.group, generator=draws, dtype=torch.float64) < chance(asked)[:, None]
            ).double()
            mixed = nonzero_variance_groups(rewards)
            if filtering == "online":
                needed = plan.prompts - live
                last = (
                    int(torch.searchsorted(mixed.cumsum(0), needed)) if int(mixed.sum()) >= needed else plan.prompts - 1
                )
                rewards, mixed = rewards[: last + 1], mixed[: last + 1]
                live += int(mixed.sum())
            used += rewards.numel()
            groups += len(mixed)
            dead += int((~mixed).sum())
            slope += float(group_center(rewards).square().mean(-1).sum())  # the variance of each group: p̂(1 − p̂)
            if live >= plan.prompts:
                break
        skill += plan.learning_rate * slope / plan.prompts
        if float(chance(everything[middle]).mean()) >= plan.goal:
            return {"samples": float(used), "dead": dead / groups, "reached": 1.0}
    return {"samples": float(used), "dead": dead / groups, "reached": 0.0}
