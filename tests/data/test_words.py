from __future__ import annotations

import bz2
import gzip

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import CountVectorizer

from squall.data import csv_chunks, dialects
from squall.data.words import read_text
from squall.errors import DataError, SettingError

from .blocks import quick
from .public import public

TEXTS = ["The cat sat on the mat.", "A cat and a dog", "", "Dogs, dogs: DOGS! Öl", "the end"]


@pytest.fixture
def write(tmp_path):
    def write(content: str | bytes, name: str = "t.txt"):
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


@pytest.fixture
def csv(write):
    return write(
        pd.DataFrame({"id": range(5), "text": TEXTS, "y": list("abaab")}).to_csv(index=False), "t.csv"
    )


def assert_as_scikit_learn(data, texts, **settings):
    vectorizer = CountVectorizer(**settings)
    expected = vectorizer.fit_transform(texts)
    assert data.dictionary("counts") == vectorizer.get_feature_names_out().tolist()
    assert (data.to_arrays()[0] != expected).nnz == 0


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"min_df": 2},
        {"min_df": 0.4, "max_df": 0.4},
        {"max_df": 2, "lowercase": False},
        {"stop_words": ["the", "and"]},
        {"token_pattern": r"\w+"},
        {"token_pattern": r"\b([a-z])\w*"},
    ],
)
def test_the_numbers_are_scikit_learns(csv, settings):
    assert_as_scikit_learn(read_text(csv, column="text", **settings), TEXTS, **settings)


def test_of_equally_frequent_words_the_first_of_the_alphabet_stay(csv):
    assert read_text(csv, column="text", max_features=2).dictionary("counts") == ["dogs", "the"]
    assert read_text(csv, column="text", max_features=4).dictionary("counts") == ["and", "cat", "dogs", "the"]


def test_files_lines_folders_and_columns_are_the_same_documents(write, csv, tmp_path):
    for i, text in enumerate(TEXTS):
        write(text, f"files/{i}.txt")
    write(gzip.compress(TEXTS[1].encode()), "files/1.txt")
    folder = tmp_path / "in" / "files"
    lines = write("\ufeff" + "\r\n".join(TEXTS), "lines.txt")
    expected = read_text(csv, column="text").to_arrays()[0].toarray()
    for path in (folder, f"{folder}/*.txt", sorted(folder.iterdir())):
        assert np.array_equal(read_text(path).to_arrays()[0].toarray(), expected)
    found = read_text(lines, documents="line").to_arrays()[0].toarray()
    assert np.array_equal(found, np.delete(expected, 2, axis=0)), "blank lines are no documents"
    assert read_text(folder / "0.txt", documents="file").dictionary("counts") == [
        "cat",
        "mat",
        "on",
        "sat",
        "the",
    ]
    with pytest.raises(SettingError, match=r"is all of .*0.txt one document\?\n  fix: .*documents="):
        read_text(folder / "0.txt")


def test_labels(csv, write, tmp_path):
    data = read_text(csv, column="text", label="y")
    assert (data.label, data.classes.tolist(), data.to_arrays()[1].tolist()) == (
        "y",
        ["a", "b"],
        list("abaab"),
    )
    assert read_text(csv, column="text", label="id").classes.tolist() == [0, 1, 2, 3, 4]
    for name in ("spam/1.txt", "ham/1.txt", "spam/2.txt"):
        write("some words", f"mail/{name}")
    data = read_text(tmp_path / "in" / "mail", label="folder")
    assert (data.label, data.to_arrays()[1].tolist()) == ("folder", ["ham", "spam", "spam"])


def test_labels_that_are_too_many_to_be_classes(write):
    lines = [f"good words,{i}.5" for i in range(10_001)]
    data = read_text(write("\n".join(["t,price", *lines])), column="t", label="price")
    assert data.classes is None and data.label == "price"
    assert data.to_arrays()[1].tolist() == [i + 0.5 for i in range(10_001)]
    with pytest.raises(DataError, match="label: there are more than 10,000 different labels"):
        read_text(write("\n".join(["t,price", *lines, "words,free"])), column="t", label="price")


def test_new_documents_with_a_known_vocabulary(csv, write):
    train = read_text(csv, column="text")
    new = write("cat cat unknown\n", "new.txt")
    test = read_text(new, documents="line", vocabulary=train.dictionary("counts"), min_df=5)
    assert test.columns == train.columns and test.dictionary("counts") == train.dictionary("counts")
    assert test.to_arrays()[0].sum() == 2
    words = write("cat\nthe\n", "words.txt")
    assert read_text(csv, column="text", vocabulary=words).to_arrays()[0].toarray().tolist() == [
        [1, 2], [1, 0], [0, 0], [0, 0], [0, 1]
    ]  # fmt: skip


def test_csv_of_any_kind(write, monkeypatch):
    text = '\ufeffid;"the text"\r\n1;"two\nlines; ""quoted"""\r\n\r\n2;plain\r\n'
    for chunk in (1 << 20, 5):
        monkeypatch.setattr(csv_chunks, "CHUNK_BYTES", chunk)
        monkeypatch.setattr(dialects, "_CHUNK_BYTES", chunk)
        path = write(bz2.compress(text.replace("id", f"id{chunk}").encode()))
        data = read_text(path, column="the text", separator=";")
        assert data.dictionary("counts") == ["lines", "plain", "quoted", "two"] and len(data) == 2


