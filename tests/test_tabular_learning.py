"""Chapter 03's package: worlds with the answers of the literature, planning, prediction, decision, bandits, Gymnasium."""

import gymnasium
import pytest
import torch
from gymnasium.utils.env_checker import check_env

from minirlhf.core import exact_mdp
from minirlhf.core.errors import UserError
from minirlhf.core.randomness import generator, numpy_generator
from minirlhf.equations import mdp
from minirlhf.equations.value_learning import regret
from minirlhf.tabular import bandits, control, gym, planning, prediction, worlds
from minirlhf.tabular.process import (
    Episodes,
    Process,
    Walkers,
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


def test_six_states():
    path = worlds.SIX_REWARDS[[0, 1, 2, 5]]
    assert float(mdp.discounted_return(path, gamma=0.5)) == -2.5
    values = mdp.mrp_values(worlds.SIX_STATES, worlds.SIX_REWARDS, gamma=0.5)
    assert rounded(values, 4) == [-2.0195, -2.2145, 1.1614, 10.5381, 3.5873, 0.0]


def test_two_choices_marginalised():
    process = worlds.two_choices()
    assert rounded(values_of(process, process.uniform_policy(), 0.5), 4) == [-1.2256, -1.6767, 0.5189, 6.0756, 0.0]


BOLD = torch.tensor([[0.6, 0.4], [0.3, 0.7], [0.5, 0.5], [0.1, 0.9], [0.5, 0.5]], dtype=torch.float64)


def test_two_choices_occupancy():
    process = worlds.two_choices()
    found = [
        mdp.occupancy(process.transitions, policy, process.start, gamma=0.5)[3, 1]
        for policy in (process.uniform_policy(), BOLD)
    ]
    assert rounded(torch.stack(found), 4) == [0.0962, 0.2006]


def test_occupancy_counted_in_episodes():
    process = worlds.two_choices()
    walks = sample_episodes(process, BOLD, count=10_000, rng=generator("occupancy"), time_limit=50)
    counted = count_occupancy(walks, num_states=5, num_actions=2, gamma=0.5)
    exact = mdp.occupancy(process.transitions, BOLD, process.start, gamma=0.5)
    torch.testing.assert_close(counted[:4], exact[:4], atol=0.01, rtol=0)


def test_five_by_five():
    world = worlds.five_by_five()
    uniform = values_of(world.process, world.process.uniform_policy(), 0.9)
    assert rounded(world.table(uniform)[0], 1) == [3.3, 8.8, 4.4, 5.3, 1.5]
    best = planning.value_iteration(world.process, gamma=0.9).values
    assert rounded(world.table(best)[0], 1) == [22.0, 24.4, 22.0, 19.4, 17.5]


def test_four_by_four():
    world = worlds.four_by_four()
    values = world.table(planning.evaluate(world.process, world.process.uniform_policy(), gamma=1.0)[-1])
    assert rounded(values[0], 4) == [0.0, -14.0, -20.0, -22.0]
    assert torch.allclose(values, values.flip(0, 1))


def test_random_walk():
    process = worlds.random_walk()
    assert torch.allclose(values_of(process, process.uniform_policy(), 1.0)[1:-1], torch.arange(1, 6).double() / 6)


def test_cliff_and_maze_and_lake():
    cliff = planning.value_iteration(worlds.cliff_walking().process, gamma=1.0)
    assert cliff.values[36] == -13.0
    maze = worlds.maze()
    assert planning.value_iteration(maze.process, gamma=1.0).values[maze.cells.index("S")] == -14.0
    lake = planning.policy_iteration(worlds.frozen_lake().process, gamma=1.0)
    assert lake.values[0].item() == pytest.approx(14 / 17)
    assert planning.value_iteration(worlds.frozen_lake(slippery=False).process, gamma=1.0).values[0] == 1.0


# -- processes ---------------------------------------------------------------------------------------------------


def test_outcomes_that_meet_are_added_and_their_rewards_averaged():
    p = from_outcomes(
        {(0, 0): [(0.25, 1, 4.0), (0.25, 1, 2.0), (0.5, 0, 1.0)]},
        num_states=2,
        actions="a",
        start=(1, 0),
        terminal=(1,),
    )
    assert p.transitions[0, 0].tolist() == [0.5, 0.5]
    assert p.rewards[0, 0].tolist() == [1.0, 3.0]
    assert p.expected_rewards.tolist() == [[2.0], [0.0]]
    assert p.terminal.tolist() == [False, True]


def test_rows_that_do_not_sum_to_one_are_refused():
    with pytest.raises(ValueError, match=r"transitions of shape \(2, 1, 2\) holds no probability distribution"):
        from_outcomes({(0, 0): [(0.5, 1, 0.0)]}, num_states=2, actions="a", start=(1, 0), terminal=(1,))
    with pytest.raises(ValueError, match="no entry for state 0, action 1"):
        from_outcomes({(0, 0): [(1.0, 1, 0.0)]}, num_states=2, actions="ab", start=(1, 0), terminal=(1,))
    with pytest.raises(ValueError, match="start of shape"):
        from_outcomes({(0, 0): [(1.0, 1, 0.0)]}, num_states=2, actions="a", start=(1, 1), terminal=(1,))
    with pytest.raises(ValueError, match="transitions"):
        sample_chain(torch.ones(2, 2), f64(1, 0), steps=1, count=1, rng=generator())


def test_names_of_actions_must_be_as_many():
    p = worlds.two_choices()
    with pytest.raises(ValueError, match="1 names of actions"):
        Process(p.transitions, p.rewards, p.start, ("only",))


def test_the_impossible_is_never_drawn():
    probs = f64(0.0, 0.3, 0.0, 0.7, 0.0).expand(20_000, -1)
    drawn = choose(probs, generator("draw"))
    assert set(drawn.tolist()) == {1, 3}
    assert float((drawn == 1).double().mean()) == pytest.approx(0.3, abs=0.015)


def test_a_chain_visits_as_its_matrix_says():
    start = f64(1, 0, 0, 0, 0, 0)
    paths = sample_chain(worlds.SIX_STATES, start, steps=3, count=20_000, rng=generator("chain"))
    assert paths.shape == (20_000, 4) and bool((paths[:, 0] == 0).all())
    expected = start @ torch.linalg.matrix_power(worlds.SIX_STATES, 3)
    seen = torch.bincount(paths[:, 3], minlength=6).double() / 20_000
    torch.testing.assert_close(seen, expected, atol=0.015, rtol=0)


def test_walkers_end_are_cut_off_and_begin_again():
    process = worlds.random_walk(3)  # states 0 … 4, start in 2
    walkers = Walkers(process, 2, rng=generator(), time_limit=3)
    walkers.step(torch.tensor([1, 1]))
    second = walkers.step(torch.tensor([1, 0]))
    assert second.terminated.tolist() == [True, False] and second.rewards.tolist() == [1.0, 0.0]
    assert second.next_states.tolist() == [4, 2] and walkers.states.tolist() == [2, 2]
    third = walkers.step(torch.tensor([0, 0]))
    assert third.truncated.tolist() == [False, True] and third.over.tolist() == [False, True]
    assert walkers.states.tolist() == [1, 2]


def test_an_end_at_the_time_limit_is_an_end():
    walkers = Walkers(worlds.random_walk(1), 1, rng=generator(), time_limit=1)
    step = walkers.step(torch.tensor([1]))
    assert step.terminated.item() and not step.truncated.item()


def test_episodes_say_what_was_walked():
    process = worlds.random_walk(3)
    right = f64(0, 1).expand(5, 2)
    walk = sample_episodes(process, right, count=3, rng=generator())
    assert walk.states.tolist() == [[2, 3, 4]] * 3 and walk.rewards.tolist() == [[0.0, 1.0]] * 3
    assert bool(walk.mask.all()) and bool(walk.terminated.all())
    cut = sample_episodes(process, right, count=3, rng=generator(), time_limit=1)
    assert cut.states.tolist() == [[2, 3]] * 3 and not bool(cut.terminated.any())


def test_nobody_starts_at_the_end():
    p = worlds.random_walk(1)
    with pytest.raises(ValueError, match="over before it begins"):
        Walkers(Process(p.transitions, p.rewards, f64(1, 0, 0), p.actions), 1, rng=generator())


# -- planning ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("world", "gamma"),
    [(worlds.cliff_walking(), 1.0), (worlds.frozen_lake(), 0.9), (worlds.five_by_five(), 0.9), (worlds.maze(), 0.95)],
)
def test_both_ways_of_planning_agree_and_their_policies_earn_it(world, gamma):
    by_values, by_policies = (
        plan(world.process, gamma=gamma) for plan in (planning.value_iteration, planning.policy_iteration)
    )
    torch.testing.assert_close(by_values.values, by_policies.values, atol=1e-7, rtol=0)
    for plan in (by_values, by_policies):
        torch.testing.assert_close(values_of(world.process, plan.policy, gamma), by_policies.values, atol=1e-7, rtol=0)
    assert bool((by_policies.history.diff(dim=0) >= -1e-9).all())  # never worse


