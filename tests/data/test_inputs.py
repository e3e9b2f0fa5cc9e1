from __future__ import annotations

import bz2
import gzip
import http.server
import itertools
import lzma
import struct
import threading
from pathlib import Path

import numpy as np
import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from backports import zstd
from hypothesis import assume, example, given
from hypothesis import strategies as st
from obstore.store import from_url
from PIL import Image

import squall
from squall.data.compression import OPENERS, UNREADABLE
from squall.data.csv import read_csv
from squall.data.finding import find_inputs, local_file
from squall.data.inputs import unseen
from squall.data.libsvm import read_libsvm
from squall.data.progress import Progress
from squall.data.streams import BOM, Piece, Text, line_chunks
from squall.errors import DataError, MissingExtraError

from .blocks import quick


def lines_of(path: Path, start: int = 0, stop: int | None = None, size: int = 16) -> list[bytes]:
    pieces = [bytes(chunk) for chunk in line_chunks(Piece(local_file(path), start, stop), size=size)]
    assert all(piece.endswith(b"\n") for piece in pieces)
    return b"".join(pieces).splitlines(keepends=True)


# ------------------------------------------------------------------------------------- lines


@quick
@given(
    st.lists(st.binary(max_size=12).map(lambda b: b.replace(b"\n", b"x").replace(b"\r", b"y")), max_size=12),
    st.booleans(),
    st.booleans(),
    st.integers(3, 40),
    st.lists(st.integers(0, 200), max_size=5),
)
@example(lines=[b"a"] * 5 + [b"aaaa", b"aaaaaaa", b"a"], final=False, bom=True, size=3, cuts=[19, 25])
def test_each_line_is_in_exactly_one_piece(tmp_path_factory, lines, final, bom, size, cuts):
    path = tmp_path_factory.getbasetemp() / "lines"  # one place for all examples: folders would cost most
    text = b"\n".join(lines) + (b"\n" if final else b"")
    content = (BOM if bom else b"") + text
    assume(not content.startswith((*OPENERS, *UNREADABLE)))  # that is no text
    path.write_bytes(content)
    length = path.stat().st_size
    if not length:
        return
    edges = [0, *sorted({c for c in cuts if 0 < c < length}), length]
    found = []
    for start, stop in itertools.pairwise(edges):
        found += lines_of(path, start, stop, size)
    if text.startswith(BOM) and not bom:
        text = text.removeprefix(BOM)
    expected = text.splitlines(keepends=True) if b"\r" not in text else None
    whole = text if text.endswith(b"\n") or not text else text + b"\n"
    assert b"".join(found) == whole
    assert expected is None or len(found) == len(whole.splitlines())


