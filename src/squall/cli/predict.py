"""``squall predict``: a saved model and data in, a prediction for each row out."""

from __future__ import annotations

import contextlib
import csv
import io
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO

import squall
from squall.cli.documents import read_documents
from squall.cli.ingest import FORMATS_OF_TABLES, format_by_name, is_stored, open_given, read_given
from squall.cli.show import console
from squall.data.dataset import Dataset
from squall.errors import DataError, SettingError, SquallError
from squall.estimators.persistence import check_target
from squall.paths import user_path


def run_predict(
    model_path: Path,
    data: str,
    *,
    out: Path | None,
    delimiter: str | None,
    header: bool | None,
    storage: str | None,
) -> None:
    """Write one line a row: of a classifier the label and probabilities, of others what they say."""
    model = squall.load(model_path)
    given = {"delimiter": delimiter, "header": header}
    _write_all(model, _open(model, data, given, storage), out)


def _open(model: Any, data: str, given: dict[str, Any], storage: str | None) -> Dataset:
    if isinstance(model, squall.LatentDirichletAllocation):
        if typed := [f"--{name}" for name, value in given.items() if value is not None]:
            raise SettingError(
                f"{', '.join(typed)}: documents have no columns", where="squall predict", fix="leave it out"
            )
        return read_documents(data, model.words_, storage)
    if is_stored(data):
        return open_given(data, **given)
    if isinstance(model, squall.MatrixFactorization):
        separator = "auto" if given["delimiter"] is None else given["delimiter"].replace("\\t", "\t")
        header: Any = "auto" if given["header"] is None else given["header"]
        return squall.read_ratings(data, separator=separator, header=header, storage=storage)
    form = format_by_name(data)
    if form in FORMATS_OF_TABLES and form not in ("csv", "tsv"):
        wider = {"n_features": model.n_features_in_} if form == "libsvm" else {}
        return read_given(data, form, "squall predict", **given, storage=storage, **wider)
    columns = (model.steps[0][1] if isinstance(model, squall.Pipeline) else model).columns_in_
    text = [c.name for c in columns if c.kind == "categorical"]
    delimiter = (given["delimiter"] or "auto").replace("\\t", "\t")
    return _read(data, text, header=given["header"] is not False, delimiter=delimiter, storage=storage)


def _write_all(model: Any, data: Dataset, out: Path | None) -> None:
    if out is None:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8")  # as the files that we write, on any terminal
        _write(sys.stdout, model, data)
        return
    target = user_path(out)
    check_target(target)
    partial = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with partial.open("w", newline="", encoding="utf-8") as file:
            _write(file, model, data)
        partial.replace(target)
    except OSError as error:
        raise SquallError(
            f"predictions cannot be written: {error.strerror or error}",
            where=str(target),
            fix="choose a folder that exists, can be written to and has space",
        ) from error
    finally:
        with contextlib.suppress(OSError):  # what went wrong before says more
            partial.unlink()
    console.print(f"{data.n_rows:,} predictions written to {target}")


def _read(path: str, text: list[str], **settings: Any) -> Dataset:
    """The file, with the columns that were text in training read as text."""
    try:
        return squall.read_csv(path, categorical=text, **settings)
    except DataError as error:
        if not error.what.startswith("categorical:"):
            raise
        # One of them is not there; the model says so better, and names what is like it.
        return squall.read_csv(path, **settings)


def _write(file: TextIO, model: Any, data: Dataset) -> None:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerows(_lines(model, data))


def _lines(model: Any, data: Dataset) -> Iterator[Iterable[Any]]:
    """The names of what is predicted, then a line a row."""
    if hasattr(model, "predict_proba"):
        yield from _of_classes(model.classes_, model.predict_proba(data))
    elif hasattr(model, "predict"):
        yield ["prediction"]
        yield from ([f"{value:.8g}"] for value in model.predict(data).tolist())
    else:  # topics, say
        shares = model.transform(data)
        yield [f"topic {number}" for number in range(shares.shape[1])]
        yield from ([f"{share:.6g}" for share in row] for row in shares.tolist())


def _of_classes(classes: Any, probabilities: Any) -> Iterator[Iterable[Any]]:
    labels = classes[probabilities.argmax(axis=1)].tolist()
    shown = range(len(classes)) if len(classes) > 2 else [1]
    yield ["prediction", *(f"probability of {classes[code]}" for code in shown)]
    for label, row in zip(labels, probabilities[:, shown].tolist(), strict=True):
        yield [label, *(f"{probability:.6g}" for probability in row)]
