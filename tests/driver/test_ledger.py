"""The bill: arithmetic on dated prices."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from squall.driver.ledger import Ledger, PriceList, load_prices
from squall.errors import SettingError

PRICES = PriceList(
    name="test",
    date="2026-01-01",
    source="made up",
    gb_second=2.0,
    request=0.5,
    object_get=0.01,
    object_put=0.1,
    store_hour=3600.0,
    store_machine="none",
)


def test_compute_is_billed_time_by_memory_by_price() -> None:
    ledger = Ledger(PRICES, memory_mb=512, now=0.0)
    ledger.launch((0, 1), 0.0)
    assert ledger.end((0, 1), billed_s=3.0) == pytest.approx(3.0 * 0.5 * 2.0 + 0.5)
    bill = ledger.bill(0.0)
    assert bill.compute_usd == pytest.approx(3.0)
    assert bill.requests_usd == 0.5
    assert bill.invocations == 1
    assert bill.gb_seconds == pytest.approx(1.5)


def test_what_maps_cost_for_the_job_is_on_its_bill() -> None:
    def ledger() -> Ledger:
        ledger = Ledger(PRICES, memory_mb=512, now=0.0)
        ledger.launch((0, 1), 0.0)
        ledger.end((0, 1), billed_s=3.0)
        ledger.objects(2, 1)
        return ledger

    job, spent = ledger(), ledger().bill(2.0)
    own = job.bill(5.0)
    job.add(spent, spent)
    assert job.bill(5.0) == own + spent + spent
    assert job.bill(5.0).total_usd == pytest.approx(own.total_usd + 2 * spent.total_usd)
    assert (
        job.bill(5.0).invocations == 3 and job.bill(5.0).price_list == own.price_list == "test (2026-01-01)"
    )
    other = Ledger(load_prices("aws-lambda-us-east-1"), 512, 0.0).bill(0.0)
    assert (own + other).price_list == f"{own.price_list}; {other.price_list}"


def test_billed_time_is_rounded_up_to_the_granularity() -> None:
    ledger = Ledger(PRICES, memory_mb=1024, now=0.0)
    ledger.launch((0, 1), 0.0)
    ledger.end((0, 1), billed_s=0.0001)
    assert ledger.bill(0.0).gb_seconds == pytest.approx(0.001)


def test_a_running_invocation_counts_up_to_now() -> None:
    ledger = Ledger(PRICES, memory_mb=1024, now=0.0)
    ledger.launch((0, 1), 10.0)
    assert ledger.bill(12.0).compute_usd == pytest.approx(4.0)


def test_what_a_worker_says_of_its_time_is_better_than_a_guess() -> None:
    ledger = Ledger(PRICES, memory_mb=1024, now=0.0)
    ledger.launch((0, 1), 10.0)  # and its environment took two seconds to come up, unbilled
    ledger.heard((0, 1), billed_s=1.0, now=13.0)
    assert ledger.bill(13.5).compute_usd == pytest.approx(1.5 * 2.0)
    ledger.heard((7, 7), billed_s=1.0, now=13.0)
    assert ledger.bill(13.5).compute_usd == pytest.approx(1.5 * 2.0), "nobody runs under that name"


def test_every_attempt_is_paid_for() -> None:
    ledger = Ledger(PRICES, memory_mb=1024, now=0.0)
    for attempt in (1, 2):
        ledger.launch((0, attempt), 0.0)
        ledger.end((0, attempt), 1.0)
    assert ledger.bill(0.0).gb_seconds == pytest.approx(2.0)
    assert ledger.bill(0.0).invocations == 2


def test_store_and_object_requests() -> None:
    ledger = Ledger(PRICES, memory_mb=1024, now=5.0)
    ledger.objects(gets=3, puts=2)
    bill = ledger.bill(7.0)
    assert bill.objects_usd == pytest.approx(0.23)
    assert bill.store_usd == pytest.approx(2.0)
    assert bill.total_usd == pytest.approx(2.23)


def test_the_price_list_that_comes_with_squall() -> None:
    prices = load_prices("aws-lambda-us-east-1")
    assert prices.gb_second == pytest.approx(1.66667e-5)
    assert prices.request == pytest.approx(0.2e-6)
    # One second of 1,769 MB, as AWS's own calculator says: $0.0000288.
    ledger = Ledger(prices, 1769, 0.0)
    ledger.launch((0, 1), 0.0)
    assert ledger.end((0, 1), 1.0) == pytest.approx(2.88e-5 + 2e-7, rel=1e-3)


def test_ones_own_price_file(tmp_path: Path) -> None:
    own = json.loads(json.dumps({name: getattr(PRICES, name) for name in PRICES.__struct_fields__}))
    path = tmp_path / "prices.json"
    path.write_text(json.dumps(own))
    assert load_prices(path) == PRICES


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "not a price list"),
        ('{"name": "x"}', "missing required field"),
        ('{"gb_second": "free"}', "not a price list"),
    ],
)
def test_a_file_that_is_no_price_list(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "prices.json"
    path.write_text(text)
    with pytest.raises(SettingError, match=told):
        load_prices(path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("request", -1.0),
        ("gb_second", 1e308),
        ("store_hour", 1e7),
        ("object_get", float("nan")),
        ("object_put", float("inf")),
        ("granularity_s", 0.0),
        ("granularity_s", 1e-300),
        ("granularity_s", 1e300),
    ],
)
def test_prices_that_are_none_are_refused(tmp_path: Path, field: str, value: float) -> None:
    own = {name: getattr(PRICES, name) for name in PRICES.__struct_fields__} | {field: value}
    path = tmp_path / "prices.json"
    path.write_text(json.dumps(own))
    with pytest.raises(SettingError, match="not a price list"):
        load_prices(path)


@pytest.mark.parametrize("path", ["x" * 5000, "a\0b", "~nosuchuser/prices", "/dev/zero", "/"])
def test_a_path_that_leads_to_no_price_list(path: str) -> None:
    with pytest.raises(SettingError):
        load_prices(path)


def test_an_unknown_list_says_which_there_are() -> None:
    with pytest.raises(SettingError, match="did you mean"):
        load_prices("aws-lambda-us-east-2")
