"""The ledger: the latest outcome of each address counts, and an attempted object never counts as untouched."""

import re
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from retention_assets.errors import GuardRefused, TableContractError
from retention_assets.objectstore.outcomes import OF_COPY
from retention_assets.spark.frames import from_arrow
from retention_assets.state import ledger
from retention_assets.state.ledger import (
    DECIDED,
    DONE,
    LEDGERS,
    LedgerLocation,
    all_collected_addresses,
    collected_addresses,
    first_failure,
    ledger_digest,
    ledger_of_plan,
    plans_with_ledgers,
    quarantined_by,
    read_ledgers,
    recorded_sweeps,
    report_of,
    rows_of_sweeps,
    sweeps_of,
    swept_plans,
)
from retention_assets.tables import DELETION_REPORT, LEDGER
from retention_assets.warehouse.warehouse import Warehouse
from tests.frames import NOW, as_dicts
from tests.ledgers import write_ledger

DAY, HASH = date(2026, 11, 1), "a" * 64


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse(str(tmp_path / "warehouse"))


def sweep(
    warehouse: Warehouse, fence: int, plan: str = HASH, repository: str = "orchard", name: str = "rows", **outcomes: str
) -> None:
    """Write what one sweep did."""
    write_ledger(warehouse, repository, DAY, plan, outcomes, NOW, fence=fence, name=name)


def outcomes(spark: SparkSession, warehouse: Warehouse) -> dict[str, str]:
    latest = as_dicts(ledger_of_plan(spark, warehouse, "orchard", DAY, HASH), "address")
    assert len(latest) == len({row["address"] for row in latest})
    return {row["address"]: row["outcome"] for row in latest}


def reported(spark: SparkSession, warehouse: Warehouse) -> set[str]:
    rows = report_of(ledger_of_plan(spark, warehouse, "orchard", DAY, HASH))
    assert rows.columns == DELETION_REPORT.schema.names
    return {row["address"] for row in rows.collect()}


def collected(spark: SparkSession, warehouse: Warehouse, repository: str = "orchard") -> set[str]:
    """Return the collected addresses. The queries for all ledgers and for some addresses must agree."""
    every = {row["address"] for row in all_collected_addresses(spark, warehouse, repository).collect()}
    asked = spark.createDataFrame(pa.table({"address": pa.array([*every, "unknown", "failed", "back"], pa.string())}))
    assert {row["address"] for row in collected_addresses(spark, warehouse, repository, asked).collect()} == every
    return every


def test_before_any_sweep_the_ledger_is_empty(spark: SparkSession, warehouse: Warehouse) -> None:
    assert outcomes(spark, warehouse) == {}
    assert collected(spark, warehouse) == set()
    assert reported(spark, warehouse) == set()


def test_an_object_that_a_retry_finds_missing_was_deleted_by_the_first_try(
    spark: SparkSession, warehouse: Warehouse
) -> None:
    later = NOW + timedelta(seconds=1)
    sweep(warehouse, 1, a="deleted", b="attempted", c="failed")
    write_ledger(
        warehouse, "orchard", DAY, HASH, dict.fromkeys(("a", "b", "c"), "missing"), later, fence=1, name="second"
    )
    assert outcomes(spark, warehouse) == {"a": "deleted", "b": "missing", "c": "missing"}
    sweep(warehouse, 2, name="next", a="missing")
    assert outcomes(spark, warehouse)["a"] == "missing"


def test_a_failed_retry_does_not_hide_that_the_first_try_moved_the_object(
    spark: SparkSession, warehouse: Warehouse
) -> None:
    """Spark may retry a task whose worker it lost."""
    later = NOW + timedelta(seconds=1)
    sweep(warehouse, 1, a="quarantined", b="quarantined")
    again = {"a": "failed", "b": "skipped"}
    write_ledger(warehouse, "orchard", DAY, HASH, again, later, fence=1, name="second")
    assert outcomes(spark, warehouse) == {"a": "quarantined", "b": "quarantined"}
    sweep(warehouse, 2, a="failed")  # a restore
    assert outcomes(spark, warehouse) == {"a": "failed", "b": "quarantined"}


def test_the_outcome_of_the_latest_sweep_counts_whatever_the_clocks_say(
    spark: SparkSession, warehouse: Warehouse
) -> None:
    sweep(warehouse, 1, a="failed", b="deleted", c="skipped", d="quarantined")
    write_ledger(warehouse, "orchard", DAY, HASH, {"a": "deleted", "c": "failed"}, NOW - timedelta(days=1), fence=2)
    sweep(warehouse, 3, d="restored")
    assert outcomes(spark, warehouse) == {"a": "deleted", "b": "deleted", "c": "failed", "d": "restored"}


def test_an_attempted_object_is_not_reported_and_may_be_gone(spark: SparkSession, warehouse: Warehouse) -> None:
    sweep(warehouse, 1, a="attempted", b="attempted", c="skipped")
    sweep(warehouse, 1, name="later", b="deleted")
    assert outcomes(spark, warehouse) == {"a": "attempted", "b": "deleted", "c": "skipped"}
    assert reported(spark, warehouse) == {"b", "c"}
    assert collected(spark, warehouse) == {"a", "b"}


