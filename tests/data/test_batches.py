"""Batches of a data set, and going on with them at any place."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall.data import mixing
from squall.data.arrays import from_arrays
from squall.data.dataset import Dataset
from squall.data.sources import MemorySource
from squall.errors import SettingError
from squall.records import NumericColumn, RawBlock, SparseColumn

from .blocks import quick, raw_block


def numbered(n, part_rows):
    """Rows that know their number, beside a sparse column."""
    counts = SparseColumn(np.arange(n + 1), np.arange(n, dtype=np.int32) % 5, None, 5)
    block = RawBlock(
        n, {"id": NumericColumn(np.arange(n)), "counts": counts}, np.arange(n, dtype=np.int32) % 2
    )
    return Dataset(MemorySource(block, part_rows, "y", np.array(["no", "yes"])))


def plain(batches):
    return [(X.toarray().tobytes(), y.tobytes()) for X, y in batches]


def ids(batches):
    return [int(i) for X, _ in batches for i in X.toarray()[:, 0]]


@quick
@given(st.data())
def test_the_rest_is_the_same_from_any_stop_point(draw):
    n = draw.draw(st.integers(1, 60), "rows")
    data = numbered(n, draw.draw(st.integers(1, 20), "rows of a partition"))
    if n > 1 and draw.draw(st.booleans(), "split"):
        data = data.split(draw.draw(st.integers(1, n - 1), "test rows"), random_state=0)[0]
    epochs, size = draw.draw(st.integers(1, 3), "epochs"), draw.draw(st.integers(1, 70), "batch size")
    settings = {"epochs": epochs, "shuffle": draw.draw(st.booleans(), "shuffle")}
    if settings["shuffle"]:
        settings["random_state"] = draw.draw(st.integers(0, 2**64 - 1), "seed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mixing, "WINDOW_BYTES", draw.draw(st.integers(1, 1000), "window"))
        whole = plain(data.iter_batches(size, **settings))
        assert len(whole) == epochs * -(-len(data) // size)
        stop = draw.draw(st.integers(0, len(whole)), "stop")
        batches = data.iter_batches(size, **settings)
        begun = plain(next(batches) for _ in range(stop))
        position = json.loads(json.dumps(batches.position))
        rest = data.iter_batches(size, **settings, start=position)
        assert rest.position == batches.position
        assert begun + plain(rest) == whole
        plain(batches)
        assert rest.position == batches.position  # both have come to the end
        assert rest.position[:3] == (epochs, 0, 0)


def test_each_epoch_has_all_rows_in_an_order_of_its_own():
    data = numbered(200, 30)
    rows = np.array(ids(data.iter_batches(64, epochs=3, shuffle=True, random_state=5))).reshape(3, 200)
    assert (np.sort(rows) == np.arange(200)).all()
    assert len({tuple(epoch) for epoch in rows.tolist()}) == 3
    assert ids(data.iter_batches(9, epochs=3, shuffle=True, random_state=5)) == rows.ravel().tolist()
    assert ids(data.iter_batches(64, epochs=2)) == [*range(200)] * 2
    assert ids(data.shuffle(1).iter_batches()) == ids(data.shuffle(1).iter_batches(7)) != [*range(200)]


def test_only_what_is_left_is_read(monkeypatch):
    data, read = numbered(100, 10), []
    monkeypatch.setattr(
        MemorySource, "read", lambda s, i, real=MemorySource.read: read.append(i) or real(s, i)
    )
    batches = data.iter_batches(15, epochs=2)
    for _ in range(5):
        next(batches)
    position = batches.position
    assert position[:3] == (0, 7, 5)
    read.clear()
    next(data.iter_batches(15, epochs=2, start=position))
    assert read == [7, 8]


def test_a_drawn_seed_is_that_of_the_position_and_more_epochs_may_follow():
    data = numbered(50, 10)
    batches = data.iter_batches(8, shuffle=True)
    first = ids(batches)
    again = data.iter_batches(8, shuffle=True, epochs=2, start=pickle.loads(pickle.dumps(batches.position)))
    second = ids(again)
    assert sorted(first) == sorted(second) == [*range(50)] and first != second
    assert first + second == ids(
        data.iter_batches(8, shuffle=True, epochs=2, random_state=batches.position.seed)
    )


def test_what_a_stored_data_set_gave_goes_on_in_another_process(tmp_path):
    data = numbered(50, 10).write(tmp_path / "d")
    batches = data.iter_batches(8, shuffle=True, random_state=3)
    next(batches)
    from squall.data.stored import open_stored

    opened = Dataset(open_stored(tmp_path / "d"))
    assert plain(opened.iter_batches(8, shuffle=True, start=batches.position)) == plain(batches)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"data": "ab"}, "a data set with other rows"),
        ({"batch_size": 9}, "batch_size=9, not 8"),
        ({"seed": 4}, "random_state=4, not 3"),
        ({"seed": None}, "not shuffled"),
        ({"epoch": 3}, "epoch 3, beyond the end of epochs=2"),
        ({"epoch": 2, "row": 1}, "beyond the end of epochs=2"),
        ({"partition": 5}, "partition 5, and there are 5"),
        ({"row": 50}, "has no row 50"),
        ({"row": -1}, "negative"),
        ({"epoch": "x"}, "not the position of batches"),
    ],
)
def test_a_position_that_does_not_fit_is_refused(changed, told):
    data = numbered(50, 10)
    batches = data.iter_batches(8, epochs=2, shuffle=True, random_state=3)
    with pytest.raises(SettingError, match=told):
        next(
            data.iter_batches(
                8, epochs=2, shuffle=True, random_state=3, start=batches.position._replace(**changed)
            )
        )


def test_all_that_does_not_fit_is_told_at_once():
    position = numbered(50, 10).iter_batches(8, shuffle=True).position
    with pytest.raises(SettingError, match=r"other rows.*batch_size=8, not 9.*shuffle=True"):
        numbered(50, 9).iter_batches(9, start=position)
    with pytest.raises(SettingError, match=r"batch_size=0(.|\n)*epochs=-1(.|\n)*shuffle=2"):
        numbered(5, 5).iter_batches(0, epochs=-1, shuffle=2, start="x")
    with pytest.raises(SettingError, match="no effect with shuffle=False"):
        numbered(5, 5).iter_batches(random_state=1)
    for start in ("x", {}, [1, 2], 7):
        with pytest.raises(SettingError, match="is not the position of batches"):
            numbered(5, 5).iter_batches(start=start)


def test_sorts_of_columns_and_what_has_no_rows():
    assert list(from_arrays(np.zeros((0, 2))).iter_batches(epochs=3, shuffle=True)) == []
    block = raw_block(40)
    del block.columns["ones"], block.columns["sparse"]
    data = Dataset(MemorySource(block, 7, "y", np.array(["no", "yes"])))
    batches = data.iter_batches(6, shuffle=True, random_state=0)
    begun = [next(batches) for _ in range(3)]
    rest = list(data.iter_batches(6, shuffle=True, random_state=0, start=batches.position))
    whole = [X for X, _ in data.iter_batches(6, shuffle=True, random_state=0)]
    assert repr([X.tolist() for X, _ in begun + rest]) == repr([X.tolist() for X in whole])
