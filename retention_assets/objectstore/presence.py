"""Checks one by one, on executors, whether objects exist. This is for the few objects that a listing lacks."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from itertools import batched

import pyarrow as pa
from pyspark.sql import DataFrame

from retention_assets.core.frames import on_workers
from retention_assets.errors import ObjectMissing
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.objects import ObjectReader
from retention_assets.tables import INSTANT

_AT_ONCE = 16  # concurrent requests of a task
PRESENCE = pa.schema([("address", pa.string()), ("last_modified", INSTANT), ("size", pa.int64())])


def presence(addresses: DataFrame, access: StoreAccess) -> DataFrame:
    """Return (address, last_modified, size) of each address (one column), with nulls for a missing object.

    Errors: those of the store.
    """

    def ask(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reader = ObjectReader(access)

        def metadata(address: str) -> tuple[datetime, int] | tuple[None, None]:
            try:
                found = reader.head(address)
            except ObjectMissing:
                return None, None
            return found.last_modified, found.size

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for batch in batches:
                for group in batched(batch.column(0).to_pylist(), _AT_ONCE):
                    times, sizes = zip(*pool.map(metadata, group), strict=True)
                    columns = [pa.array(group, pa.string()), pa.array(times, INSTANT), pa.array(sizes, pa.int64())]
                    yield pa.record_batch(columns, schema=PRESENCE)

    return on_workers(addresses, ask, PRESENCE)
