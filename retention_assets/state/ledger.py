"""The ledger: the results for each object, by plan and sweep. Rows are added, and never changed.

Each file has the rows of one chunk and is written atomically. Before the sweep applies an action, it writes an
`attempted` row for each object. If only this row exists after a crash, the result for the object is unknown: the object
is not finished, and it may be gone. Source: docs/safety.md, "Before and during a sweep".
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.core.amounts import Amount, sum_of
from retention_assets.errors import GuardRefused
from retention_assets.objectstore.outcomes import OF_COPY, ObjectResult, Outcome
from retention_assets.state.plan import PLANS, Plan, find_plan
from retention_assets.tables import DELETION_REPORT, LEDGER, OF_LEDGER, TIMESTAMP
from retention_assets.warehouse.reading import one_of, read_files
from retention_assets.warehouse.warehouse import StoredFile, Warehouse

if TYPE_CHECKING:  # Spark is imported in the functions that use it: commands without Spark start faster
    from pyspark.sql import Column, DataFrame, SparkSession

LEDGERS = "ledger"
SURPLUS_LEDGERS = "surplus_ledger"  # ledgers of purged surplus copies, which the totals of plans do not include
OUTCOMES = tuple(one for one in Outcome if one is not Outcome.ATTEMPTED)
FINISHED = (  # later sweeps of the same plan skip objects with these outcomes
    Outcome.DELETED,
    Outcome.MISSING,
    Outcome.QUARANTINED,
    Outcome.PURGED,
    Outcome.RESTORED,
)
_ROWS = ".parquet"  # end of the names of ledger files
_OF_PLAN = re.compile(r"/(\d{4}-\d\d-\d\d)/([^/]+)/\d+-[^/]+/[^/]+$")  # a ledger file; other files are not ours
_FEW = 100_000  # addresses that one process looks up in the ledgers
_SMALL = 2**28  # bytes of ledgers that one process reads
AFTER = "after"  # in the names of files that repeat results with another detail
DONE, DECIDED = "done", "decided"  # ends of names of files with the results of the action, or of the checks before it
FREED = (Outcome.DELETED, Outcome.PURGED)  # nothing is left of the object, except versions that the bucket keeps
ABSENT = (  # the object is not at its path, or may not be
    Outcome.DELETED,
    Outcome.MISSING,
    Outcome.QUARANTINED,
    Outcome.PURGED,
    Outcome.ATTEMPTED,
)


def results_of(planned: Amount, outcomes: Mapping[str, Amount]) -> dict[str, Amount]:
    """Return objects and bytes by outcome. The objects that no sweep has tried are `unattempted`.

    The terminal and Dagster show these figures. An object whose result is unknown (`attempted`) counts as unattempted.
    """
    tried = {outcome: amount for outcome, amount in outcomes.items() if outcome != Outcome.ATTEMPTED}
    total = sum_of(tried.values())
    return {**tried, "unattempted": Amount(planned.objects - total.objects, planned.bytes - total.bytes)}


@dataclass(frozen=True, slots=True)
class LedgerLocation:
    """The location of the ledger rows that one sweep of a plan writes; pickled to executors."""

    warehouse: str
    repository: str
    day: date
    plan_hash: str
    fence: int
    run_id: str
    tree: str = LEDGERS

    def rows(self, objects: pa.Table, results: Sequence[ObjectResult], at: datetime) -> pa.Table:
        """Return the results of objects as rows of `LEDGER`. `objects` has address and size; `at` is UTC."""
        columns = [
            objects["address"],
            objects["size"],
            pa.array([one.outcome for one in results], pa.string()),
            pa.array([one.detail for one in results], pa.string()),
            pa.repeat(pa.scalar(at, TIMESTAMP), objects.num_rows),
            pa.repeat(pa.scalar(self.fence, pa.int64()), objects.num_rows),
        ]
        return pa.table(columns, schema=LEDGER)

    def append(self, rows: pa.Table, name: str, kind: str) -> None:
        """Write rows of `LEDGER` as one new file. `kind`: attempted, done, or decided (before the action)."""
        file = f"{name}-{rows.num_rows}-{kind}{_ROWS}"
        Warehouse(self.warehouse).append_rows(rows.cast(LEDGER), *self._folder, file)

    def objects_recorded(self) -> int:
        """Return the number of objects for which this sweep has written results. Only file names are read."""
        names = (name.removesuffix(_ROWS).split("-") for name in Warehouse(self.warehouse).files(*self._folder))
        return sum(int(parts[-2]) for parts in names if parts[-1] in (DONE, DECIDED) and AFTER not in parts)

    @property
    def _folder(self) -> tuple[str, ...]:
        sweep = f"{self.fence:08d}-{self.run_id}"
        return self.repository, self.tree, self.day.isoformat(), self.plan_hash, sweep


def ledger_of_plan(
    spark: "SparkSession", warehouse: Warehouse, repository: str, day: date, plan_hash: str
) -> "DataFrame":
    """Return the latest known outcome of each address over all sweeps of one plan; `attempted` if it is unknown."""
    return latest_of(read_ledgers(spark, warehouse, repository, [(day.isoformat(), plan_hash)]))


def report_of(ledger: "DataFrame") -> "DataFrame":
    """Return the rows of `deletion_report`: the ledger without `attempted` rows."""
    from pyspark.sql import functions as F

    return ledger.where(F.col("outcome") != Outcome.ATTEMPTED).select(*DELETION_REPORT.schema.names)


def collected_addresses(
    spark: "SparkSession", warehouse: Warehouse, repository: str, addresses: "DataFrame"
) -> "DataFrame":
    """Return (address, at) of those `addresses` that our sweeps deleted, moved or found missing, or had started on.

    `at` is the time at which the object went (UTC). `addresses` (column `address`) should be cached: it is read twice.
    If it is empty, no ledger is read.
    """
    from retention_assets.spark.frames import from_arrow

    looked_up = [row["address"] for row in addresses.select("address").limit(_FEW + 1).collect()]
    files = warehouse.tree(repository, LEDGERS) if looked_up else {}
    if len(looked_up) <= _FEW and sum(file.size for file in files.values()) <= _SMALL:
        # Spark needs many seconds to open a thousand small files.
        ledger_files = _readable(warehouse, files)
        rows = from_arrow(spark, read_files(warehouse, ledger_files, LEDGER, one_of("address", looked_up)))
    else:
        rows = _every_row(spark, warehouse, repository).join(addresses, on="address", how="left_semi")
    return _absent(rows)


def quarantined_by(spark: "SparkSession", warehouse: Warehouse, repository: str, addresses: Sequence[str]) -> list[str]:
    """Return the hashes of the plans whose sweeps moved one of these objects to quarantine, if its copy is still there.

    Each plan's own ledger decides, because another plan may have found the object missing since.
    """
    from pyspark.sql import functions as F

    from retention_assets.spark.frames import from_arrow

    wanted = from_arrow(spark, pa.table({"address": pa.array(addresses, pa.string())}))
    rows = _every_row(spark, warehouse, repository).join(wanted, on="address", how="left_semi")
    last = finished_of(rows, "day", "plan_hash")
    moved = last.where(F.col("outcome") == Outcome.QUARANTINED).select("plan_hash").distinct()
    return sorted(row["plan_hash"] for row in moved.collect())


def all_collected_addresses(spark: "SparkSession", warehouse: Warehouse, repository: str) -> "DataFrame":
    """Return (address, at) of all objects that our sweeps deleted, moved or found missing, or had started on.

    `at` is the time at which the object went (UTC).
    """
    return _absent(_every_row(spark, warehouse, repository))


def recorded_since(spark: "SparkSession", warehouse: Warehouse, repository: str, since: datetime) -> "DataFrame":
    """Return (address, outcome) of every ledger row after `since` (UTC)."""
    from pyspark.sql import functions as F

    rows = _every_row(spark, warehouse, repository).where(F.col("at") > F.lit(since))
    return rows.select("address", "outcome")


def recorded_sweeps(warehouse: Warehouse, repository: str, run_id: str = "") -> frozenset[str]:
    """Return the directories with ledger rows of all sweeps, restores and purges, except those of the run `run_id`."""
    found = frozenset(path.rpartition("/")[0] for path in _files_below(warehouse, repository, LEDGERS))
    return frozenset(one for one in found if not run_id or f"-{run_id}-" not in one.rpartition("/")[2])


def rows_of_sweeps(spark: "SparkSession", warehouse: Warehouse, sweeps: Iterable[str]) -> "DataFrame":
    """Return every ledger row of these sweeps, of any plan. `sweeps`: see `recorded_sweeps`."""
    for sweep in sweeps:
        _readable(warehouse, warehouse.tree(sweep))
    return _read(spark, [warehouse.location(sweep) for sweep in sorted(sweeps)])


def _absent(rows: "DataFrame") -> "DataFrame":
    """Return (address, at) of objects that are gone or may be. `at`: when the object went, not when it was purged."""
    from pyspark.sql import functions as F

    gone = newest_conclusive(with_went_at(rows)).where(F.col("outcome").isin(*ABSENT))
    went = F.when(F.col("outcome") == Outcome.PURGED, F.coalesce("went_at", "at")).otherwise(F.col("at"))
    return gone.select("address", went.alias("at"))


def with_went_at(rows: "DataFrame") -> "DataFrame":
    """Return rows of ledgers with `went_at`: the last time at which the object was deleted, moved or found missing.

    Null: this never happened. A purge deletes a copy or old versions, so the time of a purge does not count.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    left = F.when(F.col("outcome").isin(Outcome.DELETED, Outcome.MISSING, Outcome.QUARANTINED), F.col("at"))
    return rows.withColumn("went_at", F.max(left).over(Window.partitionBy("address")))


