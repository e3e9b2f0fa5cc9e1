"""What a model is to predict, and how labels become what it trains on: classes, or numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from squall.config import is_number
from squall.data.dataset import Dataset
from squall.data.labels import MAX_CLASSES
from squall.errors import DataError, SettingError
from squall.protocols import Objects
from squall.records import Float64, Int64, RawBlock

Check = Callable[[], None]
Blocks = Iterator[RawBlock]

_LARGEST = 1e100
"""Of a label: sums of squares of many are finite."""


class Target(Protocol):
    """Of one training: made from the data to train on.  Its users are its subclasses."""

    classes: npt.NDArray[Any]
    """The label map, sorted; empty where labels are numbers."""

    def learn(self, data: Dataset, check: Check) -> None:
        """Look through the rows, if need be; ``check`` may end it."""

    def features(self, data: Dataset) -> Dataset:
        """Rows of raw columns as rows of features, after `learn`."""
        return data

    def training(self, data: Dataset, blocks: Blocks) -> Blocks:
        """The rows of ``data`` with labels, and weights, as the model trains on them."""

    def held_out(self, data: Dataset, blocks: Blocks) -> Blocks:
        """The same for the blocks of a held-out data set."""

    def keep(self, objects: Objects, folder: str) -> Any:
        """What the fitted model needs of what was learned; put into the job's folder for who resumes it."""
        return None


def labels_of(data: Dataset) -> tuple[npt.NDArray[Any], Float64 | None]:
    """(labels, weights or None) of all rows of a data set, in its order.

    Raises
    ------
    DataError
        If there are no labels, or no rows.
    """
    if data.label is None:
        raise DataError("rows without labels cannot be scored", fix="give y, or data with labels")
    labels, weights = [], []
    for block in data.blocks():
        labels.append(decoded_labels(data, block))
        if block.weights is not None:
            weights.append(block.weights)
    if not labels:
        raise DataError("there are no rows")
    return np.concatenate(labels), np.concatenate(weights) if weights else None


def check_weighty(weights: Float64 | None) -> None:
    """Refuse to measure where no row counts."""
    if weights is not None and not weights.any():
        raise DataError(
            "the weights of all rows are zero, so nothing can be measured",
            where="sample_weight",
            fix="give at least one row a weight above 0",
        )


def decoded_labels(data: Dataset, block: RawBlock) -> npt.NDArray[Any]:
    """The labels of a block of ``data`` as they were given."""
    assert block.labels is not None
    return block.labels if data.classes is None else np.asarray(data.classes)[block.labels]


def _check_labelled(data: Dataset) -> None:
    if data.label is None:
        raise DataError(
            "the training data has no labels", fix="name the label column when reading, or pass y to fit"
        )


def _relabelled(block: RawBlock, labels: Any, weights: Float64 | None) -> RawBlock:
    return RawBlock(block.n_rows, block.columns, labels, weights, block.qid)


# --------------------------------------------------------------------------------------- classes