def test_planning_agrees_with_trying_all_policies():
    p = worlds.two_choices()
    best, _ = exact_mdp.best_values(p.transitions, p.expected_rewards, gamma=0.5)
    torch.testing.assert_close(planning.policy_iteration(p, gamma=0.5).values, best)


def test_sweeps_arrive_at_the_exact_values():
    p = worlds.two_choices()
    history = planning.evaluate(p, BOLD, gamma=0.5)
    torch.testing.assert_close(history[-1], values_of(p, BOLD, 0.5))
    assert bool((history[0] == 0).all())


def endless():
    return from_outcomes({(0, 0): [(1.0, 1, 1.0)], (1, 0): [(1.0, 0, 1.0)]}, num_states=2, actions="a", start=(1, 0))


@pytest.mark.parametrize("plan", [planning.value_iteration, planning.policy_iteration])
def test_no_end_and_no_discount_is_refused(plan):
    with pytest.raises(ValueError, match=r"state\(s\) \[0, 1\]: no terminal state can be reached"):
        plan(endless(), gamma=1.0)
    with pytest.raises(ValueError, match=r"gamma = 1\.5"):
        plan(endless(), gamma=1.5)
    assert plan(endless(), gamma=0.5).values.tolist() == pytest.approx([2.0, 2.0])


