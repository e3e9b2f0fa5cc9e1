"""Contract suites: one for each protocol, to be run on every implementation of it."""

from squall.records import Chaos

__all__ = ["Chaos"]
