"""Which pairs push their chosen reply down: their CHES, from the states of the model that is about to learn from them."""

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
    """Length-normalised CHES of each pair ``(N,)`` under a policy."""
    scores = []
    for k in range(0, len(examples), batch_size):
        some = examples[k : k + batch_size]
        chosen = _states(policy, [pair.chosen for pair in some])
        rejected = _states(policy, [pair.rejected for pair in some])
        scores.append(ches(*chosen, *rejected, length_normalised=True))
    return torch.cat(scores)


def _states(policy: Trained, answers: Sequence[Tokens]) -> tuple[Tensor, Tensor]:
    """The last hidden states that predict each answer's tokens ``(B, T, D)``, and which of them count ``(B, T)``."""
    batch = collate_completions(answers, policy.tokenizer.pad_token_id)
    options = supported(policy.model, position_ids=position_ids(batch.attention_mask), use_cache=False)
    with evaluating(policy.model):
        found = policy.model(
            input_ids=batch.input_ids, attention_mask=batch.attention_mask, output_hidden_states=True, **options
        )
    width = batch.mask.shape[1]
    return found.hidden_states[-1][:, -(width + 1) : -1], batch.mask


def ends_by(
    scores: Tensor, pairs: Sequence[PreferencePair], share: float = 0.25
) -> tuple[list[PreferencePair], list[PreferencePair]]:
    """The pairs with the highest scores and those with the lowest, ``share`` of all of them each."""
    order, size = scores.argsort(descending=True).tolist(), int(share * len(pairs))
    return [pairs[i] for i in order[:size]], [pairs[i] for i in order[-size:]]
