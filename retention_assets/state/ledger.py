"""The ledger: what was done to each object, by plan and sweep. Only ever added to. Source: DESIGN.md, Decisions.

Each file holds a group of rows and is written whole. What is about to be tried is written before it is tried, as
`attempted`: after a crash nobody knows what became of it, so it is neither done nor certainly there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from retention_assets.state.warehouse import Warehouse
from retention_assets.tables import DELETION_REPORT, LEDGER

LEDGERS = "ledger"
SURPLUS_LEDGERS = "surplus_ledger"  # beside the ledgers: which copies purges removed that no plan's totals count
ATTEMPTED = "attempted"
DELETED, MISSING, FAILED, SKIPPED = "deleted", "missing", "failed", "skipped"
QUARANTINED, RESTORED, PURGED = "quarantined", "restored", "purged"
OUTCOMES = (DELETED, QUARANTINED, PURGED, RESTORED, MISSING, FAILED, SKIPPED)
ENDED = (DELETED, MISSING, QUARANTINED, PURGED, RESTORED)  # a sweep of the same plan leaves these alone
DONE = "done"  # how the files end that say what came of what was tried
ABSENT = (DELETED, MISSING, QUARANTINED, PURGED, ATTEMPTED)  # no longer where they were, or not certainly


@dataclass(frozen=True, slots=True)
class LedgerPlace:
    """Where one sweep writes its rows of one plan's ledger. It travels to executors."""

    warehouse: str
    repository: str
    day: date
    plan_hash: str
    fence: int
    run_id: str
    tree: str = LEDGERS

    def append(self, rows: pa.Table, name: str, kind: str) -> None:
        """Write rows of `LEDGER`, durable before this returns. `kind`: attempted, done or decided."""
        file = f"{name}-{rows.num_rows}-{kind}.parquet"
        Warehouse(self.warehouse).append_rows(rows.cast(LEDGER), *self._folder, file)

    def objects_noted(self) -> int:
        """Return of how many objects this sweep wrote what became of them, by the names of its files."""
        names = (name.removesuffix(".parquet").split("-") for name in Warehouse(self.warehouse).files(*self._folder))
        return sum(int(parts[-2]) for parts in names if parts[-1] != ATTEMPTED)

    @property
    def _folder(self) -> tuple[str, ...]:
        sweep = f"{self.fence:08d}-{self.run_id}"
        return self.repository, self.tree, self.day.isoformat(), self.plan_hash, sweep


def ledger_of_plan(spark: SparkSession, warehouse: Warehouse, repository: str, day: date, plan_hash: str) -> DataFrame:
    """Return the latest outcome of each address over all sweeps of one plan; `attempted` if that is all."""
    return latest_of(read_ledgers(spark, warehouse, repository, [(day.isoformat(), plan_hash)]))


def report_of(ledger: DataFrame) -> DataFrame:
    """Return `deletion_report`: the outcomes that are known."""
    return ledger.where(F.col("outcome") != ATTEMPTED).select(*DELETION_REPORT.schema.names)


def collected_addresses(spark: SparkSession, warehouse: Warehouse, repository: str) -> DataFrame:
    """Return the addresses that sweeps of ours found gone or made go, or were at when they were cut off."""
    return collected_since(spark, warehouse, repository).select("address")


def collected_since(spark: SparkSession, warehouse: Warehouse, repository: str) -> DataFrame:
    """Return (address, at) of `collected_addresses`: when the ledger last said that each is gone (UTC)."""
    rows = read_ledgers(spark, warehouse, repository, plans_with_ledgers(warehouse, repository))
    return newest_of(rows).where(F.col("outcome").isin(*ABSENT)).select("address", "at")


def plans_with_ledgers(warehouse: Warehouse, repository: str) -> list[tuple[str, str]]:
    """Return (day, hash) of every plan of which something was tried."""
    return [
        (day, plan)
        for day in warehouse.directories(repository, LEDGERS)
        for plan in warehouse.directories(repository, LEDGERS, day)
    ]


