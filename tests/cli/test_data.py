"""`squall ingest` and `squall data`, as a user types and mistypes them."""

from __future__ import annotations

import signal
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import squall
from squall.cli import main
from squall.cli.show import console
from squall.data import parsing

Run = Callable[..., tuple[int, str, str]]
PEOPLE = "age,job,[b]pay[/b],rich\n31,cook,1.5,no\n40,,2.5,yes\n25,\x1b[31mpilot,,no\n"


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Run ``squall …`` in this process, in a folder of its own: (exit code, output, errors)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SQUALL_STORAGE", str(tmp_path / "cache"))
    (tmp_path / "people.csv").write_text(PEOPLE)

    def run(*words: str | Path, width: int = 80) -> tuple[int, str, str]:
        monkeypatch.setattr(console, "_width", width)
        monkeypatch.setattr(sys, "argv", ["squall", *map(str, words)])
        code = 0
        interrupt = signal.getsignal(signal.SIGINT)
        monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
        try:
            main()
        except SystemExit as ended:
            code = int(ended.code or 0)
        finally:
            signal.signal(signal.SIGINT, interrupt)
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


def test_a_file_becomes_a_data_set_that_can_be_looked_into(cli: Run, tmp_path: Path) -> None:
    code, out, err = cli("ingest", "people.csv", "--to", "d", "--label", "rich")
    assert (code, err) == (0, "")
    assert "rows        3" in out and "label       rich (2 classes: 'no', 'yes')" in out
    assert f"file://{tmp_path}/d" in out
    assert squall.open_dataset(tmp_path / "d").head(1) == [
        {"age": 31, "job": "cook", "[b]pay[/b]": 1.5, "rich": "no"}
    ]
    assert cli("data", "info", "d")[1] in out
    assert cli("data", "info", f"file://{tmp_path}/d")[1] in out


def test_the_functions_that_parsed_a_large_file_are_billed(cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "LARGE_BYTES", 1)
    code, out, _ = cli("ingest", "people.csv", "--to", "d", "--label", "rich")
    assert code == 0 and "The bill: what this run would have cost at AWS Lambda" in out
    assert "requests (1 invocations)" in out
    assert "The bill" not in cli("ingest", "people.csv", "--to", "e", "--label", "rich")[1], (
        "it is read already"
    )


@pytest.mark.parametrize("width", [80, 120])
def test_head_and_describe_fit_the_terminal(cli: Run, width: int) -> None:
    cli("ingest", "people.csv", "--to", "d", "--label", "rich")
    for words in (["head", "d", "-n", "2"], ["describe", "d"]):
        code, out, err = cli("data", *words, width=width)
        assert (code, err) == (0, "")
        assert max(map(len, out.splitlines())) <= width
        assert "[b]pay[/b]" in out  # no markup
    assert "no   2  66.7%  ████████████████████████" in out
    assert r"\x1b[31mpil" in out and "\x1b" not in out  # nothing that a terminal would obey
    assert "33.3%" in out  # of jobs are missing


def test_head_shows_the_label_when_not_all_columns_fit(cli: Run, tmp_path: Path) -> None:
    names = [f"column-{i:03d}" for i in range(50)]
    (tmp_path / "wide.csv").write_text(",".join([*names, "y"]) + "\n" + ",".join(["1"] * 51) + "\n")
    cli("ingest", "wide.csv", "--to", "d", "--label", "y")
    _, out, _ = cli("data", "head", "d")
    head = out.splitlines()[0].split()
    assert (head[0], head[-1]) == ("column-000", "y")
    assert f"{51 - len(head)} more columns do not fit" in out
    _, out, _ = cli("data", "describe", "d")
    assert "10 more columns (--all shows them)" in out
    assert "column-049" in cli("data", "describe", "d", "--all")[1]


def test_numbers_are_never_cut(cli: Run, tmp_path: Path) -> None:
    row = ",".join(["-1234567.8"] * 2) + "\n"
    (tmp_path / "n.csv").write_text(
        "a-name-that-is-longer-than-there-is-room,b\n" + row + row.replace("-", "")
    )
    cli("ingest", "n.csv", "--to", "d")
    _, out, _ = cli("data", "describe", "d")
    assert out.count("-1.23e+06") == 2 and "…" not in out.splitlines()[3]


def test_training_from_a_data_set_is_training_from_its_file(cli: Run, census: Path, tmp_path: Path) -> None:
    label = "income-per-year"
    cli("ingest", census, "--to", "d", "--label", label)
    options = ["--epochs", "1", "--workers", "1"]
    assert cli("train", "logistic", census, "--label", label, "--out", "file.squall", *options)[0] == 0
    code, out, _ = cli("train", "logistic", "d", "--out", "set.squall", *options)
    assert code == 0 and "d: 32,561 rows" in out
    a, b = (squall.load(tmp_path / f"{name}.squall").steps[-1][1].coef_ for name in ("file", "set"))
    assert a.tobytes() == b.tobytes()


