"""Chapter 05's machinery: replies as a decision process, the frontier's slope, credit of tokens, training on a toy."""

import copy
import math

import pytest
import torch
from facts import raises

from minirlhf.core import exact
from minirlhf.core.errors import ArgumentError
from minirlhf.core.exact import ToyLM
from minirlhf.data.toys import markov, poem_critic
from minirlhf.equations import mdp, rlhf
from minirlhf.recipes import DR_GRPO, GRPO, RLOO
from minirlhf.trainers.online import OnlineConfig
from minirlhf.trainers.toy import train_toy
from minirlhf_course.chapters.ch05_rlhf_problem import equations as ch05

REF = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)

# -- the frontier ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("beta", [0.3, 1.0, 4.0])
def test_frontier_rates_of_equal_rewards_are_zero(beta):
    rates = rlhf.frontier_rates(REF.log(), torch.ones_like(REF), beta=beta)
    assert all(rate.abs() < 1e-12 for rate in rates)


# -- one prompt as a decision process ------------------------------------------------------------------------------


def test_prefix_states_are_numbered_in_order_of_appearance():
    tokens = torch.tensor([[1, 0, 9], [1, 1, 0], [2, 0, 9]])
    mask = torch.tensor([[1, 1, 0], [1, 1, 1], [1, 1, 0]])
    assert rlhf.prefix_states(tokens, mask).tolist() == [[0, 1, 0], [0, 1, 2], [0, 3, 0]]


def test_token_mdp_of_two_completions_by_hand():
    """'a' earns 3, 'b a' earns 5; a token that no reply has ends in the terminal state for nothing."""
    tokens, mask = torch.tensor([[0, 9], [1, 0]]), torch.tensor([[1, 0], [1, 1]])
    transitions, earned = rlhf.token_mdp(tokens, mask, torch.tensor([3.0, 5.0]), vocab_size=2)
    assert earned.tolist() == [[3.0, 0.0], [5.0, 0.0], [0.0, 0.0]]
    assert transitions.argmax(-1).tolist() == [[2, 1], [2, 2], [2, 2]]
    assert torch.equal(transitions.sum(-1), torch.ones(3, 2))


def test_token_mdp_value_iteration_finds_the_best_completion():
    world = poem_critic()
    responses = world.reference.completions()
    transitions, earned = rlhf.token_mdp(responses.tokens, responses.mask, world.rewards, vocab_size=4)
    values = torch.zeros(len(earned), dtype=torch.float64)
    for _ in range(world.reference.max_len):
        values = mdp.bellman_optimality(transitions, earned, values, gamma=1.0)
    assert values[0] == world.rewards.max() == 3.0


@pytest.mark.parametrize(
    ("tokens", "mask", "rewards", "argument", "value"),
    [
        (
            torch.zeros(2, 3).long(),
            torch.ones(2, 2),
            torch.zeros(2),
            "tokens",
            (2, 3),
        ),
        (torch.zeros(2, 3).long(), torch.ones(2, 3), torch.zeros(3), "rewards", (3,)),
        (torch.full((2, 3), 4), torch.ones(2, 3), torch.zeros(2), "tokens", None),
        (torch.full((2, 3), -1), torch.ones(2, 3), torch.zeros(2), "tokens", None),
        (torch.zeros(2, 3).long(), torch.ones(2, 3), torch.tensor([0.0, math.nan]), "rewards", 1),
        (torch.zeros(2, 3).long(), torch.zeros(2, 3), torch.zeros(2), "mask", [0, 1]),
    ],
)
def test_token_mdp_names_a_bad_argument(tokens, mask, rewards, argument, value):
    with raises(ArgumentError, argument=argument, value=value):
        rlhf.token_mdp(tokens, mask, rewards, vocab_size=4)


# -- worlds and training -------------------------------------------------------------------------------------------


def test_markov_toy_depends_on_the_last_token_only():
    lm = markov((0.2, 0.5, 0.3), {1: (0.6, 0.3, 0.1), 2: (0.1, 0.2, 0.7)}, max_len=3)
    probs = dict(zip(map(tuple, lm.completions().tokens.tolist()), lm.distribution()[0].tolist(), strict=True))
    assert probs[0, 4, 4] == pytest.approx(0.2)
    assert probs[1, 2, 0] == pytest.approx(0.5 * 0.1 * 0.1)
    assert probs[2, 1, 1] == pytest.approx(0.3 * 0.2 * 0.3)


