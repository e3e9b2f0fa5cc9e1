"""Strategies: how one worker's minibatches become a shared model."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np

from squall.config import NamedSettings, Problems, is_integer, is_number
from squall.models import model_from_dict
from squall.protocols import Model, SharedTables, Store, Strategy, StrategySettings
from squall.records import Float32, Sync, TableContents, WorkerTask
from squall.registry import STRATEGIES
from squall.worker.compression import Compression, Compressor
from squall.worker.updates import MetUpdates, SharedMemoryUpdates

CONSISTENCIES = ("asp", "bsp", "ssp", "hsp")
FILTERS = ("threshold", "significance", "top-k")
COMPRESSIONS = ("float16", "int8")
STRAGGLERS = ("wait", "replace")
STALENESS = 3
"""Minibatches that a worker may be ahead with ``"ssp"``, unless set."""

_LEVELS = {"threshold": ("threshold", 1e-3), "significance": ("significance", 0.7), "top-k": ("keep", 0.1)}


class ParameterServer(
    msgspec.Struct, metaclass=NamedSettings, frozen=True, tag="parameter_server", repr_omit_defaults=True
):
    """Minibatch descent through the parameter store's tables.

    Parameters
    ----------
    consistency : {"asp", "bsp", "ssp", "hsp"}, default "asp"
        Whom a worker waits for.  ``"asp"``: nobody; every gradient is applied at once.  ``"bsp"``:
        everybody, after each minibatch; gradients of one minibatch from every worker are averaged
        and applied together, so that the bits of the result are always the same.  ``"ssp"``: for
        workers more than `staleness` minibatches behind (Ho et al. 2013).  ``"hsp"``: for
        everybody, but only at the end of an epoch (Wang, Niu & Li 2019).
    staleness : int, optional
        Of ``"ssp"``, and only with it; default 3.  0 is ``"bsp"``.
    filter : {"threshold", "significance", "top-k"}, optional
        Send only elements of the gradient that matter, and keep the rest until they do.
        ``"threshold"``: those above `threshold` (Carreira et al. 2019); ``"significance"``: those
        above `significance` / √t of their weight at the worker's t-th minibatch (Sánchez-Artigas &
        Sarroca 2021); ``"top-k"``: the largest, a share `keep` of each gradient.
    threshold : float, optional
        Of ``"threshold"``, default 1e-3.
    significance : float, optional
        Of ``"significance"``, default 0.7.
    keep : float, optional
        Of ``"top-k"``, default 0.1.
    compression : {"float16", "int8"}, optional
        Send gradients rounded; what rounding cuts off is added to the next one.
    staleness_weighting : bool, default False
        Scale a gradient by k^(-1/3), with k the updates since its weights were read (Stellaris).
        With ``"asp"`` and ``"ssp"``.
    stragglers : {"wait", "replace"}, default "wait"
        What is done about a worker that takes more than three times as long for a row as the others
        do: nothing, or a successor is started beside it and, when ready, takes its place over.

    Raises
    ------
    SettingError
        Naming everything that is wrong.

    Examples
    --------
    >>> import squall
    >>> squall.LogisticRegression(strategy=squall.ParameterServer("ssp", staleness=4)).strategy
    ParameterServer(consistency='ssp', staleness=4)
    """

    consistency: str = "asp"
    staleness: int | None = None
    filter: str | None = None
    threshold: float | None = None
    significance: float | None = None
    keep: float | None = None
    compression: str | None = None
    staleness_weighting: bool = False
    stragglers: str = "wait"

    def __post_init__(self) -> None:
        problems = Problems("ParameterServer")
        problems.choice("consistency", self.consistency, CONSISTENCIES)
        problems.choice("stragglers", self.stragglers, STRAGGLERS)
        self._check_staleness(problems)
        if self.filter is not None:
            problems.choice("filter", self.filter, FILTERS)
        if self.compression is not None:
            problems.choice("compression", self.compression, COMPRESSIONS)
        for owner, (name, _) in _LEVELS.items():
            self._check_level(problems, owner, name, getattr(self, name))
        problems.raise_if_any()
        for name in ("staleness", *(level for level, _ in _LEVELS.values())):
            value = getattr(self, name)
            if value is not None:  # NumPy's numbers are not plain data
                plain = int(value) if name == "staleness" else float(value)
                msgspec.structs.force_setattr(self, name, plain)

    def _check_staleness(self, problems: Problems) -> None:
        known = self.consistency in CONSISTENCIES
        if self.staleness is not None:
            problems.integer("staleness", self.staleness, 0, high=2**31 - 1)
            if known and self.consistency != "ssp":
                problems.add(
                    f"staleness={self.staleness!r} has no effect with consistency={self.consistency!r}; "
                    'leave it None, or choose consistency="ssp"'
                )
        if not isinstance(self.staleness_weighting, bool):
            problems.add(f"staleness_weighting={self.staleness_weighting!r} must be True or False")
        elif self.staleness_weighting and known and (self.synchronous or self.consistency == "hsp"):
            problems.add('staleness_weighting=True needs consistency="asp", or "ssp" with staleness above 0')

    def _check_level(self, problems: Problems, owner: str, name: str, value: Any) -> None:
        if value is None:
            return
        if not is_number(value) or value <= 0 or (name == "keep" and value > 1):
            bound = "above 0 and at most 1" if name == "keep" else "above 0"
            problems.add(f"{name}={value!r} must be a finite number {bound}")
        if self.filter != owner and (self.filter is None or self.filter in FILTERS):
            problems.add(
                f'{name}={value!r} has no effect with filter={self.filter!r}; choose filter="{owner}"'
            )

    needs_tables = True
    whole_shares = False

    @property
    def synchronous(self) -> bool:
        """Whether one step of the model takes a minibatch of every worker."""
        return self.consistency == "bsp" or (
            self.consistency == "ssp" and is_integer(self.staleness) and self.staleness == 0
        )

    @property
    def waits_for_all(self) -> bool:
        """Whether all workers have to be running at the same time."""
        return self.synchronous or self.consistency == "hsp"

    @property
    def sync(self) -> Sync:
        """What it asks of the tables."""
        if self.synchronous:
            return Sync(0)
        bound = None
        if self.consistency == "ssp":
            bound = STALENESS if self.staleness is None else int(self.staleness)
        return Sync(bound, self.staleness_weighting)

    @property
    def _compression(self) -> Compression:
        level = None
        if self.filter is not None:
            name, default = _LEVELS[self.filter]
            level = float(default if getattr(self, name) is None else getattr(self, name))
        return Compression(self.filter, level or 0.0, self.compression)

    @property
    def updates_in_place(self) -> bool:
        """Whether workers may write to the tables' memory, where they can reach it."""
        return self.consistency == "asp" and not self.staleness_weighting and self._compression.nothing

    @property
    def replaces_stragglers(self) -> bool:
        """See :class:`squall.protocols.StrategySettings`."""
        return self.stragglers == "replace"

    def epochs(self, asked: int) -> int:
        """See :class:`squall.protocols.StrategySettings`: as many as are asked for."""
        return asked

    def conflicts(self, estimator: str, settings: dict[str, Any]) -> list[str]:
        """See :class:`squall.protocols.StrategySettings`: it goes with all of them."""
        return []

    def open(self, store: Store, task: WorkerTask, source: WorkerTask | None) -> None:
        """See :class:`squall.protocols.StrategySettings`: make the table, or copy the one of ``source``."""
        table = model_from_dict(task.model).table(task.table, task.optimizer)
        store.tables.create(table, None if source is None else source.table)
        # Maps it, where it is mapped: the model can then be had although the store has died.
        store.tables.pull(table.name, np.zeros(0, dtype=np.int64))

    def begin(self, store: Store, task: WorkerTask, contents: TableContents) -> None:
        """See :class:`squall.protocols.StrategySettings`: fill the table."""
        store.tables.load(task.table, contents)

    def weights(self, store: Store, task: WorkerTask) -> Float32:
        """See :class:`squall.protocols.StrategySettings`: all of the table."""
        return store.tables.pull(task.table)

    def bind(
        self,
        task: WorkerTask,
        model: Model,
        store: Store,
        interrupted: Callable[[], bool],
        minibatches: Callable[[int], Sequence[int]],
    ) -> Strategy:
        """See :class:`squall.protocols.StrategySettings`."""
        if self.updates_in_place and isinstance(store.tables, SharedTables):
            progress = store.control.progress(task.job, task.slot)
            return SharedMemoryUpdates(model, store.tables, task.table, progress)
        compressor = None
        if not self._compression.nothing:
            spec = store.tables.describe(task.table)
            compressor = Compressor(self._compression, spec.rows, spec.dim)
        sync = None if self.updates_in_place else self.sync
        return MetUpdates(task, model, store, sync, compressor, interrupted, barriers=self.waits_for_all)


def strategy_from_dict(data: dict[str, Any]) -> StrategySettings:
    """The strategy that plain data stands for."""
    strategy: StrategySettings = msgspec.convert(data, STRATEGIES.load(data["type"]))
    return strategy


def is_strategy(value: Any) -> bool:
    """Whether this is a strategy (not the class of one)."""
    tag = type(value).__struct_config__.tag if isinstance(value, msgspec.Struct) else None
    return tag in STRATEGIES.names() and isinstance(value, STRATEGIES.load(str(tag)))


def strategy_problem(value: Any) -> str:
    """What to say of something that is neither None nor a strategy: which one is meant, if that is clear."""
    meant = value.get("type") if isinstance(value, dict) else getattr(value, "__name__", value)
    classes = {tag.replace("_", ""): STRATEGIES.load(tag).__name__ for tag in STRATEGIES.names()}
    plain = re.sub("[^a-z]", "", str(meant).lower())
    close = difflib.get_close_matches(plain, classes, n=1)
    fix = f"write strategy=squall.{classes[close[0]]}()" if close else "such as squall.ParameterServer()"
    return f"strategy={value!r} must be None or a strategy{';' if close else ''} {fix}"
