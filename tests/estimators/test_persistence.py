from __future__ import annotations

import json
import os
import pickle
import stat
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec import structs
from safetensors.numpy import save_file
from sklearn.base import clone

import squall
from squall import FeatureHasher, LogisticRegression, MinMaxScaler, make_pipeline
from squall._kernels import checksum
from squall.errors import CorruptError, SettingError, SquallError

from .problems import numbers, people

X, y = numbers()
frame, labels = people()


@pytest.fixture(scope="module")
def model():
    return LogisticRegression(epochs=2, l2=0.1).fit(X, y, validation=(X, y))


@pytest.fixture(scope="module")
def pipeline():
    steps = MinMaxScaler(feature_range=(-1, 1)), FeatureHasher(n_features=64), LogisticRegression(epochs=2)
    return make_pipeline(*steps).fit(frame, labels)


@pytest.fixture(scope="module")
def saved(model, tmp_path_factory):
    return squall.save(model, tmp_path_factory.mktemp("saved") / "m").read_bytes()


def test_a_model_comes_back(model, tmp_path):
    path = squall.save(model, tmp_path / "m")
    assert path == tmp_path / "m"
    twin = squall.load(str(path))
    assert isinstance(twin, LogisticRegression)
    assert repr(twin.history_) == repr(model.history_)
    assert twin.get_params() == model.get_params()
    assert twin.decision_function(X).tobytes() == model.decision_function(X).tobytes()
    for name in (
        "history_",
        "bill_",
        "cost_usd_",
        "stopped_",
        "n_iter_",
        "n_features_in_",
        "columns_in_",
        "learning_rate_",
        "batch_size_",
    ):
        assert getattr(twin, name) == getattr(model, name), name


def test_a_pipeline_comes_back(pipeline, tmp_path):
    twin = squall.load(squall.save(pipeline, tmp_path / "m"))
    assert isinstance(twin, squall.Pipeline)
    assert repr(twin) == repr(pipeline)
    assert twin.predict_proba(frame).tobytes() == pipeline.predict_proba(frame).tobytes()
    assert twin.predict(frame).tolist() == pipeline.predict(frame).tolist()
    assert twin[:-1].transform(frame).toarray().tolist() == pipeline[:-1].transform(frame).toarray().tolist()


def test_what_came_back_can_be_fitted_and_saved_again(pipeline, tmp_path):
    twin = squall.load(squall.save(pipeline, tmp_path / "m"))
    squall.save(twin.fit(frame, labels), tmp_path / "m")
    again = squall.load(tmp_path / "m")
    np.testing.assert_array_equal(again.predict_proba(frame), pipeline.predict_proba(frame))


@pytest.mark.parametrize(
    "values", [["no", "yes"], [-1, 1], [1, 2], [False, True], [0.0, 1.0], [0.5, 2.5], ["0", "1"], ["ß", "ä"]]
)
def test_classes_keep_their_type(values, tmp_path):
    twin = squall.load(squall.save(LogisticRegression(epochs=1).fit(X, np.array(values)[y]), tmp_path / "m"))
    assert twin.classes_.dtype == np.array(values).dtype
    assert twin.classes_.tolist() == values


def test_settings_given_as_numpy_numbers_come_back(tmp_path):
    scaler = MinMaxScaler(feature_range=(np.float32(0), np.int64(2)))
    model = LogisticRegression(epochs=np.int64(2), learning_rate=np.float32(0.5), fit_intercept=np.True_)
    twin = squall.load(squall.save(make_pipeline(scaler, model).fit(X, y), tmp_path / "m"))
    assert twin[0].feature_range == (0, 2)
    assert (twin[1].epochs, twin[1].learning_rate, twin[1].fit_intercept) == (2, 0.5, True)


def test_other_numbers_come_back_as_those_that_were_used(tmp_path):
    settings = {"learning_rate": Fraction(1, 10), "l2": np.longdouble(0.5), "optimizer": np.str_("sgd")}
    model = LogisticRegression(**settings).fit(X, y)
    twin = squall.load(squall.save(model, tmp_path / "m"))
    assert (twin.learning_rate, twin.l2, twin.optimizer) == (0.1, 0.5, "sgd")
    np.testing.assert_array_equal(twin.fit(X, y).coef_, model.coef_)


