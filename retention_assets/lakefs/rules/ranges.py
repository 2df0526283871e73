"""Commits to ranges: who holds each range, since when, and whether it is kept. Source: seed 004, steps 4 and 5."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from retention_assets.core.aggregates import union_of


def release() -> list[Column]:
    """Return the aggregates of a group that say whether it is kept, and since when it is not.

    `due_since` is null while anything active holds the group: the last to let go counts, and nobody has.
    `rule_ids` are the rules by which the commits that hold the group were let go.
    """
    return [
        F.bool_or("active").alias("active"),
        F.bool_or("protected").alias("protected"),
        F.when(~F.bool_or("active"), F.max("due_since")).alias("due_since"),
        F.max("last_held_at").alias("last_held_at"),
        F.bool_or("at_head").alias("at_head"),
        union_of("left_branches").alias("left_branches"),
    ]


def active_ranges(potential_commits: DataFrame, metarange_ranges: DataFrame) -> DataFrame:
    """Return one row per range that any commit holds: the union of branches, the oldest commit of all, `active`.

    `metarange_ranges`: (metarange_id, range_id) of every metarange that a commit names.
    """
    commits = potential_commits.where(F.col("metarange_id") != "").select(
        "metarange_id",
        "branches",
        "created_at",
        "active",
        "potential",
        "protected",
        "due_since",
        F.col("created_at").alias("last_held_at"),
        F.col("is_head").alias("at_head"),
        "left_branches",
        F.array_compact(F.array("rule_id")).alias("rule_ids"),
    )
    return (
        commits.join(metarange_ranges.select("metarange_id", "range_id"), on="metarange_id", how="inner")
        .groupBy("range_id")
        .agg(
            union_of("branches").alias("branches"),
            F.min("created_at").alias("first_added_at"),
            F.bool_or("potential").alias("potential"),
            union_of("rule_ids").alias("rule_ids"),
            *release(),
        )
    )
