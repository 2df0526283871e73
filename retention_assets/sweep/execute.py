"""Carrying a plan out: look again, drop what came back to life, delete the rest on executors, write the ledger."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from retention_assets.errors import GuardRefused
from retention_assets.stores.access import StoreAccess
from retention_assets.stores.deletion import ObjectDeleter
from retention_assets.stores.listing import Prefixes, list_objects
from retention_assets.stores.policies import note_completed
from retention_assets.stores.ranges import TableCache
from retention_assets.stores.repositories import OpenRepository
from retention_assets.stores.warehouse import Warehouse
from retention_assets.sweep.approval import require_approval
from retention_assets.sweep.ledger import FAILED, GONE, MISSING, SKIPPED, ledger_location, ledger_of_plan
from retention_assets.sweep.liveness import Liveness, Question, live_now
from retention_assets.sweep.plan import Amount, Plan, load_plan, plan_hash
from retention_assets.sweep.results import rule_statistics, write_statistics
from retention_assets.tables import DELETION_CANDIDATES, DELETION_REPORT
from retention_assets.transforms.candidates import UNREFERENCED
from retention_assets.transforms.conform import conform
from retention_assets.transforms.digest import candidates_digest

_BATCH = 1000  # the most that one S3 request deletes
_INTENTS = "intents"  # what an attempt was about to delete, written before it began

Log = Callable[[str], None]
_ROW = DELETION_REPORT.schema.names


@dataclass(frozen=True, slots=True)
class Sweep:
    """One attempt at a plan."""

    spark: SparkSession
    warehouse: Warehouse
    opened: OpenRepository
    day: date
    attempt: str  # the run's id
    log: Log


@dataclass(frozen=True, slots=True)
class Report:
    """The ledger of a plan so far. In `plan` mode it has no rows: nothing was tried."""

    plan: Plan
    mode: str
    ledger: DataFrame

    def numbers(self) -> dict[str, float | str]:
        """Return what Dagster plots of the report: the plan's totals, and what became of its candidates."""
        return {
            "mode": self.mode,
            "plan_hash": self.plan.plan_hash,
            "planned_objects": self.plan.candidates.objects,
            "planned_bytes": self.plan.candidates.bytes,
            **{f"{name}_objects": amount.objects for name, amount in outcomes(self.ledger).items()},
        }


def outcomes(ledger: DataFrame) -> dict[str, Amount]:
    """Return objects and bytes by outcome."""
    rows = ledger.groupBy("outcome").agg(F.count(F.lit(1)).alias("objects"), F.sum("size").alias("bytes")).collect()
    return {row["outcome"]: Amount(row["objects"], row["bytes"]) for row in sorted(rows)}


def report(sweep: Sweep) -> Report:
    """Return the report of the day's plan; in `delete` mode carry the plan out first."""
    mode = sweep.opened.repository.settings.mode
    if mode == "delete":
        return Report(*carry_out(sweep))
    plan = load_plan(sweep.warehouse, sweep.opened.repository.name, sweep.day)
    return Report(plan, mode, sweep.spark.createDataFrame(DELETION_REPORT.schema.empty_table()))


def carry_out(sweep: Sweep) -> tuple[Plan, str, DataFrame]:
    """Delete what the day's approved plan names and is still dead; return the plan and its ledger so far.

    What an earlier attempt deleted is not tried again. Errors: GuardRefused before anything is deleted.
    """
    started = datetime.now(UTC)
    name = sweep.opened.repository.name
    plan = load_plan(sweep.warehouse, name, sweep.day)
    require_approval(sweep.warehouse, plan)
    planned = _planned(sweep, plan)
    done = _ledger(sweep, plan).where(F.col("outcome").isin(*GONE)).select("address")
    remaining = planned.join(done, on="address", how="left_anti").cache()
    objects = remaining.count()
    sweep.log(f"{name} {sweep.day}: {objects:,} of {plan.candidates.objects:,} candidates remain to be deleted")
    if objects:
        _attempt(sweep, plan, remaining)
    remaining.unpersist()
    ledger = _ledger(sweep, plan)
    _conclude(sweep, plan, planned, ledger, started)
    return plan, "delete", ledger


def _conclude(sweep: Sweep, plan: Plan, planned: DataFrame, ledger: DataFrame, started: datetime) -> None:
    """Note a plan that was carried out whole, and write the statistics if the repository asks for them.

    Failed and unattempted rows hold `last_deleted` back; skipped ones do not, they are planned again.
    Source: DESIGN.md, Decisions (`last_deleted`).
    """
    ended = {outcome: amount.objects for outcome, amount in outcomes(ledger).items()}
    if ended.get(FAILED, 0) == 0 and sum(ended.values()) == plan.candidates.objects:
        note_completed(sweep.warehouse, plan.repository, sweep.day, plan.plan_hash, plan.policy_run)
    if sweep.opened.repository.settings.write_results:
        statistics = rule_statistics(planned, ledger, sweep.attempt, plan.plan_hash, started)
        write_statistics(sweep.opened.access, sweep.day, statistics)


