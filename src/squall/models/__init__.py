"""Models: pure mathematics on blocks of rows.  One file a family."""

from __future__ import annotations

from typing import Any

import msgspec

from squall.protocols import Model
from squall.registry import MODELS


def model_from_dict(data: dict[str, Any]) -> Model:
    """The model that plain data stands for; its tag, ``"type"``, says of which family.

    Raises
    ------
    SettingError
        If there is no such family.
    """
    model: Model = msgspec.convert(data, MODELS.load(data["type"]))
    return model
