from __future__ import annotations

import bz2
import gzip
import itertools
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from squall._kernels import LibsvmParser
from squall.data import libsvm_format as squall_libsvm
from squall.data import pieces
from squall.data.finding import local_file
from squall.data.libsvm import read_libsvm
from squall.data.libsvm_format import LibsvmFormat, LibsvmSchema
from squall.data.streams import Piece
from squall.errors import DataError, SettingError

from .blocks import quick


@pytest.fixture
def write(tmp_path):
    def write(content: str | bytes, name: str = "f.svm") -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def oracle(text: str) -> list[tuple[float | None, dict[int, float]]]:
    """(label, value by index as written) of each row, as plainly as can be."""
    rows = []
    for line in text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n"):
        tokens = line.partition("#")[0].split()
        if not tokens:
            continue
        label = float(tokens.pop(0)) if ":" not in tokens[0] else None
        rows.append((label, {int(i): float(v) for i, v in (t.split(":") for t in tokens if t[0] != "q")}))
    return rows


def rows_of(data, base: int) -> list[tuple[float | None, dict[int, float]]]:
    """The same of a data set."""
    rows = []
    for block in data.blocks():
        column = block.columns["x"]
        values = np.ones(len(column.indices)) if column.values is None else column.values
        for i in range(block.n_rows):
            cells = slice(column.indptr[i], column.indptr[i + 1])
            label = None if block.labels is None else float(data.classes[block.labels[i]])
            found = dict(zip((column.indices[cells] + base).tolist(), values[cells].tolist(), strict=True))
            rows.append((label, found))
    return rows


def manifest(data):
    return data._source.manifest


def width(data) -> int:
    return data.columns[0].width


# --------------------------------------------------------------------------------- what is read


TEXT = "+1 1:0.5 3:-2e-3 7:1\n-1 2:1\n\n# only a comment\n+1\n-1 1:.25 4:3. 5:1e2 # said of this row\n"


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        TEXT.replace("\n", "\r\n"),
        TEXT.removesuffix("\n"),
        TEXT.removesuffix("\n") + "\r\n",
        "\ufeff" + TEXT,
        TEXT.replace(" ", "\t").replace("\t", " \t ") + "\n\n",
        TEXT.replace("+1", "  1 ").replace("\n", "  \n"),
    ],
    ids=["plain", "CRLF", "no final line end", "CRLF at the end", "BOM", "tabs", "blanks"],
)
def test_the_same_rows_however_lines_end(write, text):
    data = read_libsvm(write(text))
    assert rows_of(data, 1) == oracle(TEXT)
    assert (len(data), width(data), data.label, data.classes.tolist()) == (4, 7, "y", [-1, 1])
    assert manifest(data).facts["index_base"] == 1


@pytest.mark.parametrize("zero_based", [True, False])
def test_what_scikit_learn_writes_and_reads(tmp_path, zero_based):
    draw = np.random.default_rng(0)
    X = np.where(draw.random((200, 30)) < 0.3, draw.normal(size=(200, 30)), 0.0)
    X[0, 0], X[5, 29] = 1.5, 2.0
    y = draw.integers(0, 3, 200)
    path = tmp_path / "s.svm"
    dump_svmlight_file(X, y, str(path), zero_based=zero_based, comment="made by another")
    ours, labels = read_libsvm(path).to_arrays()
    theirs, their_labels = load_svmlight_file(str(path), zero_based=zero_based)
    np.testing.assert_array_equal(ours.toarray(), theirs.toarray())
    np.testing.assert_array_equal(labels, their_labels)


def test_the_index_base_is_decided_for_the_whole_set(tmp_path, write):
    first, second = write("1 1:2 5:1\n", "a.svm"), write("0 0:3 4:1\n", "b.svm")
    both = read_libsvm([first, second])
    assert rows_of(both, 0) == [(1, {1: 2, 5: 1}), (0, {0: 3, 4: 1})] and width(both) == 6
    assert manifest(both).facts == {"format": "libsvm", "index_base": 0, "index_base_given": False}
    assert "libsvm, index base 0" in str(both.info())
    alone = read_libsvm(first)
    assert rows_of(alone, 1) == [(1, {1: 2, 5: 1})] and width(alone) == 5
    assert width(read_libsvm(first, index_base=0)) == 6
    assert rows_of(read_libsvm(tmp_path / "*.svm"), 0) == rows_of(both, 0), "a pattern, in order of names"
    with pytest.raises(DataError, match=r"b.svm:1:3: expected an index of 1 or more.*found '0:3'"):
        read_libsvm([first, second], index_base=1)


