"""Paths as people give them."""

from __future__ import annotations

from pathlib import Path

import pytest

from squall.errors import SettingError
from squall.paths import user_path


def test_home_is_found_and_the_rest_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    assert user_path("~/data.csv") == Path("/home/someone/data.csv")
    for path in ("data.csv", "a/~/b", "[x]*?", "é", "\udce9"):  # the last: a byte that is not UTF-8
        assert user_path(path) == Path(path)


@pytest.mark.parametrize(
    ("path", "told"),
    [("~nosuchuser/x", "no such user"), ("a\0b", "null character"), ("a\ud800", "lone surrogate")],
)
def test_what_can_be_no_path_is_told(path: str, told: str) -> None:
    with pytest.raises(SettingError, match=told) as caught:
        user_path(path)
    assert caught.value.where is not None
    str(caught.value).encode()
