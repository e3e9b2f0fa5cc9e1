"""Which objects a job, a value, a counter or a reduction is made of."""

from __future__ import annotations

import re

_PLAIN = re.compile(r"[^A-Za-z0-9_@+,-]")


def escaped(text: str) -> str:
    """``text`` as a part of an object's name: all but plain characters as ``=`` and hexadecimal digits."""
    return _PLAIN.sub(_hexadecimal, text)


def _hexadecimal(found: re.Match[str]) -> str:
    return "".join(f"={byte:02X}" for byte in found[0].encode("utf-8", "surrogatepass"))


def job_folder(job: str) -> str:
    """Where a job's part of the store is; it goes with the job."""
    return f"jobs/{escaped(job) or '='}/store"


def folder(kind: str, key: str) -> str:
    """Where the objects of a key are; ``"<job>/…"`` is below its job."""
    job, slash, rest = key.partition("/")
    home = job_folder(job) if slash else "store"
    return f"{home}/{kind}/{escaped(rest if slash else key) or '='}"
