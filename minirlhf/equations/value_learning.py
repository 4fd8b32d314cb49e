"""Learning values from samples: one-step and n-step targets, exploration, bandits.

Transitions are rows: ``rewards (N,)``, ``terminated (N,)`` True if the next state is terminal, action values ``(N, A)``
of the next states. A target is ``(N,)``. It bootstraps from the value of the next state unless that state is terminal;
values of terminal states are ignored. An episode truncated by a time limit has *not* terminated, so the target must
bootstrap from its last state. Bandits have ``K`` arms.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from minirlhf.core.equation import equation
from minirlhf.core.errors import ArgumentError
from minirlhf.core.validate import (
    POSITIVE,
    UNIT,
    Arguments,
    Rule,
    boolean,
    require_finite,
    require_positive,
    shape,
    takes,
)

_STEP: dict[str, Rule | str] = {"rewards": "N", "terminated": boolean("N"), "gamma": UNIT}

# -- targets -------------------------------------------------------------------------------------------------------


@takes(**_STEP, next_values=shape("N"))
@equation("eq:td-target", source='Sutton (1988), "Learning to predict by the methods of temporal differences".')
def td_target(rewards: Tensor, next_values: Tensor, terminated: Tensor, *, gamma: float) -> Tensor:
    """TD(0) target r + γ V(s'), without the second term if s' is terminal."""
    bootstrap = next_values.masked_fill(terminated, 0.0)
    require_finite(next_values=bootstrap)
    return rewards + gamma * bootstrap


@takes(rewards="N n", bootstrap="N", gamma=UNIT)
@equation("eq:n-step-target", source='Watkins (1989), "Learning from delayed rewards".')
def n_step_target(rewards: Tensor, bootstrap: Tensor, *, gamma: float) -> Tensor:
    """n-step TD target Σ_{k<n} γ^k r_k + γ^n V(s_n). n = 1 is TD(0); n = the episode length is Monte Carlo.

    Rewards after the end of an episode are 0. The bootstrap is V(s_n), or 0 if the episode has ended by then.
    """
    target = bootstrap
    for k in reversed(range(rewards.shape[1])):
        target = rewards[:, k] + gamma * target
    return target


@takes(**_STEP, next_action_values=shape("N A"), next_actions=shape("N"))
@equation("eq:sarsa", source='Rummery and Niranjan (1994), "On-line Q-learning using connectionist systems".')
def sarsa_target(
    rewards: Tensor, next_action_values: Tensor, next_actions: Tensor, terminated: Tensor, *, gamma: float
) -> Tensor:
    """Sarsa target r + γ Q(s', a') with the next action a' that the policy took, an integer: on-policy."""
    chosen = _pick(next_action_values, next_actions.masked_fill(terminated, 0))
    return td_target(rewards, chosen, terminated, gamma=gamma)


@takes(**_STEP, next_action_values=shape("N A"))
@equation("eq:q-learning", source='Watkins and Dayan (1992), "Q-learning".')
def q_learning_target(rewards: Tensor, next_action_values: Tensor, terminated: Tensor, *, gamma: float) -> Tensor:
    """Q-learning target r + γ max_a' Q(s', a'), which does not depend on the next action taken: off-policy.

    With the action values of the target network it is the target of DQN.
    """
    return td_target(rewards, next_action_values.amax(-1), terminated, gamma=gamma)


@takes(**_STEP, next_action_values=shape("N A"), target_action_values=shape("N A"))
@equation(
    "eq:double-dqn",
    source='van Hasselt, Guez and Silver (2016), "Deep reinforcement learning with double Q-learning".',
)
def double_dqn_target(
    rewards: Tensor, next_action_values: Tensor, target_action_values: Tensor, terminated: Tensor, *, gamma: float
) -> Tensor:
    """Double DQN target r + γ Q_target(s', argmax_a' Q(s', a')): Q, the online network, selects.

    The maximum of noisy values overestimates on average. If the two networks have independent noise, the value of the
    selected action does not.
    """
    chosen = _pick(target_action_values, next_action_values.argmax(-1))
    return td_target(rewards, chosen, terminated, gamma=gamma)


@takes(weights="D", features="S D", transitions="S S", rewards="S", visits="S", gamma=UNIT, step_size=POSITIVE)
@equation(
    "eq:linear-td",
    source='Sutton and Barto (2018), "Reinforcement Learning", equation 9.7; Tsitsiklis and Van Roy (1997), "An '
    'analysis of temporal-difference learning with function approximation", for when it converges.',
)
def expected_linear_td_step(
    weights: Tensor,
    features: Tensor,
    transitions: Tensor,
    rewards: Tensor,
    visits: Tensor,
    *,
    gamma: float,
    step_size: float,
) -> Tensor:
    """Expected TD(0) step on values V(s) = w·φ(s): w + η Σ_s d(s) [r(s) + γ Σ_s' P(s'|s) V(s') − V(s)] φ(s).

    No gradient runs through the target. Repeated steps converge if ``visits`` is proportional to how
    often the chain itself visits the states (its stationary distribution, or the expected visits per episode) and the
    step size is small. With other ``visits`` they may diverge for every step size.

    Args:
        transitions: (S, S); the row of a terminal state is 0, because its value is 0.
        visits: (S,), the fraction of updates at each state.
    Returns:
        The new weights (D,).
    """
    values = features @ weights  # (S,)
    errors = rewards + gamma * transitions @ values - values
    return weights + step_size * (visits * errors) @ features


# -- exploration and bandits ---------------------------------------------------------------------------------------


@takes(action_values="... A", epsilon=UNIT)
@equation("eq:epsilon-greedy", source='Sutton and Barto (2018), "Reinforcement Learning", section 2.2.')
def epsilon_greedy(action_values: Tensor, *, epsilon: float) -> Tensor:
    """ε-greedy probabilities ``(..., A)``: with probability ε uniform over all actions, otherwise greedy.

    Ties are broken in favour of the first action.
    """
    num_actions = action_values.shape[-1]
    best = torch.nn.functional.one_hot(action_values.argmax(-1), num_actions).to(action_values.dtype)
    return epsilon / num_actions + (1 - epsilon) * best


def _counts(name: str, counts: Tensor, arguments: Arguments) -> Tensor:
    shape("... K").apply(name, counts, arguments)
    if not bool((counts >= 0).all()):
        raise ArgumentError(
            f"{name} of shape {tuple(counts.shape)} holds a negative number or NaN", argument=name, problem="negative"
        )
    return counts


COUNTS = Rule("(..., K), ≥ 0", _counts)


@takes(means=shape("... K"), counts=COUNTS, step=POSITIVE, c=POSITIVE)
@equation(
    "eq:ucb",
    source='Auer, Cesa-Bianchi and Fischer (2002), "Finite-time analysis of the multiarmed bandit problem" (UCB1: '
    "c = √2).",
)
def ucb_scores(means: Tensor, counts: Tensor, *, step: int, c: float = math.sqrt(2)) -> Tensor:
    """Upper confidence bounds ``(..., K)``: mean + c √(ln t / n). Pull the arm with the highest.

    n is the number of pulls of the arm and t, ``step``, the total number of pulls. An arm with n = 0 gets +inf. For
    rewards in [0, 1], an arm's true mean exceeds its score with probability at most t^(−2c²) (Hoeffding's inequality).
    """
    bonus = c * torch.sqrt(math.log(step) / counts.clamp(min=1))
    return torch.where(counts > 0, means + bonus, torch.full_like(means, math.inf))


@takes(means="K")
@equation("eq:regret", source='Lai and Robbins (1985), "Asymptotically efficient adaptive allocation rules".')
def regret(means: Tensor, actions: Tensor) -> Tensor:
    """Cumulative (pseudo-)regret Σ_{s≤t} (μ* − μ_{a_s}): the loss against always pulling the best arm.

    ``actions (..., T)`` are integers. The regret uses the true means, not the sampled rewards.
    """
    _require_actions(actions, len(means), "actions")
    return (means.max() - means[actions]).cumsum(-1)


@takes(successes=COUNTS, failures=COUNTS)
@equation(
    "eq:beta-posterior",
    source='Thompson (1933), "On the likelihood that one unknown probability exceeds another".',
)
def beta_posterior(
    successes: Tensor, failures: Tensor, *, prior: tuple[float, float] = (1.0, 1.0)
) -> tuple[Tensor, Tensor]:
    """Posterior Beta(α + successes, β + failures) of Bernoulli arms, for Thompson sampling.

    Draw one sample per arm and pull the arm with the highest sample. The prior (α, β) is positive; (1, 1) is uniform.
    """
    require_positive(**{"prior[0]": prior[0], "prior[1]": prior[1]})
    return prior[0] + successes, prior[1] + failures


# -- helpers -------------------------------------------------------------------------------------------------------


def _pick(action_values: Tensor, actions: Tensor) -> Tensor:
    _require_actions(actions, action_values.shape[-1], "next_actions")
    return action_values.gather(-1, actions[:, None]).squeeze(-1)


def _require_actions(actions: Tensor, num_actions: int, name: str) -> None:
    if actions.is_floating_point() or actions.dtype == torch.bool:
        raise ArgumentError(
            f"{name} of shape {tuple(actions.shape)} has dtype {actions.dtype}; expected integers",
            argument=name,
            value=actions.dtype,
            problem="dtype",
        )
    if actions.numel() and not 0 <= int(actions.min()) <= int(actions.max()) < num_actions:
        raise ArgumentError(
            f"{name} of shape {tuple(actions.shape)} contains an action outside 0 .. {num_actions - 1}",
            argument=name,
            expected=(0, num_actions - 1),
        )