def test_an_attempt_with_an_unknown_result_does_not_hide_an_earlier_outcome(
    spark: SparkSession, warehouse: Warehouse
) -> None:
    sweep(warehouse, 1, a="quarantined")
    sweep(warehouse, 2, a="attempted")  # a restore that was cut off
    assert outcomes(spark, warehouse) == {"a": "quarantined"}


def test_objects_that_any_plan_deleted_or_found_missing_are_collected(
    spark: SparkSession, warehouse: Warehouse
) -> None:
    sweep(warehouse, 1, deleted="deleted", missing="missing", failed="failed", moved="quarantined", back="quarantined")
    sweep(warehouse, 2, plan="b" * 64, other="deleted", skipped="skipped")
    sweep(warehouse, 3, back="restored")
    sweep(warehouse, 1, repository="meadow", foreign="deleted")
    assert collected(spark, warehouse) == {"deleted", "missing", "moved", "other"}
    assert collected(spark, warehouse, "meadow") == {"foreign"}


def test_the_purge_of_a_copy_under_another_plan_does_not_hide_that_the_object_was_restored(
    spark: SparkSession, warehouse: Warehouse
) -> None:
    sweep(warehouse, 1, back="quarantined", moved="quarantined", again="quarantined")
    sweep(warehouse, 2, back="restored", again="restored")
    sweep(warehouse, 3, plan="b" * 64, again="deleted")
    purged = [
        {"address": name, "size": 10, "outcome": "purged", "detail": OF_COPY, "at": NOW, "fence": 4}
        for name in ("back", "moved", "again")
    ]
    location = LedgerLocation(warehouse.root, "orchard", DAY, "c" * 64, 4, "a-purge")
    location.append(pa.Table.from_pylist(purged, LEDGER), "rows", "done")
    assert collected(spark, warehouse) == {"moved", "again"}


def test_an_object_is_in_quarantine_also_after_another_plan_found_it_missing(
    spark: SparkSession, warehouse: Warehouse
) -> None:
    sweep(warehouse, 1, a="quarantined", b="quarantined")
    sweep(warehouse, 2, plan="b" * 64, a="missing", b="missing")
    assert quarantined_by(spark, warehouse, "orchard", ["a"]) == [HASH]
    sweep(warehouse, 3, b="purged")
    assert quarantined_by(spark, warehouse, "orchard", ["b"]) == []


def test_many_addresses_are_looked_up_by_spark_with_the_same_result(
    spark: SparkSession, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "_FEW", 1)
    sweep(warehouse, 1, a="deleted", b="failed")
    sweep(warehouse, 2, plan="b" * 64, c="quarantined")
    assert collected(spark, warehouse) == {"a", "c"}


def test_addresses_that_few_of_many_plans_have_are_found(spark: SparkSession, warehouse: Warehouse) -> None:
    for number in range(12):
        write_ledger(warehouse, "orchard", DAY, f"{number:064x}", {f"at-{number}": "deleted"}, NOW, fence=number)
    asked = pa.table({"address": ["at-0", "at-5", "at-11", "unknown"]})
    found = collected_addresses(spark, warehouse, "orchard", spark.createDataFrame(asked))
    assert {row["address"] for row in found.collect()} == {"at-0", "at-5", "at-11"}


def test_an_arrow_table_with_chunks_without_rows_keeps_its_rows_in_spark(spark: SparkSession) -> None:
    none, one = pa.record_batch({"a": pa.array([], pa.string())}), pa.record_batch({"a": ["x"]})
    for chunks in ([none, one], [one, none, one], [none, none, one, one, none, one]):
        table = pa.Table.from_batches(chunks)
        assert from_arrow(spark, table).count() == table.num_rows


def test_rows_of_some_plans_leave_out_those_of_others(spark: SparkSession, warehouse: Warehouse) -> None:
    days = [DAY - timedelta(days=number) for number in range(3)]
    for fence, day in enumerate(days):
        write_ledger(warehouse, "orchard", day, HASH, {f"at-{fence}": "deleted"}, NOW, fence=fence)
    plans = [(day.isoformat(), HASH) for day in days]
    for chosen in (plans[:1], plans[:2], plans, []):
        rows = read_ledgers(spark, warehouse, "orchard", chosen).collect()
        assert {row["address"] for row in rows} == {f"at-{number}" for number in range(len(chosen))}
        assert {row["plan_hash"] for row in rows} <= {HASH}
    assert plans_with_ledgers(warehouse, "orchard") == sorted(plans)


