"""Debate as a game that can be enumerated: a tree of claims, two debaters, and a judge who reads one leaf.

The leaves hold bits. Above them OR and AND alternate, with OR at the root, and the question is the value of the root.
One debater claims that it is true, the other one that it is false. At an OR node the debater who claims *true* chooses the
child that the debate goes on about, at an AND node the one who claims *false*. At the leaf the judge reads the bit, and
the debater whose claim fits it wins. The *honest* debater is the one whose claim about the root is right.
"""

from __future__ import annotations

import math
from itertools import combinations

import torch
from torch import Tensor

from minirlhf.core.equation import equation
from minirlhf.core.errors import ArgumentError
from minirlhf.core.validate import UNIT, at_least, finite, takes

_BITS = finite("... N", "[0, 1]")


def depth_of(leaves: Tensor) -> int:
    """Return the depth of the tree over ``(..., N)`` leaves.

    Raises:
        ArgumentError: the number of leaves is not 4, 16, 64, …
    """
    depth = round(math.log2(max(leaves.shape[-1], 1)))
    if 2**depth != leaves.shape[-1] or depth % 2 or not depth:
        raise ArgumentError(
            f"{leaves.shape[-1]} leaves; expected 4, 16, 64, …",
            argument="leaves",
            value=leaves.shape[-1],
            problem="shape",
        )
    return depth


def root(leaves: Tensor) -> Tensor:
    """Return the value of the root, 0 or 1: OR of AND of OR of AND …, ``(..., N)`` → ``(...)``."""
    values = leaves
    for level in reversed(range(depth_of(leaves))):
        first, second = values[..., ::2], values[..., 1::2]
        values = torch.minimum(first, second) if level % 2 else torch.maximum(first, second)
    return values[..., 0]


@takes(leaves=_BITS, honest=UNIT, liar=UNIT, misread=UNIT)
@equation(
    "eq:debate-value",
    source='Own derivation; the game is that of Irving, Christiano, and Amodei (2018), "AI safety via debate".',
)
def debate_value(leaves: Tensor, *, honest: float = 1.0, liar: float = 1.0, misread: float = 0.0) -> Tensor:
    """The probability that the honest debater wins, ``(..., N)`` bits → ``(...)``.

    Args:
        leaves: the bits; N is 4, 16, 64, …
        honest: probability that the honest debater chooses the child that is better for it; else it takes the other.
        liar: the same for the other debater.
        misread: probability that the judge reads the leaf wrongly.
    """
    depth, truth = depth_of(leaves), root(leaves)
    # What the honest debater claims about a leaf is what it claims about the root: the node's value never changes side.
    wins = misread + (1 - 2 * misread) * (leaves == truth[..., None]).to(leaves.dtype)
    for level in reversed(range(depth)):
        first, second = wins[..., ::2], wins[..., 1::2]
        better, worse = torch.maximum(first, second), torch.minimum(first, second)
        chooses = (truth == 1) if level % 2 == 0 else (truth == 0)  # is it the honest debater's turn?
        own = honest * better + (1 - honest) * worse
        other = liar * worse + (1 - liar) * better
        wins = torch.where(chooses[..., None], own, other)
    return wins[..., 0]


@takes(depth=at_least(2), honest=UNIT)
@equation("eq:debate-skill", source="Own derivation, from eq:debate-value.")
def skill_bound(depth: int, *, honest: float) -> float:
    """The smallest probability with which truth wins, over all inputs, against a liar that always chooses best.

    Args:
        depth: of the tree, even.
        honest: probability that the honest debater chooses the better child.

    Raises:
        ArgumentError: the depth is odd.
    """
    if depth % 2:
        raise ArgumentError(
            f"depth is {depth}; expected an even number", argument="depth", value=depth, expected="even"
        )
    return honest ** (depth // 2)


def proof_sizes(leaves: Tensor) -> Tensor:
    """Return the number of leaves in the smallest set that proves the value of the root, ``(..., N)`` → ``(...)``."""
    truth = root(leaves)
    sizes = torch.where(leaves == truth[..., None], 1.0, math.inf).to(leaves.dtype)
    for level in reversed(range(depth_of(leaves))):
        first, second = sizes[..., ::2], sizes[..., 1::2]
        needs_both = (truth == 0) if level % 2 == 0 else (truth == 1)  # OR is false, or AND true, if both children are
        sizes = torch.where(needs_both[..., None], first + second, torch.minimum(first, second))
    return sizes[..., 0]


def all_inputs(depth: int) -> Tensor:
    """Return every assignment of bits to the leaves of a tree, ``(2^N, N)``; ``depth`` is 2 or 4."""
    size = 2**depth
    return (torch.arange(2**size)[:, None] >> torch.arange(size) & 1).double()


def fair_bit(depth: int) -> float:
    """Return the probability of a 1 at each leaf with which the root is a fair coin."""

    def is_root(bit: float) -> float:
        for level in reversed(range(depth)):
            bit = bit * bit if level % 2 else 1 - (1 - bit) ** 2
        return bit

    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if is_root(middle) < 0.5 else (low, middle)
    return low


def input_probabilities(depth: int) -> Tensor:
    """Return the probabilities ``(2^N,)`` of :func:`all_inputs` if the leaves are independent and the root is fair."""
    ones, bit = all_inputs(depth).sum(-1), fair_bit(depth)
    return bit**ones * (1 - bit) ** (2**depth - ones)


def best_fixed_leaves(depth: int, count: int) -> float:
    """Return the accuracy of a judge without debaters who reads the ``count`` best leaves, fixed in advance."""
    inputs, probs = all_inputs(depth), input_probabilities(depth)
    truth = root(inputs)
    best = 0.0
    for chosen in combinations(range(1, inputs.shape[-1]), count - 1):  # leaf 0 is among them, by symmetry
        key = (inputs[:, [0, *chosen]] @ 2.0 ** torch.arange(count, dtype=torch.float64)).long()
        cases = [torch.zeros(2**count, dtype=torch.float64).index_add(0, key, probs * (truth == v)) for v in (0, 1)]
        best = max(best, float(torch.maximum(*cases).sum()))
    return best
