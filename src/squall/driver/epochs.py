"""The book of epochs: what workers reported, by epoch, and the history that it makes."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from squall.records import HeldOut, HistoryRecord, Phases, Report, SolverRound

_SUMS = tuple(name for name in Phases.__struct_fields__ if name != "peak_rss")


@dataclass(slots=True)
class Epoch:
    """Sums over the reports of one epoch."""

    rows: int = 0
    loss_sum: float = 0.0
    weight_sum: float = 0.0
    by_worker: dict[int, Phases] = field(default_factory=dict)
    solver: SolverRound | None = None

    @property
    def loss(self) -> float | None:
        """Mean progressive loss."""
        return self.loss_sum / self.weight_sum if self.weight_sum else None

    def add(self, report: Report) -> None:
        """Take a report in."""
        self.rows += report.rows
        self.loss_sum += report.loss_sum
        self.weight_sum += report.weight_sum
        self.solver = report.solver or self.solver
        add_phases(self.by_worker.setdefault(report.slot, Phases()), report.phases)


class EpochBook:
    """Epochs of a job, open and complete."""

    def __init__(self) -> None:
        self.history: list[HistoryRecord] = []
        self.rows_an_epoch = 0  # if known
        self._epochs: dict[int, Epoch] = {}

    @property
    def rows(self) -> int:
        """Rows reported, over all epochs."""
        return sum(epoch.rows for epoch in self._epochs.values())

    @property
    def newest(self) -> tuple[int, Epoch]:
        """Number (from 1) and sums of the newest epoch that somebody works on; 0 before any."""
        number = max(self._epochs, default=-1)
        return number + 1, self._epochs.get(number, Epoch())

    def add(self, report: Report) -> None:
        """Take a report in."""
        self._epochs.setdefault(report.epoch, Epoch()).add(report)

    def forget_open(self) -> None:
        """What was reported of epochs that are not complete is no longer so."""
        self._epochs = {number: epoch for number, epoch in self._epochs.items() if number < len(self.history)}

    def close(self, complete: int, now: float, cost_usd: float) -> bool:
        """The first ``complete`` epochs are over; True if that is news."""
        opened = len(self.history)
        for number in range(opened, complete):
            # A worker that dies has trained on rows that it had not reported; its position, from
            # which its successor goes on, counts them: a complete epoch has visited every row.
            reported = self._epochs[number].rows if number in self._epochs else 0
            self._record(number, now, cost_usd, unreported=max(0, self.rows_an_epoch - reported))
        return complete > opened

    def close_partial(self, now: float, cost_usd: float) -> None:
        """Put the epoch that was broken off on record, if anything was done in it."""
        number = len(self.history)
        if number in self._epochs and self._epochs[number].rows:
            self._record(number, now, cost_usd)

    def measured(self, number: int, held_out: HeldOut) -> None:
        """Note the held-out loss of a complete epoch."""
        if number < len(self.history):
            record = self.history[number]
            self.history[number] = msgspec.structs.replace(record, validation_loss=held_out.loss)

    def _record(self, number: int, now: float, cost_usd: float, unreported: int = 0) -> None:
        epoch = self._epochs.get(number, Epoch())
        total = Phases()
        for phases in epoch.by_worker.values():
            add_phases(total, phases)
        self.history.append(
            HistoryRecord(
                epoch=number + 1,
                time_s=now,
                rows=epoch.rows + unreported,
                loss=float("nan") if epoch.loss is None else epoch.loss,
                validation_loss=None,
                cost_usd=cost_usd,
                workers=len(epoch.by_worker),
                phases=total,
                by_worker=epoch.by_worker,
                unreported_rows=unreported,
                solver=epoch.solver,
            )
        )


def add_phases(total: Phases, more: Phases) -> None:
    """Add seconds and bytes; of the peaks of memory, keep the higher."""
    for name in _SUMS:
        if value := getattr(more, name):  # most are 0, and there are many reports
            setattr(total, name, getattr(total, name) + value)
    total.peak_rss = max(total.peak_rss, more.peak_rss)
