"""``isolation="strict"``: the contract, and that functions reach nothing of the client's."""

from __future__ import annotations

import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

import squall
from squall.errors import PlatformError, SettingError
from squall.functions.local import hiding, wire
from squall.functions.local.platform import LocalPlatform
from squall.functions.local.readable import readable
from squall.records import OutcomeKind, Shape
from squall.testing.platform import WAIT_S, ClosingContract, FunctionPlatformContract, call, shape

SOURCE = str(Path(squall.__file__).parents[1])
PROBED = {
    "file", "folder", "write", "socket", "abstract socket", "memory", "variable", "cwd",
    "environ in /proc", "files through /proc", "signals",
}  # fmt: skip

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="strict isolation needs Linux")


@pytest.fixture(scope="module")
def strict() -> Iterator[LocalPlatform]:
    platform = LocalPlatform(isolation="strict")
    yield platform
    platform.close()


class TestContract(FunctionPlatformContract):
    @pytest.fixture
    def platform(self, strict: LocalPlatform) -> LocalPlatform:
        return strict


class TestClosing(ClosingContract):
    @pytest.fixture
    def fresh(self) -> Iterator[LocalPlatform]:
        platform = LocalPlatform(isolation="strict")
        yield platform
        platform.close()


# ------------------------------------------------------------------------------- the probe


@pytest.fixture
def bait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, object]]:
    """An event that names what is the client's: all of it is really there."""
    folder = tmp_path / "client"
    folder.mkdir()
    file = folder / "secret.txt"
    file.write_text("secret")
    monkeypatch.setenv("SQUALL_TEST_SECRET", "secret")
    abstract = f"squall-test-{os.getpid()}"
    with (
        file.open() as inherited,
        socket.socket(socket.AF_UNIX) as named,
        socket.socket(socket.AF_UNIX) as bare,
    ):
        os.set_inheritable(inherited.fileno(), True)
        named.bind(str(tmp_path / "socket"))
        bare.bind("\0" + abstract)
        named.listen()
        bare.listen()
        yield {
            "file": str(file),
            "folder": str(folder),
            "socket": str(tmp_path / "socket"),
            "abstract": abstract,
            "variable": "SQUALL_TEST_SECRET",
            "cwd": str(Path.cwd()),
            "pid": os.getpid(),
        }


def test_with_isolation_off_all_of_the_client_is_reached(bait: dict[str, object]) -> None:
    platform = LocalPlatform()
    try:
        assert set(call(platform, "probe", **bait).value) == PROBED  # (descriptors are closed in any case)
    finally:
        platform.close()


def test_strict_functions_reach_nothing_of_the_client(strict: LocalPlatform, bait: dict[str, object]) -> None:
    if strict.exposed():
        pytest.skip(f"cannot be hidden here: {strict.exposed()}")
    assert call(strict, "probe", **bait).value == []


OTHER_USER = """
import os, socket, sys
from pathlib import Path
from squall.functions.local.platform import LocalPlatform
from squall.records import Shape
folder = Path("client").absolute()
folder.mkdir()
(folder / "secret.txt").write_text("secret")
os.environ["SQUALL_TEST_SECRET"] = "secret"
named, bare = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
named.bind("socket")
bare.bind("\\0squall-other-" + str(os.getpid()))
named.listen()
bare.listen()
event = dict(
    file=str(folder / "secret.txt"), folder=str(folder), socket=os.path.abspath("socket"), pid=os.getpid(),
    abstract="squall-other-" + str(os.getpid()), variable="SQUALL_TEST_SECRET", cwd=os.getcwd(),
)
platform = LocalPlatform(isolation="strict")
running = platform.prepare(Shape("squall.testing.handlers:probe", 128, 20.0)).invoke(event)
outcome = running.outcome(20)
assert outcome.kind == "returned", (outcome, running.logs())
print(sorted(outcome.value))
platform.close()
os.remove("socket")
"""


