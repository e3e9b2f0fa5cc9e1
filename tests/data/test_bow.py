from __future__ import annotations

import gzip
import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from squall.data import bow_readers, csv_chunks, dialects
from squall.data.bow import read_bow
from squall.errors import DataError, SettingError

from .blocks import quick
from .public import public

UCI = "4\n3\n4\n1 1 2\n1 3 1\n3 2 5\n3 3 1\n"
LDAC = "2 0:2 2:1\n0\n2 1:5 2:1\n0\n"
EXPECTED = [[2, 0, 1], [0, 0, 0], [0, 5, 1], [0, 0, 0]]
WORDS = ["apple", "bee", "ünder"]


@pytest.fixture
def write(tmp_path):
    def write(content: str | bytes, name: str = "b.txt") -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def matrix(data):
    return data.to_arrays()[0].toarray().tolist()


@pytest.mark.parametrize(
    "text",
    [
        UCI,
        UCI.rstrip(),
        UCI.replace("\n", "\r\n"),
        "\ufeff" + UCI,
        UCI.replace(" ", "\t "),
        UCI.replace("\n", "  \n").replace("\n1", "\n 1"),
        UCI.replace("1 1 2\n1 3 1\n", "1 3 1\n\n1 1 2\n"),
        LDAC,
        LDAC.rstrip(),
        LDAC.replace("\n", " \r\n"),
        "\ufeff" + LDAC,
        LDAC.replace(" ", " \t"),
        LDAC.replace("0:2 2:1", "2:1 0:2").replace("\n", "\n\n"),
    ],
)
def test_both_formats(write, text, monkeypatch):
    for content in (text.encode(), gzip.compress(text.encode())):
        data = read_bow(write(content), vocabulary=WORDS)
        assert matrix(data) == EXPECTED
        assert [(c.name, c.kind, c.width) for c in data.columns] == [("counts", "sparse", 3)]
        assert data.dictionary("counts") == WORDS and data.label is None
    monkeypatch.setattr(csv_chunks, "CHUNK_BYTES", 3)
    monkeypatch.setattr(dialects, "_CHUNK_BYTES", 3)
    monkeypatch.setattr(bow_readers, "_CHUNK_BYTES", 3)
    monkeypatch.setattr("squall.data.bow._READER_VERSION", 0)
    assert matrix(read_bow(write(text), vocabulary=WORDS)) == EXPECTED


def test_words_stay_with_counts_that_are_written_elsewhere(write, tmp_path):
    written = read_bow(write(UCI), vocabulary=WORDS).write(tmp_path / "own")
    assert written.dictionary("counts") == WORDS and matrix(written) == EXPECTED


def test_words_are_one_vocabulary_when_data_sets_are_joined(write, tmp_path):
    left = read_bow(write(UCI), vocabulary=WORDS)
    right = read_bow(write("3 0:4 1:5 2:6\n0\n1 3:7\n", "c.txt"), vocabulary=["zoo", "ünder", "bee", "ant"])
    both = left.concat(right)
    assert both.dictionary("counts") == [*WORDS, "zoo", "ant"] and both.columns[0].width == 5
    expected = [[*row, 0, 0] for row in EXPECTED] + [[0, 6, 5, 4, 0], [0] * 5, [0, 0, 0, 0, 7]]
    assert matrix(both) == expected
    for block in both.blocks():
        column = block.columns["counts"]
        for a, b in itertools.pairwise(column.indptr):
            assert (np.diff(column.indices[a:b]) > 0).all()
    written = both.write(tmp_path / "both")
    assert matrix(written) == expected and written.dictionary("counts") == both.dictionary("counts")
    same = left.concat(left)
    assert same.dictionary("counts") == WORDS and matrix(same) == EXPECTED * 2
    for parts in ([left, read_bow(write(LDAC, "d.txt"))], [read_bow(write(LDAC, "d.txt")), left]):
        with pytest.raises(
            DataError, match=r"stand for words in data set \d, and .* not known .*\n.*vocabulary="
        ):
            parts[0].concat(parts[1])


