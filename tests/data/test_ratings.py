from __future__ import annotations

import gzip
import warnings
from functools import partialmethod
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st

import squall
from squall.data import csv_chunks, dialects
from squall.data.ratings import read_ratings
from squall.data.ratings_duplicates import find_duplicates
from squall.data.ratings_reader import RatingsReader
from squall.errors import DataError, SettingError

from .blocks import quick
from .public import public


@pytest.fixture
def write(tmp_path):
    def write(content: str | bytes, name: str = "r.csv") -> Path:
        path = tmp_path / "in" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def rows(data):
    """(user, item, rating, time) of all rows, the ids found through the shared dictionaries."""
    users, items = data.dictionary("user"), data.dictionary("item")
    found = []
    for block in data.blocks():
        time = block.columns.get("time")
        found += zip(
            [users[c] for c in block.columns["user"].codes],
            [items[c] for c in block.columns["item"].codes],
            [None] * block.n_rows if block.labels is None else block.labels.tolist(),
            [None] * block.n_rows if time is None else time.values.tolist(),
            strict=True,
        )
    return found


EXPECTED = [("u1", "i9", 4.5, 100), ("u2", "i9", 3.0, 2**62), ("u1", "7", 1.0, -5)]


@pytest.mark.parametrize(
    "text",
    [
        "userId,movieId,rating,timestamp\nu1,i9,4.5,100\nu2,i9,3,4611686018427387904\nu1,7,1,-5\n",
        "timestamp,stars,item_id,user\n100,4.5,i9,u1\n4611686018427387904,3,i9,u2\n-5.0,1,7,u1",
        "user_id:token\titem_id:token\trating:float\ttimestamp:float\nu1\ti9\t4.5\t100.0\n"
        "u2\ti9\t3\t4611686018427387904\nu1\t7\t1e0\t-5\n",
        "u1::i9::4.5::100\nu2::i9::3::4611686018427387904\nu1::7::1::-5\n",
        "u1\ti9\t4.5\t100\r\nu2\ti9\t3\t4611686018427387904\r\n\r\nu1\t7\t1\t-5\r\n",
        "\ufeffu1,i9,4.5,100\nu2,i9,3,4611686018427387904\nu1,7,1,-5",
        '\n"user","item","rating","time"\n"u1","i9",4.5,100\n"u2","i9",3,4611686018427387904\nu1, 7 ,1,-5\n',
        "u1;i9;4.5;100\nu2;i9;3;4611686018427387904\nu1;7;1;-5\n",
    ],
)
def test_usual_files_are_recognised(write, text):
    for content in (text.encode(), gzip.compress(text.encode()), zstd.compress(text.encode())):
        data = read_ratings(write(content))
        assert rows(data) == EXPECTED
        assert [(c.name, c.kind) for c in data.columns] == [
            ("user", "categorical"), ("item", "categorical"), ("time", "int64")
        ]  # fmt: skip
        assert (data.label, data.classes) == ("rating", None)
        assert data.dictionary("user") == ["u1", "u2"] and data.dictionary("item") == ["i9", "7"]


def test_a_data_set_of_ratings_goes_where_others_go(write):
    data = read_ratings(write("u1,i9,4.5,100\nu2,i9,3,50\nu1,7,1,-5\n"))
    frame = data.to_pandas()
    assert frame["user"].tolist() == ["u1", "u2", "u1"] and frame["rating"].tolist() == [4.5, 3.0, 1.0]
    train, test = data.split(test=1, random_state=0)
    assert sorted(rows(train) + rows(test)) == sorted(rows(data))
    assert data.select(["item"]).dictionary("item") == ["i9", "7"]
    assert "label 'rating' (numbers)" in repr(data)
    X, y = data.to_arrays()
    assert X.shape == (3, 3) and y.dtype == np.float64
    for name, message in (("time", "no dictionary that all blocks share"), ("itm", "did you mean 'item'")):
        with pytest.raises(SettingError, match=message):
            data.dictionary(name)


