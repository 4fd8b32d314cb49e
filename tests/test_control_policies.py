"""Policy gradients with small networks: rollouts as rows, credit at ends and at cuts, trust regions, and CartPole."""

from dataclasses import replace

import gymnasium
import numpy as np
import pytest
import torch
from facts import raises
from torch import nn

from minirlhf.control import policy_optimisation as po
from minirlhf.control import trpo
from minirlhf.control.episodes import Environments
from minirlhf.control.trpo import trpo_step
from minirlhf.equations.policy_losses import ppo_clip
from minirlhf.equations.trust_region import adaptive_penalty
from minirlhf_course.chapters.ch04_policy_gradients_to_ppo import mistakes, poles


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


def small_policy(width=8):
    return po.network(4, 2, width, last_gain=0.5, rng=torch.Generator())


def cartpole():
    return gymnasium.make("CartPole-v1", disable_env_checker=True)


def test_environments_collect_rows_are_episodes():
    rollout = Environments(Corridor, 1, seed=0).collect(Always(1), 5)
    assert rollout.observations[..., 0].tolist() == [[0, 1, 2], [0, 1, 0]]
    assert rollout.rewards.tolist() == [[1, 2, 3], [1, 2, 0]]
    assert rollout.mask.tolist() == [[True] * 3, [True, True, False]]
    assert rollout.terminated.tolist() == [True, False]
    assert rollout.last.tolist() == [[3.0], [2.0]] and rollout.returns == (6.0,)


def test_environments_time_limit_does_not_terminate():
    crowd = Environments(lambda: gymnasium.wrappers.TimeLimit(Corridor(), 2), 1, seed=0)
    rollout = crowd.collect(Always(0), 4)
    assert rollout.terminated.tolist() == [False, False] and rollout.returns == (2.0, 2.0)


def test_environments_return_continues_over_rollouts():
    crowd = Environments(Corridor, 1, seed=0)
    assert crowd.collect(Always(1), 2).returns == ()
    assert crowd.collect(Always(1), 1).returns == (6.0,)


def test_environments_rows_name_their_copy():
    rollout = Environments(Corridor, 2, seed=0).collect(Always(1), 4)
    assert sorted(rollout.copies.tolist()) == [0, 0, 1, 1] and rollout.copies[:2].tolist() == [0, 1]


def test_environments_collect_whole_episodes():
    """Also the one that a copy was in the middle of."""
    crowd = Environments(Corridor, 3, seed=0)
    rollout = crowd.collect(Always(1), None)
    assert rollout.returns == (6.0,) * 3 and rollout.terminated.all() and rollout.mask.shape == (3, 3)
    crowd.collect(Always(1), 1)
    rest = crowd.collect(Always(1), None)
    assert rest.returns == (6.0,) * 3 and rest.rewards.tolist() == [[2.0, 3.0]] * 3


def test_credit_bootstraps_only_where_cut_off():
    """γ = ½, λ = 1: the return of the row that ended is its own; the row that was cut off adds ¼ of the value 20 of cell 2."""
    rollout = Environments(Corridor, 1, seed=0).collect(Always(1), 5)
    advantages, values = po.credit(rollout, Cell(), gamma=0.5, lam=1.0)
    assert values.tolist() == [[0, 10, 20], [0, 10, 0]]
    targets = advantages + values
    assert targets[0].tolist() == [1 + 0.5 * 2 + 0.25 * 3, 2 + 0.5 * 3, 3]
    assert targets[1, :2].tolist() == [1 + 0.5 * 2 + 0.25 * 20, 2 + 0.5 * 20]
    assert advantages[1, :2].tolist() == [7.0 - 0.0, 12.0 - 10.0]
    alone, _ = po.credit(rollout, None, gamma=0.5, lam=1.0)
    assert alone[0].tolist() == targets[0].tolist()


