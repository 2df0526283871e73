"""The settling time: an object becomes a candidate only if earlier plans found it due, too.

A plan cannot see an operation that is in progress. For example, while a commit waits for its hook, its staged objects
are no longer staged and not in a commit yet. If a writer overwrites their paths meanwhile, nothing shows these objects.
So an object waits until a plan that found it due is `settle` old, and every later plan has found it due, too.
Source: docs/uncommitted.md, "Settling".
"""

from datetime import datetime, timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from retention_assets.core.states import CANDIDATE, UNREFERENCED, WAITING
from retention_assets.tables import DELETION_CANDIDATES, SAME_OBJECT

_LISTING = timedelta(hours=1)  # the settling time begins at most this long before the newest reading of the repository


def settling_start(oldest: datetime, newest_read: datetime) -> datetime:
    """Return the time at which the settling time of an object begins if this plan finds it due (UTC).

    This is the time of the plan's oldest input, or one hour before the newest reading of the references or the staged
    list, whichever is later. The listing can be days old: a store's inventory, or the table of an earlier run. An
    operation that began after the listing, and before that reading, can hide objects from the plan.
    """
    return max(oldest, newest_read - _LISTING)


def settled(
    objects: DataFrame,
    earlier: DataFrame,
    found_at: datetime,
    now: datetime,
    settle: timedelta,
    *,
    settle_expired: bool,
) -> DataFrame:
    """Return the objects with `found_at` and `waits_until`; a candidate that has not settled becomes `waiting`.

    Args:
        objects: the classified objects, each with its state (see `candidates.classified`).
        earlier: `due_objects` of the last plan: its candidates and waiting objects, and when each was first found due.
        found_at: the time from which an object waits if this plan is the first that finds it due (UTC): see
            `settling_start`.
        now: when this plan's references or its staged list were read (UTC), whichever was read first. An object has
            settled if its `waits_until` is not after `now`. Usually `found_at` is older than `now`. So if plans are
            made at the same time each day, a `settle` of one day ends with the next plan.
        settle: how long an object must have been due; with zero, no object waits.
        settle_expired: whether objects that a commit references wait too.
    """
    # One row per object, so that the join repeats no object.
    since = earlier.groupBy(*SAME_OBJECT).agg(F.max("found_at").alias("found_before"))
    due = F.col("state") == CANDIDATE
    found = F.least(F.coalesce("found_before", F.lit(found_at)), F.lit(found_at))
    until = F.timestamp_micros(F.unix_micros("found_at") + F.lit(settle // timedelta(microseconds=1)))
    must_wait = (F.col("reason") == UNREFERENCED) | F.lit(settle_expired)
    waits = due & must_wait & F.lit(bool(settle)) & F.coalesce(F.col("waits_until") > F.lit(now), F.lit(False))
    return (
        objects.join(since, on=list(SAME_OBJECT), how="left")
        .withColumn("found_at", F.when(due, found))
        .withColumn("waits_until", F.when(due, until))
        .withColumn("state", F.when(waits, F.lit(WAITING)).otherwise(F.col("state")))
        .drop("found_before")
    )


def candidates(due: DataFrame) -> DataFrame:
    """Return the candidates among the objects that `due` of the system's rules returns, one row per address."""
    return due.where(F.col("state") == CANDIDATE).select(*DELETION_CANDIDATES.schema.names)
