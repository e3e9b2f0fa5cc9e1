"""How a file of ratings is written, as its first line shows."""

from __future__ import annotations

import re
from typing import NamedTuple

from squall.data.dialects import UNIT, Dialect
from squall.data.hints import column_hint
from squall.data.inputs import Input
from squall.data.streams import BOM, read_chunks
from squall.errors import DataError

# Usual names, without what is neither letter nor digit.
_USUAL = {
    "user": {"user", "userid", "users", "uid", "customer", "customerid", "reviewerid"},
    "item": {
        "item", "itemid", "items", "iid", "movie", "movieid", "product", "productid", "book", "bookid",
        "isbn", "asin", "song", "songid", "artist", "artistid",
    },
    "rating": {"rating", "ratings", "score", "stars", "overall", "value", "bookrating"},
    "time": {"time", "timestamp", "unixtime", "unixreviewtime"},
}  # fmt: skip
_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*")
_RECBOLE = re.compile(r":(token|float|token_seq|float_seq)$")


class Roles(NamedTuple):
    """Which column is what, as the user says; "auto" is to be found."""

    user: str | int
    item: str | int
    rating: str | int | None
    time: str | int | None


class RatingForm(NamedTuple):
    """How a file is written, and which of its columns are what."""

    source: Input
    dialect: Dialect
    user: int
    item: int
    rating: int | None
    time: int | None


def rating_forms(inputs: list[Input], roles: Roles, separator: str, header: bool | str) -> list[RatingForm]:
    """How each of the files is written; the same columns have to be there in all.

    Raises
    ------
    DataError
        If a file has no line, or its columns are not found.
    """
    forms = [_form(source, roles, separator, header) for source in inputs]
    for source, other in zip(inputs, forms, strict=True):
        for name in ("rating", "time"):
            if (getattr(other, name) is None) != (getattr(forms[0], name) is None):
                raise DataError(
                    f"one of the files has a {name} and another has none: {inputs[0].name}",
                    where=source.name,
                    fix=f"name the column ({name}=), or leave it out of all: {name}=None",
                )
    return forms


def _form(source: Input, roles: Roles, separator: str, header: bool | str) -> RatingForm:
    line = _first_line(source)
    between = _separator(line, source.name) if separator == "auto" else separator
    fields = [part.strip().strip('"') for part in line.decode(errors="replace").split(between)]
    names = [_RECBOLE.sub("", field) for field in fields]
    has_header = _is_header(fields, names) if header == "auto" else bool(header)
    columns = _columns(names if has_header else None, len(fields), roles, source.name)
    dialect = Dialect(
        has_header,
        ord(between) if len(between) == 1 else UNIT,
        missing=[],
        quote=ord('"') if between in ",;" else 0,
        between=between.encode() if len(between) > 1 else b"",
    )
    return RatingForm(source, dialect, *columns)


def _first_line(source: Input) -> bytes:
    """The first line that is not blank."""
    start = next(read_chunks(source), b"").removeprefix(BOM)
    line = next((line for line in start.splitlines() if line.strip()), None)
    if line is None:
        raise DataError("the file holds no records", where=source.name, fix="check how it was written")
    return line


def _separator(line: bytes, path: str) -> str:
    for between in ("::", "\t", ",", ";", "|", " "):
        if between.encode() in line.strip():
            return between
    shown = line[:80].decode(errors="replace")
    raise DataError(f"the first line has one field: {shown!r}", where=f"{path}:1", fix="set separator=")


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _is_header(fields: list[str], names: list[str]) -> bool:
    usual = {_plain(name) for name in names}
    if fields != names or (usual & _USUAL["user"] and usual & _USUAL["item"]):
        return True
    return len(fields) > 2 and not _NUMBER.fullmatch(fields[2])


def _columns(
    names: list[str] | None, n_columns: int, roles: Roles, path: str
) -> tuple[int, int, int | None, int | None]:
    found: dict[str, int | None] = {}
    for position, (role, wanted) in enumerate(roles._asdict().items()):
        if wanted == "auto":
            found[role] = _usual(role, names, position, n_columns, path)
        else:
            found[role] = None if wanted is None else _named(role, wanted, names, n_columns, path)
    used = [column for column in found.values() if column is not None]
    if len(set(used)) != len(used):
        raise DataError(
            f"one column is taken for two things: {found}", where=path, fix="name user, item, rating and time"
        )
    user, item = found["user"], found["item"]
    assert user is not None and item is not None
    return user, item, found["rating"], found["time"]


def _usual(role: str, names: list[str] | None, position: int, n_columns: int, path: str) -> int | None:
    if names is None:
        if position < n_columns:
            return position
    else:
        matches = [i for i, name in enumerate(names) if _plain(name) in _USUAL[role]]
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise DataError(f"several columns may be the {role}", where=path, fix=f"name it: {role}=")
    if role == "time":
        return None
    if names is None:
        what = f"there are {n_columns} columns, and no {role} among them"
        raise DataError(what, where=path, fix=f"check `separator`, or set {role}=")
    raise DataError(
        f"no column has a usual name for the {role}",
        where=path,
        fix=f"name it ({role}=); {column_hint('', names)}" + (", or rating=None" if role == "rating" else ""),
    )


def _named(role: str, wanted: str | int, names: list[str] | None, n_columns: int, path: str) -> int:
    if isinstance(wanted, int):
        if 0 <= wanted < n_columns:
            return wanted
        raise DataError(f"{role}: there are {n_columns} columns and no number {wanted}", where=path)
    if names is None:
        raise DataError(
            f"{role}={wanted!r} is a name, and the file has no header", where=path, fix="give its number"
        )
    if wanted not in names:
        hint = column_hint(wanted, names)
        raise DataError(f"{role}: there is no column {wanted!r}", where=path, fix=hint)
    return names.index(wanted)
