"""``squall predict``: a saved model and a file in, a prediction for each row out."""

from __future__ import annotations

import contextlib
import csv
import io
import os
import sys
from pathlib import Path
from typing import Any, TextIO

import squall
from squall.cli.show import console
from squall.data.dataset import Dataset
from squall.errors import DataError, SquallError
from squall.estimators.persistence import check_target
from squall.paths import user_path


def run_predict(
    model_path: Path, data_path: Path, *, out: Path | None, delimiter: str, header: bool, storage: str | None
) -> None:
    """Write one line a row: the label, and the probability of the second class, or of each of several."""
    model = squall.load(model_path)
    columns = (model.steps[0][1] if isinstance(model, squall.Pipeline) else model).columns_in_
    text = [c.name for c in columns if c.kind == "categorical"]
    data = _read(data_path, text, header=header, delimiter=delimiter.replace("\\t", "\t"), storage=storage)
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


def _read(path: Path, text: list[str], **settings: Any) -> Dataset:
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
    classes, probabilities = model.classes_, model.predict_proba(data)
    labels = classes[probabilities.argmax(axis=1)].tolist()
    shown = range(len(classes)) if len(classes) > 2 else [1]
    writer.writerow(["prediction", *(f"probability of {classes[code]}" for code in shown)])
    writer.writerows(
        (label, *(f"{probability:.6g}" for probability in row))
        for label, row in zip(labels, probabilities[:, shown].tolist(), strict=True)
    )
