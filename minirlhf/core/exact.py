"""The exact oracle: a language model so small that all its completions can be enumerated.

A :class:`ToyLM` keeps one row of logits for every prefix. With ``V`` tokens and at most ``L`` of them there are at most
``V**L`` completions, so distributions, expectations, divergences, optimal policies and gradients are plain sums, in
float64. The model is called like any ``transformers`` causal LM, so the code that trains and samples real models runs
on it unchanged, and the result of that code can be checked against the sum.

The oracle is independent: it uses only definitions, and none of the formulas that it checks.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from minirlhf.core.errors import ArgumentError


@dataclass(frozen=True)
class Completions:
    """All ``N`` completions that a :class:`ToyLM` can generate.

    Attributes:
        tokens: ``(N, L)``, padded on the right with the pad id.
        mask: ``(N, L)``, True on the tokens of the completion, EOS included.
        terminated: ``(N,)``, True where the completion ends in EOS; False where it was truncated at ``L``.
    """

    tokens: Tensor
    mask: Tensor
    terminated: Tensor

    @property
    def lengths(self) -> Tensor:
        """``(N,)``, number of tokens of each completion, EOS included."""
        return self.mask.sum(-1)


class ToyLM(nn.Module):
    """A tabular causal language model over ``vocab_size`` completion tokens, of which id 0 is EOS.

    A sequence is one prompt token followed by at most ``max_len`` completion tokens. Ids: ``0 .. V−1`` completion
    tokens, ``V .. V + num_prompts − 1`` prompts, ``V + num_prompts`` padding.

    Attributes:
        table: the parameters, ``(num_prompts, num_prefixes, V)`` float64 logits.
    """

    eos_token_id = 0

    def __init__(
        self, vocab_size: int = 3, max_len: int = 3, num_prompts: int = 1, seed: int = 0, scale: float = 1.0
    ) -> None:
        super().__init__()
        if vocab_size < 2 or max_len < 1 or num_prompts < 1:
            raise ArgumentError(
                f"{vocab_size=}, {max_len=}, {num_prompts=}; expected at least 2, 1 and 1",
                argument="vocab_size, max_len, num_prompts",
                value=(vocab_size, max_len, num_prompts),
                expected=(2, 1, 1),
            )
        self.vocab_size, self.max_len, self.num_prompts = vocab_size, max_len, num_prompts
        self.pad_token_id = vocab_size + num_prompts
        # Prefixes of length t start at offset (V^t - 1) / (V - 1) and are numbered in base V.
        self.offsets = [sum(vocab_size**i for i in range(t)) for t in range(max_len + 1)]
        shape = (num_prompts, self.offsets[max_len], vocab_size)
        noise = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        self.table = nn.Parameter(scale * noise)

    # -- the interface of a transformers causal LM ---------------------------------------------------------------

    @property
    def device(self) -> torch.device:
        """The device of the table."""
        return self.table.device

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, **_: Any) -> SimpleNamespace:
        """Logits ``(B, S, V)`` of the next completion token at every position; zeros left of the prompt.

        ``attention_mask`` is accepted but ignored, since padding has its own id.
        """
        is_prompt = (input_ids >= self.vocab_size) & (input_ids < self.pad_token_id)
        if not bool(is_prompt.any(-1).all()):
            raise ArgumentError(
                "every row of input_ids needs one prompt token (id V or above)",
                argument="input_ids",
                expected=self.vocab_size,
                problem="missing",
            )
        prompt = (input_ids - self.vocab_size)[is_prompt].view(input_ids.shape[0])  # (B,)
        start = is_prompt.int().argmax(-1)  # (B,)
        prefix = torch.zeros_like(prompt)
        rows = []
        for position in range(input_ids.shape[1]):
            length = position - start  # completion tokens up to here; negative left of the prompt
            token = input_ids[:, position].clamp(0, self.vocab_size - 1)
            prefix = torch.where(length > 0, prefix * self.vocab_size + token, torch.zeros_like(prefix))
            in_table = (length >= 0) & (length < self.max_len)
            offset = torch.tensor(self.offsets)[length.clamp(0, self.max_len - 1)]
            index = torch.where(in_table, offset + prefix, torch.zeros_like(prefix))
            rows.append(torch.where(in_table[:, None], self.table[prompt, index], torch.zeros((), dtype=torch.float64)))
        return SimpleNamespace(logits=torch.stack(rows, 1))

    # -- exact quantities by summation ---------------------------------------------------------------------------

    def _prefix_index(self, tokens: Sequence[int]) -> int:
        index = 0
        for token in tokens:
            index = index * self.vocab_size + token
        return self.offsets[len(tokens)] + index

    def completions(self) -> Completions:
        """All completions, in depth-first order, both those that end in EOS and those truncated at ``max_len``."""
        sequences: list[list[int]] = []

        def grow(prefix: list[int]) -> None:
            if prefix and (prefix[-1] == self.eos_token_id or len(prefix) == self.max_len):
                sequences.append(prefix)
                return
            for token in range(self.vocab_size):
                grow([*prefix, token])

        grow([])
        tokens = torch.full((len(sequences), self.max_len), self.pad_token_id)
        mask = torch.zeros(len(sequences), self.max_len, dtype=torch.bool)
        for i, sequence in enumerate(sequences):
            tokens[i, : len(sequence)] = torch.tensor(sequence)
            mask[i, : len(sequence)] = True
        terminated = torch.tensor([sequence[-1] == self.eos_token_id for sequence in sequences])
        return Completions(tokens, mask, terminated)

    def _paths(self) -> tuple[Tensor, Tensor]:
        """Index of the prefix and id of the next token at every step of every completion, both ``(N, L)``."""
        completions = self.completions()
        prefix = torch.zeros_like(completions.tokens)
        for i, (row, row_mask) in enumerate(zip(completions.tokens.tolist(), completions.mask.tolist(), strict=True)):
            for t in range(sum(row_mask)):
                prefix[i, t] = self._prefix_index(row[:t])
        return prefix, torch.where(completions.mask, completions.tokens, 0)

    def completion_token_logps(self) -> Tensor:
        """Log-probability of every token of every completion: ``(num_prompts, N, L)``, 0 at padding. Differentiable."""
        prefix, token = self._paths()
        weights = self.table.exp()
        probs = weights / weights.sum(-1, keepdim=True)  # (num_prompts, prefixes, V)
        return torch.where(self.completions().mask, probs[:, prefix, token].log(), torch.zeros((), dtype=torch.float64))

    def distribution(self) -> Tensor:
        """Probability of every completion: ``(num_prompts, N)``, rows sum to 1. Differentiable."""
        return self.completion_token_logps().sum(-1).exp()

    def batch(self, prompt: int = 0) -> dict[str, Tensor]:
        """All completions of a prompt: ``input_ids`` and ``attention_mask`` ``(N, 1 + L)``, and ``mask`` ``(N, L)``."""
        completions = self.completions()
        first = torch.full((len(completions.tokens), 1), self.vocab_size + prompt)
        input_ids = torch.cat([first, completions.tokens], 1)
        attention_mask = torch.cat([torch.ones_like(first), completions.mask.long()], 1)
        return {"input_ids": input_ids, "attention_mask": attention_mask, "mask": completions.mask}

    def action_values(self, rewards: Tensor, prompt: int = 0) -> tuple[Tensor, Tensor]:
        """State and action values of every prefix if completion ``n`` receives ``rewards[n]`` at its end, undiscounted.

        Each value is the conditional expectation of the final reward, summed over all continuations.

        Args:
            rewards: ``(N,)``.

        Returns:
            ``V (N, L)`` before each token and ``Q (N, L)`` after choosing it; 0 at padding.
        """
        completions = self.completions()
        probs = self.distribution()[prompt].detach()
        rows = [row[:n] for row, n in zip(completions.tokens.tolist(), completions.lengths.tolist(), strict=True)]

        def conditional(prefix: list[int]) -> float:
            matches = torch.tensor([row[: len(prefix)] == prefix for row in rows])
            return float((probs * rewards)[matches].sum() / probs[matches].sum())

        state = torch.zeros(completions.mask.shape, dtype=torch.float64)
        action = torch.zeros_like(state)
        for i, row in enumerate(rows):
            for t in range(len(row)):
                state[i, t] = conditional(row[:t])
                action[i, t] = conditional(row[: t + 1])
        return state, action

    @torch.no_grad()
    def set_distribution(self, probs: Tensor, prompt: int = 0) -> None:
        """Set the distribution over completions to ``probs (N,)``, e.g. an optimum computed in closed form."""
        completions = self.completions()
        rows = [row[:n] for row, n in zip(completions.tokens.tolist(), completions.lengths.tolist(), strict=True)]
        mass: dict[tuple[int, ...], float] = {}
        for row, p in zip(rows, probs.tolist(), strict=True):
            for t in range(len(row) + 1):
                mass[tuple(row[:t])] = mass.get(tuple(row[:t]), 0.0) + p
        for prefix, total in mass.items():
            ended = bool(prefix) and (prefix[-1] == self.eos_token_id or len(prefix) == self.max_len)
            if not ended:
                index = self._prefix_index(prefix)
                for token in range(self.vocab_size):
                    self.table[prompt, index, token] = math.log(mass[(*prefix, token)] / total)


# -- distributions written out -----------------------------------------------------------------------------------


def expectation(probs: Tensor, values: Tensor) -> Tensor:
    """Σ_y p(y) f(y) along the last axis. ``values`` has the shape of ``probs``."""
    return (probs * values).sum(-1)


def entropy(probs: Tensor) -> Tensor:
    """−Σ p log p in nats along the last axis; 0 log 0 = 0."""
    return -torch.special.xlogy(probs, probs).sum(-1)


def divergence(p: Tensor, q: Tensor) -> Tensor:
    """KL(p‖q) = Σ p (log p − log q) in nats along the last axis."""
    return (torch.special.xlogy(p, p) - torch.special.xlogy(p, q)).sum(-1)


def regularised_value(probs: Tensor, ref_probs: Tensor, rewards: Tensor, beta: float) -> Tensor:
    """E_p[r] − β KL(p‖ref), the objective of KL-regularised reinforcement learning, by summation."""
    return expectation(probs, rewards) - beta * divergence(probs, ref_probs)


def maximise(value: Callable[[Tensor], Tensor], size: int, steps: int = 200, restarts: int = 1) -> Tensor:
    """The distribution over ``size`` outcomes that maximises ``value(probs)``, found numerically (L-BFGS on logits).

    It uses no closed form, so a closed form can be checked against it. A step that is too long saturates the softmax,
    where the gradient on the logits nearly vanishes, and the search would stop far from the maximum. So one natural
    gradient step precedes each search (along ``∂value/∂probs``, which does not vanish with the softmax), and both are
    repeated until ``value`` no longer increases. The objective is flat at its maximum, so its value determines only
    half of the digits of the argument. Two Newton steps then find the other half, for which ``value`` must be twice
    differentiable.
    """
    best: Tensor | None = None
    for restart in range(restarts):
        noise = torch.randn(size, dtype=torch.float64, generator=torch.Generator().manual_seed(restart))
        logits, previous, gain = 0.1 * noise, -torch.inf, torch.inf
        while gain > 1e-13:
            logits = _searched(value, _natural_step(value, logits), steps)
            current = float(value(logits.softmax(-1)))
            previous, gain = current, current - previous
        candidate = _polished(value, logits).softmax(-1)
        if best is None or value(candidate) > value(best):
            best = candidate
    assert best is not None
    return best


def _bounded(logits: Tensor) -> Tensor:
    """Clamp logits to ±50, so that a value with a logarithm stays finite after a long step and the search recovers."""
    return logits.clamp(-50, 50)


def _searched(value: Callable[[Tensor], Tensor], start: Tensor, steps: int) -> Tensor:
    """Logits to which L-BFGS converges."""
    logits = start.clone().requires_grad_()
    optimiser = torch.optim.LBFGS(
        [logits], max_iter=steps, tolerance_grad=1e-12, tolerance_change=1e-16, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = -value(_bounded(logits).softmax(-1))
        loss.backward()
        return loss

    optimiser.step(closure)
    return _bounded(logits.detach())


def _polished(value: Callable[[Tensor], Tensor], logits: Tensor) -> Tensor:
    """Logits after two Newton steps; stop before a step that lowers ``value`` by more than rounding."""
    objective = lambda z: value(z.softmax(-1))
    for _ in range(2):
        slope = torch.autograd.functional.jacobian(objective, logits)
        curvature = torch.autograd.functional.hessian(objective, logits)
        candidate = (logits - torch.linalg.pinv(curvature, rtol=1e-6) @ slope).log_softmax(-1)
        if not float(objective(candidate)) >= float(objective(logits)) - 1e-13:
            break
        logits = candidate
    return logits


def _natural_step(value: Callable[[Tensor], Tensor], logits: Tensor) -> Tensor:
    """Move the logits along ``∂value/∂probs`` by the best of a few step lengths, of which one is 0."""
    probs = logits.softmax(-1).requires_grad_()
    (direction,) = torch.autograd.grad(value(probs), probs)
    direction = direction - (probs.detach() * direction).sum()
    candidates = [logits] + [_bounded(logits + 2.0**k * direction) for k in range(-8, 5)]
    return max(candidates, key=lambda z: float(value(z.softmax(-1)).nan_to_num(-torch.inf)))


# -- derivatives and integrals -----------------------------------------------------------------------------------


def gradient(value: Tensor, *inputs: Tensor) -> Tensor:
    """All partial derivatives of a scalar, flattened into one vector; zeros for inputs that it does not depend on."""
    grads = torch.autograd.grad(value, inputs, allow_unused=True, retain_graph=True)
    return torch.cat(
        [torch.zeros_like(x).flatten() if g is None else g.flatten() for g, x in zip(grads, inputs, strict=True)]
    )


def finite_difference(f: Callable[[Tensor], Tensor], x: Tensor, step: float = 1e-4) -> Tensor:
    """Gradient of a scalar function by central differences with one Richardson step (error O(step⁴)).

    Returns:
        A tensor of the shape of ``x``. It needs float64 and a point where ``f`` is smooth.
    """
    x = x.detach()
    flat = torch.empty(x.numel(), dtype=x.dtype)
    for i in range(x.numel()):
        nudge = torch.zeros(x.numel(), dtype=x.dtype)
        nudge[i] = step
        nudge = nudge.view_as(x)
        fine = (f(x + nudge) - f(x - nudge)) / (2 * step)
        coarse = (f(x + 2 * nudge) - f(x - 2 * nudge)) / (4 * step)
        flat[i] = (4 * fine - coarse) / 3
    return flat.view_as(x)


def gaussian_expectation(f: Callable[[Tensor], Tensor], mean: float = 0.0, std: float = 1.0, nodes: int = 64) -> Tensor:
    """E[f(x)] for x ~ N(mean, std²) by Gauss–Hermite quadrature; ``f`` maps ``(nodes,) -> (nodes,)``."""
    points, weights = np.polynomial.hermite_e.hermegauss(nodes)
    x = mean + std * torch.from_numpy(points)
    return (torch.from_numpy(weights) * f(x)).sum() / math.sqrt(2 * math.pi)


@functools.cache  # numpy finds the eigenvalues of a matrix of this size
def _legendre(nodes: int) -> tuple[Tensor, Tensor]:
    """Points and weights of Gauss–Legendre quadrature on [−1, 1], each ``(nodes,)``."""
    points, weights = np.polynomial.legendre.leggauss(nodes)
    return torch.from_numpy(points), torch.from_numpy(weights)


def integrate(f: Callable[[Tensor], Tensor], low: float, high: float, nodes: int = 200) -> Tensor:
    """∫ f from ``low`` to ``high`` by Gauss–Legendre quadrature; ``f`` maps ``(nodes,) -> (nodes,)``."""
    points, weights = _legendre(nodes)
    x = (high - low) / 2 * points + (high + low) / 2
    return (weights * f(x)).sum() * (high - low) / 2
