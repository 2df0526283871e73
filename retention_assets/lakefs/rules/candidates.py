"""What happens to each listed object: foreign, kept, held, young or a candidate, and for which reason.

Source: DESIGN.md, invariants 1, 2, 9 and 10, and Decisions (Deduplication, Reasons).
"""

from collections.abc import Collection

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from retention_assets.core.age import AgeCutoff
from retention_assets.core.aggregates import union_of
from retention_assets.core.paths import below_any
from retention_assets.core.states import (
    CANDIDATE,
    EXPIRED,
    FOREIGN,
    HELD,
    KEPT,
    LIFECYCLE,
    UNREFERENCED,
    WAITING,
    YOUNG,
)
from retention_assets.lakefs.rules.names import is_generated, is_outside, stored_name
from retention_assets.tables import DELETION_CANDIDATES

_TEXTS = "array<string>"


def holders(pairs: DataFrame, held_prefixes: Collection[str]) -> DataFrame:
    """Return one row per address: what keeps it, and the paths, branches, rules and dates behind it.

    `pairs`: `addresses` with the columns of `with_lifecycle`. An address is kept while an active commit holds it by
    a pair that is not due; pairs of commits that are not active keep nothing. Pairs of an absolute address are counted
    for the listed object that it means (`stored_name`).
    """
    held = F.col("protected") | below_any(F.col("key"), held_prefixes)
    by_rule = F.when(F.col("active"), F.col("matched_rules")).otherwise(F.array().cast(_TEXTS))
    return (
        pairs.withColumns({"address": stored_name(F.col("address")), "protected": held, "matched_rules": by_rule})
        .groupBy("address")
        .agg(
            F.bool_or(F.col("active") & ~F.col("lifecycle_due")).alias("kept"),
            F.bool_or("active").alias("active"),
            F.bool_or("protected").alias("protected"),
            F.array_sort(F.collect_set("key")).alias("paths"),
            union_of("branches").alias("branches"),
            union_of("rule_ids").alias("retention_rules"),
            union_of("matched_rules").alias("lifecycle_rules"),
            F.max("due_since").alias("expired_since"),
            F.max(F.when(F.col("active"), F.col("lifecycle_due_since"))).alias("lifecycle_since"),
            F.min("added_at").alias("first_committed_at"),
            F.max("last_held_at").alias("last_committed_at"),
            F.max("etag").alias("entry_etag"),
        )
    )


def classified(
    inventory: DataFrame, holding: DataFrame, staged: DataFrame, age_cutoff: AgeCutoff, *, staged_known: bool
) -> DataFrame:
    """Return every listed object with its `state`, its `reason` should it go, and what stands behind it.

    While the staged list is not known, what no commit holds is kept: it may be staged.
    """
    in_a_commit = F.col("active").isNotNull()
    reason = F.when(~in_a_commit, UNREFERENCED).when(F.col("active"), LIFECYCLE).otherwise(EXPIRED)
    state = (
        F.when(~is_generated(F.col("address")), FOREIGN)
        .when(F.coalesce(F.col("kept"), F.lit(not staged_known)), KEPT)
        .when(F.coalesce(F.col("protected"), F.lit(False)) | F.col("is_staged").isNotNull(), HELD)
        .when(~age_cutoff.is_eligible(F.col("reason")), YOUNG)
        .otherwise(CANDIDATE)
    )
    marked = staged.select("address").distinct().withColumn("is_staged", F.lit(True))
    known = inventory.join(holding, on="address", how="left").join(marked, on="address", how="left")
    return known.withColumn("reason", reason).withColumn("state", state)


def candidates(judged_objects: DataFrame) -> DataFrame:
    """Return the candidates among the judged objects, one row per address."""
    return due(judged_objects).where(F.col("state") == CANDIDATE).select(*DELETION_CANDIDATES.schema.names)


def due(judged_objects: DataFrame) -> DataFrame:
    """Return the candidates and the waiting objects in the columns of candidates, beside those they have."""
    by_lifecycle = F.col("reason") == LIFECYCLE
    rules = F.when(by_lifecycle, F.col("lifecycle_rules")).otherwise(F.col("retention_rules"))
    since = F.when(by_lifecycle, F.col("lifecycle_since")).otherwise(F.col("expired_since"))
    none = F.array().cast(_TEXTS)
    return judged_objects.where(F.col("state").isin(CANDIDATE, WAITING)).withColumns(
        {
            "rule_ids": F.coalesce(rules, none),
            "paths": F.coalesce("paths", none),
            "branches": F.coalesce("branches", none),
            "due_since": since,
        }
    )


def live_addresses(pairs: DataFrame, staged: DataFrame, held_prefixes: Collection[str]) -> DataFrame:
    """Return the live addresses: `address`, `certain`, and the newest instant that each carries.

    `certain`: it lies inside the namespace, so it must be listed. Else an absolute address means it, which may lie
    elsewhere: it is kept if it is listed.

    Live: held by a pair of an active commit that no lifecycle rule makes due, protected by a tag or a hold, or
    staged. `pairs` as in `holders`. Source: DESIGN.md, invariant 1.
    """
    not_due = F.col("active") & ~F.col("lifecycle_due")
    kept = not_due | F.col("protected") | below_any(F.col("key"), held_prefixes)
    committed = pairs.where(kept).select("address", "last_modified")
    held = committed.unionByName(staged.select("address", F.col("created_at").alias("last_modified")))
    outside, name = is_outside(F.col("address")), stored_name(F.col("address"))
    return (
        held.select(name.alias("address"), "last_modified", (~outside).alias("certain"))
        .where(~is_outside(F.col("address")))
        .groupBy("address")
        .agg(F.max("last_modified").alias("last_modified"), F.bool_or("certain").alias("certain"))
    )
