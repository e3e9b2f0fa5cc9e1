"""`squall.map`, `call` and `map_reduce` on local functions."""

from __future__ import annotations

import concurrent.futures
import importlib
import itertools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import squall
from squall.driver.spec import StoppedError
from squall.errors import CallError, FunctionError, SerializationError, SettingError
from squall.testing import Chaos, Fault
from squall.workflows.futures import MapFutures

RUN = squall.Run(workers=2)


def square(x: int) -> int:
    return x * x


class TwoArgumentsError(Exception):
    """Cannot be loaded from its pickle: that has one argument only."""

    def __init__(self, a: int, b: int) -> None:
        super().__init__(f"{a} and {b}")


def ended(futures: MapFutures[Any]) -> MapFutures[Any]:
    """After the job's end, when nothing is left of it."""
    assert futures.job.join(50)
    return futures


# ------------------------------------------------------------------------------------ results


@pytest.mark.parametrize("chunksize", ["auto", 1, 7, 1000])
def test_results_come_in_order(chunksize: Any) -> None:
    futures = squall.map(square, range(100), run=RUN, chunksize=chunksize)
    assert futures.results() == [x * x for x in range(100)]
    assert len(futures) == 100 and all(f.done() and not f.running() for f in futures)


def test_lambdas_closures_and_generators() -> None:
    factor = 3
    with RUN:
        assert squall.map(lambda x: x * factor, (x for x in range(5))).results() == [0, 3, 6, 9, 12]


def test_no_items_are_no_calls() -> None:
    futures = ended(squall.map(square, [], run=RUN))
    assert futures == [] and futures.results() == []
    assert futures.bill.invocations == 0
    assert squall.map_reduce(square, [], len, run=RUN).result(30) == 0


def test_call_takes_arguments_and_names() -> None:
    assert squall.call(lambda a, *, b: (a, b), 1, b=2, run=RUN).result(30) == (1, 2)


def test_map_reduce() -> None:
    assert squall.map_reduce(square, range(10), sum, run=RUN).result(30) == 285


