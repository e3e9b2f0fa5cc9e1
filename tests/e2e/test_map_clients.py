"""Maps as other terminals see them, and what is left of one whose client was killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

import squall
from squall import procfs
from squall.cli.app import app
from squall.data.objects import ObjectStore
from squall.driver import record, window
from squall.driver.record import recorded_jobs
from squall.driver.spec import StoppedError
from squall.errors import JobError
from tests.e2e import killed_map

SCRIPT = Path(killed_map.__file__)

WORK = """
import os
def upper(text):
    with open("calls.txt", "a") as calls:
        calls.write(text + "\\n")
    return text.upper()
"""
WORDS = [f"word{number}" for number in range(10)]
EXPECTED = "".join(word.upper() + "\n" for word in WORDS)


def squall_(*words: object) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "killed_work.py").write_text(WORK)
    (tmp_path / "words.txt").write_text("\n".join(WORDS) + "\n")
    return tmp_path


def mapped(folder: Path, moment: str = "", *options: str) -> subprocess.CompletedProcess[str]:
    """``squall map … --out results.txt``, killed at a moment."""
    program = [str(SCRIPT), moment] if moment else ["-m", "squall"]
    words = ["map", "killed_work:upper", "words.txt", "--out", "results.txt", "--chunksize", "1", *options]
    return subprocess.run(
        [sys.executable, *program, *words],
        capture_output=True, text=True, timeout=50, check=False, cwd=folder,
        env={**os.environ, "PYTHONPATH": str(SCRIPT.parents[2])},
    )  # fmt: skip


def called(folder: Path) -> list[str]:
    return (folder / "calls.txt").read_text().split()


# -------------------------------------------------------- the same command after its client's death


@pytest.mark.parametrize(
    "moment",
    [moment if moment == "during" else pytest.param(moment, marks=pytest.mark.slow)
     for moment in ("before", "during", "after", "completing", "completed")],
)  # fmt: skip
def test_a_killed_client_goes_on_where_it_was(moment: str, folder: Path) -> None:
    assert mapped(folder, moment).returncode == -signal.SIGKILL
    kept = {"before": 3, "during": 3, "after": 4}.get(moment, 10)
    assert (folder / "results.txt").exists() == (moment == "completed")
    (folder / "calls.txt").unlink()
    done = mapped(folder)
    assert done.returncode == 0, done.stderr
    assert f"{kept} of 10 results are in" in done.stderr
    assert (folder / "results.txt").read_text() == EXPECTED
    again = called(folder) if kept < len(WORDS) else []
    assert len(again) == len(set(again)) == len(WORDS) - kept
    squall_("clean", "--interrupted")
    left = {path.name for path in folder.iterdir()} - {"storage", "__pycache__", "results.txt.part"}
    assert left - {p.name for p in folder.glob("*.new")} == {
        "killed_work.py", "words.txt", "results.txt", *(["calls.txt"] if again else [])
    }  # fmt: skip
    assert not (folder / "results.txt.part").exists()


@pytest.mark.slow
def test_results_of_something_else_are_not_mixed(folder: Path) -> None:
    assert mapped(folder, "after").returncode == -signal.SIGKILL
    (folder / "killed_work.py").write_text(WORK.replace("upper()", "lower()"))
    refused = mapped(folder)
    assert refused.returncode == 1
    assert "results of another command" in refused.stderr and "--fresh" in refused.stderr
    assert mapped(folder, "", "--fresh").returncode == 0
    assert (folder / "results.txt").read_text() == EXPECTED.lower()
    assert len(called(folder)) >= 4 + len(WORDS)
    squall_("clean", "--interrupted")


# --------------------------------------------------------------------------- from other terminals

CLIENT = """
import os, time, squall
def wait(number):
    print("waits in process", os.getpid(), flush=True)
    time.sleep(60)