def test_the_vocabulary(write):
    path = write("\ufeffapple\r\nbee\nünder\n\n", "vocab.txt")
    for text in (UCI, LDAC):
        assert read_bow(write(text), vocabulary=path).dictionary("counts") == WORDS
        data = read_bow(write(text))
        assert matrix(data) == EXPECTED
        with pytest.raises(SettingError, match="no dictionary"):
            data.dictionary("counts")
    assert read_bow(write(LDAC), vocabulary=[*WORDS, "z"]).columns[0].width == 4
    for words, message in [
        (["a", "b", "a"], "vocabulary, word 3: the word 'a' comes twice: also at 1"),
        (["a", "", "b"], "word 2: the line is blank"),
        (write("a\n\nb\n", "v"), "v:2: the line is blank"),
        (write(b"a\n\xff\n", "w"), r"w:2: b'\\xff' is not UTF-8"),
        (write("", "x"), "x: the file is empty"),
        ("none.txt", "there is no such file"),
        (["a", "b"], "is of 3 words and the vocabulary has 2"),
    ]:
        with pytest.raises(DataError, match=message):
            read_bow(write(UCI), vocabulary=words)
    with pytest.raises(SettingError, match="is neither a file nor a list of words"):
        read_bow(write(UCI), vocabulary=[1])
    with pytest.raises(DataError, match=r"b\.txt:1: word 2 is beyond the 2 words there are"):
        read_bow(write(LDAC), vocabulary=["a", "b"])


def test_counts_keep_every_digit(write):
    assert matrix(read_bow(write("1\n1\n1\n1 1 9007199254740992\n"))) == [[2**53]]
    assert matrix(read_bow(write("1 0:16777217\n"))) == [[2**24 + 1]]
    for text in ("1\n1\n1\n1 1 9007199254740993\n", "1 0:9007199254740993\n"):
        with pytest.raises(DataError, match=r"2\*\*53"):
            read_bow(write(text))


BAD_UCI = [
    ("1 1", "b.txt:5:3: 2 fields where the format has 3"),
    ("1 2 x", "b.txt:5:3: 'x' where a count from 0 to 2"),
    ("1 2 -1", "b.txt:5:3: '-1' where a count"),
    ("1 2 1.5", "b.txt:5:3: '1.5' where a count"),
    ("1 4 1", "b.txt:5:2: '4' where a word from 1 to 3"),
    ("1 0 1", "b.txt:5:2: '0' where a word"),
    ("9 1 1", "b.txt:5:1: '9' where a document from 1 to 4"),
    ("0 1 1", "b.txt:5:1: '0' where a document"),
    ("1 1 7", "b.txt:5:2: word 1 comes twice in document 1"),
]


@pytest.mark.parametrize(("line", "message"), BAD_UCI)
def test_malformed_uci_records(write, line, message):
    path = write(UCI.replace("1 1 2\n", f"1 1 2\n{line}\n").replace("\n4\n", "\n5\n"))
    with pytest.raises(DataError, match=message):
        read_bow(path)
    with pytest.warns(UserWarning, match=r"1 record was skipped, because it cannot be read:\n  .*" + message):
        assert matrix(read_bow(path, errors="skip")) == EXPECTED


def test_documents_must_ascend(write):
    path = write(UCI + "2 1 1\n4 1 1\n")
    with pytest.raises(DataError, match=r"b\.txt:8:1: '2' where a document .*, not before the one above it"):
        read_bow(path)
    with pytest.warns(UserWarning, match="1 record was skipped"):
        assert matrix(read_bow(path, errors="skip"))[1:] == [[0, 0, 0], [0, 5, 1], [1, 0, 0]]


BAD_LDAC = [
    ("x 1:2", "b.txt:2:1: 'x' where the number of different words"),
    ("1 1:x", "b.txt:2:2: '1:x' where word:count is expected"),
    ("1 1: 2", "b.txt:2:2: '1:' where word:count"),
    ("2 1:2:3", "b.txt:2:2: '1:2:3' where word:count"),
    ("1 -1:2", "b.txt:2:2: '-1:2' where"),
    ("2 1:2", "b.txt:2: 1 words where the first number promises 2"),
    ("2 1:2 1:3", "b.txt:2: word 1 comes twice"),
    ("1 2147483647:1", "b.txt:2: word 2147483647 is beyond"),
]


