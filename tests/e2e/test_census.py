"""The main job on real data, beside scikit-learn on the same rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder

import squall

LABEL = "income-per-year"


def pipeline(**settings: Any) -> squall.Pipeline:
    settings = {"epochs": 20, "batch_size": 64, "learning_rate": 0.5} | settings
    return squall.make_pipeline(
        squall.MinMaxScaler(), squall.FeatureHasher(n_features=2**18), squall.LogisticRegression(**settings)
    )


def reference(train: squall.Dataset, test: squall.Dataset) -> tuple[float, float]:
    """Log-loss and accuracy of scikit-learn with min-max and one-hot on the same split."""
    numeric = [c.name for c in train.columns if c.kind != "categorical"]
    text = [c.name for c in train.columns if c.kind == "categorical"]
    frames = []
    for data in (train, test):
        frame = data.to_pandas()[numeric + text]
        frames.append(frame.astype(dict.fromkeys(text, object)).where(frame.notna(), "?"))
    columns = make_column_transformer(
        (MinMaxScaler(), numeric), (OneHotEncoder(handle_unknown="ignore"), text)
    )
    model = make_pipeline(columns, LogisticRegression(C=10, max_iter=1000))
    model.fit(frames[0], train.to_arrays()[1])
    truth = test.to_arrays()[1]
    probabilities = model.predict_proba(frames[1])[:, 1]
    return log_loss(truth == ">50K", probabilities), model.score(frames[1], truth)


@pytest.mark.parametrize(("seed", "workers"), [(0, 1), (0, 2), (1, 1), (1, 2)])
def test_as_good_as_scikit_learn(census: Path, seed: int, workers: int) -> None:
    train, test = squall.read_csv(census, label=LABEL).split(test=0.2, random_state=seed)
    model = pipeline()
    with squall.Run(workers=workers, random_state=seed):
        model.fit(train, validation=test)
    loss, accuracy = reference(train, test)
    mine = log_loss(test.to_arrays()[1] == ">50K", model.predict_proba(test)[:, 1])
    assert mine == pytest.approx(loss, abs=0.004)
    assert model.score(test) == pytest.approx(accuracy, abs=0.005)
    assert model.history_[-1].validation_loss == pytest.approx(mine, rel=1e-4)


def test_through_a_store_on_tcp(census: Path) -> None:
    train, test = squall.read_csv(census, label=LABEL).split(test=0.2, random_state=0)
    losses = {}
    for store in ("embedded", "tcp"):
        model = pipeline(epochs=10)
        model.fit(train, validation=test, run=squall.Run(workers=2, store=store))
        assert [record.rows for record in model.history_] == [26049] * 10
        losses[store] = log_loss(test.to_arrays()[1] == ">50K", model.predict_proba(test)[:, 1])
    assert losses["tcp"] == pytest.approx(losses["embedded"], abs=0.002)


def test_every_row_counts_in_every_epoch(census: Path) -> None:
    data = squall.read_csv(census, label=LABEL)
    model = pipeline(epochs=3).fit(data, run=squall.Run(workers=2))
    assert [record.rows for record in model.history_] == [32561] * 3


def test_one_worker_is_deterministic(census: Path) -> None:
    data = squall.read_csv(census, label=LABEL)
    fits = [pipeline(epochs=2).fit(data) for _ in range(2)]
    first, second = (fit.steps[-1][1].coef_ for fit in fits)
    assert np.array_equal(first, second)


def test_saved_and_loaded_it_predicts_the_same(census: Path, tmp_path: Path) -> None:
    data = squall.read_csv(census, label=LABEL)
    model = pipeline(epochs=2).fit(data)
    loaded = squall.load(squall.save(model, tmp_path / "census.squall"))
    unlabelled = squall.read_csv(census)  # the label is one more column here, and ignored
    assert np.array_equal(model.predict_proba(data), loaded.predict_proba(unlabelled))
    assert loaded.history_ == model.history_ and loaded.cost_usd_ == model.cost_usd_


def test_labels_sorted_in_the_file_do_no_harm(census: Path, tmp_path: Path) -> None:
    import gzip

    header, *lines = gzip.decompress(census.read_bytes()).decode().splitlines()
    lines.sort(key=lambda line: line.rsplit(",", 1)[1])
    ordered = tmp_path / "sorted.csv"
    ordered.write_text("\n".join([header, *lines]) + "\n")
    train, test = squall.read_csv(ordered, label=LABEL).split(test=0.2, random_state=0)
    model = pipeline().fit(train, validation=test)
    assert model.history_[-1].validation_loss < 0.335
