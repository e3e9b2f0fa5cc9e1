"""`squall.Executor` behaves as the standard library's executors do."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import time
from pathlib import Path

import pytest

import squall
from squall.errors import SerializationError, SettingError

RUN = squall.Run(workers=2)


def test_submit_and_map() -> None:
    with squall.Executor(RUN) as executor:
        assert executor.submit(pow, 2, exp=5).result() == 32
        assert list(executor.map(pow, [1, 2, 3], [2, 2, 2])) == [1, 4, 9]
        assert list(executor.map(abs, range(-50, 0), chunksize=10)) == list(range(50, 0, -1))
        assert list(executor.map(abs, [])) == []


def test_it_stands_in_for_the_standard_librarys() -> None:
    async def through_asyncio(executor: concurrent.futures.Executor) -> int:
        return await asyncio.get_running_loop().run_in_executor(executor, abs, -3)

    with squall.Executor(RUN) as executor:
        assert isinstance(executor, concurrent.futures.Executor)
        assert asyncio.run(through_asyncio(executor)) == 3
        futures = [executor.submit(divmod, 7, n) for n in (0, 2)]
        done, _ = concurrent.futures.wait(futures, 30)
        assert done == set(futures)
        assert isinstance(futures[0].exception(), ZeroDivisionError) and futures[1].result() == (3, 1)


def test_futures_of_futures() -> None:
    """Calls that follow from others keep it open; a callback may submit."""
    with squall.Executor(RUN) as executor:
        followers: list[concurrent.futures.Future[int]] = []
        first = executor.submit(abs, -1)
        first.add_done_callback(lambda f: followers.append(executor.submit(abs, f.result() - 3)))
        while not followers:
            time.sleep(0.01)
        assert followers[0].result(30) == 2


def test_not_more_at_once_than_was_asked_for(tmp_path: Path) -> None:
    folder = tmp_path / "running"
    folder.mkdir()

    def count(number: int) -> int:
        (folder / str(number)).touch()
        time.sleep(0.1)
        running = len(list(folder.iterdir()))
        (folder / str(number)).unlink()
        return running

    with squall.Executor(RUN, max_workers=1) as executor:
        assert set(executor.map(count, range(4))) == {1}


def test_after_shutdown_it_takes_nothing() -> None:
    executor = squall.Executor(RUN)
    future = executor.submit(abs, -1)
    executor.shutdown()
    executor.shutdown()
    assert future.done() and future.result() == 1
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(abs, -1)
    assert executor.status().state == "ended"


def test_shutdown_can_cancel_what_is_left() -> None:
    executor = squall.Executor(RUN, max_workers=1)
    futures = [executor.submit(time.sleep, 60) for _ in range(3)]
    executor.shutdown(cancel_futures=True)  # returns long before the sleeps would be over
    assert all(future.cancelled() for future in futures)


def test_an_interrupted_block_ends_its_calls() -> None:
    with pytest.raises(KeyboardInterrupt):
        with squall.Executor(RUN) as executor:
            future = executor.submit(time.sleep, 60)
            raise KeyboardInterrupt
    assert "interrupted" in str(future.exception())


def test_a_result_is_waited_for_so_long_and_no_longer() -> None:
    with squall.Executor(RUN) as executor:
        results = executor.map(time.sleep, [60, 60], timeout=0.2)
        with pytest.raises(TimeoutError):
            next(results)


def test_bill_logs_and_errors() -> None:
    with squall.Executor(RUN, timeout="1s") as executor:
        executor.submit(print, "hello").result()
        with pytest.raises(SerializationError, match="cannot be sent"):
            executor.submit(len, (n for n in ()))
        assert executor.submit(time.sleep, 60).exception().outcome == "timed out"  # type: ignore[union-attr]
    assert executor.bill.invocations == 2
    assert executor.logs() == "[item 0, attempt 1] hello"


def test_all_wrong_settings_at_once() -> None:
    with pytest.raises(SettingError) as caught:
        squall.Executor(max_workers=0, timeout="never", retries=-1)
    for word in ("max_workers=0", "'never'", "retries=-1"):
        assert word in str(caught.value)


def test_functions_run_elsewhere() -> None:
    with squall.Executor(RUN) as executor:
        assert executor.submit(os.getpid).result() != os.getpid()
