from __future__ import annotations

import bz2
import copy
import csv
import gzip
import io
import itertools
import lzma
import os
import subprocess
import sys
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall.data import csv_chunks, csv_format
from squall.data.csv import MISSING, read_csv
from squall.data.csv_format import CsvFormat
from squall.data.dialects import Dialect
from squall.data.finding import local_file
from squall.data.streams import Piece
from squall.errors import CorruptError, DataError, SettingError, StoreError
from squall.records import CategoricalColumn

from .blocks import quick


@pytest.fixture
def write(tmp_path):
    def write(content: str | bytes, name: str = "f.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def kinds(data) -> dict[str, str]:
    return {spec.name: spec.kind for spec in data.columns}


def values(data, name) -> list:
    return data.select([name]).to_arrays()[0][:, 0].tolist()


def blocks_of(path: Path, form: CsvFormat, chunk: int, block: int, cuts: tuple[int, ...] = ()) -> list:
    """What one pass over a file, or over pieces of it, gives by the schema of the whole file."""
    source = local_file(path)
    edges = [0, *cuts, source.size]
    blocks: list = []
    keep = lambda block: blocks.append(copy.deepcopy(block))  # noqa: E731
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_chunks, "CHUNK_BYTES", chunk)
        patch.setattr(csv_format, "BLOCK_BYTES", block)
        guess = form.guess([source])
        schema = form.decide([form.parse([Piece(source)], guess, lambda _: None, lambda _: None)], [source])
        for start, stop in itertools.pairwise(edges):
            seen = form.parse([Piece(source, start, stop)], schema, keep, lambda _: None)
            assert form.fits(seen, schema, schema)
    return blocks


def form_of(header: bool = False, missing=(), **settings) -> CsvFormat:
    return CsvFormat(Dialect(header, ord(","), [m.encode() for m in missing]), **settings)


# ---------------------------------------------------------------------------------- real data


def test_adult_is_what_pandas_reads(census):
    data = read_csv(census, label="income-per-year")
    assert (len(data), data.label, data.classes.tolist()) == (32_561, "income-per-year", ["<=50K", ">50K"])
    assert [spec.kind for spec in data.columns].count("int64") == 6
    assert [spec.kind for spec in data.columns].count("categorical") == 8
    expected = pd.read_csv(census, na_values=["?"])
    found = data.to_pandas()
    assert list(found) == list(expected)
    for name in expected:
        pd.testing.assert_series_equal(found[name].astype(expected[name].dtype), expected[name])
    assert (found["income-per-year"] == ">50K").sum() == 7_841
    assert data.missing == {k: n for k, n in expected.isna().sum().items() if n}


# ------------------------------------------------------------------------------- column kinds


def test_kinds_are_decided_over_the_whole_file(write, monkeypatch):
    monkeypatch.setattr(csv_chunks, "CHUNK_BYTES", 64)
    rows = [f"{i},{i},{i},x" for i in range(100)]
    rows[90] = "90,90.5,abc,x"
    with pytest.warns(UserWarning, match=r"f.csv:92:3: column 'c' is read as categories: .* 'abc' is none"):
        data = read_csv(write("a,b,c,d\n" + "\n".join(rows)))
    assert kinds(data) == {"a": "int64", "b": "float64", "c": "categorical", "d": "categorical"}
    assert values(data, "b")[89:92] == [89.0, 90.5, 91.0]
    assert values(data, "c")[89:92] == ["89", "abc", "91"]


def test_missing_values(write):
    text = "i,f,s\n1,1.5,a\n,NA,?\nNaN,,N/A\n4,null,NULL\n5,nan,b\n"
    data = read_csv(write(text))
    assert kinds(data) == {"i": "float64", "f": "float64", "s": "categorical"}
    assert np.isnan(values(data, "i")).tolist() == [False, True, True, False, False]
    assert np.isnan(values(data, "f")).tolist() == [False, True, True, True, True]
    assert values(data, "s") == ["a", None, None, None, "b"]
    assert data.missing == {"i": 2, "f": 4, "s": 3}


def test_own_missing_markers_replace_the_defaults(write):
    data = read_csv(write("a,b\n-1,?\n2,x\n"), missing=["-1"])
    assert values(data, "b") == ["?", "x"]
    assert data.missing == {"a": 1}
    assert read_csv(write("a\n\n0\n1\n"), missing=[]).missing == {}


