"""Learning values from samples: one-step and n-step targets, exploration, bandits.

Transitions come as rows: ``rewards (N,)``, ``terminated (N,)`` True where the next state is terminal. A target bootstraps
from the value of the next state unless there is none. An episode cut off by a time limit has *not* terminated: its last
state has a future, and the target must say so.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from minirlhf.core.validate import require_finite, require_positive, require_range, require_shapes

# -- targets -------------------------------------------------------------------------------------------------------


def td_target(rewards: Tensor, next_values: Tensor, terminated: Tensor, *, gamma: float) -> Tensor:
    """TD(0) target r + γ V(s'), without the second term where s' is terminal.

    Label: eq:td-target
    Source: Sutton (1988), "Learning to predict by the methods of temporal differences".
    Args: rewards ``(N,)``; next_values ``(N,)``, anything where terminated; terminated ``(N,)`` bool; gamma in [0, 1].
    Returns: ``(N,)``.
    Raises: ValueError if shapes differ, terminated is not bool, a value that counts is not finite, or gamma is outside [0, 1].
    """
    require_shapes(rewards=(rewards, "N"), next_values=(next_values, "N"), terminated=(terminated, "N"))
    return _target(rewards, next_values, terminated, gamma)


def n_step_target(rewards: Tensor, bootstrap: Tensor, *, gamma: float) -> Tensor:
    """n-step TD target Σ_{k<n} γ^k r_k + γ^n V(s_n). One step is TD(0), all steps Monte Carlo.

    Label: eq:n-step-target
    Source: Watkins (1989), "Learning from delayed rewards".
    Args: rewards ``(N, n)``, zeros after the end of an episode; bootstrap ``(N,)``, V(s_n), and 0 where the episode has
        ended by then; gamma in [0, 1].
    Returns: ``(N,)``.
    Raises: ValueError if shapes differ, a value is not finite, or gamma is outside [0, 1].
    """
    require_shapes(rewards=(rewards, "N n"), bootstrap=(bootstrap, "N"))
    require_finite(rewards=rewards, bootstrap=bootstrap)
    require_range(0.0, 1.0, gamma=gamma)
    target = bootstrap
    for k in reversed(range(rewards.shape[1])):
        target = rewards[:, k] + gamma * target
    return target


def sarsa_target(
    rewards: Tensor, next_action_values: Tensor, next_actions: Tensor, terminated: Tensor, *, gamma: float
) -> Tensor:
    """Sarsa target r + γ Q(s', a') with the action a' that the policy took next: on-policy.

    Label: eq:sarsa
    Source: Rummery and Niranjan (1994), "On-line Q-learning using connectionist systems".
    Args: rewards ``(N,)``; next_action_values ``(N, A)``; next_actions ``(N,)`` integers, anything
        where terminated; terminated ``(N,)``; gamma.
    Returns: ``(N,)``.
    Raises: ValueError as :func:`td_target`.
    """
    require_shapes(
        rewards=(rewards, "N"),
        next_action_values=(next_action_values, "N A"),
        next_actions=(next_actions, "N"),
        terminated=(terminated, "N"),
    )
    _require_bool(terminated)
    return _target(rewards, _pick(next_action_values, next_actions.masked_fill(terminated, 0)), terminated, gamma)


def q_learning_target(rewards: Tensor, next_action_values: Tensor, terminated: Tensor, *, gamma: float) -> Tensor:
    """Q-learning target r + γ max_a' Q(s', a'), whatever action was taken next: off-policy. DQN's target too.

    Label: eq:q-learning
    Source: Watkins and Dayan (1992), "Q-learning".
    Args: rewards ``(N,)``; next_action_values ``(N, A)``, for DQN of the target network; terminated ``(N,)``; gamma.
    Returns: ``(N,)``.
    Raises: ValueError as :func:`td_target`.
    """
    require_shapes(rewards=(rewards, "N"), next_action_values=(next_action_values, "N A"), terminated=(terminated, "N"))
    return _target(rewards, next_action_values.amax(-1), terminated, gamma)


def double_dqn_target(
    rewards: Tensor, next_action_values: Tensor, target_action_values: Tensor, terminated: Tensor, *, gamma: float
) -> Tensor:
    """Double DQN target r + γ Q_target(s', argmax_a' Q(s', a')): one network chooses, the other evaluates.

    The maximum of noisy values is too high on average. With independent noise in the two, the value of the choice is not.

    Label: eq:double-dqn
    Source: van Hasselt, Guez and Silver (2016), "Deep reinforcement learning with double Q-learning".
    Args: rewards ``(N,)``; next_action_values ``(N, A)`` of the online network; target_action_values ``(N, A)`` of the
        target network; terminated ``(N,)``; gamma in [0, 1].
    Returns: ``(N,)``.
    Raises: ValueError as :func:`td_target`.
    """
    require_shapes(
        rewards=(rewards, "N"),
        next_action_values=(next_action_values, "N A"),
        target_action_values=(target_action_values, "N A"),
        terminated=(terminated, "N"),
    )
    return _target(rewards, _pick(target_action_values, next_action_values.argmax(-1)), terminated, gamma)


# -- exploration and bandits ---------------------------------------------------------------------------------------


def epsilon_greedy(action_values: Tensor, *, epsilon: float) -> Tensor:
    """ε-greedy probabilities: with ε a uniformly random action (the best one included), otherwise the best one.

    Label: eq:epsilon-greedy
    Source: Sutton and Barto (2018), "Reinforcement Learning", section 2.2.
    Args: action_values ``(..., A)``; the first action wins among equals; epsilon in [0, 1].
    Returns: probabilities ``(..., A)``.
    Raises: ValueError if action_values is not finite or epsilon is outside [0, 1].
    """
    if action_values.dim() == 0:
        raise ValueError("action_values has shape (); expected (..., A)")
    require_finite(action_values=action_values)
    require_range(0.0, 1.0, epsilon=epsilon)
    num_actions = action_values.shape[-1]
    best = torch.nn.functional.one_hot(action_values.argmax(-1), num_actions).to(action_values.dtype)
    return epsilon / num_actions + (1 - epsilon) * best


def ucb_scores(means: Tensor, counts: Tensor, *, step: int, c: float = math.sqrt(2)) -> Tensor:
    """Upper confidence bounds: mean + c √(ln t / n). Pull the arm with the highest.

    For rewards in [0, 1], Hoeffding's inequality bounds the chance that an arm's true mean is above its score by t^(−2c²).

    Label: eq:ucb
    Source: Auer, Cesa-Bianchi and Fischer (2002), "Finite-time analysis of the multiarmed bandit problem" (UCB1: c = √2).
    Args: means ``(..., K)`` observed; counts ``(..., K)``, how often each arm was pulled; step t ≥ 1, pulls in all; c > 0.
    Returns: ``(..., K)``; +inf for an arm that was never pulled.
    Raises: ValueError if shapes differ, a count is negative, step < 1 or c ≤ 0.
    """
    _require_same_arms(means=means, counts=counts)
    require_positive(step=step, c=c)
    if not bool((counts >= 0).all()):
        raise ValueError(f"counts of shape {tuple(counts.shape)} holds a negative number or NaN")
    tried = counts > 0
    bonus = c * torch.sqrt(math.log(step) / counts.clamp(min=1))
    return torch.where(tried, means + bonus, torch.full_like(means, math.inf))


def regret(means: Tensor, actions: Tensor) -> Tensor:
    """Cumulative (pseudo-)regret Σ_{s≤t} (μ* − μ_{a_s}): what was lost by not pulling the best arm every time.

    It is measured with the true means, not with the rewards that happened to be drawn.

    Label: eq:regret
    Source: Lai and Robbins (1985), "Asymptotically efficient adaptive allocation rules".
    Args: means ``(K,)``, true; actions ``(..., T)`` integers.
    Returns: ``(..., T)``, non-decreasing.
    Raises: ValueError if means is not ``(K,)`` or not finite, or an action is no arm.
    """
    require_shapes(means=(means, "K"))
    require_finite(means=means)
    _require_actions(actions, len(means), "actions")
    return (means.max() - means[actions]).cumsum(-1)


def beta_posterior(
    successes: Tensor, failures: Tensor, *, prior: tuple[float, float] = (1.0, 1.0)
) -> tuple[Tensor, Tensor]:
    """Posterior Beta(α + successes, β + failures) of a Bernoulli arm; Thompson sampling draws from it and pulls the best.

    Label: eq:beta-posterior
    Source: Thompson (1933), "On the likelihood that one unknown probability exceeds another".
    Args: successes ``(..., K)``; failures ``(..., K)``; prior (α, β), both > 0; (1, 1) is uniform.
    Returns: the two parameters, ``(..., K)`` each.
    Raises: ValueError if shapes differ, a count is negative, or the prior is not positive.
    """
    _require_same_arms(successes=successes, failures=failures)
    require_positive(**{"prior[0]": prior[0], "prior[1]": prior[1]})
    for name, counts in (("successes", successes), ("failures", failures)):
        if not bool((counts >= 0).all()):
            raise ValueError(f"{name} of shape {tuple(counts.shape)} holds a negative number or NaN")
    return prior[0] + successes, prior[1] + failures


# -- helpers -------------------------------------------------------------------------------------------------------


def _target(rewards: Tensor, next_values: Tensor, terminated: Tensor, gamma: float) -> Tensor:
    """r + γ · next value where the episode goes on; what stands at a terminal state does not matter."""
    require_range(0.0, 1.0, gamma=gamma)
    _require_bool(terminated)
    future = next_values.masked_fill(terminated, 0.0)
    require_finite(rewards=rewards, next_values=future)
    return rewards + gamma * future


def _require_same_arms(**tensors: Tensor) -> None:
    (_, first), (name, second) = tensors.items()
    if first.dim() == 0 or first.shape != second.shape:
        raise ValueError(f"{name} has shape {tuple(second.shape)}; expected (..., K) as {tuple(first.shape)}")


def _pick(action_values: Tensor, actions: Tensor) -> Tensor:
    _require_actions(actions, action_values.shape[-1], "next_actions")
    return action_values.gather(-1, actions[:, None]).squeeze(-1)


def _require_bool(terminated: Tensor) -> None:
    if terminated.dtype != torch.bool:
        raise ValueError(f"terminated of shape {tuple(terminated.shape)} has dtype {terminated.dtype}; expected bool")


def _require_actions(actions: Tensor, num_actions: int, name: str) -> None:
    if actions.is_floating_point() or actions.dtype == torch.bool:
        raise ValueError(f"{name} of shape {tuple(actions.shape)} has dtype {actions.dtype}; expected integers")
    if actions.numel() and not 0 <= int(actions.min()) <= int(actions.max()) < num_actions:
        raise ValueError(f"{name} of shape {tuple(actions.shape)} holds an action outside 0 .. {num_actions - 1}")
