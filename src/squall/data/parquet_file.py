"""Single Parquet files: opened, looked at, and read batch by batch, with errors that name them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from squall.data.arrow import pyarrow
from squall.data.inputs import Input, Seen, seekable, unseen
from squall.data.text import checked_names
from squall.errors import DataError

_BUFFER_BYTES = 1 << 20  # read ahead, of each column


@contextmanager
def opened(found: Input, text: list[str] | None = None, seen: Seen = unseen) -> Iterator[Any]:
    """The file as pyarrow's ``ParquetFile``; columns ``text`` come as dictionaries.

    Raises
    ------
    DataError
        If it is none.
    """
    pa = pyarrow("read_parquet")
    import pyarrow.parquet as pq

    with seekable(found, seen) as raw:
        try:
            file = pq.ParquetFile(
                raw,
                buffer_size=_BUFFER_BYTES,
                pre_buffer=False,
                read_dictionary=text or None,
                page_checksum_verification=True,
            )
        except (pa.ArrowException, OSError) as error:
            raise _damaged(found, error) from error
        yield file


def batches_of(found: Input, batches: Iterator[Any]) -> Iterator[Any]:
    """Those batches that hold rows.

    Raises
    ------
    DataError
        If the file turns out to be damaged.
    """
    pa = pyarrow("read_parquet")
    while True:
        try:
            batch = next(batches, None)
        except (pa.ArrowException, OSError) as error:
            raise _damaged(found, error) from error
        if batch is None:
            return
        if batch.num_rows:
            yield batch


def _damaged(found: Input, error: Exception) -> DataError:
    return DataError(
        f"this is no Parquet file, or damaged or cut short: {str(error).splitlines()[0]}",
        where=found.name,
        fix="check what it is, or write it again; nothing of it was kept",
    )


def types(found: Input, file: Any) -> dict[str, Any]:
    """Arrow type by name of column."""
    schema = file.schema_arrow
    names = checked_names(schema.names, len(schema.names), found.name)
    return dict(zip(names, schema.types, strict=True))


def stored_bytes(file: Any) -> int:
    """About what the rows take in partitions: 8 bytes a number, and texts."""
    groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
    floor = 8 * file.metadata.num_columns * file.metadata.num_rows
    return int(max(floor, sum(group.total_byte_size for group in groups)))


def null_count(metadata: Any, name: str) -> int | None:
    """Missing values of a column that is not nested; None if it is not written anywhere."""
    places = [i for i in range(metadata.num_columns) if metadata.schema.column(i).path == name]
    total = 0
    for group in range(metadata.num_row_groups):
        for place in places:
            statistics = metadata.row_group(group).column(place).statistics
            if statistics is None or not statistics.has_null_count:
                return None
            total += int(statistics.null_count)
    return total
