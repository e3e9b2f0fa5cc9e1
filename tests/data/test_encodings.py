"""Text that is not UTF-8 is read as if it were."""

from __future__ import annotations

import codecs
import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

import squall
from squall.data import encodings, parsing
from squall.data.encodings import EncodedInput, encoding_problem, in_utf8, keeps_ascii
from squall.data.finding import find_inputs
from squall.data.streams import Text, is_splittable, read_chunks
from squall.errors import DataError, SettingError

from .blocks import quick

MARKED = ["utf-16", "utf-32", "utf-16-be", "utf-32-be"]
MARKS = {"utf-16-be": codecs.BOM_UTF16_BE, "utf-32-be": codecs.BOM_UTF32_BE}
ROWS = "name\tprice\nKäse\t2\n😀\t3\n"
TABLE = [{"name": "Käse", "price": 2}, {"name": "😀", "price": 3}]


@pytest.fixture
def write(tmp_path):
    def write(content, name="f.txt"):
        path = tmp_path / name
        path.write_bytes(content)
        return path

    return write


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("texts")


@quick
@given(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
    st.sampled_from(["utf-16", "utf-32", "utf-16-le", "utf-32-be", "utf-7", "utf-8-sig", "gb18030"]),
    st.integers(1, 9),
    st.integers(1, 9),
)
def test_any_text_becomes_utf8_however_it_is_cut(folder, text, encoding, chunk, size):
    path = folder / "f"
    path.write_bytes(text.encode(encoding))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encodings, "_CHUNK_BYTES", chunk)
        (source,) = in_utf8(find_inputs(path), encoding)
        found = b"".join(read_chunks(source, size)).decode()
    assert found.removeprefix("\ufeff") == text.removeprefix("\ufeff")


@pytest.mark.parametrize("encoding", MARKED)
@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_excels_unicode_text_is_read_as_it_is(write, encoding, compress):
    path = write(compress(MARKS.get(encoding, b"") + ROWS.encode(encoding)))
    assert squall.read_csv(path, delimiter="\t").head() == TABLE


def test_marks_are_known_to_all_readers_of_text(write):
    svm = squall.read_libsvm(write("1 1:2\n0 2:3 # ä\n".encode("utf-16")))
    assert svm.to_arrays()[0].toarray().tolist() == [[2, 0], [0, 3]]
    ratings = squall.read_ratings(write("user,item,rating\nü,b,3\n".encode("utf-16"), "r.csv"))
    assert ratings.head() == [{"user": "ü", "item": "b", "rating": 3.0}]
    for settings in ({}, {"encoding": "utf-16"}):
        text = squall.read_text(write("grüne welt\nwelt\n".encode("utf-16")), documents="line", **settings)
        assert text.dictionary("counts") == ["grüne", "welt"] and len(text) == 2


def test_a_table_in_an_encoding_that_is_named(write, tmp_path):
    path = write("Größe;naïve\n1;2\n".encode("cp1252"))
    data = squall.read_csv(path, delimiter=";", label="naïve", encoding="cp1252")
    assert [c.name for c in data.columns] == ["Größe"] and data.label == "naïve"
    with pytest.raises(DataError, match=r'is not UTF-8\n  fix: .*encoding="cp1252"'):
        squall.read_csv(path, delimiter=";")
    other = squall.read_csv(path, delimiter=";", encoding="cp1250")
    assert [c.name for c in other.columns] == ["Größe", "naďve"], "what was stored is of one encoding"
    assert squall.read_csv(write(b"a\n1\n"), encoding="UTF8").info().bytes


def test_functions_read_it_too(write, monkeypatch):
    monkeypatch.setattr(parsing, "LARGE_BYTES", 1)
    path = write(ROWS.encode("cp1252", "replace"))
    data = squall.read_csv(path, delimiter="\t", encoding="cp1252")
    assert data.bill.invocations == 1 and data.head(1) == TABLE[:1]


