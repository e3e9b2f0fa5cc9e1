"""Freed memory is kept where the C library can be told so."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

FAULTS = """
import resource, sys
import numpy as np
from squall.heap import keep_freed
if sys.argv[1] == "keep":
    keep_freed()
for turn in range(60):
    if turn == 10:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    arrays = [np.ones(40_000 + 20_000 * i, dtype=np.float32) for i in range(12)]
    del arrays
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="the C library is another one")
def test_what_is_freed_after_each_minibatch_is_not_cleared_again_for_the_next() -> None:
    kept, given_back = (
        int(subprocess.run([sys.executable, "-c", FAULTS, how], capture_output=True, check=True).stdout)
        for how in ("keep", "leave")
    )
    assert kept < given_back / 20
