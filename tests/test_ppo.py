"""PPO for language models: one step against a computation by hand, its critics, shaped rewards, pretraining texts."""

import copy

import pytest
import torch
from facts import raises

from minirlhf.core.errors import UserError
from minirlhf.data.chat import conversation, encode
from minirlhf.data.formats import Problem
from minirlhf.models.critics import ValueHead, completion_values, critic_from_reward_model, new_critic
from minirlhf.models.heads import RewardModel
from minirlhf.models.sampling import Sampling, sample
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.recipes import PPO, KLInReward
from minirlhf.recipes.parts import (
    RolloutProcessing,
    ScoredRollout,
    penalize_length,
    penalize_missing_eos,
    penalize_overlong,
    unclipped_value_loss,
)
from minirlhf.trainers.loop import TrainingLoop
from minirlhf.trainers.online import OnlineConfig, train_online
from minirlhf.trainers.policy_update import policy_losses, update_policy, value_losses
from minirlhf.trainers.rollouts import add_ref_logps_and_values, in_micro_batches, recompute_old_logps

WORDS = ("one", "two", "three", "go", "stop")
PROBLEMS = [Problem(conversation(text)) for text in ("go", "stop", "go one", "go two")]


@pytest.fixture(scope="module")
def tokenizer():
    return word_tokenizer(WORDS)


def likes_two(problems, completions):
    return [float(text.split().count("two")) for text in completions]


def rollout_of(policy, tokenizer, seed=0):
    """Eight completions of two prompts of different lengths."""
    return sample(
        policy,
        [[6, 9], [6, 9, 7, 8]],
        sampling=Sampling(max_completion_length=6),
        num_generations=4,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        seed=seed,
    )


@pytest.fixture
def world(tokenizer):
    """A policy that has moved on since it sampled, its reference, a critic that has learned something, and a graded rollout."""
    policy, reference = (tiny_model("nano", tokenizer, seed=seed).double() for seed in (1, 2))
    critic = new_critic(policy, shared=False)
    torch.nn.init.normal_(critic.head.weight, std=0.1, generator=torch.Generator().manual_seed(3))
    rollout = rollout_of(policy, tokenizer)
    assert len(set(rollout.mask.sum(-1).tolist())) > 1, "completions of different lengths are wanted here"
    rewards = torch.linspace(-1, 2, 8, dtype=torch.float64).view(2, 4)
    valid = torch.ones(2, 4, dtype=torch.bool)
    valid[0, 2] = False
    graded = add_ref_logps_and_values(ScoredRollout(rollout, rewards, valid), reference, critic, 1.0)
    with torch.no_grad():
        for model in (policy, critic):
            for p in model.parameters():
                p.add_(0.05 * torch.randn(p.shape, dtype=p.dtype, generator=torch.Generator().manual_seed(4)))
    return policy, reference, critic, graded


def gradients(loss, *models):
    parameters = [p for model in models for p in model.parameters() if p.requires_grad]
    found = torch.autograd.grad(loss, parameters, allow_unused=True)
    return torch.cat(
        [torch.zeros(p.numel()).double() if g is None else g.flatten() for p, g in zip(parameters, found, strict=True)]
    )


