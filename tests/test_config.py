from __future__ import annotations

import contextvars
import dataclasses
import inspect
import threading
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import squall
from squall import LocalBackend, Run
from squall.config import (
    SMALL_DATA_ROWS,
    Problems,
    available_cores,
    current_run,
    current_scope,
    did_you_mean,
    has_tables,
    is_integer,
    is_number,
)
from squall.errors import SettingError, UnknownSettingError

# ------------------------------------------------------------------------------------ settings


def test_the_defaults():
    run = Run()
    assert (run.memory_mb, run.deadline_s, run.budget_usd) == (1769, None, None)
    assert run.resolve_backend() == LocalBackend()


def test_settings_are_understood():
    run = Run(backend=LocalBackend(lifetime="30s"), memory="2GB", deadline="1h30min", budget="$0.25")
    assert (run.memory_mb, run.deadline_s, run.budget_usd) == (2048, 5400.0, 0.25)
    assert run.resolve_backend().lifetime_s == 30.0


def test_memory_is_rounded_up_to_whole_megabytes():
    assert Run(memory=(200 << 20) + 1).memory_mb == 201


def test_everything_wrong_is_told_at_once():
    with pytest.raises(SettingError) as caught:
        Run(backend="lcal", workers=0, memory="64MB", storage=3, deadline="soon", budget=-1, prices=None,
            random_state=-1)  # type: ignore[arg-type]  # fmt: skip
    text = str(caught.value)
    assert text.startswith("Run: 8 settings are wrong:\n")
    assert len(text.splitlines()) == 9
    for expected in (
        "backend='lcal' is unknown; choose from lithops, local (did you mean \"local\"?)",
        'workers=0 must be "auto" or an integer from 1 to 1000',
        "memory='64MB' is below 128MB",
        "storage=3 must be a path or a URL",
        "deadline: 'soon' is not a duration; write",
        "budget: -1 is not an amount of money; write",
        "prices=None must be the name of a price list",
        "random_state=-1 must be an integer of at least 0",
    ):
        assert expected in text


def test_a_single_wrong_setting_is_one_line():
    with pytest.raises(SettingError, match=r"^Run: workers='two' must be [^\n]*$"):
        Run(workers="two")


@pytest.mark.parametrize("workers", [0, -1, 1.5, True, None, "1", [2], np.array([1, 2])])
def test_what_is_no_number_of_workers(workers):
    with pytest.raises(SettingError, match="workers"):
        Run(workers=workers)


@pytest.mark.parametrize("backend", [LocalBackend, None, 3, object(), ["local"]])
def test_what_is_no_backend(backend):
    with pytest.raises(
        SettingError, match=r"backend=.* is neither a name nor a backend object such as LocalB"
    ):
        Run(backend=backend)


@pytest.mark.parametrize("store", ["tpc", "", None, 3, "http://x"])
def test_what_is_no_store(store):
    with pytest.raises(SettingError, match=r"store=.* is unknown; choose from embedded, tcp"):
        Run(store=store)


@pytest.mark.parametrize(
    "store", ["redis://cache", "rediss://cache:6379/1", "s3://cache/x", "s3://cache", "file:///tmp/x"]
)
def test_stores_of_others(store: str) -> None:
    assert Run(store=store).store == store
    assert not has_tables(store)


@pytest.mark.parametrize("store", ["redis://", "redis://cache/x", "s3:/cache", "file://x", "redis://a,b"])
def test_what_is_no_address_of_such_a_store(store: str) -> None:
    with pytest.raises(SettingError, match="is unknown; choose from"):
        Run(store=store)


def test_a_store_that_holds_a_password_is_refused_without_showing_it() -> None:
    with pytest.raises(SettingError, match=r"//\*\*\*@cache.*holds a password.*SQUALL_STORE_TOKEN") as caught:
        Run(store="rediss://:hidden@cache:6379/1")
    assert "hidden" not in str(caught.value)


def test_strict_isolation_needs_a_store_on_tcp():
    class Strict:
        name, isolation = "local", "strict"

    with pytest.raises(SettingError, match='use store="tcp"'):
        Run(backend=Strict())
    assert Run(backend=Strict(), store="tcp").store == "tcp"


