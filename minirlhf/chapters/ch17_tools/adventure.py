"""A text adventure of three rooms: fetch the key, open the door, take the treasure. As an environment, and as a table in which every course is summed.

    You are in the hall. A door to the east is locked.

Six turns are enough: west, take, east, open, east, take. A lab of chapter 17.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor

from minirlhf.core.randomness import generator
from minirlhf.equations.policy_gradient import gradient_variance, policy_gradient, trajectory_score
from minirlhf.equations.returns import returns_to_go, total_return

ROOMS = ("cellar", "hall", "vault")
ACTIONS = ("west", "east", "take", "open")
TURNS = 7  # of an episode at most
OBSERVATIONS = len(ROOMS) * 2 * 2
BONUS = 0.3  # for the key and for the door, where there are bonuses
#: The right action at what is seen on the way, by the number of the state.
WAY = {4: "west", 0: "take", 2: "east", 6: "open", 7: "east", 11: "take"}


@dataclass(frozen=True)
class State:
    """Where the player is and what has been done."""

    room: int = 1
    key: bool = False
    door: bool = False
    treasure: bool = False

    @property
    def number(self) -> int:
        """0 … 11, of what can be seen while the treasure is not taken."""
        return (self.room * 2 + self.key) * 2 + self.door

    def after(self, action: str) -> State:
        """What an action leads to; one that is not possible here changes nothing."""
        if action == "west":
            return replace(self, room=max(self.room - 1, 0))
        if action == "east" and (self.room == 0 or (self.room == 1 and self.door)):
            return replace(self, room=self.room + 1)
        if action == "take" and self.room == 0:
            return replace(self, key=True)
        if action == "take" and self.room == 2:
            return replace(self, treasure=True)
        if action == "open" and self.room == 1 and self.key:
            return replace(self, door=True)
        return self

    def earned(self, bonus: float) -> float:
        """What has been earned so far: 1 for the treasure, ``bonus`` for the key and for the door."""
        return self.treasure + bonus * (self.key + self.door)


class Adventure:
    """The same as an environment with tools, which a trainer of turns takes, ours or TRL's."""

    def reset(self, **example: Any) -> str:
        """Begin in the hall."""
        self._state, self._bonus = State(), float(example.get("bonus", 0.0))
        return self._seen()

    def go(self, direction: str) -> str:
        """Walk to the next room.

        Args:
            direction: where to. (choices: ["west", "east"])
        """
        return self._do(direction)

    def take(self) -> str:
        """Take what lies here."""
        return self._do("take")

    def open_door(self) -> str:
        """Open a locked door with the key."""
        return self._do("open")

    def get_reward(self) -> float:
        """What has been earned so far."""
        return self._state.earned(self._bonus)

    def _do(self, action: str) -> str:
        before, self._state = self._state, self._state.after(action)
        return "Nothing happens." if before == self._state else self._seen()

    def _seen(self) -> str:
        state = self._state
        if state.treasure:
            return "You have the treasure."
        here = {
            0: "" if state.key else " A key lies here.",
            1: f" A door to the east is {'open' if state.door else 'locked'}.",
            2: " A treasure lies here.",
        }[state.room]
        return f"You are in the {ROOMS[state.room]}.{here}{' You have a key.' if state.key else ''}"


# -- every course ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Courses:
    """All ``N = 4^7`` sequences of actions; a course ends with the treasure.

    Attributes:
        seen: ``(N, H)``, what is seen before each action.
        actions: ``(N, H)``.
        rewards: ``(N, H)``, of each turn.
        mask: ``(N, H)``, True while the course goes on; courses that differ only after their end are one and the same.
        copies: ``(N,)``, how often each course is listed.
    """

    seen: Tensor
    actions: Tensor
    rewards: Tensor
    mask: Tensor
    copies: Tensor


