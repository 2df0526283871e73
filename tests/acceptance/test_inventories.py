"""Plans with delivered S3 inventories instead of a listing: which rows count, and which faults end without a plan."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from retention_assets.errors import RetentionError
from retention_assets.inventory.delivered import delivered_inventory
from retention_assets.objectstore.outcomes import Outcome
from retention_assets.warehouse.warehouse import Warehouse
from tests.acceptance.runs import Run, objects_in, write_ledger
from tests.end_to_end.command import Answer
from tests.end_to_end.command import run as retention
from tests.inventories import FORMATS, MadeInventory, Row, make_inventory
from tests.lakefs_repositories import NAME, BuiltRepository, Version, address, build_repository

NOW = datetime(2025, 11, 1, 6, tzinfo=UTC)
DAY, HOUR, SECOND = timedelta(days=1), timedelta(hours=1), timedelta(seconds=1)
OLD = NOW - 100 * DAY
DELIVERED = NOW - 5 * DAY  # the inventory is this much older than the references
LIMIT = DELIVERED - 24 * HOUR  # by the default grace period
RULES = {"default_retention_days": 10, "branches": []}

HELD, DEAD, ALSO_DEAD = (address(OLD, number) for number in range(3))
GONE = address(OLD, 4)  # since the inventory was made
NEARLY_YOUNG = address(LIMIT - 2 * SECOND, 5)
YOUNG_THEN = address(LIMIT, 6)
WRITTEN_SINCE = address(DELIVERED + HOUR, 7)
LATE = address(DELIVERED - 10 * HOUR, 8, began=DELIVERED - 10 * HOUR)  # written since, into an older slice
OBJECTS = {
    HELD: OLD,
    DEAD: OLD,
    ALSO_DEAD: OLD,
    NEARLY_YOUNG: LIMIT - 2 * SECOND,
    YOUNG_THEN: LIMIT,
    WRITTEN_SINCE: DELIVERED + HOUR,
    LATE: DELIVERED + 13 * HOUR,
}
THEN = {name: at for name, at in OBJECTS.items() if at < DELIVERED}
SIZE = 10

type Setting = dict[str, str]  # one inventory in the configuration


@pytest.fixture
def built(tmp_path: Path) -> BuiltRepository:
    commits = [Version("only", OLD, {"path/held": HELD})]
    return build_repository(tmp_path, commits, {"main": "only"}, taken_at=NOW, objects=OBJECTS)


def row(name: str, at: datetime = OLD, **more: Any) -> Row:
    return Row(f"{NAME}/{name}", more.pop("size", SIZE), at, **more)


ROWS = [row(name, at) for name, at in THEN.items()]


def deliver(built: BuiltRepository, rows: Sequence[Row] = ROWS, folder: str = "deliveries", **more: Any) -> Setting:
    """Write an S3 inventory, and return the `inventory` setting for it."""
    file_format = more.pop("file_format", "Parquet")
    bucket, created_at = more.pop("bucket", "lake"), more.pop("created_at", DELIVERED)
    made = make_inventory(rows, bucket, created_at, file_format, **more)
    return {"url": made.write_to(built.directory / folder), "format": file_format}


def a_run(spark: SparkSession, built: BuiltRepository, *inventories: Setting) -> Run:
    repository = built.repository(RULES, inventory=list(inventories))
    return Run(spark, repository, Warehouse(str(built.directory / "warehouse")), NOW.date(), NOW)


def stored(built: BuiltRepository) -> set[tuple[str, int, datetime]]:
    return {(name, SIZE, at) for name, at in OBJECTS.items() if (built.lake / name).exists()}


@pytest.mark.slow
def test_objects_written_after_the_inventory_are_found_by_listing_the_open_slices(
    spark: SparkSession, built: BuiltRepository
) -> None:
    snapshot = a_run(spark, built, deliver(built)).snapshot()
    assert objects_in(snapshot.frame) == stored(built)
    listed = {found["address"] for found in snapshot.frame.where("source = 'listing'").select("address").collect()}
    assert {WRITTEN_SINCE, LATE} <= listed
    assert not {HELD, DEAD, ALSO_DEAD} & listed


@pytest.mark.slow
def test_objects_that_were_young_when_the_inventory_was_made_are_no_candidates(
    spark: SparkSession, built: BuiltRepository
) -> None:
    run = a_run(spark, built, deliver(built))
    found = run.found(run.snapshot())
    assert {name for name, _, _ in found} == {DEAD, ALSO_DEAD, NEARLY_YOUNG}


@pytest.mark.slow
def test_two_inventories_are_combined_and_the_newest_row_of_an_object_in_both_is_used(
    spark: SparkSession, built: BuiltRepository
) -> None:
    outdated = row(DEAD, OLD - DAY, size=3)
    first = deliver(built, [row(HELD), outdated], "one", config_id="one")
    others = [row(name, at) for name, at in THEN.items() if name != HELD]
    second = deliver(built, others, "two", config_id="two", created_at=DELIVERED - DAY)
    snapshot = a_run(spark, built, first, second).snapshot()
    assert objects_in(snapshot.frame) == stored(built)
    assert snapshot.taken_at == DELIVERED - DAY


@pytest.mark.long
def test_an_inventory_of_another_bucket_adds_no_objects(spark: SparkSession, built: BuiltRepository) -> None:
    elsewhere = deliver(built, [row(address(OLD, 99))], "other", bucket="pond")
    snapshot = a_run(spark, built, deliver(built), elsewhere).snapshot()
    assert objects_in(snapshot.frame) == stored(built)


def test_the_inventory_of_the_bucket_of_the_storage_is_used(spark: SparkSession, built: BuiltRepository) -> None:
    of_namespace = deliver(built, [row(DEAD)], "lake")
    of_storage = deliver(built, [Row(f"copied here/{HELD}", SIZE, OLD)], "pond", bucket="pond")
    repository = built.repository(RULES, storage="s3://pond/copied%20here", inventory=[of_namespace, of_storage])
    found = delivered_inventory(spark, repository)
    assert objects_in(found.frame) == {(HELD, SIZE, OLD)}
    repository = built.repository(RULES, storage="s3://pond/copied%20here", inventory=of_namespace)
    with pytest.raises(RetentionError, match="inventories list lake, not the bucket 'pond'"):
        delivered_inventory(spark, repository)


@pytest.mark.parametrize("file_format", FORMATS)
def test_old_versions_and_delete_markers_are_no_objects(
    spark: SparkSession, built: BuiltRepository, file_format: str
) -> None:
    versions = [
        row(DEAD, OLD - DAY, is_latest=False, version_id="v0", size=7),
        row(GONE, OLD, is_latest=False, version_id="v1"),
        row(GONE, OLD + HOUR, is_delete_marker=True, version_id="v2", size=None, etag=None),
    ]
    named = [replace(one, version_id="v9") for one in ROWS]
    snapshot = a_run(spark, built, deliver(built, versions + named, versions=True, file_format=file_format)).snapshot()
    assert objects_in(snapshot.frame) == stored(built)


@pytest.mark.parametrize(
    ("outcome", "is_planned_again"),
    [
        pytest.param(Outcome.DELETED, False, id="deleted"),
        pytest.param(Outcome.FAILED, True, id="failed"),
        pytest.param(Outcome.SKIPPED, True, id="skipped"),
    ],
)
@pytest.mark.slow
def test_objects_that_a_sweep_deleted_after_the_inventory_are_not_planned_again(
    spark: SparkSession, built: BuiltRepository, outcome: str, is_planned_again: bool
) -> None:
    run = a_run(spark, built, deliver(built))
    write_ledger(run, {DEAD: outcome}, NOW - DAY)
    found = run.found(run.snapshot())
    assert (DEAD in {name for name, _, _ in found}) is is_planned_again
    assert ALSO_DEAD in {name for name, _, _ in found}


def test_an_object_that_others_deleted_after_the_inventory_stays_in_the_snapshot(
    spark: SparkSession, built: BuiltRepository
) -> None:
    run = a_run(spark, built, deliver(built))
    built.remove([ALSO_DEAD])
    assert ALSO_DEAD in {name for name, _, _ in objects_in(run.snapshot().frame)}


# What makes an inventory unusable: each ends the plan with one error. Some change the delivery, some the settings.


@dataclass(frozen=True)
class Fault:
    name: str
    spoil: Callable[[BuiltRepository, MadeInventory], Setting]
    status: int
    says: str


def _files(built: BuiltRepository, made: MadeInventory) -> list[Path]:
    return [built.directory / "deliveries" / name for name in made.files]


def _setting(built: BuiltRepository, made: MadeInventory, file_format: str = "Parquet") -> Setting:
    return {"url": f"file://{built.directory / 'deliveries' / made.folder}", "format": file_format}


def _wrong_checksum(built: BuiltRepository, made: MadeInventory) -> Setting:
    checksum = built.directory / "deliveries" / made.folder / made.delivery / "manifest.checksum"
    checksum.write_bytes(b"0" * 32)
    return _setting(built, made)


def _no_checksum(built: BuiltRepository, made: MadeInventory) -> Setting:
    (built.directory / "deliveries" / made.folder / made.delivery / "manifest.checksum").unlink()
    return _setting(built, made)


def _truncated(built: BuiltRepository, made: MadeInventory) -> Setting:
    file = _files(built, made)[0]
    file.write_bytes(file.read_bytes()[:-20])
    return _setting(built, made)


def _missing(built: BuiltRepository, made: MadeInventory) -> Setting:
    _files(built, made)[1].unlink()
    return _setting(built, made)


def _another_format(built: BuiltRepository, made: MadeInventory) -> Setting:
    return _setting(built, made, "ORC")


def _another_bucket(built: BuiltRepository, made: MadeInventory) -> Setting:
    return deliver(built, ROWS, "pond", bucket="pond")


def _an_old_slice_left_out(built: BuiltRepository, made: MadeInventory) -> Setting:
    elsewhere = [one for one in ROWS if not one.key.endswith(NEARLY_YOUNG)]
    built.store({address(OLD - DAY, 9): OLD - DAY})
    return deliver(built, elsewhere, "part")


FAULTS = (
    Fault("wrong_checksum", _wrong_checksum, 3, "manifest.checksum says"),
    Fault("no_checksum", _no_checksum, 3, "no complete inventory has been delivered"),
    Fault("truncated_file", _truncated, 3, "bytes"),
    Fault("missing_file", _missing, 3, "parquet' is missing. Nothing"),
    Fault("another_format_than_configured", _another_format, 2, "`inventory.format` is ORC"),
    Fault("another_bucket", _another_bucket, 2, "not the bucket 'lake'"),
    Fault("an_old_slice_left_out", _an_old_slice_left_out, 1, "listing_complete: 1 prefix,"),
)


@pytest.mark.parametrize(
    ("spoil", "seen", "remedy"),
    [
        pytest.param(
            _no_checksum, "no complete inventory", "Wait for a complete .* or remove `inventory`", id="no_checksum"
        ),
        pytest.param(
            _another_format, "are Parquet, but `inventory.format` is ORC", "Correct `inventory.format`", id="format"
        ),
    ],
)
def test_an_unusable_delivery_is_refused_before_its_files_are_read(
    spark: SparkSession, built: BuiltRepository, spoil: Callable[..., Setting], seen: str, remedy: str
) -> None:
    made = make_inventory(ROWS, "lake", DELIVERED, "Parquet")
    url = made.write_to(built.directory / "deliveries")
    repository = built.repository(RULES, inventory=spoil(built, made))
    with pytest.raises(RetentionError, match=rf"^{url}: .*{seen}.* Nothing was deleted\. {remedy}"):
        delivered_inventory(spark, repository)


def plan(built: BuiltRepository) -> Answer:
    return retention("--config", built.directory / "retention.yaml", "plan", NAME, "--as-of", NOW.date().isoformat())


@pytest.mark.parametrize("fault", [pytest.param(fault, id=fault.name) for fault in FAULTS])
@pytest.mark.slow
def test_an_unusable_inventory_ends_in_one_clear_error_and_no_plan(
    spark: SparkSession, built: BuiltRepository, fault: Fault
) -> None:
    made = make_inventory(ROWS, "lake", DELIVERED, "Parquet")
    made.write_to(built.directory / "deliveries")
    built.configure(RULES, inventory=fault.spoil(built, made))
    answer = plan(built)
    message = " ".join(answer.err.split())
    assert answer.status == fault.status, message
    assert fault.says in message
    assert "othing was deleted" in message
    assert "Traceback" not in message
    assert not (built.directory / "warehouse" / NAME / "plans").exists()