def plans_with_ledgers(warehouse: Warehouse, repository: str) -> list[tuple[str, str]]:
    """Return (day, hash) of every plan that has a ledger, sorted."""
    return _plans_of(_files_below(warehouse, repository, LEDGERS))


def swept_plans(warehouse: Warehouse, repository: str) -> list[Plan]:
    """Return every plan that has a ledger, sorted by day and hash. Errors: GuardRefused when a plan is not stored."""
    return [_swept_plan(warehouse, repository, *plan) for plan in plans_with_ledgers(warehouse, repository)]


def _swept_plan(warehouse: Warehouse, repository: str, day: str, plan_hash: str) -> Plan:
    try:
        return find_plan(warehouse, repository, plan_hash, date.fromisoformat(day))
    except GuardRefused as error:
        raise GuardRefused(
            f"{repository} {day}: a plan with a ledger is missing from the warehouse: {plan_hash}. Nothing was "
            f"changed. Copy {warehouse.location(repository, PLANS, day)} from a backup of the warehouse."
        ) from error


def _files_below(warehouse: Warehouse, *parts: str) -> list[str]:
    """Return the paths of the files with rows in a directory of ledgers, sorted."""
    return sorted(path for path in warehouse.tree(*parts) if path.endswith(_ROWS))


def _readable(warehouse: Warehouse, files: Mapping[str, StoredFile]) -> list[str]:
    """Return the paths of the files with rows, sorted. Errors: TableContractError if one of them is damaged."""
    found = {path: file for path, file in files.items() if path.endswith(_ROWS)}
    warehouse.require_readable(found, LEDGER.names, OF_LEDGER)
    return sorted(found)


