"""Prediction: what is a policy worth, from episodes alone.

The learners here see episodes, not tables. ``N`` of them learn side by side, each from its own; so a band over learners comes
for free.
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
    """Value of a state as the mean of the returns that followed its visits.

    Args:
        episodes: all of them terminated: the return of an episode that was cut off is not known.
        first_visit: count only the first visit of an episode to a state: independent samples, no bias. Otherwise all visits.

    Returns:
        values ``(S,)``, NaN for a state never visited, and the number of visits counted ``(S,)``.

    Raises:
        ValueError: an episode that was cut off, or gamma outside [0, 1].
    """
    if not bool(episodes.terminated.all()):
        cut = int((~episodes.terminated).sum())
        raise ArgumentError(
            f"{cut} of {len(episodes.terminated)} episodes were cut off by the time limit; their returns are unknown",
            argument="episodes",
            value=cut,
            problem="cut off",
        )
    total, visits = torch.zeros(num_states, dtype=torch.float64), torch.zeros(num_states, dtype=torch.float64)
    to_go = returns_to_go(episodes.rewards, episodes.mask, gamma=gamma)  # (N, T)
    fresh = torch.ones(len(episodes.states), num_states, dtype=torch.bool)  # (N, S), not yet visited
    for t in range(episodes.mask.shape[1]):
        rows = episodes.mask[:, t]
        if first_visit:
            rows = rows & fresh.gather(1, episodes.states[:, t : t + 1])[:, 0]
        here = episodes.states[:, t]
        total.index_add_(0, here[rows], to_go[rows, t])
        visits.index_add_(0, here[rows], torch.ones(int(rows.sum()), dtype=torch.float64))
        fresh.scatter_(1, here[:, None], False)
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

    A policy that does not learn from the values acts the same whenever the updates are made, so each episode is walked to its
    end first and then learned from in order, with the same result as learning on the way.

    Args:
        policy: ``(S, A)``, the policy to be judged.
        n: 1 is TD(0); None waits for the end, which is Monte Carlo with a constant step size.
        initial: first guess for every state that is not terminal.
        limit_is_an_end: take an episode that was cut off for one that ended. That is a mistake; it is here to be looked at.

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
        walk = sample_episodes(process, policy, count=learners, rng=rng, time_limit=time_limit)
        length, width = walk.mask.sum(1), walk.mask.shape[1]
        ended = walk.terminated | limit_is_an_end
        last = torch.where(ended, 0.0, values[rows, walk.states[:, -1]])
        to_go = returns_to_go(walk.rewards, walk.mask, gamma=gamma, bootstrap=last)  # (N, T)
        for t in range(width):
            reach = width if n is None else min(t + n, width)
            nothing_left = ended & (length <= reach)
            believed = values[rows, walk.states[:, reach]]
            if n is None:
                target = to_go[:, t]
            elif n == 1:
                target = td_target(walk.rewards[:, t], believed, nothing_left, gamma=gamma)
            else:
                bootstrap = torch.where(nothing_left, 0.0, believed)
                target = n_step_target(walk.rewards[:, t:reach], bootstrap, gamma=gamma)
            here = walk.states[:, t]
            error = target - values[rows, here]
            values[rows, here] += torch.where(walk.mask[:, t], alpha * error, 0.0)
        history.append(values.clone())
    return torch.stack(history)
