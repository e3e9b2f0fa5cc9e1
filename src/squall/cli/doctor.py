"""``squall doctor``: does everything that Squall needs really work here?"""

from __future__ import annotations

import importlib
import os
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from rich.table import Table
from rich.text import Text

import squall
from squall.cli.show import console
from squall.config import LocalBackend, available_cores
from squall.data.objects import ObjectStore, default_storage
from squall.errors import SquallError
from squall.records import Shape
from squall.registry import BACKENDS
from squall.units import format_size

_LIBRARIES = ("numpy", "obstore", "safetensors", "msgspec", "scikit-learn", "rich", "typer")
_MARKS = {True: ("ok", "green"), False: ("broken", "bold red"), None: ("absent", "yellow")}
_OPTIONAL = {"pandas": "DataFrames in Dataset.to_pandas()"}


@dataclass(frozen=True)
class Finding:
    """One thing looked at: ``ok`` True, False (broken), or None (optional and absent)."""

    name: str
    ok: bool | None
    found: str
    fix: str = ""


def run_doctor(storage: str | None) -> int:
    """Print all findings; returns the exit code: 1 if something that is needed is broken."""
    checks: list[Callable[[], Finding]] = [
        _python,
        _kernels,
        _libraries,
        *[lambda name=name: _optional(name) for name in _OPTIONAL],
        _machine,
        _memory_limits,
        _functions,
        _isolation,
        _huge_pages,
        _store,
        lambda: _storage(storage),
    ]
    table = Table(box=None, show_header=False, pad_edge=False)
    broken = 0
    try:
        for check in checks:
            finding = check()
            broken += finding.ok is False
            told = finding.found + (f"\n→ {finding.fix}" if finding.fix else "")
            table.add_row(Text(*_MARKS[finding.ok]), finding.name, Text(told))
    finally:
        squall.shutdown()
    console.print(table)
    verdict = f"{broken} thing(s) to mend." if broken else "Everything that Squall needs works here."
    console.print(f"\n{verdict}")
    return 1 if broken else 0


def _python() -> Finding:
    found = f"{platform.python_version()} at {sys.executable}, {platform.system()} {platform.machine()}"
    fine = sys.version_info >= (3, 11) and sys.platform != "win32"
    return Finding("Python", fine, found, "" if fine else "use Python 3.11 or later, on Windows inside WSL")


def _kernels() -> Finding:
    try:
        from squall import _kernels

        good = _kernels.murmur3_32(b"hello", 0) == 0x248BFA47
    except ImportError as error:
        return Finding("C++ kernels", False, str(error), "reinstall: pip install --force-reinstall squall")
    found = f"Squall {squall.__version__}" if good else "they compute wrong hashes"
    return Finding("C++ kernels", good, found)


def _libraries() -> Finding:
    versions, missing = [], []
    for name in _LIBRARIES:
        try:
            versions.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            missing.append(name)
    fix = f"pip install {' '.join(missing)}" if missing else ""
    return Finding("libraries", not missing, ", ".join(versions), fix)


def _optional(name: str) -> Finding:
    try:
        module = importlib.import_module(name)
    except ImportError:
        found = f"not installed; needed for {_OPTIONAL[name]}"
        return Finding(name, None, found, f"pip install 'squall[{name}]'")
    return Finding(name, True, str(module.__version__))


def _machine() -> Finding:
    cores = available_cores()
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable"))
        memory = f", {format_size(free)} of memory free"
    except OSError:
        memory = ""
    return Finding("machine", True, f"{cores} core{'s' if cores > 1 else ''}{memory}")


def _memory_limits() -> Finding:
    from squall.functions.local.memory import choose

    limiter = choose("auto", f"squall-doctor-{os.getpid()}")
    name = limiter.name
    limiter.close()
    if name != "watchdog":
        return Finding("memory limits", True, f"kept by the kernel ({name})")
    return Finding(
        "memory limits",
        True,
        "kept by a watchdog, since this user may not make cgroups; a function that allocates "
        "very fast overshoots before it is ended",
        "for limits kept by the kernel, run as a user with a delegated cgroup, or as root",
    )


def _functions() -> Finding:
    backend = LocalBackend()
    try:
        endpoint = BACKENDS.load("local")(backend).prepare(
            Shape("squall.testing.handlers:echo", memory_mb=256, timeout_s=10.0)
        )
        times = []
        for _ in range(2):
            began = time.perf_counter()
            outcome = endpoint.invoke({"value": 1}).outcome(timeout=20.0)
            times.append((time.perf_counter() - began) * 1e3)
            if outcome.kind != "returned":
                return Finding("local functions", False, f"a call ended as: {outcome.kind} {outcome.error}")
    except (SquallError, TimeoutError) as error:
        return Finding("local functions", False, str(error))
    return Finding("local functions", True, f"first call {times[0]:.0f} ms, second {times[1]:.1f} ms")


def _isolation() -> Finding:
    from squall.functions.local.pool import shared

    name = "strict isolation"
    if sys.platform != "linux":
        return Finding(name, None, "not available: it needs Linux")
    try:
        exposed = shared(isolation="strict").exposed()
    except SquallError as error:
        return Finding(name, False, str(error))
    if not exposed:
        return Finding(name, True, "functions can be kept from all that is the client's")
    return Finding(
        name,
        None,
        f"functions can still reach the client's {'; its '.join(exposed)}",
        "allow user namespaces (sysctl kernel.apparmor_restrict_unprivileged_userns=0), or use a newer "
        "kernel",
    )


def _huge_pages() -> Finding:
    from squall.store.hugepages import mount_huge

    name = "huge pages"
    root = mount_huge()
    if root is None:
        found = "tables of the parameter store have ordinary pages, which is slower for sparse models"
        fix = "allow user namespaces (sysctl kernel.apparmor_restrict_unprivileged_userns=0)"
        return Finding(name, None, found, fix if sys.platform == "linux" else "")
    os.close(root)
    return Finding(name, True, "large tables of the parameter store have them")


def _store() -> Finding:
    from squall.store.embedded import connect
    from squall.store.process import shared_store

    try:
        began = time.perf_counter()
        with connect(shared_store().address) as store:
            store.blobs.put("doctor/probe", b"probe")
            value = store.blobs.get("doctor/probe")
            store.blobs.delete("doctor/probe")
        spent = (time.perf_counter() - began) * 1e3
    except SquallError as error:
        return Finding("parameter store", False, str(error))
    return Finding("parameter store", value == b"probe", f"started and answered in {spent:.0f} ms")


def _storage(storage: str | None) -> Finding:
    place = default_storage() if storage is None else storage
    try:
        objects = ObjectStore(place)
        objects.put("doctor/probe", b"probe")
        value = bytes(objects.get("doctor/probe"))
        objects.delete_prefix("doctor")
    except SquallError as error:
        return Finding("object store", False, str(error))
    return Finding("object store", value == b"probe", objects.url)