def _plans_of(files: Iterable[str]) -> list[tuple[str, str]]:
    """Return (day, hash) of every plan with one of these files, sorted."""
    return sorted({(found[1], found[2]) for path in files if (found := _OF_PLAN.search(path))})


def sweeps_of(warehouse: Warehouse, repository: str, day: str, plan_hash: str, tree: str = LEDGERS) -> list[int]:
    """Return the fencing tokens of the sweeps that wrote to the plan's ledger, sorted."""
    names = warehouse.directories(repository, tree, day, plan_hash)
    return sorted({fence for name in names if (fence := fence_of(name)) is not None})


def fence_of(directory: str) -> int | None:
    """Return the fencing token in the name of a sweep's directory below a ledger; None: no sweep made it."""
    token = directory.partition("-")[0]
    return int(token) if token.isascii() and token.isdecimal() else None


def first_failure(warehouse: Warehouse, repository: str, day: str, plan_hash: str) -> tuple[str, str | None] | None:
    """Return (address, detail) of an object that failed in the newest sweep with failures; None if none failed."""
    for sweep in reversed(warehouse.directories(repository, LEDGERS, day, plan_hash)):
        parts = (repository, LEDGERS, day, plan_hash, sweep)
        for name in warehouse.files(*parts):
            if name.endswith((f"-{DONE}{_ROWS}", f"-{DECIDED}{_ROWS}")):
                rows = warehouse.read_rows(*parts, name)
                failed = rows.filter(pc.equal(rows["outcome"], Outcome.FAILED))
                if failed.num_rows:
                    return failed["address"][0].as_py(), failed["detail"][0].as_py()
    return None