def test_nothing_is_rounded_in_silence(write):
    big = 2**53 + 1
    data = read_csv(write(f"id,x\n{big},1\n{-big},2\n{2**63 - 1},3\n{-(2**63)},4\n"))
    assert kinds(data)["id"] == "int64"
    assert data.to_pandas()["id"].tolist() == [big, -big, 2**63 - 1, -(2**63)]
    with pytest.warns(UserWarning, match=r"'id' .* beyond 2\*\*53 beside missing values"):
        data = read_csv(write(f"id,x\n{big},1\n,2\n"))
    assert values(data, "id") == [str(big), None]
    with pytest.warns(UserWarning, match=r"beside fractions"):
        data = read_csv(write(f"id,x\n{big},1\n1.5,2\n"))
    assert values(data, "id") == [str(big), "1.5"]
    exact = 2**60
    assert values(read_csv(write(f"id\n{exact}\nNA\n")), "id")[0] == float(exact)


def test_integers_beyond_int64_are_kept_as_text(write):
    data = read_csv(write("id\n12345678901234567890123\n98765432109876543210987\n"))
    assert kinds(data) == {"id": "categorical"}
    assert values(data, "id") == ["12345678901234567890123", "98765432109876543210987"]


def test_inf_is_named_not_swallowed(write):
    for text, line in (("1.5\n{}\n2", 3), ("{}\n2.5\n1", 2), ("7\n8\n{}", 4)):
        for token in ("inf", "-Infinity", "1e400"):
            told = rf"f.csv:{line}:1: column 'a' holds numbers, and '{token}' is not a finite one"
            with pytest.raises(DataError, match=told):
                read_csv(write(f"a\n{text.format(token)}\n"))
    data = read_csv(write("a\n1.5\ninf\n"), missing=["inf"])
    assert data.missing == {"a": 1}
    assert kinds(read_csv(write("a\nJoe\nInf\nAnn\n"))) == {"a": "categorical"}, "a name"
    assert kinds(read_csv(write("a\n1\ninf\n"), categorical=["a"])) == {"a": "categorical"}


@pytest.mark.parametrize(
    ("values_", "told"),
    [
        (['"1,5"', '"22,75"', '"-0,25"'], "have a decimal comma, as in '1,5'"),
        (['"1,234"', "12", '"1,234,567.5"', '"4,000"'], "have commas between thousands, as in '1,234'"),
        (["1.234.567", "'2.000", '"1.000,5"', "3.000.000"], "have separators between thousands"),
        (["1 000", "2 000 000", "5 000"], "have separators between thousands, as in '1 000'"),
        (["5%", "7.5 %", "10%"], "have a percent sign, as in '5%'"),
        (["$5", "$7.50", '"$1,000"'], "have a currency sign, as in '\\$5'"),
    ],
)
def test_numbers_in_another_notation_are_told(write, values_, told):
    with pytest.warns(UserWarning, match=rf"f.csv:2:2: column 'b' is read as categories: its numbers {told}"):
        data = read_csv(write("a,b\n" + "".join(f"x,{value}\n" for value in values_)))
    assert kinds(data)["b"] == "categorical"


def test_one_number_in_another_notation_is_told(write):
    with pytest.warns(UserWarning, match=r"f.csv:4:1: .* but '1,234' is none \(commas between thousands"):
        read_csv(write('a\n1\n2\n"1,234"\n4\n'))


def test_text_with_commas_and_signs_is_no_number(write):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_csv(
            write('a,b,c\n"Paris, France",100% wool,US$\n"Bonn, Germany",a 1 000,$\n"x,1",10.1.2.3,1-2\n')
        )


def test_warnings_are_shown_each_time(write, tmp_path):
    path = write("a,b\n1,\n2,\nx,\n")
    (tmp_path / "copy.csv").write_bytes(path.read_bytes())
    for at in (path, path, tmp_path / "copy.csv"):
        with pytest.warns(UserWarning) as caught:
            read_csv(at)
        told = sorted(str(w.message).partition(" is read")[0].partition(";")[0] for w in caught)
        assert told == [f"{at}: column 'b' holds no value", f"{at}:4:1: column 'a'"]


