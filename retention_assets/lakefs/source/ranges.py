"""Ranges and metaranges of a namespace, read on executors, each once, and kept by id between runs.

Both are immutable and named by their content, so what was read once need not be read again: `TableCache` does that for
any kind of file of which this is true. A batch of rows counts only when the list of its ids was written whole after it.
"""

import pyarrow as pa

from retention_assets.lakefs.formats.ranges import read_metarange, read_range
from retention_assets.state.table_cache import FILE_BYTES, Kind, on_first_row

COMMITTED = "_lakefs"  # where lakeFS keeps ranges and metaranges below a namespace

METARANGE_RANGES = pa.schema(
    [("metarange_id", pa.string()), ("range_id", pa.string()), ("count", pa.int64()), FILE_BYTES]
)
RANGE_ENTRIES = pa.schema(
    [
        ("range_id", pa.string()),
        ("key", pa.string()),
        ("address", pa.string()),  # as the file says; `transforms.addresses.canonical` makes it canonical
        ("address_type", pa.int8()),
        ("size", pa.int64()),
        ("last_modified", pa.timestamp("us", tz="UTC")),
        ("etag", pa.string()),
        FILE_BYTES,
    ]
)


def metaranges() -> Kind:
    """Return the kind that gives the ranges of each metarange, with the entries that each must have."""

    def decode(content: bytes, name: str, metarange_id: str) -> pa.RecordBatch:
        rows = read_metarange(content, name)
        ids = pa.repeat(metarange_id, rows.num_rows)
        columns = [ids, rows["range_id"], rows["count"], on_first_row(len(content), rows.num_rows)]
        return pa.record_batch(columns, schema=METARANGE_RANGES)

    return Kind("metarange_ranges", "metarange_id", METARANGE_RANGES, decode, COMMITTED)


def ranges() -> Kind:
    """Return the kind that gives the entries of each range, as the file says them.

    A cached row depends on the file's content alone. What depends on the configuration is computed on reading.
    """

    def decode(content: bytes, name: str, range_id: str) -> pa.RecordBatch:
        rows = read_range(content, name)
        ids = pa.repeat(range_id, rows.num_rows)
        named = [rows[name] for name in ("key", "address", "address_type", "size", "last_modified", "etag")]
        columns = [ids, *named, on_first_row(len(content), rows.num_rows)]
        return pa.record_batch(columns, schema=RANGE_ENTRIES)

    return Kind("range_entries.v2", "range_id", RANGE_ENTRIES, decode, COMMITTED)
