"""Ids of users and items: numbers or text, each with a code from 0 on."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from squall.errors import DataError
from squall.records import (
    Bytes,
    CategoricalColumn,
    Column,
    ColumnSpec,
    DenseColumn,
    Int32,
    Int64,
    NumericColumn,
    RawBlock,
    SparseColumn,
)

Values = npt.NDArray[Any]


class Ids:
    """Different ids in the order of their codes; a number and its text, such as 7 and "7", are the same.

    Parameters
    ----------
    values : sequence of int or of str
    """

    def __init__(self, values: list[int] | list[str] | None = None) -> None:
        self._codes: dict[Any, int] = dict(zip(values or [], range(len(values or [])), strict=True))
        self._table: tuple[Bytes, Int32] | None = None  # of the dictionary seen last

    def __len__(self) -> int:
        return len(self._codes)

    @property
    def are_text(self) -> bool:
        """Whether they are text, not numbers."""
        return isinstance(next(iter(self._codes), 0), str)

    @property
    def values(self) -> Values:
        """The ids by code: int64, or objects that are text."""
        return np.array(list(self._codes), dtype=object if self.are_text else np.int64)

    def copy(self) -> Ids:
        """The same ids, to learn more."""
        more = Ids()
        more._codes = dict(self._codes)
        return more

    def learn(self, column: Column, where: str) -> Int32:
        """Codes of a column of ids; those not yet known get the next ones.

        Raises
        ------
        DataError
            If one is missing, or is neither text nor a whole number; or text where known ones are numbers.
        """
        if isinstance(column, CategoricalColumn):
            if len(column.codes) and column.codes.min() < 0:
                raise _missing(where)
            used = np.unique(column.codes)
            strings = column.strings()
            table = np.full(len(strings), -1, dtype=np.int32)
            table[used] = self._learned([strings[i] for i in used.tolist()], where)
            return table[column.codes]
        numbers = _whole_numbers(column, where)
        unique, inverse = np.unique(numbers, return_inverse=True)
        return np.array(self._learned(unique.tolist(), where), dtype=np.int32)[inverse]

    def _learned(self, values: list[Any], where: str) -> list[int]:
        if self._codes:
            as_known = _as_text if self.are_text else _as_number
            values = [as_known(value) for value in values]
            if None in values:
                raise DataError(
                    "an id is text that is no number, and the ids known so far are numbers",
                    where=where,
                    fix="give ids of one kind: read or convert all of them as text from the first fit on",
                )
        return [self._codes.setdefault(value, len(self._codes)) for value in values]

    def codes(self, column: Column) -> Int32:
        """Codes of a column of ids; −1 for those that are missing or not known."""
        if isinstance(column, CategoricalColumn):
            if self._table is None or self._table[0] is not column.data:
                strings = column.strings()
                self._table = column.data, np.array([*self._find(strings), -1], dtype=np.int32)
            return self._table[1][column.codes]
        values: Any = column.values
        unique, inverse = np.unique(values, return_inverse=True)
        found = self._find([_as_whole(value) for value in unique.tolist()])
        return np.array(found, dtype=np.int32)[inverse] if len(unique) else np.empty(0, dtype=np.int32)

    def codes_of(self, ids: Any) -> Int32:
        """The same for ids in an array or list: (n,)."""
        values = np.asarray(ids).ravel().tolist()
        return np.array(self._find([_as_whole(value) for value in values]), dtype=np.int32)

    def _find(self, values: list[Any]) -> list[int]:
        as_known = _as_text if self.are_text else _as_number
        return [self._codes.get(as_known(value), -1) for value in values]

    def tensors(self, name: str) -> dict[str, Values]:
        """The ids as arrays of numbers."""
        values = self.values
        if not self.are_text:
            return {f"{name}_ids": values}
        column = CategoricalColumn.from_strings(np.empty(0, dtype=np.int32), values.tolist())
        return {f"{name}_id_offsets": column.offsets, f"{name}_id_text": column.data}

    @staticmethod
    def from_tensors(name: str, tensors: dict[str, Values]) -> Ids:
        """What `tensors` gave."""
        if f"{name}_ids" in tensors:
            return Ids(tensors[f"{name}_ids"].tolist())
        offsets, data = tensors[f"{name}_id_offsets"], tensors[f"{name}_id_text"]
        return Ids(CategoricalColumn(np.empty(0, dtype=np.int32), offsets, data).strings())


def _as_whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else str(value)


def _as_number(value: Any) -> Any:
    if isinstance(value, str):
        digits = value.removeprefix("-")
        return int(value) if digits.isdecimal() and str(int(value)) == value else None
    return value


def _missing(where: str) -> DataError:
    return DataError("an id is missing", where=where, fix="drop these rows, or give them an id")


def _whole_numbers(column: Column, where: str) -> Int64:
    values: Any = getattr(column, "values", None)
    if isinstance(column, SparseColumn) or values is None or values.ndim != 1:
        raise DataError("a sparse or wide column holds no ids", where=where, fix="give one id a rating")
    if values.dtype.kind == "f":
        if np.isnan(values).any():
            raise _missing(where)
        if not np.all(np.abs(values) < 2.0**53) or np.any(values != np.rint(values)):
            raise DataError(
                "an id is a number with a fraction, or beyond 2**53",
                where=where,
                fix="give ids as integers or as text",
            )
    return values.astype(np.int64)  # type: ignore[no-any-return]


# ------------------------------------------------------------------------------- rows of ratings


def id_columns(columns: list[ColumnSpec]) -> tuple[ColumnSpec, ColumnSpec]:
    """Which columns hold users and items: those of these names, or else the only two there are.

    A matrix of two columns is given twice.

    Raises
    ------
    DataError
        If there are no such columns.
    """
    by_name = {spec.name: spec for spec in columns}
    if "user" in by_name and "item" in by_name:
        return by_name["user"], by_name["item"]
    if len(columns) == 2 and all(spec.width == 1 for spec in columns):
        return columns[0], columns[1]
    if len(columns) == 1 and columns[0].kind == "dense" and columns[0].width == 2:
        return columns[0], columns[0]
    names = ", ".join(repr(spec.name) for spec in columns[:5])
    raise DataError(
        f"there are no columns of users and items; the columns are {names}",
        fix="read ratings with squall.read_ratings, or give X of two columns: users and items",
    )


def id_pair(block: RawBlock) -> tuple[Column, Column]:
    """A block's columns of users and items; see `id_columns`."""
    columns = list(block.columns.values())
    if "user" in block.columns and "item" in block.columns:
        return block.columns["user"], block.columns["item"]
    if len(columns) == 1 and isinstance(columns[0], DenseColumn):
        values = columns[0].values
        return tuple(NumericColumn(values[:, i].astype(np.float64)) for i in (0, 1))  # type: ignore[return-value]
    return columns[0], columns[1]