def test_categorical_keeps_leading_zeros(write):
    text = "zip,n\n02139,1\n00501,2\n"
    assert values(read_csv(write(text)), "zip") == [2139.0, 501.0]
    data = read_csv(write(text), categorical=["zip"])
    assert values(data, "zip") == ["02139", "00501"]


def test_an_empty_column_stays_with_a_warning(write):
    with pytest.warns(UserWarning, match=r"f.csv: column 'b' holds no value"):
        data = read_csv(write("a,b\n1,\n2,NA\n"))
    assert kinds(data) == {"a": "int64", "b": "float64"}
    assert data.missing == {"b": 2}


# --------------------------------------------------------------------------------------- text


@pytest.mark.parametrize(
    "text",
    [
        "a,b\n1,x\n2,y\n",
        "a,b\r\n1,x\r\n2,y\r\n",
        "\ufeffa,b\n1,x\n2,y",
        "\n\na,b\n\n1,x\n\r\n2,y\n\n",
        "a, b\n 1 ,x \n2,\ty\n",
    ],
)
def test_line_ends_bom_blank_lines_blanks(write, text):
    data = read_csv(write(text))
    assert kinds(data) == {"a": "int64", "b": "categorical"}
    assert values(data, "a") == [1.0, 2.0] and values(data, "b") == ["x", "y"]


def test_quotes(write):
    text = 'name,n\n"a, b",1\n"say ""hi""",2\n"two\nlines",3\n" kept ",4\n"",5\n'
    assert values(read_csv(write(text)), "name") == ["a, b", 'say "hi"', "two\nlines", " kept ", None]


def test_tabs_and_no_header(write):
    data = read_csv(write("1\tx\n2\ty\n"), delimiter="\t", header=False, label=-1)
    assert (kinds(data), data.label, data.classes.tolist()) == ({"0": "int64"}, "1", ["x", "y"])
    assert read_csv(write("1\tx\n2\ty\n"), delimiter="\t", header=False, label="1").label == "1"
    assert read_csv(write("1\tx\n2\ty\n"), delimiter="\t", header=False, label=0).classes.tolist() == [1, 2]


TABLE = 'name,n,y\n"Rome, Italy",1,a\n"x;y\t|",2,b\n'


@pytest.mark.parametrize(
    ("delimiter", "told"), [(",", None), ("\t", "tabs"), (";", "semicolons"), ("|", "bars")]
)
@pytest.mark.parametrize("header", [True, False])
def test_the_delimiter_is_found_out(write, delimiter, told, header):
    rows = list(csv.reader(io.StringIO(TABLE)))
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter).writerows(rows[not header :])
    data = read_csv(write(text.getvalue()), header=header, label="y" if header else -1)
    assert data.classes.tolist() == ["a", "b"]
    assert values(data, "name" if header else "0") == [row[0] for row in rows[1:]]
    assert data.info().facts.get("cut at") == told


@pytest.mark.parametrize(
    "text",
    [
        "x\n1\n2\n",
        "text\nno; yes\na\tb\n",  # nothing stands between names
        'text\n"a,b"\n"c|d"\n',
        "a b\n1;2\n3;4\n",
        "one\n",
    ],
)
def test_one_column_is_one_column(write, text):
    rows = list(csv.reader(io.StringIO(text)))[len(text) > 5 :]
    data = read_csv(write(text), header=len(text) > 5)
    assert len(data.columns) == 1 and [str(v) for v in values(data, data.columns[0].name)] == [
        row[0] + ".0" * row[0].isdigit() for row in rows
    ]