def test_other_encodings(write):
    path = write("Öl für alle\n".encode("latin-1"))
    assert read_text(path, documents="line", encoding="latin-1").dictionary("counts") == ["alle", "für", "öl"]
    with pytest.raises(
        DataError,
        match=r"t.txt:1: b'\\xd6l f.*' at byte 0 of the document is not utf-8 text\n  fix: .*encoding=",
    ):
        read_text(path, documents="line")


def test_documents_that_are_skipped(write, csv, tmp_path):
    lines = write(b"good words\n\xff\nmore words\n")
    with pytest.warns(
        UserWarning, match=r"1 document was skipped, because it cannot be read:\n  .*t.txt:2: "
    ):
        assert len(read_text(lines, documents="line", errors="skip")) == 2
    write(b"good", "f/1.txt")
    write(b"\xff", "f/2.txt")
    with pytest.warns(UserWarning, match=r"1 document was skipped, because it cannot be read:\n  .*2.txt: "):
        assert len(read_text(tmp_path / "in" / "f", errors="skip")) == 1
    path = write(b"text,y\ngood,1\n\xff,1\na,b,c\nfine,\nlast words,2\n", "bad.csv")
    for start, told in [(3, "bad.csv:3:1: b'.xff' at byte 0"), (4, "bad.csv:4:3: 3 fields"),
                        (5, "bad.csv:5:2: the label 'y' is missing")]:  # fmt: skip
        rest = [b"\n" * (start - 2), *path.read_bytes().splitlines(keepends=True)[start - 1 :]]
        bad = write(b"text,y\n" + b"".join(rest), "sub/bad.csv")
        with pytest.raises(DataError, match=told):
            read_text(bad, column="text", label="y")
    with pytest.warns(UserWarning, match="3 documents were skipped"):
        data = read_text(path, column="text", label="y", errors="skip")
    assert (len(data), data.classes.tolist()) == (2, [1, 2])


@pytest.mark.parametrize(
    ("content", "settings", "message"),
    [
        ("", {"documents": "line"}, "the file is empty"),
        ("", {"documents": "file"}, "there is no word in 1 document"),
        ("a b c\n", {"documents": "line"}, "there is no word in 1 document\n  fix: check token_pattern"),
        ("aa bb\n", {"documents": "line", "min_df": 2}, "none of 2 different words in 1 documents is left"),
        ("text\n", {"column": "text"}, "there are no documents"),
        ("text\naa\n", {"column": "txt"}, "column: there is no column 'txt'\n  fix: did you mean 'text'"),
        ("text\naa\n", {"column": "text", "label": "y"}, "label: there is no column 'y'"),
        ("text\n", {"column": "text", "vocabulary": ["aa"]}, "there are no documents"),
        (gzip.compress(b"some words\n" * 999, mtime=0)[:-9], {"documents": "line"}, "damaged or cut short"),
    ],
)
def test_errors_say_what_where_and_how_to_fix(write, content, settings, message, own_storage):
    with pytest.raises(DataError, match=message):
        read_text(write(content), **settings)
    assert not list(own_storage.rglob("manifest*"))


def test_all_wrong_settings_at_once(tmp_path):
    with pytest.raises(SettingError) as caught:
        read_text(
            "f", label="y", documents="word", token_pattern="(", lowercase=1, min_df=0, max_df=1.5,
            max_features=0, stop_words="the", separator="::", encoding="utf-9", errors="ignore",
        )  # fmt: skip
    names = ("label", "documents", "token_pattern", "lowercase", "min_df", "max_df", "max_features")
    assert all(
        f"{n}=" in str(caught.value) for n in (*names, "stop_words", "separator", "encoding", "errors")
    )
    for settings, message in [
        ({"column": "a", "documents": "line"}, "exclude each other"),
        ({"label": "folder", "documents": "line"}, "is not possible"),
        ({"token_pattern": "(a)(b)"}, "more than one group"),
        ({"column": 3}, "is not a column's name"),
    ]:
        with pytest.raises(SettingError, match=message):
            read_text("f", **settings)
    with pytest.raises(DataError, match="there is no such file"):
        read_text(tmp_path / "none.txt")


@hypothesis_settings(quick, max_examples=20)
@given(
    st.lists(st.text(st.sampled_from("ab CÄ\n,\"'.1"), max_size=12), min_size=1, max_size=10),
    st.integers(1, 20),
    st.integers(1, 3),
)
def test_any_texts_are_counted_as_scikit_learn_does(tmp_path_factory, texts, chunk, min_df):
    folder = tmp_path_factory.mktemp("t")
    path = folder / "t.csv"
    pd.DataFrame({"n": 0, "text": texts}).to_csv(path, index=False)
    rule = {"min_df": min_df, "max_df": len(texts), "token_pattern": r"\w+"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_chunks, "CHUNK_BYTES", chunk)
        patch.setattr(dialects, "_CHUNK_BYTES", chunk)
        try:
            data = read_text(path, column="text", storage=folder / "s", **rule)
        except DataError:
            with pytest.raises(ValueError):
                CountVectorizer(**rule).fit(texts)
        else:
            assert_as_scikit_learn(data, texts, **rule)


@pytest.mark.slow
def test_news_articles():
    path = public("NewsArticles.csv")
    data = read_text(path, column="text", min_df=5, max_df=0.5)
    texts = pd.read_csv(path, keep_default_na=False)["text"].tolist()
    assert len(data) == 3824
    assert_as_scikit_learn(data, texts, min_df=5, max_df=0.5)
