from __future__ import annotations

import csv
import io
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall.data import pieces
from squall.data.csv_chunks import read_records
from squall.data.csv_format import CsvFormat
from squall.data.dialects import Dialect
from squall.data.finding import local_file
from squall.data.libsvm_format import LibsvmFormat
from squall.data.skipped import Skipped
from squall.data.streams import Piece

from .blocks import quick

DIALECT = Dialect(header=False, delimiter=ord(","), missing=[])


def here(fn, items):
    return [fn(item) for item in items]


def records(path, cuts: list[int], n_columns: int, dialect: Dialect = DIALECT, stretch: int = 7) -> list:
    """All fields of a file that is read in pieces."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "_CHUNK_BYTES", stretch)
        parts = pieces.split_csv(dialect, local_file(path), cuts, here)
    assert parts[0].start == 0 and parts[-1].stop == path.stat().st_size
    assert all(a.stop == b.start for a, b in itertools.pairwise(parts))
    return [
        [chunk.text(row, column) for column in range(n_columns)]
        for part in parts
        for chunk in read_records(part, dialect, n_columns, Skipped(False))
        for row in range(chunk.n_rows)
    ]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("bom", ["", "\ufeff"])
def test_a_split_at_every_byte_gives_the_same_records(tmp_path, end, bom):
    text = '"a ""q""",1\n"two\nlines,",2\n\nplain "5""",3\n"","\n"\n"x,\n""\n",5\n"""",6\nlast,7'
    path = tmp_path / "f.csv"
    path.write_bytes((bom + text.replace("\n", end)).encode())
    expected = list(csv.reader(io.StringIO(text.replace("\n", end), newline="")))
    expected = [row for row in expected if row]
    size = path.stat().st_size
    for cut in range(1, size):
        assert records(path, [cut], 2) == expected, cut
        assert records(path, [cut, *range(cut + 3, size, 5)], 2) == expected, cut


fields = st.text(st.sampled_from('a",\n\r'), max_size=5)


@quick
@given(
    st.integers(1, 3).flatmap(
        lambda n: st.lists(st.lists(fields, min_size=n, max_size=n), min_size=1, max_size=9)
    ),
    st.lists(st.integers(1, 150), max_size=6),
    st.booleans(),
    st.integers(1, 9),
)
def test_any_cuts_give_what_pythons_csv_reads(tmp_path_factory, rows, cuts, minimal, stretch):
    if minimal:  # which leaves a carriage return as it is
        rows = [[field.replace("\r", "") for field in row] for row in rows]
    out = io.StringIO(newline="")
    quoting = csv.QUOTE_MINIMAL if minimal else csv.QUOTE_ALL
    csv.writer(out, quoting=quoting, lineterminator="\n").writerows(rows)
    path = tmp_path_factory.mktemp("p") / "f.csv"
    path.write_text(out.getvalue(), newline="")
    places = sorted({c for c in cuts if c < path.stat().st_size})
    assert records(path, places, len(rows[0]), stretch=stretch) == rows


def test_without_quoting_a_quote_opens_nothing(tmp_path):
    path = tmp_path / "f.csv"
    path.write_text('"a,1\nb",2\n"c,3\n')
    plain = Dialect(header=False, delimiter=ord(","), missing=[], quote=0)
    for cut in range(1, path.stat().st_size):
        assert records(path, [cut], 2, plain) == [['"a', "1"], ['b"', "2"], ['"c', "3"]]


def test_inputs_are_grouped_in_their_order(tmp_path, monkeypatch):
    monkeypatch.setattr(pieces, "PIECE_BYTES", 100)
    sizes = [30, 450, 20, 20, 90]
    for i, size in enumerate(sizes):
        (tmp_path / f"{i}").write_text(("1 1:1\n" * 100)[:size])
    sources = [local_file(tmp_path / f"{i}") for i in range(len(sizes))]
    for form in (LibsvmFormat(1, None), CsvFormat(Dialect(False, ord(" "), []))):
        groups = pieces.grouped_pieces(sources, form.split, here)
        flat = [piece for group in groups for piece in group]
        assert [piece.source for piece in flat] == sorted(
            [piece.source for piece in flat], key=lambda s: int(s.name.rpartition("/")[2])
        )
        assert sum(piece.n_bytes for piece in flat) == sum(sizes)
        assert len(flat) == len(sizes) + 4
        assert [[piece.source for piece in group] for group in groups] == [
            sources[:1], *[sources[1:2]] * 5, sources[2:4], sources[4:]
        ]  # fmt: skip
        assert max(piece.n_bytes for piece in flat) - min(piece.n_bytes for piece in flat[1:6]) <= 6


def test_a_split_gives_the_same_blocks_of_typed_columns(tmp_path):
    text = "n,s,y\n" + "".join(f'{i}.5,"w{i % 7}\n",{i % 3}\n' for i in range(200))
    path = tmp_path / "f.csv"
    path.write_text(text)
    form, source = CsvFormat(Dialect(True, ord(","), [b""]), label="y"), local_file(path)
    schema = form.guess([source])

    def rows(cuts):
        blocks: list = []
        for piece in form.split(source, cuts, here) if cuts else [Piece(source)]:
            assert form.parse([piece], schema, blocks.append, lambda _: None).fits
        texts = [b.columns["s"].strings()[code] for b in blocks for code in b.columns["s"].codes]
        return (
            np.concatenate([b.columns["n"].values for b in blocks]).tolist(),
            texts,
            np.concatenate([b.labels for b in blocks]).tolist(),
        )

    whole = rows([])
    assert len(whole[0]) == 200
    for cut in range(1, len(text), 13):
        assert rows([cut, min(cut + 300, len(text) - 1)]) == whole
