"""An object goes only when an earlier plan already named it: the settling time.

No look at a repository sees an operation that is under way. A commit that waits for its hook has sealed its staged
objects: while a writer overwrites their paths they are in no list and in no commit. So an object waits until a plan
that named it is `settle` old, and every plan since has named it too. Source: DESIGN.md, invariant 5.
"""

from datetime import datetime, timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from retention_assets.core.states import CANDIDATE, UNREFERENCED, WAITING

_SAME_OBJECT = ("address", "size", "last_modified")


def settled(
    objects: DataFrame,
    earlier: DataFrame,
    listed_at: datetime,
    now: datetime,
    settle: timedelta,
    *,
    settle_expired: bool,
) -> DataFrame:
    """Return the objects with `found_at` and `waits_until`; a candidate that has not settled is `waiting`.

    Args:
        objects: as `candidates.judged` returns them, each with its state.
        earlier: `due_objects` of the last plan: what it named, waiting objects included, and since when.
        listed_at: since when this plan names an object (UTC): its listing, or at most an hour before its staged list.
        now: when this plan's references were read (UTC). The time between plans counts from a listing to references,
            so that plans at the same time of each day are a day apart.
        settle: how long an object must have been named; zero lets everything go at once.
        settle_expired: whether objects that a commit holds wait as well.
    """
    since = earlier.select(*_SAME_OBJECT, F.col("found_at").alias("found_before"))
    due = F.col("state") == CANDIDATE
    found = F.least(F.coalesce("found_before", F.lit(listed_at)), F.lit(listed_at))
    until = F.timestamp_micros(F.unix_micros("found_at") + F.lit(settle // timedelta(microseconds=1)))
    must_wait = (F.col("reason") == UNREFERENCED) | F.lit(settle_expired)
    waits = due & must_wait & F.coalesce(F.col("waits_until") > F.lit(now), F.lit(False))
    return (
        objects.join(since, on=list(_SAME_OBJECT), how="left")
        .withColumn("found_at", F.when(due, found))
        .withColumn("waits_until", F.when(due, until))
        .withColumn("state", F.when(waits, F.lit(WAITING)).otherwise(F.col("state")))
        .drop("found_before")
    )
