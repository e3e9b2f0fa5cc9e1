"""Saving and loading fitted models: one safetensors file, plain data, no pickle.

The file's tensors are the model's parameters and the optimiser's state; its metadata holds, as JSON,
the estimator's settings, the columns it was fitted on, the label map and the fitted transforms, and
the checksum of the whole file, taken with zeros in its own place.
"""

from __future__ import annotations

import math
import os
import re
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load
from safetensors.numpy import save as to_bytes

from squall._kernels import checksum
from squall.errors import CorruptError, SettingError, SquallError
from squall.estimators.base import BaseModel
from squall.estimators.continuing import ContinuingModel, OptimizerState
from squall.estimators.encoders import FeatureHasher, OneHotEncoder, QuantileBinner
from squall.estimators.history import History
from squall.estimators.imputer import Imputer
from squall.estimators.pipeline import Pipeline
from squall.estimators.plain import Step, describe_step, steps_of
from squall.estimators.scalers import MaxAbsScaler, MinMaxScaler, StandardScaler, TfidfTransformer
from squall.estimators.transformers import BaseTransformer
from squall.paths import user_path
from squall.preprocessing.transforms import transform_from_dict
from squall.registry import ESTIMATORS
from squall.worker.strategies import strategy_from_dict

FORMAT_VERSION = 2
_SEAL = re.compile(rb'\\"checksum\\":\\"([0-9a-f]{32})\\"')  # in a JSON text that JSON holds as text
_BLANK = "0" * 32
_TRANSFORMERS: dict[str, type[BaseTransformer]] = {
    cls.__name__: cls
    for cls in (
        FeatureHasher,
        Imputer,
        MaxAbsScaler,
        MinMaxScaler,
        OneHotEncoder,
        QuantileBinner,
        StandardScaler,
        TfidfTransformer,
    )
}


class _Header(msgspec.Struct):
    metadata: dict[str, str] = msgspec.field(name="__metadata__", default_factory=dict)


class _Version(msgspec.Struct):
    format_version: int


class _File(msgspec.Struct):
    format_version: int
    pipeline: bool
    steps: list[Step]
    checksum: str = _BLANK


def save(model: Any, path: str | os.PathLike[str]) -> Path:
    """Write a fitted model or pipeline to one file, atomically.

    Parameters
    ----------
    model : fitted estimator or pipeline of Squall
    path : str or path

    Returns
    -------
    Path
        Where it is.

    Raises
    ------
    SettingError
        If the model is not fitted or not one of Squall's, or a setting is no plain data.
    SquallError
        If the file cannot be written; a file that was there is untouched.
    """
    steps = steps_of(model)
    final = steps[-1][1]
    if not isinstance(final, BaseModel) or not hasattr(final, "columns_in_"):
        raise SettingError(
            f"{type(model).__name__} is not a fitted model of Squall",
            where="save",
            fix="call fit first, and save what squall.make_pipeline or a Squall estimator gave",
        )
    description = _File(FORMAT_VERSION, isinstance(model, Pipeline), [_described(n, s) for n, s in steps])
    tensors = {name: np.asarray(tensor, order="C") for name, tensor in _tensors_of(final).items()}
    data = _sealed(to_bytes(tensors, metadata={"squall": msgspec.json.encode(description).decode()}))
    target = user_path(path)
    check_target(target)
    try:
        _write_atomically(target, data)
    except OSError as error:
        raise SquallError(
            f"the model cannot be written: {error.strerror or error}",
            where=str(target),
            fix="choose a folder that exists, can be written to and has space",
        ) from error
    return target


def load_model(path: str | os.PathLike[str]) -> Any:
    """Read what :func:`save` wrote.

    Raises
    ------
    CorruptError
        If the file is damaged, or of an unknown format version.
    SquallError
        If it cannot be read.
    """
    source = user_path(path)
    try:
        if source.exists() and not (source.is_file() or source.is_dir()):
            raise OSError("it is a device or a pipe")
        data = source.read_bytes()
    except OSError as error:
        raise SquallError(
            f"the model cannot be read: {error.strerror or error}", where=str(source), fix="check the path"
        ) from error
    try:
        description = _description(data)
        _check_seal(data)
        tensors = load(data)
        steps = [(step.name, _rebuilt(step, tensors)) for step in description.steps]
        if not steps or not isinstance(steps[-1][1], BaseModel):
            raise ValueError("it does not end with a model")
    except (
        SafetensorError,
        msgspec.MsgspecError,
        LookupError,
        ValueError,
        TypeError,
        RecursionError,
    ) as error:
        reason = error.what if isinstance(error, SquallError) else error
        raise CorruptError(
            f"not a model file that this version of Squall can read: {reason}",
            where=str(source),
            fix="give a file written by squall.save",
        ) from error
    return Pipeline(steps) if description.pipeline else steps[-1][1]


