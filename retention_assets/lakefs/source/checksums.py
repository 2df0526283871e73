"""Computes the MD5 of objects: from their ETag if the store confirms it, else by reading their content."""

import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from retention_assets.errors import ObjectMissing, StoreError
from retention_assets.lakefs.rules.same_content import COMPARED, MD5_DIGITS
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.objects import ObjectReader
from retention_assets.spark.frames import Batches, on_workers, read_tasks

_WITH_MD5 = COMPARED.append(pa.field("md5", pa.string()))
FEW_OBJECTS, _FEW_BYTES = 100, 2**22  # the most objects that the driver reads itself, and their bytes
_ARCHIVED = ("InvalidObjectState", "BlobArchived")  # error codes of S3 and Azure for an archived object
_LARGEST = 2**30  # bytes; reading a larger object costs more than keeping it
_SMALLEST = 2**16  # bytes; reading a smaller object costs no more than a request for its encryption
_AT_ONCE = 16  # requests of a task at the same time


def md5_of(objects: DataFrame, access: StoreAccess, *, etags_are_checksums: bool) -> DataFrame:
    """Return the rows of `COMPARED` with the column `md5`, computed on executors.

    The MD5 is null if the object is gone, archived, or too large to read.

    An object in S3 that is larger than `_SMALLEST` is not read if its ETag looks like an MD5, and S3 reports that the
    object is not encrypted with a key of KMS or of the client. Then the ETag is the MD5. The ETag of an object that is
    encrypted with such a key looks like an MD5, too, but is not one. All other objects are read. If
    `etags_are_checksums` is false, all objects are read.

    Errors: AccessDenied or StoreError, raised when the rows are computed.
    """
    read = _reader(access, etags_are_checksums=etags_are_checksums)
    return on_workers(objects.repartition(read_tasks(objects.sparkSession)), read, _WITH_MD5)


def md5_of_few(
    objects: Sequence[Mapping[str, Any]], access: StoreAccess, *, etags_are_checksums: bool
) -> pa.Table | None:
    """Return the same rows as `md5_of`, computed on the driver; None if the objects are too many or too large."""
    if len(objects) > FEW_OBJECTS or sum(one["size"] for one in objects) > _FEW_BYTES:
        return None
    table = pa.Table.from_pylist(objects, COMPARED)
    read = _reader(access, etags_are_checksums=etags_are_checksums)
    return pa.Table.from_batches(read(iter(table.to_batches())), _WITH_MD5)


def has_unread(compared: DataFrame | pa.Table) -> bool:
    """Return whether a row of `md5_of` has no MD5, but may have one later: an archived object can be restored."""
    if isinstance(compared, pa.Table):
        return compared.filter(pc.field("md5").is_null() & (pc.field("size") <= _LARGEST)).num_rows > 0
    return not compared.where(F.col("md5").isNull() & (F.col("size") <= _LARGEST)).isEmpty()


def _reader(access: StoreAccess, *, etags_are_checksums: bool) -> Callable[[Batches], Batches]:
    def read(batches: Batches) -> Batches:
        reader, is_plain = ObjectReader(access), _plain_check(access)

        def md5(path: str, size: int, etag: str | None) -> str | None:
            may_be_md5 = etags_are_checksums and etag is not None and re.fullmatch(MD5_DIGITS, etag)
            if may_be_md5 and size > _SMALLEST and is_plain(path):
                return etag
            return _md5(reader, path) if size <= _LARGEST else None

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for batch in batches:
                columns = (batch[name].to_pylist() for name in ("address", "size", "etag"))
                found = pa.array(pool.map(md5, *columns), pa.string())
                yield pa.RecordBatch.from_arrays([*batch.columns, found], schema=_WITH_MD5)

    return read


def _plain_check(access: StoreAccess) -> Callable[[str], bool]:
    """Return a function that returns whether S3 reports no encryption that changes an object's ETag."""
    if not access.is_s3:
        return lambda path: False
    from retention_assets.objectstore.s3 import S3_ERRORS, is_encrypted, s3_bucket  # importing boto3 is slow

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
