"""Loggers.  Squall logs under ``squall.*`` and configures nothing: that is the application's right."""

from __future__ import annotations

import logging


def get_logger(name: str) -> logging.Logger:
    """A logger below ``squall``; silent until the application configures logging."""
    return logging.getLogger(name)


logging.getLogger("squall").addHandler(logging.NullHandler())
