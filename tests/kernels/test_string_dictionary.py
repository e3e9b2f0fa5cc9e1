from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall import _kernels as kernels

from .test_csv import column


def strings_of(dictionary):
    offsets, data = dictionary.to_arrays()
    assert (offsets.dtype, data.dtype) == (np.int64, np.uint8)
    raw = data.tobytes()
    return [raw[a:b].decode() for a, b in itertools.pairwise(offsets)]


def quoted(strings):
    return "".join('"' + s.replace('"', '""') + '"\n' for s in strings).encode()


words = st.lists(
    st.text(alphabet=st.characters(codec="utf-8"), max_size=4) | st.sampled_from(["a", "b", "?"])
)


@given(st.lists(words, max_size=4))
def test_codes_follow_first_sight_over_all_chunks(chunks):
    dictionary = kernels.StringDictionary()
    known: dict[str, int] = {}
    for chunk in chunks:
        codes = dictionary.encode(*column(quoted(chunk), n_columns=1), [b"?"])
        expected = [-1 if s == "?" else known.setdefault(s, len(known)) for s in chunk]
        assert codes.tolist() == expected
        assert codes.dtype == np.int32
    assert strings_of(dictionary) == list(known)
    assert len(dictionary) == len(known)


def test_many_strings():
    strings = [f"value {i}" for i in range(5000)]
    dictionary = kernels.StringDictionary()
    at = column(quoted(strings))
    for _ in range(2):
        assert dictionary.encode(*at, []).tolist() == list(range(5000))
    assert strings_of(dictionary) == strings


def test_merging_dictionaries():
    first, second = kernels.StringDictionary(), kernels.StringDictionary()
    first.encode(*column(b"a\nb\n"), [])
    second.encode(*column(b"c\nb\nd\n"), [])
    assert first.encode_strings(*second.to_arrays()).tolist() == [2, 1, 3]
    assert strings_of(first) == ["a", "b", "c", "d"]
    with pytest.raises(ValueError, match="offsets: string 1"):
        first.encode_strings(np.array([0, 1, 9]), b"ab")


def test_strip_and_other_quotes():
    dictionary = kernels.StringDictionary()
    text = b" a ;'b''c'\n"
    fields = kernels.csv_scan(text, ord(";"), ord("'"))
    for j in range(2):
        dictionary.encode(text, *fields[:3], j, 2, [], strip=True, quote=ord("'"))
    assert strings_of(dictionary) == ["a", "b'c"]


@given(st.binary(max_size=6))
def test_utf8_is_validated_as_python_does(raw):
    dictionary = kernels.StringDictionary()
    offsets = np.array([0, 2, 2 + len(raw)])
    try:
        raw.decode()
    except UnicodeDecodeError:
        with pytest.raises(ValueError, match="row 1: the text is not valid UTF-8"):
            dictionary.encode_strings(offsets, b"ok" + raw)
        assert strings_of(dictionary) == ["ok"]
    else:
        dictionary.encode_strings(offsets, b"ok" + raw)


@pytest.mark.parametrize(
    "raw",
    [b"\xc0\x80", b"\xc1\xbf", b"\xe0\x9f\xbf", b"\xed\xa0\x80", b"\xf0\x8f\xbf\xbf", b"\xf4\x90\x80\x80",
     b"\xf5\x80\x80\x80", b"\x80", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\xff", b"a\xc3("],
)  # fmt: skip
def test_malformed_utf8(raw):
    with pytest.raises(ValueError, match="row 0"):
        kernels.StringDictionary().encode(*column(raw, n_columns=1), [])


def test_threads_take_turns():
    from concurrent.futures import ThreadPoolExecutor

    dictionary = kernels.StringDictionary()
    at = column(quoted([f"{i % 700}" for i in range(3000)]))
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: dictionary.encode(*at, []).tolist(), range(8)))
    assert all(r == results[0] for r in results)
    assert len(dictionary) == 700


def test_begun_again():
    strings = [f"value {i}" for i in range(3000)]
    dictionary = kernels.StringDictionary()
    for chunk in (strings, strings[5:], ["a"], [], strings):
        assert dictionary.encode(*column(quoted(chunk), n_columns=1), []).tolist() == list(range(len(chunk)))
        assert strings_of(dictionary) == chunk
        assert dictionary.n_bytes == sum(array.nbytes for array in dictionary.to_arrays())
        dictionary.clear()
        assert (len(dictionary), dictionary.n_bytes) == (0, 8)


def test_strings_that_begin_alike():
    strings = ["", "a", "\0", "a\0", "12345678", "12345678\0", "123456789", "123456780", "1234567"]
    dictionary = kernels.StringDictionary()
    for _ in range(2):
        assert dictionary.encode(*column(quoted(strings), n_columns=1), []).tolist() == list(range(9))
