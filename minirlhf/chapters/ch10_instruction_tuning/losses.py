"""What counts in the loss, and which loss: the second lab of chapter 10 in the assistant world."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

import torch

from minirlhf.chapters.ch10_instruction_tuning.instruct import TUNE
from minirlhf.data.collate import collate
from minirlhf.data.types import Tokens
from minirlhf.stages.pipeline import Trained
from minirlhf.trainers.likelihood import dft_weights, marked_logps, mean_nll
from minirlhf.trainers.loop import TrainerCallback
from minirlhf.trainers.sft import SFTConfig, train_sft

LOOK = 5  # steps from one look at the held-out loss to the next


def watched(start: Trained, examples: Sequence[Tokens], held: Sequence[Tokens], plan: SFTConfig = TUNE) -> list[float]:
    """Fine-tune on some examples, all of them in every batch, and look at the loss of others every :data:`LOOK` steps."""
    model, pad = copy.deepcopy(start.model), start.tokenizer.pad_token_id
    watch = TrainerCallback(LOOK, lambda: {"held_out": mean_nll(model, held, pad_token_id=pad)})
    whole = replace(plan, batch_size=len(examples))
    history = train_sft(model, examples, whole, pad_token_id=pad, watch=watch, quiet=True)
    return [row["held_out"] for row in history if "held_out" in row]


def dynamically(start: Trained, examples: Sequence[Tokens], plan: SFTConfig = TUNE) -> Trained:
    """Fine-tuned by the loss of dynamic fine-tuning."""
    model, pad = copy.deepcopy(start.model), start.tokenizer.pad_token_id
    history = train_sft(model, examples, plan, pad_token_id=pad, name="dft", quiet=True, of=dft_weights)
    return Trained(model, start.tokenizer, history)


@torch.no_grad()
def chance_of_end(trained: Trained, examples: Sequence[Tokens]) -> float:
    """Geometric mean of the probability of the closing token where a demonstrated reply ends."""
    last = [Tokens(e.input_ids, [*[False] * (len(e) - 1), True]) for e in examples]
    batch = collate(last, trained.tokenizer.pad_token_id)
    return float(marked_logps(trained.model, batch)[batch.mask].mean().exp())
