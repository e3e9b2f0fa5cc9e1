"""`read_criteo`: the click logs of the Kaggle display advertising challenge, and others written alike."""

from __future__ import annotations

from typing import Any, Literal

from squall.config import Problems, Run
from squall.data.csv_chunks import read_names
from squall.data.csv_format import CsvFormat
from squall.data.dataset import Dataset
from squall.data.dialects import Dialect
from squall.data.finding import Paths, find_inputs, path_problems
from squall.data.parsing import read_text
from squall.data.reading import Storage, storage_of

INTEGERS = [f"I{i}" for i in range(1, 14)]
CATEGORIES = [f"C{i}" for i in range(1, 27)]
LABEL = "label"

_ROLES = [*((name, "float64") for name in INTEGERS), *((name, "categorical") for name in CATEGORIES)]


def read_criteo(
    path: Paths,
    *,
    label: bool | Literal["auto"] = "auto",
    n_features: int | None = None,
    errors: Literal["raise", "skip"] = "raise",
    storage: Storage = None,
    run: Run | None = None,
) -> Dataset:
    """Read click logs in Criteo's format: tab separated, without a header.

    Each row has the label (1: clicked), 13 integers ``I1`` … ``I13`` (counts) and 26 categories
    ``C1`` … ``C26`` (32-bit hashes in hexadecimal); any of the 39 may be missing, that is empty.
    Integers become float64 with NaN where they are missing, categories text.

    Parameters
    ----------
    path : str, path or sequence of these
        As for `read_csv`.
    label : bool or "auto"
        Whether rows begin with a label; ``"auto"``: as the first row does, which then has 40
        fields, and not 39.
    n_features : int, optional
        Hash the categories while they are read into one sparse column ``hashed`` of so many slots,
        as ``squall.FeatureHasher(n_features)`` would: the same slots without the texts, and in less
        time.  What is missing has a slot, too.  None: they stay text.
    errors : {"raise", "skip"}
        What to do about rows with another number of fields, text for an integer, or no label.
        Skipped ones are counted, and the first ten told.
    storage, run
        As for `read_csv`.

    Raises
    ------
    SettingError, DataError, StoreError
        As for `read_csv`.

    Warns
    -----
    UserWarning
        If rows were skipped.

    Notes
    -----
    Source of the format: Criteo Labs, Display Advertising Challenge, Kaggle, 2014.
    """
    _check_settings(path, label, n_features, errors)
    inputs = find_inputs(path)
    dialect = Dialect(header=False, delimiter=ord("\t"), missing=[b""], quote=0, is_fixed=True)
    has_label = len(read_names(inputs[0], dialect)) == len(_ROLES) + 1 if label == "auto" else label
    columns = [(LABEL, "label"), *_ROLES] if has_label else _ROLES
    form = CsvFormat(dialect, errors=errors, columns=columns, name="criteo", n_features=n_features or 0)
    return read_text(form, inputs, storage_of(storage, run), run)


def _check_settings(path: Any, label: Any, n_features: Any, errors: Any) -> None:
    problems = Problems("read_criteo")
    for problem in path_problems(path):
        problems.add(problem)
    if not isinstance(label, bool) and label != "auto":
        problems.add(f'label={label!r} is neither True, False nor "auto"')
    if n_features is not None:
        problems.integer("n_features", n_features, 1, high=2**31 - 1)
    problems.choice("errors", errors, ["raise", "skip"])
    problems.raise_if_any()
