"""CPU time in proportion to memory: what the kernel's quota leaves to a function."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import squall
from squall.errors import PlatformError, SettingError
from squall.functions.local import cpu, memory
from squall.functions.local.platform import LocalPlatform
from squall.records import OutcomeKind
from squall.registry import BACKENDS
from squall.testing.platform import call, shape

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="cgroups are Linux's")


@pytest.fixture(scope="module")
def emulating() -> Iterator[LocalPlatform]:
    platform = LocalPlatform(emulate_cpu=True)
    try:
        platform.prepare(shape("echo"))
    except PlatformError as error:
        pytest.skip(str(error))
    yield platform
    platform.close()


def test_the_quota_is_one_cpu_at_1769_mb() -> None:
    period = cpu.quota_us(1769 << 20)
    assert cpu.quota_us(3538 << 20) == 2 * period
    assert cpu.quota_us(442 << 20) == pytest.approx(period / 4, rel=0.01)


@pytest.mark.parametrize("megabytes", [177, 442])
def test_a_function_gets_its_share_and_no_more(emulating: LocalPlatform, megabytes: int) -> None:
    outcome = call(emulating, shape("cpu_share", megabytes), seconds=1.5)
    assert outcome.kind is OutcomeKind.RETURNED
    share = megabytes / 1769
    assert 0.0 < outcome.value < 1.25 * share + 0.03


def test_more_memory_is_more_time(emulating: LocalPlatform) -> None:
    few, many = (
        emulating.prepare(shape("cpu_share", megabytes)).invoke({"seconds": 1.5}) for megabytes in (177, 1062)
    )
    assert few.outcome(30).value < many.outcome(30).value


def test_memory_is_limited_as_ever(emulating: LocalPlatform) -> None:
    outcome = call(emulating, shape("allocate", 256), megabytes=600, pause_s=0.0)
    assert outcome.kind is OutcomeKind.OUT_OF_MEMORY


def test_nothing_is_left_of_its_cgroups(emulating: LocalPlatform) -> None:
    def groups() -> set[Path]:
        found = {path for _, parent in memory.parents(Path("/proc/self"), "cpu") for path in parent.iterdir()}
        return {path for path in found if path.is_dir()}

    other = LocalPlatform(emulate_cpu=True)
    before = groups()
    call(other, "echo")
    made = groups() - before
    other.close()
    assert not made & groups()


def test_where_no_cgroup_can_be_made_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "parents", lambda proc, controller: iter(()))
    with pytest.raises(PlatformError, match="emulate_cpu") as caught:
        cpu.proportional(memory.Watchdog(), "squall-test")
    assert caught.value.fix


def test_the_setting_reaches_the_platform(emulating: LocalPlatform) -> None:
    platform = BACKENDS.load("local")(squall.LocalBackend(emulate_cpu=True))
    outcome = call(platform, shape("cpu_share", 177), seconds=1.0)
    assert outcome.value < 0.2
    squall.shutdown()
    with pytest.raises(SettingError, match="emulate_cpu"):
        squall.LocalBackend(emulate_cpu="yes")  # type: ignore[arg-type]
