"""The command line as a user types and mistypes it."""

from __future__ import annotations

import csv
import gzip
import os
import re
import shutil
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import squall
from squall.cli import main
from squall.cli.show import console

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Run ``squall …`` in this process, in a folder of its own: (exit code, output, errors)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(console, "_width", 100)  # it may have been made long ago

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


def test_train_by_admm(cli: Run, small: Path, tmp_path: Path) -> None:
    words = "--strategy admm --rho 2 --tol 1e-4 --max-rounds 50 --l2 0.01 --n-features 256"
    code, out, err = cli("train", "logistic", small, "--label", "income-per-year", *words.split())
    assert (code, err) == (0, "") and "accuracy" in out
    model = squall.load(tmp_path / "model.squall")[-1]
    assert model.strategy == squall.ADMM(rho=2.0, tol=1e-4, max_rounds=50)
    assert model.converged_ and model.stopped_ == "converged" and model.n_iter_ < 50
    assert (model.learning_rate_, model.batch_size_) == (None, None)


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
        (["--label", "income-per-year", "--consistency", "bps"], 'did you mean "bsp"'),
        (["--label", "income-per-year", "--strategy", "adm"], 'did you mean "admm"'),
        (["--label", "income-per-year", "--tol", "1e-3"], "--tol is an option of --strategy admm only"),
        (
            ["--label", "income-per-year", "--strategy", "admm", "--consistency", "bsp"],
            "--consistency is an option of --strategy parameter-server only",
        ),
        (["--label", "income-per-year", "--strategy", "admm", "--rho", "high"], "rho='high' must be"),
        (["--label", "income-per-year", "--strategy", "admm", "--epochs", "3"], "ADMM(max_rounds="),
        (["--label", "income-per-year", "--plan", "3"], "EPOCH:WORKERS"),
        (["--label", "income-per-year", "--plan", "3:4,3:5"], "says twice what comes after epoch 3"),
        (["--label", "income-per-year", "--plan", "3:0"], "workers after epoch 3=0"),
        (["--label", "income-per-year", "--plan", "3:4@lots"], "'lots' is not a size"),
        (["--label", "income-per-year", "--label-kind", "number"], "--label-kind"),
        (
            ["--label", "income-per-year", "--label-kind", "numbers"],
            'are classes are read without label_kind="numbers"',
        ),
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


def test_each_model_takes_its_own_options(cli: Run, small: Path) -> None:
    _, _, err = cli("train", "mf", small, "--label", "y", "--optimizer", "adam", "--l1", "1", "--epochs", "0",
                    "--task", "regression", "--n-features", "8",
                    "--n-components", "3", "--vocabulary", "words.txt")  # fmt: skip
    for told in (
        "--label is not an option of mf, but of logistic, linear, fm",
        "--optimizer is not an option of mf, but of logistic, linear, fm",
        "--n-components is not an option of mf, but of lda",
        "--vocabulary is not an option of mf, but of lda",
        "--task is not an option of mf, but of fm",
        "--n-features is not an option of mf",
        "--l1 is not an option of mf",
        "epochs=0 must be",
    ):
        assert told in " ".join(err.split())
    code, _, err = cli("train", "logistik", small, "--label", "y", "--test", "2")
    assert code == 1
    assert 'did you mean "logistic"' in " ".join(err.split()) and "--test 2 must be" in err


def table(path: Path, labels: np.ndarray) -> Path:
    X = np.random.default_rng(0).normal(size=(200, 3))
    y = labels if labels.dtype.kind in "iU" else X[:, 0] * 10 + labels
    lines = [",".join([*(f"{v:.4f}" for v in row), str(label)]) for row, label in zip(X, y, strict=True)]
    path.write_text("\n".join(["a,b,c,y", *lines]) + "\n")
    return path


