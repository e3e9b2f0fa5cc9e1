"""The command line as a user types and mistypes it."""

from __future__ import annotations

import csv
import gzip
import signal
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

import squall
from squall.cli import main

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Run ``squall …`` in this process, in a folder of its own: (exit code, output, errors)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")

    def run(*words: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["squall", *map(str, words)])
        code = 0
        # The command ends with Ctrl-C ignored; what this process starts later must not inherit that.
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


@pytest.fixture(scope="session")
def small(census: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first 3,000 people of the census."""
    lines = gzip.decompress(census.read_bytes()).decode().splitlines(keepends=True)[:3001]
    path = tmp_path_factory.mktemp("data") / "small.csv"
    path.write_text("".join(lines))
    return path


def test_the_demo_shows_everything_it_promises(cli: Run, tmp_path: Path) -> None:
    code, out, err = cli("demo")
    assert (code, err) == (0, "")
    for word in ("32,561 rows", "26,049 rows to train on", "held-out loss", "rows/s", "workers", "cost",
                 "log-loss", "accuracy", "AUC", "functions (", "requests (2 invocations)", "total",
                 "import squall", "squall train logistic"):  # fmt: skip
        assert word in out, word
    assert len([line for line in out.splitlines() if line.strip()[:2].strip().isdigit()]) >= 20
    assert squall.load(tmp_path / "census.squall").stopped_ == "epochs"


def test_the_lines_that_the_demo_prints_work(cli: Run, tmp_path: Path) -> None:
    _, out, _ = cli("demo", "--epochs", "1")
    python = out.split("The same in Python")[1].split("The same on the command line")[0]
    code = "\n".join(line.removeprefix("    ") for line in python.splitlines())
    (tmp_path / "census.squall").unlink()
    exec(compile(code, "demo", "exec"), {})
    assert (tmp_path / "census.squall").is_file()
    for line in out.split("The same on the command line")[1].strip().splitlines():
        code_, _, err = cli(*line.split()[1:])
        assert code_ == 0, err
    assert len((tmp_path / "predictions.csv").read_text().splitlines()) == 32562


def test_train_and_predict(cli: Run, small: Path, tmp_path: Path) -> None:
    code, out, err = cli("train", "logistic", small, "--label", "income-per-year", "--workers", "2",
                         "--epochs", "3", "--out", "m.squall")  # fmt: skip
    assert (code, err) == (0, "")
    assert "accuracy" in out and "total" in out and "saved to m.squall" in out
    code, out, _ = cli("predict", "m.squall", small, "--out", "p.csv")
    assert (code, out.strip()) == (0, "3,000 predictions written to p.csv")
    with (tmp_path / "p.csv").open() as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["prediction", "probability of >50K"]
    assert {row[0] for row in rows[1:]} == {"<=50K", ">50K"}
    truth = [line.rsplit(",", 1)[1] for line in small.read_text().splitlines()[1:]]
    right = sum(row[0] == label for row, label in zip(rows[1:], truth, strict=True))
    assert right > 0.75 * 3000


def test_predict_prints_to_standard_output_and_needs_no_label(cli: Run, small: Path, tmp_path: Path) -> None:
    cli("train", "logistic", small, "--label", "income-per-year", "--epochs", "1", "--test", "0")
    bare = tmp_path / "bare.csv"
    bare.write_text("\n".join(line.rsplit(",", 1)[0] for line in small.read_text().splitlines()[:11]) + "\n")
    code, out, _ = cli("predict", "model.squall", bare)
    assert code == 0
    assert len(out.splitlines()) == 11


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--label", "incom-per-year"], "did you mean 'income-per-year'"),
        (["--label", "income-per-year", "--workers", "0"], "workers=0"),
        (["--label", "income-per-year", "--workers", "two"], "'two' must be an integer"),
        (["--label", "income-per-year", "--optimizer", "adagard"], 'did you mean "adagrad"'),
        (["--label", "income-per-year", "--learning-rate", "-1"], "learning_rate=-1.0"),
        (["--label", "income-per-year", "--test", "1.5"], "--test 1.5"),
        (["--label", "income-per-year", "--memory", "lots"], "'lots' is not a size"),
        (["--label", "income-per-year", "--deadline", "soon"], "'soon' is not a duration"),
        (
            ["--label", "income-per-year", "--out", "no/such/folder/m"],
            "cannot be written: No such file or directory",
        ),
        (["--label", "income-per-year", "--prices", "aws"], "price list"),
        (["--label", "race"], "two classes"),
    ],
)
def test_what_is_mistyped_is_explained(cli: Run, small: Path, words: list[str], told: str) -> None:
    code, _, err = cli("train", "logistic", small, *words)
    assert code == 1
    assert err.startswith("error: ")
    assert told in " ".join(err.split())
    assert "Traceback" not in err


def test_all_wrong_settings_are_told_at_once(cli: Run, small: Path) -> None:
    _, _, err = cli("train", "logistic", small, "--label", "income-per-year", "--workers", "0",
                    "--epochs", "0", "--l2", "-1", "--memory", "1MB", "--batch-size", "few")  # fmt: skip
    for word in ("workers=0", "epochs=0", "l2=-1.0", "memory=", "--batch-size 'few'"):
        assert word in err, word


def test_a_missing_file_and_a_missing_model(cli: Run, small: Path) -> None:
    code, _, err = cli("train", "logistic", "nowhere.csv", "--label", "x")
    assert code == 1 and "nowhere.csv" in err
    code, _, err = cli("predict", "nowhere.squall", small)
    assert code == 1 and "nowhere.squall" in err
    code, _, err = cli("predict", small, small)
    assert code == 1 and "not a model file" in err


def test_an_unknown_command_is_a_usage_error(cli: Run) -> None:
    code, _, err = cli("trian")
    assert code == 2
    assert "No such command" in err


def test_doctor_finds_a_working_installation(cli: Run) -> None:
    code, out, _ = cli("doctor")
    assert code == 0, out
    for word in ("Python", "C++ kernels", "libraries", "machine", "memory limits", "local functions",
                 "parameter store", "object store", "Everything that Squall needs works here."):  # fmt: skip
        assert word in out, word


def test_doctor_says_what_is_broken(cli: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, out, _ = cli("doctor", "--storage", str(tmp_path / "file" / "below"))
    assert code == 1
    assert "broken" in out and "1 thing(s) to mend" in out


def test_version(cli: Run) -> None:
    assert cli("--version")[:2] == (0, f"squall {squall.__version__}\n")


def test_status_shows_a_job_from_another_terminal(cli: Run, small: Path) -> None:
    _, out, _ = cli(
        "train", "logistic", small, "--label", "income-per-year", "--workers", "2", "--epochs", "3"
    )
    job = out.split("job ")[1].split()[0]
    code, out, err = cli("status", job)
    assert (code, err) == (0, "")
    for word in (f"job {job}: finished, ended by: epochs", "3 of 3 epochs", "cold start", "compute",
                 "peak memory", "returned", "total"):  # fmt: skip
        assert word in out, word


def test_status_of_a_job_that_is_not_there(cli: Run, small: Path) -> None:
    _, out, _ = cli("train", "logistic", small, "--label", "income-per-year", "--epochs", "1")
    job = out.split("job ")[1].split()[0]
    code, _, err = cli("status", job[:-1])
    assert code == 1
    assert f'did you mean "{job}"' in err
