"""Chapter 03's package: worlds with the answers of the literature, planning, prediction, decision, bandits, Gymnasium."""

import gymnasium
import pytest
import torch
from facts import raises
from gymnasium.utils.env_checker import check_env

from minirlhf.core import exact_mdp
from minirlhf.core.errors import UserError
from minirlhf.core.randomness import generator, numpy_generator
from minirlhf.equations import mdp
from minirlhf.equations.value_learning import regret
from minirlhf.tabular import bandits, control, gym, planning, prediction, worlds
from minirlhf.tabular.process import (
    Episodes,
    ParallelEpisodes,
    Process,
    choose,
    count_occupancy,
    from_outcomes,
    sample_chain,
    sample_episodes,
)


def f64(*numbers):
    return torch.tensor(numbers, dtype=torch.float64)


def values_of(process, policy, gamma):
    return mdp.policy_values(process.transitions, process.expected_rewards, policy, gamma=gamma)


def rounded(x, digits):
    return [round(v, digits) + 0.0 for v in x.flatten().tolist()]


# -- worked examples ---------------------------------------------------------------------------------------------


def test_mrp_values_of_six_states():
    path = worlds.SIX_REWARDS[[0, 1, 2, 5]]
    assert float(mdp.discounted_return(path, gamma=0.5)) == -2.5
    values = mdp.mrp_values(worlds.SIX_STATES, worlds.SIX_REWARDS, gamma=0.5)
    assert rounded(values, 4) == [-2.0195, -2.2145, 1.1614, 10.5381, 3.5873, 0.0]


def test_policy_values_of_two_choices():
    process = worlds.two_choices()
    assert rounded(values_of(process, process.uniform_policy(), 0.5), 4) == [-1.2256, -1.6767, 0.5189, 6.0756, 0.0]


BOLD = torch.tensor([[0.6, 0.4], [0.3, 0.7], [0.5, 0.5], [0.1, 0.9], [0.5, 0.5]], dtype=torch.float64)


def test_occupancy_of_two_choices():
    process = worlds.two_choices()
    found = [
        mdp.occupancy(process.transitions, policy, process.start, gamma=0.5)[3, 1]
        for policy in (process.uniform_policy(), BOLD)
    ]
    assert rounded(torch.stack(found), 4) == [0.0962, 0.2006]


def test_count_occupancy_approaches_exact():
    process = worlds.two_choices()
    walks = sample_episodes(process, BOLD, count=10_000, rng=generator("occupancy"), time_limit=50)
    counted = count_occupancy(walks, num_states=5, num_actions=2, gamma=0.5)
    exact = mdp.occupancy(process.transitions, BOLD, process.start, gamma=0.5)
    torch.testing.assert_close(counted[:4], exact[:4], atol=0.01, rtol=0)


def test_gridworlds_have_published_values():
    five, four = worlds.five_by_five(), worlds.four_by_four()
    assert rounded(five.table(values_of(five.process, five.process.uniform_policy(), 0.9))[0], 1) == [
        3.3,
        8.8,
        4.4,
        5.3,
        1.5,
    ]
    best = planning.value_iteration(five.process, gamma=0.9).values
    assert rounded(five.table(best)[0], 1) == [22.0, 24.4, 22.0, 19.4, 17.5]
    values = four.table(planning.evaluate(four.process, four.process.uniform_policy(), gamma=1.0)[-1])
    assert rounded(values[0], 4) == [0.0, -14.0, -20.0, -22.0]
    assert torch.allclose(values, values.flip(0, 1))


def test_cliff_maze_lake_and_random_walk_have_known_values():
    walk = worlds.random_walk()
    assert torch.allclose(values_of(walk, walk.uniform_policy(), 1.0)[1:-1], torch.arange(1, 6).double() / 6)
    assert planning.value_iteration(worlds.cliff_walking().process, gamma=1.0).values[36] == -13.0
    maze = worlds.maze()
    assert planning.value_iteration(maze.process, gamma=1.0).values[maze.cells.index("S")] == -14.0
    lake = planning.policy_iteration(worlds.frozen_lake().process, gamma=1.0)
    assert lake.values[0].item() == pytest.approx(14 / 17)
    assert planning.value_iteration(worlds.frozen_lake(slippery=False).process, gamma=1.0).values[0] == 1.0


