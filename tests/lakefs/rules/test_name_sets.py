"""The union of sets of names as bits is the union of lists."""

from dataclasses import replace
from random import Random

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from retention_assets.errors import TableContractError
from retention_assets.lakefs.rules.name_sets import NameSets
from retention_assets.spark.frames import from_arrow, union_of
from retention_assets.tables import NAMES, STRINGS

LISTS = ("branches", "left_branches", "rule_ids")
SCHEMA = "number int, branches array<string>, left_branches array<string>, rule_ids array<string>"
MANY = [*(f"branch-{number}" for number in range(150)), "é", "日本", "it's"]  # three words of 64 bits


def rows(spark: SparkSession) -> DataFrame:
    random = Random(7)
    names = [
        (random.randint(0, 20), *(random.sample(MANY, random.randint(0, most)) for most in (5, 3, 2)))
        for _ in range(300)
    ]
    return spark.createDataFrame([*names, (21, [], [], []), (22, MANY, [], ["é"])], SCHEMA)


@pytest.mark.long
def test_the_union_of_sets_is_the_union_of_the_lists(spark: SparkSession) -> None:
    lists = rows(spark)
    names = NameSets.of(lists)
    united = names.decoded(names.encoded(lists).groupBy("number").agg(*names.united()))
    expected = lists.groupBy("number").agg(*(union_of(name).alias(name) for name in LISTS))
    assert united.select(*expected.columns).orderBy("number").collect() == expected.orderBy("number").collect()


def test_a_column_of_many_names_in_short_lists_stays_a_column_of_lists(spark: SparkSession) -> None:
    wide = [(number % 7, [f"name-{number}", f"name-{number // 2}"], ["dev"], []) for number in range(1500)]
    lists = spark.createDataFrame([*wide, (7, None, ["main"], None)], SCHEMA)
    names = NameSets.of(lists)
    assert names.as_lists == ("branches",)
    united = names.decoded(names.encoded(lists).groupBy("number").agg(*names.united()))
    expected = lists.groupBy("number").agg(*(union_of(name).alias(name) for name in LISTS))
    assert united.select(*expected.columns).orderBy("number").collect() == expected.orderBy("number").collect()


def test_a_column_of_many_names_in_long_lists_has_bits(spark: SparkSession) -> None:
    every = [f"name-{number}" for number in range(1500)]
    names = NameSets.of(spark.createDataFrame([(1, every, [], []), (2, every[7:], [], [])], SCHEMA))
    assert (names.as_lists, names.names["branches"]) == ((), tuple(sorted(every)))


def test_rows_without_any_name_have_empty_lists(spark: SparkSession) -> None:
    lists = rows(spark).where("number = 21")
    names = NameSets.of(lists)
    assert names.names == dict.fromkeys(LISTS, ())
    assert names.decoded(names.encoded(lists)).collect() == lists.collect()


def commits(kind: pa.DataType) -> pa.Table:
    branches = pa.array([["main", "dev"], [], MANY], STRINGS)
    return pa.table(
        {
            "branches": branches.cast(kind),
            "left_branches": pa.array([[], ["gone"], []], STRINGS).cast(kind),
            "rule_id": pa.array(["retention:default", None, "retention:default"]),
        }
    )


@pytest.mark.parametrize("kind", [STRINGS, NAMES])
def test_the_lists_of_commits_on_the_driver_have_the_bits_that_spark_gives_them(
    spark: SparkSession, kind: pa.DataType
) -> None:
    held = commits(kind)
    names = NameSets.of_commits(held)
    assert {column: set(every) for column, every in names.names.items()} == {
        "branches": {*MANY, "dev", "main"},
        "left_branches": {"gone"},
        "rule_ids": {"retention:default"},
    }
    read = from_arrow(spark, held).withColumn("rule_ids", F.array_compact(F.array("rule_id"))).drop("rule_id")
    bits = from_arrow(spark, names.encoded_commits(held))
    assert names.encoded(read).select(*bits.columns).collect() == bits.collect()
    assert names.decoded(bits).collect()[2]["branches"] == sorted(MANY)


@pytest.mark.parametrize("kind", [STRINGS, NAMES])
def test_lists_of_commits_that_stay_lists_are_those_of_the_table(spark: SparkSession, kind: pa.DataType) -> None:
    held = commits(kind)
    names = replace(NameSets.of_commits(held), as_lists=("branches",))
    rows = names.decoded(from_arrow(spark, names.encoded_commits(held))).collect()
    assert [row["branches"] for row in rows] == held["branches"].to_pylist()
    assert [row["left_branches"] for row in rows] == held["left_branches"].to_pylist()


def test_a_name_that_the_commits_do_not_have_is_refused() -> None:
    with pytest.raises(TableContractError, match="has the name main, which potential_commits does not have"):
        NameSets({**dict.fromkeys(LISTS, ()), "branches": ("dev",)}).encoded_commits(commits(NAMES))
