"""Reads tables of lakeFS (ranges, metaranges, dumps) into Arrow columns, and verifies them up to their content id.

The container is RocksDB's block-based table, format version 2. The CRC32C of every block is verified. No two blocks may
share a byte, so an index cannot contain a loop or name the same rows twice. Source: docs/lakefs-formats.md, "Tables".
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

import cramjam
import google_crc32c
import numpy as np
import pyarrow as pa

from retention_assets.decoding.columns import Pieces, bytes_array, offsets_array, table_array
from retention_assets.decoding.kernels import (
    BLOCK_TRAILER,
    RECORD_MARKS,
    TRAILER,
    compose_keys,
    hashed_records,
    inspect_blocks,
    read_handles,
    scan_rows,
    split_values,
)
from retention_assets.errors import corrupt
from retention_assets.lakefs.formats.identity import hashed_properties

FOOTER = 53  # bytes
MAGIC = bytes.fromhex("f7cff485b741e288")
CRC32C = 1  # checksum type
STORED, SNAPPY = 0, 1  # compression types
_RANGES = "ranges"  # the property `type` of ranges, also those of dumps; metaranges have another type
TWO_LEVEL = 2  # index type of tables whose index has two levels
MAX_DECODED = 1 << 30  # bytes; lakeFS splits its tables at 20 MiB. Source: docs/lakefs-formats.md, "Tables"

type Handles = np.ndarray  # int64 (2, blocks): offset and length of each block


@dataclass(frozen=True, slots=True)
class Rows:
    """The records of decoded blocks. `positions`: where their parts are in `content`, as `scan_rows` returns them."""

    content: np.ndarray
    positions: np.ndarray


@dataclass(frozen=True, slots=True)
class Container:
    """The stored properties of a table, and the rows of its data blocks in order."""

    properties: Mapping[str, bytes]
    rows: Rows


def open_container(content: bytes, name: str) -> Container:
    """Return the properties and rows of the table `content`.

    Raises:
        CorruptFile: a block does not match its checksum, is outside the file, overlaps another block, or is malformed.
    """
    metaindex, index = _footer(content, name)
    reader = _TableReader(content, name)
    meta = dict(_small_rows(reader.rows(metaindex, "metaindex")))
    if b"rocksdb.properties" not in meta:
        raise corrupt(name, "the metaindex has no properties block")
    offset, position = _varint(meta[b"rocksdb.properties"], 0, name)
    length, _ = _varint(meta[b"rocksdb.properties"], position, name)
    location = np.array([[offset], [length]], np.int64)
    stored = _small_rows(reader.rows(location, "properties block"))
    try:
        properties = {key.decode(): value for key, value in stored}
    except UnicodeDecodeError as error:
        raise corrupt(name, f"a property's name is not text ({error})") from error
    handles = reader.handles(index, "index")
    kind = properties.get("rocksdb.block.based.table.index.type", bytes(4))
    if kind == TWO_LEVEL.to_bytes(4, "little"):
        handles = reader.handles(handles, "index partition")
    elif kind != bytes(4):
        raise corrupt(name, f"its index type {kind.hex()} is not supported")
    rows = reader.rows(handles, "data block", _count(properties, name))
    reader.require_disjoint()
    return Container(properties, rows)


def _footer(content: bytes, name: str) -> tuple[Handles, Handles]:
    """Return the handles of the metaindex block and of the index block."""
    footer = content[-FOOTER:]
    if len(footer) < FOOTER or footer[-8:] != MAGIC:
        raise corrupt(
            name, f"its {len(content):,} bytes do not end like a table: it is truncated, or has another format"
        )
    if footer[41:45] != (2).to_bytes(4, "little") or footer[0] != CRC32C:
        raise corrupt(name, f"table version {footer[41:45].hex()} with checksum type {footer[0]} is not supported")
    numbers: list[int] = []
    position = 1
    for _ in range(4):
        number, position = _varint(footer[:41], position, name)
        numbers.append(number)
    if any(footer[position:41]):
        raise corrupt(name, "its footer is not padded with zeros")
    metaindex, index = np.array(numbers, np.int64).reshape(2, 2, 1)
    return metaindex, index


def _varint(source: bytes, position: int, name: str) -> tuple[int, int]:
    """Decode a varint below 2^63. Return its value and the position after it."""
    number = 0
    for shift in range(0, 63, 7):
        if position == len(source):
            break
        number |= (source[position] & 127) << shift
        position += 1
        if source[position - 1] < 128:
            return number, position
    raise corrupt(name, "a block's location is truncated or too long")


def _count(properties: Mapping[str, bytes], name: str) -> int:
    """Return the number of records in the property `count`."""
    count = properties.get("count", b"")
    if not (count.isdigit() and len(count) < TRAILER * 2):
        raise corrupt(name, f"its property `count` is {count[:40]!r}, not a number")
    return int(count)


def _small_rows(rows: Rows) -> Iterator[tuple[bytes, bytes]]:
    """Yield (key, value) of the few rows of a metaindex or properties block."""
    key = b""
    content = rows.content.tobytes()
    for shared, suffix, unshared, value, length in rows.positions.T.tolist():
        key = key[:shared] + content[suffix : suffix + unshared]
        yield key, content[value : value + length]


class _TableReader:
    """Reads the blocks of one file, and records which bytes of the file belong to blocks."""

    def __init__(self, content: bytes, name: str) -> None:
        self.content = content
        self.name = name
        self.source = np.frombuffer(content, np.uint8)
        self.claimed: list[Handles] = []

    def require_disjoint(self) -> None:
        """Refuse blocks that share bytes, for example if an index has a block twice, or has itself as a block."""
        starts, sizes = np.concatenate(self.claimed, axis=1)
        order = np.argsort(starts, kind="stable")
        starts, sizes = starts[order], sizes[order]
        if (starts[:-1] + sizes[:-1] + BLOCK_TRAILER > starts[1:]).any():
            raise corrupt(self.name, "two blocks share bytes")

    def handles(self, index: Handles, what: str) -> Handles:
        """Return the block locations in the index blocks at `index`, in the order of the index."""
        rows = self.rows(index, what)
        found = table_array(2, rows.positions.shape[1])
        if (bad := read_handles(rows.content, rows.positions, found)) >= 0:
            raise corrupt(self.name, f"row {bad} of the {what} is not a block location")
        return found

    def rows(self, handles: Handles, what: str, limit: int | None = None) -> Rows:
        """Return the rows of the blocks at `handles`. If `limit` is given, there must be exactly `limit` rows."""
        content, starts, ends = self._load(handles, what)
        possible = len(self.content) // BLOCK_TRAILER if limit is None else limit  # each index row names a block
        capacity = min(possible, len(content) // 3)  # a row has three lengths, so at least 3 bytes
        positions = table_array(5, capacity)
        count, bad = scan_rows(content, starts, ends, positions)
        if bad >= 0 or limit not in (None, count):
            expected = "" if limit is None else f"; {limit:,} records were expected"
            raise corrupt(self.name, f"{what} {max(bad, 0)} is malformed after {count:,} records{expected}")
        return Rows(content, np.ascontiguousarray(positions[:, :count]))

    def _load(self, handles: Handles, what: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the decompressed content of the blocks at `handles`, and where each block starts and ends in it.

        The checksums of the blocks are verified.
        """
        frames = table_array(3, handles.shape[1])
        offsets, lengths = np.ascontiguousarray(handles)
        if (bad := inspect_blocks(self.source, len(self.content) - FOOTER, offsets, lengths, frames)) >= 0:
            raise corrupt(self.name, f"{what} {bad} lies outside the file")
        self.claimed.append(handles)
        kinds, checksums, sizes = frames
        pairs = list(zip(offsets.tolist(), (offsets + lengths).tolist(), strict=True))
        checksum, content = google_crc32c.value, self.content
        found = [checksum(content[start : end + 1]) for start, end in pairs]
        if found != checksums.tolist():
            bad = next(block for block, value in enumerate(found) if value != checksums[block])
            raise corrupt(self.name, f"{what} {bad} does not match its CRC32C checksum")
        if (kinds > SNAPPY).any():
            raise corrupt(self.name, f"a {what} has the compression type {kinds.max()}, which lakeFS never writes")
        if (sizes < 0).any() or sizes.sum() > MAX_DECODED:
            raise corrupt(self.name, f"the decoded size of a {what} is impossible")
        ends = np.cumsum(sizes)
        starts = ends - sizes
        decoded = bytes_array(int(sizes.sum()))
        target, source = memoryview(decoded), memoryview(content)
        try:
            for (start, end), kind, low, high in zip(
                pairs, kinds.tolist(), starts.tolist(), ends.tolist(), strict=True
            ):
                if kind == STORED:
                    target[low:high] = source[start:end]
                else:  # fails if the decoded size differs from the size in the block
                    cramjam.snappy.decompress_raw_into(source[start:end], target[low:high])
        except cramjam.DecompressionError as error:
            raise corrupt(self.name, f"a {what} does not decompress ({error})") from error
        return decoded, starts, ends


