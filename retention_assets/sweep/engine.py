"""Processes the objects of a sweep on Spark executors, batch by batch, and defines what a sweep needs from a system.

The rows of objects stay in Spark. The driver gets only counts, prefixes and batch numbers.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import inf
from typing import Any, Protocol, Self

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from retention_assets.core.amounts import Amount
from retention_assets.core.liveness import Liveness, NoOtherRepositories, OtherRepositories
from retention_assets.core.states import UNREFERENCED
from retention_assets.errors import StoreError
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.outcomes import Outcome
from retention_assets.objectstore.rate_limiter import RateLimiter
from retention_assets.spark.frames import CachedFrames, collected, from_arrow, on_workers
from retention_assets.state.lease import Lease
from retention_assets.state.ledger import (
    FINISHED,
    LEDGERS,
    amounts_of,
    finished_of,
    latest_of,
    ledger_digest,
    read_ledgers,
)
from retention_assets.state.memory import named_since
from retention_assets.state.plan import Plan
from retention_assets.sweep.preconditions import Preconditions
from retention_assets.sweep.worker import OBJECTS, TALLY, Action, TaskSpec, chunks, work
from retention_assets.tables import SAME_OBJECT
from retention_assets.warehouse.warehouse import Warehouse

_PROBLEM = pa.schema([("problem", pa.string())])
_LIVE_AGAIN = "is live again since it was planned"
_COMMITTED = "was committed since it was planned"
_NOT_NAMED = "is not a candidate of the newest plan, or was live in a plan made meanwhile"


class Layout(Protocol):
    """How a kind of repository stores its objects: the prefix of each object, and the order of deletion.

    A prefix is a part of the store, such as a directory. All objects of a prefix are in the same batch.
    """

    def prefix(self, address: Column) -> Column:
        """Return the prefix of `address` in the store."""
        ...

    def phase(self, address: Column) -> Column:
        """Return the phase in which `address` is deleted, counted from 0.

        A phase starts only after all earlier phases ended without failures.
        """
        ...


class Directories:
    """The layout of lakeFS data: each directory is a prefix, and all objects are deleted in one phase. See `Layout`."""

    def prefix(self, address: Column) -> Column:
        """See `Layout`. The prefix is empty for the top of the namespace."""
        return F.when(address.contains("/"), F.regexp_replace(address, "/[^/]*$", "/")).otherwise(F.lit(""))

    def phase(self, address: Column) -> Column:
        """See `Layout`."""
        return F.lit(0)


class RepositorySweep(Protocol):
    """The part of a sweep that depends on the system: liveness checks, the repository's identity, and edits.

    Implemented in `lakefs/sweep/sweeping.py` and in `icechunk/sweep/sweeping.py`.
    """

    plan: Plan
    candidates: DataFrame  # the objects of the plan
    access: StoreAccess  # to the store of the objects
    layout: Layout
    history_changes: int  # the number of snapshots and references that the plan removes from the history
    publishes: bool  # whether `publish` may change the repository
    has_edited: bool = False  # whether `publish` has begun to write an edit
    dump: Mapping[str, str] | None  # the dump that is used, for the audit record: see `Record`

    def require_same(self) -> None:
        """Raise GuardRefused if the repository is not the one that was planned."""
        ...

    def live_now(self) -> Liveness:
        """Run a liveness check, and return its result. The results of earlier checks must not be used any more.

        Errors: GuardRefused when liveness cannot be determined.
        """
        ...

    def live_after_edits(self) -> Liveness | None:
        """Return what will be live once the edits of the plan are published; None: the plan has no edits.

        Errors: as `live_now`.
        """
        ...

    def publish(self, lease: Lease) -> Mapping[str, Any] | None:
        """Publish the edits of the plan, and return them for the audit record. No object is deleted before this."""
        ...

    def finish(self, outcomes: Mapping[str, Amount], ledger: DataFrame) -> None:
        """Log or store what the system reports about a sweep that has ended.

        Args:
            outcomes: the totals of the plan's ledger, without `attempted`.
            ledger: the latest row of each address.
        """
        ...

    def release(self) -> None:
        """Release everything that was read and cached."""
        ...


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The result of a batch: objects and bytes by outcome.

    `until`: the time at which the last object was processed; None: no object was processed. `reached`: the rate that
    the store accepts from one worker, in objects per second; None: the store did not throttle.
    """

    amounts: Mapping[str, Amount]
    until: datetime | None
    reached: float | None = None


