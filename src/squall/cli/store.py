"""``squall store``: a parameter store that outlives its clients, and how it is."""

from __future__ import annotations

import json
import signal
import threading
import time
import types
from pathlib import Path

import msgspec
from rich.table import Table

from squall.cli.show import console
from squall.store.admin import StoreAdmin
from squall.store.auth import store_token
from squall.store.cluster import ServeSettings, StoreCluster, is_loopback
from squall.store.stat import RequestStat, ShardStat
from squall.units import format_count, format_duration, format_size


def run_serve(settings: ServeSettings) -> None:
    """Serve until Ctrl-C or SIGTERM."""
    end = threading.Event()

    def stop(number: int, frame: types.FrameType | None) -> None:
        end.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with StoreCluster(settings) as store:
            _announce(settings, store)
            store.watch(end.is_set)
            console.print("ending", soft_wrap=True)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _announce(settings: ServeSettings, store: StoreCluster) -> None:
    shards = f"{settings.shards} shard{'s' * (settings.shards > 1)}"
    everywhere = not settings.is_unix and settings.is_everywhere
    where = f"all addresses of this machine, by name {store.address}" if everywhere else store.address
    console.print(f"serving {shards} at {where}", soft_wrap=True)
    if not settings.is_unix and not is_loopback(settings.host) and settings.tls_cert is None:
        console.print(
            "warning: without TLS anybody on the network can read and change what is sent; "
            "give --tls-cert and --tls-key",
            style="yellow",
            soft_wrap=True,
        )
    if settings.snapshot is None:
        console.print(
            "no snapshots: what a shard holds is lost when it dies (--snapshot URL)", soft_wrap=True
        )
    elsewhere = " (where that name is not known, by its IP address)" if everywhere else ""
    console.print(
        f'use it by squall.Run(store="{store.address}"){elsewhere}; end it by Ctrl-C',
        soft_wrap=True,
        markup=False,
    )


def run_snapshot(address: str, token_file: Path | None) -> None:
    """Have all shards write a snapshot."""
    with StoreAdmin(address, store_token(token_file) or "") as admin:
        number = admin.snapshot()
    console.print(f"snapshot {number}", soft_wrap=True)


def run_stat(address: str, token_file: Path | None, interval: float, as_json: bool) -> None:
    """Show tables, memory, requests in ``interval`` seconds, and workers."""
    with StoreAdmin(address, store_token(token_file) or "") as admin:
        before = admin.stat()
        time.sleep(interval)
        after = admin.stat()
    if as_json:
        shards = [_plain(b, a, interval) for b, a in zip(before, after, strict=True)]
        print(json.dumps({"address": address, "shards": shards}, indent=2))
        return
    for table in (_shards(after), _requests(before, after, interval), _tables(after), _workers(after)):
        console.print(table)
        console.print()


def _plain(before: ShardStat, after: ShardStat, interval: float) -> dict[str, object]:
    shown: dict[str, object] = msgspec.to_builtins(after)
    shown["requests"] = [
        {
            "kind": r.kind,
            "total": r.count,
            "per_s": recent.count / interval,
            "p50_s": recent.percentile(0.5),
            "p99_s": recent.percentile(0.99),
        }
        for r, recent in zip(after.requests, _recent(before, after), strict=True)
    ]
    return shown


def _recent(before: ShardStat, after: ShardStat) -> list[RequestStat]:
    """Requests since ``before``; all of them if the shard has started again since."""
    if before.pid != after.pid:
        return after.requests
    return [a.since(b) for b, a in zip(before.requests, after.requests, strict=True)]


def _table(title: str, left: int, *names: str) -> Table:
    table = Table(box=None, pad_edge=False, title=title, title_justify="left")
    for at, name in enumerate(names):
        table.add_column(name, justify="left" if at < left else "right", header_style="dim")
    return table


def _shards(stats: list[ShardStat]) -> Table:
    table = _table(
        "Shards", 0, "shard", "process", "loop", "up", "clients", "resident", "tables", "limit", "snapshot"
    )
    for s in stats:
        table.add_row(
            str(s.shard),
            str(s.pid),
            s.loop,
            format_duration(s.uptime_s),
            str(s.clients),
            format_size(s.resident),
            format_size(s.held),
            "" if s.limit is None else format_size(s.limit),
            "failed" if s.snapshot_error else _age(s.snapshot),
        )
    return table


def _age(snapshot: int | None) -> str:
    return "none" if snapshot is None else f"{format_duration(max(0.0, time.time() - snapshot / 1000))} ago"


def _requests(before: list[ShardStat], after: list[ShardStat], interval: float) -> Table:
    table = _table(f"Requests in {interval:g} s", 1, "request", "shard", "total", "per second", "p50", "p99")
    for b, a in zip(before, after, strict=True):
        for total, recent in zip(a.requests, _recent(b, a), strict=True):
            if total.count:
                table.add_row(
                    total.kind,
                    str(a.shard),
                    format_count(total.count),
                    format_count(round(recent.count / interval)),
                    f"{1e6 * recent.percentile(0.5):.0f} µs" if recent.count else "",
                    f"{1e6 * recent.percentile(0.99):.0f} µs" if recent.count else "",
                )
    return table


def _tables(stats: list[ShardStat]) -> Table:
    table = _table("Tables", 1, "table", "shard", "rows", "dim", "optimizer", "steps", "memory")
    for s in stats:
        for t in s.tables:
            table.add_row(
                t.name,
                str(s.shard),
                f"{t.rows:,}",
                str(t.dim),
                t.optimizer,
                f"{t.steps:,}",
                format_size(t.bytes),
            )
    return table


def _workers(stats: list[ShardStat]) -> Table:
    table = _table("Workers", 1, "job", "shard", "slot", "attempt", "minibatches")
    for s in stats:
        for job in s.jobs:
            for slot, (attempt, done) in enumerate(zip(job.attempts, job.progress, strict=True)):
                table.add_row(
                    job.name, str(s.shard), str(slot), "" if attempt < 0 else str(attempt), f"{done:,}"
                )
    return table
