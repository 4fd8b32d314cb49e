"""Chapter 14: what the printed formulas are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from minirlhf.equations import preference_losses as pl
from minirlhf.ledger.ink.legends import ink
from minirlhf.ledger.inputs.preferences import pairs
from minirlhf.ledger.registry import Draw

Legend = Mapping[str, Any]


def some_beta(draw: Draw) -> float:
    return float(draw.uniform(low=0.3, high=0.9))


def answers(draw: Draw) -> tuple[Any, float, dict[str, Any]]:
    """Eight pairs of answers with their lengths, β, and the chapter's symbols for them."""
    pair: Any = pairs(draw, 8, lengths=True)
    beta = some_beta(draw)
    w, l = pair.chosen - pair.ref_chosen, pair.rejected - pair.ref_rejected
    legend = {r"\beta": beta, "h": w - l, r"\hat r_w": beta * w, r"\hat r_l": beta * l}
    for side, logps, ref, lengths in (
        ("w", pair.chosen, pair.ref_chosen, pair.chosen_lengths),
        ("l", pair.rejected, pair.ref_rejected, pair.rejected_lengths),
    ):
        legend |= {rf"\pi(y_{side})": logps.exp(), rf"\piref(y_{side})": ref.exp(), f"|y_{side}|": lengths.double()}
        legend |= {rf"\pi(y_{side}\mid x)": logps.exp(), rf"\piref(y_{side}\mid x)": ref.exp()}
    return pair, beta, legend


def pair_loss(label: str, name: str, loss: Callable[..., Tensor], **options: tuple[str, float]) -> None:
    """The legend of a loss of pairs; ``options`` name the ink and the value of each further argument."""

    @ink(label)
    def _(draw: Draw) -> Legend:
        pair, beta, legend = answers(draw)
        given = {"beta": beta} | {argument: value for argument, (_, value) in options.items()}
        return legend | dict(options.values()) | {name: loss(pair, **given)}


pair_loss("eq:dpo", r"\ell_{\text{DPO}}", pl.dpo)
pair_loss("eq:ipo", r"\ell_{\text{IPO}}", pl.ipo)
pair_loss("eq:dpo-hinge", r"\ell_{\text{hinge}}", pl.hinge)
pair_loss("eq:cdpo", r"\ell_{\text{cDPO}}", pl.cdpo, label_smoothing=(r"\varepsilon", 0.2))
pair_loss("eq:robust-dpo", r"\ell_{\text{robust}}", pl.robust_dpo, label_smoothing=(r"\varepsilon", 0.2))
pair_loss("eq:dpo-positive", r"\ell_{\text{DPOP}}", pl.dpo_positive, penalty=(r"\lambda", 1.7))
pair_loss("eq:dpo-length-normalised", r"\ell_{\text{LN}}", pl.dpo_length_normalised)
pair_loss("eq:simpo", r"\ell_{\text{SimPO}}", pl.simpo, gamma=(r"\gamma", 0.4))
pair_loss("eq:nca-pair", r"\ell_{\text{NCA}}^{\text{pair}}", pl.nca_pair)
pair_loss("eq:apo-zero", r"\ell_{\text{zero}}", pl.apo_zero)
pair_loss("eq:apo-down", r"\ell_{\text{down}}", pl.apo_down)
pair_loss("eq:cpo", r"\ell_{\text{CPO}}", pl.cpo)
