"""Every strategy under the one contract."""

from __future__ import annotations

from pathlib import Path

import pytest

import squall
from squall.testing.strategies import StrategyContract


class TestAsynchronous(StrategyContract):
    def make(self) -> squall.ParameterServer:
        return squall.ParameterServer()


class TestInStep(StrategyContract):
    def make(self) -> squall.ParameterServer:
        return squall.ParameterServer("bsp")


class TestAveraging(StrategyContract):
    def make(self) -> squall.ModelAveraging:
        return squall.ModelAveraging()


class TestAveragingOften(StrategyContract):
    def make(self) -> squall.ModelAveraging:
        return squall.ModelAveraging(every=3)


@pytest.mark.slow
class TestAveragingOnObjects(TestAveragingOften):
    def store_url(self, folder: Path) -> str:
        return (folder / "store").as_uri()


class TestConsensus(StrategyContract):
    def make(self) -> squall.ADMM:
        return squall.ADMM(tol=1e-12)


class TestConsensusInPieces(StrategyContract):
    def make(self) -> squall.ADMM:
        return squall.ADMM(tol=1e-12, compression="int16", shards=3)
