"""Randomness that is a pure function of its key, so that any process can repeat it."""

from __future__ import annotations

import numpy as np

from squall.records import Int32


def rng(*key: int) -> np.random.Generator:
    """A random generator that depends on ``key`` (integers ≥ 0) only."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(key)))


def seeded_order(n: int, *key: int) -> Int32:
    """A permutation of ``n`` rows that depends on ``n`` and ``key`` only: (n,)."""
    return rng(*key).permutation(np.arange(n, dtype=np.int32))
