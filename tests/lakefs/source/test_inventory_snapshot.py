"""The inventory snapshot: what is listed, what an earlier snapshot provides, and when everything is listed."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from retention_assets.lakefs.source.inventory_snapshot import (
    BaseInventory,
    InventoryContext,
    InventorySnapshot,
    _reused_rows,
    _unchanged,
)
from retention_assets.objectstore.listing import Prefixes
from retention_assets.objectstore.outcomes import Outcome
from retention_assets.state.acknowledged import FOUND, LOST, record_missing, write_acknowledgement
from retention_assets.tables import STORAGE_INVENTORY
from retention_assets.warehouse.warehouse import METADATA, Warehouse
from tests.acceptance.runs import Run, objects_in, write_ledger
from tests.lakefs_repositories import NAME, BuiltRepository, Version, address, build_repository

BEGAN = datetime(2025, 6, 1, 8, tzinfo=UTC)  # when the slice of most objects began
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
CLOSED = 60 * HOUR  # after this nothing can come into a slice any more
RULES = {"default_retention_days": 10, "branches": []}
FIRST, SECOND, LATE = (address(BEGAN + HOUR / 2, number, began=BEGAN) for number in range(3))
OLDER = address(BEGAN - 30 * DAY, 3, began=BEGAN - 30 * DAY)
SIZE = 10


@pytest.fixture
def built(tmp_path: Path) -> BuiltRepository:
    commits = [Version("root", BEGAN - DAY, {"path/first": FIRST})]
    stored = {FIRST: BEGAN + HOUR, SECOND: BEGAN + HOUR, OLDER: BEGAN - 30 * DAY}
    return build_repository(tmp_path, commits, {"main": "root"}, taken_at=BEGAN, objects=stored)


def at(spark: SparkSession, built: BuiltRepository, now: datetime, **settings: Any) -> Run:
    repository = built.repository(RULES, **{"listing": "optimized", **settings})
    return Run(spark, repository, Warehouse(str(built.directory / "warehouse")), now.date(), now)


def keep(run: Run) -> InventorySnapshot:
    snapshot = run.snapshot()
    run.keep(snapshot)
    return snapshot


def addresses(snapshot: InventorySnapshot) -> set[str]:
    return {name for name, _, _ in objects_in(snapshot.frame)}


def test_a_clean_run_lists_everything_except_the_files_of_lakefs_itself(
    spark: SparkSession, built: BuiltRepository
) -> None:
    beside = {"1a2b": BEGAN, "data/direct": BEGAN, "elsewhere/deep/er": BEGAN, "data/no-slice/x": BEGAN}
    built.store(beside)
    now = BEGAN + 60 * DAY
    snapshot = at(spark, built, now, listing="clean").snapshot()
    times = {**beside, FIRST: BEGAN + HOUR, SECOND: BEGAN + HOUR, OLDER: BEGAN - 30 * DAY}
    assert objects_in(snapshot.frame) == {(name, SIZE, written_at) for name, written_at in times.items()}
    assert (snapshot.listed, snapshot.taken_at) == (len(snapshot.prefixes.deep), now)
    assert snapshot.details.fell_back is None


def test_a_second_listing_of_the_same_session_is_not_answered_from_the_cached_first(
    spark: SparkSession, built: BuiltRepository
) -> None:
    run = at(spark, built, BEGAN + 60 * DAY, listing="clean")
    first = run.snapshot()
    assert first.frame.cache().count() == 3
    built.remove([SECOND])  # the places are the same as before
    built.store({FIRST: BEGAN + 2 * HOUR})
    assert objects_in(run.snapshot().frame) == {(FIRST, SIZE, BEGAN + 2 * HOUR), (OLDER, SIZE, BEGAN - 30 * DAY)}
    first.frame.unpersist()


def test_an_optimized_run_lists_prefixes_that_are_not_slices(spark: SparkSession, built: BuiltRepository) -> None:
    now = BEGAN + 60 * DAY
    keep(at(spark, built, now))
    beside = {"1a2b", "data/direct", "elsewhere/deep/er", "data/no-slice/x"}
    built.store(dict.fromkeys(beside, now))
    snapshot = at(spark, built, now + DAY).snapshot()
    assert addresses(snapshot) == {FIRST, SECOND, OLDER, *beside}
    assert snapshot.listed == 2


# Reasons for a full listing in an optimized run: a change of the earlier run, and the words of the log message.


def _nothing(run: Run) -> None:
    """There is no earlier run."""


def _long_ago(run: Run) -> None:
    keep(replace(run, day=run.day - 8 * DAY, now=run.now - 7 * DAY - HOUR))


def _of_another_storage(run: Run) -> None:
    before = replace(run, day=run.day - DAY, now=run.now - DAY)
    keep(replace(before, repository=replace(before.repository, storage=f"{run.repository.storage}/data")))


def _of_this_day(run: Run) -> None:
    keep(replace(run, now=run.now - HOUR))


def _of_the_future(run: Run) -> None:
    """The clock was wrong then. Open slices would count as closed, and their new objects would be missing."""
    keep(replace(run, day=run.day - DAY, now=run.now + 9 * DAY))


def _cut_off(run: Run, name: str) -> None:
    keep(replace(run, day=run.day - DAY, now=run.now - DAY))
    table = Path(run.warehouse.partition(NAME, STORAGE_INVENTORY.name, run.day - DAY))
    (table / name).unlink()


def _without_rows(run: Run) -> None:
    _cut_off(run, "_SUCCESS")


def _without_metadata(run: Run) -> None:
    _cut_off(run, METADATA)


@pytest.mark.parametrize(
    ("earlier", "reason"),
    [
        pytest.param(_nothing, "there is no usable inventory of another day", id="no_earlier_run"),
        pytest.param(_long_ago, "the last full listing of the store was at 2025-", id="last_full_listing_too_long_ago"),
        pytest.param(_of_another_storage, "the last inventory is of another storage", id="of_another_storage"),
        pytest.param(_of_this_day, "there is no usable inventory of another day", id="only_of_this_day"),
        pytest.param(_of_the_future, "the last inventory is of 20", id="of_the_future"),
        pytest.param(_without_rows, "there is no usable inventory of another day", id="its_rows_were_cut_off"),
        pytest.param(
            _without_metadata, "there is no usable inventory of another day", id="its_metadata_was_not_written"
        ),
    ],
)
def test_an_optimized_run_without_a_usable_base_inventory_lists_everything_and_records_why(
    spark: SparkSession, built: BuiltRepository, earlier: Callable[[Run], None], reason: str
) -> None:
    run = at(spark, built, BEGAN + 30 * DAY)
    earlier(run)
    snapshot = run.snapshot()
    assert (snapshot.details.fell_back or "").startswith(reason)
    assert snapshot.listed == len(snapshot.prefixes.deep)
    assert addresses(snapshot) == {FIRST, SECOND, OLDER}


@pytest.mark.long
def test_an_optimized_run_lists_everything_if_the_last_full_listing_is_too_old(
    spark: SparkSession, built: BuiltRepository
) -> None:
    """Optimized runs since then do not count, even if one ran on the day before."""
    start = BEGAN + 30 * DAY
    taken = [keep(at(spark, built, start + days * DAY, clean_every="2d")) for days in range(6)]
    fell_back = [bool(one.details.fell_back) for one in taken]
    assert fell_back == [True, False, False, True, False, False]


@pytest.mark.long
def test_the_base_inventory_is_the_one_taken_last_whatever_its_day(spark: SparkSession, built: BuiltRepository) -> None:
    keep(at(spark, built, BEGAN + 2 * HOUR))
    again = at(spark, built, BEGAN + CLOSED)
    keep(replace(again, day=BEGAN.date() - 9 * DAY))
    assert at(spark, built, BEGAN + CLOSED + HOUR).snapshot().listed == 0


@pytest.mark.parametrize(
    ("written_after", "settings"),
    [
        pytest.param(25 * HOUR, {}, id="25_hours_after_the_slice_began"),
        pytest.param(48 * HOUR, {}, id="with_a_slow_clock_or_a_slow_upload"),
        pytest.param(72 * HOUR, {"token_life": "72h"}, id="within_a_longer_token"),
    ],
)
def test_a_late_upload_into_a_slice_that_was_listed_before_is_found(
    spark: SparkSession, built: BuiltRepository, written_after: timedelta, settings: dict[str, str]
) -> None:
    before = keep(at(spark, built, BEGAN + written_after - HOUR, **settings))
    assert LATE not in addresses(before)
    built.store({LATE: BEGAN + written_after})
    after = at(spark, built, BEGAN + written_after + DAY, **settings).snapshot()
    assert after.details.fell_back is None
    assert addresses(after) == {FIRST, SECOND, OLDER, LATE}


def test_objects_that_our_sweeps_deleted_are_not_in_the_snapshot(spark: SparkSession, built: BuiltRepository) -> None:
    run = at(spark, built, BEGAN + CLOSED)
    keep(run)
    write_ledger(run, {SECOND: Outcome.DELETED}, run.now)
    built.remove([SECOND])
    snapshot = at(spark, built, BEGAN + CLOSED + DAY).snapshot()
    assert snapshot.listed == 1
    assert addresses(snapshot) == {FIRST, OLDER}


@pytest.mark.long
def test_objects_that_a_person_put_back_after_a_sweep_are_in_every_later_snapshot(
    spark: SparkSession, built: BuiltRepository
) -> None:
    run = at(spark, built, BEGAN + CLOSED)
    keep(run)
    write_ledger(run, {SECOND: Outcome.DELETED}, run.now + HOUR)
    built.remove([SECOND])
    keep(at(spark, built, BEGAN + CLOSED + DAY))
    built.store({SECOND: BEGAN + HOUR})
    for days in (2, 3):
        later = keep(at(spark, built, BEGAN + CLOSED + days * DAY))
        assert later.details.fell_back is None
        assert addresses(later) == {FIRST, SECOND, OLDER}


@pytest.mark.long
def test_objects_that_were_restored_after_a_sweep_are_in_every_later_snapshot(
    spark: SparkSession, built: BuiltRepository
) -> None:
    run = at(spark, built, BEGAN + CLOSED)
    keep(run)
    write_ledger(run, {SECOND: Outcome.QUARANTINED}, run.now + HOUR)
    built.remove([SECOND])
    assert addresses(keep(at(spark, built, BEGAN + CLOSED + DAY))) == {FIRST, OLDER}
    write_ledger(run, {SECOND: Outcome.RESTORED}, run.now + DAY + HOUR)
    built.store({SECOND: BEGAN + CLOSED + DAY + HOUR})
    for days in (2, 3):
        later = keep(at(spark, built, BEGAN + CLOSED + days * DAY))
        assert later.details.fell_back is None
        assert later.listed == 1
        assert addresses(later) == {FIRST, SECOND, OLDER}


def test_a_slice_into_which_an_object_was_restored_after_a_delivered_inventory_is_listed(
    spark: SparkSession, built: BuiltRepository
) -> None:
    """A slice that was only swept since then is not listed, since the ledger has its deleted objects."""
    run = at(spark, built, BEGAN + CLOSED)
    taken_at, listed = BEGAN + CLOSED, Prefixes((f"{SECOND.rpartition('/')[0]}/",), ())
    context = InventoryContext(spark, run.open(), run.warehouse, run.day, lambda: run.now)
    delivered = BaseInventory(run.snapshot().frame, taken_at, taken_at, taken_at, delivered=True)
    write_ledger(run, {SECOND: Outcome.QUARANTINED}, taken_at + HOUR)
    assert _unchanged(context, delivered, listed) == frozenset(listed.deep)
    write_ledger(run, {SECOND: Outcome.RESTORED}, taken_at + 2 * HOUR)
    assert _unchanged(context, delivered, listed) == frozenset()


def _acknowledge(run: Run) -> None:
    write_acknowledgement(run.warehouse, NAME, [SECOND], LOST, "bill", run.now)


def _refuse(run: Run) -> None:
    record_missing(run.warehouse, NAME, "live_listed", [SECOND], run.now)


@pytest.mark.long
@pytest.mark.parametrize("notice", [_acknowledge, _refuse])
def test_objects_that_are_lost_are_looked_for_in_the_store_and_not_in_the_base_inventory(
    spark: SparkSession, built: BuiltRepository, notice: Callable[[Run], None]
) -> None:
    """Otherwise a plan would find them again, and not find those that a person brought back."""
    run = at(spark, built, BEGAN + CLOSED)
    keep(run)
    built.remove([SECOND])  # not by a sweep
    assert addresses(at(spark, built, BEGAN + CLOSED + DAY).snapshot()) == {FIRST, SECOND, OLDER}
    notice(replace(run, now=BEGAN + CLOSED + DAY))
    lost = keep(at(spark, built, BEGAN + CLOSED + 2 * DAY))
    assert (lost.listed, addresses(lost)) == (1, {FIRST, OLDER})
    built.store({SECOND: BEGAN + HOUR})
    for _ in range(2):  # the second plan uses the same base inventory, which does not have the object
        found = at(spark, built, BEGAN + CLOSED + 3 * DAY).snapshot()
        assert (found.details.fell_back, addresses(found)) == (None, {FIRST, SECOND, OLDER})
        write_acknowledgement(run.warehouse, NAME, [SECOND], FOUND, "a run", BEGAN + CLOSED + 3 * DAY)


def test_a_slice_of_an_object_that_was_missing_before_the_last_full_listing_is_not_listed_again(
    spark: SparkSession, built: BuiltRepository
) -> None:
    run = at(spark, built, BEGAN + CLOSED)
    _refuse(replace(run, now=run.now - DAY))
    keep(run)
    assert at(spark, built, BEGAN + CLOSED + DAY).snapshot().listed == 0


def test_only_objects_removed_after_a_base_inventory_are_left_out_of_its_rows(
    spark: SparkSession, built: BuiltRepository
) -> None:
    """An inventory delivered after the restore has the object, and the ledger has its earlier deletion."""
    run = at(spark, built, BEGAN + CLOSED)
    write_ledger(run, {SECOND: Outcome.DELETED}, BEGAN + CLOSED)
    context = InventoryContext(spark, run.open(), run.warehouse, run.day, lambda: run.now)
    frame = run.snapshot().frame.cache()
    closed = [f"{SECOND.rpartition('/')[0]}/"]
    for taken_at, seen in ((BEGAN + CLOSED - HOUR, {FIRST}), (BEGAN + CLOSED + DAY, {FIRST, SECOND})):
        older = BaseInventory(frame, taken_at, taken_at, taken_at, delivered=True)
        assert {row["address"] for row in _reused_rows(context, older, closed).collect()} == seen


def test_an_old_slice_that_came_back_is_listed(spark: SparkSession, built: BuiltRepository) -> None:
    """The slice was deleted and restored from a backup. No earlier snapshot has its objects."""
    built.remove([OLDER])
    keep(at(spark, built, BEGAN + CLOSED))
    built.store({OLDER: BEGAN + CLOSED + HOUR})
    snapshot = at(spark, built, BEGAN + CLOSED + DAY).snapshot()
    assert snapshot.listed == 1
    assert addresses(snapshot) == {FIRST, SECOND, OLDER}
