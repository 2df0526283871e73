"""From commits and ranges to (path, address) pairs: their commits, their age, and whether they are retained."""

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from retention_assets.lakefs.rules.ranges import active_ranges, addresses
from retention_assets.lakefs.source.ranges import METARANGE_RANGES, RANGE_ENTRIES
from retention_assets.tables import ACTIVE_RANGES, ADDRESSES
from retention_assets.warehouse.table_writer import conform
from tests.frames import DAY, NOW, OLD, CommitRow, as_dicts, commits

#   first  {r1}      10 days ago, due 3 days ago by `default`
#   second {r1, r2}   9 days ago, due 2 days ago by `dev`
#   head   {r2, r3}   1 day ago, active
COMMITS = (
    CommitRow("first", "m1", ["dev", "main"], NOW - 10 * DAY, due_since=NOW - 3 * DAY, rule_id="default"),
    CommitRow("second", "m2", ["dev"], NOW - 9 * DAY, due_since=NOW - 2 * DAY, rule_id="dev"),
    CommitRow("head", "m3", ["main"], NOW - DAY, active=True),
    CommitRow("created", "", ["main"], NOW - 11 * DAY, active=True),
)
RANGES = (("m1", "r1"), ("m2", "r1"), ("m2", "r2"), ("m3", "r2"), ("m3", "r3"))


def of_commits(spark: SparkSession, *rows: tuple[str, str]) -> DataFrame:
    listed = [{"metarange_id": metarange, "range_id": one, "count": 1, "file_bytes": 0} for metarange, one in rows]
    return spark.createDataFrame(pa.Table.from_pylist(listed, schema=METARANGE_RANGES))


def entries(spark: SparkSession, *rows: tuple[str, str, str], size: int = 7) -> DataFrame:
    found = [
        {"range_id": one, "key": key, "address": address, "size": size, "last_modified": OLD, "file_bytes": 0}
        for one, key, address in rows
    ]
    return spark.createDataFrame(pa.Table.from_pylist(found, schema=RANGE_ENTRIES))


@pytest.fixture(scope="module")
def held(spark: SparkSession) -> DataFrame:
    return conform(active_ranges(commits(spark, *COMMITS), of_commits(spark, *RANGES)), ACTIVE_RANGES).cache()


@pytest.mark.long
def test_a_range_has_the_branches_of_all_its_commits_and_the_age_of_the_oldest(held: DataFrame) -> None:
    r1, r2, r3 = as_dicts(held, "range_id")
    assert (r1["range_id"], r2["range_id"], r3["range_id"]) == ("r1", "r2", "r3")
    assert (r1["branches"], r2["branches"], r3["branches"]) == (["dev", "main"], ["dev", "main"], ["main"])
    assert (r1["first_added_at"], r2["first_added_at"]) == (NOW - 10 * DAY, NOW - 9 * DAY)
    assert (r1["last_held_at"], r2["last_held_at"]) == (NOW - 9 * DAY, NOW - DAY)


def test_a_range_is_due_since_the_last_of_its_commits_expired(held: DataFrame) -> None:
    r1, _, _ = as_dicts(held, "range_id")
    assert (r1["active"], r1["due_since"], r1["rule_ids"]) == (False, NOW - 2 * DAY, ["default", "dev"])


def test_a_range_of_an_active_commit_is_not_due_although_an_older_commit_of_it_is(held: DataFrame) -> None:
    _, r2, r3 = as_dicts(held, "range_id")
    assert (r2["active"], r2["due_since"]) == (True, None)
    assert (r3["active"], r3["due_since"], r3["rule_ids"]) == (True, None, [])


def test_an_empty_commit_adds_no_range(spark: SparkSession) -> None:
    made = active_ranges(commits(spark, *COMMITS[3:]), of_commits(spark, ("", "r9")))
    assert made.count() == 0


@pytest.mark.parametrize("flag", ["active", "potential", "protected"])
def test_one_commit_of_many_is_enough_to_keep_a_range(spark: SparkSession, flag: str) -> None:
    set_on_one: dict[str, Any] = {flag: True}
    rows = (CommitRow("c1", "m1"), CommitRow("c2", "m2", **set_on_one), CommitRow("c3", "m3"))
    made = active_ranges(commits(spark, *rows), of_commits(spark, ("m1", "r"), ("m2", "r"), ("m3", "r"), ("m3", "s")))
    r, s = as_dicts(made, "range_id")
    assert (r[flag], s[flag]) == (True, False)


def test_an_address_at_two_paths_is_two_pairs_and_a_pair_in_two_ranges_is_one(
    spark: SparkSession, held: DataFrame
) -> None:
    found = entries(spark, ("r1", "a", "x"), ("r3", "b", "x"), ("r1", "c", "y"), ("r2", "c", "y"), ("r1", "d", "z"))
    x_a, x_b, y_c, z_d = as_dicts(conform(addresses(held, found), ADDRESSES), "address", "key")
    assert [row["key"] for row in (x_a, x_b, y_c, z_d)] == ["a", "b", "c", "d"]
    assert (x_a["active"], x_a["due_since"], x_a["branches"]) == (False, NOW - 2 * DAY, ["dev", "main"])
    assert (x_b["active"], x_b["due_since"], x_b["branches"]) == (True, None, ["main"])
    assert (y_c["active"], y_c["due_since"]) == (True, None)
    assert (y_c["added_at"], y_c["last_held_at"], y_c["range_id"]) == (NOW - 10 * DAY, NOW - DAY, "r1")
    assert (z_d["size"], z_d["last_modified"], z_d["rule_ids"]) == (7, OLD, ["default", "dev"])


def test_a_pair_whose_entries_have_different_sizes_has_a_row_for_each(spark: SparkSession, held: DataFrame) -> None:
    """Staged objects are compared with the size in the entry of a head, not with that of an older commit."""
    found = entries(spark, ("r1", "a", "x"), size=20).unionByName(entries(spark, ("r3", "a", "x"), size=10))
    of_head, older = as_dicts(conform(addresses(held, found), ADDRESSES), "size")
    assert (of_head["size"], of_head["active"], of_head["branches"]) == (10, True, ["main"])
    assert (older["size"], older["active"], older["branches"]) == (20, False, ["dev", "main"])


def test_entries_of_ranges_without_a_commit_are_not_pairs(spark: SparkSession, held: DataFrame) -> None:
    assert addresses(held, entries(spark, ("r9", "a", "x"))).count() == 0


def test_the_oldest_commit_decides_even_if_it_was_written_last(spark: SparkSession) -> None:
    backdated = (CommitRow("new", "m1", created_at=NOW), CommitRow("old", "m2", created_at=NOW - timedelta(days=900)))
    made = active_ranges(commits(spark, *backdated), of_commits(spark, ("m1", "r"), ("m2", "r")))
    assert as_dicts(made, "range_id")[0]["first_added_at"] == NOW - timedelta(days=900)
