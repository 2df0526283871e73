"""The comparison of two sets of candidates: the changes, their amounts, and the heads that have the objects."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from retention_assets.lakefs.sweep.diff import at_heads, changed_amounts, compared, head_amounts, with_heads
from retention_assets.tables import COMMIT_GRAPH, DELETION_CANDIDATES
from tests.frames import (
    OLD,
    Candidate,
    CommitRow,
    Pair,
    address,
    addresses,
    as_dicts,
    candidates,
    commits,
)

ONE, TWO, THREE, FOUR = (address(number) for number in range(1, 5))
HERE = Candidate(ONE, 10, reason="expired", rule_ids=("retention:default",))


def changes(spark: SparkSession, before: Sequence[Candidate], after: Sequence[Candidate]) -> DataFrame:
    return compared(candidates(spark, *before), candidates(spark, *after))


def amounts(frame: DataFrame) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in frame.collect()]


# Each case is about an object of its own, whose address is the name of the case.
CHANGES: dict[str, tuple[Sequence[Candidate], Sequence[Candidate], str]] = {
    "only_the_later_side_names_it": ((), (HERE,), "newly_freed"),
    "only_the_earlier_side_names_it": ((HERE,), (), "no_longer_freed"),
    "both_do": ((HERE,), (HERE,), "freed_alike"),
    "for_another_reason": ((HERE,), (replace(HERE, reason="lifecycle"),), "freed_otherwise"),
    "by_another_rule": ((HERE,), (replace(HERE, rule_ids=("a",)),), "freed_otherwise"),
    "by_no_rule_any_more": ((HERE,), (replace(HERE, rule_ids=()),), "freed_otherwise"),
    "since_another_day": ((HERE,), (replace(HERE, due_since=None),), "freed_alike"),
}


def test_each_object_of_either_side_has_one_change(spark: SparkSession) -> None:
    before = [replace(row, address=case) for case, (rows, _, _) in CHANGES.items() for row in rows]
    after = [replace(row, address=case) for case, (_, rows, _) in CHANGES.items() for row in rows]
    rows = changes(spark, before, after).collect()
    assert sorted((row["address"], row["change"]) for row in rows) == sorted(
        (case, change) for case, (_, _, change) in CHANGES.items()
    )
    for row in rows:
        before_it, after_it, _ = CHANGES[row["address"]]
        assert (row["reason_before"] is None, row["reason_after"] is None) == (not before_it, not after_it)


def test_two_sides_without_candidates_have_no_change(spark: SparkSession) -> None:
    assert changes(spark, (), ()).count() == 0


def test_a_row_has_both_reasons_and_the_paths_of_the_later_set(spark: SparkSession) -> None:
    later = Candidate(ONE, 20, reason="lifecycle", rule_ids=("raw",), paths=("b/2",), branches=("dev",))
    (row,) = as_dicts(changes(spark, (HERE,), (later,)), "address")
    assert row == {
        "address": ONE,
        "change": "freed_otherwise",
        "size": 20,
        "paths": ["b/2"],
        "branches": ["dev"],
        "reason_before": "expired",
        "reason_after": "lifecycle",
        "rule_ids_before": ["retention:default"],
        "rule_ids_after": ["raw"],
    }


def test_an_object_of_only_the_earlier_set_has_its_paths(spark: SparkSession) -> None:
    (row,) = changes(spark, (replace(HERE, paths=("a/1",), branches=("dev",)),), ()).collect()
    assert (row["size"], row["paths"], row["branches"]) == (10, ["a/1"], ["dev"])


def test_amounts_are_counted_by_change_reason_prefix_and_branch(spark: SparkSession) -> None:
    before = (HERE, Candidate(TWO, 5), Candidate(THREE, 7, rule_ids=("a",)))
    after = (
        replace(HERE, reason="lifecycle", rule_ids=("raw",)),
        Candidate(THREE, 7, rule_ids=("b",)),
        Candidate(FOUR, 100, paths=("raw/x",), branches=("dev", "main")),
    )
    assert amounts(changed_amounts(changes(spark, before, after), 12)) == [
        ("freed_otherwise", "branch", "main", 2, 17),
        ("freed_otherwise", "prefix", "some/", 2, 17),
        ("freed_otherwise", "reason", "expired → lifecycle", 1, 10),
        ("freed_otherwise", "reason", "expired, other rules", 1, 7),
        ("freed_otherwise", "total", "", 2, 17),
        ("newly_freed", "branch", "dev", 1, 100),
        ("newly_freed", "branch", "main", 1, 100),
        ("newly_freed", "prefix", "raw/", 1, 100),
        ("newly_freed", "reason", "expired", 1, 100),
        ("newly_freed", "total", "", 1, 100),
        ("no_longer_freed", "branch", "main", 1, 5),
        ("no_longer_freed", "prefix", "some/", 1, 5),
        ("no_longer_freed", "reason", "expired", 1, 5),
        ("no_longer_freed", "total", "", 1, 5),
    ]


def test_objects_without_branch_and_path_are_counted_too(spark: SparkSession) -> None:
    row = Candidate(ONE, 3, reason="unreferenced", rule_ids=(), paths=(), branches=())
    assert [found[1:] for found in amounts(changed_amounts(changes(spark, (), (row,)), 12))] == [
        ("branch", "(no branch)", 1, 3),
        ("prefix", "(no path)", 1, 3),
        ("reason", "unreferenced", 1, 3),
        ("total", "", 1, 3),
    ]


def test_amounts_of_systems_without_paths_are_counted_by_directory(spark: SparkSession) -> None:
    row = Candidate("chunks/0", 3, paths=())
    found_amounts = amounts(changed_amounts(changes(spark, (), (row,)), 12, have_paths=False))
    assert ("newly_freed", "prefix", "chunks/", 1, 3) in found_amounts


def test_only_the_largest_groups_of_each_change_are_returned(spark: SparkSession) -> None:
    """Of three prefixes, the two largest are returned. The total counts all three."""
    rows = [Candidate(address(number), number, paths=(f"p{number}/x",)) for number in (1, 2, 3)]
    two_sides = changes(spark, [Candidate(address(9), 9, paths=("q/x",))], rows)
    found_amounts = [found for found in amounts(changed_amounts(two_sides, 2)) if found[1] in ("prefix", "total")]
    assert found_amounts == [
        ("newly_freed", "prefix", "p3/", 1, 3),
        ("newly_freed", "prefix", "p2/", 1, 2),
        ("newly_freed", "total", "", 3, 6),
        ("no_longer_freed", "prefix", "q/", 1, 9),
        ("no_longer_freed", "total", "", 1, 9),
    ]


def graph(spark: SparkSession, **names: tuple[list[str], list[str]]) -> DataFrame:
    """Return a graph of commits, each with the branches whose head it is and with its tags."""
    shared = {"parents": [], "created_at": OLD, "metarange_id": "m", "branches": ["main"], "dangling": False}
    rows = [{"commit_id": name, "head_of": heads, "tags": tags, **shared} for name, (heads, tags) in names.items()]
    return spark.createDataFrame(pa.Table.from_pylist(rows, schema=COMMIT_GRAPH.schema))


def test_commits_at_heads_have_the_names_of_their_branches_and_tags(spark: SparkSession) -> None:
    known = graph(spark, a=(["main", "dev"], ["v1"]), b=([], []), c=([], ["main"]))
    found = at_heads(commits(spark, *(CommitRow(name, "m", branches=["main"]) for name in "abc")), known)
    assert {row["commit_id"]: row["branches"] for row in found.collect()} == {
        "a": ["main", "dev", "tag v1"],
        "c": ["tag main"],
    }
    assert sorted(found.columns) == sorted(commits(spark).columns)


def with_names(spark: SparkSession) -> DataFrame:
    """Return four changes: an object at two heads, one at one head, one that is not newly freed, an old version."""
    freed = [Candidate(ONE, 10), Candidate(TWO, 20), Candidate(FOUR, 40)]
    found = changes(spark, [Candidate(THREE, 30)], freed)
    pairs = [Pair(ONE, "a", branches=["main"]), Pair(ONE, "b", branches=["dev", "main"])]
    pairs += [Pair(TWO, "c", branches=["tag v1"]), Pair(THREE, "d", branches=["main"])]
    return with_heads(found, addresses(spark, *pairs))


def test_newly_freed_objects_have_the_heads_of_all_their_paths(spark: SparkSession) -> None:
    assert {row["address"]: row["heads"] for row in with_names(spark).collect()} == {
        ONE: ["dev", "main"],
        TWO: ["tag v1"],
        THREE: [],
        FOUR: [],
    }


@pytest.mark.parametrize(
    ("most", "found_amounts"),
    [
        pytest.param(3, [("", 2, 30), ("tag v1", 1, 20), ("dev", 1, 10), ("main", 1, 10)], id="all"),
        pytest.param(1, [("", 2, 30), ("tag v1", 1, 20)], id="the_largest"),
    ],
)
def test_objects_that_heads_lose_count_once_in_total_and_once_for_each_head(
    spark: SparkSession, most: int, found_amounts: list[tuple[str, int, int]]
) -> None:
    assert amounts(head_amounts(with_names(spark), most)) == found_amounts


def test_no_head_loses_anything_where_nothing_changes(spark: SparkSession) -> None:
    empty = spark.createDataFrame(DELETION_CANDIDATES.schema.empty_table())
    assert amounts(head_amounts(with_heads(compared(empty, empty), addresses(spark)), 12)) == []
