"""What a job costs: milliseconds × memory × price, requests, the store and object operations.

Pure arithmetic on dated price lists; locally it says what the run *would* cost there.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from importlib import resources

import msgspec

from squall.config import did_you_mean
from squall.errors import SettingError
from squall.paths import user_path
from squall.records import Bill

_HIGHEST = 1e6  # dollars; more is a slip of the pen, and sums of it would not be finite
_FINEST_S, _COARSEST_S = 1e-6, 3600


class PriceList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Prices in US dollars, as a provider published them on ``date``."""

    name: str
    date: str
    source: str
    gb_second: float  # of function memory; 1 GB = 2**30 bytes
    request: float  # one invocation
    object_get: float
    object_put: float
    store_hour: float  # the machine that would hold the parameter store
    store_machine: str
    granularity_s: float = 0.001  # billed time is rounded up to this

    def __post_init__(self) -> None:
        for field in ("gb_second", "request", "object_get", "object_put", "store_hour"):
            value = getattr(self, field)
            if not 0 <= value <= _HIGHEST:
                raise ValueError(f"{field}={value!r} is not a price (from 0 to {_HIGHEST:,.0f})")
        if not _FINEST_S <= self.granularity_s <= _COARSEST_S:
            raise ValueError(
                f"granularity_s={self.granularity_s!r} is not from {_FINEST_S:g} to {_COARSEST_S:,} seconds"
            )


def load_prices(name_or_path: str | os.PathLike[str]) -> PriceList:
    """A price list that comes with Squall, by name, or one's own file (JSON, same fields).

    Raises
    ------
    SettingError
        If there is none of that name, or the file is not a price list.
    """
    folder = resources.files("squall.driver") / "prices"
    known = sorted(f.name.removesuffix(".json") for f in folder.iterdir() if f.name.endswith(".json"))
    name = os.fspath(name_or_path)
    data = (folder / f"{name}.json").read_bytes() if name in known else _read_file(name)
    if data is None:
        raise SettingError(
            f"prices={name!r} is neither a file nor a known price list{did_you_mean(name, known)}",
            fix=f"choose from {', '.join(known)}, or give the path of a price file",
        )
    try:
        return msgspec.json.decode(data, type=PriceList)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SettingError(
            f"not a price list: {error}",
            where=name,
            fix="write the fields that the lists in squall/driver/prices have",
        ) from error


def _read_file(name: str) -> bytes | None:
    """What is in that file; None if it is none."""
    path = user_path(name)
    try:
        return path.read_bytes() if path.is_file() else None
    except OSError as error:
        raise SettingError(f"the price list cannot be read: {error.strerror}", where=name[:200]) from error


@dataclass(slots=True)
class _Running:
    """An invocation that has not ended: since when it is billed, and its memory."""

    since: float
    gb: float


class Ledger:
    """Adds up what one job uses.

    Parameters
    ----------
    prices : PriceList
        What things cost.
    memory_mb : int
        Memory of each function, until `resize`.
    now : float
        Time at which the job (and so the store's machine) starts, in seconds.
    has_server : bool
        Whether the store is a machine's; an object store has its requests on the bill instead.
    """

    def __init__(self, prices: PriceList, memory_mb: int, now: float, *, has_server: bool = True) -> None:
        self._prices, self._gb = prices, memory_mb / 1024
        self._store_hour = prices.store_hour if has_server else 0.0
        self._opened = now
        self._running: dict[tuple[int, int], _Running] = {}
        self._gb_seconds = 0.0
        self._invocations = self._gets = self._puts = 0
        self._client = 0, 0  # reads and writes of the client's that are on the bill
        self._added: list[Bill] = []

    def resize(self, memory_mb: int) -> None:
        """Functions that are launched from now on have another memory."""
        self._gb = memory_mb / 1024

    def launch(self, key: tuple[int, int], now: float) -> None:
        """An invocation (slot, attempt) has been sent."""
        self._running[key] = _Running(now, self._gb)
        self._invocations += 1

    def heard(self, key: tuple[int, int], billed_s: float, now: float) -> None:
        """A running invocation says how much has been billed: its start is known better now."""
        if key in self._running:
            self._running[key].since = now - billed_s

    def running_s(self, key: tuple[int, int], now: float) -> float:
        """Seconds that a running invocation has been billed for so far."""
        return max(0.0, now - self._running[key].since) if key in self._running else 0.0

    def end(self, key: tuple[int, int], billed_s: float) -> float:
        """An invocation has ended; returns what it cost, in dollars."""
        ended = self._running.pop(key, None)
        gb_seconds = self._round(billed_s) * (self._gb if ended is None else ended.gb)
        self._gb_seconds += gb_seconds
        return gb_seconds * self._prices.gb_second + self._prices.request

    def objects(self, gets: int, puts: int) -> None:
        """Requests to the object store."""
        self._gets += gets
        self._puts += puts

    def client_objects(self, gets: int, puts: int) -> None:
        """Requests to object stores that the client itself has made so far."""
        self.objects(gets - self._client[0], puts - self._client[1])
        self._client = gets, puts

    def add(self, *bills: Bill) -> None:
        """What others have used for this job: maps that looked at its data."""
        self._added += bills

    @property
    def record_usd(self) -> float:
        """What it costs to put one record of the job into the object store, and to look for a newer one."""
        return self._prices.object_put + self._prices.object_get

    def bill(self, now: float) -> Bill:
        """Everything so far; running invocations count up to ``now``."""
        running = sum(self._round(now - each.since) * each.gb for each in self._running.values())
        gb_seconds = self._gb_seconds + running
        own = Bill(
            compute_usd=gb_seconds * self._prices.gb_second,
            requests_usd=self._invocations * self._prices.request,
            store_usd=max(0.0, now - self._opened) / 3600 * self._store_hour,
            objects_usd=self._gets * self._prices.object_get + self._puts * self._prices.object_put,
            invocations=self._invocations,
            gb_seconds=gb_seconds,
            price_list=f"{self._prices.name} ({self._prices.date})",
        )
        return sum(self._added, start=own)

    def _round(self, seconds: float) -> float:
        step = self._prices.granularity_s
        return math.ceil(max(0.0, seconds) / step - 1e-9) * step
