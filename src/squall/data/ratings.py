"""`read_ratings`: who rated what how, as a stored data set of codes with their ids."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from squall.config import Problems
from squall.data.dataset import Dataset
from squall.data.finding import Paths, find_inputs, path_problems
from squall.data.ingest import store_blocks, store_dictionary
from squall.data.inputs import Seen
from squall.data.objects import ObjectStore
from squall.data.ratings_duplicates import Duplicate, drop_rows, find_duplicates
from squall.data.ratings_form import Roles, rating_forms
from squall.data.ratings_reader import RatingsReader
from squall.data.reading import Storage, storage_of, stored_dataset
from squall.data.skipped import Skipped, skipped_warnings
from squall.errors import DataError
from squall.records import ColumnSpec, Manifest, PartitionInfo

_READER_VERSION = 1

Policy = Literal["raise", "keep", "first", "last"]
_SEPARATORS = ("auto", ",", "\t", "::", ";", "|", " ")


def read_ratings(
    path: Paths,
    *,
    user: str | int = "auto",
    item: str | int = "auto",
    rating: str | int | None = "auto",
    time: str | int | None = "auto",
    separator: str = "auto",
    header: bool | Literal["auto"] = "auto",
    duplicates: Policy = "raise",
    errors: Literal["raise", "skip"] = "raise",
    storage: Storage = None,
) -> Dataset:
    """Read ratings (user, item, rating and maybe time) into a data set.

    CSV, TSV, MovieLens' ``user::item::rating::time`` and RecBole's ``.inter`` files are recognised by
    their first line.  The result has the categorical columns ``user`` and ``item``, whose codes are
    0, 1, … in order of first appearance in *all* partitions (`Dataset.dictionary` has the ids, as they
    are written), the int64 column ``time`` if there is one, and the rating as its label: a number to
    predict, float64.  One pass of bounded memory, but for the ids.

    Parameters
    ----------
    path : str, path or sequence of these
        Files, folders, patterns or URLs, as for `read_csv`; all written alike.
    user, item, rating, time : str or int
        Name (or number, from 0 on) of each column; ``"auto"`` finds usual names, or without a header takes
        the first four in this order.  ``rating=None`` or ``time=None``: there is none, or it is to
        be left out.
    separator : str
        What is between fields: one of ``, \\t :: ; |`` and blank.
    header : bool or "auto"
        Whether the first record holds names; ``"auto"``: if it holds usual ones, or no number as rating.
    duplicates : str
        When a user has rated an item more than once: ``"raise"`` an error, ``"keep"`` all ratings, or only
        the ``"first"`` or ``"last"`` in the order of the files.
    errors : {"raise", "skip"}
        What to do about a malformed record.  Skipped ones are counted, and the first ten told.
    storage : str, path or ObjectStore, optional
        Where to keep the data set; see :func:`squall.data.objects.default_storage`.

    Raises
    ------
    SettingError
        If a setting is wrong; all of them are named at once.
    DataError
        If a file cannot be read, a record is malformed, or a rating comes twice; names file, line and
        field.
    StoreError
        If the store refuses.

    Warns
    -----
    UserWarning
        Of records that were skipped, and of duplicates that were dropped.
    """
    roles = Roles(user, item, rating, time)
    _check_settings(path, roles, separator, header, duplicates, errors)
    inputs, store = find_inputs(path), storage_of(storage)
    settings = [user, item, rating, time, separator, header, duplicates, errors]

    def write(prefix: str, seen: Seen) -> Manifest:
        skipped = Skipped(errors == "skip")
        reader = RatingsReader(rating_forms(inputs, roles, separator, header), skipped)
        partitions, _ = store_blocks(store, prefix, reader.blocks(seen))
        partitions, told = _without_duplicates(store, partitions, reader, duplicates, inputs[0].name)
        rows = sum(p.rows for p in partitions)
        if rows == 0:
            raise DataError(
                "there are no ratings", where=inputs[0].name, fix="check `header` and `separator`"
            )
        columns = [ColumnSpec("user", "categorical"), ColumnSpec("item", "categorical")]
        if reader.has_time:
            columns.append(ColumnSpec("time", "int64"))
        dictionaries = {
            name: store_dictionary(store, prefix, i, reader.dictionary(name))
            for i, name in enumerate(("user", "item"))
        }
        return Manifest(
            rows=rows,
            columns=columns,
            partitions=partitions,
            label="rating" if reader.has_rating else None,
            dictionaries=dictionaries,
            warnings=[
                *skipped_warnings([skipped], "record"),
                *(f"{inputs[0].name}: {text}" for text in told),
            ],
        )

    return stored_dataset("ratings", _READER_VERSION, inputs, settings, store, write)


def _without_duplicates(
    store: ObjectStore, partitions: list[PartitionInfo], reader: RatingsReader, policy: Policy, where: str
) -> tuple[list[PartitionInfo], list[str]]:
    """(partitions by that policy, what to tell about it)."""
    if policy == "keep":
        return partitions, []
    found: Iterator[Duplicate] = find_duplicates(store, partitions)
    if policy == "raise":
        first = min(found, key=lambda d: d.later, default=None)
        if first is not None:
            raise _twice(reader, first)
        return partitions, []
    dropped = [d.later if policy == "first" else d.earlier for d in found]
    if not dropped:
        return partitions, []
    told = f"{where}: {len(dropped):,} ratings of an item by the same user dropped: the {policy} one was kept"
    return drop_rows(store, partitions, dropped), [told]


def _twice(reader: RatingsReader, found: Duplicate) -> DataError:
    (earlier, _, _), (later, user, item) = reader.locate(found.earlier), reader.locate(found.later)
    return DataError(
        f"user {user!r} has rated item {item!r} before, at {earlier}",
        where=later,
        fix='say what is meant: duplicates="first", "last" or "keep"',
    )


def _check_settings(
    path: Any, roles: Roles, separator: Any, header: Any, duplicates: Any, errors: Any
) -> None:
    problems = Problems("read_ratings")
    for problem in path_problems(path):
        problems.add(problem)
    for name, value in roles._asdict().items():
        optional = name in ("rating", "time")
        if isinstance(value, bool) or not (isinstance(value, str | int) or (optional and value is None)):
            problems.add(f"{name}={value!r} is not a column's name or number")
    if separator not in _SEPARATORS:
        problems.add(f"separator={separator!r} is none of {', '.join(map(repr, _SEPARATORS))}")
    if not isinstance(header, bool) and header != "auto":
        problems.add(f'header={header!r} is neither True, False nor "auto"')
    problems.choice("duplicates", duplicates, ["raise", "keep", "first", "last"])
    problems.choice("errors", errors, ["raise", "skip"])
    problems.raise_if_any()