class IdTransform:
    """Ratings as sparse rows of a user's code and ``n_users`` + an item's; an unknown id has no entry."""

    def __init__(self, users: Ids, items: Ids) -> None:
        self._users, self._items = users, items

    def apply(self, block: RawBlock) -> RawBlock:
        """See :class:`squall.protocols.BlockTransform`."""
        users, items = id_pair(block)
        codes = np.stack([self._users.codes(users), self._items.codes(items)], axis=1)
        column = pair_column(codes, len(self._users), len(self._items))
        return RawBlock(block.n_rows, {"ratings": column}, block.labels, block.weights)

    def schema(self, columns: list[ColumnSpec]) -> list[ColumnSpec]:
        """See :class:`squall.protocols.BlockTransform`."""
        id_columns(columns)
        return [ColumnSpec("ratings", "sparse", len(self._users) + len(self._items))]

    def to_dict(self) -> dict[str, Any]:
        """See :class:`squall.protocols.BlockTransform`."""
        ids = {"users": self._users.values.tolist(), "items": self._items.values.tolist()}
        return {"type": "ids", **ids}


def pair_column(codes: Int32, n_users: int, n_items: int) -> SparseColumn:
    """Rows of codes (n, 2), −1 where there is none, in the space of users and then items."""
    known = codes >= 0
    indptr = np.append(0, np.cumsum(known.sum(axis=1))).astype(np.int64)
    indices = (codes + np.array([0, n_users], dtype=np.int32))[known].astype(np.int32)
    return SparseColumn(indptr, indices, None, n_users + n_items)