def test_the_local_backends_errors_come_at_once_too():
    with pytest.raises(
        SettingError, match=r"LocalBackend: 2 settings are wrong:(?s:.)*concurr(?s:.)*lifetime"
    ):
        LocalBackend(concurrency=0, lifetime="forever")


def test_a_lifetime_below_a_second_is_refused():
    with pytest.raises(SettingError, match="too short for a function to start"):
        LocalBackend(lifetime="900ms")


# ---------------------------------------------------------------------------------- as a value


def test_a_run_is_frozen():
    with pytest.raises(AttributeError):
        Run().workers = 3  # type: ignore[misc]


def test_equal_settings_are_equal_and_hash_alike():
    a, b = (Run(workers=2, storage=Path("/tmp/x"), backend=LocalBackend(concurrency=2)) for _ in range(2))
    assert a == b
    assert hash(a) == hash(b)
    assert a != a.replace(workers=3)


def test_replace_changes_a_copy():
    run = Run(workers=2, deadline="10min")
    assert run.replace(workers=4) == Run(workers=4, deadline="10min")
    assert run.workers == 2


def test_replace_checks_the_new_values():
    with pytest.raises(SettingError, match="workers=-1"):
        Run().replace(workers=-1)


def test_replace_of_an_unknown_setting_says_what_was_meant():
    with pytest.raises(SettingError, match=r"there is no setting 'wokers'.*did you mean \"workers\""):
        Run().replace(wokers=2)


def test_repr_shows_what_differs_from_the_defaults():
    assert repr(Run()) == "Run()"
    assert repr(Run(workers=2, budget="$1")) == "Run(workers=2, budget='$1')"


@pytest.mark.parametrize(
    "storage",
    [
        "s3://AKIA:hunter2@bucket/path",
        "s3://hunter2@bucket/path",
        "s3://bucket/path?secret_access_key=hunter2&region=eu",
        "s3://bucket/path?region=eu&AWS_SESSION_TOKEN=hunter2",
        "https://host/path?X-Amz-Signature=hunter2",
        "https://host/path?X-Amz-Credential=hunter2",
        "https://account.blob/path?sv=1&sig=hunter2",
        Path("s3:/bucket?password=hunter2"),
    ],
)
def test_secrets_of_a_storage_url_are_masked(storage):
    shown = repr(Run(storage=storage))
    assert "hunter2" not in shown
    assert "***" in shown


def test_a_storage_url_without_secrets_is_shown_whole():
    assert repr(Run(storage="s3://bucket/a?region=eu")) == "Run(storage='s3://bucket/a?region=eu')"


# ------------------------------------------------------------------------------------- workers


@pytest.mark.parametrize("rows", [0, 1, SMALL_DATA_ROWS - 1])
def test_small_data_has_one_worker(rows):
    assert Run().resolve_workers(rows) == 1


def test_large_data_has_a_worker_for_each_core():
    assert SMALL_DATA_ROWS == 50_000
    assert Run().resolve_workers(50_000) == available_cores()


@pytest.mark.parametrize("workers", [3, np.int64(3)])
def test_a_number_of_workers_is_kept(workers):
    assert Run(workers=workers).resolve_workers(10) == 3


# ------------------------------------------------------------------------------------- context


def test_outside_a_context_the_defaults_hold():
    assert current_scope() is None
    assert current_run() == Run()


def test_contexts_nest_and_end():
    with Run(workers=2) as outer:
        assert current_run() is outer
        with Run(workers=3) as inner:
            assert current_run() is inner
        assert current_run() is outer
    assert current_run() == Run()


def test_the_same_run_can_be_entered_twice():
    run = Run(workers=2)
    with run, run:
        assert current_run() is run
    assert current_scope() is None


def test_a_context_ends_when_its_body_raises():
    with pytest.raises(KeyError), Run(workers=2):
        raise KeyError
    assert current_scope() is None


def in_thread(function):
    seen = []
    thread = threading.Thread(target=lambda: seen.append(function()))
    thread.start()
    thread.join(10)
    return seen[0]