# -- processes ---------------------------------------------------------------------------------------------------


def test_from_outcomes_adds_probabilities_and_averages_rewards():
    outcomes = {(0, 0): [(0.25, 1, 4.0), (0.25, 1, 2.0), (0.5, 0, 1.0)]}
    p = from_outcomes(outcomes, num_states=2, actions="a", start=(1, 0), terminal=(1,))
    assert p.transitions[0, 0].tolist() == [0.5, 0.5]
    assert p.rewards[0, 0].tolist() == [1.0, 3.0]
    assert p.expected_rewards.tolist() == [[2.0], [0.0]]
    assert p.terminal.tolist() == [False, True]
    rest = from_outcomes(
        {(0, 0): [(1.0, 0, 0.0)], (0, 1): [(1.0, 1, 0.0)]}, num_states=2, actions="ab", start=(1, 0), terminal=(1,)
    )
    assert rest.terminal.tolist() == [False, True]  # one can stay for nothing, and one can leave


def test_process_refuses_bad_tables():
    def process(outcomes, actions="a", start=(1, 0)):
        return from_outcomes(outcomes, num_states=2, actions=actions, start=start, terminal=(1,))

    with raises(ValueError, argument="transitions", problem="distribution"):
        process({(0, 0): [(0.5, 1, 0.0)]})
    with raises(ValueError, argument="outcomes", value=(0, 1), problem="missing"):
        process({(0, 0): [(1.0, 1, 0.0)]}, actions="ab")
    with raises(ValueError, argument="start", problem="distribution"):
        process({(0, 0): [(1.0, 1, 0.0)]}, start=(1, 1))
    with raises(ValueError, argument="transitions", problem="distribution"):
        sample_chain(torch.ones(2, 2), f64(1, 0), steps=1, count=1, rng=generator())
    p = worlds.two_choices()
    with raises(ValueError, argument="actions", value=1, expected=2):
        Process(p.transitions, p.rewards, p.start, ("only",))


def test_choose_never_draws_impossible():
    probs = f64(0.0, 0.3, 0.0, 0.7, 0.0).expand(20_000, -1)
    drawn = choose(probs, generator("draw"))
    assert set(drawn.tolist()) == {1, 3}
    assert float((drawn == 1).double().mean()) == pytest.approx(0.3, abs=0.015)


def test_sample_chain_follows_matrix():
    start = f64(1, 0, 0, 0, 0, 0)
    paths = sample_chain(worlds.SIX_STATES, start, steps=3, count=20_000, rng=generator("chain"))
    assert paths.shape == (20_000, 4) and bool((paths[:, 0] == 0).all())
    expected = start @ torch.linalg.matrix_power(worlds.SIX_STATES, 3)
    seen = torch.bincount(paths[:, 3], minlength=6).double() / 20_000
    torch.testing.assert_close(seen, expected, atol=0.015, rtol=0)


def test_walkers_terminate_truncate_and_restart():
    process = worlds.random_walk(3)  # states 0 … 4, start in 2
    walkers = ParallelEpisodes(process, 2, rng=generator(), time_limit=3)
    walkers.step(torch.tensor([1, 1]))
    second = walkers.step(torch.tensor([1, 0]))
    assert second.terminated.tolist() == [True, False] and second.rewards.tolist() == [1.0, 0.0]
    assert second.next_states.tolist() == [4, 2] and walkers.states.tolist() == [2, 2]
    third = walkers.step(torch.tensor([0, 0]))
    assert third.truncated.tolist() == [False, True] and third.over.tolist() == [False, True]
    assert walkers.states.tolist() == [1, 2]


def test_walkers_end_at_time_limit_is_terminal():
    walkers = ParallelEpisodes(worlds.random_walk(1), 1, rng=generator(), time_limit=1)
    step = walkers.step(torch.tensor([1]))
    assert step.terminated.item() and not step.truncated.item()


def test_sample_episodes_record_walk():
    process = worlds.random_walk(3)
    right = f64(0, 1).expand(5, 2)
    walk = sample_episodes(process, right, count=3, rng=generator())
    assert walk.states.tolist() == [[2, 3, 4]] * 3 and walk.rewards.tolist() == [[0.0, 1.0]] * 3
    assert bool(walk.mask.all()) and bool(walk.terminated.all())
    cut = sample_episodes(process, right, count=3, rng=generator(), time_limit=1)
    assert cut.states.tolist() == [[2, 3]] * 3 and not bool(cut.terminated.any())


