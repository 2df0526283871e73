"""The guards of Icechunk repositories: nothing that must stay is missing, manifests are whole, places are apart.

Source: DESIGN.md, Invariants; Icechunk facts 4.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from retention_assets.stores.access import StoreAccess
from retention_assets.stores.presence import presence
from retention_assets.sweep.guards import Verdict
from retention_assets.transforms.candidates import Horizon

_MOST_ASKED = 100_000  # unlisted objects that the store is asked about one by one: some minutes
_NAMED = 3  # of those that are missing
_COUNT = 2**32  # what a file counts in


def referenced_exist(
    guard: str, live: DataFrame, inventory: DataFrame, access: StoreAccess, listed_at: Horizon
) -> Verdict:
    """Every object of `live` is in the listing, or came after it and is there when the store is asked for it.

    One that is older than the listing's horizon and not in it shows a listing that was cut: others may lack too.
    Source: DESIGN.md, invariant 7.
    """
    unlisted = live.select("address").join(inventory, on="address", how="left_anti").cache()
    asked = unlisted.count()
    if asked > _MOST_ASKED:
        unlisted.unpersist()
        return Verdict(guard, False, f"{asked:,} referenced objects are not in the listing, too many to ask for each")
    if not asked:
        unlisted.unpersist()
        return Verdict(guard, True, "every referenced object is in the listing")
    found = presence(unlisted, access).cache()
    absent = F.col("last_modified").isNull()
    row = found.agg(
        F.count_if(absent).alias("absent"),
        F.count_if(listed_at.passed_by(F.col("last_modified"))).alias("overlooked"),
        F.min(F.when(listed_at.passed_by(F.col("last_modified")), F.col("address"))).alias("first"),
    ).first()
    assert row is not None
    names = [one["address"] for one in found.where(absent).orderBy("address").limit(_NAMED).collect()]
    found.unpersist()
    unlisted.unpersist()
    if row["absent"]:
        more = " and others" if row["absent"] > len(names) else ""
        return Verdict(guard, False, f"{row['absent']:,} referenced objects are missing: {', '.join(names)}{more}")
    if row["overlooked"]:
        saw = f"{row['overlooked']:,} objects, {row['first']} first, are there and old, and were not listed"
        return Verdict(guard, False, saw)
    return Verdict(guard, True, f"every referenced object is there; {asked:,} came after the listing")


def manifests_whole(manifests: DataFrame, refs: DataFrame) -> Verdict:
    """Every manifest has as many chunk refs as its snapshots say; else chunks that it holds are missing here.

    `refs`: `refs_of` the manifests.
    """
    found = refs.select("manifest_id", F.expr("native + virtual + inline").alias("found"))
    differing = F.coalesce(F.col("found") % F.lit(_COUNT) != F.col("chunk_refs") % F.lit(_COUNT), F.lit(True))
    row = (
        manifests.where("live")
        .join(found, on="manifest_id", how="left")
        .where(differing)
        .agg(F.count(F.lit(1)).alias("short"), F.min("manifest_id").alias("first"))
        .first()
    )
    assert row is not None
    saw = "every manifest has all its chunk refs"
    if row["short"]:
        saw = f"{row['short']:,} manifests, {row['first']} first, have other chunk refs than their snapshots say"
    return Verdict("manifests_whole", not row["short"], saw)
