from __future__ import annotations

import gzip
import struct
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from sklearn.datasets import load_digits

from squall.data import image_arrays, images
from squall.data.images import read_images
from squall.errors import DataError, MissingExtraError, SettingError

from .blocks import quick
from .public import public

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (5, 4, 3), dtype=np.uint8)
LABELS = np.array([3, 1, 3, 0, 1], dtype=np.uint8)
CODES = {"u1": 8, "i1": 9, "i2": 0xB, "i4": 0xC, "f4": 0xD, "f8": 0xE}


def idx(array) -> bytes:
    code = CODES[array.dtype.str[1:]]
    return (
        struct.pack(f">HBB{array.ndim}I", 0, code, array.ndim, *array.shape)
        + array.astype(array.dtype.newbyteorder(">")).tobytes()
    )


@pytest.fixture
def write(tmp_path):
    def write(content: bytes, name: str):
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    return write


@pytest.fixture
def save(tmp_path):
    def save(array, name: str, **settings):
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(array).save(path, **settings)
        return path

    return save


def stored(data):
    return np.concatenate([block.columns["pixels"].values for block in data.blocks()])


# ----------------------------------------------------------------------------------------- IDX


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_idx(write, compress):
    path, labels = write(compress(idx(PIXELS)), "images"), write(compress(idx(LABELS)), "labels")
    data = read_images(path, labels=labels)
    assert [(c.name, c.kind, c.width) for c in data.columns] == [("pixels", "dense", 12)]
    assert stored(data).dtype == np.uint8 and np.array_equal(stored(data), PIXELS.reshape(5, 12))
    X, y = data.to_arrays()
    assert X.dtype == np.float64 and y.tolist() == LABELS.tolist()
    assert (data.label, data.classes.tolist()) == ("label", [0, 1, 3])
    assert read_images(path).classes is None


@pytest.mark.parametrize(
    ("kind", "kept"), [("u1", "u1"), ("i1", "f4"), ("i2", "f4"), ("i4", "f8"), ("f4", "f4"), ("f8", "f8")]
)
def test_numbers_of_any_type_are_kept_exactly(write, kind, kept):
    values = (RNG.random((3, 2, 2)) * 100).astype(kind)
    found = stored(read_images(write(idx(values), "images")))
    assert found.dtype == np.dtype(kept) and np.array_equal(found, values.reshape(3, 4))


def test_many_partitions(write, monkeypatch):
    monkeypatch.setattr(images, "_PART_BYTES", 30)
    monkeypatch.setattr(image_arrays, "_CHUNK_BYTES", 7)
    path, labels = write(idx(PIXELS), "images"), write(idx(LABELS), "labels")
    data = read_images(path, labels=labels)
    assert [b.n_rows for b in data.blocks()] == [2, 2, 1]
    assert np.array_equal(stored(data), PIXELS.reshape(5, 12))
    assert data.to_arrays()[1].tolist() == LABELS.tolist()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"P5 4 3", "this is neither an IDX nor an npz file: it begins with b'P5 4 3'"),
        (b"\0\0\7\1", "this is neither an IDX nor an npz file"),
        (idx(PIXELS)[:9], "the file ends within its header"),
        (idx(PIXELS)[:-1], "the file was cut short: 59 of 60 bytes"),
        (idx(PIXELS) + b"x", "the file is longer than the 60 bytes its header says"),
        (gzip.compress(idx(PIXELS), mtime=0)[:-9], "the file is damaged or cut short"),
        (idx(LABELS), "this IDX file holds labels, not images\n  fix: swap"),
        (idx(PIXELS[:0]), "there are no images"),
    ],
)
def test_idx_files_that_are_none(write, content, message, own_storage):
    with pytest.raises(DataError, match=message):
        read_images(write(content, "images"))
    assert not list(own_storage.rglob("manifest*"))


def test_labels_that_do_not_fit(write, tmp_path):
    path = write(idx(PIXELS), "images")
    with pytest.raises(DataError, match="5 rows and y has 4 labels"):
        read_images(path, labels=write(idx(LABELS[:4]), "labels"))
    with pytest.raises(DataError, match="labels of 3 dimensions"):
        read_images(path, labels=path)
    with pytest.raises(DataError, match="was cut short"):
        read_images(path, labels=write(idx(LABELS)[:-1], "labels"))
    with pytest.raises(DataError, match="there is no such file"):
        read_images(path, labels=tmp_path / "none")


# ----------------------------------------------------------------------------------------- npz


