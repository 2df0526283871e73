"""Reads tables of lakeFS (ranges, metaranges, dumps) into Arrow columns, and verifies them up to their content id."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

import numpy as np
import pyarrow as pa

from retention_assets.decoding.columns import Pieces, binary_column, bytes_array, offsets_array, table_array
from retention_assets.decoding.corruption import corrupt
from retention_assets.decoding.kernels import RECORD_MARKS, TRAILER, compose_keys, hashed_records, split_values
from retention_assets.lakefs.formats.blocks import MAX_DECODED, Container, Rows, open_container
from retention_assets.lakefs.formats.identity import hashed_properties

CONTENT_ID = re.compile(r"[0-9a-f]{64}")
HASHED_AT_ONCE = 1 << 17  # bytes; a buffer of this size stays in the CPU cache


@dataclass(frozen=True, slots=True)
class SSTable:
    """All records of a table, one row per record. Keys are strictly ascending."""

    content_id: str  # 64 hex digits
    properties: Mapping[str, bytes]
    keys: pa.Array
    identities: pa.Array
    values: pa.Array


@dataclass(frozen=True, slots=True)
class VerifiedTable:
    """A verified table. Identities and values are positions in the decoded blocks; they are not copied."""

    name: str
    content_id: str
    properties: Mapping[str, bytes]
    keys: pa.Array
    identities: Pieces
    values: Pieces


def read_table(content: bytes, name: str) -> SSTable:
    """Return the records of the table `content`.

    `name` is the path of the file, for messages. If its last part is a content id, the table must have this id.

    Raises:
        CorruptFile: as `open_table`.
    """
    table = open_table(content, name)
    return SSTable(
        content_id=table.content_id,
        properties=table.properties,
        keys=table.keys,
        identities=binary_column(table.identities, name),
        values=binary_column(table.values, name),
    )


def open_table(content: bytes, name: str) -> VerifiedTable:
    """Return the verified table `content` without copying its values.

    Raises:
        CorruptFile: the file is not a table of lakeFS; a checksum or the content id does not match; the property
            `count` is not the number of records; or lakeFS never writes such keys, record kinds or values.
            Source: lakeFS facts 2.1, 2.2.
    """
    container = open_container(content, name)
    keys = _keys(container.rows, name)
    content_id = _content_id(keys, container)
    expected = PurePosixPath(name).name
    if CONTENT_ID.fullmatch(expected) and content_id != expected:
        raise corrupt(name, f"its content has the id {content_id}, which is not the id in its name")
    parts = table_array(4, len(keys))
    source = container.rows.content
    if (bad := split_values(source, container.rows.positions, parts)) >= 0:
        raise corrupt(name, f"the value of record {bad:,} is malformed")
    return VerifiedTable(
        name=name,
        content_id=content_id,
        properties=container.properties,
        keys=keys,
        identities=Pieces(source, parts[0], parts[1]),
        values=Pieces(source, parts[2], parts[3]),
    )


def require_kind(properties: Mapping[str, bytes], kind: str, entity: str | None, name: str) -> None:
    """Refuse a table whose properties `type` and `entity` differ. Different tables can lie under one prefix."""
    found = properties.get("type"), properties.get("entity")
    if found != (kind.encode(), entity.encode() if entity else None):
        raise corrupt(name, f"it is a table of type {found[0]!r}, entity {found[1]!r}, not {kind!r}, {entity!r}")


def _keys(rows: Rows, name: str) -> pa.Array:
    """Return the user keys. Refuse keys that are out of order, and records of another kind than SET."""
    count = rows.positions.shape[1]
    total = int((rows.positions[0] + rows.positions[2]).sum()) - TRAILER * count
    if not 0 <= total <= MAX_DECODED:
        raise corrupt(name, f"its keys cannot have {total:,} bytes")
    target, offsets = bytes_array(total + TRAILER), offsets_array(count)
    if (bad := compose_keys(rows.content, rows.positions, target, offsets)) >= 0:
        raise corrupt(name, f"the key of record {bad:,} is out of order, or lakeFS never writes such a key")
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(target[:total])])


def _content_id(keys: pa.Array, container: Container) -> str:
    """Return the content id: a hash of the records and properties. Source: lakeFS facts 2.4."""
    offset_buffer, key_buffer = keys.buffers()[1:]
    assert offset_buffer is not None and key_buffer is not None  # `_keys` sets both buffers
    offsets, key_bytes = np.frombuffer(offset_buffer, np.int32), np.frombuffer(key_buffer, np.uint8)
    positions = container.rows.positions
    largest = int((np.diff(offsets) + positions[4]).max(initial=0))
    piece = bytes_array(max(HASHED_AT_ONCE, largest + RECORD_MARKS))
    hashing = hashlib.sha256()
    row = 0
    while row < len(keys):
        row, written = hashed_records(key_bytes, offsets, container.rows.content, positions, row, piece)
        hashing.update(memoryview(piece)[:written])
    hashing.update(hashed_properties(container.properties))
    return hashing.hexdigest()