@pytest.mark.parametrize(("line", "message"), BAD_LDAC)
def test_malformed_ldac_documents(write, line, message):
    path = write(LDAC.replace("\n0\n2", f"\n{line}\n0\n2", 1))
    with pytest.raises(DataError, match=message):
        read_bow(path)
    with pytest.warns(UserWarning, match=r"1 record was skipped, because it cannot be read:\n  .*" + message):
        assert matrix(read_bow(path, errors="skip")) == EXPECTED


@pytest.mark.parametrize(
    ("content", "settings", "message"),
    [
        ("", {}, "the file is empty"),
        ("0\n", {}, "the file holds no words\n  fix: check how"),
        ("0\n5\n0\n", {}, "there are no documents"),
        ("1 0:1\n", {"format": "uci"}, "b.txt:1: the first three lines are not the numbers"),
        (UCI[:-6], {}, "3 records where line 3 promises 4\n  fix: .*cut short"),
        (UCI + "4 1 1\n", {}, "5 records where line 3 promises 4"),
        ("3000000000\n1\n0\n", {}, "more than 2\\*\\*31"),
        ("1\n3000000000\n1\n1 1 1\n", {}, "up to 2\\*\\*31 - 1 are possible"),
        (gzip.compress(LDAC.encode() * 999, mtime=0)[:-9], {}, "the file is damaged or cut short"),
    ],
)
def test_errors_say_what_where_and_how_to_fix(write, content, settings, message, own_storage):
    with pytest.raises(DataError, match=message):
        read_bow(write(content), **settings)
    assert not list(own_storage.rglob("manifest*"))


def test_wrong_settings(tmp_path):
    with pytest.raises(SettingError, match=r"(?s)format='x' .*errors='y'"):
        read_bow("f", format="x", errors="y")
    with pytest.raises(DataError, match="there is no such file"):
        read_bow(tmp_path / "none")


@quick
@given(
    st.lists(st.dictionaries(st.integers(0, 5), st.integers(0, 2**25), max_size=4), min_size=1, max_size=12),
    st.integers(1, 40),
    st.booleans(),
)
def test_what_is_written_is_read(tmp_path_factory, documents, chunk, uci):
    if uci:
        lines = [f"{d} {w + 1} {n}" for d, words in enumerate(documents, 1) for w, n in words.items()]
        lines = [str(len(documents)), "6", str(len(lines)), *lines]
    else:
        lines = [" ".join([str(len(d)), *(f"{w}:{n}" for w, n in d.items())]) for d in documents]
    path = tmp_path_factory.mktemp("b") / "b.txt"
    path.write_text("\n".join(lines))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_chunks, "CHUNK_BYTES", chunk)
        patch.setattr(dialects, "_CHUNK_BYTES", chunk)
        patch.setattr(bow_readers, "_CHUNK_BYTES", chunk)
        data = read_bow(
            path, vocabulary=list("abcdef"), format="uci" if uci else "ldac", storage=path.parent / "s"
        )
    assert matrix(data) == [[d.get(w, 0) for w in range(6)] for d in documents]


def test_many_blocks(write):
    rng = np.random.default_rng(0)
    counts = sparse.random_array((3000, 50), density=0.1, rng=rng, dtype=np.int64, data_sampler=None)
    counts.data = rng.integers(1, 9, counts.nnz)
    rows = counts.tocsr()
    rows.sort_indices()
    lines = [f"{d + 1} {w + 1} {n}" for d, w, n in zip(*rows.nonzero(), rows.data, strict=True)]
    path = write("\n".join(["3000", "50", str(len(lines)), *lines]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_chunks, "CHUNK_BYTES", 1000)
        patch.setattr(dialects, "_CHUNK_BYTES", 1000)
        found = read_bow(path).to_arrays()[0]
    assert (found != rows).nnz == 0


def test_reuters():
    data = read_bow(public("reuters.ldac"), vocabulary=public("reuters.tokens"))
    assert (len(data), data.columns[0].width) == (395, 4258)
    X, _ = data.to_arrays()
    assert X.sum() == 84_010 and data.dictionary("counts")[:3] == ["church", "pope", "years"]
