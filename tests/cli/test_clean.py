"""``squall clean``: what is dead or unused goes, what lives stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import squall
from squall.cli.app import app
from squall.data.objects import ObjectStore
from squall.driver import claims

DAY = 86_400


@pytest.fixture
def objects(own_storage: Path) -> ObjectStore:
    return ObjectStore(own_storage)


def clean(*words: str) -> str:
    result = CliRunner().invoke(app, ["clean", *words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def age(folder: Path, days: float) -> None:
    """Make all that is in it so many days old."""
    then = time.time() - days * DAY
    for path in folder.rglob("*"):
        os.utime(path, (then, then))


def test_the_folder_of_a_killed_client_goes_and_a_live_one_stays(own_storage: Path) -> None:
    code = (
        "import numpy as np, squall, time\n"
        "X = np.random.default_rng(0).random((3000, 4))\n"
        "job = squall.submit(squall.LogisticRegression(epochs=10**7), (X, X[:, 0] > 0.5))\n"
        "while job.status().epoch < 2: time.sleep(0.01)\n"
        "print(job.id, flush=True)\n"
        "job.wait()\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        job = client.stdout.readline().strip()
        folder = own_storage / "jobs" / job
        age(folder, days=400)  # a long job is no dead one
        assert job not in clean()
        assert folder.is_dir()
        client.send_signal(signal.SIGKILL)
    assert job not in clean(), "it can be resumed"
    assert f"jobs/{job}" in (told := clean("--interrupted", "--dry-run"))
    assert "1 folder would be removed" in told and "interrupted" in told
    (folder / "job.json").unlink()  # as if it had been killed before its data was prepared
    assert f"jobs/{job}" in (told := clean("--dry-run"))
    assert "1 folder would be removed" in told and "its process has ended" in told
    assert folder.is_dir()
    assert "1 folder removed" in clean()
    assert not folder.exists()
    assert "0 folders removed, 0 B" in clean()


def test_a_job_of_another_machine_goes_by_its_age(own_storage: Path, objects: ObjectStore) -> None:
    claims.claim(objects, "jobs/elsewhere")
    claim = own_storage / "jobs" / "elsewhere" / claims.NAME
    claim.write_text(claim.read_text().replace('"boot":"', '"boot":"another'))
    objects.put("jobs/unclaimed/train/part", b"x" * 2000)
    objects.put("runs/elsewhere.json", b"{}")
    assert "0 folders" in clean()
    age(own_storage / "jobs", days=31)
    told = clean()
    assert "jobs/unclaimed" in told and "2.0 kB" in told and "no sign of life" in told
    assert "jobs/elsewhere" not in told, "it has just put itself on record"
    age(own_storage / "runs", days=31)
    assert "jobs/elsewhere" in clean()


def test_an_owner_is_its_process_and_not_the_next_of_that_number(objects: ObjectStore) -> None:
    mine = claims._owner(os.getpid())
    assert claims.is_dead(mine) is False
    assert claims.is_dead(claims.Owner(mine.boot, mine.namespace, mine.pid, mine.started - 1)) is True
    assert claims.is_dead(claims.Owner("", 0, mine.pid, mine.started)) is None


def test_data_sets_go_when_they_were_not_used_for_long(own_storage: Path, tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text(f"x,y\n1,{name}\n2,c\n")
        squall.read_csv(tmp_path / f"{name}.csv", label="y")
    age(own_storage / "datasets", days=10)
    squall.read_csv(tmp_path / "a.csv", label="y")  # it is used
    assert "0 folders" in clean()
    assert "1 folder would be removed" in clean("--days", "9", "--dry-run")
    assert "data set: not used" in clean("--days", "9")
    assert len(list((own_storage / "datasets").iterdir())) == 1
    data = squall.read_csv(tmp_path / "b.csv", label="y")  # and it comes back when it is needed
    assert data.to_arrays()[0].tolist() == [[1.0], [2.0]]


def test_a_finished_job_leaves_nothing_to_clean(own_storage: Path) -> None:
    X = np.arange(20.0).reshape(10, 2)
    squall.LogisticRegression(epochs=1).fit(X, X[:, 0] > 9)
    assert "0 folders removed" in clean("--days", "1")
    left = sorted(path.suffix for path in (own_storage / "runs").iterdir())
    assert left == [".json", ".logs"], "its record and what its functions wrote stay"
