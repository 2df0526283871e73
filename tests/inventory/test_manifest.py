import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from retention_assets.errors import CorruptFile
from retention_assets.inventory.manifest import FileFormat, Manifest, read_manifest
from tests.inventories import FORMATS, MadeInventory, Row, make_inventory, with_manifest

SCANNED = datetime(2026, 11, 1, 0, 30, tzinfo=UTC)

# The schemas that the S3 User Guide prints, with every optional field.
CSV_GUIDE = (
    "Bucket, Key, VersionId, IsLatest, IsDeleteMarker, Size, LastModifiedDate, ETag, StorageClass, "
    "IsMultipartUploaded, ReplicationStatus, EncryptionStatus, ObjectLockRetainUntilDate, ObjectLockMode, "
    "ObjectLockLegalHoldStatus, IntelligentTieringAccessTier, BucketKeyStatus, ChecksumAlgorithm"
)
ORC_GUIDE = (
    "struct<bucket:string,key:string,version_id:string,is_latest:boolean,is_delete_marker:boolean,size:bigint,"
    "last_modified_date:timestamp,e_tag:string,storage_class:string,is_multipart_uploaded:boolean>"
)
PARQUET_GUIDE = (
    "message s3.inventory { required binary bucket (UTF8); required binary key (UTF8); optional binary version_id "
    "(UTF8); optional boolean is_latest; optional boolean is_delete_marker; optional int64 size; optional int64 "
    "last_modified_date (TIMESTAMP_MILLIS); optional binary e_tag (UTF8); optional binary storage_class (UTF8); }"
)


def made(file_format: str = "CSV", **options) -> MadeInventory:
    return make_inventory([Row("orchard/a")], "lake", SCANNED, file_format, **options)


def read(inventory: MadeInventory) -> Manifest:
    return read_manifest(inventory.manifest, inventory.checksum, "manifest.json")


@pytest.mark.parametrize("file_format", FORMATS)
def test_a_manifest_has_its_bucket_time_columns_and_files(file_format):
    inventory = made(file_format, files=3)
    manifest = read(inventory)
    assert (manifest.source_bucket, manifest.created_at) == ("lake", SCANNED)
    assert manifest.file_format is FileFormat(file_format)
    assert manifest.columns == ("bucket", "key", "size", "last_modified_date", "e_tag", *manifest.columns[5:])
    assert [file.key for file in manifest.files] == list(inventory.files)
    assert [file.size for file in manifest.files] == [len(inventory.objects[name]) for name in inventory.files]
    assert not manifest.lists_versions


@pytest.mark.parametrize(
    ("file_format", "schema"), [("CSV", CSV_GUIDE), ("ORC", ORC_GUIDE), ("Parquet", PARQUET_GUIDE)], ids=FORMATS
)
def test_the_schemas_of_the_user_guide_are_understood(file_format, schema):
    manifest = read(with_manifest(made(), fileFormat=file_format, fileSchema=schema))
    assert manifest.columns[:8] == (
        *("bucket", "key", "version_id", "is_latest", "is_delete_marker", "size", "last_modified_date", "e_tag"),
    )
    assert len(manifest.columns) == schema.count(";" if file_format == "Parquet" else ",") + (file_format != "Parquet")
    assert manifest.lists_versions


def test_unknown_keys_and_columns_are_accepted():
    inventory = with_manifest(made(), fileSchema="Bucket, Key, Size, LastModifiedDate, Colour", generator="S3")
    assert read(inventory).columns[-1] == "Colour"


def test_a_checksum_in_capitals_with_a_line_end_is_accepted():
    inventory = made()
    assert read_manifest(inventory.manifest, inventory.checksum.upper() + b"\n", "m").source_bucket == "lake"


@pytest.mark.parametrize("checksum", [b"0" * 32, b"", b"\xff\xfe"], ids=["of_another_manifest", "empty", "not_text"])
def test_a_manifest_with_another_checksum_is_refused(checksum):
    with pytest.raises(CorruptFile, match=r"m: its MD5 is .*nothing was deleted"):
        read_manifest(made().manifest, checksum, "m")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param({"version": "2027-01-01"}, "version", id="another_version"),
        pytest.param({"fileFormat": "Avro"}, "fileFormat", id="another_format"),
        pytest.param({"sourceBucket": None}, "sourceBucket", id="no_source_bucket"),
        pytest.param({"creationTimestamp": "yesterday"}, "creationTimestamp", id="not_a_time"),
        pytest.param({"creationTimestamp": str(10**17)}, "creationTimestamp", id="a_time_beyond_the_calendar"),
        pytest.param({"files": [{"key": "a", "size": 1}]}, r"files\[0\]\.MD5checksum", id="a_file_without_md5"),
        pytest.param({"files": [{"key": "a", "size": -1, "MD5checksum": "0" * 32}]}, "size", id="a_negative_size"),
        pytest.param({"fileSchema": ""}, "does not have these columns: bucket, key, size", id="no_columns"),
        pytest.param(
            {"fileSchema": "Bucket, Key, Key, Size, LastModifiedDate"},
            "1 column is duplicated: key",
            id="a_duplicated_column",
        ),
        pytest.param({"fileFormat": "ORC"}, "not a flat ORC schema", id="the_schema_of_another_format"),
        pytest.param({"fileFormat": "Parquet", "fileSchema": "message m { }"}, "not a flat", id="an_empty_message"),
        pytest.param(
            {"fileFormat": "Parquet", "fileSchema": "message m { required group a { optional int64 size; } }"},
            "not a flat",
            id="nested_columns",
        ),
    ],
)
def test_a_manifest_that_cannot_be_understood_is_refused(change, message):
    with pytest.raises(CorruptFile, match=message):
        read(with_manifest(made(), **change))


def test_text_that_is_not_json_is_refused():
    inventory = made()
    home = f"{inventory.folder}/{inventory.delivery}"
    broken = replace(
        inventory,
        objects={
            f"{home}/manifest.json": b"{",
            f"{home}/manifest.checksum": b"f95b70fdc3088560732a5ac135644506",
        },
    )
    with pytest.raises(CorruptFile, match=r"manifest\.json: the document"):
        read(broken)


@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize("column", ["bucket", "key", "size", "last_modified_date"])
def test_an_inventory_without_a_column_that_is_needed_is_refused(file_format, column):
    with pytest.raises(CorruptFile, match=rf"does not have these columns: {column}\. .*Add these fields"):
        read(made(file_format, without=[column]))


@pytest.mark.parametrize("column", ["is_latest", "is_delete_marker"])
def test_an_inventory_of_versions_without_a_version_column_is_refused(column):
    with pytest.raises(CorruptFile, match=f"does not have these columns: {column}"):
        read(made(versions=True, without=[column]))


def test_a_manifest_may_have_no_files():
    inventory = with_manifest(made(), files=[])
    assert json.loads(inventory.manifest)["files"] == []
    assert read(inventory).files == ()
