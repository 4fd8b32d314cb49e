"""Peers: compare this library with TRL's code on the same tensors, in value and gradient.

:mod:`.adapter` runs TRL. :mod:`.catalogue` states for every method of this library that its peer in TRL agrees, that it
differs by a named convention (and which setting removes the difference), or that TRL has no peer. :func:`rows` measures
every comparison on fresh inputs. Needs the extra ``peers``.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from minirlhf.core import exact
from minirlhf_course.ledger.peers.adapter import TRL_VERSION, require_trl
from minirlhf_course.ledger.peers.catalogue import PEERS, TRL_ONLY, LibraryCounterpart, PeerComparison
from minirlhf_course.ledger.registry import Draw

TOLERANCE = 1e-6  # |ours − theirs| / max(1, |theirs|), in value and gradient
VISIBLE = 1e-4  # a different convention must change the result by at least this much


@dataclass(frozen=True)
class Row:
    """A measured line of the table. Errors are the maximum over value and gradient; None if nothing was compared.

    Attributes:
        method, peer, convention: as in the catalogue.
        verdict: ``agrees``, ``differs`` or ``no peer``.
        error: the error with the stated setting, if there is one.
        difference: the error without the setting.
    """

    method: str
    peer: str
    verdict: str
    convention: str
    error: float | None
    difference: float | None

    @property
    def holds(self) -> bool:
        """True if the line is correct: agreement within the tolerance, and a visible difference without the setting."""
        agrees = self.error is None or self.error <= TOLERANCE
        return agrees and (self.difference is None or self.difference >= VISIBLE)


def rows(seed: int | None = None) -> list[Row]:
    """Run every comparison on inputs drawn from ``seed`` (fresh ones if it is None).

    Raises:
        UserError: TRL is not installed, or its version is not the one that the adapter was written for.
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
    """Largest ``|ours − theirs| / max(1, |theirs|)`` over the values and the gradients in the leaf.

    Raises:
        ValueError: the shapes differ, or a value is NaN.
    """
    leaf, actual, expected = comparison
    pairs = [(actual, expected)]
    if leaf.requires_grad:
        pairs.append((exact.gradient(actual.sum(), leaf), exact.gradient(expected.sum(), leaf)))
    worst = 0.0
    for a, b in pairs:
        if a.shape != b.shape or bool((a.isnan() | b.isnan()).any()):
            raise ValueError(f"minirlhf {a} and TRL {b} differ in shape, or contain NaN")
        worst = max(worst, float(((a - b).abs() / b.abs().clamp(min=1)).detach().max()))
    return worst


def table(measured: Sequence[Row]) -> str:
    """Format :func:`rows` as text: one line each, how many hold, and what only TRL has."""
    widths = [max(len(getattr(r, name)) for r in measured) for name in ("method", "peer", "verdict")]
    lines = []
    for r in measured:
        mark = " " if r.error is None else "✓" if r.holds else "✗"
        cells = [text.ljust(w) for text, w in zip((r.method, r.peer, r.verdict), widths, strict=True)]
        lines.append(f"{mark} {'  '.join(cells)}  {r.convention}".rstrip())
    compared = [r for r in measured if r.error is not None]
    num_holding = sum(r.holds for r in compared)
    total = f"{num_holding} of {len(compared)} comparisons with TRL {TRL_VERSION} hold, in value and gradient"
    return "\n".join([*lines, "", total, f"only in TRL: {'; '.join(TRL_ONLY)}"])
