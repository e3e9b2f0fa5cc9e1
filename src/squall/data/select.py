"""Choosing columns, as a transform."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from squall.records import ColumnSpec, RawBlock


@dataclass(frozen=True, slots=True)
class Select:
    """The transform behind `Dataset.select`."""

    names: tuple[str, ...]

    def apply(self, block: RawBlock) -> RawBlock:
        """The chosen columns, in that order."""
        columns = {name: block.columns[name] for name in self.names}
        return RawBlock(block.n_rows, columns, block.labels, block.weights, block.qid)

    def schema(self, columns: list[ColumnSpec]) -> list[ColumnSpec]:
        """Theirs."""
        by_name = {spec.name: spec for spec in columns}
        return [by_name[name] for name in self.names]

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"names": list(self.names)}
