from __future__ import annotations

import csv
import gzip
import io
import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall import _kernels as kernels


def rows_of(text: bytes, fields: kernels.CsvFields, quote: int = 34) -> list[list[bytes]]:
    return [
        [kernels.csv_text(text, fields, i, j, quote) for j in range(fields.n_columns)]
        for i in range(fields.n_rows)
    ]


def scan_in_pieces(text: bytes, cuts, n_columns=0):
    """Read a file piece by piece, as a caller does; returns rows, their lines and the error (absolute)."""
    rows, lines, line, pending = [], [], 0, b""
    edges = [0, *sorted(cuts), len(text)]
    for begin, end in itertools.pairwise(edges):
        pending += text[begin:end]
        fields = kernels.csv_scan(pending, n_columns=n_columns, is_last=end == len(text))
        found = rows_of(pending, fields)
        if fields.error is not None:
            error = fields.error
            return (
                rows + found,
                lines + (fields.lines + line).tolist(),
                (error.kind, error.row + len(rows), error.line + line, error.found),
            )
        rows += found
        lines += (fields.lines + line).tolist()
        line += fields.n_lines
        n_columns = fields.n_columns
        pending = pending[fields.consumed :]
    assert pending == b""
    return rows, lines, None


def column(text: bytes, **options):
    """The arguments of the column functions for a text of one column."""
    fields = kernels.csv_scan(text, **options)
    assert fields.error is None
    return text, fields.starts, fields.ends, fields.flags, 0, fields.n_columns


TABLES = {
    "plain": b"a,b\n1,2\n",
    "crlf": b"a,b\r\n1,2\r\n",
    "no final newline": b"a,b\n1,2",
    "ends in CR": b"a,b\r\n1,2\r",
    "blank lines": b"\n\r\na,b\n\n\r\n1,2\n\n",
    "quoted newline": b'a,"x\ny"\n1,"\r\n"\n',
    "quoted separator": b'a,"x,y"\n",",2\n',
    "doubled quotes": b'a,"say ""hi"""\n"""",""\n',
    "empty fields": b",\n,\n",
    "empty last field at the end": b"a,b\n1,",
    "quote within a field": b'a,b"c\n1"2,"3"\n',
    "lone CR": b"a\rb,c\n\r1,2\n",
    "utf-8": "é,ß\n\N{GRINNING FACE},\u4e2d\n".encode(),
    "last field quoted at the end": b'a,b\n1,"2"',
}
EXPECTED = {
    "ends in CR": [[b"a", b"b"], [b"1", b"2"]],
    "lone CR": [[b"a\rb", b"c"], [b"\r1", b"2"]],  # Python's module has no such notion
}


@pytest.mark.parametrize("name", TABLES)
def test_traps_split_everywhere(name):
    text = TABLES[name]
    expected = EXPECTED.get(name)
    if expected is None:
        reader = csv.reader(io.StringIO(text.decode(), newline=""), strict=True)
        expected = [[field.encode() for field in row] for row in reader if row]
    whole = scan_in_pieces(text, [])
    assert whole[0] == expected
    assert whole[2] is None
    for cut in range(len(text) + 1):
        assert scan_in_pieces(text, [cut]) == whole
    assert scan_in_pieces(text, range(len(text))) == whole


cells = st.text(alphabet='ab1,"\n \té\r', max_size=5)
matrices = st.integers(1, 4).flatmap(
    lambda k: st.lists(st.lists(cells, min_size=k, max_size=k), min_size=1, max_size=5)
)


@given(
    matrices, st.sampled_from(["\n", "\r\n"]), st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]), st.data()
)
def test_what_pythons_csv_writes_is_read(matrix, line_end, quoting, data):
    if quoting == csv.QUOTE_MINIMAL:  # Python does not quote a CR, which at the end of a record joins the LF
        matrix = [[cell.replace("\r", "") for cell in row] for row in matrix]
    out = io.StringIO()
    csv.writer(out, lineterminator=line_end, quoting=quoting).writerows(matrix)
    text = out.getvalue().encode()
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=4))
    rows, lines, error = scan_in_pieces(text, cuts)
    assert error is None
    assert rows == [[cell.encode() for cell in row] for row in matrix]
    starts, at = [], 0
    for row in matrix:
        starts.append(at)
        at += sum(cell.count("\n") for cell in row) + 1
    assert lines == starts


