"""DQN in miniature: its memory, its two targets, and what it believes against what is true."""

import pytest
import torch
from facts import raises

from minirlhf.control import dqn
from minirlhf.core.randomness import generator
from minirlhf.tabular import planning, worlds
from minirlhf.tabular.process import Transition
from minirlhf_course.chapters.ch03_markov_decision_processes import runs


def step(*rewards):
    """A step of as many walkers, told apart by their rewards."""
    r = torch.tensor(rewards, dtype=torch.float64)
    n, no = len(rewards), torch.zeros(len(rewards), dtype=torch.bool)
    return Transition(torch.arange(n), torch.arange(n), r, torch.arange(n), no, no)


def test_dqn_memory_forgets_oldest():
    memory = dqn.Memory(3)
    memory.add(step(1.0, 2.0))
    assert len(memory) == 2 and set(memory.sample(50, generator())[2].tolist()) == {1.0, 2.0}
    memory.add(step(3.0, 4.0))
    assert len(memory) == 3 and set(memory.sample(90, generator())[2].tolist()) == {2.0, 3.0, 4.0}


def test_dqn_and_double_dqn_targets_by_hand():
    reward, on = torch.tensor([1.0]).double(), torch.zeros(1, dtype=torch.bool)
    online, copy = torch.tensor([[5.0, 0.0]]).double(), torch.tensor([[2.0, 4.0]]).double()
    assert dqn.dqn(reward, online, copy, on, 0.5).item() == 1 + 0.5 * 4
    assert dqn.double_dqn(reward, online, copy, on, 0.5).item() == 1 + 0.5 * 2


@pytest.mark.parametrize("target", [dqn.dqn, dqn.double_dqn])
def test_train_dqn_without_noise_finds_true_values(target):
    process = worlds.many_doors_env(3)
    found = dqn.train_dqn(
        process,
        torch.eye(3, dtype=torch.float64),
        target,
        gamma=0.9,
        updates=400,
        epsilon=1.0,
        copy_every=20,
        capacity=500,
        rng=generator("doors"),
    )
    truth = torch.tensor([[0.0, -0.09, -0.09], [-0.1, -0.1, -0.1]]).double()
    torch.testing.assert_close(found.action_values[:2], truth, atol=0.02, rtol=0)
    assert found.beliefs.shape == (8, 3)


def test_train_dqn_repeats_and_keeps_global_generator():
    before = torch.get_rng_state()
    one, two = (runs.doors(dqn.dqn, 3, runs=1) for _ in range(2))
    assert torch.equal(one, two)
    assert torch.equal(before, torch.get_rng_state())


def test_train_dqn_copies_network_every_so_many_updates():
    same = []

    def watched(rewards, online, copy, terminated, gamma):
        same.append(torch.equal(online, copy))
        return dqn.dqn(rewards, online, copy, terminated, gamma)

    features = torch.eye(3, dtype=torch.float64)
    found = dqn.train_dqn(
        worlds.many_doors_env(), features, watched, gamma=0.9, updates=7, copy_every=3, log_every=2, rng=generator()
    )
    assert same == [True, False, False, True, False, False, True] and found.beliefs.shape == (4, 3)


def test_train_dqn_refuses_misfit_features_and_no_updates():
    with raises(ValueError, argument="features", value=(4, 2), problem="shape"):
        dqn.train_dqn(
            worlds.many_doors_env(), torch.zeros(4, 2).double(), dqn.dqn, gamma=0.9, updates=1, rng=generator()
        )
    with raises(ValueError, argument="updates", value=0):
        dqn.train_dqn(worlds.many_doors_env(), torch.eye(3).double(), dqn.dqn, gamma=0.9, updates=0, rng=generator())


def test_many_doors_hall_is_worth_nothing():
    values = planning.value_iteration(worlds.many_doors_env(), gamma=0.9)
    assert values.values.tolist() == pytest.approx([0.0, -0.1, 0.0])
    assert values.policy[0].argmax() == 0