def test_a_comma_where_nothing_cuts_evenly_and_a_delimiter_that_is_given(write):
    with pytest.raises(DataError, match=r"f.csv:3:3: 3 fields where the header has 2"):
        read_csv(write("a,b\n1,2;\n1,2,3\n"))
    assert len(read_csv(write("a;b\n1;2\n"), delimiter=",").columns) == 1
    wide = "\t".join(f"column {i}" for i in range(30_000))  # more than is looked at
    assert len(read_csv(write(f"{wide}\n" + "\t".join(["1"] * 30_000))).columns) == 30_000


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
def test_compression_is_known_by_its_first_bytes(write, compress):
    text = b"a,b\n" + b"".join(b"%d,%d\n" % (i, i % 7) for i in range(5000))
    packed = compress(text)
    assert len(read_csv(write(packed, "named.csv"))) == 5000
    with pytest.raises(DataError, match=r"cut.csv: the file is damaged or cut short"):
        read_csv(write(packed[: len(packed) // 2], "cut.csv"))
    broken = bytearray(packed)
    broken[len(broken) // 2] ^= 0xFF
    with pytest.raises(DataError, match=r"broken.csv"):
        read_csv(write(bytes(broken), "broken.csv"))


def test_a_damaged_file_leaves_nothing(write, own_storage):
    packed = gzip.compress(b"a\n" + b"1\n" * 100_000)
    with pytest.raises(DataError):
        read_csv(write(packed[:-4]))
    assert not own_storage.exists()


cells = st.one_of(
    st.integers(-1000, 1000).map(str),
    st.floats(-10, 10).map(repr),
    st.text(st.sampled_from('ab ",\n\r\té?'), max_size=6),
    st.sampled_from(MISSING),
)


@quick
@given(
    st.integers(1, 4).flatmap(
        lambda n: st.lists(st.lists(cells, min_size=n, max_size=n), min_size=1, max_size=12)
    ),
    st.integers(1, 30),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
)
def test_any_chunk_size_reads_what_pythons_csv_reads(tmp_path_factory, rows, chunk, end, final):
    path = tmp_path_factory.mktemp("c") / "f.csv"
    out = io.StringIO(newline="")
    csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator=end).writerows(rows)
    text = out.getvalue() if final else out.getvalue().removesuffix(end)
    path.write_bytes(text.encode())
    names = [str(i) for i in range(len(rows[0]))]
    blocks = blocks_of(path, form_of(missing=MISSING, categorical=names), chunk, 50)
    found = [
        [
            None if code < 0 else column.strings()[code]
            for block in blocks
            for column in [block.columns[name]]
            for code in column.codes
        ]
        for name in names
    ]
    assert [list(row) for row in zip(*found, strict=True)] == [
        [None if c in MISSING else c for c in row] for row in rows
    ]


@quick
@given(
    st.lists(
        st.one_of(st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False)),
        min_size=1,
        max_size=20,
    ),
    st.integers(1, 40),
)
def test_numbers_are_read_exactly(tmp_path_factory, numbers, chunk):
    path = tmp_path_factory.mktemp("c") / "f.csv"
    path.write_text("\n".join(map(repr, numbers)))
    columns = [block.columns["0"] for block in blocks_of(path, form_of(), chunk, 30)]
    if isinstance(columns[0], CategoricalColumn):
        found = [c.strings()[i] for c in columns for i in c.codes]
        assert found == [repr(n) for n in numbers]
        assert any(int(float(n)) != n for n in numbers if isinstance(n, int))
    else:
        assert [v for c in columns for v in c.values.tolist()] == numbers


def test_many_blocks_have_dictionaries_of_their_own(write):
    path = write("s,n\n" + "".join(f"word{i // 10},{i}\n" for i in range(20_000)))
    blocks = blocks_of(path, form_of(header=True, missing=[""]), 1000, 10_000)
    assert len(blocks) > 10 and sum(b.n_rows for b in blocks) == 20_000
    assert max(len(b.columns["s"].offsets) for b in blocks) < 300
    texts = [b.columns["s"].strings()[c] for b in blocks for c in b.columns["s"].codes]
    assert texts == [f"word{i // 10}" for i in range(20_000)]


def test_memory_is_bounded(tmp_path, monkeypatch):
    path = tmp_path / "large.csv"
    with path.open("w") as file:
        file.write("a,b,c\n")
        for i in range(40):
            file.write("".join(f"{i * 10_000 + j},{j}.25,w{j}\n" for j in range(10_000)))
    assert path.stat().st_size > 7_000_000
    monkeypatch.setattr(csv_chunks, "CHUNK_BYTES", 1 << 16)
    monkeypatch.setattr(csv_format, "BLOCK_BYTES", 200_000)
    form, source, n_rows = form_of(header=True), local_file(path), 0

    def count(block):
        nonlocal n_rows
        n_rows += block.n_rows

    guess = form.guess([source])
    tracemalloc.start()
    assert form.parse([Piece(source)], guess, count, lambda _: None).fits
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert n_rows == 400_000
    assert peak < 2_000_000


# ------------------------------------------------------------------------------------- labels


@pytest.mark.parametrize(
    ("labels", "classes", "codes"),
    [
        (["1", "0", "1"], [0, 1], [1, 0, 1]),
        (["-1", "+1", "1"], [-1, 1], [0, 1, 1]),
        (["10", "9", "2"], [2, 9, 10], [2, 1, 0]),
        (["1.5", "1", "01"], [1.0, 1.5], [1, 0, 0]),
        (["b", "a", "10"], ["10", "a", "b"], [2, 1, 0]),
        (["only", "only", "only"], ["only"], [0, 0, 0]),
    ],
)
def test_label_maps_are_sorted(write, labels, classes, codes):
    data = read_csv(write("x,y\n" + "".join(f"1,{y}\n" for y in labels)), label="y")
    assert data.classes.tolist() == classes and [type(c) for c in data.classes.tolist()] == [
        type(c) for c in classes
    ]
    assert np.concatenate([b.labels for b in data.blocks()]).tolist() == codes
    assert data.to_arrays()[1].tolist() == [classes[c] for c in codes]
    assert kinds(data) == {"x": "int64"}


def test_labels_forced_to_text_keep_leading_zeros(write):
    data = read_csv(write("x,y\n1,01\n2,1\n"), label="y", categorical=["y"])
    assert data.classes.tolist() == ["01", "1"]


def test_a_missing_label_is_placed(write):
    with pytest.raises(DataError, match=r"f.csv:4:2: the label 'y' is missing: '\?'\n  fix: "):
        read_csv(write('x,y\n"a\nb",1\n2,?\n'), label="y")


def test_too_many_labels(write):
    with pytest.raises(
        DataError, match=r"f.csv:2:2: column 'y': there are more than 10,000 different labels"
    ):
        read_csv(write("x,y\n" + "".join(f"1,n{i}\n" for i in range(10_001))), label="y")


def test_numbers_that_are_no_classes_stay_numbers(write):
    values = [(i - 5_000) / 8 for i in range(10_001)]
    data = read_csv(write("x,y\n" + "".join(f"1,{value}\n" for value in values)), label="y")
    assert (data.label, data.classes) == ("y", None)
    assert "label 'y' (numbers)" in repr(data)
    np.testing.assert_array_equal(data.to_arrays()[1], values)


def test_without_labels_rows_are_still_read(write):
    data = read_csv(write("x\n1\n"))
    assert data.classes is None and data.to_arrays()[1] is None


# ------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("text", "settings", "message"),
    [
        ("", {}, "f.csv: the file is empty"),
        ("\n\n", {}, "f.csv: the file holds no records"),
        ("a,b\n", {}, "f.csv: the file has a header and no rows\n  fix: .*header=False"),
        ("a,b\n1,2\n\n3\n", {}, "f.csv:4:2: 1 fields where the header has 2, in the record that starts '3'"),
        ("1,2\n3,4,5\n", {"header": False}, "f.csv:2:3: 3 fields where the first record has 2"),
        ('a,b\n1,2\n3,"x\ny\n', {}, "f.csv:3: a quote is opened and never closed"),
        ('a,b\n1,"x"y\n', {}, "f.csv:2: text follows a closing quote"),
        ("a,b,a\n1,2,3\n", {}, "f.csv:1: two columns are named 'a'"),
        (
            "income,b\n1,2\n",
            {"label": "incme"},
            "label: there is no column 'incme'\n  fix: did you mean 'income'",
        ),
        ("a,b\n1,2\n", {"label": "zzz"}, "the columns are 'a', 'b' .leave `label` out"),
        ("a,b\n1,2\n", {"categorical": ["c d"]}, "categorical: there is no column 'c d'"),
        ("a\n1\n", {"label": "a"}, "there is no feature column"),
        ("1,2\n", {"header": False, "label": 2}, "label: there is no column '2'"),
        (b"a,b\n1,x\n2,\xff\xfe\n", {}, r"f.csv:3:2: the text b'\\xff\\xfe' is not UTF-8\n  fix: .*iconv"),
        (b"a,\xe9\n1,x\n", {}, "f.csv:1:2: the column name .* is not UTF-8"),
        (b"PK\x03\x04zip", {}, "is a zip archive"),
        (gzip.compress(b"", mtime=0), {}, "the file holds no records"),
    ],
)
def test_errors_say_what_where_and_how_to_fix(write, text, settings, message):
    with pytest.raises(DataError, match=message):
        read_csv(write(text), **settings)


def test_line_numbers_count_over_chunks_and_quoted_lines(write, monkeypatch):
    monkeypatch.setattr(csv_chunks, "CHUNK_BYTES", 50)
    rows = ['"two\nlines",1' if i % 3 == 0 else "one,1" for i in range(300)]
    line = 2 + sum(2 if i % 3 == 0 else 1 for i in range(200))
    rows[200] = "one"
    with pytest.raises(DataError, match=rf"f.csv:{line}:2: 1 fields"):
        read_csv(write("s,n\n" + "\n".join(rows)))


def test_files_that_are_none(tmp_path, write):
    write("a\n1\n", "adult.csv")
    with pytest.raises(
        DataError, match=r"adlt.csv: there is no such file\n  fix: did you mean 'adult.csv'\?"
    ):
        read_csv(tmp_path / "adlt.csv")
    with pytest.raises(DataError, match="File name too long"):
        read_csv(tmp_path / ("x" * 5000))
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(DataError, match="this is a pipe or a device"):
            read_csv(path)


@pytest.mark.parametrize(
    ("path", "settings", "messages"),
    [
        (7, {}, ["path=7 is not a path"]),
        (["a.csv", 7], {"errors": "ignore"}, ["path=7 is not a path", "errors='ignore' is unknown"]),
        ("a.csv", {"weight": True, "quoting": 1}, ["weight=True is not a column's name", "quoting=1"]),
        (
            "a.csv",
            {"delimiter": ";;", "header": 1, "missing": "NA"},
            ["delimiter=", "header=1", "missing='NA'"],
        ),
        ("a.csv", {"delimiter": '"'}, ["delimiter="]),
        ("a.csv", {"delimiter": "é"}, ["delimiter="]),
        ("a.csv", {"label": 3}, ["give the column's name"]),
        ("a.csv", {"label": ["y"]}, ["is not a column's name"]),
        ("a.csv", {"categorical": "zip"}, ["categorical='zip' is not a sequence"]),
        (
            "a.csv",
            {"label": "\ud800", "missing": ["\udfff"]},
            ["label='\\ud800' holds", "missing=['\\udfff']"],
        ),
    ],
)
def test_all_wrong_settings_at_once(path, settings, messages):
    with pytest.raises(SettingError) as caught:
        read_csv(path, **settings)
    assert all(message in str(caught.value) for message in messages)


# ------------------------------------------------------------------------------------ storing


def test_a_file_is_parsed_once_for_each_content_and_settings(write, monkeypatch):
    path = write("a,y\n1,u\n2,v\n")
    first = read_csv(path, label="y")
    monkeypatch.setattr(CsvFormat, "parse", lambda *_: pytest.fail("parsed again"))
    again = read_csv(write(path.read_bytes(), "copy.csv"), label="y")
    assert again.key() == first.key() and again.classes.tolist() == ["u", "v"]
    monkeypatch.undo()
    assert read_csv(path).key() != first.key()
    assert read_csv(write("a,y\n1,u\n3,v\n"), label="y").key() != first.key()


def test_many_partitions_and_the_same_rows(write, monkeypatch, tmp_path):
    path = write("n,s\n" + "".join(f"{i},w{i % 50}\n" for i in range(30_000)))
    one = read_csv(path, storage=tmp_path / "one")
    monkeypatch.setattr(csv_chunks, "CHUNK_BYTES", 10_000)
    monkeypatch.setattr(csv_format, "BLOCK_BYTES", 20_000)
    many = read_csv(path, storage=tmp_path / "many")
    assert len(list(many.blocks())) > 10 > len(list(one.blocks())) == 1
    pd.testing.assert_frame_equal(one.to_pandas(), many.to_pandas())


def test_a_crash_while_writing_leaves_no_data_set_that_opens(write, monkeypatch, store):
    path = write("a\n" + "1\n" * 1000)
    original = store.put_stream
    store.put_stream = lambda key, pieces: (original(key, pieces), 1 / 0)
    with pytest.raises(ZeroDivisionError):
        read_csv(path, storage=store)
    del store.put_stream
    (left,) = store.keys()
    assert left.endswith("part-00000-00000.safetensors")
    assert len(read_csv(path, storage=store)) == 1000


def test_a_partition_that_was_removed_is_written_again(write, store):
    path = write("a\n1\n2\n")
    data = read_csv(path, storage=store)
    part = next(key for key in list(store.keys()) if "part" in key)
    store.delete(part)
    with pytest.raises(StoreError, match=part):
        list(data.blocks())
    assert values(read_csv(path, storage=store), "a") == [1.0, 2.0]


@pytest.fixture
def damaged(write, store):
    """A data set that is open, its file, and the names of its objects, of which one is damaged."""
    path = write("a\n1\n2\n")
    data = read_csv(path, storage=store)
    part, manifest = (next(key for key in list(store.keys()) if word in key) for word in ("part", "manifest"))
    store.put(part, bytes(store.get(part))[:-1] + b"x")
    return data, path, part, manifest


def test_a_damaged_partition_is_read_from_the_file_again(damaged, store):
    data, path, part, _ = damaged
    with pytest.warns(UserWarning, match=rf"{part}: the object is damaged.* it is read from {path} again"):
        assert values(data, "a") == [1.0, 2.0]
    assert values(read_csv(path, storage=store), "a") == [1.0, 2.0]


def test_a_disk_that_goes_on_damaging_is_a_typed_error(damaged, store, monkeypatch):
    data, _, part, _ = damaged
    put = store.put_stream
    monkeypatch.setattr(
        store, "put_stream", lambda key, pieces: put(key, [b"".join(map(bytes, pieces))[:-1] + b"x"])
    )
    with pytest.warns(UserWarning, match="again"), pytest.raises(CorruptError, match=part):
        list(data.blocks())
    with pytest.raises(CorruptError, match=part):  # and once is enough
        list(data.blocks())


@pytest.mark.parametrize(
    "become", [lambda p: p.write_text("a\n3\n4\n5\n"), Path.unlink], ids=["other", "gone"]
)
def test_what_was_damaged_is_not_mended_from_another_file(damaged, store, become):
    data, path, part, _ = damaged
    before = bytes(store.get(part))
    become(path)
    with (
        pytest.warns(UserWarning, match="again"),
        pytest.raises(DataError, match=r"f\.csv: .*(changed|No such)"),
    ):
        list(data.blocks())
    assert bytes(store.get(part)) == before


def test_a_damaged_manifest_is_made_again(damaged, store):
    _, path, _, manifest = damaged
    store.put(manifest, b"{")
    with pytest.warns(UserWarning, match=rf"{manifest}: the object is not a manifest.* again"):
        data = read_csv(path, storage=store)
    assert values(data, "a") == [1.0, 2.0]
    assert len(read_csv(path, storage=store)) == 2


@pytest.mark.parametrize(
    ("meanwhile", "told"),
    [
        (lambda path: path.write_text("a,b\n" + "1,2\n" * 99 + "x,2\n"), "changed while it was read"),
        (
            lambda path: path.write_text(path.read_text() + "1\n"),
            "changed while it was read",
        ),  # half a record
        (lambda path: path.unlink(), "No such file or directory\n  fix: it was removed or renamed a moment"),
    ],
)
def test_a_file_that_changes_meanwhile_is_refused(write, store, monkeypatch, meanwhile, told):
    path = write("a,b\n" + "1,2\n" * 100)
    original = CsvFormat.guess

    def meddle(self, *args):
        guess = original(self, *args)
        meanwhile(path)
        return guess

    monkeypatch.setattr(CsvFormat, "guess", meddle)
    with pytest.raises(DataError, match=told):
        read_csv(path, storage=store)
    assert not any("manifest" in key for key in list(store.keys()))


def test_two_processes_at_once_are_both_right(write, tmp_path):
    path = write("n,s\n" + "".join(f"{i},w{i % 50}\n" for i in range(20_000)))
    code = (
        "import sys; from squall.data.csv import read_csv\n"
        "print(len(read_csv(sys.argv[1], storage=sys.argv[2])))"
    )
    command = [sys.executable, "-c", code, str(path), str(tmp_path / "shared")]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.communicate(timeout=50)[0] for process in both] == ["20000\n"] * 2
    assert len(read_csv(path, storage=tmp_path / "shared").to_pandas()) == 20_000