@given(st.text(alphabet='a,"\n\r', max_size=12), st.data())
def test_any_text_reads_as_pythons_strict_reader_does(text, data):
    """Same rows, same refusals, wherever the file is cut."""
    raw = text.encode()
    result = scan_in_pieces(raw, [])
    cuts = data.draw(st.lists(st.integers(0, len(raw)), max_size=4))
    assert scan_in_pieces(raw, cuts) == result
    rows, _, error = result
    if "\r" in text.replace("\r\n", ""):
        return  # Python takes a lone CR for a line end
    try:
        expected = [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row]
    except csv.Error:
        assert error is not None
        return
    width = len(expected[0]) if expected else 0
    good = next((i for i, row in enumerate(expected) if len(row) != width), len(expected))
    assert rows == [[field.encode() for field in row] for row in expected[:good]]
    if good == len(expected):
        assert error is None
    else:
        assert error is not None
        assert (error[0], error[1], error[3]) == ("fields", good, len(expected[good]))


def test_wrong_number_of_fields_is_data():
    text = b'a,b\n\n"x\ny",2\n1,2,3\n4,5\n'
    fields = kernels.csv_scan(text)
    assert fields.n_rows == 2
    assert fields.error == kernels.CsvError("fields", 2, 4, 3)
    assert text[fields.consumed :] == b"1,2,3\n4,5\n"
    assert fields.lines.tolist() == [0, 2]
    assert fields.n_lines == 4
    assert kernels.csv_scan(b"a\n", n_columns=2).error == kernels.CsvError("fields", 0, 0, 1)


def test_unterminated_quote():
    text = b'a,b\n1,"x\n2,y\n'
    assert kernels.csv_scan(text).error == kernels.CsvError("unterminated", 1, 1, 0)
    fields = kernels.csv_scan(text, is_last=False)
    assert fields.error is None
    assert fields.consumed == 4


def test_text_after_a_closing_quote():
    assert kernels.csv_scan(b'a,b\n"x\n"y,2\n').error == kernels.CsvError("quote", 1, 2, 0)


def test_a_quote_never_closed_does_not_eat_the_file():
    text = b'a,b\n1,"x\n' + b"2,y\n" * 50
    fields = kernels.csv_scan(text, is_last=False, max_field=100)
    assert fields.error == kernels.CsvError("long", 1, 1, 1)
    whole = kernels.csv_scan(b"a,b\n1," + b"x" * 101 + b"\n", max_field=100)
    assert whole.error == kernels.CsvError("long", 1, 1, 1)
    assert kernels.csv_scan(b"a,b\n1," + b"x" * 100 + b"\n", max_field=100).error is None


def test_other_delimiters_and_no_quotes():
    text = b'a\tb"\n"1\t2\n'
    fields = kernels.csv_scan(text, delimiter=ord("\t"), quote=0)
    assert rows_of(text, fields) == [[b"a", b'b"'], [b'"1', b"2"]]
    text = b"'a;b';c''\n"
    fields = kernels.csv_scan(text, delimiter=ord(";"), quote=ord("'"))
    assert rows_of(text, fields, ord("'")) == [[b"a;b", b"c''"]]


def test_nothing():
    for text in (b"", b"\n", b"\r\n\n", b"\r"):
        fields = kernels.csv_scan(text)
        assert (fields.n_rows, fields.consumed, fields.error) == (0, len(text), None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delimiter": 10}, "delimiter"),
        ({"delimiter": 300}, "delimiter"),
        ({"delimiter": 0}, "delimiter"),
        ({"quote": 44}, "quote"),
        ({"quote": 13}, "quote"),
        ({"n_columns": -1}, "n_columns"),
        ({"max_field": 0}, "max_field"),
    ],
)
def test_scan_settings_are_checked(options, message):
    with pytest.raises(ValueError, match=f"{message}:"):
        kernels.csv_scan(b"a,b\n", **options)


