"""A recipe's own advantage, put into a trainer of TRL: it has an option for three of them only.

Two of the trainer's methods are private, so this holds for the version that ``tests/test_bridge.py`` runs.
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
    """A subclass of ``trainer`` whose advantages are the recipe's.

    Args:
        trainer: ``GRPOTrainer``, or one that is derived from it.
        advantage: ``(rewards (P, G), valid) -> (P, G)``.
        sample_filter: ``(rewards (P, G), rollout, valid) -> (P, G)`` bool, which samples are learned from; it may look at lengths.
    """

    class Adapted(trainer):  # type: ignore[misc]
        def _calculate_rewards(self, *args: Any) -> Tensor:
            self._graded: Tensor = super()._calculate_rewards(*args)  # of all processes, (B, 1)
            return self._graded

        def _generate_and_score_completions(self, inputs: Any) -> Any:
            found = super()._generate_and_score_completions(inputs)
            group = self.num_generations if self.model.training else self.num_generations_eval
            rewards = self._graded.sum(1).view(-1, group)
            valid = ~rewards.isnan()
            rewards = rewards.nan_to_num(0.0)
            if sample_filter is not None:
                lengths = self.accelerator.gather(found["completion_mask"].sum(1))
                valid = valid & sample_filter(rewards, _of_lengths(lengths, group), valid)
            mine = slice(*(self.accelerator.process_index * len(inputs) + i for i in (0, len(inputs))))
            chosen = advantage(rewards, valid=valid).flatten()[mine]
            return {**found, "advantages": chosen.to(found["advantages"])}

    Adapted.__name__ = trainer.__name__
    return Adapted


def _of_lengths(lengths: Tensor, num_generations: int) -> Rollout:
    """A rollout of which only the lengths of its replies are known. ``(B,)``"""
    mask = torch.arange(int(lengths.max()), device=lengths.device) < lengths[:, None]
    nothing = torch.zeros(mask.shape, device=lengths.device)
    return Rollout(
        mask.long(), mask.long(), mask, nothing, nothing, mask.long(), mask.any(1), num_generations=num_generations
    )
