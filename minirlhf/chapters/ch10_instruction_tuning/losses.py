"""What counts in the loss, and which loss: the second lab of chapter 10 in the assistant world."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

import torch

from minirlhf.chapters.ch10_instruction_tuning.instruct import TUNE
from minirlhf.data.collate import batch_indices, collate
from minirlhf.data.types import Tokens
from minirlhf.equations.tuning import dynamic_nll
from minirlhf.stages.pipeline import Trained
from minirlhf.trainers.likelihood import marked_logps, mean_nll, nll_losses
from minirlhf.trainers.loop import Loop, Watch
from minirlhf.trainers.sft import SFTConfig, prediction_weights, train_sft

LOOK = 5  # steps from one look at the held-out loss to the next


def watched(start: Trained, examples: Sequence[Tokens], held: Sequence[Tokens], plan: SFTConfig = TUNE) -> list[float]:
    """Fine-tune on some examples, all of them in every batch, and look at the loss of others every :data:`LOOK` steps."""
    model, pad = copy.deepcopy(start.model), start.tokenizer.pad_token_id
    watch = Watch(LOOK, lambda: {"held_out": mean_nll(model, held, pad_token_id=pad)})
    whole = replace(plan, batch_size=len(examples))
    history = train_sft(model, examples, whole, pad_token_id=pad, watch=watch, quiet=True)
    return [row["held_out"] for row in history if "held_out" in row]


def dynamically(start: Trained, examples: Sequence[Tokens], plan: SFTConfig = TUNE) -> Trained:
    """Fine-tuned by the loss of dynamic fine-tuning."""
    model, tokenizer = copy.deepcopy(start.model), start.tokenizer
    loop = Loop("dft", model, plan, quiet=True)
    for step in loop:
        rows = batch_indices(len(examples), plan.batch_size, step, plan.seed)
        batch = collate([examples[i] for i in rows], tokenizer.pad_token_id)
        weights = prediction_weights(batch.loss_mask)
        trusted = lambda logps, mask: -dynamic_nll(logps)
        loop.log(**loop.update(nll_losses(model, batch, weights, plan.micro_batch_size, trusted)))
    return Trained(model, tokenizer, loop.history)


@torch.no_grad()
def chance_of_end(trained: Trained, examples: Sequence[Tokens]) -> float:
    """Geometric mean of the probability of the closing token where a demonstrated reply ends."""
    last = [Tokens(e.input_ids, [*[False] * (len(e) - 1), True]) for e in examples]
    batch = collate(last, trained.tokenizer.pad_token_id)
    return float(marked_logps(trained.model, batch)[batch.mask].mean().exp())