def test_ratings_are_written_joined_and_described(write, tmp_path, monkeypatch):
    monkeypatch.setattr(RatingsReader, "blocks", partialmethod(RatingsReader.blocks, target_bytes=48))
    lines = [f"u{i % 7},i{9 - i % 10},{i / 4}\n" for i in range(60)]
    data = read_ratings([write("".join(lines[:25]), "a.csv"), write("".join(lines[25:]), "b.csv")])
    assert len(data.partitions()) > 1
    written = data.select(["item", "user"]).write(tmp_path / "own")
    assert rows(squall.open_dataset(tmp_path / "own")) == rows(written) == rows(data)
    assert written.dictionary("user") == [f"u{i}" for i in range(7)]
    assert not any(b"u3" in p.read_bytes() for p in (tmp_path / "own").glob("part-*"))
    both = data.concat(data)
    assert both.to_arrays()[1].tolist() == data.to_arrays()[1].tolist() * 2
    assert data.head(1) == [{"user": "u0", "item": "i9", "rating": 0.0}]
    assert "rating" in str(data.describe())


def test_columns_by_name_or_number(write):
    path = write("when,who,what,how,why\n1,a,x,5,?\n2,b,y,4,?\n")
    named = {"user": "who", "item": "what", "rating": "how"}
    assert rows(read_ratings(path, **named, time="when")) == [("a", "x", 5, 1), ("b", "y", 4, 2)]
    assert rows(read_ratings(path, **named)) == [("a", "x", 5, None), ("b", "y", 4, None)]
    assert rows(read_ratings(path, user="who", item="what", rating=None)) == [
        ("a", "x", None, None), ("b", "y", None, None)
    ]  # fmt: skip
    bare = write("1,a,x,5\n2,b,y,4\n", "bare.csv")
    assert rows(read_ratings(bare, user=1, item=2, rating=3, time=0, header=False))[1] == ("b", "y", 4, 2)
    assert rows(read_ratings(write("a,x,5,2020\n", "c.csv"), time=None)) == [("a", "x", 5, None)]
    assert rows(read_ratings(write("a b 5\n", "d.csv"))) == [("a", "b", 5, None)]


def test_ids_of_any_kind_are_kept_as_they_are_written(write):
    data = read_ratings(write("01,ü x,1\n1,a:b,2\n1.0,99999999999999999999,3\n"))
    assert data.dictionary("user") == ["01", "1", "1.0"]
    assert data.dictionary("item") == ["ü x", "a:b", "99999999999999999999"]


def test_many_files_share_their_dictionaries(write, tmp_path):
    files = [write("u1,a,1\nu2,b,2\n", "1.csv"), write("u2,a,3\nu3,c,4\n", "2.csv")]
    for path in (files, f"{tmp_path}/in/*.csv", tmp_path / "in"):
        data = read_ratings(path)
        assert [r[:3] for r in rows(data)] == [("u1", "a", 1), ("u2", "b", 2), ("u2", "a", 3), ("u3", "c", 4)]
    with pytest.raises(DataError, match="one of the files has a time and another has none"):
        read_ratings([*files, write("u1,a,1,5\n", "3.csv")])


# ---------------------------------------------------------------------------------- duplicates

TWICE = "u,i,1\nu,j,2\nv,i,3\nu,i,4\nu,i,5\n"


def test_duplicates(write):
    path = write(TWICE)
    with pytest.raises(
        DataError, match=r"r.csv:4: user 'u' has rated item 'i' before, at .*r.csv:1\n  fix: .*duplicates="
    ):
        read_ratings(path)
    assert [r[2] for r in rows(read_ratings(path, duplicates="keep"))] == [1, 2, 3, 4, 5]
    for policy, kept in (("first", [1, 2, 3]), ("last", [2, 3, 5])):
        for _ in range(2):
            with pytest.warns(
                UserWarning, match=f"2 ratings of an item .* dropped: the {policy} one was kept"
            ):
                data = read_ratings(path, duplicates=policy)
            assert [r[2] for r in rows(data)] == kept and len(data) == 3


@quick
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30), st.integers(1, 40))
def test_duplicates_are_found_whatever_is_held_at_once(tmp_path_factory, pairs, at_once):
    path = tmp_path_factory.mktemp("r") / "r.csv"
    path.write_text("".join(f"{u},{i},1\n" for u, i in pairs))
    data = read_ratings(path, duplicates="keep", storage=path.parent / "s")
    source = data._source
    found = set(find_duplicates(source.store, source.manifest.partitions, at_once))
    last: dict[tuple[int, int], int] = {}
    expected = set()
    for row, pair in enumerate(pairs):
        if pair in last:
            expected.add((last[pair], row))
        last[pair] = row
    assert found == expected


