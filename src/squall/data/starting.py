"""What a job's model begins with, where that is not its usual beginning: an object of the job's.

It is a property of the job, whatever keeps its parameters: weights as the model's table has them and,
where a training goes on from another, the optimiser's state and step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from squall.errors import CorruptError
from squall.protocols import Objects
from squall.records import Float32, TableContents


@dataclass(frozen=True)
class Beginning:
    """Weights (rows, dim) and, with ``state`` (rows, state columns), what an optimiser knows at ``step``."""

    weights: Float32
    state: Float32 | None = None
    step: int = 0

    def contents(self, stride: int) -> TableContents:
        """The whole of a table whose rows have ``stride`` numbers.

        Raises
        ------
        ValueError
            If the state is that of another optimiser.
        """
        rows, dim = self.weights.shape
        if self.state is not None and self.state.shape != (rows, stride - dim):
            raise ValueError(f"state of shape {self.state.shape} is none for rows of {stride} numbers")
        array = np.zeros((rows, stride), dtype=np.float32)
        array[:, :dim] = self.weights
        if self.state is not None:
            array[:, dim:] = self.state
        return TableContents(array, self.step)


def write_beginning(objects: Objects, key: str, beginning: Beginning) -> None:
    """Write it as one safetensors object."""
    tensors = {"weights": np.ascontiguousarray(beginning.weights), "step": np.array([beginning.step])}
    if beginning.state is not None:
        tensors["state"] = np.ascontiguousarray(beginning.state)
    objects.put(key, save(tensors))


def read_beginning(objects: Objects, key: str) -> Beginning:
    """Read what `write_beginning` wrote.

    Raises
    ------
    CorruptError
        If it is not there, or something else.
    """
    data = objects.find(key)
    try:
        if data is None:
            raise ValueError("it is missing")
        tensors = load(bytes(data))
        return Beginning(tensors["weights"], tensors.get("state"), int(tensors["step"][0]))
    except (SafetensorError, LookupError, ValueError) as error:
        raise CorruptError(
            f"the initial weights cannot be read: {error}", where=key, fix="start the job again"
        ) from error