# ---------------------------------------------------------------------------------------------- numbers


KINDS = {
    "integer": [b"0", b"-0", b"+7", b"007", b"-9223372036854775808", b"9223372036854775807"],
    "float": [
        b"1.5", b".5", b"5.", b"-1e-3", b"+2E+5", b"1e-400", b"-0.0", b"1e308", b"0e99999999999999999999",
        b"9223372036854775808", b"18446744073709551616", b"-1" + b"0" * 22, b"0.000" + b"1" * 400,
    ],
    "text": [
        b"x", b"", b" 1", b"1 ", b"inf", b"-inf", b"nan", b"NAN", b"nan(1)", b"infinity", b"0x10", b"0x1p3",
        b"1_000", b"1e", b"1e+", b"+-1", b"--1", b"+", b"-", b".", b"-.", b"1.2.3", b"1e400", b"1,5",
        b"-1e99999999999", b"9223372036854775809", b"1" * 400, b"1\x002",
        "\N{ARABIC-INDIC DIGIT ONE}".encode(),
    ],
}  # fmt: skip


@pytest.mark.parametrize(("kind", "token"), [(k, t) for k, tokens in KINDS.items() for t in tokens])
def test_kinds_and_values(kind, token):
    quoted = column(b'"' + token + b'"')
    evidence, first_text = kernels.csv_classify(*quoted, [])
    assert kernels.csv_kind(evidence) == kind
    assert first_text == (0 if kind == "text" else -1)
    values, missing, first_bad = kernels.csv_parse_int64(*quoted, [])
    assert (first_bad == -1) == (kind == "integer")
    assert not missing[0]
    if kind == "integer":
        assert int(values[0]) == int(token)
    reals, first_bad = kernels.csv_parse_float64(*quoted, [])
    exact = kind == "float" or (kind == "integer" and int(float(token)) == int(token))
    assert (first_bad == -1) == exact
    if exact:
        assert reals[0] == float(token)
        assert math.copysign(1, reals[0]) == math.copysign(1, float(token)) or kind == "integer"


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_floats_are_exact(numbers):
    text = "\n".join(repr(x) for x in numbers).encode()
    values, first_bad = kernels.csv_parse_float64(*column(text), [])
    assert first_bad == -1
    assert values.tobytes() == np.array(numbers).tobytes() or values.tolist() == numbers


@given(st.integers(-(2**80), 2**80))
def test_integers_are_never_rounded(number):
    text = column(str(number).encode())
    evidence, _ = kernels.csv_classify(*text, [])
    values, _, first_bad = kernels.csv_parse_int64(*text, [])
    reals, real_bad = kernels.csv_parse_float64(*text, [])
    fits, exact = -(2**63) <= number < 2**63, int(float(number)) == number
    assert kernels.csv_kind(evidence) == ("integer" if fits else "float" if exact else "text")
    assert (first_bad == -1) == fits
    assert not fits or int(values[0]) == number
    assert (real_bad == -1) == exact
    assert not exact or int(reals[0]) == number


def test_the_kind_is_decided_over_all_chunks():
    def evidence(text):
        return kernels.csv_classify(*column(text), [b"", b"NA"], False)[0]

    wide = evidence(b"9007199254740993\n1")
    assert kernels.csv_kind(wide) == "integer"
    assert kernels.csv_kind(evidence(b"1.5\n2")) == "float"
    assert kernels.csv_kind(evidence(b"1.5\n2") | evidence(b"3")) == "float"
    assert kernels.csv_kind(wide | evidence(b"1.5")) == "text"
    assert kernels.csv_kind(evidence(b"1") | evidence(b"x")) == "text"
    assert kernels.csv_kind(evidence(b"NA\nNA")) == "missing"
    assert kernels.csv_kind(evidence(b"NA") | evidence(b"4")) == "integer"


