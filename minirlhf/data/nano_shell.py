"""The shell game, so small that a policy is a table of twelve rows: three cups, three swaps; a chain of thought pays.

A game is four numbers, ``[ball, swap, swap, swap]``: the ball lies under cup 0, 1 or 2, and swap 0, 1, 2 exchanges cups
0 and 1, 0 and 2, 1 and 2. A completion begins with a cup, which is a direct answer, or with ``THINK`` (3). After
``THINK`` it names a cup after each swap, and the last cup is the answer. A second ``THINK`` truncates the completion. A
direct answer is right one time in three, whatever the policy has learned, because it depends on no swap.

The policy is a table of logits ``(12, 4)``. Rows 0, 1, 2 give the first token, by the ball. Row ``3 + 3·cup + swap``
gives the next token from the cup named last (the ball, at first) and the swap. The expected reward is a sum over all 81
games, so nothing needs to be estimated.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

THINK = 3
SWAPS = 3  # per game
LENGTH = SWAPS + 1  # tokens of the longest completion
AFTER = torch.tensor([[1, 0, 2], [2, 1, 0], [0, 2, 1]])  # AFTER[swap, cup]: the cup of the ball after the swap
GAMES = torch.cartesian_prod(*[torch.arange(3)] * (1 + SWAPS))  # (81, 4), all of them

Sample = Callable[[Tensor, int], Tensor]  # (logits (B, V), seed) -> tokens (B,)


def answers(games: Tensor) -> Tensor:
    """Return the cup of the ball after all swaps. games: (B, 4). Returns (B,)."""
    ball = games[:, 0]
    for swap in games[:, 1:].unbind(-1):
        ball = AFTER[swap, ball]
    return ball


def rows(games: Tensor, tokens: Tensor) -> Tensor:
    """Return the table row of each token. games: (B, 4). tokens: (B, 4). Returns (B, 4); meaningless after the end."""
    last = torch.cat([games[:, :1], tokens[:, 1:-1].clamp(max=2)], 1)  # (B, 3): the ball, then the cups named so far
    return torch.cat([games[:, :1], 3 + 3 * last + games[:, 1:]], 1)


def logps(weights: Tensor, games: Tensor, tokens: Tensor) -> Tensor:
    """Return the log-probability of every token, differentiable in the weights.

    Args:
        weights: ``(12, 4)``, the policy.
        games: ``(B, 4)``.
        tokens: ``(B, 4)``, a completion of each game, padded on the right with 0.

    Returns:
        ``(B, 4)``; meaningless after the end of a completion.
    """
    return weights.log_softmax(-1)[rows(games, tokens)].gather(-1, tokens[..., None])[..., 0]


def play(weights: Tensor, games: Tensor, sample: Sample, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Sample a completion of each game, token by token.

    Args:
        sample: samples a token from each row of logits.
        seed: of the completions; each token position uses a different seed.

    Returns:
        tokens ``(B, 4)``, padded with 0; their mask ``(B, 4)``; and the reward of each completion, ``(B,)``: 1 for the
        right cup, else 0.
    """
    tokens = torch.zeros(len(games), LENGTH, dtype=torch.long)
    mask = torch.zeros(len(games), LENGTH, dtype=torch.bool)
    running = torch.ones(len(games), dtype=torch.bool)
    for t in range(LENGTH):
        sampled = sample(weights[rows(games, tokens)[:, t]], seed * LENGTH + t)
        tokens[:, t], mask[:, t] = torch.where(running, sampled, 0), running
        running = running & ((sampled == THINK) == (t == 0))
    end = mask.sum(-1) - 1
    answer = tokens.gather(1, end[:, None])[:, 0]
    is_correct = (answer == answers(games)) & ((end == 0) | (end == SWAPS))
    return tokens, mask, is_correct.double()


def accuracy(weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return the policy's exact accuracy over all games, and its exact probability of beginning with ``THINK``."""
    probs = weights.softmax(-1)
    first, step = probs[:3], probs[3:].reshape(3, 3, 4)[:, :, :3]  # (ball, token), (cup, swap, next cup)
    state = first[GAMES[:, 0], THINK, None] * torch.nn.functional.one_hot(
        GAMES[:, 0], 3
    )  # (81, 3): probability of THINK and each cup
    for swap in GAMES[:, 1:].unbind(-1):
        state = torch.einsum("bc,cbd->bd", state, step[:, swap])
    correct = state + first[GAMES[:, 0], :3]
    return correct.gather(1, answers(GAMES)[:, None]).mean(), first[:, THINK].mean()


def beginner(noise: Tensor, thinks: float = 0.25, knows: float = 0.7) -> Tensor:
    """Return a policy as after a few demonstrations: it thinks sometimes, and mostly follows a swap.

    Args:
        noise: ``(12, 4)``, added to the logits.
        thinks: the probability that it begins with ``THINK``.
        knows: the probability that it names the right cup after a swap.
    """
    first = torch.tensor([[(1 - thinks) / 3] * 3 + [thinks]]).repeat(3, 1)
    step = torch.full((9, 4), (1 - knows) / 3)
    cups, swaps = torch.cartesian_prod(torch.arange(3), torch.arange(3)).unbind(-1)
    step[torch.arange(9), AFTER[swaps, cups]] = knows
    return torch.cat([first, step]).to(noise.dtype).log() + noise
