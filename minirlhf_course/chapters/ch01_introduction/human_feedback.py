"""Tabular learning from human feedback, before language models: comparing walks, TAMER, COACH and behaviour cloning.

The annotators are simulated: their rewards and the noise of their labels are known. The learners see the labels only.
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
from minirlhf_course.chapters.ch01_introduction.equations import coach_update, trajectory_preference

GAMMA = 0.95
SLIP_OF_THE_FINGER = 0.1  # probability that a simulated annotator gives the opposite feedback
PATIENCE = 20  # steps after which an episode is truncated and a new one begins


def best_action_values(transitions: Tensor, rewards: Tensor, *, gamma: float = GAMMA) -> Tensor:
    """Return Q* ``(S, A)`` by value iteration, until no value changes by more than 1e-10. ``gamma`` must be below 1."""
    values = torch.zeros(len(transitions), dtype=transitions.dtype)
    while True:
        new_values = bellman_optimality(transitions, rewards, values, gamma=gamma)
        if float((new_values - values).abs().max()) <= 1e-10:
            return action_values(transitions, rewards, new_values, gamma=gamma)
        values = new_values


def act(policy: Tensor, states: Tensor, rng: torch.Generator) -> Tensor:
    """Sample one action in each state: ``(S, A), (N,) -> (N,)``."""
    return torch.multinomial(policy[states], 1, generator=rng)[:, 0]


def move(transitions: Tensor, states: Tensor, actions: Tensor, rng: torch.Generator) -> Tensor:
    """Sample the next state of each state and action: ``(N,), (N,) -> (N,)``."""
    return torch.multinomial(transitions[states, actions], 1, generator=rng)[:, 0]


# -- comparing walks ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TrajectoryComparisons:
    """Pairs of walks, and which walk of each pair the annotator preferred.

    Attributes:
        first, second: ``(N, T)``, the cell that each walk enters at each step.
        first_wins: ``(N,)`` bool.
    """

    first: Tensor
    second: Tensor
    first_wins: Tensor

    def head(self, count: int) -> TrajectoryComparisons:
        """Return the first ``count`` comparisons."""
        return TrajectoryComparisons(self.first[:count], self.second[:count], self.first_wins[:count])


def random_walks(transitions: Tensor, count: int, steps: int, rng: torch.Generator) -> Tensor:
    """Sample ``(count, steps)`` cells: those that random walks from random cells enter, step by step."""
    num_states, num_actions = transitions.shape[:2]
    states, path = torch.randint(num_states, (count,), generator=rng), []
    for _ in range(steps):
        states = move(transitions, states, torch.randint(num_actions, (count,), generator=rng), rng)
        path.append(states)
    return torch.stack(path, 1)


def ask_for_comparisons(
    transitions: Tensor, cell_values: Tensor, count: int, *, steps: int = 8, rng: torch.Generator
) -> TrajectoryComparisons:
    """Sample ``count`` pairs of walks of ``steps`` steps, and the annotator's choices by the sums of cell values.

    Args:
        transitions: ``(S, A, S)``.
        cell_values: ``(S,)``, the annotator's reward of a step that ends in the cell.
    """
    first, second = (random_walks(transitions, count, steps, rng) for _ in range(2))
    first_win_probs = trajectory_preference(cell_values[first], cell_values[second])  # (count,)
    return TrajectoryComparisons(first, second, torch.rand(count, generator=rng) < first_win_probs)


def fit_cell_values(answers: TrajectoryComparisons, num_states: int, *, ridge: float = 0.3) -> Tensor:
    """Fit the reward model, a value ``(S,)`` for every cell, to the Bradley–Terry loss by Newton's method.

    The penalty of ``ridge`` times half the squared values is weak. It chooses among values that explain the labels
    equally well: a constant added to all values changes no margin, and a cell that no walk entered can have any value.
    """
    first, second = (
        torch.nn.functional.one_hot(walks, num_states).double().sum(1) for walks in (answers.first, answers.second)
    )
    visit_gaps = torch.where(answers.first_wins[:, None], first - second, second - first)  # (N, S), winner − loser
    precision = ridge * torch.eye(num_states, dtype=torch.float64)

    def loss(values: Tensor) -> float:
        margins = visit_gaps @ values
        return float(bradley_terry_loss(margins, torch.zeros_like(margins)).sum() + values @ precision @ values / 2)

    values = torch.zeros(num_states, dtype=torch.float64)
    for _ in range(50):
        loser_probs = torch.sigmoid(-visit_gaps @ values)  # (N,), minus the derivative of each loss
        gradient = precision @ values - visit_gaps.T @ loser_probs
        hessian = precision + visit_gaps.T @ (visit_gaps * (loser_probs * (1 - loser_probs))[:, None])
        step = torch.linalg.solve(hessian, gradient)
        while loss(values - step) > loss(values) and float(step.norm()) > 1e-9:
            step = step / 2
        values = values - step
        if float(step.norm()) <= 1e-9:
            break
    return values


# -- judging single actions --------------------------------------------------------------------------------------


def approval(wanted: Tensor, *, praise: float = 1.0, blame: float = -1.0) -> Tensor:
    """Return feedback ``(S, A)``: ``praise`` for actions of largest ``wanted (S, A)`` in a state, else ``blame``."""
    return torch.where(wanted > wanted.amax(-1, keepdim=True) - 1e-6, praise, blame).to(wanted)


def tamer(transitions: Tensor, wanted: Tensor, start: Tensor, counts: Sequence[int], *, rng: torch.Generator) -> Tensor:
    """TAMER: predict the annotator's feedback on each action, and take the action with the best prediction.

    The prediction is the mean of the feedback so far, shrunk towards 0 by one pseudo-observation of 0. The learner does
    not look ahead, because the annotator's feedback already takes later rewards into account.

    Args:
        transitions: ``(S, A, S)``.
        wanted: ``(S, A)``, the optimal action values of the annotator's rewards; see :func:`approval`.
        start: ``(S,)``, the distribution of the initial state.
        counts: numbers of judged actions, increasing, after which the policy is recorded.

    Returns:
        ``(len(counts), S, A)``, the recorded policies.
    """
    approvals = approval(wanted)
    feedback_sums, num_judged = torch.zeros_like(wanted), torch.zeros_like(wanted)

    def policy() -> Tensor:
        predicted = feedback_sums / (num_judged + 1)
        is_best = (predicted == predicted.amax(-1, keepdim=True)).to(wanted)
        return is_best / is_best.sum(-1, keepdim=True)

    def learn(state: int, action: int, feedback: float) -> None:
        feedback_sums[state, action] += feedback
        num_judged[state, action] += 1

    return _taught(transitions, start, counts, policy, lambda s, a: float(approvals[s, a]), learn, rng)


def coach(
    transitions: Tensor,
    rewards: Tensor,
    start: Tensor,
    counts: Sequence[int],
    *,
    rng: torch.Generator,
    learning_rate: float = 0.4,
) -> Tensor:
    """COACH: use the feedback as the advantage of the action under the current policy, and take a gradient step.

    The feedback is the sign of the true advantage: +1 for an action better than the current policy's average, −1 for a
    worse one. It is 0 where the advantage is at most 0.01 in absolute value.

    Args:
        transitions: ``(S, A, S)``; rewards ``(S, A)``, the annotator's; start, counts and result as in :func:`tamer`.
        learning_rate: learning rate of the softmax policy's logits.
    """
    logits = torch.zeros_like(rewards)

    def judge(state: int, action: int) -> float:
        policy = logits.softmax(-1)
        values = policy_values(transitions, rewards, policy, gamma=GAMMA)
        advantage = advantage_function(action_values(transitions, rewards, values, gamma=GAMMA), policy)[state, action]
        return float(advantage.sign()) if abs(float(advantage)) > 0.01 else 0.0

    def learn(state: int, action: int, feedback: float) -> None:
        score = -logits[state].softmax(-1)  # ∇ log π(a|s) in the logits of this state
        score[action] += 1.0
        logits[state] += learning_rate * coach_update(torch.tensor([feedback], dtype=score.dtype), score[None])[0]

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
    """Let the learner act, be judged and learn, step by step; return its policies after ``counts`` judged actions."""
    absorbing = (transitions.diagonal(dim1=0, dim2=2) == 1.0).all(0)  # (S,): absorbing states
    policies, state, num_steps = [], torch.multinomial(start, 1, generator=rng), 0
    for count in range(1, counts[-1] + 1):
        action = act(policy(), state, rng)
        label = judge(int(state), int(action))
        learn(int(state), int(action), -label if float(torch.rand(1, generator=rng)) < SLIP_OF_THE_FINGER else label)
        state, num_steps = move(transitions, state, action, rng), num_steps + 1
        if num_steps == PATIENCE or bool(absorbing[state]):
            state, num_steps = torch.multinomial(start, 1, generator=rng), 0
        if count in counts:
            policies.append(policy().clone())
    return torch.stack(policies)


# -- imitating an expert -----------------------------------------------------------------------------------------


def visited(
    transitions: Tensor, policy: Tensor, start: Tensor, episodes: int, rng: torch.Generator, *, steps: int = PATIENCE
) -> set[int]:
    """Return the states in which the policy acts in ``episodes`` sampled episodes of ``steps`` steps."""
    states, visited_states = torch.multinomial(start, episodes, replacement=True, generator=rng), set()
    for _ in range(steps):
        visited_states.update(states.tolist())
        states = move(transitions, states, act(policy, states, rng), rng)
    return visited_states


def clone(expert: Tensor, shown: Iterable[int]) -> Tensor:
    """Return a policy ``(S, A)`` that copies the ``expert (S, A)`` in the states ``shown`` and is uniform elsewhere."""
    policy = torch.full_like(expert, 1.0 / expert.shape[1])
    for state in shown:
        policy[state] = expert[state]
    return policy


def clone_and_correct(
    transitions: Tensor, expert: Tensor, start: Tensor, episodes: int, rng: torch.Generator
) -> Tensor:
    """Clone the expert's actions in states that the *learner* visits; repeat for ``episodes`` episodes (as DAgger)."""
    visited_states: set[int] = set()
    for _ in range(episodes):
        visited_states |= visited(transitions, clone(expert, visited_states), start, 1, rng)
    return clone(expert, visited_states)


def plan(transitions: Tensor, cell_values: Tensor, *, gamma: float = GAMMA) -> Tensor:
    """Return the optimal policy ``(S, A)`` when a step's reward is the value ``(S,)`` of the cell where it ends."""
    return greedy_policy(best_action_values(transitions, transitions @ cell_values, gamma=gamma))
