"""Shapes that no platform can give."""

from __future__ import annotations

from squall.errors import PlatformError
from squall.records import Shape


def check_shape(shape: Shape, low_mb: int, high_mb: int) -> None:
    """Refuse a shape without a handler to import or time to run, or outside these limits of memory.

    Raises
    ------
    PlatformError
        Saying what to ask for.
    """
    module, _, function = shape.handler.partition(":")
    if not (module and function):
        raise PlatformError(
            f"the handler {shape.handler!r} has no function", fix='name it as "module:function"'
        )
    if module == "__main__":
        raise PlatformError(
            f"the handler {shape.handler!r} is in the main script, which functions cannot import",
            fix="move it into a module of its own",
        )
    if not shape.timeout_s > 0:
        raise PlatformError(f"a timeout of {shape.timeout_s} s", fix="give the function some time")
    if not low_mb <= shape.memory_mb <= high_mb:
        raise PlatformError(
            f"functions of {shape.memory_mb:,} MB cannot be had here",
            fix=f"ask for {low_mb} to {high_mb:,} MB",
        )
