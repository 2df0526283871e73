"""The MD5 of the content of objects. It is unknown if the store does not report it and the object is large."""

from hashlib import md5
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from retention_assets.errors import AccessDenied
from retention_assets.lakefs.source.checksums import md5_of
from retention_assets.objectstore.access import StoreAccess
from tests.objectstore.s3 import Bucket

KMS = {"ServerSideEncryption": "aws:kms"}


def digests(
    spark: SparkSession, access: StoreAccess, sizes: dict[str, int], etags: dict[str, str] | None = None
) -> dict[str, str | None]:
    etag = pa.array([(etags or {}).get(name) for name in sizes], pa.string())
    objects = spark.createDataFrame(pa.table({"address": list(sizes), "size": list(sizes.values()), "etag": etag}))
    return {row["address"]: row["md5"] for row in md5_of(objects, access).collect()}


def test_missing_archived_and_very_large_objects_have_no_known_content(spark: SparkSession, bucket: Bucket) -> None:
    store = bucket.client()
    for name, kind in (("there", "STANDARD"), ("archived", "GLACIER"), ("large", "STANDARD")):
        store.put_object(Bucket=bucket.name, Key=f"data/{name}", Body=b"1", StorageClass=kind)
    sizes = {"data/there": 1, "data/archived": 1, "data/gone": 1, "data/large": 2**30 + 1}
    assert digests(spark, bucket.access(), sizes) == {
        "data/there": md5(b"1", usedforsecurity=False).hexdigest(),
        "data/archived": None,
        "data/gone": None,
        "data/large": None,
    }


def test_content_that_cannot_be_read_for_another_reason_is_an_error(spark: SparkSession, guarded: Bucket) -> None:
    denied = guarded.access(secret_access_key="another-secret-key")
    with pytest.raises(Exception, match=AccessDenied.__name__):
        digests(spark, denied, {"mine/1": 1})


def test_an_etag_is_the_md5_of_an_object_that_the_store_does_not_encrypt(spark: SparkSession, bucket: Bucket) -> None:
    """A small object is read, because that costs no more than asking. Stores may not say that they encrypt."""
    store, etag = bucket.client(), "0f" * 16
    contents = {"data/plain": (b"1" * 2**17, {}), "data/kms": (b"2" * 2**17, KMS), "data/small": (b"3", {})}
    for name, (content, encryption) in contents.items():
        store.put_object(Bucket=bucket.name, Key=name, Body=content, **encryption)
    sizes = {name: len(content) for name, (content, _) in contents.items()}
    found = digests(spark, bucket.access(), sizes, dict.fromkeys(sizes, etag))
    of_content = {name: md5(content, usedforsecurity=False).hexdigest() for name, (content, _) in contents.items()}
    assert found == of_content | {"data/plain": etag}


def test_an_etag_of_a_store_without_the_protocol_of_s3_is_not_used(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "there").write_bytes(b"1" * 2**17)
    found = digests(spark, StoreAccess(f"file://{tmp_path}", {}), {"there": 2**17}, {"there": "0f" * 16})
    assert found == {"there": md5(b"1" * 2**17, usedforsecurity=False).hexdigest()}
