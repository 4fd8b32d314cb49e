"""Process reward models with labels of two kinds: of an annotator who looks at the step, and of completions that a model writes from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from minirlhf.chapters.ch08_reward_models.per_token import Surprised, Written
from minirlhf.data.chat import ends_of
from minirlhf.data.tasks.running_sum import MODULUS, RUNNING_SUM, STEPS
from minirlhf.data.types import Stepped
from minirlhf.models.heads import ValueModel
from minirlhf.models.sampling import Sampling, sample
from minirlhf.models.texts import completion_texts
from minirlhf.stages.pipeline import Trained
from minirlhf.trainers.verifiers import ProcessConfig, train_process


@dataclass(frozen=True)
class LabelsPlan:
    """How much is labelled and trained on."""

    prompts: int = 600
    completions: int = 4
    training: ProcessConfig = ProcessConfig(
        max_steps=80, batch_size=64, learning_rate=3e-3, warmup_steps=20, lr_scheduler_type="linear"
    )


def completed(policy: Trained, written: Sequence[Written], count: int, seed: int) -> Tensor:
    """``(N, K, C)`` booleans: from the end of each of the K steps the policy finishes the reply ``count`` times; which end right?

    After the last step nothing is left to write: the reply's own grade, ``count`` times.
    """
    found = torch.zeros(len(written), STEPS, count, dtype=torch.bool)
    for step in range(STEPS - 1):
        for at in range(0, len(written), 128):
            some = written[at : at + 128]
            rollout = sample(
                policy.model,
                [w.stepped.tokens.input_ids[: w.stepped.ends[step] + 1] for w in some],
                sampling=Sampling(max_completion_length=2 * (STEPS - step)),
                num_generations=count,
                eos_token_id=ends_of(policy.tokenizer, policy.model).ids,
                pad_token_id=policy.tokenizer.pad_token_id,
                prompt_keys=[f"step {step} of {at + i}" for i in range(len(some))],
                seed=seed,
            )
            texts = completion_texts(rollout, policy.tokenizer)
            right = [RUNNING_SUM.grade(some[i // count].prompt, text) == 1 for i, text in enumerate(texts)]
            found[at : at + len(some), step] = torch.tensor(right).view(-1, count)
    found[:, -1] = torch.tensor([w.right for w in written])[:, None]
    return found


def relabelled(written: Sequence[Written], good: Tensor) -> list[Stepped]:
    """The same replies with other labels, ``(N, K)`` booleans."""
    return [
        replace(w.stepped, labels=tuple(1 if one else -1 for one in row))
        for w, row in zip(written, good.tolist(), strict=True)
    ]


def process_head(policy: Trained, replies: Sequence[Stepped], plan: LabelsPlan, seed: int) -> nn.Module:
    """A process head on these labels; it is told the policy's surprise, like those of the other study."""
    head: Any = Surprised(policy.model, ValueModel.from_causal_lm(policy.model, seed=seed), seed=seed)
    config = replace(plan.training, seed=seed)
    train_process(head, replies, config, pad_token_id=policy.tokenizer.pad_token_id, quiet=True)
    return head


def so_far(written: Sequence[Written]) -> Tensor:
    """``(N, K)``: is the sum right at the end of this step, whatever happened before? Of two slips the second may cancel the first."""
    return torch.tensor(
        [[RUNNING_SUM.chance(w.prompt, w.lines[: k + 1]) > 1 / MODULUS for k in range(STEPS)] for w in written]
    )
