"""Lazy registries: name → where the implementation is, and what to install for it.

An upper floor's part reaches a lower floor through these names, never by an import.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

from squall.errors import MissingExtraError, SettingError


@dataclass(frozen=True, slots=True)
class Entry:
    """An implementation as ``"module:attribute"``, and the extra that brings its libraries."""

    target: str
    extra: str | None = None


class Registry:
    """Implementations of one kind by name; nothing is imported before it is asked for."""

    def __init__(self, kind: str, entries: dict[str, Entry]) -> None:
        self._kind, self._entries = kind, entries

    def names(self) -> list[str]:
        """Known names, sorted."""
        return sorted(self._entries)

    def load(self, name: str) -> Any:
        """Import the implementation of this name.

        Raises
        ------
        SettingError
            If there is no such name.
        MissingExtraError
            If a library that it needs is not installed.
        """
        entry = self._entries.get(name)
        if entry is None:
            raise SettingError(f"unknown {self._kind} {name!r}", fix=f"choose from {', '.join(self.names())}")
        module, _, attribute = entry.target.partition(":")
        try:
            return getattr(importlib.import_module(module), attribute)
        except ModuleNotFoundError as error:
            if entry.extra is None or (error.name or "").startswith("squall"):
                raise
            raise MissingExtraError(
                f"the {self._kind} {name!r} needs {error.name}, which is not installed",
                fix=f"pip install 'squall[{entry.extra}]'",
            ) from error


MAPS = Registry("way to map", {"functions": Entry("squall.workflows.map:map")})

JOB_OPENERS = Registry("kind of job", {"estimator": Entry("squall.estimators.resuming:open_job")})

MODELS = Registry(
    "model",
    {
        "logistic": Entry("squall.models.logistic:LogisticModel"),
        "softmax": Entry("squall.models.softmax:SoftmaxModel"),
        "linear": Entry("squall.models.linear:LinearModel"),
        "factorization": Entry("squall.models.factorization:FactorizationModel"),
        "matrix_factorization": Entry("squall.models.matrix_factorization:MatrixFactorizationModel"),
    },
)
""":class:`squall.protocols.Model` by their tags."""

STRATEGIES = Registry(
    "strategy",
    {
        "parameter_server": Entry("squall.worker.strategies:ParameterServer"),
        "admm": Entry("squall.worker.admm:ADMM"),
        "model_averaging": Entry("squall.worker.averaging:ModelAveraging"),
    },
)
""":class:`squall.protocols.StrategySettings` by their tags."""

ESTIMATORS = Registry(
    "estimator",
    {
        "FactorizationMachine": Entry("squall.estimators.factorization:FactorizationMachine"),
        "LinearRegression": Entry("squall.estimators.linear:LinearRegression"),
        "LogisticRegression": Entry("squall.estimators.logistic:LogisticRegression"),
        "MatrixFactorization": Entry("squall.estimators.matrix_factorization:MatrixFactorization"),
    },
)
"""Estimators whose fitted models can be saved, by the names of their classes."""

BACKENDS = Registry(
    "backend",
    {
        "local": Entry("squall.functions.local.pool:open_platform"),
        "lithops": Entry("squall.functions.lithops.platform:open_platform", extra="lithops"),
    },
)

CALLS = Registry("way to call functions", {"map": Entry("squall.workflows.reading:calls_of")})
"""What :mod:`squall.data.parsing` has large inputs parsed by."""

STORES = Registry(
    "store",
    {
        "redis": Entry("squall.store.valkey:connect", "redis"),
        "rediss": Entry("squall.store.valkey:connect", "redis"),
        "file": Entry("squall.store.objects:connect"),
        "s3": Entry("squall.store.objects:connect"),
    },
)
"""Stores that are not Squall's own servers, by the scheme of their addresses."""

PLANNERS = Registry("planner", {"ScriptedPlanner": Entry("squall.planning.scripted:ScriptedPlanner")})

OBJECTS = Registry("object store", {"default": Entry("squall.data.objects:ObjectStore")})
""":class:`squall.protocols.Objects` by their URL."""