def test_several_classes_and_numbers_are_trained_and_predicted(cli: Run, tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(200, 3))
    classes = table(
        tmp_path / "classes.csv", np.array(["low", "mid", "top"])[np.digitize(X[:, 0], [-0.5, 0.5])]
    )
    assert cli("train", "logistic", classes, "--label", "y", "--epochs", "3", "--out", "c")[0] == 0
    _, out, _ = cli("predict", "c", classes)
    assert out.splitlines()[0] == "prediction,probability of low,probability of mid,probability of top"
    numbers = table(tmp_path / "numbers.csv", np.full(200, 500.0))
    numbers.write_text(numbers.read_text().replace(",", ";"))  # which is found out
    code, out, err = cli("train", "linear", numbers, "--label", "y", "--epochs", "40", "--out", "n",
                         "--label-kind", "numbers")  # fmt: skip
    assert code == 0, err
    assert "linear regression on 1 local function" in out and "R²" in out and "RMSE" in out
    _, out, _ = cli("predict", "n", numbers)
    header, *rows = out.splitlines()
    assert header == "prediction"
    np.testing.assert_allclose([float(row) for row in rows], 500 + 10 * X[:, 0], atol=8)


def test_a_file_is_read_as_what_its_name_says(cli: Run, tmp_path: Path) -> None:
    Path("a.svm").write_text("1 3:1 5:2.5\n-1 2:1 7:1\n" * 40)
    assert cli("train", "logistic", "a.svm", "--epochs", "2", "--test", "0")[0] == 0
    Path("few.svm").write_text("1 3:1\n-1 2:1\n")  # of the seven features that there were
    code, out, _ = cli("predict", "model.squall", f"file://{tmp_path}/few.svm")
    assert code == 0 and [line.split(",")[0] for line in out.splitlines()] == ["prediction", "1", "-1"]

    code, _, err = cli("train", "logistic", "a.svm", "--label", "y", "--no-header")
    assert code == 1 and "2 settings are wrong" in err and "not a setting of squall.read_libsvm" in err
    Path("more.svm").write_text("1 8:1\n")
    code, _, err = cli("predict", "model.squall", "more.svm")
    assert code == 1 and "more.svm:1:3" in err and "n_features is 7" in err


def test_missing_numbers_are_filled_when_that_is_asked_for(cli: Run) -> None:
    Path("m.csv").write_text("h,w,buy\n" + "1.5,2,a\n,3,b\n2.5,1,a\n" * 30)
    code, _, err = cli("train", "logistic", "m.csv", "--label", "buy")
    assert code == 1 and "column 'h':" in err and "--impute mean" in err
    assert cli("train", "logistic", "m.csv", "--label", "buy", "--impute", "median", "--epochs", "1")[0] == 0
    assert cli("predict", "model.squall", "m.csv")[0] == 0
    code, _, err = cli("train", "logistic", "m.csv", "--label", "buy", "--impute", "meen", "--epochs", "0")
    assert code == 1 and "2 settings are wrong" in err and 'did you mean "mean"' in err
    Path("n.csv").write_text("1.5,2,a\n2,3,b\n" * 9)
    assert cli("train", "logistic", "n.csv", "--no-header", "--label", "-1", "--epochs", "1")[0] == 0