CONTENT_ID = re.compile(r"[0-9a-f]{64}")
HASHED_AT_ONCE = 1 << 17  # bytes; a buffer of this size stays in the CPU cache


@dataclass(frozen=True, slots=True)
class VerifiedTable:
    """A verified table. Identities and values are positions in the decoded blocks; they are not copied."""

    content_id: str  # 64 hex digits
    properties: Mapping[str, bytes]
    keys: pa.Array  # strictly ascending
    identities: Pieces
    values: Pieces


def open_table(content: bytes, name: str) -> VerifiedTable:
    """Return the verified table `content` without copying its values.

    `name` is the path of the file, for messages. If its last part is a content id, the table must have this id.

    Raises:
        CorruptFile: the file is not a table of lakeFS; a checksum or the content id does not match; the property
            `count` is not the number of records; or the table has keys, record kinds or values that lakeFS never
            writes. Source: docs/lakefs-formats.md, "Tables" and "Values".
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
        content_id=content_id,
        properties=container.properties,
        keys=keys,
        identities=Pieces(source, parts[0], parts[1]),
        values=Pieces(source, parts[2], parts[3]),
    )


def require_entity(properties: Mapping[str, bytes], entity: str | None, name: str) -> None:
    """Refuse a table that is not a range of this `entity`: of commits, branches or tags; None: of objects.

    Tables of all kinds are in the folder `_lakefs/`, so the name of a file does not show its kind.
    """
    found = properties.get("type"), properties.get("entity")
    if found != (_RANGES.encode(), entity.encode() if entity else None):
        raise corrupt(name, f"it is a table of type {found[0]!r}, entity {found[1]!r}, not {_RANGES!r}, {entity!r}")


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
    """Return the content id: a hash of the records and properties. Source: docs/lakefs-formats.md, "Ids"."""
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
