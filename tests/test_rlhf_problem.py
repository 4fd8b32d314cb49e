"""Chapter 05's machinery: replies as a decision process, the frontier's slope, credit of tokens, training on a toy."""

import copy
import math

import pytest
import torch

from minirlhf.core import exact
from minirlhf.core.exact import ToyLM
from minirlhf.data.toys import markov, poem_critic
from minirlhf.equations import mdp, rlhf
from minirlhf.recipes import DR_GRPO, GRPO, RLOO
from minirlhf.trainers.online import OnlineConfig
from minirlhf.trainers.toy import train_toy

REF, REWARDS = torch.tensor([[0.5, 0.3, 0.2], [1.0, 0.0, -1.0]], dtype=torch.float64)

# -- the frontier ------------------------------------------------------------------------------------------------


def test_worked_example_of_the_frontier():
    """At β = 1 both rates are −Var[r] under π*: .826862 − .741936² = .276392."""
    reward_rate, kl_rate = rlhf.frontier_rates(REF.log(), REWARDS, beta=1.0)
    best = rlhf.optimal_logps(REF.log(), REWARDS, beta=1.0).exp()
    variance = exact.expectation(best, REWARDS**2) - exact.expectation(best, REWARDS) ** 2
    assert reward_rate.item() == pytest.approx(-variance.item())
    assert kl_rate.item() == pytest.approx(-variance.item())


@pytest.mark.parametrize("beta", [0.3, 1.0, 4.0])
def test_equal_rewards_leave_nothing_to_trade(beta):
    rates = rlhf.frontier_rates(REF.log(), torch.ones_like(REF), beta=beta)
    assert all(rate.abs() < 1e-12 for rate in rates)


# -- one prompt as a decision process ------------------------------------------------------------------------------


def test_prefixes_are_numbered_in_the_order_of_their_coming():
    tokens = torch.tensor([[1, 0, 9], [1, 1, 0], [2, 0, 9]])
    mask = torch.tensor([[1, 1, 0], [1, 1, 1], [1, 1, 0]])
    assert rlhf.prefix_states(tokens, mask).tolist() == [[0, 1, 0], [0, 1, 2], [0, 3, 0]]


def test_two_replies_as_a_decision_process():
    """'a' earns 3, 'b a' earns 5; a token that no reply has ends in the terminal state for nothing."""
    tokens, mask = torch.tensor([[0, 9], [1, 0]]), torch.tensor([[1, 0], [1, 1]])
    transitions, earned = rlhf.token_mdp(tokens, mask, torch.tensor([3.0, 5.0]), vocab_size=2)
    assert earned.tolist() == [[3.0, 0.0], [5.0, 0.0], [0.0, 0.0]]
    assert transitions.argmax(-1).tolist() == [[2, 1], [2, 2], [2, 2]]
    assert torch.equal(transitions.sum(-1), torch.ones(3, 2))


def test_every_transition_is_certain_and_every_state_is_a_prefix():
    responses = ToyLM(4, 3).responses()
    transitions, earned = rlhf.token_mdp(responses.tokens, responses.mask, torch.zeros(40), vocab_size=4)
    assert set(transitions.unique().tolist()) == {0.0, 1.0}
    assert len(earned) == 1 + 3 + 9 + 1  # prefixes of 0, 1 and 2 tokens without EOS, and the end


def test_value_iteration_finds_the_best_reply():
    world = poem_critic()
    responses = world.reference.responses()
    transitions, earned = rlhf.token_mdp(responses.tokens, responses.mask, world.rewards, vocab_size=4)
    values = torch.zeros(len(earned), dtype=torch.float64)
    for _ in range(world.reference.max_len):
        values = mdp.bellman_optimality(transitions, earned, values, gamma=1.0)
    assert values[0] == world.rewards.max() == 3.0


@pytest.mark.parametrize(
    ("tokens", "mask", "rewards", "message"),
    [
        (
            torch.zeros(2, 3).long(),
            torch.ones(2, 2),
            torch.zeros(2),
            r"tokens has shape \(2, 3\).*T = 2 \(as in mask\)",
        ),
        (torch.zeros(2, 3).long(), torch.ones(2, 3), torch.zeros(3), r"rewards has shape \(3,\)"),
        (torch.full((2, 3), 4), torch.ones(2, 3), torch.zeros(2), "outside 0 .. vocab_size − 1 = 3"),
        (torch.full((2, 3), -1), torch.ones(2, 3), torch.zeros(2), "outside 0 .. vocab_size − 1 = 3"),
        (torch.zeros(2, 3).long(), torch.ones(2, 3), torch.tensor([0.0, math.nan]), "rewards"),
        (torch.zeros(2, 3).long(), torch.zeros(2, 3), torch.zeros(2), "no sampled token"),
    ],
)
def test_bad_responses_are_named(tokens, mask, rewards, message):
    with pytest.raises(ValueError, match=message):
        rlhf.token_mdp(tokens, mask, rewards, vocab_size=4)