def test_an_index_0_or_a_label_that_comes_late_is_as_good_as_early(write, monkeypatch):
    monkeypatch.setattr(squall_libsvm, "BLOCK_BYTES", 2000)
    monkeypatch.setattr(squall_libsvm, "_CHUNK_BYTES", 1000)
    monkeypatch.setattr(squall_libsvm, "_LOOKS", 1)
    rows = [f"{i % 2} {i % 9 + 1}:1 20:{i}.5" for i in range(5000)]
    rows[4000] = "0 0:7"
    rows[4500] = "-3 2:7"
    data = read_libsvm(write("\n".join(rows)))
    assert data.classes.tolist() == [-3, 0, 1]
    assert rows_of(data, 0) == oracle("\n".join(rows))
    assert len(manifest(data).partitions) > 10
    assert len(list(data._source.store.keys("datasets"))) == len(manifest(data).partitions) + 1


def test_one_width_for_training_and_test_rows(write):
    narrow, wide = write("1 1:1 3:1\n0 2:1\n"), write("1 1:1 3:1 7:5\n0 9:1\n", "wide.svm")
    assert width(read_libsvm(narrow, n_features=10)) == 10
    assert read_libsvm(narrow, n_features=10).to_arrays()[0].shape == (2, 10)
    with pytest.raises(DataError, match=r"wide.svm:1:11: expected an index up to 5, .*found '7:5'"):
        read_libsvm(wide, n_features=5)
    with pytest.warns(UserWarning, match="2 entries beyond n_features=5 were dropped"):
        data = read_libsvm(wide, n_features=5, wider="drop")
    assert rows_of(data, 1) == [(1, {1: 1, 3: 1}), (0, {})]


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (["0", "1", "0"], [0, 1]),
        (["-1", "+1", "1"], [-1, 1]),
        (["2", "1", "1.0"], [1, 2]),
        (["1.5", "-2", "-2.0"], [-2.0, 1.5]),
        (["3", "3", "3"], [3]),
        (["-0", "0", "1e0"], [0, 1]),
    ],
)
def test_label_maps_are_sorted(write, labels, classes):
    data = read_libsvm(write("".join(f"{y} 1:1\n" for y in labels)))
    assert data.classes.tolist() == classes
    assert data.to_arrays()[1].tolist() == [float(y) for y in labels]


def test_rows_without_labels_are_read(write):
    data = read_libsvm(write("1:2 3:4\n2:1\n"))
    assert data.classes is None and data.label is None
    assert rows_of(data, 1) == [(None, {1: 2, 3: 4}), (None, {2: 1})]


def test_query_ids_keep_every_digit(write):
    big = 2**53 + 1
    data = read_libsvm(write(f"1 qid:{big} 1:1\n0 qid:{-big} 2:1\n"))
    assert np.concatenate([b.qid for b in data.blocks()]).tolist() == [big, -big]
    train, test = data.split(1, random_state=0)
    assert sorted([*next(train.blocks()).qid, *next(test.blocks()).qid]) == [-big, big]


def test_values_that_are_all_1_take_no_room(write):
    assert next(read_libsvm(write("1 1:1 2:1.0\n")).blocks()).columns["x"].values is None


def test_indices_in_any_order(write):
    assert rows_of(read_libsvm(write("1 5:2 1:3 4:1\n")), 1) == [(1, {1: 3, 4: 1, 5: 2})]
    column = next(read_libsvm(write("1 5:2 1:3 4:1\n")).blocks()).columns["x"]
    assert column.indices.tolist() == [0, 3, 4]


def test_duplicate_indices(write):
    path = write("1 1:1\n0 5:2 1:3 5:4\n")
    with pytest.raises(DataError, match=r"f.svm:2:1: expected each index once, index 5 comes twice"):
        read_libsvm(path)
    assert rows_of(read_libsvm(path, duplicates="sum"), 1)[1] == (0, {1: 3, 5: 6})
    assert rows_of(read_libsvm(path, duplicates="last"), 1)[1] == (0, {1: 3, 5: 4})


