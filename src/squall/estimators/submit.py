"""Jobs in the background."""

from __future__ import annotations

import copy
from typing import Any

from sklearn.base import clone

from squall.config import Run
from squall.data.dataset import Dataset
from squall.driver.job import Job
from squall.errors import SettingError
from squall.estimators.columns import as_dataset
from squall.estimators.pipeline import Pipeline


def submit(
    model: Any,
    train: Any,
    *,
    validation: Any = None,
    run: Run | None = None,
    tags: dict[str, str] | None = None,
) -> Job[Any]:
    """Start training a clone of ``model`` in the background, and return at once.

    Parameters
    ----------
    model : estimator or pipeline of Squall
        Not changed; ``job.wait()`` gives the fitted clone.  With ``warm_start`` it is a copy, which
        begins with what the model has learned.
    train : Dataset or (X, y)
    validation : Dataset or (X, y), optional
    run : Run, optional
        Default: the ``with squall.Run(…)`` around the call.
    tags : dict of str, optional
        Words of yours that stay with the job: ``squall jobs`` shows them.

    Returns
    -------
    Job
        With ``wait``, ``stop``, ``status``, ``logs`` and ``cost``.
    """
    if isinstance(model, type) or not hasattr(model, "_start"):
        shown = f"the class {model.__name__}" if isinstance(model, type) else type(model).__name__
        raise SettingError(
            f"{shown} is not a model of Squall",
            where="submit",
            fix="give an estimator such as squall.LogisticRegression(), or a pipeline that ends with one",
        )
    if not isinstance(train, Dataset) and not (isinstance(train, (tuple, list)) and len(train) == 2):
        raise SettingError("train must be a Dataset or a pair (X, y)", where="submit")
    if tags is not None and not all(isinstance(word, str) for pair in tags.items() for word in pair):
        raise SettingError(f"tags={tags!r} must be texts by their names", where="submit")
    data = train if isinstance(train, Dataset) else as_dataset(*train)
    job: Job[Any] = _copy(model)._start(data, validation, run, tags=tags)
    return job


def _copy(model: Any) -> Any:
    """A clone, which has learned nothing; where the model is to begin with what it has learned, with that.

    Callbacks are not copied: nobody would see what copies have collected.
    """
    final = _final(model)
    callbacks = getattr(final, "callbacks", None)
    if callbacks is not None:
        bare = copy.copy(final)
        bare.callbacks = None
        model = _with_final(model, bare)
    copied = copy.deepcopy(model) if getattr(final, "warm_start", False) else clone(model)
    if callbacks is not None:
        _final(copied).callbacks = callbacks
    return copied


def _final(model: Any) -> Any:
    return model.steps[-1][1] if isinstance(model, Pipeline) and model.steps else model


def _with_final(model: Any, final: Any) -> Any:
    if not isinstance(model, Pipeline):
        return final
    changed = copy.copy(model)
    changed.steps = [*model.steps[:-1], (model.steps[-1][0], final)]
    return changed