def test_a_policy_that_never_arrives_has_a_singular_system():
    p = worlds.random_walk(3)
    to_and_fro = torch.zeros(5, 2, dtype=torch.float64)
    to_and_fro[[0, 1, 2, 3, 4], [0, 1, 0, 1, 0]] = 1.0
    to_and_fro[3] = f64(1, 0)  # 1 → 2 → 1 …
    with pytest.raises(ValueError, match="the Bellman system is singular"):
        planning.evaluate(p, to_and_fro, gamma=1.0)


def test_a_loop_that_pays_never_settles():
    p = from_outcomes(
        {(0, 0): [(1.0, 0, 1.0)], (0, 1): [(1.0, 1, 0.0)]}, num_states=2, actions="ab", start=(1, 0), terminal=(1,)
    )
    with pytest.raises(ValueError, match="a loop that pays"):
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


def test_monte_carlo_needs_ends():
    walks = sample_episodes(worlds.random_walk(19), f64(0.5, 0.5).expand(21, 2), count=4, rng=generator(), time_limit=3)
    with pytest.raises(ValueError, match="4 of 4 episodes were cut off"):
        prediction.monte_carlo(walks, num_states=21, gamma=1.0)


def learn(n, **changes):
    process = worlds.random_walk(3)
    right = f64(0, 1).expand(5, 2)  # every episode: 2 → 3 → 4, rewards 0, 1
    settings = {"gamma": 0.5, "alpha": 0.5, "episodes": 2, "learners": 1, "rng": generator("td"), **changes}
    return prediction.temporal_difference(process, right, n=n, **settings)[:, 0]


def test_td_by_hand():
    """First episode: V(2) sees V(3) = 0, V(3) sees the reward 1. Second: V(2) ← ½ · ½ · ½, V(3) ← ½ + ¼."""
    assert learn(1).tolist() == [[0.0] * 5, [0, 0, 0, 0.5, 0], [0, 0, 0.125, 0.75, 0]]


@pytest.mark.parametrize("n", [2, 7, None])
def test_the_whole_return_by_hand(n):
    """With two steps or more the target of state 2 is ½ from the first episode on."""
    assert learn(n).tolist() == [[0.0] * 5, [0, 0, 0.25, 0.5, 0], [0, 0, 0.375, 0.75, 0]]


@pytest.mark.parametrize("n", [1, 2, None])
def test_a_time_limit_is_no_end(n):
    """Cut off after one step at state 3, which is believed to be worth 1: the target of state 2 is γ, not 0."""
    right = learn(n, time_limit=1, episodes=1, initial=1.0)
    wrong = learn(n, time_limit=1, episodes=1, initial=1.0, limit_is_an_end=True)
    assert right[1, 2] == 0.5 + 0.5 * 0.5 and wrong[1, 2] == 0.5


