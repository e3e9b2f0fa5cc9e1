"""What a training begins with, if not with nothing: a fitted model, or what other rows have settled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from squall.data.starting import Beginning
from squall.errors import DataError
from squall.estimators.targets import Target
from squall.protocols import Model
from squall.records import ColumnSpec, OptimizerSpec


@dataclass(frozen=True)
class Predecessor:
    """A fitted model with whose weights a training begins.

    ``begin`` gives them for labels as a target has them, in a model's table, and, where that goes on, what
    the optimiser knows.
    ``check_columns`` raises `DataError` if it cannot begin on such columns, of which a target has features.
    """

    begin: Callable[[Target, Model, OptimizerSpec], Beginning]
    check_columns: Callable[[list[ColumnSpec], Target], None]


def check_same_columns(columns: list[ColumnSpec], fitted: list[ColumnSpec], name: str) -> None:
    """Refuse others than those that the model ``name`` was fitted on.

    Raises
    ------
    DataError
        If they are others, or in another order.
    """
    if _told(columns) == _told(fitted):
        return
    n, expected = (sum(c.width for c in specs) for specs in (columns, fitted))
    if n != expected:
        what = f"X has {n} features, but {name} is expecting {expected} features as input"
    else:
        what = f"its columns are {_named(columns)}, and {name} was fitted on {_named(fitted)}"
    raise DataError(
        what, where="X", fix="give the same columns in the same order, or begin anew with a clone"
    )


def _told(columns: list[ColumnSpec]) -> list[tuple[str, str, int]]:
    alike = {"int64": "number", "float64": "number", "dense": "matrix", "sparse": "matrix"}
    return [(c.name, alike.get(c.kind, c.kind), c.width) for c in columns]


def _named(columns: list[ColumnSpec]) -> str:
    return ", ".join(repr(c.name) for c in columns[:5]) + (" …" if len(columns) > 5 else "")


@dataclass(frozen=True)
class Part:
    """One epoch of a model that is fitted in parts: the ``number``-th, from 0.

    ``learning_rate`` is that of the calls before, where it was chosen by the first of them.
    """

    predecessor: Predecessor | None
    target: Target
    learning_rate: float | None
    number: int
