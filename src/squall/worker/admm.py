"""ADMM: each worker solves a problem of its own over all its rows, and all agree in few rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np

from squall.config import NamedSettings, Problems, is_integer, is_number
from squall.models import model_from_dict
from squall.protocols import Model, Store, Strategy
from squall.records import Float32, TableContents, TableSpec, WorkerTask
from squall.worker.consensus import ConsensusRounds
from squall.worker.keeping import packed, shown, start_key, unpacked
from squall.worker.occurring import Occurring

MAX_SHARDS = 4096
LEAST_TOL = 1e-15
"""Below it the objectives of two points may be the same float64."""

_INTEGERS = ("max_rounds", "acceleration", "shards")
ACCELERATION = 10
"""Rounds that acceleration remembers."""

COMPRESSIONS = ("float32", "int16")
_SUPPORTED = ("LogisticRegression", "LinearRegression")
_NOT_OF_ADMM = {
    "epochs": 5,
    "batch_size": "auto",
    "learning_rate": "auto",
    "optimizer": "adagrad",
    "learning_rate_schedule": "constant",
    "decay": None,
    "warmup": 0.0,
    "momentum": None,
    "beta_1": None,
    "beta_2": None,
    "clip_value": None,
    "clip_norm": None,
}
"""Settings of minibatch descent, with their defaults."""


class ADMM(msgspec.Struct, metaclass=NamedSettings, frozen=True, tag="admm", repr_omit_defaults=True):
    """Consensus ADMM: to the precision of the best solvers, with one exchange of a vector a round.

    In a round each worker minimises the loss of all its rows plus a proximal term; the workers' solutions
    meet as a sum, from which all compute the same next point: there is no master.  For
    `LogisticRegression` and `LinearRegression`, with l1 and l2 penalties as set there.  A worker holds
    all its rows in memory.  An epoch of the history is a round.  Any store will do, an object store too.

    Coefficients are of features that occur in some row; those of others are 0, or without a penalty where
    they began.  The metric is the workers' mean Hessian, or of more than 2,000 its diagonal; rho is balanced
    and rounds are accelerated (Boyd et al. 2011; Aytekin & Johansson 2019;
    :mod:`squall.optim.consensus` has the equations).

    Parameters
    ----------
    rho : float or "auto", default "auto"
        Weight of the proximal term, where 1 is the workers' mean curvature.  ``"auto"`` begins with 1 and
        balances the residuals until round 10; a number stays.
    tol : float, default 1e-6
        Relative precision of the objective F.  It has converged when the primal and the dual residual
        (Boyd et al. 2011, §3.3, in the metric, where their squares have the unit of F) are both at most
        0.1 · √(tol · F).
    max_rounds : int, default 100
        After which it ends in any case, with a warning.
    relaxation : float, default 1.6
        Over-relaxation, in (0, 2).
    acceleration : int, default 10
        Rounds that Anderson acceleration remembers; 0: none.
    partial : float, optional
        The fraction of the workers, in (0, 1], that a round waits for; of the others the last answer
        counts (Zhang & Kwok 2014).  Only when the metric has settled, after 6 rounds, and then without
        acceleration: for workers some of which are now and then much slower.  Default: all.
    compression : {"float32", "int16"}, optional
        Send numbers of 4 bytes instead of 8 (as many rounds, down to a `tol` of 1e-8), or of 2: integers on
        a grid that shrinks with the workers' distances, so that it comes to the same minimum, to any `tol`,
        with up to 64 workers in as many rounds.  Not with `partial`.
    shards : int or "auto", default "auto"
        Pieces into which vectors are cut, each with a key of its own, so that several servers of a store, or
        several workers, share the work of adding up; the bits are the same.  ``"auto"``: the square root of
        what all workers send in a round by 1 MB, where waiting for pieces and adding up balance.

    Raises
    ------
    SettingError
        Naming everything that is wrong.

    Examples
    --------
    >>> import squall
    >>> squall.LogisticRegression(l2=1e-4, strategy=squall.ADMM(tol=1e-8)).strategy
    ADMM(tol=1e-08)
    """

    rho: float | str = "auto"
    tol: float = 1e-6
    max_rounds: int = 100
    relaxation: float = 1.6
    acceleration: int = ACCELERATION
    partial: float | None = None
    compression: str | None = None
    shards: int | str = "auto"

    needs_tables = False
    waits_for_all = True
    whole_shares = True
    updates_in_place = False
    replaces_stragglers = False

    def __post_init__(self) -> None:
        problems = Problems("ADMM")
        problems.number("rho", self.rho, above=0.0, auto=True)
        if not is_number(self.tol) or not LEAST_TOL <= self.tol < 1:
            problems.add(f"tol={self.tol!r} must be a number of at least {LEAST_TOL:g} and below 1")
        problems.integer("max_rounds", self.max_rounds, 1, high=2**31 - 1)
        problems.integer("acceleration", self.acceleration, 0, high=100)
        if not is_number(self.relaxation) or not 0 < self.relaxation < 2:
            problems.add(f"relaxation={self.relaxation!r} must be a number above 0 and below 2")
        if self.partial is not None and not (is_number(self.partial) and 0 < self.partial <= 1):
            problems.add(f"partial={self.partial!r} must be None or a number above 0 and at most 1")
        problems.integer("shards", self.shards, 1, high=MAX_SHARDS, auto=True)
        if self.compression is not None:
            problems.choice("compression", self.compression, COMPRESSIONS)
            if self.partial is not None:
                problems.add(
                    f"compression={self.compression!r} does not go with partial={self.partial!r}, where "
                    "workers add up what others have sent; leave one of them None"
                )
        if self.partial is not None and not isinstance(self.shards, str):
            problems.add(
                f"shards={self.shards!r} does not go with partial={self.partial!r}, where one worker adds up "
                'all of a round; leave shards "auto"'
            )
        problems.raise_if_any()
        for name in self.__struct_fields__:  # NumPy's numbers are not plain data
            value = getattr(self, name)
            if is_integer(value) or is_number(value):
                plain = int(value) if name in _INTEGERS else float(value)
                msgspec.structs.force_setattr(self, name, plain)

    @property
    def synchronous(self) -> bool:
        """See :class:`squall.protocols.StrategySettings`.

        As long as rounds wait for all.
        """
        return self.partial is None

    def epochs(self, asked: int) -> int:
        """See :class:`squall.protocols.StrategySettings`."""
        return self.max_rounds

    def conflicts(self, estimator: str, settings: dict[str, Any]) -> list[str]:
        """See :class:`squall.protocols.StrategySettings`: there are no minibatches, nor a rate."""
        if estimator not in _SUPPORTED:
            return [
                f"strategy={self!r} needs a convex loss, and {estimator} has none; use it with "
                f"{' or '.join(_SUPPORTED)}, or leave strategy None"
            ]
        return [
            f"{name}={settings[name]!r} has no effect with ADMM, which has no minibatches; leave it "
            + (f"{default!r}, and set ADMM(max_rounds=…)" if name == "epochs" else repr(default))
            for name, default in _NOT_OF_ADMM.items()
            if name in settings and settings[name] != default
        ]

    def open(self, store: Store, task: WorkerTask, source: WorkerTask | None) -> None:
        """See :class:`squall.protocols.StrategySettings`: of another job the point moves, not the duals."""
        weights = None if source is None else self.weights(store, source)
        if weights is not None:
            store.blobs.put(start_key(task.job), packed({"z": weights.astype(np.float64).ravel()}))

    def begin(self, store: Store, task: WorkerTask, contents: TableContents) -> None:
        """See :class:`squall.protocols.StrategySettings`: the point that all begin with."""
        dim = model_from_dict(task.model).table(task.table, task.optimizer).dim
        z = contents.array[:, :dim].astype(np.float64).ravel()
        store.blobs.put(start_key(task.job), packed({"z": z}))

    def weights(self, store: Store, task: WorkerTask) -> Float32 | None:
        """See :class:`squall.protocols.StrategySettings`: what came of the last round."""
        spec = model_from_dict(task.model).table(task.table, task.optimizer)
        weights = shown(store, task)
        if weights is None:
            return _begun(store, task, spec)
        weights, occurring = weights.reshape(-1, spec.dim), Occurring.get(store, task.job)
        if occurring is None:
            return weights
        penalized = task.optimizer.l1 > 0 or task.optimizer.l2 > 0
        others = None if penalized else _begun(store, task, spec)
        return occurring.spread(
            weights, np.zeros((spec.rows, spec.dim), np.float32) if others is None else others
        )

    def bind(
        self,
        task: WorkerTask,
        model: Model,
        store: Store,
        interrupted: Callable[[], bool],
        minibatches: Callable[[int], Sequence[int]],
    ) -> Strategy:
        """See :class:`squall.protocols.StrategySettings`."""
        slots = [slot for slot, count in enumerate(minibatches(task.first_epoch)) if count]
        balanced = isinstance(self.rho, str)
        return ConsensusRounds(
            task,
            model,
            store,
            interrupted,
            slots,
            {
                "tol": self.tol,
                "relaxation": self.relaxation,
                "rho": 1.0 if isinstance(self.rho, str) else self.rho,
                "depth": self.acceleration,
                "balanced": balanced,
                "encoding": self.compression,
            },
            self.partial,
            shards=None if isinstance(self.shards, str) else self.shards,
        )


def _begun(store: Store, task: WorkerTask, spec: TableSpec) -> Float32 | None:
    """The point that all began with, if it was given; (rows, dim)."""
    start = store.blobs.get(start_key(task.job))
    return None if start is None else unpacked(start)["z"].astype(np.float32).reshape(spec.rows, spec.dim)