@cache
def courses(bonus: float, turns: int = TURNS) -> Courses:
    """Play every sequence."""
    actions = torch.tensor(list(itertools.product(range(len(ACTIONS)), repeat=turns)))
    seen, mask = torch.zeros_like(actions), torch.zeros(actions.shape, dtype=torch.bool)
    rewards = torch.zeros(actions.shape, dtype=torch.float64)
    for n, course in enumerate(actions.tolist()):
        state = State()
        for t, action in enumerate(course):
            following = state.after(ACTIONS[action])
            seen[n, t], mask[n, t] = state.number, True
            rewards[n, t] = following.earned(bonus) - state.earned(bonus)
            state = following
            if state.treasure:
                break
    copies = len(ACTIONS) ** (~mask).sum(1).double()
    return Courses(seen, actions, rewards, mask, copies)


#: ``(returns from each turn on, probabilities, courses) -> baseline``, both ``(N, H)``: what a turn is compared with.
Baseline = Callable[[Tensor, Tensor, Courses], Tensor]


def mean_of_group(returns: Tensor, probs: Tensor, every: Courses) -> Tensor:
    """The mean return of all courses from their start, as of a large group."""
    return (probs @ returns[:, 0]).expand_as(returns)


def mean_of_turn(returns: Tensor, probs: Tensor, every: Courses) -> Tensor:
    """The mean return from turn k on, of all courses that come so far."""
    weights = probs[:, None] * every.mask
    return ((weights * returns).sum(0) / weights.sum(0)).expand_as(returns)


def mean_of_place(returns: Tensor, probs: Tensor, every: Courses) -> Tensor:
    """The mean return of all visits to what is seen, at any turn: a group of the same observation (GiGPO's), or a critic of it."""
    weights = (probs[:, None] * every.mask).flatten()
    sums, counts = (
        torch.zeros(OBSERVATIONS, dtype=torch.float64).index_add(0, every.seen.flatten(), each)
        for each in (weights * returns.flatten(), weights)
    )
    return (sums / counts.clamp(min=1e-300))[every.seen]


def of_others(baseline: Baseline) -> Baseline:
    """The same mean with the own course left out; where no other course has been, the baseline is the own return, so that nothing is learned."""

    def left_out(returns: Tensor, probs: Tensor, every: Courses) -> Tensor:
        rows = []
        for own in range(len(probs)):
            others = torch.where(torch.arange(len(probs)) == own, 0.0, probs)
            others = others / others.sum()
            somebody = baseline(torch.ones_like(returns), others, every)[own].nan_to_num() > 0.5
            rows.append(torch.where(somebody, baseline(returns, others, every)[own], returns[own]))
        return torch.stack(rows)

    return left_out


def taught(strength: float = 1.0) -> Tensor:
    """``(O, A)`` logits of a policy that has heard of the way: ``strength`` on the right actions, 0 elsewhere."""
    logits = torch.zeros(OBSERVATIONS, len(ACTIONS), dtype=torch.float64)
    for place, action in WAY.items():
        logits[place, ACTIONS.index(action)] = strength
    return logits


def probabilities(logits: Tensor, every: Courses) -> Tensor:
    """Of each listed course, ``(N,)``; they sum to 1."""
    chosen = logits.log_softmax(-1)[every.seen, every.actions]  # (N, H)
    return torch.where(every.mask, chosen, 0.0).sum(1).exp() / every.copies


def scores(logits: Tensor, every: Courses) -> Tensor:
    """∇log π of each action in the logits, ``(N, H, O·A)``."""
    places = torch.nn.functional.one_hot(every.seen, OBSERVATIONS).double()
    moves = torch.nn.functional.one_hot(every.actions, len(ACTIONS)).double() - logits.softmax(-1)[every.seen]
    return (places[..., None] * moves[..., None, :]).flatten(2)