def _described(name: str, step: Any) -> Step:
    described = describe_step(name, step)
    if isinstance(step, BaseModel):
        described.columns = step.columns_in_
        described.classes = step._labels()
        described.history, described.bill, described.stopped = step.history_, step.bill_, step.stopped_
        described.learning_rate, described.batch_size = step.learning_rate_, step.batch_size_
        state = _state_of(step)
        described.optimizer = None if state is None else state.optimizer
    return described


def _state_of(model: Any) -> OptimizerState | None:
    """What is to be kept of the optimiser's state; plain descent has none."""
    state = model._optimizer_state if isinstance(model, ContinuingModel) else None
    return state if state is not None and state.values.size else None


def _tensors_of(model: BaseModel) -> dict[str, np.ndarray[Any, Any]]:
    state = _state_of(model)
    return model._tensors() | ({} if state is None else state.tensors())


def check_target(target: Path) -> None:
    """Whether a file could be written there, before work is done for it.

    Raises
    ------
    SquallError
        If it is a folder or a device, or its folder is missing or may not be written to.
    """
    fix = "choose a file in a folder that exists and can be written to"
    try:
        if not target.name or (target.exists() and not target.is_file()):
            raise SquallError(
                "it cannot be written: it is a directory or a device", where=str(target), fix=fix
            )
        with tempfile.TemporaryFile(dir=target.parent):
            return
    except (OSError, ValueError) as error:
        told = getattr(error, "strerror", None) or str(error)
        raise SquallError(f"it cannot be written: {told}", where=str(target), fix=fix) from error


def _write_atomically(target: Path, data: bytes) -> None:
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o666 & ~_umask())
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _sealed(blank: bytes) -> bytes:
    """The file with its checksum filled in."""
    start, stop = _seal(blank)
    return blank[:start] + checksum(blank).encode() + blank[stop:]


def _check_seal(data: bytes) -> None:
    start, stop = _seal(data)
    if checksum(data[:start] + _BLANK.encode() + data[stop:]).encode() != data[start:stop]:
        raise ValueError("it is damaged: its checksum is another")


def _seal(data: bytes) -> tuple[int, int]:
    """Where the checksum stands.  Nothing before it looks alike: text in that JSON is escaped twice."""
    found = _SEAL.search(data)
    if found is None:
        raise ValueError("its checksum is missing")
    return found.span(1)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _description(data: bytes) -> _File:
    length = int.from_bytes(data[:8], "little")
    if not 0 < length <= len(data) - 8:
        raise ValueError("the header is cut off")
    header = msgspec.json.decode(data[8 : 8 + length], type=_Header)
    text = header.metadata.get("squall")
    if text is None:
        raise ValueError("it is a safetensors file, but not one of Squall's")
    version = msgspec.json.decode(text, type=_Version).format_version
    if version != FORMAT_VERSION:
        raise ValueError(f"format version {version}; this version reads {FORMAT_VERSION}")
    plain = msgspec.json.decode(text)
    for step in plain["steps"]:
        for epoch in step["history"]:  # JSON has no NaN: what is no number there was none here
            epoch["loss"] = math.nan if epoch["loss"] is None else epoch["loss"]
    return msgspec.convert(plain, _File, str_keys=True)


def rebuild_step(step: Step) -> Any:
    """A fitted transformer, or a model with its settings."""
    if step.transform is not None:
        transformer = _TRANSFORMERS[step.kind](**_tuples(step.params))
        transformer.transform_ = transform_from_dict(step.transform)
        transformer.columns_in_ = step.columns
        return transformer
    params = dict(step.params)
    if params.get("class_weight") is not None and not isinstance(params["class_weight"], str):
        params["class_weight"] = dict(params["class_weight"]["pairs"])
    if params.get("strategy") is not None:
        params["strategy"] = strategy_from_dict(params["strategy"])
    return ESTIMATORS.load(step.kind)(**params)


def _rebuilt(step: Step, tensors: dict[str, Any]) -> Any:
    model = rebuild_step(step)
    if not isinstance(model, BaseModel):
        return model
    model.columns_in_ = step.columns
    model._restore(tensors, step.classes)
    if step.optimizer is not None and isinstance(model, ContinuingModel):
        rows = model.n_features_in_ + 1
        model._optimizer_state = OptimizerState.from_tensors(step.optimizer, tensors, rows)
    model.history_, model.n_iter_, model.stopped_ = History(step.history), len(step.history), step.stopped
    model.learning_rate_, model.batch_size_ = step.learning_rate, step.batch_size
    solver = step.history[-1].solver if step.history else None
    if solver is not None:
        model.converged_ = solver.converged
    if step.bill is None:
        raise ValueError("the bill is missing")
    model.bill_, model.cost_usd_ = step.bill, step.bill.total_usd
    return model


def _tuples(params: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in params.items()}
