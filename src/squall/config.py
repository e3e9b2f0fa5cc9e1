"""Settings of a run: where functions run, how many, what they may cost.

A :class:`Run` is frozen and comparable.  Used as a context manager it sets the default for
everything started inside (in this thread and in tasks that copy its context); passed as
``run=`` it applies to one call.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect
import math
import os
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from contextvars import ContextVar
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, get_args

import msgspec

from squall.errors import SettingError, SquallError, UnknownSettingError
from squall.protocols import Planner
from squall.records import Chaos, Fault, FaultKind, FaultPoint
from squall.registry import BACKENDS
from squall.units import parse_duration, parse_money, parse_size

SMALL_DATA_ROWS = 50_000
"""Below this many rows ``workers="auto"`` means one, so that a fit is deterministic."""

T = TypeVar("T")

MAX_WORKERS = 1_000
"""As many functions as a new AWS account may run at once, and more than one machine does well."""

_AUTO = '"auto" or '
STORES = ("embedded", "tcp")
PLANS = ("fixed",)
MIN_MEMORY_MB = 128
_STORE_ADDRESS = re.compile(
    r"embedded|tcp|unix:.+|(tcp|tls)://[^\s,/@]+:\d+(,[^\s,/@]+:\d+)*"
    r"|rediss?://[^\s,/@]+(:\d+)?(/\d+)?|s3://[^\s,/@]+(/\S*)?|file:///\S+"
)
Isolation = Literal["off", "strict"]
DEFAULT_PRICES = "aws-lambda-us-east-1"


class Problems:
    """Collects everything that is wrong, so that it is reported at once."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._found: list[str] = []

    def add(self, problem: str) -> None:
        """Note one problem."""
        self._found.append(problem)

    def include(self, error: SquallError) -> None:
        """Note what another check has found, with its fix."""
        if isinstance(error, SettingError) and error.problems:
            self._found += error.problems
            return
        where = f"{error.where}: " if error.where is not None else ""
        self._found.append(where + error.what + (f"; {error.fix}" if error.fix else ""))

    def check(self, parse: Callable[[Any], Any], name: str, value: Any) -> Any:
        """``parse(value)``, or None after noting the error that it raised."""
        try:
            return parse(value)
        except SettingError as error:
            self.add(f"{name}: {error.what}; {error.fix}" if error.fix else f"{name}: {error.what}")
            return None

    def choice(self, name: str, value: Any, choices: Iterable[str]) -> None:
        """Note it if ``value`` is not one of ``choices``."""
        allowed = list(choices)
        if isinstance(value, str) and value in allowed:
            return
        self.add(
            f"{name}={value!r} is unknown; choose from {', '.join(allowed)}" + did_you_mean(value, allowed)
        )

    def boolean(self, name: str, value: Any) -> None:
        """Note it if ``value`` is neither True nor False (NumPy's included)."""
        if type(value).__name__ not in ("bool", "bool_"):  # NumPy is not imported here
            self.add(f"{name}={value!r} must be True or False")

    def integer(
        self, name: str, value: Any, low: int, *, high: int | None = None, auto: bool = False
    ) -> None:
        """Note it if ``value`` is not an integer in the range (or ``"auto"``, where that is allowed)."""
        if auto and is_auto(value):
            return
        if not is_integer(value) or value < low or (high is not None and value > high):
            bound = f"of at least {low}" if high is None else f"from {low} to {high}"
            self.add(f"{name}={value!r} must be {_AUTO if auto else ''}an integer {bound}")

    def number(
        self,
        name: str,
        value: Any,
        *,
        above: float | None = None,
        low: float | None = None,
        auto: bool = False,
    ) -> None:
        """Note it if ``value`` is not a finite number above / of at least the bound (or ``"auto"``)."""
        if auto and is_auto(value):
            return
        bound = f"above {above:g}" if above is not None else f"of at least {low:g}"
        if (
            not is_number(value)
            or (above is not None and value <= above)
            or (low is not None and value < low)
        ):
            self.add(f"{name}={value!r} must be {_AUTO if auto else ''}a finite number {bound}")

    def raise_if_any(self) -> None:
        """Raise one SettingError that lists all of them."""
        if not self._found:
            return
        what = self._found[0]
        if len(self._found) > 1:
            listed = "".join(f"\n  - {problem}" for problem in self._found)
            what = f"{len(self._found)} settings are wrong:{listed}"
        error = SettingError(what, where=self._where)
        error.problems = tuple(self._found)
        raise error


