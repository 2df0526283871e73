"""Reads the server's list of staged objects. Source: docs/lakefs-formats.md, "Staged lists".

Executors read the list. The driver reads a small list itself, because a Spark job takes longer.
"""

from collections.abc import Callable, Sequence
from io import BytesIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from retention_assets.core.amounts import counted
from retention_assets.errors import CorruptFile, brief
from retention_assets.lakefs.formats.ranges import BY_PREFIX_DEPRECATED, FIRST_SECOND, LAST_SECOND
from retention_assets.lakefs.names.columns import canonical_address
from retention_assets.lakefs.names.generated import not_certainly_inside
from retention_assets.lakefs.source.repository import StagedList
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.objects import ObjectReader
from retention_assets.spark.frames import Batches, from_arrow, on_workers
from retention_assets.tables import UNCOMMITTED_OBJECTS

_NEW_LIST = "Run the same command again. With `source.dump`, first let the server write a new staged list (`staged`)."
_ADDRESS, _CREATED = "physical_address", "creation_date"  # the time is in unix seconds, by the server's clock
_FEW_FILES, _FEW_BYTES = 8, 2**20  # the driver reads a list of at most so many files and bytes


def staged_objects(
    spark: SparkSession, access: StoreAccess, staged: StagedList | None, namespace_urls: Sequence[str]
) -> DataFrame | pa.Table:
    """Return (address, created_at) of each staged object, with canonical addresses. A short list is an Arrow table.

    `staged`: None (it is not known) gives no rows. `namespace_urls`: see `generated`.

    Errors: CorruptFile that names the file; AccessDenied or StoreError. For a long list, errors are raised when the
    rows are computed.
    """
    files, shown = (staged.files, staged.shown) if staged else ((), ())
    address = canonical_address(F.col("address"), F.lit(BY_PREFIX_DEPRECATED), namespace_urls)
    columns = [[address for address, _ in shown], [created_at for _, created_at in shown]]
    of_branches = pa.table(columns, schema=UNCOMMITTED_OBJECTS.schema)
    reader = ObjectReader(access)
    if len(files) <= _FEW_FILES and sum(reader.head(name).size for name in files) <= _FEW_BYTES:
        batches = [staged_rows(reader.read(name), reader.describe(name)) for name in files]
        rows = pa.concat_tables([of_branches, pa.Table.from_batches(batches, of_branches.schema)])
        named = from_arrow(spark, rows).withColumn("address", address).toArrow()
        return named.group_by(named.column_names).aggregate([]).cast(UNCOMMITTED_OBJECTS.schema)
    names = from_arrow(spark, pa.table({"name": files}))
    listed = on_workers(names, _reader(access), UNCOMMITTED_OBJECTS.schema)
    return from_arrow(spark, of_branches).unionByName(listed).withColumn("address", address).distinct()


def count_outside(staged: pa.Table) -> int:
    """Return how many staged objects have an address that is not certainly inside the namespace: see `is_inside`."""
    return staged.filter(not_certainly_inside()).num_rows


def _reader(access: StoreAccess) -> Callable[[Batches], Batches]:
    def read(batches: Batches) -> Batches:
        reader = ObjectReader(access)
        for batch in batches:
            for name in batch.column(0).to_pylist():
                yield staged_rows(reader.read(name), reader.describe(name))

    return read


def staged_rows(content: bytes, name: str) -> pa.RecordBatch:
    """Return the rows of one file in the columns of `uncommitted_objects`. Addresses are spelled as in the file.

    `created_at` is null if the file has an impossible time: clients can send any number of seconds.
    """
    try:
        table = pq.ParquetFile(BytesIO(content)).read(columns=[_ADDRESS, _CREATED])
        seconds = table[_CREATED].cast(pa.int64()).combine_chunks()
        addresses = table[_ADDRESS].cast(pa.string()).combine_chunks()
    except (pa.ArrowException, KeyError, OSError) as error:
        raise CorruptFile(
            f"{name}: is not a staged list of lakeFS ({brief(error)}). Nothing was deleted. {_NEW_LIST}"
        ) from error
    if addresses.null_count:
        have = counted(addresses.null_count, "staged object has", "staged objects have")
        raise CorruptFile(f"{name}: {have} no address. Nothing was deleted. {_NEW_LIST}")
    possible = pc.and_(pc.greater_equal(seconds, FIRST_SECOND), pc.less_equal(seconds, LAST_SECOND))
    seconds = pc.if_else(possible, seconds, pa.scalar(None, pa.int64()))
    created = seconds.cast(pa.timestamp("s", tz="UTC")).cast(pa.timestamp("us", tz="UTC"))
    return pa.record_batch([addresses, created], schema=UNCOMMITTED_OBJECTS.schema)