def test_numbers_are_read_exactly(write):
    draw = np.random.default_rng(1)
    values = [*draw.normal(size=500), *(10.0 ** draw.uniform(-320, 308, 500)), 5e-324, sys.float_info.max]
    texts = [repr(float(v)) for v in values] + ["1e-400", "0.1e1", "00012.50", "1" * 25, "-0", "1E+2", ".5"]
    data = read_libsvm(write("1 " + " ".join(f"{i + 1}:{t}" for i, t in enumerate(texts))))
    assert next(data.blocks()).columns["x"].values.tolist() == [float(t) for t in texts]


# ------------------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 1:1\n1 63: .50\n", r"f.svm:2:3: expected a value right after the colon; found '63:'"),
        ("1 5:1 7:2:3\n", r"f.svm:1:7: expected a finite number after the colon.*found '7:2:3'"),
        ("1 5:1x\n", r"f.svm:1:3: expected a finite number"),
        ("1 5:nan\n", r"f.svm:1:3: expected a finite number.*'5:nan'"),
        ("1 5:-inf\n", r"f.svm:1:3: expected a finite number"),
        ("1 5:1e400\n", r"f.svm:1:3: expected a finite number"),
        ("1 5:0x10\n", r"f.svm:1:3: expected a finite number"),
        ("1 -5:1\n", r"f.svm:1:3: expected an index of 0 or more, this one is negative; found '-5:1'"),
        ("1 2147483648:1\n", r"f.svm:1:3: expected an index below 2\^31"),
        ("1 99999999999999999999:1\n", r"f.svm:1:3: expected an index below 2\^31"),
        ("1 0:1 2147483647:1\n", r"f.svm:1:7: expected an index below 2\^31"),
        ("1 1.5:1\n", r"f.svm:1:3: expected index:value, the index an integer"),
        ("1 a:1\n", r"f.svm:1:3: expected index:value, the index an integer"),
        ("1 5\n", r"f.svm:1:3: expected index:value"),
        ("1 :5\n", r"f.svm:1:3: expected index:value"),
        ("1 1:1 qid:3\n", r"f.svm:1:7: expected qid right after the label"),
        ("1 qid:1.5 1:1\n", r"f.svm:1:3: expected qid: and an integer"),
        ("1 qid:9223372036854775808 1:1\n", r"f.svm:1:3: expected qid: and an integer below 2\^63"),
        ("1 qid:1 1:1\n1 1:1\n", r"f.svm:2:3: expected qid:integer, as other rows have"),
        ("1 1:1\n1 qid:1 1:1\n", r"f.svm:1:3: expected qid:integer, as other rows have"),
        ("1,2 1:1\n", r"f.svm:1:1: expected one label \(rows with several are not read\); found '1,2'"),
        ("spam 1:1\n", r"f.svm:1:1: expected a label, which is a finite number; found 'spam'"),
        ("nan 1:1\n", r"f.svm:1:1: expected a label, which is a finite number"),
        ("9007199254740993 1:1\n", r"f.svm:1:1: expected a label below 2\^53"),
        ("1 1:1\n1:1\n", r"f.svm:2:1: expected a label, as other rows have"),
        ("1:1\n1 1:1\n", r"f.svm:1:1: expected a label, as other rows have"),
        ("1:1\n1:2\n1 1:1\n", r"f.svm:3:1: expected index:value, because other rows have no label"),
        ("1 1:1\n1 2:1\n1 qid:1 1:1\n", r"f.svm:3:3: expected no qid, because other rows have none"),
        ("1 1:1 2:1\rx\n", r"f.svm:1:7: expected a finite number"),
        ("1 1:1\x002:1\n", r"f.svm:1:3: expected a finite number"),
        ("", r"f.svm: the file is empty"),
        ("\n# nothing\n", r"f.svm: there are no rows"),
    ],
)
def test_what_cannot_be_read_is_placed(write, own_storage, text, message):
    with pytest.raises(DataError, match=message):
        read_libsvm(write(text))
    assert not list(own_storage.rglob("manifest*"))


@pytest.mark.parametrize("order", ["few first", "many first", "shared"])
def test_labels_that_are_too_many_to_be_classes_stay_numbers(write, order, monkeypatch):
    """Whatever the first look says, and however often codes are given anew."""
    monkeypatch.setattr(squall_libsvm, "BLOCK_BYTES", 50_000)
    labels = np.random.default_rng(0).permutation(10_001) / 2
    if order == "few first":  # which are taken for classes
        labels = np.concatenate([np.zeros(50_000), labels])
    elif order == "shared":  # which look as if they were many, and are not
        labels = np.tile(labels[:9_000], 2)
    data = read_libsvm(write("".join(f"{label} 1:1\n" for label in labels.tolist())))
    y = data.to_arrays()[1]
    assert np.array_equal(y, labels)
    if order == "shared":
        assert len(data.classes) == 9_000
    else:
        assert data.classes is None and data.label == "y"
        assert all(block.labels.dtype == np.float64 for block in data.blocks())
    assert "libsvm, index base 1" in str(data.info())


