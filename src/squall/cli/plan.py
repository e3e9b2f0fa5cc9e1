"""``--plan 3:4,6:8@3008MB``: after 3 epochs 4 workers, after 6 epochs 8 of that memory."""

from __future__ import annotations

import re
from typing import Any

import squall
from squall.config import Problems
from squall.errors import SquallError

_STEP = re.compile(r"(\d+):(\d+)?(?:@(.+))?")


def parse_plan(problems: Problems, text: str) -> squall.ScriptedPlanner | str:
    """The planner that ``text`` asks for; what is wrong with it is noted."""
    if text == "fixed":
        return text
    after: dict[int, Any] = {}
    for part in (part.strip() for part in text.split(",")):
        match = _STEP.fullmatch(part)
        if match is None or match[2] is match[3]:
            problems.add(
                f"--plan {part!r} is not EPOCH:WORKERS, EPOCH:WORKERS@MEMORY or EPOCH:@MEMORY, "
                'such as "3:4@2GB"'
            )
        elif int(match[1]) in after:
            problems.add(f"--plan says twice what comes after epoch {match[1]}")
        else:
            after[int(match[1])] = (None if match[2] is None else int(match[2]), match[3])
    try:
        return squall.ScriptedPlanner(after)
    except SquallError as error:
        problems.include(error)
        return "fixed"
