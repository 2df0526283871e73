"""Ranges to (path, address) pairs. Source: seed 002, steps 3 and 4 of finding addresses; DESIGN.md, Tables."""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from retention_assets.core.aggregates import union_of
from retention_assets.lakefs.rules.names import canonical_address
from retention_assets.lakefs.rules.ranges import release


def canonical(range_entries: DataFrame, inside: Sequence[str]) -> DataFrame:
    """Return the entries with their addresses in one spelling. `inside`: the `spellings` of the namespace."""
    address = canonical_address(F.col("address"), F.col("address_type"), inside)
    return range_entries.withColumn("address", address).drop("address_type")


def addresses(active_ranges: DataFrame, range_entries: DataFrame) -> DataFrame:
    """Return one row per (address, path) pair with the union of branches over every range that holds it.

    `added_at` is the creation of the oldest commit of all that holds the pair.
    `range_entries`: `canonical` entries, at least those of `active_ranges`.
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
