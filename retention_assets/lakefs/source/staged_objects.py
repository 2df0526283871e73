"""Reads the server's list of staged objects on executors. Source: lakeFS facts 4.4 (Parquet, relative addresses)."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from io import BytesIO

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from retention_assets.errors import CorruptFile, brief
from retention_assets.lakefs.names.columns import canonical_address
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.objects import ObjectReader
from retention_assets.spark.frames import from_arrow, on_workers
from retention_assets.tables import UNCOMMITTED_OBJECTS

_ADDRESS, _CREATED = "physical_address", "creation_date"  # unix seconds, the server's clock
_FULL_OR_RELATIVE = 0


def staged_objects(
    spark: SparkSession,
    access: StoreAccess,
    files: Sequence[str],
    namespace_urls: Sequence[str],
    shown: Sequence[tuple[str, datetime]] = (),
) -> DataFrame:
    """Return (address, created_at) of each staged object, with canonical addresses.

    `files`, `shown`: see `StagedList`. `namespace_urls`: see `generated`.

    Errors: CorruptFile that names the file, and the errors of the store; both are raised when the rows are computed.
    """
    addresses, created = ([row[column] for row in shown] for column in (0, 1))
    rows = from_arrow(spark, pa.table([addresses, created], schema=UNCOMMITTED_OBJECTS.schema))
    if files:
        rows = rows.unionByName(_listed(spark, access, files))
    address = canonical_address(F.col("address"), F.lit(_FULL_OR_RELATIVE), namespace_urls)
    return rows.withColumn("address", address).distinct()


def _listed(spark: SparkSession, access: StoreAccess, files: Sequence[str]) -> DataFrame:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reader = ObjectReader(access)
        for batch in batches:
            for name in batch.column(0).to_pylist():
                yield from staged_rows(reader.read(name), reader.describe(name))

    names = from_arrow(spark, pa.table({"name": files}))
    return on_workers(names, read, UNCOMMITTED_OBJECTS.schema)


def staged_rows(content: bytes, name: str) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one file in the columns of `uncommitted_objects`. Addresses are spelled as in the file."""
    try:
        table = pq.ParquetFile(BytesIO(content)).read(columns=[_ADDRESS, _CREATED])
        seconds = table[_CREATED].cast(pa.int64()).combine_chunks()
        addresses = table[_ADDRESS].cast(pa.string()).combine_chunks()
    except (pa.ArrowException, KeyError, OSError) as error:
        raise CorruptFile(
            f"{name}: is not a staged list of lakeFS ({brief(error)}). Nothing was deleted. Take the staged list again."
        ) from error
    if addresses.null_count:
        raise CorruptFile(
            f"{name}: {addresses.null_count:,} staged objects have no address. Nothing was deleted. Take the staged "
            "list again."
        )
    created = seconds.cast(pa.timestamp("s", tz="UTC")).cast(pa.timestamp("us", tz="UTC"))
    yield pa.record_batch([addresses, created], schema=UNCOMMITTED_OBJECTS.schema)