@pytest.mark.parametrize(
    "pack",
    [bytes, gzip.compress, bz2.compress, lzma.compress, zstd.compress],
    ids=["-", "gz", "bz2", "xz", "zst"],
)
def test_compression_is_known_by_its_first_bytes(tmp_path, pack):
    path = tmp_path / "named.txt"
    text = b"".join(b"%d 1:%d\n" % (i % 2, i) for i in range(3000))
    path.write_bytes(pack(text))
    assert b"".join(lines_of(path, size=1000)) == text
    seen: list[int] = []
    with Text(local_file(path), 0, seen.append) as opened:
        assert opened.fill(memoryview(bytearray(len(text) + 1))) == len(text)
    assert sum(seen) == path.stat().st_size, "progress counts the file's own bytes"
    if pack is not bytes:
        for spoiled in (pack(text)[:-9], pack(text)[: len(pack(text)) // 2]):
            path.write_bytes(spoiled)
            with pytest.raises(DataError, match=r"named.txt: the file is damaged or cut short"):
                lines_of(path)
        # Two that were put one after another, as `cat` does, are one.
        path.write_bytes(pack(text) + pack(b"end"))
        assert b"".join(lines_of(path, size=1000)) == text + b"end\n"


def test_zstandard_says_what_to_install(tmp_path, monkeypatch):
    path = tmp_path / "f"
    path.write_bytes(zstd.compress(b"1 1:1\n"))
    monkeypatch.setitem(__import__("sys").modules, "backports", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'squall\[zstd\]'"):
        read_libsvm(path)


# ------------------------------------------------------------------------------------ remote


def _parquet(folder: Path) -> None:
    pq.write_table(pa.table({"a": [1, 2, 3], "y": ["p", "q", "p"]}), folder / "f.parquet")


def _png(folder: Path) -> None:
    for name in ("cat/1.png", "dog/2.png"):
        (folder / name).parent.mkdir()
        Image.fromarray(np.full((4, 3), len(name), dtype=np.uint8)).save(folder / name)


def _npz(folder: Path) -> None:
    np.savez(folder / "f.npz", images=np.arange(24, dtype=np.uint8).reshape(2, 3, 4), y=[0, 1])


CRITEO = "1\t" + "\t".join(["5"] * 13 + ["ab"] * 26) + "\n"
EACH_READER = {  # what to write, what to read of it, settings
    "csv": ("a,y\n1,p\n2,q\n", "f", squall.read_csv, {"label": "y"}),
    "libsvm": ("1 1:2\n0 3:4\n", "f", squall.read_libsvm, {}),
    "criteo": (CRITEO, "f", squall.read_criteo, {}),
    "ratings": ("a::x::5\nb::y::3\n", "f", squall.read_ratings, {}),
    "uci": ("2\n3\n2\n1 1 2\n2 3 1\n", "f", squall.read_bow, {"vocabulary": "abc"}),
    "ldac": ("2 0:1 2:4\n1 1:1\n", "f", squall.read_bow, {}),
    "lines": ("a good day\nbad day\n", "f", squall.read_text, {"documents": "line"}),
    "files": ("a good day\n", "", squall.read_text, {"label": "folder"}),
    "column": ("t,y\na good day,1\nbad,0\n", "f", squall.read_text, {"column": "t", "label": "y"}),
    "parquet": (_parquet, "f.parquet", squall.read_parquet, {"label": "y"}),
    "npz": (_npz, "f.npz", squall.read_images, {"labels": "y"}),
    "idx": (struct.pack(">4I", 0x803, 2, 1, 2) + bytes(4), "f", squall.read_images, {}),
    "png": (_png, "", squall.read_images, {}),
}


@pytest.mark.parametrize("name", EACH_READER)
def test_each_reader_takes_objects_and_folders_and_keeps_data_in_a_store(s3, tmp_path, name):
    content, file, read, settings = EACH_READER[name]
    (folder := tmp_path / "in" / name).mkdir(parents=True)
    if callable(content):
        content(folder)
    else:
        (folder / "f").write_bytes(content.encode() if isinstance(content, str) else content)
    if settings.get("vocabulary"):
        (tmp_path / "words").write_text("\n".join(settings["vocabulary"]))
        obstore.put(from_url(s3), "in/words", (tmp_path / "words").read_bytes())
        settings = {**settings, "vocabulary": f"{s3}/in/words"}
    bucket = from_url(s3)
    for path in filter(Path.is_file, folder.rglob("*")):
        obstore.put(bucket, f"in/{name}/{path.relative_to(folder).as_posix()}", path.read_bytes())
    local = read(folder / file, **settings)
    remote = read(f"{s3}/in/{name}/{file}", storage=f"{s3}/cache", **settings)
    assert remote.schema == local.schema and remote.info().location.startswith(s3)
    kept = squall.open_dataset(remote.write(f"{s3}/out/{name}").info().location)
    (X, y), (Z, z) = local.to_arrays(), kept.to_arrays()
    assert (getattr(X, "toarray", lambda: X)() == getattr(Z, "toarray", lambda: Z)()).all()
    assert (y is None and z is None) or (y == z).all()
    if name not in ("uci", "ldac", "npz", "idx"):  # which are one file
        assert len(read(f"{s3}/in/{name}", storage=f"{s3}/cache", **settings)) == len(local), "a folder"


def test_objects_are_read_like_files(s3, tmp_path):
    bucket = from_url(s3)
    text = b"".join(b"%d 1:%d 7:0.5\n" % (i % 2, i) for i in range(100_000))
    obstore.put(bucket, "in/a b.svm", text)
    obstore.put(bucket, "in/b.svm", gzip.compress(text))
    obstore.put(bucket, "in/deeper/c.svm", b"1 1:1\n")
    local = tmp_path / "a.svm"
    local.write_bytes(text)
    expected = read_libsvm([local, local]).to_arrays()
    for path in (f"{s3}/in/*.svm", [f"{s3}/in/a b.svm", f"{s3}/in/b.svm"]):
        X, y = read_libsvm(path).to_arrays()
        assert (expected[0] != X).nnz == 0 and (y == expected[1]).all()
    first = read_csv(f"{s3}/in/b.svm", header=False, delimiter=" ")
    assert first.columns[0].name == "0" and len(first) == 100_000
    obstore.put(bucket, "in/a b.svm", b"5 1:1\n")
    assert len(read_libsvm(f"{s3}/in/a b.svm")) == 1, "what was replaced is read again"


def test_without_credentials_it_says_so(s3, monkeypatch):
    def refuse(*_):
        raise ValueError("Error performing PUT http://169.254.169.254/latest/api/token\nand more")

    monkeypatch.setattr("squall.data.remote.obstore.head", refuse)
    with pytest.raises(DataError, match=r"read: there are no credentials\n  fix: set AWS_ACCESS_KEY_ID"):
        find_inputs(f"{s3}/c.svm")


def test_objects_that_are_not_there_or_change(s3):
    bucket = from_url(s3)
    with pytest.raises(DataError, match=r"s3://squall/none.svm: there is no such object"):
        read_libsvm(f"{s3}/none.svm")
    with pytest.raises(DataError, match="no object matches"):
        read_libsvm(f"{s3}/none*.svm")
    obstore.put(bucket, "c.svm", b"1 1:1\n")
    (source,) = find_inputs(f"{s3}/c.svm")
    obstore.put(bucket, "c.svm", b"1 1:2\n")
    for read in (lambda: source.open(0, unseen).read(), source.seekable(unseen).read):
        with pytest.raises(DataError, match=r"c.svm: the file changed while it was read"):
            read()


def test_files_of_a_web_server(tmp_path):
    (tmp_path / "f.csv").write_text("a,b\n1,2\n3,4\n")

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def __init__(self, *args):
            super().__init__(*args, directory=str(tmp_path))

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            data = read_csv(f"http://127.0.0.1:{server.server_port}/f.csv")
            assert data.to_arrays()[0].tolist() == [[1, 2], [3, 4]]
        finally:
            server.shutdown()
            thread.join()


def test_progress_is_shown_where_someone_looks(monkeypatch, capsys):
    monkeypatch.setattr("squall.data.progress.someone_looks", lambda: True)
    monkeypatch.setattr("squall.data.progress._SLOW_S", 0.0)
    monkeypatch.setattr("squall.data.progress.REFRESH_S", 0.0)
    with Progress("csv", 2 << 20) as progress:
        progress.add(1 << 20)
        progress.add(1 << 20)
    shown = capsys.readouterr().err
    assert "reading csv: 1.0 MB of 2.0 MB" in shown and shown.rstrip(" \n").rpartition("\r")[2].startswith(
        "reading csv: 2.0 MB of 2.0 MB"
    )
