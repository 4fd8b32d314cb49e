"""The same curves on a trained language model: a reward model learned from labelled completions of the policy, and
three ways to optimise it.

The gold reward of the assistant task is known, so each step of each optimiser can be measured. KL is estimated from the
policy's own samples, in nats per completion.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from minirlhf.data.formats import Problem
from minirlhf.data.functions import grade, require_preferences
from minirlhf.data.tasks.base import Task
from minirlhf.data.types import PreferencePair
from minirlhf.equations.estimators import best_of_n_curve, best_of_n_kl
from minirlhf.feedback.rewards import Reward, model_reward, task_problems, task_reward
from minirlhf.models.heads import RewardModel
from minirlhf.models.sampling import Sampling
from minirlhf.recipes import RLOO
from minirlhf.stages import pipeline
from minirlhf.stages.pipeline import RewardPlan, Trained
from minirlhf.trainers.evaluation import candidates
from minirlhf.trainers.history import History
from minirlhf.trainers.online import OnlineConfig
from minirlhf.trainers.reward import RewardConfig, pair_accuracy, train_reward
from minirlhf_course.chapters.ch20_overoptimization.curves import Curve


@dataclass(frozen=True)
class LanguagePlan:
    """What is trained, and how long. The defaults take about a minute on one core."""

    reward: RewardPlan = RewardPlan(
        pairs=1600,
        held_out=400,
        training=RewardConfig(max_steps=220, batch_size=32, learning_rate=1e-3, lr_scheduler_type="linear"),
    )
    pooling: str = "mean"
    rl: OnlineConfig = OnlineConfig(max_steps=48, batch_size=4, num_generations=32, learning_rate=1e-4)
    prompts: int = 16
    draws: int = 256  # samples per prompt, for best-of-n

    def with_seed(self, seed: int) -> LanguagePlan:
        """Return the plan with another seed everywhere."""
        return replace(self, reward=pipeline.with_seed(self.reward, seed), rl=replace(self.rl, seed=seed))


@dataclass(frozen=True)
class LanguageWorld:
    """A policy, a proxy reward and the gold reward.

    Attributes:
        task: gives prompts and gold reward.
        start: the policy that is optimised, and the reference.
        proxy: the reward that is optimised, in units of gold: over samples of the reference, its mean and standard
            deviation are equal to those of gold.
        gold: the gold reward, which no optimiser may use.
        accuracy: of the reward model on held-out pairs; NaN if the proxy is a given function.
        pairs: comparisons that the reward model was trained on; empty if the proxy is a given function.
        problems, texts: many completions of the reference and their problems, ``P · M`` each, completions of one prompt
            together.
        drawn: their proxy and gold rewards, ``(P, M)`` each.
    """

    task: Task
    start: Trained
    proxy: Reward
    gold: Reward
    accuracy: float
    pairs: list[PreferencePair]
    problems: list[Problem]
    texts: list[str]
    drawn: tuple[Tensor, Tensor]


def _as_reward(function: Callable[[str, str], float], name: str) -> Reward:
    def reward(problems: Sequence[Problem], completions: Sequence[str]) -> list[float]:
        return [grade(function, name, p.prompt[-1]["content"], c) for p, c in zip(problems, completions, strict=True)]

    return reward


def train_proxy(
    start: Trained, pairs: Sequence[PreferencePair], plan: LanguagePlan, *, seed: int, quiet: bool = True
) -> RewardModel:
    """Train a reward model on top of the policy's transformer; ``seed`` sets the head's initial weights and the
    order of the pairs."""
    model = RewardModel.from_causal_lm(start.model, pooling=plan.pooling, seed=seed)
    tokens = pipeline.pair_tokens(start.tokenizer, pairs)
    config = replace(plan.reward.training, seed=seed)
    train_reward(model, tokens, config, pad_token_id=start.tokenizer.pad_token_id, quiet=quiet)
    return model


def learn_proxy(
    task: Task, start: Trained, plan: LanguagePlan, *, quiet: bool = True
) -> tuple[Reward, float, list[PreferencePair]]:
    """Label pairs of the policy's own completions and train a reward model; return the reward, its held-out accuracy
    and the pairs."""
    pairs, held_out = pipeline.preferences(task, start, plan.reward)
    model = train_proxy(start, pairs, plan, seed=plan.reward.training.seed, quiet=quiet)
    tokens = pipeline.pair_tokens(start.tokenizer, held_out)
    accuracy = pair_accuracy(model, tokens, pad_token_id=start.tokenizer.pad_token_id)
    return model_reward(model, start.tokenizer), accuracy, pairs


def language_world(
    task: Task,
    start: Trained,
    plan: LanguagePlan,
    *,
    proxy: Callable[[str, str], float] | None = None,
    gold: Callable[[str, str], float] | None = None,
    quiet: bool = True,
) -> LanguageWorld:
    """Set up the experiment.

    Args:
        proxy: ``(prompt, completion) -> number`` in place of a reward model.
        gold: such a function in place of the task's grader. It is used for grading only; the task still labels the
            comparisons.

    Raises:
        UserError: a given function raises, or returns something else than finite numbers, or the same number for every
            completion.
    """
    gold_fn = task_reward(task) if gold is None else _as_reward(gold, "gold")
    gold_fn(task_problems(task, "test")[:1], ["sure!"])  # a function that fails must do so before anything is trained
    accuracy, pairs = float("nan"), list[PreferencePair]()
    if proxy is None:
        raw, accuracy, pairs = learn_proxy(task, start, plan, quiet=quiet)
    else:
        raw = _as_reward(proxy, "proxy")
    sampled = candidates(
        start.model,
        task_problems(task, "test")[: plan.prompts],
        raw,
        tokenizer=start.tokenizer,
        sampling=Sampling(max_completion_length=task.max_completion_length),
        num_generations=plan.draws,
        seed=plan.rl.seed,
    )
    problems = [p for p in task_problems(task, "test")[: plan.prompts] for _ in range(plan.draws)]
    texts = [text for row in sampled.completions for text in row]
    scores = sampled.rewards.double()
    gold_scores = torch.tensor(gold_fn(problems, texts), dtype=torch.float64).view_as(scores)
    require_preferences(scores.flatten().tolist(), "proxy")
    require_preferences(gold_scores.flatten().tolist(), "gold")
    rescale_to_gold, scores = calibrated(raw, scores, gold_scores)
    return LanguageWorld(task, start, rescale_to_gold, gold_fn, accuracy, pairs, problems, texts, (scores, gold_scores))


def calibrated(raw: Reward, scores: Tensor, worth: Tensor) -> tuple[Reward, Tensor]:
    """Return a reward in units of gold, and its ``scores`` in the same units.

    Args:
        scores, worth: raw rewards and gold rewards of many completions of the reference, of one shape.
    """
    slope = float(worth.std() / scores.std())
    shift = float(worth.mean() - slope * scores.mean())

    def reward(problems: Sequence[Problem], completions: Sequence[str]) -> list[float]:
        return [shift + slope * score for score in raw(problems, completions)]

    return reward, shift + slope * scores


def best_of_n(world: LanguageWorld) -> Curve:
    """Return the curve of best-of-n for every n up to the number of samples, by the unbiased estimator. Its KL is
    the formula for no ties, an upper bound."""
    scores, gold_rewards = world.drawn
    kl = torch.tensor([best_of_n_kl(n) for n in range(1, scores.shape[1] + 1)], dtype=torch.float64)
    return Curve(kl.clamp(min=0).sqrt(), best_of_n_curve(scores).mean(0), best_of_n_curve(scores, gold_rewards).mean(0))


def rloo(
    world: LanguageWorld,
    plan: LanguagePlan,
    *,
    beta: float = 0.0,
    window: int = 3,
    monitors: Mapping[str, Reward] | None = None,
    quiet: bool = True,
) -> tuple[Curve, History, Trained]:
    """Train with RLOO against the proxy. The points of the curve are means over ``window`` steps of training
    samples.

    Args:
        beta: coefficient of the KL penalty; 0 by default.
        monitors: rewards that the history logs in addition to ``gold``, by name.
    """
    rl_plan = pipeline.RLPlan(RLOO.with_(beta=beta), plan.rl)
    all_monitors = {"gold": world.gold, **(monitors or {})}
    policy = pipeline.rl(world.task, world.start, rl_plan, reward=world.proxy, monitors=all_monitors, quiet=quiet)
    history = policy.history
    scores, gold_rewards = world.drawn
    rows = [(0.0, float(scores.mean()), float(gold_rewards.mean()))]
    for k in range(0, len(history) - window + 1, window):
        kl, reward, gold = (sum(history[name][k : k + window]) / window for name in ("kl", "reward", "gold"))
        rows.append((max(0.0, kl) ** 0.5, reward, gold))  # the first step samples the reference itself
    return Curve(*torch.tensor(rows, dtype=torch.float64).T), history, policy
