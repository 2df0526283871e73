"""Checks on Icechunk repositories: every object that must stay exists, and every manifest is complete.

Source: docs/safety.md, "Guards: the checks of a plan".
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from retention_assets.core.age import AgeCutoff
from retention_assets.core.amounts import counted
from retention_assets.core.guards import CheckResult, describe_missing
from retention_assets.core.remedies import INCOMPLETE_LISTING
from retention_assets.icechunk.formats.ids import encode_id
from retention_assets.icechunk.formats.paths import SNAPSHOTS
from retention_assets.icechunk.rules.reach import KINDS, refs_of
from retention_assets.icechunk.source.repository import IcechunkState
from retention_assets.icechunk.sweep.retained_set import RetainedSet
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.listing import presence
from retention_assets.spark.frames import CachedFrames, collect_together, from_arrow

_MOST_CHECKED = 100_000  # most unlisted objects that are checked one by one, which takes some minutes
_NAMED = 3  # missing objects that the detail names
_COUNT = 2**32  # a snapshot file stores the number of chunk refs modulo this number


@dataclass(frozen=True, slots=True)
class Referenced:
    """The result of `referenced_exist`.

    `missing`: the addresses of missing objects. If too many objects are unlisted to check each one, `missing` has the
    first `_MOST_CHECKED` unlisted objects.
    """

    check_result: CheckResult
    lost: int = 0  # objects that are acknowledged as lost
    missing: tuple[str, ...] = ()
    all_listed: bool = False  # whether every object is in the listing, so that the store was not asked


def referenced_exist(
    guard: str,
    live: DataFrame,
    inventory: DataFrame,
    access: StoreAccess,
    listing_cutoff: AgeCutoff,
    acknowledged: DataFrame,
) -> Referenced:
    """Check that every object of `live` is in the listing, or is in the store and not older than `listing_cutoff`.

    Such a young object may have been written after the listing. If an unlisted object exists and is older, the check
    fails: the listing is incomplete, so other objects may be missing from it too.
    `acknowledged`: the addresses that a person acknowledged as lost. These objects need not exist.
    Source: docs/safety.md, "Objects that are lost".
    """
    absent_of_all = live.select("address").join(inventory, on="address", how="left_anti")
    is_lost = acknowledged.select("address", F.lit(True).alias("is_lost"))
    with CachedFrames() as frames:
        marked = frames.cache(absent_of_all.join(is_lost, on="address", how="left"))
        unlisted = marked.where("is_lost IS NULL").select("address")
        lost, count = marked.agg(F.count("is_lost"), F.count_if(F.col("is_lost").isNull())).collect()[0]
        if not count:
            passed = _passed(guard, "every referenced object is in the listing", lost)
            return replace(passed, all_listed=not lost)
        if count > _MOST_CHECKED:
            detail = f"{count:,} referenced objects are not in the listing, too many to check each one in the store"
            first = tuple(row["address"] for row in unlisted.orderBy("address").limit(_MOST_CHECKED).collect())
            return Referenced(CheckResult(guard, False, detail, count), lost, first)
        found = frames.cache(presence(unlisted, access))
        gone = found.where("last_modified IS NULL").select("address")
        if names := [one["address"] for one in gone.orderBy("address").collect()]:
            more = " and others" if len(names) > _NAMED else ""
            where = describe_missing(gone, inventory)
            objects = counted(len(names), "referenced object is", "referenced objects are")
            detail = f"{objects} missing: {', '.join(names[:_NAMED])}{more}. {where}"
            return Referenced(CheckResult(guard, False, detail, len(names)), lost, tuple(names))
        old = found.where(listing_cutoff.is_older(F.col("last_modified")))
        overlooked, first_old = old.agg(F.count(F.lit(1)), F.min("address")).collect()[0]
    if overlooked:
        one = f"object, {first_old}, is"
        many = f"objects, {first_old} first, are"
        detail = (
            f"{counted(overlooked, one, many)} in the store and older than the listing, but missing from it: the "
            "listing was incomplete, and nothing is lost"
        )
        return Referenced(CheckResult(guard, False, detail, overlooked, remedy=INCOMPLETE_LISTING), lost)
    return _passed(
        guard,
        f"no referenced object is missing; {counted(count, 'is', 'are')} younger than `grace` and not in the listing",
        lost,
    )


def _passed(guard: str, detail: str, lost: int) -> Referenced:
    return Referenced(
        CheckResult(guard, True, f"{detail}, except {lost:,} that a person acknowledged as lost" if lost else detail),
        lost,
    )


@dataclass(frozen=True, slots=True)
class ManifestRefs:
    """The chunk refs of the manifests: the result of the guard `manifests_whole`, and the refs by kind."""

    check_result: CheckResult
    by_kind: Mapping[str, int]
    located: int  # rows with the location of a virtual reference
    unread: int  # live manifests that are lost and that no run has read


def count_refs(manifests: DataFrame, manifest_chunks: DataFrame, unread: Collection[str]) -> ManifestRefs:
    """Count the chunk refs of manifests, and check that no live manifest is incomplete.

    `manifests`: rows of `reachable_manifests`. `manifest_chunks`: the rows of their files. `unread`: the ids of lost
    manifests that no run has read.
    """
    is_unread = F.col("manifest_id").isin(*unread)
    with CachedFrames() as frames:
        refs = frames.cache(refs_of(manifest_chunks))
        found = collect_together(
            {
                "incomplete": incomplete_manifests(manifests.where(~is_unread), refs),
                "refs": refs.agg(*(F.coalesce(F.sum(kind), F.lit(0)).alias(kind) for kind in KINDS)),
                "unread": manifests.where("live").agg(F.count_if(is_unread).alias("manifests")),
                "located": manifest_chunks.agg(F.count("location").alias("rows")),
            }
        )
    (incomplete,), (by_kind,), (never_read,) = found["incomplete"], found["refs"], found["unread"]
    located = found["located"][0]["rows"]
    return ManifestRefs(manifests_complete(incomplete), by_kind, located, never_read["manifests"])


def missing_snapshots(
    spark: SparkSession, retained: RetainedSet, state: IcechunkState, access: StoreAccess
) -> DataFrame | None:
    """Return the addresses of the retained snapshots whose files do not exist; None: all of them exist.

    A plan does not try to read these files, because the first one would end it. The guard `metadata_exists` then names
    the missing files.
    """
    unlisted = sorted(SNAPSHOTS + encode_id(one) for one in retained.snapshots - state.stored.keys())
    if not unlisted:
        return None
    found = presence(from_arrow(spark, pa.table({"address": unlisted})), access)
    missing = found.where("last_modified IS NULL").select("address").toArrow()
    return from_arrow(spark, missing) if missing.num_rows else None


def incomplete_manifests(manifests: DataFrame, refs: DataFrame) -> DataFrame:
    """Return one row: the number of live manifests with another number of chunk refs than their snapshots state.

    The row also has the first of these manifests. `refs`: the result of `refs_of` for the manifests.
    """
    found = refs.select("manifest_id", F.expr("native + virtual + inline").alias("found"))
    differing = F.coalesce(F.col("found") % F.lit(_COUNT) != F.col("chunk_refs") % F.lit(_COUNT), F.lit(True))
    return (
        manifests.where("live")
        .join(found, on="manifest_id", how="left")
        .where(differing)
        .agg(F.count(F.lit(1)).alias("incomplete"), F.min("manifest_id").alias("first"))
    )


def manifests_complete(row: Mapping[str, Any]) -> CheckResult:
    """Check that no live manifest has lost chunk refs. The chunks of lost refs would seem unreferenced.

    `row`: the row of `incomplete_manifests`.
    """
    detail = "every manifest has all its chunk refs"
    if row["incomplete"]:
        first = row["first"]
        which = counted(row["incomplete"], f"manifest, {first}, does", f"manifests, {first} first, do")
        detail = f"{which} not have the number of chunk refs that the snapshots state"
    return CheckResult("manifests_whole", not row["incomplete"], detail, row["incomplete"])