def test_ratings_are_trained_and_a_stored_set_is_predicted(cli: Run, tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    pairs = sorted({(int(u), int(i)) for u, i in draw.integers(0, 12, size=(120, 2))})
    ratings = "".join(f"{u}\t{i}\t{1 + (u + i) % 5}\n" for u, i in pairs)
    (tmp_path / "u.data").write_text(ratings)
    code, out, err = cli("train", "mf", "u.data", "--epochs", "2", "--n-factors", "2", "--out", "m")
    assert code == 0, err
    assert "matrix factorisation on" in out and "RMSE" in out
    assert cli("ingest", "u.data", "--to", "stored", "--format", "ratings")[0] == 0
    assert cli("predict", "m", "stored")[1] == cli("predict", "m", "u.data")[1]
    assert len(cli("predict", "m", "stored")[1].splitlines()) == len(pairs) + 1


PETS = ["the cat dog cat pet", "the sun moon sun star", "the pet cat dog", "a moon star sun"] * 15


def test_topics_are_trained_predicted_and_shown_again(cli: Run, tmp_path: Path) -> None:
    (tmp_path / "pets.txt").write_text("\n".join(PETS))
    code, out, err = cli("train", "lda", "pets.txt", "--n-components", "2", "--out", "m", "--epochs", "10")
    assert code == 0, err
    assert "60 documents of 6 words" in out, "the word of more than half of them is left out"
    assert "topic model on 1 local function" in out and "perplexity" in out
    topics = re.findall(r"^ *\d +(\d+\.\d)% +(.+)$", out, flags=re.MULTILINE)
    assert sum(float(share) for share, _ in topics) == pytest.approx(100, abs=0.2)
    assert sorted(sorted(words.split()[:3]) for _, words in topics) == [
        ["cat", "dog", "pet"],
        ["moon", "star", "sun"],
    ]

    header, *rows = cli("predict", "m", "pets.txt")[1].splitlines()
    assert header == "topic 0,topic 1"
    shares = np.array([row.split(",") for row in rows], dtype=float)
    assert (shares[0::2].argmax(axis=1) != shares[1::2].argmax(axis=1)).all()

    job = re.findall(r"job (\S+) ", out)[0]
    again = cli("plot", job)[1]
    assert "loss over 10 epochs" in again
    assert out[out.index("Topics, their share") :].startswith(
        again[again.index("Topics, their share") :].strip()
    )
    (tmp_path / "m").write_text("something else")
    assert "Topics" not in cli("plot", job)[1]


@pytest.mark.slow
def test_topics_of_folders_and_of_bags_of_words(cli: Run, tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    for number, text in enumerate(PETS):
        (tmp_path / "texts" / f"{number}.txt").write_text(text)
    (tmp_path / "docword.pets").write_text(
        "20\n3\n40\n" + "".join(f"{d} 1 2\n{d} {2 + d % 2} 3\n" for d in range(1, 21))
    )
    (tmp_path / "words").write_text("cat\nsun\nmoon\n")
    code, out, err = cli("train", "lda", "texts", "--n-components", "2", "--out", "m", "--test", "0")
    assert code == 0, err
    assert "60 documents of 6 words" in out and "perplexity" not in out
    assert len(cli("predict", "m", "texts")[1].splitlines()) == 61
    code, out, err = cli(
        "train", "lda", "docword.pets", "--vocabulary", "words", "--n-components", "2", "--out", "b"
    )
    assert code == 0, err
    assert set(re.findall(r"% +(\w+) (\w+) (\w+)$", out, flags=re.MULTILINE)[0]) == {"cat", "sun", "moon"}
    assert len(cli("predict", "b", "docword.pets")[1].splitlines()) == 21
    out = cli("train", "lda", "docword.pets", "--n-components", "2", "--out", "b")[1]
    assert "3 words without names" in out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["train", "lda", "{small}"], "is a csv file, by its name, and topics are of texts or of counts"),
        (["train", "lda", "nowhere.txt"], "nowhere.txt"),
        (["train", "lda", "pets.txt", "--n-components", "0", "--epochs", "0"], "2 settings are wrong"),
        (["train", "lda", "pets.txt", "--label", "y"], "--label is not an option of lda, but of logistic"),
        (["train", "lda", "pets.txt", "--learning-rate", "1"], "--learning-rate is not an option of lda"),
        (["train", "lda", "stored"], "it has text in column"),
        (["train", "lda", "stored", "--vocabulary", "pets.txt"], "--vocabulary: for reading a file"),
        (["train", "ldaa", "pets.txt"], "did you mean"),
        (["train", "mf", "pets.txt"], "pets.txt"),
    ],
)  # fmt: skip
def test_what_holds_no_documents_is_told(
    cli: Run, small: Path, tmp_path: Path, words: list[str], told: str
) -> None:
    (tmp_path / "pets.txt").write_text("\n".join(PETS))
    if "stored" in words:
        assert cli("ingest", small, "--to", "stored", "--label", "income-per-year")[0] == 0
    code, _, err = cli(*(word.format(small=small) for word in words))
    assert code == 1, err
    assert told in err


