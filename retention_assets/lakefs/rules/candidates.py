"""Classifies each listed object as foreign, kept, held, young or a candidate, with a reason.

Source: promises 1, 2 and 7 of docs/safety.md; docs/lifecycle.md, "An object at several paths"; docs/uncommitted.md.
"""

from collections.abc import Collection, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from retention_assets.core.age import AgeCutoff
from retention_assets.core.paths import below_any, covered_by_hold
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
from retention_assets.lakefs.names.columns import is_generated, is_inside, is_outside, stored_name
from retention_assets.lakefs.rules.same_content import is_md5
from retention_assets.policy.matching import unicode_forms
from retention_assets.spark.frames import by_address, union_of

LIVE_COLUMNS = ("address", "key", "active", "protected", "lifecycle_due", "last_modified")
_TEXTS = "array<string>"


def commits_by_address(pairs: DataFrame, held_prefixes: Collection[str]) -> DataFrame:
    """Return one row per address: whether commits keep or protect it, and since when it is due.

    An address is kept if an active commit has a (path, address) pair with it that is not due under a lifecycle rule.
    Pairs of commits that are not active do not keep an address. Pairs of an absolute address count for the listed
    object that the address refers to (`stored_name`).

    `entry_md5` is a hash of the entry's checksum if the checksum is an MD5. `least_head_size` and `most_head_size` are
    the least and the greatest size in entries of heads. Every aggregate has a fixed size, so Spark aggregates in a hash
    table and sorts nothing.

    `pairs`: `addresses` with the columns of `with_lifecycle`.
    """
    held = F.col("protected") | covered_by_hold(F.col("key"), held_prefixes)
    return by_address(pairs.withColumns({"address": stored_name(F.col("address")), "protected": held})).agg(
        F.bool_or(F.col("active") & ~F.col("lifecycle_due")).alias("kept"),
        F.bool_or("active").alias("active"),
        F.bool_or("protected").alias("protected"),
        F.max("due_since").alias("expired_since"),
        F.max(F.when(F.col("active"), F.col("lifecycle_due_since"))).alias("lifecycle_since"),
        F.min("added_at").alias("first_committed_at"),
        F.max("last_held_at").alias("last_committed_at"),
        F.max(F.when(is_md5(F.col("etag")), F.xxhash64("etag"))).alias("entry_md5"),
        F.min(F.when(F.col("at_head"), F.col("size"))).alias("least_head_size"),
        F.max(F.when(F.col("at_head"), F.col("size"))).alias("most_head_size"),
    )


def classified(
    inventory: DataFrame, commits: DataFrame, staged: DataFrame, age_cutoff: AgeCutoff, *, staged_known: bool
) -> DataFrame:
    """Return every listed object with its `state` and `reason`, and the columns of `commits`.

    `reason` is why the object is deleted if it is a candidate; other objects have a reason too. If the staged list is
    not known, objects that are in no commit are kept, because they may be staged.

    `commits`: the rows that `commits_by_address` returns.
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
    named = staged.select(stored_name(F.col("address")).alias("address")).distinct()
    marked = named.withColumn("is_staged", F.lit(True))
    known = inventory.join(commits, on="address", how="left").join(marked, on="address", how="left")
    return known.withColumn("reason", reason).withColumn("state", state)


def due(classified_objects: DataFrame) -> DataFrame:
    """Return the candidates and the waiting objects, with `due_since`. `with_names` adds their lists of names."""
    since = F.when(F.col("reason") == LIFECYCLE, F.col("lifecycle_since")).otherwise(F.col("expired_since"))
    named = classified_objects.where(F.col("state").isin(CANDIDATE, WAITING))
    return named.withColumn("due_since", since)


def with_names(objects: DataFrame, pairs: DataFrame) -> DataFrame:
    """Return the rows of `due` with `paths`, `branches` and `rule_ids`, the rules under which the object is due.

    Lists are aggregated only from the pairs of these objects, because this takes most of a large plan's time.

    `pairs`: as in `commits_by_address`.
    """
    none = F.array().cast(_TEXTS)
    due_pairs = (
        pairs.withColumn("address", stored_name(F.col("address")))
        .join(objects.select("address"), on="address", how="left_semi")
        .select(
            "address",
            "key",
            "branches",
            F.col("rule_ids").alias("retention_rules"),
            F.when(F.col("active"), F.col("matched_rules")).alias("lifecycle_rules"),
        )
    )
    named = by_address(due_pairs).agg(
        F.array_sort(F.collect_set("key")).alias("paths"),
        *(union_of(column).alias(column) for column in ("branches", "retention_rules", "lifecycle_rules")),
    )
    rules = F.when(F.col("reason") == LIFECYCLE, F.col("lifecycle_rules")).otherwise(F.col("retention_rules"))
    return (
        objects.join(named, on="address", how="left")
        .withColumns(
            {
                "rule_ids": F.coalesce(rules, none),
                "paths": F.coalesce("paths", none),
                "branches": F.coalesce("branches", none),
            }
        )
        .drop("lifecycle_rules", "retention_rules")
    )


def held_paths(pairs: DataFrame, held_prefixes: Sequence[str]) -> DataFrame:
    """Return one row with a column for each prefix, named by its index: whether a hold on it covers a path."""
    below_one = (below_any(F.col("key"), unicode_forms(prefix)) for prefix in held_prefixes)
    covered = (F.coalesce(F.bool_or(one), F.lit(False)) for one in below_one)
    return pairs.agg(*(one.alias(str(at)) for at, one in enumerate(covered)))


def live_addresses(pairs: DataFrame, staged: DataFrame, held_prefixes: Collection[str]) -> DataFrame:
    """Return the live addresses, one row each; see `live_entries`."""
    return one_by_address(live_entries(pairs, staged, held_prefixes))


def one_by_address(entries: DataFrame) -> DataFrame:
    """Return one row per address of `live_entries`: the newest `last_modified`, and whether any is `certain`."""
    newest, certain = F.max("last_modified").alias("last_modified"), F.bool_or("certain").alias("certain")
    return entries.groupBy("address").agg(newest, certain)


def live_entries(pairs: DataFrame, staged: DataFrame, held_prefixes: Collection[str]) -> DataFrame:
    """Return `address`, `last_modified` and `certain` of every live entry. An address may have several entries.

    An address is live in three cases: an active commit has a pair of it that is not due under a lifecycle rule; a tag
    or hold protects it; or it is staged. Source: docs/index.md, "Words".

    `certain` is true if the address of the entry `is_inside` the namespace. Then the object must be listed. If only
    absolute or unresolved addresses refer to an object, the object can lie elsewhere. It need not be listed, but it is
    kept if it is listed.

    `pairs`: as in `commits_by_address`. Only the columns `LIVE_COLUMNS` are needed.
    """
    not_due = F.col("active") & ~F.col("lifecycle_due")
    kept = not_due | F.col("protected") | covered_by_hold(F.col("key"), held_prefixes)
    committed = pairs.where(kept).select("address", "last_modified")
    held = committed.unionByName(staged.select("address", F.col("created_at").alias("last_modified")))
    inside, name = is_inside(F.col("address")), stored_name(F.col("address"))
    named = held.select(name.alias("address"), "last_modified", inside.alias("certain"))
    return named.where(~is_outside(F.col("address")))
