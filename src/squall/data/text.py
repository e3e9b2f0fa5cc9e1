"""Text that can be stored (a Python string may hold lone surrogates, which no file can); names of columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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


def checked_names(names: Sequence[str], width: int, where: str) -> list[str]:
    """Column names as strings: as many as there are columns, and no two alike.

    Raises
    ------
    DataError
        If they are not.
    """
    titles = [str(name) for name in names]
    if len(titles) != width:
        raise DataError(f"there are {len(titles):,} names for {width:,} columns", where=where)
    if len(set(titles)) != len(titles):
        twice = next(t for i, t in enumerate(titles) if t in titles[:i])
        raise DataError(f"two columns are named {twice!r}", where=where, fix="rename one of them")
    check_storable(titles, where)
    return titles
