"""Predict which pairs lower the probability of their chosen completion, by CHES on the states before training."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from minirlhf.core.calling import evaluating, position_ids, supported
from minirlhf.data.collate import collate_completions
from minirlhf.data.types import PreferenceExample, PreferencePair, Tokens
from minirlhf.equations.preference_losses import ches
from minirlhf.stages.pipeline import Trained


@torch.no_grad()
def ches_of(policy: Trained, examples: Sequence[PreferenceExample], *, batch_size: int = 64) -> Tensor:
    """Return the length-normalised CHES of each pair under a policy, ``(N,)``."""
    scores = []
    for k in range(0, len(examples), batch_size):
        batch = examples[k : k + batch_size]
        chosen = _states(policy, [pair.chosen for pair in batch])
        rejected = _states(policy, [pair.rejected for pair in batch])
        scores.append(ches(*chosen, *rejected, length_normalised=True))
    return torch.cat(scores)


def _states(policy: Trained, completions: Sequence[Tokens]) -> tuple[Tensor, Tensor]:
    """Return the last hidden states that predict each completion's tokens, ``(B, T, D)``, and their mask ``(B, T)``."""
    batch = collate_completions(completions, policy.tokenizer.pad_token_id)
    options = supported(policy.model, position_ids=position_ids(batch.attention_mask), use_cache=False)
    with evaluating(policy.model):
        outputs = policy.model(
            input_ids=batch.input_ids, attention_mask=batch.attention_mask, output_hidden_states=True, **options
        )
    width = batch.mask.shape[1]
    return outputs.hidden_states[-1][:, -(width + 1) : -1], batch.mask


def ends_by(
    scores: Tensor, pairs: Sequence[PreferencePair], share: float = 0.25
) -> tuple[list[PreferencePair], list[PreferencePair]]:
    """Return the pairs with the highest scores and those with the lowest, each a fraction ``share`` of all pairs."""
    order, size = scores.argsort(descending=True).tolist(), int(share * len(pairs))
    return [pairs[i] for i in order[:size]], [pairs[i] for i in order[-size:]]
