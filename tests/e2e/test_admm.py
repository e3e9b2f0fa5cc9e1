"""Whole jobs by ADMM: precise, on any store, whatever happens to workers and drivers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge

import squall
from squall.errors import SettingError
from squall.records import OutcomeKind
from squall.testing import Chaos
from squall.testing.valkey import valkey_server

A = squall.ADMM


def data(n: int = 3000, width: int = 12) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(0)
    X = (draw.normal(size=(n, width)) * np.geomspace(0.2, 2, width)).astype(np.float32)
    return X, (X @ draw.normal(size=width) + draw.normal(size=n) > 0.2).astype(int)


L2 = 0.01


def objective(model: Any, X: np.ndarray, y: np.ndarray) -> float:
    z = X.astype(float) @ model.coef_.ravel() + model.intercept_
    return float(np.logaddexp(0, np.where(y == 1, -z, z)).mean() + L2 / 2 * (model.coef_**2).sum())


@pytest.fixture(scope="module")
def best() -> float:
    X, y = data()
    peer = LogisticRegression(C=1 / (L2 * len(y)), tol=1e-10, max_iter=1000).fit(X.astype(float), y)
    return objective(peer, X, y)


def fit(strategy: A | None = None, **run: Any) -> squall.LogisticRegression:
    model = squall.LogisticRegression(l2=L2, strategy=strategy or A())
    return model.fit(*data(), run=squall.Run(**{"workers": 2, "random_state": 0} | run))


def check(model: squall.LogisticRegression, best: float) -> None:
    assert model.converged_ and model.stopped_ == "converged"
    assert 0 <= objective(model, *data()) - best + 1e-9 <= 1e-6 * best


@pytest.mark.parametrize("workers", [1, 3])
def test_it_is_as_precise_as_scikit_learn(best: float, workers: int) -> None:
    model = fit(workers=workers)
    check(model, best)
    assert len(model.history_) == model.n_iter_ <= 15
    assert {record.rows for record in model.history_} == {3000} and model.history_[0].workers == workers
    rounds = [record.solver for record in model.history_]
    assert all(r is not None and r.rho > 0 and r.passes >= 2 for r in rounds)
    assert [r.converged for r in rounds] == [False] * (len(rounds) - 1) + [True]
    assert rounds[-1].primal_residual < 1e-3 * rounds[0].primal_residual
    assert rounds[-1].dual_residual < 1e-3 * rounds[0].dual_residual
    assert rounds[0].objective == pytest.approx(np.log(2))
    assert all(record.phases.bytes_in and record.phases.bytes_out for record in model.history_)


@pytest.mark.slow
def test_the_bits_are_the_same_in_every_store_and_however_vectors_are_cut(
    s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = fit(storage=str(tmp_path))
    squall.shutdown()  # functions that are warm do not know the way to the S3 server
    with valkey_server(tmp_path) as server:
        for store, token in ((server.url, server.password), ("tcp", ""), (f"{s3}/fast", "")):
            monkeypatch.setenv("SQUALL_STORE_TOKEN", token)
            other = fit(A(shards=3), store=store, storage=str(tmp_path))
            assert np.array_equal(other.coef_, plain.coef_), store
    squall.shutdown()


def test_small_numbers_are_fewer_bytes_and_as_many_rounds(best: float) -> None:
    plain, small = fit(), fit(A(compression="float32"))
    check(small, best)
    assert small.n_iter_ == plain.n_iter_
    received = [sum(record.phases.bytes_in for record in model.history_[1:]) for model in (plain, small)]
    assert received[1] * 2 == received[0]
    tiny = fit(A(compression="int16"))
    check(tiny, best)
    assert tiny.n_iter_ == plain.n_iter_
    again = fit(A(compression="int16", shards=4), store="tcp")
    assert np.array_equal(again.coef_, tiny.coef_) and not np.array_equal(tiny.coef_, plain.coef_)
    for other in ({"compression": "float32"}, {"shards": 2}):
        with pytest.raises(SettingError, match="does not go with partial"):
            A(partial=0.5, **other)


@pytest.fixture(scope="module")
def expected() -> np.ndarray:
    return fit(A(tol=1e-10)).coef_


@pytest.mark.parametrize("minibatch", [1, pytest.param(4, marks=pytest.mark.slow), 11])
def test_a_killed_worker_leaves_no_trace(best: float, expected: np.ndarray, minibatch: int) -> None:
    chaos = Chaos(slot=minibatch % 2, attempt=1, minibatch=minibatch)
    X, y = data()
    model = squall.LogisticRegression(l2=L2, strategy=A(tol=1e-10))
    run = squall.Run(workers=2, store="tcp", backend=squall.LocalBackend(chaos=chaos), random_state=0)
    job = squall.submit(model, (X, y), run=run)
    fitted = job.wait(50)
    check(fitted, best)
    assert np.array_equal(fitted.coef_, expected) and fitted.n_iter_ > 12
    killed = [a for a in job.status().attempts if a.outcome.kind is OutcomeKind.KILLED]
    assert [a.slot for a in killed] == [minibatch % 2]


WIDE, OCCURRING = 5000, np.sort(np.random.default_rng(3).choice(5000, 12, replace=False))


def scattered(X: np.ndarray) -> csr_matrix:
    """The same columns, far apart in a space that is wider than a whole metric may be."""
    columns = np.tile(OCCURRING, len(X))
    return csr_matrix((X.ravel(), columns, np.arange(len(X) + 1) * len(OCCURRING)), (len(X), WIDE))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_features_that_occur_nowhere_cost_nothing_and_change_nothing(n_classes: int) -> None:
    X, y = data()
    y = y + (X[:, 0] > 0.1) if n_classes == 3 else y
    run = squall.Run(workers=2, store="tcp", random_state=0)
    narrow, wide = (
        squall.LogisticRegression(l1=1e-3, l2=L2, strategy=A()).fit(rows, y, run=run, validation=(rows, y))
        for rows in (csr_matrix(X), scattered(X))
    )
    assert wide.coef_.shape[1] == WIDE and wide.n_iter_ == narrow.n_iter_
    assert np.array_equal(wide.coef_[:, OCCURRING], narrow.coef_)
    assert np.array_equal(wide.intercept_, narrow.intercept_)
    assert np.count_nonzero(wide.coef_) == np.count_nonzero(narrow.coef_) > 0
    assert wide.history_[-1].validation_loss == narrow.history_[-1].validation_loss
    sent = [[record.phases.bytes_out for record in model.history_[1:]] for model in (wide, narrow)]
    assert sent[0] == sent[1]


@pytest.mark.parametrize(("l2", "kept"), [(0.0, 0.5), (1e-3, 0.0)])
def test_a_warm_start_keeps_what_has_no_slope_unless_there_is_a_penalty(l2: float, kept: float) -> None:
    X, y = data(300)
    model = squall.LogisticRegression(l2=l2, strategy=A(tol=1e-3), warm_start=True)
    with squall.Run(workers=1):
        model.fit(scattered(X), y)
        assert model.coef_[0, 0] == 0.0 and OCCURRING[0] > 0
        model.coef_[0, 0] = 0.5
        before = model.coef_[0, OCCURRING].copy()
        model.fit(scattered(X), y)
    assert model.coef_[0, 0] == kept
    np.testing.assert_allclose(model.coef_[0, OCCURRING], before, atol=0.1)


def test_least_squares_and_softmax() -> None:
    X, _ = data()
    draw = np.random.default_rng(1)
    y = X @ draw.normal(size=12) + 5 + draw.normal(size=len(X))
    linear = squall.LinearRegression(l2=L2, strategy=A(tol=1e-10)).fit(X, y, run=squall.Run(workers=2))
    peer = Ridge(alpha=L2 * len(y)).fit(X.astype(float), y)
    np.testing.assert_allclose(linear.coef_, peer.coef_, atol=1e-4)
    assert linear.intercept_ == pytest.approx(peer.intercept_, abs=1e-4)
    classes = np.array(["a", "b", "c"])[(X @ draw.normal(size=(12, 3))).argmax(axis=1)]
    soft = squall.LogisticRegression(l2=L2, strategy=A(tol=1e-10))
    soft.fit(X, classes, run=squall.Run(workers=2))
    other = LogisticRegression(C=1 / (L2 * len(y)), tol=1e-10, max_iter=1000).fit(X, classes)
    np.testing.assert_allclose(soft.coef_, other.coef_, atol=1e-3)


def test_too_few_rounds_are_warned_of_and_a_warm_start_goes_on(best: float) -> None:
    X, y = data()
    model = squall.LogisticRegression(l2=L2, strategy=A(max_rounds=5), warm_start=True)
    with pytest.warns(
        ConvergenceWarning, match=r"in 5 rounds: the residuals are .*lately after some \d+ more \("
    ):
        model.fit(X, y, run=squall.Run(workers=2))
    assert not model.converged_ and model.stopped_ == "epochs"
    model.set_params(strategy=A()).fit(X, y, run=squall.Run(workers=2))
    check(model, best)
    assert model.history_[0].solver.objective < 1.01 * best


@pytest.mark.parametrize(
    "limit", [{"budget": "$0.0003"}, pytest.param({"deadline": "8s"}, marks=pytest.mark.slow)]
)
def test_a_limit_ends_it_with_the_model_so_far_and_a_warning(limit: dict[str, str]) -> None:
    never = A(tol=1e-15, rho=1.0, relaxation=1e-3, acceleration=0, max_rounds=10**6)
    model, name = squall.LogisticRegression(l2=L2, strategy=never), next(iter(limit))
    with pytest.warns(ConvergenceWarning, match=rf"when its {name} .*{name}, or less precision"):
        model.fit(*data(), run=squall.Run(workers=2, **limit))
    assert model.stopped_ == name and not model.converged_
    assert model.n_iter_ >= 1 and model.score(*data()) > 0.8


def test_callbacks_hear_of_rounds_and_end_it() -> None:
    heard: list[Any] = []

    def stop_after_three(record: Any, job: Any) -> None:
        heard.append((record.epoch, record.solver))
        if record.epoch == 3:
            job.stop()

    X, y = data()
    model = squall.LogisticRegression(l2=L2, strategy=A(tol=1e-12), callbacks=[stop_after_three])
    slow = squall.LocalBackend(chaos=Chaos(slow=1.0, slowdown=10.0))
    model.fit(X, y, run=squall.Run(workers=2, backend=slow))
    assert model.stopped_ == "stopped by the user" and not model.converged_
    assert [epoch for epoch, _ in heard[:3]] == [1, 2, 3] and heard[2][1].primal_residual > 0
    assert (model.learning_rate_, model.batch_size_) == (None, None)


def test_what_does_not_go_with_it_is_told_at_once() -> None:
    wrong = {"epochs": 7, "learning_rate": 0.1, "optimizer": "adam", "beta_1": 0.8, "clip_norm": 1.0}
    model = squall.LogisticRegression(strategy=A(), **wrong)
    with pytest.raises(SettingError, match="5 settings are wrong") as told:
        model.fit(*data())
    assert all(f"{name}=" in str(told.value) for name in wrong) and "max_rounds" in str(told.value)
    with pytest.raises(SettingError, match="needs a convex loss, and FactorizationMachine"):
        squall.FactorizationMachine(strategy=A()).fit(*data())
    with pytest.raises(SettingError, match="would forget those before"):
        squall.LogisticRegression(strategy=A()).partial_fit(*data(), classes=[0, 1])


def test_wrong_settings_of_its_own_are_told_together() -> None:
    with pytest.raises(SettingError, match="8 settings are wrong") as told:
        A(rho=-1.0, tol=0.0, max_rounds=0, relaxation=2.0, acceleration=-1, partial=1.5, compression="int8")
    assert all(name in str(told.value) for name in ("rho", "tol", "max_rounds", "relaxation", "acceleration"))
    with pytest.raises(SettingError, match="shards=0 must be"):
        A(shards=0)
    for tol in (1e-16, 1.0, "1e-6"):
        with pytest.raises(SettingError, match=r"tol=.* must be a number of at least 1e-15 and below 1"):
            A(tol=tol)
    for written in ("ADMM", "admm", A, {"type": "admm"}):
        with pytest.raises(SettingError, match=r"None or a strategy; write strategy=squall\.ADMM\(\)"):
            squall.LogisticRegression(strategy=written).fit(*data())
    with pytest.raises(SettingError, match=r"strategy=7 must be .* such as squall\.ParameterServer\(\)"):
        squall.LogisticRegression(strategy=7).fit(*data())
    assert repr(A(tol=np.float64(1e-3), max_rounds=np.int64(5))) == "ADMM(tol=0.001, max_rounds=5)"


@pytest.mark.slow
def test_lives_of_two_seconds_are_enough(best: float) -> None:
    X, y = data()
    slow = Chaos(slow=1.0, slowdown=60.0)
    run = squall.Run(
        workers=2, store="tcp", random_state=0, backend=squall.LocalBackend(lifetime="2s", chaos=slow)
    )
    job = squall.submit(squall.LogisticRegression(l2=L2, strategy=A()), (X, y), run=run)
    check(job.wait(55), best)
    assert len(job.status().attempts) > 2, job.status()
    assert not re.search("Traceback", job.logs())


def test_a_slow_worker_holds_nobody_up_with_a_partial_barrier(best: float) -> None:
    chaos = Chaos(slow=1.0, slowdown=15.0, slots=(1,))
    X, y = data()
    left_out = {}
    for partial in (None, 0.5):
        run = squall.Run(workers=2, store="tcp", random_state=0, backend=squall.LocalBackend(chaos=chaos))
        model = squall.LogisticRegression(l2=L2, strategy=A(partial=partial)).fit(X, y, run=run)
        check(model, best)
        assert {record.rows for record in model.history_} == {3000}
        left_out[partial] = sum(not record.by_worker[1].bytes_out for record in model.history_)
    assert left_out[None] == 0
    assert left_out[0.5] > 0, "rounds that went on without the slow worker's newest answer"
