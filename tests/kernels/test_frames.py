"""Frames of rows against NumPy: what is packed, served and unpacked."""

from __future__ import annotations

import numpy as np
import pytest

from squall import _kernels

RULE = _kernels.Rule(_kernels.ADAGRAD, 0.5, l2=0.1)
STRIDE = _kernels.table_stride(_kernels.ADAGRAD, 3, True)


def halves() -> np.ndarray:
    """Every float16 there is, and what lies between two of them."""
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    every = every[np.isfinite(every)]
    between = (np.sort(every)[:-1] + np.sort(every)[1:]) / 2
    tiny = np.array([1e-8, -1e-8, 1e-30, 6e-8, 65504.0, -65504.0], dtype=np.float32)
    return np.concatenate((every, between, np.nextafter(between, np.float32(np.inf)), tiny))


def test_float16_is_numpys() -> None:
    values = halves()[:, None]
    frame = bytearray(4 + 2 * len(values))
    end, _ = _kernels.rows_pack(frame, 4, None, None, values, True)
    assert end == len(frame)
    expected = values.astype(np.float16)
    assert np.array_equal(np.frombuffer(frame, np.uint16, offset=4), expected.view(np.uint16).ravel())
    back = _kernels.weights_unpack(frame, 4, len(values), 1, True)
    assert np.array_equal(back, expected.astype(np.float32))


def test_too_large_for_float16_is_cut() -> None:
    values = np.array([[1e6], [-np.inf], [65519.0], [np.nan]], dtype=np.float32)
    frame = bytearray(4 + 8)
    _kernels.rows_pack(frame, 4, None, None, values, True)
    packed = np.frombuffer(frame, np.float16, offset=4)
    assert packed[:3].tolist() == [65504.0, -65504.0, 65504.0]
    assert np.isnan(packed[3])


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("change", [_kernels.CHANGE_NOTHING, _kernels.CHANGE_STEP, _kernels.CHANGE_ADD])
@pytest.mark.parametrize("offset", [4, 5, 7])
def test_one_call_does_what_several_do(wide: bool, half: bool, change: int, offset: int) -> None:
    draw = np.random.default_rng(offset)
    table = np.zeros((50, STRIDE), dtype=np.float32)
    table[:, :3] = draw.normal(size=(50, 3))
    other, step = table.copy(), np.array([5], dtype=np.int64)
    pushed, pulled = draw.permutation(50)[:9].astype(np.int64), draw.integers(0, 50, 20)
    values = draw.normal(size=(9, 3)).astype(np.float16).astype(np.float32)

    frame = bytearray(offset + 8 * 29 + 4 * 27)
    if wide:
        rows = np.concatenate((pushed, pulled)).tobytes()
        numbers = (values.astype(np.float16) if half else values).tobytes()
        frame[offset:] = rows + numbers
        narrow = False
    else:
        end, narrow = _kernels.rows_pack(frame, offset, pushed, pulled, values, half)
        assert narrow
        del frame[end:]
    reply = bytearray(6 + 4 * 60)
    _kernels.table_serve(
        table, step, 3, RULE, 40, memoryview(frame), offset, 9, 20, narrow + 2 * half + 4 * half, change,
        memoryview(reply), 6,
    )  # fmt: skip

    done = 5
    if change == _kernels.CHANGE_STEP:
        _kernels.table_update(other, pushed, values, RULE, done, 40)
        done += 1
    elif change == _kernels.CHANGE_ADD:
        _kernels.table_pull(other, pushed, 3, RULE, done, 40)
        _kernels.table_add(other, pushed, values)
    expected = _kernels.table_pull(other, pulled, 3, RULE, done, 40)
    assert step[0] == done
    assert np.array_equal(table.view(np.uint32), other.view(np.uint32))
    got = np.frombuffer(reply, np.float16 if half else np.float32, 60, 6).reshape(20, 3)
    assert np.array_equal(got, expected.astype(np.float16) if half else expected)


@pytest.mark.parametrize(
    ("at", "n_pushed", "n_pulled", "dim", "change", "reply_at"),
    [
        (5, 1, 0, 3, 1, 0),
        (4, 2, 0, 3, 1, 0),
        (4, -1, 0, 3, 1, 0),
        (4, 1, 0, 2, 1, 0),
        (4, 1, 1 << 62, 3, 1, 0),
        (-1, 1, 0, 3, 1, 0),
        (4, 1, 0, 3, 3, 0),
        (4, 1, 0, 3, 1, -1),
        (4, 1, 0, 3, 1, 200),
    ],
)
def test_what_does_not_fit_changes_nothing(
    at: int, n_pushed: int, n_pulled: int, dim: int, change: int, reply_at: int
) -> None:
    table, step = np.zeros((4, STRIDE), dtype=np.float32), np.zeros(1, dtype=np.int64)
    frame = bytearray(4 + 4 + 12)
    frame[8:] = np.ones(3, dtype=np.float32).tobytes()
    with pytest.raises(ValueError, match=r"frame|dim|change|reply|table"):
        _kernels.table_serve(
            table, step, dim, RULE, 4, memoryview(frame), at, n_pushed, n_pulled, 1, change,
            memoryview(bytearray(100)), reply_at,
        )  # fmt: skip
    assert not table.any() and step[0] == 0


def test_a_row_outside_changes_nothing() -> None:
    table, step = np.zeros((4, STRIDE), dtype=np.float32), np.zeros(1, dtype=np.int64)
    frame = bytearray(200)
    rows = np.array([1, 4], dtype=np.int64)
    end, narrow = _kernels.rows_pack(frame, 4, rows, None, np.ones((2, 3), dtype=np.float32), False)
    with pytest.raises(IndexError, match="row 4"):
        _kernels.table_serve(
            table, step, 3, RULE, 4, memoryview(frame)[:end], 4, 2, 0, int(narrow), 1,
            memoryview(bytearray(8)), 0,
        )  # fmt: skip
    assert not table.any() and step[0] == 0


def test_weights_that_are_not_all_there() -> None:
    with pytest.raises(ValueError, match="are not 2 rows"):
        _kernels.weights_unpack(bytes(10), 2, 2, 1, True)
    with pytest.raises(ValueError, match="no room"):
        _kernels.rows_pack(bytearray(11), 4, np.zeros(2, dtype=np.int64), None, None, False)
