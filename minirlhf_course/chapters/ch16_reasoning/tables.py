"""Three questions about RL with verifiable rewards, for tabular policies without a network: does RL narrow the policy,
what does a random reward teach, which prompts should be kept?

* *Strategies*: 48 strategies for a problem, and 300 problems that look alike, each solved by some of the strategies.
  The policy is one softmax over the strategies, so every try at a problem samples a strategy. The success probability
  of k tries is then exact: 1 − (1 − q)^k, q the mass of the strategies that solve it.
* *Habits*: a policy of two actions, with a random reward.
* *Difficulties*: one skill s; a prompt of difficulty d is solved with probability σ(s − d), or, for a part of the
  prompts, never.
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
    """Return ``(problems, strategies)`` of 0 and 1: which strategy solves which problem. The best strategy solves up to
    80 % of the problems, most strategies few."""
    rng = generator("strategies", seed)
    solve_rate = 0.8 * torch.rand(plan.strategies, generator=rng) ** 3
    return (torch.rand(plan.problems, plan.strategies, generator=rng) < solve_rate).double()


def pass_at(logits: Tensor, table: Tensor, k: int) -> float:
    """Return the probability that at least one of k tries solves a problem, mean over the problems; exact."""
    return float((1 - (1 - table @ logits.softmax(-1)) ** k).mean())


def sole_success(rewards: Tensor) -> Tensor:
    """Return the centred reward of each try, which is rewarded only if it is the one success of its group. ``(P, G)``

    This is what the try adds to the probability that the group has any success.
    """
    return group_center(rewards * (rewards.sum(-1, keepdim=True) == 1))


def improve(table: Tensor, seed: int, plan: Narrowing, *, beta: float = 0.0, sole: bool = False) -> Tensor:
    """Return the logits ``(S,)`` after RL on groups of tries with centred rewards, from the uniform policy; ``beta`` is
    the coefficient of the KL to it."""
    rng = generator("narrowing", seed)
    logits = torch.zeros(plan.strategies, dtype=torch.float64)
    for _ in range(plan.steps):
        pi = logits.softmax(-1)
        problems = torch.randint(plan.problems, (plan.prompts,), generator=rng)
        strategies = pi.expand(plan.prompts, -1).multinomial(plan.group, replacement=True, generator=rng)  # (P, G)
        rewards = table[problems].gather(1, strategies)
        credit = sole_success(rewards) if sole else group_center(rewards)
        gradient = torch.zeros_like(pi).index_add(0, strategies.flatten(), credit.flatten()) - credit.sum() * pi
        log_ratio = (pi * plan.strategies).log()  # to the uniform policy
        logits = logits + plan.learning_rate * (gradient / rewards.numel() - beta * pi * (log_ratio - pi @ log_ratio))
    return logits


@dataclass(frozen=True)
class StrategyArm:
    """One method of RL over strategies, with its own learning rate for 1,200 steps; the other fields are arguments of
    :func:`improve`."""

    learning_rate: float
    beta: float = 0.0
    sole: bool = False

    def improve(self, table: Tensor, seed: int, plan: Narrowing) -> Tensor:
        """Return the logits ``(S,)`` after training."""
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
    """Many parallel runs of a policy of two actions with a random reward; ``batch`` completions in a rollout."""

    runs: int = 100
    steps: int = 400
    batch: int = 64
    updates: int = 4
    learning_rate: float = 0.5


def paid_by_a_coin(share: float, epsilon: float | None, seed: int, plan: Coin, *, reused: bool = False) -> Tensor:
    """Return the probability of the first action after training with a random reward, ``(runs,)``; before training it
    was ``share``.

    Args:
        share: the probability before training.
        epsilon: of the clip; None: nothing is clipped.
        seed: of completions and random rewards.
        plan: sizes and the learning rate.
        reused: every update of a rollout learns from all its completions, with the same rewards. Otherwise each update
            has its own part of them, so that no reward is used for a policy that it has already changed. In both cases
            a rollout adds the same amount of noise to the logit.
    """
    rng = generator("coin", seed)
    logit = torch.full((plan.runs, 1), share, dtype=torch.float64).logit()
    for _ in range(plan.steps):
        old = logit.sigmoid()
        is_first = torch.rand(plan.runs, plan.batch, generator=rng, dtype=torch.float64) < old
        rewards = torch.randint(2, is_first.shape, generator=rng).double() * 2 - 1
        old_probs = torch.where(is_first, old, 1 - old)
        for part in range(plan.updates):
            columns = slice(None) if reused else slice(part, None, plan.updates)
            took_first, advantage, current = is_first[:, columns], group_center(rewards[:, columns]), logit.sigmoid()
            ratio = torch.where(took_first, current, 1 - current) / old_probs[:, columns]
            unclipped = torch.ones_like(ratio)
            if epsilon is not None:
                unclipped = torch.where(advantage > 0, ratio < 1 + epsilon, ratio > 1 - epsilon).double()
            score = torch.where(took_first, 1 - current, -current)  # of log π in the logit
            logit = logit + plan.learning_rate * (advantage * unclipped * ratio * score).mean(-1, keepdim=True)
    return logit.sigmoid().squeeze(-1)


# -- difficulties ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pool:
    """Prompts of which a fraction is impossible, and training on them until the solvable prompts of middle difficulty
    are solved with a mean probability of ``goal``."""

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


#: The ways to select prompts in :func:`samples_to_goal`.
FILTERING = ("all", "offline", "online", "curriculum")


def samples_to_goal(
    filtering: str, seed: int, plan: Pool, *, kept: tuple[int, int] = (2, 6), pace: int = 400
) -> dict[str, float]:
    """Return the number of completions that training sampled until the goal or the last step, whether the goal was
    reached, and the fraction of zero-variance groups.

    ``offline`` selects the prompts for which the initial model solves between ``kept[0]`` and ``kept[1]`` of ``graded``
    completions; grading the pool is not counted. ``online`` samples groups until enough of them have mixed rewards, and
    the other groups are counted too. ``curriculum`` goes from easy to hard prompts, whose difficulties are known, and
    reaches the hardest after ``pace`` steps.

    Raises:
        ValueError: for an unknown ``filtering``, a pace below 1, or limits that select no prompt.
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
    rng = generator("pool", seed)
    difficulty = plan.spread * torch.randn(plan.size, generator=rng, dtype=torch.float64)
    impossible = torch.rand(plan.size, generator=rng) < plan.impossible
    middle = ~impossible & (difficulty.abs() < plan.spread)
    skill, num_samples, num_zero_variance, num_groups = plan.start, 0, 0, 0

    def solve_rate(prompts: Tensor) -> Tensor:
        return torch.where(impossible[prompts], 0.0, (skill - difficulty[prompts]).sigmoid())

    all_prompts = torch.arange(plan.size)
    pool = all_prompts
    if filtering == "offline":
        solved = torch.binomial(
            torch.full((plan.size,), float(plan.graded)).double(), solve_rate(all_prompts), generator=rng
        )
        pool = all_prompts[(solved >= kept[0]) & (solved <= kept[1])]
        if not len(pool):
            raise ArgumentError(
                f"kept = {kept!r}; no prompt of the pool is solved so often out of {plan.graded} times",
                argument="kept",
                value=kept,
            )
    ranked = difficulty.argsort()
    for step in range(plan.most):
        if filtering == "curriculum":  # a window of a fifth of the pool that moves from the easiest to the hardest
            offset = min(step / pace, 1.0) * 0.8 * plan.size
            pool = ranked[int(offset) : int(offset) + plan.size // 5]
        gradient, num_mixed = 0.0, 0
        for _ in range(plan.refills if filtering == "online" else 1):
            batch = pool[torch.randint(len(pool), (plan.prompts,), generator=rng)]
            rewards = (
                torch.rand(plan.prompts, plan.group, generator=rng, dtype=torch.float64) < solve_rate(batch)[:, None]
            ).double()
            mixed = nonzero_variance_groups(rewards)
            if filtering == "online":
                needed = plan.prompts - num_mixed
                last = (
                    int(torch.searchsorted(mixed.cumsum(0), needed)) if int(mixed.sum()) >= needed else plan.prompts - 1
                )
                rewards, mixed = rewards[: last + 1], mixed[: last + 1]
                num_mixed += int(mixed.sum())
            num_samples += rewards.numel()
            num_groups += len(mixed)
            num_zero_variance += int((~mixed).sum())
            gradient += float(group_center(rewards).square().mean(-1).sum())  # the variance of each group: p̂(1 − p̂)
            if num_mixed >= plan.prompts:
                break
        skill += plan.learning_rate * gradient / plan.prompts
        if float(solve_rate(all_prompts[middle]).mean()) >= plan.goal:
            return {"samples": float(num_samples), "dead": num_zero_variance / num_groups, "reached": 1.0}
    return {"samples": float(num_samples), "dead": num_zero_variance / num_groups, "reached": 0.0}
