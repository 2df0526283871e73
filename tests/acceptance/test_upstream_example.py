"""The example of the lakeFS proposal for lifecycle rules: `foo/bar` for 10 days, 5 on `b1`."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from retention_assets.warehouse.warehouse import Warehouse
from tests.acceptance.runs import Run
from tests.lakefs_repositories import Version, address, build_repository

NOW = datetime(2025, 11, 1, tzinfo=UTC)  # the begin of the planned day: ages are whole days
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
LAST_YEAR = NOW - 365 * DAY
RULES = {"rule": {"prefix": "foo/bar", "days": 10, "enabled": True, "branch_days": {"b1": 5}}}


def due(
    spark: SparkSession, directory: Path, commits: list[Version], branches: Mapping[str, str], *more: Mapping[str, Any]
) -> set[str]:
    """Return the paths that are due under these policies. All must be due by lifecycle rules."""
    held = {name: path for commit in commits for path, name in commit.objects.items()}
    stored = dict.fromkeys(held, LAST_YEAR)
    built = build_repository(directory, commits, branches, taken_at=NOW + HOUR, objects=stored)
    repository = built.repository(RULES, *more, tags="ignore")
    run = Run(spark, repository, Warehouse(str(directory / "warehouse")), NOW.date(), NOW + 2 * HOUR)
    found = run.found(run.snapshot())
    assert {reason for _, _, reason in found} <= {"lifecycle"}
    return {held[name] for name, _, _ in found}


@pytest.fixture(scope="module")
def example(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The due paths of a line of commits, each of which adds one path. b1 begins at the head of main."""
    of_main = {
        "foo/bar": 14, "foo/barn/old": 13, "foo/other/old": 12,
        "foo/bar/both-11": 11, "foo/bar/both-10": 10, "foo/bar/both-9": 9,
    }  # fmt: skip
    of_b1 = {"foo/bar/b1-6": 6, "foo/bar/b1-5": 5, "foo/bar/b1-4": 4}
    held: dict[str, str] = {}
    commits: list[Version] = []
    for number, (path, age) in enumerate({**of_main, **of_b1}.items()):
        held[path] = address(LAST_YEAR, number)
        commits.append(Version(path, NOW - age * DAY, dict(held), tuple(commit.name for commit in commits[-1:])))
    return due(spark, tmp_path_factory.mktemp("example"), commits, {"main": "foo/bar/both-9", "b1": "foo/bar/b1-4"})


@pytest.mark.parametrize(
    ("path", "is_due"),
    [
        pytest.param("foo/bar/both-11", True, id="main_and_b1_aged_11"),
        pytest.param("foo/bar/both-10", True, id="main_and_b1_aged_exactly_10"),
        pytest.param("foo/bar/both-9", False, id="main_and_b1_aged_9"),
        pytest.param("foo/bar/b1-6", True, id="only_b1_aged_6"),
        pytest.param("foo/bar/b1-5", True, id="only_b1_aged_exactly_5"),
        pytest.param("foo/bar/b1-4", False, id="only_b1_aged_4"),
        pytest.param("foo/bar", True, id="the_path_that_equals_the_prefix"),
        pytest.param("foo/other/old", False, id="another_prefix"),
        pytest.param("foo/barn/old", False, id="a_name_that_only_begins_like_it"),
    ],
)
def test_the_longest_retention_of_the_branches_with_a_path_decides(example: set[str], path: str, is_due: bool) -> None:
    assert (path in example) is is_due


@pytest.mark.long
def test_the_age_of_an_object_counts_from_its_oldest_commit_even_if_it_is_not_active(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A commit a day has the object. Retention keeps three days, so no active commit is ever 10 days old."""
    held = {"foo/bar/kept-on": address(LAST_YEAR, 1), "elsewhere": address(LAST_YEAR, 2)}
    commits = [
        Version(f"day-{age}", NOW - age * DAY, held, () if age == 30 else (f"day-{age + 1}",))
        for age in range(30, 0, -1)
    ]
    retention = {"default_retention_days": 3, "branches": []}
    assert due(spark, tmp_path, commits, {"main": "day-1"}, retention) == {"foo/bar/kept-on"}
