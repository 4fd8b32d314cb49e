"""Chapter 8: what the printed formulas are made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from minirlhf.equations import reward_losses
from minirlhf_course.ledger.formulas.legends import symbols_of
from minirlhf_course.ledger.registry import Draw

Legend = Mapping[str, Any]


def pair(draw: Draw) -> tuple[Tensor, Tensor, dict[str, Any]]:
    """Rewards of the chosen and the rejected reply of four pairs."""
    chosen, rejected = draw.normal(4), draw.normal(4)
    return chosen, rejected, {"r_c": chosen, "r_r": rejected}


@symbols_of("eq:bradley-terry-loss")
def _(draw: Draw) -> Legend:
    chosen, rejected, legend = pair(draw)
    return legend | {r"\ell(\Delta)": reward_losses.bradley_terry_loss(chosen, rejected), r"\Delta": chosen - rejected}


@symbols_of("eq:reward-shift")
def _(draw: Draw) -> Legend:
    return pair(draw)[-1] | {"b": draw.uniform(4, low=1.0, high=2.0)}


@symbols_of("eq:margin-loss")
def _(draw: Draw) -> Legend:
    chosen, rejected, legend = pair(draw)
    margin = draw.uniform(4, low=0.5, high=2.0)
    return legend | {"m": margin, r"\ell_m": reward_losses.bradley_terry_loss(chosen, rejected, margin=margin)}


@symbols_of("eq:pair-weights", tolerance=1e-6)
def _(draw: Draw) -> Legend:
    ranked = torch.tensor([3, 4, 6, 9])
    return {"K": ranked.double(), "w": reward_losses.pair_weights(ranked).double()}


@symbols_of("eq:reward-regression")
def _(draw: Draw) -> Legend:
    r, s = draw.normal(4), draw.normal(4)
    return {"r": r, "s": s, r"\ell_s": reward_losses.regression_loss(r, s)}


@symbols_of("eq:reward-centring")
def _(draw: Draw) -> Legend:
    chosen, rejected, legend = pair(draw)
    return legend | {"c": reward_losses.centring_penalty(chosen, rejected)}


@symbols_of("eq:max-entropy-irl")
def _(draw: Draw) -> Legend:
    r, ref, p = draw.normal(5), draw.distribution(5), draw.distribution(5)
    loss = reward_losses.max_entropy_irl_loss(r, ref.log(), p)
    return {"y": range(5), r"\piref(y)": ref, "r(y)": r, "p(y)": p, "L": loss}


@symbols_of("eq:outcome-loss")
def _(draw: Draw) -> Legend:
    logits, labels, mask = draw.normal(4, 3), draw.uniform(4, low=0.2, high=0.8), torch.ones(4, 3, dtype=torch.bool)
    losses = reward_losses.outcome_loss(logits, labels, mask)
    return {"t": range(3), "u_t": logits.T, "z": labels, r"\ell_t": losses.T}


@symbols_of("eq:process-loss")
def _(draw: Draw) -> Legend:
    logits, labels, mask = draw.normal(4, 3), draw.uniform(4, 3, low=0.2, high=0.8), torch.ones(4, 3, dtype=torch.bool)
    losses = reward_losses.process_loss(logits, labels, mask)
    return {"k": range(3), "u_k": logits.T, "y_k": labels.T, r"\ell_k": losses.T}


@symbols_of("eq:calibration-error")
def _(draw: Draw) -> Legend:
    counts, edges = [3, 2, 4], torch.arange(3).double() / 3
    said = torch.cat([edge + draw.uniform(n, low=0.05, high=0.28) for edge, n in zip(edges, counts, strict=True)])
    happened = draw.uniform(9, low=0.0, high=1.0)
    means = [torch.stack([part.mean() for part in x.split(counts)]) for x in (said, happened)]
    found = reward_losses.expected_calibration_error(said, happened, num_bins=3)
    legend = {"b": range(3), "n_b": torch.tensor(counts).double(), "N": 9.0}
    return legend | {r"\bar p_b": means[0], r"\bar o_b": means[1], "E": found}


@symbols_of("eq:gated-reward")
def _(draw: Draw) -> Legend:
    helpful, threshold = draw.normal(4), 0.15
    safe = torch.stack([draw.uniform(low=-0.9, high=0.05), draw.uniform(low=0.25, high=0.9)]).repeat(2)
    found = reward_losses.gated_reward(helpful, safe, threshold=threshold)
    return {
        "r_s": safe,
        "r_h": helpful,
        r"\tau": threshold,
        "r": found,
        r"\text{if }": None,
        r"\text{otherwise.}": None,
    }