RARELY = pytest.mark.release


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "num_steps", "total_steps"),
    [
        pytest.param(po.PPO_PENALTY, 50, 8_000, id="ppo_penalty"),
        pytest.param(po.A2C, 10, 8_000, id="a2c"),
        pytest.param(po.REINFORCE, None, 12_000, id="reinforce"),
        pytest.param(po.REINFORCE_WITH_BASELINE, 10, 8_000, id="baseline", marks=RARELY),
        pytest.param(replace(po.PPO, cliprange_value=10.0, entropy_coef=0.01), 50, 8_000, id="ppo_clip", marks=RARELY),
        # Worse first: it believes a critic that has learned nothing yet.
        pytest.param(po.ACTOR_CRITIC, 10, 40_000, id="actor_critic", marks=RARELY),
    ],
)
def test_train_policy_improves(method, num_steps, total_steps):
    config = po.ControlConfig(total_steps=total_steps, num_envs=8, num_steps=num_steps, learning_rate=3e-3, seed=1)
    returns = [x for part in po.train_policy(cartpole, method, config).returns for x in part]
    quarter = len(returns) // 4
    assert np.mean(returns[-quarter:]) > 1.3 * np.mean(returns[:quarter])


def test_train_policy_first_update_is_on_policy():
    config = po.ControlConfig(total_steps=800, num_envs=4, num_steps=50)
    widest = []

    def watched(logps, old_logps, advantages, mask):
        widest.append(float((logps - old_logps).detach().abs().max()))
        return ppo_clip(logps, old_logps, advantages, mask)

    po.train_policy(cartpole, replace(po.PPO, objective=watched, num_iterations=1, num_minibatches=1), config)
    assert max(widest) < 1e-5
    widest.clear()
    run = po.train_policy(cartpole, replace(po.PPO, objective=watched), config)
    assert max(widest) > 0.01 and min(run.kls) > 1e-5 and run.steps == [200, 400, 600, 800]


@pytest.mark.slow
def test_ppo_adaptive_penalty_follows_rule():
    """β after a rollout is that of the rule, from the KL that was seen."""
    config = po.ControlConfig(total_steps=4_000, num_envs=4, num_steps=50)
    run = po.train_policy(cartpole, po.PPO_ADAPTIVE, config)
    assert run.betas[0] == 1.0 and len(run.betas) == 20 and len(set(run.betas)) > 2
    for kl, before, after in zip(run.kls, run.betas, run.betas[1:], strict=False):
        assert after == adaptive_penalty(before, kl, target=0.01)
    assert po.train_policy(cartpole, po.PPO_PENALTY, replace(config, total_steps=200)).betas == []


@pytest.mark.slow
def test_train_policy_repeats():
    config = po.ControlConfig(total_steps=400, num_envs=2, num_steps=50)
    one, two = (po.train_policy(cartpole, po.PPO, config) for _ in range(2))
    assert one.returns == two.returns
    assert all(torch.equal(a, b) for a, b in zip(one.policy.parameters(), two.policy.parameters(), strict=True))


def test_trpo_step_gains_within_region():
    rollout = Environments(cartpole, 4, seed=1).collect(policy := small_policy(16), 100)
    advantages, _ = po.credit(rollout, None, gamma=0.99, lam=1.0)
    with torch.no_grad():
        before = policy(rollout.observations[rollout.mask]).log_softmax(-1)
    step = trpo_step(policy, rollout, advantages - advantages[rollout.mask].mean(), max_kl=0.01)
    with torch.no_grad():
        after = policy(rollout.observations[rollout.mask]).log_softmax(-1)
    moved = (before.exp() * (before - after)).sum(-1).mean()
    assert float(moved) == pytest.approx(step.kl, rel=1e-3)
    assert 0.002 < step.kl <= 0.01 and step.gain > 0


@pytest.mark.slow
def test_train_trpo_improves_within_region():
    config = po.ControlConfig(total_steps=16_000, num_envs=8, num_steps=64, learning_rate=3e-3, seed=1)
    run, steps = trpo.train_trpo(cartpole, config, max_kl=0.02)
    returns = [x for part in run.returns for x in part]
    quarter = len(returns) // 4
    assert np.mean(returns[-quarter:]) > 1.3 * np.mean(returns[:quarter])
    assert max(step.kl for step in steps) <= 0.02 and all(step.gain > 0 for step in steps)


def test_trpo_step_without_advantages_keeps_policy():
    rollout = Environments(cartpole, 2, seed=1).collect(policy := small_policy(), 20)
    before = [w.clone() for w in policy.parameters()]
    assert trpo_step(policy, rollout, torch.zeros_like(rollout.rewards)).kl == 0.0
    assert all(torch.equal(a, b) for a, b in zip(before, policy.parameters(), strict=True))


