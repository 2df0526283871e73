"""Computes (path, address) pairs from ranges.

Source: seed 002, steps 3 and 4 of finding addresses; DESIGN.md, Tables.
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from retention_assets.core.aggregates import union_of
from retention_assets.lakefs.rules.names import canonical_address
from retention_assets.lakefs.rules.ranges import release


def canonical(range_entries: DataFrame, inside: Sequence[str]) -> DataFrame:
    """Return the entries with canonical addresses. `inside`: the `spellings` of the namespace."""
    address = canonical_address(F.col("address"), F.col("address_type"), inside)
    return range_entries.withColumn("address", address).drop("address_type")


def addresses(active_ranges: DataFrame, range_entries: DataFrame) -> DataFrame:
    """Return one row per (address, path) pair. `branches` is the union over all ranges that have the pair.

    `added_at` is the creation time of the oldest commit that has the pair.

    `range_entries`: `canonical` entries; they must include the entries of all `active_ranges`.
    """
    return (
        active_ranges.withColumnRenamed("first_added_at", "added_at")
        .join(range_entries, on="range_id", how="inner")
        .groupBy("address", "key")
        .agg(
            F.max("size").alias("size"),
            union_of("branches").alias("branches"),
            F.min("added_at").alias("added_at"),
            F.max("last_modified").alias("last_modified"),
            F.min("range_id").alias("range_id"),
            union_of("rule_ids").alias("rule_ids"),
            *release(),
            F.max("etag").alias("etag"),
        )
    )