@pytest.mark.parametrize(
    ("content", "encoding", "told"),
    [
        ("a\nb\n".encode("utf-16")[:-1], "utf-8", r"f.txt:2: b'\\n' at byte 8 is not utf-16 text"),
        ("a\nb\n".encode("utf-16")[2:] + b"\0\xd8\n\0", "utf-16-le", r"f.txt:3: .* at byte 8 is not"),
        (b"a,b\n1,\xff\n", "ascii", r"f.txt:2: b'\\xff.*' at byte 6 is not ascii text"),
        ("a\n".encode("utf-16-le"), "utf-16", r"f.txt:\d: .* is not utf-16 text"),
        (rb"a\n\ud800" + b"\n", "unicode_escape", r"f.txt:\d: it is not unicode-escape text"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("chunk", [3, 1 << 18])
def test_what_is_not_in_its_encoding_is_told_by_line_and_byte(
    write, monkeypatch, content, encoding, told, chunk
):
    monkeypatch.setattr(encodings, "_CHUNK_BYTES", chunk)
    with pytest.raises(DataError, match=told + r"(.|\n)*fix: give the encoding"):
        squall.read_csv(write(content), encoding=encoding, errors="skip")


def test_files_that_are_not_in_their_encoding_are_skipped(write, tmp_path):
    write("gute worte".encode("utf-16"), "a.txt")
    write("mehr worte".encode("utf-16")[:-1], "b.txt")
    with pytest.warns(UserWarning, match=r"1 document was skipped(.|\n)*b.txt:1: .* is not utf-16 text"):
        data = squall.read_text(tmp_path / "*.txt", encoding="utf-16", errors="skip")
    assert data.dictionary("counts") == ["gute", "worte"]


@pytest.mark.parametrize("encoding", ["utf-9", "base64", "rot13", 7, None])
def test_what_is_no_encoding_is_refused(write, encoding):
    assert encoding_problem(encoding) is not None
    with pytest.raises(SettingError, match="is not a text encoding that Python knows"):
        squall.read_csv(write(b"a\n1\n"), encoding=encoding)


def test_which_encodings_can_be_cut_into_lines_first():
    assert all(map(keeps_ascii, ["utf-8", "latin-1", "cp1252", "shift_jis", "euc_kr"]))
    assert not any(map(keeps_ascii, ["utf-16", "utf-32-le", "utf-7", "cp037", "iso2022_jp", "hz"]))


def test_what_is_decoded_is_not_cut_by_bytes(write):
    (plain,) = find_inputs(write(b"a\n1\n"))
    assert is_splittable(plain) and not is_splittable(EncodedInput(plain, "cp1252"))
    with Text(plain, 2) as text:
        buffer = bytearray(9)
        assert text.fill(memoryview(buffer)) == 2 and buffer[:2] == b"1\n"
    assert not is_splittable(find_inputs(write("a\n1\n".encode("utf-16")))[0])


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize("text", [ROWS, "1 1:2 7:3\n-1 2:3\n", "商品,値段,数量\n本,千円,二\n"])
def test_text_without_its_mark_is_told_by_its_zeros(write, encoding, text):
    path = write(text.encode(encoding))
    for read in (
        squall.read_csv,
        squall.read_libsvm,
        squall.read_criteo,
        squall.read_ratings,
        squall.read_bow,
    ):
        with pytest.raises(
            DataError, match=f'f.txt: the text looks like {encoding}.*\n.*encoding="{encoding}"'
        ):
            read(path)
    if "商" not in text:
        assert len(squall.read_csv(path, encoding=encoding)) == text.count("\n") - 1


def test_what_is_no_text_is_told(write):
    path = write(b"SQLite format 3\0" + bytes(100) + b"\1\2" * 40)
    for read in (squall.read_csv, squall.read_libsvm, squall.read_criteo):
        with pytest.raises(DataError, match=r"f.txt: the file is no text: it has many bytes of 0"):
            read(path, errors="skip")
    odd = squall.read_csv(write(b"a,b\n1,x\0y\n2,z\n"))
    assert odd.head(1) == [{"a": 1, "b": "x\0y"}], "one such byte is a character"
