"""The places of a job's workers, and what is known of who works there."""

from __future__ import annotations

from dataclasses import dataclass, field

from squall.records import Report

_SILENCES = 10  # times the longest silence so far


@dataclass(slots=True)
class Slot:
    """A worker's place.  Usually one attempt runs; near its end a stand-by waits beside it."""

    newest: int = 0
    earlier: int = 0  # attempts up to this one belong to legs before
    running: set[int] = field(default_factory=set)
    done: bool = False
    failures: int = 0  # in a row, without progress in between
    minibatches: int = 0
    epochs_done: int = 0
    still_since: float | None = None  # when its last minibatch is known to have ended
    heard: int = 0  # newest attempt that has reported
    heard_at: float = 0.0  # when it last did
    longest_silence: float = 0.0  # between two reports of one attempt
    n_reports: dict[int, int] = field(default_factory=dict)  # heard of, by attempt
    slow: int = 0  # attempt that a stand-by is to relieve, or does
    relieve_at: float | None = None  # when the stand-by is ready
    relieved_at: float | None = None  # when the slow one was told to end

    def hear(self, report: Report, now: float) -> float | None:
        """Take note that an attempt works; of a new one, how long the slot had stood still before."""
        lost = None
        if report.attempt > self.heard and self.still_since is not None:
            lost = max(0.0, now - report.working_s - self.still_since)
        if report.attempt == self.heard:
            self.longest_silence = max(self.longest_silence, now - self.heard_at)
        self.heard = max(self.heard, report.attempt)
        self.still_since = self.heard_at = now
        return lost

    def is_silent(self, silence_s: float, now: float) -> bool:
        """Whether the one who works here has said nothing for that long, and much longer than ever."""
        silent_s = now - self.heard_at
        # Asked of each slot at every tick: what is seldom so is looked at first.
        if silent_s <= silence_s or silent_s <= _SILENCES * self.longest_silence:
            return False
        return self.running == {self.heard}
