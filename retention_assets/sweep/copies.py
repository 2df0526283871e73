"""Lists the quarantine of a repository and compares it with the ledgers. Changes nothing.

A sweep that was interrupted, or that could not delete an original, leaves copies that no ledger calls `quarantined`.
Only the listing finds them.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from retention_assets.core.frames import CachedFrames, from_arrow, on_workers, read_tasks
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.listing import Prefixes, list_objects
from retention_assets.objectstore.objects import ObjectReader
from retention_assets.objectstore.outcomes import Outcome
from retention_assets.objectstore.presence import presence
from retention_assets.objectstore.versions import all_versions
from retention_assets.state.ledger import ENDED
from retention_assets.state.quarantine import MANIFESTS, OBJECTS, QuarantinePlace

_DAY, _FOLDER = re.compile(r"\d{4}-\d{2}-\d{2}/"), re.compile(r"[^/]+/[0-9a-f]{16}")
_FOLDER_PARTS = 2  # of a path: the day, and the first digits of the plan's hash
_STORED = pa.schema([("path", pa.string()), ("size", pa.int64()), ("is_current", pa.bool_())])


@dataclass(frozen=True, slots=True)
class Lying:
    """The listing of a quarantine, with the old versions in its bucket if these were listed.

    `copies`: folder, address, current_size (bytes; null: only versions and delete markers are left of the copy).
    `manifests`: folder, files. `strangers`: folder, objects, bytes; these folders belong to no known plan.
    """

    copies: DataFrame
    manifests: DataFrame
    strangers: DataFrame


def lying(
    spark: SparkSession, places: Sequence[QuarantinePlace], frames: CachedFrames, *, versions: bool = False
) -> Lying:
    """List a quarantine: the folders of `places`, and folders of unknown plans. Errors: of the store.

    The listing is in Spark's cache until the block of `frames` ends.
    """
    known = [place.folder for place in places]
    stored = from_arrow(spark, _STORED.empty_table())
    if places:
        access = places[0].access  # all are in the same quarantine
        stored = _stored(spark, access, sorted({*known, *_folders(access)}), versions=versions)
    parts = F.split("path", "/", _FOLDER_PARTS + 2)
    named = frames.cache(
        stored.select(
            F.concat_ws("/", parts[0], parts[1]).alias("folder"),
            parts[2].alias("kind"),
            parts[3].alias("address"),
            "size",
            "is_current",
        )
    )
    ours = named.where(F.col("folder").isin(known))
    copies = ours.where(F.col("kind") == OBJECTS).groupBy("folder", "address")
    return Lying(
        copies.agg(F.max(F.when(F.col("is_current"), F.col("size"))).alias("current_size")),
        ours.where(F.col("kind") == MANIFESTS).groupBy("folder").agg(F.count_distinct("address").alias("files")),
        named.where(~F.col("folder").isin(known) & F.col("is_current"))
        .groupBy("folder")
        .agg(F.count(F.lit(1)).alias("objects"), F.sum("size").alias("bytes")),
    )


def _folders(access: StoreAccess) -> list[str]:
    """Return the folders that are named like folders of plans. Everything else at the URL is ignored."""
    if _is_absent(access):
        return []
    reader = ObjectReader(access)
    days = [day for day in reader.prefixes() if _DAY.fullmatch(day)]
    folders = [folder.rstrip("/") for day in days for folder in reader.prefixes(day)]
    return [folder for folder in folders if _FOLDER.fullmatch(folder)]


def _is_absent(access: StoreAccess) -> bool:
    """Return whether `access` is a local directory that does not exist yet."""
    return access.is_local and not Path(access.url.removeprefix("file://")).is_dir()


def _stored(spark: SparkSession, access: StoreAccess, folders: Sequence[str], *, versions: bool) -> DataFrame:
    """Return the contents of the folders as `_STORED`; with `versions`, one row for each version too."""
    if not folders or _is_absent(access):
        return from_arrow(spark, _STORED.empty_table())
    if not versions:
        listed = list_objects(spark, access, Prefixes(tuple(folders), ()))
        return listed.select(F.col("address").alias("path"), "size", F.lit(True).alias("is_current"))

    def list_versions(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for folder in batch.column(0).to_pylist():
                for page in all_versions(access, folder):
                    current = pc.and_not(page["is_current"], page["is_delete_marker"])
                    yield pa.record_batch([page["path"], page["size"], current], schema=_STORED)

    named = from_arrow(spark, pa.table({"folder": pa.array(folders, pa.string())}))
    spread = named.repartition(read_tasks(spark))
    return on_workers(spread, list_versions, _STORED)


@dataclass(frozen=True, slots=True)
class Times:
    """Two limits of age (UTC), computed from the same current time."""

    kept_until: datetime  # copies of objects that were moved after this time are not due yet
    quiet_since: datetime  # a worker of an interrupted sweep may still process objects that it touched since then


def held_and_surplus(
    rows: DataFrame, copies: DataFrame, repository: StoreAccess, times: Times, frames: CachedFrames
) -> DataFrame:
    """Return the objects that the ledgers or the listing place in quarantine, one row for each folder and address.

    A row is one of two kinds:

        held     according to the ledger the object was moved; or the object is missing from the repository, and its
                 copy is in quarantine
        surplus  a copy is in quarantine, and the object is still at its path

    The columns are those of `LEDGER` and others. `at` is the time from which the age of the copy counts. `fence` is the
    fence of the newest ledger row. `recorded`: the ledger says that the object was moved. `lies`: the copy is in
    quarantine. `is_due`: the copy may be purged.

    Copies of one object under several plans become due together, so that a purged object has no copy left. A copy is
    not due while a worker of an interrupted sweep may still process its object. Copies that no ledger names are not
    returned: see `unnamed`.

    Args:
        rows: the ledgers of all plans, with the `folder` of the plan.
        copies: see `Lying`.
        repository: the store in which the originals are looked up.
        times: the limits of age.
        frames: keeps what is read more than once in Spark's cache.
    """
    key = ["folder", "address"]
    latest = F.struct(
        "fence", (F.col("outcome") == Outcome.DELETED).cast("int"), "at", "outcome"
    )  # ordered as in `ended_of`
    is_end = F.col("outcome").isin(*ENDED)
    ended = F.max_by(F.struct("outcome", "detail", "at"), F.when(is_end, latest))
    known = rows.groupBy(*key).agg(
        F.max("size").alias("size"),
        F.max("at").alias("touched_at"),
        F.max("fence").alias("fence"),
        F.when(F.max(is_end), ended).alias("end"),
    )
    found = frames.cache(
        known.join(copies.withColumn("lies", F.lit(True)), on=key, how="left")
        .withColumn("recorded", F.coalesce(F.col("end.outcome") == Outcome.QUARANTINED, F.lit(False)))
        .where("recorded OR lies")
    )
    unrecorded = found.where("NOT recorded")
    if unrecorded.isEmpty():
        known_now = found.withColumn("surplus", F.lit(False))
    else:
        there = presence(unrecorded.select("address").distinct(), repository).where(F.col("size").isNotNull())
        present = there.select("address", F.col("size").alias("size_there"))
        is_there = F.coalesce(F.col("size_there") == F.col("size"), F.lit(False))
        known_now = found.join(present, on="address", how="left").withColumn("surplus", ~F.col("recorded") & is_there)
    # The ledger calls these objects purged, but a copy is still there. Such a copy is due at once.
    is_left = F.coalesce(F.col("end.outcome") == Outcome.PURGED, F.lit(False)) & ~F.col("surplus")
    since = F.when(F.col("recorded"), F.col("end.at")).when(~is_left, F.col("touched_at"))
    of_object = Window.partitionBy("address")
    kept = F.max(F.when(~F.col("surplus"), F.col("since"))).over(of_object)
    touched = F.max(F.when(~F.col("recorded"), F.col("touched_at"))).over(of_object)
    is_kept_no_more = F.col("surplus") | F.coalesce(kept <= F.lit(times.kept_until), F.lit(True))
    is_quiet = F.col("recorded") | (touched <= F.lit(times.quiet_since))
    dated = known_now.withColumn("since", since).withColumn("is_due", is_kept_no_more & is_quiet)
    return dated.select(
        "folder",
        "address",
        "size",
        F.lit(Outcome.QUARANTINED).alias("outcome"),
        "end.detail",
        F.coalesce("since", "touched_at").alias("at"),
        "touched_at",
        "fence",
        "recorded",
        "surplus",
        F.coalesce("lies", F.lit(False)).alias("lies"),
        "current_size",
        "is_due",
    )


def unnamed(rows: DataFrame, copies: DataFrame) -> DataFrame:
    """Return the copies in folders of known plans that no ledger names. Whether they are needed is unknown."""
    key = ["folder", "address"]
    return copies.join(rows.select(*key).distinct(), on=key, how="left_anti")


def in_folders(ledgers: Mapping[str, DataFrame], empty: DataFrame) -> DataFrame:
    """Return the rows of all ledgers, with the folder of the plan in the column `folder`."""
    named = [rows.withColumn("folder", F.lit(folder)) for folder, rows in ledgers.items()]
    return reduce(DataFrame.unionByName, named, empty.withColumn("folder", F.lit("")))
