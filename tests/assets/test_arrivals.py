import json
from datetime import date

import pytest

from retention_assets.assets.arrivals import arrivals

FIRST, SECOND, THIRD = "2026-10-29T01-00Z", "2026-10-30T01-00Z", "2026-10-31T01-00Z"


def days(found) -> list[str]:
    return [day.isoformat() for day, _ in found.days]


def test_the_first_tick_starts_only_the_run_of_the_newest_day():
    found = arrivals([[FIRST, SECOND, THIRD]], None)
    assert days(found) == ["2026-10-31"]
    assert days(arrivals([[FIRST, SECOND, THIRD]], found.cursor)) == []


def test_each_delivery_starts_the_run_of_its_day_once():
    cursor = arrivals([[FIRST]], None).cursor
    found = arrivals([[FIRST, SECOND]], cursor)
    assert found.days == ((date(2026, 10, 30), SECOND),)
    assert days(arrivals([[FIRST, SECOND]], found.cursor)) == []


def test_a_delivery_that_arrives_after_a_newer_one_starts_the_run_of_its_day():
    cursor = arrivals([[FIRST]], None).cursor
    cursor = arrivals([[FIRST, THIRD]], cursor).cursor
    assert days(arrivals([[FIRST, SECOND, THIRD]], cursor)) == ["2026-10-30"]


def test_a_second_delivery_of_a_day_starts_another_run_of_that_day():
    later = "2026-10-29T13-00Z"
    cursor = arrivals([[FIRST]], None).cursor
    assert arrivals([[FIRST, later]], cursor).days == ((date(2026, 10, 29), later),)


def test_the_run_of_a_day_waits_for_the_delivery_of_every_inventory():
    cursor = arrivals([[FIRST], [FIRST]], None).cursor
    assert days(arrivals([[FIRST, SECOND], [FIRST]], cursor)) == []
    assert days(arrivals([[FIRST, SECOND], [FIRST, SECOND]], cursor)) == ["2026-10-30"]


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1)], ids=["added", "removed"])
def test_an_added_or_removed_inventory_starts_only_the_run_of_the_newest_day(before: int, after: int):
    cursor = arrivals([[FIRST, SECOND]] * before, None).cursor
    found = arrivals([[FIRST, SECOND, THIRD]] * after, cursor)
    assert days(found) == ["2026-10-31"]
    assert days(arrivals([[FIRST, SECOND, THIRD]] * after, found.cursor)) == []


def test_a_replaced_inventory_starts_only_the_run_of_the_newest_day():
    cursor = arrivals([[FIRST, SECOND]], None, "one").cursor
    assert days(arrivals([[FIRST, SECOND, THIRD]], cursor, "one")) == ["2026-10-31"]
    later = [name.replace("T01-00Z", "T04-12Z") for name in (FIRST, SECOND, THIRD)]
    found = arrivals([later], cursor, "two")
    assert days(found) == ["2026-10-31"]
    assert days(arrivals([later], found.cursor, "two")) == []


def test_a_cursor_of_an_earlier_version_is_one_of_the_same_inventories():
    cursor = json.loads(arrivals([[FIRST, SECOND]], None).cursor)
    del cursor["inventories"]
    assert days(arrivals([[FIRST, SECOND, THIRD]], json.dumps(cursor), "one")) == ["2026-10-31"]
    assert days(arrivals([[FIRST, SECOND]], json.dumps(cursor), "one")) == []


def test_many_deliveries_start_at_most_five_runs_at_a_time_and_none_is_lost():
    names = [f"2026-10-{day:02d}T01-00Z" for day in range(2, 15)]
    cursor, started = arrivals([["2026-10-01T01-00Z"]], None).cursor, []
    while (found := arrivals([names], cursor)).days:
        assert len(found.days) <= 5
        started += days(found)
        cursor = found.cursor
    assert started == [name[:10] for name in names]


def test_the_size_of_the_cursor_is_bounded():
    cursor = None
    for year in range(2000, 2026):
        for month in range(1, 13):
            cursor = arrivals([[f"{year}-{month:02d}-15T01-00Z"]], cursor).cursor
    assert len(json.loads(cursor)["started"]) <= 3


@pytest.mark.parametrize("complete", [[], [[]], [[FIRST], []]], ids=["no_inventory", "nothing_yet", "one_lacks_all"])
def test_without_a_complete_delivery_no_run_is_started(complete):
    assert arrivals(complete, None).days == ()


def test_a_tick_without_deliveries_keeps_the_cursor():
    cursor = arrivals([[FIRST]], None).cursor
    assert arrivals([[]], cursor).cursor == cursor