def sweeps_of(warehouse: Warehouse, repository: str, day: str, plan_hash: str) -> list[int]:
    """Return the fences of the sweeps that wrote rows of a plan's ledger, in order."""
    return sorted({int(name.partition("-")[0]) for name in warehouse.directories(repository, LEDGERS, day, plan_hash)})


def a_failure(warehouse: Warehouse, repository: str, day: str, plan_hash: str) -> tuple[str, str | None] | None:
    """Return address and detail of an object that failed in the plan's last sweep that wrote; None when none did."""
    for sweep in reversed(warehouse.directories(repository, LEDGERS, day, plan_hash)):
        place = (repository, LEDGERS, day, plan_hash, sweep)
        for name in warehouse.files(*place):
            if name.endswith(f"-{DONE}.parquet"):
                rows = warehouse.read_rows(*place, name)
                failed = rows.filter(pc.equal(rows["outcome"], FAILED))
                if failed.num_rows:
                    return failed["address"][0].as_py(), failed["detail"][0].as_py()
    return None


def read_ledgers(
    spark: SparkSession,
    warehouse: Warehouse,
    repository: str,
    plans: Sequence[tuple[str, str]],
    tree: str = LEDGERS,
) -> DataFrame:
    """Return every row of these plans' ledgers, with the columns of `LEDGER` and `plan_hash`."""
    empty = spark.createDataFrame(LEDGER.empty_table()).withColumn("plan_hash", F.lit(None).cast("string"))
    found = empty
    for day, plan in plans:
        names = warehouse.directories(repository, tree, day, plan)
        places = [warehouse.location(repository, tree, day, plan, name) for name in names]
        if places:
            # A local write that was cut off leaves a part beside the files, under another ending.
            files = spark.read.option("pathGlobFilter", "*.parquet")
            rows = files.schema(from_arrow_schema(LEDGER)).parquet(*places)
            found = found.unionByName(rows.withColumn("plan_hash", F.lit(plan)))
    return found


def latest_of(rows: DataFrame) -> DataFrame:
    """Return the latest known outcome of each address in ledgers; `attempted` where nothing else is known."""
    return _first_of(rows, (F.col("outcome") == ATTEMPTED).cast("int"), *_latest())


def ended_of(rows: DataFrame, *by: str) -> DataFrame:
    """Return how each address in ledgers ended last; what failed or was left alone after that does not undo it.

    `by` are further columns that tell rows of one address apart.
    """
    return _first_of(rows.where(F.col("outcome").isin(*ENDED)), *_latest(), by=by)


def _latest() -> Sequence[Column]:
    """Return an order. What one try of a worker deleted, the next try of the same sweep finds gone: it is deleted."""
    return F.desc("fence"), (F.col("outcome") == DELETED).cast("int").desc(), F.desc("at")


def newest_of(rows: DataFrame) -> DataFrame:
    """Return the newest row that says where each address in ledgers is: how it ended, or an attempt of unknown end.

    One that failed or was left alone says nothing of where it is: an earlier attempt may have moved it all the same.
    """
    sweep = Window.partitionBy("address", "fence")
    tried = F.count_if(F.col("outcome") == ATTEMPTED).over(sweep)
    answered = F.count_if(F.col("outcome") != ATTEMPTED).over(sweep)
    is_open = (F.col("outcome") == ATTEMPTED) & (F.col("tried") > F.col("answered"))
    counted = rows.withColumns({"tried": tried, "answered": answered})
    telling = counted.where(F.col("outcome").isin(*ENDED) | is_open).drop("tried", "answered")
    return _first_of(telling, F.desc("fence"), (F.col("outcome") == ATTEMPTED).cast("int"), F.desc("at"))


def _first_of(rows: DataFrame, *order: Column, by: Sequence[str] = ()) -> DataFrame:
    first = Window.partitionBy("address", *by).orderBy(*order, F.col("outcome"))
    return rows.withColumn("rank", F.row_number().over(first)).where(F.col("rank") == 1).drop("rank")
