"""DPO against its own implicit reward: no reward model, the same comparisons, one run measured during training."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from minirlhf.data.collate import collate_completions
from minirlhf.data.tasks.base import Task
from minirlhf.data.types import PreferencePair, Tokens
from minirlhf.feedback.rewards import Reward, task_problems, task_reward
from minirlhf.models.reference import preference_logps
from minirlhf.models.sampling import Sampling
from minirlhf.recipes.offline import get_preference
from minirlhf.stages import pipeline
from minirlhf.stages.pipeline import Trained
from minirlhf.trainers.evaluation import evaluate
from minirlhf.trainers.offline import OfflineConfig, train_offline
from minirlhf_course.chapters.ch20_overoptimization.curves import Curve

#: Steps after which a run is measured: every five while the policy changes fast. Fifty steps are one pass over 1,600
#: comparisons.
STOPS = (*range(5, 51, 5), *range(60, 101, 10), *range(125, 501, 25))


def believed(kl: Tensor, log_ratios: Tensor, worth: Tensor) -> float:
    """Return the mean reward of a policy by its own implicit reward, in units of gold.

    The implicit reward is β log π/π_ref, up to a constant for each prompt. Like any proxy it is shifted and scaled
    until mean and standard deviation over the reference's completions are equal to those of gold; β cancels.
    For π ∝ π_ref exp(gold/β) the result is the policy's gold reward.

    Args:
        kl: ``(N,)`` KL(π ‖ π_ref) at samples of the policy: the mean of the log-ratio there.
        log_ratios: ``(P, M)`` log π/π_ref of the reference's completions; one row holds the completions of one prompt.
        worth: ``(P, M)`` their gold rewards.

    Returns:
        The mean over samples of the policy; the mean of ``worth`` for a policy that equals the reference.
    """
    std_within = lambda x: (x - x.mean(-1, keepdim=True)).square().mean().sqrt()
    std = std_within(log_ratios)
    gained = (kl.mean() - log_ratios.mean()) * std_within(worth) / std if std > 0 else torch.tensor(0.0)
    return float(worth.mean() + gained)


def dpo(
    task: Task,
    start: Trained,
    pairs: Sequence[PreferencePair],
    *,
    gold: Reward | None = None,
    stops: Sequence[int] = STOPS,
    learning_rate: float = 2e-4,
    beta: float = 0.05,
    batch_size: int = 32,
    replies: int = 8,
    seed: int = 0,
    quiet: bool = True,
) -> Curve:
    """Run DPO once and measure it after each of ``stops`` updates on ``replies`` fresh completions of every test
    prompt.

    The proxy is DPO's own implicit reward, see :func:`believed`. The run is stopped and resumed, which changes no bit
    of it.

    Args:
        gold: the reward that is measured; the task's own grader by default.
    """
    gold = gold or task_reward(task)
    tokenizer, pad = start.tokenizer, start.tokenizer.pad_token_id
    problems = task_problems(task, "test")
    eval_problems = [p for p in problems for _ in range(replies)]
    sampling = Sampling(max_completion_length=task.max_completion_length)
    measure = {"tokenizer": tokenizer, "sampling": sampling, "ref_model": start.model, "seed": seed}
    ref_result = evaluate(start.model, eval_problems, gold, **measure)
    gold_rewards = ref_result.rewards.double().view(len(problems), replies)
    ref_completions = [
        pipeline.completion_tokens(tokenizer, p.prompt[-1]["content"], text)
        for p, text in zip(ref_result.problems, ref_result.completions, strict=True)
    ]
    ref_logps = _logps(start.model, ref_completions, pad)
    rows = [(0.0, float(gold_rewards.mean()), float(gold_rewards.mean()))]
    with tempfile.TemporaryDirectory() as folder:
        for k, stop in enumerate(stops):
            model = copy.deepcopy(start.model)
            train_offline(
                model,
                pipeline.pair_tokens(tokenizer, pairs),
                get_preference("dpo").with_(beta=beta),
                OfflineConfig(max_steps=stop, batch_size=batch_size, learning_rate=learning_rate, seed=seed),
                pad_token_id=pad,
                ref_model=start.model,
                out=Path(folder) / "run",
                tokenizer=tokenizer,
                resume=k > 0,
                quiet=quiet,
            )
            result = evaluate(model, eval_problems, gold, **measure)
            assert result.kl is not None
            ratios = (_logps(model, ref_completions, pad) - ref_logps).double().view_as(gold_rewards)
            proxy = believed(result.kl.double(), ratios, gold_rewards)
            rows.append((max(0.0, result.divergence.mean) ** 0.5, proxy, result.reward.mean))
    return Curve(*torch.tensor(rows, dtype=torch.float64).T)


@torch.no_grad()
def _logps(model: nn.Module, completions: Sequence[Tokens], pad_token_id: int) -> Tensor:
    """Return the ``(N,)`` log-probabilities of the completions."""
    parts = [completions[i : i + 256] for i in range(0, len(completions), 256)]
    return torch.cat([preference_logps(model, collate_completions(part, pad_token_id)) for part in parts])
