"""Rows that cannot be read: an error that names the place, or left out and counted, for each reader."""

from __future__ import annotations

import numpy as np
import pytest

import squall
from squall.data import csv_chunks
from squall.errors import DataError

CRITEO = "1\t" + "\t".join(["5"] * 13 + ["ab"] * 26)
READERS = {
    # name: (reader, settings, lines before, good lines, lines that each cannot be read)
    "csv": (
        squall.read_csv, {"label": "y", "weight": "w"}, ["a,s,w,y"],
        ["1.5,inf,1,p", "2,word,2,q", ",nan,0,p"],
        ["1,2", "1,b,1,p,x", '1,"b"x,1,p', "inf,b,1,p", "-1e999,b,1,p", "Infinity,b,1,q", "3,\udcff,1,p",
         "3,b,1,\udcff", "3,b,-1,p", "3,b,,p", "3,b,nan,p", "3,b,1,", "3,b,1,NA"],
    ),
    "criteo": (
        squall.read_criteo, {}, [], [CRITEO, CRITEO.replace("1\t", "0\t", 1)],
        [CRITEO + "\t1", CRITEO[2:], CRITEO.replace("5", "x", 1), CRITEO.replace("5", "inf", 1),
         CRITEO[1:], CRITEO.replace("ab", "\udcff", 1)],
    ),
    "libsvm": (
        squall.read_libsvm, {}, [], ["1 1:2", "0 2:1"],
        ["1 x", "x 1:1", "1 1:inf", "1 1:nan", "nan 1:1", "1 1:1e999", "1 -1:1",
         "1 3:", "1 2147483648:1", "1 1:1 1:2",
         "1,2 1:1", "1:1", "1 1:\udcff", "1 qid:1 1:1"],
    ),
    "ratings": (
        squall.read_ratings, {"header": False}, [], ["u,i,5,1", "v,j,2,2"],
        ["u,k,5", "u,k,5,1,1", "u,k,x,1", "u,k,inf,1", "u,k,nan,1", "u,k,,1", ",k,5,1",
         "u,,5,1", "u,k,5,1.5", "\udcff,k,5,1",
         '"u,k,5,1'],
    ),
    "uci": (
        squall.read_bow, {"vocabulary": list("abc")}, ["2", "3", "{n}"], ["1 1 1", "2 3 2"],
        ["2 2", "2 2 x", "2 2 -1", "2 2 1.5", "2 4 1", "3 1 1", "2 2 inf", "2 2 \udcff"],
    ),
    "ldac": (
        squall.read_bow, {"vocabulary": list("abc")}, [], ["2 0:1 2:1", "1 1:3"],
        ["1 0:x", "2 0:1", "1 3:1", "1 -1:1", "x 0:1", "2 0:1 0:2",
         "1 0:inf", "1 0:\udcff", "1 0:9007199254740993"],
    ),
    "lines": (squall.read_text, {"documents": "line"}, [], ["good word", "word"], ["\udcff"]),
    "column": (
        squall.read_text, {"column": "t", "label": "y"}, ["t,y"], ["good word,1", "word,2"],
        ["good", "a,b,c", "\udcff,1", "good,", '"good"x,1'],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", READERS)
def test_a_row_that_cannot_be_read_is_an_error_or_left_out(name, tmp_path, monkeypatch):
    read, settings, head, good, bad = READERS[name]
    path = tmp_path / "f"

    def write(lines: list[str]) -> None:
        text = "\n".join([line.replace("{n}", str(len(lines))) for line in head] + lines) + "\n"
        path.write_bytes(text.encode(errors="surrogateescape"))

    def table(data: squall.Dataset) -> list:
        X, y = data.to_arrays()
        rows = getattr(X, "toarray", lambda: X)().tolist()
        return [str(row) for row in rows], None if y is None else y.tolist()

    write(good)
    expected = table(read(path, **settings))
    for line in bad:
        write([*good[:-1], line, good[-1]])
        number = len(head) + len(good)
        with pytest.raises(DataError, match=rf"/f:{number}(:\d+)?: ") as told:
            read(path, **settings)
        assert "fix: " in str(told.value), line
        with pytest.warns(UserWarning, match=rf"1 (row|record|document) was skipped(.|\n)*/f:{number}"):
            assert table(read(path, errors="skip", **settings)) == expected, line
    write([good[0], *bad, good[-1]] if name != "csv" else [*good[:-1], *bad, good[-1]])
    monkeypatch.setattr(csv_chunks, "CHUNK_BYTES", 60)  # wherever they fall
    with pytest.warns(UserWarning, match=rf"{len(bad)} (rows|records|documents?) (was|were) skipped"):
        assert table(read(path, errors="skip", storage=tmp_path / "other", **settings)) == expected


def test_words_that_mean_infinity_are_words_among_words(tmp_path):
    (tmp_path / "f").write_bytes("a,b\n1,inf\n2,Öl\n3,x\n".encode())
    data = squall.read_csv(tmp_path / "f", errors="skip")
    assert [row["b"] for row in data.head()] == ["inf", "Öl", "x"]


def test_numbers_with_gaps_are_numbers(tmp_path):
    (tmp_path / "f").write_text("a,b\n1,\n2,\n3,\n4,5\n5,1e400\n6,7\n")
    with pytest.warns(
        UserWarning, match=r"/f:6:2: column 'b' holds numbers, and '1e400' is not a finite one"
    ):
        data = squall.read_csv(tmp_path / "f", errors="skip")
    assert np.array_equal(data.to_arrays()[0][:, 1], [np.nan, np.nan, np.nan, 5, 7], equal_nan=True)
