"""What a person wants to know of objects first: the largest groups by reason, by place, by branch."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

TOTAL, REASON, PREFIX, BRANCH = "total", "reason", "prefix", "branch"  # by what a group is made
NO_BRANCH = "(no branch)"
NO_PATH = "(no path)"


def largest_groups(objects: DataFrame, part: str, reason: Column, place: Column, most: int) -> DataFrame:
    """Return (`part`, by, name, objects, bytes): the `most` largest groups of each part by each of four, largest first.

    The total's name is empty. An object counts for each of its branches; equal groups are ordered by name.

    Args:
        objects: with size and branches.
        part: the column that tells the parts apart.
        reason: why an object goes.
        place: where an object is: `top_prefix`, or `directory` for systems without paths.
        most: how many groups of each part and kind.
    """
    branches = F.when(F.size("branches") > 0, F.col("branches")).otherwise(F.array(F.lit(NO_BRANCH)))
    groups = F.concat(
        F.array(_group(TOTAL, F.lit("")), _group(REASON, reason), _group(PREFIX, place)),
        F.transform(branches, lambda branch: _group(BRANCH, branch)),
    )
    largest = Window.partitionBy(part, "by").orderBy(F.col("bytes").desc(), F.col("name"))
    return (
        objects.select(part, "size", F.explode(groups).alias("group"))
        .groupBy(part, F.col("group.by").alias("by"), F.col("group.name").alias("name"))
        .agg(F.count(F.lit(1)).alias("objects"), F.sum("size").alias("bytes"))
        .withColumn("place", F.row_number().over(largest))
        .where(F.col("place") <= most)
        .orderBy(part, "by", "place")
        .drop("place")
    )


def _group(by: str, name: Column) -> Column:
    return F.struct(F.lit(by).alias("by"), name.alias("name"))


def top_prefix() -> Column:
    """Return the first directory of a candidate's first path; a file at the top is its own."""
    first = F.try_element_at("paths", F.lit(1))
    top = F.when(first.contains("/"), F.concat(F.substring_index(first, "/", 1), F.lit("/"))).otherwise(first)
    return F.coalesce(top, F.lit(NO_PATH))


def directory() -> Column:
    """Return the first directory of a candidate's address."""
    return F.concat(F.substring_index("address", "/", 1), F.lit("/"))
