"""Which tokens count in the loss, and which loss: the second lab of chapter 10, on the assistant task."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

import torch

from minirlhf.data.collate import collate
from minirlhf.data.types import Tokens
from minirlhf.stages.pipeline import Trained
from minirlhf.trainers.likelihood import dft_weights, marked_logps, mean_nll
from minirlhf.trainers.loop import TrainerCallback
from minirlhf.trainers.sft import SFTConfig, train_sft
from minirlhf_course.chapters.ch10_instruction_tuning.instruct import TUNE

LOOK = 5  # number of steps between two measurements of the held-out loss


def watched(start: Trained, examples: Sequence[Tokens], held: Sequence[Tokens], plan: SFTConfig = TUNE) -> list[float]:
    """Fine-tune with all examples in every batch; return the held-out loss after every :data:`LOOK` steps."""
    model, pad = copy.deepcopy(start.model), start.tokenizer.pad_token_id
    callback = TrainerCallback(LOOK, lambda: {"held_out": mean_nll(model, held, pad_token_id=pad)})
    full_batch = replace(plan, batch_size=len(examples))
    history = train_sft(model, examples, full_batch, pad_token_id=pad, watch=callback, quiet=True)
    return [row["held_out"] for row in history if "held_out" in row]


def dynamically(start: Trained, examples: Sequence[Tokens], plan: SFTConfig = TUNE) -> Trained:
    """Fine-tune with the loss of dynamic fine-tuning (DFT)."""
    model, pad = copy.deepcopy(start.model), start.tokenizer.pad_token_id
    history = train_sft(model, examples, plan, pad_token_id=pad, name="dft", quiet=True, of=dft_weights)
    return Trained(model, start.tokenizer, history)


@torch.no_grad()
def chance_of_end(trained: Trained, examples: Sequence[Tokens]) -> float:
    """Return the geometric mean of the probability of the closing token at the end of demonstrated completions."""
    end_tokens = [Tokens(e.input_ids, [*[False] * (len(e) - 1), True]) for e in examples]
    batch = collate(end_tokens, trained.tokenizer.pad_token_id)
    return float(marked_logps(trained.model, batch)[batch.mask].mean().exp())
