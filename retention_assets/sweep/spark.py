"""Runs the sweep of a plan on Spark: Spark holds the objects, and executors process them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, Self

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from retention_assets.core.amounts import Amount
from retention_assets.core.digest import candidates_digest
from retention_assets.core.frames import CachedFrames
from retention_assets.core.liveness import Liveness
from retention_assets.core.states import UNREFERENCED
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.outcomes import Outcome
from retention_assets.state.ledger import ENDED, ledger_of_plan, read_ledgers
from retention_assets.state.plan import Plan
from retention_assets.state.warehouse import Warehouse
from retention_assets.sweep.engine import Done, Round, run_on_spark
from retention_assets.sweep.preconditions import Facts
from retention_assets.sweep.worker import OBJECTS, TaskSpec

_REVIVED = "came back to life since it was planned"
_COMMITTED = "was committed since it was planned"
Packing = Sequence[tuple[str, int]]


class Layout(Protocol):
    """How a kind of repository stores its objects: the place of each object, and the order of deletion.

    A place is a part of the store, such as a directory. All objects of a place are in the same batch.
    """

    def place(self, address: Column) -> Column:
        """Return the place of `address` in the store."""
        ...

    def phase(self, address: Column) -> Column:
        """Return the phase in which `address` is deleted, counted from 0.

        A phase starts only after all earlier phases ended without failures.
        """
        ...


class Directories:
    """The layout of lakeFS data: each directory is a place, and all objects are deleted in one phase. See `Layout`."""

    def place(self, address: Column) -> Column:
        """See `Layout`."""
        return place(address)

    def phase(self, address: Column) -> Column:
        """See `Layout`."""
        return F.lit(0)


@dataclass(frozen=True, slots=True)
class Setting:
    """Inputs of an engine: the plan and its objects, their store, and the liveness check.

    `look` runs the liveness check. `project` returns the projected liveness: what will be live after the edits of the
    plan are published. None: the plan has no edits.
    """

    spark: SparkSession
    warehouse: Warehouse
    plan: Plan
    planned: DataFrame
    access: StoreAccess
    look: Callable[[], Liveness]
    most: int  # most objects in a batch
    layout: Layout = field(default_factory=Directories)
    project: Callable[[], Liveness] | None = None


class SparkEngine:
    """The engine of a sweep; see `Engine`. The end of its `with` block releases what it has in Spark's cache.

    With `keeps_missing`, missing objects are passed on to the action, which also checks the quarantine.
    """

    def __init__(self, setting: Setting, *, keeps_missing: bool = False) -> None:
        self._of = setting
        self._frames = CachedFrames()
        self._keeps_missing = keeps_missing
        self._kept: DataFrame | None = None  # the remaining objects, in Spark's cache
        self._rest: DataFrame | None = None  # the remaining objects of the next phase, with their batch numbers
        self._liveness: Liveness | None = None  # the result of a liveness check that no batch has used yet
        self._looked: DataFrame | None = None  # the current batch with the outcomes of its check, in Spark's cache

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._frames.__exit__()
        self._kept = self._looked = None

    def remaining(self, fence: int) -> Sequence[int]:
        """See `Engine`. All batches are of one phase; the next phase follows when no object of this phase remains.

        A batch has all objects of its places, so each place is listed in one batch only. When an object of an earlier
        phase failed in this sweep, no batches are returned. Source: DESIGN.md, invariant 4.
        """
        layout = self._of.layout
        if self._kept is not None:  # the cached rows were read before the ledger grew
            self._frames.release(self._kept)
        named = {"place": layout.place(F.col("address")), "phase": layout.phase(F.col("address"))}
        self._kept = rest = self._frames.cache(self._unfinished(fence).withColumns(named))
        counted = rest.groupBy("phase", "place").agg(F.count(F.lit(1))).collect()
        phase = min((row[0] for row in counted), default=0)
        if phase and self._failed_before(phase, fence):
            counted = []
        packed = pack(sorted((row[1], row[2]) for row in counted if row[0] == phase), self._of.most)
        numbers = pa.table(
            {
                "place": pa.array([name for places, _ in packed for name in places], pa.string()),
                "round": pa.array([number for number, (places, _) in enumerate(packed) for _ in places], pa.int64()),
            }
        )
        self._rest = rest.join(F.broadcast(self._of.spark.createDataFrame(numbers)), on="place", how="inner")
        return [objects for _, objects in packed]

    def resurrected(self) -> int:
        """See `Engine`. A projected liveness check describes the state after the edits; batches must not use it."""
        assert self._kept is not None
        if self._of.project:
            liveness = self._of.project()
        else:
            liveness = self._liveness = self._of.look()
        return self._kept.join(liveness.live, on="address", how="left_semi").count()

    def look(self, number: int) -> Round[DataFrame]:
        """See `Engine`. Workers check for missing and changed objects later, just before each chunk."""
        liveness, self._liveness = self._liveness or self._of.look(), None
        assert self._rest is not None
        objects = self._rest.where(F.col("round") == number)
        if self._looked is not None:
            self._frames.release(self._looked)
        self._looked = self._frames.cache(with_results(objects, liveness))
        return Round(self._looked, liveness.checked_at)

    def run(self, objects: Round[DataFrame], task: TaskSpec) -> Done:
        """See `Engine`."""
        facts = Facts(self._of.access, self._keeps_missing)
        return run_on_spark(objects.objects, replace(task, facts=facts))

    def outcomes(self) -> Mapping[str, Amount]:
        """See `Engine`."""
        return amounts_of(self.ledger())

    def ledger(self) -> DataFrame:
        """Return the latest row of each address in the ledger of the plan."""
        plan = self._of.plan
        return ledger_of_plan(self._of.spark, self._of.warehouse, plan.repository, plan.day, plan.plan_hash)

    def ledger_digest(self, fence: int) -> str:
        """See `Engine`."""
        return ledger_digest(self._of.spark, self._of.warehouse, self._of.plan, fence)

    def _failed_before(self, phase: int, fence: int) -> bool:
        """Return whether an object of a phase before `phase` failed in the sweep with this `fence`."""
        failed = self._rows().where((F.col("fence") == fence) & (F.col("outcome") == Outcome.FAILED))
        return not failed.where(self._of.layout.phase(F.col("address")) < phase).isEmpty()

    def _rows(self) -> DataFrame:
        plan = self._of.plan
        return read_ledgers(
            self._of.spark, self._of.warehouse, plan.repository, [(plan.day.isoformat(), plan.plan_hash)]
        )

    def _unfinished(self, fence: int) -> DataFrame:
        rows = self._rows()
        known_by_now = (F.col("fence") == fence) & (F.col("outcome") != Outcome.ATTEMPTED)
        # A finished object stays finished after a later failure: a failed restore leaves the object in quarantine.
        done = rows.where(F.col("outcome").isin(*ENDED) | known_by_now)
        return self._of.planned.join(done.select("address"), on="address", how="left_anti")


def ledger_digest(spark: SparkSession, warehouse: Warehouse, plan: Plan, fence: int) -> str:
    """Return a hash of the ledger of a plan, up to and including the sweep with this `fence`."""
    return digest_of_ledger(spark, warehouse, plan.repository, (plan.day.isoformat(), plan.plan_hash), fence)


def digest_of_ledger(
    spark: SparkSession, warehouse: Warehouse, repository: str, plan: tuple[str, str], fence: int
) -> str:
    """Return the same hash as `ledger_digest`, for a plan given as (day, hash). The ledger may be empty."""
    rows = read_ledgers(spark, warehouse, repository, [plan])
    return candidates_digest(rows.where(F.col("fence") <= fence))


def amounts_of(ledger: DataFrame) -> dict[str, Amount]:
    """Return objects and bytes by outcome."""
    rows = ledger.groupBy("outcome").agg(F.count(F.lit(1)).alias("objects"), F.sum("size").alias("bytes")).collect()
    return {row["outcome"]: Amount(row["objects"], row["bytes"]) for row in sorted(rows)}


def with_results(objects: DataFrame, now: Liveness) -> DataFrame:
    """Return `objects` as `OBJECTS`: outcome `skipped` for live objects, null for objects to delete.

    An object that was planned as unreferenced is also skipped when a commit has it now.
    """
    committed = (F.col("reason") == UNREFERENCED) & F.col("is_held").isNotNull()
    detail = F.when(F.col("is_live").isNotNull(), F.lit(_REVIVED)).when(committed, F.lit(_COMMITTED))
    return (
        objects.join(now.live.withColumn("is_live", F.lit(True)), on="address", how="left")
        .join(now.committed.withColumn("is_held", F.lit(True)), on="address", how="left")
        .withColumn("detail", detail)
        .withColumn("outcome", F.when(F.col("detail").isNotNull(), F.lit(Outcome.SKIPPED)))
        .select(*OBJECTS.names)
    )


def place(address: Column) -> Column:
    """Return the directory of `address` in the store; empty for the top of the namespace."""
    return F.when(address.contains("/"), F.regexp_replace(address, "/[^/]*$", "/")).otherwise(F.lit(""))


def pack(places: Packing, most: int) -> list[tuple[tuple[str, ...], int]]:
    """Return the places in batches of at most `most` objects, in order, with the number of objects of each batch.

    A place that has more objects is a batch of its own.
    """
    rounds: list[tuple[tuple[str, ...], int]] = []
    names: list[str] = []
    total = 0
    for name, objects in places:
        if names and total + objects > most:
            rounds.append((tuple(names), total))
            names, total = [], 0
        names.append(name)
        total += objects
    return [*rounds, (tuple(names), total)] if names else rounds
