"""Reward model: learn from comparisons how good a reply is.

People cannot say what a reply is worth, but which of two is better. The model gives each a number r, and the
Bradley-Terry model says how often the one is preferred: P(chosen ≻ rejected) = σ(r_chosen − r_rejected). The loss is
minus the logarithm of it, over the pairs. The number is read off the last token, which has seen the whole reply; only
differences between replies to one prompt mean something.

    python examples/reward_model.py                             # on a tiny model, made and fine-tuned here, on a CPU
    python examples/reward_model.py --model FOLDER_OR_HUB_NAME  # on a model of yours

Source: Stiennon et al. (2020), "Learning to summarize from human feedback", section 3.4, arXiv:2009.01325 (Bradley &
Terry 1952).
Deviations: the labels are made by the tiny world, with noise (a is preferred to b with probability σ(Δgold / 0.25)),
not by people; two epochs for their one, in batches of 32 pairs for their 64; a new head has PyTorch's weights, uniform
within ±1/√d, for their N(0, 1/(d + 1)); the mean reward is not shifted to 0 at the end; the learning rate falls to 0 in
a straight line for their cosine; gradient clipped to 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sft import WORLD, arguments, load, replies
from torch import Tensor, nn
from tqdm import tqdm

from minirlhf import reward_loss
from minirlhf.core.masking import last_index
from minirlhf.data.chat import conversation, encode
from minirlhf.data.collate import collate
from minirlhf.data.preferences import SimulatedAnnotator, label_pairs
from minirlhf.data.types import PreferencePair, TokenBatch, Tokens

PAIRS = 4000


def comparisons(model: Any, tokenizer: Any, prompts: Sequence[str], count: int, seed: int) -> list[PreferencePair]:
    """Two replies of the model to each of ``count`` prompts, one of them chosen; equal ones are left out."""
    triples: list[tuple[str, str, str]] = []
    for start in range(0, count, 250):
        asked = [prompts[i % len(prompts)] for i in range(start, min(start + 250, count))]
        triples += zip(asked, replies(model, tokenizer, asked), replies(model, tokenizer, asked), strict=True)
    return label_pairs(WORLD, triples, labeller=SimulatedAnnotator(temperature=0.25), seed=seed)


class RewardModel(nn.Module):
    """The transformer of a language model with one number in place of the logits. It shares the model's parameters."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.backbone = model.base_model
        self.head = nn.Linear(model.config.get_text_config().hidden_size, 1).to(model.device, model.dtype)
        nn.init.zeros_(self.head.bias)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Rewards of whole conversations: ``(B, S) -> (B,)``."""
        hidden = self.backbone(input_ids, attention_mask=attention_mask).last_hidden_state  # (B, S, D)
        scores = self.head(hidden).squeeze(-1)  # (B, S)
        last = last_index(attention_mask)  # (B,): the last token that is no padding
        return scores.gather(1, last[:, None]).squeeze(1)  # (B,)


def encode_pairs(tokenizer: Any, pairs: Sequence[PreferencePair]) -> list[tuple[Tokens, Tokens]]:
    """The two conversations of each pair as token ids."""
    both = [[conversation(p.prompt, reply) for reply in (p.chosen, p.rejected)] for p in pairs]
    return [(encode(tokenizer, chosen), encode(tokenizer, rejected)) for chosen, rejected in both]


def batch_of(pairs: Sequence[tuple[Tokens, Tokens]], tokenizer: Any) -> TokenBatch:
    """``2B`` rows, padded on the right: first the conversations with the chosen replies, then the others."""
    return collate([chosen for chosen, _ in pairs] + [rejected for _, rejected in pairs], tokenizer.pad_token_id)


def train(
    model: RewardModel,
    tokenizer: Any,
    pairs: Sequence[PreferencePair],
    *,
    steps: int,
    learning_rate: float,
    seed: int,
    batch_size: int = 32,
) -> None:
    """Train ``model`` in place."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.0)
    examples, rng = encode_pairs(tokenizer, pairs), np.random.default_rng(seed)
    for step in (bar := tqdm(range(steps), desc="reward model")):
        picked = rng.choice(len(examples), batch_size, replace=False)
        batch = batch_of([examples[i] for i in picked], tokenizer).to(model.head.weight.device)
        chosen, rejected = model(batch.input_ids, batch.attention_mask).chunk(2)  # (B,), (B,)
        loss = reward_loss(chosen, rejected)  # nats; ln 2 where the model cannot tell them apart
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.param_groups[0]["lr"] = learning_rate * (1 - step / steps)
        optimizer.step()
        bar.set_postfix(loss=f"{loss.item():.3f}", refresh=False)


@torch.no_grad()
def show(when: str, model: RewardModel, tokenizer: Any, pairs: Sequence[PreferencePair]) -> float:
    """Print three held-out pairs with their rewards, and the share in which the chosen one's is higher; return that."""
    batch = batch_of(encode_pairs(tokenizer, pairs), tokenizer).to(model.head.weight.device)
    chosen, rejected = model(batch.input_ids, batch.attention_mask).chunk(2)  # (N,), (N,)
    accuracy = float((chosen > rejected).float().mean())
    gold = [[WORLD.grade(p.prompt, reply) for reply in (p.chosen, p.rejected)] for p in pairs]
    knows = float(np.mean([better > worse for better, worse in gold]))
    print(f"{when}: right about {accuracy:.1%} of {len(pairs)} held-out pairs (the gold reward itself: {knows:.1%})")
    for i, pair in enumerate(pairs[:3]):
        print(f"  {pair.prompt}")
        for name, reward, truth, reply in zip(
            ("chosen  ", "rejected"), (chosen[i], rejected[i]), gold[i], (pair.chosen, pair.rejected), strict=True
        ):
            print(f"    {name} reward {reward:+.2f}, gold {truth:+.2f}  {reply}")
    return accuracy


def main(argv: Sequence[str] | None = None) -> tuple[float, float]:
    """Train and print; returns the accuracy on held-out pairs before and after."""
    args = arguments(argv, __doc__, steps=250, learning_rate=1e-3)
    policy, tokenizer = load(args)
    pairs = comparisons(policy, tokenizer, WORLD.prompts("train"), PAIRS, args.seed)
    held_out = comparisons(policy, tokenizer, WORLD.prompts("test"), 500, args.seed + 1)
    model = RewardModel(policy)
    before = show("before", model, tokenizer, held_out)
    train(model, tokenizer, pairs, steps=args.steps, learning_rate=args.learning_rate, seed=args.seed)
    after = show("after", model, tokenizer, held_out)
    if args.out:
        policy.base_model.save_pretrained(args.out)
        tokenizer.save_pretrained(args.out)
        torch.save(model.head.state_dict(), Path(args.out, "head.pt"))
    return before, after


if __name__ == "__main__":
    main()
