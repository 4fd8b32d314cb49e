"""Peers: TRL's own code on the same tensors as ours, in value and gradient.

:mod:`.adapter` runs TRL, :mod:`.catalogue` says for every method of ours: the peer agrees, it differs by a named convention
(and what switches), or there is none. :func:`rows` measures all of it, on fresh inputs. Needs the extra ``peers``.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from minirlhf.core import exact
from minirlhf.ledger.peers.adapter import TRL_VERSION, require_trl
from minirlhf.ledger.peers.catalogue import PEERS, TRL_ONLY, LibraryCounterpart, PeerComparison
from minirlhf.ledger.registry import Draw

TOLERANCE = 1e-6  # |ours − theirs| / max(1, |theirs|), in value and gradient
VISIBLE = 1e-4  # a convention that differs must show by at least this much


@dataclass(frozen=True)
class Row:
    """A line of the table, measured. Errors are the worst of value and gradient; None where nothing was compared.

    Attributes:
        method, peer, convention: as in the catalogue.
        verdict: ``agrees``, ``differs`` or ``no peer``.
        error: with the stated switch, if there is one.
        difference: without it.
    """

    method: str
    peer: str
    verdict: str
    convention: str
    error: float | None
    difference: float | None

    @property
    def holds(self) -> bool:
        """True if the line says the truth: agreement within the tolerance, and a difference that can be seen."""
        agrees = self.error is None or self.error <= TOLERANCE
        return agrees and (self.difference is None or self.difference >= VISIBLE)


def rows(seed: int | None = None) -> list[Row]:
    """Run every comparison on inputs drawn from ``seed`` (fresh ones if it is None).

    Raises:
        UserError: TRL is not installed, or not in the version that the adapter was written for.
    """
    require_trl()
    seed = secrets.randbelow(2**31) if seed is None else seed
    return [measure(peer, seed) for peer in PEERS]


def measure(peer: LibraryCounterpart, seed: int) -> Row:
    """Run the comparisons of one line."""
    if peer.agree is None:
        return Row(peer.method, peer.peer, "no peer", peer.convention, None, None)
    inputs = lambda: Draw(seed, peer.method, peer.peer)
    error = error_of(peer.agree(inputs()))
    if peer.differ is None:
        return Row(peer.method, peer.peer, "agrees", peer.convention, error, None)
    return Row(peer.method, peer.peer, "differs", peer.convention, error, error_of(peer.differ(inputs())))


def error_of(comparison: PeerComparison) -> float:
    """Largest ``|ours − theirs| / max(1, |theirs|)`` over the values and over the gradients in the leaf.

    Raises:
        ValueError: the shapes differ, or something is not a number.
    """
    leaf, ours, theirs = comparison
    pairs = [(ours, theirs)]
    if leaf.requires_grad:
        pairs.append((exact.gradient(ours.sum(), leaf), exact.gradient(theirs.sum(), leaf)))
    worst = 0.0
    for a, b in pairs:
        if a.shape != b.shape or bool((a.isnan() | b.isnan()).any()):
            raise ValueError(f"ours {a} and theirs {b} cannot be compared")
        worst = max(worst, float(((a - b).abs() / b.abs().clamp(min=1)).detach().max()))
    return worst


def table(measured: Sequence[Row]) -> str:
    """:func:`rows` as text, one line each, how many hold, and what only TRL has."""
    widths = [max(len(getattr(r, name)) for r in measured) for name in ("method", "peer", "verdict")]
    lines = []
    for r in measured:
        mark = " " if r.error is None else "✓" if r.holds else "✗"
        cells = [text.ljust(w) for text, w in zip((r.method, r.peer, r.verdict), widths, strict=True)]
        lines.append(f"{mark} {'  '.join(cells)}  {r.convention}".rstrip())
    compared = [r for r in measured if r.error is not None]
    held = sum(r.holds for r in compared)
    total = f"{held} of {len(compared)} comparisons with TRL {TRL_VERSION} hold, in value and gradient"
    return "\n".join([*lines, "", total, f"only in TRL: {'; '.join(TRL_ONLY)}"])
