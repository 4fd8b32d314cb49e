"""Aggregating the rankings of several voters: a count of Condorcet cycles, and Arrow's theorem by enumeration."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from minirlhf.core.errors import ArgumentError

ORDERS = tuple(itertools.permutations("abc"))  # rankings of three candidates, best first
PAIRS = (("a", "b"), ("b", "c"), ("a", "c"))


def majority_cycles(voters: int) -> tuple[int, int]:
    """Count the profiles of n strict rankings of three candidates with a cyclic majority; also return their total, 6^n.

    Raises:
        ValueError: the number of voters is even, so that ties are possible, or below 1.
    """
    if voters < 1 or voters % 2 == 0:
        raise ArgumentError(
            f"voters = {voters}; expected an odd number, so that there are no ties",
            argument="voters",
            value=voters,
            expected="odd",
        )
    num_cyclic = 0
    for profile in itertools.combinations_with_replacement(range(6), voters):
        majorities = [
            2 * sum(ORDERS[k].index(x) < ORDERS[k].index(y) for k in profile) > voters
            for x, y in (("a", "b"), ("b", "c"), ("c", "a"))
        ]
        if len(set(majorities)) == 1:  # a beats b beats c beats a, or all three the other way
            counts = [profile.count(k) for k in range(6)]
            num_cyclic += math.factorial(voters) // math.prod(map(math.factorial, counts))
    return num_cyclic, 6**voters


@dataclass(frozen=True)
class Census:
    """Every rule for two voters and three candidates that decides each pair from the votes on that pair alone (IIA).

    Attributes:
        rules: ``(4096, 3, 2, 2)`` bool: for pair (a,b), (b,c), (a,c), is its first candidate ranked above the second,
            given whether voter 1 and voter 2 rank it so?
        cyclic: ``(4096, 36)`` bool: does the rule give a cycle on this profile of rankings?
        pareto: ``(4096,)`` bool: does the rule follow both voters on each pair on which they agree?
    """

    rules: Tensor
    cyclic: Tensor
    pareto: Tensor

    @property
    def transitive(self) -> Tensor:
        """``(4096,)`` bool: rules that give a cycle on no profile."""
        return ~self.cyclic.any(-1)


def arrow_census() -> Census:
    """Evaluate all 16³ rules on all 36 profiles."""
    pair_rules = torch.tensor(list(itertools.product((False, True), repeat=4)))  # (16, 4): one truth table per row
    rule_ids = torch.cartesian_prod(*[torch.arange(16)] * 3)  # (4096, 3)
    rules = pair_rules[rule_ids].reshape(-1, 3, 2, 2)
    votes = torch.tensor([[order.index(x) < order.index(y) for x, y in PAIRS] for order in ORDERS]).long()  # (6, 3)
    voter_1, voter_2 = torch.cartesian_prod(torch.arange(6), torch.arange(6)).unbind(-1)  # (36,)
    pair = torch.arange(3)
    ranked = rules[:, pair, votes[voter_1], votes[voter_2]]  # (4096, 36, 3)
    ab, bc, ac = ranked.unbind(-1)
    return Census(rules, (ab & bc & ~ac) | (~ab & ~bc & ac), rules[:, :, 1, 1].all(-1) & ~rules[:, :, 0, 0].any(-1))


def dictated_by(rule: Tensor) -> int | None:
    """Return the voter, 1 or 2, whose vote the rule ``(3, 2, 2)`` follows on every pair, or None."""
    for voter in (1, 2):
        voter_1_rule = torch.tensor([[False, False], [True, True]])
        if bool((rule == (voter_1_rule if voter == 1 else voter_1_rule.T)).all()):
            return voter
    return None
