"""Policy gradients with small networks: rollouts as rows, credit at ends and at cuts, trust regions, and CartPole."""

import gymnasium
import numpy as np
import pytest
import torch
from torch import nn

from minirlhf.control import policy_optimisation as po
from minirlhf.control import trpo
from minirlhf.control.rollouts import Crowd
from minirlhf.control.trpo import trpo_step


class Corridor(gymnasium.Env):
    """Walk right: cell 0 to 3, where it ends; each step earns 1 plus the cell it starts from. Left stays."""

    def __init__(self):
        self.observation_space = gymnasium.spaces.Box(0, 3, (1,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.cell = 0
        return np.array([0], np.float32), {}

    def step(self, action):
        reward = 1.0 + self.cell
        self.cell += int(action)
        return np.array([self.cell], np.float32), reward, self.cell == 3, False, {}


class Always(nn.Module):
    """A policy that nearly always takes one action."""

    def __init__(self, action):
        super().__init__()
        self.logits = torch.where(torch.arange(2) == action, 50.0, -50.0)

    def forward(self, seen):
        return self.logits.expand(len(seen), 2)


class Cell(nn.Module):
    """A critic that says ten times the cell."""

    def forward(self, seen):
        return 10.0 * seen


def cartpole():
    return gymnasium.make("CartPole-v1", disable_env_checker=True)


def test_an_episode_is_a_row():
    rollout = Crowd(Corridor, 1, seed=0).collect(Always(1), 5)
    assert rollout.observations[..., 0].tolist() == [[0, 1, 2], [0, 1, 0]]
    assert rollout.rewards.tolist() == [[1, 2, 3], [1, 2, 0]]
    assert rollout.mask.tolist() == [[True] * 3, [True, True, False]]
    assert rollout.terminated.tolist() == [True, False]
    assert rollout.last.tolist() == [[3.0], [2.0]] and rollout.returns == (6.0,)


def test_a_time_limit_cuts_and_does_not_end():
    crowd = Crowd(lambda: gymnasium.wrappers.TimeLimit(Corridor(), 2), 1, seed=0)
    rollout = crowd.collect(Always(0), 4)
    assert rollout.terminated.tolist() == [False, False] and rollout.returns == (2.0, 2.0)


def test_a_row_that_goes_on_in_the_next_rollout_keeps_its_return():
    crowd = Crowd(Corridor, 1, seed=0)
    assert crowd.collect(Always(1), 2).returns == ()
    assert crowd.collect(Always(1), 1).returns == (6.0,)


def test_credit_bootstraps_at_cuts_only():
    """γ = ½, λ = 1: the return of the row that ended is its own; the row that was cut off adds ¼ of the value 20 of cell 2."""
    rollout = Crowd(Corridor, 1, seed=0).collect(Always(1), 5)
    advantages, targets = po.credit(rollout, Cell(), gamma=0.5, lam=1.0)
    assert targets[0].tolist() == [1 + 0.5 * 2 + 0.25 * 3, 2 + 0.5 * 3, 3]
    assert targets[1, :2].tolist() == [1 + 0.5 * 2 + 0.25 * 20, 2 + 0.5 * 20]
    assert advantages[1, :2].tolist() == [7.0 - 0.0, 12.0 - 10.0]
    alone, _ = po.credit(rollout, None, gamma=0.5, lam=1.0)
    assert alone[0].tolist() == targets[0].tolist()


def test_a_crowd_that_has_begun_plays_to_the_end():
    assert Crowd(Corridor, 3, seed=0).finish(Always(1)) == [6.0] * 3


@pytest.mark.parametrize(
    ("method", "num_steps", "total_steps"),
    [
        (po.PPO, 50, 8_000),
        (po.PPO_PENALTY, 50, 8_000),
        (po.A2C, 10, 8_000),
        (po.REINFORCE_WITH_BASELINE, 10, 8_000),
        (po.ACTOR_CRITIC, 10, 40_000),  # worse first: it believes a critic that has learned nothing yet
    ],
)
def test_every_method_improves(method, num_steps, total_steps):
    config = po.ControlConfig(total_steps=total_steps, num_envs=8, num_steps=num_steps, learning_rate=3e-3, seed=1)
    returns = [x for part in po.train(cartpole, method, config).returns for x in part]
    quarter = len(returns) // 4
    assert np.mean(returns[-quarter:]) > 1.3 * np.mean(returns[:quarter])


def test_one_update_per_rollout_is_on_policy_and_more_are_not():
    config = po.ControlConfig(total_steps=800, num_envs=4, num_steps=50)
    once, often = (po.train(cartpole, method, config).log_ratios for method in (po.A2C, po.PPO))
    assert max(once) < 1e-5 < 0.01 < max(often)


def test_runs_repeat_themselves():
    config = po.ControlConfig(total_steps=400, num_envs=2, num_steps=50)
    one, two = (po.train(cartpole, po.PPO, config) for _ in range(2))
    assert one.returns == two.returns
    assert all(torch.equal(a, b) for a, b in zip(one.policy.parameters(), two.policy.parameters(), strict=True))


def test_a_trust_region_step_gains_and_stays_within():
    rollout = Crowd(cartpole, 4, seed=1).collect(
        policy := po.network(4, 2, 16, last_gain=0.5, rng=torch.Generator()), 100
    )
    advantages, _ = po.credit(rollout, None, gamma=0.99, lam=1.0)
    with torch.no_grad():
        before = policy(rollout.observations[rollout.mask]).log_softmax(-1)
    step = trpo_step(policy, rollout, advantages - advantages[rollout.mask].mean(), max_kl=0.01)
    with torch.no_grad():
        after = policy(rollout.observations[rollout.mask]).log_softmax(-1)
    moved = (before.exp() * (before - after)).sum(-1).mean()
    assert float(moved) == pytest.approx(step.kl, rel=1e-3)
    assert 0.002 < step.kl <= 0.01 and step.gain > 0


def test_trpo_improves_and_no_step_leaves_the_region():
    config = po.ControlConfig(total_steps=16_000, num_envs=8, num_steps=64, learning_rate=3e-3, seed=1)
    run, steps = trpo.train(cartpole, config, max_kl=0.02)
    returns = [x for part in run.returns for x in part]
    quarter = len(returns) // 4
    assert np.mean(returns[-quarter:]) > 1.3 * np.mean(returns[:quarter])
    assert max(step.kl for step in steps) <= 0.02 and all(step.gain > 0 for step in steps)


def test_no_advantage_no_step():
    rollout = Crowd(cartpole, 2, seed=1).collect(
        policy := po.network(4, 2, 8, last_gain=0.5, rng=torch.Generator()), 20
    )
    before = [w.clone() for w in policy.parameters()]
    assert trpo_step(policy, rollout, torch.zeros_like(rollout.rewards)).kl == 0.0
    assert all(torch.equal(a, b) for a, b in zip(before, policy.parameters(), strict=True))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [({"gamma": 1.5}, "gamma = 1.5"), ({"total_steps": 0}, "total_steps = 0"), ({"num_envs": 0}, "count = 0")],
)
def test_bad_numbers_are_named(change, complaint):
    with pytest.raises(ValueError, match=complaint):
        po.train(cartpole, po.PPO, po.ControlConfig(**change))


@pytest.mark.slow
def test_ppo_balances_the_pole():
    """A mean return of 475 over 100 episodes."""
    run = po.train(cartpole, po.PPO, po.ControlConfig(total_steps=80_000))
    returns = Crowd(cartpole, 100, seed=99).finish(run.policy)
    assert sum(returns) / 100 >= 475