@pytest.mark.parametrize("save_npz", [np.savez, np.savez_compressed])
def test_npz(tmp_path, save_npz, monkeypatch):
    monkeypatch.setattr(images, "_PART_BYTES", 30)
    path = tmp_path / "set.npz"
    save_npz(path, x=PIXELS, y=LABELS, other=np.zeros((2, 2)))
    data = read_images(path, images="x", labels="y")
    assert stored(data).dtype == np.uint8 and np.array_equal(stored(data), PIXELS.reshape(5, 12))
    assert data.to_arrays()[1].tolist() == LABELS.tolist()
    with pytest.raises(DataError, match=r"2 arrays may be the images\n  fix: name one: .*'x', 'other'"):
        read_images(path)
    with pytest.raises(DataError, match="there is no array 'z'\n  fix: the arrays are 'x', 'y', 'other'"):
        read_images(path, images="z")
    with pytest.raises(DataError, match="array 'y' has 1 dimension"):
        read_images(path, images="y")
    save_npz(path, x=PIXELS.astype(np.float32) / 255, y=np.array(list("abcde")))
    data = read_images(path, labels="y")
    assert stored(data).dtype == np.float32 and data.classes.tolist() == list("abcde")


def test_npz_files_that_are_none(tmp_path, own_storage):
    path = tmp_path / "set.npz"
    np.savez_compressed(path, x=RNG.integers(0, 256, (50, 20, 20), dtype=np.uint8))
    whole = path.read_bytes()
    broken = bytearray(whole)
    broken[2000:2100] = bytes(100)
    for content in (whole[:-10], whole[:100], bytes(broken)):
        path.write_bytes(content)
        with pytest.raises(DataError, match="the npz file is damaged or cut short"):
            read_images(path)
    for array, message in [
        (np.array([["a", None]], dtype=object), "holds Python objects, which are not read"),
        (np.asfortranarray(np.zeros((3, 2))), "is stored column by column"),
        (np.zeros((3, 2), dtype=np.int64), "pixels of type int64 are not read"),
        (np.zeros((3, 2), dtype=complex), "pixels of type complex128 are not read"),
        (np.array([["a", "b"]]), "pixels of type <U1 are not read"),
    ]:
        np.savez(path, x=array)
        with pytest.raises(DataError, match=message):
            read_images(path)
    assert not list(own_storage.rglob("manifest*"))


# -------------------------------------------------------------------------------------- folders


def test_a_folder_for_each_class(save, tmp_path):
    for name, i in (("cat/1.png", 0), ("cat/2.PNG", 1), ("dog/deep/1.png", 2), (".hidden/1.png", 3)):
        save(PIXELS[i], name)
    data = read_images(tmp_path / "in")
    assert np.array_equal(stored(data), PIXELS[:3].reshape(3, 12))
    assert data.to_arrays()[1].tolist() == ["cat", "cat", "dog"] and data.missing == {}
    (tmp_path / "in" / "notes.txt").write_text("x")
    with pytest.warns(UserWarning, match="1 files are neither PNG nor JPEG, and were left out: .*notes.txt"):
        assert read_images(tmp_path / "in").key() == data.key()


def test_colours_and_modes(save, tmp_path):
    colours = RNG.integers(0, 256, (2, 4, 3, 3), dtype=np.uint8)
    save(colours[0], "a/1.png")
    save(colours[1], "b/1.png")
    assert np.array_equal(stored(read_images(tmp_path / "in")), colours.reshape(2, 36))
    grey = stored(read_images(tmp_path / "in", mode="L"))
    assert np.array_equal(grey[0], np.array(Image.fromarray(colours[0]).convert("L")).ravel())
    save(PIXELS[0], "c/1.png")
    with pytest.raises(DataError, match=r"c/1.png: the image is 4×3 .*, and .*a/1.png is 4×3×3"):
        read_images(tmp_path / "in")
    assert stored(read_images(tmp_path / "in", mode="RGB")).shape == (3, 36)
    save(RNG.integers(0, 256, (8, 8), dtype=np.uint8), "jpeg/1.jpg")
    assert stored(read_images(tmp_path / "in" / "jpeg")).shape == (1, 64)