@pytest.mark.parametrize("n", [1, 4, None])
def test_small_steps_come_close_to_the_values(n):
    process = worlds.random_walk()
    history = prediction.temporal_difference(
        process,
        process.uniform_policy(),
        gamma=1.0,
        alpha=0.1,
        episodes=60,
        learners=150,
        rng=generator("rw"),
        n=n,
        initial=0.5,
    )
    found = history[-20:, :, 1:-1].mean((0, 1))  # of the last 20 episodes and all learners
    torch.testing.assert_close(found, torch.arange(1, 6).double() / 6, atol=0.06, rtol=0)
    assert bool((history[:, :, [0, -1]] == 0).all())


# -- decision ----------------------------------------------------------------------------------------------------

LEARNERS = {"gamma": 1.0, "alpha": 0.5, "episodes": 80, "learners": 6}


def greedy_return(world, action_values, steps=60):
    """What acting greedily earns from the start, at most so many steps."""
    p = world.process
    return float(
        exact_mdp.expected_return(
            p.start, p.transitions, p.expected_rewards, mdp.greedy_policy(action_values), gamma=1.0, steps=steps
        )
    )


def test_q_learning_finds_the_best_way_through_the_maze():
    world = worlds.maze()
    for learned in (
        control.q_learning(world.process, epsilon=0.1, rng=generator("q"), **LEARNERS),
        control.dyna_q(
            world.process, epsilon=0.1, rng=generator("q"), planning_steps=5, **(LEARNERS | {"episodes": 30})
        ),
    ):
        returns = [greedy_return(world, table) for table in learned.action_values]
        assert sorted(returns)[-3] >= -16 and max(returns) == -14
        assert bool((learned.returns == -learned.lengths).all())


def test_planning_steps_save_real_ones():
    world, settings = worlds.maze(), LEARNERS | {"episodes": 15, "learners": 10}
    plain = control.q_learning(world.process, epsilon=0.1, rng=generator("plain"), **settings)
    dyna = control.dyna_q(world.process, epsilon=0.1, rng=generator("dyna"), planning_steps=10, **settings)
    assert dyna.lengths[:, 5:].double().mean() < 0.5 * plain.lengths[:, 5:].double().mean()


def gamble():
    """In state 0: take 1 now, or go to state 1, where the best of two actions earns 3 and the other one loses 5."""
    return from_outcomes(
        {
            (0, 0): [(1.0, 2, 1.0)],
            (0, 1): [(1.0, 1, 0.0)],
            (1, 0): [(1.0, 2, 3.0)],
            (1, 1): [(1.0, 2, -5.0)],
        },
        num_states=3,
        actions=("safe", "bold"),
        start=(1, 0, 0),
        terminal=(2,),
    )


def test_sarsa_learns_what_the_exploring_policy_earns_and_q_learning_what_the_greedy_one_would():
    """With ε = ½, state 1 earns ¾·3 − ¼·5 = 1 if one explores there, 3 if not."""
    settings = {"gamma": 1.0, "alpha": 0.03, "epsilon": 0.5, "episodes": 600, "learners": 60}
    on, off = (
        f(gamble(), rng=generator("gamble"), **settings).action_values.mean(0)
        for f in (control.sarsa, control.q_learning)
    )
    assert float(on[0, 1]) == pytest.approx(1.0, abs=0.25)
    assert float(off[0, 1]) == pytest.approx(3.0, abs=0.05)


def test_greedy_sarsa_and_greedy_q_learning_are_the_same():
    world = worlds.maze()
    settings = LEARNERS | {"epsilon": 0.0, "episodes": 3, "learners": 2, "alpha": 1.0, "gamma": 0.9}
    for learner in (control.sarsa, control.q_learning):
        learned = learner(world.process, rng=generator("greedy"), **settings)
        assert bool(learned.terminated.all())


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"alpha": 1.5}, "alpha = 1.5"),
        ({"epsilon": -0.1}, "epsilon = -0.1"),
        ({"gamma": 2.0}, "gamma = 2.0"),
        ({"episodes": 0}, "episodes = 0"),
        ({"learners": 0}, "count = 0"),
        ({"time_limit": 0}, "time_limit = 0"),
    ],
)
def test_bad_numbers_are_named(change, complaint):
    settings = LEARNERS | {"epsilon": 0.1, "rng": generator()} | change
    for learner in (control.sarsa, control.q_learning):
        with pytest.raises(ValueError, match=complaint):
            learner(worlds.maze().process, **settings)