def read_ledgers(
    spark: "SparkSession",
    warehouse: Warehouse,
    repository: str,
    plans: Sequence[tuple[str, str]],
    tree: str = LEDGERS,
) -> "DataFrame":
    """Return every row of these plans' ledgers: the columns of `LEDGER`, and the `day` and `plan_hash` of the plan.

    Plans of several days may have equal hashes.
    """
    from pyspark.sql import functions as F

    # Spark lists one directory with all ledgers faster than hundreds of directories.
    parts = (repository, tree, *plans[0]) if len(plans) == 1 else (repository, tree)
    paths = _readable(warehouse, warehouse.tree(*parts)) if plans else []
    if not paths:
        empty = {name: F.lit(None).cast("string") for name in ("day", "plan_hash")}
        return _read(spark, []).withColumns(empty)
    rows = _read(spark, [warehouse.location(*parts)])
    folders = F.split("_metadata.file_path", "/")
    day, plan = F.element_at(folders, -4), F.element_at(folders, -3)
    with_plan = rows.select(*rows.columns, day.alias("day"), plan.alias("plan_hash"))
    if set(_plans_of(paths)) - set(plans):
        with_plan = with_plan.where(F.concat_ws("/", "day", "plan_hash").isin(*("/".join(one) for one in plans)))
    return with_plan


def _every_row(spark: "SparkSession", warehouse: Warehouse, repository: str) -> "DataFrame":
    """Return every row of the ledgers of all plans. See `read_ledgers`."""
    return read_ledgers(spark, warehouse, repository, plans_with_ledgers(warehouse, repository))


def _read(spark: "SparkSession", directories: Sequence[str]) -> "DataFrame":
    """Return the rows of all ledger files below the directories: the columns of `LEDGER`."""
    from pyspark.sql.pandas.types import from_arrow_schema

    from retention_assets.spark.frames import from_arrow, opened_files

    if not directories:
        return from_arrow(spark, LEDGER.empty_table())
    # An interrupted local write leaves a partial file with another ending beside the ledger files.
    files = opened_files(spark).option("pathGlobFilter", f"*{_ROWS}").option("recursiveFileLookup", "true")
    return files.schema(from_arrow_schema(LEDGER)).parquet(*directories)


def amounts_of(ledger: "DataFrame") -> dict[str, Amount]:
    """Return objects and bytes by outcome."""
    from pyspark.sql import functions as F

    rows = ledger.groupBy("outcome").agg(F.count(F.lit(1)).alias("objects"), F.sum("size").alias("bytes")).collect()
    return {row["outcome"]: Amount(row["objects"], row["bytes"]) for row in sorted(rows)}


def ledger_digest(
    spark: "SparkSession",
    warehouse: Warehouse,
    repository: str,
    plan: tuple[str, str],
    fence: int,
    until: datetime | None = None,
) -> str:
    """Return a hash of the ledger of a plan, given as (day, hash), up to and including the sweep with this `fence`.

    With `until`, later rows of earlier sweeps are left out.
    """
    from pyspark.sql import functions as F

    from retention_assets.core.digest import candidates_digest

    rows = read_ledgers(spark, warehouse, repository, [plan]).where(F.col("fence") <= fence)
    rows = rows if until is None else rows.where((F.col("fence") == fence) | (F.col("at") <= F.lit(until)))
    return candidates_digest(rows.select(*LEDGER.names, "plan_hash"))  # stored digests are of exactly these columns


