"""Prediction: estimate the values of a policy from episodes alone.

The learners here get episodes, not tables. ``N`` learners learn in parallel, each from its own episodes, so their
spread can be plotted as a band.
"""

from __future__ import annotations

import torch
from torch import Tensor

from minirlhf.core.errors import ArgumentError
from minirlhf.core.validate import require_positive, require_range
from minirlhf.equations.returns import returns_to_go
from minirlhf.equations.value_learning import n_step_target, td_target
from minirlhf.tabular.process import Episodes, Process, sample_episodes


def monte_carlo(
    episodes: Episodes, *, num_states: int, gamma: float, first_visit: bool = True
) -> tuple[Tensor, Tensor]:
    """Estimate the value of a state as the mean of the returns that followed its visits.

    Args:
        episodes: terminated episodes only, because the return of a truncated episode is unknown.
        first_visit: count only the first visit of an episode to a state: independent samples, no bias. Otherwise all visits.

    Returns:
        values ``(S,)``, NaN for a state never visited, and the number of visits counted ``(S,)``.

    Raises:
        ValueError: a truncated episode, or gamma outside [0, 1].
    """
    if not bool(episodes.terminated.all()):
        count = int((~episodes.terminated).sum())
        raise ArgumentError(
            f"{count} of {len(episodes.terminated)} episodes were truncated by the time limit; their returns are unknown",
            argument="episodes",
            value=count,
            problem="cut off",
        )
    total, visits = torch.zeros(num_states, dtype=torch.float64), torch.zeros(num_states, dtype=torch.float64)
    to_go = returns_to_go(episodes.rewards, episodes.mask, gamma=gamma)  # (N, T)
    unvisited = torch.ones(len(episodes.states), num_states, dtype=torch.bool)  # (N, S), not yet visited
    for t in range(episodes.mask.shape[1]):
        rows = episodes.mask[:, t]
        if first_visit:
            rows = rows & unvisited.gather(1, episodes.states[:, t : t + 1])[:, 0]
        states = episodes.states[:, t]
        total.index_add_(0, states[rows], to_go[rows, t])
        visits.index_add_(0, states[rows], torch.ones(int(rows.sum()), dtype=torch.float64))
        unvisited.scatter_(1, states[:, None], False)
    return total / visits, visits


def temporal_difference(
    process: Process,
    policy: Tensor,
    *,
    gamma: float,
    alpha: float,
    episodes: int,
    learners: int,
    rng: torch.Generator,
    n: int | None = 1,
    initial: float = 0.0,
    time_limit: int = 1_000,
    limit_is_an_end: bool = False,
) -> Tensor:
    """n-step TD: move V(s_t) by ``alpha`` towards the n-step target, episode after episode.

    The policy does not depend on the values. So each episode is sampled completely first and its updates are made in
    order afterwards, with the same result as updates during the episode.

    Args:
        policy: ``(S, A)``, the policy to evaluate.
        n: 1 is TD(0); None waits for the end, which is Monte Carlo with a constant step size.
        initial: initial value of every state that is not terminal.
        limit_is_an_end: treat truncated episodes as terminated. This is a mistake, included so that you can see its
            effect.

    Returns:
        ``(episodes + 1, N, S)``, the values of each learner, before the first episode and after each.

    Raises:
        ValueError: gamma or alpha outside [0, 1], a count that is not positive, or a policy that does not fit.
    """
    require_range(0.0, 1.0, gamma=gamma, alpha=alpha)
    require_positive(episodes=episodes, learners=learners, **({} if n is None else {"n": n}))
    values = torch.where(process.terminal, 0.0, initial).to(process.start).expand(learners, -1).clone()
    rows = torch.arange(learners)
    history = [values.clone()]
    for _ in range(episodes):
        batch = sample_episodes(process, policy, count=learners, rng=rng, time_limit=time_limit)
        length, width = batch.mask.sum(1), batch.mask.shape[1]
        ended = batch.terminated | limit_is_an_end
        last = torch.where(ended, 0.0, values[rows, batch.states[:, -1]])
        to_go = returns_to_go(batch.rewards, batch.mask, gamma=gamma, bootstrap=last)  # (N, T)
        for t in range(width):
            reach = width if n is None else min(t + n, width)
            at_end = ended & (length <= reach)
            next_values = values[rows, batch.states[:, reach]]
            if n is None:
                target = to_go[:, t]
            elif n == 1:
                target = td_target(batch.rewards[:, t], next_values, at_end, gamma=gamma)
            else:
                bootstrap = torch.where(at_end, 0.0, next_values)
                target = n_step_target(batch.rewards[:, t:reach], bootstrap, gamma=gamma)
            states = batch.states[:, t]
            error = target - values[rows, states]
            values[rows, states] += torch.where(batch.mask[:, t], alpha * error, 0.0)
        history.append(values.clone())
    return torch.stack(history)
