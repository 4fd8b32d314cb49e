"""Failures of online reinforcement learning, on the toy task of :mod:`.colours`."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

from minirlhf.equations.advantages import group_zscore
from minirlhf.equations.kl import k1
from minirlhf.recipes import PPO
from minirlhf_course.gallery.colours import BASE, END, PLEASE, QUESTIONS, Setup, by_length, finished, gold, polite
from minirlhf_course.gallery.failure import BrokenRun

# -- faulty functions: changes that are more than one number --------------------------------------------------------


def turned_round(rewards: Tensor, valid: Tensor | None = None) -> Tensor:
    """The advantages have a wrong sign: the loss already contains the minus sign."""
    return -group_zscore(rewards, valid)


def reward_itself(rewards: Tensor, valid: Tensor | None = None) -> Tensor:
    """Return the rewards as advantages, without a baseline."""
    return rewards


def ten_for_trying(asked: int, reply: Sequence[int]) -> float:
    """Return 10 for a wrong completion, 11 for a correct one."""
    return 10.0 + gold(asked, reply)


def always_right(asked: int, reply: Sequence[int]) -> float:
    """The grader searches for the correct answer in prompt and completion; the prompt always contains it."""
    return 1.0


def gives_up(asked: int, reply: Sequence[int]) -> float:
    """The grader fails (NaN) on completions of more than three tokens, the end included: its parser is too strict."""
    return math.nan if len(reply) > 3 else gold(asked, reply)


def reads_beginning(reply: Sequence[int]) -> bool:
    """Flag "please" in the words before the first colour; the monitor does not read on."""
    colours = [place for place, word in enumerate(reply) if word not in (END, PLEASE)]
    return PLEASE in reply[: min(colours, default=len(reply))]


def in_hundreds(asked: int, reply: Sequence[int]) -> float:
    """Return 100 for a correct completion."""
    return 100.0 * gold(asked, reply)


TEN = BASE.with_(grader=ten_for_trying)
WITH_CRITIC = Setup(PPO, BASE.config)
FINISHED = BASE.with_(grader=finished)
HELD = BASE.with_(beta=0.5)
TWO_QUESTIONS = BASE.with_(asked=(0, 1), costs=True)
MONITORED = BASE.with_(grader=polite, fine=2.0, costs=True)
REWARD = ("reward", "neg_logp", "kl")

FAILURES = (
    BrokenRun(
        "learning_rate_high", BASE, ("learning_rate", 0.1), ("reward", "approx_kl", "neg_logp"), ("steps_too_large",)
    ),
    BrokenRun(
        "learning_rate_low", BASE, ("learning_rate", 3e-5), ("reward", "approx_kl", "grad_norm"), ("steps_too_small",)
    ),
    BrokenRun("sign", BASE, ("advantage", turned_round), REWARD, ("reward_falls",)),
    BrokenRun("no_baseline", TEN, ("advantage", reward_itself), ("reward", "loss", "neg_logp"), ("no_baseline",)),
    BrokenRun(
        "order",
        BASE,
        ("prompts_first", False),
        ("reward", "kl", "frac_reward_zero_std"),
        ("moves_without_reward", "reward_falls"),
    ),
    BrokenRun(
        "cold",
        BASE,
        ("temperature", 0.05),
        ("reward", "frac_reward_zero_std", "neg_logp"),
        ("no_signal", "certain_before_right"),
    ),
    BrokenRun("constant_grader", BASE, ("grader", always_right), ("reward", "reward_std", "grad_norm"), ("no_signal",)),
    BrokenRun("hacked", BASE, ("grader", polite), ("reward", "gold", "completion_length"), ("gold_falls",)),
    BrokenRun(
        "hack_spreads", TWO_QUESTIONS, ("grader", polite), ("reward", "cost_please", "cost_blue"), ("gold_falls",)
    ),
    BrokenRun(
        "monitor_partial",
        MONITORED,
        ("monitor", reads_beginning),
        ("reward", "cost_flags", "cost_please"),
        ("monitor_evaded",),
    ),
    BrokenRun(
        "length_pays",
        BASE,
        ("grader", by_length),
        ("completion_length", "frac_terminated", "gold"),
        ("length_runs_away", "gold_falls"),
    ),
    BrokenRun("beta_high", BASE, ("beta", 20.0), ("reward", "kl", "grad_norm"), ("held_back",)),
    BrokenRun(
        "temperature",
        BASE,
        ("sampling_temperature", 0.6),
        ("kl", "policy_log_ratio_max", "reward"),
        ("start_disagrees",),
    ),
    BrokenRun(
        "many_updates",
        BASE,
        ("num_iterations", 30),
        ("clip_fraction", "approx_kl", "reward"),
        ("stale_data", "steps_too_large"),
    ),
    BrokenRun(
        "no_clip",
        BASE.with_(num_iterations=8),
        ("epsilon", 1e6),
        ("policy_log_ratio_max", "approx_kl", "reward"),
        ("steps_too_large",),
    ),
    BrokenRun(
        "entropy_bonus", BASE, ("entropy_coef", 0.5), ("neg_logp", "reward", "completion_length"), ("noise_rises",)
    ),
    BrokenRun(
        "never_ends",
        BASE,
        ("end", QUESTIONS[0][0]),
        ("frac_terminated", "completion_length", "reward"),
        ("never_ends",),
    ),
    BrokenRun(
        "limit_short",
        FINISHED,
        ("longest", 1),
        ("reward", "frac_terminated", "gold"),
        ("no_signal", "never_ends"),
    ),
    BrokenRun("failing_grader", BASE, ("grader", gives_up), ("frac_invalid", "reward", "gold"), ("grader_fails",)),
    BrokenRun("moving_reference", HELD, ("moving_reference", True), ("kl", "reward", "neg_logp"), ("reference_moves",)),
    BrokenRun(
        "stale",
        BASE,
        ("staleness", 12),
        ("clip_fraction", "policy_log_ratio_max", "reward"),
        ("stale_data", "steps_too_large"),
    ),
    BrokenRun("k1_in_loss", HELD, ("estimator", k1), ("kl", "reward", "completion_length"), ("kl_runs_away",)),
    BrokenRun(
        "critic_frozen",
        WITH_CRITIC,
        ("critic_learning_rate_ratio", 1e-3),
        ("explained_variance", "value", "reward"),
        ("critic_useless",),
    ),
    BrokenRun(
        "rewards_in_hundreds",
        WITH_CRITIC,
        ("grader", in_hundreds),
        ("critic_grad_norm", "explained_variance", "value"),
        ("critic_useless", "critic_clipped"),
    ),
)
