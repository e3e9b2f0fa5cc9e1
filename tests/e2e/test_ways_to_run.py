"""Squall works from wherever Python is typed, and leaves nothing behind however it ends."""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

SCRIPT = """
import numpy as np, squall
rng = np.random.default_rng(0)
X = rng.random((500, 4)); y = X[:, 0] > 0.5
with squall.Run(workers=2):
    model = squall.LogisticRegression(epochs=3).fit(X, y)
print("rows", model.history_[-1].rows)
"""

# Trains until something stops it; says when it has begun.
ENDLESS = """
import signal, sys, threading, numpy as np, squall
signal.signal(signal.SIGINT, signal.default_int_handler)  # also where the tests run in the background
rng = np.random.default_rng(0)
X = rng.random((3000, 4)); y = X[:, 0] > 0.5
job = squall.submit(squall.LogisticRegression(epochs=10_000_000), (X, y), run=squall.Run(workers=2))
while job.status().epoch < 2: threading.Event().wait(0.01)
threading.Timer(0.3, print, ["training"], {"flush": True}).start()  # by then we wait
model = job.wait()
print(model.stopped_, model.score(X, y) > 0.9, model.cost_usd_ > 0, flush=True)
"""


@pytest.fixture
def marker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """A word in the environment of everything that a test starts; at the end none of it is left."""
    word = f"squall-test-{os.getpid()}-{time.monotonic_ns()}"
    monkeypatch.setenv("SQUALL_TEST_MARKER", word)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    yield word
    until = time.monotonic() + 10
    while left := processes_with(word):
        assert time.monotonic() < until, f"still running: {left}"
        time.sleep(0.05)
    assert list((tmp_path / "tmp").iterdir()) == [], "temporary files were left"
    jobs = tmp_path / "storage" / "jobs"
    assert not jobs.exists() or list(jobs.iterdir()) == [], "partitions were left"


def processes_with(word: str) -> dict[int, str]:
    """Command line by id of processes (zombies aside) that have the word in their environment."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if word.encode() in (folder / "environ").read_bytes():
                found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:  # it has ended meanwhile, or is not ours
            continue
    return found


def run(*command: str, text: str = "") -> str:
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stderr
    assert "Error" not in done.stderr, done.stderr
    return done.stdout


@pytest.mark.slow
def test_from_standard_input(marker: str) -> None:
    assert "rows 500" in run(sys.executable, "-", text=SCRIPT)


def test_an_unguarded_script(marker: str, tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    assert "rows 500" in run(sys.executable, str(path))


@pytest.mark.slow
def test_a_script_beside_files_named_like_libraries(marker: str, tmp_path: Path) -> None:
    for name in ("random.py", "queue.py"):  # the launcher must not take the user's for the real ones
        (tmp_path / name).write_text("raise ImportError('the wrong file')\n")
    code = f"import sys; sys.path.remove('') if '' in sys.path else None\n{SCRIPT}"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert "rows 500" in done.stdout, done.stderr


NOTEBOOK = """
import nbclient, nbformat
notebook = nbformat.read("cell.ipynb", 4)
client = nbclient.NotebookClient(notebook, timeout=50, kernel_name="here")
client.create_kernel_manager().kernel_spec_manager.kernel_dirs = ["kernels"]
client.execute()
print("".join(output.get("text", "") for output in notebook.cells[0].outputs))
"""


@pytest.mark.slow
def test_a_notebook_cell(marker: str, tmp_path: Path) -> None:
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("nbclient")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(SCRIPT)])
    kernels = tmp_path / "kernels" / "here"
    kernels.mkdir(parents=True)
    spec = f'{{"argv": ["{sys.executable}", "-m", "ipykernel_launcher", "-f", "{{connection_file}}"]'
    (kernels / "kernel.json").write_text(spec + ', "display_name": "here", "language": "python"}')
    nbformat.write(notebook, tmp_path / "cell.ipynb")
    # In a process of its own: what the notebook's client opens stays open until that ends.
    done = subprocess.run([sys.executable, "-c", NOTEBOOK], cwd=tmp_path, capture_output=True, text=True)
    assert "rows 500" in done.stdout, done.stderr


@contextlib.contextmanager
def endless() -> Iterator[subprocess.Popen[str]]:
    """A client that trains; killed at the end if it has not ended by then."""
    with subprocess.Popen(
        [sys.executable, "-c", ENDLESS],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == "training"
            yield process
        finally:
            process.kill()


def test_ctrl_c_once_stops_and_keeps_the_model(marker: str) -> None:
    with endless() as process:
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    assert out.strip() == "interrupted True True"


def test_ctrl_c_twice_ends_at_once(marker: str) -> None:
    with endless() as process:
        # The first one must not be answered before the second comes: the workers are paused.
        for pid in worker_pids(marker):
            os.kill(pid, signal.SIGSTOP)
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.3)
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert process.returncode != 0
    assert "KeyboardInterrupt" in err


def worker_pids(marker: str) -> list[int]:
    """Environments: children of the launcher."""
    launchers = set()
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if marker.encode() not in (folder / "environ").read_bytes():
                continue
            command = (folder / "cmdline").read_bytes()
            parents[int(folder.name)] = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
        if b"launcher" in command:
            launchers.add(int(folder.name))
    pids = [pid for pid, parent in parents.items() if parent in launchers]
    assert pids
    return pids


def test_a_killed_store_fails_the_fit_and_says_so(marker: str) -> None:
    with endless() as process:
        (store,) = (
            pid for pid, command in processes_with(marker).items() if "squall.store.server" in command
        )
        os.kill(store, signal.SIGKILL)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "StoreLostError" in err and "the parameter store has ended or is cut off" in err


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_a_killed_client_takes_everything_with_it(marker: str, number: int, tmp_path: Path) -> None:
    with endless() as process:
        process.send_signal(number)
        process.communicate(timeout=30)
    assert process.returncode == -number
    # Partitions of a client that was killed outright are the one thing that nobody can remove
    # at once; they are below one folder.
    import shutil

    shutil.rmtree(tmp_path / "storage" / "jobs")


def test_progress_on_a_terminal_is_one_line(marker: str) -> None:
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stderr=follower, stdout=subprocess.PIPE, text=True
    )
    os.close(follower)
    shown = b""
    try:
        while chunk := os.read(leader, 4096):
            shown += chunk
    except OSError:  # the other end of a terminal has gone
        pass
    finally:
        os.close(leader)
    assert process.wait(timeout=30) == 0
    assert process.stdout is not None
    process.stdout.close()
    assert shown.count(b"\n") == 1
    assert "ended by: epochs" in shown.decode()
