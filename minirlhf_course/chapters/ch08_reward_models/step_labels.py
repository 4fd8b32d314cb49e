"""Process reward models with two kinds of labels: from an annotator of the steps, or from completions of each step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from minirlhf.data.chat import end_tokens
from minirlhf.data.tasks.running_sum import MODULUS, RUNNING_SUM, STEPS
from minirlhf.data.types import Stepped
from minirlhf.models.heads import ValueModel
from minirlhf.models.sampling import Sampling, sample
from minirlhf.models.texts import completion_texts
from minirlhf.stages.pipeline import Trained
from minirlhf.trainers.verifiers import ProcessConfig, train_process
from minirlhf_course.chapters.ch08_reward_models.per_token import Surprised, Written


@dataclass(frozen=True)
class LabelsPlan:
    """The amount of labels and of training."""

    prompts: int = 600
    completions: int = 4
    training: ProcessConfig = ProcessConfig(
        max_steps=80, batch_size=64, learning_rate=3e-3, warmup_steps=20, lr_scheduler_type="linear"
    )


def completed(policy: Trained, written: Sequence[Written], count: int, seed: int) -> Tensor:
    """Return which completions of each step end in a right answer, ``(N, K, C)`` booleans.

    From the end of each of the K steps the policy samples ``count`` completions. After the last step nothing is left to
    write, and the text's own grade is repeated ``count`` times.
    """
    is_right = torch.zeros(len(written), STEPS, count, dtype=torch.bool)
    for step in range(STEPS - 1):
        for offset in range(0, len(written), 128):
            chunk = written[offset : offset + 128]
            rollout = sample(
                policy.model,
                [w.stepped.tokens.input_ids[: w.stepped.ends[step] + 1] for w in chunk],
                sampling=Sampling(max_completion_length=2 * (STEPS - step)),
                num_generations=count,
                eos_token_id=end_tokens(policy.tokenizer, policy.model).ids,
                pad_token_id=policy.tokenizer.pad_token_id,
                prompt_keys=[f"step {step} of {offset + i}" for i in range(len(chunk))],
                seed=seed,
            )
            texts = completion_texts(rollout, policy.tokenizer)
            grades = [RUNNING_SUM.grade(chunk[i // count].prompt, text) == 1 for i, text in enumerate(texts)]
            is_right[offset : offset + len(chunk), step] = torch.tensor(grades).view(-1, count)
    is_right[:, -1] = torch.tensor([w.right for w in written])[:, None]
    return is_right


def relabelled(written: Sequence[Written], good: Tensor) -> list[Stepped]:
    """Return the same completions with other labels, ``(N, K)`` booleans."""
    return [
        replace(w.stepped, labels=tuple(1 if is_good else -1 for is_good in row))
        for w, row in zip(written, good.tolist(), strict=True)
    ]


def process_head(policy: Trained, replies: Sequence[Stepped], plan: LabelsPlan, seed: int) -> nn.Module:
    """Train a process head on these labels. It receives the policy's surprise, as the heads of the other study do."""
    head: Any = Surprised(policy.model, ValueModel.from_causal_lm(policy.model, seed=seed), seed=seed)
    config = replace(plan.training, seed=seed)
    train_process(head, replies, config, pad_token_id=policy.tokenizer.pad_token_id, quiet=True)
    return head


def so_far(written: Sequence[Written]) -> Tensor:
    """Return whether the sum is right at the end of each step, ``(N, K)``, whatever happened before.

    A second slip may cancel the first.
    """
    return torch.tensor(
        [[RUNNING_SUM.chance(w.prompt, w.lines[: k + 1]) > 1 / MODULUS for k in range(STEPS)] for w in written]
    )
