"""Binary logistic regression: the loss is log(1 + exp(−(2y − 1)(w·x + b))), of labels y in {0, 1}."""

from __future__ import annotations

from typing import ClassVar

from squall import _kernels
from squall.models.linear import Kernels, OneOutputModel
from squall.models.losses import logistic_quality
from squall.records import Block, Float32


def _slope(margins: Float32, labels: Float32) -> Float32:
    return _kernels.logistic_probabilities(margins) - labels


class LogisticModel(OneOutputModel, frozen=True, tag="logistic"):
    """The model protocol (:class:`squall.protocols.Model`) for logistic regression."""

    kernels: ClassVar[Kernels] = Kernels(
        _kernels.logistic_minibatches,
        _kernels.logistic_minibatches_dense,
        _kernels.csr_logistic_gradient,
        _kernels.logistic_loss,
        _slope,
    )

    def loss(self, block: Block, weights: Float32) -> tuple[float, float, float]:
        """Sum of losses, of sample weights, and of the weights of rows predicted right."""
        return logistic_quality(self.outputs(block, weights), block)