def test_walkers_refuse_terminal_start():
    p = worlds.random_walk(1)
    with raises(ValueError, argument="start", problem="terminal"):
        ParallelEpisodes(Process(p.transitions, p.rewards, f64(1, 0, 0), p.actions), 1, rng=generator())


# -- planning ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("world", "gamma"),
    [(worlds.cliff_walking(), 1.0), (worlds.frozen_lake(), 0.9), (worlds.five_by_five(), 0.9), (worlds.maze(), 0.95)],
)
def test_value_and_policy_iteration_agree(world, gamma):
    by_values, by_policies = (
        plan(world.process, gamma=gamma) for plan in (planning.value_iteration, planning.policy_iteration)
    )
    torch.testing.assert_close(by_values.values, by_policies.values, atol=1e-7, rtol=0)
    for plan in (by_values, by_policies):
        torch.testing.assert_close(values_of(world.process, plan.policy, gamma), by_policies.values, atol=1e-7, rtol=0)
    assert bool((by_policies.history.diff(dim=0) >= -1e-9).all())  # never worse


def test_evaluate_arrives_at_exact_values():
    p = worlds.two_choices()
    history = planning.evaluate(p, BOLD, gamma=0.5)
    torch.testing.assert_close(history[-1], values_of(p, BOLD, 0.5))
    assert bool((history[0] == 0).all())


def endless():
    return from_outcomes({(0, 0): [(1.0, 1, 1.0)], (1, 0): [(1.0, 0, 1.0)]}, num_states=2, actions="a", start=(1, 0))


@pytest.mark.parametrize("plan", [planning.value_iteration, planning.policy_iteration])
def test_planning_refuses_endless_process_without_discount(plan):
    with raises(ValueError, value=[0, 1], problem="not terminating"):
        plan(endless(), gamma=1.0)
    with raises(ValueError, argument="gamma", value=1.5):
        plan(endless(), gamma=1.5)
    assert plan(endless(), gamma=0.5).values.tolist() == pytest.approx([2.0, 2.0])


def test_evaluate_refuses_policy_that_never_arrives():
    p = worlds.random_walk(3)
    to_and_fro = torch.zeros(5, 2, dtype=torch.float64)
    to_and_fro[[0, 1, 2, 3, 4], [0, 1, 0, 1, 0]] = 1.0
    to_and_fro[3] = f64(1, 0)  # 1 → 2 → 1 …
    with raises(ValueError, argument="transitions", problem="not terminating"):
        planning.evaluate(p, to_and_fro, gamma=1.0)


def test_value_iteration_refuses_loop_that_pays():
    p = from_outcomes(
        {(0, 0): [(1.0, 0, 1.0)], (0, 1): [(1.0, 1, 0.0)]}, num_states=2, actions="ab", start=(1, 0), terminal=(1,)
    )
    with raises(ValueError, argument="max_sweeps", value=50, problem="not settled"):
        planning.value_iteration(p, gamma=1.0, max_sweeps=50)


# -- prediction --------------------------------------------------------------------------------------------------


def by_hand():
    """One episode 1 → 2 → 1 → 3 (the end) with rewards 1, 2, 4."""
    return Episodes(
        states=torch.tensor([[1, 2, 1, 3]]),
        actions=torch.zeros(1, 3, dtype=torch.long),
        rewards=f64(1, 2, 4)[None],
        mask=torch.ones(1, 3, dtype=torch.bool),
        terminated=torch.ones(1, dtype=torch.bool),
    )


def test_monte_carlo_by_hand():
    """γ = ½: returns 1 + 1 + 1 = 3, 2 + 2 = 4, 4. First visits give V(1) = 3; all visits (3 + 4)/2."""
    first, visits = prediction.monte_carlo(by_hand(), num_states=4, gamma=0.5)
    assert first[1:3].tolist() == [3.0, 4.0] and visits.tolist() == [0.0, 1.0, 1.0, 0.0]
    every, visits = prediction.monte_carlo(by_hand(), num_states=4, gamma=0.5, first_visit=False)
    assert every[1:3].tolist() == [3.5, 4.0] and visits.tolist() == [0.0, 2.0, 1.0, 0.0]


