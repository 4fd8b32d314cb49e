"""Layer 7: the ledger. ``chNN`` proves the equations of chapter NN; :func:`load` registers them all."""

from __future__ import annotations

import importlib
import pkgutil

from minirlhf.core.checks import LEDGER, Ledger


def load() -> Ledger:
    """Import every chapter's checks and return the filled ledger."""
    for module in sorted(m.name for m in pkgutil.iter_modules(__path__)):
        if module.startswith("ch"):
            importlib.import_module(f"{__name__}.{module}")
    return LEDGER