def library_loss(policy, critic, graded, recipe, micro=None):
    config, rows = OnlineConfig(micro_batch_size=micro), torch.arange(8)
    advantages, targets = recipe.credit(graded, recipe.update.kl), recipe.credit.targets(graded, recipe.update.kl)
    weights = recipe.update.weights(graded.rollout.mask)
    losses = [
        *policy_losses(policy, graded, advantages, recipe, config, rows, weights, []),
        *value_losses(critic, graded, targets, recipe.credit.critic, config, rows),
    ]
    assert len(losses) == 2 * -(-8 // (micro or 8))
    return sum(losses)


def test_add_ref_logps_and_values_micro_batches_change_nothing(world):
    _, reference, critic, graded = world
    whole = add_ref_logps_and_values(graded, reference, critic, 0.7)
    split = add_ref_logps_and_values(graded, reference, critic, 0.7, micro_batch_size=3)
    for name in ("ref_logps", "values"):
        torch.testing.assert_close(getattr(split, name), getattr(whole, name), rtol=0, atol=1e-12)
    sizes = []
    inputs = graded.rollout.input_ids, graded.rollout.attention_mask
    in_micro_batches(lambda _, ids, mask: sizes.append(len(ids)) or ids, 3, reference, *inputs)
    assert sizes == [3, 3, 2]


@pytest.mark.parametrize("micro", [1, 3, 5])
def test_ppo_gradient_is_same_for_micro_batches(world, micro):
    """What it is against the paper's is asked for in test_whole_recipes.py."""
    policy, _, critic, graded = world
    whole, split = (library_loss(policy, critic, graded, PPO, size) for size in (None, micro))
    torch.testing.assert_close(gradients(whole, policy, critic), gradients(split, policy, critic))


def test_ppo_ignores_ungraded_completions(world):
    """Neither policy nor critic: whatever is written in its place."""
    policy, _, critic, graded = world
    other = graded.rewards.clone()
    other[0, 2] = 1e6
    changed = ScoredRollout(graded.rollout, other, graded.valid, graded.ref_logps, graded.values)
    torch.testing.assert_close(library_loss(policy, critic, graded, PPO), library_loss(policy, critic, changed, PPO))
    none = ScoredRollout(graded.rollout, other, torch.zeros_like(graded.valid), graded.ref_logps, graded.values)
    assert library_loss(policy, critic, none, PPO).item() == 0.0


def test_ppo_credit_needs_reference_only_with_kl_term(world):
    _, _, _, graded = world
    alone = ScoredRollout(graded.rollout, graded.rewards, graded.valid, None, graded.values)
    charged = PPO.credit(graded, KLInReward(beta=1e-12))
    torch.testing.assert_close(PPO.credit(alone, None), charged, rtol=1e-6, atol=1e-8)
    with raises(ValueError, argument="ref_logps", problem="missing"):
        PPO.credit(alone, KLInReward())
    with raises(ValueError, argument="values", problem="missing"):
        PPO.credit(ScoredRollout(graded.rollout, graded.rewards, graded.valid), None)


def test_ppo_critic_lam_one_targets_rewards(world):
    """With λ = 1 the target of the critic is what is still to come: here the reward alone."""
    _, _, _, graded = world
    targets = PPO.with_(critic_lam=1.0, kl=None).credit.targets(graded, None)
    rewards = (graded.rewards * graded.valid).flatten()[:, None] * graded.rollout.mask
    torch.testing.assert_close(targets, rewards)


# -- critics ------------------------------------------------------------------------------------------------------


def test_new_critic_shared_reads_policy_hidden_states(tokenizer, tmp_path):
    policy = tiny_model("nano", tokenizer, seed=1)
    head = new_critic(policy, shared=True)
    assert isinstance(head, ValueHead) and sum(p.numel() for p in head.parameters()) == 65
    torch.nn.init.normal_(head.head.weight)
    rollout = rollout_of(policy, tokenizer)
    hidden = policy(input_ids=rollout.input_ids[:1, 2:], output_hidden_states=True).hidden_states[-1][0]
    width = rollout.mask.shape[1]
    values = completion_values(head, rollout.input_ids, rollout.attention_mask, width)[0]
    expected = (hidden @ head.head.weight[0] + head.head.bias)[-width - 1 : -1]
    kept = rollout.mask[0]
    torch.testing.assert_close(values[kept], expected[kept], rtol=1e-4, atol=1e-5)
    head.save_pretrained(tmp_path / "head")
    again = new_critic(policy, shared=True)
    again.restore(tmp_path / "head")
    assert torch.equal(again.head.weight, head.head.weight)


def test_critic_from_reward_model_starts_with_its_scores(tokenizer):
    """Its value of a whole reply is then the reward model's opinion of it."""
    judge = RewardModel.from_causal_lm(tiny_model("nano", tokenizer, seed=1), seed=5)
    ids = torch.tensor([[6, 9, 7, 8, 1]])
    critic = critic_from_reward_model(judge)
    torch.testing.assert_close(critic(ids, torch.ones_like(ids))[0, -1], judge(ids, torch.ones_like(ids))[0])
    with torch.no_grad():
        critic.head.weight.zero_()
    assert float(judge.head.weight.detach().abs().sum()) > 0


@pytest.mark.parametrize("shared", [False, True])
def test_ppo_critic_warmup_trains_critic_alone(tokenizer, shared):
    policy = tiny_model("nano", tokenizer, seed=1)
    before = copy.deepcopy(policy)
    config = OnlineConfig(max_steps=3, batch_size=2, num_generations=4, max_completion_length=4, learning_rate=1e-2)
    recipe = PPO.with_(critic_warmup=2, shared=shared)
    moves = []

    def watch(problems, completions):  # asked once a step, before the update
        moves.append(any(not torch.equal(a, b) for a, b in zip(policy.parameters(), before.parameters(), strict=True)))
        return likes_two(problems, completions)

    history = train_online(policy, PROBLEMS, watch, recipe, config, tokenizer=tokenizer, quiet=True)
    assert moves == [False, False, False]  # after two steps of warm-up it is as it was
    assert any(not torch.equal(a, b) for a, b in zip(policy.parameters(), before.parameters(), strict=True))
    assert history["value"][0] == 0.0 and history["value"][2] != 0.0
    assert ["grad_norm" in row for row in history] == [False, False, True]  # the policy's, not the critic's
    assert all(row["critic_grad_norm"] > 0 for row in history)
    assert ["loss" in row for row in history] == [False, False, True]  # of both; before, there is the critic's alone
    assert ["critic_loss" in row for row in history] == [True, True, False]


def test_ppo_critic_learning_rate_ratio_scales_first_step(tokenizer):
    policy = tiny_model("nano", tokenizer, seed=1)
    critic = new_critic(policy, shared=False)
    recipe = PPO.with_(critic_learning_rate_ratio=5.0, num_iterations=1, num_minibatches=1)
    config = OnlineConfig(max_steps=1, batch_size=2, num_generations=4, max_completion_length=4, learning_rate=1e-3)
    train_online(policy, PROBLEMS, likes_two, recipe, config, tokenizer=tokenizer, critic=critic, quiet=True)
    assert float(critic.head.bias.detach().abs()) == pytest.approx(5e-3, rel=1e-3)  # the first step of Adam


# -- around the objective -----------------------------------------------------------------------------------------


def test_ppo_shapes_rewards_before_credit_and_logs_both(tokenizer):
    policy = tiny_model("nano", tokenizer, seed=1)
    rollout = rollout_of(policy, tokenizer)
    graded = ScoredRollout(rollout, torch.ones(2, 4), torch.ones(2, 4, dtype=torch.bool))
    length = rollout.mask.sum(-1).float()
    shaped = RolloutProcessing((penalize_missing_eos, penalize_length))(graded).rewards.flatten()
    torch.testing.assert_close(shaped, 1 - (~rollout.terminated).float() - 0.01 * length)
    recipe = PPO.with_(shape=(penalize_missing_eos, penalize_overlong), missing_eos_penalty=2.0, soft_punish_cache=3)
    config = OnlineConfig(max_steps=1, batch_size=2, num_generations=4, max_completion_length=3)
    history = train_online(policy, PROBLEMS, likes_two, recipe, config, tokenizer=tokenizer, quiet=True)
    row = history.last
    unfinished = 1 - row["frac_terminated"]
    assert row["shaped_reward"] == pytest.approx(
        row["reward"] - 2 * unfinished - row["completion_length"] / 3, abs=1e-5
    )


@pytest.mark.slow
def test_ppo_ptx_keeps_pretraining_texts_likely(tokenizer):
    """The same run with and without them, on a task that drives the policy away from them."""
    texts = [
        encode(tokenizer, conversation("go", "three three stop")),
        encode(tokenizer, conversation("stop", "three")),
    ]
    ends = {}
    for coefficient in (0.0, 1.0):
        policy = tiny_model("nano", tokenizer, seed=1)
        recipe = PPO.with_(ptx_coef=coefficient, kl=None, num_minibatches=1)
        config = OnlineConfig(
            max_steps=15, batch_size=4, num_generations=4, max_completion_length=4, learning_rate=2e-3
        )
        train_online(
            policy, PROBLEMS, likes_two, recipe, config, tokenizer=tokenizer, pretraining=texts or None, quiet=True
        )
        ids = torch.tensor([texts[0].input_ids])
        with torch.no_grad():
            table = torch.log_softmax(policy(ids).logits[0], -1)
        marked = [t for t, m in enumerate(texts[0].loss_mask) if m]
        ends[coefficient] = sum(float(table[t - 1, texts[0].input_ids[t]]) for t in marked) / len(marked)
    assert ends[1.0] > -0.7 > -2.5 > ends[0.0], ends
    with raises(UserError, argument="pretraining", problem="missing"):
        train_online(policy, PROBLEMS, likes_two, PPO.with_(ptx_coef=0.1), config, tokenizer=tokenizer)


def test_improve_clip_fraction_is_zero_on_policy(world):
    policy, _, critic, graded = world
    config = OnlineConfig(learning_rate=1e-9)
    fresh = ScoredRollout(graded.rollout, graded.rewards, graded.valid, graded.ref_logps, graded.values)
    recipe = PPO.with_(num_iterations=1, num_minibatches=1)
    loop = TrainingLoop("ppo", policy, config, parts={"critic": critic}, quiet=True)
    metrics, visits = update_policy(loop, fresh, recipe, config)
    # The policy has moved since it sampled: some ratios lie outside. Count them by the rule.
    (visit,) = visits
    ratio, mask = (visit.logps - graded.rollout.old_logps).exp(), graded.rollout.mask
    advantages = recipe.credit(fresh, recipe.update.kl)
    outside = ((advantages > 0) & (ratio > 1.2)) | ((advantages < 0) & (ratio < 0.8))
    assert metrics["clip_fraction"] == pytest.approx(float(outside[mask].double().mean())) and outside.any()
    on_policy = add_ref_logps_and_values(
        recompute_old_logps(fresh, policy, config.temperature), policy, critic, config.temperature
    )
    metrics, _ = update_policy(loop, on_policy, recipe, config)
    assert metrics["clip_fraction"] == 0.0 and metrics["policy_log_ratio_max"] < 1e-9


def test_improve_shuffles_minibatches_in_every_pass(world, monkeypatch):
    policy, _, critic, graded = world
    rows = []

    def watched(*args):
        rows.append(args[-1].tolist())
        return value_losses(*args)

    monkeypatch.setattr("minirlhf.trainers.policy_update.value_losses", watched)
    config = OnlineConfig(learning_rate=1e-9)
    loop = TrainingLoop("ppo", policy, config, parts={"critic": critic}, quiet=True)
    update_policy(loop, graded, PPO.with_(num_iterations=2, num_minibatches=2), config)
    assert sorted(rows[0] + rows[1]) == sorted(rows[2] + rows[3]) == list(range(8))
    assert rows[:2] != rows[2:]


def test_value_losses_without_clip_are_squared_errors(world):
    _, _, critic, graded = world
    targets = PPO.credit.targets(graded, PPO.update.kl)
    plan = PPO.with_(value_loss=unclipped_value_loss, vf_coef=1.0).credit.critic
    (loss,) = value_losses(critic, graded, targets, plan, OnlineConfig(), torch.arange(8))
    r, valid = graded.rollout, graded.valid.flatten()
    values = completion_values(critic, r.input_ids, r.attention_mask, r.mask.shape[1])
    kept = r.mask & valid[:, None]
    torch.testing.assert_close(loss, 0.5 * (values - targets)[kept].square().mean())
