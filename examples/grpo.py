"""Group relative policy optimisation (GRPO): of several completions of a prompt, make those more probable that beat the others.

A step samples G completions of each of P prompts and grades them. A completion's advantage is its reward's z-score within
its group, the same for all of its tokens: no critic. The policy maximises the clipped objective min(ρA, clip(ρ, 1−ε,
1+ε)A) with the ratio ρ = π/π_old, a few times on the same samples, less β times an estimate (k3) of KL(π‖π_ref),
which keeps it near where it started.

    python examples/grpo.py                             # a tiny model, made and fine-tuned here, on a CPU
    python examples/grpo.py --model FOLDER_OR_HUB_NAME  # a model of yours

Source: Shao et al. (2024), "DeepSeekMath: Pushing the Limits of Mathematical Reasoning in Open Language Models",
arXiv:2402.03300, section 4.1 and algorithm 1, with outcome supervision.
Deviations: the gold reward of the toy task grades, in place of their reward model; two updates on each batch of samples
(their algorithm's μ; they train with μ = 1, where ρ = 1 and nothing is ever clipped); the reference stays the same
(their I = 1); AdamW without weight decay, gradient clipped to 1.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from sft import WORLD, arguments, load, show
from torch import Tensor
from tqdm import tqdm

from minirlhf import grpo_loss
from minirlhf.core.logprobs import token_logps
from minirlhf.core.masking import masked_mean
from minirlhf.data.chat import conversation, encode_prompt
from minirlhf.equations.advantages import broadcast_to_tokens, group_zscore
from minirlhf.equations.kl import k3


@torch.no_grad()
def sample(model: Any, prompts: Sequence[list[int]], max_new_tokens: int, tokenizer: Any) -> tuple[Tensor, ...]:
    """One completion of each prompt, temperature 1. Each token costs a whole forward pass, without a cache.

    Returns:
        Rows of prompt, completion and padding ``(B, S)``; which of it is no padding ``(B, S)``; the mask ``(B, S-1)``,
        True where the *next* token was sampled: EOS yes, prompt and padding no.
    """
    lengths = torch.tensor([len(prompt) for prompt in prompts], device=model.device)  # (B,)
    width = int(lengths.max()) + max_new_tokens
    input_ids = torch.full((len(prompts), width), tokenizer.pad_token_id, device=model.device)  # (B, S)
    for row, prompt in enumerate(prompts):
        input_ids[row, : len(prompt)] = torch.tensor(prompt)
    mask = torch.zeros_like(input_ids, dtype=torch.bool)  # (B, S)
    rows = torch.arange(len(prompts), device=model.device)  # (N,) those that have not ended
    for _ in range(max_new_tokens):
        last = lengths[rows]  # (N,) where the next token goes
        logits = model(input_ids[rows, : int(last.max())]).logits  # (N, s, V); padding on the right is never looked at
        probs = logits[torch.arange(len(rows), device=model.device), last - 1].softmax(-1)  # (N, V)
        token = torch.multinomial(probs, 1).squeeze(1)  # (N,)
        input_ids[rows, last], mask[rows, last] = token, True
        lengths[rows] += 1
        rows = rows[token != tokenizer.eos_token_id]
        if len(rows) == 0:
            break
    longest = int(lengths.max())
    attention_mask = torch.arange(longest, device=model.device) < lengths[:, None]  # (B, S)
    return input_ids[:, :longest], attention_mask.long(), mask[:, 1:longest]


def logps_of(model: Any, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
    """Log-probability of every token but the first: ``(B, S) -> (B, S-1)``."""
    return token_logps(model(input_ids, attention_mask=attention_mask).logits, input_ids)


def grade(input_ids: Tensor, mask: Tensor, prompts: Sequence[str], tokenizer: Any) -> Tensor:
    """The reward of each completion ``(B,)``: here the world's own."""
    completions = [ids[1:][kept] for ids, kept in zip(input_ids, mask, strict=True)]
    texts = tokenizer.batch_decode(completions, skip_special_tokens=True)
    rewards = [WORLD.grade(prompt, text) for prompt, text in zip(prompts, texts, strict=True)]
    return torch.tensor(rewards, device=input_ids.device)


def grpo(
    model: Any,
    tokenizer: Any,
    *,
    steps: int,
    learning_rate: float,
    num_prompts: int = 8,
    num_generations: int = 8,
    num_iterations: int = 2,
    epsilon: float = 0.2,
    beta: float = 0.04,
) -> None:
    """Train ``model`` in place."""
    ref_model = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.0)
    questions = WORLD.prompts("train")
    for _ in (bar := tqdm(range(steps), desc="grpo")):
        picked = torch.randint(len(questions), (num_prompts,)).repeat_interleave(num_generations)  # (B,), B = P·G
        asked = [questions[i] for i in picked]
        prompts = [encode_prompt(tokenizer, conversation(question)) for question in asked]
        input_ids, attention_mask, mask = sample(model, prompts, WORLD.max_completion_length, tokenizer)
        rewards = grade(input_ids, mask, asked, tokenizer)  # (B,)
        advantages = group_zscore(rewards.view(num_prompts, num_generations))  # (P, G)
        advantages = broadcast_to_tokens(advantages, mask)  # (B, S-1)
        with torch.no_grad():
            old_logps = logps_of(model, input_ids, attention_mask)  # (B, S-1)
            ref_logps = logps_of(ref_model, input_ids, attention_mask)  # (B, S-1)
        for _ in range(num_iterations):
            logps = logps_of(model, input_ids, attention_mask)  # (B, S-1)
            loss = grpo_loss(logps, old_logps, advantages, mask, epsilon=epsilon, ref_logps=ref_logps, beta=beta)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        kl = masked_mean(k3(old_logps, ref_logps), mask)
        bar.set_postfix(reward=f"{rewards.mean():+.2f}", kl_per_token=f"{kl:.3f}", refresh=False)


def main(argv: Sequence[str] | None = None) -> tuple[float, float]:
    """Train and print; returns the mean gold reward before and after."""
    args = arguments(argv, __doc__, steps=80, learning_rate=5e-4)
    model, tokenizer = load(args)
    before = show("before", model, tokenizer)
    grpo(model, tokenizer, steps=args.steps, learning_rate=args.learning_rate)
    after = show("after", model, tokenizer)
    if args.out:
        model.save_pretrained(args.out)
        tokenizer.save_pretrained(args.out)
    return before, after


if __name__ == "__main__":
    main()