@dataclass(frozen=True, slots=True)
class Batch[Objects]:
    """The objects of one liveness check, with the outcomes that it decided, and the time at which it began (UTC)."""

    objects: Objects
    checked_at: datetime


class Engine[Objects](Protocol):
    """Divides the remaining objects of a plan into batches, and processes them batch by batch.

    `later`: the number of remaining objects in later phases, for which `remaining` returned no batches yet.
    """

    later: int

    def remaining(self, fence: int) -> Sequence[int]:
        """Divide the remaining objects into batches, and return the number of objects in each batch.

        An object remains if no sweep of the plan has finished it, and this sweep (the one with `fence`) has recorded no
        outcome for it. The list is empty when no object remains.
        """
        ...

    def check(self, number: int) -> Batch[Objects]:
        """Run a liveness check for the batch `number`, and return its objects.

        Errors: GuardRefused when liveness cannot be determined.
        """
        ...

    def run(self, objects: Batch[Objects], task: TaskSpec) -> BatchResult:
        """Have the workers execute `task` on a batch, and return the result."""
        ...

    def outcomes(self) -> Mapping[str, Amount]:
        """Return the current totals of the plan's ledger by outcome. Objects with an unknown result are `attempted`."""
        ...

    def in_quarantine(self) -> Amount:
        """Return the objects whose last finished outcome is `quarantined`, whatever failed or was skipped after it."""
        ...

    def ledger_digest(self, fence: int) -> str:
        """Return a hash of the plan's ledger up to and including the sweep with this `fence`."""
        ...


class SweepEngine[Objects](Engine[Objects], Protocol):
    """The engine of a sweep, which executes an approved plan. A restore or purge has an `Engine`."""

    def resurrected(self) -> int:
        """Run a liveness check on all remaining objects, and return how many of them are live again.

        Errors: GuardRefused when this cannot be determined.
        """
        ...


class LedgerEngine:
    """The part of an engine that reads the ledger of a plan with Spark. See `Engine`."""

    later = 0

    def __init__(self, spark: SparkSession, warehouse: Warehouse, plan: Plan) -> None:
        self._spark = spark
        self._warehouse = warehouse
        self._plan = plan

    def outcomes(self) -> Mapping[str, Amount]:
        """See `Engine`."""
        return amounts_of(self.ledger())

    def failed_in_sweeps(self) -> int:
        """Return how many objects failed and are not finished. A finished object fails only in a restore or a purge."""
        rows = self._rows()
        failed = latest_of(rows).where(F.col("outcome") == Outcome.FAILED)
        return failed.join(finished_of(rows), on="address", how="left_anti").count()

    def in_quarantine(self) -> Amount:
        """See `Engine`."""
        return amounts_of(finished_of(self._rows())).get(Outcome.QUARANTINED, Amount())

    def ledger(self) -> DataFrame:
        """Return the latest row of each address in the ledger of the plan."""
        return latest_of(self._rows())

    def ledger_digest(self, fence: int) -> str:
        """See `Engine`."""
        return ledger_digest(self._spark, self._warehouse, self._plan.repository, self._plan.key, fence)

    def _rows(self, tree: str = LEDGERS) -> DataFrame:
        return read_ledgers(self._spark, self._warehouse, self._plan.repository, [self._plan.key], tree)


