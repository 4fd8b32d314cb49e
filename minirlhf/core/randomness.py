"""Random numbers keyed by their purpose, never by the order of calls.

A random number depends on ``(seed, step, prompt, sample, token)`` alone. So a run gives the same samples on one process
or two, with another batch size, and after a resume.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:  # a command that only derives seeds must not wait for the import of PyTorch
    import torch


@contextmanager
def threads(number: int) -> Iterator[None]:
    """Run the block with PyTorch on this number of threads.

    Two threads add the same numbers in another order than one thread, and training amplifies the rounding difference.
    """
    import torch

    previous = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(previous)


def derive_seed(*keys: int | str) -> int:
    """A 63-bit seed from any tuple of integers and strings; the same on every platform."""
    digest = hashlib.sha256("\x1f".join(f"{type(k).__name__}:{k}" for k in keys).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def generator(*keys: int | str) -> torch.Generator:
    """A CPU torch generator for these keys."""
    import torch

    return torch.Generator().manual_seed(derive_seed(*keys))


def numpy_generator(*keys: int | str) -> np.random.Generator:
    """A NumPy generator for these keys."""
    return np.random.default_rng(derive_seed(*keys))


def _splitmix64(x: np.ndarray) -> np.ndarray:
    """The output function of the SplitMix64 generator (Steele, Lea and Flood 2014), a bijection on 64-bit integers."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def keyed_uniforms(row_seeds: Sequence[int], width: int) -> torch.Tensor:
    """Uniform numbers in [0, 1): entry ``(b, t)`` depends on ``row_seeds[b]`` and ``t`` only.

    Returns:
        ``(len(row_seeds), width)``, float64. A larger ``width`` gives the same first columns.
    """
    import torch

    with np.errstate(over="ignore"):
        rows = _splitmix64(np.asarray(row_seeds, dtype=np.uint64))[:, None]
        bits = _splitmix64(rows + np.arange(width, dtype=np.uint64)[None, :] * np.uint64(0xD1342543DE82EF95))
    return torch.from_numpy((bits >> np.uint64(11)).astype(np.float64) * 2.0**-53)
