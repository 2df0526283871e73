"""The largest groups of objects by reason, by directory and by branch, for people to read."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from retention_assets.core.amounts import NO_BRANCH, NO_PATH

TOTAL, REASON, PREFIX, BRANCH = "total", "reason", "prefix", "branch"  # the ways of grouping


def largest_groups(objects: DataFrame, part: str, reason: Column, prefix: Column, most: int) -> DataFrame:
    """Return (`part`, by, name, objects, bytes): the `most` largest groups of each part and kind, largest first.

    The kinds of groups are the total, by reason, by prefix and by branch. The name of the total is empty. An object
    counts for each of its branches. Groups of equal size are ordered by name.

    Args:
        objects: the objects, with columns `size` and `branches`.
        part: the column with the part to which an object belongs.
        reason: the reason for deleting an object.
        prefix: the prefix of an object: `top_prefix`, or `directory` for systems without paths.
        most: the number of groups to return for each part and kind.
    """
    branches = F.when(F.size("branches") > 0, F.col("branches")).otherwise(F.array(F.lit(NO_BRANCH)))
    groups = F.concat(
        F.array(_group(TOTAL, F.lit("")), _group(REASON, reason), _group(PREFIX, prefix)),
        F.transform(branches, lambda branch: _group(BRANCH, branch)),
    )
    largest = Window.partitionBy(part, "by").orderBy(F.col("bytes").desc(), F.col("name"))
    return (
        objects.select(part, "size", F.explode(groups).alias("group"))
        .groupBy(part, F.col("group.by").alias("by"), F.col("group.name").alias("name"))
        .agg(F.count(F.lit(1)).alias("objects"), F.sum("size").alias("bytes"))
        .withColumn("rank", F.row_number().over(largest))
        .where(F.col("rank") <= most)
        .orderBy(part, "by", "rank")
        .drop("rank")
    )


def _group(by: str, name: Column) -> Column:
    return F.struct(F.lit(by).alias("by"), name.alias("name"))


def top_prefix() -> Column:
    """Return the first directory of a candidate's first path; for a file outside all directories, its path."""
    first = F.try_element_at("paths", F.lit(1))
    top = F.when(first.contains("/"), F.concat(F.substring_index(first, "/", 1), F.lit("/"))).otherwise(first)
    return F.coalesce(top, F.lit(NO_PATH))


def directory() -> Column:
    """Return the first directory of a candidate's address."""
    return F.concat(F.substring_index("address", "/", 1), F.lit("/"))
