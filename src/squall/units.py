"""Quantities as people write them: ``"10min"``, ``"2GB"``, ``"$0.25"``.

Sizes are binary (1 kB = 1,024 B, 1 MB = 1,048,576 B), as AWS Lambda counts memory.
"""

from __future__ import annotations

import math
import re
from numbers import Integral, Real

from squall.errors import SettingError

_DURATIONS = {"ms": 1e-3, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_SIZES = {"b": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30, "tb": 1 << 40}
_NUMBER = r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*"
_PART = re.compile(_NUMBER + r"([a-zA-Z]+)")
_THOUSANDS = r"\s*([0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]*)?)\s*"
_MONEY = re.compile(rf"\s*\$?(?:{_NUMBER}|{_THOUSANDS})(?:usd|USD)?\s*")


def parse_duration(text: str | float) -> float:
    """Seconds meant by ``"90s"``, ``"10min"``, ``"1h30min"`` or a plain number of seconds.

    Raises
    ------
    SettingError
        If it is not a positive, finite duration.
    """
    fix = 'write a number with a unit, such as "90s", "10min", "1h30min"'
    seconds: float | None = None
    if isinstance(text, Real) and not isinstance(text, bool):
        seconds = _as_float(text)
    elif isinstance(text, str):
        parts = _PART.findall(text)
        leftover = "".join(_PART.split(text)[0::3]).strip()
        if parts and not leftover and all(unit.lower() in _DURATIONS for _, unit in parts):
            seconds = sum(float(number) * _DURATIONS[unit.lower()] for number, unit in parts)
    if seconds is None or not math.isfinite(seconds) or seconds <= 0:
        raise SettingError(f"{text!r} is not a duration", fix=fix)
    return seconds


def parse_size(text: str | int) -> int:
    """Bytes meant by ``"512MB"``, ``"1.5GB"`` or a plain number of bytes (1 MB = 2**20 B).

    Raises
    ------
    SettingError
        If it is not a positive size.
    """
    size: int | None = None
    if isinstance(text, Integral) and not isinstance(text, bool):
        size = int(text)
    elif isinstance(text, str):
        match = re.fullmatch(_NUMBER + r"([a-zA-Z]+)\s*", text)
        unit = match.group(2).lower().replace("ib", "b") if match else ""
        if match and unit in _SIZES and math.isfinite(number := float(match.group(1)) * _SIZES[unit]):
            size = round(number)
    if size is None or size <= 0:
        raise SettingError(
            f"{text!r} is not a size", fix='write a number with a unit, such as "512MB", "2GB"'
        )
    return size


def parse_money(text: str | float) -> float:
    """US dollars meant by ``"$0.25"``, ``"0.25 USD"`` or a plain number.

    Raises
    ------
    SettingError
        If it is not a positive, finite amount.
    """
    dollars: float | None = None
    if isinstance(text, Real) and not isinstance(text, bool):
        dollars = _as_float(text)
    elif isinstance(text, str) and (match := _MONEY.fullmatch(text)):
        dollars = float(match.group(1) or match.group(2).replace(",", ""))
    if dollars is None or not math.isfinite(dollars) or dollars <= 0:
        raise SettingError(f"{text!r} is not an amount of money", fix='write dollars, such as "$0.25"')
    return dollars


def _as_float(number: Real) -> float:
    try:
        return float(number)
    except OverflowError:  # an integer of more than 308 digits
        return math.inf


def format_duration(seconds: float) -> str:
    """``0.42 s``, ``12.3 s``, ``4 min 05 s``, ``2 h 03 min``."""
    if seconds < 10:
        return f"{seconds:.2f} s"
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def format_size(size: float) -> str:
    """``812 B``, ``1.5 kB``, ``10 MB``, ``2.3 GB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1024 or unit == "GB":
            return f"{size:.0f} {unit}" if size >= 10 or unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError("unreachable")


def format_money(dollars: float) -> str:
    """``$0.000123``, ``$0.0250``, ``$1.25``: as many digits as the amount needs to show."""
    if dollars == 0:
        return "$0"
    if dollars >= 1:
        return f"${dollars:,.2f}"
    digits = min(9, max(4, 2 - math.floor(math.log10(dollars))))
    return f"${dollars:.{digits}f}"


def format_count(number: float) -> str:
    """``812``, ``12.3 k``, ``4.5 M``: counts and rates at a glance."""
    for factor, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if number >= factor:
            return f"{number / factor:.3g}{unit}"
    return f"{number:.0f}"
