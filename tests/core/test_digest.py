"""The digest of a set of candidates: equal for equal sets, and different for different sets."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from retention_assets.core.digest import candidates_digest, counted_digest, digest_counted, table_digest
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


def table_digest_of(frame: DataFrame) -> str:
    counts = frame.agg(F.count(F.lit(1)).alias("rows"), *digest_counted(frame)).collect()[0]
    return counted_digest(counts.asDict())


LISTS = pa.schema([("one", pa.list_(pa.string())), ("other", pa.list_(pa.string())), ("text", pa.string())])


@pytest.mark.parametrize(
    ("row", "other"),
    [
        pytest.param((["a"], [], None), ([], ["a"], None), id="an_item_in_the_other_list"),
        pytest.param((None, ["a"], None), ([], ["a"], None), id="no_list_and_an_empty_list"),
        pytest.param((["a", "b"], [], None), (["b", "a"], [], None), id="another_order_of_items"),
        pytest.param(([], [], None), ([], [], ""), id="no_text_and_an_empty_text"),
        pytest.param((["a"], [], "b"), (["a", "b"], [], None), id="a_text_in_a_list"),
    ],
)
def test_tables_that_differ_in_one_value_have_different_digests(
    spark: SparkSession, row: tuple[object, ...], other: tuple[object, ...]
) -> None:
    rows = (dict(zip(LISTS.names, one, strict=True)) for one in (row, other))
    frames = [spark.createDataFrame(pa.Table.from_pylist([one], LISTS)) for one in rows]
    assert table_digest_of(frames[0]) != table_digest_of(frames[1])


def test_the_digest_of_a_table_does_not_depend_on_order_and_counts_equal_rows(spark: SparkSession) -> None:
    frame = candidates(spark, *ROWS)
    digest = table_digest_of(frame)
    assert digest == table_digest_of(frame.orderBy("size").repartition(5))
    assert digest != table_digest_of(frame.where("size > 0"))
    assert digest != table_digest_of(frame.unionAll(frame.limit(1)))
    assert digest != table_digest_of(frame.unionAll(frame))
    assert table_digest_of(frame.limit(0)) == "0-0-0-0"


def test_the_digest_of_an_arrow_table_has_every_value_and_depends_on_order_unless_a_key_is_given() -> None:
    table = pa.table({"a": ["x", "y", None], "b": [1, 2, 3]})
    reverse = table.take([2, 1, 0])
    assert table_digest(table) == table_digest(pa.table({"a": ["x", "y", None], "b": [1, 2, 3]}))
    assert table_digest(table) != table_digest(reverse)
    assert table_digest(table, "b") == table_digest(reverse, "b")
    assert table_digest(table, "b") != table_digest(table.set_column(0, "a", pa.array(["x", "", None])), "b")
    assert table_digest(table.slice(1)) == table_digest(pa.table({"a": ["y", None], "b": [2, 3]}))
    names = pa.array([["x"], ["x", "y"]], pa.list_(pa.dictionary(pa.int32(), pa.string())))
    assert table_digest(pa.table({"names": names})) != table_digest(pa.table({"names": names.take([1, 0])}))
