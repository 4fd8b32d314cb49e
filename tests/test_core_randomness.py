"""A draw depends on its keys alone, and the draws are uniform."""

import math

import numpy as np
import pytest
import torch

from minirlhf.core.randomness import _splitmix64, derive_seed, generator, keyed_uniforms, numpy_generator

KEYS = [derive_seed("randomness", i) for i in range(512)]


def test_derive_seed_tells_all_keys_apart():
    keys = [(), (0,), (1,), ("1",), (1, 2), (2, 1), (12,), ("1", 2), (1, "2"), ("a", "b"), ("ab",), ("b", "a"), (-1,)]
    seeds = [derive_seed(*key) for key in keys]
    assert len(set(seeds)) == len(keys)
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_derive_seed_is_the_same_on_every_machine():
    """Written down once: a change would silently change every stored result."""
    assert derive_seed("minirlhf", 7) == 1746238064093980799


def test_generators_repeat_and_differ():
    for make, draw in ((generator, lambda g: torch.rand(4, generator=g)), (numpy_generator, lambda g: g.random(4))):
        first, again, other = (draw(make(*key)) for key in (("a", 1), ("a", 1), ("a", 2)))
        assert (first == again).all()
        assert (first != other).all()


def test_keyed_uniforms_of_a_row_do_not_depend_on_the_batch():
    """The same row alone, in another order, and among others."""
    whole = keyed_uniforms(KEYS[:16], 20)
    for i in (0, 7, 15):
        assert torch.equal(keyed_uniforms([KEYS[i]], 20)[0], whole[i])
    assert torch.equal(keyed_uniforms(KEYS[:16][::-1], 20), whole.flip(0))


def test_keyed_uniforms_of_a_longer_draw_begin_with_the_shorter():
    assert torch.equal(keyed_uniforms(KEYS[:4], 64)[:, :9], keyed_uniforms(KEYS[:4], 9))


def test_splitmix64_equals_integer_arithmetic():
    """The published algorithm in Python's unbounded integers."""
    wrap = 2**64

    def reference(x):
        x = (x + 0x9E3779B97F4A7C15) % wrap
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % wrap
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB % wrap
        return x ^ (x >> 31)

    states = [0, 1, 1234567, 2**63, 2**64 - 1, *KEYS[:20]]
    with np.errstate(over="ignore"):
        ours = _splitmix64(np.array(states, dtype=np.uint64))
    assert ours.tolist() == [reference(x) for x in states]
    assert reference(1234567) == 6457827717110365317  # the first output of the generator seeded with 1234567


def tail(statistic, degrees):
    """P(χ² ≥ statistic), exactly."""
    return torch.special.gammaincc(torch.tensor(degrees / 2).double(), torch.tensor(statistic / 2).double()).item()


def chi_square(counts):
    expected = counts.sum() / counts.numel()
    return ((counts - expected) ** 2 / expected).sum().item()


def in_cells(x, cells):
    return (x * cells).long()


def test_keyed_uniforms_are_uniform():
    """The keys are fixed, so this cannot fail by bad luck: 2¹⁷ draws in 256 cells, in rows, in columns, and in pairs."""
    u = keyed_uniforms(KEYS, 256)
    assert u.dtype == torch.float64
    assert 0 <= u.min() < 1e-4
    assert 1 - 1e-4 < u.max() < 1
    counts = {
        "single": torch.bincount(in_cells(u, 256).flatten(), minlength=256),
        "neighbouring tokens": torch.bincount((in_cells(u[:, :-1], 16) * 16 + in_cells(u[:, 1:], 16)).flatten()),
        "neighbouring rows": torch.bincount((in_cells(u[:-1], 16) * 16 + in_cells(u[1:], 16)).flatten()),
        "first tokens": torch.bincount(in_cells(u[:, 0], 16), minlength=16),
    }
    for name, count in counts.items():
        assert 1e-3 < tail(chi_square(count.double()), count.numel() - 1) < 1 - 1e-3, name


@pytest.mark.parametrize("seeds", [range(512), range(10**6, 10**6 + 512)])
def test_keyed_uniforms_of_consecutive_seeds_are_unrelated(seeds):
    """Seeds 0, 1, 2 … are what people type; their rows must not resemble one another."""
    u = keyed_uniforms(list(seeds), 128) - 0.5
    correlation = (u[:-1] * u[1:]).mean().item() * 12
    assert abs(correlation) < 4 / math.sqrt(511 * 128)
    shifted = (u[:-1, 1:] * u[1:, :-1]).mean().item() * 12
    assert abs(shifted) < 4 / math.sqrt(511 * 127)
