from datetime import UTC, datetime

import pyarrow as pa
import pytest

from retention_assets.errors import ConfigurationError
from retention_assets.inventory.delivered import addresses_below, require_bucket_listed
from retention_assets.inventory.manifest import read_manifest
from retention_assets.tables import STORAGE_INVENTORY
from tests.inventories import Row, listed_rows, make_inventory, objects_table


def addresses(rows: list[Row], namespace: str) -> list[str]:
    below = pa.Table.from_batches(
        [addresses_below(batch, namespace) for batch in objects_table(rows, "lake").to_batches()]
    )
    assert below.schema == STORAGE_INVENTORY.schema
    assert set(below["source"].to_pylist()) <= {"inventory"}
    return below["address"].to_pylist()


@pytest.mark.parametrize(
    ("namespace", "expected"),
    [
        pytest.param("s3://lake/orchard", ["data/x/1", "crème"], id="a_prefix_is_a_folder"),
        pytest.param("s3a://lake/orchard/", ["data/x/1", "crème"], id="other_spelling"),
        pytest.param("s3://lake/verger é", ["data/é"], id="accents_in_the_namespace"),
        pytest.param("s3://lake/verger%20%C3%A9", ["data/é"], id="an_encoded_namespace"),
        pytest.param("s3://lake/orchard/data", ["x/1"], id="deeper"),
        pytest.param("s3://pond/orchard", [], id="another_bucket"),
        pytest.param("s3://lake/meadow", [], id="another_prefix"),
    ],
)
def test_addresses_are_relative_to_the_namespace_and_exclude_objects_outside_it(namespace, expected):
    names = ["orchard/data/x/1", "orchard/_lakefs/abc", "orchard/", "orchards/data/y", "orchard", "orchard/crème"]
    assert addresses([Row(name) for name in [*names, "verger é/data/é"]], namespace) == expected


def test_a_namespace_that_is_a_whole_bucket_has_every_key_as_address():
    assert addresses([Row("data/x/1"), Row("_lakefs/abc"), Row("dummy")], "s3://lake") == ["data/x/1", "dummy"]


@pytest.mark.parametrize("repository", ["orchard", "meadow", "thicket"])
def test_addresses_keep_size_time_and_etag(repository):
    rows = listed_rows(repository)
    (batch,) = objects_table(rows, "lake").to_batches()
    expected = [
        (row.key.removeprefix(f"{repository}/"), row.size, row.last_modified, row.etag, "inventory")
        for row in rows
        if not row.key.startswith(f"{repository}/_lakefs/")
    ]
    found = addresses_below(batch, f"s3://lake/{repository}")
    assert list(zip(*(column.to_pylist() for column in found.columns), strict=True)) == expected


@pytest.mark.parametrize("namespace", ["gs://lake/orchard", "file:///lake", "s3://", "orchard"])
def test_a_namespace_outside_amazon_s3_is_refused(namespace):
    with pytest.raises(ConfigurationError, match="s3:// namespaces only"):
        addresses([Row("a")], namespace)


def manifests(*buckets: str):
    made = [make_inventory([Row("a")], bucket, datetime(2026, 11, 1, tzinfo=UTC), "CSV") for bucket in buckets]
    return [read_manifest(one.manifest, one.checksum, "manifest.json") for one in made]


def test_one_inventory_of_the_bucket_among_others_is_enough():
    require_bucket_listed(manifests("pond", "lake"), "s3a://lake/orchard/")


@pytest.mark.parametrize("buckets", [["pond", "lakes"], []], ids=["of_other_buckets", "none"])
def test_inventories_that_do_not_list_the_bucket_are_refused(buckets):
    with pytest.raises(ConfigurationError, match=r"list (lakes, pond|nothing), not the bucket 'lake'"):
        require_bucket_listed(manifests(*buckets), "s3://lake/orchard")
