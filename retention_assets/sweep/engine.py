"""Where a sweep's objects are: the port that carrying out needs, and Spark behind it.

Objects stay with the engine; what passes through the driver is counts, places and rounds.
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
    """What a round came to, by outcome; `until`: when the last object of it was worked on.

    `reached`: objects per second of one worker at a store that throttled; None: it did not.
    """

    amounts: Mapping[str, Amount]
    until: datetime | None
    reached: float | None = None


@dataclass(frozen=True, slots=True)
class Round[Objects]:
    """Objects that one look is for, with the outcome of those that the look decided, and when it began (UTC)."""

    objects: Objects
    checked_at: datetime


class Engine[Objects](Protocol):
    """What remains of a plan, round by round."""

    def remaining(self, fence: int) -> Sequence[int]:
        """Cut what remains into rounds, and return how many objects each has; none when nothing remains.

        What ended remains no more, nor what this sweep, that of `fence`, knows an outcome of already.
        """
        ...

    def resurrected(self) -> int:
        """Look at all that remains, and return how much of it lives again. Errors: GuardRefused when unknown."""
        ...

    def look(self, number: int) -> Round[Objects]:
        """Look again at the objects of one round. Errors: GuardRefused when it cannot be known what is live."""
        ...

    def run(self, objects: Round[Objects], task: TaskSpec) -> Done:
        """Have the workers carry out `orders`."""
        ...

    def outcomes(self) -> Mapping[str, Amount]:
        """Return what the plan's ledger says by now; an attempt of unknown end is `attempted`."""
        ...

    def ledger_digest(self, fence: int) -> str:
        """Return a hash of the plan's ledger up to and with one sweep."""
        ...


def run_on_spark(objects: DataFrame, task: TaskSpec) -> Done:
    """Have executors carry out `orders` on a frame of `OBJECTS`, spread by address and in its order."""
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
    """Return among how many workers a round is spread."""
    return int(spark.conf.get("spark.sql.shuffle.partitions") or 2)


def _worker(task: TaskSpec):  # type: ignore[no-untyped-def]  # a closure that Spark ships
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        part, attempt = (context.partitionId(), context.taskAttemptId()) if context else (0, 0)
        yield from work(task, batches, f"{part:05d}-{attempt}")

    return run
