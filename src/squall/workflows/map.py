"""`squall.map`, `squall.call` and `squall.map_reduce`: any function on functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeVar

from squall.config import Run
from squall.errors import SerializationError
from squall.worker import pickles
from squall.worker.calls import Star
from squall.workflows.futures import CallFuture, MapFutures
from squall.workflows.job import MapJob
from squall.workflows.local_modules import local_modules
from squall.workflows.settings import map_settings

T = TypeVar("T")
R = TypeVar("R")


def map(
    fn: Callable[[Any], T],
    items: Iterable[Any],
    *,
    run: Run | None = None,
    chunksize: int | Literal["auto"] = "auto",
    timeout: str | float | None = None,
    retries: int = 0,
) -> MapFutures[T]:
    """Call ``fn(item)`` for every item on functions, in the background.

    Parameters
    ----------
    fn : callable
        Any: also a lambda, a closure, what the main script or a module beside it defines.
    items : iterable
        Is gone through at once; each item is pickled on its own.
    run : Run, optional
        Default: the ``with squall.Run(…)`` around the call.  ``workers`` is how many calls run at
        the same time (``"auto"``: one for each core); deadline and budget are kept.
    chunksize : int or "auto"
        Items that share an invocation.  ``"auto"`` measures, so that calling costs little.
    timeout : str or float, optional
        Longest time for one item, such as ``"30s"``; then its process is ended.
    retries : int, default 0
        How often an item is called again that raised, or whose call died of it.  Calls that were
        lost, refused or killed from outside are made again in any case (three times).

    Returns
    -------
    MapFutures
        A list of one future for each item, in order, with ``results()``, ``cancel()``,
        ``status()``, ``bill`` and ``logs()``.

    Raises
    ------
    SettingError
        Naming everything that is wrong.
    SerializationError
        If the function or an item cannot be pickled; says which.

    Notes
    -----
    Delivery is *zero or more times*: where a function dies or its platform delivers twice, an item
    may be called more than once.  One of its results counts, whichever came first.

    Examples
    --------
    >>> import squall
    >>> squall.map(lambda x: x * x, range(5)).results()
    [0, 1, 4, 9, 16]
    """
    settings = map_settings(
        "map", run, functions=[fn], items=items, chunksize=chunksize, timeout=timeout, retries=retries
    )
    function, payloads = pickled("map", fn, items)
    job = MapJob(settings, "map", _name(fn))
    futures = job.submit(payloads, function, settings.chunksize)
    job.close()
    return MapFutures(job, futures)


def call(
    fn: Callable[..., T],
    /,
    *args: Any,
    run: Run | None = None,
    timeout: str | float | None = None,
    retries: int = 0,
    **kwargs: Any,
) -> CallFuture[T]:
    """Call ``fn(*args, **kwargs)`` once on a function, in the background.

    ``run``, ``timeout`` and ``retries`` are as for `map` and are not handed to ``fn``.
    """
    settings = map_settings("call", run, functions=[fn], timeout=timeout, retries=retries)
    payload = whole_call("call", fn, args, kwargs)
    job = MapJob(settings, "call", _name(fn))
    (future,) = job.submit([payload], None, 1, whole=True)
    job.close()
    return future


def map_reduce(
    fn: Callable[[Any], T],
    items: Iterable[Any],
    reduce_fn: Callable[[list[T]], R],
    *,
    run: Run | None = None,
    chunksize: int | Literal["auto"] = "auto",
    timeout: str | float | None = None,
    retries: int = 0,
) -> CallFuture[R]:
    """Call ``fn`` for every item, then ``reduce_fn`` on the list of all results, on functions.

    The other parameters are as for `map`.  Where an item has failed, the future fails with its
    exception and ``reduce_fn`` is not called.
    """
    settings = map_settings(
        "map_reduce",
        run,
        functions=[fn, reduce_fn],
        items=items,
        chunksize=chunksize,
        timeout=timeout,
        retries=retries,
    )
    function, payloads = pickled("map_reduce", fn, items)
    whole_call("map_reduce", reduce_fn, ([],), {})  # told now if it cannot be pickled
    job = MapJob(settings, "map_reduce", _name(fn))
    mapped = job.submit(payloads, function, settings.chunksize)
    (reduced,) = job.promise(1, whole=True)
    left = len(mapped)

    def one_done(_: Any) -> None:
        nonlocal left
        left -= 1
        if not left:
            finish()

    def finish() -> None:
        try:
            results = [future.result() for future in mapped]
            job.fill([reduced], [whole_call("map_reduce", reduce_fn, (results,), {})], None, 1)
        except BaseException as error:  # noqa: BLE001 (whatever an item raised)
            reduced.settle(None, error)
        job.close()

    for future in mapped:  # called one after another, in the job's thread
        future.add_done_callback(one_done)
    if not mapped:
        finish()
    return reduced


def whole_call(where: str, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    """A function with its arguments, pickled."""
    try:
        with pickles.taking_along(local_modules()):
            return pickles.dumps((fn, args, kwargs))
    except SerializationError as error:
        raise SerializationError(
            f"the function {_name(fn)} and its arguments cannot be sent: {error.what}",
            where=where,
            fix=error.fix,
        ) from error


def pickled(where: str, fn: Any, items: Iterable[Any]) -> tuple[bytes, list[bytes]]:
    """A function and each of its items, pickled on its own."""
    listed = list(items)
    with pickles.taking_along(local_modules()):
        try:
            function = pickles.dumps(fn)
        except SerializationError as error:
            raise SerializationError(
                f"the function {_name(fn)} cannot be sent: {error.what}", where=where, fix=error.fix
            ) from error
        return function, [_pickled_item(number, item) for number, item in enumerate(listed)]


def _pickled_item(number: int, item: Any) -> bytes:
    try:
        return pickles.dumps(item)
    except SerializationError as error:
        raise SerializationError(
            f"it cannot be sent: {error.what}", where=f"item {number}", fix=error.fix
        ) from error


def _name(fn: Any) -> str:
    fn = fn.fn if isinstance(fn, Star) else fn
    return str(getattr(fn, "__qualname__", type(fn).__qualname__))
