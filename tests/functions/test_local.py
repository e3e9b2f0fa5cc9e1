"""The local platform: the contract with each way of limiting memory, and what only it promises."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from squall import procfs
from squall.errors import PlatformError, SettingError
from squall.functions.local import leftovers, memory, pool, wire
from squall.functions.local.connection import Connection
from squall.functions.local.platform import MAX_LOG_BYTES, LocalPlatform
from squall.records import Outcome, OutcomeKind, Shape
from squall.testing.platform import WAIT_S, ClosingContract, FunctionPlatformContract, call, shape

SOURCE = str(Path(memory.__file__).parents[3])
Write = Callable[[str], str]


def cgroups_work() -> bool:
    limiter = memory.choose("auto", leftovers.owner_name(os.getpid()) + "-test")
    limiter.close()
    return limiter.name != "watchdog"


@pytest.fixture(scope="session", params=["cgroup", "watchdog"])
def mechanism(request: pytest.FixtureRequest) -> str:
    if request.param == "cgroup" and not cgroups_work():
        pytest.skip("cgroups are not permitted here")
    return str(request.param)


@pytest.fixture(scope="module")
def shared(mechanism: str) -> Iterator[LocalPlatform]:
    platform = LocalPlatform(_memory=mechanism)
    yield platform
    platform.close()


@pytest.fixture(scope="module")
def auto() -> Iterator[LocalPlatform]:
    """With default settings, for tests that need no platform of their own."""
    platform = LocalPlatform()
    yield platform
    platform.close()


@pytest.fixture
def fresh(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[LocalPlatform]:
    """A platform for one test; its temp folders are below the test's own."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    platform = LocalPlatform(**getattr(request, "param", {}))
    yield platform
    platform.close()
    assert not list(tmp_path.glob("squall-*"))


@pytest.fixture
def user_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Makes a user's module from source; gives its name."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(source: str) -> str:
        name = f"user_{len(list(tmp_path.glob('user_*.py')))}"
        (tmp_path / f"{name}.py").write_text(source)
        return name

    return write


class TestContract(FunctionPlatformContract):
    @pytest.fixture
    def platform(self, shared: LocalPlatform) -> LocalPlatform:
        return shared


class TestClosing(ClosingContract):
    @pytest.fixture
    def fresh(self, fresh: LocalPlatform) -> LocalPlatform:
        return fresh


# ------------------------------------------------------------------------------------ helpers


