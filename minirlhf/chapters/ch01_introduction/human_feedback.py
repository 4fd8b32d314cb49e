"""Learning from people as before language models, with tables: comparisons of walks, TAMER, COACH, and cloning an expert.

The people are simulated: they know what they want and answer with a known noise. The learners see the answers only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from minirlhf.equations.mdp import (
    action_values,
    advantage_function,
    bellman_optimality,
    greedy_policy,
    policy_values,
)
from minirlhf.equations.reward_losses import bradley_terry_loss
from minirlhf.equations.signals import coach_update, trajectory_preference

GAMMA = 0.95
SLIP_OF_THE_FINGER = 0.1  # how often a simulated person presses the wrong button
PATIENCE = 20  # steps after which an episode begins again


def best_action_values(transitions: Tensor, rewards: Tensor, *, gamma: float = GAMMA) -> Tensor:
    """Q* ``(S, A)`` by value iteration, to ten digits. ``gamma`` below 1."""
    values = torch.zeros(len(transitions), dtype=transitions.dtype)
    while True:
        better = bellman_optimality(transitions, rewards, values, gamma=gamma)
        if float((better - values).abs().max()) <= 1e-10:
            return action_values(transitions, rewards, better, gamma=gamma)
        values = better


def act(policy: Tensor, states: Tensor, rng: torch.Generator) -> Tensor:
    """One action in each state: ``(S, A), (N,) -> (N,)``."""
    return torch.multinomial(policy[states], 1, generator=rng)[:, 0]


def move(transitions: Tensor, states: Tensor, actions: Tensor, rng: torch.Generator) -> Tensor:
    """Where one step leads: ``(N,), (N,) -> (N,)``."""
    return torch.multinomial(transitions[states, actions], 1, generator=rng)[:, 0]


# -- comparing walks ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TrajectoryComparisons:
    """Pairs of walks and which of the two a person preferred.

    Attributes:
        first, second: ``(N, T)``, the cells at which each walk arrives, step by step.
        first_wins: ``(N,)`` bool.
    """

    first: Tensor
    second: Tensor
    first_wins: Tensor

    def head(self, count: int) -> TrajectoryComparisons:
        """The first ``count`` of them."""
        return TrajectoryComparisons(self.first[:count], self.second[:count], self.first_wins[:count])


def random_walks(transitions: Tensor, count: int, steps: int, rng: torch.Generator) -> Tensor:
    """``(count, steps)``: the cells at which aimless walks from anywhere arrive."""
    states, actions = transitions.shape[:2]
    here, path = torch.randint(states, (count,), generator=rng), []
    for _ in range(steps):
        here = move(transitions, here, torch.randint(actions, (count,), generator=rng), rng)
        path.append(here)
    return torch.stack(path, 1)


def ask_for_comparisons(
    transitions: Tensor, cell_values: Tensor, count: int, *, steps: int = 8, rng: torch.Generator
) -> TrajectoryComparisons:
    """Show a person ``count`` pairs of walks of so many ``steps``; they choose by what the walks are worth to them.

    Args:
        transitions: ``(S, A, S)``.
        cell_values: ``(S,)``, what a step that ends in the cell is worth to the person.
    """
    first, second = (random_walks(transitions, count, steps, rng) for _ in range(2))
    prefers_first = trajectory_preference(cell_values[first], cell_values[second])  # (count,)
    return TrajectoryComparisons(first, second, torch.rand(count, generator=rng) < prefers_first)


def fit_cell_values(answers: TrajectoryComparisons, num_states: int, *, ridge: float = 0.3) -> Tensor:
    """The reward model: a value ``(S,)`` for every cell, with the smallest Bradley–Terry loss, by Newton's method.

    The weak ``ridge`` (times half the squared values) chooses among values that explain the answers equally well: a
    constant could be added to all of them, and a cell where nobody walked could have any.
    """
    first, second = (
        torch.nn.functional.one_hot(walks, num_states).double().sum(1) for walks in (answers.first, answers.second)
    )
    gap = torch.where(answers.first_wins[:, None], first - second, second - first)  # (N, S): winner's visits − loser's
    prior = ridge * torch.eye(num_states, dtype=torch.float64)

    def loss(values: Tensor) -> float:
        margins = gap @ values
        return float(bradley_terry_loss(margins, torch.zeros_like(margins)).sum() + values @ prior @ values / 2)

    values = torch.zeros(num_states, dtype=torch.float64)
    for _ in range(50):
        surprise = torch.sigmoid(-gap @ values)  # (N,), minus the derivative of each loss
        slope = prior @ values - gap.T @ surprise
        curvature = prior + gap.T @ (gap * (surprise * (1 - surprise))[:, None])
        step = torch.linalg.solve(curvature, slope)
        while loss(values - step) > loss(values) and float(step.norm()) > 1e-9:
            step = step / 2
        values = values - step
        if float(step.norm()) <= 1e-9:
            break
    return values


# -- judging single actions --------------------------------------------------------------------------------------


def approval(wanted: Tensor, *, praise: float = 1.0, blame: float = -1.0) -> Tensor:
    """What a person says to each action, ``(S, A)``: ``praise`` to those with the largest ``wanted (S, A)``, ``blame`` to others."""
    return torch.where(wanted > wanted.amax(-1, keepdim=True) - 1e-6, praise, blame).to(wanted)


def tamer(transitions: Tensor, wanted: Tensor, start: Tensor, counts: Sequence[int], *, rng: torch.Generator) -> Tensor:
    """TAMER: predict the person's judgement of each action, and take the action that they would like best.

    The prediction is the mean of the judgements so far, shrunk towards 0 by one judgement of 0. The learner looks no step
    further: whoever praises an action has looked ahead already.

    Args:
        transitions: ``(S, A, S)``.
        wanted: ``(S, A)``, the best action values for what the person wants; see :func:`approval`.
        start: ``(S,)``, where episodes begin.
        counts: after how many judgements to note the policy, increasing.

    Returns:
        ``(len(counts), S, A)``, the policies noted.
    """
    says = approval(wanted)
    total, seen = torch.zeros_like(wanted), torch.zeros_like(wanted)

    def policy() -> Tensor:
        predicted = total / (seen + 1)
        best = (predicted == predicted.amax(-1, keepdim=True)).to(wanted)
        return best / best.sum(-1, keepdim=True)

    def learn(state: int, action: int, said: float) -> None:
        total[state, action] += said
        seen[state, action] += 1

    return _taught(transitions, start, counts, policy, lambda s, a: float(says[s, a]), learn, rng)


def coach(
    transitions: Tensor,
    rewards: Tensor,
    start: Tensor,
    counts: Sequence[int],
    *,
    rng: torch.Generator,
    learning_rate: float = 0.4,
) -> Tensor:
    """COACH: take a judgement for the advantage of the action over what the learner does now, and step up the gradient.

    The person says +1 to an action that is better than the learner's present average, −1 to a worse one, and 0 where it
    makes no difference to speak of.

    Args:
        transitions: ``(S, A, S)``; rewards ``(S, A)``, what the person wants; start, counts and the result as in :func:`tamer`.
        learning_rate: of the softmax policy's logits.
    """
    logits = torch.zeros_like(rewards)

    def judge(state: int, action: int) -> float:
        policy = logits.softmax(-1)
        values = policy_values(transitions, rewards, policy, gamma=GAMMA)
        gain = advantage_function(action_values(transitions, rewards, values, gamma=GAMMA), policy)[state, action]
        return float(gain.sign()) if abs(float(gain)) > 0.01 else 0.0

    def learn(state: int, action: int, said: float) -> None:
        score = -logits[state].softmax(-1)  # ∇ log π(a|s) in the logits of this state
        score[action] += 1.0
        logits[state] += learning_rate * coach_update(torch.tensor([said], dtype=score.dtype), score[None])[0]

    return _taught(transitions, start, counts, lambda: logits.softmax(-1), judge, learn, rng)


def _taught(
    transitions: Tensor,
    start: Tensor,
    counts: Sequence[int],
    policy: Callable[[], Tensor],
    judge: Callable[[int, int], float],
    learn: Callable[[int, int, float], None],
    rng: torch.Generator,
) -> Tensor:
    """Let the learner act, a person judge each action, and the learner learn from it; its policies after these counts."""
    goals = (transitions.diagonal(dim1=0, dim2=2) == 1.0).all(0)  # (S,): states that no action leaves
    noted, here, age = [], torch.multinomial(start, 1, generator=rng), 0
    for count in range(1, counts[-1] + 1):
        action = act(policy(), here, rng)
        said = judge(int(here), int(action))
        learn(int(here), int(action), -said if float(torch.rand(1, generator=rng)) < SLIP_OF_THE_FINGER else said)
        here, age = move(transitions, here, action, rng), age + 1
        if age == PATIENCE or bool(goals[here]):
            here, age = torch.multinomial(start, 1, generator=rng), 0
        if count in counts:
            noted.append(policy().clone())
    return torch.stack(noted)


# -- imitating an expert -----------------------------------------------------------------------------------------


def visited(
    transitions: Tensor, policy: Tensor, start: Tensor, episodes: int, rng: torch.Generator, *, steps: int = PATIENCE
) -> set[int]:
    """The states in which a policy acts in so many episodes."""
    here, seen = torch.multinomial(start, episodes, replacement=True, generator=rng), set()
    for _ in range(steps):
        seen.update(here.tolist())
        here = move(transitions, here, act(policy, here, rng), rng)
    return seen


def clone(expert: Tensor, shown: Iterable[int]) -> Tensor:
    """A policy ``(S, A)`` that does as the ``expert (S, A)`` in the states where it was shown, and anything elsewhere."""
    copy = torch.full_like(expert, 1.0 / expert.shape[1])
    for state in shown:
        copy[state] = expert[state]
    return copy


def clone_and_correct(
    transitions: Tensor, expert: Tensor, start: Tensor, episodes: int, rng: torch.Generator
) -> Tensor:
    """Let the learner act, and have the expert say what they would have done where *it* went; again, ``episodes`` times."""
    shown: set[int] = set()
    for _ in range(episodes):
        shown |= visited(transitions, clone(expert, shown), start, 1, rng)
    return clone(expert, shown)


def plan(transitions: Tensor, cell_values: Tensor, *, gamma: float = GAMMA) -> Tensor:
    """The best policy ``(S, A)`` if a step is worth the value ``(S,)`` of the cell where it ends."""
    return greedy_policy(best_action_values(transitions, transitions @ cell_values, gamma=gamma))
