"""Inputs of the checks of chapter 14: a tabular policy over N completions, its optimum, and derivatives of losses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from minirlhf.core import exact
from minirlhf.equations.preference_losses import PairLogps
from minirlhf_course.ledger.registry import Draw


class Bandit(NamedTuple):
    """One prompt with N completions: reference, rewards, β, and the optimum found by numerical maximisation."""

    ref: Tensor
    rewards: Tensor
    beta: float

    def optimum(self) -> Tensor:
        """Log-probabilities of the policy with the largest E[r] − β KL; no closed form is used."""
        return exact.maximise(
            lambda p: exact.regularised_value(p, self.ref, self.rewards, self.beta), len(self.ref)
        ).log()


def bandit(draw: Draw, size: int = 4) -> Bandit:
    """Random reference and rewards; β in [0.4, 0.8], where no check confuses β, 1 and 1/β."""
    return Bandit(draw.distribution(size), draw.normal(size), float(draw.uniform(low=0.4, high=0.8)))


def all_pairs(logps: Tensor, ref: Tensor) -> tuple[PairLogps, Tensor, Tensor]:
    """Every ordered pair of different completions, and the indices of both."""
    i, j = (~torch.eye(len(ref), dtype=torch.bool)).nonzero(as_tuple=True)
    return PairLogps(logps[i], logps[j], ref.log()[i], ref.log()[j]), i, j


def pairs(draw: Draw, size: int = 4, lengths: bool = False) -> PairLogps:
    """Random log-probabilities of completions; the implicit rewards have both signs."""
    pair = PairLogps(*(-draw.uniform(size, low=1.0, high=6.0) for _ in range(4)))
    if not lengths:
        return pair
    counts = torch.tensor([[draw.integer(1, 5) for _ in range(size)] for _ in range(2)])
    return replace(pair, chosen_lengths=counts[0], rejected_lengths=counts[1])


def at(pair: PairLogps, *, chosen: Tensor, rejected: Tensor) -> PairLogps:
    """The pairs with their log-ratios set to ``chosen`` and ``rejected``."""
    assert pair.ref_chosen is not None and pair.ref_rejected is not None
    return replace(pair, chosen=pair.ref_chosen + chosen, rejected=pair.ref_rejected + rejected)


def log_quotients(pair: PairLogps) -> tuple[Tensor, Tensor]:
    """Log-ratios of every chosen and every rejected completion, from lists, not the record's properties."""
    assert pair.ref_chosen is not None and pair.ref_rejected is not None
    sides = ((pair.chosen, pair.ref_chosen), (pair.rejected, pair.ref_rejected))
    chosen, rejected = ([x - y for x, y in zip(a.tolist(), b.tolist(), strict=True)] for a, b in sides)
    return torch.tensor(chosen, dtype=torch.float64), torch.tensor(rejected, dtype=torch.float64)


def written_margins(pair: PairLogps) -> Tensor:
    """The difference of the two :func:`log_quotients`: chosen minus rejected."""
    chosen, rejected = log_quotients(pair)
    return chosen - rejected


def pair_gradient(loss: Callable[[PairLogps], Tensor], pair: PairLogps) -> Tensor:
    """Derivatives of every pair's loss in its two log-probabilities, ``(2B,)``: chosen, then rejected."""
    leaves = replace(pair, chosen=pair.chosen.clone().requires_grad_(), rejected=pair.rejected.clone().requires_grad_())
    return exact.gradient(loss(leaves).sum(), leaves.chosen, leaves.rejected)


def policy_gradient(loss: Callable[[Tensor], Tensor], logps: Tensor) -> Tensor:
    """Gradient, in the logits of a tabular policy, of a population loss of its log-probabilities."""
    logits = logps.detach().clone().requires_grad_()
    return exact.gradient(loss(logits.log_softmax(-1)), logits)


def bell(x: Tensor) -> Tensor:
    """The derivative of the sigmoid, as the logistic density 1/(4 cosh²(x/2))."""
    return 1 / (4 * torch.cosh(x / 2) ** 2)


def logistic_cdf(x: Tensor) -> Tensor:
    """P(noise ≤ x) for logistic noise, by integrating its density over the 35 units below x."""
    return torch.stack([exact.integrate(bell, float(v) - 35.0, float(v)) for v in x])


def without_reference(pair: PairLogps) -> PairLogps:
    """A common error: the policy's log-probabilities instead of the log-ratios."""
    return replace(pair, ref_chosen=torch.zeros_like(pair.chosen), ref_rejected=torch.zeros_like(pair.rejected))


def token_pairs(draw: Draw) -> tuple[PairLogps, tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]]:
    """Pairs of completions of an enumerable model, of different lengths; their token log-probabilities, NaN at padding.

    Returns:
        The record, then (policy, reference) of the chosen and of the rejected completions, ``(2, 3)`` each.
    """
    model, reference = draw.toy(2, 3), draw.toy(2, 3)
    responses = model.completions()  # EOS | 1 EOS | 1 1 EOS | 1 1 1
    nan_padded = lambda x: torch.where(responses.mask, x.completion_token_logps()[0].detach(), torch.nan)
    policy, ref = nan_padded(model), nan_padded(reference)
    w, l = torch.tensor([0, 2]), torch.tensor([1, 0])  # lengths 1, 3 against 2, 1
    w_logps, l_logps, w_ref, l_ref = (x.nansum(-1) for x in (policy[w], policy[l], ref[w], ref[l]))
    pair = PairLogps(w_logps, l_logps, w_ref, l_ref, responses.lengths[w], responses.lengths[l])
    return pair, ((policy[w], ref[w]), (policy[l], ref[l]))
