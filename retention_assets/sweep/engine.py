"""Defines the engine of a sweep, which holds the objects, and runs a batch of objects on Spark executors.

The objects stay with the engine. Only counts, places and batch numbers pass through the driver.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from retention_assets.core.amounts import Amount
from retention_assets.sweep.worker import OBJECTS, TALLY, TaskSpec, work


@dataclass(frozen=True, slots=True)
class Done:
    """The result of a batch: objects and bytes by outcome.

    `until`: the time at which the last object was processed; None: no object was processed. `reached`: the rate of one
    worker in objects per second, measured when the store throttled; None: the store did not throttle.
    """

    amounts: Mapping[str, Amount]
    until: datetime | None
    reached: float | None = None


@dataclass(frozen=True, slots=True)
class Round[Objects]:
    """A batch of objects checked together: the outcomes that the liveness check decided, and its start time (UTC)."""

    objects: Objects
    checked_at: datetime


class Engine[Objects](Protocol):
    """Holds the remaining objects of a plan, and processes them batch by batch."""

    def remaining(self, fence: int) -> Sequence[int]:
        """Divide the remaining objects into batches, and return the number of objects in each batch.

        An object remains if no sweep of the plan has finished it, and this sweep (the one with `fence`) has recorded no
        outcome for it. The list is empty when no object remains.
        """
        ...

    def resurrected(self) -> int:
        """Run a liveness check on all remaining objects, and return how many of them are live again.

        Errors: GuardRefused when this cannot be determined.
        """
        ...

    def look(self, number: int) -> Round[Objects]:
        """Run a liveness check for the batch `number`, and return its objects.

        Errors: GuardRefused when liveness cannot be determined.
        """
        ...

    def run(self, objects: Round[Objects], task: TaskSpec) -> Done:
        """Have the workers execute `task` on a batch, and return the result."""
        ...

    def outcomes(self) -> Mapping[str, Amount]:
        """Return the current totals of the plan's ledger by outcome. Objects with an unknown result are `attempted`."""
        ...

    def ledger_digest(self, fence: int) -> str:
        """Return a hash of the plan's ledger up to and including the sweep with this `fence`."""
        ...


def run_on_spark(objects: DataFrame, task: TaskSpec) -> Done:
    """Have executors execute `task` on a frame of `OBJECTS`, partitioned and sorted by address; return the result."""
    spark = objects.sparkSession
    parts = objects.select(*OBJECTS.names).repartitionByRange(width(spark), "address").sortWithinPartitions("address")
    tally = parts.mapInArrow(_worker(task), from_arrow_schema(TALLY))
    sums = F.sum("objects"), F.sum("bytes"), F.max(F.unix_micros("until")), F.median("reached")
    rows = sorted(tally.groupBy("outcome").agg(*sums).collect())
    amounts = {outcome: Amount(objects, size) for outcome, objects, size, *_ in rows}
    latest = max((micros for *_, micros, _ in rows if micros is not None), default=None)
    reached = max(((objects, rate) for _, objects, *_, rate in rows if rate is not None), default=(0, None))[1]
    return Done(amounts, None if latest is None else datetime.fromtimestamp(latest / 1e6, UTC), reached)


def width(spark: SparkSession) -> int:
    """Return the number of workers (Spark partitions) of a batch."""
    return int(spark.conf.get("spark.sql.shuffle.partitions") or 2)


def _worker(task: TaskSpec):  # type: ignore[no-untyped-def]  # a closure that Spark ships
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        part, attempt = (context.partitionId(), context.taskAttemptId()) if context else (0, 0)
        yield from work(task, batches, f"{part:05d}-{attempt}")

    return run