def test_map_reduce_fails_with_what_an_item_raised() -> None:
    reduced = squall.map_reduce(lambda x: 1 // x, range(3), sum, run=RUN)
    assert isinstance(reduced.exception(30), ZeroDivisionError)


@pytest.mark.parametrize("size", [0, 1, 100_000, 40_000_000])
def test_arguments_and_results_of_any_size(size: int) -> None:
    sent = np.arange(size // 8, dtype=np.float64)
    (back,) = squall.map(lambda a: a + 1, [sent], run=RUN).results()
    assert np.array_equal(back, sent + 1)


def test_many_large_results_of_one_call() -> None:
    results = squall.map(lambda x: bytes([x]) * (3 << 20), range(8), run=RUN, chunksize=8).results()
    assert [(len(r), r[0]) for r in results] == [(3 << 20, x) for x in range(8)]


def test_classes_of_the_caller_are_the_same_when_they_come_back() -> None:
    class Point:
        def __init__(self, x: int) -> None:
            self.x = x

    (point,) = squall.map(lambda p: Point(p.x + 1), [Point(1)], run=RUN).results()
    assert isinstance(point, Point) and point.x == 2


def test_a_function_is_loaded_once_an_environment() -> None:
    seen: list[int] = []

    def count(_: int) -> tuple[int, int]:
        seen.append(1)
        return os.getpid(), len(seen)

    results = squall.map(count, range(30), run=RUN, chunksize=5).results()
    for pid in {pid for pid, _ in results}:
        counts = [n for p, n in results if p == pid]
        assert max(counts) == len(counts), "the second call of an environment found the first one's"
    assert seen == [], "and it is another than the client's"


def test_environments_are_warm_for_the_next_map() -> None:
    pids = {*squall.map(lambda _: os.getpid(), range(4), run=RUN, chunksize=1).results()}
    assert pids & {*squall.map(lambda _: os.getpid(), range(4), run=RUN, chunksize=1).results()}


# ---------------------------------------------------------------------------- modules of one's own


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package, a module beside it that it uses, and neither in site-packages."""
    folder = tmp_path / "project"
    (folder / "mypack").mkdir(parents=True)
    (folder / "myhelp.py").write_text("OFFSET = 100\ndef shift(x):\n    return x + OFFSET\n")
    (folder / "mypack" / "__init__.py").write_text("")
    (folder / "mypack" / "deep.py").write_text(
        "import myhelp\nclass Odd(ValueError):\n    pass\n"
        "def f(x):\n    if x == 1:\n        raise Odd('one')\n    return myhelp.shift(x)\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    yield
    for name in [n for n in sys.modules if n.partition(".")[0] in ("mypack", "myhelp")]:
        del sys.modules[name]


def test_local_modules_are_taken_along(project: None, monkeypatch: pytest.MonkeyPatch) -> None:
    import mypack.deep  # type: ignore[import-not-found]

    path = [p for p in sys.path if "project" not in p]
    monkeypatch.setattr(sys, "path", path)  # so functions, which get this path, cannot import them
    futures = squall.map(lambda x: mypack.deep.f(x), range(3), run=RUN)
    squall.wait(futures)
    assert (futures[0].result(), futures[2].result()) == (100, 102)
    assert isinstance(futures[1].exception(), mypack.deep.Odd)


# ----------------------------------------------------------------------------- items that fail


def test_one_item_fails_and_the_others_do_not() -> None:
    futures = squall.map(lambda x: 10 // x, [5, 0, 2], run=RUN, chunksize=3)
    with pytest.raises(ZeroDivisionError) as caught:
        futures.results()
    told = str(caught.value.__cause__)
    assert (
        "item 1" in told and "traceback inside the function" in told and "10 // x" not in told.split("\n")[0]
    )
    assert isinstance(caught.value.__cause__, FunctionError)
    assert (futures[0].result(), futures[2].result()) == (2, 5)
    assert futures.status().failed == 1


def deadly(x: int) -> int:
    match x:
        case 1:
            os._exit(7)
        case 2:
            sys.exit(3)
        case 3:
            os.kill(os.getpid(), signal.SIGSEGV)
        case 4:
            time.sleep(60)
        case 5:
            hoard = [b"x" * (8 << 20) for _ in range(100)]
            return len(hoard)
    return x


def test_deaths_are_told_apart_and_cost_the_neighbours_nothing() -> None:
    run = squall.Run(workers=2, memory="256MB")
    futures = squall.map(deadly, range(8), run=run, timeout="2s", chunksize=8)
    squall.wait(futures, 50)
    assert [f.result() for f in futures if f.exception() is None] == [0, 6, 7]
    errors = [futures[i].exception() for i in range(1, 6)]
    assert all(isinstance(error, CallError) for error in errors)
    outcomes = [error.outcome for error in errors]  # type: ignore[union-attr]
    assert outcomes == ["exited", "exited", "killed", "timed out", "out of memory"]
    assert [str(error).split("item ")[1][0] for error in errors] == ["1", "2", "3", "4", "5"]
    assert 'memory="3GB"' in str(errors[4])


def raises_two(_: int) -> None:
    raise TwoArgumentsError(1, 2)


def test_an_exception_that_cannot_be_loaded_arrives_as_text() -> None:
    (future,) = squall.map(raises_two, [0], run=RUN)
    error = future.exception(30)
    assert isinstance(error, FunctionError)
    assert error.remote_type.endswith("TwoArgumentsError")
    assert "raise TwoArgumentsError(1, 2)" in error.remote_traceback
    assert "1 and 2" in str(error)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, GeneratorExit])
def test_what_is_no_ordinary_exception_is_not_raised_here(kind: type[BaseException]) -> None:
    def stop(_: int) -> None:
        raise kind("there")

    (future,) = squall.map(stop, [0], run=RUN)
    assert isinstance(future.exception(30), FunctionError)


def test_a_result_that_cannot_be_pickled() -> None:
    futures = squall.map(lambda x: threading.Lock() if x else x, [0, 1], run=RUN)
    squall.wait(futures)
    assert futures[0].result() == 0
    assert isinstance(futures[1].exception(), SerializationError)


def test_a_function_or_an_item_that_cannot_be_pickled_is_told_at_once() -> None:
    lock = threading.Lock()
    with pytest.raises(SerializationError, match=r"the function .*lambda.* cannot be sent"):
        squall.map(lambda x: lock, [1], run=RUN)
    with pytest.raises(SerializationError, match="item 2"):
        squall.map(square, [0, 1, lock], run=RUN)


def test_what_cannot_be_sent_with_a_local_module_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "locked_module.py").write_text(
        "import threading\nLIMIT = 3\nCLIENT = {'url': 'x', 'lock': threading.Lock()}\n"
        "def work(x): return CLIENT['url']\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    locked_module = importlib.import_module("locked_module")
    told = r"in the variable CLIENT of the module locked_module"
    with pytest.raises(SerializationError, match=told):
        squall.map(locked_module.work, [1], run=RUN)
    with pytest.raises(SerializationError, match=told):
        squall.map(lambda x: locked_module.LIMIT + x, [1], run=RUN)
    del sys.modules["locked_module"]


@pytest.mark.parametrize("size", [10**4, 10**7])
def test_a_huge_message_is_cut_in_words(size: int) -> None:
    def fails(size: int) -> None:
        raise ValueError("x" * size)

    (future,) = ended(squall.map(fails, [size], run=RUN))
    error = future.exception()
    small = size < 1 << 20
    assert type(error) is (ValueError if small else FunctionError), "a large one comes as words only"
    words = str(error.__cause__ if small else error)
    assert len(words) < 20_000 and "characters more)" in words and "in fails" in words


def test_items_that_are_none_are_told_with_all_else() -> None:
    with pytest.raises(SettingError, match="items=3 cannot be gone through"):
        squall.map(abs, 3, run=RUN)  # type: ignore[arg-type]
    with pytest.raises(SettingError, match=r"(?s)2 settings are wrong.*items=None.*retries"):
        squall.map_reduce(abs, None, sum, run=RUN, retries=-1)  # type: ignore[arg-type]


def test_all_wrong_settings_at_once() -> None:
    with pytest.raises(SettingError) as caught:
        squall.map(3, [1], chunksize=0, timeout="soon", retries=-1, run="local")  # type: ignore[arg-type]
    for word in ("3 is not callable", "chunksize=0", "'soon'", "retries=-1", "run must be"):
        assert word in str(caught.value), word
    with pytest.raises(SettingError, match='did you mean "all"'):
        squall.wait([], return_when="al")  # type: ignore[arg-type]


def test_retries(tmp_path: Path) -> None:
    def third_time_lucky(x: int) -> int:
        with (tmp_path / str(x)).open("a") as file:
            file.write("x")
        if (tmp_path / str(x)).stat().st_size < 3:
            raise OSError("not yet")
        return x

    assert squall.map(third_time_lucky, range(3), retries=2, run=RUN).results() == [0, 1, 2]
    (future,) = squall.map(third_time_lucky, [7], retries=1, run=RUN)
    assert isinstance(future.exception(30), OSError)
    assert (tmp_path / "7").stat().st_size == 2


def test_nesting_is_refused_clearly() -> None:
    def nest(x: int) -> list[int]:
        import squall

        return squall.map(abs, [x]).results()

    (future,) = squall.map(nest, [1], run=RUN)
    with pytest.raises(SettingError, match=r"inside a function of squall\.map"):
        future.result(30)


def test_a_function_that_lives_too_short_goes_on_in_another() -> None:
    backend = squall.LocalBackend(lifetime="2s")
    futures = squall.map(
        lambda x: time.sleep(0.3) or x, range(8), run=squall.Run(backend=backend), chunksize=8
    )
    assert futures.results() == list(range(8))
    assert futures.bill.invocations > 1


# ------------------------------------------------------------------------------- waiting, ends


def test_futures_are_those_of_the_standard_library() -> None:
    futures = squall.map(square, range(4), run=RUN)
    assert {f.result() for f in concurrent.futures.as_completed(futures, 30)} == {0, 1, 4, 9}
    called: list[int] = []
    futures[0].add_done_callback(lambda f: called.append(f.result()))
    assert called == [0]


def test_wait_for_any_and_as_completed() -> None:
    futures = squall.map(lambda s: time.sleep(s) or s, [0.0, 30.0], run=RUN, chunksize=1)
    done, waiting = squall.wait(futures, 30, "any")
    assert [f.result() for f in done] == [0.0] and waiting == {futures[1]}
    assert next(squall.as_completed(futures)) is futures[0]
    with pytest.raises(TimeoutError):
        futures.results(timeout=0.01)
    futures.cancel()
    ended(futures)


def test_a_running_call_can_be_cancelled(tmp_path: Path) -> None:
    def endless(x: int) -> None:
        (tmp_path / "began").touch()
        time.sleep(60)

    (future,) = futures = squall.map(endless, [0], run=RUN)
    while not (tmp_path / "began").exists():
        time.sleep(0.01)
    assert future.running()
    assert future.cancel() and future.cancel() and future.cancelled()
    ended(futures)  # long before its sleep would be over
    with pytest.raises(concurrent.futures.CancelledError):
        future.result()
    assert not squall.map(square, [1], run=RUN)[0].exception(30)


def test_what_is_done_cannot_be_cancelled() -> None:
    (future,) = squall.map(square, [2], run=RUN)
    assert future.result(30) == 4
    assert not future.cancel() and future.result() == 4


def test_the_deadline_is_held_and_what_is_done_is_kept() -> None:
    run = squall.Run(workers=1, deadline="3s")
    futures = ended(squall.map(lambda s: time.sleep(s) or s, [0.0, 60.0, 60.0], run=run, chunksize=1))
    assert futures[0].result() == 0.0
    for future in futures[1:]:
        error = future.exception()
        assert isinstance(error, StoppedError) and error.reason == "deadline"
    assert futures.status().time_s < 10 and futures.status().reason == "deadline"


def test_the_budget_is_held() -> None:
    run = squall.Run(workers=2, memory="1024MB", budget="$0.0001")
    futures = ended(squall.map(lambda _: time.sleep(0.2), range(1000), run=run, chunksize=1))
    assert futures.status().reason == "budget"
    assert 0 < futures.cost < 0.00012
    assert sum(f.exception() is None for f in futures) > 0


def test_the_bill_counts_calls_time_and_objects_and_no_store() -> None:
    futures = ended(squall.map(lambda _: time.sleep(0.1), range(4), run=RUN, chunksize=1))
    bill = futures.bill
    assert bill.invocations == 4
    assert bill.gb_seconds >= 4 * 0.1 * 1769 / 1024
    assert bill.store_usd == 0.0 and bill.objects_usd > 0
    assert futures.cost == bill.total_usd


def test_logs_say_who_wrote() -> None:
    futures = squall.map(lambda x: print("hello", x), range(2), run=RUN, chunksize=1)
    futures.results()
    assert sorted(futures.logs().splitlines()) == [
        "[item 0, attempt 1] hello 0", "[item 1, attempt 1] hello 1",
    ]  # fmt: skip


def test_progress_where_someone_looks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("squall.workflows.futures.someone_looks", lambda: True)
    squall.map(lambda _: time.sleep(0.3), range(2), run=RUN).results()
    shown = capsys.readouterr().err
    assert shown.split("\r")[-1].startswith("2 of 2 items") and shown.endswith("\n") and "$" in shown


# ------------------------------------------------------------------------- faults of platforms


@pytest.mark.parametrize(
    "fault",
    [
        Fault(do=do, when=when)  # type: ignore[arg-type]
        for do, when in [
            ("kill", "before"), ("kill", "in flight"), ("kill", "after"), ("duplicate", "before"),
            ("duplicate", "in flight"), ("drop", "before"), ("drop", "in flight"), ("drop", "after"),
            ("delay", "before"), ("delay", "after"), ("throttle", "before"), ("throttle", "in flight"),
        ]
    ],
    ids=lambda fault: f"{fault.do} {fault.when}",
)  # fmt: skip
def test_one_fault_of_each_sort_changes_no_result(fault: Fault) -> None:
    backend = squall.LocalBackend(chaos=Chaos(script=(fault,), wait="50ms", lost_after="100ms"))
    run = squall.Run(workers=2, backend=backend)
    futures = ended(squall.map(lambda x: time.sleep(0.05) or x, range(6), run=run, chunksize=3))
    assert [f.result() for f in futures] == list(range(6))


def test_many_faults_and_an_honest_bill() -> None:
    chaos = Chaos(seed=3, kill=0.2, duplicate=0.1, drop=0.1, throttle=0.2, wait="20ms", lost_after="50ms")
    run = squall.Run(workers=4, backend=squall.LocalBackend(chaos=chaos))
    futures = ended(squall.map(square, range(60), run=run, chunksize=2))
    assert [f.result() for f in futures] == [x * x for x in range(60)]
    assert futures.bill.invocations > 30, "what was tried in vain is paid for, too"


def test_a_call_that_never_ends_as_far_as_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("squall.workflows.settings._START_S", 0.5)
    chaos = Chaos(script=(Fault(do="drop", when="after"),), lost_after=None)
    run = squall.Run(backend=squall.LocalBackend(lifetime="1s", chaos=chaos))
    assert squall.map(square, [3], run=run).results(30) == [9]


def test_a_job_whose_storage_is_lost_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    futures = squall.map(square, [1], run=squall.Run(storage=tmp_path / "file"))
    assert "the object store refused" in str(futures[0].exception(30))


def test_forged_results_are_refused(tmp_path: Path) -> None:
    def forge(folder: str) -> Callable[[], int]:
        for path in itertools.chain.from_iterable(Path(folder).glob("*/items") for _ in range(1)):
            results = path.parent / "results"
            results.mkdir(exist_ok=True)
            (results / "0-1-0").write_bytes(b"\0" * 64)
        return os.getpid

    storage = tmp_path / "storage"
    (future,) = ended(squall.map(forge, [str(storage / "jobs")], run=squall.Run(storage=storage)))
    assert "not signed with this job's key" in str(future.exception())
