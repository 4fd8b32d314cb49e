"""Gradient estimators in a world whose episodes can all be listed: their means, biases and variances are sums, not samples."""

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
    """Up a hill: "rest" stays, and slides back with probability .2; "climb" goes up with .6, stays with .3 and slides back with .1.

    Each step costs 1; the top, which is the last state and the end, earns 6. Episodes begin at the bottom.
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
    """All ``N`` possible episodes of at most ``H`` steps, under a softmax policy with logits ``theta (S, A)``; ``D = S·A``.

    Attributes:
        theta: ``(S, A)``.
        probs: ``(N,)``, the probability of each.
        mask: ``(N, H)``, its steps.
        rewards, values, action_values: ``(N, H)``; the values are true, with the steps that remain.
        scores: ``(N, H, D)``, ∇ log π of its actions.
    """

    theta: Tensor
    probs: Tensor
    mask: Tensor
    rewards: Tensor
    values: Tensor
    action_values: Tensor
    scores: Tensor

    def choices(self) -> dict[str, Tensor]:
        """The six Ψ of the chapter by name, ``(N, H)`` each."""
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
        """What each episode would say the gradient is, Σ_t Ψ_t ∇log π: ``(N, H) -> (N, D)``."""
        return pg.trajectory_score(psi[..., None] * self.scores, self.mask)

    def gradient(self) -> Tensor:
        """The true gradient ``(D,)``."""
        return pg.policy_gradient(self.probs, self.scores, self.action_values, self.mask)

    def bias_and_variance(self, psi: Tensor) -> tuple[float, float]:
        """Squared length of the bias, and variance, of one episode's estimate."""
        estimates = self.estimates(psi)
        bias = self.probs @ estimates - self.gradient()
        return float(bias @ bias), float(pg.gradient_variance(self.probs, estimates))

    def sampled_variance(self, psi: Tensor, *, count: int, rng: torch.Generator) -> float:
        """The variance as ``count`` episodes that are really drawn show it."""
        drawn = self.estimates(psi)[torch.multinomial(self.probs, count, replacement=True, generator=rng)]
        return float(drawn.var(0).sum())


def list_episodes(process: Process, theta: Tensor, *, horizon: int) -> Listed:
    """All episodes of a process that can happen within ``horizon`` steps.

    Raises:
        ValueError: logits of another shape, a horizon that is not positive, or more than a million sequences to go through.
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
    # After the end every action does nothing, and a policy may still take any: these are one episode.
    actions = torch.where(process.terminal[states[:, :-1]], 0, actions)
    told, which = torch.cat([states, actions], 1).unique(dim=0, return_inverse=True)
    probs = torch.zeros(len(told), dtype=probs.dtype).index_add(0, which, probs)
    states, actions = told[:, : horizon + 1], told[:, horizon + 1 :]
    before, after, rewards = states[:, :-1], states[:, 1:], process.expected_rewards
    left = [
        exact_mdp.state_values(process.transitions, rewards, policy, gamma=1.0, steps=k) for k in range(horizon + 1)
    ]
    value = torch.stack(left[:0:-1])  # (H, S), with H, H − 1, … steps left
    action_value = torch.stack([rewards + process.transitions @ following for following in left[-2::-1]])
    time = torch.arange(horizon)
    mask = ~process.terminal[before]
    own = torch.eye(theta.numel(), dtype=theta.dtype).view(*theta.shape, -1)  # ∂logits(s)/∂θ, (S, A, D)
    score = own - torch.einsum("sa,sad->sd", policy, own)[:, None]  # ∇log π(a|s)
    return Listed(
        theta=theta,
        probs=probs,
        mask=mask,
        rewards=torch.where(mask, process.rewards[before, actions, after], 0.0),
        values=value[time, before],
        action_values=action_value[time, before, actions],
        scores=score[before, actions],
    )
