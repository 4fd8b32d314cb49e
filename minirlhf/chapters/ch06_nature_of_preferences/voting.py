"""Rules that turn the orders of several voters into one order: Condorcet's cycles counted, Arrow's theorem by going through everything."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from minirlhf.core.errors import ArgumentError

ORDERS = tuple(itertools.permutations("abc"))  # of three answers, best first
PAIRS = (("a", "b"), ("b", "c"), ("a", "c"))


def majority_cycles(voters: int) -> tuple[int, int]:
    """How many of the 6^n profiles of strict orders of three answers make the majority go in a circle, and 6^n.

    Raises:
        ValueError: an even number of voters, who can tie.
    """
    if voters < 1 or voters % 2 == 0:
        raise ArgumentError(
            f"voters = {voters}; expected an odd number, so that there are no ties",
            argument="voters",
            value=voters,
            expected="odd",
        )
    cyclic = 0
    for profile in itertools.combinations_with_replacement(range(6), voters):
        ahead = [
            2 * sum(ORDERS[k].index(x) < ORDERS[k].index(y) for k in profile) > voters
            for x, y in (("a", "b"), ("b", "c"), ("c", "a"))
        ]
        if len(set(ahead)) == 1:  # a beats b beats c beats a, or all three the other way
            counts = [profile.count(k) for k in range(6)]
            cyclic += math.factorial(voters) // math.prod(map(math.factorial, counts))
    return cyclic, 6**voters


@dataclass(frozen=True)
class Census:
    """Every rule for two voters and three answers that looks at each pair by itself.

    Attributes:
        rules: ``(4096, 3, 2, 2)`` bool: for pair (a,b), (b,c), (a,c), is its first answer ranked above the second, given
            whether voter 1 and voter 2 rank it so?
        cyclic: ``(4096, 36)`` bool: does the rule go in a circle on this profile of orders?
        pareto: ``(4096,)`` bool: does the rule follow both voters where they agree?
    """

    rules: Tensor
    cyclic: Tensor
    pareto: Tensor

    @property
    def transitive(self) -> Tensor:
        """``(4096,)`` bool: rules that never go in a circle."""
        return ~self.cyclic.any(-1)


def arrow_census() -> Census:
    """All 16³ rules on all 36 profiles."""
    bits = torch.tensor(list(itertools.product((False, True), repeat=4)))  # (16, 4): what a pair's rule says
    which = torch.cartesian_prod(*[torch.arange(16)] * 3)  # (4096, 3)
    rules = bits[which].reshape(-1, 3, 2, 2)
    likes = torch.tensor([[order.index(x) < order.index(y) for x, y in PAIRS] for order in ORDERS]).long()  # (6, 3)
    first, second = torch.cartesian_prod(torch.arange(6), torch.arange(6)).unbind(-1)  # (36,)
    pair = torch.arange(3)
    ranked = rules[:, pair, likes[first], likes[second]]  # (4096, 36, 3)
    ab, bc, ac = ranked.unbind(-1)
    return Census(rules, (ab & bc & ~ac) | (~ab & ~bc & ac), rules[:, :, 1, 1].all(-1) & ~rules[:, :, 0, 0].any(-1))


def dictated_by(rule: Tensor) -> int | None:
    """The voter, 1 or 2, whom the rule ``(3, 2, 2)`` follows on every pair, or None."""
    for voter in (1, 2):
        own = torch.tensor([[False, False], [True, True]])
        if bool((rule == (own if voter == 1 else own.T)).all()):
            return voter
    return None
