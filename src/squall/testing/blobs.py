"""The contract suites of `Blobs`, `Reductions` and `AtomicBlobs`.

An implementation subclasses these in its tests (with a name that pytest collects) and
overrides the fixtures that raise :class:`NotImplementedError`.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from squall.errors import StoreError
from squall.protocols import AtomicBlobs, Blobs, Reductions
from squall.records import REDUCE_OPS, Numbers, ReduceOp
from squall.store.uploads import PART_BYTES

LARGE = 2 * PART_BYTES + 12_345
"""Bytes of a value that travels in parts."""


def numbered(size: int) -> bytes:
    """So many bytes in which parts that are lost or change places are seen."""
    return np.arange(-(-size // 4), dtype="<u4").tobytes()[:size]


class BlobsContract:
    """What every implementation of `Blobs` must do."""

    @pytest.fixture
    def blobs(self) -> Blobs:
        """The implementation."""
        raise NotImplementedError

    @pytest.fixture
    def other(self) -> Blobs:
        """Another client of the same store, for another thread."""
        raise NotImplementedError

    @pytest.fixture
    def key(self) -> str:
        """A key that has no value."""
        raise NotImplementedError

    @pytest.mark.parametrize("value", [b"", b"x", bytes(range(256)) * 4096])
    def test_values_come_back(self, blobs: Blobs, other: Blobs, key: str, value: bytes) -> None:
        blobs.put(key, value)
        assert other.get(key) == value

    def test_put_replaces(self, blobs: Blobs, key: str) -> None:
        blobs.put(key, b"1")
        blobs.put(key, b"2")
        assert blobs.get(key) == b"2"

    def test_put_if_absent(self, blobs: Blobs, other: Blobs, key: str) -> None:
        assert blobs.put_if_absent(key, b"")
        assert not other.put_if_absent(key, b"2")
        assert blobs.get(key) == b""

    def test_missing_is_none(self, blobs: Blobs, key: str) -> None:
        assert blobs.get(key) is None
        assert blobs.wait(key, 0.0) is None

    def test_mget_keeps_order(self, blobs: Blobs, key: str) -> None:
        blobs.put(f"{key}1", b"1")
        blobs.put(f"{key}2", b"2")
        assert blobs.mget([f"{key}2", key, f"{key}1", f"{key}2"]) == [b"2", None, b"1", b"2"]
        assert blobs.mget([]) == []

    def test_delete(self, blobs: Blobs, key: str) -> None:
        blobs.put(key, b"1")
        blobs.delete(key)
        blobs.delete(key)
        assert blobs.get(key) is None
        assert blobs.put_if_absent(key, b"2")

    def test_wait_ends_after_its_time(self, blobs: Blobs, key: str) -> None:
        start = time.monotonic()
        assert blobs.wait(key, 0.1) is None
        assert 0.09 <= time.monotonic() - start < 5.0

    def test_wait_gets_a_later_value_and_blocks_nobody(self, blobs: Blobs, other: Blobs, key: str) -> None:
        got: list[bytes | None] = []
        thread = threading.Thread(target=lambda: got.append(other.wait(key, 20.0)))
        thread.start()
        try:
            time.sleep(0.05)
            start = time.monotonic()
            assert blobs.get(f"{key}-not") is None
            assert time.monotonic() - start < 5.0
        finally:
            blobs.put(key, b"late")
            thread.join(20.0)
        assert got == [b"late"]

    @pytest.mark.parametrize("size", [PART_BYTES, LARGE])
    def test_large_values(self, blobs: Blobs, other: Blobs, key: str, size: int) -> None:
        value = numbered(size)
        blobs.put(key, b"small")
        blobs.put(key, value)
        assert other.get(key) == value
        assert other.wait(key, 0.0) == value
        assert not other.put_if_absent(key, b"2")
        blobs.delete(key)
        assert other.get(key) is None
        assert blobs.put_if_absent(key, value)
        assert not other.put_if_absent(key, value[1:])
        assert other.mget([f"{key}-not", key]) == [None, value]
        blobs.put(key, b"small")
        assert other.get(key) == b"small"

    @pytest.mark.parametrize("n_pieces", [0, 1, 5])
    def test_streams(self, blobs: Blobs, other: Blobs, key: str, n_pieces: int) -> None:
        value = numbered(n_pieces * (LARGE // 4))
        pieces = [value[at : at + LARGE // 4] for at in range(0, len(value), LARGE // 4)]
        blobs.put_stream(key, itertools.chain([b""], pieces))
        assert other.get(key) == value
        stream = other.get_stream(key)
        assert stream is not None
        read = list(stream)
        assert b"".join(read) == value
        assert max(map(len, read), default=0) <= PART_BYTES
        assert other.get_stream(f"{key}-not") is None

    def test_nobody_sees_half_a_value(self, blobs: Blobs, other: Blobs, key: str) -> None:
        seen: list[bytes | None] = []

        def pieces() -> Iterator[bytes]:
            for number in range(4):
                yield bytes([number]) * PART_BYTES
                seen.append(other.get(key))

        blobs.put_stream(key, pieces())
        assert seen == [None] * 4
        assert len(other.get(key) or b"") == 4 * PART_BYTES

    def test_a_stream_that_breaks_off_leaves_what_was_there(
        self, blobs: Blobs, other: Blobs, key: str
    ) -> None:
        def pieces() -> Iterator[bytes]:
            yield bytes(PART_BYTES)
            yield bytes(PART_BYTES)
            raise ValueError("no more")

        blobs.put(key, b"before")
        with pytest.raises(ValueError, match="no more"):
            blobs.put_stream(key, pieces())
        assert other.get(key) == blobs.get(key) == b"before"

    def test_a_value_replaced_while_it_is_read_is_never_mixed(
        self, blobs: Blobs, other: Blobs, key: str
    ) -> None:
        blobs.put(key, b"1" * LARGE)
        stream = other.get_stream(key)
        assert stream is not None
        read = next(stream)
        blobs.put(key, b"2" * LARGE)
        try:
            read += b"".join(stream)
        except StoreError:
            pass
        else:
            assert read == b"1" * LARGE
        assert other.get(key) == b"2" * LARGE


class ReductionsContract:
    """What every implementation of `Reductions` must do."""

    @pytest.fixture
    def blobs(self) -> Any:
        """The implementation, with `Blobs.delete`."""
        raise NotImplementedError

    @pytest.fixture
    def other(self) -> Any:
        """Another client of the same store, for another thread."""
        raise NotImplementedError

    @pytest.fixture
    def key(self) -> str:
        """A key that nothing is known of."""
        raise NotImplementedError

    def test_counters(self, blobs: Reductions, other: Reductions, key: str) -> None:
        assert blobs.add(key) == 1
        assert other.add(key, 41) == 42
        assert blobs.add(key, 0) == 42
        assert blobs.add(key, -100) == -58
        assert other.add(f"{key}-other", 2**62) == 2**62

    def test_counters_of_64_bits(self, blobs: Reductions, key: str) -> None:
        assert blobs.add(key, 2**63 - 1) == 2**63 - 1
        with pytest.raises(StoreError, match="64 bits"):
            blobs.add(key)
        assert blobs.add(key, -1) == 2**63 - 2
        with pytest.raises(StoreError, match="64 bits"):
            blobs.add(f"{key}-low", -(2**63) - 1)
        assert blobs.add(f"{key}-low", -(2**63)) == -(2**63)

    def test_a_deleted_counter_begins_again(self, blobs: Any, other: Any, key: str) -> None:
        blobs.add(key, 5)
        other.delete(key)
        assert blobs.add(key) == 1

    def test_two_count_at_once(self, blobs: Reductions, other: Reductions, key: str) -> None:
        counts: list[list[int]] = [[], []]

        def count(client: Reductions, into: list[int]) -> None:
            into.extend(client.add(key) for _ in range(20))

        thread = threading.Thread(target=count, args=(other, counts[1]))
        thread.start()
        count(blobs, counts[0])
        thread.join(50.0)
        assert sorted(counts[0] + counts[1]) == list(range(1, 41))

    @pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "int64"])
    @pytest.mark.parametrize("op", REDUCE_OPS)
    def test_reduce(self, blobs: Reductions, other: Reductions, key: str, op: ReduceOp, dtype: str) -> None:
        arrays: list[Numbers] = [
            np.array(values, dtype=dtype) for values in ([[1, -2, 3]], [[4, 5, -6]], [[-7, 8, 9]])
        ]
        for contributor, array in enumerate(arrays):
            assert blobs.reduced(key, contributor + 1, 0.0) is None
            other.reduce(key, array, op, contributor)
        result = blobs.reduced(key, 3, 0.0)
        expected = getattr(np, op)(arrays, axis=0)
        assert result is not None
        assert (result.dtype, result.shape) == (np.dtype(dtype), (1, 3))
        assert np.array_equal(result, expected)
        again = other.reduced(key, 2, 0.0)
        assert again is not None and np.array_equal(again, expected)

    def test_repeats_are_dropped(self, blobs: Reductions, other: Reductions, key: str) -> None:
        blobs.reduce(key, np.ones(2), "sum", 7)
        blobs.reduce(key, np.ones(2), "sum", 7)
        other.reduce(key, 9 * np.ones(2), "sum", 7)
        assert blobs.reduced(key, 2, 0.0) is None
        other.reduce(key, np.ones(2), "sum", 0)
        result = blobs.reduced(key, 2, 0.0)
        assert result is not None and result.tolist() == [2.0, 2.0]

    @pytest.mark.parametrize("contributors", [(0, 1, 2, 3, 4), (3, 11, 4, 0, 1000)])
    def test_the_order_of_arrival_leaves_no_trace(
        self, blobs: Reductions, other: Reductions, key: str, contributors: tuple[int, ...]
    ) -> None:
        draw = np.random.default_rng(0)
        arrays = [draw.normal(size=50).astype(np.float32) for _ in contributors]
        results = []
        for number, order in enumerate(((0, 1, 2, 3, 4), (4, 2, 0, 3, 1), (3, 4, 1, 0, 2))):
            for at in order:
                client = (blobs, other)[at % 2]
                client.reduce(f"{key}-{number}", arrays[at], "sum", contributors[at])
            result = other.reduced(f"{key}-{number}", 5, 0.0)
            assert result is not None
            results.append(result.tobytes())
        assert results[0] == results[1] == results[2]
        assert np.frombuffer(results[0], np.float32) == pytest.approx(np.sum(arrays, axis=0), abs=1e-5)

    @pytest.mark.parametrize("shape", [(), (0,), (2, 0), (2, 3, 4)])
    def test_shapes(self, blobs: Reductions, key: str, shape: tuple[int, ...]) -> None:
        for contributor in range(2):
            blobs.reduce(key, np.ones(shape, dtype=np.int64), "sum", contributor)
        result = blobs.reduced(key, 2, 0.0)
        assert result is not None and result.shape == shape and (result == 2).all()

    def test_arrays_need_not_lie_in_order(self, blobs: Reductions, key: str) -> None:
        array = np.arange(6, dtype=np.float64).reshape(2, 3)
        blobs.reduce(key, array.T, "max", 0)
        result = blobs.reduced(key, 1, 0.0)
        assert result is not None and result.tolist() == array.T.tolist()

    def test_large_arrays(self, blobs: Reductions, other: Reductions, key: str) -> None:
        array = np.arange(LARGE // 8, dtype=np.float64)
        for contributor in range(3):
            blobs.reduce(key, array, "sum", contributor)
        result = other.reduced(key, 3, 10.0)
        assert result is not None and np.array_equal(result, 3 * array)

    def test_not_a_number_wins(self, blobs: Reductions, key: str) -> None:
        blobs.reduce(key, np.array([np.nan, 1.0, np.inf]), "min", 0)
        blobs.reduce(key, np.array([1.0, np.nan, -np.inf]), "min", 1)
        result = blobs.reduced(key, 2, 0.0)
        assert result is not None and str(result.tolist()) == "[nan, nan, -inf]"

    def test_what_does_not_fit_is_refused(self, blobs: Reductions, key: str) -> None:
        blobs.reduce(key, np.ones(2), "sum", 0)
        calls: list[Callable[[], object]] = [
            lambda: blobs.reduce(key, np.ones(3), "sum", 1),
            lambda: blobs.reduce(key, np.ones(2, dtype=np.float32), "sum", 1),
            lambda: blobs.reduce(key, np.ones(2), "min", 1),
            lambda: blobs.reduce(key, np.ones(2), "sum", -1),
            lambda: blobs.reduce(key, np.ones(2), "sum", 2**31),
            lambda: blobs.reduce(f"{key}-new", np.ones(2), "mean", 0),  # type: ignore[arg-type]
            lambda: blobs.reduce(f"{key}-new", np.ones(2, dtype=bool), "sum", 0),
            lambda: blobs.reduce(f"{key}-new", np.ones((1,) * 9), "sum", 0),
            lambda: blobs.reduced(key, 0, 0.0),
        ]
        for call in calls:
            with pytest.raises(StoreError):
                call()
        result = blobs.reduced(key, 1, 0.0)
        assert result is not None and result.tolist() == [1.0, 1.0]

    def test_a_deleted_reduction_begins_again(self, blobs: Any, other: Any, key: str) -> None:
        blobs.reduce(key, np.ones(2), "sum", 0)
        assert other.reduced(key, 1, 0.0) is not None
        other.delete(key)
        assert blobs.reduced(key, 1, 0.0) is None
        blobs.reduce(key, np.zeros(3), "max", 0)
        result = blobs.reduced(key, 1, 0.0)
        assert result is not None and result.tolist() == [0.0, 0.0, 0.0]

    def test_reduced_ends_after_its_time(self, blobs: Reductions, key: str) -> None:
        blobs.reduce(key, np.ones(2), "sum", 0)
        start = time.monotonic()
        assert blobs.reduced(key, 2, 0.1) is None
        assert 0.09 <= time.monotonic() - start < 5.0

    def test_all_wait_for_all(self, blobs: Reductions, other: Reductions, key: str) -> None:
        results: list[Numbers | None] = []

        def meet() -> None:
            for number in range(3):
                other.reduce(f"{key}-{number}", np.full(2, 1.0), "sum", 1)
                results.append(other.reduced(f"{key}-{number}", 2, 20.0))

        thread = threading.Thread(target=meet)
        thread.start()
        for number in range(3):
            blobs.reduce(f"{key}-{number}", np.full(2, float(number)), "sum", 0)
            results.append(blobs.reduced(f"{key}-{number}", 2, 20.0))
        thread.join(50.0)
        assert sorted(result.tolist() for result in results if result is not None) == [
            [1.0, 1.0], [1.0, 1.0], [2.0, 2.0], [2.0, 2.0], [3.0, 3.0], [3.0, 3.0],
        ]  # fmt: skip


class AtomicBlobsContract(BlobsContract, ReductionsContract):
    """What every implementation of `AtomicBlobs` must do."""

    def test_compare_and_set(self, blobs: AtomicBlobs, other: AtomicBlobs, key: str) -> None:
        assert not blobs.compare_and_set(key, b"", b"1")
        assert blobs.get(key) is None
        assert blobs.compare_and_set(key, None, b"1")
        assert not other.compare_and_set(key, None, b"2")
        assert not other.compare_and_set(key, b"2", b"3")
        assert other.compare_and_set(key, b"1", b"")
        assert blobs.compare_and_set(key, b"", b"4")
        assert other.get(key) == b"4"

    def test_compare_and_set_of_large_values(self, blobs: AtomicBlobs, key: str) -> None:
        value = numbered(LARGE)
        assert blobs.compare_and_set(key, None, value)
        assert not blobs.compare_and_set(key, b"1", b"2")
        assert not blobs.compare_and_set(key, value[:-1], b"2")
        assert blobs.compare_and_set(key, value, b"2")
        assert blobs.get(key) == b"2"

    def test_one_of_two_wins(self, blobs: AtomicBlobs, other: AtomicBlobs, key: str) -> None:
        """A list to which both append, each time upon what they have read."""
        blobs.put(key, b"")

        def append(client: AtomicBlobs, sign: bytes) -> None:
            for _ in range(20):
                while True:
                    value = client.get(key)
                    assert value is not None
                    if client.compare_and_set(key, value, value + sign):
                        break

        thread = threading.Thread(target=append, args=(other, b"b"))
        thread.start()
        append(blobs, b"a")
        thread.join(50.0)
        value = blobs.get(key)
        assert value is not None and sorted(value) == sorted(b"ab" * 20)

    def test_a_key_is_for_one_thing(self, blobs: AtomicBlobs, key: str) -> None:
        blobs.put(f"{key}-value", b"no number")
        blobs.reduce(f"{key}-reduction", np.ones(2), "sum", 0)
        calls: list[Callable[[], object]] = [
            lambda: blobs.add(f"{key}-value"),
            lambda: blobs.reduce(f"{key}-value", np.ones(2), "sum", 0),
            lambda: blobs.put(f"{key}-reduction", b"1"),
            lambda: blobs.add(f"{key}-reduction"),
        ]
        for call in calls:
            with pytest.raises(StoreError):
                call()