# --------------------------------------------------------------------- weights, quotes, bad rows


def test_weights_are_a_column_of_their_own(write):
    data = read_csv(write("x,w,y\n1,0.5,a\n2,0,b\n"), label="y", weight="w")
    (block,) = data.blocks()
    assert kinds(data) == {"x": "int64"} and block.weights.tolist() == [0.5, 0.0]
    assert next(read_csv(write("1,2\n3,4\n"), header=False, weight=-1).blocks()).weights.tolist() == [2, 4]
    for bad in ("-1", "", "nan", "inf", "much"):
        with pytest.raises(DataError, match=rf"f.csv:3:2: the weight 'w' is '{bad}', which is no finite"):
            read_csv(write(f"x,w\n1,1\n2,{bad}\n"), weight="w")
    with pytest.raises(DataError, match="weight: there is no column 'v'"):
        read_csv(write("x,w\n1,1\n"), weight="v")


def test_quotes_that_mean_nothing(write):
    path = write('s,n\n"two,1\na"b",2\n')
    with pytest.raises(DataError, match=r"closing quote, .*\n  fix: .*quoting=False"):
        read_csv(path)
    assert values(read_csv(path, quoting=False), "s") == ['"two', 'a"b"']


def test_rows_that_cannot_be_read_are_skipped_on_request(write, monkeypatch):
    monkeypatch.setattr(csv_chunks, "CHUNK_BYTES", 40)
    good = [f"{i},t{i},{i % 2}" for i in range(200)]
    bad = {20: "1,2", 21: '1,"a\nb",0,9', 60: '5,"x"y,0', 150: "7,t,?", 151: "8,t,"}
    rows = [bad.get(i, row) for i, row in enumerate(good)]
    with pytest.warns(UserWarning, match="6 rows were skipped") as caught:
        data = read_csv(write("a,s,y\n" + "\n".join(rows) + '\n9,"open,1\n'), label="y", errors="skip")
    told = str(caught[0].message)
    for message in (
        "f.csv:22:3: 2 fields",
        "f.csv:23:4: 4 fields",
        "f.csv:63: text follows a closing quote",
        "f.csv:153:3: the label 'y' is missing: '?'",
        "f.csv:154:3: the label 'y' is missing: ''",
        "f.csv:203: a quote is opened and never closed",
    ):
        assert message in told
    kept = [i for i in range(200) if i not in bad]
    assert values(data.select(["a"]), "a") == kept and values(data, "s") == [f"t{i}" for i in kept]
    assert data.classes.tolist() == [0, 1]


