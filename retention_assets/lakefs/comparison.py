"""Compares two sets of deletion candidates: objects that one set frees, and objects that both sets free."""

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from retention_assets.core.aggregates import union_of
from retention_assets.core.summary import largest_groups, top_prefix

NEWLY_FREED, NO_LONGER_FREED = (
    "newly_freed",
    "no_longer_freed",
)  # only the later set has the object; only the earlier set
FREED_OTHERWISE, FREED_ALIKE = (
    "freed_otherwise",
    "freed_alike",
)  # both sets: other reason or rules; same reason and rules
CHANGES = (NEWLY_FREED, NO_LONGER_FREED, FREED_OTHERWISE, FREED_ALIKE)

_COMPARED = ("size", "reason", "rule_ids", "paths", "branches")
_EARLIER, _LATER = "before", "after"


def compared(before: DataFrame, after: DataFrame) -> DataFrame:
    """Return one row per address of either set, with its `change` and the reasons and rules in both sets.

    A reason or rule is null if that set does not have the object. `size`, `paths` and `branches` come from the later
    set if it has the object, else from the earlier set.

    `before`, `after`: rows of `deletion_candidates`.
    """
    both = _side(before, _EARLIER).join(_side(after, _LATER), on="address", how="full")
    differs = (F.col("reason_before") != F.col("reason_after")) | (F.col("rule_ids_before") != F.col("rule_ids_after"))
    change = (
        F.when(F.col("reason_before").isNull(), NEWLY_FREED)
        .when(F.col("reason_after").isNull(), NO_LONGER_FREED)
        .when(differs, FREED_OTHERWISE)
        .otherwise(FREED_ALIKE)
    )
    return both.select(
        "address",
        change.alias("change"),
        *(F.coalesce(f"{name}_after", f"{name}_before").alias(name) for name in ("size", "paths", "branches")),
        *(f"{name}_{side}" for name in ("reason", "rule_ids") for side in (_EARLIER, _LATER)),
    )


def _side(candidates: DataFrame, name: str) -> DataFrame:
    return candidates.select("address", *(F.col(column).alias(f"{column}_{name}") for column in _COMPARED))


def changed_amounts(changes: DataFrame, most: int, prefix: Callable[[], Column] = top_prefix) -> DataFrame:
    """Return the `largest_groups` of each change. `changes`: the rows that `compared` returns."""
    return largest_groups(changes, "change", _reason_text(), prefix(), most)


def _reason_text() -> Column:
    """Return the reason as text. If the two sets free the object for different reasons, the text has both."""
    earlier, later = F.col("reason_before"), F.col("reason_after")
    both = F.when(earlier == later, F.concat(later, F.lit(", other rules"))).otherwise(
        F.concat(earlier, F.lit(" → "), later)
    )
    return F.when(F.col("change") == FREED_OTHERWISE, both).otherwise(F.coalesce(later, earlier))


def at_heads(commits: DataFrame, graph: DataFrame) -> DataFrame:
    """Return the rows of `potential_commits` that are heads of branches or tags. `branches` lists these names.

    A tag is written `tag <name>`, because a branch can have the same name.
    """
    tags = F.transform("tags", lambda tag: F.concat(F.lit("tag "), tag))
    heads = graph.select("commit_id", F.concat("head_of", tags).alias("names")).where(F.size("names") > 0)
    return commits.join(heads, on="commit_id", how="inner").withColumn("branches", F.col("names")).drop("names")


def with_heads(changes: DataFrame, pairs_at_heads: DataFrame) -> DataFrame:
    """Return the changes with the column `heads`: the branches and tags whose current commit has the object.

    Only newly freed objects have `heads`. The list is empty if only older commits have the object.

    `pairs_at_heads`: the `addresses` of the commits that `at_heads` returns.
    """
    heads = pairs_at_heads.groupBy("address").agg(union_of("branches").alias("heads"))
    none = F.array().cast("array<string>")
    joined = changes.join(heads, on="address", how="left")
    is_new = F.col("change") == NEWLY_FREED
    return joined.withColumn("heads", F.when(is_new, F.coalesce("heads", none)).otherwise(none))


def head_amounts(changes: DataFrame, most: int) -> DataFrame:
    """Return (name, objects, bytes) of the `most` heads that lose the most bytes, and a total with an empty name.

    Objects that are in no head are not counted. `changes`: the rows that `with_heads` returns.
    """
    names = F.explode(F.concat(F.array(F.lit("")), F.col("heads"))).alias("name")
    return (
        changes.where(F.size("heads") > 0)
        .select("size", names)
        .groupBy("name")
        .agg(F.count(F.lit(1)).alias("objects"), F.sum("size").alias("bytes"))
        .orderBy(F.col("name") != "", F.col("bytes").desc(), "name")
        .limit(most + 1)
    )