def test_a_missing_file_and_a_missing_model(cli: Run, small: Path) -> None:
    code, _, err = cli("train", "logistic", "nowhere.csv", "--label", "x")
    assert code == 1 and "nowhere.csv" in err
    code, _, err = cli("predict", "nowhere.squall", small)
    assert code == 1 and "nowhere.squall" in err
    code, _, err = cli("predict", small, small)
    assert code == 1 and "not a model file" in err


ODD = "m[bold]é….squall"


def test_names_that_look_like_markup_are_shown_as_they_are(cli: Run, small: Path, tmp_path: Path) -> None:
    odd = tmp_path / "a[" / "]b[red].csv"  # "[/]" alone would close what nothing has opened
    odd.parent.mkdir()
    odd.write_bytes(small.read_bytes())
    code, out, _ = cli("train", "logistic", odd, "--label", "income-per-year", "--out", ODD)
    assert code == 0 and str(odd) in out and f"saved to {ODD}" in out
    code, out, _ = cli("predict", ODD, odd, "--out", "p[red].csv")
    assert code == 0 and "written to p[red].csv" in out
    code, _, err = cli("train", "logistic", odd, "--label", "[x]", "--out", ODD)
    assert code == 1 and "there is no column '[x]'" in err
    code, _, err = cli("status", "[/x]")
    assert code == 1 and "no record of a job '[/x]'" in err


@pytest.mark.parametrize(
    "words",
    [
        ["train", "logistic", "~nosuchuser/d.csv", "--label", "y"],
        ["train", "logistic", "d.csv", "--label", "y", "--out", "~nosuchuser/m"],
        ["train", "logistic", "d.csv", "--label", "y", "--storage", "~nosuchuser/s"],
        ["predict", "~nosuchuser/m", "d.csv"],
        ["demo", "--out", "~nosuchuser/m"],
        ["status", "0123456789ab", "--storage", "~nosuchuser/s"],
    ],
)
def test_a_home_folder_that_is_not_there(cli: Run, words: list[str]) -> None:
    code, _, err = cli(*words)
    assert code == 1
    assert "~nosuchuser/" in err and "no such user's home folder" in err and "Traceback" not in err


def test_settings_of_every_sort_are_told_at_once_and_before_work(cli: Run, tmp_path: Path) -> None:
    words = {"--prices": "", "--n-features": 0, "--storage": "", "--workers": 100_000, "--l2": -1}
    typed = [str(word) for pair in words.items() for word in pair]
    code, _, err = cli("train", "logistic", tmp_path / "absent.csv", "--label", "y", *typed)
    assert code == 1 and "5 settings are wrong:" in err
    for told in ("prices=''", "n_features=0", "storage=''", "workers=100000", "l2=-1"):
        assert err.count(f"- {told}") == 1, err
    code, _, err = cli("train", "logistic", small_absent := "x.csv", "--label", "y", "--prices", "nope")
    assert code == 1 and "prices='nope'" in err and small_absent not in err


@pytest.mark.parametrize("place", ["/proc/x", "/dev/null/x"])
def test_a_store_that_cannot_be_written(cli: Run, small: Path, place: str) -> None:
    code, _, err = cli("train", "logistic", small, "--label", "income-per-year", "--storage", place)
    assert code == 1
    assert "the object store refused" in err and "choose another `storage`" in err