def test_codes_are_not_given_anew_while_rows_wait():
    parser = LibsvmParser(1, False, -1, False, "raise", False, [3.0])
    parser.feed(b"5 1:1\n")
    with pytest.raises(ValueError, match="rows that were not taken have codes"):
        parser.forget_labels()
    assert parser.take()[3].tolist() == [1]
    parser.forget_labels()
    parser.feed(b"7 1:1\n5 1:1\n7 1:1\n")
    assert parser.seen()["labels"] == [7.0, 5.0] and parser.take()[3].tolist() == [0, 1, 0]


def test_rows_that_cannot_be_read_are_skipped_on_request(write):
    good = "".join(f"{i % 2} {i + 1}:1\n" for i in range(30))
    bad = "".join(f"7 1:2 {i}:x\n" for i in range(15))
    with pytest.warns(UserWarning, match=r"15 rows were skipped.*the first 10 are") as caught:
        data = read_libsvm(write(good + bad + "1 3:5\n"), errors="skip")
    told = str(caught[0].message)
    assert told.count("\n") == 10 and "f.svm:31:7: expected a finite number" in told
    assert rows_of(data, 1) == oracle(good + "1 3:5\n")
    assert data.classes.tolist() == [0, 1], "the label of a skipped row is none"
    with pytest.warns(UserWarning, match="15 rows were skipped"):  # each time
        read_libsvm(write(good + bad + "1 3:5\n"), errors="skip")


@pytest.mark.parametrize(
    ("settings", "messages"),
    [
        ({"path": 5}, ["path=5"]),
        ({"path": []}, ["path=[] names no file"]),
        ({"path": "ftp://host/f"}, ["ftp:// is not read"]),
        ({"path": "s3://key:secret@bucket/f"}, ["holds a user or password"]),
        ({"index_base": 2, "n_features": 0}, ["index_base=2", "n_features=0"]),
        ({"wider": "drop"}, ["says nothing without n_features"]),
        ({"duplicates": "first", "errors": "ignore"}, ["duplicates='first'", "errors='ignore'"]),
    ],
)
def test_all_wrong_settings_at_once(settings, messages):
    with pytest.raises(SettingError) as caught:
        read_libsvm(**{"path": "f.svm", **settings})
    assert all(message in str(caught.value) for message in messages)
    assert "secret" not in str(caught.value)


# -------------------------------------------------------------------------- files and their ranges


@pytest.mark.parametrize(("odd", "common"), [("2:1\n", "1 1:1\n"), ("1 2:1\n", "1:1\n")])
def test_rows_are_of_the_sort_most_are_however_the_set_is_cut(write, monkeypatch, tmp_path, odd, common):
    path = write(odd * 20 + common * 60 + odd * 20)
    found = []
    for size in (30, 100, 10_000):
        monkeypatch.setattr(pieces, "PIECE_BYTES", size)
        with pytest.warns(UserWarning, match="40 rows were skipped"):
            data = read_libsvm(path, errors="skip", storage=tmp_path / str(size))
        found.append(rows_of(data, 1))
    assert found == [oracle(common * 60)] * 3


def test_the_sort_of_rows_shows_behind_a_long_preface(write, monkeypatch, tmp_path):
    text = "# none\n" * 5000 + "1:1\n2:1\n"
    monkeypatch.setattr(pieces, "PIECE_BYTES", len(text) - 5)
    assert rows_of(read_libsvm(write(text)), 1) == [(None, {1: 1.0}), (None, {2: 1.0})]


