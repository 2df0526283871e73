"""Writes results and statistics into the repository's namespace. Source: docs/lifecycle.md.

This happens only with `write_results: true`. Planning writes nothing else outside the warehouse.
"""

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from datetime import date, datetime

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from retention_assets.config.configuration import INTERNAL
from retention_assets.config.timestamps import utc_now
from retention_assets.errors import ObjectMissing
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.mutate.writing import ObjectWriter
from retention_assets.objectstore.objects import ObjectReader
from retention_assets.objectstore.outcomes import Outcome
from retention_assets.spark.frames import on_workers

_LIFECYCLE = f"{INTERNAL}/retention/lc"
_ROWS_PER_FILE = 500_000
_WRITTEN = pa.schema([("rows", pa.int64())])


@dataclass(frozen=True, slots=True)
class RuleStatistics:
    """The results of one attempt to sweep a plan, for one rule. Times are ISO 8601 in UTC; bytes: sizes as listed."""

    run_id: str
    plan_hash: str
    started: str
    finished: str
    rule_id: str
    objects: int
    bytes: int
    deleted: int  # also quarantined, purged and missing objects
    failed: int
    skipped: int


def write_results(access: StoreAccess, candidates: DataFrame, day: date, run_id: str) -> None:
    """Write (run_id, address, paths, matched_rules) of the candidates to the folder of the day, on executors."""
    rows = candidates.select(
        F.lit(run_id).alias("run_id"), "address", "paths", F.col("rule_ids").alias("matched_rules")
    )
    folder = f"{_LIFECYCLE}/addresses/date={day.isoformat()}"

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        writer = ObjectWriter(access)
        context = TaskContext.get()
        part = context.partitionId() if context else 0  # a retried task overwrites its own files
        for number, rows in enumerate(_grouped(batches)):
            target = io.BytesIO()
            pq.write_table(rows, target)
            writer.put(f"{folder}/{run_id}-{part:05d}-{number:05d}.parquet", target.getvalue())
            yield pa.record_batch([pa.array([rows.num_rows])], schema=_WRITTEN)

    on_workers(rows.coalesce(8), write, _WRITTEN).agg(F.sum("rows")).collect()


def rule_statistics(
    planned: DataFrame, ledger: DataFrame, run_id: str, plan_hash: str, started: datetime
) -> list[RuleStatistics]:
    """Return the statistics of one attempt, one row per rule. An object with several rules counts for each rule."""
    named = F.when(F.size("rule_ids") > 0, F.col("rule_ids")).otherwise(F.array("reason"))
    by_rule = planned.select("address", "size", F.explode(named).alias("rule_id"))
    amounts = by_rule.join(ledger.select("address", "outcome"), on="address", how="left").groupBy("rule_id")
    counted = amounts.agg(
        F.count(F.lit(1)).alias("objects"),
        F.sum("size").alias("bytes"),
        F.count_if(F.col("outcome").isin(Outcome.DELETED, Outcome.MISSING, Outcome.QUARANTINED, Outcome.PURGED)).alias(
            "deleted"
        ),
        F.count_if(F.col("outcome") == Outcome.FAILED).alias("failed"),
        F.count_if(F.col("outcome") == Outcome.SKIPPED).alias("skipped"),
    )
    times = started.isoformat(), utc_now().isoformat()
    return [RuleStatistics(run_id, plan_hash, *times, **row.asDict()) for row in counted.orderBy("rule_id").collect()]


def write_statistics(access: StoreAccess, day: date, statistics: Sequence[RuleStatistics]) -> None:
    """Append the statistics to the CSV file of the day."""
    path = f"{_LIFECYCLE}/stats/{day.isoformat()}.csv"
    names = [field.name for field in fields(RuleStatistics)]
    try:
        before = list(csv.reader(io.StringIO(ObjectReader(access).read(path).decode())))[1:]
    except ObjectMissing:
        before = []
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([names, *before, *(astuple(one) for one in statistics)])
    ObjectWriter(access).put(path, text.getvalue().encode())


def _grouped(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield tables of about `_ROWS_PER_FILE` rows, which limits the memory of a task."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(one.num_rows for one in waiting) >= _ROWS_PER_FILE:
            yield pa.Table.from_batches(waiting)
            waiting = []
    if any(one.num_rows for one in waiting):
        yield pa.Table.from_batches(waiting)