def credit(logits: Tensor, bonus: float, *, by_turn: bool, baseline: Baseline) -> dict[str, Tensor]:
    """The exact ``mean`` of one course's policy gradient and its ``variance``.

    Args:
        logits: ``(O, A)`` of the policy.
        by_turn: each turn is credited with the return from it on (a turn is one action here, so that it is the reward to go); else with the
            whole course's return.
    """
    every = courses(bonus)
    probs, slopes = probabilities(logits, every), scores(logits, every)
    returns = (returns_to_go if by_turn else total_return)(every.rewards, every.mask)
    psi = returns - baseline(returns, probs, every)
    estimates = trajectory_score(torch.where(every.mask, psi, 0.0)[..., None] * slopes, every.mask)  # (N, D)
    return {"mean": policy_gradient(probs, slopes, psi, every.mask), "variance": gradient_variance(probs, estimates)}


@dataclass(frozen=True)
class Moves:
    """What each action leads to.

    Attributes:
        following: ``(O, A)``, the number of the next state; ``O`` where the treasure has been taken.
        rewards: ``(O, A)``.
    """

    following: Tensor
    rewards: Tensor


@cache
def moves(bonus: float) -> Moves:
    """Of all states but the last."""
    following = torch.zeros(OBSERVATIONS, len(ACTIONS), dtype=torch.long)
    rewards = torch.zeros(OBSERVATIONS, len(ACTIONS), dtype=torch.float64)
    for room, key, door in itertools.product(range(len(ROOMS)), (False, True), (False, True)):
        state = State(room, key, door)
        for i, action in enumerate(ACTIONS):
            after = state.after(action)
            following[state.number, i] = OBSERVATIONS if after.treasure else after.number
            rewards[state.number, i] = after.earned(bonus) - state.earned(bonus)
    return Moves(following, rewards)


def success(logits: Tensor) -> Tensor:
    """The exact probability of the treasure within the turns: where a policy is after each turn, forward."""
    into = torch.nn.functional.one_hot(moves(0.0).following, OBSERVATIONS + 1).double()  # (O, A, O + 1)
    step = torch.einsum("oa,oan->on", logits.softmax(-1), into)
    place = torch.zeros(OBSERVATIONS, dtype=torch.float64)
    place[State().number] = 1.0
    won = logits.new_zeros(())
    for _ in range(TURNS):
        place = place @ step
        place, won = place[:-1], won + place[-1]
    return won


def played(logits: Tensor, count: int, bonus: float, rng: torch.Generator) -> Courses:
    """So many courses that a policy takes."""
    world, policy = moves(bonus), logits.softmax(-1)
    place, columns = torch.full((count,), State().number), []
    for _ in range(TURNS):
        going = place < OBSERVATIONS
        seen = torch.where(going, place, 0)
        action = torch.multinomial(policy[seen], 1, generator=rng).squeeze(1)
        columns.append((seen, action, torch.where(going, world.rewards[seen, action], 0.0), going))
        place = torch.where(going, world.following[seen, action], place)
    seen, actions, rewards, mask = (torch.stack(column, 1) for column in zip(*columns, strict=True))
    return Courses(seen, actions, rewards, mask, torch.ones(count, dtype=torch.float64))


def learned(
    seed: int,
    bonus: float,
    *,
    by_turn: bool,
    baseline: Baseline,
    steps: int = 150,
    courses_per_step: int = 32,
    rate: float = 2.0,
) -> list[float]:
    """The exact success before each of the steps: a table learns from sampled courses, the baseline their own."""
    rng, logits, curve = generator("adventure", seed), taught(), []
    same = torch.full((courses_per_step,), 1 / courses_per_step, dtype=torch.float64)
    for _ in range(steps):
        curve.append(float(success(logits)))
        some = played(logits, courses_per_step, bonus, rng)
        returns = (returns_to_go if by_turn else total_return)(some.rewards, some.mask)
        psi = returns - baseline(returns, same, some)
        logits = logits + rate * policy_gradient(same, scores(logits, some), psi, some.mask).view_as(logits)
    return curve
