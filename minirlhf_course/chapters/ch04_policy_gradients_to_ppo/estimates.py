"""Gradient estimators in an environment whose episodes can all be listed: exact means, biases and variances."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from minirlhf.core import exact_mdp
from minirlhf.core.errors import ArgumentError
from minirlhf.core.validate import require_positive, require_shapes
from minirlhf.equations import policy_gradient as pg
from minirlhf.equations import returns
from minirlhf.tabular.process import Process, from_outcomes


def hill(num_ledges: int = 3) -> Process:
    """A hill to climb: "rest" stays (.8) or slides back (.2); "climb" goes up (.6), stays (.3) or slides back (.1).

    Each step has reward −1. Reaching the top, the last and only terminal state, adds 6. Episodes begin at the bottom.
    """
    require_positive(num_ledges=num_ledges)
    outcomes = {}
    for ledge in range(num_ledges):
        below, up = max(0, ledge - 1), ledge + 1
        outcomes[ledge, 0] = [(0.8, ledge, -1.0), (0.2, below, -1.0)]
        outcomes[ledge, 1] = [(0.6, up, 5.0 if up == num_ledges else -1.0), (0.3, ledge, -1.0), (0.1, below, -1.0)]
    return from_outcomes(
        outcomes,
        num_states=num_ledges + 1,
        actions=("rest", "climb"),
        start=(1.0, *[0.0] * num_ledges),
        terminal=(num_ledges,),
    )


@dataclass(frozen=True)
class Listed:
    """All ``N`` possible episodes within ``H`` steps under a softmax policy of logits ``theta (S, A)``; ``D = S·A``.

    Attributes:
        theta: ``(S, A)``.
        probs: ``(N,)``, the probability of each episode.
        mask: ``(N, H)``, True for the steps that each episode takes.
        rewards, values, action_values: ``(N, H)``; the values are exact, for the number of steps that remain.
        scores: ``(N, H, D)``, ∇ log π of the actions taken.
    """

    theta: Tensor
    probs: Tensor
    mask: Tensor
    rewards: Tensor
    values: Tensor
    action_values: Tensor
    scores: Tensor

    def choices(self) -> dict[str, Tensor]:
        """Return the six choices of Ψ of the chapter by name, ``(N, H)`` each."""
        to_go = returns.returns_to_go(self.rewards, self.mask)
        return {
            "total return": returns.total_return(self.rewards, self.mask),
            "reward-to-go": to_go,
            "reward-to-go − V": returns.subtract_baseline(to_go, self.values, self.mask),
            "Q": self.action_values,
            "advantage": self.action_values - self.values,
            "TD residual": returns.td_residuals(self.rewards, self.values, self.mask),
        }

    def estimates(self, psi: Tensor) -> Tensor:
        """Return the gradient estimate from each single episode, Σ_t Ψ_t ∇log π: ``(N, H) -> (N, D)``."""
        return pg.trajectory_score(psi[..., None] * self.scores, self.mask)

    def gradient(self) -> Tensor:
        """Return the exact gradient ``(D,)``."""
        return pg.policy_gradient(self.probs, self.scores, self.action_values, self.mask)

    def bias_and_variance(self, psi: Tensor) -> tuple[float, float]:
        """Return the squared norm of the bias, and the variance, of a one-episode estimate."""
        estimates = self.estimates(psi)
        bias = self.probs @ estimates - self.gradient()
        return float(bias @ bias), float(pg.gradient_variance(self.probs, estimates))

    def sampled_variance(self, psi: Tensor, *, count: int, rng: torch.Generator) -> float:
        """Return the sample variance of the estimates from ``count`` sampled episodes."""
        samples = self.estimates(psi)[torch.multinomial(self.probs, count, replacement=True, generator=rng)]
        return float(samples.var(0).sum())


def list_episodes(process: Process, theta: Tensor, *, horizon: int) -> Listed:
    """List all episodes of a process that are possible within ``horizon`` steps.

    Raises:
        ValueError: the logits have another shape, the horizon is not positive, or there would be more than a million
            sequences to check.
    """
    require_shapes(rewards=(process.expected_rewards, "S A"), theta=(theta, "S A"))
    require_positive(horizon=horizon)
    count = process.num_states * (process.num_states * process.num_actions) ** horizon
    if count > 1_000_000:
        raise ArgumentError(
            f"horizon = {horizon} gives {count} sequences of states and actions; expected a million at most",
            argument="horizon",
            value=horizon,
        )
    policy = theta.softmax(-1)
    paths = exact_mdp.trajectories(process.num_states, process.num_actions, horizon)
    probs = exact_mdp.probabilities(paths, process.start, process.transitions, policy)
    states, actions, probs = paths.states[probs > 0], paths.actions[probs > 0], probs[probs > 0]
    # After the end no action has an effect, so sequences that differ only in those actions are the same episode.
    actions = torch.where(process.terminal[states[:, :-1]], 0, actions)
    episodes, episode_index = torch.cat([states, actions], 1).unique(dim=0, return_inverse=True)
    probs = torch.zeros(len(episodes), dtype=probs.dtype).index_add(0, episode_index, probs)
    states, actions = episodes[:, : horizon + 1], episodes[:, horizon + 1 :]
    current, successors, rewards = states[:, :-1], states[:, 1:], process.expected_rewards
    k_step_values = [
        exact_mdp.state_values(process.transitions, rewards, policy, gamma=1.0, steps=k) for k in range(horizon + 1)
    ]
    value = torch.stack(k_step_values[:0:-1])  # (H, S), with H, H − 1, … steps left
    action_value = torch.stack([rewards + process.transitions @ next_values for next_values in k_step_values[-2::-1]])
    timesteps = torch.arange(horizon)
    mask = ~process.terminal[current]
    logit_grads = torch.eye(theta.numel(), dtype=theta.dtype).view(*theta.shape, -1)  # ∂logits(s)/∂θ, (S, A, D)
    score = logit_grads - torch.einsum("sa,sad->sd", policy, logit_grads)[:, None]  # ∇log π(a|s)
    return Listed(
        theta=theta,
        probs=probs,
        mask=mask,
        rewards=torch.where(mask, process.rewards[current, actions, successors], 0.0),
        values=value[timesteps, current],
        action_values=action_value[timesteps, current, actions],
        scores=score[current, actions],
    )
