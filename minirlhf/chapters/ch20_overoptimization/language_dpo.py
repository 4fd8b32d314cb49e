"""DPO against the proxy that it is: no reward model, the same comparisons, one run measured as it goes."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from minirlhf.chapters.ch20_overoptimization.curves import Curve
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

#: Steps after which a run is measured: every five while it moves fast. Fifty steps are one pass over 1,600 comparisons.
STOPS = (*range(5, 51, 5), *range(60, 101, 10), *range(125, 501, 25))


def believed(kl: Tensor, log_ratios: Tensor, worth: Tensor) -> float:
    """What a policy's implicit reward says it earns, in units of gold.

    The implicit reward is β log π/π_ref, up to a constant for each prompt. Like any proxy it is shifted and scaled until mean
    and spread over the reference's replies are gold's own; β cancels. For π ∝ π_ref exp(gold/β) the answer is the policy's gold.

    Args:
        kl: ``(N,)`` KL(π ‖ π_ref) at samples of the policy: what the log-ratio is there on average.
        log_ratios: ``(P, M)`` log π/π_ref of the reference's replies, replies to one prompt in a row.
        worth: ``(P, M)`` their gold.

    Returns:
        The mean over samples of the policy; gold's mean for a policy that has not moved.
    """
    within = lambda x: (x - x.mean(-1, keepdim=True)).square().mean().sqrt()
    spread = within(log_ratios)
    gained = (kl.mean() - log_ratios.mean()) * within(worth) / spread if spread > 0 else torch.tensor(0.0)
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
    """One run of DPO, measured after each of ``stops`` updates on fresh ``replies`` to every test prompt.

    Its proxy is its own, see :func:`believed`. The run is stopped and resumed, which changes no bit of it.

    Args:
        gold: what is measured; the task's own grades if none is given.
    """
    gold = gold or task_reward(task)
    tokenizer, pad = start.tokenizer, start.tokenizer.pad_token_id
    problems = task_problems(task, "test")
    asked = [p for p in problems for _ in range(replies)]
    sampling = Sampling(max_completion_length=task.max_completion_length)
    measure = {"tokenizer": tokenizer, "sampling": sampling, "ref_model": start.model, "seed": seed}
    first = evaluate(start.model, asked, gold, **measure)
    worth = first.rewards.double().view(len(problems), replies)
    said = [
        pipeline.reply_tokens(tokenizer, p.prompt[-1]["content"], text)
        for p, text in zip(first.problems, first.completions, strict=True)
    ]
    before = _logps(start.model, said, pad)
    rows = [(0.0, float(worth.mean()), float(worth.mean()))]
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
            found = evaluate(model, asked, gold, **measure)
            assert found.kl is not None
            ratios = (_logps(model, said, pad) - before).double().view_as(worth)
            proxy = believed(found.kl.double(), ratios, worth)
            rows.append((max(0.0, found.divergence.mean) ** 0.5, proxy, found.reward.mean))
    return Curve(*torch.tensor(rows, dtype=torch.float64).T)


@torch.no_grad()
def _logps(model: nn.Module, answers: Sequence[Tokens], pad_token_id: int) -> Tensor:
    """``(N,)`` log-probabilities of answers."""
    parts = [answers[i : i + 256] for i in range(0, len(answers), 256)]
    return torch.cat([preference_logps(model, collate_completions(part, pad_token_id)) for part in parts])
