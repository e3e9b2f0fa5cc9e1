"""The fast store as far as a job's course depends on it: the real control core, and words to workers."""

from __future__ import annotations

from squall.errors import StoreLostError
from squall.store.control import ControlCore, KeptControl
from squall.store.layout import Cells


class VirtualStore:
    """The store of one leg of a job; :meth:`lose` ends it, as far as those are concerned who hold on to it.

    Parameters
    ----------
    job : str
        The job's id.
    n_slots : int
        Its slots.
    """

    def __init__(self, job: str, n_slots: int) -> None:
        self.job, self.n_slots = job, n_slots
        self._cells = Cells.private(n_slots)
        self._core = ControlCore()
        self._core.open_job(job, self._cells)
        self._lost = False
        self.turns: set[str] = set()
        self.words: dict[str, bytes] = {}  # of the driver to workers that wait before an epoch

    @property
    def core(self) -> ControlCore:
        """The control core.

        Raises
        ------
        StoreLostError
            If the store is no more.
        """
        if self._lost:
            raise StoreLostError("the store has ended")
        return self._core

    def checkpoint(self) -> VirtualStore:
        """A copy as it is now."""
        copy = VirtualStore(self.job, self.n_slots)
        copy._cells.progress[:] = self._cells.progress
        copy._cells.attempts[:] = self._cells.attempts
        kept: KeptControl = self._core.kept(self.job)
        copy._core.restore(self.job, kept)
        copy.words.update(self.words)
        return copy

    def lose(self) -> None:
        """The process that held it has died."""
        self._lost = True

    def close(self) -> None:
        """The job is over: workers that are left find that out."""
        if not self._lost:
            self._core.close_job(self.job)
            self._lost = True
