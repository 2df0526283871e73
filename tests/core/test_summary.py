"""The candidates in a few lines: by reason, by first directory, by branch."""

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from retention_assets.core.totals import BRANCH, PREFIX, REASON, TOTAL, largest_groups, top_of, top_prefix
from tests.frames import Candidate, address, candidates

Groups = list[tuple[str, int, int]]


def groups(objects: DataFrame, by: str, *, place: Column | None = None, most: int = 12, part: str = "all") -> Groups:
    parted = objects if part in objects.columns else objects.withColumn(part, F.lit("one"))
    found = largest_groups(parted, part, F.col("reason"), top_prefix() if place is None else place, most).collect()
    return [(row["name"], row["objects"], row["bytes"]) for row in found if row["by"] == by]


def sample(spark: SparkSession) -> DataFrame:
    return candidates(
        spark,
        Candidate(address(1), 100, paths=("raw/a", "raw/b"), branches=("dev", "main")),
        Candidate(address(2), 10, paths=("raw/a/b",), branches=("dev",)),
        Candidate(address(3), 1, paths=("README",), branches=(), reason="lifecycle"),
        Candidate(address(4), 1, paths=(), branches=(), reason="unreferenced"),
    )


def test_groups_are_sorted_by_size_and_then_by_name(spark: SparkSession) -> None:
    assert groups(sample(spark), REASON) == [("expired", 2, 110), ("lifecycle", 1, 1), ("unreferenced", 1, 1)]
    assert groups(sample(spark), TOTAL) == [("", 4, 112)]


def test_a_file_at_the_top_is_its_own_prefix_and_a_missing_path_has_its_own_group(spark: SparkSession) -> None:
    assert groups(sample(spark), PREFIX) == [("raw/", 2, 110), ("(no path)", 1, 1), ("README", 1, 1)]


def test_objects_without_paths_are_grouped_by_the_directory_of_their_address(spark: SparkSession) -> None:
    found = candidates(spark, Candidate("chunks/a", 5), Candidate("chunks/b", 4), Candidate("snapshots/a", 7))
    assert groups(found, PREFIX, place=top_of(F.col("address"))) == [("chunks/", 2, 9), ("snapshots/", 1, 7)]


def test_an_object_counts_for_each_of_its_branches(spark: SparkSession) -> None:
    assert groups(sample(spark), BRANCH) == [("dev", 2, 110), ("main", 1, 100), ("(no branch)", 2, 2)]


def test_no_candidates_give_no_groups(spark: SparkSession) -> None:
    assert groups(candidates(spark), BRANCH) == []


def test_only_the_largest_groups_of_each_part_are_returned(spark: SparkSession) -> None:
    assert groups(sample(spark), PREFIX, most=1) == [("raw/", 2, 110)]
    by_part = sample(spark).withColumn("part", F.col("reason"))
    assert groups(by_part, PREFIX, most=1, part="part") == [("raw/", 2, 110), ("README", 1, 1), ("(no path)", 1, 1)]
