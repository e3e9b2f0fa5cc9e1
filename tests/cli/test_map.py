"""``squall map`` as a user types and mistypes it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

WORK = """
import time
def upper(text): return text.upper()
def halve(n):
    if n % 2: raise ValueError(f"{n} is odd")
    return {"half": n // 2}
def sleep(_): time.sleep(60)
def wait(_):
    open("began.txt", "w").close()
    time.sleep(60)
LIST = [1]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "work.py").write_text(WORK)
    (tmp_path / "words.txt").write_text("one\ntwo\nthree\n")
    (tmp_path / "numbers.txt").write_text("4\n5\n6\n")
    return tmp_path


def squall(folder: Path, *words: str, text: str = "") -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).parent / "squall"), "map", *words]
    return subprocess.run(
        command, cwd=folder, input=text, capture_output=True, text=True, timeout=50, check=False,
        env={**os.environ, "COLUMNS": "200"},
    )  # fmt: skip


def test_one_line_for_each_line(folder: Path) -> None:
    done = squall(folder, "work:upper", "words.txt")
    assert (done.returncode, done.stdout) == (0, "ONE\nTWO\nTHREE\n")
    assert done.stderr.startswith("3 of 3 items") and "$" in done.stderr
    assert squall(folder, "work:upper", "-", text="a\nb").stdout == "A\nB\n"


def test_json_failures_and_an_output_file(folder: Path) -> None:
    done = squall(folder, "work:halve", "numbers.txt", "--json", "--out", "halves.txt", "--chunksize", "3")
    assert (done.returncode, done.stdout) == (1, "")
    assert "line 2: ValueError: 5 is odd\n" in done.stderr and "1 failed" in done.stderr
    assert (folder / "halves.txt").read_text() == '{"half": 2}\n\n{"half": 3}\n'
    assert list(folder.glob("*.part")) == []


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["work.upper", "words.txt"], 'write "module:function"'),
        (["works:upper", "words.txt"], "works cannot be imported"),
        (["work:uper", "words.txt"], 'did you mean "upper"'),
        (["work:LIST", "words.txt"], "[1] is not callable"),
        (["work:upper", "nothing.txt"], "No such file"),
        (["work:upper", "words.txt", "--json"], "words.txt, line 1: not JSON"),
        (["work:upper", "words.txt", "--chunksize", "few"], "chunksize='few'"),
        (["work:upper", "words.txt", "--workers", "0", "--budget", "much"], "2 settings are wrong"),
        (
            [
                "work:upper",
                "words.txt",
                "--workers",
                "0",
                "--chunksize",
                "0",
                "--retries",
                "-1",
                "--timeout",
                "0",
            ],
            "4 settings are wrong",
        ),
        (["work:upper", "words.txt", "--out", "no/folder/x"], "cannot be written: No such file"),
    ],
)
def test_what_is_mistyped_is_explained(folder: Path, words: list[str], told: str) -> None:
    done = squall(folder, *words)
    assert done.returncode == 1
    assert told in done.stderr and "Traceback" not in done.stderr


def test_what_was_interrupted_has_its_bill(folder: Path) -> None:
    command = [str(Path(sys.executable).parent / "squall"), "map", "work:wait", "words.txt"]
    with subprocess.Popen(
        command, cwd=folder, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as client:  # fmt: skip
        while not (folder / "began.txt").exists():
            assert client.poll() is None
            time.sleep(0.02)
        client.send_signal(signal.SIGINT)
        assert client.stderr is not None
        assert re.search(r"2 functions|1 function .*\$0\.0.* ended by: interrupted", client.stderr.read())
        assert client.wait(50) == 130


def test_a_timeout(folder: Path) -> None:
    done = squall(folder, "work:sleep", "words.txt", "--timeout", "500ms")
    assert done.returncode == 1 and done.stderr.count("took longer than it may") == 3
