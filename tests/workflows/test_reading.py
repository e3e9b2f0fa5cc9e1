"""Text parsed by functions over byte ranges."""

from __future__ import annotations

import numpy as np
import pytest

import squall
from squall.data import parsing, pieces
from squall.errors import DataError


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """What is large, and a piece, in these tests."""
    monkeypatch.setattr(parsing, "LARGE_BYTES", 1)
    monkeypatch.setattr(pieces, "PIECE_BYTES", 3000)


@pytest.fixture
def svm(tmp_path):
    path = tmp_path / "f.svm"
    path.write_text("".join(f"{i % 2} {i % 97 + 1}:{i}.25 200:1\n" for i in range(1000)))
    return path


def read_here(read, path, storage, **settings):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parsing, "LARGE_BYTES", 1 << 40)
        return read(path, storage=storage, **settings)


def test_functions_read_what_this_process_reads(svm, tmp_path, monkeypatch):
    expected = read_here(squall.read_libsvm, svm, tmp_path / "here").to_arrays()
    monkeypatch.setattr("squall.data.libsvm_format.LibsvmFormat.parse", lambda *_: pytest.fail("parsed here"))
    data = squall.read_libsvm([svm, svm])
    X, y = data.to_arrays()
    n = len(expected[1])
    assert len(data) == 2 * n and len(list(data.blocks())) > 10
    assert data.bill.invocations > 10 and data.bill.total_usd > data.bill.compute_usd > 0
    assert f"{data.bill.invocations} invocations for $0.0" in str(data.split(0.5)[0].info())
    assert data.concat(data).bill == data.bill + data.bill
    assert squall.read_libsvm([svm, svm]).bill is None, "it was read before"
    for half in (slice(0, n), slice(n, None)):
        assert (X[half] != expected[0]).nnz == 0
        np.testing.assert_array_equal(y[half], expected[1])


def test_quoted_line_ends_and_a_kind_that_shows_late(tmp_path):
    rows = [f'{i},"{"a" * (i % 5)}\n""{i},",{i % 3}' for i in range(900)]
    rows[800] = '1.5,"\n",2'
    path = tmp_path / "f.csv"
    path.write_text("n,s,y\n" + "\n".join(rows))
    expected = read_here(squall.read_csv, path, tmp_path / "here", label="y")
    data = squall.read_csv(path, label="y")
    assert len(list(data.blocks())) > 3
    assert data.to_pandas().equals(expected.to_pandas())
    assert data.columns == expected.columns and data.columns[0].kind == "float64"


def test_an_error_in_a_function_names_the_line_of_the_file(svm):
    lines = svm.read_text().splitlines()
    lines[700] = "1 1:x"
    lines[900] = "1 1:y"
    svm.write_text("\n".join(lines))
    with pytest.raises(DataError, match=r"f.svm:701:3: expected a finite number"):
        squall.read_libsvm(svm)
    with pytest.warns(UserWarning, match=r"2 rows were skipped(.|\n)*f.svm:701:3(.|\n)*f.svm:901:3"):
        assert len(squall.read_libsvm(svm, errors="skip")) == 998
