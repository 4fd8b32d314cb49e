"""The recipe table: binding by name, and the gradient of a step against the exact oracle."""

import dataclasses

import pytest
import torch

from minirlhf import recipes
from minirlhf.core.errors import UserError
from minirlhf.core.exact import ToyLM
from minirlhf.data.types import Rollout
from minirlhf.equations.advantages import group_center
from minirlhf.equations.aggregation import sequence_sum, token_mean
from minirlhf.equations.kl import k1, k2, k3
from minirlhf.equations.policy_losses import reinforce
from minirlhf.recipes import DR_GRPO, GRPO, RLOO, Grouped, InLoss, InReward
from minirlhf.recipes.parts import Graded
from minirlhf.recipes.recipe import describe
from minirlhf.trainers.improve import policy_losses
from minirlhf.trainers.online import OnlineConfig


def graded_pair(lm: ToyLM, first: int, second: int, rewards: torch.Tensor, ref: ToyLM | None = None) -> Graded:
    """The rollout in which responses ``first`` and ``second`` were sampled for the only prompt."""
    rows = torch.tensor([first, second])
    batch = lm.batch()
    mask = batch["mask"][rows]
    logps = lm.response_token_logps()[0][rows].detach()
    rollout = Rollout(
        input_ids=batch["input_ids"][rows],
        attention_mask=batch["attention_mask"][rows],
        mask=mask,
        old_logps=logps,
        behavior_logps=logps,
        policy_version=torch.where(mask, 0, -1),
        terminated=lm.responses().terminated[rows],
        num_generations=2,
    )
    ref_logps = None if ref is None else ref.response_token_logps()[0][rows].detach()
    return Graded(rollout, rewards[rows][None], torch.ones(1, 2, dtype=torch.bool), ref_logps)


def expected_step(lm: ToyLM, recipe: recipes.Recipe, rewards: torch.Tensor, ref: ToyLM | None = None) -> torch.Tensor:
    """E[gradient of the trainer's loss] over all pairs of responses, each weighted with its probability."""
    probs = lm.distribution()[0].detach()
    total = torch.zeros_like(lm.table)
    config = OnlineConfig(batch_size=1, num_generations=2, max_completion_length=lm.max_len)
    for i in range(len(probs)):
        for j in range(len(probs)):
            graded = graded_pair(lm, i, j, rewards, ref)
            advantages = recipe.credit(graded, recipe.update.kl)
            weights = recipe.update.weights(graded.rollout.mask)
            losses = list(policy_losses(lm, graded, advantages, recipe, config, torch.arange(2), weights, []))
            total += probs[i] * probs[j] * torch.autograd.grad(sum(losses), lm.table)[0]
    return total


