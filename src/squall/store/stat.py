"""What a shard tells of itself: tables, memory, requests and how long they took."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec

from squall import _kernels

_SUB = 8  # buckets to a doubling: a percentile is off by 9 % at most
_FIRST_NS = 8  # bits of the shortest time told apart
_N_BUCKETS = 40 * _SUB


class TableStat(msgspec.Struct, frozen=True):
    """One table of a shard: its part of ``rows``, updates applied, and bytes with optimiser state."""

    name: str
    rows: int
    dim: int
    optimizer: str
    steps: int
    bytes: int


class JobStat(msgspec.Struct, frozen=True):
    """One job: the newest attempt of each slot (−1: none yet) and its minibatches."""

    name: str
    attempts: list[int]
    progress: list[int]


class RequestStat(msgspec.Struct, frozen=True):
    """Requests of one kind since the start: how many, and how many took how long."""

    kind: str
    count: int
    buckets: dict[int, int]

    def since(self, before: RequestStat) -> RequestStat:
        """The same for the time between an earlier answer and this one."""
        buckets = {b: n - before.buckets.get(b, 0) for b, n in self.buckets.items()}
        return RequestStat(self.kind, self.count - before.count, buckets)

    def percentile(self, share: float) -> float:
        """Seconds within which ``share`` of the requests were served; 0 for none."""
        wanted, seen = share * sum(self.buckets.values()), 0
        for bucket, n in sorted(self.buckets.items()):
            seen += n
            if n and seen >= wanted:
                return 1e-9 * math.exp2(_FIRST_NS + (bucket + 1) / _SUB)
        return 0.0


class ShardStat(msgspec.Struct, frozen=True):
    """One shard at one moment; memory in bytes, ``limit`` None for all there is."""

    shard: int
    pid: int
    loop: str
    uptime_s: float
    clients: int
    resident: int
    held: int
    limit: int | None
    tables: list[TableStat]
    jobs: list[JobStat]
    requests: list[RequestStat]
    snapshot: int | None
    snapshot_error: str | None


def new_histogram() -> _kernels.Histogram:
    """Counts requests of one kind as they are served."""
    return _kernels.Histogram(_FIRST_NS, _SUB, _N_BUCKETS)


def request_stat(kind: str, histogram: _kernels.Histogram) -> RequestStat:
    """What was counted."""
    buckets = histogram.counts()
    return RequestStat(kind, sum(buckets.values()), buckets)


def resident_bytes() -> int:
    """Memory of this process that is in use, shared pages included; 0 where the system does not tell."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * 4096 if statm.exists() else 0