def test_time_limits_are_noted():
    learned = control.q_learning(
        worlds.maze().process, epsilon=0.1, rng=generator(), **(LEARNERS | {"time_limit": 5, "episodes": 2})
    )
    assert bool((learned.lengths == 5).all()) and not bool(learned.terminated.any())


# -- bandits -----------------------------------------------------------------------------------------------------

ARMS = f64(0.2, 0.5, 0.8)


@pytest.mark.parametrize("strategy", [bandits.greedy_with_noise(0.1), bandits.upper_confidence(), bandits.thompson()])
def test_everybody_finds_the_best_arm(strategy):
    arms = bandits.play(ARMS, strategy, steps=600, players=50, rng=numpy_generator("bandit"))
    assert arms.shape == (50, 600)
    assert float((arms[:, -100:] == 2).double().mean()) > 0.75
    late, early = regret(ARMS, arms[:, 300:])[:, -1], regret(ARMS, arms[:, :300])[:, -1]
    assert late.mean() < early.mean()


def test_without_noise_the_first_arm_that_pays_is_kept():
    arms = bandits.play(
        f64(0.5, 1.0), bandits.greedy_with_noise(0.0), steps=100, players=20, rng=numpy_generator("stuck")
    )
    assert bool((arms == 0).all())  # 0 of 1 pulls paid is no worse than an arm never pulled


def test_confidence_tries_every_arm_first():
    arms = bandits.play(ARMS, bandits.upper_confidence(), steps=3, players=4, rng=numpy_generator("first"))
    assert arms.sort(1).values.tolist() == [[0, 1, 2]] * 4


def test_arms_must_be_probabilities():
    with pytest.raises(ValueError, match=r"largest of means = 1\.2"):
        bandits.play(f64(0.1, 1.2), bandits.thompson(), steps=1, players=1, rng=numpy_generator())


# -- Gymnasium ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "process",
    [
        worlds.two_choices(),
        worlds.random_walk(),
        worlds.maze().process,
        worlds.five_by_five().process,
        worlds.frozen_lake().process,
    ],
)
def test_our_worlds_pass_gymnasiums_checker(process):
    check_env(gym.TableEnv(process), skip_render_check=True)


def test_the_cliff_is_gymnasiums():
    ours, theirs = worlds.cliff_walking().process, gym.from_gymnasium(gymnasium.make("CliffWalking-v1"))
    torch.testing.assert_close(theirs.transitions, ours.transitions)
    torch.testing.assert_close(theirs.rewards, torch.where(ours.transitions > 0, ours.rewards, 0.0))
    assert torch.equal(theirs.start, ours.start)


@pytest.mark.parametrize("slippery", [True, False])
def test_the_lake_is_gymnasiums(slippery):
    ours = worlds.frozen_lake(slippery=slippery).process
    theirs = gym.from_gymnasium(gymnasium.make("FrozenLake-v1", is_slippery=slippery))
    order = [3, 2, 1, 0]  # theirs is left, down, right, up
    torch.testing.assert_close(theirs.transitions[:, order], ours.transitions)
    torch.testing.assert_close(theirs.expected_rewards[:, order], ours.expected_rewards)
    assert torch.equal(theirs.start, ours.start)


def test_a_plan_earns_in_gymnasium_what_it_promises():
    env = gymnasium.make("CliffWalking-v1")
    plan = planning.policy_iteration(gym.from_gymnasium(env), gamma=1.0)
    assert gym.play(env, plan.policy, episodes=2, seed=0).tolist() == [-13.0, -13.0]


def test_our_environment_walks_as_its_tables_say():
    env = gym.TableEnv(worlds.frozen_lake().process)
    returns = gym.play(env, planning.value_iteration(env.process, gamma=1.0).policy, episodes=120, seed=1)
    assert float(returns.mean()) == pytest.approx(14 / 17, abs=0.12)
    with pytest.raises(ValueError, match="action 7"):
        env.step(7)


def test_an_environment_without_tables_is_refused():
    with pytest.raises(UserError, match="CartPole-v1 has no table"):
        gym.from_gymnasium(gymnasium.make("CartPole-v1"))
