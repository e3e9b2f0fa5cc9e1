from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall._kernels import LibsvmParser

# Near the end of the text rows are read in another way, so each is read with this behind it and without.
FAR = b"#" + b" " * 200 + b"\n"

labels = st.sampled_from(["1", "-1", "+1", "0.5", "1e1", "", "x", "1,2", "9007199254740992"])
usual = ["1:1", "2:0.5", "3:1", "5:-1.25e3", "7:0.12345678901234567", "8:+.5", "9:5.", "11:1.0"]
odd = ["12345678:1", "123456789:2", "2147483648:1", "0:1", "2:3", "6:", "a:1", "4:1:1", "qid:3", ":1", "#"]
values = ["4:.", "4:1\x00", "4:0x1", "4:nan", "4:1234567890123456", "4:12345678901234567890123456789012345"]
entries = st.sampled_from(usual + odd + values)
blanks = st.sampled_from([" ", " ", " ", "  ", "\t"])
ends = st.sampled_from(["\n", "\n", "\r\n", " \n", " # c\n", "\r\r\n", "\r \n", "#\n"])


@st.composite
def lines(draw):
    tokens = [draw(labels), *draw(st.lists(entries, max_size=6))]
    return "".join(token + draw(blanks) for token in tokens[:-1]) + tokens[-1] + draw(ends)


def read(text, base=1, width=-1, duplicates="sum", skip=True):
    parser = LibsvmParser(base, base == 1, width, False, duplicates, skip, [])
    n = parser.feed(text)
    seen = parser.seen()
    arrays = [None if array is None else array.tolist() for array in parser.take()]
    return n, arrays, {name: what for name, what in seen.items() if name != "n_lines"}


@given(st.lists(lines(), max_size=5), st.sampled_from([0, 1]), st.sampled_from([-1, 9]), st.booleans())
def test_the_same_rows_near_the_end_and_far_from_it(rows, base, width, skip):
    text = "".join(rows).encode()
    near = read(text, base, width, "raise" if skip else "last", skip)
    far = read(text + FAR, base, width, "raise" if skip else "last", skip)
    assert near[1:] == far[1:]
    assert far[0] == (near[0] if near[0] < len(text) else len(text + FAR))


@given(st.lists(st.tuples(st.integers(0, 10**20), st.integers(0, 24), st.sampled_from("+- ")), min_size=1))
def test_values_are_rounded_once(numbers):
    digits = [(str(number).rjust(places + 1, "0"), places, sign) for number, places, sign in numbers]
    texts = [f"{sign.strip()}{d[: len(d) - p]}.{d[len(d) - p :]}" for d, p, sign in digits]
    row = "1 " + " ".join(f"{i}:{text}" for i, text in enumerate(texts, 1)) + "\n"
    _, (indptr, indices, values, codes, _), _ = read(row.encode() + FAR)
    expected = [float(text) for text in texts]
    assert (values or [1.0] * len(texts)) == expected
    assert (indptr, indices, codes) == ([0, len(texts)], list(range(len(texts))), [0])


@pytest.mark.parametrize("n", [1, 7, 40, 500])
def test_rows_longer_than_what_is_looked_at_together(n):
    text = b"".join(
        b"-1" + b"".join(b" %d:0.%d" % (i, i) for i in range(1, length + 1)) + b"\n" for length in (n, 0, n)
    )
    _, (indptr, indices, values, _, _), _ = read(text + FAR)
    assert indptr == [0, n, n, 2 * n]
    assert indices == [*range(n), *range(n)]
    assert values == [float(f"0.{i}") for i in range(1, n + 1)] * 2


def test_values_begin_with_the_first_that_is_not_1():
    text = b"1 1:1 2:1\n2 1:1\n1 3:1 4:0.5 5:1\n"
    assert read(text[:16] + FAR)[1][2] is None
    assert read(text + FAR)[1][2] == [1, 1, 1, 1, 0.5, 1]


def test_what_was_taken_stays_as_it_is_and_memory_comes_back():
    parser = LibsvmParser(1, True, -1, False, "raise", False, [])
    row = b"1 1:0.5 2:0.25\n" + FAR
    parser.feed(row)
    first = parser.take()
    parser.feed(b"2 7:3\n" + FAR)
    second = parser.take()
    assert [array.tolist() for array in first[:4]] == [[0, 2], [0, 1], [0.5, 0.25], [0]]
    assert [array.tolist() for array in second[:4]] == [[0, 1], [6], [3], [1]]
    places = [array.ctypes.data for array in second[:4]]
    del second
    parser.feed(row)
    assert [array.ctypes.data for array in parser.take()[:4]] == places


def test_nothing_was_read():
    parser = LibsvmParser(1, True, -1, False, "raise", False, [])
    indptr, indices, *others = parser.take()
    assert (indptr.tolist(), indices.tolist(), others) == ([0], [], [None, None, None])
    assert (indptr.dtype, indices.dtype) == (np.int64, np.int32)
