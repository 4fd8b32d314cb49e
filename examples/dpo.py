"""Direct preference optimisation (DPO): learn from comparisons without a reward model and without sampling.

The policy that maximises a reward r less β KL(π‖π_ref) is known in closed form, and it can be turned round: its own
log-ratio is the reward, r(x, y) = β log π(y|x)/π_ref(y|x), up to a constant per prompt. So the loss of a reward
model, −log σ(r_chosen − r_rejected), trains the policy itself. Log-probabilities are sums over a reply's tokens; the
reference is the policy as it was at the start.

    python examples/dpo.py                             # a tiny model, made and fine-tuned here, on a CPU
    python examples/dpo.py --model FOLDER_OR_HUB_NAME  # a model of yours

Source: Rafailov et al. (2023), "Direct Preference Optimization: Your Language Model is Secretly a Reward Model",
eq. 7, arXiv:2305.18290.
Deviations: the labels are made by the tiny world, with noise, not by people (see reward_model.py); β = 0.3, between
their 0.1 and 0.5; AdamW for their RMSprop, in batches of 32 pairs for their 64; no warm-up, and the learning rate falls
to 0 in a straight line; gradient clipped to 1.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from reward_model import PAIRS, batch_of, comparisons, encode_pairs
from sft import WORLD, arguments, load, show
from torch import Tensor
from tqdm import tqdm

from minirlhf import PairLogps, dpo_loss
from minirlhf.core.logprobs import sequence_logps, token_logps
from minirlhf.data.types import PreferencePair, TokenBatch


def reply_logps(model: Any, batch: TokenBatch) -> Tensor:
    """Log-probability of each reply, EOS included, given its prompt: ``(2B, S) -> (2B,)``."""
    logits = model(batch.input_ids, attention_mask=batch.attention_mask).logits  # (2B, S, V)
    logps = token_logps(logits, batch.input_ids)  # (2B, S-1)
    return sequence_logps(logps, batch.loss_mask[:, 1:])  # (2B,)


def pair_logps(model: Any, ref_model: Any, batch: TokenBatch) -> PairLogps:
    """Under policy and reference, of ``B`` chosen and ``B`` rejected replies."""
    with torch.no_grad():
        ref_logps = reply_logps(ref_model, batch)  # (2B,)
    return PairLogps(*reply_logps(model, batch).chunk(2), *ref_logps.chunk(2))  # (B,) each


@torch.no_grad()
def accuracy(model: Any, ref_model: Any, tokenizer: Any, pairs: Sequence[PreferencePair]) -> float:
    """Share of pairs in which the chosen reply has the higher implicit reward."""
    batch = batch_of(encode_pairs(tokenizer, pairs), tokenizer).to(model.device)
    return float((pair_logps(model, ref_model, batch).margins > 0).float().mean())


def train(
    model: Any,
    ref_model: Any,
    tokenizer: Any,
    pairs: Sequence[PreferencePair],
    *,
    steps: int,
    learning_rate: float,
    seed: int,
    beta: float = 0.3,
    batch_size: int = 32,
) -> None:
    """Train ``model`` in place."""
    examples, rng = encode_pairs(tokenizer, pairs), np.random.default_rng(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.0)
    for step in (bar := tqdm(range(steps), desc="dpo")):
        picked = rng.choice(len(examples), batch_size, replace=False)
        batch = batch_of([examples[i] for i in picked], tokenizer).to(model.device)
        pair = pair_logps(model, ref_model, batch)
        loss = dpo_loss(pair.chosen, pair.rejected, pair.ref_chosen, pair.ref_rejected, beta=beta)  # ln 2 at first
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.param_groups[0]["lr"] = learning_rate * (1 - step / steps)
        optimizer.step()
        bar.set_postfix(loss=f"{loss.item():.3f}", refresh=False)


def main(argv: Sequence[str] | None = None) -> tuple[float, float]:
    """Train and print; returns the mean gold reward before and after."""
    args = arguments(argv, __doc__, steps=100, learning_rate=3e-4)
    model, tokenizer = load(args)
    ref_model = copy.deepcopy(model).requires_grad_(False)
    pairs = comparisons(model, tokenizer, WORLD.prompts("train"), PAIRS, args.seed)
    held_out = comparisons(model, tokenizer, WORLD.prompts("test"), 500, args.seed + 1)
    before = show("before", model, tokenizer)
    train(model, ref_model, tokenizer, pairs, steps=args.steps, learning_rate=args.learning_rate, seed=args.seed)
    after = show("after", model, tokenizer)
    print(f"implicit rewards are right about {accuracy(model, ref_model, tokenizer, held_out):.1%} of held-out pairs")
    if args.out:
        model.save_pretrained(args.out)
        tokenizer.save_pretrained(args.out)
    return before, after


if __name__ == "__main__":
    main()