def test_pipes_and_devices_are_refused_rather_than_waited_for(cli: Run, small: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        code, _, err = cli("train", "logistic", path, "--label", "y")
        assert code == 1 and "this is a pipe or a device" in err
        code, _, err = cli("predict", path, small)
        assert code == 1 and "it is a device or a pipe" in err


@pytest.fixture(scope="session")
def model(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model trained on those people."""
    data = squall.read_csv(small, label="income-per-year", storage=tmp_path_factory.mktemp("storage"))
    pipeline = squall.make_pipeline(squall.FeatureHasher(n_features=64), squall.LogisticRegression(epochs=1))
    return squall.save(
        pipeline.fit(data.select([c.name for c in data.columns])), small.with_suffix(".squall")
    )


def shell(command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """What a user types, in a process of its own."""
    full = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **environment}
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=full, timeout=50)


@pytest.mark.slow
def test_output_to_a_full_device(small: Path, model: Path) -> None:
    done = shell(f"squall predict {model} {small} >/dev/full")
    assert (done.returncode, done.stderr) == (1, "error: standard output: No space left on device\n")


def test_output_that_is_closed(small: Path, model: Path) -> None:
    done = shell(f"squall predict {model} {small} >&-")
    assert done.returncode == 1 and done.stderr.startswith("error: standard output is closed\n")


def test_output_that_nobody_reads_to_its_end(small: Path, model: Path) -> None:
    done = shell(f"squall predict {model} {small} | head -1")
    assert (done.stdout.count("\n"), done.stderr) == (1, "")


@pytest.mark.slow
def test_letters_that_the_terminal_lacks(tmp_path: Path) -> None:
    names = ",".join(f"ä…{i}" for i in range(14))
    rows = "".join("é" * (i % 3 + 1) + ",x" * 13 + (",jå\n" if i % 2 else ",nej\n") for i in range(60))
    (tmp_path / "å.csv").write_text(f"{names},y\n{rows}")
    ascii_only = {"PYTHONIOENCODING": "ascii", "LANG": "C", "LC_ALL": "C"}
    train = f"cd {tmp_path}; squall train logistic å.csv --label y --out m.squall"
    done = shell(train, **ascii_only)
    assert done.returncode == 0 and "\\xe4" in done.stdout, done.stderr
    done = shell(f"cd {tmp_path}; squall predict m.squall å.csv", **ascii_only)
    assert done.returncode == 0 and "jå," in done.stdout, "a CSV file is UTF-8, not escaped"


def test_a_failed_write_is_told_although_tidying_up_fails_too(
    cli: Run, small: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def vanish(*_: object) -> None:
        shutil.rmtree("out")
        Path("out").write_text("now a file")
        raise OSError(28, "No space left on device")

    Path("out").mkdir()
    monkeypatch.setattr("squall.cli.predict._write", vanish)
    code, _, err = cli("predict", model, small, "--out", "out/p.csv")
    assert code == 1 and "predictions cannot be written: No space left on device" in err


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


def test_a_plan_that_changes_is_followed_and_told(cli: Run, small: Path) -> None:
    words = ("train", "logistic", small, "--label", "income-per-year", "--workers", "1", "--epochs", "3")
    code, out, _ = cli(*words, "--plan", "1:2, 2:@2GB")
    assert code == 0
    code, out, _ = cli("status", out.split("job ")[1].split()[0])
    assert "from epoch 2 on 2 workers of 1,769 MB instead of 1 of 1,769 MB" in " ".join(out.split())
    assert "from epoch 3 on 2 workers of 2,048 MB instead of 2 of 1,769 MB" in " ".join(out.split())


def test_training_stops_by_the_held_out_loss(cli: Run, small: Path, tmp_path: Path) -> None:
    words = ("train", "logistic", small, "--label", "income-per-year", "--epochs", "500", "--out", "m")
    code, out, _ = cli(*words, "--target-loss", "0.6")
    assert code == 0
    assert "training ended early by: target loss" in out
    code, _, err = cli(*words, "--early-stopping", "3", "--test", "0")
    assert code == 1
    assert "--early-stopping and --target-loss need held-out rows" in err
