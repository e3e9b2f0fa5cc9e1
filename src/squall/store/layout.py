"""Where each word of the shared memory lies.

Two kinds of segments are shared between the store and its clients: a job's *cells* and a
*table*.  Both begin with lines of eight int64 words; a line is 64 bytes, what a processor
moves between its cores, so that two workers who write their own words do not slow each
other.  Lines are ``0``: the whole segment's, ``1 + slot``: a slot's, and the last: the
driver's, which is slot −1 (a negative index thus finds it).
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass

import numpy as np

from squall.records import Float32, Int64

DRIVER_SLOT = -1
"""The slot whose stamps the driver may use, for instance to fill a table at the start."""

NEVER = -1
"""The value of an attempt or sequence word before its first use."""

_WORDS = 8
_PAGE = 4096

_STEP, _STOP = 0, 0  # line 0 of a table; of the cells
_GONE = 1  # line 0 of both
_SEQUENCE, _PROGRESS = 0, 0  # a slot's line in a table; in the cells
_ATTEMPT = 1  # a slot's line in the cells

Buffer = mmap.mmap | bytearray


def _lines(buffer: Buffer, n_slots: int) -> Int64:
    """The head of a segment as (1 + n_slots + 1, 8) words."""
    n_lines = 1 + n_slots + 1
    words = np.frombuffer(buffer, dtype=np.int64, count=n_lines * _WORDS)
    return words.reshape(n_lines, _WORDS)


def _head_bytes(n_slots: int) -> int:
    """Bytes of the lines, rounded up to whole pages."""
    return -(-(1 + n_slots + 1) * _WORDS * 8 // _PAGE) * _PAGE


@dataclass(frozen=True, slots=True)
class Cells:
    """The words that a job's workers and driver share.

    Attributes
    ----------
    stop : (1,) int64
        Not zero when the workers are to stop.
    gone : (1,) int64
        Not zero when the job has been closed.
    progress : (n_slots + 1,) int64, strided
        Minibatches that each slot has fully applied.
    attempts : (n_slots + 1,) int64, strided
        The newest attempt that has registered for each slot, −1 for none.
    """

    stop: Int64
    gone: Int64
    progress: Int64
    attempts: Int64

    @property
    def n_slots(self) -> int:
        """Number of workers' slots."""
        return len(self.attempts) - 1

    @staticmethod
    def size(n_slots: int) -> int:
        """Bytes that the cells of a job need."""
        return _head_bytes(n_slots)

    @staticmethod
    def over(buffer: Buffer, n_slots: int) -> Cells:
        """The cells in a segment of :meth:`size` bytes."""
        lines = _lines(buffer, n_slots)
        return Cells(
            lines[0, _STOP : _STOP + 1],
            lines[0, _GONE : _GONE + 1],
            lines[1:, _PROGRESS],
            lines[1:, _ATTEMPT],
        )

    @staticmethod
    def private(n_slots: int) -> Cells:
        """New cells that nobody else sees."""
        cells = Cells.over(bytearray(Cells.size(n_slots)), n_slots)
        cells.attempts.fill(NEVER)
        return cells


@dataclass(frozen=True, slots=True)
class TableMemory:
    """A table's words and rows.

    Attributes
    ----------
    step : (1,) int64
        Minibatches applied by all workers together.
    gone : (1,) int64
        Not zero when the table has been dropped.
    sequences : (n_slots + 1,) int64, strided
        The last sequence number applied for each slot, −1 for none.
    array : (rows, stride) float32
        See :class:`squall.records.SharedTable`.
    """

    step: Int64
    gone: Int64
    sequences: Int64
    array: Float32

    @staticmethod
    def size(rows: int, stride: int, n_slots: int) -> int:
        """Bytes that a table needs."""
        return _head_bytes(n_slots) + rows * stride * 4

    @staticmethod
    def over(buffer: Buffer, rows: int, stride: int, n_slots: int) -> TableMemory:
        """The table in a segment of :meth:`size` bytes."""
        lines = _lines(buffer, n_slots)
        head = _head_bytes(n_slots)
        array = np.frombuffer(buffer, dtype=np.float32, count=rows * stride, offset=head)
        step, gone = lines[0, _STEP : _STEP + 1], lines[0, _GONE : _GONE + 1]
        return TableMemory(step, gone, lines[1:, _SEQUENCE], array.reshape(rows, stride))

    @staticmethod
    def private(rows: int, stride: int, n_slots: int) -> TableMemory:
        """A new table of zeros that nobody else sees."""
        memory = TableMemory.over(bytearray(TableMemory.size(rows, stride, n_slots)), rows, stride, n_slots)
        memory.sequences.fill(NEVER)
        return memory
