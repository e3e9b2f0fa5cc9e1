"""Estimators as plain data: their settings, and what transformers have learned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
from sklearn.pipeline import Pipeline

from squall.config import is_integer, is_number
from squall.errors import SettingError
from squall.estimators.transformers import BaseTransformer
from squall.records import Bill, ColumnSpec, HistoryRecord, OptimizerSpec
from squall.worker.strategies import is_strategy

Label = str | int | float | bool


class Step(msgspec.Struct):
    """One step of a pipeline; what a model has learned is filled in once it is fitted."""

    name: str
    kind: str
    params: dict[str, Any]
    columns: list[ColumnSpec] = []
    transform: dict[str, Any] | None = None
    classes: list[Label] | None = None
    history: list[HistoryRecord] = []
    bill: Bill | None = None
    stopped: str = ""
    learning_rate: float | None = None
    batch_size: int | None = None
    optimizer: OptimizerSpec | None = None  # whose state is kept, too


class Fitting(msgspec.Struct):
    """A model in the middle of its fit: fitted transformers, and what the model will be trained on."""

    pipeline: bool
    steps: list[Step]
    columns: list[ColumnSpec]
    classes: list[Label]


def describe_fitting(whole: Any, columns: list[ColumnSpec], classes: np.ndarray[Any, Any]) -> Any:
    """The plain data of a model or pipeline whose transformers are fitted.

    None if a setting is no plain data: then the job cannot be gone on with by another process.
    """
    try:
        steps = [describe_step(name, step) for name, step in steps_of(whole)]
    except SettingError:
        return None
    return msgspec.to_builtins(Fitting(isinstance(whole, Pipeline), steps, columns, classes.tolist()))


def steps_of(whole: Any) -> list[tuple[str, Any]]:
    """The steps of a pipeline; a model is one step."""
    return list(whole.steps) if isinstance(whole, Pipeline) else [("model", whole)]


_NOT_KEPT = ("callbacks",)
"""Settings that belong to the process that calls fit: a loaded model has their defaults."""


def describe_step(name: str, step: Any) -> Step:
    """A step's settings, and what a transformer has learned.

    Raises
    ------
    SettingError
        If a setting is no plain data.
    """
    kind = type(step).__name__
    params = {
        key: _plain(f"{kind}.{key}", value)
        for key, value in step.get_params(deep=False).items()
        if key not in _NOT_KEPT
    }
    described = Step(name, kind, params)
    if isinstance(step, BaseTransformer):
        described.columns = step.columns_in_
        described.transform = step.transform_.to_dict()
    return described


def _plain(setting: str, value: Any) -> Any:
    """The setting as JSON can hold it: NumPy's numbers, and fractions, as the numbers that fit used."""
    if isinstance(value, (tuple, list)):
        return [_plain(setting, item) for item in value]
    if isinstance(value, Mapping):  # by label, which JSON would make text
        return {"pairs": [[_plain(setting, key), _plain(setting, item)] for key, item in value.items()]}
    if is_strategy(value):
        return msgspec.to_builtins(value)
    if value is None or isinstance(value, str):
        return None if value is None else str(value)
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if is_integer(value):
        return int(value)
    if is_number(value):
        return float(value)
    raise SettingError(
        f"{setting}={value!r} is not plain data, and so cannot be saved",
        where="save",
        fix="give a finite number, text, True, False or None",
    )
