"""The batch and the phase of each file of an Icechunk repository in a sweep."""

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from retention_assets.icechunk.sweep.layout import IcechunkLayout, characters
from tests.frames import of

ID = "000G40R40M30E209185G"
BACKUP = "overwritten/repo.30711474123456.000G40R40M30E209185G"


@pytest.mark.parametrize(
    ("listed", "most", "count"),
    [
        pytest.param(0, 100_000, 0, id="nothing"),
        pytest.param(10_000, 100_000, 0, id="a_small_one_is_not_cut"),
        pytest.param(10_001, 100_000, 1, id="a_larger_one_is"),
        pytest.param(320_001, 100_000, 2, id="by_two_characters"),
        pytest.param(10**9, 100_000, 3, id="never_by_more_than_three"),
        pytest.param(10_000, 1_000, 1, id="a_part_is_not_larger_than_a_batch"),
    ],
)
def test_directories_are_split_so_that_a_batch_can_be_limited(listed: int, most: int, count: int) -> None:
    assert characters(listed, most) == count


@pytest.mark.parametrize(
    ("count", "prefixes"),
    [
        pytest.param(0, ["snapshots/", "chunks/", "overwritten/"], id="whole_directories"),
        pytest.param(2, ["snapshots/00", "chunks/00", "overwritten/"], id="parts_but_for_backups"),
    ],
)
def test_a_prefix_is_a_directory_with_the_first_characters_of_its_names(
    spark: SparkSession, count: int, prefixes: list[str]
) -> None:
    names = [f"snapshots/{ID}", f"chunks/{ID}", BACKUP]
    assert of(spark, names, pa.string(), IcechunkLayout(count).prefix) == prefixes


def test_files_are_deleted_before_the_files_that_they_reference(spark: SparkSession) -> None:
    names = [f"{one}/{ID}" for one in ("snapshots", "transactions", "manifests", "chunks")]
    assert of(spark, [*names, BACKUP, "unknown/x"], pa.string(), IcechunkLayout(2).phase) == [0, 1, 2, 3, 4, 5]