def test_images_that_do_not_fit(save, write, tmp_path, own_storage):
    save(PIXELS[0], "a/1.png")
    odd = save(PIXELS[0].T.copy(), "b/2.png")
    with pytest.raises(DataError, match=r"b/2.png: the image is 3×4 .*, and .*a/1.png is 4×3\n  fix: "):
        read_images(tmp_path / "in")
    whole = odd.read_bytes()
    for content in (b"", b"no image", whole[:40], whole[:60], whole[:-8]):
        odd.write_bytes(content)
        with pytest.raises(DataError, match=r"b/2\.png: the image cannot be read"):
            read_images(tmp_path / "in")
    jpeg = save(RNG.integers(0, 256, (64, 64), dtype=np.uint8), "b/3.jpg")
    jpeg.write_bytes(jpeg.read_bytes()[:-500])
    odd.write_bytes((tmp_path / "in" / "a" / "1.png").read_bytes())
    with pytest.raises(DataError, match=r"b/3\.jpg: the image cannot be read"):
        read_images(tmp_path / "in")
    jpeg.unlink()
    Image.fromarray(PIXELS[0]).convert("P").save(odd)
    with pytest.raises(DataError, match=r"b/2.png: the image is of Pillow's mode 'P'\n  fix: set mode="):
        read_images(tmp_path / "in")
    Image.fromarray(PIXELS[0].astype(np.uint16) * 200).save(odd)
    with pytest.raises(DataError, match=r"b/2\.png: its pixels have more than 8 bits"):
        read_images(tmp_path / "in", mode="L")
    odd.unlink()
    save(PIXELS[0], "loose.png")
    with pytest.raises(DataError, match=r"loose\.png: this image is in no class's folder, and others are"):
        read_images(tmp_path / "in")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="the folder holds no file"):
        read_images(tmp_path / "empty")
    (tmp_path / "empty" / "readme").write_text("")
    with pytest.raises(DataError, match="the folder holds no PNG or JPEG files"):
        read_images(tmp_path / "empty")
    assert not list(own_storage.rglob("manifest*"))


def test_a_folder_without_classes(save, tmp_path):
    save(PIXELS[0], "1.png")
    assert read_images(tmp_path / "in").classes is None


def test_without_pillow_it_says_what_to_install(save, tmp_path, monkeypatch):
    save(PIXELS[0], "a/1.png")
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MissingExtraError, match=r"needs Pillow\n  fix: .*squall\[images\]"):
        read_images(tmp_path / "in")


def test_wrong_settings(write, tmp_path):
    with pytest.raises(SettingError) as caught:
        read_images(["a"], labels=[1], images=1, mode="CMYK")
    assert all(f"{name}=" in str(caught.value) for name in ("path", "labels", "images", "mode"))
    np.savez(tmp_path / "a.npz", x=PIXELS)
    for path, settings, message in [
        (tmp_path, {"labels": "y", "images": "x"}, "is a folder, for which there is no labels=, images="),
        (tmp_path / "a.npz", {"mode": "L"}, "is an npz file, for which there is no mode="),
        (write(idx(PIXELS), "i"), {"images": "x"}, "is an IDX file, for which there is no images="),
    ]:
        with pytest.raises(SettingError, match=message):
            read_images(path, **settings)
    with pytest.raises(DataError, match="there is no such file"):
        read_images(tmp_path / "none")


# ------------------------------------------------------------------------ properties, real data


@quick
@given(
    st.integers(1, 6),
    st.integers(1, 4),
    st.integers(1, 4),
    st.sampled_from(list(CODES)),
    st.integers(1, 50),
    st.integers(0, 99),
)
def test_what_is_written_is_read(tmp_path_factory, n, height, width, kind, part, seed):
    folder = tmp_path_factory.mktemp("i")
    values = np.random.default_rng(seed).integers(0, 100, (n, height, width)).astype(kind)
    labels = np.arange(n, dtype=np.uint8) % 3
    (folder / "i").write_bytes(idx(values))
    (folder / "l").write_bytes(idx(labels))
    np.savez(folder / "i.npz", images=values, labels=labels)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(images, "_PART_BYTES", part)
        patch.setattr(image_arrays, "_CHUNK_BYTES", part)
        sets = [
            read_images(folder / "i", labels=folder / "l", storage=folder / "s"),
            read_images(folder / "i.npz", labels="labels", storage=folder / "s"),
        ]
    for data in sets:
        assert np.array_equal(stored(data), values.reshape(n, -1))
        assert data.to_arrays()[1].tolist() == labels.tolist()


def test_digits(tmp_path):
    digits = load_digits()
    np.savez_compressed(tmp_path / "digits.npz", images=digits.images, target=digits.target)
    data = read_images(tmp_path / "digits.npz", labels="target")
    X, y = data.to_arrays()
    assert np.array_equal(X, digits.data) and np.array_equal(y, digits.target)


def test_mnist():
    path = public("mnist-10k.npz")
    data = read_images(path, labels="labels")
    with np.load(path) as packed:
        assert np.array_equal(stored(data), packed["images"].reshape(-1, 784))
        assert np.array_equal(data.to_arrays()[1], packed["labels"])
    assert len(data) == 10_000 and data.classes.tolist() == list(range(10))
