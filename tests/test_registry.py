from __future__ import annotations

import subprocess
import sys

import pytest

from squall.errors import MissingExtraError, SettingError
from squall.registry import BACKENDS, Entry, Registry

REGISTRY = Registry(
    "channel",
    {
        "path": Entry("os.path:join"),
        "absent": Entry("no_such_library.client:Client", extra="redis"),
        "bare": Entry("no_such_library:Client"),
        "broken": Entry("squall.no_such_module:Client", extra="redis"),
    },
)


def test_names_are_sorted():
    assert REGISTRY.names() == ["absent", "bare", "broken", "path"]


def test_load_gives_the_attribute():
    import os.path

    assert REGISTRY.load("path") is os.path.join


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(SettingError, match=r"unknown channel 'paht'\n  fix: choose from absent, .*, path"):
        REGISTRY.load("paht")


def test_a_missing_library_names_the_extra_to_install():
    with pytest.raises(
        MissingExtraError, match=r"'absent' needs no_such_library.*\n  fix: .*squall\[redis\]"
    ):
        REGISTRY.load("absent")


@pytest.mark.parametrize("name", ["bare", "broken"])
def test_other_import_errors_are_not_disguised(name):
    with pytest.raises(ModuleNotFoundError) as caught:
        REGISTRY.load(name)
    assert not isinstance(caught.value, MissingExtraError)


def test_the_local_backend_is_registered():
    assert callable(BACKENDS.load("local"))


def test_nothing_is_imported_before_it_is_asked_for():
    code = "import sys, squall.registry; sys.exit('squall.functions' in sys.modules)"
    assert subprocess.run([sys.executable, "-P", "-c", code], timeout=30).returncode == 0