def latest_of(rows: "DataFrame") -> "DataFrame":
    """Return the latest known outcome of each address in ledgers; `attempted` if no other outcome is known."""
    from pyspark.sql import functions as F

    return _first_of(rows, (F.col("outcome") == Outcome.ATTEMPTED).cast("int"), *_latest())


def finished_of(rows: "DataFrame", *by: str) -> "DataFrame":
    """Return the latest finished outcome of each address in ledgers. Later failed or skipped rows do not replace it.

    With `by`, return one row for each address and value of these columns.
    """
    from pyspark.sql import functions as F

    return _first_of(rows.where(F.col("outcome").isin(*FINISHED)), *_latest(), by=by)


def moves_of(rows: "DataFrame") -> "DataFrame":
    """Return the rows of objects that a sweep in mode `quarantine` attempted to move.

    Their detail is the URL of the plan's folder in quarantine. Earlier releases wrote no detail: their rows are not
    returned.
    """
    from pyspark.sql import functions as F

    return rows.where((F.col("outcome") == Outcome.ATTEMPTED) & F.col("detail").isNotNull())


def _latest() -> Sequence["Column"]:
    """Return the sort order for the latest row.

    Within a sweep, `deleted` comes before all other outcomes: after a worker deleted an object, its retry reports the
    object as missing. After a worker moved an object, its retry may report the object as failed or skipped.
    """
    from pyspark.sql import functions as F

    outcome = F.col("outcome")
    is_deleted, is_finished = (outcome == Outcome.DELETED).cast("int"), outcome.isin(*FINISHED).cast("int")
    return F.desc("fence"), is_deleted.desc(), is_finished.desc(), F.desc("at")


def newest_conclusive(rows: "DataFrame") -> "DataFrame":
    """Return, for each address, the newest row that shows whether the object is gone.

    Such a row has a finished outcome, or is an attempt with an unknown result. Failed and skipped rows are ignored: an
    earlier attempt may have moved the object. The purge of a copy is ignored after the object was restored: the
    purge deleted a copy under another plan, and the object is still at its path.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    sweep = Window.partitionBy("address", "fence")
    tried = F.count_if(F.col("outcome") == Outcome.ATTEMPTED).over(sweep)
    completed = F.count_if(F.col("outcome") != Outcome.ATTEMPTED).over(sweep)
    is_open = (F.col("outcome") == Outcome.ATTEMPTED) & (F.col("tried") > F.col("completed"))
    counted = rows.withColumns({"tried": tried, "completed": completed})
    conclusive = counted.where(F.col("outcome").isin(*FINISHED) | is_open)
    is_attempt = F.col("outcome") == Outcome.ATTEMPTED
    is_copy = (F.col("outcome") == Outcome.PURGED) & F.coalesce(F.col("detail").startswith(OF_COPY), F.lit(False))
    order = F.when(~is_copy, F.struct("fence", ~is_attempt, "at"))  # `max_by` ignores rows without an order
    last_other = F.max_by("outcome", order).over(Window.partitionBy("address"))
    kept = conclusive.withColumn("last_other", last_other).where(
        ~is_copy | F.coalesce(F.col("last_other") != Outcome.RESTORED, F.lit(True))
    )
    return _first_of(
        kept.drop("tried", "completed", "last_other"), F.desc("fence"), is_attempt.cast("int"), F.desc("at")
    )


def _first_of(rows: "DataFrame", *order: "Column", by: Sequence[str] = ()) -> "DataFrame":
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    first = Window.partitionBy("address", *by).orderBy(*order, F.col("outcome"))
    return rows.withColumn("rank", F.row_number().over(first)).where(F.col("rank") == 1).drop("rank")