def is_auto(value: Any) -> bool:
    """The word ``"auto"`` (an array compared with it would be an array)."""
    return isinstance(value, str) and value == "auto"


def is_integer(value: Any) -> bool:
    """An integer of Python or NumPy, and not a bool."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """A finite real number of Python or NumPy, and not a bool."""
    if not isinstance(value, Real) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(float(value))
    except OverflowError:  # an integer of more than 308 digits
        return False


def did_you_mean(word: Any, known: Iterable[str]) -> str:
    """``' (did you mean "x"?)'`` if a known word is close, else nothing."""
    plain = {name.lower(): name for name in known}
    close = difflib.get_close_matches(str(word).lower(), plain, n=1)
    return f' (did you mean "{plain[close[0]]}"?)' if close else ""


def names_its_settings(cls: type[T]) -> type[T]:
    """(decorator) Unknown settings are refused with all their names, and what was probably meant.

    Raises
    ------
    UnknownSettingError
        When an object is made with settings that ``cls`` does not have.
    """
    make: Callable[..., None] = vars(cls)["__init__"]
    known = [name for name in inspect.signature(make).parameters if name != "self"]

    @functools.wraps(make)
    def init(self: T, *args: Any, **settings: Any) -> None:
        _refuse_unknown(cls.__name__, settings, known)
        make(self, *args, **settings)

    type.__setattr__(cls, "__init__", init)
    return cls


class NamedSettings(type(msgspec.Struct)):  # type: ignore[misc]
    """(metaclass) Of a Struct that users make: as `names_its_settings`, where no ``__init__`` is called."""

    def __call__(cls, *args: Any, **settings: Any) -> Any:
        """Make one, if it has all these settings."""
        _refuse_unknown(cls.__name__, settings, cls.__struct_fields__)
        return super().__call__(*args, **settings)


def _refuse_unknown(name: str, settings: Iterable[str], known: Sequence[str]) -> None:
    unknown = [setting for setting in settings if setting not in known]
    if unknown:
        told = "; ".join(f"there is no setting {one!r}{did_you_mean(one, known)}" for one in unknown)
        raise UnknownSettingError(told, where=name, fix=f"choose from {', '.join(known)}")


FAULT_POINTS: dict[FaultKind, tuple[FaultPoint, ...]] = {
    "kill": ("before", "in flight", "after"),
    "duplicate": ("before", "in flight", "after"),
    "drop": ("before", "in flight", "after"),
    "delay": ("before", "after"),
    "throttle": ("before", "in flight"),
    "slow": ("before", "in flight", "after"),  # all the time
}
"""Where each kind of fault can be injected from outside of the function."""


def check_chaos(problems: Problems, chaos: Any) -> None:
    """Note all that is wrong with these faults."""
    if not isinstance(chaos, Chaos):
        problems.add(f"chaos={chaos!r} must be a squall.testing.Chaos")
        return
    inside = (chaos.slot, chaos.attempt, chaos.minibatch)
    if inside != (-1, -1, -1):
        for name, value, low in zip(("slot", "attempt", "minibatch"), inside, (0, 1, 1), strict=True):
            problems.integer(f"chaos.{name}", value, low)
    total = 0.0
    for kind in FAULT_POINTS:
        chance = getattr(chaos, kind)
        if not is_number(chance) or not 0 <= chance <= 1:
            problems.add(f"chaos.{kind}={chance!r} must be a probability from 0 to 1")
            continue
        total += chance
        if chance and not set(FAULT_POINTS[kind]) & set(_tuple(chaos.points)):
            problems.add(
                f"chaos.{kind} can strike at {' or '.join(FAULT_POINTS[kind])}, not at {chaos.points}"
            )
    if total > 1 + 1e-9:
        problems.add(f"chaos: its probabilities add up to {total:g}, more than 1")
    for point in _tuple(chaos.points):
        problems.choice("chaos.points", point, get_args(FaultPoint))
    problems.number("chaos.slowdown", chaos.slowdown, low=1.0)
    problems.integer("chaos.seed", chaos.seed, 0)
    problems.check(parse_duration, "chaos.wait", chaos.wait)
    if chaos.lost_after is not None:
        problems.check(parse_duration, "chaos.lost_after", chaos.lost_after)
    for name, low in (("quota", 1), ("max_faults", 0)):
        if getattr(chaos, name) is not None:
            problems.integer(f"chaos.{name}", getattr(chaos, name), low)
    for name in ("points", "script") + (("slots",) if chaos.slots is not None else ()):
        if not isinstance(getattr(chaos, name), tuple):
            problems.add(f"chaos.{name}={getattr(chaos, name)!r} must be a tuple")
    for slot in _tuple(chaos.slots):
        problems.integer("chaos.slots", slot, 0)
    for number, fault in enumerate(_tuple(chaos.script)):
        _check_fault(problems, f"chaos.script[{number}]", fault)


def _check_fault(problems: Problems, where: str, fault: Any) -> None:
    if not isinstance(fault, Fault):
        problems.add(f"{where}={fault!r} must be a squall.testing.Fault")
        return
    problems.choice(f"{where}.do", fault.do, FAULT_POINTS)
    if fault.do in FAULT_POINTS:
        problems.choice(f"{where}.when", fault.when, FAULT_POINTS[fault.do])
    problems.integer(f"{where}.times", fault.times, 1)
    for name, low in (("slot", 0), ("attempt", 1)):
        if getattr(fault, name) is not None:
            problems.integer(f"{where}.{name}", getattr(fault, name), low)
    if fault.wait is not None:
        problems.check(parse_duration, f"{where}.wait", fault.wait)


def _tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else ()


@names_its_settings
@dataclass(frozen=True, kw_only=True)
class LocalBackend:
    """Functions as processes of this machine.

    Parameters
    ----------
    concurrency : int, optional
        How many functions may run at the same time; more wait their turn.  Default: no limit.
    lifetime : str or float, default "900s"
        How long one function may live, such as ``"30s"``.  A worker hands its place over to a
        successor before that.
    isolation : {"off", "strict"}, default "off"
        ``"strict"`` makes this machine stand in for a cloud.  Every function is a fresh Python
        without the client's memory, descriptors, environment variables, folders and Unix
        sockets (as far as this user may hide them: ``squall doctor`` tells), so that
        ``storage`` must be an object store and ``store`` one that is reached by TCP.  Rules
        are AWS Lambda's: 128 to 10,240 MB, at most 900 s, 512 MB in ``/tmp``, and a call above
        ``concurrency`` (default there: 1,000) is throttled, not queued.  Not a security
        boundary.
    chaos : Chaos, optional
        Faults to inject, to see a job survive them; see :class:`squall.testing.Chaos`.
    """

    concurrency: int | None = None
    lifetime: str | float = "900s"
    isolation: Isolation = "off"
    emulate_cpu: bool = False
    chaos: Chaos | None = None

    name = "local"

    def __post_init__(self) -> None:
        problems = Problems("LocalBackend")
        if self.concurrency is not None:
            problems.integer("concurrency", self.concurrency, 1)
        problems.choice("isolation", self.isolation, get_args(Isolation))
        if not isinstance(self.emulate_cpu, bool):
            problems.add(f"emulate_cpu={self.emulate_cpu!r} must be True or False")
        lifetime = problems.check(parse_duration, "lifetime", self.lifetime)
        if lifetime is not None and lifetime < 1.0:
            problems.add(
                f"lifetime={self.lifetime!r} is below 1s, too short for a function to start and work"
            )
        if self.chaos is not None:
            check_chaos(problems, self.chaos)
        problems.raise_if_any()

    @property
    def lifetime_s(self) -> float:
        """Lifetime in seconds."""
        return parse_duration(self.lifetime)


@names_its_settings
@dataclass(frozen=True, kw_only=True)
class LithopsBackend:
    """Functions by Lithops, on any cloud or cluster that it reaches (``pip install 'squall[lithops]'``).

    Parameters
    ----------
    backend : str, default "localhost"
        Lithops's name of where functions run, such as ``"aws_lambda"``, ``"gcp_functions"``, ``"k8s"``.
        ``"localhost"`` is this machine.  Anywhere else, ``Run(storage=…)`` must be an object store and
        ``Run(store=…)`` the address of one that functions can reach.
    storage : str, optional
        Lithops's name of the storage that it keeps its own objects in, such as ``"aws_s3"``.  Default:
        as its configuration says.
    config : str or path, optional
        Lithops's configuration file; credentials belong there.  Default: where Lithops looks for it.
    lifetime : str or float, default "600s"
        How long one function may live.  A worker hands its place over to a successor before that.
    concurrency : int, optional
        How many functions may run at the same time.  With ``"localhost"`` more wait their turn
        (default: 32); elsewhere the platform's own limit counts.
    chaos : Chaos, optional
        Faults to inject, to see a job survive them; see :class:`squall.testing.Chaos`.
    """

    backend: str = "localhost"
    storage: str | None = None
    config: str | os.PathLike[str] | None = None
    lifetime: str | float = "600s"
    concurrency: int | None = None
    chaos: Chaos | None = None

    name = "lithops"

    def __post_init__(self) -> None:
        problems = Problems("LithopsBackend")
        for name in ("backend", "storage"):
            value = getattr(self, name)
            if not (isinstance(value, str) and value) and not (value is None and name == "storage"):
                problems.add(f"{name}={value!r} must be Lithops's name of one")
        if self.config is not None and not isinstance(self.config, (str, os.PathLike)):
            problems.add(
                f"config={type(self.config).__name__} must be the path of Lithops's configuration file"
            )
        elif self.config is not None:
            object.__setattr__(self, "config", os.fspath(self.config))
        if self.concurrency is not None:
            problems.integer("concurrency", self.concurrency, 1)
        lifetime = problems.check(parse_duration, "lifetime", self.lifetime)
        if lifetime is not None and lifetime < 5.0:
            problems.add(
                f"lifetime={self.lifetime!r} is below 5s, too short for a function to start and work"
            )
        if self.chaos is not None:
            check_chaos(problems, self.chaos)
        problems.raise_if_any()

    @property
    def lifetime_s(self) -> float:
        """Lifetime in seconds."""
        return parse_duration(self.lifetime)


Backend = LocalBackend | LithopsBackend
BACKEND_SETTINGS: dict[str, type[Backend]] = {"local": LocalBackend, "lithops": LithopsBackend}


@names_its_settings
@dataclass(frozen=True, kw_only=True)
class Run:
    """Where and with what a job runs.

    Parameters
    ----------
    backend : str or backend object, default "local"
        Where functions run: a name, or an object: :class:`LocalBackend`, :class:`LithopsBackend`.
    workers : int or "auto", default "auto"
        Number of functions that train.  ``"auto"``: one below 50,000 rows (then a fit is
        deterministic), else one for each core of this machine.
    memory : str, default "1769MB"
        Memory of each function (on AWS Lambda, 1,769 MB come with one CPU).
    storage : str or path, optional
        Object store for partitions: a folder or URL.  Default: a folder in the user's cache.
    store : str, default "embedded"
        The fast store.  ``"embedded"`` and ``"tcp"`` are one on this machine, started when it
        is needed: workers reach its memory itself, which is fastest (and where several workers'
        updates may cross), or by TCP on the loopback interface, where the store applies every
        update whole.  An address is a store that ``squall store serve`` runs: ``"tcp://host:port"``,
        ``"tls://host:port"`` or ``"unix:/path"``; several servers are
        ``"tcp://host:port,host:port"``.  Its token is taken from ``SQUALL_STORE_TOKEN`` or from the
        file that ``SQUALL_STORE_TOKEN_FILE`` names.  For strategies without tables of parameters
        (`ModelAveraging`, `ADMM`) it may also be a Valkey or Redis server, ``"redis://host:port/db"`` (its
        password is taken as the token), or an object store, ``"s3://bucket/prefix"``, ``"file:///folder"``.
    deadline : str or float, optional
        Longest time for a job, such as ``"10min"``; it stops then and keeps the model.
    budget : str or float, optional
        Most that a job may cost, such as ``"$0.25"``; locally, what it *would* cost.
    prices : str or path, default "aws-lambda-us-east-1"
        A price list by name, or the path of a file of one's own.
    random_state : int, default 0
        Seed of shuffles and initial values.
    checkpoint : str or float, optional
        How often a store that ends with this process (``"embedded"``, ``"tcp"``) is written to
        ``storage``, from where ``squall resume`` goes on after a crash of this process.  Default
        ``"30s"``; None for never: then a job that is resumed trains from its first row again.
    plan : str or planner object, default "fixed"
        ``"fixed"``: `workers` and `memory` stay what they are.  A planner is asked between epochs, before
        each of which workers then wait for each other: :class:`squall.ScriptedPlanner`.

    Raises
    ------
    SettingError
        Naming everything that is wrong.

    Examples
    --------
    >>> import squall
    >>> run = squall.Run(workers=2, deadline="10min", budget="$0.25")
    >>> run.replace(workers=4).workers
    4
    """

    backend: str | Backend = "local"
    workers: int | str = "auto"
    memory: str | int = "1769MB"
    storage: str | os.PathLike[str] | None = None
    store: str = "embedded"
    deadline: str | float | None = None
    budget: str | float | None = None
    prices: str | os.PathLike[str] = DEFAULT_PRICES
    random_state: int = 0
    checkpoint: str | float | None = "30s"
    plan: str | Planner = "fixed"

    def __post_init__(self) -> None:
        problems = Problems("Run")
        if isinstance(self.backend, str):
            problems.choice("backend", self.backend, BACKENDS.names())
        elif isinstance(self.backend, type) or getattr(self.backend, "name", None) not in BACKENDS.names():
            problems.add(
                f"backend={self.backend!r} is neither a name nor a backend object such as LocalBackend()"
            )
        problems.integer("workers", self.workers, 1, high=MAX_WORKERS, auto=True)
        size = problems.check(parse_size, "memory", self.memory)
        if size is not None and size < MIN_MEMORY_MB << 20:
            problems.add(
                f"memory={self.memory!r} is below {MIN_MEMORY_MB}MB, the least that a function can have"
            )
        if self.storage is not None and not isinstance(self.storage, (str, os.PathLike)):
            problems.add(f"storage={self.storage!r} must be a path or a URL")
        elif self.storage is not None and not os.fspath(self.storage):
            problems.add("storage='' is no place; leave it out for the user's cache")
        elif self.storage is not None and is_elsewhere(self.backend) and "://" not in str(self.storage):
            problems.add(
                f"storage={masked(self.storage)} is a folder of this machine, which functions "
                'elsewhere cannot reach; use storage="s3://bucket/prefix" or the like'
            )
        elif self.storage is not None and _is_strict(self.backend) and not _is_s3(self.storage):
            problems.add(
                f"storage={masked(self.storage)} is a folder, which functions with "
                'isolation="strict" cannot reach; use storage="s3://bucket/prefix"'
            )
        if isinstance(self.store, str) and "://" in self.store and "@" in self.store:
            problems.add(
                f"store={masked(self.store)} holds a password, which would be stored with the job; leave "
                "it out, and give it as SQUALL_STORE_TOKEN"
            )
        elif not (isinstance(self.store, str) and _STORE_ADDRESS.fullmatch(self.store)):
            problems.choice(
                "store",
                self.store,
                (*STORES, *(f"{s}://host:port" for s in ("tcp", "tls", "redis", "rediss")), "unix:/path"),
            )
        elif is_elsewhere(self.backend) and ("://" not in self.store or self.store.startswith("file:")):
            problems.add(
                f'store="{self.store}" is on this machine only, and functions run elsewhere; start one with '
                '`squall store serve` where they can reach it, and use store="tls://host:port"'
            )
        elif _is_strict(self.backend) and self.store.startswith(("embedded", "unix:", "file:")):
            problems.add(
                f'store="{self.store}" is reached by memory or files, which isolation="strict" hides; use '
                'store="tcp"'
            )
        if self.deadline is not None:
            problems.check(parse_duration, "deadline", self.deadline)
        if self.budget is not None:
            problems.check(parse_money, "budget", self.budget)
        if not isinstance(self.prices, (str, os.PathLike)):
            problems.add(f"prices={self.prices!r} must be the name of a price list or a path")
        elif not os.fspath(self.prices):
            problems.add("prices='' names no price list; leave it out for the default")
        problems.integer("random_state", self.random_state, 0)
        if self.checkpoint is not None:
            problems.check(parse_duration, "checkpoint", self.checkpoint)
        if isinstance(self.plan, str):
            problems.choice("plan", self.plan, PLANS)
        elif isinstance(self.plan, type) or not callable(getattr(self.plan, "next_plan", None)):
            problems.add(
                f"plan={self.plan!r} is neither a name nor a planner such as ScriptedPlanner({{2: 4}})"
            )
        problems.raise_if_any()

    def replace(self, **changes: Any) -> Run:
        """A copy with some settings changed."""
        return dataclasses.replace(self, **changes)

    def __repr__(self) -> str:
        shown = []
        for f in dataclasses.fields(self):
            value = getattr(self, f.name)
            if value != f.default:
                shown.append(f"{f.name}={masked(value) if f.name in ('storage', 'store') else repr(value)}")
        return f"Run({', '.join(shown)})"

    def resolve_workers(self, rows: int) -> int:
        """Number of workers for a data set of ``rows`` rows."""
        if not is_auto(self.workers):
            return int(self.workers)
        return 1 if rows < SMALL_DATA_ROWS else available_cores()

    def resolve_backend(self) -> Backend:
        """The backend object."""
        return BACKEND_SETTINGS[self.backend]() if isinstance(self.backend, str) else self.backend

    @property
    def planner(self) -> Planner | None:
        """Who is asked between epochs; nobody if the plan is fixed."""
        return None if isinstance(self.plan, str) else self.plan

    @property
    def memory_mb(self) -> int:
        """Memory of a function in MB (2**20 bytes), rounded up."""
        return -(-parse_size(self.memory) // (1 << 20))

    @property
    def deadline_s(self) -> float | None:
        """Deadline in seconds, if there is one."""
        return None if self.deadline is None else parse_duration(self.deadline)

    @property
    def checkpoint_s(self) -> float | None:
        """Seconds between checkpoints, if there are any."""
        return None if self.checkpoint is None else parse_duration(self.checkpoint)

    @property
    def budget_usd(self) -> float | None:
        """Budget in dollars, if there is one."""
        return None if self.budget is None else parse_money(self.budget)

    def __enter__(self) -> Self:
        _scopes.set((*_scopes.get(), Scope(self, ExitStack())))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        *outer, scope = _scopes.get()
        _scopes.set(tuple(outer))
        scope.resources.close()


@dataclass(frozen=True, eq=False)
class Scope:
    """An entered ``with Run(...)``; what it owns is given back at its end."""

    run: Run
    resources: ExitStack


_scopes: ContextVar[tuple[Scope, ...]] = ContextVar("squall_scopes", default=())


def current_scope() -> Scope | None:
    """The innermost ``with Run(...)`` around the caller, if any."""
    scopes = _scopes.get()
    return scopes[-1] if scopes else None


def current_run() -> Run:
    """The run of the innermost ``with Run(...)``, or the defaults."""
    scope = current_scope()
    return Run() if scope is None else scope.run


def checked_run(run: Any, where: str) -> Run:
    """``run`` itself, or for None the one of the ``with squall.Run(…)`` around the caller.

    Raises
    ------
    SettingError
        If it is anything else.
    """
    if run is None:
        return current_run()
    if not isinstance(run, Run):
        raise SettingError(
            f"run must be a squall.Run, not {type(run).__name__}",
            where=where,
            fix='write run=squall.Run(backend="local", …)',
        )
    return run


def available_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def is_isolated(backend: Any) -> bool:
    """Whether functions share no files with this process."""
    return _is_strict(backend) or is_elsewhere(backend)


def _is_strict(backend: Any) -> bool:
    return getattr(backend, "isolation", "off") == "strict"


def is_elsewhere(backend: Any) -> bool:
    """Whether functions run on other machines, so that they reach nothing of this one."""
    return isinstance(backend, LithopsBackend) and backend.backend != "localhost"


def _is_s3(storage: str | os.PathLike[str]) -> bool:
    return os.fspath(storage).startswith("s3://")


def has_tables(store: str) -> bool:
    """Whether the parameter store at this address has tables; a Valkey server and object stores have none."""
    return not store.startswith(("redis:", "rediss:")) and not is_objects(store)


def is_objects(store: str) -> bool:
    """Whether the parameter store at this address is an object store."""
    return store.startswith(("s3:", "file:"))


def masked(storage: str | os.PathLike[str]) -> str:
    """The repr of a place, without passwords."""
    text = storage if isinstance(storage, str) else str(Path(storage))
    text = re.sub(r"//[^/@]*@", "//***@", text)
    return repr(
        re.sub(r"(?i)([?&][^=&]*(?:key|secret|token|password|sig|credential)[^=&]*=)[^&]*", r"\1***", text)
    )
