import csv
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyspark.sql import DataFrame, SparkSession

from retention_assets.errors import StoreError, own_error
from retention_assets.lakefs.sweep.results import rule_statistics, write_results, write_statistics
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.outcomes import Outcome
from retention_assets.tables import DELETION_REPORT
from tests.frames import NOW, Candidate, address, candidates

DAY = date(2026, 11, 1)
STARTED = datetime(2026, 11, 1, 3, tzinfo=UTC)
EXPIRED, BY_TWO_RULES, BY_ONE, IN_NOTHING = (address(number) for number in range(4))
PLANNED = (
    Candidate(EXPIRED, 1, rule_ids=["retention:default"], paths=["a/1", "a/2"]),
    Candidate(BY_TWO_RULES, 10, reason="lifecycle", rule_ids=["raw", "tables"], paths=["raw/1"]),
    Candidate(BY_ONE, 100, reason="lifecycle", rule_ids=["raw"], paths=["raw/2"]),
    Candidate(IN_NOTHING, 1000, reason="unreferenced", rule_ids=[], paths=[]),
)


@pytest.fixture
def lake(tmp_path: Path) -> StoreAccess:
    return StoreAccess(f"file://{tmp_path}")


def written(lake: StoreAccess) -> list[dict[str, object]]:
    """Return every row below the results' folder, with the date of its partition."""
    folder = lake.url.removeprefix("file://") + "/_lakefs/retention/lc/addresses"
    table = ds.dataset(folder, format="parquet", partitioning=ds.partitioning(flavor="hive")).to_table()
    return table.sort_by("address").to_pylist()


def statistics_file(lake: StoreAccess) -> list[dict[str, str]]:
    file = Path(lake.url.removeprefix("file://")) / "_lakefs/retention/lc/stats/2026-11-01.csv"
    with file.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def ledger(spark: SparkSession, **outcomes: list[str]) -> DataFrame:
    rows = [
        {"address": name, "size": 1, "outcome": outcome, "at": NOW}
        for outcome, names in outcomes.items()
        for name in names
    ]
    return spark.createDataFrame(pa.Table.from_pylist(rows, schema=DELETION_REPORT.schema))


def test_results_are_a_table_by_date_of_the_candidates_and_their_rules(spark: SparkSession, lake: StoreAccess) -> None:
    write_results(lake, candidates(spark, *PLANNED), DAY, "run-1")
    assert written(lake) == [
        {
            "run_id": "run-1",
            "address": planned.address,
            "paths": list(planned.paths),
            "matched_rules": list(planned.rule_ids),
            "date": "2026-11-01",
        }
        for planned in sorted(PLANNED, key=lambda planned: planned.address)
    ]


def test_results_that_are_written_again_are_not_doubled(spark: SparkSession, lake: StoreAccess) -> None:
    """A task that Spark retries has already written its rows."""
    for _ in range(2):
        write_results(lake, candidates(spark, *PLANNED).repartition(3, "address"), DAY, "run-1")
    assert len(written(lake)) == len(PLANNED)


def test_another_run_of_the_day_adds_its_own_results(spark: SparkSession, lake: StoreAccess) -> None:
    for run_id in ("run-1", "run-2"):
        write_results(lake, candidates(spark, *PLANNED), DAY, run_id)
    assert sorted({(row["run_id"], row["date"]) for row in written(lake)}) == [
        ("run-1", "2026-11-01"),
        ("run-2", "2026-11-01"),
    ]
    assert len(written(lake)) == 2 * len(PLANNED)


def test_a_plan_without_candidates_writes_no_results(spark: SparkSession, lake: StoreAccess, tmp_path: Path) -> None:
    write_results(lake, candidates(spark), DAY, "run-1")
    assert not list(tmp_path.rglob("*"))


def test_results_that_cannot_be_written_are_an_error(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "_lakefs").write_bytes(b"a file where the folder should be")
    with pytest.raises(Exception, match="file://") as caught:
        write_results(StoreAccess(f"file://{tmp_path}"), candidates(spark, *PLANNED), DAY, "run-1")
    assert isinstance(own_error(caught.value), StoreError)  # or its subclass AccessDenied


def test_statistics_count_an_object_for_each_of_its_rules_and_by_its_reason_without_any(spark: SparkSession) -> None:
    ended = ledger(
        spark,
        **{
            Outcome.DELETED: [EXPIRED],
            Outcome.MISSING: [BY_TWO_RULES],
            Outcome.FAILED: [BY_ONE],
            Outcome.SKIPPED: [IN_NOTHING],
        },
    )
    found = rule_statistics(candidates(spark, *PLANNED), ended, "run-1", "hash", STARTED)
    assert [(row.rule_id, row.objects, row.bytes, row.deleted, row.failed, row.skipped) for row in found] == [
        ("raw", 2, 110, 1, 1, 0),
        ("retention:default", 1, 1, 1, 0, 0),
        ("tables", 1, 10, 1, 0, 0),
        ("unreferenced", 1, 1000, 0, 0, 1),
    ]
    assert {(row.run_id, row.plan_hash, row.started) for row in found} == {("run-1", "hash", STARTED.isoformat())}
    assert all(datetime.fromisoformat(row.finished) > STARTED for row in found)


def test_unattempted_objects_count_only_as_planned(spark: SparkSession) -> None:
    found = rule_statistics(candidates(spark, *PLANNED), ledger(spark), "run-1", "hash", STARTED)
    assert [(row.objects, row.deleted, row.failed, row.skipped) for row in found] == [
        (2, 0, 0, 0),
        (1, 0, 0, 0),
        (1, 0, 0, 0),
        (1, 0, 0, 0),
    ]


def test_statistics_are_a_csv_of_the_day_to_which_each_attempt_adds(spark: SparkSession, lake: StoreAccess) -> None:
    for run_id, outcome in (("run-1", Outcome.FAILED), ("run-2", Outcome.DELETED)):
        ended = ledger(spark, **{outcome: [EXPIRED]})
        found = rule_statistics(candidates(spark, PLANNED[0]), ended, run_id, "hash", STARTED)
        write_statistics(lake, DAY, found)
    rows = statistics_file(lake)
    assert list(rows[0]) == [
        "run_id", "plan_hash", "started", "finished", "rule_id", "objects", "bytes", "deleted", "failed", "skipped",
    ]  # fmt: skip
    assert [(row["run_id"], row["rule_id"], row["deleted"], row["failed"]) for row in rows] == [
        ("run-1", "retention:default", "0", "1"),
        ("run-2", "retention:default", "1", "0"),
    ]


def test_a_rule_with_a_comma_and_a_quote_in_its_name_is_read_back(spark: SparkSession, lake: StoreAccess) -> None:
    odd = Candidate(EXPIRED, rule_ids=['raw, "old"\nand cold'])
    for run_id in ("run-1", "run-2"):
        write_statistics(lake, DAY, rule_statistics(candidates(spark, odd), ledger(spark), run_id, "hash", STARTED))
    assert [row["rule_id"] for row in statistics_file(lake)] == list(odd.rule_ids) * 2
