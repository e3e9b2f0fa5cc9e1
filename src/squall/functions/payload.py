"""Events and return values as JSON, checked so that every platform refuses the same things.

The standard library's encoder is used on purpose: msgspec's would turn NaN into null and
bytes into base64 text without a word, so a value would come back as another one.
"""

from __future__ import annotations

import json
from typing import Any

from squall.errors import PlatformError

MAX_EVENT_BYTES = 64 * 1024
MAX_RESULT_BYTES = 6 * 1024 * 1024  # what AWS Lambda lets a synchronous call return

_encoder = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":"))


def encode(value: Any) -> bytes:
    """JSON of ``value`` as UTF-8.

    Raises
    ------
    ValueError
        If JSON cannot hold it; the message says why.
    """
    try:
        return _encoder.encode(value).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{type(value).__name__} is not JSON: {error}") from error


def decode(data: bytes) -> Any:
    """The value that `encode` was given (tuples come back as lists)."""
    return json.loads(data)


def encode_event(event: dict[str, Any]) -> bytes:
    """JSON of an event, at most 64 kB.

    Raises
    ------
    PlatformError
        If it is not JSON, or too large.
    """
    try:
        data = encode(event)
    except ValueError as error:
        raise PlatformError(
            f"the event cannot be sent: {error}",
            fix="put only text, finite numbers, booleans, None, lists and dicts in an event; "
            "store the rest and send its key",
        ) from error
    if len(data) > MAX_EVENT_BYTES:
        raise PlatformError(
            f"the event is {len(data):,} bytes of JSON; functions take at most {MAX_EVENT_BYTES:,}",
            fix="put the large values in the object store and send their keys",
        )
    return data
