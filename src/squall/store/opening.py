"""Connecting to a store of any kind, by its address."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from squall.errors import StoreError
from squall.protocols import Store
from squall.registry import STORES

if TYPE_CHECKING:
    from squall.store.connection import Forgiveness, Patience


@dataclass(frozen=True)
class StoreAddress:
    """Where a store is, and what it asks of who comes by TCP."""

    url: str
    token: str = field(default="", repr=False)


def connect(
    address: str, token: str = "", patience: Patience | None = None, forgive: Forgiveness | None = None
) -> Store:
    """Connect to the store at ``"unix:<path>"`` (its memory is mapped) or ``"tcp://host:port"``.

    By TLS it is ``"tls://host:port"``; several servers are listed as ``"tcp://host:port,host:port"``.
    A Valkey or Redis server is ``"redis://host:port/db"``, by TLS ``"rediss://…"``, and an object store
    ``"s3://bucket/prefix"`` or ``"file:///folder"``; these have no tables.

    Parameters
    ----------
    address : str
        Where it is.
    token : str
        What a store on TCP asks for; a Valkey server's password.
    patience : callable, optional
        Says, before each request, how many seconds its reply may take; default 60.
    forgive : callable, optional
        Called with the `LostUpdatesError` when a shard has come back from a snapshot; the request goes
        on then.  Without, that error is raised, once.

    Raises
    ------
    StoreError
        If the address is of no such form, nobody answers there, or the token is wrong.
    MissingExtraError
        If that kind of store needs a library that is not installed.
    """
    scheme = address.partition(":")[0]
    if scheme == "unix":
        from squall.store import embedded

        return embedded.connect(address, patience)
    if scheme in ("tcp", "tls"):
        from squall.store import tcp

        return tcp.connect(address, token, patience, forgive)
    if scheme in STORES.names():
        store: Store = STORES.load(scheme)(address, token, patience)
        return store
    shown = address if "@" not in address else f"{scheme}://***"  # which may hold a password
    raise StoreError(
        f"{shown!r} is not the address of a store",
        fix="begin its address with unix:, tcp://, tls://, redis://, rediss://, s3:// or file://",
    )


def requests_of(store: Store) -> tuple[int, int]:
    """Reads and writes that a client has asked of an object store which is the store; else none."""
    objects = getattr(store, "objects", None)
    return (0, 0) if objects is None else (objects.gets, objects.puts)


def no_tables(address: str) -> StoreError:
    """The error for tables in a store that has none."""
    return StoreError(
        "it has no tables of parameters",
        where=address,
        fix='use a strategy without tables, or store="embedded", "tcp" or what `squall store serve` runs',
    )