def test_only_ten_skipped_rows_are_shown(write):
    with pytest.warns(UserWarning, match=r"15 rows were skipped.*the first 10 are") as caught:
        assert len(read_csv(write("a,b\n1,2\n" + "3\n" * 15), errors="skip")) == 1
    assert str(caught[0].message).count("\n") == 10


def test_several_files_are_one_set(write, tmp_path):
    write("a,y\n1,u\n", "one.csv"), write("\ufeffa,y\n2.5,v\n3,w", "two.csv")
    data = read_csv(tmp_path / "*.csv", label="y")
    assert (values(data, "a"), data.classes.tolist()) == ([1.0, 2.5, 3.0], ["u", "v", "w"])
    write("y,a\nu,1\n", "two.csv")
    with pytest.raises(DataError, match=r"two.csv: column 1 is 'y', in the first file it is 'a'"):
        read_csv(tmp_path / "*.csv", label="y")
    write("a\n1\n", "two.csv")
    with pytest.raises(DataError, match=r"two.csv: it has 1 columns, the first file has 2"):
        read_csv(tmp_path / "*.csv", label="y")


def test_a_slip_among_labels_that_are_numbers_is_told(write):
    slip = write("x,y\n1,0\n2,1\n3,O\n4,1\n")
    with pytest.warns(UserWarning, match="f.csv: label 'y' is read as classes of text.*'O' is none"):
        data = read_csv(slip, label="y")
    assert list(data.classes) == ["0", "1", "O"]
    read_csv(slip, label="y", label_kind="classes")  # warnings are errors here
    read_csv(write("x,y\n1,a\n2,1\n3,b\n", "g.csv"), label="y")


def test_many_columns_are_compared_at_once(write):
    names = ",".join(f"c{i}" for i in range(50_000))
    with pytest.raises(DataError, match="two columns are named 'c7'"):
        read_csv(write(f"{names},c7\n{'1,' * 50_000}1\n"))
