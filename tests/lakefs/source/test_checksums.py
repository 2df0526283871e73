"""The MD5 of contents is read where that is possible, and else unknown."""

from hashlib import md5

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from retention_assets.errors import AccessDenied
from retention_assets.lakefs.source.checksums import md5_of
from retention_assets.objectstore.access import StoreAccess
from tests.objectstore.s3 import Bucket


def digests(spark: SparkSession, access: StoreAccess, sizes: dict[str, int]) -> dict[str, str | None]:
    objects = spark.createDataFrame(pa.table({"address": list(sizes), "size": list(sizes.values())}))
    return {row["address"]: row["md5"] for row in md5_of(objects, access).collect()}


def test_what_is_gone_or_archived_or_very_large_has_no_known_content(spark: SparkSession, bucket: Bucket) -> None:
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


def test_content_that_may_not_be_read_is_an_error(spark: SparkSession, guarded: Bucket) -> None:
    denied = guarded.access(secret_access_key="another-secret-key")
    with pytest.raises(Exception, match=AccessDenied.__name__):
        digests(spark, denied, {"mine/1": 1})
