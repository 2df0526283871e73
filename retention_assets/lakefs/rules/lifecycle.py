"""Computes which (path, address) pairs are due under lifecycle rules, and since when.

`policy.rules.due_since` is the same rule in plain Python.

Source: docs/lifecycle.md.
"""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from retention_assets.core.paths import below, is_unreadable
from retention_assets.policy.matching import glob_regex
from retention_assets.policy.rules import LifecycleRule
from retention_assets.spark.frames import from_arrow, union_of

_FOR_EVER = 2**62  # microseconds; beyond every date, and the sum with a time does not overflow
_LATEST_TIMESTAMP = 253_402_300_799_999_999  # 9999-12-31 in microseconds
_PAIR = "hash of the pair"


def whole_pairs(addresses: DataFrame) -> DataFrame:
    """Return the rows with the branches, age and activity of their pair: see `united`. This runs a Spark job.

    `addresses`: rows that Spark reads from files or from its cache: the job reads them, and so does the result.
    """
    return united(addresses, split_pairs(addresses))


def split_pairs(addresses: DataFrame) -> pa.Table:
    """Return the hashes of the (path, address) pairs that have several rows. This runs a Spark job.

    Such pairs are rare: their entries have different checksums or sizes. Spark distributes only a hash of each row.
    Rarely, two pairs have the same hash, and both are returned. `united` is right for them, too.
    """
    rows = addresses.groupBy(_pair_hash().alias(_PAIR)).agg(F.count(F.lit(1)).alias("rows"))
    return rows.where("rows > 1").select(_PAIR).toArrow()


def united(addresses: DataFrame, split: pa.Table) -> DataFrame:
    """Return the rows; those of one pair have the same `added_at`, `active`, `branches` and `left_branches`.

    Lifecycle rules apply to pairs. If the rows of a pair were classified one by one, an active row could be due under
    the rule of its own branches while a branch of another row keeps the pair longer.

    `split`: the result of `split_pairs`.
    """
    if not split.num_rows:
        return addresses
    hashes = F.broadcast(from_arrow(addresses.sparkSession, split))
    rows = addresses.withColumn(_PAIR, _pair_hash())
    few = rows.join(hashes, on=_PAIR, how="left_semi")
    pairs = few.groupBy("address", "key").agg(
        F.min("added_at").alias("added_at"),
        F.bool_or("active").alias("active"),
        union_of("branches").alias("branches"),
        union_of("left_branches").alias("left_branches"),
    )
    whole = few.drop("added_at", "active", "branches", "left_branches").join(pairs, on=["address", "key"], how="inner")
    whole = whole.withColumn("due_since", F.when(~F.col("active"), F.col("due_since")))
    others = rows.join(hashes, on=_PAIR, how="left_anti")
    return others.select(*addresses.columns).unionAll(whole.select(*addresses.columns))


def _pair_hash() -> Column:
    return F.xxhash64("address", "key")


def with_lifecycle(
    addresses: DataFrame, rules: Collection[LifecycleRule], branches: Collection[str], as_of: datetime
) -> DataFrame:
    """Return the pairs with `lifecycle_due_since` (null: never), `lifecycle_due` and `matched_rules`.

    A pair is due if at least one rule is due at `as_of` or earlier. `matched_rules` has the ids of the rules that are
    due.

    Args:
        addresses: the (path, address) pairs; those with several rows are `united`.
        rules: the lifecycle rules. Disabled rules are ignored.
        branches: all branches of the repository, also hidden branches and those in `left_branches`.
        as_of: the time (UTC) at which rules are evaluated.
    """
    enabled = sorted((rule for rule in rules if rule.enabled), key=lambda rule: rule.rule_id)
    since = [_due_since(rule, branches) for rule in enabled]
    due = [F.coalesce(timestamp <= F.lit(as_of), F.lit(False)) for timestamp in since]
    matched = [F.when(is_due, F.lit(rule.rule_id)) for rule, is_due in zip(enabled, due, strict=True)]
    names = F.array_compact(F.array(*matched)) if matched else F.array().cast("array<string>")
    return addresses.withColumns(
        {
            "lifecycle_due_since": _earliest(since),
            "lifecycle_due": F.size(names) > 0,
            "matched_rules": names,
        }
    )