def test_monte_carlo_finds_the_values():
    process = worlds.two_choices()
    walks = sample_episodes(process, BOLD, count=20_000, rng=generator("mc"))
    values, _ = prediction.monte_carlo(walks, num_states=5, gamma=0.5)
    torch.testing.assert_close(values[:4], values_of(process, BOLD, 0.5)[:4], atol=0.1, rtol=0)


def test_monte_carlo_refuses_cut_off_episodes():
    walks = sample_episodes(worlds.random_walk(19), f64(0.5, 0.5).expand(21, 2), count=4, rng=generator(), time_limit=3)
    with raises(ValueError, argument="episodes", value=4, problem="cut off"):
        prediction.monte_carlo(walks, num_states=21, gamma=1.0)


def learn(n, **changes):
    process = worlds.random_walk(3)
    right = f64(0, 1).expand(5, 2)  # every episode: 2 → 3 → 4, rewards 0, 1
    settings = {"gamma": 0.5, "alpha": 0.5, "episodes": 2, "learners": 1, "rng": generator("td"), **changes}
    return prediction.temporal_difference(process, right, n=n, **settings)[:, 0]


def test_temporal_difference_td0_by_hand():
    """First episode: V(2) sees V(3) = 0, V(3) sees the reward 1. Second: V(2) ← ½ · ½ · ½, V(3) ← ½ + ¼."""
    assert learn(1).tolist() == [[0.0] * 5, [0, 0, 0, 0.5, 0], [0, 0, 0.125, 0.75, 0]]


@pytest.mark.parametrize("n", [2, 7, None])
def test_temporal_difference_n_steps_by_hand(n):
    """With two steps or more the target of state 2 is ½ from the first episode on."""
    assert learn(n).tolist() == [[0.0] * 5, [0, 0, 0.25, 0.5, 0], [0, 0, 0.375, 0.75, 0]]


@pytest.mark.parametrize("n", [1, 2, None])
def test_temporal_difference_bootstraps_at_time_limit(n):
    """Cut off after one step at state 3, which is believed to be worth 1: the target of state 2 is γ, not 0."""
    right = learn(n, time_limit=1, episodes=1, initial=1.0)
    wrong = learn(n, time_limit=1, episodes=1, initial=1.0, limit_is_an_end=True)
    assert right[1, 2] == 0.5 + 0.5 * 0.5 and wrong[1, 2] == 0.5


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 4])
def test_temporal_difference_approaches_values(n):
    process = worlds.random_walk()
    settings = {"gamma": 1.0, "alpha": 0.1, "episodes": 60, "learners": 150, "rng": generator("rw"), "initial": 0.5}
    history = prediction.temporal_difference(process, process.uniform_policy(), n=n, **settings)
    found = history[-20:, :, 1:-1].mean((0, 1))  # of the last 20 episodes and all learners
    torch.testing.assert_close(found, torch.arange(1, 6).double() / 6, atol=0.06, rtol=0)
    assert bool((history[:, :, [0, -1]] == 0).all())


# -- decision ----------------------------------------------------------------------------------------------------

LEARNERS = {"gamma": 1.0, "alpha": 0.5, "episodes": 80, "learners": 6}


def greedy_return(world, action_values, steps=60):
    """What acting greedily earns from the start, at most so many steps."""
    p = world.process
    greedy = mdp.greedy_policy(action_values)
    return float(exact_mdp.expected_return(p.start, p.transitions, p.expected_rewards, greedy, gamma=1.0, steps=steps))


@pytest.mark.slow
def test_q_learning_and_dyna_q_solve_maze():
    world = worlds.maze()
    for learner, more in ((control.q_learning, {}), (control.dyna_q, {"planning_steps": 5, "episodes": 30})):
        learned = learner(world.process, epsilon=0.1, rng=generator("q"), **(LEARNERS | more))
        returns = [greedy_return(world, table) for table in learned.action_values]
        assert sorted(returns)[-3] >= -16 and max(returns) == -14
        assert bool((learned.returns == -learned.lengths).all())