@pytest.mark.parametrize(
    ("start", "after", "argument"),
    [
        ((0.5, 0.5), {}, "after"),
        ((0.5, 0.5), {1: (0.5, 0.25, 0.25)}, "after"),
        ((0.5, 0.5), {1: (0.5, 0.4)}, "start, after"),
        ((1.0, 0.0), {1: (0.5, 0.5)}, "start, after"),
    ],
)
def test_markov_toy_rejects_malformed_rows(start, after, argument):
    with raises(ArgumentError, argument=argument):
        markov(start, after, max_len=2)


def test_poem_critic_is_right_near_the_reference_and_wrong_far_away():
    world = poem_critic()
    worth = dict(zip(world.replies, zip(world.rewards.tolist(), world.gold.tolist(), strict=True), strict=True))
    assert worth["very nice ."] == (1.5, 1.5)
    assert worth["nice nice nice"] == (3.0, -1.0)
    assert worth["."] == (0.0, 0.0)
    assert len(world.replies) == len(set(world.replies)) == 40


def config(**changes):
    settings = {
        "max_steps": 60,
        "batch_size": 8,
        "num_generations": 8,
        "learning_rate": 0.1,
        "max_completion_length": 3,
    }
    return OnlineConfig(**{**settings, "lr_scheduler_type": "linear", **changes})


def random_rewards():
    return torch.randn(1, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def trained(recipe, rewards, reference, **changes):
    policy = copy.deepcopy(reference)
    return policy, train_toy(policy, rewards, recipe, config(**changes), ref_model=reference)


@pytest.mark.slow
def test_train_toy_rloo_with_kl_in_the_reward_reaches_the_optimum():
    world, beta = poem_critic(), 1.0
    policy, history = trained(RLOO.with_(beta=beta), world.rewards[None], world.reference)
    ref_logps = world.reference.distribution()[0].log().detach()
    best = rlhf.optimal_value(ref_logps, world.rewards, beta=beta)
    reached = ch05.rlhf_objective(policy.distribution()[0].log().detach(), ref_logps, world.rewards, beta=beta)
    start = ch05.rlhf_objective(ref_logps, ref_logps, world.rewards, beta=beta)
    assert best - reached < 0.05 * (best - start)
    assert history.last["exact_kl"] == pytest.approx(
        float(exact.divergence(policy.distribution()[0], ref_logps.exp()).detach())
    )


def test_train_toy_prompts_take_turns_with_their_own_rewards():
    reference = ToyLM(2, 1, num_prompts=2)
    rewards = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    policy, _ = trained(RLOO.with_(kl=None), rewards, reference, batch_size=1, max_steps=40)
    missed, missed_before = ((1 - lm.distribution()[[0, 1], [0, 1]]).detach() for lm in (policy, reference))
    assert (missed < 0.5 * missed_before).all()  # each prompt prefers another token


def test_train_toy_keeps_the_reference_and_repeats_itself():
    reference = ToyLM(3, 2, seed=4)
    before, rewards = reference.table.detach().clone(), random_rewards()
    for recipe in (GRPO, DR_GRPO):
        runs = [trained(recipe, rewards, reference, max_steps=4)[1].rows for _ in range(2)]
        assert runs[0] == runs[1]
    assert torch.equal(before, reference.table)


def test_train_toy_monitors_are_not_optimised():
    reference, rewards = ToyLM(3, 2, seed=4), random_rewards()
    policies = []
    for monitors in (None, {"gold": -rewards}):
        policy = copy.deepcopy(reference)
        history = train_toy(policy, rewards, RLOO, config(max_steps=4), ref_model=reference, monitors=monitors)
        policies.append(policy)
    assert torch.equal(policies[0].table, policies[1].table)
    assert history["exact_gold"] == pytest.approx([-x for x in history["exact_reward"]])


@pytest.mark.parametrize("rewards", [torch.zeros(7), torch.zeros(2, 7), torch.full((1, 7), math.nan)])
def test_train_toy_rejects_rewards_that_do_not_fit(rewards):
    with raises(ArgumentError, argument="reward"):
        trained(RLOO, rewards.double(), ToyLM(3, 2))
