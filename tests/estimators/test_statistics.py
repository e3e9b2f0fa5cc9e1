"""Statistics of large data are made by functions, and are the same to the last bit."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import squall
from squall import Imputer, MinMaxScaler, OneHotEncoder, QuantileBinner, StandardScaler
from squall.data import stored
from squall.data.portable import portable
from squall.errors import DataError
from squall.estimators import statistics

FITTED = [StandardScaler(), MinMaxScaler(), Imputer("median"), OneHotEncoder(), QuantileBinner(8)]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """20 stored partitions, split, so that there are three groups."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(5, 2, 20_000), "b": rng.integers(0, 9, 20_000)})
    frame["t"] = rng.choice(["u", "v", None], 20_000)
    frame.loc[::7, "a"] = np.nan
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stored, "_PART_BYTES", 1)
        whole = squall.from_arrays(frame, rng.integers(0, 2, 20_000))
        pieces = whole.concat(*[whole] * 19)
        written = pieces.write(tmp_path_factory.mktemp("data") / "d")
    assert written.info().partitions == 20
    return written.split(0.25, random_state=1)[0]


@pytest.fixture
def calls(monkeypatch):
    """Counts maps on functions, which every stored data set is large enough for."""
    made = []
    real = statistics.MAPS.load("functions")

    def counted(fn, items, **settings):
        made.append(len(items))
        return real(fn, items, **settings)

    monkeypatch.setattr(statistics, "LARGE_BYTES", 0)
    monkeypatch.setattr(statistics.MAPS, "load", lambda name: counted)
    return made


def test_functions_learn_what_this_process_does(data, calls):
    for transformer in FITTED:
        here = clone(transformer).fit_on(data, None)
        with squall.Run(workers=2):
            there = clone(transformer).fit(data)
        assert there.transform_ == here.transform_
        assert here.bill_ is None and there.bill_.invocations >= 1 and there.bill_.compute_usd > 0
    assert calls == [3] * len(FITTED)


def test_a_pipeline_fits_each_stage_by_one_map(data, calls):
    steps = [Imputer(), StandardScaler(), OneHotEncoder(columns=["t"])]
    run = squall.Run(workers=2, random_state=0)
    model = squall.make_pipeline(*steps, squall.LogisticRegression(epochs=1)).fit(data, run=run)
    assert calls == [3, 3, 3]
    out = data
    for (_, fitted), step in zip(model.steps, steps, strict=False):
        assert fitted.transform_ == clone(step).fit_on(out, None).transform_
        out = fitted.transform(out)
    statistics_calls = sum(step.bill_.invocations for _, step in model.steps[:-1])
    assert model.bill_.invocations == statistics_calls + run.workers
    assert model.bill_.gb_seconds > sum(step.bill_.gb_seconds for _, step in model.steps[:-1])
    assert model.history_[0].cost_usd > sum(step.bill_.total_usd for _, step in model.steps[:-1])


def test_what_does_not_fit_is_told_as_it_is_here(tmp_path, calls):
    data = squall.from_arrays(pd.DataFrame({"a": [1.0, np.inf]})).write(tmp_path / "d")
    with squall.Run(workers=2), pytest.raises(DataError, match=r"column 'a': .*infinite"):
        StandardScaler().fit(data)
    assert calls == [1]


@pytest.mark.parametrize(
    "run", [squall.Run(workers=1), squall.Run(workers=2, budget="$1"), squall.Run(workers=2, deadline="1h")]
)
def test_when_this_process_looks_itself(data, calls, run):
    with run:
        StandardScaler().fit(data)
    assert calls == []


def test_rows_in_memory_and_small_data_stay_here(data, calls, monkeypatch):
    with squall.Run(workers=2):
        StandardScaler().fit(np.eye(3))
        monkeypatch.setattr(statistics, "LARGE_BYTES", 10**12)
        StandardScaler().fit(data)
    assert calls == []
    assert portable(squall.from_arrays(np.eye(3))) is None


def test_isolated_functions_do_not_reach_a_folder(data, calls):
    with squall.Run(workers=2, backend=squall.LocalBackend(isolation="strict"), store="tcp"):
        StandardScaler().fit(data)
    assert calls == []
