"""Blobs, counters and reductions by every kind of store, and what they cost in an object store.

Run ``python benchmarks/blobs.py [--calls N]``.  All stores take turns within a round and the best
median of three rounds counts; what is printed last are ratios to the embedded store.  The S3 server is
SeaweedFS on this machine: one of a cloud answers in some 10 to 30 ms, whatever the call.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from squall.driver.ledger import load_prices
from squall.store import Store, connect
from squall.store.objects import ObjectsStore
from squall.store.process import StoreProcess
from squall.testing.s3 import seaweedfs
from squall.testing.valkey import valkey_server

ROUNDS = 3
SMALL, LARGE, ARRAY = bytes(1000), bytes(16 << 20), np.ones(1 << 17)


@contextlib.contextmanager
def stores() -> Iterator[dict[str, tuple[str, str]]]:
    """Address and token by name."""
    with contextlib.ExitStack() as open_:
        folder = Path(open_.enter_context(tempfile.TemporaryDirectory()))
        server = open_.enter_context(StoreProcess.start())
        (folder / "valkey").mkdir()
        valkey = open_.enter_context(valkey_server(folder / "valkey"))
        (folder / "s3").mkdir()
        s3 = open_.enter_context(seaweedfs(folder / "s3"))
        os.environ.update(s3.variables)
        tcp = server.listen_tcp()
        yield {
            "embedded": (server.address, ""),
            "tcp": (tcp.url, tcp.token),
            "valkey": (valkey.url, valkey.password),
            "folder": ((folder / "objects").as_uri(), ""),
            "s3": (s3.url, ""),
        }


def calls(store: Store, other: Store, name: str, number: int) -> dict[str, Callable[[], object]]:
    """What is timed; keys are of this number only, so that no call finds what another has left."""
    blobs, key = store.blobs, f"bench-{name}/{number}"
    blobs.put(f"{key}-small", SMALL)
    for contributor in range(3):
        blobs.reduce(f"{key}-sum", ARRAY, "sum", contributor)

    def wake() -> None:
        """From a put to the one who waits for it, and back."""
        thread = threading.Thread(target=lambda: other.blobs.put(f"{key}-wake", b"1"))
        thread.start()
        blobs.wait(f"{key}-wake", 20.0)
        thread.join()

    def reduce() -> None:
        blobs.reduce(f"{key}-sum", ARRAY, "sum", 3)
        blobs.reduced(f"{key}-sum", 4, 20.0)

    return {
        "put 1 kB": lambda: blobs.put(f"{key}-put", SMALL),
        "get 1 kB": lambda: blobs.get(f"{key}-small"),
        "count": lambda: blobs.add(f"{key}-count"),
        "wait and be woken": wake,
        "get 16 MB": lambda: blobs.get("bench-large"),
        "contribute 1 MB and get the sum of 4": reduce,
    }


def measure(count: int) -> None:
    best: dict[tuple[str, str], float] = {}
    with stores() as addresses, contextlib.ExitStack() as open_:
        opened = {
            name: (open_.enter_context(connect(*place)), open_.enter_context(connect(*place)))
            for name, place in addresses.items()
        }
        for store, _ in opened.values():
            store.blobs.put("bench-large", LARGE)
        for round_ in range(ROUNDS):
            times: dict[tuple[str, str], list[float]] = {}
            for number in range(count):
                for name, (store, other) in opened.items():
                    timed = calls(store, other, name, round_ * count + number)
                    store.blobs.get("bench-none")  # so that whoever serves it is awake
                    for call, run in timed.items():
                        start = time.perf_counter()
                        run()
                        times.setdefault((call, name), []).append(time.perf_counter() - start)
                    store.control.close_job(f"bench-{name}")
            for key, seconds in times.items():
                best[key] = min(best.get(key, 1e9), statistics.median(seconds))
        show(best, list(addresses))
        price(next(store for store, _ in opened.values() if isinstance(store, ObjectsStore)))


def show(best: dict[tuple[str, str], float], names: list[str]) -> None:
    for title, shown in (
        ("µs", lambda call, name: f"{1e6 * best[call, name]:12,.0f}"),
        ("× embedded", lambda call, name: f"{best[call, name] / best[call, names[0]]:12,.1f}"),
    ):
        print(f"{title:38s}" + "".join(f"{name:>12s}" for name in names))
        for call in dict.fromkeys(call for call, _ in best):
            print(f"{call:38s}" + "".join(shown(call, name) for name in names))


def price(store: ObjectsStore, workers: int = 10) -> None:
    """Requests and dollars of one reduction by many, each of whom waits for it."""
    prices = load_prices("aws-lambda-us-east-1")
    clients = [ObjectsStore(store.objects) for _ in range(workers)]
    gets, puts = store.objects.gets, store.objects.puts

    def work(at: int) -> None:
        clients[at].blobs.reduce("bench/all", ARRAY, "sum", at)
        clients[at].blobs.reduced("bench/all", workers, 60.0)

    threads = [threading.Thread(target=work, args=(at,)) for at in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gets, puts = store.objects.gets - gets, store.objects.puts - puts
    dollars = gets * prices.object_get + puts * prices.object_put
    print(
        f"a reduction by {workers} workers in an object store: {gets} gets, {puts} puts and listings,"
        f" ${dollars:.6f}"
    )
    store.control.close_job("bench")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=20)
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    measure(parser.parse_args().calls)
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
