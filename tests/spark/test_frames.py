"""Frames: the rows that they share in Spark's cache, and how Spark aggregates them."""

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from retention_assets.objectstore.outcomes import ObjectResult, Outcome
from retention_assets.spark.frames import CachedFrames, by_address, from_arrow, on_workers
from retention_assets.spark.sessions import spark_settings
from retention_assets.state.ledger import LedgerLocation, read_ledgers
from retention_assets.warehouse.warehouse import Warehouse

NAMES = pa.schema([("name", pa.string())])
NOW = datetime(2026, 11, 1, tzinfo=UTC)


def names_on_workers(spark: SparkSession, directory: Path) -> DataFrame:
    """Return the names of the files in a directory. An executor lists them."""
    text = str(directory)

    def listed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            names = sorted(path.stem for path in Path(text).iterdir())
            yield pa.record_batch([pa.array(names, pa.string())], schema=NAMES)

    return on_workers(from_arrow(spark, pa.table({"task": ["all"]})), listed, NAMES)


def names_in_table(spark: SparkSession, directory: Path) -> DataFrame:
    """Return the rows of a directory of the warehouse, which has a row for each of its files."""
    return Warehouse(str(directory.parent)).frame(spark, directory.name)


def in_ledger(spark: SparkSession, directory: Path) -> DataFrame:
    """Return the rows of a ledger, which has a row for each of its files."""
    warehouse = Warehouse(str(directory.parent))
    location = LedgerLocation(warehouse.root, "orchard", NOW.date(), "a" * 64, 1, "run")
    for path in directory.iterdir():
        if path.stem not in str(warehouse.tree("orchard")):
            rows = pa.table({"address": [path.stem], "size": [1]})
            location.append(location.rows(rows, [ObjectResult(Outcome.DELETED)], NOW), path.stem, "done")
    return read_ledgers(spark, warehouse, "orchard", [(NOW.date().isoformat(), "a" * 64)]).select("address")


@pytest.mark.parametrize("opened", [names_on_workers, names_in_table, in_ledger])
def test_a_frame_that_is_opened_again_does_not_use_the_cached_rows(opened, spark: SparkSession, tmp_path: Path) -> None:
    directory = tmp_path / "table"

    def replace(*names: str) -> None:
        """Replace the files without Spark, as another process does."""
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        for name in names:
            pq.write_table(pa.table({"name": [name]}), directory / f"{name}.parquet")

    replace("first")
    with CachedFrames() as frames:
        before = frames.cache(opened(spark, directory))
        assert [row[0] for row in before.collect()] == ["first"]
        replace("first", "second")
        assert sorted(row[0] for row in opened(spark, directory).collect()) == ["first", "second"]
        assert [row[0] for row in before.collect()] == ["first"]


def test_rows_by_address_are_not_aggregated_before_they_are_distributed(spark: SparkSession) -> None:
    combines = "spark.sql.execution.combineAdjacentAggregation"
    assert spark_settings({}).plain[combines] == "true"
    rows = spark.range(100).select(F.col("id").cast("string").alias("address"), "id")
    spark.conf.set(combines, "true")
    try:
        largest = by_address(rows).agg(F.max("id").alias("largest"))
        plan = largest._jdf.queryExecution().executedPlan().toString()
        assert (plan.count("HashAggregate"), plan.count("Exchange")) == (1, 1)
        assert sorted(row["largest"] for row in largest.collect()) == list(range(100))
    finally:
        spark.conf.unset(combines)
