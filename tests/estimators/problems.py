"""Small problems to train on."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray


def numbers(n: int = 300, width: int = 3, seed: int = 0) -> tuple[NDArray, NDArray]:
    """Well-conditioned rows with labels 0 and 1 that are not quite separable."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, width))
    noise = rng.logistic(size=n)
    return X, (X @ np.linspace(2, -1, width) + 0.5 + noise > 0).astype(np.int64)


def people(n: int = 300, seed: int = 0) -> tuple[pd.DataFrame, NDArray]:
    """A table of numbers and text (some of it missing) with labels that depend on both."""
    rng = np.random.default_rng(seed)
    age = rng.integers(18, 90, n)
    job = rng.choice(["cook", "judge", "pilot"], n).astype(object)
    rich = (age > 40) & (job != "cook")
    job[rng.random(n) < 0.05] = None
    frame = pd.DataFrame({"age": age, "job": job, "height": rng.normal(170, 10, n)})
    return frame, np.where(rich, "rich", "poor")
