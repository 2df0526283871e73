"""Whether objects are there, asked of the store one by one, on executors: for the few that a listing lacks."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from itertools import batched

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from retention_assets.errors import ObjectMissing
from retention_assets.stores.access import StoreAccess
from retention_assets.stores.objects import ObjectReader
from retention_assets.tables import INSTANT

_AT_ONCE = 16  # questions on their way at once
PRESENCE = pa.schema([("address", pa.string()), ("last_modified", INSTANT)])


def presence(addresses: DataFrame, access: StoreAccess) -> DataFrame:
    """Return (address, last_modified) of each address (one column), null where nothing lies. Errors: of the store."""

    def ask(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reader = ObjectReader(access)

        def written(address: str) -> datetime | None:
            try:
                return reader.head(address).last_modified
            except ObjectMissing:
                return None

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for batch in batches:
                for group in batched(batch.column(0).to_pylist(), _AT_ONCE):
                    times = pa.array(list(pool.map(written, group)), INSTANT)
                    yield pa.record_batch([pa.array(group, pa.string()), times], schema=PRESENCE)

    return addresses.mapInArrow(ask, from_arrow_schema(PRESENCE))
