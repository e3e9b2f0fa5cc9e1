"""The models of ``squall train``, a line each, and which options belong to which."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from squall.config import Problems
from squall.registry import ESTIMATORS


@dataclass(frozen=True)
class Trainable:
    """A model by the name of its estimator; ``title`` is the heading of its training.

    ``reads`` says what its data is: a table of columns, scaled and hashed on the way, ratings, or documents.
    """

    estimator: str
    title: str
    reads: Literal["table", "ratings", "documents"] = "table"

    def settings(self) -> dict[str, Any]:
        """What it can be set to, with the defaults."""
        settings: dict[str, Any] = ESTIMATORS.load(self.estimator)().get_params(deep=False)
        return settings


MODELS = {
    "logistic": Trainable("LogisticRegression", "logistic regression"),
    "linear": Trainable("LinearRegression", "linear regression"),
    "fm": Trainable("FactorizationMachine", "factorisation machine"),
    "mf": Trainable("MatrixFactorization", "matrix factorisation", reads="ratings"),
    "lda": Trainable("LatentDirichletAllocation", "topic model", reads="documents"),
}

SETTINGS = (
    "epochs",
    "batch_size",
    "learning_rate",
    "optimizer",
    "l1",
    "l2",
    "task",
    "n_factors",
    "n_components",
    "early_stopping",
    "target_loss",
)
"""Options that are settings of the estimators, by the same names."""

OF_DATA = {
    "table": ("label", "label_kind", "categorical", "delimiter", "header", "impute", "n_features"),
    "ratings": (),
    "documents": ("vocabulary",),
}
"""Options of reading and preparing each kind of data."""

OPTIONS = (*SETTINGS, *(name for names in OF_DATA.values() for name in names))


def check_options(problems: Problems, model: str, given: set[str]) -> Trainable | None:
    """The model of this name; notes options that it does not have, and whose they are."""
    problems.choice("MODEL", model, MODELS)
    chosen = MODELS.get(model)
    if chosen is None:
        return None
    for name in OPTIONS:
        if name in given and not _has(chosen, name):
            others = ", ".join(other for other, it in MODELS.items() if _has(it, name))
            problems.add(f"--{name.replace('_', '-')} is not an option of {model}, but of {others}")
    return chosen


def _has(model: Trainable, option: str) -> bool:
    return option in OF_DATA[model.reads] or (option in SETTINGS and option in model.settings())