def test_credit_of_a_token_by_hand():
    """β = ½; charges log π/π_ref of 2 and −4: the first token answers for both, the second for its own."""
    logps, ref_logps = torch.tensor([[-1.0, -5.0, math.nan]]), torch.tensor([[-3.0, -1.0, math.nan]])
    to_go = rlhf.regularised_return_to_go(logps, ref_logps, torch.tensor([3.0]), torch.tensor([[1, 1, 0]]), beta=0.5)
    assert to_go.tolist() == [[3.0 - 0.5 * (2.0 - 4.0), 3.0 + 0.5 * 4.0, 0.0]]


# -- worlds and training -------------------------------------------------------------------------------------------


def test_a_markov_model_forgets_all_but_the_last_token():
    lm = markov((0.2, 0.5, 0.3), {1: (0.6, 0.3, 0.1), 2: (0.1, 0.2, 0.7)}, max_len=3)
    probs = dict(zip(map(tuple, lm.responses().tokens.tolist()), lm.distribution()[0].tolist(), strict=True))
    assert probs[0, 4, 4] == pytest.approx(0.2)
    assert probs[1, 2, 0] == pytest.approx(0.5 * 0.1 * 0.1)
    assert probs[2, 1, 1] == pytest.approx(0.3 * 0.2 * 0.3)


@pytest.mark.parametrize(
    ("start", "after"),
    [
        ((0.5, 0.5), {}),
        ((0.5, 0.5), {1: (0.5, 0.25, 0.25)}),
        ((0.5, 0.5), {1: (0.5, 0.4)}),
        ((1.0, 0.0), {1: (0.5, 0.5)}),
    ],
)
def test_a_malformed_markov_model_is_an_error(start, after):
    with pytest.raises(ValueError, match="after"):
        markov(start, after, max_len=2)


def test_the_poem_critic_is_right_near_home_and_wrong_far_away():
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


def trained(recipe, rewards, reference, **changes):
    policy = copy.deepcopy(reference)
    return policy, train_toy(policy, rewards, recipe, config(**changes), ref_model=reference)


@pytest.mark.slow
def test_kl_in_the_reward_reaches_the_optimum():
    world, beta = poem_critic(), 1.0
    policy, history = trained(RLOO.with_(beta=beta), world.rewards[None], world.reference)
    ref_logps = world.reference.distribution()[0].log().detach()
    best = rlhf.optimal_value(ref_logps, world.rewards, beta=beta)
    reached = rlhf.rlhf_objective(policy.distribution()[0].log().detach(), ref_logps, world.rewards, beta=beta)
    start = rlhf.rlhf_objective(ref_logps, ref_logps, world.rewards, beta=beta)
    assert best - reached < 0.05 * (best - start)
    assert history.last["exact_kl"] == pytest.approx(
        float(exact.divergence(policy.distribution()[0], ref_logps.exp()).detach())
    )


def test_prompts_take_turns_and_each_has_its_own_rewards():
    reference = ToyLM(2, 1, num_prompts=2)
    rewards = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    policy, _ = trained(RLOO.with_(kl=None), rewards, reference, batch_size=1, max_steps=40)
    missed, missed_before = ((1 - lm.distribution()[[0, 1], [0, 1]]).detach() for lm in (policy, reference))
    assert (missed < 0.5 * missed_before).all()  # each prompt prefers another token


def test_training_leaves_the_reference_alone_and_repeats_itself():
    reference = ToyLM(3, 2, seed=4)
    before, rewards = reference.table.detach().clone(), torch.randn(1, 7).double()
    for recipe in (GRPO, DR_GRPO):
        runs = [trained(recipe, rewards, reference, max_steps=4)[1].rows for _ in range(2)]
        assert runs[0] == runs[1]
    assert torch.equal(before, reference.table)


def test_monitors_are_watched_and_not_optimised():
    reference, rewards = ToyLM(3, 2, seed=4), torch.randn(1, 7).double()
    policies = []
    for monitors in (None, {"gold": -rewards}):
        policy = copy.deepcopy(reference)
        history = train_toy(policy, rewards, RLOO, config(max_steps=4), ref_model=reference, monitors=monitors)
        policies.append(policy)
    assert torch.equal(policies[0].table, policies[1].table)
    assert history["exact_gold"] == pytest.approx([-x for x in history["exact_reward"]])


@pytest.mark.parametrize("rewards", [torch.zeros(7), torch.zeros(2, 7), torch.full((1, 7), math.nan)])
def test_rewards_that_do_not_fit_are_an_error(rewards):
    with pytest.raises(ValueError, match="reward"):
        trained(RLOO, rewards.double(), ToyLM(3, 2))