futures = squall.map(wait, range(4), run=squall.Run(workers=2))
print(futures.job.id, flush=True)
futures.results()
"""


def test_a_map_of_a_killed_client_leaves_no_process_and_can_be_cleaned(
    tmp_path: Path, own_storage: Path
) -> None:
    (tmp_path / "client.py").write_text(CLIENT)
    with subprocess.Popen(
        [sys.executable, str(tmp_path / "client.py")], stdout=subprocess.PIPE, text=True
    ) as client:
        assert client.stdout is not None
        job = client.stdout.readline().strip()
        while not (own_storage / "runs" / f"{job}.logs").exists():
            assert client.poll() is None
            time.sleep(0.02)
        assert re.search(rf"{job}\s+running\s+0/4 items .* map=wait", squall_("jobs"))
        told = squall_("logs", job)
        pids = [int(pid) for pid in re.findall(r"\[item \d, attempt 1\] waits in process (\d+)", told)]
        assert len(pids) == 2
        client.kill()
    while any(procfs.is_running(pid) for pid in pids):
        time.sleep(0.02)
    assert re.search(rf"{job}\s+died", squall_("jobs"))
    assert f"job {job}: died" in squall_("status", job)
    with pytest.raises(JobError, match="its process has ended") as caught:
        squall_("stop", job)
    assert "resume" not in str(caught.value)
    for goes_on in (lambda: squall_("resume", job), lambda: squall.Job.open(f"{own_storage}/jobs/{job}")):
        with pytest.raises(JobError, match=r"it is a map.*stored nowhere\n.*--out FILE"):
            goes_on()
    assert (own_storage / "jobs" / job).exists()
    squall_("clean")
    assert not (own_storage / "jobs" / job).exists()


def test_a_map_is_looked_at_and_stopped_from_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "LOOK_S", 0.1)
    monkeypatch.setattr(record, "INTERVAL_S", 0.1)

    def wait(number: int) -> int:
        print("item", number, flush=True)
        time.sleep(60 * (number > 0))
        return number

    futures = squall.map(wait, range(3), run=squall.Run(workers=2), chunksize=1)
    job = futures.job.id
    assert futures[0].result() == 0
    objects = ObjectStore(os.environ["SQUALL_STORAGE"])
    while not any(r.items is not None and r.items.done == 1 for r in recorded_jobs(objects)):
        time.sleep(0.01)
    assert "1 of 3 items done" in squall_("status", job)
    assert "total" in squall_("cost", job)
    assert "will stop within some seconds and keep the results" in squall_("stop", job)
    with pytest.raises(StoppedError, match="stopped from elsewhere"):
        futures.results()
    assert re.search(rf"{job}\s+stopped\s+3/3 items", squall_("jobs"))
    assert "2 of them failed" in squall_("status", job)
    assert "[item 0, attempt 1] item 0" in squall_("logs", job, "--follow")
    with pytest.raises(JobError, match="it is stopped already"):
        squall_("stop", job)


@pytest.mark.slow
def test_an_idle_executor_is_stopped_from_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "INTERVAL_S", 0.1)
    with squall.Executor(squall.Run(workers=1)) as executor:
        assert executor.submit(abs, -1).result() == 1
        objects = ObjectStore(os.environ["SQUALL_STORAGE"])
        while not list(recorded_jobs(objects)):
            time.sleep(0.01)
        squall_("stop", executor._job.id)
        assert executor._job.join(30)
        with pytest.raises(StoppedError, match="stopped from elsewhere"):
            executor.submit(abs, -1).result()


def test_what_is_over_at_once_is_not_on_record(own_storage: Path) -> None:
    """Thousands of small maps would else push longer jobs out."""
    assert squall.map(abs, [-1]).results() == [1]
    assert not list((own_storage / "runs").glob("*"))


def test_a_map_that_fails_as_a_whole_says_so_on_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "INTERVAL_S", -1.0)
    futures = squall.map(time.sleep, [60], run=squall.Run(workers=1))
    objects = ObjectStore(os.environ["SQUALL_STORAGE"])
    while not list(recorded_jobs(objects)):
        time.sleep(0.01)
    futures.job._inbox.put(JobError("the sky has fallen"))
    with pytest.raises(JobError, match="the sky has fallen"):
        futures.results()
    (on_record,) = recorded_jobs(objects)
    assert (on_record.state, on_record.reason) == ("failed", "the sky has fallen")
    assert futures.status().state == "failed"
