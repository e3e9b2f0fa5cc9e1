from __future__ import annotations

import pytest

from squall.data.objects import ObjectStore


@pytest.fixture
def store(tmp_path):
    return ObjectStore(tmp_path / "objects")
