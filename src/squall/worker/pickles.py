"""Pickle: the one module that uses it, for `squall.map`'s functions, arguments and results.

To load a pickle is to run code.  So what comes from a store is loaded only once its signature,
under a key that is never stored, shows that this job's own client or function has written it,
under that very name: :meth:`Seal.open` alone makes the :data:`Verified` bytes that `loads` takes.
cloudpickle is imported when it is first needed.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import hmac
import io
import pickle
import struct
import sys
import threading
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import CodeType, ModuleType
from typing import Any, ClassVar, NewType

from squall.errors import CorruptError, SerializationError, SettingError

Verified = NewType("Verified", memoryview)
"""A pickle that a signature vouches for."""

_PROTOCOL = 5
_MAC_BYTES = 32
_COUNT = struct.Struct("<Q")
_PLAIN = frozenset({int, float, complex, bool, str, bytes, type(None)})
_registry = threading.RLock()  # cloudpickle's list of modules to be pickled by value is global


def python_version() -> str:
    """Such as ``"3.11"``: cloudpickle's pickles are for one minor version of Python."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def check_version(theirs: str) -> None:
    """Refuse pickles of another Python, before any is loaded.

    Raises
    ------
    SettingError
        If the other side's minor version is not this one.
    """
    if theirs != python_version():
        raise SettingError(
            f"the client runs Python {theirs}, its functions Python {python_version()}, "
            "and what is pickled by one may not be loaded by the other",
            fix=f"use Python {python_version()} for the client, or functions that have Python {theirs}",
        )


def dumps(value: Any) -> bytes:
    """Pickle anything that can be: also lambdas, closures and what the main script defines.

    Raises
    ------
    SerializationError
        If it cannot be pickled; says why.
    """
    if type(value) in _PLAIN:
        return pickle.dumps(value, _PROTOCOL)
    file = io.BytesIO()
    try:
        _pickler()(file, _PROTOCOL).dump(value)
    except Exception as error:  # whatever an object's own __reduce__ may raise
        raise SerializationError(
            f"a {type(value).__qualname__} cannot be pickled: {type(error).__name__}: {error}{_held(value)}",
            fix="leave out what belongs to one process (locks, open files, connections, generators), "
            "and open it inside the function",
        ) from error
    return file.getvalue()


@contextlib.contextmanager
def taking_along(modules: Iterable[ModuleType]) -> Iterator[None]:
    """`dumps` inside takes along what these modules define, because the reader cannot import them.

    cloudpickle's settings are as they were afterwards.
    """
    import cloudpickle

    with _registry:
        known = cloudpickle.list_registry_pickle_by_value()
        added = [module for module in modules if module.__name__ not in known]
        try:
            for module in added:
                cloudpickle.register_pickle_by_value(module)
            yield
        finally:
            for module in added:
                cloudpickle.unregister_pickle_by_value(module)


def loads(data: Verified) -> Any:
    """Load a pickle.  Whatever that raises comes through."""
    return pickle.loads(data)


@functools.cache
def _pickler() -> Any:
    """cloudpickle's class, but code keeps the name of its file, which tracebacks show."""
    import cloudpickle

    reducers = cloudpickle.CloudPickler.dispatch_table

    def reduce_code(code: CodeType) -> tuple[Any, ...]:
        return _named_code, (code.co_filename, *reducers[CodeType](code))

    class Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]  # it has no types
        dispatch_table: ClassVar[Any] = ChainMap({CodeType: reduce_code}, reducers)

    return Pickler


def _held(value: Any) -> str:
    """In which variable of which module the last thing was that was looked at, before it failed."""
    import cloudpickle

    looked_at: list[Any] = []

    class Pickler(_pickler()):  # type: ignore[misc]  # it has no types
        def persistent_id(self, thing: Any) -> None:
            if type(thing) not in _PLAIN:
                looked_at.append(thing)

    with contextlib.suppress(Exception):  # the same as before
        Pickler(io.BytesIO(), _PROTOCOL).dump(value)
    names = {"__main__", *cloudpickle.list_registry_pickle_by_value()}
    modules = [module for name in sorted(names) if (module := sys.modules.get(name)) is not None]
    variables = {id(held): (name, m.__name__) for m in modules for name, held in vars(m).items()}
    for thing in reversed(looked_at):
        if not isinstance(thing, ModuleType) and id(thing) in variables:
            return " (it is in the variable {} of the module {})".format(*variables[id(thing)])
    return ""


def _named_code(file: str, make: Callable[..., CodeType], arguments: tuple[Any, ...]) -> CodeType:
    return make(*arguments).replace(co_filename=file)


class Seal:
    """Signs lists of byte strings with a job's key (HMAC-SHA256), and checks signatures.

    Parameters
    ----------
    key : bytes
        The job's secret.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key

    def close(self, name: str, parts: Sequence[bytes | memoryview]) -> bytes:
        """``parts`` as one object, which `open` accepts under this ``name`` only.

        Layout: signature (32 bytes), number of parts, their lengths (each 64 bits, little endian),
        the parts.
        """
        lengths = [_COUNT.pack(n) for n in (len(parts), *map(len, parts))]
        mac = self._mac(name)
        for piece in (*lengths, *parts):
            mac.update(piece)
        return b"".join([mac.digest(), *lengths, *parts])

    def open(self, name: str, data: memoryview) -> list[Verified]:
        """The parts, without a copy.

        Raises
        ------
        CorruptError
            If it was not signed with this key under this name, or has been changed since.
        """
        mac = self._mac(name)
        mac.update(data[_MAC_BYTES:])
        if not hmac.compare_digest(mac.digest(), bytes(data[:_MAC_BYTES])):
            raise CorruptError(
                "the object is not signed with this job's key, so it is not loaded",
                where=name,
                fix="find out who else writes to this storage, or has damaged it; then start again",
            )
        return list(_cut(data[_MAC_BYTES:]))

    def _mac(self, name: str) -> hmac.HMAC:
        named = name.encode()
        return hmac.new(self._key, _COUNT.pack(len(named)) + named, hashlib.sha256)


def _cut(body: memoryview) -> Iterator[Verified]:
    (count,) = _COUNT.unpack_from(body)
    start = _COUNT.size * (1 + count)
    for number in range(count):
        (length,) = _COUNT.unpack_from(body, _COUNT.size * (1 + number))
        yield Verified(body[start : start + length])
        start += length
