"""A planner that does what it has been told beforehand."""

from __future__ import annotations

from typing import Any

import msgspec

from squall.config import MAX_WORKERS, MIN_MEMORY_MB, Problems, is_integer
from squall.records import Plan, Situation
from squall.units import parse_size

Step = tuple[int | None, str | int | None]
"""Workers and memory (such as ``"3008MB"``); None leaves one as it is."""


class ScriptedPlanner(msgspec.Struct, frozen=True):
    """Changes the number and the memory of workers after epochs that are named beforehand.

    Parameters
    ----------
    after : dict
        Number of complete epochs → workers, or ``(workers, memory)``, from then on.  None leaves one of
        both as it is.

    Raises
    ------
    SettingError
        Naming everything that is wrong.

    Examples
    --------
    >>> import squall
    >>> planner = squall.ScriptedPlanner({2: 4, 5: (8, "3008MB")})
    >>> squall.Run(workers=2, plan=planner).workers
    2
    """

    after: dict[int, Any]

    def __post_init__(self) -> None:
        problems = Problems("ScriptedPlanner")
        steps: dict[int, Step] = {}
        if not isinstance(self.after, dict):
            problems.add(f"after={self.after!r} must be a dict, such as {{2: 4}}: after 2 epochs 4 workers")
        else:
            for epoch, step in self.after.items():
                steps[epoch] = _checked(problems, epoch, step)
        problems.raise_if_any()
        msgspec.structs.force_setattr(self, "after", steps)

    def next_plan(self, situation: Situation) -> Plan:
        """See :meth:`squall.protocols.Planner.next_plan`."""
        workers, memory = self.after.get(situation.epoch, (None, None))
        return Plan(
            situation.plan.workers if workers is None else workers,
            situation.plan.memory_mb if memory is None else -(-parse_size(memory) // (1 << 20)),
        )


def _checked(problems: Problems, epoch: Any, step: Any) -> Step:
    if not is_integer(epoch) or epoch < 1:
        problems.add(
            f"after={{{epoch!r}: …}}: an epoch after which something changes is an integer from 1 on"
        )
    pair = tuple(step) if isinstance(step, (tuple, list)) else (step, None)
    if len(pair) != 2:
        problems.add(f"after={{{epoch!r}: {step!r}}} must be workers or (workers, memory)")
        return None, None
    workers, memory = pair
    if workers is not None:
        problems.integer(f"workers after epoch {epoch}", workers, 1, high=MAX_WORKERS)
    if memory is not None:
        size = problems.check(parse_size, f"memory after epoch {epoch}", memory)
        if size is not None and size < MIN_MEMORY_MB << 20:
            problems.add(f"memory={memory!r} is below {MIN_MEMORY_MB}MB, the least that a function can have")
    return workers, memory
