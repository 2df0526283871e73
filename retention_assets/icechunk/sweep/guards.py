"""Checks on Icechunk repositories: every object that must stay exists, and every manifest is complete.

Source: DESIGN.md, Invariants; Icechunk facts 4.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from retention_assets.core.age import AgeCutoff
from retention_assets.core.guards import CheckResult, hole
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.listing import presence

_MOST_CHECKED = 100_000  # most unlisted objects that are checked one by one, which takes some minutes
_NAMED = 3  # missing objects that the detail names
_COUNT = 2**32  # a snapshot file stores the number of chunk refs modulo this number


@dataclass(frozen=True, slots=True)
class Referenced:
    """The result of `referenced_exist`.

    `missing`: the addresses of missing objects. When too many objects are unlisted to check each, the first
    `_MOST_CHECKED` unlisted objects.
    """

    check_result: CheckResult
    lost: int = 0  # objects that are acknowledged as lost
    missing: tuple[str, ...] = ()


def referenced_exist(
    guard: str,
    live: DataFrame,
    inventory: DataFrame,
    access: StoreAccess,
    listed_at: AgeCutoff,
    acknowledged: DataFrame,
) -> Referenced:
    """Check that every object of `live` is in the listing, or was written after it and exists in the store.

    If an existing object is older than the listing's age cutoff but unlisted, the check fails: the listing is
    incomplete, so other objects may be missing from it too.
    `acknowledged`: the addresses that a person acknowledged as lost; they need not exist.
    Source: DESIGN.md, invariant 7.
    """
    absent_of_all = live.select("address").join(inventory, on="address", how="left_anti")
    is_lost = acknowledged.select("address", F.lit(True).alias("is_lost"))
    marked = absent_of_all.join(is_lost, on="address", how="left").cache()
    unlisted = marked.where("is_lost IS NULL").select("address")
    counted = marked.agg(F.count("is_lost").alias("lost"), F.count_if(F.col("is_lost").isNull()).alias("count")).first()
    assert counted is not None
    lost, count = counted["lost"], counted["count"]
    if count > _MOST_CHECKED:
        detail = f"{count:,} referenced objects are not in the listing, too many to check each one in the store"
        first = tuple(row["address"] for row in unlisted.orderBy("address").limit(_MOST_CHECKED).collect())
        marked.unpersist()
        return Referenced(CheckResult(guard, False, detail, count), lost, first)
    if not count:
        marked.unpersist()
        detail = "every referenced object is in the listing"
        return Referenced(CheckResult(guard, True, f"{detail}; {lost:,} are lost" if lost else detail), lost)
    found = presence(unlisted, access).cache()
    absent = F.col("last_modified").isNull()
    row = found.agg(
        F.count_if(absent).alias("absent"),
        F.count_if(listed_at.is_older(F.col("last_modified"))).alias("overlooked"),
        F.min(F.when(listed_at.is_older(F.col("last_modified")), F.col("address"))).alias("first"),
    ).first()
    assert row is not None
    gone = found.where(absent).select("address")
    names = [one["address"] for one in gone.orderBy("address").collect()] if row["absent"] else []
    where = hole(gone, inventory) if row["absent"] else ""
    found.unpersist()
    marked.unpersist()
    if names:
        more = " and others" if len(names) > _NAMED else ""
        detail = f"{len(names):,} referenced objects are missing: {', '.join(names[:_NAMED])}{more}. {where}"
        return Referenced(CheckResult(guard, False, detail, len(names)), lost, tuple(names))
    if row["overlooked"]:
        detail = f"{row['overlooked']:,} old objects, {row['first']} first, exist but are not in the listing"
        return Referenced(CheckResult(guard, False, detail, row["overlooked"]), lost)
    detail = f"every referenced object exists; {count:,} were written after the listing"
    return Referenced(CheckResult(guard, True, f"{detail}; {lost:,} are lost" if lost else detail), lost)


def incomplete_manifests(manifests: DataFrame, refs: DataFrame) -> DataFrame:
    """Return one row: how many live manifests do not have the number of chunk refs that their snapshots state.

    The row also names the first of them.

    `refs`: the result of `refs_of` for the manifests.
    """
    found = refs.select("manifest_id", F.expr("native + virtual + inline").alias("found"))
    differing = F.coalesce(F.col("found") % F.lit(_COUNT) != F.col("chunk_refs") % F.lit(_COUNT), F.lit(True))
    return (
        manifests.where("live")
        .join(found, on="manifest_id", how="left")
        .where(differing)
        .agg(F.count(F.lit(1)).alias("short"), F.min("manifest_id").alias("first"))
    )


def manifests_complete(row: Mapping[str, Any]) -> CheckResult:
    """Check that no live manifest has lost chunk refs, whose chunks would seem unreferenced.

    `row`: the row of `incomplete_manifests`.
    """
    detail = "every manifest has all its chunk refs"
    if row["short"]:
        detail = (
            f"{row['short']:,} manifests, {row['first']} first, do not have the number of chunk refs that their "
            "snapshots state"
        )
    return CheckResult("manifests_whole", not row["short"], detail, row["short"])
