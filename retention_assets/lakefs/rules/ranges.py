"""Computes which branches hold each range, since when, and whether it is active. Source: seed 004, steps 4 and 5."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from retention_assets.core.aggregates import union_of


def release() -> list[Column]:
    """Return the aggregates for a group of commits or ranges: whether it is active or protected, and since when due.

    `due_since` is null if a member of the group is active. Otherwise it is the latest time of all members.
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
    """Return one row per range of any commit: the union of branches, the oldest creation time, `active` and more.

    `rule_ids` are the rules under which the commits of the range came due.

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
