"""joblib's tasks, and so scikit-learn's ``n_jobs``, on functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import joblib
from joblib.parallel import FallbackToBackend, ParallelBackendBase, SequentialBackend

from squall.config import Run, checked_run
from squall.workflows.executor import Executor
from squall.workflows.settings import run_workers


class SquallBackend(ParallelBackendBase):  # type: ignore[misc]  # joblib has no types
    """A backend of joblib whose tasks run on functions.

    Parameters
    ----------
    run : Run, optional
        Default: the ``with squall.Run(…)`` around the call of ``joblib.Parallel``.
    """

    supports_retrieve_callback = True
    uses_threads = False
    supports_sharedmem = False

    def __init__(self, *args: Any, run: Run | None = None, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._given = run
        self._executor: Executor | None = None

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """Tasks at the same time: −1 means as many as the run has workers."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs is None:
            return 1
        if n_jobs > 0:
            return n_jobs
        return max(1, run_workers(checked_run(self._given, "joblib")) + 1 + n_jobs)

    def configure(self, n_jobs: int = 1, parallel: Any = None, **_: Any) -> int:
        """Open an executor for one ``joblib.Parallel``.

        Raises
        ------
        FallbackToBackend
            For one task at a time, which need no functions.
        """
        self.parallel = parallel
        workers = self.effective_n_jobs(n_jobs)
        if workers == 1:  # joblib does such tasks itself, and would never end an executor
            raise FallbackToBackend(SequentialBackend(nesting_level=self.nesting_level))
        if self._executor is None:
            self._executor = Executor(checked_run(self._given, "joblib"), max_workers=workers)
        return workers

    def submit(self, func: Callable[[], Any], callback: Callable[[Any], Any] | None = None) -> Any:
        """Have one batch of tasks called."""
        assert self._executor is not None, "configure() comes first"
        future = self._executor.submit(func)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, out: Any) -> Any:
        """A batch's results, or what it raised."""
        return out.result()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """A task has failed: end the others."""
        workers = self.parallel.n_jobs if self.parallel is not None else 1
        self.terminate(cancel=True)
        if ensure_ready:
            self.configure(workers, self.parallel)

    def terminate(self, *, cancel: bool = False) -> None:
        """End the executor, and all that it still runs."""
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=True, cancel_futures=cancel)

    def get_nested_backend(self) -> tuple[Any, int | None]:
        """Tasks of tasks are done in turn inside the function."""
        return SequentialBackend(nesting_level=(self.nesting_level or 0) + 1), None


def register_joblib() -> None:
    """Make ``joblib.parallel_config(backend="squall")`` known to joblib.

    Then scikit-learn's ``n_jobs`` runs on functions inside of it, with the settings of the
    ``with squall.Run(…)`` around it, or of ``parallel_config(backend="squall", run=…)``.
    """
    joblib.register_parallel_backend("squall", SquallBackend)
