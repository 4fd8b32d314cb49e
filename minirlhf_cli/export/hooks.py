"""A recipe's advantage function in a trainer of TRL, which has options for three advantages only.

The subclass overrides two private methods of the trainer, so it fits the version that ``tests/test_bridge.py`` runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from minirlhf.data.types import Rollout


def adapted(
    trainer: Any, *, advantage: Callable[..., Tensor], sample_filter: Callable[..., Tensor] | None = None
) -> Any:
    """Return a subclass of ``trainer`` that computes the recipe's advantages.

    Args:
        trainer: ``GRPOTrainer`` or a subclass.
        advantage: ``(rewards (P, G), valid) -> (P, G)``.
        sample_filter: ``(rewards (P, G), rollout, valid) -> (P, G)`` bool: the samples to learn from; it may use
            lengths.
    """

    class Adapted(trainer):  # type: ignore[misc]
        def _calculate_rewards(self, *args: Any) -> Tensor:
            self._graded: Tensor = super()._calculate_rewards(*args)  # of all processes, (B, 1)
            return self._graded

        def _generate_and_score_completions(self, inputs: Any) -> Any:
            batch = super()._generate_and_score_completions(inputs)
            group_size = self.num_generations if self.model.training else self.num_generations_eval
            rewards = self._graded.sum(1).view(-1, group_size)
            valid = ~rewards.isnan()
            rewards = rewards.nan_to_num(0.0)
            if sample_filter is not None:
                lengths = self.accelerator.gather(batch["completion_mask"].sum(1))
                valid = valid & sample_filter(rewards, _of_lengths(lengths, group_size), valid)
            local_rows = slice(*(self.accelerator.process_index * len(inputs) + i for i in (0, len(inputs))))
            local_advantages = advantage(rewards, valid=valid).flatten()[local_rows]
            return {**batch, "advantages": local_advantages.to(batch["advantages"])}

    Adapted.__name__ = trainer.__name__
    return Adapted


def _of_lengths(lengths: Tensor, num_generations: int) -> Rollout:
    """Return a rollout in which only the lengths ``(B,)`` of the completions are meaningful."""
    mask = torch.arange(int(lengths.max()), device=lengths.device) < lengths[:, None]
    zeros = torch.zeros(mask.shape, device=lengths.device)
    return Rollout(
        mask.long(), mask.long(), mask, zeros, zeros, mask.long(), mask.any(1), num_generations=num_generations
    )
