"""An object is a candidate only if a plan named it at least `settle` ago, and every plan since then named it too."""

from datetime import datetime, timedelta

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from retention_assets.core.settle import settled
from tests import frames
from tests.frames import DAY, MICROSECOND, NOW, OLD, Listed, address

NAME = address(1)


def objects(spark: SparkSession, reason: str, state: str = "candidate", modified: datetime = OLD) -> DataFrame:
    listed = frames.inventory(spark, Listed(NAME, last_modified=modified))
    return listed.withColumns({"reason": F.lit(reason), "state": F.lit(state)})


def earlier(spark: SparkSession, found_at: datetime | None, modified: datetime = OLD) -> DataFrame:
    rows = frames.inventory(spark, *([Listed(NAME, last_modified=modified)] if found_at else []))
    return rows.withColumn("found_at", F.lit(found_at).cast("timestamp"))


FOUND_BEFORE = {
    "no_plan_named_it": (None, "waiting"),
    "named_not_long_enough_ago": (NOW - DAY + MICROSECOND, "waiting"),
    "named_exactly_long_enough_ago": (NOW - DAY, "candidate"),
    "named_long_ago": (NOW - 9 * DAY, "candidate"),
    "named_in_the_future_by_a_clock_that_was_wrong": (NOW + DAY, "waiting"),
}


@pytest.mark.parametrize("reason", ["unreferenced", "expired", "lifecycle"])
def test_a_candidate_waits_until_it_has_settled(spark: SparkSession, reason: str) -> None:
    listed = frames.inventory(spark, *map(Listed, FOUND_BEFORE))
    known = [(name, at) for name, (at, _) in FOUND_BEFORE.items() if at]
    found = spark.createDataFrame(known, "address string, found_at timestamp")
    candidates = listed.withColumns({"reason": F.lit(reason), "state": F.lit("candidate")})
    rows = settled(candidates, listed.join(found, "address"), NOW, NOW, DAY, settle_expired=True).toArrow()
    made = {row["address"]: row for row in rows.to_pylist()}
    assert made.keys() == FOUND_BEFORE.keys()
    for case, (before, state) in FOUND_BEFORE.items():
        found_at = min(before or NOW, NOW)
        decision = (made[case]["state"], made[case]["found_at"], made[case]["waits_until"])
        assert decision == (state, found_at, found_at + DAY), case


def test_an_object_that_an_earlier_plan_stored_twice_is_one_object_and_waits_from_the_later_time(
    spark: SparkSession,
) -> None:
    before = earlier(spark, NOW - 9 * DAY).unionAll(earlier(spark, NOW - DAY / 2))
    rows = settled(objects(spark, "unreferenced"), before, NOW, NOW, DAY, settle_expired=True).toArrow().to_pylist()
    assert [(row["address"], row["state"], row["waits_until"]) for row in rows] == [(NAME, "waiting", NOW + DAY / 2)]


def test_another_object_at_the_same_address_waits_again(spark: SparkSession) -> None:
    before = earlier(spark, NOW - 9 * DAY, modified=OLD - DAY)
    row = settled(objects(spark, "unreferenced"), before, NOW, NOW, DAY, settle_expired=True).first()
    assert row is not None
    assert row["state"] == "waiting"


@pytest.mark.parametrize(("reason", "state"), [("unreferenced", "waiting"), ("expired", "candidate")])
def test_committed_objects_do_not_wait_if_settle_expired_is_off(spark: SparkSession, reason: str, state: str) -> None:
    row = settled(objects(spark, reason), earlier(spark, None), NOW, NOW, DAY, settle_expired=False).first()
    assert row is not None
    assert row["state"] == state


def test_nothing_waits_without_a_settling_time(spark: SparkSession) -> None:
    row = settled(
        objects(spark, "unreferenced"), earlier(spark, None), NOW, NOW, timedelta(0), settle_expired=True
    ).first()
    assert row is not None
    assert row["state"] == "candidate"


def test_a_kept_object_does_not_become_a_candidate_by_waiting(spark: SparkSession) -> None:
    before = earlier(spark, NOW - 9 * DAY)
    row = settled(objects(spark, "expired", state="kept"), before, NOW, NOW, DAY, settle_expired=True).first()
    assert row is not None
    assert (row["state"], row["found_at"]) == ("kept", None)
