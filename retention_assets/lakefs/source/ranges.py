"""The kinds of files that `TableCache` reads and caches for lakeFS: ranges and metaranges.

Both are immutable and named by a hash of their content. So `TableCache` reads each file once, and stores its rows by id
for later runs.
"""

import pyarrow as pa

from retention_assets.config.configuration import INTERNAL
from retention_assets.lakefs.formats.ranges import ENTRY_SCHEMA, read_metarange, read_range
from retention_assets.tables import CACHED_METARANGES, CACHED_RANGES
from retention_assets.warehouse.table_cache import FILE_BYTES, Kind, on_first_row

METARANGE_RANGES = pa.schema(
    [("metarange_id", pa.string()), ("range_id", pa.string()), ("count", pa.int64()), FILE_BYTES]
)
# The address is as in the file. `rules.ranges.canonical` makes it canonical.
RANGE_ENTRIES = pa.schema([("range_id", pa.string()), *((one.name, one.type) for one in ENTRY_SCHEMA), FILE_BYTES])


def metaranges() -> Kind:
    """Return the kind of metaranges: one row per range, with the number of entries that the range must have."""

    def decode(content: bytes, name: str, metarange_id: str) -> pa.RecordBatch:
        rows = read_metarange(content, name)
        ids = pa.repeat(metarange_id, rows.num_rows)
        columns = [ids, rows["range_id"], rows["count"], on_first_row(len(content), rows.num_rows)]
        return pa.record_batch(columns, schema=METARANGE_RANGES)

    return Kind(CACHED_METARANGES, "metarange_id", METARANGE_RANGES, decode, INTERNAL)


def ranges() -> Kind:
    """Return the kind of ranges: one row per entry, as in the file.

    Cached rows depend only on the content of the file. Columns that depend on the configuration are computed later.
    """

    def decode(content: bytes, name: str, range_id: str) -> pa.RecordBatch:
        rows = read_range(content, name)
        ids = pa.repeat(range_id, rows.num_rows)
        columns = [ids, *rows.columns, on_first_row(len(content), rows.num_rows)]
        return pa.record_batch(columns, schema=RANGE_ENTRIES)

    return Kind(CACHED_RANGES, "range_id", RANGE_ENTRIES, decode, INTERNAL)
