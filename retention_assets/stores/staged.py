"""The server's list of staged objects, read on executors. Source: lakeFS facts 4.4 (Parquet, relative addresses)."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from io import BytesIO

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from retention_assets.errors import CorruptFile
from retention_assets.formats.addresses import canonical_addresses
from retention_assets.stores.access import StoreAccess
from retention_assets.stores.objects import ObjectReader
from retention_assets.tables import UNCOMMITTED_OBJECTS

_ADDRESS, _CREATED = "physical_address", "creation_date"  # unix seconds, the server's clock
_FULL_OR_RELATIVE = 0


def staged_objects(
    spark: SparkSession,
    access: StoreAccess,
    files: Sequence[str],
    namespace: str,
    shown: Sequence[tuple[str, datetime]] = (),
) -> DataFrame:
    """Return (address, created_at) of each staged object, addresses canonical for `namespace`. See `StagedList`.

    Errors: CorruptFile naming the file, of the store as executors meet them.
    """
    if shown:
        addresses, created = map(list, zip(*shown, strict=True))
        rows = pa.record_batch([_canonical(pa.array(addresses), namespace), created], schema=UNCOMMITTED_OBJECTS.schema)
        of_branches = spark.createDataFrame(pa.Table.from_batches([rows]))
        return staged_objects(spark, access, files, namespace).unionByName(of_branches).distinct()
    if not files:
        return spark.createDataFrame(UNCOMMITTED_OBJECTS.schema.empty_table())

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reader = ObjectReader(access)
        for batch in batches:
            for name in batch.column(0).to_pylist():
                yield from staged_rows(reader.read(name), reader.describe(name), namespace)

    names = spark.createDataFrame(pa.table({"name": files}))
    return names.mapInArrow(read, from_arrow_schema(UNCOMMITTED_OBJECTS.schema)).distinct()


def staged_rows(content: bytes, name: str, namespace: str) -> Iterator[pa.RecordBatch]:
    """Return the rows of one file, as `uncommitted_objects` has them."""
    try:
        table = pq.ParquetFile(BytesIO(content)).read(columns=[_ADDRESS, _CREATED])
        seconds = table[_CREATED].cast(pa.int64()).combine_chunks()
        addresses = table[_ADDRESS].cast(pa.string()).combine_chunks()
    except (pa.ArrowException, KeyError, OSError) as error:
        raise CorruptFile(
            f"{name}: is not a staged list of lakeFS ({error.__class__.__name__}). Nothing was deleted. "
            "Take the staged list again."
        ) from error
    if addresses.null_count:
        raise CorruptFile(f"{name}: a staged object has no address. Nothing was deleted. Take the staged list again.")
    created = seconds.cast(pa.timestamp("s", tz="UTC")).cast(pa.timestamp("us", tz="UTC"))
    yield pa.record_batch([_canonical(addresses, namespace), created], schema=UNCOMMITTED_OBJECTS.schema)


def _canonical(addresses: pa.Array, namespace: str) -> pa.Array:
    types = pa.repeat(pa.scalar(_FULL_OR_RELATIVE, pa.int8()), len(addresses))
    return canonical_addresses(addresses, types, namespace)
