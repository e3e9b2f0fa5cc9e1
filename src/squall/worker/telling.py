"""An exception in words, for whoever called the function that raised it."""

from __future__ import annotations

import traceback
from types import TracebackType
from typing import NamedTuple

MAX_MESSAGE, MAX_TRACEBACK = 4_000, 64_000
"""Characters that are told of each; of a message the first ones, of a traceback the last ones."""


class Told(NamedTuple):
    """Qualified name of its class, its message, and its traceback as Python prints it."""

    kind: str
    message: str
    traceback: str


def told(error: BaseException, hidden: str) -> Told:
    """Say what was raised; frames of the file ``hidden`` at the traceback's top are left out."""
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    # (str(lines) never raises, where str(error) might)
    lines = traceback.TracebackException(kind, error, _below(error.__traceback__, hidden))
    text = "".join(_cut(piece) for piece in lines.format())
    return Told(name, _sendable(_cut(str(lines))), _sendable(text[-MAX_TRACEBACK:]))


def _cut(text: str) -> str:
    if len(text) <= MAX_MESSAGE:
        return text
    end = "\n" if text.endswith("\n") else ""
    return f"{text[:MAX_MESSAGE]}… (and {len(text) - MAX_MESSAGE:,} characters more){end}"


def _below(trace: TracebackType | None, hidden: str) -> TracebackType | None:
    """All frames, if there are no others."""
    first = trace
    while trace is not None and trace.tb_frame.f_code.co_filename == hidden:
        trace = trace.tb_next
    return trace or first


def _sendable(text: str) -> str:
    """Without lone surrogates, which UTF-8 cannot hold."""
    return text.encode("utf-8", "backslashreplace").decode()