@pytest.fixture
def world() -> tuple[ToyLM, ToyLM, torch.Tensor]:
    lm, ref = ToyLM(3, 2, seed=1), ToyLM(3, 2, seed=2)
    rewards = torch.randn(lm.distribution().shape[1], dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    return lm, ref, rewards


def test_expected_rloo_step_is_the_exact_policy_gradient(world):
    lm, _, rewards = world
    step = expected_step(lm, RLOO.with_(kl=None, weights=sequence_sum), rewards)
    exact = torch.autograd.grad((lm.distribution()[0] * rewards).sum(), lm.table)[0]
    torch.testing.assert_close(-step, exact)


def test_expected_rloo_step_with_kl_in_the_reward_is_the_gradient_of_the_regularised_objective(world):
    lm, ref, rewards = world
    step = expected_step(lm, RLOO.with_(weights=sequence_sum, beta=0.3), rewards, ref)
    p, q = lm.distribution()[0], ref.distribution()[0].detach()
    exact = torch.autograd.grad((p * rewards).sum() - 0.3 * (p * (p / q).log()).sum(), lm.table)[0]
    torch.testing.assert_close(-step, exact)


def test_expected_centred_step_is_half_the_gradient_for_groups_of_two(world):
    lm, _, rewards = world
    recipe = DR_GRPO.with_(weights=sequence_sum)
    exact = torch.autograd.grad((lm.distribution()[0] * rewards).sum(), lm.table)[0]
    torch.testing.assert_close(-expected_step(lm, recipe, rewards), exact / 2)


def test_kl_in_the_loss_adds_its_own_gradient_only(world):
    lm, ref, rewards = world
    recipe = GRPO.with_(kl=InLoss(k2, 0.7), weights=sequence_sum)
    with_kl = expected_step(lm, recipe, rewards, ref)
    without = expected_step(lm, recipe.with_(kl=None), rewards)
    # E[∇ Σ_t k2] on policy: the sum over responses of p · ∇ ½ Σ_t (log π − log π_ref)², with p held fixed.
    logps = lm.response_token_logps()[0]
    k2_sum = (0.5 * (logps - ref.response_token_logps()[0].detach()) ** 2 * lm.responses().mask).sum(-1)
    expected = torch.autograd.grad((lm.distribution()[0].detach() * k2_sum).sum(), lm.table)[0]
    torch.testing.assert_close(with_kl - without, 0.7 * expected)


@pytest.mark.parametrize("size", [1, 2, 3, 6])
def test_micro_batches_do_not_change_the_gradient(world, size):
    lm, ref, rewards = world
    graded = graded_pair(lm, 0, 5, rewards, ref)
    rollout = graded.rollout
    rows = torch.tensor([0, 1, 0, 1, 1, 0])
    big = Graded(
        rollout.select(rows), graded.rewards.expand(3, 2), torch.ones(3, 2, dtype=torch.bool), graded.ref_logps[rows]
    )
    for recipe in (GRPO, GRPO.with_(weights=token_mean), DR_GRPO.with_(max_completion_length=4)):
        grads = []
        for micro in (None, size):
            config = OnlineConfig(batch_size=3, num_generations=2, micro_batch_size=micro)
            advantages = torch.linspace(-1, 1, 6, dtype=torch.float64)[:, None] * big.rollout.mask
            weights = recipe.update.weights(big.rollout.mask)
            losses = list(policy_losses(lm, big, advantages, recipe, config, torch.arange(6), weights, []))
            assert len(losses) == -(-6 // (micro or 6))
            grads.append(torch.autograd.grad(sum(losses), lm.table)[0])
        torch.testing.assert_close(grads[0], grads[1])


def test_with_binds_fields_and_hyperparameters_by_name():
    changed = GRPO.with_(epsilon_high=0.28, beta=0.1, num_iterations=2, weights=token_mean)
    assert changed.update.objective.keywords == {"epsilon_high": 0.28}
    assert changed.update.kl == InLoss(k3, 0.1)
    assert (changed.update.num_iterations, changed.update.weights) == (2, token_mean)
    assert GRPO.update.kl == InLoss(k3, 0.04)  # the original is as it was


def test_a_hyperparameter_binds_to_the_function_given_beside_it():
    recipe = DR_GRPO.with_(objective=GRPO.update.objective, epsilon=0.1, max_completion_length=7)
    mask = torch.ones(2, 3, dtype=torch.bool)
    assert recipe.update.weights(mask)[0, 0] == pytest.approx(1 / 14)
    assert recipe.update.objective.keywords == {"epsilon": 0.1}


def test_an_option_that_no_function_takes_is_an_error_with_the_nearest_name():
    with pytest.raises(UserError, match=r"epsilon_hi.*did you mean 'epsilon_high'"):
        GRPO.with_(epsilon_hi=0.28)
    with pytest.raises(UserError, match="beta"):
        GRPO.with_(objective=reinforce, kl=None).with_(beta=0.1)
    with pytest.raises(UserError, match="unknown recipe 'reinforse': did you mean 'reinforce'"):
        recipes.get("reinforse")


def test_a_kl_term_without_reference_is_an_error(world):
    lm, _, rewards = world
    with pytest.raises(ValueError, match="ref_logps"):
        Grouped(group_center)(graded_pair(lm, 0, 1, rewards), InReward(k1, 0.1))


def test_every_recipe_describes_itself():
    for recipe in recipes.RECIPES.values():
        text = describe(recipe)
        assert recipe.source in text and recipe.name in text
        assert "<lambda>" not in text
        assert dataclasses.asdict(recipe)["name"] == recipe.name
