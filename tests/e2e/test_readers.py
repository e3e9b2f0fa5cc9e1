"""Readers of objects in a real S3 server."""

from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import squall
from squall.data import inputs, remote
from squall.data.finding import find_inputs
from squall.data.objects import ObjectStore
from squall.errors import DataError


def test_parquet_objects_are_read_by_ranges(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ObjectStore(s3)
    numbers = np.random.default_rng(0).random(400_000)
    for part in range(2):
        raw = io.BytesIO()
        table = pa.table({"a": numbers[part::2], "b": numbers[part::2]})
        pq.write_table(table, raw, row_group_size=50_000, use_dictionary=False, compression="none")
        store.put(f"in/part-{part}.parquet", raw.getvalue())
    size = len(raw.getvalue())
    store.put("in/_SUCCESS", b"")

    data = squall.read_parquet(f"{s3}/in/", columns=["a"])
    expected = np.concatenate([numbers[0::2], numbers[1::2]])
    assert np.array_equal(data.to_arrays()[0][:, 0], expected)
    assert squall.read_parquet(f"{s3}/in/*.parquet", columns=["a"]).key() == data.key()
    assert len(squall.read_parquet([f"{s3}/in/part-1.parquet"])) == 200_000

    requests, get = [], remote.obstore.get
    monkeypatch.setattr(remote.obstore, "get", lambda *a, **options: requests.append(a) or get(*a, **options))
    (source,) = find_inputs(f"{s3}/in/part-0.parquet")
    seen: list[int] = []
    with inputs.seekable(source, seen.append) as file:
        pq.ParquetFile(file, pre_buffer=False).read(columns=["a"])
    assert 1 < len(requests) < size // 1_000_000 + 5, "not one request a page"
    assert sum(seen) < size, "and not all of it"
    with pytest.raises(DataError, match="there is no such object"):
        squall.read_parquet(f"{s3}/in/part-2.parquet")
    with pytest.raises(DataError, match="no object matches"):
        squall.read_parquet(f"{s3}/in/*.pq")
    store.put("in/part-1.parquet", b"PAR1")
    with pytest.raises(DataError, match=r"part-1\.parquet: this is no Parquet file"):
        squall.read_parquet(f"{s3}/in/part-1.parquet")
