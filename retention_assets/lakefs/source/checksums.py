"""Computes the MD5 of objects whose ETag is not their MD5, by reading their content on executors."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame

from retention_assets.errors import ObjectMissing, StoreError
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.objects import ObjectReader
from retention_assets.spark.frames import on_workers

_ROWS = pa.schema([("address", pa.string()), ("md5", pa.string())])
_ARCHIVED = ("InvalidObjectState", "BlobArchived")  # error codes of S3 and Azure for an archived object
_LARGEST = 2**30  # bytes; reading a larger object costs more than keeping it


def md5_of(objects: DataFrame, access: StoreAccess) -> DataFrame:
    """Return (address, md5) of `objects` (address, size). Null: the object is gone, archived, or larger than 1 GiB.

    Errors: the errors of the store, raised when the rows are computed.
    """

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reader = ObjectReader(access)
        for batch in batches:
            paths, sizes = batch["address"].to_pylist(), batch["size"].to_pylist()
            found = [_md5(reader, path) if size <= _LARGEST else None for path, size in zip(paths, sizes, strict=True)]
            yield pa.record_batch([batch["address"], pa.array(found, pa.string())], schema=_ROWS)

    return on_workers(objects.select("address", "size"), read, _ROWS)


def _md5(reader: ObjectReader, path: str) -> str | None:
    try:
        return reader.digest(path, "md5").hex()
    except ObjectMissing:
        return None
    except StoreError as error:
        if any(code in str(error) for code in _ARCHIVED):
            return None
        raise
