"""The core of reductions: arrays that become one as they come, without I/O.

Contributions meet in a binary tree over their contributors' numbers: what 2i and 2i + 1 have
brought is folded as soon as both are there, and so on upwards.  So the result has the same bits
whoever came first, and of n contributions that come in order only log n arrays are held.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import msgspec
import numpy as np

from squall.errors import StoreError
from squall.records import REDUCE_OPS, Numbers, ReduceOp

MAX_CONTRIBUTOR = (1 << 31) - 1
"""Highest number of a contributor."""

MAX_DIMENSIONS = 8

_TYPES = ("float32", "float64", "int16", "int64")
_FOLD = {"sum": np.add, "min": np.minimum, "max": np.maximum}


class Form(NamedTuple):
    """What all contributions of one reduction have in common."""

    op: ReduceOp
    dtype: str
    shape: tuple[int, ...]

    @property
    def n_bytes(self) -> int:
        """Bytes of one contribution."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count * np.dtype(self.dtype).itemsize

    def array(self, values: bytes | bytearray | memoryview) -> Numbers:
        """The contribution that these little-endian bytes hold.

        Raises
        ------
        StoreError
            If they are too many or too few.
        """
        if len(values) != self.n_bytes:
            raise StoreError(f"{len(values)} bytes came for {self.dtype} of shape {self.shape}")
        flat = np.frombuffer(values, dtype=np.dtype(self.dtype).newbyteorder("<"))
        return cast(Numbers, flat.reshape(self.shape))


def form_of(op: str, array: Numbers, key: str) -> Form:
    """The form of a contribution; raises `StoreError` if there is no such reduction."""
    return checked_form(op, array.dtype.name, array.shape, key)


def checked_form(op: str, dtype: str, shape: tuple[int, ...], key: str) -> Form:
    """The form of these parts; raises `StoreError` if there is no such reduction."""
    if (
        op not in REDUCE_OPS
        or dtype not in _TYPES
        or len(shape) > MAX_DIMENSIONS
        or min(shape, default=0) < 0
    ):
        raise StoreError(
            f"{op!r} of {dtype} with shape {shape} cannot be reduced",
            where=f"reduction {key!r}",
            fix=f"use {', '.join(REDUCE_OPS)} of {', '.join(_TYPES)} with at most {MAX_DIMENSIONS} axes",
        )
    return Form(cast(ReduceOp, op), dtype, shape)


def little_endian(array: Numbers) -> bytes:
    """The bytes of a contribution, in C order."""
    return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()


def check_contributor(key: str, contributor: int) -> None:
    """Raise `StoreError` unless a contributor may have this number."""
    if not 0 <= contributor <= MAX_CONTRIBUTOR:
        raise StoreError(
            f"{contributor} cannot number a contributor",
            where=f"reduction {key!r}",
            fix=f"number them from 0 to {MAX_CONTRIBUTOR}",
        )


def check_n(key: str, n: int) -> None:
    """Raise `StoreError` unless so many contributors can be waited for."""
    if n < 1:
        raise StoreError(f"{n} contributors cannot be waited for", where=f"reduction {key!r}")


def holds_a_value(key: str) -> StoreError:
    """The error for a reduction whose key holds a value."""
    return StoreError("it holds a value", where=f"reduction {key!r}", fix="use another key for the reduction")


def is_a_reduction(key: str) -> StoreError:
    """The error for a value whose key holds a reduction."""
    return StoreError("it is a reduction", where=f"blob {key!r}", fix="delete it first, or use another key")


def check_same(key: str, known: Form, given: Form) -> None:
    """Raise `StoreError` unless a contribution is of the form of those before it."""
    if known != given:
        raise StoreError(
            f"{given.op} of {given.dtype} {given.shape} came after {known.op} of {known.dtype} {known.shape}",
            where=f"reduction {key!r}",
            fix="let all contribute arrays of one type and shape, or use another key",
        )


class KeptReduction(msgspec.Struct, frozen=True):
    """A reduction in a snapshot; ``nodes`` are (level, index, little-endian bytes)."""

    op: str
    dtype: str
    shape: tuple[int, ...]
    contributors: list[int]
    nodes: list[tuple[int, int, bytes]]


class Reduction:
    """One reduction.

    Parameters
    ----------
    form : Form
        What its contributions are.

    Attributes
    ----------
    contributors : set of int
        Who has contributed.
    nodes : dict
        Folded contributions by (level, index): those of contributors from ``index << level`` on,
        ``1 << level`` of them, all there.
    """

    def __init__(self, form: Form) -> None:
        self.form = form
        self.contributors: set[int] = set()
        self.nodes: dict[tuple[int, int], Numbers] = {}

    @property
    def n_bytes(self) -> int:
        """Bytes that it holds."""
        return len(self.nodes) * self.form.n_bytes

    def add(self, contributor: int, array: Numbers) -> bool:
        """Take a contribution, which must be of the form; False for a repeat, which is dropped."""
        if contributor in self.contributors:
            return False
        self.contributors.add(contributor)
        level, index = 0, contributor
        while (other := self.nodes.pop((level, index ^ 1), None)) is not None:
            low, high = (other, array) if index & 1 else (array, other)
            array = self._fold(low, high)
            level, index = level + 1, index >> 1
        self.nodes[level, index] = array
        return True

    def result(self) -> Numbers:
        """All that has been contributed, at least one array, as one; it must not be changed."""
        level, row = 0, dict[int, Numbers]()
        top = max(at for at, _ in self.nodes)
        while True:
            row |= {index: array for (at, index), array in self.nodes.items() if at == level}
            if level >= top and len(row) == 1:
                return next(iter(row.values()))
            above: dict[int, Numbers] = {}
            for index in sorted(row):
                known = above.get(index >> 1)
                above[index >> 1] = row[index] if known is None else self._fold(known, row[index])
            level, row = level + 1, above

    def kept(self) -> KeptReduction:
        """What a snapshot holds of it."""
        nodes = [(*place, little_endian(array)) for place, array in list(self.nodes.items())]
        return KeptReduction(*self.form, sorted(self.contributors), nodes)

    @staticmethod
    def restored(key: str, kept: KeptReduction) -> Reduction:
        """As a snapshot holds it."""
        reduction = Reduction(checked_form(kept.op, kept.dtype, kept.shape, key))
        reduction.contributors.update(kept.contributors)
        for level, index, values in kept.nodes:
            reduction.nodes[level, index] = reduction.form.array(values)
        return reduction

    def _fold(self, low: Numbers, high: Numbers) -> Numbers:
        with np.errstate(all="ignore"):  # an infinite sum is the result, and nobody here reads warnings
            return cast(Numbers, _FOLD[self.form.op](low, high))


def fold(form: Form, contributions: dict[int, Numbers]) -> Numbers:
    """Contributions by contributor, at least one, as one: the same bits as in a store's server."""
    reduction = Reduction(form)
    for contributor in sorted(contributions):
        reduction.add(contributor, contributions[contributor])
    return reduction.result()
