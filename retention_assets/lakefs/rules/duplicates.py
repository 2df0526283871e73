"""Finds addresses that expired at one path and are kept by another path. Source: seed 002, deduplications."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def kept_by_duplicates(pairs: DataFrame) -> DataFrame:
    """Return (address, size, kept_by, let_go) of addresses that are kept only because of the paths in `kept_by`.

    `let_go` has the paths that no longer keep the address: no active commit has the pair, or the pair is due under a
    lifecycle rule.

    `pairs`: `addresses` with the columns of `with_lifecycle`.
    """
    keeps = F.col("active") & ~F.col("lifecycle_due")
    grouped = pairs.groupBy("address").agg(
        F.max("size").alias("size"),
        F.array_sort(F.collect_set(F.when(keeps, F.col("key")))).alias("kept_by"),
        F.array_sort(F.collect_set(F.when(~keeps, F.col("key")))).alias("let_go"),
    )
    return grouped.where((F.size("kept_by") > 0) & (F.size("let_go") > 0))
