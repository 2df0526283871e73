"""The objects of a repository that references of other repositories keep."""

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from retention_assets.core.other_references import OtherReferences, last_parts, referenced
from tests.frames import address

SIGNATURE = "3JtKavWuNJClLKEIALkPkYfJIaveOO9xr9YzQYURGzs"
CHUNK = "chunks/0123456789ABCDEFGHJ0"
OLD = "0123456789abcdef0123456789abcdef"
LINKED = "data/orchard-main:0fd0f0a4-7b6d-4b0e-9a3e-1f2d3c4b5a69/mHdWMWSOf6mkzFvmPvO_X"
BACKUP = "overwritten/repo.30716227199999.0123456789ABCDEFGHJ0"


def addresses(spark: SparkSession, *names: str) -> DataFrame:
    return spark.createDataFrame(pa.table({"address": pa.array(names, pa.string())}))


@pytest.mark.parametrize(
    ("reference", "name"),
    [
        pytest.param(f"s3://lake/a/{address(1)}", address(1), id="a_lakefs_object"),
        pytest.param(f"s3://lake/a/{address(1)},{SIGNATURE}", f"{address(1)},{SIGNATURE}", id="with_its_signature"),
        pytest.param(f"local:///srv/block/a/{address(1)}", address(1), id="as_a_local_server_prints_it"),
        pytest.param(
            f"s3://lake/my%20a/{address(1)}%2C{SIGNATURE}?versionId=1#x", f"{address(1)},{SIGNATURE}", id="escaped"
        ),
        pytest.param(f"s3a://lake/a/{OLD}", OLD, id="an_old_name"),
        pytest.param(f"s3://lake/a/{LINKED}", LINKED, id="a_name_of_the_link_era"),
        pytest.param(f"gs://lake/a/{CHUNK}", CHUNK, id="a_chunk_of_icechunk"),
        pytest.param(f"vcc://a/{CHUNK}", CHUNK, id="a_chunk_in_a_container"),
        pytest.param(f"vcc://slice/{address(1).rpartition('/')[2]}", address(1), id="a_container_below_data"),
        pytest.param(f"s3://lake/a/{BACKUP}", BACKUP, id="a_backup_of_icechunk"),
        pytest.param(f"s3://lake/a/{CHUNK}/", CHUNK, id="with_a_slash_at_its_end"),
        pytest.param(f"data/../../a/{address(1)}/x/%2E.", address(1), id="a_relative_path_with_dots"),
    ],
)
def test_a_reference_keeps_the_object_with_the_same_last_part(spark: SparkSession, reference: str, name: str) -> None:
    parts = last_parts([addresses(spark, reference, f"s3://elsewhere/{address(7)}")])
    assert parts is not None
    listed = addresses(spark, name, address(2), f"{address(1)}0", "data/report.csv")
    assert [row["address"] for row in referenced(listed, parts).collect()] == [name]


def test_references_that_cannot_be_generated_names_are_left_out(spark: SparkSession) -> None:
    parts = last_parts([addresses(spark, "s3://noaa/grid/air.1999.nc", "s3://lake/a/", "s3://lake/report.csv")])
    assert parts is not None
    assert parts.count() == 0


def test_only_candidates_get_the_state_held(spark: SparkSession) -> None:
    states = ("candidate", "young", "kept", "foreign", "candidate")
    names = [address(number) for number in range(5)]
    objects = addresses(spark, *names).withColumn("state", F.lit(""))
    for name, state in zip(names, states, strict=True):
        objects = objects.withColumn("state", F.when(F.col("address") == name, state).otherwise(F.col("state")))
    others = OtherReferences(last_parts([addresses(spark, *(f"s3://lake/a/{name}" for name in names[:4]))]))
    kept = {row["address"]: row["state"] for row in others.keep(objects).collect()}
    assert [kept[name] for name in names] == ["held", "young", "kept", "foreign", "candidate"]


def test_without_other_repositories_nothing_changes(spark: SparkSession) -> None:
    objects = addresses(spark, address(1))
    assert last_parts([]) is None
    assert OtherReferences().keep(objects) is objects
