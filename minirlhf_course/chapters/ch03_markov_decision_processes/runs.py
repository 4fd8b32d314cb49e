"""The runs of chapter 03 with their settings: the notebook shows one seed of each run, the study several seeds."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from minirlhf.control.dqn import Target, train_dqn
from minirlhf.core.randomness import generator, numpy_generator
from minirlhf.equations.value_learning import regret
from minirlhf.tabular import bandits, control, worlds
from minirlhf.tabular.control import TrainingResult
from minirlhf.tabular.prediction import temporal_difference

ARMS = (0.3, 0.4, 0.5, 0.6, 0.7)
STRATEGIES = {
    "greedy": bandits.greedy_with_noise(0.0),
    "ε-greedy, ε = .1": bandits.greedy_with_noise(0.1),
    "UCB, c = √2": bandits.upper_confidence(),
    "UCB, c = ½": bandits.upper_confidence(0.5),
    "Thompson": bandits.thompson(),
}


def prediction_error(n: int | None, alpha: float, seed: int, *, episodes: int = 100, learners: int = 100) -> Tensor:
    """Root mean squared error of n-step TD over the states of a five-cell random walk, ``(episodes + 1, learners)``."""
    process = worlds.random_walk()
    history = temporal_difference(
        process,
        process.uniform_policy(),
        gamma=1.0,
        alpha=alpha,
        n=n,
        episodes=episodes,
        learners=learners,
        rng=generator("ch03", "prediction", seed),
        initial=0.5,
    )
    return (history[:, :, 1:-1] - torch.arange(1, 6) / 6).square().mean(-1).sqrt()


def cut_off_values(limit_is_an_end: bool, seed: int, *, episodes: int = 250) -> Tensor:
    """Values ``(50, 5)`` of 50 TD(0) learners for a five-cell walk whose episodes are truncated after six steps."""
    process = worlds.random_walk()
    history = temporal_difference(
        process,
        process.uniform_policy(),
        gamma=1.0,
        alpha=0.05,
        episodes=episodes,
        learners=50,
        rng=generator("ch03", "limit", seed),
        initial=0.5,
        time_limit=6,
        limit_is_an_end=limit_is_an_end,
    )
    return history[-50:].mean(0)[:, 1:-1]


def cliff(off_policy: bool, seed: int, *, episodes: int = 120) -> TrainingResult:
    """Train thirty learners of Q-learning (``off_policy``) or SARSA in the cliff walk, by default for 120 episodes."""
    learner = control.q_learning if off_policy else control.sarsa
    rng = generator("ch03", "cliff", seed)
    return learner(
        worlds.cliff_walking().process, gamma=1.0, alpha=0.5, epsilon=0.1, episodes=episodes, learners=30, rng=rng
    )


def maze(planning_steps: int, seed: int, *, episodes: int = 20) -> TrainingResult:
    """Train twenty Dyna-Q learners in the maze, by default for 20 episodes; 0 planning steps is Q-learning."""
    settings: dict[str, Any] = {"gamma": 0.95, "alpha": 0.5, "epsilon": 0.1, "episodes": episodes, "learners": 20}
    rng = generator("ch03", "maze", seed)
    if planning_steps == 0:
        return control.q_learning(worlds.maze().process, rng=rng, **settings)
    return control.dyna_q(worlds.maze().process, rng=rng, planning_steps=planning_steps, **settings)


def bandit_regret(strategy: bandits.Strategy, seed: int, *, steps: int = 1_000, players: int = 200) -> Tensor:
    """Regret ``(players, steps)`` on the five arms."""
    means = torch.tensor(ARMS, dtype=torch.float64)
    rng: np.random.Generator = numpy_generator("ch03", "bandit", seed)
    return regret(means, bandits.play(means, strategy, steps=steps, players=players, rng=rng))


def doors(target: Target, seed: int, *, runs: int = 4, updates: int = 300) -> Tensor:
    """Estimates ``(runs,)`` by ``runs`` networks of the action value of entering the hall; the exact value is −.09."""
    process = worlds.many_doors_env()
    hall_values = [
        train_dqn(
            process,
            torch.eye(3, dtype=torch.float64),
            target,
            gamma=0.9,
            updates=updates,
            noise=1.0,
            learning_rate=0.2,
            epsilon=0.5,
            copy_every=50,
            capacity=500,
            hidden=16,
            rng=generator("ch03", "doors", seed, run),
        ).action_values[0, 1:]
        for run in range(runs)
    ]
    return torch.stack(hall_values).mean(-1)
