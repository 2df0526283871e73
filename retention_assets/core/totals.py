"""Totals of classified objects: by state, by largest groups, and the times at which waiting objects have settled."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from pyspark.sql import Column, DataFrame, Observation, Window
from pyspark.sql import functions as F

from retention_assets.core.amounts import NO_BRANCH, NO_PATH, Amount
from retention_assets.core.states import STATES, WAITING

_YEAR_10000 = 253_402_300_800_000_000  # microseconds since 1970


@dataclass(frozen=True, slots=True)
class Totals:
    """Objects and bytes by state, and the times at which waiting objects have settled (UTC; None: no object waits)."""

    by_state: Mapping[str, Amount]
    first_wait_ends: datetime | None  # when the first waiting object has settled
    last_wait_ends: datetime | None  # when the last waiting object has settled
    changes_at: datetime | None = None  # when the first object may be old enough; None: no object is too young

    @property
    def objects(self) -> int:
        """The number of objects in all states."""
        return sum(amount.objects for amount in self.by_state.values())

    def changes(self, oldest: str) -> dict[str, datetime]:
        """Return the `changes_at` of a `KnownPlan`. `oldest`: the name of the time to which ages are counted."""
        times = {oldest: self.changes_at, "settling_until": self.first_wait_ends}
        return {name: at for name, at in times.items() if at is not None}


def with_totals(objects: DataFrame, changes_at: Column | None = None) -> tuple[DataFrame, Observation]:
    """Return the classified objects, and the observation from which `observed_totals` reads their totals.

    `changes_at`: the time in microseconds before which age does not change the state of the object; None: no such time.
    """
    no_time = F.lit(None).cast("bigint")
    changes = no_time if changes_at is None else changes_at
    until = F.unix_micros("waits_until") if "waits_until" in objects.columns else no_time
    waits = F.when(F.col("state") == WAITING, until)
    aggregates = [F.min(waits).alias("first"), F.max(waits).alias("last"), F.min(changes).alias("changes")]
    for state in STATES:
        in_state = F.col("state") == state
        aggregates += [
            F.count_if(in_state).alias(f"{state}_objects"),
            F.sum(F.when(in_state, F.col("size"))).alias(f"{state}_bytes"),
        ]
    observed = Observation()
    return objects.observe(observed, *aggregates), observed


def observed_totals(observed: Observation) -> Totals:
    """Return the totals that Spark counts while it computes the objects. Waits until the objects are computed."""
    row = observed.get
    totals = {state: Amount(row[f"{state}_objects"], row[f"{state}_bytes"] or 0) for state in sorted(STATES)}
    counted = {state: amount for state, amount in totals.items() if amount.objects}
    return Totals(counted, *(_timestamp(row[name]) for name in ("first", "last", "changes")))


def _timestamp(micros: int | None) -> datetime | None:
    """Return the time; None if it is after the year 9999."""
    return None if micros is None or micros >= _YEAR_10000 else datetime.fromtimestamp(micros / 1e6, UTC)


TOTAL, REASON, PREFIX, BRANCH = "total", "reason", "prefix", "branch"  # the ways of grouping


def largest_groups(objects: DataFrame, part: str, reason: Column, prefix: Column, most: int) -> DataFrame:
    """Return (`part`, by, name, objects, bytes): the `most` largest groups of each part and kind, largest first.

    There are four kinds of groups (`by`): one group of all objects (`total`), and groups by reason, prefix and branch.
    The name of the group `total` is empty. An object counts in the group of each of its branches. Groups of equal size
    are ordered by name.

    Args:
        objects: the objects, with columns `size` and `branches`.
        part: the column with the part to which an object belongs.
        reason: the reason for deleting an object.
        prefix: the prefix of an object: `top_prefix`, or `top_of` of its address if objects have no paths.
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
    """Return the first directory of a candidate's first path, the path if it has no directory, or `NO_PATH`."""
    first = F.try_element_at("paths", F.lit(1))
    top = F.when(first.contains("/"), F.concat(F.substring_index(first, "/", 1), F.lit("/"))).otherwise(first)
    return F.coalesce(top, F.lit(NO_PATH))


def top_of(address: Column) -> Column:
    """Return the first directory of `address`, with its trailing slash."""
    return F.concat(F.substring_index(address, "/", 1), F.lit("/"))
