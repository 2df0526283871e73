"""Lists the quarantine of a repository and compares the listing with the ledgers. This module changes nothing.

A sweep that was interrupted, or that could not delete an original, leaves copies that no ledger calls `quarantined`.
Only the listing shows these copies.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from retention_assets.config.configuration import Repository
from retention_assets.config.timestamps import Clock
from retention_assets.core.amounts import Amount, counted, sum_of
from retention_assets.errors import ConfigurationError, RetentionError
from retention_assets.objectstore.access import StoreAccess, open_store
from retention_assets.objectstore.listing import Prefixes, list_objects, presence
from retention_assets.objectstore.objects import ObjectReader
from retention_assets.objectstore.outcomes import OF_COPY, Outcome
from retention_assets.objectstore.versions import all_versions, lists_versions
from retention_assets.spark.frames import CachedFrames, from_arrow, on_workers, read_tasks
from retention_assets.state.lease import MARGIN
from retention_assets.state.ledger import FINISHED, finished_of, moves_of, read_ledgers, swept_plans
from retention_assets.state.plan import Plan
from retention_assets.state.quarantine import HASH_DIGITS, MANIFESTS, OBJECTS, QuarantineLocation, quarantine_of_plan
from retention_assets.sweep.actions import NOT_RESTORED
from retention_assets.sweep.execute import Log
from retention_assets.warehouse.warehouse import Warehouse

_DAY, _FOLDER = re.compile(r"\d{4}-\d{2}-\d{2}/"), re.compile(r"[^/]+/[0-9a-f]{16}")
_FOLDER_PARTS = 2  # of the path of a folder: the day, and the first digits of the plan's hash
_SEEN = pa.schema(
    [("folder", pa.string()), ("address", pa.string()), ("current_size", pa.int64()), ("url", pa.string())]
)
_STORED = pa.schema([("path", pa.string()), ("size", pa.int64()), ("is_current", pa.bool_())])


@dataclass(frozen=True, slots=True)
class QuarantineListing:
    """The listing of a quarantine. If versions were listed, copies of which only old versions are left count, too.

    `copies`: folder, address, current_size (bytes; null: only old versions and delete markers are left of the copy).
    `manifests`: folder, one row each. `unknown_folders`: folder, objects, bytes; these folders belong to no known plan.
    """

    copies: DataFrame
    manifests: DataFrame
    unknown_folders: DataFrame


def list_quarantine(
    spark: SparkSession,
    locations: Sequence[QuarantineLocation],
    frames: CachedFrames,
    *,
    versions: bool = False,
    unknown: bool = True,
) -> QuarantineListing:
    """List a quarantine: the folders in `locations`, and with `unknown` the folders of unknown plans.

    With `versions`, all versions in these folders are listed. The listing is in Spark's cache until the block of
    `frames` ends. Errors: AccessDenied or StoreError.
    """
    known = [location.folder for location in locations]
    parts = F.split("path", "/", _FOLDER_PARTS + 2)
    files = frames.cache(
        _stored(spark, locations, versions=versions, unknown=unknown).select(
            F.concat_ws("/", parts[0], parts[1]).alias("folder"),
            parts[2].alias("kind"),
            F.get(parts, F.lit(3)).alias("address"),  # null: a file that is not of a sweep
            "size",
            "is_current",
        )
    )
    ours = files.where(F.col("folder").isin(known))
    copies = ours.where(F.col("kind") == OBJECTS).groupBy("folder", "address")
    return QuarantineListing(
        copies.agg(F.max(F.when(F.col("is_current"), F.col("size"))).alias("current_size")),
        ours.where(F.col("kind") == MANIFESTS).select("folder").distinct(),
        files.where(~F.col("folder").isin(known) & F.col("is_current"))
        .groupBy("folder")
        .agg(F.count(F.lit(1)).alias("objects"), F.sum("size").alias("bytes")),
    )


def _folders(access: StoreAccess) -> list[str]:
    """Return the folders whose names look like folders of plans. Everything else at the URL is ignored."""
    reader = ObjectReader(access)
    days = [day for day in reader.prefixes() if _DAY.fullmatch(day)]
    folders = [folder.rstrip("/") for day in days for folder in reader.prefixes(day)]
    return [folder for folder in folders if _FOLDER.fullmatch(folder)]


def _stored(
    spark: SparkSession, locations: Sequence[QuarantineLocation], *, versions: bool, unknown: bool
) -> DataFrame:
    """Return the contents of the folders of plans as `_STORED`; with `versions`, one row for each version, too."""
    if not locations or locations[0].access.is_absent:
        return from_arrow(spark, _STORED.empty_table())
    access = locations[0].access  # all are in the same quarantine
    folders = sorted({*(location.folder for location in locations), *(_folders(access) if unknown else ())})
    if not versions:
        listed = list_objects(spark, access, Prefixes(tuple(folders), ()))
        return listed.select(F.col("address").alias("path"), "size", F.lit(True).alias("is_current"))

    def list_versions(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for folder in batch.column(0).to_pylist():
                for page in all_versions(access, folder):
                    current = pc.and_not(page["is_current"], page["is_delete_marker"])
                    yield pa.record_batch([page["path"], page["size"], current], schema=_STORED)

    frame = from_arrow(spark, pa.table({"folder": pa.array(folders, pa.string())}))
    return on_workers(frame.repartition(read_tasks(spark)), list_versions, _STORED)


@dataclass(frozen=True, slots=True)
class Times:
    """Two points in time (UTC), computed from the same current time."""

    due_before: datetime  # copies of objects that were moved after this time are not due
    idle_since: datetime  # a worker of an interrupted sweep may still process an object with a newer ledger row


def moved_and_surplus(
    rows: DataFrame, copies: DataFrame, repository: StoreAccess, times: Times, frames: CachedFrames
) -> DataFrame:
    """Return the objects in quarantine according to ledgers or listing, one row for each folder and address.

    A row is one of two kinds:

        moved    the ledger says that the object was moved; or a copy is in quarantine, and no object of the size in
                 the ledger is at the path
        surplus  a copy is in quarantine, an object of the size in the ledger is at the path, and the ledger does not
                 say that the object was moved

    The columns are those of `LEDGER` and others. `at` is the time from which the age of the copy counts. `fence` is the
    fence of the newest ledger row. `recorded`: the ledger says that the object was moved. `has_copy`: the copy is in
    quarantine; `is_lost`: the ledger says that the object was moved, and no copy of it, of any plan, is in quarantine.
    `is_due`: the copy may be purged. `tried_at`: the last time at which a worker may have processed the
    object; `busy_at`: the same for a restore, see `_recorded_or_copied`.

    Copies of one object under several plans become due together, so that a purged object has no copy left. A copy is
    not due while a worker of an interrupted sweep may still process its object. Copies that no ledger names are not
    returned: see `not_in_ledgers`.

    Args:
        rows: the ledgers of all plans, with the `folder` of the plan; see `with_folders`.
        copies: see `QuarantineListing`.
        repository: the store in which the originals are looked up.
        times: see `Times`.
        frames: caches the rows that are read more than once.
    """
    known = _with_surplus(frames.cache(_recorded_or_copied(rows, copies)), repository)
    # According to the ledger, the copies of these objects were purged, but a copy is still there. It is due at once.
    is_purged_copy = (F.col("end.outcome") == Outcome.PURGED) & F.col("end.detail").startswith(OF_COPY)
    is_left = F.coalesce(is_purged_copy, F.lit(False)) & ~F.col("surplus")
    since = F.when(F.col("recorded"), F.col("end.at")).when(~is_left, F.col("touched_at"))
    of_object = Window.partitionBy("address")
    newest = F.max(F.when(~F.col("surplus"), F.col("since"))).over(of_object)
    tried = F.max("tried_at").over(of_object)
    is_old = F.col("surplus") | F.coalesce(newest <= F.lit(times.due_before), F.lit(True))
    is_recorded = F.col("recorded") & F.col("tried_at").isNull()
    is_idle = is_recorded | F.coalesce(tried <= F.lit(times.idle_since), F.lit(True))
    dated = known.withColumn("since", since).withColumn("is_due", is_old & is_idle)
    return dated.select(
        "folder",
        "address",
        "size",
        F.lit(Outcome.QUARANTINED).alias("outcome"),
        "end.detail",
        F.coalesce("since", "touched_at").alias("at"),
        "touched_at",
        "tried_at",
        "busy_at",
        "fence",
        "recorded",
        "surplus",
        F.coalesce("has_copy", F.lit(False)).alias("has_copy"),
        (F.col("recorded") & F.max("has_copy").over(of_object).isNull()).alias("is_lost"),
        "current_size",
        "is_due",
    )


def _recorded_or_copied(rows: DataFrame, copies: DataFrame) -> DataFrame:
    """Return the objects that were moved according to the ledger, or have a copy: one row for each folder and address.

    `end` is the latest finished outcome of the object, with its detail and time; null if the object has none.

    `tried_at` is the time of the newest attempt of a sweep without a result: its worker may still be running. If Spark
    loses a worker, another one attempts the object again, so each attempt needs a result of its own. Attempts under
    other plans count, too: their workers may delete the object at its path. If the ledger does not say that the object
    was moved, every row of this plan that is not `skipped` counts, too. Null: there is no such attempt or row.

    `busy_at` is the same without the restores that have recorded a result for the object, and without the sweeps that
    have recorded it as moved: if no attempt of theirs is open, they have no request left that could delete what a
    restore brings back. So a restore that failed, or whose object is gone again, can be repeated at once.
    """
    key = ["folder", "address"]
    # The same order as in `finished_of`.
    latest = F.struct("fence", (F.col("outcome") == Outcome.DELETED).cast("int"), "at", "outcome")
    is_finished, is_attempt = F.col("outcome").isin(*FINISHED), F.col("outcome") == Outcome.ATTEMPTED
    is_of_restore = (F.col("outcome") == Outcome.RESTORED) | F.col("detail").startswith(NOT_RESTORED)
    is_harmless = is_of_restore | (F.col("outcome") == Outcome.QUARANTINED)
    end = F.max_by(F.struct("outcome", "detail", "at", "fence"), F.when(is_finished, latest))
    # Attempts after the object was moved are those of a restore or purge.
    is_of_undo = f"coalesce(end.outcome = '{Outcome.QUARANTINED}' and one.fence > end.fence, false)"
    is_later = "two.fence = one.fence and two.at >= one.at"
    has_result = f"size(filter(results, two -> {is_later})) >= size(filter(attempts, two -> {is_later}))"
    is_open = f"not {has_result} and not {is_of_undo}"
    open_at = F.expr(f"array_max(transform(filter(attempts, one -> {is_open}), one -> one.at))")
    is_busy = "not array_contains(harmless, one.fence)"
    busy_at = F.expr(f"array_max(transform(filter(tries, one -> {is_busy}), one -> one.at))")
    known = rows.groupBy(*key).agg(
        F.max("size").alias("size"),
        F.max("at").alias("touched_at"),
        F.max(F.when(F.col("outcome") != Outcome.SKIPPED, F.col("at"))).alias("tried_at"),
        F.collect_set(F.when(F.col("outcome") != Outcome.SKIPPED, F.struct("fence", "at"))).alias("tries"),
        F.collect_set(F.when(is_harmless, F.col("fence"))).alias("harmless"),
        F.collect_list(F.when(is_attempt, F.struct("fence", "at"))).alias("attempts"),
        F.collect_list(F.when(~is_attempt, F.struct("fence", "at"))).alias("results"),
        F.max("fence").alias("fence"),
        F.when(F.max(is_finished), end).alias("end"),
    )
    return (
        known.join(copies.withColumn("has_copy", F.lit(True)), on=key, how="left")
        .withColumn("recorded", F.coalesce(F.col("end.outcome") == Outcome.QUARANTINED, F.lit(False)))
        .withColumn("open_at", open_at)
        .where("recorded OR has_copy OR open_at IS NOT NULL")
        .withColumn("open_at", F.max("open_at").over(Window.partitionBy("address")))  # of all plans
        .withColumn("tried_at", F.greatest("open_at", F.when(~F.col("recorded"), F.col("tried_at"))))
        .withColumn("busy_at", F.greatest("open_at", F.when(~F.col("recorded"), busy_at)))
        .drop("attempts", "results", "open_at", "tries", "harmless")
        .where("recorded OR has_copy")
    )


def _with_surplus(found: DataFrame, repository: StoreAccess) -> DataFrame:
    """Return `found` with `surplus`: an object of this size is at the path, and is not `recorded` as moved."""
    unrecorded = found.where("NOT recorded")
    if unrecorded.isEmpty():
        return found.withColumn("surplus", F.lit(False))
    there = presence(unrecorded.select("address").distinct(), repository).where(F.col("size").isNotNull())
    present = there.select("address", F.col("size").alias("size_there"))
    is_there = F.coalesce(F.col("size_there") == F.col("size"), F.lit(False))
    return found.join(present, on="address", how="left").withColumn("surplus", ~F.col("recorded") & is_there)


def moved_elsewhere(rows: DataFrame, url: str) -> DataFrame:
    """Return the objects that an interrupted sweep may have moved to another quarantine than the one at `url`.

    The columns are folder, address, and `url` of the other quarantine. `rows`: see `with_folders`.
    """
    key = ["folder", "address"]
    finished = rows.where(F.col("outcome").isin(*FINISHED)).select(*key)
    return attempted_places(rows).where(F.col("url") != url).join(finished, on=key, how="left_anti")


def attempted_places(rows: DataFrame) -> DataFrame:
    """Return where sweeps attempted to move each object: folder, address, and `url` of the quarantine."""
    without_folder = F.expr("left(detail, length(detail) - length(folder) - 1)").alias("url")
    return moves_of(rows).select("folder", "address", without_folder)


def quarantine_of_copy(url: str) -> Column:
    """Return the URL of the quarantine to which an object was moved, by its `detail`; `url` if the detail has none."""
    path = F.concat_ws("/", F.lit(""), "folder", F.lit(OBJECTS), "address")
    found = F.when(F.endswith("detail", path), F.left("detail", F.length("detail") - F.length(path)))
    return F.coalesce(found, F.lit(url))


@dataclass(frozen=True, slots=True)
class EarlierQuarantines:
    """What this machine sees of plans' folders in earlier quarantines, before a change of `quarantine.url`.

    `copies`: folder, address, current_size, and the `url` of the quarantine. `unseen`: by URL of a folder, why it is
    unknown what the folder has.
    """

    copies: DataFrame
    unseen: Mapping[str, str]


def look_into(
    spark: SparkSession, places: DataFrame, options: Mapping[str, str], frames: CachedFrames
) -> EarlierQuarantines:
    """List the folders in `places` (columns `url` of the quarantine, `folder`) with the `options` of the repository.

    A folder without copies and manifests is unseen: its volume may not be mounted, or the URL leads to another store.
    Errors: AccessDenied or StoreError if a folder that was seen cannot be listed.
    """
    unseen: dict[str, str] = {}
    seen: dict[str, list[QuarantineLocation]] = {}
    for url, folder in places.select("url", "folder").distinct().sort("url", "folder").collect():
        try:
            location = QuarantineLocation.at(f"{url}/{folder}", options)
            problem = "" if location.holds_files() else "neither copies nor manifests are there"
        except RetentionError as error:
            problem = str(error)
        if problem:
            unseen[f"{url}/{folder}"] = problem
        else:
            seen.setdefault(url, []).append(location)
    copies = from_arrow(spark, _SEEN.empty_table())
    for url, locations in seen.items():
        versions = lists_versions(locations[0].access)
        listed = list_quarantine(spark, locations, frames, versions=versions, unknown=False)
        copies = copies.unionByName(listed.copies.withColumn("url", F.lit(url)))
    return EarlierQuarantines(copies, unseen)


def attempted_since(rows: DataFrame, since: datetime | None) -> DataFrame:
    """Return (folder, address) of each object that a run attempted after `since` and has recorded no result for."""
    key = ["folder", "address"]
    with_result = rows.where(F.col("outcome") != Outcome.ATTEMPTED).select(*key, "fence")
    attempts = rows.where((F.col("outcome") == Outcome.ATTEMPTED) & (F.col("at") > F.lit(since)))
    return attempts.join(with_result, on=[*key, "fence"], how="left_anti").select(*key).distinct()


def open_moves(rows: DataFrame) -> DataFrame:
    """Return the rows of attempts to move objects without a result: the run was interrupted, or is still running.

    Objects that are finished are left out. `rows`: see `with_folders`.
    """
    key = ["folder", "address"]
    finished = rows.where(F.col("outcome").isin(*FINISHED)).select(*key)
    with_result = rows.where(F.col("outcome") != Outcome.ATTEMPTED).select(*key, "fence")
    moves = moves_of(rows).join(with_result, on=[*key, "fence"], how="left_anti")
    return moves.join(finished, on=key, how="left_anti")


def not_in_ledgers(rows: DataFrame, copies: DataFrame) -> DataFrame:
    """Return the copies in folders of known plans that no ledger names. It is unknown whether they are needed."""
    key = ["folder", "address"]
    return copies.join(rows.select(*key).distinct(), on=key, how="left_anti")


def with_folders(ledgers: DataFrame) -> DataFrame:
    """Return rows of ledgers, with the quarantine folder of the plan in the column `folder`."""
    return ledgers.withColumn("folder", F.concat_ws("/", "day", F.substring("plan_hash", 1, HASH_DIGITS)))


@dataclass(frozen=True, slots=True)
class Undo:
    """The inputs of a restore or purge: repository, person, Spark, warehouse, log and clock.

    The methods return the copies in quarantine and the deleted objects with old versions.
    """

    spark: SparkSession
    warehouse: Warehouse
    repository: Repository
    run_id: str
    person: str
    log: Log
    clock: Clock
    frames: CachedFrames = field(default_factory=CachedFrames, repr=False)  # released at the end of a restore or purge

    def access(self) -> StoreAccess:
        """Return access to the object store of the repository."""
        return open_store(self.repository)

    def copies(self, *, versions: bool = False) -> "Copies":
        """Return the contents of the quarantine, from ledgers and listing.

        A log line has the number of missing objects that may be in another quarantine. Errors: AccessDenied or
        StoreError; ConfigurationError as `_locations`.
        """
        plans = {location.folder: (plan, location) for plan, location in self._locations()}
        rows = with_folders(self._ledgers([plan for plan, _ in plans.values()]))
        now, settings = self.clock(), self.repository.settings
        times = Times(now - settings.quarantine.keep, now - settings.sweep.window - MARGIN)
        locations = [location for _, location in plans.values()]
        found = list_quarantine(self.spark, locations, self.frames, versions=versions)
        elsewhere = self.frames.cache(moved_elsewhere(rows, locations[0].access.url if locations else ""))
        self._log_elsewhere(elsewhere)
        return Copies(
            plans,
            self.frames.cache(moved_and_surplus(rows, found.copies, self.access(), times, self.frames)),
            found,
            not_in_ledgers(rows, found.copies),
            rows.groupBy("folder").agg(F.max("at").alias("touched_at")),
            open_moves(rows).select("folder").distinct(),
            elsewhere,
            times,
        )

    def _log_elsewhere(self, rows: DataFrame) -> None:
        if rows.isEmpty():
            return
        there = presence(rows.select("address").distinct(), self.access()).where(F.col("last_modified").isNotNull())
        missing = rows.join(there, on="address", how="left_anti")
        row = missing.agg(F.count_distinct("address"), F.min("url")).collect()[0]
        if row[0]:
            self.log(
                f"{self.repository.name}: {counted(row[0], 'object is', 'objects are')} missing from the repository. "
                f"An interrupted sweep may have moved missing objects to {row[1]}. To see the copies, set "
                "quarantine.url to this URL, and run again. Then set the old URL again: approvals are for one URL."
            )

    def _locations(self) -> list[tuple[Plan, QuarantineLocation]]:
        """Return each plan that has a ledger, with its quarantine folder.

        The list is empty if no quarantine can be used and no sweep moved objects. Errors: ConfigurationError when no
        quarantine can be used, and a sweep moved objects, or may have moved them.
        """
        plans = swept_plans(self.warehouse, self.repository.name)
        try:
            return [(plan, quarantine_of_plan(self.repository, plan)) for plan in plans]
        except ConfigurationError:
            ledgers = self._ledgers(plans)
            if not (moves_of(ledgers).isEmpty() and ledgers.where(F.col("outcome") == Outcome.QUARANTINED).isEmpty()):
                raise
            return []

    def _ledgers(self, plans: Sequence[Plan]) -> DataFrame:
        return read_ledgers(self.spark, self.warehouse, self.repository.name, [plan.key for plan in plans])

    def with_versions(self) -> list[tuple[Plan, DataFrame]]:
        """Return, by plan, the deleted objects whose old versions may still be in the bucket.

        Objects that are in quarantine, according to a ledger or the listing, or that may be in an earlier quarantine,
        are excluded: their versions stay, in case the copy is lost. An object of several plans belongs to the plan of
        the newest sweep that finished it. Errors: as `copies`.
        """
        plans = swept_plans(self.warehouse, self.repository.name)
        newest = F.max("fence").over(Window.partitionBy("day", "plan_hash", "address"))
        purged_copy = (F.col("outcome") == Outcome.PURGED) & F.col("detail").startswith(OF_COPY)
        last = finished_of(self._ledgers(plans).withColumn("last_fence", newest)).where(
            F.col("outcome").isin(Outcome.DELETED, Outcome.MISSING) | purged_copy
        )
        found = self.copies()
        moved = found.rows.where("NOT surplus").select("address").unionByName(found.elsewhere.select("address"))
        gone = self.frames.cache(last.join(moved, on="address", how="left_anti"))  # read once for each plan
        return [
            (plan, gone.where((F.col("day") == plan.day.isoformat()) & (F.col("plan_hash") == plan.plan_hash)))
            for plan in plans
        ]

    def restorable(self) -> "list[PlanCopies]":
        """Return, by plan, the objects in quarantine, with a column `is_idle`: whether the object can be restored.

        An interrupted sweep may have moved objects without recording it; only the copies show this. A worker of that
        sweep may still be running until its window ends, and could delete both the restored object and its copy, also
        if a later sweep has recorded the object. Such objects are not idle before the window ends. Errors: as `copies`.
        """
        found = self.copies()
        is_complete = F.col("current_size") == F.col("size")
        unrecorded = ~F.col("recorded") & ~F.col("surplus") & F.coalesce(is_complete, F.lit(False))
        moved = found.rows.where(F.col("recorded") | unrecorded)
        is_idle = F.coalesce(F.col("busy_at") <= F.lit(found.times.idle_since), F.lit(True))
        return found.by_plan(moved.withColumn("is_idle", is_idle))

    def idle(self, plan: Plan, rows: DataFrame) -> tuple[DataFrame, int]:
        """Return those of the plan's `restorable` objects in `rows` that are idle, and the number of all others.

        A log line has this number and the time at which the window ends.
        """
        row = rows.where("NOT is_idle").agg(F.count(F.lit(1)), F.max(F.unix_micros("busy_at"))).collect()[0]
        if row[0]:
            free = datetime.fromtimestamp(row[1] / 1e6, UTC) + self.repository.settings.sweep.window + MARGIN
            self.log(
                f"{self.repository.name}: an interrupted run on the plan of {plan.day} may still be processing "
                f"{counted(row[0], 'object')}. Such objects were not restored. Those that "
                f"a sweep moved can be restored after {free:%Y-%m-%d %H:%M:%S} UTC."
            )
        return rows.where("is_idle"), row[0]

    def unpurged(self, locations: Mapping[tuple[str, str], QuarantineLocation]) -> set[tuple[str, str]]:
        """Return the plans among these (day, hash) whose ledger has an object in this quarantine.

        An object that an interrupted sweep may have moved there counts, too.
        """
        rows = read_ledgers(self.spark, self.warehouse, self.repository.name, list(locations))
        here = pa.table({"here": [one.describe("") for one in locations.values()]})
        quarantined = finished_of(rows, "day", "plan_hash").where(F.col("outcome") == Outcome.QUARANTINED)
        is_here = F.startswith("detail", "here")
        moved = quarantined.join(F.broadcast(from_arrow(self.spark, here)), on=is_here, how="left_semi")
        targets = [one.url for one in locations.values()]
        unfinished = open_moves(with_folders(rows)).where(F.col("detail").isin(targets))
        plans = moved.select("day", "plan_hash").unionByName(unfinished.select("day", "plan_hash"))
        return {(row["day"], row["plan_hash"]) for row in plans.distinct().collect()}


@dataclass(frozen=True, slots=True)
class PlanCopies:
    """The objects of one plan that are in quarantine, or whose old versions may be in the bucket."""

    plan: Plan
    moved: Amount  # objects with a copy that are missing from their path, or that were moved according to the ledger
    surplus: Amount  # copies of objects that are still at their path
    rows: DataFrame = field(repr=False)  # see `UndoEngine`
    missing: Amount = field(default_factory=Amount)  # of `moved`: objects without a copy in quarantine

    @property
    def held(self) -> Amount:
        """The moved objects whose copies are in quarantine."""
        return Amount(self.moved.objects - self.missing.objects, self.moved.bytes - self.missing.bytes)


@dataclass(frozen=True, slots=True)
class Copies:
    """The contents of the quarantine of a repository."""

    plans: Mapping[str, tuple[Plan, QuarantineLocation]]  # by folder
    rows: DataFrame  # see `moved_and_surplus`
    listing: QuarantineListing
    not_in_ledgers: DataFrame  # copies that no ledger names: folder, address, current_size
    touched: DataFrame  # folder, and touched_at: the time of the newest row of its ledger
    unfinished: DataFrame  # folders with `open_moves`
    elsewhere: DataFrame  # see `moved_elsewhere`
    times: Times

    def by_plan(self, rows: DataFrame | None = None) -> list[PlanCopies]:
        """Return the copies by plan, all of them or only those in `rows`. Plans without rows are left out."""
        chosen = self.rows if rows is None else rows
        kinds = ["folder", "surplus", "has_copy"]
        found = chosen.groupBy(*kinds).agg(F.count(F.lit(1)), F.sum("size")).collect()
        amounts = {tuple(kind): Amount(objects, size) for *kind, objects, size in found}

        def amount(*kind: object) -> Amount:
            return amounts.get(kind, Amount())

        with_fence = chosen.withColumn("last_fence", F.col("fence"))
        return [
            PlanCopies(
                self.plans[folder][0],
                sum_of([amount(folder, False, True), amount(folder, False, False)]),
                amount(folder, True, True),
                with_fence.where(F.col("folder") == folder),
                amount(folder, False, False),
            )
            for folder in sorted({folder for folder, *_ in amounts})
        ]

    def unknown(self) -> list[tuple[str, Amount]]:
        """Return, by folder, the amount of copies that no ledger of this warehouse names.

        These copies may belong to another repository.
        """
        untracked = self.not_in_ledgers.groupBy("folder").agg(F.count(F.lit(1)), F.sum("current_size")).collect()
        rows = [*self.listing.unknown_folders.select("folder", "objects", "bytes").collect(), *untracked]
        return sorted((folder, Amount(objects, size or 0)) for folder, objects, size in rows)

    def with_only_manifests(self) -> list[Plan]:
        """Return the plans that have manifests but no copies in quarantine, without plans that a sweep has to continue.

        Such a sweep needs the manifests: they show that it sees the folder to which the interrupted sweep moved
        objects.
        """
        gone = (
            self.listing.manifests.join(self.listing.copies, on="folder", how="left_anti")
            .join(self.rows, on="folder", how="left_anti")
            .join(self.unfinished, on="folder", how="left_anti")
            .join(self.touched.where(F.col("touched_at") <= F.lit(self.times.idle_since)), on="folder", how="left_semi")
        )
        return [self.plans[folder][0] for (folder,) in gone.select("folder").sort("folder").collect()]
