"""Computes which branches have each range and each (path, address) pair, since when, and whether it is active.

Source: docs/retention.md (ranges); docs/lifecycle.md (pairs). `tables.py` has the meaning of each column.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from retention_assets.core.amounts import counted
from retention_assets.core.paths import is_unreadable
from retention_assets.lakefs.names.columns import canonical_address
from retention_assets.lakefs.rules.name_sets import NameSets
from retention_assets.spark.frames import from_arrow

OF_COMMITS = (  # columns of `potential_commits`
    *("metarange_id", "branches", "created_at", "active", "potential", "protected", "due_since", "rule_id", "is_head"),
    "left_branches",
)
_TIMELESS, _UNREADABLE, _FIRST = "timeless_entries", "unreadable_paths", "first_unreadable_path"


def state_aggregates() -> list[Column]:
    """Return aggregates of a group of commits or ranges: whether any is active, protected, or at a head; and two times.

    `due_since` is null if a member of the group is active. Otherwise it is the latest time of all members.
    `last_held_at` is the latest time of all members.
    """
    return [
        F.bool_or("active").alias("active"),
        F.bool_or("protected").alias("protected"),
        F.when(~F.bool_or("active"), F.max("due_since")).alias("due_since"),
        F.max("last_held_at").alias("last_held_at"),
        F.bool_or("at_head").alias("at_head"),
    ]


def active_ranges(
    potential_commits: DataFrame | pa.Table, metarange_ranges: DataFrame, names: NameSets | None = None
) -> DataFrame:
    """Return one row per range of any commit: the union of branches and rules, `potential`, and `state_aggregates`.

    `first_added_at` is the creation time of the oldest commit. `rule_ids` are the rules under which the commits of
    the range came due.

    Args:
        potential_commits: rows of `potential_commits`, for Spark or on the driver, with the columns `OF_COMMITS`.
        metarange_ranges: (metarange_id, range_id) of the metaranges of all commits.
        names: the names in the lists of `potential_commits`, if the caller knows them.
    """
    if isinstance(potential_commits, pa.Table):
        names = names or NameSets.of_commits(potential_commits)
        commits = from_arrow(metarange_ranges.sparkSession, names.encoded_commits(potential_commits))
    else:
        lists = potential_commits.withColumn("rule_ids", F.array_compact(F.array("rule_id")))
        lists = lists.select("rule_ids", *OF_COMMITS).drop("rule_id")
        names = names or NameSets.of(lists)
        commits = names.encoded(lists)
    ranges = (
        commits.where(F.col("metarange_id") != "")
        .withColumns({"last_held_at": F.col("created_at"), "at_head": F.col("is_head")})
        .join(metarange_ranges.select("metarange_id", "range_id"), on="metarange_id", how="inner")
        .groupBy("range_id")
        .agg(
            F.min("created_at").alias("first_added_at"),
            F.bool_or("potential").alias("potential"),
            *state_aggregates(),
            *names.united(),
        )
    )
    return names.decoded(ranges)


def canonical(range_entries: DataFrame, namespace_urls: Sequence[str]) -> DataFrame:
    """Return the entries with canonical addresses. `namespace_urls`: see `generated`."""
    address = canonical_address(F.col("address"), F.col("address_type"), namespace_urls)
    return range_entries.withColumn("address", address).drop("address_type")


def pairs_of(active_ranges: DataFrame, range_entries: DataFrame, names: NameSets | None = None) -> DataFrame:
    """Return the rows of `addresses`, with `range_number` instead of `range_id`.

    Spark aggregates in a hash table only if every aggregate has a fixed size. With a text among them, Spark would sort
    all entries. So the checksum is part of the key: a pair whose entries have different checksums has a row for each.
    The size is part of the key too, because staged objects are compared with the size in the entry of a head. Each row
    has the branches and the age of its own entries. `lifecycle.united` gives all rows of a pair the same values.

    `active_ranges`, `range_entries`, `names`: see `addresses`.
    """
    names = names or NameSets.of(active_ranges)
    pairs = (
        names.encoded(active_ranges.withColumnRenamed("first_added_at", "added_at"))
        .join(range_entries, on="range_id", how="inner")
        .groupBy("address", "key", "etag", "size")
        .agg(
            F.min("added_at").alias("added_at"),
            F.max("last_modified").alias("last_modified"),
            F.min(_number()).alias("range_number"),
            *state_aggregates(),
            *names.united(),
        )
    )
    return names.decoded(pairs)


def addresses(active_ranges: DataFrame, range_entries: DataFrame, names: NameSets | None = None) -> DataFrame:
    """Return one row per (address, path) pair, checksum and size.

    `branches` is the union over all ranges that have the pair with this checksum and size. `added_at` is the creation
    time of the oldest commit with such a range. `lifecycle.united` gives all rows of a pair the same values.

    Args:
        active_ranges: the rows of `active_ranges`.
        range_entries: `canonical` entries; they must include the entries of all `active_ranges`.
        names: the names in the lists of `active_ranges`, if the caller knows them.
    """
    ids = active_ranges.groupBy(_number().alias("range_number")).agg(F.min("range_id").alias("range_id"))
    pairs = pairs_of(active_ranges, range_entries, names)
    return pairs.join(ids, on="range_number", how="inner").drop("range_number")


def unusual_entries_counted() -> list[Column]:
    """Return the aggregates of `addresses` from which `unusual_entries` makes its text."""
    unreadable = F.when(is_unreadable(F.col("key")), F.col("key"))
    return [
        F.count_if(F.col("last_modified").isNull()).alias(_TIMELESS),
        F.count(unreadable).alias(_UNREADABLE),
        F.min(unreadable).alias(_FIRST),
    ]


def unusual_entries(counts: Mapping[str, Any]) -> str | None:
    """Return a text with the number of entries that have impossible values; None when there are none.

    `counts`: the values of `unusual_entries_counted`, by name.
    """
    texts = []
    if counts[_TIMELESS]:
        entries = counted(counts[_TIMELESS], "entry has", "entries have")
        texts.append(f"{entries} no time, or an impossible time, which is not used")
    if counts[_UNREADABLE]:
        entries = counted(counts[_UNREADABLE], "entry has", "entries have")
        texts.append(
            f"{entries} a path that is not UTF-8 (first: {counts[_FIRST]}); no lifecycle rule covers such a path"
        )
    return "; ".join(texts) or None


def _number() -> Column:
    """Return a number for each range. Rarely, two have the same number; `addresses` then names only one of them."""
    return F.xxhash64("range_id")
