"""The candidates in a few lines: by reason, by first directory, by branch."""

from pyspark.sql import DataFrame, SparkSession

from retention_assets.transforms.summary import by_branch, by_directory, by_reason, by_top_prefix
from tests.transforms.frames import Candidate, address, candidates


def rows(frame: DataFrame) -> list[tuple[str, int, int]]:
    return [(row["name"], row["objects"], row["bytes"]) for row in frame.collect()]


def sample(spark: SparkSession) -> DataFrame:
    return candidates(
        spark,
        Candidate(address(1), 100, paths=("raw/a", "raw/b"), branches=("dev", "main")),
        Candidate(address(2), 10, paths=("raw/a/b",), branches=("dev",)),
        Candidate(address(3), 1, paths=("README",), branches=(), reason="lifecycle"),
        Candidate(address(4), 1, paths=(), branches=(), reason="unreferenced"),
    )


def test_the_largest_comes_first_and_equals_by_name(spark: SparkSession) -> None:
    assert rows(by_reason(sample(spark))) == [("expired", 2, 110), ("lifecycle", 1, 1), ("unreferenced", 1, 1)]


def test_a_file_at_the_top_is_its_own_prefix_and_no_path_is_said(spark: SparkSession) -> None:
    assert rows(by_top_prefix(sample(spark))) == [("raw/", 2, 110), ("(no path)", 1, 1), ("README", 1, 1)]


def test_without_paths_the_directory_of_the_address_counts(spark: SparkSession) -> None:
    found = candidates(spark, Candidate("chunks/a", 5), Candidate("chunks/b", 4), Candidate("snapshots/a", 7))
    assert rows(by_directory(found)) == [("chunks/", 2, 9), ("snapshots/", 1, 7)]


def test_an_object_counts_for_each_of_its_branches(spark: SparkSession) -> None:
    assert rows(by_branch(sample(spark))) == [("dev", 2, 110), ("main", 1, 100), ("(no branch)", 2, 2)]


def test_no_candidates_give_no_lines(spark: SparkSession) -> None:
    assert rows(by_branch(candidates(spark))) == []
