"""Jobs from any terminal: listed, looked at, stopped, and gone on with after their process was killed."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

import squall
from squall.cli.app import app
from squall.errors import SquallError

TRAIN = ["train", "logistic", "--label", "income-per-year", "--workers", "1", "--batch-size", "64"]
SETTINGS = ["--learning-rate", "0.5", "--n-features", "1024"]


def squall_(*words: object) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def killed(census: Path, out: Path, storage: Path, epochs: int = 400) -> str:
    """The id of a job of `squall train` that was killed in the middle."""
    command = [sys.executable, "-m", "squall", *TRAIN, *SETTINGS, census, "--epochs", epochs, "--out", out]
    with subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL) as client:
        while not list(storage.glob("jobs/*/log/[0-9]*")):
            assert client.poll() is None
            time.sleep(0.01)
        client.kill()
    (folder,) = (storage / "jobs").iterdir()
    return folder.name


@pytest.fixture(scope="module")
def finished(census: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A job that has ended, and the storage with its record."""
    storage = tmp_path_factory.mktemp("storage")
    X = [[float(row), 1.0] for row in range(100)]
    y = [row >= 50 for row in range(100)]
    model = squall.LogisticRegression(epochs=2)
    job = squall.submit(model, (X, y), run=squall.Run(storage=storage), tags={"for": "a test"})
    job.wait()
    return job.id, storage


def test_a_job_is_drawn_in_the_terminal_and_into_a_file(finished: tuple[str, Path], tmp_path: Path) -> None:
    job, storage = finished
    drawn = squall_("plot", job, "--storage", storage, "--against", "rows", "--against", "epochs")
    assert f"job {job} (finished): loss over 2 epochs" in drawn
    assert all(len(line) <= 80 for line in drawn.splitlines()[1:])
    with pytest.raises(SquallError, match="against='row' is unknown"):
        squall_("plot", job, "--storage", storage, "--against", "row")
    with pytest.raises(SquallError, match=r"does not end with \.png"):
        squall_("plot", job, "--storage", storage, "--out", tmp_path / "a.gif")
    pytest.importorskip("matplotlib")
    # In a process of its own, for matplotlib never closes its fonts.
    command = [sys.executable, "-m", "squall", "plot", job, "--storage", storage, "--out", tmp_path / "a.png"]
    subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL, timeout=50)
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_a_job_that_has_ended_is_shown(finished: tuple[str, Path]) -> None:
    job, storage = finished
    listed = squall_("jobs", "--storage", storage)
    assert re.search(rf"{job}\s+finished\s+2/2", listed)
    assert "for=a test" in squall_("jobs", "--storage", storage).replace("\n", " ").replace("  ", " ")
    assert "finished after minibatch" in squall_("logs", job, "--storage", storage, "--follow")
    assert squall_("logs", job, "--storage", storage, "--worker", 7) == ""
    assert "total" in squall_("cost", job, "--storage", storage)


@pytest.mark.parametrize(
    ("command", "told"), [("stop", "it is finished already"), ("resume", "nothing to go on with")]
)
def test_a_job_that_has_ended_is_left_alone(finished: tuple[str, Path], command: str, told: str) -> None:
    with pytest.raises(SquallError, match=told):
        squall_(command, finished[0], "--storage", finished[1])


@pytest.mark.parametrize("command", ["stop", "logs", "cost", "status", "resume"])
def test_a_job_that_never_was_is_told(finished: tuple[str, Path], command: str) -> None:
    for job in ("nosuchjob", "../..", ""):
        with pytest.raises(SquallError, match="no record of a job"):
            squall_(command, job, "--storage", finished[1])


def test_no_jobs_are_told(tmp_path: Path) -> None:
    assert "no jobs in" in squall_("jobs", "--storage", tmp_path)


@pytest.mark.slow
def test_an_interrupted_job_is_gone_on_with(census: Path, tmp_path: Path, own_storage: Path) -> None:
    out = tmp_path / "m.squall"
    data = shutil.copy(census, tmp_path / "data.csv.gz")
    job = killed(data, out, own_storage)
    data.unlink()  # a job has data of its own once it is prepared
    assert re.search(rf"{job}\s+interrupted", squall_("jobs"))
    with pytest.raises(SquallError, match=rf"squall resume {job}"):
        squall_("stop", job)
    told = squall_("resume", job)
    assert f"job {job}, resumed" in told
    assert squall.load(out).score(squall.read_csv(census, label="income-per-year")) > 0.83
    assert re.search(rf"{job}\s+finished", squall_("jobs"))
    assert not list((own_storage / "jobs").iterdir())


@pytest.mark.slow
def test_a_job_that_was_cleaned_away_does_not_run(
    census: Path, tmp_path: Path, own_storage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = killed(census, tmp_path / "m.squall", own_storage)
    squall_("clean", "--interrupted")
    monkeypatch.setattr("squall.cli.jobs.SILENCE_S", 0.0)
    assert re.search(rf"{job}\s+died", squall_("jobs"))
    with pytest.raises(SquallError, match="its process has ended"):
        squall_("stop", job)


@pytest.mark.slow
def test_the_same_command_goes_on_and_another_does_not(
    census: Path, tmp_path: Path, own_storage: Path
) -> None:
    out = tmp_path / "m.squall"
    job = killed(census, out, own_storage, epochs=300)
    other = squall_(*TRAIN, *SETTINGS, census, "--epochs", 3, "--out", out)
    assert "going on" not in other
    same = squall_(*TRAIN, *SETTINGS, census, "--epochs", 300, "--out", out)
    assert f"going on with job {job}" in same
    assert len(squall.load(out).history_) == 300
    again = squall_(
        *TRAIN, *SETTINGS, census, "--epochs", 3, "--out", out, "--chaos", "kill=0.5,seed=1,max=2"
    )
    assert "going on" not in again
    assert "requests (" in again


def test_faults_that_are_mistyped_are_told_together(census: Path) -> None:
    with pytest.raises(SquallError) as caught:
        squall_(*TRAIN, census, "--chaos", "kil=0.1,dup=x,seed=1.5,throttle=2")
    for told in ('did you mean "kill"?', "dup='x' must be a probability", "seed='1.5' must be an integer"):
        assert told in str(caught.value)


def test_a_running_job_is_stopped_from_elsewhere(tmp_path: Path, own_storage: Path) -> None:
    X = [[float(row), 1.0] for row in range(200)]
    y = [row >= 100 for row in range(200)]
    model = squall.LogisticRegression(epochs=10**7, batch_size=10, learning_rate=0.1)
    job = squall.submit(model, (X, y))
    while not job.status().rows:
        time.sleep(0.01)
    assert "will stop within some seconds" in squall_("stop", job.id)
    assert job.wait(timeout=50).stopped_ == "stopped from elsewhere"
