"""`squall.map` on functions that share nothing with the client, from scripts, and when it is interrupted."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import squall
from squall.data.objects import ObjectStore
from squall.errors import CallError, SettingError
from squall.testing import Chaos, Fault
from tests.e2e.test_ways_to_run import marker as marker


def strict_run(**settings: Any) -> squall.Run:
    return squall.Run(backend=squall.LocalBackend(isolation="strict", **settings), store="tcp", workers=2)


# ------------------------------------------------------------------------ strictly isolated


def test_it_passes_on_strict_functions_and_leaves_no_object(s3: str) -> None:
    futures = squall.map(lambda x: x * x, range(100), run=strict_run())
    assert futures.results() == [x * x for x in range(100)]
    assert futures.job.join(30)
    assert futures.bill.objects_usd > 0
    assert ObjectStore(s3).keys("jobs") == []


def test_large_arguments_and_results_on_strict_functions(s3: str) -> None:
    sent = [np.full(1 << 20, n, dtype=np.float64) for n in range(3)]
    back = squall.map(lambda a: a + 1, sent, run=strict_run()).results()
    assert all(np.array_equal(b, a + 1) for a, b in zip(sent, back, strict=True))


def test_deaths_on_strict_functions(s3: str) -> None:
    def deadly(x: int) -> int:
        import os
        import time

        if x == 1:
            os._exit(5)
        if x == 2:
            time.sleep(60)
        return x

    futures = squall.map(deadly, range(4), run=strict_run(), timeout="1s", chunksize=4)
    squall.wait(futures)
    assert (futures[0].result(), futures[3].result()) == (0, 3)
    outcomes = [error.outcome for f in futures if isinstance(error := f.exception(), CallError)]
    assert outcomes == ["exited", "timed out"]


def test_what_happens_on_clouds_changes_no_result(s3: str) -> None:
    script = (
        Fault(do="duplicate", slot=0),
        Fault(do="throttle", slot=2),
        Fault(do="kill", when="in flight", slot=4, wait="50ms"),
        Fault(do="drop", when="after", slot=6),
    )
    run = strict_run(chaos=Chaos(script=script, lost_after="200ms"))
    futures = squall.map(abs, range(-8, 0), run=run, chunksize=2)
    assert futures.results() == list(range(8, 0, -1))


def test_a_folder_is_refused_before_anything_starts() -> None:
    with pytest.raises(SettingError, match=r"cannot reach file://.*\n.*s3://bucket"):
        squall.map(abs, [1], run=strict_run())


def test_secrets_are_in_no_object_and_in_no_text(s3: str) -> None:
    """The key travels in the invocation only; credentials in the environment only."""
    executor = squall.Executor(strict_run())
    executor.submit(abs, -1).result()
    key = executor._job._storage._key
    objects = ObjectStore(s3)
    stored = [bytes(objects.get(name)) for name in objects.keys("jobs")]
    assert len(stored) >= 3
    for secret in (key, key.hex().encode(), os.environ["AWS_SECRET_ACCESS_KEY"].encode()):
        assert not any(secret in data for data in stored)
        assert secret not in (executor.logs() + repr(executor.status())).encode()
    executor.shutdown()


HELPERS = """
from pack.inner import double
class Answer:
    def __init__(self, value): self.value = value
def work(x): return Answer(double(x))
"""
USER = """
import squall, helpers
run = squall.Run(backend=squall.LocalBackend(isolation="strict"), store="tcp", workers=2)
answers = squall.map(lambda x: helpers.work(x), range(3), run=run).results()
print([a.value for a in answers], all(isinstance(a, helpers.Answer) for a in answers))
print(squall.call(helpers.work, 5, run=run).result().value)
"""


def test_modules_beside_the_script_that_functions_cannot_see(s3: str, tmp_path: Path) -> None:
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").touch()
    (tmp_path / "pack" / "inner.py").write_text("def double(x): return 2 * x\n")
    (tmp_path / "helpers.py").write_text(HELPERS)
    # Nothing of the script's folder is shown to functions, as on a cloud.
    hide = "from squall.functions.local import platform\nplatform.readable = lambda p, h: real([], h)\n"
    hidden = f"from squall.functions.local.readable import readable as real\n{hide}{USER}"
    (tmp_path / "script.py").write_text(hidden)
    assert run_script(tmp_path / "script.py") == "[0, 2, 4] True\n10\n"


# --------------------------------------------------------------------------- scripts and Ctrl-C


def run_script(path: Path) -> str:
    done = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, timeout=50, check=False, cwd=path.parent
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_unguarded_script_that_waits_for_nothing(marker: str, tmp_path: Path) -> None:
    """At its end calls that still run are ended."""
    path = tmp_path / "script.py"
    path.write_text(
        "import squall, time\n"
        "class Own: pass\n"
        "def own(x): return Own()\n"
        "print(type(squall.map(own, [1]).results()[0]) is Own)\n"
        "futures = squall.map(time.sleep, [60, 60])\n"
        "print('end')\n"
    )
    assert run_script(path) == "True\nend\n"


WAITING = {
    "results": "squall.map(time.sleep, [60] * 4).results()",
    "result": "squall.map(time.sleep, [60] * 4)[0].result()",
    "as_completed": "list(squall.as_completed(squall.map(time.sleep, [60] * 4)))",
    "map_reduce": "squall.map_reduce(time.sleep, [60] * 4, len).result()",
    "executor": "with squall.Executor() as e: e.submit(time.sleep, 60)",
}


@pytest.mark.parametrize("how", WAITING)
def test_ctrl_c_ends_all(how: str, marker: str, tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    begun = "threading.Timer(1.0, print, ['waiting'], {'flush': True}).start()"
    path.write_text(
        "import signal, threading, time, squall\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"{begun}\n"
        f"try:\n    {WAITING[how]}\n"
        "except KeyboardInterrupt: print('interrupted', flush=True)\n"
    )
    with subprocess.Popen([sys.executable, str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=40)[0] == "interrupted\n"
        assert process.returncode == 0


def test_progress_on_a_terminal(marker: str, tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text("import squall\nsquall.map(abs, range(20)).results()\n")
    ours, theirs = pty.openpty()
    done = subprocess.run([sys.executable, str(path)], stderr=theirs, stdout=theirs, timeout=50, check=False)
    os.close(theirs)
    with os.fdopen(ours, "rb", closefd=True) as terminal:
        shown = terminal.read1(1 << 16).decode()
    assert done.returncode == 0 and "20 of 20 items" in shown and "$" in shown
