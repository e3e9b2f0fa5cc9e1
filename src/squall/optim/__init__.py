"""Optimisers: which exist, their settings, and the kernels' rule that they make.

The arithmetic, with its sources, is in :mod:`squall._kernels`; the penalties are proximal (FOBOS,
Duchi & Singer 2009) and lazy.
"""

from __future__ import annotations

from functools import lru_cache

from squall import _kernels
from squall.optim.schedules import levels
from squall.records import OptimizerSpec

CODES: dict[str, int] = {
    "sgd": _kernels.SGD,
    "momentum": _kernels.MOMENTUM,
    "nesterov": _kernels.NESTEROV,
    "adagrad": _kernels.ADAGRAD,
    "adam": _kernels.ADAM,
    "ftrl": _kernels.FTRL,
}


def optimizer_code(spec: OptimizerSpec) -> int:
    """The kernels' number for this optimiser."""
    return CODES[spec.name]


@lru_cache(maxsize=64)
def kernel_rule(spec: OptimizerSpec) -> _kernels.Rule:
    """The kernels' rule for this optimiser; kept, for it may hold tables.

    Raises
    ------
    ValueError
        If a setting is out of its range.
    """
    pace, steps_per_level = levels(spec)
    return _kernels.Rule(
        optimizer_code(spec),
        spec.learning_rate,
        spec.l1,
        spec.l2,
        momentum=spec.momentum,
        beta_1=spec.beta_1,
        beta_2=spec.beta_2,
        beta=spec.beta,
        levels=pace,
        steps_per_level=steps_per_level,
        clip_value=spec.clip_value or 0.0,
        clip_norm=spec.clip_norm or 0.0,
    )


def is_lazy(spec: OptimizerSpec) -> bool:
    """Whether rows carry the step at which they were last brought up to date.

    They do where they change without being touched: by a penalty, or by momentum.
    """
    return spec.l1 > 0.0 or spec.l2 > 0.0 or spec.name in ("momentum", "nesterov")
