"""Totals are counted while the classified objects are computed, in one process and on a cluster."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from retention_assets.core.amounts import Amount
from retention_assets.core.totals import Totals, observed_totals, with_totals
from retention_assets.spark import frames

FIRST, LAST = datetime(2026, 11, 2, 1, tzinfo=UTC), datetime(2026, 11, 3, tzinfo=UTC)


@pytest.mark.parametrize("one_process", [True, False], ids=["one_process", "cluster"])
def test_totals_are_known_once_the_objects_are_computed(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, one_process: bool
) -> None:
    monkeypatch.setattr(frames, "is_one_process", lambda _: one_process)
    states = ["kept", "waiting", "waiting", "candidate"]
    until = pa.array([None, LAST, FIRST, FIRST], pa.timestamp("us", tz="UTC"))
    objects = spark.createDataFrame(pa.table({"state": states, "size": [1, 2, 3, 4], "waits_until": until}))
    counting, observed = with_totals(objects)
    with frames.CachedFrames() as cached:
        named = cached.compute(counting.where("state != 'kept'"))
        totals = observed_totals(observed)
        assert named.count() == 3
    by_state = {"candidate": Amount(1, 4), "kept": Amount(1, 1), "waiting": Amount(2, 5)}
    assert totals == Totals(by_state, FIRST, LAST)
    assert totals.objects == 4


def test_objects_without_a_waiting_time_do_not_wait(spark: SparkSession) -> None:
    objects, observed = with_totals(spark.createDataFrame(pa.table({"state": ["candidate"], "size": [4]})))
    assert objects.count() == 1
    assert observed_totals(observed) == Totals({"candidate": Amount(1, 4)}, None, None)


@pytest.mark.parametrize(
    ("micros", "expected"),
    [([None, 3_000_000, 1_000_000], datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)), ([None], None), ([2**62], None)],
    ids=["the_first_counts", "no_time", "after_the_year_9999"],
)
def test_the_first_time_at_which_age_changes_a_state_is_observed(
    spark: SparkSession, micros: list[int | None], expected: datetime | None
) -> None:
    table = pa.table({"at": pa.array(micros, pa.int64()), "state": ["young"] * len(micros), "size": [1] * len(micros)})
    objects, observed = with_totals(spark.createDataFrame(table), F.col("at"))
    assert objects.count() == len(micros)
    totals = observed_totals(observed)
    assert totals.changes_at == expected
    assert totals.changes("oldest") == ({} if expected is None else {"oldest": expected})
