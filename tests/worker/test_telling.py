"""What a function raised, in words."""

from __future__ import annotations

import pytest

from squall.worker.telling import MAX_MESSAGE, MAX_TRACEBACK, Told, told


def raised(error: Exception) -> Told:
    try:
        raise error
    except type(error) as caught:
        return told(caught, "elsewhere.py")


def test_a_short_one_is_told_as_it_is() -> None:
    one = raised(ValueError("too few rows"))
    assert (one.kind, one.message) == ("ValueError", "too few rows")
    assert "raise error" in one.traceback and one.traceback.endswith("ValueError: too few rows\n")


def test_a_huge_message_is_cut_with_a_note_and_the_frames_stay() -> None:
    one = raised(ValueError("x" * 10**7))
    assert f"{10**7 - MAX_MESSAGE:,} characters more" in one.message
    assert len(one.message) < MAX_MESSAGE + 100 and len(one.traceback) < MAX_MESSAGE + 1000
    assert "raise error" in one.traceback and one.traceback.endswith("more)\n")


def test_a_long_chain_keeps_its_end() -> None:
    error = ValueError("the last")
    for number in range(200):
        cause, error = error, ValueError(f"{number}: {'y' * 1000}")
        error.__cause__ = cause
    one = raised(error)
    assert len(one.traceback) == MAX_TRACEBACK and "199: " in one.traceback


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("it has no words")


@pytest.mark.parametrize("error", [UnspeakableError(), ValueError("\ud800")])
def test_what_cannot_be_said_is_told_all_the_same(error: Exception) -> None:
    one = raised(error)
    assert one.kind.endswith(type(error).__name__)
    "".join(one).encode()
