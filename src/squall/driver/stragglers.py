"""Which workers are much slower than the others, from what they report; pure arithmetic."""

from __future__ import annotations

import statistics

from squall.records import Report

SLOWER = 3.0
"""A worker is a straggler if it takes so many times as long for a row as the others do."""

_WATCHED_S = 2.0
"""Seconds of work after which a worker is judged; what is much older counts less and less."""

_MOST_IN_A_ROW = 2
"""Successors in a slot, after which it is let be: its share of the rows is what takes long."""


class _Pace:
    """Of one slot's attempt."""

    def __init__(self) -> None:
        self.attempt = 0
        self.rows = self.busy_s = 0.0  # lately
        self.all_rows = 0  # that its slot has reported
        self.successors = 0  # in a row that were asked for because it was slow

    def add(self, report: Report) -> None:
        phases = report.phases
        busy_s = phases.compute + phases.pull + phases.push
        if report.attempt > self.attempt:  # another function; a late word of the last one says nothing
            self.attempt, self.rows, self.busy_s = report.attempt, 0.0, 0.0
        if report.attempt == self.attempt:
            if self.busy_s > 2 * _WATCHED_S:
                self.rows, self.busy_s = self.rows / 2, self.busy_s / 2
            self.rows, self.busy_s = self.rows + report.rows, self.busy_s + busy_s
        self.all_rows += report.rows

    @property
    def row_s(self) -> float:
        """Seconds for a row; infinite before there was any."""
        return self.busy_s / self.rows if self.rows else float("inf")


class Paces:
    """How fast each slot works while it works: waiting for others or for data does not count.

    Parameters
    ----------
    n_slots, epochs : int
        How many there are, and how often each row is visited.
    rows_an_epoch : int
        Of all slots together.
    """

    def __init__(self, n_slots: int, epochs: int, rows_an_epoch: int) -> None:
        self._rows, self._epochs = rows_an_epoch, epochs
        self._paces = [_Pace() for _ in range(n_slots)]
        self._usual_s = 0.0  # seconds for a row in the middle of all
        self._until_sorted = 0
        self._setup_s, self._n_setups = 0.0, 0

    def heard(self, report: Report) -> bool:
        """Take a report in; whether its sender is a straggler whom a successor should relieve."""
        pace = self._paces[report.slot]
        if report.attempt > pace.attempt:
            self._setup_s += max(0.0, report.billed_s - report.working_s)
            self._n_setups += 1
        pace.add(report)
        self._sort_now_and_then()
        if pace.busy_s < _WATCHED_S or not pace.rows:
            return False
        if pace.row_s <= SLOWER * self._usual_s:
            pace.successors = 0
            return False
        return pace.successors < _MOST_IN_A_ROW and self._pays(pace)

    def relieved(self, slot: int) -> None:
        """A successor has been asked for."""
        self._paces[slot].successors += 1

    @property
    def start_s(self) -> float:
        """Seconds that a function takes to be ready."""
        return self._setup_s / max(1, self._n_setups)

    def _sort_now_and_then(self) -> None:
        """With thousands of workers nobody sorts all of them at each report."""
        self._until_sorted -= 1
        if self._until_sorted <= 0:
            known = [pace.row_s for pace in self._paces if pace.rows]
            # (the lower of the two in the middle: of two workers the slower is judged by the other)
            self._usual_s = statistics.median_low(known) if len(known) > 1 else float("inf")
            self._until_sorted = len(self._paces) if len(known) > 1 else 1

    def _pays(self, pace: _Pace) -> bool:
        """Whether a successor would be done sooner, with all that it takes to start."""
        left = self._rows * self._epochs / len(self._paces) - pace.all_rows
        return left * (pace.row_s - self._usual_s) > 2 * self.start_s
