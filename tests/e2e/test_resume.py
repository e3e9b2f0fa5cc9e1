"""Jobs whose process is killed with SIGKILL, at every transition, go on in another one."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

import squall
from squall.data.objects import ObjectStore
from squall.driver.joblog import JobLog, TakenOverError, read_log
from squall.driver.keeping import REACHING_OUT
from squall.driver.resuming import find_interrupted, take_over
from squall.errors import JobError, StoreLostError
from squall.store.cluster import ServeSettings, StoreCluster
from tests.e2e import resumed_script

SCRIPT = Path(resumed_script.__file__)


def killed(storage: Path, store: str, consistency: str, moment: str, *warm: str) -> str:
    """The URL of a job whose process was killed at that moment."""
    arguments = [str(storage), store, consistency, moment, *warm]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == -9, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> np.ndarray:
    """The model of a job that nothing happened to."""
    X, y = resumed_script.data()
    run = resumed_script.run(str(tmp_path_factory.mktemp("storage")), "embedded")
    fitted = resumed_script.model("bsp").fit(X, y, run=run.replace(backend="local"))
    coefficients: np.ndarray = fitted.steps[-1][1].coef_
    return coefficients


@pytest.mark.parametrize(
    "moment",
    [
        pytest.param(f"{n}:{p}", marks=() if (n, p) == (1, "during") else pytest.mark.slow)
        for n in range(2)
        for p in ("before", "during", "after")
    ],
)
def test_a_job_killed_at_a_transition_ends_with_the_same_bits(
    moment: str, tmp_path: Path, expected: np.ndarray
) -> None:
    """Record 0 is the start, record 1 the replacement of a dead worker."""
    url = killed(tmp_path, "embedded", "bsp", moment)
    job = squall.Job.open(url)
    fitted = job.wait()
    assert np.array_equal(fitted.steps[-1][1].coef_, expected)
    assert fitted.stopped_ == "epochs"
    assert [h.epoch for h in fitted.history_] == list(range(1, 13))
    assert fitted.history_[-1].validation_loss is not None
    assert not list((tmp_path / "jobs").glob("*")), "a job that has ended leaves nothing"
    launched = 2 if moment.startswith("0:") and not moment.endswith("after") else 3
    assert len(job.status().attempts) >= launched
    assert job.bill is not None and job.bill.invocations == len(job.status().attempts)


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["0:before", "1:after"])
def test_a_job_that_began_warm_ends_with_the_same_bits(
    moment: str, tmp_path: Path, expected: np.ndarray
) -> None:
    url = killed(tmp_path, "embedded", "bsp", moment, "warm")
    fitted = squall.Job.open(url).wait()
    X, y = resumed_script.data()
    again = resumed_script.warm(str(tmp_path))
    settings = resumed_script.run(str(tmp_path), "embedded").replace(backend="local")
    again.fit(X, y, validation=(X[:300], y[:300]), run=settings)
    assert np.array_equal(fitted.steps[-1][1].coef_, again.steps[-1][1].coef_)
    assert not np.array_equal(fitted.steps[-1][1].coef_, expected)


def fit_planned(storage: str) -> np.ndarray:
    X, y = resumed_script.data()
    run = resumed_script.run(storage, "embedded", "Switch").replace(backend="local")
    coefficients: np.ndarray = resumed_script.model("bsp").fit(X, y, run=run).steps[-1][1].coef_
    return coefficients


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> np.ndarray:
    """The model of a job that changes its plan, and that nothing happened to."""
    return fit_planned(str(tmp_path_factory.mktemp("storage")))


COMMANDS = [command.__name__ for command in get_args(REACHING_OUT)]
QUICK = ("EndLeg:during",)


@pytest.mark.parametrize(
    "moment",
    [
        pytest.param(moment, marks=() if moment in QUICK else pytest.mark.slow)
        for moment in (f"{command}:{p}" for command in COMMANDS for p in ("before", "during", "after"))
    ],
)
def test_a_job_killed_at_any_command_that_reaches_out(
    moment: str, tmp_path: Path, expected: np.ndarray, planned: np.ndarray
) -> None:
    """All of the machine's commands by which others act; the log is written before each."""
    job = squall.Job.open(killed(tmp_path, "embedded", "bsp", moment))
    fitted = job.wait()
    if moment.startswith(("RequestStop", "CancelAll")):
        forgotten = moment in ("RequestStop:before", "RequestStop:during")
        assert fitted.stopped_ == ("epochs" if forgotten else "stopped by the user")
    else:
        of_plans = moment.startswith(resumed_script.OF_PLANS)
        assert np.array_equal(fitted.steps[-1][1].coef_, planned if of_plans else expected)
        assert [h.epoch for h in fitted.history_] == list(range(1, 13))
        if of_plans:
            assert [h.workers for h in fitted.history_] == [2] * 3 + [3] * 3 + [1] * 6
    assert not list((tmp_path / "jobs").glob("*")), "a job that has ended leaves nothing"
    assert job.bill is not None and job.bill.invocations == len(job.status().attempts)


