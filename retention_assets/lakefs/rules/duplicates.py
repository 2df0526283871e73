"""Addresses that one path lets go and another one keeps. Source: seed 002, deduplications."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def kept_by_duplicates(pairs: DataFrame) -> DataFrame:
    """Return (address, size, kept_by, let_go): addresses that stay only for the paths in `kept_by`.

    `pairs`: `addresses` with the columns of `with_lifecycle`. A path lets go when no active commit has the pair, or
    when a rule makes it due.
    """
    keeps = F.col("active") & ~F.col("lifecycle_due")
    grouped = pairs.groupBy("address").agg(
        F.max("size").alias("size"),
        F.array_sort(F.collect_set(F.when(keeps, F.col("key")))).alias("kept_by"),
        F.array_sort(F.collect_set(F.when(~keeps, F.col("key")))).alias("let_go"),
    )
    return grouped.where((F.size("kept_by") > 0) & (F.size("let_go") > 0))
