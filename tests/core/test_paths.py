"""Spark and the pure rules agree on the paths that a prefix or a glob covers."""

from typing import Literal
from unicodedata import normalize

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from retention_assets.core.paths import below, below_any, covered_by_hold, is_unresolved
from retention_assets.policy.matching import glob_matches, glob_regex, prefix_covers
from retention_assets.policy.rules import Hold
from tests.frames import of

# Few letters, so that paths meet prefixes; and what regular expressions, SQL or lines make special.
PIECES = st.sampled_from(["a", "b", "foo", "bar", "/", "/", ".", "%", "_", "\\", "\n", "é", "𝛑", "[x]", "$", "^", " "])
PATHS = st.lists(PIECES, max_size=6).map("".join)
GLOBS = st.lists(PIECES | st.sampled_from(["*", "**", "?", "**/"]), max_size=6).map("".join)


@given(prefixes=st.lists(PATHS, min_size=8, max_size=8), paths=st.lists(PATHS, min_size=20, max_size=20))
@example(prefixes=["foo/bar", "foo/bar/", "", "/", "foo//"], paths=["foo/bar", "foo/bar/x", "foo/barn", "foo", "", "/"])
@settings(max_examples=12)
def test_spark_and_python_agree_on_the_paths_that_a_prefix_covers(
    spark: SparkSession, prefixes: list[str], paths: list[str]
) -> None:
    related = [*paths, *prefixes, *(f"{prefix}/x" for prefix in prefixes), *(f"{prefix}x" for prefix in prefixes)]
    found = of(spark, related, pa.string(), lambda path: F.array(*(below(path, prefix) for prefix in prefixes)))
    for path, covered in zip(related, found, strict=True):
        assert covered == [prefix_covers(prefix, path) for prefix in prefixes], path


@given(globs=st.lists(GLOBS, min_size=8, max_size=8), paths=st.lists(PATHS, min_size=20, max_size=20))
@example(
    globs=["*.csv", "**/*.csv", "raw/**", "raw/*", "a?c", "**"], paths=["x.csv", "a/x.csv", "raw/", "raw/a/b", "a/c"]
)
@example(globs=["a", "a*", "a?", "?"], paths=["a\n", "a", "\n", "a\r", "𝛑", "a𝛑", "a\u2028"])
@settings(max_examples=12)
def test_spark_and_python_agree_on_the_paths_that_a_glob_matches(
    spark: SparkSession, globs: list[str], paths: list[str]
) -> None:
    related = [*paths, *(glob.replace("*", "a").replace("?", "b") for glob in globs)]
    found = of(spark, related, pa.string(), lambda path: F.array(*(path.rlike(glob_regex(glob)) for glob in globs)))
    for path, matched in zip(related, found, strict=True):
        assert matched == [glob_matches(glob, path) for glob in globs], path


@pytest.mark.parametrize(
    ("prefixes", "covered"),
    [
        pytest.param((), [False, False, False], id="no_prefix_covers_nothing"),
        pytest.param(("a", "c"), [True, False, True], id="any_of_them_is_enough"),
        pytest.param(("",), [True, True, True], id="the_empty_one_covers_everything"),
    ],
)
def test_a_path_is_covered_if_any_prefix_covers_it(
    spark: SparkSession, prefixes: tuple[str, ...], covered: list[bool]
) -> None:
    assert of(spark, ["a/x", "b/x", "c"], pa.string(), lambda path: below_any(path, prefixes)) == covered


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_a_hold_covers_paths_in_another_unicode_form(spark: SparkSession, form: Literal["NFC", "NFD"]) -> None:
    """A lifecycle rule does not: it covers only paths in the Unicode form of the policy."""
    prefix = normalize(form, "daten/größe")
    paths = [f"{normalize('NFC', 'daten/größe')}/1", f"{normalize('NFD', 'daten/größe')}/1", "daten/grosse/1"]
    assert of(spark, paths, pa.string(), lambda path: covered_by_hold(path, [prefix])) == [True, True, False]
    assert [Hold("audit", "prefix", prefix, "audit").covers(path) for path in paths] == [True, True, False]
    assert [prefix_covers(prefix, path) for path in paths].count(True) == 1


@settings(max_examples=20)
@given(st.lists(st.text(alphabet="./a\n?%", max_size=8), min_size=50, max_size=200))
def test_a_path_is_unresolved_if_a_part_is_empty_or_one_or_two_dots(spark: SparkSession, paths: list[str]) -> None:
    every = [*paths, "", ".", "..", "...", "/", "a", "a/", "a/.", "a/..", "a/...", "./a", "../a", ".../a", "a//b", ".a"]
    rows = spark.createDataFrame(pa.table({"path": pa.array(every, pa.string())}))
    found = [row[0] for row in rows.select(is_unresolved(F.col("path"))).collect()]
    assert found == [any(part in {"", ".", ".."} for part in path.split("/")) for path in every]