def test_the_bits_of_a_planned_job_are_always_the_same(tmp_path: Path, planned: np.ndarray) -> None:
    assert np.array_equal(fit_planned(str(tmp_path)), planned)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("moment", "store"),
    [
        ("1:after", "folder"),
        ("Switch:after", "embedded"),
        *(
            pytest.param(moment, store, marks=pytest.mark.slow)
            for store in ("embedded", "folder")
            for moment in ("0:after", "1:during", "Proceed:after", "EndLeg:during", "finishing")
        ),
    ],
)
def test_a_killed_job_without_tables_ends_with_the_same_bits(moment: str, store: str, tmp_path: Path) -> None:
    X, y = resumed_script.data()
    address = (tmp_path / "store").as_uri() if store == "folder" else store
    fitted = squall.Job.open(killed(tmp_path / "storage", address, "averaging", moment)).wait()
    run = resumed_script.run(str(tmp_path / "storage"), "tcp", moment).replace(backend="local")
    undisturbed = resumed_script.model("averaging").fit(X, y, validation=(X[:300], y[:300]), run=run)
    assert np.array_equal(fitted.steps[-1][1].coef_, undisturbed.steps[-1][1].coef_)
    assert [h.epoch for h in fitted.history_] == list(range(1, 13))
    assert fitted.history_[-1].validation_loss == undisturbed.history_[-1].validation_loss
    assert not [path for path in tmp_path.rglob("jobs/*") if any(p.is_file() for p in path.rglob("*"))]


@pytest.mark.slow
def test_a_job_killed_while_its_last_epoch_is_measured(tmp_path: Path, expected: np.ndarray) -> None:
    fitted = squall.Job.open(killed(tmp_path, "tcp", "bsp", "finishing")).wait()
    assert np.array_equal(fitted.steps[-1][1].coef_, expected)
    assert fitted.history_[-1].validation_loss is not None


@pytest.mark.slow
def test_a_job_killed_while_it_stops_stops_with_the_model_of_its_checkpoint(tmp_path: Path) -> None:
    X, y = resumed_script.data()
    job = squall.Job.open(killed(tmp_path, "embedded", "bsp", "stopping"))
    fitted = job.wait()
    assert fitted.stopped_ == "stopped by the user"
    assert fitted.score(X, y) > 0.5
    assert job.bill is not None and job.bill.invocations >= 2, "nothing new was launched but what had been"
    assert not list((tmp_path / "jobs").glob("*"))


@pytest.mark.slow
def test_a_store_that_outlives_the_client_is_gone_on_with(tmp_path: Path) -> None:
    X, y = resumed_script.data()
    with StoreCluster(ServeSettings(shards=2)) as cluster:
        url = killed(tmp_path, cluster.address, "asp", "1:after")
        job = squall.Job.open(url)
        assert job.wait().score(X, y) > 0.85
        resumed = [a for a in job.status().attempts if a.attempt > 1]
        assert any(a.first_minibatch > 0 for a in resumed), "nothing was lost, so nothing begins anew"


