"""The ledger: the latest word on each address counts, and only whole attempts are believed."""

from datetime import date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from retention_assets.stores.warehouse import Warehouse
from retention_assets.sweep.ledger import collected_addresses, ledger_location, ledger_of_plan
from retention_assets.tables import DELETION_REPORT
from tests.transforms.frames import NOW, as_dicts

DAY, HASH = date(2026, 11, 1), "a" * 64
Row = tuple[str, str, datetime]


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse(str(tmp_path / "warehouse"))


def attempt(
    spark: SparkSession, warehouse: Warehouse, name: str, *rows: Row, plan: str = HASH, repository: str = "orchard"
) -> Path:
    """Write what one attempt did, and return where."""
    where = ledger_location(warehouse, repository, DAY, plan, name)
    ledger = [{"address": row[0], "size": 1, "outcome": row[1], "detail": None, "at": row[2]} for row in rows]
    frame = spark.createDataFrame(pa.Table.from_pylist(ledger, schema=DELETION_REPORT.schema))
    frame.coalesce(1).write.parquet(where)
    return Path(where)


def outcomes(spark: SparkSession, warehouse: Warehouse) -> dict[str, str]:
    ledger = as_dicts(ledger_of_plan(spark, warehouse, "orchard", DAY, HASH), "address")
    assert len(ledger) == len({row["address"] for row in ledger})
    return {row["address"]: row["outcome"] for row in ledger}


def collected(spark: SparkSession, warehouse: Warehouse, repository: str = "orchard") -> set[str]:
    return {row["address"] for row in collected_addresses(spark, warehouse, repository).collect()}


def test_before_any_attempt_the_ledger_is_empty(spark: SparkSession, warehouse: Warehouse) -> None:
    assert outcomes(spark, warehouse) == {}
    assert collected(spark, warehouse) == set()
    frame = ledger_of_plan(spark, warehouse, "orchard", DAY, HASH)
    assert frame.columns == DELETION_REPORT.schema.names


def test_the_latest_outcome_of_an_address_counts_whatever_the_attempts_are_called(
    spark: SparkSession, warehouse: Warehouse
) -> None:
    later = NOW + timedelta(microseconds=1)
    attempt(spark, warehouse, "z-first", ("a", "failed", NOW), ("b", "deleted", NOW), ("c", "skipped", NOW))
    attempt(spark, warehouse, "a-second", ("a", "deleted", later), ("c", "failed", later))
    assert outcomes(spark, warehouse) == {"a": "deleted", "b": "deleted", "c": "failed"}


def test_an_attempt_that_was_cut_off_is_not_believed(spark: SparkSession, warehouse: Warehouse) -> None:
    attempt(spark, warehouse, "whole", ("a", "failed", NOW))
    cut_off = attempt(spark, warehouse, "cut-off", ("a", "deleted", NOW + timedelta(hours=1)), ("b", "deleted", NOW))
    (cut_off / "_SUCCESS").unlink()
    assert outcomes(spark, warehouse) == {"a": "failed"}
    assert collected(spark, warehouse) == set()


def test_what_any_plan_found_gone_or_made_go_is_collected(spark: SparkSession, warehouse: Warehouse) -> None:
    attempt(spark, warehouse, "1", ("deleted", "deleted", NOW), ("missing", "missing", NOW), ("failed", "failed", NOW))
    attempt(spark, warehouse, "1", ("by-another", "deleted", NOW), ("skipped", "skipped", NOW), plan="b" * 64)
    attempt(spark, warehouse, "1", ("of-another", "deleted", NOW), repository="meadow")
    assert collected(spark, warehouse) == {"deleted", "missing", "by-another"}
    assert outcomes(spark, warehouse) == {"deleted": "deleted", "missing": "missing", "failed": "failed"}
    assert collected(spark, warehouse, "meadow") == {"of-another"}
