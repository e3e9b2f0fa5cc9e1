"""The setting ``callbacks`` of estimators."""

from __future__ import annotations

from typing import Any

from squall.driver.callbacks import Callback

METHOD = "on_epoch_end"


def callback_problem(value: Any) -> str | None:
    """What is wrong with a setting of callbacks."""
    for one in _listed(value):
        if isinstance(one, type):
            return f"callbacks has the class {one.__name__}; give an object: {one.__name__}()"
        if not callable(getattr(one, METHOD, one)):
            return (
                f"callbacks={value!r} must be None, or a list of functions (record, job), or of objects with "
                f"such a method {METHOD}"
            )
    return None


def as_calls(value: Any) -> tuple[Callback, ...]:
    """What to call after each epoch."""
    return tuple(getattr(one, METHOD, one) for one in _listed(value))


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]
