"""Nothing is unpickled that this job's own client or function has not signed."""

from __future__ import annotations

import os
import textwrap
import threading
from pathlib import Path

import cloudpickle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from squall.errors import CorruptError, SerializationError, SettingError
from squall.worker import pickles
from squall.worker.pickles import Seal, check_version, dumps, loads, python_version

KEY = os.urandom(32)


@settings(deadline=None)
@given(st.lists(st.binary(max_size=50), max_size=5), st.text(max_size=10))
def test_what_is_sealed_is_opened(parts: list[bytes], name: str) -> None:
    seal = Seal(KEY)
    assert seal.open(name, memoryview(seal.close(name, parts))) == parts


@settings(deadline=None)
@given(st.data())
def test_one_changed_bit_is_noticed(data: st.DataObject) -> None:
    seal = Seal(KEY)
    sealed = bytearray(seal.close("name", [b"one", b"", b"three"]))
    position = data.draw(st.integers(0, 8 * len(sealed) - 1))
    sealed[position // 8] ^= 1 << position % 8
    with pytest.raises(CorruptError, match="not signed"):
        seal.open("name", memoryview(sealed))


@pytest.mark.parametrize("length", [0, 1, 31, 32, 40])
def test_what_is_cut_off_is_noticed(length: int) -> None:
    seal = Seal(KEY)
    with pytest.raises(CorruptError):
        seal.open("name", memoryview(seal.close("name", [b"x"])[:length]))


def test_another_key_another_name_or_no_signature_is_refused() -> None:
    sealed = Seal(KEY).close("jobs/a/items/0", [b"x"])
    for seal, name in ((Seal(os.urandom(32)), "jobs/a/items/0"), (Seal(KEY), "jobs/a/items/1")):
        with pytest.raises(CorruptError):
            seal.open(name, memoryview(sealed))
    with pytest.raises(CorruptError):
        Seal(KEY).open("jobs/a/items/0", memoryview(b"\0" * 32 + sealed[32:]))


class Bomb:
    """Its pickle runs code when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.path,)


def test_a_forged_pickle_is_never_loaded(tmp_path: Path) -> None:
    forged = Seal(b"not the key").close("name", [dumps(Bomb(tmp_path / "gone off"))])
    with pytest.raises(CorruptError):
        [loads(part) for part in Seal(KEY).open("name", memoryview(forged))]
    assert not (tmp_path / "gone off").exists()


def test_another_python_is_refused_with_both_versions() -> None:
    check_version(python_version())
    with pytest.raises(SettingError, match=rf"client runs Python 3\.7.*functions Python {python_version()}"):
        check_version("3.7")


@pytest.mark.parametrize("value", [1, "text", b"bytes", None, 2.5, [1, {"a": (2, 3)}]])
def test_plain_values_come_back(value: object) -> None:
    assert loads(pickles.Verified(memoryview(dumps(value)))) == value


def test_lambdas_and_closures_come_back() -> None:
    n = 5
    assert loads(pickles.Verified(memoryview(dumps(lambda x: x + n))))(1) == 6


def test_what_cannot_be_pickled_is_told() -> None:
    with pytest.raises(SerializationError, match="cannot be pickled") as caught:
        dumps(threading.Lock())
    assert "inside the function" in str(caught.value)


def test_cloudpickles_settings_are_left_as_they_were() -> None:
    before = cloudpickle.list_registry_pickle_by_value()
    cloudpickle.register_pickle_by_value(textwrap)
    try:
        with pickles.taking_along([textwrap, threading]):
            assert len(dumps(textwrap.dedent)) > 500, "its code is taken along"
        assert cloudpickle.list_registry_pickle_by_value() == before | {"textwrap"}
    finally:
        cloudpickle.unregister_pickle_by_value(textwrap)
