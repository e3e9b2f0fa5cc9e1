"""How ``squall train`` trains, from its options: by minibatches and a parameter server, or by ADMM."""

from __future__ import annotations

from typing import Any

import squall
from squall.config import Problems
from squall.errors import SquallError
from squall.protocols import StrategySettings

CHOICES = {
    "parameter-server": ("consistency",),
    "admm": ("rho", "tol", "max_rounds"),
}
"""Strategies, and which options belong to which."""


def parse_strategy(problems: Problems, name: str, given: dict[str, Any]) -> StrategySettings | None:
    """The strategy of that name; ``given`` has all options of `CHOICES`, None where one is not given."""
    problems.choice("--strategy", name, CHOICES)
    for owner, options in CHOICES.items():
        for option in options:
            if given[option] is not None and owner != name in CHOICES:
                problems.add(f"--{option.replace('_', '-')} is an option of --strategy {owner} only")
    settings = {key: given[key] for key in CHOICES.get(name, ()) if given[key] is not None}
    try:
        if name == "admm":
            return squall.ADMM(**_with_number(settings, "rho"))
        return squall.ParameterServer(**settings)
    except SquallError as error:
        problems.include(error)
        return None


def _with_number(settings: dict[str, Any], name: str) -> dict[str, Any]:
    """The same, where the text of one setting is a number if it can be; what else it is, its owner checks."""
    try:
        return settings | {name: float(settings[name])}
    except (KeyError, ValueError):
        return settings
