"""A job's projection, as its driver asks for it: probe, project, warn or refuse."""

from __future__ import annotations

from collections.abc import Callable

from squall.config import Run
from squall.data.objects import ObjectStore
from squall.driver.session import Session
from squall.driver.spec import Prepared
from squall.log import get_logger
from squall.planning.limits import Limits, check
from squall.planning.places import place_of
from squall.planning.probe import measure
from squall.planning.projection import project
from squall.procfs import n_runnable
from squall.protocols import SharedTables, StrategySettings
from squall.records import Expected

_log = get_logger(__name__)


def foresight(
    run: Run, n_workers: int, epochs: int, strategy: StrategySettings
) -> Callable[[Prepared, Session, ObjectStore, Expected], tuple[Expected, str]] | None:
    """What :class:`squall.driver.spec.JobSpec` projects with; None where there is no limit to hold.

    A plan that will probably not hold is warned of in the log, once, and in the job's notes.
    """
    limits = Limits(run.deadline_s, run.budget_usd)
    if limits == Limits(None, None) or strategy.whole_shares:  # (rounds of no known length)
        return None

    def look(
        prepared: Prepared, session: Session, objects: ObjectStore, spent: Expected
    ) -> tuple[Expected, str]:
        in_place = not strategy.needs_tables or (
            strategy.updates_in_place and isinstance(session.store.tables, SharedTables)
        )
        task, others = session.present.task, n_runnable()
        work = measure(
            prepared,
            session.store,
            task.table,
            objects,
            n_workers,
            epochs,
            in_place=in_place,
            together=not in_place and strategy.synchronous and n_workers > 1,
        )
        others += n_runnable()
        place = place_of(run, n_workers, others / 2 - 1)  # one of them is this thread
        told = check(work, place, spent, limits)
        if told:
            _log.warning("%s", told)
        return project(work, place, spent), told

    return look