def _planned(sweep: Sweep, plan: Plan) -> DataFrame:
    """Return the plan's candidates, if they and the policy are what was approved."""
    if plan.blocked:
        raise GuardRefused(f"{plan.repository} {plan.day}: {plan.blocked} Nothing was deleted.")
    again = f"Nothing was deleted. Plan again: `retention plan {plan.repository} --as-of {plan.day}`."
    if sweep.opened.policy().policy_hash != plan.policy_hash:
        raise GuardRefused(f"{plan.repository} {plan.day}: the policy is not the plan's any more. {again}")
    candidates = sweep.warehouse.rows(sweep.spark, plan.repository, DELETION_CANDIDATES.name, sweep.day).frame
    digest = candidates_digest(candidates)
    if plan_hash(plan.repository, plan.policy_hash, plan.references_hash, digest) != plan.plan_hash:
        raise GuardRefused(f"{plan.repository} {plan.day}: deletion_candidates are not the approved ones. {again}")
    return candidates


def _ledger(sweep: Sweep, plan: Plan) -> DataFrame:
    return ledger_of_plan(sweep.spark, sweep.warehouse, plan.repository, sweep.day, plan.plan_hash)


def _attempt(sweep: Sweep, plan: Plan, remaining: DataFrame) -> None:
    """Decide what still goes, note it, delete it, and write what became of each."""
    question = Question(sweep.opened, sweep.opened.policy(), sweep.day)
    cache = TableCache(sweep.spark, sweep.warehouse, plan.repository, sweep.opened.access, sweep.attempt)
    now = live_now(sweep.spark, cache, question)
    fates = _fates(remaining, now, _listed_again(sweep, remaining))
    intents = sweep.warehouse.location(plan.repository, _INTENTS, sweep.day.isoformat(), plan.plan_hash, sweep.attempt)
    fates.write.mode("errorifexists").parquet(intents)
    noted = sweep.spark.read.parquet(intents)
    doomed = noted.where(F.col("outcome").isNull())
    sweep.log(f"{plan.repository} {sweep.day}: deleting {doomed.count():,} objects, noted in {intents}")
    ended = noted.where(F.col("outcome").isNotNull()).select(*_ROW)
    width = int(sweep.spark.conf.get("spark.sql.shuffle.partitions") or 2)
    deleted = (
        doomed.select("address", "size")
        .repartitionByRange(width, "address")
        .mapInArrow(_deleter(sweep.opened.access), from_arrow_schema(DELETION_REPORT.schema))
    )
    ledger = ledger_location(sweep.warehouse, plan.repository, sweep.day, plan.plan_hash, sweep.attempt)
    conform(ended.unionByName(deleted), DELETION_REPORT).write.mode("errorifexists").parquet(ledger)


def _listed_again(sweep: Sweep, remaining: DataFrame) -> DataFrame:
    """Return the listing of the candidates' places as it is now."""
    slices = remaining.where(F.col("address").contains("/")).select(F.substring_index("address", "/", 2).alias("place"))
    deep = tuple(sorted(row["place"] for row in slices.distinct().collect()))
    listed = list_objects(sweep.spark, sweep.opened.access, Prefixes(deep, ("",)))
    return listed.select("address", F.col("size").alias("size_now"), F.col("last_modified").alias("modified_now"))


def _fates(remaining: DataFrame, now: Liveness, listed: DataFrame) -> DataFrame:
    """Return the remaining candidates with the outcome of those that are not deleted, null for those that are."""
    changed = (F.col("size_now") != F.col("size")) | (F.col("modified_now") != F.col("last_modified"))
    fates: list[tuple[Column, str, str | None]] = [
        (F.col("is_live").isNotNull(), SKIPPED, "came back to life since it was planned"),
        (
            (F.col("reason") == UNREFERENCED) & F.col("is_held").isNotNull(),
            SKIPPED,
            "was committed since it was planned",
        ),
        (F.col("size_now").isNull(), MISSING, "was gone before"),
        (changed, SKIPPED, "changed since it was planned"),
    ]
    outcome, detail = F.lit(None).cast("string"), F.lit(None).cast("string")
    for condition, result, reason in reversed(fates):
        outcome = F.when(condition, F.lit(result)).otherwise(outcome)
        detail = F.when(condition, F.lit(reason)).otherwise(detail)
    is_live = now.live.withColumn("is_live", F.lit(True))
    is_held = now.committed.withColumn("is_held", F.lit(True))
    return (
        remaining.join(is_live, on="address", how="left")
        .join(is_held, on="address", how="left")
        .join(listed, on="address", how="left")
        .select("address", "size", outcome.alias("outcome"), detail.alias("detail"), F.current_timestamp().alias("at"))
    )


def _deleter(access: StoreAccess):  # type: ignore[no-untyped-def]  # a closure that Spark ships
    def delete(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        deleter = ObjectDeleter(access)
        for batch in batches:
            for start in range(0, batch.num_rows, _BATCH):
                yield _deleted(deleter, batch.slice(start, _BATCH))

    return delete


def _deleted(deleter: ObjectDeleter, doomed: pa.RecordBatch) -> pa.RecordBatch:
    ended = deleter.delete_all(doomed["address"].to_pylist())
    columns = [
        doomed["address"],
        doomed["size"],
        pa.array([str(result.outcome) for result in ended]),
        pa.array([result.detail for result in ended], pa.string()),
        pa.array([datetime.now(UTC)] * doomed.num_rows, DELETION_REPORT.schema.field("at").type),
    ]
    return pa.record_batch(columns, schema=DELETION_REPORT.schema)
