"""Topic models: what they share with other families, and what a worker remembers."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from squall.data.rows import slice_training
from squall.errors import StoreError
from squall.models import model_from_dict
from squall.models.documents import halves, numbered
from squall.models.topics import TopicModel
from squall.protocols import Model, Remembering
from squall.records import CsrBlock, DenseBlock, Place, SharedTable
from squall.testing.models import block_of

WORDS, TOPICS, DOCUMENTS = 30, 4, 24
ROOM = 1 << 20  # bytes: for all blocks


class MemoryBlobs(dict[str, bytes]):
    """What of `Blobs` is used here."""

    asked = 0  # how often values were

    def mget(self, keys: list[str]) -> list[bytes | None]:
        self.asked += 1
        return [self.get(key) for key in keys]

    def put_if_absent(self, key: str, value: bytes) -> bool:
        return self.setdefault(key, value) is value

    def delete(self, key: str) -> None:
        self.pop(key, None)


EVERY = np.arange(DOCUMENTS, dtype=np.int32)


def counts(seed: int = 0) -> np.ndarray:
    X = np.random.default_rng(seed).poisson(0.7, (DOCUMENTS, WORDS)).astype(np.float32)
    X[5] = 0
    return X


def model(**settings: object) -> TopicModel:
    own = TopicModel(WORDS, TOPICS, DOCUMENTS, float(counts().sum()), seed=1)
    return msgspec.structs.replace(own, **settings)


def block(form: str = "sparse", seed: int = 0) -> CsrBlock | DenseBlock:
    return block_of(form, counts(seed), np.zeros(DOCUMENTS, dtype=np.float32), None)


def table(of: TopicModel) -> SharedTable:
    spec = of.table("j/model", None)
    return SharedTable(spec, np.zeros((spec.rows, spec.dim), dtype=np.float32), np.zeros(1, dtype=np.int64))


def visit(of: Model, weights: np.ndarray, place: Place, rows: np.ndarray = EVERY, size: int = 8) -> None:
    """Minibatches by gradients, as the table's owner applies them."""
    whole = block()
    for start in range(0, DOCUMENTS, size):
        part = replace(slice_training(whole, start, start + size), place=place._replace(start=start))
        needed, handle = of.needed_rows(part, np.arange(size, dtype=np.int32))
        gradient, _, _ = of.gradient(part, rows[:size], handle, weights[needed], size)
        weights[needed] -= gradient


@pytest.mark.parametrize("method", ["cvb0", "online"])
def test_it_travels_as_plain_data(method: str) -> None:
    own = model(method=method)
    assert model_from_dict(msgspec.json.decode(msgspec.json.encode(msgspec.to_builtins(own)))) == own
    assert isinstance(own, Remembering)


@pytest.mark.parametrize("method", ["cvb0", "online"])
@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_in_place_is_as_by_gradients(method: str, form: str) -> None:
    own, whole = model(method=method), block(form)
    shared, progress = table(own), np.zeros(1, dtype=np.int64)
    order = np.random.default_rng(3).permutation(EVERY)
    told = own.train_shared(whole, order, 10, 0, 2, shared, progress)
    rest = own.train_shared(whole, order, 10, 2, 1, shared, progress)
    weights, losses, tokens = table(own).array, 0.0, 0.0
    for start in (0, 10, 20):
        rows = order[start : start + 10]
        needed, handle = own.needed_rows(whole, rows)
        gradient, loss, weight = own.gradient(whole, rows, handle, weights[needed], 10)
        weights[needed] -= gradient
        losses, tokens = losses + loss, tokens + weight
    np.testing.assert_array_equal(shared.array, weights)
    assert (told[0] + rest[0], told[1] + rest[1]) == (pytest.approx(losses), tokens)
    assert (told[2], rest[2], tokens) == (20, 4, counts().sum())
    assert (progress[0], shared.step[0]) == (3, 3)