def test_another_thread_does_not_see_the_context():
    with Run(workers=2):
        assert in_thread(current_run) == Run()


def test_a_thread_that_copies_the_context_does():
    with Run(workers=2) as run:
        context = contextvars.copy_context()
        assert in_thread(lambda: context.run(current_run)) is run


def test_a_context_of_another_thread_does_not_leak_into_this_one():
    def enter():
        Run(workers=5).__enter__()
        return current_run().workers

    assert in_thread(enter) == 5
    assert current_scope() is None


def test_resources_of_a_scope_are_given_back_at_its_end_the_last_first():
    closed = []
    with Run():
        current_scope().resources.callback(closed.append, "outer")
        with Run():
            current_scope().resources.callback(closed.append, "inner, first")
            current_scope().resources.callback(closed.append, "inner, last")
        assert closed == ["inner, last", "inner, first"]
    assert closed[2:] == ["outer"]


def test_resources_are_given_back_when_the_body_raises():
    closed = []
    with pytest.raises(KeyError), Run():
        current_scope().resources.callback(closed.append, 1)
        raise KeyError
    assert closed == [1]


# ----------------------------------------------------------------------------- Problems and co.


@pytest.mark.parametrize("value", [0, -3, np.int8(1), 10**400])
def test_integers(value):
    assert is_integer(value)


@pytest.mark.parametrize("value", [True, np.True_, 1.0, "1", None, np.array([1])])
def test_what_is_no_integer(value):
    assert not is_integer(value)


@pytest.mark.parametrize("value", [0, 1.5, -2, np.float32(1), np.int8(1), Fraction(1, 3)])
def test_numbers(value):
    assert is_number(value)


@pytest.mark.parametrize(
    "value", [True, float("nan"), float("inf"), 10**400, "1", None, 1j, np.complex64(1), np.array([1.0, 2.0])]
)
def test_what_is_no_finite_number(value):
    assert not is_number(value)


def test_no_problem_no_error():
    Problems("here").raise_if_any()


@pytest.mark.parametrize("value", [5, 9])
def test_the_ends_of_a_range_belong_to_it(value):
    problems = Problems("here")
    problems.integer("n", value, 5, high=9)
    problems.raise_if_any()


@pytest.mark.parametrize("value", [4, 10, "auto"])
def test_beyond_a_range(value):
    problems = Problems("here")
    problems.integer("n", value, 5, high=9)
    with pytest.raises(SettingError, match=r"^here: n=.* must be an integer from 5 to 9$"):
        problems.raise_if_any()


def test_did_you_mean_is_silent_when_nothing_is_close():
    assert did_you_mean("zzz", ["adagrad", "sgd"]) == ""
    assert did_you_mean(None, ["adagrad"]) == ""


def test_the_public_names_load():
    assert all(hasattr(squall, name) for name in squall.__all__)
    assert set(squall.__all__) <= set(dir(squall))


def test_an_unknown_public_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Ron'"):
        squall.Ron


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Run(worker=2), "Run: there is no setting 'worker' (did you mean \"workers\"?)"),
        (lambda: LocalBackend(isolatoin="off"), 'did you mean "isolation"'),
        (lambda: squall.LogisticRegression(learnin_rate=1), 'did you mean "learning_rate"'),
        (lambda: squall.FeatureHasher(features=8), 'did you mean "n_features"'),
    ],
)
def test_a_setting_that_is_not_there_says_what_was_meant(make, told):
    with pytest.raises(UnknownSettingError) as caught:
        make()
    assert told in str(caught.value) and "fix: choose from" in str(caught.value)
    assert isinstance(caught.value, TypeError), "as for every other unknown argument"


def test_naming_settings_leaves_signatures_as_they_were():
    assert list(inspect.signature(Run).parameters) == [f.name for f in dataclasses.fields(Run)]
    assert "learning_rate" in inspect.signature(squall.LogisticRegression).parameters


@pytest.mark.parametrize("setting", [{"storage": ""}, {"prices": ""}, {"workers": 1001}])
def test_settings_that_mean_nothing_or_too_much(setting):
    with pytest.raises(SettingError, match=next(iter(setting))):
        Run(**setting)
