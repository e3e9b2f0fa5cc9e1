"""Squall: train machine-learning models on short-lived functions.

Names are loaded when they are first used, so that importing Squall costs next to nothing
and a running function never imports what belongs to the client.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from squall.config import LithopsBackend as LithopsBackend
    from squall.config import LocalBackend as LocalBackend
    from squall.config import Run as Run
    from squall.data.arrays import from_arrays as from_arrays
    from squall.data.bow import read_bow as read_bow
    from squall.data.criteo import read_criteo as read_criteo
    from squall.data.csv import read_csv as read_csv
    from squall.data.dataset import Dataset as Dataset
    from squall.data.dataset import open_dataset as open_dataset
    from squall.data.images import read_images as read_images
    from squall.data.libsvm import read_libsvm as read_libsvm
    from squall.data.parquet import read_parquet as read_parquet
    from squall.data.ratings import read_ratings as read_ratings
    from squall.data.words import read_text as read_text
    from squall.driver.job import Job as Job
    from squall.driver.shutdown import shutdown as shutdown
    from squall.errors import SquallError as SquallError
    from squall.estimators.encoders import FeatureHasher as FeatureHasher
    from squall.estimators.encoders import OneHotEncoder as OneHotEncoder
    from squall.estimators.encoders import QuantileBinner as QuantileBinner
    from squall.estimators.factorization import FactorizationMachine as FactorizationMachine
    from squall.estimators.imputer import Imputer as Imputer
    from squall.estimators.linear import LinearRegression as LinearRegression
    from squall.estimators.logistic import LogisticRegression as LogisticRegression
    from squall.estimators.matrix_factorization import MatrixFactorization as MatrixFactorization
    from squall.estimators.persistence import load_model as load
    from squall.estimators.persistence import save as save
    from squall.estimators.pipeline import Pipeline as Pipeline
    from squall.estimators.pipeline import make_pipeline as make_pipeline
    from squall.estimators.scalers import MaxAbsScaler as MaxAbsScaler
    from squall.estimators.scalers import MinMaxScaler as MinMaxScaler
    from squall.estimators.scalers import StandardScaler as StandardScaler
    from squall.estimators.scalers import TfidfTransformer as TfidfTransformer
    from squall.estimators.submit import submit as submit
    from squall.planning.scripted import ScriptedPlanner as ScriptedPlanner
    from squall.worker.admm import ADMM as ADMM
    from squall.worker.averaging import ModelAveraging as ModelAveraging
    from squall.worker.strategies import ParameterServer as ParameterServer
    from squall.workflows.executor import Executor as Executor
    from squall.workflows.futures import as_completed as as_completed
    from squall.workflows.futures import wait as wait
    from squall.workflows.joblib_backend import register_joblib as register_joblib
    from squall.workflows.map import call as call
    from squall.workflows.map import map as map
    from squall.workflows.map import map_reduce as map_reduce

__version__ = "0.1.0"

_NAMES = {
    "ADMM": "squall.worker.admm:ADMM",
    "Dataset": "squall.data.dataset:Dataset",
    "Executor": "squall.workflows.executor:Executor",
    "FactorizationMachine": "squall.estimators.factorization:FactorizationMachine",
    "FeatureHasher": "squall.estimators.encoders:FeatureHasher",
    "Imputer": "squall.estimators.imputer:Imputer",
    "Job": "squall.driver.job:Job",
    "LinearRegression": "squall.estimators.linear:LinearRegression",
    "LithopsBackend": "squall.config:LithopsBackend",
    "LocalBackend": "squall.config:LocalBackend",
    "LogisticRegression": "squall.estimators.logistic:LogisticRegression",
    "MatrixFactorization": "squall.estimators.matrix_factorization:MatrixFactorization",
    "MaxAbsScaler": "squall.estimators.scalers:MaxAbsScaler",
    "MinMaxScaler": "squall.estimators.scalers:MinMaxScaler",
    "OneHotEncoder": "squall.estimators.encoders:OneHotEncoder",
    "ModelAveraging": "squall.worker.averaging:ModelAveraging",
    "ParameterServer": "squall.worker.strategies:ParameterServer",
    "Pipeline": "squall.estimators.pipeline:Pipeline",
    "QuantileBinner": "squall.estimators.encoders:QuantileBinner",
    "Run": "squall.config:Run",
    "ScriptedPlanner": "squall.planning.scripted:ScriptedPlanner",
    "SquallError": "squall.errors:SquallError",
    "StandardScaler": "squall.estimators.scalers:StandardScaler",
    "TfidfTransformer": "squall.estimators.scalers:TfidfTransformer",
    "as_completed": "squall.workflows.futures:as_completed",
    "call": "squall.workflows.map:call",
    "from_arrays": "squall.data.arrays:from_arrays",
    "load": "squall.estimators.persistence:load_model",
    "make_pipeline": "squall.estimators.pipeline:make_pipeline",
    "map": "squall.workflows.map:map",
    "map_reduce": "squall.workflows.map:map_reduce",
    "open_dataset": "squall.data.dataset:open_dataset",
    "read_bow": "squall.data.bow:read_bow",
    "read_criteo": "squall.data.criteo:read_criteo",
    "read_csv": "squall.data.csv:read_csv",
    "read_images": "squall.data.images:read_images",
    "read_libsvm": "squall.data.libsvm:read_libsvm",
    "read_parquet": "squall.data.parquet:read_parquet",
    "read_ratings": "squall.data.ratings:read_ratings",
    "read_text": "squall.data.words:read_text",
    "register_joblib": "squall.workflows.joblib_backend:register_joblib",
    "save": "squall.estimators.persistence:save",
    "shutdown": "squall.driver.shutdown:shutdown",
    "submit": "squall.estimators.submit:submit",
    "wait": "squall.workflows.futures:wait",
}

__all__ = [
    "ADMM",
    "Dataset",
    "Executor",
    "FactorizationMachine",
    "FeatureHasher",
    "Imputer",
    "Job",
    "LinearRegression",
    "LithopsBackend",
    "LocalBackend",
    "LogisticRegression",
    "MatrixFactorization",
    "MaxAbsScaler",
    "MinMaxScaler",
    "ModelAveraging",
    "OneHotEncoder",
    "ParameterServer",
    "Pipeline",
    "QuantileBinner",
    "Run",
    "ScriptedPlanner",
    "SquallError",
    "StandardScaler",
    "TfidfTransformer",
    "__version__",
    "as_completed",
    "call",
    "from_arrays",
    "load",
    "make_pipeline",
    "map",
    "map_reduce",
    "open_dataset",
    "read_bow",
    "read_criteo",
    "read_csv",
    "read_images",
    "read_libsvm",
    "read_parquet",
    "read_ratings",
    "read_text",
    "register_joblib",
    "save",
    "shutdown",
    "submit",
    "wait",
]


def __getattr__(name: str) -> Any:
    target = _NAMES.get(name)
    if target is None:
        raise AttributeError(f"module 'squall' has no attribute {name!r}")
    module, _, attribute = target.partition(":")
    value = getattr(importlib.import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES})