@pytest.mark.parametrize(
    ("change", "argument"),
    [
        ({"gamma": 1.5}, "gamma"),
        ({"total_steps": 0}, "total_steps"),
        ({"num_envs": 0}, "count"),
        ({"num_steps": 0}, "steps"),
        ({"hidden": 0}, "hidden"),
        ({"learning_rate": float("nan")}, "learning_rate"),
    ],
)
def test_train_policy_refuses_bad_config(change, argument):
    [value] = change.values()
    with raises(ValueError, argument=argument, value=value):
        po.train_policy(cartpole, po.PPO, po.ControlConfig(**change))
    if argument != "steps":
        with raises(ValueError, argument=argument, value=value):
            trpo.train_trpo(cartpole, po.ControlConfig(**change))


@pytest.mark.parametrize(
    ("method", "argument", "value"),
    [
        (replace(po.PPO, lam=-0.1), "lam", -0.1),
        (replace(po.PPO, num_minibatches=0), "num_minibatches", 0),
        (replace(po.PPO, entropy_coef=-1.0), "entropy_coef", -1.0),
        (po.REINFORCE, "num_steps", 128),
    ],
)
def test_train_policy_refuses_bad_method(method, argument, value):
    with raises(ValueError, argument=argument, value=value):
        po.train_policy(cartpole, method, po.ControlConfig(total_steps=10))


class Broken(Corridor):
    """Sees nothing but NaN."""

    def reset(self, *, seed=None, options=None):
        return np.array([np.nan], np.float32), {}


@pytest.mark.parametrize(
    ("make", "facts"),
    [
        (lambda: gymnasium.make("Pendulum-v1"), {"argument": "actions"}),
        (lambda: gymnasium.make("FrozenLake-v1"), {"argument": "observations", "value": gymnasium.spaces.Discrete(16)}),
        (Broken, {"argument": "observations", "value": 16, "problem": "not finite"}),
    ],
)
def test_train_policy_refuses_misfit_environment(make, facts):
    with raises(ValueError, **facts):
        po.train_policy(make, po.PPO, po.ControlConfig(total_steps=10))


def test_train_policy_decays_rate_clips_gradient_and_whitens():
    """Of a loss with a constant gradient each step of Adam is as long as the learning rate, unless it is clipped to nearly nothing."""
    config = po.ControlConfig(total_steps=400, num_envs=2, num_steps=50, learning_rate=0.01)

    def weights(**changes):
        found = []

        def constant(run, method, batch):
            found.append(run.policy[0].bias[0].item())
            assert float(batch.advantages.mean()) == pytest.approx(0, abs=1e-5)
            assert float(batch.advantages.std()) == pytest.approx(1, abs=1e-3)
            return sum(p.sum() for p in run.policy.parameters())

        method = replace(po.PPO, loss=constant, num_iterations=1, num_minibatches=1)
        run = po.train_policy(cartpole, method, replace(config, **changes))
        return np.array([*found, run.policy[0].bias[0].item()])

    assert -np.diff(weights()) == pytest.approx(0.01 * np.array([1, 0.75, 0.5, 0.25]), rel=1e-2)
    assert -np.diff(weights(max_grad_norm=1e-7)).max() < 1e-4


def test_loss_equals_computation_by_hand():
    rng = torch.Generator().manual_seed(0)
    run = po.ControlRun(*(po.network(3, outputs, 8, last_gain=1.0, rng=rng) for outputs in (2, 1)))
    seen, draws = torch.randn(5, 3, generator=rng), torch.randn(4, 5, 1, generator=rng)
    batch = po.Minibatch(seen, (draws[0] > 0).long(), draws[1] - 1, draws[2], draws[2], draws[3])
    method = replace(po.PPO, objective=lambda logps, old, advantages, mask: logps * advantages, entropy_coef=0.3)
    logps = run.policy(seen).log_softmax(-1)
    chosen = torch.stack([row[a] for row, a in zip(logps, batch.actions[:, 0], strict=True)])
    entropy = -(logps.exp() * logps).sum(-1)
    error = 0.5 * (run.critic(seen) - batch.targets)[:, 0].square()
    expected = -(chosen * batch.advantages[:, 0] + 0.3 * entropy - 0.5 * error).mean()
    torch.testing.assert_close(po.loss(run, method, batch), expected)