@pytest.mark.slow
def test_a_store_that_is_gone_may_come_back_and_the_job_waits_for_it(tmp_path: Path) -> None:
    X, y = resumed_script.data()
    snapshots = str(tmp_path / "snapshots")
    with StoreCluster(ServeSettings(snapshot=snapshots)) as cluster:
        url = killed(tmp_path, cluster.address, "asp", "1:after")
        listen = cluster.address
    for _ in range(2):
        with pytest.raises(StoreLostError, match=r"left as it is.*\n.*squall store restore"):
            squall.Job.open(url).wait()
    with StoreCluster(ServeSettings(listen=listen, snapshot=snapshots, restore=0)):
        job = squall.Job.open(url)
        assert job.wait().score(X, y) > 0.85
        assert any(a.first_minibatch > 0 for a in job.status().attempts), "nothing begins anew"
    assert not list((tmp_path / "jobs").glob("*"))


def test_a_job_killed_before_its_data_was_prepared_cannot_be_resumed(tmp_path: Path) -> None:
    (tmp_path / "jobs" / "abc").mkdir(parents=True)
    with pytest.raises(JobError, match="nothing to go on with"):
        squall.Job.open(f"{tmp_path}/jobs/abc")


def test_a_job_with_a_living_process_is_left_alone(tmp_path: Path) -> None:
    X, y = resumed_script.data()
    model = squall.LogisticRegression(epochs=100_000, batch_size=50, learning_rate=0.1)
    job = squall.submit(model, (X, y), run=squall.Run(workers=1, storage=tmp_path))
    while not job.status().rows:
        time.sleep(0.01)
    with pytest.raises(JobError, match="alive"):
        squall.Job.open(job.url)
    assert not find_interrupted(ObjectStore(tmp_path), {})
    job.stop()
    job.wait()


def test_of_two_processes_one_goes_on(tmp_path: Path) -> None:
    job = killed(tmp_path, "embedded", "asp", "0:after").rpartition("/")[2]
    objects, outcomes = ObjectStore(tmp_path), []
    together = threading.Barrier(4)

    def contend() -> None:
        together.wait()
        try:
            outcomes.append(take_over(objects, job).log)
        except TakenOverError as error:
            outcomes.append(error)

    threads = [threading.Thread(target=contend) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = [outcome for outcome in outcomes if isinstance(outcome, JobLog)]
    # One that comes when another has won already takes it over from that one; the log is in order.
    assert winners
    for winner in winners[:-1]:
        with pytest.raises(TakenOverError):
            winner.append([])
    terms = [record.term for record in read_log(objects, job)]
    assert terms == sorted(terms)


@pytest.mark.slow
def test_a_driver_that_was_replaced_leaves_everything_as_it_is(tmp_path: Path) -> None:
    """As after a long sleep of its machine: it finds the log's next number taken."""
    X, y = resumed_script.data()
    backend = squall.LocalBackend(lifetime="2s")  # hand-overs make it write to its log
    model = squall.LogisticRegression(epochs=1_000_000, batch_size=50, learning_rate=0.1)
    job = squall.submit(model, (X, y), run=squall.Run(backend=backend, workers=1, storage=tmp_path))
    objects, folder = ObjectStore(tmp_path), tmp_path / "jobs" / job.id / "log"
    while not folder.exists() or not list(folder.glob("[0-9]*")):
        time.sleep(0.01)
    while True:
        try:
            JobLog(objects, job.id, term=2, number=len(read_log(objects, job.id))).append([])
            break
        except TakenOverError:
            pass  # it has just written a record itself
    with pytest.raises(TakenOverError, match="taken this job over"):
        job.wait(timeout=50)
    assert (folder.parent / "job.json").exists()
