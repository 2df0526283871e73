"""The digest of a set of candidates: equal for equal sets, and different for different sets."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from retention_assets.core.digest import candidates_digest
from retention_assets.tables import DELETION_CANDIDATES
from tests.frames import MICROSECOND, OLD, Candidate, address, candidates

ROWS = tuple(Candidate(address(number), size=number) for number in range(300))
ONE = Candidate(address(1))
OTHER: dict[str, Any] = {
    "address": address(2),
    "size": 11,
    "last_modified": OLD + MICROSECOND,
    "etag": "another",
    "reason": "lifecycle",
    "rule_ids": ("retention:default", "retention:dev"),
    "paths": ("some", "path"),
    "branches": (),
    "due_since": None,
    "first_committed_at": OLD - MICROSECOND,
    "last_committed_at": None,
}


@pytest.fixture(scope="module")
def digest(spark: SparkSession) -> str:
    return candidates_digest(candidates(spark, *ROWS))


@pytest.mark.parametrize(
    "arranged",
    [
        pytest.param(lambda frame: frame.orderBy("address", ascending=False), id="another_order"),
        pytest.param(lambda frame: frame.repartition(7, "size"), id="more_partitions"),
        pytest.param(lambda frame: frame.coalesce(1), id="one_partition"),
        pytest.param(lambda frame: frame.select(*reversed(frame.columns)), id="another_order_of_columns"),
    ],
)
def test_order_and_partitions_do_not_change_the_digest(
    spark: SparkSession, digest: str, arranged: Callable[[DataFrame], DataFrame]
) -> None:
    assert candidates_digest(arranged(candidates(spark, *ROWS))) == digest


def test_a_change_in_any_column_changes_the_digest(spark: SparkSession) -> None:
    changed = {column: replace(ONE, **{column: OTHER[column]}) for column in DELETION_CANDIDATES.schema.names}
    digest = candidates_digest(candidates(spark, ONE))
    assert [column for column, row in changed.items() if candidates_digest(candidates(spark, row)) == digest] == []


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(ROWS[:-1], id="one_row_less"),
        pytest.param((*ROWS, ROWS[0]), id="one_row_twice"),
        pytest.param((*ROWS, Candidate(address(1000))), id="one_row_more"),
        pytest.param(
            (replace(ROWS[0], size=ROWS[1].size), replace(ROWS[1], size=ROWS[0].size), *ROWS[2:]), id="swapped"
        ),
    ],
)
def test_another_set_of_candidates_has_another_digest(
    spark: SparkSession, digest: str, rows: tuple[Candidate, ...]
) -> None:
    assert candidates_digest(candidates(spark, *rows)) != digest


def test_the_digest_of_no_candidates_is_the_sha256_of_no_bytes(spark: SparkSession) -> None:
    assert candidates_digest(candidates(spark)) == hashlib.sha256(b"").hexdigest()


def test_paths_that_join_to_the_same_text_differ(spark: SparkSession) -> None:
    one = replace(ONE, paths=('a","b',))
    two = replace(ONE, paths=("a", "b"))
    assert candidates_digest(candidates(spark, one)) != candidates_digest(candidates(spark, two))
