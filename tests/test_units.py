from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall.errors import SettingError
from squall.units import (
    format_count,
    format_duration,
    format_money,
    format_size,
    parse_duration,
    parse_money,
    parse_size,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("90 s", 90),
        ("10min", 600),
        ("10 min", 600),
        ("10MIN", 600),
        ("  10min  ", 600),
        ("5m", 300),
        ("1h30min", 5400),
        ("1 h 30 min", 5400),
        ("1.5h", 5400),
        (".5h", 1800),
        ("1d", 86400),
        ("250ms", 0.25),
        (12, 12),
        (0.5, 0.5),
        (np.int64(12), 12),
        (np.float32(0.5), 0.5),
    ],
)
def test_durations(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "", "s", "10", "10 minutes or so", "-5s", "- 5s", "1h30", "1h-30min", "1e3s", "10mim", "0s", "nans",
        "5 s 3", "min10", "9" * 400 + "s", 0, -1, float("nan"), float("inf"), 10**400, True, None, [10],
        b"10s", np.True_,
    ],
)  # fmt: skip
def test_what_is_no_duration(text):
    with pytest.raises(SettingError, match=r'is not a duration\n  fix: .*"10min"'):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1769MB", 1769 * 2**20),
        ("1769 MB", 1769 * 2**20),
        ("1769mb", 1769 * 2**20),
        ("1769MiB", 1769 * 2**20),
        ("1.5GB", 3 * 2**29),
        ("10kB", 10240),
        ("3B", 3),
        ("2TB", 2**41),
        (4096, 4096),
        (np.int64(4096), 4096),
    ],
)
def test_sizes(text, size):
    assert parse_size(text) == size
    assert type(parse_size(text)) is int


@pytest.mark.parametrize(
    "text",
    [
        "", "GB", "512", "-1GB", "512MB 1kB", "512 megabytes", "0MB", "0.1B", "1e3MB", "nanMB",
        "9" * 400 + "GB", 0, -1, 1.5, 2.0, float("nan"), True, None, [1], b"1MB",
    ],
)  # fmt: skip
def test_what_is_no_size(text):
    with pytest.raises(SettingError, match=r'is not a size\n  fix: .*"512MB"'):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "dollars"),
    [
        ("$0.25", 0.25),
        ("$ 0.25", 0.25),
        (" $.25 ", 0.25),
        ("0.25 USD", 0.25),
        ("0.25usd", 0.25),
        ("3", 3),
        ("$1,234.50", 1234.5),
        ("1,234,567", 1234567),
        (3, 3),
        (0.25, 0.25),
        (np.float64(0.25), 0.25),
    ],
)
def test_money(text, dollars):
    assert parse_money(text) == dollars


@pytest.mark.parametrize(
    "text",
    [
        "", "$", "USD", "0.25 EUR", "€0.25", "-$1", "$-1", "$0", "1 dollar", "$1,23", "$1,2345", "$,123",
        "$1.2.3", "nan", "inf", 0, -0.01, float("nan"), float("inf"), 10**400, True, None, [1],
    ],
)  # fmt: skip
def test_what_is_no_money(text):
    with pytest.raises(SettingError, match=r'is not an amount of money\n  fix: .*"\$0.25"'):
        parse_money(text)


@given(st.text(alphabet="0123456789.,$ -+eEsminhdkKMGTBUSDnaf\n", max_size=12))
def test_any_text_is_a_positive_number_or_a_setting_error(text):
    for parse in (parse_duration, parse_size, parse_money):
        try:
            assert 0 < parse(text) < float("inf")
        except SettingError as error:
            assert repr(text) in str(error)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.42, "0.42 s"),
        (12.34, "12.3 s"),
        (245, "4 min 05 s"),
        (3599.6, "1 h 00 min"),
        (7380, "2 h 03 min"),
    ],
)
def test_formatted_durations(seconds, text):
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [(812, "812 B"), (1536, "1.5 kB"), (10 * 2**20, "10 MB"), (2.3 * 2**30, "2.3 GB"), (2**41, "2048 GB")],
)
def test_formatted_sizes(size, text):
    assert format_size(size) == text


@pytest.mark.parametrize(
    ("dollars", "text"),
    [(0, "$0"), (0.000123, "$0.000123"), (0.025, "$0.0250"), (1.25, "$1.25"), (1234.5, "$1,234.50")],
)
def test_formatted_money(dollars, text):
    assert format_money(dollars) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0"), (812, "812"), (12_300, "12.3 k"), (4_500_000, "4.5 M"), (2e9, "2 G")]
)
def test_formatted_counts(count, text):
    assert format_count(count) == text


@given(st.floats(0.01, 1e7))
def test_a_formatted_duration_reads_back(seconds):
    shown = format_duration(seconds)
    last_digit = 0.01 if seconds < 10 else 0.1 if seconds < 100 else 1 if seconds < 3599 else 61
    assert parse_duration(shown) == pytest.approx(seconds, abs=last_digit)


@given(st.integers(1, 2**50))
def test_a_formatted_size_reads_back(size):
    assert parse_size(format_size(size)) == pytest.approx(size, rel=0.06)


@given(st.floats(1e-8, 1e9))
def test_formatted_money_reads_back(dollars):
    assert parse_money(format_money(dollars)) == pytest.approx(dollars, rel=0.06)


@given(st.integers(0, 99), st.integers(0, 59), st.integers(0, 59), st.integers(1, 999))
def test_parts_of_a_duration_add_up(hours, minutes, seconds, milliseconds):
    text = f"{hours}h{minutes}min{seconds}s{milliseconds}ms"
    assert parse_duration(text) == pytest.approx(hours * 3600 + minutes * 60 + seconds + milliseconds / 1e3)
    assert parse_duration(re.sub(r"(\d+)", r" \1 ", text)) == parse_duration(text)
