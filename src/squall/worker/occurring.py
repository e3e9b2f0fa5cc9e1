"""The features that occur in a job's rows: of a hashed space, maybe one in a thousand.

The loss has no slope in a feature that occurs nowhere.  So its coefficient is 0 with any penalty, and stays
where it began without one, and a solver may leave it out: its vectors are as long as what occurs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from squall.protocols import Store
from squall.records import Block, CsrBlock, Float32, Float64, Int16, Int32, Numbers
from squall.worker.keeping import packed, unpacked


@dataclass(frozen=True, slots=True)
class Occurring:
    """Those of ``n_features`` that occur, in ascending order.

    Coefficients are rows of features and, behind them, one row of intercepts.
    """

    features: Int32  # (k,), at least one
    n_features: int

    @staticmethod
    def marks(block: Block) -> Int16:
        """1 for each feature that occurs in a share, to be summed over the shares; (n_features,)."""
        if not isinstance(block, CsrBlock):
            return np.ones(block.n_features, dtype=np.int16)
        marks = np.zeros(block.n_features, dtype=np.int16)
        marks[block.indices] = 1
        return marks

    @staticmethod
    def of(marks: Numbers) -> Occurring:
        """By the sum of all shares' `marks`; if none occurs, the first feature stands for all."""
        features = np.flatnonzero(marks).astype(np.int32)
        return Occurring(features if len(features) else np.zeros(1, dtype=np.int32), len(marks))

    @property
    def all(self) -> bool:
        """Whether nothing can be left out."""
        return len(self.features) == self.n_features

    def narrowed(self, block: Block) -> Block:
        """The same rows, whose features are numbered as in `features`."""
        if self.all or not isinstance(block, CsrBlock):
            return block
        numbers = np.zeros(self.n_features, dtype=np.int32)
        numbers[self.features] = np.arange(len(self.features), dtype=np.int32)
        return replace(block, indices=numbers[block.indices], n_features=len(self.features))

    def taken(self, coefficients: Float64) -> Float64:
        """Of coefficients of all features, those of features that occur, and the intercepts; (k + 1, dim)."""
        taken: Float64 = coefficients[np.append(self.features, self.n_features)]
        return taken

    def spread(self, coefficients: Float32, others: Float32) -> Float32:
        """As `taken` the other way round; ``others`` are those of all features where none occurs."""
        whole = others.copy()
        whole[np.append(self.features, self.n_features)] = coefficients
        return whole

    def put(self, store: Store, job: str) -> None:
        """(slot 0) Let the driver know."""
        shape = np.array([self.n_features], dtype=np.int64)
        store.blobs.put(_key(job), packed({"features": self.features, "n_features": shape}))

    @staticmethod
    def get(store: Store, job: str) -> Occurring | None:
        """(driver) What slot 0 has let it know; None if there was nothing to leave out."""
        data = store.blobs.get(_key(job))
        if data is None:
            return None
        known: dict[str, npt.NDArray[np.int64]] = unpacked(data)
        return Occurring(known["features"].astype(np.int32), int(known["n_features"][0]))


def _key(job: str) -> str:
    return f"{job}/occurring"