class ClassTarget(Target):
    """Labels are classes, and a model trains on their numbers.

    Parameters
    ----------
    data : Dataset
        The data to train on.
    class_weight : dict, "balanced" or None
        What rows of each class count.
    most : int
        Classes that the model can tell apart.
    known : array, optional
        All classes, of which these rows are a part: they need not have each of them.

    Raises
    ------
    DataError
        If there are no labels, or all are alike, or they are numbers that are no classes, or not known.
    SettingError
        If a weight is given to a class that is not there.
    """

    def __init__(
        self,
        data: Dataset,
        class_weight: Any = None,
        most: int = MAX_CLASSES,
        known: npt.NDArray[Any] | None = None,
    ) -> None:
        _check_labelled(data)
        self._where = f"label {data.label!r}"
        found = None if data.classes is None else np.asarray(data.classes)
        self.classes = self._checked_classes(found if known is None else known, most)
        self._translated = None if known is None else self._codes(data, "label")
        self._balanced = isinstance(class_weight, str)
        self._weights: Float64 | None = None
        if isinstance(class_weight, Mapping):
            self._weights = self._given_weights(class_weight)

    def _checked_classes(self, classes: npt.NDArray[Any] | None, most: int) -> npt.NDArray[Any]:
        if classes is None:
            raise DataError(
                "Unknown label type: continuous. They are numbers to predict, as they were read, or because "
                f"there are more than {MAX_CLASSES:,} different ones",
                where=self._where,
                fix='use a regression; or read them as classes: label_kind="classes"',
            )
        if len(classes) < 2:
            only = classes.tolist()[0]
            raise DataError(
                f"classification needs labels of two classes at least, and there is 1 class: {only!r}",
                where=self._where,
            )
        if len(classes) > 2 and classes.dtype.kind == "f" and np.any(classes != np.rint(classes)):
            listed = ", ".join(map(repr, classes[:5].tolist())) + (" …" if len(classes) > 5 else "")
            raise DataError(
                f"Unknown label type: continuous. There are {len(classes)}: {listed}",
                where=self._where,
                fix="use a regression, or put them into classes first",
            )
        if len(classes) > most:
            raise DataError(
                "Only binary classification is supported. The type of the target is multiclass: there are "
                f"{len(classes)} classes",
                where=self._where,
                fix="use squall.LogisticRegression, or sklearn.multiclass.OneVsRestClassifier",
            )
        return classes

    def _given_weights(self, given: Mapping[Any, Any]) -> Float64:
        known = {value: code for code, value in enumerate(self.classes.tolist())}
        weights = np.ones(len(known))
        unknown = [label for label in given if label not in known]
        if unknown:
            raise SettingError(
                f"class_weight names classes that the data does not have: {unknown[:5]}",
                where=self._where,
                fix=f"its classes are {', '.join(map(repr, self.classes[:10].tolist()))}",
            )
        for label, weight in given.items():
            weights[known[label]] = float(weight)
        return weights

    def learn(self, data: Dataset, check: Check) -> None:
        """With ``"balanced"``, count what the rows of each class weigh."""
        if not self._balanced:
            return
        total = np.zeros(len(self.classes))
        for block in data.blocks():
            check()
            total += np.bincount(block.labels, block.weights, minlength=len(total))  # type: ignore[arg-type]
        used = total > 0
        self._weights = np.where(used, total.sum() / (used.sum() * np.where(used, total, 1.0)), 1.0)

    def training(self, data: Dataset, blocks: Blocks) -> Blocks:
        """The rows, with their classes' weights; two classes must turn up."""
        if self._translated is not None:
            for block in _translated(blocks, self._translated):
                assert block.labels is not None
                yield _relabelled(block, block.labels, self._row_weights(block))
            return
        seen: set[int] = set()
        for block in blocks:
            assert block.labels is not None
            if len(seen) < 2:
                seen.update(np.unique(block.labels).tolist())
            yield _relabelled(block, block.labels, self._row_weights(block))
        if len(seen) == 1:
            raise DataError(
                f"all training rows have the label {self.classes[seen.pop()]!r}; two classes are needed",
                fix="check the split, or the label column",
            )

    def _row_weights(self, block: RawBlock) -> Float64 | None:
        if self._weights is None:
            return block.weights
        own: Float64 = self._weights[block.labels]
        return own if block.weights is None else own * block.weights

    def held_out(self, data: Dataset, blocks: Blocks) -> Blocks:
        """The rows with the model's numbers for their classes, and no weights but their own."""
        yield from _translated(blocks, self._codes(data, "validation"))

    def _codes(self, data: Dataset, where: str) -> Int64:
        """Translation of the data set's label codes into those of the model."""
        known = {value: code for code, value in enumerate(self.classes.tolist())}
        theirs = [] if data.classes is None else np.asarray(data.classes).tolist()
        unknown = [value for value in theirs if value not in known]
        if unknown or not theirs:
            rows, others = "the held-out rows", "the training data has not"
            if where == "label":
                rows, others = "these rows", "are none of the model's classes"
            raise DataError(f"{rows} have labels that {others}: {unknown[:5]}", where=where)
        return np.array([known[value] for value in theirs], dtype=np.int64)


