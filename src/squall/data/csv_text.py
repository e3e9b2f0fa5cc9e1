"""Numbers that are not written as the reader takes them: told, never guessed at."""

from __future__ import annotations

import math
import re

_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?")
_NOTATIONS = (
    (re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?"), "commas between thousands", "remove them"),
    (
        re.compile(r"[+-]?\d{1,3}(\.\d{3})+(,\d+)?|[+-]?\d{1,3}([ '\u00a0\u202f]\d{3})+([.,]\d+)?"),
        "separators between thousands",
        "remove them",
    ),
    (re.compile(r"[+-]?\d*,\d+"), "a decimal comma", 'write a point ("1.5")'),
    (re.compile(r"[+-]?\d+(\.\d+)?\s*%"), "a percent sign", "remove it"),
    (re.compile(r"[+-]?[$€£¥]\s*\d[\d,.]*|\d[\d,.]*\s*[$€£¥]"), "a currency sign", "remove it"),
)


def is_infinite(text: str) -> bool:
    """Whether it means an infinite number, or one beyond float64."""
    try:
        return math.isinf(float(text))
    except ValueError:
        return False


def is_plain(text: str) -> bool:
    """Whether it is a number as the reader takes it."""
    return _NUMBER.fullmatch(text) is not None


def notation(text: str) -> tuple[str, str] | None:
    """(what makes it no number, what to do about that), if it is a number written in another way."""
    for pattern, what, fix in _NOTATIONS:
        if pattern.fullmatch(text):
            return what, fix
    return None