# ----------------------------------------------------------------------------- malformed records

BAD = "user,item,rating,time\na,x,5,1\nb,y,five,1\nc,z,4\n,w,3,1\nd,,3,1\ne,v,3,1.5\nf,u,inf,1\ng,t,,1\n"
BAD += "h,s,2,9\n"


def test_malformed_records_are_placed(write):
    lines = BAD.splitlines()
    for line, place, told in [
        (2, "2:3", "'five' where a finite number is expected"),
        (3, "2:4", "3 fields where the header has 4, in the record that starts 'c,z,4'"),
        (4, "2:1", "'' where an id of a user"),
        (5, "2:2", "'' where an id of an item"),
        (6, "2:4", "'1.5' where a time as a whole number"),
        (7, "2:3", "'inf' where a finite number"),
        (8, "2:3", "'' where a finite number"),
    ]:
        path = write("\n".join([lines[0], lines[line]]))
        with pytest.raises(DataError, match=rf"r.csv:{place}: {told}.*\n  fix: .*errors=\"skip\""):
            read_ratings(path)


def test_skipped_records_are_counted_and_shown(write, monkeypatch):
    path = write(BAD)
    for chunk in (1 << 20, 7):
        monkeypatch.setattr(csv_chunks, "CHUNK_BYTES", chunk)
        monkeypatch.setattr(dialects, "_CHUNK_BYTES", chunk)
        monkeypatch.setattr("squall.data.ratings._READER_VERSION", chunk)
        for _ in range(2):
            with pytest.warns(UserWarning) as told:
                data = read_ratings(path, errors="skip", header=True)
            (message,) = (str(w.message) for w in told)
            assert "7 records were skipped" in message and len(message.splitlines()) == 8
            assert f"{path}:3:3: 'five' where" in message and f"{path}:9:3: '' where" in message
        assert rows(data) == [("a", "x", 5, 1), ("h", "s", 2, 9)]
        assert data.dictionary("user") == ["a", "h"], "the ids of skipped records are not kept"


def test_only_ten_skipped_records_are_shown(write):
    path = write("a,x,5\n" + "b,y\n" * 500 + "c,z,1\n")
    with pytest.warns(UserWarning, match=r"500 records were skipped.*; the first 10 are") as told:
        data = read_ratings(path, errors="skip")
    assert len(str(told[0].message).splitlines()) == 11 and len(data) == 2


def test_text_that_is_not_utf8(write):
    path = write(b"a,x,1\n\xff,y,2\nc,\xfe,3\nd,z,4\n")
    with pytest.raises(DataError, match=r"r.csv:2:1: .* where an id of a user, as UTF-8 text"):
        read_ratings(path)
    with pytest.warns(UserWarning, match="2 records were skipped"):
        data = read_ratings(path, errors="skip")
    assert data.dictionary("user") == ["a", "d"]


def test_a_quote_that_is_never_closed_costs_one_line(write):
    with pytest.warns(UserWarning, match="1 record was skipped"):
        data = read_ratings(write('a,x,1\n"b,y,2\nc,z,3\n'), errors="skip")
    assert [r[0] for r in rows(data)] == ["a", "c"]


def test_lines_are_counted_over_chunks(write, monkeypatch):
    monkeypatch.setattr(csv_chunks, "CHUNK_BYTES", 50)
    monkeypatch.setattr(dialects, "_CHUNK_BYTES", 50)
    lines = [f"u{i}::i{i}::1" for i in range(1000)]
    lines[700] = "u::i"
    for text in ("\n".join(lines), "\n" + "\n".join(lines)):
        line = 701 + text.startswith("\n")
        with pytest.raises(DataError, match=rf"r.csv:{line}:3: 2 fields"):
            read_ratings(write(text))