def test_settings_of_readers(cli: Run, tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_text("a;b\n1;x\n2;-\n")
    code, out, _ = cli("ingest", "p.txt", "--to", "d", "--format", "csv", "--delimiter", ";",
                       "--no-header", "--option", 'missing=["-"]', "--option", "label=0",
                       "--label-kind", "classes")  # fmt: skip
    assert code == 0 and "label       0 (3 classes" in out
    (tmp_path / "p.tsv").write_text("a\tb\n1\tx\n")
    assert "columns     2 " in cli("ingest", "p.tsv", "--to", "t")[1]


def test_images_and_long_rows(cli: Run, tmp_path: Path) -> None:
    images = np.zeros((2, 8, 8), np.uint8)
    images[0, :4], images[1, 7] = 255, 9
    np.savez(tmp_path / "i.npz", images=images, y=np.array(["a", "b"]))
    code, out, _ = cli("ingest", "i.npz", "--to", "i", "--label", "y")
    assert code == 0 and "(2 classes: 'a', 'b')" in out
    shown = cli("data", "head", "i")[1].splitlines()
    assert shown[1].split() == ["█" * 8, "a"] and shown[2].split() == ["██", "b"]
    (tmp_path / "w.ldac").write_text(f"20 {' '.join(f'{i}:1' for i in range(20))}\n1 3:2\n")
    cli("ingest", "w.ldac", "--to", "w")
    assert "7:1 … 20 entries" in cli("data", "head", "w")[1]


def test_texts_that_hardly_repeat(cli: Run, tmp_path: Path) -> None:
    rows = [f"t{i},{'often' if i % 2 else i}" for i in range(300)]
    (tmp_path / "t.csv").write_text("\n".join(["id,what", *rows]))
    cli("ingest", "t.csv", "--to", "t")
    out = cli("data", "describe", "t")[1]
    assert "all different" in out and "often 50%, 0 1×" in out
    assert "all different" in repr(squall.open_dataset(tmp_path / "t").describe())


def test_a_folder_of_one_format_and_words_for_positions(cli: Run, tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    for name in ("1.svm.gz", "2.svm", "_SUCCESS"):
        (tmp_path / "parts" / name).write_text("1 1:1\n0 2:1\n")
    code, out, _ = cli("ingest", "parts", "--to", "s")
    assert code == 0 and "rows        4" in out and "libsvm, index base 1" in out
    assert "2.svm and 1 more" not in out and "1.svm.gz and 1 more" in out
    (tmp_path / "l.txt").write_text("good day\nday after day\n")
    assert cli("ingest", "l.txt", "--to", "w", "--format", "text", "--option", "documents=line")[0] == 0
    assert "after:1 day:2" in cli("data", "head", "w")[1]
    (tmp_path / "copy.csv").write_text(PEOPLE)
    cli("ingest", "people.csv", "--to", "d")
    assert "read from   copy.csv" in cli("ingest", "copy.csv", "--to", "e")[1], "though it was read before"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["ingest", "x.dat", "--to", "e"], "x.dat: there is no such file"),
        (["ingest", "f/a.zip", "--to", "e"], "a.zip' is an archive of files: unpack it first"),
        (
            ["ingest", "people.csv", "--to", "e", "--label", "rich", "--delimiter", ";"],
            "the file looks separated by ',': give delimiter=','",
        ),
        (["ingest", "f/x.dat", "--to", "e"], "'f/x.dat' cannot be told by its name; give --format: csv, tsv"),
        (
            ["ingest", "f/*.svm", "people.csv", "--to", "e"],
            "the files are of several: csv, libsvm; give --format",
        ),
        (["ingest", "-", "--to", "e"], "standard input cannot be: write it to a file first"),
        (["ingest", "ftp://h/a.csv", "--to", "e"], "ftp:// is not read"),
        (["ingest", "people.csv", "--to", "people.csv"], "it is a file, and a data set is a folder"),
        (["ingest", "f/x.dat", "--format", "text", "--to", "e"], 'documents="line" or "file"'),
        (["ingest", "f/x.dat", "--format", "text", "--to", "e"], "any other as --option name=value"),
        (["ingest", "none.csv", "--to", "e"], "none.csv: there is no such file"),
        (["ingest", "people.csv", "--to", "d"], "a data set is there already"),
        (["ingest", "people.csv", "--to", "e", "--format", "cvs"], 'did you mean "csv"?'),
        (["ingest", "people.csv", "--to", "e", "--label", "ritch"], "did you mean 'rich'?"),
        (["ingest", "people.csv", "--to", "e", "--option", "x"], "'x' is not name=value"),
        (["ingest", "people.csv", "--to", "e", "--option", "q=1"], "read_csv; it has label, label_kind"),
        (["ingest", "people.csv", "--to", "e", "--option", "labl=2"], 'read_csv (did you mean "label"?)'),
        (["ingest", "people.csv", "--to", "e", "--label", "rich", "--option", "label=age"], "set twice"),
        (["ingest", "people.csv", "--to", "nfs://x"], "nfs"),
        (["data", "info", "nowhere"], "there is no data set"),
        (["data", "head", "people.csv"], "it is a file, and no data set"),
        (["train", "logistic", "d", "--label", "age"], "the data set's label is 'rich', not 'age'"),
        (["train", "logistic", "d", "--delimiter", ";"], "--delimiter: for reading a file"),
        (["train", "logistic", "d", "--no-header", "--categorical", "a"], "--header, --categorical: for"),
        (["train", "logistic", "people.csv"], "a file needs --label"),
    ],
)
def test_what_is_wrong_is_one_clear_error(cli: Run, words: list[str], says: str) -> None:
    cli("ingest", "people.csv", "--to", "d", "--label", "rich")
    Path("f").mkdir()
    Path("f/a.zip").write_text("PK")
    Path("f/x.dat").write_text("a b\n"), Path("f/y.svm").write_text("1 1:1\n")
    code, _, err = cli(*words)
    assert code == 1 and says in err and err.startswith("error: ")
    assert not Path("e").exists()
