"""Functions by Lithops, on its localhost backend: the contract, and training through real storage."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import squall
from squall.errors import MissingExtraError, PlatformError, SettingError
from squall.functions.local.chaos import ChaosPlatform
from squall.protocols import FunctionPlatform
from squall.records import OutcomeKind, Shape
from squall.registry import BACKENDS
from squall.testing import Chaos
from squall.testing.platform import WAIT_S, ClosingContract, FunctionPlatformContract, call, shape
from tests.conftest import lithops_config

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="tested on Linux"),
    pytest.mark.timeout(180),
]


@pytest.fixture(scope="module")
def config(lithops_folder: Path) -> Path:
    return lithops_config(lithops_folder, "localhost")


@pytest.fixture(autouse=True)
def finds_its_files(lithops_home: Path) -> None:
    """In every test here."""


@pytest.fixture(scope="module")
def shared(config: Path) -> Iterator[FunctionPlatform]:
    platform = BACKENDS.load("lithops")(squall.LithopsBackend(config=config))
    yield platform
    squall.shutdown()


@pytest.mark.slow
class TestContract(FunctionPlatformContract):
    @pytest.fixture
    def platform(self, shared: FunctionPlatform) -> FunctionPlatform:
        return shared


@pytest.mark.slow
class TestClosing(ClosingContract):
    @pytest.fixture
    def fresh(self, config: Path) -> Iterator[FunctionPlatform]:
        from squall.functions.lithops.platform import LithopsPlatform

        platform = LithopsPlatform(squall.LithopsBackend(config=config))
        yield platform
        platform.close()


@pytest.mark.slow
def test_ends_are_told_apart(shared: FunctionPlatform) -> None:
    """What Lithops itself would call an exception each time; one map for all."""
    asked = {
        OutcomeKind.RETURNED: (shape("echo"), {"a": 1}),
        OutcomeKind.RAISED: (shape("fail"), {"text": "too few rows"}),
        OutcomeKind.KILLED: (shape("kill_self"), {"signal": 15}),
        OutcomeKind.EXITED: (shape("exit_with"), {"code": 3, "hard": True}),
        OutcomeKind.TIMED_OUT: (shape("sleep", timeout_s=0.3), {"seconds": 60}),
        OutcomeKind.OUT_OF_MEMORY: (shape("allocate", 160), {"megabytes": 500, "pause_s": 0.001}),
    }
    running = [(kind, shared.prepare(what).invoke(event)) for kind, (what, event) in asked.items()]
    for kind, invocation in running:
        assert invocation.outcome(WAIT_S).kind is kind


def test_what_a_function_wrote_comes_home(shared: FunctionPlatform) -> None:
    invocation = shared.prepare(shape("write")).invoke({"text": "grüße"})
    invocation.outcome(WAIT_S)
    assert "grüße by print\n" in invocation.logs()


def test_the_worker_imports_no_more_than_elsewhere_by_our_doing(shared: FunctionPlatform) -> None:
    outcome = call(shared, Shape("squall.testing.handlers:worker_modules", 512, 30.0))
    loaded = {name.partition(".")[0] for name in outcome.value}
    assert "squall" in loaded and not loaded & {"sklearn", "scipy", "pandas", "typer", "rich"}


# ------------------------------------------------------------------------------------- settings


def test_wrong_settings_are_named_at_once() -> None:
    with pytest.raises(SettingError) as caught:
        squall.LithopsBackend(backend="", lifetime="1s", concurrency=0, config=3)  # type: ignore[arg-type]
    assert len(caught.value.problems) == 4


def test_elsewhere_nothing_of_this_machine_can_be_reached(tmp_path: Path) -> None:
    backend = squall.LithopsBackend(backend="aws_lambda")
    with pytest.raises(SettingError) as caught:
        squall.Run(backend=backend, storage=tmp_path)
    assert len(caught.value.problems) == 2
    assert "squall store serve" in str(caught.value) and "s3://" in str(caught.value)
    squall.Run(backend=backend, storage="s3://bucket", store="tls://store.example:7077")


def test_without_lithops_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("squall.functions.lithops")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "lithops", None)
    with pytest.raises(MissingExtraError, match="squall\\[lithops\\]"):
        BACKENDS.load("lithops")


def test_chaos_is_put_around_it(config: Path, shared: FunctionPlatform) -> None:
    backend = squall.LithopsBackend(config=config, chaos=Chaos(kill=0.5))
    assert isinstance(BACKENDS.load("lithops")(backend), ChaosPlatform)


def test_a_configuration_that_is_not_there(lithops_home: Path) -> None:
    with pytest.raises(PlatformError, match="cannot be used as configured") as caught:
        BACKENDS.load("lithops")(squall.LithopsBackend(config=lithops_home / "nothing.yaml"))
    assert caught.value.fix
