from __future__ import annotations

import copy
import inspect
import pickle

import pytest

from squall import errors
from squall.errors import DataError, FunctionError, SquallError

CLASSES = [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, SquallError)]


def test_a_message_says_where_what_and_the_fix():
    error = DataError("it is text", where="column 'a'", fix="hash it")
    assert str(error) == "column 'a': it is text\n  fix: hash it"


def test_a_message_of_one_sentence():
    assert str(SquallError("it broke")) == "it broke"


@pytest.mark.parametrize("cls", CLASSES)
def test_all_are_told_apart_from_other_errors_and_survive_pickle_and_copy(cls):
    error = cls("what", where="where", fix="fix")
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(twin) is cls
        assert (twin.what, twin.where, twin.fix) == ("what", "where", "fix")
        assert str(twin) == str(error)


@pytest.mark.parametrize(
    ("cls", "builtin"),
    [
        (errors.SettingError, ValueError),
        (errors.DataError, ValueError),
        (errors.CorruptError, ValueError),
        (errors.MissingExtraError, ImportError),
        (errors.DivergenceError, ArithmeticError),
    ],
)
def test_bad_arguments_are_also_pythons_own_errors(cls, builtin):
    assert issubclass(cls, builtin)


def test_a_functions_error_shows_its_traceback_and_keeps_it_through_pickle():
    error = FunctionError(
        "ValueError: no", where="worker 1", remote_type="ValueError", remote_traceback="a\nb\n"
    )
    twin = pickle.loads(pickle.dumps(error))
    assert twin.remote_type == "ValueError"
    assert str(twin) == "worker 1: ValueError: no\n  traceback inside the function:\n  | a\n  | b"