def test_forms_of_rows_give_the_same() -> None:
    weights = np.random.default_rng(0).gamma(1.0, size=(WORDS + 1, TOPICS)).astype(np.float32)
    weights[-1] = weights[:-1].sum(axis=0)
    found = [model().outputs(block(form), weights) for form in ("dense", "sparse")]
    np.testing.assert_array_equal(*found)
    np.testing.assert_allclose(found[0].sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(found[0][5], 1 / TOPICS, rtol=1e-5)  # nothing is known of an empty one
    losses = [model().loss(block(form), weights) for form in ("dense", "sparse")]
    assert losses[0] == losses[1]
    assert losses[0][2] is None


def test_online_steps_are_those_of_the_paper() -> None:
    own = model(method="online", initial_mass=0.0)
    weights = np.zeros((WORDS + 1, TOPICS), dtype=np.float32)
    rate = 11.0**-0.7
    needed, handle = own.needed_rows(block(), EVERY[:6])
    gradient, _, _ = own.gradient(block(), EVERY[:6], handle, weights, 6)
    weights -= gradient
    assert weights[:-1].sum() == pytest.approx(rate * DOCUMENTS / 6 * counts()[:6].sum(), rel=1e-4)
    before = weights.copy()
    needed, handle = own.needed_rows(block(), EVERY[6:6])
    gradient, loss, tokens = own.gradient(block(), EVERY[6:6], handle, weights, 6)  # no documents at all
    np.testing.assert_allclose(weights[:-1] - gradient[:-1], before[:-1] * (1 - 12.0**-0.7), rtol=1e-5)
    assert (weights[-1, 0], gradient[-1, 0], loss, tokens) == (1.0, -1.0, 0.0, 0.0)
    assert len(needed) == WORDS + 1


def test_held_out_tokens_are_every_second_one() -> None:
    X = np.array([[1, 0, 3, 2], [0, 0, 0, 0], [0, 1, 0, 0], [2, 2, 2, 2]], dtype=np.float32)
    rows = numbered(DenseBlock(X, np.zeros(4, np.float32), None), np.arange(4, dtype=np.int32))
    first, second = (np.zeros_like(X) for _ in range(2))
    for part, into in zip(halves(rows), (first, second), strict=True):
        indptr, local, values = part.rows
        assert values is not None
        into[np.repeat(np.arange(4), np.diff(indptr)), part.words[local]] = values
    np.testing.assert_array_equal(first + second, X)
    assert first.sum(axis=1).tolist() == [3, 0, 1, 4]
    assert first[0].tolist() == [1, 0, 1, 1]
    fractions = numbered(DenseBlock(X / 4, np.zeros(4, np.float32), None), np.arange(4, dtype=np.int32))
    for part in halves(fractions):
        np.testing.assert_array_equal(part.counts, fractions.counts / 2)


# ------------------------------------------------------------------------------------ remembering


def test_each_document_counts_once_however_often_it_is_visited() -> None:
    at_work = model().at_work("j", MemoryBlobs(), 1, ROOM)
    weights = np.zeros((WORDS + 1, TOPICS), dtype=np.float32)
    for epoch in range(4):
        visit(at_work, weights, Place(epoch, 0, 0))
        assert weights[:-1].sum() == pytest.approx(counts().sum(), rel=1e-3)
        np.testing.assert_allclose(weights[:-1].sum(axis=0), weights[-1], rtol=1e-4, atol=1e-3)
        np.testing.assert_allclose(weights[:-1].sum(axis=1), counts().sum(axis=0), rtol=2e-3, atol=1e-4)


def test_a_mean_over_slots_is_made_a_sum() -> None:
    weights = [np.zeros((WORDS + 1, TOPICS), dtype=np.float32) for _ in range(2)]
    whole = replace(block(), place=Place(0, 0, 0))
    for mean_of, own in zip((1, 3), weights, strict=True):
        at_work = model().at_work("j", MemoryBlobs(), mean_of, ROOM)
        needed, handle = at_work.needed_rows(whole, EVERY)
        own[needed] -= at_work.gradient(whole, EVERY, handle, own[needed], DOCUMENTS)[0] / mean_of
    np.testing.assert_allclose(*weights, rtol=1e-6)


def test_a_successor_sends_what_its_predecessor_has_written() -> None:
    blobs = MemoryBlobs()
    weights = np.zeros((WORDS + 1, TOPICS), dtype=np.float32)
    visit(model().at_work("j", blobs, 1, ROOM), weights, Place(0, 0, 0))
    whole = replace(slice_training(block(), 0, 8), place=Place(1, 0, 0))
    results = []
    # The predecessor dies before its update arrives; meanwhile another slot changes the table.
    for changed in (weights, weights * 3):
        at_work = model().at_work("j", blobs, 1, ROOM)
        needed, handle = at_work.needed_rows(whole, EVERY[:8])
        results.append(at_work.gradient(whole, EVERY[:8], handle, changed[needed], 8))
    np.testing.assert_array_equal(results[0][0], results[1][0])
    assert results[0][1:] == results[1][1:]


def test_it_keeps_two_versions_of_a_block() -> None:
    blobs = MemoryBlobs()
    at_work = model().at_work("j", blobs, 1, ROOM)
    weights = np.zeros((WORDS + 1, TOPICS), dtype=np.float32)
    for epoch in range(4):
        visit(at_work, weights, Place(epoch, 2, 0))
    kept = [epoch for epoch in range(4) if blobs.get(f"j/rows/2/8/{epoch}") is not None]
    assert kept == [2, 3]


@pytest.mark.parametrize(("room", "asked"), [(ROOM, 0), (700, 6), (0, 9)])
def test_versions_at_hand_are_not_asked_for(room: int, asked: int) -> None:
    blobs, expected = MemoryBlobs(), MemoryBlobs()
    at_work = model().at_work("j", blobs, 1, room)  # there are three blocks of some 500 bytes
    weights, fresh = (np.zeros((WORDS + 1, TOPICS), dtype=np.float32) for _ in range(2))
    for epoch in range(4):
        visit(at_work, weights, Place(epoch, 0, 0))
        visit(model().at_work("j", expected, 1, ROOM), fresh, Place(epoch, 0, 0))  # always a new attempt
    assert blobs.asked == asked
    np.testing.assert_array_equal(weights, fresh)
    assert blobs == expected


def test_a_successor_does_not_trust_what_it_has_at_hand_more_than_what_is_written() -> None:
    blobs, weights = MemoryBlobs(), np.zeros((WORDS + 1, TOPICS), dtype=np.float32)
    at_work, other = (model().at_work("j", blobs, 1, ROOM) for _ in range(2))
    for own in (at_work, other):  # the same block, as one would that was taken for dead
        visit(own, weights.copy(), Place(0, 0, 0))
    whole = replace(slice_training(block(), 0, 8), place=Place(1, 0, 0))
    results = []
    for own, changed in ((at_work, weights + 1), (other, weights + 3)):
        needed, handle = own.needed_rows(whole, EVERY[:8])
        results.append(own.gradient(whole, EVERY[:8], handle, changed[needed], 8))
    np.testing.assert_array_equal(results[0][0], results[1][0])
    assert results[0][1:] == results[1][1:]


def test_a_lost_version_is_told_not_guessed() -> None:
    blobs = MemoryBlobs()
    at_work = model().at_work("j", blobs, 1, ROOM)
    weights = np.zeros((WORDS + 1, TOPICS), dtype=np.float32)
    visit(at_work, weights, Place(0, 0, 0))
    blobs.delete("j/rows/0/8/0")
    at_work = model().at_work("j", blobs, 1, ROOM)
    with pytest.raises(StoreError, match="has lost what its table holds of rows from 8 on in partition 0"):
        visit(at_work, weights, Place(1, 0, 0))