class SparkEngine(LedgerEngine):
    """The engine of a sweep; see `SweepEngine`. The end of its `with` block releases the rows in Spark's cache.

    `most`: the most objects of a batch. `others`: references of other repositories. With `keeps_missing`, missing
    objects are passed on to the action, which also looks for them in quarantine.
    """

    def __init__(
        self,
        spark: SparkSession,
        warehouse: Warehouse,
        repository: RepositorySweep,
        *,
        most: int,
        others: OtherRepositories | None = None,
        keeps_missing: bool = False,
    ) -> None:
        super().__init__(spark, warehouse, repository.plan)
        self._repository = repository
        self._most = most
        self._others = others or NoOtherRepositories()
        self._keeps_missing = keeps_missing
        self._frames = CachedFrames()
        self._kept: DataFrame | None = None  # the remaining objects, in Spark's cache
        self._rest: DataFrame | None = None  # the remaining objects of the next phase, with their batch numbers
        self._liveness: Liveness | None = None  # the result of a liveness check that no batch has used yet
        self._checked: DataFrame | None = None  # the current batch with the outcomes of its check, in Spark's cache

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._frames.close()
        self._kept = self._checked = None

    def remaining(self, fence: int) -> Sequence[int]:
        """See `Engine`. All batches are of one phase; the next phase follows when no object of this phase remains.

        A batch has all objects of its prefixes, so each prefix is listed in one batch only. When an object of an
        earlier phase failed in this sweep, no batches are returned. Source: docs/icechunk.md, "What is deleted".

        Within a phase, prefixes with objects that failed before come last. Otherwise a sweep that ended because its
        first batch failed would end there each time.
        """
        layout = self._repository.layout
        if self._kept is not None:  # the cached rows were read before the ledger grew
            self._frames.release(self._kept)
        columns = {"prefix": layout.prefix(F.col("address")), "phase": layout.phase(F.col("address"))}
        self._kept = rest = self._frames.cache(self._unfinished(fence).withColumns(columns))
        has_failed = F.coalesce(F.max("has_failed"), F.lit(False))
        counted = rest.groupBy("phase", "prefix").agg(F.count(F.lit(1)), has_failed).collect()
        phase = min((row[0] for row in counted), default=0)
        if phase and self._failed_before(phase, fence):
            counted = []
        self.later = sum(objects for of, _, objects, _ in counted if of != phase)
        ordered = sorted((failed, prefix, objects) for of, prefix, objects, failed in counted if of == phase)
        packed = pack([(prefix, objects) for _, prefix, objects in ordered], self._most)
        numbers = pa.table(
            {
                "prefix": pa.array([name for names, _ in packed for name in names], pa.string()),
                "batch": pa.array([number for number, (names, _) in enumerate(packed) for _ in names], pa.int64()),
            }
        )
        self._rest = rest.join(F.broadcast(from_arrow(self._spark, numbers)), on="prefix", how="inner")
        return [objects for _, objects in packed]

    def resurrected(self) -> int:
        """See `SweepEngine`. The check is for the state after the plan's edits, if it has edits.

        No batch may use the result of such a check, because the edits are not published yet. If the plan has no edits,
        the first batch uses the result.
        """
        assert self._kept is not None
        liveness = self._repository.live_after_edits()
        if liveness is None:
            liveness = self._liveness = self._live_now()
        else:
            liveness = self._with_others(liveness)
        return self._kept.join(liveness.live, on="address", how="left_semi").count()

    def check(self, number: int) -> Batch[DataFrame]:
        """See `Engine`. Workers check for missing and changed objects later, just before each chunk.

        An object that another plan keeps gets a detail and no outcome. So does an object that is live again and that an
        earlier attempt may have deleted or moved. A worker skips such an object if the object exists. Source:
        docs/safety.md, "A plan of an earlier day".
        """
        liveness, self._liveness = self._liveness or self._live_now(), None
        assert self._rest is not None
        objects = self._rest.where(F.col("batch") == number)
        if self._checked is not None:
            self._frames.release(self._checked)
        still_named = named_since(self._spark, self._warehouse, self._plan)
        self._checked = self._frames.cache(with_outcomes(objects, liveness, still_named))
        return Batch(self._checked, liveness.checked_at)

    def run(self, objects: Batch[DataFrame], task: TaskSpec) -> BatchResult:
        """See `Engine`."""
        preconditions = Preconditions(self._repository.access, self._keeps_missing)
        return run_on_spark(objects.objects, replace(task, preconditions=preconditions))

    def _failed_before(self, phase: int, fence: int) -> bool:
        """Return whether an object of a phase before `phase` failed in the sweep with this `fence`."""
        failed = self._rows().where((F.col("fence") == fence) & (F.col("outcome") == Outcome.FAILED))
        return not failed.where(self._repository.layout.phase(F.col("address")) < phase).isEmpty()

    def _live_now(self) -> Liveness:
        return self._with_others(self._repository.live_now())

    def _with_others(self, liveness: Liveness) -> Liveness:
        return self._others.extended(liveness, self._repository.candidates)

    def _unfinished(self, fence: int) -> DataFrame:
        """Return the remaining candidates (see `Engine`), with what earlier attempts did.

        `has_failed`: whether the object has failed before. `attempted_targets`: the quarantine folders to which
        attempts wanted to move the object; null: no attempt; empty: only attempts to delete it. `earlier_targets`: the
        same, but null if empty, as in `OBJECTS`.
        """
        rows = self._rows()
        has_result = (F.col("fence") == fence) & (F.col("outcome") != Outcome.ATTEMPTED)
        # A finished object stays finished after a later failure: a failed restore leaves the object in quarantine.
        finished = rows.where(F.col("outcome").isin(*FINISHED) | has_result)
        rest = self._repository.candidates.join(finished.select("address"), on="address", how="left_anti")
        is_attempt, has_failed = F.col("outcome") == Outcome.ATTEMPTED, F.col("outcome") == Outcome.FAILED
        tries = rows.where(is_attempt | has_failed).groupBy("address")
        targets = F.collect_set(F.when(is_attempt, F.col("detail")))
        tried = tries.agg(
            F.when(F.max(is_attempt), targets).alias("attempted_targets"), F.max(has_failed).alias("has_failed")
        )
        attempted = rest.join(tried, on="address", how="left")
        return attempted.withColumn(
            "earlier_targets", F.when(F.size("attempted_targets") > 0, F.col("attempted_targets"))
        )


