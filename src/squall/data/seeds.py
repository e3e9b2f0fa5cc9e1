"""Randomness that is a pure function of its key, so that any process can repeat it."""

from __future__ import annotations

from typing import Any

import numpy as np

from squall.errors import SettingError
from squall.records import Int32


def rng(*key: int) -> np.random.Generator:
    """A random generator that depends on ``key`` (integers ≥ 0) only."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(key)))


def seeded_order(n: int, *key: int) -> Int32:
    """A permutation of ``n`` rows that depends on ``n`` and ``key`` only: (n,)."""
    return rng(*key).permutation(np.arange(n, dtype=np.int32))


def seed_from(random_state: Any) -> int:
    """The seed that a user gave, or one that is drawn for None.

    Raises
    ------
    SettingError
        If it is none.
    """
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1, np.uint64)[0])
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**63))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    if isinstance(random_state, int | np.integer) and random_state is not True and 0 <= random_state < 2**64:
        return int(random_state)
    raise SettingError(
        f"random_state={random_state!r} is not a seed",
        fix="give an integer >= 0 and < 2**64, a NumPy generator or None",
    )
