"""A file of click logs in Criteo's format, from a seed: as wide, as heavy-tailed and with as much missing."""

from __future__ import annotations

from pathlib import Path

import numpy as np

_INTEGERS, _CATEGORIES = 13, 26
_CHUNK_ROWS = 20_000


def write_criteo(path: Path, n_rows: int, seed: int = 0, label: bool = True) -> None:
    """Write ``n_rows`` rows; some 0.2 MB for a thousand of them.

    Fields of integers are log-normal counts, those of categories hashes of ranks that follow a power
    law over 10 to 10⁷ values; each field is empty in up to 45 % of the rows.
    """
    draw = np.random.default_rng(seed)
    with path.open("w", encoding="ascii") as file:
        for start in range(0, n_rows, _CHUNK_ROWS):
            n = min(_CHUNK_ROWS, n_rows - start)
            fields = [draw.integers(0, 2, n).astype(str).tolist()] if label else []
            fields += [_integers(draw, i, n) for i in range(_INTEGERS)]
            fields += [_categories(draw, i, n) for i in range(_CATEGORIES)]
            file.write("\n".join(map("\t".join, zip(*fields, strict=True))) + "\n")


def _integers(draw: np.random.Generator, field: int, n: int) -> list[str]:
    values = np.floor(np.exp(draw.normal(1.0 + field % 5, 1.0 + field % 3, n))).astype(np.int64) - field % 2
    return _some_empty(draw, field, values.astype(str))


def _categories(draw: np.random.Generator, field: int, n: int) -> list[str]:
    vocabulary = 10.0 ** (1.0 + 6.0 * field / (_CATEGORIES - 1))
    ranks = ((1.0 - draw.random(n) * (1.0 - vocabulary**-0.1)) ** -10.0).astype(np.uint64)
    hashes = (ranks * np.uint64(0x9E3779B97F4A7C15) + np.uint64(field)) >> np.uint64(32)
    return _some_empty(draw, field, np.array([f"{value:08x}" for value in hashes.tolist()]))


def _some_empty(
    draw: np.random.Generator, field: int, texts: np.ndarray[tuple[int], np.dtype[np.str_]]
) -> list[str]:
    texts = texts.copy()
    texts[draw.random(len(texts)) < (field % 4) * 0.15] = ""
    return texts.tolist()