def test_missing_and_strip():
    text = b'a,b\n 1 ,x\n ? ,x\n"?",x\n,x\n" 4",x\n'
    fields = kernels.csv_scan(text)
    at = text, fields.starts, fields.ends, fields.flags, 0, 2
    evidence, first_text = kernels.csv_classify(*at, [b"a", b"?", b""], True)
    assert first_text == 5  # quoted text keeps its spaces
    assert evidence == kernels.CSV_INTEGER | kernels.CSV_TEXT
    values, missing, first_bad = kernels.csv_parse_int64(*at, [b"a", b"?", b"", b" 4"], True)
    assert (values.tolist(), first_bad) == ([0, 1, 0, 0, 0, 0], -1)
    assert missing.tolist() == [True, False, True, True, True, True]
    reals, first_bad = kernels.csv_parse_float64(*at, [b"a", b"?", b""], False)
    assert first_bad == 1
    assert np.isnan(reals).all()
    with pytest.raises(TypeError, match="missing"):
        kernels.csv_classify(*at, ["a"], True)


def test_missing_tokens_are_compared_unescaped():
    at = column(b'"a""b"\n1')
    assert kernels.csv_classify(*at, [b'a"b']) == (kernels.CSV_INTEGER, -1)


BAD_FIELDS = [
    ({"starts": [0, -1]}, ValueError, "starts, ends: row 1"),
    ({"ends": [1, 99]}, ValueError, "starts, ends: row 1"),
    ({"ends": [1, 1]}, ValueError, "starts, ends: row 1"),
    ({"ends": [1]}, ValueError, "ends: has length 1"),
    ({"column": 1}, IndexError, "column: 1"),
    ({"column": -1}, IndexError, "column: -1"),
    ({"n_columns": 0}, ValueError, "n_columns: is 0"),
    ({"n_columns": 3}, ValueError, "starts: has 2 fields"),
]


@pytest.mark.parametrize(("change", "error", "message"), BAD_FIELDS)
def test_field_positions_are_checked(change, error, message):
    good = {
        "buffer": b"1\n2\n", "starts": [0, 2], "ends": [1, 3], "column": 0, "n_columns": 1, "missing": [],
    } | change  # fmt: skip
    good["starts"] = np.array(good["starts"], np.int32)
    good["ends"] = np.array(good["ends"], np.int32)
    good["flags"] = np.zeros(2, np.uint8)
    parsers = kernels.csv_classify, kernels.csv_parse_int64, kernels.csv_parse_float64
    for parser in (*parsers, kernels.StringDictionary().encode):
        with pytest.raises(error, match=message):
            parser(**good)


def test_buffers_of_every_kind():
    text = b"1\n2\n"
    for buffer in (text, bytearray(text), memoryview(text), np.frombuffer(text, np.uint8)):
        fields = kernels.csv_scan(buffer)
        values, _, _ = kernels.csv_parse_int64(buffer, *fields[:3], 0, 1, [])
        assert values.tolist() == [1, 2]


def test_the_census_file_against_pandas():
    pandas = pytest.importorskip("pandas")
    path = Path(__file__).parents[2] / "examples" / "data" / "adult.csv.gz"
    if not path.exists():
        pytest.skip("the census file is not here")
    text = gzip.decompress(path.read_bytes())
    fields = kernels.csv_scan(text)
    frame = pandas.read_csv(io.BytesIO(text), na_values=["?"])
    assert fields.n_rows == len(frame) + 1
    body = [a[fields.n_columns :] for a in fields[:3]]
    for j, name in enumerate(frame.columns):
        at = text, *body, j, fields.n_columns, [b"?"], True
        kind = kernels.csv_kind(kernels.csv_classify(*at)[0])
        assert kind == ("integer" if frame[name].dtype.kind == "i" else "text")
        if kind == "integer":
            np.testing.assert_array_equal(kernels.csv_parse_int64(*at)[0], frame[name])


@given(st.integers(0, 2**64), st.integers(-32, 32), st.integers(0, 3))
def test_digits_and_powers_of_ten_are_rounded_once(digits, power, zeros):
    texts = [f"{digits}e{power}", f"-0.{'0' * zeros}{digits}e{power}", f"{digits}.{digits}e{power}"]
    values, first_bad = kernels.csv_parse_float64(*column("\n".join(texts).encode()), [])
    assert (first_bad, values.tolist()) == (-1, [float(text) for text in texts])


