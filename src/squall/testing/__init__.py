"""Contract suites: one for each protocol, to be run on every implementation of it; and faults."""

from squall.records import Chaos, Fault

__all__ = ["Chaos", "Fault"]
