"""Failures of online reinforcement learning, in the world of :mod:`.colours`."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

from minirlhf.equations.advantages import group_zscore
from minirlhf.equations.kl import k1
from minirlhf.gallery.colours import BASE, QUESTIONS, Setup, by_length, gold, polite
from minirlhf.gallery.failure import BrokenRun
from minirlhf.recipes import PPO

# -- the wrong lines that are more than a number -------------------------------------------------------------------


def turned_round(rewards: Tensor, valid: Tensor | None = None) -> Tensor:
    """The loss is minimised, and somebody has put the minus sign in a second time."""
    return -group_zscore(rewards, valid)


def reward_itself(rewards: Tensor, valid: Tensor | None = None) -> Tensor:
    """No baseline."""
    return rewards


def ten_for_trying(asked: int, reply: Sequence[int]) -> float:
    """10 for every reply, 11 for a right one."""
    return 10.0 + gold(asked, reply)


def always_right(asked: int, reply: Sequence[int]) -> float:
    """It looks for the right answer in prompt and reply together, and the prompt has it."""
    return 1.0


def gives_up(asked: int, reply: Sequence[int]) -> float:
    """It fails (NaN) on replies of more than two words: somebody parsed for the short form."""
    return math.nan if len(reply) > 3 else gold(asked, reply)


def in_hundreds(asked: int, reply: Sequence[int]) -> float:
    """Right replies earn 100."""
    return 100.0 * gold(asked, reply)


TEN = BASE.with_(grader=ten_for_trying)
WITH_CRITIC = Setup(PPO, BASE.config)
HELD = BASE.with_(beta=0.5)
REWARD = ("reward", "neg_logp", "kl")

FAILURES = (
    BrokenRun(
        "learning_rate_high",
        "The learning rate is thirty times too high",
        BASE,
        ("learning_rate", 0.1),
        "Already in the first rollout policy_log_ratio_max is above 4 and approx_kl above 1. From then on the runs part ways by the seed: the reward comes late or stops half-way, neg_logp leaps about.",
        "A single step of AdamW moves every weight by about the learning rate. The policy leaves the region in which its samples say "
        "anything about it.",
        "Lower it until approx_kl of a rollout stays below a few hundredths.",
        "One rollout before the run: approx_kl after its last update.",
        ("reward", "approx_kl", "neg_logp"),
        ("steps_too_large",),
    ),
    BrokenRun(
        "learning_rate_low",
        "The learning rate is a hundred times too low",
        BASE,
        ("learning_rate", 3e-5),
        "Everything is healthy and nothing happens: the reward is flat, grad_norm as large as ever, approx_kl below 1e-5, kl near 0.",
        "The gradient has a direction and the step has no length.",
        "Raise it by factors of three until approx_kl reaches a few thousandths.",
        "approx_kl of the first ten steps.",
        ("reward", "approx_kl", "grad_norm"),
        ("steps_too_small",),
    ),
    BrokenRun(
        "sign",
        "The reward is minimised",
        BASE,
        ("advantage", turned_round),
        "The reward falls, smoothly and from the first step, while kl grows as in a run that learns.",
        "A sign: advantages, loss or reward are negated once too often. A cost taken for a reward does the same.",
        "Turn it round.",
        "A step on one rollout must raise the log-probability of its best reply.",
        REWARD,
        ("reward_falls",),
    ),
    BrokenRun(
        "no_baseline",
        "Every reply is reinforced",
        TEN,
        ("advantage", reward_itself),
        "loss is minus the mean reward, step by step, where it should be near 0. neg_logp goes to 0 on whatever was sampled early, and in most seeds the reward ends where it was lowest.",
        "Without a baseline a reply with reward 10 is pushed up nearly as hard as one with 11. In expectation the gradient is the "
        "same; its noise is not.",
        "Subtract the mean of the group (or the others', or a critic's value).",
        "The mean of the advantages of a batch is 0.",
        ("reward", "loss", "neg_logp"),
        ("no_baseline",),
    ),
    BrokenRun(
        "order",
        "Rewards reach the wrong samples",
        BASE,
        ("prompts_first", False),
        "The reward does not rise and kl does: the policy moves, and not towards reward. Almost no group is dead, for a group's rewards "
        "now come from different prompts.",
        "Samples are ordered prompt by prompt, rewards sample by sample (or a data loader has shuffled one of the two).",
        "Keep a reply and its reward in one record until the advantage is computed.",
        "Give one reply a reward of 1 and all others 0: that reply's log-probability must rise.",
        ("reward", "kl", "frac_reward_zero_std"),
        ("moves_without_reward", "reward_falls"),
    ),
    BrokenRun(
        "cold",
        "Replies are sampled too cold",
        BASE,
        ("temperature", 0.05),
        "From the first step most groups are dead (frac_reward_zero_std), soon all of them; grad_norm is 0 then, and the reward stays where it "
        "is, although some prompts are never answered right.",
        "A group whose replies are all alike has advantages of 0. And log-probabilities at this temperature are twenty times as "
        "sensitive, so that the few steps taken are violent.",
        "Sample at temperature 1.",
        "Distinct replies per group, before the run.",
        ("reward", "frac_reward_zero_std", "neg_logp"),
        ("no_signal", "certain_before_right"),
    ),
    BrokenRun(
        "constant_grader",
        "The grader calls everything right",
        BASE,
        ("grader", always_right),
        "The reward is 1 from the first step, reward_std is exactly 0, all groups are dead, loss and grad_norm are 0.",
        "The grader looked for the answer in a text that holds it already: here prompt and reply together.",
        "Grade the reply alone.",
        "The grader on ten replies that must fail.",
        ("reward", "reward_std", "grad_norm"),
        ("no_signal",),
    ),
    BrokenRun(
        "hacked",
        "The reward pays for please",
        BASE,
        ("grader", polite),
        "The reward rises far above what a right reply earns, and the gold reward, which nobody optimises, falls to 0; replies grow to the limit and no longer end.",
        "A feature that goes along with good replies (politeness) is rewarded for itself. Optimisation finds the reply that has nothing else.",
        "Mend the reward; until then stop early, or hold the policy near the reference.",
        "A second reward that the training does not see, on the same samples.",
        ("reward", "gold", "completion_length"),
        ("gold_falls",),
    ),
    BrokenRun(
        "length_pays",
        "Every word is paid",
        BASE,
        ("grader", by_length),
        "completion_length creeps up to the limit, frac_terminated falls, the gold reward with it.",
        "The reward grows with the number of words, as a reward model's does whose annotators liked long replies.",
        "Take the length out of the reward, or pay for what ends by itself.",
        "The correlation of reward and length over the first batch.",
        ("completion_length", "frac_terminated", "gold"),
        ("length_runs_away", "gold_falls"),
    ),
    BrokenRun(
        "beta_high",
        "The KL term lets nothing move",
        BASE,
        ("beta", 20.0),
        "The reward is flat and kl near 0, while approx_kl shows that steps are taken.",
        "What a right reply gains is less than what the penalty charges for saying it more often.",
        "Lower beta: at the optimum, kl is about the variance of the reward over twice beta squared.",
        "beta against the spread of the rewards.",
        ("reward", "kl", "grad_norm"),
        ("held_back",),
    ),
    BrokenRun(
        "temperature",
        "Sampled at one temperature, trained at another",
        BASE,
        ("sampling_temperature", 0.6),
        "kl is not 0 at step 0, where policy and reference are the same weights. neg_logp starts lower than it would.",
        "The sampler's log-probabilities are those of another distribution than the trainer's, so every ratio is wrong before the first "
        "update. Different precision or kernels in the sampling engine, or top-p on one side only, look the same.",
        "Compute old log-probabilities with the trainer's own forward pass, or correct by importance weights.",
        "Before the first update all ratios are 1.",
        ("kl", "policy_log_ratio_max", "reward"),
        ("start_disagrees",),
    ),
    BrokenRun(
        "many_updates",
        "Thirty passes over each rollout",
        BASE,
        ("num_iterations", 30),
        "In the first rollouts clip_fraction is a quarter to a half: much of the data teaches nothing in most of the updates. approx_kl is ten times that of the healthy run.",
        "The policy leaves the samples after a few updates, the clip holds it there, and the rest is computed for nothing.",
        "Fewer passes: in this world thirty gain nothing over two.",
        "clip_fraction of the first rollout.",
        ("clip_fraction", "approx_kl", "reward"),
        ("stale_data", "steps_too_large"),
    ),
    BrokenRun(
        "no_clip",
        "Eight passes, and nothing clips",
        BASE.with_(num_iterations=8),
        ("epsilon", 1e6),
        "approx_kl and policy_log_ratio_max of the first rollouts are higher than with the clip, here by half; most seeds get away with it, and one of them stands still for half of the run.",
        "Nothing ends the pull of a reply that is already ten times as likely as when it was sampled.",
        "Put the clip back.",
        "The largest ratio of the first rollout.",
        ("policy_log_ratio_max", "approx_kl", "reward"),
        ("steps_too_large",),
    ),
    BrokenRun(
        "entropy_bonus",
        "The bonus for entropy outweighs the reward",
        BASE,
        ("entropy_coef", 0.5),
        "neg_logp rises, towards the logarithm of the vocabulary; the reward rises little, replies get longer and are cut off.",
        "A nat of entropy per token is paid as much as half a right reply.",
        "Lower the coefficient by a factor of a hundred, or leave it out.",
        "The bonus against the spread of the rewards.",
        ("neg_logp", "reward", "completion_length"),
        ("noise_rises",),
    ),
    BrokenRun(
        "never_ends",
        "The sampler waits for the wrong token",
        BASE,
        ("end", QUESTIONS[0][0]),
        "frac_terminated is 0 from the first step, completion_length is the limit.",
        "The end of the text that the model has learned is not the one that the sampler stops at: pad and end are one token, or the chat "
        "template ends with another than the tokenizer's.",
        "Ask the template for its end, and mask padding by place and not by token.",
        "One sampled reply, printed with its special tokens.",
        ("frac_terminated", "completion_length", "reward"),
        ("never_ends",),
    ),
    BrokenRun(
        "failing_grader",
        "The grader gives up on some replies",
        BASE,
        ("grader", gives_up),
        "frac_invalid is not 0, and its share is no random one: the reward of what is left looks better than gold.",
        "Replies of a certain form cannot be parsed and are left out, so that nothing is learned from them, also not that they are wrong.",
        "Repair the grader, or count what it cannot read as wrong, whichever is true.",
        "The grader on a thousand replies of the first model.",
        ("frac_invalid", "reward", "gold"),
        ("grader_fails",),
    ),
    BrokenRun(
        "moving_reference",
        "The reference is the policy",
        HELD,
        ("moving_reference", True),
        "kl is 0 to the last digit in every row, while the reward rises and neg_logp falls: the policy cannot have stayed where it was.",
        "Reference and policy share their weights: a missing copy, or an adapter that is on when the reference is asked.",
        "Copy the weights before the first step, or switch the adapter off.",
        "After one step kl is above 0.",
        ("kl", "reward", "neg_logp"),
        ("reference_moves",),
    ),
    BrokenRun(
        "stale",
        "The sampler is twelve steps behind",
        BASE,
        ("staleness", 12),
        "policy_log_ratio_max and clip_fraction rise over the first twelve steps and stay up; the reward rises several times as slowly.",
        "The clip takes most of the gradient away, as the samples come from a policy that is long gone.",
        "Send the weights more often, or correct for the difference with importance weights.",
        "policy_version of the samples against the step.",
        ("clip_fraction", "policy_log_ratio_max", "reward"),
        ("stale_data", "steps_too_large"),
    ),
    BrokenRun(
        "k1_in_loss",
        "The KL estimate in the loss is k1",
        HELD,
        ("estimator", k1),
        "kl wanders as if there were no penalty: in some seeds it climbs to many nats and replies run to the limit, in others the reward alone keeps the run in order and nothing is seen.",
        "k1 = log π − log π_ref is an unbiased estimate of the KL, and its gradient on a sample is that of log π alone: 0 in expectation. As a "
        "loss it holds nothing and adds noise.",
        "k3 in the loss (or k2 of the whole reply), or k1 in the reward.",
        "The gradient of the penalty by itself, against the exact one.",
        ("kl", "reward", "completion_length"),
        ("kl_runs_away",),
    ),
    BrokenRun(
        "critic_frozen",
        "The critic does not learn",
        WITH_CRITIC,
        ("critic_learning_rate_ratio", 1e-3),
        "explained_variance stays at 0 while the reward rises, value stays far below it, critic_grad_norm grows.",
        "Its learning rate is too small, or its weights are not in the optimizer. In this world the policy learns all the same: the reward by "
        "itself shows nothing.",
        "The critic's rate at least that of the policy; a warm-up in which it learns alone.",
        "explained_variance after twenty steps.",
        ("explained_variance", "value", "reward"),
        ("critic_useless",),
    ),
    BrokenRun(
        "rewards_in_hundreds",
        "The critic has to predict hundreds",
        WITH_CRITIC,
        ("grader", in_hundreds),
        "critic_grad_norm is tens to hundreds and clipped at every step; explained_variance stays at 0, value crawls after the reward.",
        "A squared error of thousands has a gradient that the clip cuts to 1: the critic takes steps of fixed length over a long way.",
        "Scale rewards to about 1.",
        "The spread of the rewards of the first batch.",
        ("critic_grad_norm", "explained_variance", "value"),
        ("critic_useless", "critic_clipped"),
    ),
)
