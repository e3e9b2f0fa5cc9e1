"""Fitted transforms as plain data and back."""

from __future__ import annotations

from typing import Any

import msgspec

from squall.errors import CorruptError
from squall.preprocessing.binning import BinTransform
from squall.preprocessing.hashing import HashTransform
from squall.preprocessing.imputing import ImputeTransform
from squall.preprocessing.minmax import MinMaxTransform
from squall.preprocessing.onehot import OneHotTransform
from squall.preprocessing.scaling import ScaleTransform
from squall.preprocessing.tfidf import TfidfTransform

Transform = (
    MinMaxTransform
    | ScaleTransform
    | ImputeTransform
    | OneHotTransform
    | BinTransform
    | HashTransform
    | TfidfTransform
)


def transform_from_dict(data: dict[str, Any]) -> Transform:
    """Rebuild what ``to_dict`` gave.

    Raises
    ------
    CorruptError
        If the data names no transform of this version.
    """
    try:
        transform: Transform = msgspec.convert(data, Transform)
    except msgspec.ValidationError as error:
        raise CorruptError(
            f"not a transform that this version of Squall knows: {error}",
            fix="load the model with the version that saved it",
        ) from error
    return transform