@pytest.mark.parametrize("tie", [2**53 + 1, 2**54 + 2, 2**54 + 6, 3 * 2**53 + 1])
def test_ties_go_to_even(tie):
    texts = [f"{tie}.0", f"{tie * 10}e-1", f"{tie}0e-1", f"{tie}.{'0' * 30}1", f"{tie // 2}.5"]
    values, _ = kernels.csv_parse_float64(*column("\n".join(texts).encode()), [])
    assert values.tolist() == [float(text) for text in texts]


# ---------------------------------------------------------------------------------------------- columns


fields = st.text(alphabet='01-. e?é"', max_size=12)


@given(st.lists(st.tuples(*[fields] * 4), min_size=1, max_size=80), st.integers(0, 2))
def test_columns_at_once_as_one_by_one(rows, first_row):
    text = "\n".join(",".join('"' + f.replace('"', '""') + '"' for f in row) for row in rows).encode()
    scanned = kernels.csv_scan(text)
    spans, missing = (text, *scanned[:3]), [b"?", b""]
    n, end = len(rows), len(rows) + first_row
    outs = [np.zeros(end), np.zeros(end, np.int64), np.zeros(end, np.int32), np.zeros((end, 2), np.int32)]
    dictionary, prefix = kernels.StringDictionary(), "café=".encode()
    hows = [None, None, dictionary, (prefix, 1000)]
    columns = list(zip(range(4), [*outs[:3], outs[3][:, 1]], hows, strict=True))
    found = kernels.csv_read_columns(*spans, 4, missing, True, 34, columns, first_row)

    reals, bad_real = kernels.csv_parse_float64(*spans, 0, 4, missing, True)
    np.testing.assert_array_equal(outs[0][first_row:], reals)
    integers, absent, bad_integer = kernels.csv_parse_int64(*spans, 1, 4, missing, True)
    assert outs[1][first_row:].tolist() == integers.tolist()
    bad = [row for row in (*np.flatnonzero(absent).tolist(), bad_integer) if row >= 0]
    known = kernels.StringDictionary()
    codes = known.encode(*spans, 2, 4, missing, True)
    assert outs[2][first_row:].tolist() == codes.tolist()
    texts = ["" if row[3] == "?" else row[3] for row in rows]
    hashes = [kernels.murmur3_32(prefix + t.encode()) % 1000 for t in texts]
    assert outs[3][first_row:].tolist() == [[0, h] for h in hashes]
    assert [what[1] for what in found] == [bad_real, min(bad, default=-1), -1, -1]
    assert bool(found[0][0]) == any(row[0] not in ("?", "") for row in rows)
    assert not any(out[:first_row].any() for out in outs)
    assert n == scanned.n_rows


numbers = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.integers(-(2**70), 2**70).map(str),
    st.tuples(st.integers(-(10**17), 10**17), st.integers(0, 17)).map(lambda n: f"{n[0]}.{n[1]}"),
    st.text(alphabet="0123456789.-+e", max_size=34),
)


@given(st.lists(numbers, min_size=1), st.lists(st.text(alphabet="01?é ", max_size=20), min_size=1))
def test_fields_are_read_alike_near_the_end_and_far_from_it(numbers, texts):
    n = min(len(numbers), len(texts))
    text = "".join(f"{a},{a},{b}\n" for a, b in zip(numbers, texts, strict=False)).encode()
    results = []
    for more in (b"", b"0,0," + b"0" * 40 + b"\n"):
        scanned = kernels.csv_scan(text + more)
        outs = [np.zeros(n + 1), np.zeros(n + 1, np.int64), np.zeros(n + 1, np.int32)]
        columns = list(zip(range(3), outs, [None, None, (b"name=", 999)], strict=True))
        found = kernels.csv_read_columns(
            text + more, *scanned[:3], 3, [b"", b"?", b"1.5"], True, 34, columns, 0
        )
        results.append(([out[:n].tobytes() for out in outs], [bad for _, bad in found]))
    assert results[0] == results[1]
    reals, integers = (np.frombuffer(raw, t) for raw, t in zip(results[0][0], "dq", strict=False))
    for number, real, integer in zip(numbers, reals, integers, strict=False):
        kind, exact = kernels.csv_classify(*column(f'"{number}"\n'.encode()), [])[0], not math.isnan(real)
        assert not exact or float(number).hex() == float(real).hex()
        assert exact == (kind in (kernels.CSV_INTEGER, kernels.CSV_FLOAT) and number != "1.5")
        assert integer == (int(number) if kind in (kernels.CSV_INTEGER, kernels.CSV_WIDE_INTEGER) else 0)


