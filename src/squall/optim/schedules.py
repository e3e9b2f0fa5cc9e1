"""Schedules of the learning rate: by what it is multiplied at each step of a table.

The step is the table's own, shared by all workers and kept with the parameters.  So the rate is
the same whichever way a minibatch's update takes, and goes on where it was after a hand-over.

A run has at most 4,096 different rates: of more steps than that, several in a row share the rate
of their middle.  What a row has missed then follows from sums over few levels, on any curve.
"""

from __future__ import annotations

import numpy as np

from squall.records import Float64, OptimizerSpec

SCHEDULES = ("constant", "inverse", "cosine")

_MOST_LEVELS = 4096


def levels(spec: OptimizerSpec) -> tuple[Float64 | None, int]:
    """The multipliers of a spec's learning rate, and for how many steps each holds.

    Over the first ``warmup`` steps it rises linearly to 1; then, with t the steps since and T those
    planned after the warm-up, it is 1 (constant), 1 / (1 + decay·t) (inverse) or
    (1 + cos(π·t/T)) / 2 (cosine; Loshchilov & Hutter 2017, without restarts).  After the planned
    steps the last holds.  None: 1 throughout.

    Raises
    ------
    ValueError
        If the planned steps are not known.
    """
    if spec.schedule == "constant" and not spec.warmup:
        return None, 1
    if spec.steps < 1:
        raise ValueError(f"steps: is {spec.steps}, the number of planned steps is needed by the schedule")
    if not (spec.warmup >= 0 and 0.0 <= spec.decay < float("inf")):
        raise ValueError(f"warmup, decay: {spec.warmup}, {spec.decay} are not finite numbers >= 0")
    span = -(-spec.steps // _MOST_LEVELS)
    step = np.arange(-(-spec.steps // span)) * float(span) + (span - 1) / 2
    since = np.maximum(step - spec.warmup, 0.0)
    if spec.schedule == "inverse":
        curve = 1.0 / (1.0 + spec.decay * since)
    elif spec.schedule == "cosine":
        curve = (1.0 + np.cos(np.pi * np.minimum(since / max(spec.steps - spec.warmup, 1), 1.0))) / 2.0
    else:
        curve = np.ones_like(step)
    rising = np.minimum((step + 1.0) / max(spec.warmup, 1), 1.0)
    return np.where(step < spec.warmup, rising, curve), span
