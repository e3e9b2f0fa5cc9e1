"""A whole data set in memory, as arrays or as a DataFrame."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from squall.data.rows import merge_text_columns
from squall.errors import DataError, MissingExtraError
from squall.records import CategoricalColumn, Column, ColumnSpec, DenseColumn, RawBlock, SparseColumn

if TYPE_CHECKING:
    import pandas as pd

    from squall.data.dataset import Dataset
    from squall.data.view import View

Array = npt.NDArray[Any]


def to_arrays(data: Dataset) -> tuple[Any, Array | None]:
    """``(X, y)``; see `Dataset.to_arrays`."""
    build = _builder(data)
    parts: list[Any] = []
    codes: list[Array] = []
    for block in data.blocks():
        parts.append(build(block))
        if block.labels is not None:
            codes.append(block.labels)
    width = sum(spec.width for spec in data.columns)
    return _stack(parts, width, build is _sparse), _labels(data, codes)


def block_arrays(data: View, block: RawBlock) -> tuple[Any, Array | None]:
    """``(X, y)`` of one block of a data set; see `Dataset.to_arrays`."""
    return _builder(data)(block), _labels(data, [] if block.labels is None else [block.labels])


def _builder(data: View) -> Callable[[RawBlock], Any]:
    kinds = {spec.kind for spec in data.columns}
    if {"sparse", "categorical"} <= kinds:
        raise DataError(
            "columns of text beside sparse columns have no common array",
            fix="hash or one-hot encode the text columns, or select() one sort of columns",
        )
    return _sparse if "sparse" in kinds else _objects if "categorical" in kinds else _dense


def _labels(data: View, codes: list[Array]) -> Array | None:
    if data.classes is None:
        return None if data.label is None else np.concatenate([np.zeros(0), *codes])
    labels: Array = data.classes[np.concatenate([np.zeros(0, np.int32), *codes])]
    return labels


def _stack(parts: list[Any], width: int, sparse: bool) -> Any:
    if sparse:
        from scipy import sparse as sp

        return sp.vstack(parts, format="csr") if parts else sp.csr_array((0, width))
    return np.concatenate(parts) if parts else np.zeros((0, width))


def _dense(block: RawBlock) -> npt.NDArray[np.float64]:
    parts = [_as_float(name, column) for name, column in block.columns.items()]
    return np.concatenate(parts, axis=1) if parts else np.zeros((block.n_rows, 0))


def _as_float(name: str, column: Column) -> npt.NDArray[np.float64]:
    values: Any = column.values if not isinstance(column, CategoricalColumn) else column.codes
    as_float: npt.NDArray[np.float64] = np.asarray(values, dtype=np.float64).reshape(len(values), -1)
    if values.dtype == np.int64 and np.any(np.abs(as_float) >= 2.0**53):
        raise DataError(
            f"column {name!r} holds integers beyond 2**53, which float64 would round",
            fix="use to_pandas(), which keeps them, or select() the other columns",
        )
    return as_float


def _sparse(block: RawBlock) -> Any:
    from scipy import sparse as sp

    parts = [
        _csr(block.n_rows, column)
        if isinstance(column, SparseColumn)
        else sp.csr_array(_as_float(name, column))
        for name, column in block.columns.items()
    ]
    return sp.hstack(parts, format="csr")


def _csr(n_rows: int, column: SparseColumn) -> Any:
    from scipy import sparse as sp

    values = np.ones(len(column.indices)) if column.values is None else column.values.astype(np.float64)
    return sp.csr_array((values, column.indices, column.indptr), shape=(n_rows, column.width))


def _objects(block: RawBlock) -> npt.NDArray[np.object_]:
    width = sum(c.values.shape[1] if isinstance(c, DenseColumn) else 1 for c in block.columns.values())
    table = np.empty((block.n_rows, width), dtype=object)
    at = 0
    for column in block.columns.values():
        if isinstance(column, CategoricalColumn):
            cells: Any = _texts(column).reshape(-1, 1)
        else:
            assert not isinstance(column, SparseColumn)  # to_arrays has refused it
            cells = column.values.reshape(block.n_rows, -1)
        table[:, at : at + cells.shape[1]] = cells
        at += cells.shape[1]
    return table


def _texts(column: CategoricalColumn) -> npt.NDArray[np.object_]:
    strings = np.array([*column.strings(), None], dtype=object)
    return strings[column.codes]  # code −1 finds the None at the end


def to_pandas(data: Dataset) -> pd.DataFrame:
    """A DataFrame; see `Dataset.to_pandas`."""
    try:
        import pandas as pd
    except ImportError as error:
        raise MissingExtraError("pandas is not installed", fix="pip install 'squall[pandas]'") from error
    if any(spec.kind == "sparse" for spec in data.columns):
        raise DataError(
            "sparse columns do not fit a DataFrame", fix="use to_arrays(), which gives a CSR array"
        )
    blocks = list(data.blocks())
    series: dict[str, Any] = {}
    for spec in data.columns:
        columns = [block.columns[spec.name] for block in blocks]
        if spec.kind == "categorical":
            codes, strings = merge_text_columns([c for c in columns if isinstance(c, CategoricalColumn)])
            categories = np.array(strings, dtype=object)
            series[spec.name] = pd.Categorical.from_codes(codes, categories=categories)
            continue
        values = _joined([c for c in columns if not isinstance(c, CategoricalColumn)], spec)
        if spec.kind == "dense":
            series |= {f"{spec.name}_{i}": values[:, i] for i in range(spec.width)}
        else:
            series[spec.name] = values
    labels = _labels(data, [block.labels for block in blocks if block.labels is not None])
    if labels is not None:
        series[data.label or "label"] = labels
    return pd.DataFrame(series, index=pd.RangeIndex(data.n_rows))


def _joined(columns: list[Any], spec: ColumnSpec) -> Array:
    if not columns:
        shape = (0, spec.width) if spec.kind == "dense" else (0,)
        return np.zeros(shape, dtype=np.int64 if spec.kind == "int64" else np.float64)
    return np.concatenate([column.values for column in columns])