def eventually(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    give_up = time.monotonic() + seconds
    while time.monotonic() < give_up:
        if condition():
            return True
        time.sleep(0.005)
    return condition()


def descendants(pid: int) -> list[int]:
    found = []
    for child in procfs.children(pid):
        found += [child, *descendants(child)]
    return found


def connection_of(platform: LocalPlatform) -> Connection:
    connection = platform._held.current()
    assert connection is not None
    return connection


def launcher_pid(platform: LocalPlatform) -> int:
    return connection_of(platform).pid


def cgroups_of(pid: int) -> list[Path]:
    return list(Path("/sys/fs/cgroup").glob(f"memory/**/squall-*-{pid}-*"))


def nothing_left(pids: list[int], launcher: int, folder: Path) -> bool:
    return (
        not any(procfs.is_running(pid) for pid in [*pids, launcher])
        and not cgroups_of(launcher)
        and not list(folder.glob("squall-*"))
    )


def python(source: str, tmp_path: Path, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    """A client in a process of its own, fed through standard input."""
    process = subprocess.Popen(
        [*options.pop("before", []), sys.executable, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": SOURCE, "TMPDIR": str(tmp_path), **options.pop("env", {})},
        **options,
    )
    assert process.stdin is not None
    process.stdin.write(source)
    process.stdin.close()
    return process


def finish(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    with process.stdout:
        printed = process.stdout.read()
    assert process.wait(WAIT_S) == 0, printed
    return printed


BUSY_CLIENT = """
import json, sys, time
from squall.functions.local.platform import LocalPlatform
from squall.records import Shape
platform = LocalPlatform()
endpoint = platform.prepare(Shape("squall.testing.handlers:nest", 256, 60.0))
calls = [endpoint.invoke({"seconds": 60}) for _ in range(2)]
while not all("child" in call.logs() for call in calls):
    time.sleep(0.01)
print(platform._held.current().pid, flush=True)
time.sleep(60)
"""


# ------------------------------------------------------------------------- nothing is left


def test_killed_client_leaves_nothing(tmp_path: Path) -> None:
    with python(BUSY_CLIENT, tmp_path, "-") as client:
        assert client.stdout is not None
        launcher = int(client.stdout.readline())
        pids = descendants(launcher)
        assert len(pids) == 4  # two functions, each with a child
        client.kill()
        client.wait()
    assert eventually(lambda: nothing_left(pids, launcher, tmp_path))


@pytest.mark.parametrize("fresh", [{"_memory": "auto"}, {"_memory": "watchdog"}], indirect=True)
def test_killed_launcher(fresh: LocalPlatform, tmp_path: Path) -> None:
    endpoint = fresh.prepare(shape("nest"))
    calls = [endpoint.invoke({"seconds": 60}) for _ in range(2)]
    assert eventually(lambda: all("child" in running.logs() for running in calls))
    launcher = launcher_pid(fresh)
    pids = descendants(launcher)
    assert len(pids) == 4
    os.kill(launcher, signal.SIGKILL)
    for running in calls:
        outcome = running.outcome(WAIT_S)
        assert outcome.kind is OutcomeKind.LOST
        assert "-9" in outcome.error
    assert nothing_left(pids[:1], launcher, tmp_path)  # as soon as the loss is known
    assert eventually(lambda: nothing_left(pids, launcher, tmp_path))
    assert call(fresh, "echo", a=1).value == {"a": 1}
    assert launcher_pid(fresh) != launcher


def test_leftovers_of_both_killed_are_cleared_by_the_next(tmp_path: Path, fresh: LocalPlatform) -> None:
    with python(BUSY_CLIENT, tmp_path, "-") as client:
        assert client.stdout is not None
        launcher = int(client.stdout.readline())
        pids = descendants(launcher)
        client.send_signal(signal.SIGSTOP)  # so that it cannot clear up
        os.kill(launcher, signal.SIGKILL)
        client.kill()
        client.wait()
    assert list(tmp_path.glob("squall-*"))
    call(fresh, "echo")
    fresh.close()
    grandchildren_are_known = bool(cgroups_work())
    left = pids if grandchildren_are_known else [pid for pid in pids if procfs.children(pid)]
    assert eventually(lambda: nothing_left(left, launcher, tmp_path))


def test_others_leftovers_are_not_touched(tmp_path: Path, fresh: LocalPlatform) -> None:
    kept = [
        tmp_path / "squall-data",
        tmp_path / f"squall-1-{2**22}-1-other",  # of another container
        tmp_path / (leftovers.owner_name(os.getpid()) + "-running"),
    ]
    for folder in kept:
        folder.mkdir()
    call(fresh, "echo")
    fresh.close()
    assert all(folder.is_dir() for folder in kept)
    for folder in kept:
        folder.rmdir()


def test_close_removes_everything(fresh: LocalPlatform, tmp_path: Path) -> None:
    endpoint = fresh.prepare(shape("nest"))
    running = endpoint.invoke({"seconds": 60, "daemon": True})
    assert eventually(lambda: "child" in running.logs())
    launcher = launcher_pid(fresh)
    pids = descendants(launcher)
    assert len(pids) == 2
    fresh.close()
    assert nothing_left(pids, launcher, tmp_path)


def test_children_left_behind_end_with_their_environment(auto: LocalPlatform) -> None:
    child = call(auto, "abandon", exit=False).value
    assert procfs.is_running(child)
    call(auto, "abandon", exit=True)
    assert eventually(lambda: not procfs.is_running(child))


def test_unreadable_folders_are_removed_as_well(auto: LocalPlatform, user_module: Write) -> None:
    name = user_module(
        "import os\n"
        "def hide(event, context):\n"
        "    os.makedirs(context.temp_dir + '/a/b')\n"
        "    os.chmod(context.temp_dir + '/a/b', 0)\n"
        "    os.chmod(context.temp_dir + '/a', 0)\n"
        "    os._exit(0)\n"
    )
    assert call(auto, Shape(f"{name}:hide", 128, 5.0)).kind is OutcomeKind.EXITED


@pytest.mark.parametrize("fresh", [{"_idle_s": 0.2}], indirect=True)
def test_an_idle_launcher_ends_and_comes_back(fresh: LocalPlatform, tmp_path: Path) -> None:
    endpoint = fresh.prepare(shape("about"))
    first = endpoint.invoke({}).outcome(WAIT_S).value["pid"]
    launcher = launcher_pid(fresh)
    assert eventually(lambda: nothing_left([first], launcher, tmp_path))
    assert endpoint.invoke({}).outcome(WAIT_S).cold
    assert launcher_pid(fresh) != launcher


@pytest.mark.parametrize("fresh", [{"_idle_s": 0.3}], indirect=True)
def test_a_long_call_is_not_idleness(fresh: LocalPlatform) -> None:
    running = fresh.prepare(shape("sleep")).invoke({"seconds": 1.0})
    other = call(fresh, "about").value["pid"]
    assert eventually(lambda: not procfs.is_running(other), 0.9)
    assert running.outcome(WAIT_S).kind is OutcomeKind.RETURNED


def test_calls_leak_no_descriptors(fresh: LocalPlatform) -> None:
    def descriptors() -> tuple[int, int]:
        pids = (os.getpid(), launcher_pid(fresh))
        ours, theirs = (len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in pids)
        return ours, theirs

    endpoint = fresh.prepare(shape("exit_if"))
    endpoint.invoke({"exit": False}).outcome(WAIT_S)
    before = descriptors()
    for _ in range(20):
        endpoint.invoke({"exit": True}).outcome(WAIT_S)
        for _ in range(100):
            endpoint.invoke({"exit": False}).outcome(WAIT_S)
    assert eventually(lambda: descriptors() == before)


# ---------------------------------------------------------------------------- isolation


def test_descriptors_inside(auto: LocalPlatform, user_module: Write) -> None:
    name = user_module(
        "import os\n"
        "def look(event, context):\n"
        "    return {fd: os.readlink(f'/proc/self/fd/{fd}') for fd in os.listdir('/proc/self/fd')\n"
        "            if os.path.lexists(f'/proc/self/fd/{fd}')}\n"
    )
    with tempfile.TemporaryFile() as secret:
        os.set_inheritable(secret.fileno(), True)
        found = call(auto, Shape(f"{name}:look", 128, 5.0)).value
    assert found.pop("0") == "/dev/null"
    assert found.pop("1") == found.pop("2")
    assert found.pop("3").startswith("socket:")
    assert len(found) == 1  # the process's own /proc/self/statm
    assert next(iter(found.values())).endswith("/statm")


def test_modules_inside(auto: LocalPlatform) -> None:
    bare = subprocess.run(
        [sys.executable, "-P", "-c", "import sys; print(*sys.modules)"],
        capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": SOURCE},
    ).stdout.split()  # fmt: skip
    allowed = {"numpy", "obstore", "safetensors", "msgspec", "squall"}
    allowed |= {"typing_extensions"}  # obstore's
    allowed |= {name.partition(".")[0] for name in bare} | set(sys.stdlib_module_names)
    found = {name.partition(".")[0] for name in call(auto, "modules").value}
    assert found - allowed == set()


def test_environment_variables_inside(auto: LocalPlatform, user_module: Write) -> None:
    name = user_module("import os\ndef env(event, context): return [dict(os.environ), context.temp_dir]\n")
    inside, temp_dir = call(auto, Shape(f"{name}:env", 128, 5.0)).value
    assert inside.get("PYTHONPATH") == os.environ.get("PYTHONPATH")
    assert inside["OPENBLAS_NUM_THREADS"] == inside["OMP_NUM_THREADS"] == inside["MKL_NUM_THREADS"] == "1"
    assert inside["TMPDIR"] == temp_dir


def test_environments_draw_different_random_numbers(auto: LocalPlatform, user_module: Write) -> None:
    name = user_module(
        "import time, random, numpy as np\n"
        "def draw(event, context):\n"
        "    time.sleep(0.3)\n"
        "    return [random.random(), float(np.random.random())]\n"
    )
    endpoint = auto.prepare(Shape(f"{name}:draw", 128, 5.0))
    calls = [endpoint.invoke({}) for _ in range(2)]
    one, two = (running.outcome(WAIT_S).value for running in calls)
    assert one[0] != two[0]
    assert one[1] != two[1]


def test_ctrl_c_does_not_reach_functions(tmp_path: Path) -> None:
    source = """
import threading, time
from squall.functions.local.platform import LocalPlatform
from squall.records import Shape
platform = LocalPlatform()
running = platform.prepare(Shape("squall.testing.handlers:sleep", 128, 20.0)).invoke({"seconds": 1})
try:
    threading.Timer(0.3, print, ["started"], {"flush": True}).start()  # by then we sleep
    time.sleep(20)
except KeyboardInterrupt:
    print(running.outcome(10).kind)
"""
    client = python(source, tmp_path, "-", start_new_session=True)
    assert client.stdout is not None
    client.stdout.readline()
    os.killpg(client.pid, signal.SIGINT)
    assert finish(client) == "returned\n"


def test_a_handler_that_forks(auto: LocalPlatform, user_module: Write) -> None:
    """Its child returns from the handler, too, and must not answer in its place."""
    name = user_module("import os\ndef fork(event, context): return os.fork()\n")
    endpoint = auto.prepare(Shape(f"{name}:fork", 128, 5.0))
    for _ in range(3):
        assert endpoint.invoke({}).outcome(WAIT_S).value > 0


@pytest.mark.parametrize("what", ["os.closerange(3, 99)", "os.write(3, b'x' * 99)", "os.closerange(0, 3)"])
def test_a_handler_that_spoils_its_descriptors(auto: LocalPlatform, user_module: Write, what: str) -> None:
    name = user_module(
        f"import os, time\ndef spoil(event, context):\n    {what}\n    time.sleep(0.3)\n    return 1\n"
    )
    spoiler = Shape(f"{name}:spoil", 128, 5.0)
    assert call(auto, spoiler).kind in {OutcomeKind.KILLED, OutcomeKind.EXITED, OutcomeKind.RETURNED}
    assert call(auto, "echo").kind is OutcomeKind.RETURNED


# --------------------------------------------------------------------------------- limits


def test_memory_mechanism(shared: LocalPlatform, mechanism: str) -> None:
    shared.prepare(shape("echo"))
    assert connection_of(shared).memory.startswith(mechanism)


def test_memory_of_children_counts(shared: LocalPlatform, mechanism: str) -> None:
    """By the watchdog the environment is ended; the kernel ends whichever process is largest."""
    kind = call(shared, shape("allocate_in_child", memory_mb=128), megabytes=400).kind
    assert kind is (OutcomeKind.OUT_OF_MEMORY if mechanism == "watchdog" else OutcomeKind.RETURNED)


def test_memory_limit_for_other_users() -> None:
    if os.getuid() != 0 or not Path("/usr/bin/setpriv").exists():
        pytest.skip("needs root and setpriv, to be someone else")
    source = """
from squall.functions.local.platform import LocalPlatform
from squall.records import Shape
platform = LocalPlatform()
endpoint = platform.prepare(Shape("squall.testing.handlers:allocate", 128, 20.0))
running = endpoint.invoke({"megabytes": 400, "pause_s": 0.001})
print(platform._held.current().memory, running.outcome(20).kind)
"""
    # Python may be installed where others cannot read: this is the right to, not to write.
    reading = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *reading]
    with tempfile.TemporaryDirectory() as home:  # pytest's own folders are closed to others
        Path(home).chmod(0o777)
        assert finish(python(source, Path(home), "-", before=nobody)) == "watchdog out of memory\n"
        assert not list(Path(home).glob("squall-*"))


@pytest.mark.parametrize("fresh", [{"concurrency": 2}], indirect=True)
def test_concurrency(fresh: LocalPlatform) -> None:
    endpoint = fresh.prepare(shape("span"))
    calls = [endpoint.invoke({"seconds": 0.1}) for _ in range(6)]
    spans = [running.outcome(WAIT_S).value for running in calls]
    starts = [start for start, _ in spans]
    assert starts == sorted(starts)
    assert max(sum(a <= start < b for a, b in spans) for start in starts) == 2


@pytest.mark.parametrize("fresh", [{"concurrency": 1}], indirect=True)
def test_cancel_in_the_queue(fresh: LocalPlatform) -> None:
    endpoint = fresh.prepare(shape("sleep"))
    first, second = endpoint.invoke({"seconds": 0.3}), endpoint.invoke({"seconds": 60})
    assert second.cancel()
    assert "before it started" in second.outcome(WAIT_S).error
    assert first.outcome(WAIT_S).kind is OutcomeKind.RETURNED


@pytest.mark.parametrize("fresh", [{"lifetime_s": 0.3}], indirect=True)
def test_lifetime_caps_timeouts(fresh: LocalPlatform) -> None:
    endpoint = fresh.prepare(shape("sleep"))
    assert endpoint.shape.timeout_s == 0.3
    assert endpoint.invoke({"seconds": 60}).outcome(WAIT_S).kind is OutcomeKind.TIMED_OUT


def test_slow_import_is_not_the_functions_time(auto: LocalPlatform, user_module: Write) -> None:
    name = user_module("import time\ntime.sleep(0.6)\ndef f(event, context): return context.remaining_s()\n")
    outcome = call(auto, Shape(f"{name}:f", 128, 0.3))
    assert 0.2 < outcome.value <= 0.3
    assert outcome.billed_s > 0.6


def test_environments_that_die_while_idle_are_not_used(fresh: LocalPlatform, user_module: Write) -> None:
    name = user_module(
        "import os, threading\n"
        "def doom(event, context): threading.Timer(event['after'], os._exit, (7,)).start()\n"
    )
    endpoint = fresh.prepare(Shape(f"{name}:doom", 128, 5.0))
    for after in (0.0, 0.001, 0.005, 0.02):
        assert endpoint.invoke({"after": after}).outcome(WAIT_S).kind in {
            OutcomeKind.RETURNED,
            OutcomeKind.EXITED,
        }
        time.sleep(0.05)
        assert endpoint.invoke({"after": 9}).outcome(WAIT_S).kind is OutcomeKind.RETURNED
        time.sleep(0.05)


@pytest.mark.parametrize("fresh", [{"concurrency": 1}], indirect=True)
def test_a_queued_call_is_not_given_to_the_dead(fresh: LocalPlatform, user_module: Write) -> None:
    """An environment that answers and dies at once must not take the next call with it."""
    name = user_module(
        "import os, signal, threading\n"
        "def f(event, context):\n"
        "    if event['die']: threading.Timer(0.0, os.kill, (os.getpid(), signal.SIGKILL)).start()\n"
    )
    endpoint = fresh.prepare(Shape(f"{name}:f", 128, 5.0))
    for _ in range(5):
        first, second = endpoint.invoke({"die": True}), endpoint.invoke({"die": False})
        kinds = first.outcome(WAIT_S).kind, second.outcome(WAIT_S).kind
        # The timer may also fire during the second call, which then was begun: killed.
        assert set(kinds) <= {OutcomeKind.RETURNED, OutcomeKind.KILLED}
    assert endpoint.invoke({"die": False}).outcome(WAIT_S).kind is OutcomeKind.RETURNED


def test_more_calls_than_the_machine_has_descriptors_for(tmp_path: Path) -> None:
    source = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
from squall.functions.local.platform import LocalPlatform
from squall.records import Shape
platform = LocalPlatform()
sleep = platform.prepare(Shape("squall.testing.handlers:sleep", 128, 20.0))
calls = [sleep.invoke({"seconds": 0.05}) for _ in range(50)]
print({call.outcome(20).kind.value for call in calls})
echo = platform.prepare(Shape("squall.testing.handlers:echo", 128, 20.0))
print(echo.invoke({}).outcome(20).kind)
"""
    assert finish(python(source, tmp_path, "-")) == "{'returned'}\nreturned\n"


@pytest.mark.parametrize("settings", [{"concurrency": 0}, {"lifetime_s": 0.0}, {"lifetime_s": -1.0}])
def test_wrong_settings(settings: dict[str, Any]) -> None:
    with pytest.raises(SettingError):
        LocalPlatform(**settings)


def test_result_too_large(auto: LocalPlatform, user_module: Write) -> None:
    name = user_module("def big(event, context): return 'x' * event['size']\n")
    endpoint = auto.prepare(Shape(f"{name}:big", 256, 5.0))
    fits = (6 << 20) - 2  # with two quotes
    assert len(endpoint.invoke({"size": fits}).outcome(WAIT_S).value) == fits
    outcome = endpoint.invoke({"size": fits + 1}).outcome(WAIT_S)
    assert outcome.kind is OutcomeKind.RAISED
    assert "6,291,457 bytes" in outcome.error


# ------------------------------------------------------------------------------------ logs


def test_logs_keep_the_last_megabyte(auto: LocalPlatform, user_module: Write) -> None:
    name = user_module(
        "def chatter(event, context):\n"
        "    for number in range(120_000):\n"
        "        print(f'line {number:06}')\n"
    )  # fmt: skip
    running = auto.prepare(Shape(f"{name}:chatter", 128, 20.0)).invoke({})
    assert running.outcome(WAIT_S).kind is OutcomeKind.RETURNED
    logs = running.logs()
    assert len(logs) == MAX_LOG_BYTES
    assert logs.endswith("line 119998\nline 119999\n")


def test_logs_wait_for_a_client_that_is_busy(fresh: LocalPlatform, user_module: Write) -> None:
    """The launcher holds 4 MB of them and then stops the function, not itself."""
    name = user_module(
        "import os\n"
        "def flood(event, context):\n"
        "    for _ in range(100): os.write(1, b'x' * 99_999 + b'\\n')\n"
    )
    busy, go_on = threading.Event(), threading.Event()

    def hold(_: Outcome) -> None:
        busy.set()
        go_on.wait(WAIT_S)

    fresh.prepare(shape("sleep")).invoke({"seconds": 0.1}).add_done_callback(hold)
    assert busy.wait(WAIT_S)
    running = fresh.prepare(Shape(f"{name}:flood", 128, 20.0)).invoke({})
    time.sleep(0.4)
    assert procfs.private_bytes(launcher_pid(fresh)) < 60 << 20
    go_on.set()
    assert running.outcome(WAIT_S).kind is OutcomeKind.RETURNED
    assert len(running.logs()) == MAX_LOG_BYTES


def test_logs_of_c_code(auto: LocalPlatform, user_module: Write) -> None:
    name = user_module("import ctypes\ndef c(event, context): ctypes.CDLL(None).printf(b'from C')\n")
    running = auto.prepare(Shape(f"{name}:c", 128, 5.0)).invoke({})
    running.outcome(WAIT_S)
    assert running.logs() == "from C"


def test_logs_while_running(auto: LocalPlatform) -> None:
    running = auto.prepare(shape("nest")).invoke({"seconds": 60})
    assert eventually(lambda: "child" in running.logs())
    running.cancel()


def test_exit_message_is_in_the_log(auto: LocalPlatform) -> None:
    running = auto.prepare(shape("exit_with")).invoke({"code": "no more work"})
    assert running.outcome(WAIT_S).exit_code == 1
    assert running.logs() == "no more work\n"


# ---------------------------------------------------------------------------- any client

CLIENT = """
import os, sys
{before}
from squall.functions.local import pool
from squall.records import Shape
endpoint = pool.shared().prepare(Shape("squall.testing.handlers:echo", 128, 10.0))
print(endpoint.invoke({{"a": 1}}).outcome(20).value)
"""


@pytest.mark.parametrize("arguments", [["-"], ["-I", "-"], ["script.py"]])
def test_unguarded_clients(tmp_path: Path, arguments: list[str]) -> None:
    """From standard input, isolated, as a script; squall found by hand on sys.path."""
    source = CLIENT.format(before=f"sys.path.insert(0, {SOURCE!r})")
    (tmp_path / "script.py").write_text(source)
    (tmp_path / "random.py").write_text("raise RuntimeError('shadows the standard library')")
    if arguments == ["script.py"]:  # there Python itself looks first
        (tmp_path / "random.py").unlink()
    elif arguments == ["-"]:
        arguments = ["-P", "-"]
    printed = finish(python(source, tmp_path, *arguments, env={"PYTHONPATH": ""}))
    assert printed == "{'a': 1}\n"
    assert not list(tmp_path.glob("squall-*"))


def test_user_modules_are_found(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def f(event, context): return 'mine'")
    source = CLIENT.format(before="").replace("squall.testing.handlers:echo", "mine:f")
    assert finish(python(source, tmp_path, "-")) == "mine\n"


def test_a_thread_may_start_it_and_end(auto: LocalPlatform) -> None:
    """(With a parent-death signal its functions would end with the thread.)"""
    started: list[Any] = []
    thread = threading.Thread(
        target=lambda: started.append(auto.prepare(shape("sleep")).invoke({"seconds": 0.5}))
    )
    thread.start()
    thread.join()
    assert started[0].outcome(WAIT_S).kind is OutcomeKind.RETURNED


def test_a_forked_client(tmp_path: Path) -> None:
    """The child neither uses nor closes its parent's launcher, and keeps it from no end."""
    source = """
import os, sys, time
from squall.errors import PlatformError
from squall.functions.local import pool
from squall.functions.local.platform import LocalPlatform
from squall.records import Shape
shape = Shape("squall.testing.handlers:echo", 128, 10.0)
mine, shared = LocalPlatform(), pool.shared()
endpoint = mine.prepare(shape)
shared.prepare(shape).invoke({}).outcome(20)
pid = os.fork()
if pid == 0:
    try:
        endpoint.invoke({})
    except PlatformError as error:
        print("refused", flush=True)
    mine.close()
    print(pool.shared().prepare(shape).invoke({"in": "child"}).outcome(20).value, flush=True)
    sys.exit()
os.waitpid(pid, 0)
print(endpoint.invoke({"in": "parent"}).outcome(20).value)
print(shared.prepare(shape).invoke({"in": "parent"}).outcome(20).value)
"""
    printed = finish(python(source, tmp_path, "-")).splitlines()
    assert printed == ["refused", "{'in': 'child'}", "{'in': 'parent'}", "{'in': 'parent'}"]
    assert not list(tmp_path.glob("squall-*"))


def test_a_forked_client_does_not_keep_the_launcher(tmp_path: Path) -> None:
    source = BUSY_CLIENT.replace(
        "time.sleep(60)\n", "import os\nif os.fork() == 0: time.sleep(5)\nelse: time.sleep(60)\n"
    )
    with python(source, tmp_path, "-", start_new_session=True) as client:
        assert client.stdout is not None
        launcher = int(client.stdout.readline())
        assert eventually(lambda: len(procfs.children(client.pid)) == 2)
        client.kill()
        client.wait()
        assert eventually(lambda: nothing_left([], launcher, tmp_path), 4.0)
        os.killpg(client.pid, signal.SIGKILL)


def test_collected_platform_ends_its_launcher() -> None:
    platform = LocalPlatform()
    platform.prepare(shape("echo"))
    launcher = launcher_pid(platform)
    del platform
    assert eventually(lambda: not procfs.is_running(launcher))


def test_close_from_a_callback(fresh: LocalPlatform) -> None:
    running = fresh.prepare(shape("sleep")).invoke({"seconds": 0.2})
    closed = threading.Event()
    launcher = launcher_pid(fresh)

    def close(_: Outcome) -> None:
        fresh.close()
        closed.set()

    running.add_done_callback(close)
    assert closed.wait(WAIT_S)
    assert eventually(lambda: not procfs.is_running(launcher))


def test_callbacks_may_call_again_while_it_closes(fresh: LocalPlatform) -> None:
    """A driver that starts successors from callbacks must get an error, not a deadlock."""
    endpoint = fresh.prepare(shape("sleep"))
    refused = threading.Event()

    def again(_: Outcome) -> None:
        try:
            endpoint.invoke({"seconds": 60}).add_done_callback(again)
        except PlatformError:
            refused.set()

    endpoint.invoke({"seconds": 60}).add_done_callback(again)
    started = time.monotonic()
    fresh.close()
    assert refused.is_set()
    assert time.monotonic() - started < 5


def test_callbacks_may_call_again_after_a_loss(fresh: LocalPlatform) -> None:
    endpoint = fresh.prepare(shape("sleep"))
    again: list[Any] = []
    lost = endpoint.invoke({"seconds": 60})
    lost.add_done_callback(lambda _: again.append(endpoint.invoke({"seconds": 0})))
    os.kill(launcher_pid(fresh), signal.SIGKILL)
    while lost.outcome(WAIT_S).kind is not OutcomeKind.LOST or not again:
        assert endpoint.invoke({"seconds": 0}).outcome(WAIT_S).kind in {
            OutcomeKind.RETURNED,
            OutcomeKind.LOST,
        }
    assert again[0].outcome(WAIT_S).kind is OutcomeKind.RETURNED


def test_launcher_that_cannot_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho cannot find the moon >&2\nexit 3\n")
    broken.chmod(0o755)
    for executable, text in (
        (str(broken), "cannot find the moon"),
        ("/no/such/python", "No such file"),
        ("", "empty"),
    ):
        monkeypatch.setattr(sys, "executable", executable)
        platform = LocalPlatform()
        with pytest.raises(PlatformError, match=text) as caught:
            platform.prepare(shape("echo"))
        assert caught.value.fix
        platform.close()


@pytest.mark.parametrize(("times", "starts"), [(1, True), (2, False)])
def test_a_launcher_that_is_killed_while_it_starts_gets_one_successor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int, starts: bool
) -> None:
    fragile = tmp_path / "python"
    fragile.write_text(
        f"#!/bin/sh\necho x >>{tmp_path}/starts\n[ $(wc -l <{tmp_path}/starts) -le {times} ] && kill -9 $$\n"
        f'exec {sys.executable} "$@"\n'
    )
    fragile.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(fragile))
    platform = LocalPlatform()
    if starts:
        assert call(platform, "echo", a=1).value == {"a": 1}
    else:
        with pytest.raises(PlatformError, match="did not start"):
            platform.prepare(shape("echo"))
    platform.close()
    assert (tmp_path / "starts").read_text() == "x\n" * 2


def test_a_launcher_whose_folder_was_removed_makes_another(fresh: LocalPlatform) -> None:
    """As by something that tidies the system's folder for temporary files."""
    endpoint = fresh.prepare(shape("about"))
    warm = endpoint.invoke({}).outcome(WAIT_S)
    shutil.rmtree(connection_of(fresh).home)
    again = endpoint.invoke({}).outcome(WAIT_S)
    assert again.value["pid"] == warm.value["pid"] and not again.cold
    shutil.rmtree(connection_of(fresh).home, ignore_errors=True)  # it may not have been needed again yet
    assert fresh.prepare(shape("about", memory_mb=192)).invoke({}).outcome(WAIT_S).value["temp_dir"]


def test_a_client_that_is_killed_while_its_launcher_starts_leaves_nothing(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        launcher = subprocess.Popen(
            [sys.executable, "-m", "squall.functions.local.launcher", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stderr=subprocess.DEVNULL,
            env={**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": SOURCE},
        )
    ours.sendall(wire.frame(wire.Hello(10, "auto", 60.0, None, False, 512)))
    ours.close()
    launcher.wait(WAIT_S)
    assert list(tmp_path.iterdir()) == [] and not cgroups_of(launcher.pid)


def test_pool_shares_and_ends() -> None:
    one = pool.shared(concurrency=3)
    assert pool.shared(concurrency=3) is one
    assert pool.shared() is not one
    call(one, "echo")
    launcher = launcher_pid(one)
    pool.shutdown()
    assert not procfs.is_running(launcher)
    assert pool.shared(concurrency=3) is not one
    pool.shutdown()


def test_warm_environments_are_reused_last_used_first(auto: LocalPlatform) -> None:
    endpoint = auto.prepare(shape("sleep"))
    both = [endpoint.invoke({"seconds": seconds}) for seconds in (0.4, 0.1)]
    slow, quick = (running.outcome(WAIT_S).value for running in both)
    assert slow != quick
    for _ in range(3):
        outcome = endpoint.invoke({"seconds": 0}).outcome(WAIT_S)
        assert (outcome.value, outcome.cold) == (slow, False)
    assert call(auto, shape("sleep", memory_mb=300), seconds=0).value not in {slow, quick}
