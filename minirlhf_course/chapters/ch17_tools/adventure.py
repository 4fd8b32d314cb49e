"""A text adventure with three rooms: fetch the key, open the door, take the treasure.

It exists as an environment, and as a table of every episode, so that expectations are exact sums.

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
TURNS = 7  # most turns in an episode
OBSERVATIONS = len(ROOMS) * 2 * 2
BONUS = 0.3  # reward for the key and for the door, in experiments with bonuses
#: The right action for each observation on the shortest way, by the number of the state.
WAY = {4: "west", 0: "take", 2: "east", 6: "open", 7: "east", 11: "take"}


@dataclass(frozen=True)
class State:
    """Where the player is, and what the player has done."""

    room: int = 1
    key: bool = False
    door: bool = False
    treasure: bool = False

    @property
    def number(self) -> int:
        """Number of the observation, 0 … 11. It ignores ``treasure``, because the episode ends with it."""
        return (self.room * 2 + self.key) * 2 + self.door

    def after(self, action: str) -> State:
        """Return the state after an action; an impossible action changes nothing."""
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
        """Return the reward collected so far: 1 for the treasure, ``bonus`` each for the key and for the door."""
        return self.treasure + bonus * (self.key + self.door)


class Adventure:
    """The adventure as an environment with tools, for a multi-turn trainer of this library or of TRL."""

    def reset(self, **example: Any) -> str:
        """Start an episode in the hall."""
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
        """Return the reward collected so far."""
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


# -- every episode -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Courses:
    """Episodes: all ``N = 4^7`` sequences of actions, or ``N`` sampled ones. An episode ends with the treasure.

    Attributes:
        seen: ``(N, H)``, the observation before each action.
        actions: ``(N, H)``.
        rewards: ``(N, H)``, of each turn.
        mask: ``(N, H)``, True until the episode ends. Sequences that differ only after the end are the same episode.
        copies: ``(N,)``, how often each episode is listed.
    """

    seen: Tensor
    actions: Tensor
    rewards: Tensor
    mask: Tensor
    copies: Tensor


@cache
def courses(bonus: float, turns: int = TURNS) -> Courses:
    """Play every sequence of actions."""
    actions = torch.tensor(list(itertools.product(range(len(ACTIONS)), repeat=turns)))
    observations, mask = torch.zeros_like(actions), torch.zeros(actions.shape, dtype=torch.bool)
    rewards = torch.zeros(actions.shape, dtype=torch.float64)
    for n, sequence in enumerate(actions.tolist()):
        state = State()
        for t, action in enumerate(sequence):
            next_state = state.after(ACTIONS[action])
            observations[n, t], mask[n, t] = state.number, True
            rewards[n, t] = next_state.earned(bonus) - state.earned(bonus)
            state = next_state
            if state.treasure:
                break
    copies = len(ACTIONS) ** (~mask).sum(1).double()
    return Courses(observations, actions, rewards, mask, copies)


#: ``(returns, probabilities, episodes) -> baseline``: the returns from each turn on and the baseline, which is
#: subtracted from them, are both ``(N, H)``.
Baseline = Callable[[Tensor, Tensor, Courses], Tensor]


def mean_of_group(returns: Tensor, probs: Tensor, every: Courses) -> Tensor:
    """Return the mean return of all episodes from their start, the baseline of a large group."""
    return (probs @ returns[:, 0]).expand_as(returns)


def mean_of_turn(returns: Tensor, probs: Tensor, every: Courses) -> Tensor:
    """Return the mean return from turn k on, over all episodes that reach turn k."""
    weights = probs[:, None] * every.mask
    return ((weights * returns).sum(0) / weights.sum(0)).expand_as(returns)


def mean_of_place(returns: Tensor, probs: Tensor, every: Courses) -> Tensor:
    """Return the mean return of all visits to the same observation, at any turn.

    This is the baseline of a group of equal observations (GiGPO), or of a critic of the observation.
    """
    weights = (probs[:, None] * every.mask).flatten()
    sums, counts = (
        torch.zeros(OBSERVATIONS, dtype=torch.float64).index_add(0, every.seen.flatten(), values)
        for values in (weights * returns.flatten(), weights)
    )
    return (sums / counts.clamp(min=1e-300))[every.seen]


def of_others(baseline: Baseline) -> Baseline:
    """Return the leave-one-out version of a baseline: the same mean without the episode itself.

    Where no other episode contributes, the baseline is the episode's own return, so its advantage is 0.
    """

    def leave_one_out(returns: Tensor, probs: Tensor, episodes: Courses) -> Tensor:
        rows = []
        for index in range(len(probs)):
            other_probs = torch.where(torch.arange(len(probs)) == index, 0.0, probs)
            other_probs = other_probs / other_probs.sum()
            has_others = baseline(torch.ones_like(returns), other_probs, episodes)[index].nan_to_num() > 0.5
            rows.append(torch.where(has_others, baseline(returns, other_probs, episodes)[index], returns[index]))
        return torch.stack(rows)

    return leave_one_out


def taught(strength: float = 1.0) -> Tensor:
    """Return ``(O, A)`` logits of a policy that prefers the shortest way: ``strength`` on the right actions, else 0."""
    logits = torch.zeros(OBSERVATIONS, len(ACTIONS), dtype=torch.float64)
    for observation, action in WAY.items():
        logits[observation, ACTIONS.index(action)] = strength
    return logits


def probabilities(logits: Tensor, every: Courses) -> Tensor:
    """Return the probability of each listed episode, ``(N,)``; the probabilities sum to 1."""
    logps = logits.log_softmax(-1)[every.seen, every.actions]  # (N, H)
    return torch.where(every.mask, logps, 0.0).sum(1).exp() / every.copies


def scores(logits: Tensor, every: Courses) -> Tensor:
    """Return ∇log π of each action with respect to the logits, ``(N, H, O·A)``."""
    observations = torch.nn.functional.one_hot(every.seen, OBSERVATIONS).double()
    logit_grads = torch.nn.functional.one_hot(every.actions, len(ACTIONS)).double() - logits.softmax(-1)[every.seen]
    return (observations[..., None] * logit_grads[..., None, :]).flatten(2)


def credit(logits: Tensor, bonus: float, *, by_turn: bool, baseline: Baseline) -> dict[str, Tensor]:
    """Return the exact ``mean`` and ``variance`` of the policy gradient that one episode estimates.

    Args:
        logits: ``(O, A)`` of the policy.
        by_turn: credit each turn with the return from that turn on; otherwise with the whole episode's return. A turn
            is one action here, so the return from a turn on is the reward to go.
    """
    episodes = courses(bonus)
    probs, grads = probabilities(logits, episodes), scores(logits, episodes)
    returns = (returns_to_go if by_turn else total_return)(episodes.rewards, episodes.mask)
    psi = returns - baseline(returns, probs, episodes)
    estimates = trajectory_score(torch.where(episodes.mask, psi, 0.0)[..., None] * grads, episodes.mask)  # (N, D)
    return {"mean": policy_gradient(probs, grads, psi, episodes.mask), "variance": gradient_variance(probs, estimates)}


@dataclass(frozen=True)
class Moves:
    """The transitions of the environment.

    Attributes:
        following: ``(O, A)``, the number of the next state; ``O`` after the treasure is taken.
        rewards: ``(O, A)``.
    """

    following: Tensor
    rewards: Tensor


@cache
def moves(bonus: float) -> Moves:
    """Return the transitions from all states except the last one, in which the treasure is taken."""
    next_states = torch.zeros(OBSERVATIONS, len(ACTIONS), dtype=torch.long)
    rewards = torch.zeros(OBSERVATIONS, len(ACTIONS), dtype=torch.float64)
    for room, key, door in itertools.product(range(len(ROOMS)), (False, True), (False, True)):
        state = State(room, key, door)
        for i, action in enumerate(ACTIONS):
            next_state = state.after(action)
            next_states[state.number, i] = OBSERVATIONS if next_state.treasure else next_state.number
            rewards[state.number, i] = next_state.earned(bonus) - state.earned(bonus)
    return Moves(next_states, rewards)


def success(logits: Tensor) -> Tensor:
    """Return the exact probability of the treasure within ``TURNS`` turns, from the state distribution turn by turn."""
    next_onehot = torch.nn.functional.one_hot(moves(0.0).following, OBSERVATIONS + 1).double()  # (O, A, O + 1)
    transition = torch.einsum("oa,oan->on", logits.softmax(-1), next_onehot)
    state_probs = torch.zeros(OBSERVATIONS, dtype=torch.float64)
    state_probs[State().number] = 1.0
    success_prob = logits.new_zeros(())
    for _ in range(TURNS):
        state_probs = state_probs @ transition
        state_probs, success_prob = state_probs[:-1], success_prob + state_probs[-1]
    return success_prob


def played(logits: Tensor, count: int, bonus: float, rng: torch.Generator) -> Courses:
    """Sample ``count`` episodes of a policy."""
    env_moves, policy = moves(bonus), logits.softmax(-1)
    state, columns = torch.full((count,), State().number), []
    for _ in range(TURNS):
        active = state < OBSERVATIONS
        observation = torch.where(active, state, 0)
        action = torch.multinomial(policy[observation], 1, generator=rng).squeeze(1)
        columns.append((observation, action, torch.where(active, env_moves.rewards[observation, action], 0.0), active))
        state = torch.where(active, env_moves.following[observation, action], state)
    observation, actions, rewards, mask = (torch.stack(column, 1) for column in zip(*columns, strict=True))
    return Courses(observation, actions, rewards, mask, torch.ones(count, dtype=torch.float64))


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
    """Train a tabular policy on sampled episodes and return its exact success probability before each step.

    The baseline is computed from the episodes of the same step.
    """
    rng, logits, curve = generator("adventure", seed), taught(), []
    weights = torch.full((courses_per_step,), 1 / courses_per_step, dtype=torch.float64)
    for _ in range(steps):
        curve.append(float(success(logits)))
        episodes = played(logits, courses_per_step, bonus, rng)
        returns = (returns_to_go if by_turn else total_return)(episodes.rewards, episodes.mask)
        psi = returns - baseline(returns, weights, episodes)
        logits = logits + rate * policy_gradient(weights, scores(logits, episodes), psi, episodes.mask).view_as(logits)
    return curve
