"""Text that can be stored: a Python string may hold lone surrogates, which no UTF-8 file can."""

from __future__ import annotations

from collections.abc import Iterable

from squall.errors import DataError


def is_storable(text: str) -> bool:
    """Whether it is Unicode text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_storable(texts: Iterable[str], where: str) -> None:
    """Raise `DataError` for the first that is not Unicode text."""
    for text in texts:
        if not is_storable(text):
            raise DataError(
                f"{text!r} holds a lone surrogate, which is not Unicode text",
                where=where,
                fix="it may come from bytes decoded with surrogateescape: decode them by their own encoding",
            )