def test_a_strategy_comes_back_as_plain_data(tmp_path):
    strategy = squall.ParameterServer("ssp", staleness=np.int64(2), filter="top-k", keep=np.float32(0.5))
    path = squall.save(LogisticRegression(epochs=1, strategy=strategy).fit(X, y), tmp_path / "m")
    twin = squall.load(path)
    assert twin.strategy == strategy
    assert clone(twin).strategy == strategy
    for wrong in ("sxp", "bsp"):  # unknown, and one that does not go with a staleness

        def change(description, wrong=wrong):
            params = description["steps"][0]["params"]
            assert params["strategy"]["consistency"] == "ssp"
            params["strategy"]["consistency"] = wrong

        (tmp_path / "wrong").write_bytes(changed(path.read_bytes(), change))
        with pytest.raises(CorruptError, match="consistency"):
            squall.load(tmp_path / "wrong")


@pytest.mark.parametrize("value", [object(), 1j, Decimal(1), np.array([0.1]), float("inf")])
def test_a_setting_that_is_no_plain_data_is_not_saved(value, tmp_path):
    model = LogisticRegression(epochs=1).fit(X, y).set_params(learning_rate=value)
    with pytest.raises(SettingError, match=r"save: LogisticRegression\.learning_rate=.* is not plain data"):
        squall.save(model, tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_a_loss_that_is_no_number_comes_back(tmp_path):
    model = LogisticRegression(epochs=1).fit(X, y)
    model.history_[0] = structs.replace(model.history_[0], loss=float("nan"))
    twin = squall.load(squall.save(model, tmp_path / "m"))
    assert np.isnan(twin.history_[0].loss)


def test_the_file_replaces_another_and_has_the_usual_rights(model, tmp_path):
    (tmp_path / "m").write_text("old")
    squall.save(model, tmp_path / "m")
    assert squall.load(tmp_path / "m").n_features_in_ == 3
    (tmp_path / "other").touch()
    assert stat.S_IMODE((tmp_path / "m").stat().st_mode) == stat.S_IMODE((tmp_path / "other").stat().st_mode)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m", "other"]


def test_a_tilde_is_the_home(model, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert squall.save(model, "~/m") == tmp_path / "m"
    assert squall.load("~/m").n_features_in_ == 3


UNFITTED = [LogisticRegression(), make_pipeline(LogisticRegression()), MinMaxScaler(), 3, None]


@pytest.mark.parametrize("what", UNFITTED)
def test_what_is_no_fitted_model_is_not_saved(what, tmp_path):
    with pytest.raises(SettingError, match=r"not a fitted model(?s:.)*fix: call fit first"):
        squall.save(what, tmp_path / "m")
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("target", [".", "no/such/folder/m"])
def test_a_place_that_cannot_be_written(model, tmp_path, target):
    with pytest.raises(SquallError, match=r"it cannot be written: .*directory") as caught:
        squall.save(model, tmp_path / target)
    assert caught.value.where == str(tmp_path / target)


def test_a_write_that_fails_leaves_the_old_file_and_no_other(model, tmp_path, monkeypatch):
    path = squall.save(model, tmp_path / "m")
    before = path.read_bytes()

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SquallError, match="cannot be written: No space left on device"):
        squall.save(model, path)
    assert [p.name for p in tmp_path.iterdir()] == ["m"]
    assert path.read_bytes() == before


@pytest.mark.parametrize(("target", "says"), [("nothing", "No such file"), (".", "directory")])
def test_a_file_that_cannot_be_read(tmp_path, target, says):
    with pytest.raises(SquallError, match=f"cannot be read: .*{says}"):
        squall.load(tmp_path / target)


def changed(saved, change):
    """The file with its description changed by ``change``, in place or by what it returns, sealed anew."""
    length = int.from_bytes(saved[:8], "little")
    header = json.loads(saved[8 : 8 + length])
    description = json.loads(header["__metadata__"]["squall"])
    description["checksum"] = "0" * 32
    description = change(description) or description
    header["__metadata__"]["squall"] = json.dumps(description, separators=(",", ":"))
    text = json.dumps(header).encode()
    blank = len(text).to_bytes(8, "little") + text + saved[8 + length :]
    return blank.replace(b"0" * 32, checksum(blank).encode(), 1)


class Bomb:
    def __reduce__(self):
        return pytest.fail, ("the pickle was loaded",)


DAMAGE = {
    "empty": lambda saved: b"",
    "garbage": lambda saved: b"\x93NUMPY garbage" * 10,
    "pickle": lambda saved: pickle.dumps(Bomb()),
    "header cut": lambda saved: saved[:40],
    "tensors cut": lambda saved: saved[:-1],
    "trailing bytes": lambda saved: saved + b"x",
    "a list as header": lambda saved: (2).to_bytes(8, "little") + b"[]",
    "no metadata": lambda saved: (2).to_bytes(8, "little") + b"{}",
    "another version": lambda saved: changed(saved, lambda d: d.update(format_version=1)),
    "no checksum": lambda saved: changed(saved, lambda d: d.pop("checksum") and None),
    "one label": lambda saved: changed(saved, lambda d: d["steps"][0].update(classes=[0])),
    "a label twice": lambda saved: changed(saved, lambda d: d["steps"][0].update(classes=[1, 1])),
    "three labels": lambda saved: changed(saved, lambda d: d["steps"][0].update(classes=[0, 1, 2])),
    "no labels": lambda saved: changed(saved, lambda d: d["steps"][0].update(classes=None)),
    "not an object": lambda saved: changed(saved, lambda d: [1]),
    "no steps": lambda saved: changed(saved, lambda d: d.update(steps=[])),
    "unknown estimator": lambda saved: changed(saved, lambda d: d["steps"][0].update(kind="Unpickler")),
    "unknown setting": lambda saved: changed(saved, lambda d: d["steps"][0]["params"].update(evil=1)),
    "other width": lambda saved: changed(saved, lambda d: d["steps"][0]["columns"][0].update(width=4)),
    "no bill": lambda saved: changed(saved, lambda d: d["steps"][0].update(bill=None)),
    "unknown transform": lambda saved: changed(saved, lambda d: d["steps"][0].update(transform={})),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_refused(saved, damage, tmp_path):
    path = tmp_path / "m"
    path.write_bytes(DAMAGE[damage](saved))
    with pytest.raises(
        CorruptError, match=r"not a model file(?s:.)*fix: give a file written by squall.save"
    ) as e:
        squall.load(path)
    assert e.value.where == str(path)


def test_the_description_can_be_rewritten_without_harm(saved, tmp_path):
    (tmp_path / "m").write_bytes(changed(saved, lambda d: None))
    assert squall.load(tmp_path / "m").n_features_in_ == 3


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        ("another version", "format version 1; this version reads 2"),
        ("no checksum", "its checksum is missing"),
        ("one label", r"the labels are not two or more: \[0\]"),
        ("three labels", r"the parameters have shape \(1, 3\)"),
    ],
)
def test_what_is_wrong_is_named(saved, damage, says, tmp_path):
    (tmp_path / "m").write_bytes(DAMAGE[damage](saved))
    with pytest.raises(CorruptError, match=says):
        squall.load(tmp_path / "m")


def test_another_safetensors_file_is_refused(tmp_path):
    save_file({"coef": np.zeros((1, 3))}, tmp_path / "m")
    with pytest.raises(CorruptError, match="safetensors file, but not one of Squall's"):
        squall.load(tmp_path / "m")


@settings(max_examples=300)
@given(data=st.data())
def test_bytes_that_changed_are_noticed(saved, tmp_path_factory, data):
    damaged = bytearray(saved)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(saved) - 1))] = data.draw(st.integers(0, 255))
    assume(damaged != saved)
    path = tmp_path_factory.getbasetemp() / "changed"
    path.write_bytes(damaged)
    with pytest.raises(CorruptError) as caught:
        squall.load(path)
    assert caught.value.where == str(path)


def test_a_flipped_bit_is_noticed_wherever_it_is(saved, tmp_path):
    path = tmp_path / "m"
    for at in (*range(0, len(saved), 7), *range(len(saved) - 32, len(saved))):  # the last are the weights
        damaged = bytearray(saved)
        damaged[at] ^= 1 << at % 8
        path.write_bytes(damaged)
        with pytest.raises(CorruptError, match="not a model file"):
            squall.load(path)