@pytest.mark.parametrize("prefix", [b"", b"a", b"ab", b"abc", b"C1=", b"abcdefg", b"abcdefgh"])
def test_slots_of_texts_of_any_length(prefix):
    texts = [b"0123456789abcdefghi"[:n] for n in range(19)]
    text = b"".join(b"%s\t%s\n" % (t, t) for t in texts) + b"x" * 20 + b"\tx\n"
    scanned = kernels.csv_scan(text, 9)
    outs = np.zeros((2, len(texts) + 1), np.int32)
    columns = [(i, outs[i], (prefix, 1 + 10**9 * i)) for i in range(2)]
    kernels.csv_read_columns(text, *scanned[:3], 2, [b"?"], True, 34, columns, 0)
    assert not outs[0].any()
    assert outs[1, :-1].tolist() == [kernels.murmur3_32(prefix + t) % (1 + 10**9) for t in texts]


def test_what_integers_were_seen_to_be():
    text = b"1\n-9007199254740993\n"
    scanned = kernels.csv_scan(text)
    out = np.zeros(2, np.int64)
    found = kernels.csv_read_columns(text, *scanned[:3], 1, [], True, 34, [(0, out, None)], 0)
    assert found == [(kernels.CSV_INTEGER | kernels.CSV_WIDE_INTEGER, -1)]
    assert out.tolist() == [1, -9007199254740993]


@pytest.mark.parametrize(
    ("column", "first_row", "error", "message"),
    [
        ((0, np.zeros(1), None), 0, ValueError, "out: has 1 elements, rows 0 to 2"),
        ((0, np.zeros(3), None), 2, ValueError, "out: has 3 elements, rows 2 to 4"),
        ((0, np.zeros(3), None), -1, ValueError, "out: has 3 elements, rows -1"),
        ((0, np.zeros(2, np.float32), None), 0, TypeError, "out: dtype is float32"),
        ((0, np.zeros(2, np.int64), (b"x=", 8)), 0, TypeError, "out: dtype is int64"),
        ((0, np.zeros(2), "text"), 0, TypeError, "columns: a StringDictionary"),
        ((0, np.zeros(2, np.int32), (b"x=", 0)), 0, ValueError, "n_slots: is 0"),
        ((0, np.zeros(2, np.int32), (b"x=", 2**31)), 0, ValueError, "n_slots: is 2147483648"),
        ((0, np.zeros(2, np.int32), (b"x=", "y")), 0, TypeError, "prefix, n_slots"),
        ((1, np.zeros(2), None), 0, IndexError, "column: 1"),
        ((0, np.zeros(2)), 0, ValueError, "columns: .column, out, how."),
    ],
)
def test_places_for_columns_are_checked(column, first_row, error, message):
    text = b"1\n2\n"
    scanned = kernels.csv_scan(text)
    with pytest.raises(error, match=message):
        kernels.csv_read_columns(text, *scanned[:3], 1, [], True, 34, [column], first_row)


@pytest.mark.parametrize("is_hashed", [False, True])
def test_columns_of_text_are_utf8(is_hashed):
    how = (b"x=", 8) if is_hashed else kernels.StringDictionary()
    text = b"ascii and long\n\xff\n"
    scanned = kernels.csv_scan(text)
    with pytest.raises(ValueError, match="row 1: the text is not valid UTF-8"):
        kernels.csv_read_columns(text, *scanned[:3], 1, [], True, 34, [(0, np.zeros(2, np.int32), how)], 0)