def covers(rule: LifecycleRule, path: Column) -> Column:
    """Return whether the rule covers `path` by its prefix or its glob."""
    matches = below(path, rule.prefix) if rule.glob is None else path.rlike(glob_regex(rule.glob))
    return matches & ~is_unreadable(path)


def _due_since(rule: LifecycleRule, branches: Collection[str]) -> Column:
    """Return the time from which a pair is due under the rule; null if it never is or the rule does not cover it."""
    left = F.when(F.size("left_branches") > 0, _longest_duration(rule, branches, "left_branches")).otherwise(F.lit(0))
    due = F.unix_micros("added_at") + F.greatest(_longest_duration(rule, branches, "branches"), left)
    return F.when(covers(rule, F.col("key")) & (due <= F.lit(_LATEST_TIMESTAMP)), F.timestamp_micros(due))


def _longest_duration(rule: LifecycleRule, branches: Collection[str], column: str) -> Column:
    """Return the longest retention (microseconds) of the branches in `column`; without branches, the default.

    Branches are grouped by their retention, so the expression grows with the rule and not with the repository.
    """
    own: dict[int, list[str]] = {}
    for branch in sorted(branches):
        duration = _micros(rule.duration_for(branch))
        if duration != _micros(rule.default):
            own.setdefault(duration, []).append(branch)
    named = [branch for group in own.values() for branch in group]
    durations = [
        F.when(F.arrays_overlap(column, _texts(group)), F.lit(duration)).otherwise(F.lit(0))
        for duration, group in own.items()
    ]
    others = F.size(F.array_except(column, _texts(named))) > 0 if named else F.size(column) > 0
    by_default = F.when(others | (F.size(column) == 0), F.lit(_micros(rule.default))).otherwise(F.lit(0))
    return F.greatest(by_default, *durations) if durations else by_default


def _micros(duration: timedelta | None) -> int:
    return _FOR_EVER if duration is None else min(duration // timedelta(microseconds=1), _FOR_EVER)


def _texts(values: Sequence[str]) -> Column:
    return F.array(*(F.lit(value) for value in values))


def _earliest(timestamps: Sequence[Column]) -> Column:
    if not timestamps:
        return F.lit(None).cast("timestamp")
    return F.least(*timestamps) if len(timestamps) > 1 else timestamps[0]


def kept_by_duplicates(pairs: DataFrame, most: int) -> DataFrame:
    """Return (address, size, kept_by, let_go) of addresses that are kept only because of the paths in `kept_by`.

    `let_go` has the paths that no longer keep the address: no active commit has the pair, or the pair is due under a
    lifecycle rule. The paths are collected for the `most` largest addresses only, because Spark sorts what it collects.

    `pairs`: `addresses` with the columns of `with_lifecycle`.
    """
    keeps = F.col("active") & ~F.col("lifecycle_due")
    both = pairs.groupBy("address").agg(
        F.max("size").alias("size"), F.bool_or(keeps).alias("is_kept"), F.bool_or(~keeps).alias("is_let_go")
    )
    largest = both.where("is_kept AND is_let_go").orderBy(F.col("size").desc(), "address").limit(most)
    return (
        pairs.drop("size")
        .join(F.broadcast(largest.select("address", "size")), on="address", how="inner")
        .groupBy("address", "size")
        .agg(
            F.array_sort(F.collect_set(F.when(keeps, F.col("key")))).alias("kept_by"),
            F.array_sort(F.collect_set(F.when(~keeps, F.col("key")))).alias("let_go"),
        )
    )
