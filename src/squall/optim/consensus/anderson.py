"""Anderson acceleration of a fixed-point map s → G(s) whose state is spread over workers.

With residuals F_j = G(s_j) − s_j the next state is Σ θ_j G(s_j), with Σ θ_j = 1 and ‖Σ θ_j F_j‖ least.
The θ depend on inner products of residuals only, and those are sums over workers: so what has to be
exchanged is a few numbers (Walker & Ni, "Anderson acceleration for fixed-point iterations", 2011, type
II; Zhang, O'Donoghue & Boyd, "Globally convergent type-I Anderson acceleration", 2020, on safeguards).
"""

from __future__ import annotations

import numpy as np

from squall.records import Float64

_RANK = 1e-10  # singular values below this share of the largest are taken for noise
_LONGEST = 1e4  # Σ|θ| beyond which the combination would be one of noise


def coefficients(gram: Float64) -> Float64 | None:
    """θ for residuals with these inner products, the newest last; None if they are no use.

    Parameters
    ----------
    gram : ndarray of shape (k, k)
    """
    k = len(gram)
    if k < 2 or not np.all(np.isfinite(gram)):
        return None
    newest = gram[-1]
    differences = gram[:-1, :-1] - newest[:-1, None] - newest[None, :-1] + newest[-1]
    scale = np.sqrt(np.maximum(np.diag(differences), np.finfo(float).tiny))
    right = (newest[-1] - newest[:-1]) / scale
    solved = np.linalg.lstsq(differences / np.outer(scale, scale), right, rcond=_RANK)[0] / scale
    theta = np.append(solved, 1.0 - solved.sum())
    return theta if np.abs(theta).sum() <= _LONGEST else None
