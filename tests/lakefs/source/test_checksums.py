"""The MD5 of the content of objects. It is unknown if the store does not report it and the object is large."""

from hashlib import md5
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from retention_assets.errors import AccessDenied
from retention_assets.lakefs.rules.same_content import COMPARED
from retention_assets.lakefs.source.checksums import FEW_OBJECTS, has_unread, md5_of, md5_of_few
from retention_assets.objectstore.access import StoreAccess
from retention_assets.spark.frames import from_arrow
from tests.objectstore.s3 import Bucket

KMS = {"ServerSideEncryption": "aws:kms"}


def compared(sizes: dict[str, int], etags: dict[str, str] | None = None) -> list[dict[str, Any]]:
    """Return a row of `COMPARED` for each object."""
    decides = {"is_head": False, "of_size": 1, "checksum": None}
    return [{**decides, "etag": (etags or {}).get(name), "address": name, "size": size} for name, size in sizes.items()]


def digests(
    spark: SparkSession,
    access: StoreAccess,
    sizes: dict[str, int],
    etags: dict[str, str] | None = None,
    *,
    believed: bool = True,
) -> dict[str, str | None]:
    """Return the MD5 of each object: as executors compute it, and as the driver does, which must be the same."""
    rows = compared(sizes, etags)
    frame = from_arrow(spark, pa.Table.from_pylist(rows, COMPARED))
    read = md5_of(frame, access, etags_are_checksums=believed)
    found: dict[str, str | None] = {row["address"]: row["md5"] for row in read.collect()}
    small = [row for row in rows if row["size"] < 2**20]
    few = md5_of_few(small, access, etags_are_checksums=believed)
    assert few is not None
    assert few.schema.names == read.columns
    assert {row["address"]: row["md5"] for row in few.to_pylist()} == {
        row["address"]: found[row["address"]] for row in small
    }
    return found


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


@pytest.mark.parametrize(
    ("size", "found", "expected"),
    [(1, "0f" * 16, False), (1, None, True), (2**30 + 1, None, False)],
    ids=["read", "gone_or_archived", "too_large"],
)
def test_content_that_is_unknown_now_may_be_known_later_unless_it_is_too_large(
    spark: SparkSession, size: int, found: str | None, expected: bool
) -> None:
    (row,) = compared({"data/1": size})
    schema = COMPARED.append(pa.field("md5", pa.string()))
    table = pa.Table.from_pylist([{**row, "md5": found}, {**row, "md5": "0e" * 16}], schema)
    assert has_unread(table) is expected
    assert has_unread(from_arrow(spark, table)) is expected


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
    assert digests(spark, bucket.access(), sizes, dict.fromkeys(sizes, etag), believed=False) == of_content
    parts = f"{etag}-2"
    assert digests(spark, bucket.access(), sizes, dict.fromkeys(sizes, parts)) == of_content


def test_an_etag_of_a_store_without_the_protocol_of_s3_is_not_used(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "there").write_bytes(b"1" * 2**17)
    found = digests(spark, StoreAccess(f"file://{tmp_path}", {}), {"there": 2**17}, {"there": "0f" * 16})
    assert found == {"there": md5(b"1" * 2**17, usedforsecurity=False).hexdigest()}


@pytest.mark.parametrize(("objects", "size"), [(FEW_OBJECTS + 1, 1), (2, 2**22)], ids=["many", "large"])
def test_executors_read_many_or_large_objects(tmp_path: Path, objects: int, size: int) -> None:
    rows = compared({f"data/{number}": size for number in range(objects)})
    assert md5_of_few(rows, StoreAccess(f"file://{tmp_path}", {}), etags_are_checksums=True) is None