@pytest.mark.slow
def test_dyna_q_needs_fewer_steps_than_q_learning():
    world, settings = worlds.maze(), LEARNERS | {"episodes": 15, "learners": 10}
    plain = control.q_learning(world.process, epsilon=0.1, rng=generator("plain"), **settings)
    dyna = control.dyna_q(world.process, epsilon=0.1, rng=generator("dyna"), planning_steps=10, **settings)
    assert dyna.lengths[:, 5:].double().mean() < 0.5 * plain.lengths[:, 5:].double().mean()


def gamble():
    """In state 0: take 1 now, or go to state 1, where the best of two actions earns 3 and the other one loses 5."""
    return from_outcomes(
        {(0, 0): [(1.0, 2, 1.0)], (0, 1): [(1.0, 1, 0.0)], (1, 0): [(1.0, 2, 3.0)], (1, 1): [(1.0, 2, -5.0)]},
        num_states=3,
        actions=("safe", "bold"),
        start=(1, 0, 0),
        terminal=(2,),
    )


def test_sarsa_is_on_policy_and_q_learning_off_policy():
    """With ε = ½, state 1 earns ¾·3 − ¼·5 = 1 if one explores there, 3 if not."""
    settings = {"gamma": 1.0, "alpha": 0.03, "epsilon": 0.5, "episodes": 600, "learners": 60}
    on, off = (
        f(gamble(), rng=generator("gamble"), **settings).action_values.mean(0)
        for f in (control.sarsa, control.q_learning)
    )
    assert float(on[0, 1]) == pytest.approx(1.0, abs=0.25)
    assert float(off[0, 1]) == pytest.approx(3.0, abs=0.05)


@pytest.mark.parametrize("learner", [control.sarsa, control.q_learning])
def test_learner_stops_learning_after_its_episodes(learner):
    """One of different lengths each, whose last step alone earns something."""
    outcomes = {(0, 0): [(0.5, 0, 0.0), (0.5, 1, 1.0)]}
    process = from_outcomes(outcomes, num_states=2, actions="a", start=(1, 0), terminal=(1,))
    settings = {"gamma": 0.0, "alpha": 0.5, "epsilon": 0.0, "episodes": 1, "learners": 20, "rng": generator()}
    learned = learner(process, **settings)
    assert len(set(learned.lengths.flatten().tolist())) > 1
    assert learned.action_values[:, 0, 0].tolist() == [0.5] * 20


@pytest.mark.parametrize("learner", [control.sarsa, control.q_learning])
def test_greedy_learner_tries_first_action_once(learner):
    """Of a loss and a gain by one step; each episode begins with the best action at its start."""
    process = from_outcomes(
        {(0, 0): [(1.0, 1, -1.0)], (0, 1): [(1.0, 1, 1.0)]}, num_states=2, actions="ab", start=(1, 0), terminal=(1,)
    )
    settings = {"gamma": 1.0, "alpha": 1.0, "epsilon": 0.0, "episodes": 4, "learners": 2, "rng": generator()}
    learned = learner(process, **settings)
    assert learned.returns.tolist() == [[-1.0, 1.0, 1.0, 1.0]] * 2 and bool(learned.terminated.all())
    assert learned.action_values[:, 0].tolist() == [[-1.0, 1.0]] * 2


@pytest.mark.parametrize(
    ("change", "argument"),
    [
        ({"alpha": 1.5}, "alpha"),
        ({"epsilon": -0.1}, "epsilon"),
        ({"gamma": 2.0}, "gamma"),
        ({"episodes": 0}, "episodes"),
        ({"learners": 0}, "count"),
        ({"time_limit": 0}, "time_limit"),
    ],
)
def test_sarsa_and_q_learning_refuse_bad_numbers(change, argument):
    settings = LEARNERS | {"epsilon": 0.1, "rng": generator()} | change
    for learner in (control.sarsa, control.q_learning):
        with raises(ValueError, argument=argument, value=next(iter(change.values()))):
            learner(worlds.maze().process, **settings)


def test_q_learning_notes_time_limits():
    settings = LEARNERS | {"time_limit": 5, "episodes": 2, "epsilon": 0.1, "rng": generator()}
    learned = control.q_learning(worlds.maze().process, **settings)
    assert bool((learned.lengths == 5).all()) and not bool(learned.terminated.any())


# -- bandits -----------------------------------------------------------------------------------------------------

ARMS = f64(0.2, 0.5, 0.8)