@pytest.mark.parametrize(
    ("text", "settings", "message"),
    [
        ("", {}, "the file is empty"),
        ("\n\n", {}, "the file holds no records"),
        ("a,b\n", {}, "there are 2 columns, and no rating among them"),
        ("abc\n", {}, "the first line has one field: 'abc'"),
        ("user,item,rating\n", {}, "there are no ratings"),
        ("who,what,how\na,b,1\n", {}, "no column has a usual name for the user\n  fix: .*'who'"),
        ("user,userId,item,rating\na,b,c,1\n", {}, "several columns may be the user"),
        ("a,b,1\n", {"user": "x"}, "is a name, and the file has no header"),
        ("user,item,rating\na,b,1\n", {"item": "itm"}, "there is no column 'itm'\n  fix: did you mean"),
        ("a,b,1\n", {"user": 7}, "there are 3 columns and no number 7"),
        ("a,b,1\n", {"user": 1}, "one column is taken for two things"),
        (gzip.compress(b"a,b,1\n" * 9000, mtime=0)[:-9], {}, "the file is damaged or cut short"),
    ],
)  # fmt: skip
def test_errors_say_what_where_and_how_to_fix(write, text, settings, message, own_storage):
    with pytest.raises(DataError, match=message):
        read_ratings(write(text), **settings)
    assert not list(own_storage.rglob("manifest*"))


def test_all_wrong_settings_at_once(tmp_path):
    with pytest.raises(SettingError) as caught:
        read_ratings("f", user=None, time=1.5, separator="x", header=2, duplicates="mean", errors="ignore")
    told = str(caught.value)
    assert all(f"{n}=" in told for n in ("user", "time", "separator", "header", "duplicates", "errors"))
    with pytest.raises(DataError, match="there is no such file"):
        read_ratings(tmp_path / "none.csv")


def test_a_damaged_dictionary_is_made_again(write, own_storage):
    path = write("u1,a,1\nu2,b,2\n")
    read_ratings(path)
    (dictionary, _) = sorted(own_storage.rglob("dictionary*"))
    dictionary.write_bytes(b"x")
    data = read_ratings(path)
    with pytest.warns(UserWarning, match="damaged.*is read from"):
        assert data.dictionary("user") == ["u1", "u2"]
    dictionary.unlink()
    assert read_ratings(path).dictionary("user") == ["u1", "u2"]


# --------------------------------------------------------------------------------- properties

letters = st.characters(codec="utf-8", exclude_characters='\n\r,"\t', exclude_categories=["Zs", "Cc"])
ids = st.text(letters, min_size=1, max_size=3)
numbers = st.floats(-1e6, 1e6, allow_nan=False)


@quick
@given(
    st.lists(st.tuples(ids, ids, numbers, st.integers(-(2**63), 2**63 - 1)), min_size=1, max_size=20),
    st.integers(1, 60),
    st.sampled_from([",", "\t", "::"]),
)
def test_what_is_written_is_read(tmp_path_factory, written, chunk, separator):
    if separator == "::":
        written = [(u.replace(":", "."), i.replace(":", "."), r, t) for u, i, r, t in written]
    path = tmp_path_factory.mktemp("r") / "r.csv"
    text = "".join(separator.join([u, i, repr(r), str(t)]) + "\n" for u, i, r, t in written)
    path.write_bytes(text.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_chunks, "CHUNK_BYTES", chunk)
        patch.setattr(dialects, "_CHUNK_BYTES", chunk)
        data = read_ratings(
            path, separator=separator, header=False, duplicates="keep", storage=path.parent / "s"
        )
    assert rows(data) == written
    for name, column in (("user", 0), ("item", 1)):
        assert data.dictionary(name) == list(dict.fromkeys(row[column] for row in written))


# ---------------------------------------------------------------------------------- real data


def test_movielens():
    path = public("ml-100k.inter")
    data = read_ratings(path)
    expected = pd.read_csv(
        path, sep="\t", names=["user", "item", "rating", "time"], header=0, dtype={0: str, 1: str}
    )
    assert len(data) == 100_000
    assert len(data.dictionary("user")) == 943 and len(data.dictionary("item")) == 1682
    found = data.to_pandas()
    assert found["user"].astype(str).tolist() == expected["user"].tolist()
    assert found["item"].astype(str).tolist() == expected["item"].tolist()
    assert np.array_equal(found["rating"], expected["rating"])
    assert np.array_equal(found["time"], expected["time"].astype(np.int64))


def test_nothing_is_warned_of_where_nothing_is_odd(write):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_ratings(write("a,b,1\nc,d,2\n"))
