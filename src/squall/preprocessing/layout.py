"""The feature layout: how typed columns share one index space, and rows in that space."""

from __future__ import annotations

import msgspec
import numpy as np

from squall._kernels import all_ones, csr_join
from squall.errors import DataError
from squall.records import (
    Block,
    Bytes,
    Column,
    ColumnSpec,
    CsrBlock,
    DenseBlock,
    DenseColumn,
    Float32,
    Float64,
    Int32,
    Int64,
    NumericColumn,
    RawBlock,
    SparseColumn,
)

_MAX_FEATURES = 2**31 - 1
_MAX_WEIGHT = 1e16
"""Optimisers add up squares of gradients, and those of rows of this weight still have room in float32."""


class FeatureLayout(msgspec.Struct, frozen=True):
    """Offsets of the columns in the feature space, in schema order.

    Rows are sparse as soon as one column is; columns of numbers then contribute those
    entries that are not zero.
    """

    columns: list[ColumnSpec]

    @staticmethod
    def of(columns: list[ColumnSpec]) -> FeatureLayout:
        """The layout of these columns.

        Raises
        ------
        DataError
            If a column is categorical (a model needs numbers) or the space is too wide.
        """
        text = [c.name for c in columns if c.kind == "categorical"]
        if text:
            names = ", ".join(map(repr, text[:5])) + (" …" if len(text) > 5 else "")
            raise DataError(
                f"a model needs numbers, and {len(text)} column(s) hold text: {names}",
                fix="put squall.FeatureHasher() before the model in squall.make_pipeline",
            )
        layout = FeatureLayout(columns)
        if not 0 < layout.n_features <= _MAX_FEATURES:
            raise DataError(
                f"the feature space has {layout.n_features:,} features; 1 to {_MAX_FEATURES:,} are possible",
                fix="hash to fewer features" if layout.n_features else "keep at least one feature column",
            )
        return layout

    @property
    def n_features(self) -> int:
        """Width of the feature space."""
        return sum(c.width for c in self.columns)

    @property
    def sparse(self) -> bool:
        """Whether rows are encoded as CSR."""
        return any(c.kind == "sparse" for c in self.columns)

    def encode(self, block: RawBlock) -> Block:
        """Rows as float32 in the feature space; ``labels`` are label codes, 0 without labels.

        Raises
        ------
        DataError
            If a value is missing, infinite or beyond float32, naming the column; or if a weight is
            beyond 1e16.
        """
        labels = (
            np.zeros(block.n_rows, dtype=np.float32)
            if block.labels is None
            else block.labels.astype(np.float32)
        )
        weights = None if block.weights is None else _narrow_weights(block.weights)
        columns = [self._column(block, spec) for spec in self.columns]
        if not self.sparse:
            self._check_finite(columns, block.n_rows)
            return DenseBlock(_dense(columns), labels, weights)
        parts = [_stored(c) if isinstance(c, SparseColumn) else _numbers(c) for c in columns]
        if len(parts) == 1 and isinstance(parts[0], tuple):
            self._check_finite(columns, block.n_rows)
            return CsrBlock(*parts[0][:3], labels, weights, self.n_features)
        indptr, indices, values, finite = csr_join(parts, block.n_rows)
        if not finite:
            self._check_finite(columns, block.n_rows)
        return CsrBlock(indptr, indices, values, labels, weights, self.n_features)

    def _column(self, block: RawBlock, spec: ColumnSpec) -> Column:
        column = block.columns.get(spec.name)
        if column is None:
            raise DataError("the data has no such column", where=f"column {spec.name!r}")
        return column

    def _check_finite(self, columns: list[Column], n_rows: int) -> None:
        for spec, column in zip(self.columns, columns, strict=True):
            _check_finite(spec, column, n_rows)


def _narrow_weights(weights: Float64) -> Float32:
    if (weights > _MAX_WEIGHT).any():
        raise DataError(
            f"the weight {weights.max():g} is beyond {_MAX_WEIGHT:g}, where gradients leave float32",
            where="sample_weight",
            fix="give weights around 1",
        )
    return weights.astype(np.float32)


def _check_finite(spec: ColumnSpec, column: Column, n_rows: int) -> None:
    values = getattr(column, "values", None)
    if values is None or values.dtype.kind != "f":
        return
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float32, copy=False)
    if np.isfinite(narrow).all():
        return
    bad = np.flatnonzero(~np.isfinite(narrow))
    missing = int(np.isnan(values).sum())
    what = f"{missing:,} missing value(s) (NaN)" if missing else f"the value {values.flat[bad[0]]:g}"
    where = f"column {spec.name!r}"
    filled = "fill these values (squall.Imputer() before the model)" if missing else "correct these values"
    fix = f"{filled} or drop their rows"
    if isinstance(column, NumericColumn):
        other = f"categorical=[{spec.name!r}], where missing is a category of its own"
        fix += f", or read the column with {other}" if missing else ""
    else:
        feature = column.indices[bad[0]] if isinstance(column, SparseColumn) else bad[0] % spec.width
        where += f", feature {int(feature)}"
    raise DataError(
        f"{what} in the first {n_rows:,} rows looked at; a model needs finite float32 numbers",
        where=where,
        fix=fix,
    )


def _dense(columns: list[Column]) -> Float32:
    """Consecutive columns of numbers as one matrix."""
    matrices = [
        c.values[:, None] if isinstance(c, NumericColumn) else c.values
        for c in columns
        if isinstance(c, (NumericColumn, DenseColumn))
    ]
    if len(matrices) == 1:
        return np.ascontiguousarray(matrices[0], dtype=np.float32)
    return np.concatenate(matrices, axis=1, dtype=np.float32, casting="same_kind")


def _numbers(column: Column) -> Float32 | Float64 | Int64 | Bytes:
    assert isinstance(column, (NumericColumn, DenseColumn))
    return column.values


def _stored(column: SparseColumn) -> tuple[Int64, Int32, Float32 | None, int]:
    values = column.values
    if values is not None:
        # Ones need not be stored, and hashed or one-hot data is nothing else.
        with np.errstate(over="ignore"):  # which is found out later
            values = None if all_ones(values) else values.astype(np.float32, copy=False)
    return column.indptr, column.indices, values, column.width
