"""Computes the MD5 of objects on executors: from their ETag if the store confirms it, else by reading their content."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from retention_assets.errors import ObjectMissing, StoreError
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.objects import ObjectReader
from retention_assets.spark.frames import on_workers, read_tasks

_MD5 = pa.field("md5", pa.string())
_ARCHIVED = ("InvalidObjectState", "BlobArchived")  # error codes of S3 and Azure for an archived object
_LARGEST = 2**30  # bytes; reading a larger object costs more than keeping it
_SMALLEST = 2**16  # bytes; reading a smaller object costs no more than a request for its encryption
_AT_ONCE = 16  # requests of a task at the same time


def md5_of(objects: DataFrame, access: StoreAccess) -> DataFrame:
    """Return `objects` (with columns `address`, `size` and `etag`), with the column `md5`.

    The MD5 is null if the object is gone, archived, or too large to read.

    `etag` is null, or an ETag that may be the MD5. If S3 reports that the object is not encrypted with a key of KMS or
    of the client, the ETag is its MD5, and the object is not read. With such a key, an ETag looks like an MD5, but is
    not one. Small objects, and all objects in other stores, are read.

    Errors: AccessDenied or StoreError, raised when the rows are computed.
    """

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reader, is_plain = ObjectReader(access), _plain_check(access)

        def md5(path: str, size: int, etag: str | None) -> str | None:
            if etag is not None and size > _SMALLEST and is_plain(path):
                return etag
            return _md5(reader, path) if size <= _LARGEST else None

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for batch in batches:
                columns = (batch[name].to_pylist() for name in ("address", "size", "etag"))
                found = pa.array(pool.map(md5, *columns), pa.string())
                yield batch.append_column(_MD5, found)

    schema = to_arrow_schema(objects.schema).append(_MD5)
    return on_workers(objects.repartition(read_tasks(objects.sparkSession)), read, schema)


def _plain_check(access: StoreAccess) -> Callable[[str], bool]:
    """Return a function that returns whether S3 reports no encryption that changes an object's ETag."""
    from retention_assets.objectstore.s3 import S3_ERRORS, is_encrypted, is_s3, s3_bucket  # importing boto3 is slow

    if not is_s3(access):
        return lambda path: False
    bucket = s3_bucket(access, connections=_AT_ONCE)

    def is_plain(path: str) -> bool:
        try:
            return not is_encrypted(bucket, path)
        except S3_ERRORS:
            return False  # then the object is read

    return is_plain


def _md5(reader: ObjectReader, path: str) -> str | None:
    try:
        return reader.digest(path, "md5").hex()
    except ObjectMissing:
        return None
    except StoreError as error:
        if any(code in str(error) for code in _ARCHIVED):
            return None
        raise
