"""Log-probabilities of tokens: the only place of the project that shifts logits and gathers."""

from __future__ import annotations

import torch
from torch import Tensor

from minirlhf.core.equation import equation
from minirlhf.core.errors import ArgumentError
from minirlhf.core.masking import masked_sum


@equation("eq:token-logp")
def token_logps(logits: Tensor, input_ids: Tensor, temperature: float = 1.0) -> Tensor:
    """Log-probability of every token given the tokens before it.

    The logits at position ``t`` predict the token at ``t + 1``, so the result is one shorter than the input. It equals
    ``log_softmax(logits / temperature)[:, :-1].gather(input_ids[:, 1:])`` without a second ``(B, S, V)`` tensor.

    Args:
        logits: ``(B, S, V)``.
        input_ids: ``(B, S)``.
        temperature: the sampling temperature, > 0; forgetting it here is a classic bug.

    Returns:
        ``(B, S − 1)``, float32 or wider.
    """
    if logits.dim() != 3 or input_ids.shape != logits.shape[:2]:
        raise ArgumentError(
            f"logits has shape {tuple(logits.shape)} and input_ids {tuple(input_ids.shape)}; expected (B, S, V) and (B, S)",
            argument="logits, input_ids",
            value=(tuple(logits.shape), tuple(input_ids.shape)),
            problem="shape",
        )
    return next_token_logps(logits[:, :-1], input_ids[:, 1:], temperature)


def next_token_logps(logits: Tensor, targets: Tensor, temperature: float = 1.0) -> Tensor:
    """Log-probability of each target under the logits at its position: ``(..., V), (...) -> (...)``, float32 or wider.

    The logits must already be aligned with the targets; :func:`token_logps` shifts them first.
    """
    if not temperature > 0:
        raise ArgumentError(
            f"temperature = {temperature!r}; expected a number > 0", argument="temperature", value=temperature
        )
    if logits.dtype in (torch.float16, torch.bfloat16):
        logits = logits.float()
    if temperature != 1.0:
        logits = logits / temperature
    return logits.gather(-1, targets[..., None]).squeeze(-1) - logits.logsumexp(-1)


@equation("eq:entropy")
def token_entropies(logits: Tensor, temperature: float = 1.0) -> Tensor:
    """Entropy in nats of each next-token distribution: ``(..., V) -> (...)``. Logits may hold −inf."""
    log_probs = torch.log_softmax(logits.float() if logits.dtype != torch.float64 else logits, -1)
    if temperature != 1.0:
        log_probs = torch.log_softmax(log_probs / temperature, -1)
    # 0 log 0 = 0: replace −inf before the product, otherwise the gradient is NaN.
    return -(log_probs.exp() * log_probs.masked_fill(log_probs == -torch.inf, 0.0)).sum(-1)


def sequence_logps(logps: Tensor, mask: Tensor) -> Tensor:
    """Log-probability of each sequence, the sum over its sampled tokens: ``(B, T), (B, T) -> (B,)``."""
    return masked_sum(logps, mask, -1)