def run_on_spark(objects: DataFrame, task: TaskSpec) -> BatchResult:
    """Have `task.workers` workers execute `task` on a frame of `OBJECTS`, each in order of addresses."""
    parts = objects.select(*OBJECTS.names).repartitionByRange(task.workers, "address").sortWithinPartitions("address")

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        part, attempt = (context.partitionId(), context.taskAttemptId()) if context else (0, 0)
        yield from work(task, batches, f"{part:05d}-{attempt}")

    tally = on_workers(parts, run, TALLY)
    sums = F.sum("objects"), F.sum("bytes"), F.max(F.unix_micros("until")), F.median("reached")
    rows = sorted(collected(tally.groupBy("outcome").agg(*sums)))
    amounts = {outcome: Amount(objects, size) for outcome, objects, size, *_ in rows}
    latest = max((micros for *_, micros, _ in rows if micros is not None), default=None)
    reached = max(((objects, rate) for _, objects, *_, rate in rows if rate is not None), default=(0, None))[1]
    return BatchResult(amounts, None if latest is None else datetime.fromtimestamp(latest / 1e6, UTC), reached)


def require_opened_by_workers(spark: SparkSession, action: Action, workers: int) -> None:
    """Open the action in one task for each worker, and change nothing.

    Spark gives the tasks to all executors with a free core. An executor without such a task, for example because it
    starts later, opens the action when it gets its first batch. Errors: StoreError of the first worker that cannot open
    it.
    """

    def run(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            action.open(RateLimiter())
        except StoreError as error:  # a row: Spark would repeat a failed task, perhaps on another machine
            yield pa.RecordBatch.from_pylist([{"problem": str(error)}], _PROBLEM)

    for row in collected(on_workers(spark.range(0, workers, 1, workers).toDF("worker"), run, _PROBLEM)):
        raise StoreError(row["problem"])


def with_outcomes(objects: DataFrame, now: Liveness, still_named: DataFrame | None = None) -> DataFrame:
    """Return `objects` as `OBJECTS`: outcome `skipped` for live objects, null for objects to delete.

    An object that was planned as unreferenced is also skipped if a commit references it now. Objects that are not in
    `still_named` (see `named_since`) get a detail and no outcome. So do objects to skip that a sweep has attempted to
    delete or move (`attempted_targets` is not null), because they may be gone.
    """
    committed = (F.col("reason") == UNREFERENCED) & F.col("is_committed").isNotNull()
    detail = F.when(F.col("is_live").isNotNull(), F.lit(_LIVE_AGAIN)).when(committed, F.lit(_COMMITTED))
    checked = (
        objects.join(now.live.withColumn("is_live", F.lit(True)), on="address", how="left")
        .join(now.committed.withColumn("is_committed", F.lit(True)), on="address", how="left")
        .withColumn("detail", detail)
        .withColumn(
            "outcome",
            F.when(F.col("detail").isNotNull() & F.col("attempted_targets").isNull(), F.lit(Outcome.SKIPPED)),
        )
    )
    if still_named is not None:
        named = still_named.withColumn("is_named", F.lit(True))
        not_named = F.when(F.col("is_named").isNull(), F.lit(_NOT_NAMED))
        checked = checked.join(named, on=list(SAME_OBJECT), how="left")
        checked = checked.withColumn("detail", F.coalesce("detail", not_named))
    return checked.select(*OBJECTS.names)


def pack(prefixes: Sequence[tuple[str, int]], most: int) -> list[tuple[tuple[str, ...], int]]:
    """Return the prefixes in batches of at most `most` objects, in order, with the number of objects of each batch.

    A prefix with more than `most` objects is a batch of its own.
    """
    parts = chunks([objects for _, objects in prefixes], inf, most)
    batches = (prefixes[start : start + length] for start, length in parts)
    return [(tuple(name for name, _ in batch), sum(objects for _, objects in batch)) for batch in batches]