def as_nobody() -> list[str]:
    """The start of a command run by a user without rights, who can read Python all the same.

    Where Python lies in a folder that is closed to others (root's home, say), that folder is
    replaced, for this command alone, by an open one that holds only Python.
    """
    drop = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    needed = {sys.base_prefix, sys.prefix, SOURCE}
    closed = {str(a) for n in needed for a in Path(n).parents if not a.stat().st_mode & 0o001}
    script = []
    for number, folder in enumerate(sorted(closed)):
        inside = sorted(n for n in needed if n.startswith(folder + "/"))
        keep = [f"$KEEP/{number}-{index}" for index in range(len(inside))]
        script += [f"mkdir {k}; mount --bind {n} {k}" for k, n in zip(keep, inside, strict=True)]
        script += [f"mount -t tmpfs -o mode=755 tmpfs {folder}"]
        script += [f"mkdir -p {n}; mount --move {k} {n}" for k, n in zip(keep, inside, strict=True)]
    prepare = "; ".join(["set -e", "KEEP=$PWD/keep; mkdir $KEEP", "mount -t tmpfs tmpfs $KEEP", *script])
    return ["unshare", "--mount", "/bin/sh", "-c", f'{prepare}; exec "$@"', "sh", *drop]


def client(source: str, home: Path, before: list[str], **variables: str) -> str:
    done = subprocess.run(
        [*before, sys.executable, "-c", source],
        capture_output=True, text=True, cwd=home, timeout=WAIT_S, check=False,
        env={**os.environ, "PYTHONPATH": SOURCE, "TMPDIR": str(home), **variables},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users may write to (pytest's own are closed to them)."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)


def test_other_users_functions_reach_nothing_either(open_folder: Path) -> None:
    if os.getuid() != 0 or not Path("/usr/bin/setpriv").exists():
        pytest.skip("needs root and setpriv, to be someone else")
    assert client(OTHER_USER, open_folder, as_nobody()) == "[]"


def test_without_the_right_to_hide_it_is_told(open_folder: Path) -> None:
    """Then memory, descriptors, variables and the working folder are kept apart all the same."""
    (open_folder / "sitecustomize.py").write_text(
        "from squall.functions.local import hiding\n"
        "hiding._PIVOT_ROOT = {}\n"
        "hiding._LANDLOCK_CREATE_RULESET = 9999\n"
    )
    path = os.pathsep.join([str(open_folder), SOURCE])
    source = OTHER_USER.replace("platform.close()", "print(len(platform.exposed())); platform.close()")
    found, exposed = client(source, open_folder, [], PYTHONPATH=path).splitlines()
    assert exposed == "2"
    assert not {"memory", "variable", "cwd"} & set(eval(found))
    assert "file" in found


# ------------------------------------------------------------------------------ what is seen


@pytest.fixture
def user_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(source: str) -> str:
        (tmp_path / "strict_user.py").write_text(source)
        return "strict_user"

    return write


def test_code_on_sys_path_is_seen_and_data_beside_it_is_not(
    strict: LocalPlatform, user_module: Callable[[str], str], tmp_path: Path
) -> None:
    (tmp_path / "data.csv").write_text("secret")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("WORD = 'found'")
    name = user_module(
        "import os, package\n"
        "def look(event, context): return [package.WORD, sorted(os.listdir(event['folder']))]\n"
    )
    outcome = call(strict, Shape(f"{name}:look", 128, 20.0), folder=str(tmp_path))
    assert outcome.value == ["found", ["package", "strict_user.py"]], outcome


def test_code_cannot_be_written_to(strict: LocalPlatform, user_module: Callable[[str], str]) -> None:
    name = user_module("def spoil(event, context): open(__file__, 'a').write('# spoiled')\n")
    outcome = call(strict, Shape(f"{name}:spoil", 128, 20.0))
    assert (outcome.kind, outcome.error_type) == (OutcomeKind.RAISED, "OSError")
    assert "Read-only" in outcome.error


def test_readable_is_no_more_than_python_packages_and_code(tmp_path: Path) -> None:
    (tmp_path / "code.py").touch()
    (tmp_path / "notes.txt").touch()
    (tmp_path / "data").mkdir()
    shown = readable([str(tmp_path), str(tmp_path / "missing")], "code:f")
    assert [path for path in shown if path.startswith(str(tmp_path))] == [str(tmp_path / "code.py")]
    assert str(Path(squall.__file__).parent) in shown
    assert sys.executable in shown


def test_environment_variables(strict: LocalPlatform, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "very secret")
    monkeypatch.setenv("AWS_PROFILE", "of files that are hidden")
    monkeypatch.setenv("LD_PRELOAD_PATH", "x")
    inside = call(strict, "variables").value
    assert inside.pop("AWS_SECRET_ACCESS_KEY") == "very secret"
    given = {name for name in os.environ if name.startswith("AWS_")} - {"AWS_PROFILE"}
    assert set(inside) - given == {
        "PATH", "LANG", "TZ", "HOME", "TMPDIR", "PYTHONDONTWRITEBYTECODE", "SQUALL_ISOLATION",
        "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS",
    }  # fmt: skip
    assert inside["HOME"] == inside["TMPDIR"]


def test_new_credentials_reach_new_environments(
    strict: LocalPlatform, monkeypatch: pytest.MonkeyPatch
) -> None:
    for token in ("first", "second"):
        monkeypatch.setenv("AWS_SESSION_TOKEN", token)
        assert call(strict, "variables").value["AWS_SESSION_TOKEN"] == token


def test_secrets_are_not_shown() -> None:
    prepared = wire.Prepare(1, "m:f", 128, 1.0, [], [], {"AWS_SECRET_ACCESS_KEY": "very secret"})
    assert "very secret" not in f"{prepared!r} {prepared} {wire.Enter(prepared, 0.0, 1)!r}"


def test_modules_are_few(strict: LocalPlatform) -> None:
    roots = {name.partition(".")[0] for name in call(strict, "modules").value}
    foreign = roots - set(sys.stdlib_module_names) - {"numpy", "msgspec", "squall"}
    foreign -= {"__main__", "typing_extensions"}  # (msgspec's)
    assert {name for name in foreign if not name.startswith("_")} == set()


def test_the_network_is_there(strict: LocalPlatform, user_module: Callable[[str], str]) -> None:
    name = user_module(
        "import socket\n"
        "def dial(event, context):\n"
        "    with socket.create_connection(('127.0.0.1', event['port'])) as s: return s.recv(9).decode()\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as server:
        running = strict.prepare(Shape(f"{name}:dial", 128, 20.0)).invoke({"port": server.getsockname()[1]})
        server.settimeout(WAIT_S)
        accepted, _ = server.accept()
        with accepted:
            accepted.sendall(b"hello")
        assert running.outcome(WAIT_S).value == "hello"


# ----------------------------------------------------------------------------------- rules


def test_calls_above_the_concurrency_are_throttled_not_queued() -> None:
    platform = LocalPlatform(concurrency=1, isolation="strict")
    try:
        endpoint = platform.prepare(shape("sleep"))
        first = endpoint.invoke({"seconds": 0.5})
        second = endpoint.invoke({"seconds": 0})
        outcome = second.outcome(WAIT_S)
        assert (outcome.kind, outcome.billed_s) == (OutcomeKind.THROTTLED, 0.0)
        assert first.outcome(WAIT_S).kind is OutcomeKind.RETURNED
        assert endpoint.invoke({"seconds": 0}).outcome(WAIT_S).kind is OutcomeKind.RETURNED
    finally:
        platform.close()


@pytest.mark.parametrize("memory_mb", [127, 10_241])
def test_memory_is_within_lambdas_range(strict: LocalPlatform, memory_mb: int) -> None:
    with pytest.raises(PlatformError, match="cannot be had") as caught:
        strict.prepare(shape("echo", memory_mb=memory_mb))
    assert "128" in str(caught.value.fix)


def test_lifetime_is_at_most_lambdas(strict: LocalPlatform) -> None:
    with pytest.raises(SettingError, match="more than the 900 s of AWS Lambda"):
        LocalPlatform(lifetime_s=901, isolation="strict")
    assert strict.prepare(shape("echo", timeout_s=3600)).shape.timeout_s == 900


def test_temp_folder_is_limited() -> None:
    platform = LocalPlatform(isolation="strict")
    platform._limits = msgspec.structs.replace(platform._limits, temp_mb=4)
    try:
        for _ in range(2):  # the second, warm call finds it empty again
            assert call(platform, "fill", megabytes=3).value == ""
        assert call(platform, "fill", megabytes=5).value in {"No space left on device", "File too large"}
    finally:
        platform.close()


def test_cold_starts_take_a_fraction_of_a_second(
    strict: LocalPlatform, record_property: Callable[[str, object], None]
) -> None:
    took = []
    for number in range(3):
        endpoint = strict.prepare(shape("echo", memory_mb=300 + number))
        started = time.monotonic()
        assert endpoint.invoke({}).outcome(WAIT_S).cold
        took.append(time.monotonic() - started)
    record_property("strict_cold_start_s", round(statistics.median(took), 3))
    print(f"cold starts: {', '.join(f'{seconds:.2f}' for seconds in took)} s")
    assert min(took) < 5


def test_what_can_be_hidden_is_found_out_without_a_trace(tmp_path: Path) -> None:
    hides = hiding.what_can_be_hidden(str(tmp_path))
    assert not list(tmp_path.iterdir())
    assert len(hides.exposed()) == 2 - hides.files - hides.processes
