"""What ``"auto"`` means for the learning rate and the minibatch size.

The learning rate follows from the size of the rows, measured while they are encoded: a step
of AdaGrad moves each touched weight by up to the rate, so a row's margin by up to
rate · ‖x‖₁; a step of SGD moves it by up to rate · ‖x‖₂².
"""

from __future__ import annotations

from squall.records import Block, CsrBlock, OptimizerSpec

BATCH_SIZE = 64
"""Large enough to amortise a step, small enough that a pass makes many."""

_ADAGRAD_MARGIN = 10.0
_ADAGRAD_MOST = 1.0
_ADAM_MARGIN = 0.3
_ADAM_MOST = 0.03
_SGD_MARGIN = 2.0


class RowNorms:
    """Mean ‖x‖₁ and ‖x‖₂² of the rows seen."""

    def __init__(self) -> None:
        self._rows = 0
        self._l1 = self._l2 = 0.0

    def add(self, block: Block) -> None:
        """Take a block's rows in."""
        self._rows += block.n_rows
        values = block.values if isinstance(block, CsrBlock) else block.features
        if values is None:
            assert isinstance(block, CsrBlock)
            self._l1 += len(block.indices)
            self._l2 += len(block.indices)
            return
        self._l1 += float(abs(values).sum(dtype="float64"))
        self._l2 += float((values * values).sum(dtype="float64"))

    def learning_rate(self, optimizer: OptimizerSpec) -> float:
        """The rate that ``"auto"`` stands for."""
        if optimizer.name in ("adagrad", "adam", "ftrl"):
            margin, most = (
                (_ADAM_MARGIN, _ADAM_MOST) if optimizer.name == "adam" else (_ADAGRAD_MARGIN, _ADAGRAD_MOST)
            )
            return min(most, margin * self._rows / self._l1) if self._l1 else most
        rate = _SGD_MARGIN * self._rows / self._l2 if self._l2 else 1.0
        # In the end a gradient moves the weights 1 / (1 - momentum) times as far.
        return rate * (1.0 - optimizer.momentum) if optimizer.name != "sgd" else rate
