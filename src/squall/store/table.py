"""The core of the parameter server: one table over given memory, without I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn

import numpy as np

from squall import _kernels
from squall._kernels import Refusal
from squall.errors import StoreError
from squall.optim import CODES, is_lazy, kernel_rule, optimizer_code
from squall.records import Float32, Int64, SharedTable, Stamp, TableSpec
from squall.store import wire
from squall.store.control import stale_attempt
from squall.store.initial import check_initial, initial_values
from squall.store.layout import Cells, TableMemory

MAX_ROWS, MAX_DIM = 1 << 40, 1 << 24
"""Largest shape of a table, if there were memory for it."""

_MAX_NUMBER = 1 << 62  # of an attempt, a sequence or minibatches: far below what a word holds
_READ_ROWS = 1 << 18
_BAD_ARGUMENT = (TypeError, ValueError, IndexError)


def table_stride(spec: TableSpec) -> int:
    """Floats in one row: weights, optimiser state, and the step column if rows change untouched."""
    return int(_kernels.table_stride(optimizer_code(spec.optimizer), spec.dim, is_lazy(spec.optimizer)))


def check_spec(spec: TableSpec) -> None:
    """Raise `StoreError` unless a table can be made by this spec."""
    problems = []
    if not (1 <= spec.rows <= MAX_ROWS and 1 <= spec.dim <= MAX_DIM):
        problems.append(
            f"its shape ({spec.rows}, {spec.dim}) is not within (1, 1) to ({MAX_ROWS}, {MAX_DIM})"
        )
    if not 0 <= spec.regularized_rows <= spec.rows:
        problems.append(f"regularized_rows is {spec.regularized_rows}, not within 0 to {spec.rows}")
    if spec.optimizer.name not in CODES:
        problems.append(f"there is no optimiser {spec.optimizer.name!r}")
    else:
        try:
            kernel_rule(spec.optimizer)
        except (TypeError, ValueError) as error:
            problems.append(str(error))
    if spec.initial is not None:
        check_initial(spec.initial)
    if problems:
        raise StoreError("; ".join(problems), where=f"table {spec.name!r}", fix="correct the table's spec")


class ParameterTable:
    """A table of parameters, its optimiser, and who may update it.

    Updates carry a :class:`~squall.records.Stamp`.  Sequence numbers belong to the *slot*:
    they increase through all its attempts, so that an update which a dead attempt had
    sent, and which its successor sends again, is applied once.  Slot −1 is the driver's.
    Two words per slot are all that is kept for this.

    A sequence number is taken before its update is applied: if the process dies in
    between, the update is lost, or torn where others share the memory, but never doubled.

    Parameters
    ----------
    spec : TableSpec
        Its shape and optimiser.
    memory : TableMemory
        Rows, step counter and sequence words; may be shared with other processes.
    cells : Cells
        The job's words: each slot's newest attempt, raised by a stamp of a newer one, and its
        progress, raised by the updates that complete a minibatch.
    """

    def __init__(self, spec: TableSpec, memory: TableMemory, cells: Cells) -> None:
        self._spec = spec
        self._memory = memory
        self._fence = _kernels.Fence(cells.attempts, memory.sequences, cells.progress)
        self._n_slots = cells.n_slots
        optimizer = spec.optimizer
        # The kernels' arguments, once: a pull of some rows takes microseconds.
        self._array, self._step, self._dim = memory.array, memory.step, spec.dim
        self._rule = kernel_rule(optimizer)
        self._lazy = is_lazy(optimizer)
        self._n_regularized = spec.regularized_rows

    @classmethod
    def private(cls, spec: TableSpec, n_slots: int) -> ParameterTable:
        """A new table in this process's own memory, for ``n_slots`` workers."""
        check_spec(spec)
        memory = TableMemory.private(spec.rows, table_stride(spec), n_slots)
        if spec.initial is not None:
            rows = np.arange(spec.rows, dtype=np.int64)
            memory.array[:, : spec.dim] = initial_values(spec.initial, rows, spec.dim)
        return cls(spec, memory, Cells.private(n_slots))

    @property
    def spec(self) -> TableSpec:
        """What the table was made by."""
        return self._spec

    @property
    def gone(self) -> bool:
        """Whether the store has dropped the table; its memory then serves nobody."""
        return bool(self._memory.gone[0])

    @property
    def shared(self) -> SharedTable:
        """The memory itself, for updates in place."""
        return SharedTable(self._spec, self._array, self._step)

    @property
    def step(self) -> int:
        """Steps of the optimiser so far."""
        return int(self._step[0])

    def pull(self, rows: Int64 | None = None) -> Float32:
        """Weights after all steps so far.

        Parameters
        ----------
        rows : (n,) int64, optional
            Which rows, in any order and number; all if None.

        Returns
        -------
        (n, dim) float32
            A copy.

        Raises
        ------
        StoreError
            If a row is outside the table, or ``rows`` is not an int64 vector.
        """
        if rows is None:
            return self.read(0, self._spec.rows)
        try:
            if self._lazy:
                step = int(self._step[0])
                result = _kernels.table_pull(
                    self._array, rows, self._dim, self._rule, step, self._n_regularized
                )
            else:
                result = _kernels.table_gather(self._array, rows, self._dim)
        except _BAD_ARGUMENT as error:
            self._refuse(error)
        return result

    def read(self, first: int, count: int) -> Float32:
        """As `pull` of consecutive rows, without a trace in the table.

        Bringing a row up to date in one or in two steps may differ in the last bit, so who only
        looks on, at any time, must leave the rows as they are.
        """
        weights = np.empty((count, self._dim), dtype=np.float32)
        step = self.step
        for start in range(0, count, _READ_ROWS):  # so that copies stay small
            part = self._array[first + start : first + min(start + _READ_ROWS, count)]
            if self._lazy:
                part = part.copy()
                regularized = min(max(self._n_regularized - first - start, 0), len(part))
                _kernels.table_catch_up(part, self._rule, step, regularized, self._dim)
            weights[start : start + len(part)] = part[:, : self._dim]
        return weights

    def dump(self, first: int, count: int) -> Float32:
        """A copy (count, stride) of consecutive rows with their state, up to date, without a trace."""
        part = self._array[first : first + count].copy()
        if self._lazy:
            regularized = min(max(self._n_regularized - first, 0), len(part))
            _kernels.table_catch_up(part, self._rule, self.step, regularized, self._dim)
        return part

    def load(self, first: int, values: Float32, step: int) -> None:
        """Set consecutive rows with their state, and the table's step.

        Raises
        ------
        StoreError
            If they are not rows of this table; nothing has changed.
        """
        rows, stride = self._array.shape
        fits = values.dtype == np.float32 and values.ndim == 2 and values.shape[1] == stride
        if not fits or not 0 <= first <= rows - len(values) or not 0 <= step < _MAX_NUMBER:
            raise StoreError(
                f"{values.dtype} values of shape {values.shape} from row {first} on, at step {step}, "
                "are no contents of it",
                where=f"table {self._spec.name!r}",
                fix=f"give float32 of shape ({rows}, {stride}), as `dump` does",
            )
        self._array[first : first + len(values)] = values
        self._step[0] = step

    def replace(self, weights: Float32) -> None:
        """Set all weights, (rows, dim), as of now; the optimiser's state stays."""
        if self._lazy:
            _kernels.table_catch_up(self._array, self._rule, self.step, self._n_regularized, self._dim)
        self._array[:, : self._dim] = weights

    def accepts(self, rows: Int64, gradient: Float32, stamp: Stamp) -> bool:
        """Whether `push` would apply this, which is only looked at; raises as it would."""
        self._check_width(gradient)
        self.check_attempt(stamp)
        if self._fence.is_repeat(stamp.slot, stamp.sequence):
            self._fence.count(stamp.slot, stamp.minibatches)
            return False
        if rows.dtype != np.int64 or rows.shape != gradient.shape[:1] or gradient.dtype != np.float32:
            self._refuse(ValueError(f"{rows.dtype} rows of shape {rows.shape} do not go with these values"))
        if len(rows) and rows.view(np.uint64).max() >= self._spec.rows:  # negative numbers are huge there
            self._refuse(IndexError("a row is outside the table"))
        return True

    def push_together(self, rows: Int64, gradient: Float32, stamps: Sequence[Stamp]) -> None:
        """Apply, as one step, what several slots' updates come to; `accepts` has passed each."""
        for stamp in stamps:
            self._fence.set_last(stamp.slot, stamp.sequence)
        self._update(rows, gradient)
        for stamp in stamps:
            self._fence.count(stamp.slot, stamp.minibatches)

    def push(self, rows: Int64, gradient: Float32, stamp: Stamp) -> bool:
        """Apply one minibatch's gradient by the optimiser, and count the step.

        Parameters
        ----------
        rows : (n,) int64
            Distinct rows.
        gradient : (n, dim) float32
            Mean gradient of the minibatch for these rows.
        stamp : Stamp
            Who sends it.

        Returns
        -------
        bool
            False, and nothing has changed, if the stamp is a repeat or older than the last.

        Raises
        ------
        StaleAttemptError
            If the slot has a newer attempt.
        StoreError
            If the arguments do not fit the table; nothing has changed.
        """
        self._check_width(gradient)
        return self._once(stamp, lambda: self._update(rows, gradient))

    def add(self, rows: Int64, deltas: Float32, stamp: Stamp) -> bool:
        """Add to the weights of distinct rows, past the optimiser; otherwise as `push`.

        FTRL refuses it: its weights follow from its state, and the next push would undo the sum.
        """
        self._check_addable()

        def update() -> None:
            if self._lazy:  # bring them up to date first: earlier steps shrink nothing of this
                _kernels.table_pull(self._array, rows, self._dim, self._rule, self.step, self._n_regularized)
            _kernels.table_add(self._array, rows, deltas)

        self._check_width(deltas)
        return self._once(stamp, update)

    def exchange(self, push: tuple[Int64, Float32] | None, pull: Int64, stamp: Stamp) -> Float32:
        """`push` (unless it is None or a repeat), then `pull`; raises as these."""
        if push is None:
            self.check_attempt(stamp)
        else:
            self.push(*push, stamp)
        return self.pull(pull)

    def served(self, stop: Int64) -> _kernels.ServedTable:
        """The table for a server of frames, whose replies say ``stop`` int64[1]."""
        return _kernels.ServedTable(
            self._array, self._step, self._dim, self._rule, self._n_regularized, self._fence, stop
        )

    def refusal(self, code: int, request: wire.Rows, problem: str) -> StoreError:
        """Why a frame was refused, by a :class:`squall._kernels.Refusal`."""
        stamp = Stamp(request.slot, request.attempt, request.sequence, request.minibatches)
        match code:
            case Refusal.BAD_STAMP:
                return StoreError(f"{stamp} cannot stamp an update", fix=f"use numbers below {_MAX_NUMBER}")
            case Refusal.BAD_WIDTH:
                return self._unfit(f"values have {request.dim} columns")
            case Refusal.NOT_ADDABLE:
                return self._not_addable()
            case Refusal.NO_SUCH_SLOT | Refusal.STALE_ATTEMPT:
                return self._not_admitted(code, stamp)
            case _:
                return self._unfit(problem)

    def _update(self, rows: Int64, gradient: Float32) -> None:
        _kernels.table_update(self._array, rows, gradient, self._rule, self.step, self._n_regularized)
        _kernels.step_advance(self._step)

    def _once(self, stamp: Stamp, apply: Callable[[], None]) -> bool:
        """Apply an update unless its stamp says that it has been, or may not be."""
        self.check_attempt(stamp)
        fence, slot = self._fence, stamp.slot
        if fence.is_repeat(slot, stamp.sequence):
            fence.count(slot, stamp.minibatches)  # its first sender may have died before it could
            return False
        last = fence.last(slot)
        fence.set_last(slot, stamp.sequence)
        try:
            apply()
        except _BAD_ARGUMENT as error:
            # The kernels check everything before they change anything.
            fence.set_last(slot, last)
            self._refuse(error)
        fence.count(slot, stamp.minibatches)
        return True

    def is_newest(self, stamp: Stamp) -> bool:
        """Whether the stamp is of its slot's newest attempt."""
        return stamp.attempt >= self._fence.newest(stamp.slot)

    def check_attempt(self, stamp: Stamp) -> None:
        """Raise `StaleAttemptError` if the slot has a newer attempt, `StoreError` if there is no slot."""
        code = self._fence.admit(stamp.slot, stamp.attempt)
        if code:
            raise self._not_admitted(code, stamp)

    def _not_admitted(self, code: int, stamp: Stamp) -> StoreError:
        where = f"table {self._spec.name!r}"
        if code == Refusal.NO_SUCH_SLOT:
            return StoreError(
                f"there is no slot {stamp.slot}",
                where=where,
                fix=f"its job has slots 0 to {self._n_slots - 1}",
            )
        newest = self._fence.newest(stamp.slot)
        return stale_attempt(f"{where}, slot {stamp.slot}", stamp.attempt, newest)

    def _check_addable(self) -> None:
        if self._spec.optimizer.name == "ftrl":
            raise self._not_addable()

    def _not_addable(self) -> StoreError:
        return StoreError(
            "nothing can be added to the weights that FTRL derives from its state",
            where=f"table {self._spec.name!r}",
            fix="push gradients, or use another optimiser",
        )

    def _check_width(self, values: Float32) -> None:
        # The kernels take any width that fits into a row.
        if values.ndim != 2 or values.shape[1] != self._dim:
            raise StoreError(
                f"values of shape {values.shape} were given",
                where=f"table {self._spec.name!r}",
                fix=f"give (n, {self._dim})",
            )

    def _refuse(self, error: Exception) -> NoReturn:
        raise self._unfit(str(error)) from error

    def _unfit(self, what: str) -> StoreError:
        return StoreError(
            what,
            where=f"table {self._spec.name!r}",
            fix=f"give int64 rows from 0 to {self._spec.rows - 1} and float32 values (n, {self._dim})",
        )