@pytest.mark.slow
def test_train_policy_ppo_solves_cartpole():
    """A mean return of 475 over 100 episodes."""
    run = po.train_policy(cartpole, po.PPO, po.ControlConfig())
    returns = Environments(cartpole, 100, seed=99).collect(run.policy, None).returns
    assert sum(returns) / 100 >= 475


# -- the gallery -------------------------------------------------------------------------------------------------


def test_mistake_no_bootstrap_ends_at_cuts():
    rollout = Environments(Corridor, 1, seed=0).collect(Always(1), 5)
    advantages, values = mistakes.no_bootstrap(rollout, Cell(), gamma=0.5, lam=1.0)
    right, _ = po.credit(rollout, Cell(), gamma=0.5, lam=1.0)
    assert advantages[0].tolist() == right[0].tolist()
    assert (advantages + values)[1, :2].tolist() == [1 + 0.5 * 2, 2.0]


def test_mistake_ends_forgotten_runs_into_next_episode():
    """γ = ½, λ = 1, one row of five steps: 1, 2, 3, 1, 2, then the value 20 of cell 2."""
    rollout = Environments(Corridor, 1, seed=0).collect(Always(1), 5)
    advantages, values = mistakes.ends_forgotten(rollout, Cell(), gamma=0.5, lam=1.0)
    expected = 20.0
    for reward, found in zip([2, 1, 3, 2, 1], (advantages + values)[rollout.mask].tolist()[::-1], strict=True):
        expected = reward + 0.5 * expected
        assert found == expected
    two = Environments(Corridor, 2, seed=0).collect(Always(1), 5)
    both, _ = mistakes.ends_forgotten(two, Cell(), gamma=0.5, lam=1.0)
    assert both[two.copies == 0].tolist() == both[two.copies == 1].tolist() == advantages.tolist()


def test_mistake_maximum_has_gradient_where_clip_has_none():
    logps = torch.tensor([[0.5, -0.5]], requires_grad=True)
    old, mask = torch.zeros(1, 2), torch.ones(1, 2, dtype=torch.bool)
    for sign, wrong in ((1.0, [True, False]), (-1.0, [False, True])):
        for objective, moving in ((mistakes.maximum, wrong), (ppo_clip, wrong)):
            (slope,) = torch.autograd.grad(objective(logps, old, torch.full((1, 2), sign), mask).sum(), logps)
            expected = moving if objective is mistakes.maximum else [not x for x in moving]
            assert (slope[0] != 0).tolist() == expected


def test_mistake_undetached_baseline_pulls_critic():
    rollout = Environments(cartpole, 2, seed=0).collect(policy := small_policy(), 20)
    run = po.ControlRun(policy, po.network(4, 1, 8, last_gain=1.0, rng=torch.Generator()))
    advantages, values = po.credit(rollout, run.critic, gamma=0.99, lam=0.95)
    columns = (rollout.actions, rollout.logps, values, advantages, advantages + values)
    batch = po.Minibatch(rollout.observations[rollout.mask], *(x[rollout.mask][:, None] for x in columns))
    losses = {wrong: f(run, po.PPO, batch) for wrong, f in ((False, po.loss), (True, mistakes.undetached_baseline))}
    assert losses[True].item() == pytest.approx(losses[False].item(), abs=1e-6)
    bias = list(run.critic.parameters())[-1]  # a derivative by the last bias is one by the mean value
    right, wrong = (float(torch.autograd.grad(losses[x], bias)[0]) for x in (False, True))
    assert wrong - right == pytest.approx(1 / float(batch.advantages.std()), rel=1e-4)
    assert torch.allclose(*(torch.autograd.grad(f(run, po.PPO, batch), policy[0].weight)[0] for f in (po.loss, mistakes.undetached_baseline)))  # fmt: skip


def test_poles_curve_of_run():
    run = po.ControlRun(nn.Identity(), nn.Identity(), steps=[5, 10, 200], returns=[(1.0, 3.0), (5.0,), ()])
    assert poles.curve(run) == [3.0] * 20


def test_poles_runs_are_complete():
    mistaken = {"no_bootstrap", "ends_forgotten", "maximum", "undetached"}
    assert set(poles.RUNS) >= {"reinforce", "a2c", "trpo", "ppo", *mistaken}
    assert poles.small_rewards().unwrapped.spec.id == "CartPole-v1"
