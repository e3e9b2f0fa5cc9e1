"""``--chaos kill=0.05,dup=0.05``: faults to inject, as typed."""

from __future__ import annotations

from squall.config import Problems, did_you_mean
from squall.records import Chaos

_CHANCES = {"kill": "kill", "dup": "duplicate", "duplicate": "duplicate", "drop": "drop"} | {
    name: name for name in ("delay", "throttle", "slow")
}
_COUNTS = {"seed": "seed", "quota": "quota", "max": "max_faults"}


def parse_chaos(problems: Problems, text: str) -> Chaos:
    """The faults that ``text`` asks for; what is wrong with it is noted."""
    settings: dict[str, float | int] = {}
    known = {**_CHANCES, **_COUNTS}
    listed = ", ".join(f"{name}=…" for name in known)
    for part in text.split(","):
        name, equals, value = (word.strip() for word in part.partition("="))
        if name not in known or not equals:
            problems.add(f"--chaos {part!r} is not one of {listed}{did_you_mean(name, known)}")
            continue
        kind = float if name in _CHANCES else int
        try:
            settings[known[name]] = kind(value)
        except ValueError:
            noun = "a probability" if kind is float else "an integer"
            problems.add(f"--chaos {name}={value!r} must be {noun}")
    return Chaos(**settings)  # type: ignore[arg-type]