def test_the_digest_of_a_ledger_is_of_the_columns_that_earlier_versions_hashed(
    spark: SparkSession, warehouse: Warehouse
) -> None:
    """Audit records have such digests, and a verification compares them with the ledgers."""
    at = datetime(2026, 11, 1, tzinfo=UTC)
    outcomes = {"data/a": "deleted", "data/b": "skipped"}
    write_ledger(warehouse, "orchard", date(2026, 11, 1), HASH, outcomes, at, fence=1)
    digest = ledger_digest(spark, warehouse, "orchard", ("2026-11-01", HASH), 1)
    assert digest == "b0964ba1c0b3b2e713881b4a9751dbb5fcd0b354388f08dc2046b4458dc8810d"


def test_a_restored_object_that_a_later_plan_deletes_is_collected(spark: SparkSession, warehouse: Warehouse) -> None:
    sweep(warehouse, 2, a="restored")
    sweep(warehouse, 3, plan="b" * 64, a="attempted")
    assert collected(spark, warehouse) == {"a"}


def test_ledger_rows_are_never_overwritten(warehouse: Warehouse) -> None:
    sweep(warehouse, 1, a="deleted")
    with pytest.raises(TableContractError, match="exists already"):
        sweep(warehouse, 1, a="failed")


@pytest.mark.parametrize("kind", [DONE, DECIDED])
def test_a_failure_of_the_newest_sweep_with_failures_is_found(warehouse: Warehouse, kind: str) -> None:
    assert first_failure(warehouse, "orchard", DAY.isoformat(), HASH) is None
    place = LedgerLocation(warehouse.root, "orchard", DAY, HASH, 1, "a-run")
    row = {"address": "b", "size": 10, "outcome": "failed", "detail": "denied", "at": NOW, "fence": 1}
    rows = pa.Table.from_pylist([{**row, "address": "a", "outcome": "deleted", "detail": None}, row], schema=LEDGER)
    place.append(rows, "one", "attempted")
    assert first_failure(warehouse, "orchard", DAY.isoformat(), HASH) is None
    place.append(rows, "one", kind)
    assert first_failure(warehouse, "orchard", DAY.isoformat(), HASH) == ("b", "denied")


def test_files_that_are_no_ledger_are_ignored(tmp_path: Path) -> None:
    warehouse, plan = Warehouse(str(tmp_path)), "1" * 64
    ledgers = tmp_path / "orchard" / LEDGERS
    for name in (
        f"2026-11-01/{plan}/00000007-run/a-done.parquet",
        f"2026-11-01.bak/{plan}/00000007-run/a-done.parquet",
    ):
        (ledgers / name).parent.mkdir(parents=True)
        (ledgers / name).touch()
    (ledgers / "2026-11-01" / plan / "notes").mkdir()
    (ledgers / "2026-11-01" / plan / "b-done.parquet").touch()
    assert plans_with_ledgers(warehouse, "orchard") == [("2026-11-01", plan)]
    assert sweeps_of(warehouse, "orchard", "2026-11-01", plan) == [7]


@pytest.mark.parametrize(
    "content", [b"", b"hello", "half", "footer", "columns"], ids=["empty", "text", "half", "footer", "columns"]
)
def test_a_damaged_file_of_a_ledger_is_named_and_refused(
    spark: SparkSession, warehouse: Warehouse, content: bytes | str
) -> None:
    """Spark would ignore an empty file, and take a missing column for nulls."""
    write_ledger(warehouse, "orchard", DAY, HASH, {"data/a": "restored"}, NOW, name="damaged")
    (file,) = Path(warehouse.location("orchard", LEDGERS)).rglob("*.parquet")
    if content == "columns":
        pq.write_table(pq.read_table(file).drop_columns(["at", "outcome"]), file)
    elif content == "footer":
        whole = file.read_bytes()
        length = int.from_bytes(whole[-8:-4], "little")
        file.write_bytes(whole[: -8 - length] + bytes(length) + whole[-8:])
    else:
        file.write_bytes(file.read_bytes()[:-20] if isinstance(content, str) else content)
    asked = from_arrow(spark, pa.table({"address": ["data/a"]}))
    damage = r"(is damaged, or not a Parquet file|is missing the columns at, outcome).*Nothing was changed or deleted"
    for read in (
        lambda: ledger_of_plan(spark, warehouse, "orchard", DAY, HASH),
        lambda: rows_of_sweeps(spark, warehouse, recorded_sweeps(warehouse, "orchard")),
        lambda: collected_addresses(spark, warehouse, "orchard", asked),
    ):
        with pytest.raises(
            TableContractError, match=rf"{re.escape(str(file))}: {damage}.*Copy the file.*move the file"
        ):
            read()


def test_a_swept_plan_that_is_missing_is_named(tmp_path: Path) -> None:
    warehouse, plan = Warehouse(str(tmp_path)), "1" * 64
    rows = tmp_path / "orchard" / LEDGERS / "2026-11-01" / plan / "00000007-run"
    rows.mkdir(parents=True)
    (rows / "a-done.parquet").touch()
    with pytest.raises(GuardRefused, match=f"a plan with a ledger is missing from the warehouse: {plan}. Nothing was"):
        swept_plans(warehouse, "orchard")
