"""Target: the readers as users call them, from a file to rows."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import squall
from squall.data import csv_chunks, dialects, encodings, libsvm_format, pieces
from squall.errors import SquallError
from tests.fuzz.mutation import mutated
from tests.fuzz.texts import CSV, LIBSVM

_CRITEO = [
    "\t".join(["1", *map(str, range(13)), *(f"{i:08x}" for i in range(26))]) + "\n",
    "0" + "\t" * 39 + "\n",
]
_RATINGS = [
    b"user,item,rating\nu1,i1,5\nu2,i2,3.5\n",
    b"1::10::4::97\n2::11::3::98\n",
    b"a\tb\t1\n\nc\td\t2\n",
]
_BAG = [b"2\n3\n3\n1 1 2\n1 3 1\n2 2 5\n", b"2 0:1 4:2\n1 3:7\n0\n"]
_TEXT = ["gute Worte, naïve 😀\nmehr\n".encode(), "über\n".encode("utf-16")]

_READERS: list[tuple[Callable[..., squall.Dataset], list[bytes], dict[str, list[Any]]]] = [
    (
        squall.read_csv,
        CSV,
        {
            "delimiter": [",", ";", "\t"],
            "header": [True, False],
            "quoting": [True, False],
            "encoding": ["utf-8", "utf-8", "latin-1", "utf-16-le"],
        },
    ),
    (squall.read_libsvm, LIBSVM, {"index_base": ["auto", 0, 1], "duplicates": ["raise", "sum", "last"]}),
    (
        squall.read_criteo,
        [row.encode() for row in _CRITEO],
        {"n_features": [None, 16], "label": ["auto", True]},
    ),
    (squall.read_ratings, _RATINGS, {"separator": [",", "::", "\t"], "header": [True, False]}),
    (squall.read_bow, _BAG, {}),
    (squall.read_text, _TEXT, {"documents": ["line", "file"], "encoding": ["utf-8", "utf-16", "latin-1"]}),
]


def readers(draw: Random) -> None:
    """Any text gives rows or one of our errors; and the same rows however it is cut."""
    read, corpus, choices = draw.choice(_READERS)
    settings = {name: draw.choice(values) for name, values in choices.items() if draw.random() < 0.5}
    settings["errors"] = draw.choice(["raise", "skip"])
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        path = Path(folder) / "f.txt"
        path.write_bytes(mutated(draw, corpus, 3000))
        found = [
            _read(read, path, Path(folder) / str(i), settings, size) for i, size in enumerate((1 << 18, 64))
        ]
    assert found[0] == found[1], (read.__name__, settings)


def _read(
    read: Callable[..., squall.Dataset], path: Path, storage: Path, settings: dict[str, Any], size: int
) -> Any:
    """Rows as bytes, or the kind of error; chunks and pieces are of this size."""
    csv_chunks.CHUNK_BYTES = dialects._CHUNK_BYTES = encodings._CHUNK_BYTES = libsvm_format._CHUNK_BYTES = (
        size
    )
    pieces.PIECE_BYTES = 1 << 30 if size > 100 else 500
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            data = read(path, storage=storage, **settings)
            blocks = list(data.blocks())
            X, y = data.to_arrays()
        except SquallError as error:
            return type(error).__name__
    X = X.toarray() if hasattr(X, "toarray") else X
    qids = [None if block.qid is None else block.qid.tolist() for block in blocks]
    sums = [x for qid in qids if qid is not None for x in qid]
    return repr(X.tolist()), None if y is None else repr(np.asarray(y).tolist()), sums