def test_two_files_do_not_merge_at_the_seam(write):
    data = read_libsvm([write("1 1:1", "a"), write("0 2:1", "b"), write(gzip.compress(b"1 3:1"), "c")])
    assert rows_of(data, 1) == [(1, {1: 1}), (0, {2: 1}), (1, {3: 1})]


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress], ids=["gz", "bz2"])
def test_a_file_cut_short_is_a_hard_error(write, own_storage, pack):
    packed = pack(b"".join(b"1 1:%d\n" % i for i in range(20_000)))
    assert len(read_libsvm(write(packed))) == 20_000
    with pytest.raises(DataError, match=r"cut.svm: the file is damaged or cut short"):
        read_libsvm(write(packed[: len(packed) // 2], "cut.svm"))
    assert len(list(own_storage.rglob("manifest*"))) == 1


SCHEMA = LibsvmSchema(1, [-1.0, 0.0, 1.0], has_labels=True, has_qids=False)


def parsed(path: Path, cuts: list[int]) -> list:
    """Rows of a file that is read in pieces, each by a task of its own."""
    form, source = LibsvmFormat(1, None), local_file(path)
    rows = []
    edges = [0, *cuts, source.size]
    for start, stop in itertools.pairwise(edges):
        blocks: list = []
        form.parse([Piece(source, start, stop)], SCHEMA, blocks.append, lambda _: None)
        for block in blocks:
            column = block.columns["x"]
            values = np.ones(len(column.indices)) if column.values is None else column.values
            for r in range(block.n_rows):
                cells = slice(column.indptr[r], column.indptr[r + 1])
                rows.append((block.labels[r] - 1, column.indices[cells].tolist(), values[cells].tolist()))
    return rows


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_split_at_every_byte_gives_the_same_rows(tmp_path, end):
    text = ("\ufeff+1 1:0.5 3:2\n\n-1 2:1 # c\n+1\n0 12:3\n#\n-1 1:1" + "\n" * 2).replace("\n", end)
    path = tmp_path / "f.svm"
    path.write_bytes(text.encode())
    whole = parsed(path, [])
    assert len(whole) == 5
    for cut in range(1, len(text.encode())):
        assert parsed(path, [cut]) == whole, cut
        assert parsed(path, [cut, min(cut + 2, len(text.encode()) - 1)]) == whole, cut


def test_an_error_in_a_range_names_the_line_of_the_file(tmp_path):
    lines = [f"1 1:{i}" for i in range(100)]
    lines[70] = "1 1:x"
    path = tmp_path / "f.svm"
    path.write_text("\n".join(lines))
    for start in range(0, 300, 7):
        with pytest.raises(DataError, match=r"f.svm:71:3: "):
            parsed(path, [start]) if start else parsed(path, [])


numbers = st.one_of(
    st.just(1.0), st.integers(-99, 99).map(float), st.floats(allow_nan=False, allow_infinity=False)
)
table = st.lists(
    st.tuples(st.sampled_from([-1, 0, 1]), st.dictionaries(st.integers(1, 60), numbers, max_size=6)),
    min_size=1,
    max_size=12,
)


@quick
@given(table, st.integers(1, 64), st.sampled_from(["\n", "\r\n", "\n\n", " # c\n"]), st.booleans())
def test_what_is_written_is_read(tmp_path_factory, rows, chunk, end, final):
    text = end.join(f"{y} " + " ".join(f"{i}:{v!r}" for i, v in x.items()) for y, x in rows)
    path = tmp_path_factory.mktemp("c") / "f.svm"
    path.write_text(text + (end if final else ""), newline="")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(squall_libsvm, "_CHUNK_BYTES", chunk)
        found = parsed(path, [])
    expected = [(y, sorted(x)) for y, x in rows]
    assert [(y, [i + 1 for i in places]) for y, places, _ in found] == expected
    assert [values for _, _, values in found] == [[x[i] for i in sorted(x)] for _, x in rows]


def test_a_set_is_parsed_once_for_each_content_and_settings(write, monkeypatch):
    path = write("1 1:1\n0 2:1\n")
    first = read_libsvm(path)
    monkeypatch.setattr(LibsvmFormat, "parse", lambda *_: pytest.fail("parsed again"))
    assert read_libsvm(write(path.read_bytes(), "copy.svm")).key() == first.key()
    monkeypatch.undo()
    assert width(read_libsvm(path, n_features=9)) == 9
    assert rows_of(read_libsvm(write("1 1:1\n0 3:1\n")), 1)[1] == (0, {3: 1})


def test_no_feature_at_all(write):
    data = read_libsvm(write("1\n0\n"))
    assert (len(data), width(data)) == (2, 0)
    with warnings.catch_warnings():
        assert rows_of(data, 1) == [(1, {}), (0, {})]
