"""Data sets, statistics and packed partitions on a real S3 server, with functions that share nothing."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import squall
from squall.data import stored
from squall.errors import CorruptError, StoreError
from squall.estimators import statistics


def table(n: int = 3000) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(3, 2, n), "t": rng.choice(["u", "v", "w"], n)})
    return frame, np.where(frame.a + 2 * (frame.t == "u") > 3, "yes", "no")


def test_a_data_set_on_s3(s3: str) -> None:
    frame, labels = table()
    data = squall.from_arrays(frame, labels)
    kept = data.write(f"{s3}/people")
    found = squall.open_dataset(f"{s3}/people")
    pd.testing.assert_frame_equal(found.to_pandas(), data.to_pandas())
    assert found.info().location == f"{s3}/people"
    with pytest.raises(StoreError, match="there already"):
        data.write(f"{s3}/people")
    manifest = kept._source.manifest
    store = kept._source.store
    store.put(manifest.partitions[0].key, bytes(store.get(manifest.partitions[0].key))[:-1])
    with pytest.raises(CorruptError, match="damaged"):
        squall.open_dataset(f"{s3}/people").head()


def test_isolated_functions_learn_and_train_from_s3(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    maps = []
    real = statistics.MAPS.load("functions")

    def counted(fn, items, **settings):  # type: ignore[no-untyped-def]
        maps.append(len(items))
        return real(fn, items, **settings)

    monkeypatch.setattr(statistics.MAPS, "load", lambda name: counted)
    monkeypatch.setattr(statistics, "LARGE_BYTES", 0)
    monkeypatch.setattr(stored, "_PART_BYTES", 1)
    monkeypatch.setenv("SQUALL_STORAGE", s3)
    frame, labels = table()
    data = squall.from_arrays(frame, labels)
    pieces = data.concat(*[data] * 9).write(f"{s3}/people")
    steps = [squall.StandardScaler(), squall.OneHotEncoder()]
    strict = squall.LocalBackend(isolation="strict")
    with squall.Run(workers=2, backend=strict, store="tcp", storage=s3, random_state=0):
        model = squall.make_pipeline(*steps, squall.LogisticRegression(epochs=2)).fit(pieces)
    assert maps == [2, 2]
    here = squall.StandardScaler().fit_on(pieces, None)
    assert model.steps[0][1].transform_ == here.transform_
    assert model.score(frame, labels) > 0.9