@pytest.mark.parametrize("strategy", [bandits.greedy_with_noise(0.1), bandits.upper_confidence(), bandits.thompson()])
def test_bandit_strategies_find_best_arm(strategy):
    arms = bandits.play(ARMS, strategy, steps=600, players=50, rng=numpy_generator("bandit"))
    assert arms.shape == (50, 600)
    assert float((arms[:, -100:] == 2).double().mean()) > 0.75
    late, early = regret(ARMS, arms[:, 300:])[:, -1], regret(ARMS, arms[:, :300])[:, -1]
    assert late.mean() < early.mean()


def test_bandit_greedy_keeps_an_arm_that_alone_has_paid():
    strategy, rng = bandits.greedy_with_noise(0.0), numpy_generator("stuck")
    arms = bandits.play(f64(1.0, 0.0, 0.0), strategy, steps=100, players=20, rng=rng)
    assert arms[:, :3].sort(1).values.tolist() == [[0, 1, 2]] * 20  # each arm once
    assert bool((arms[:, 3:] == 0).all())


@pytest.mark.parametrize("epsilon", [0.0, 0.1])
def test_bandit_greedy_ignores_order_of_arms(epsilon):
    strategy, players = bandits.greedy_with_noise(epsilon), 2_000
    lost = [
        regret(arms, bandits.play(arms, strategy, steps=60, players=players, rng=numpy_generator("order", name)))[:, -1]
        for name, arms in (("rising", ARMS), ("falling", ARMS.flip(0)))
    ]
    error = sum(float(losses.var()) / players for losses in lost) ** 0.5
    assert abs(float(lost[0].mean() - lost[1].mean())) < 5 * error


def test_bandit_upper_confidence_tries_every_arm_first():
    arms = bandits.play(ARMS, bandits.upper_confidence(), steps=3, players=4, rng=numpy_generator("first"))
    assert arms.sort(1).values.tolist() == [[0, 1, 2]] * 4


def test_bandit_play_refuses_arms_outside_unit_interval():
    with raises(ValueError, value=1.2, expected=(0.0, 1.0)):
        bandits.play(f64(0.1, 1.2), bandits.thompson(), steps=1, players=1, rng=numpy_generator())


# -- Gymnasium ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("process", [worlds.two_choices(), worlds.maze().process, worlds.frozen_lake().process])
def test_table_env_passes_gymnasium_checker(process):
    check_env(gym.TableEnv(process), skip_render_check=True)


def test_cliff_walking_equals_gymnasium():
    ours, theirs = worlds.cliff_walking().process, gym.from_gymnasium(gymnasium.make("CliffWalking-v1"))
    torch.testing.assert_close(theirs.transitions, ours.transitions)
    torch.testing.assert_close(theirs.rewards, torch.where(ours.transitions > 0, ours.rewards, 0.0))
    assert torch.equal(theirs.start, ours.start)


@pytest.mark.parametrize("slippery", [True, False])
def test_frozen_lake_equals_gymnasium(slippery):
    ours = worlds.frozen_lake(slippery=slippery).process
    theirs = gym.from_gymnasium(gymnasium.make("FrozenLake-v1", is_slippery=slippery))
    order = [3, 2, 1, 0]  # theirs is left, down, right, up
    torch.testing.assert_close(theirs.transitions[:, order], ours.transitions)
    torch.testing.assert_close(theirs.expected_rewards[:, order], ours.expected_rewards)
    assert torch.equal(theirs.start, ours.start)


def test_gym_play_earns_planned_value():
    env = gymnasium.make("CliffWalking-v1")
    plan = planning.policy_iteration(gym.from_gymnasium(env), gamma=1.0)
    assert gym.play(env, plan.policy, episodes=2, seed=0).tolist() == [-13.0, -13.0]


def test_table_env_walks_as_its_tables():
    env = gym.TableEnv(worlds.frozen_lake().process)
    returns = gym.play(env, planning.value_iteration(env.process, gamma=1.0).policy, episodes=120, seed=1)
    assert float(returns.mean()) == pytest.approx(14 / 17, abs=0.12)
    with raises(ValueError, argument="action", value=7):
        env.step(7)


def test_from_gymnasium_refuses_environment_without_tables():
    with raises(UserError, argument="P", value="CartPole-v1", problem="missing"):
        gym.from_gymnasium(gymnasium.make("CartPole-v1"))
