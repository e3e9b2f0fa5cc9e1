"""Optimisers: which exist, their settings, and their codes in the kernels.

The arithmetic is in :mod:`squall._kernels`; the penalties are proximal (FOBOS, Duchi &
Singer 2009; AdaGrad with composite objectives, Duchi, Hazan & Singer 2011), applied lazily
to rows that a minibatch does not touch.
"""

from __future__ import annotations

from squall import _kernels
from squall.records import OptimizerSpec

CODES: dict[str, int] = {"sgd": _kernels.SGD, "adagrad": _kernels.ADAGRAD}


def optimizer_code(spec: OptimizerSpec) -> int:
    """The kernels' number for this optimiser."""
    return CODES[spec.name]


def is_lazy(spec: OptimizerSpec) -> bool:
    """Whether rows carry the step at which they were last brought up to date."""
    return spec.l1 > 0.0 or spec.l2 > 0.0
