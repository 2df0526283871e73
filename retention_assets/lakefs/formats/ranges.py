"""Reads ranges (the objects of a commit) and metaranges (the ranges of a commit) into Arrow record batches."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.decoding.columns import Fields, binary_column, decode, plan_fields, readable, text_column
from retention_assets.decoding.kernels import MESSAGE, TEXT, VARINT
from retention_assets.errors import corrupt
from retention_assets.lakefs.formats.sstable import open_table, require_entity
from retention_assets.policy.matching import UNREADABLE

BY_PREFIX_DEPRECATED, RELATIVE, FULL = 0, 1, 2  # address_type. Source: docs/lakefs-formats.md, "Addresses"
FIRST_SECOND, LAST_SECOND = -62_135_596_800, 253_402_300_799  # years 1 to 9999, the range of a protobuf Timestamp

_ENTRY_FIELDS: list[pa.Field] = [
    pa.field("key", pa.string(), nullable=False),  # the path in the repository; see `UNREADABLE` if it is not UTF-8
    pa.field("address", pa.string(), nullable=False),  # as stored; address_type says how to read it
    pa.field("address_type", pa.int8(), nullable=False),
    pa.field("size", pa.int64(), nullable=False),  # bytes
    pa.field("last_modified", pa.timestamp("us", tz="UTC"), nullable=True),  # by an unknown clock; null: unknown
    pa.field("etag", pa.string(), nullable=False),
]
ENTRY_SCHEMA = pa.schema(_ENTRY_FIELDS)

_METARANGE_FIELDS: list[pa.Field] = [
    pa.field("range_id", pa.string(), nullable=False),
    pa.field("min_key", pa.binary(), nullable=False),
    pa.field("max_key", pa.binary(), nullable=False),
    pa.field("count", pa.int64(), nullable=False),  # records
]
METARANGE_SCHEMA = pa.schema(_METARANGE_FIELDS)

# The messages Entry and RangeData of lakefs.proto, by the numbers of their fields; Timestamp: seconds 1, nanos 2.
_ADDRESS, _SIZE, _ETAG, _ADDRESS_TYPE, _SECONDS, _NANOS, _MODIFIED = range(7)
_ENTRY = plan_fields(
    (0, 1, TEXT), (0, 3, VARINT), (0, 4, TEXT), (0, 6, VARINT), (1, 1, VARINT), (1, 2, VARINT), (0, 2, MESSAGE),
)  # fmt: skip
_MIN_KEY, _MAX_KEY, _COUNT = range(3)
_RANGE_DATA = plan_fields((0, 1, TEXT), (0, 2, TEXT), (0, 4, VARINT))


def read_range(content: bytes, name: str) -> pa.RecordBatch:
    """Return the entries of a range, in key order, as `ENTRY_SCHEMA`.

    Raises:
        CorruptFile: as `open_table`; or the table is not a range of objects; or an entry has an address or a checksum
            that is not UTF-8, or an unknown address type. The server writes no such entries, but a path can have any
            bytes.
    """
    table = open_table(content, name)
    require_entity(table.properties, None, name)
    fields = decode(table.values, _ENTRY, name)
    address_types = fields.numbers(_ADDRESS_TYPE)
    if ((address_types < BY_PREFIX_DEPRECATED) | (address_types > FULL)).any():
        raise corrupt(name, "an entry has an unknown address type")
    columns = [
        readable(table.keys.view(pa.string()), UNREADABLE),
        text_column(fields.pieces(_ADDRESS), name, "an address"),
        pa.array(address_types.astype(np.int8)),
        pa.array(fields.numbers(_SIZE)),
        _last_modified(fields),
        text_column(fields.pieces(_ETAG), name, "an etag"),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ENTRY_SCHEMA)


def _last_modified(fields: Fields) -> pa.Array:
    """Return the times in microseconds, truncated from nanoseconds.

    The time of an entry is null if it is missing or impossible: clients can send any number of seconds.
    """
    seconds, nanos = fields.numbers(_SECONDS), fields.numbers(_NANOS)
    possible = (seconds >= FIRST_SECOND) & (seconds <= LAST_SECOND) & (nanos >= 0) & (nanos < 1_000_000_000)
    micros = seconds * 1_000_000 + nanos // 1_000
    return pa.array(micros, mask=~(fields.present(_MODIFIED) & possible)).view(ENTRY_SCHEMA.field("last_modified").type)


def read_metarange(content: bytes, name: str) -> pa.RecordBatch:
    """Return the ranges of a metarange, in key order, as `METARANGE_SCHEMA`. It also reads the metaranges of dumps.

    Raises:
        CorruptFile: as `open_table`; or the table is not a metarange, a range has no id, or ranges overlap.
    """
    table = open_table(content, name)
    if table.properties.get("type") != b"metaranges":
        raise corrupt(name, f"it is a table of type {table.properties.get('type')!r}, not a metarange")
    fields = decode(table.values, _RANGE_DATA, name)
    range_ids = text_column(table.identities, name, "a range id")
    if not _all(pc.match_substring_regex(range_ids, "^[0-9a-f]{64}$")):
        raise corrupt(name, "a range has an id that is not a content id")
    min_keys = binary_column(fields.pieces(_MIN_KEY), name)
    max_keys = binary_column(fields.pieces(_MAX_KEY), name)
    disjoint = _all(pc.less_equal(min_keys, max_keys)) and _all(pc.less(max_keys[:-1], min_keys[1:]))
    if not (max_keys.equals(table.keys) and disjoint):
        raise corrupt(name, "its ranges overlap, or do not match their keys")
    counts = fields.numbers(_COUNT)
    if (counts < 0).any():
        raise corrupt(name, "a range has a negative count")
    return pa.RecordBatch.from_arrays([range_ids, min_keys, max_keys, pa.array(counts)], schema=METARANGE_SCHEMA)


def _all(conditions: pa.Array) -> bool:
    return pc.all(conditions, min_count=0).as_py()