def _translated(blocks: Blocks, codes: Int64) -> Blocks:
    """The rows with other numbers for their labels."""
    for block in blocks:
        assert block.labels is not None
        yield _relabelled(block, codes[block.labels].astype(np.int32), block.weights)


def class_weight_problem(value: Any) -> str | None:
    """What is wrong with a setting of class weights."""
    if value is None or (isinstance(value, str) and value == "balanced"):
        return None
    if isinstance(value, Mapping) and all(is_number(w) and w >= 0 for w in value.values()):
        return None
    return f'class_weight={value!r} must be None, "balanced" or a dict of numbers of at least 0 by label'


# --------------------------------------------------------------------------------------- numbers


class NumberTarget(Target):
    """Labels are numbers, and a model trains on (y − mean) / deviation, taken over the training rows.

    Parameters
    ----------
    data : Dataset
        The data to train on.
    centred : bool
        Otherwise the mean is not taken off: a model without intercept could not give it back.
    scaling : (mean, deviation), optional
        Those to take instead, as other rows have given them.

    Raises
    ------
    DataError
        If there are no labels, or they are text.
    """

    classes: npt.NDArray[Any] = np.empty(0)

    def __init__(
        self, data: Dataset, *, centred: bool = True, scaling: tuple[float, float] | None = None
    ) -> None:
        _check_labelled(data)
        check_numbers(data, f"label {data.label!r}")
        self._centred, self._is_scaled = centred, scaling is not None
        self.mean, self.deviation = (0.0, 1.0) if scaling is None else scaling

    def learn(self, data: Dataset, check: Check) -> None:
        """Take mean and deviation, unless they were given."""
        if self._is_scaled:
            return
        total = mean = squares = 0.0
        for block in data.blocks():
            check()
            y = decoded_labels(data, block).astype(np.float64)
            _check_size(data, y)
            weights = np.ones(len(y)) if block.weights is None else block.weights
            weight = float(weights.sum())
            if not weight:
                continue
            # Of parts by their means, which keeps what numbers far from 0 differ by (Chan et al. 1979).
            own = float(weights @ y) / weight
            squares += float(weights @ np.square(y - own))
            squares += (own - mean) ** 2 * total * weight / (total + weight)
            total += weight
            mean += (own - mean) * weight / total
        if self._centred:
            self.mean = mean
        else:
            squares += total * mean**2
        deviation = float(np.sqrt(squares / total)) if total else 0.0
        self.deviation = deviation if deviation > 0 else 1.0  # then all are alike, and the mean is all

    def held_out(self, data: Dataset, blocks: Blocks) -> Blocks:
        """The rows with standardised labels."""
        check_numbers(data, "validation")
        yield from self.training(data, blocks)

    def training(self, data: Dataset, blocks: Blocks) -> Blocks:
        """The rows with standardised labels."""
        for block in blocks:
            y = decoded_labels(data, block).astype(np.float64)
            yield _relabelled(block, (y - self.mean) / self.deviation, block.weights)


def scaling_of(tensors: Mapping[str, npt.NDArray[Any]]) -> tuple[float, float] | None:
    """(loading) Mean and deviation of the labels, which older files do not have."""
    if "scaling" not in tensors:
        return None
    mean, deviation = map(float, tensors["scaling"])
    if not (np.isfinite(mean) and np.isfinite(deviation) and deviation > 0):
        raise ValueError(f"labels cannot have been scaled by {mean} and {deviation}")
    return mean, deviation


def _check_size(data: Dataset, y: Float64) -> None:
    largest = float(np.abs(y).max(initial=0.0))
    if largest > _LARGEST:
        raise DataError(
            f"labels of up to {largest:.3g} are too large to be squared and added up",
            where=f"label {data.label!r}",
            fix="give them in a larger unit",
        )


def check_numbers(data: Dataset, where: str) -> None:
    """Raise `DataError` if labels are text."""
    if data.classes is not None and np.asarray(data.classes).dtype.kind not in "biuf":
        raise DataError(
            f"regression needs labels that are numbers, and these are text: "
            f"{', '.join(map(repr, np.asarray(data.classes)[:3].tolist()))}",
            where=where,
            fix="convert them, or use a classifier",
        )
