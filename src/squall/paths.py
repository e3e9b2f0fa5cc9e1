"""Paths of local files and folders as people give them."""

from __future__ import annotations

import os
from pathlib import Path

from squall.errors import SettingError


def user_path(path: str | os.PathLike[str]) -> Path:
    """``path`` with a ``~`` at its beginning made a home folder.

    Raises
    ------
    SettingError
        If there is no such user, or it holds what no path can.
    """
    shown = os.fspath(path)
    try:
        expanded = Path(path).expanduser()
    except RuntimeError as error:  # how pathlib says it
        raise SettingError(
            "there is no such user's home folder", where=shown, fix='check the name, or write "./~…"'
        ) from error
    try:
        encoded = os.fsencode(expanded)
    except UnicodeEncodeError as error:
        raise SettingError("a path cannot hold a lone surrogate", where=repr(shown)) from error
    if b"\0" in encoded:
        raise SettingError("a path cannot hold a null character", where=repr(shown))
    return expanded
