"""Reads the container of lakeFS tables: RocksDB's block-based table, format version 2. Source: lakeFS facts 2.1.

The module reads everything from the footer to the rows of the data blocks. The CRC32C of every block is verified. No
two blocks may share a byte, so an index cannot contain a loop or name the same rows twice.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import cramjam
import google_crc32c
import numpy as np

from retention_assets.decoding.columns import bytes_array, table_array
from retention_assets.decoding.corruption import corrupt
from retention_assets.decoding.kernels import BLOCK_TRAILER, TRAILER, inspect_blocks, read_handles, scan_rows

FOOTER = 53  # bytes
MAGIC = bytes.fromhex("f7cff485b741e288")
CRC32C = 1
STORED, SNAPPY = 0, 1
TWO_LEVEL = 2
MAX_DECODED = 1 << 30  # bytes; lakeFS splits its tables at 20 MiB (lakeFS facts 2.5), so no real table is larger

type Handles = np.ndarray  # int64 (2, blocks): offset and length of each block


@dataclass(frozen=True, slots=True)
class Blocks:
    """Decoded blocks. Block `i` is `content[starts[i]:ends[i]]`."""

    content: np.ndarray
    starts: np.ndarray
    ends: np.ndarray


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
    location = np.array(_two_varints(meta[b"rocksdb.properties"], name), np.int64).reshape(2, 1)
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


def _two_varints(source: bytes, name: str) -> tuple[int, int]:
    first, position = _varint(source, 0, name)
    return first, _varint(source, position, name)[0]


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
        """Refuse blocks that share bytes, for example an index that has a block twice, or has itself as a block."""
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
        blocks = self._load(handles, what)
        possible = len(self.content) // BLOCK_TRAILER if limit is None else limit  # each index row names a block
        capacity = min(possible, len(blocks.content) // 3)  # a row has three lengths, so at least 3 bytes
        positions = table_array(5, capacity)
        count, bad = scan_rows(blocks.content, blocks.starts, blocks.ends, positions)
        if bad >= 0 or count != (count if limit is None else limit):
            expected = "" if limit is None else f"; {limit:,} records were expected"
            raise corrupt(self.name, f"{what} {max(bad, 0)} is malformed after {count:,} records{expected}")
        return Rows(blocks.content, np.ascontiguousarray(positions[:, :count]))

    def _load(self, handles: Handles, what: str) -> Blocks:
        """Return the blocks at `handles`, decompressed. Their checksums are verified."""
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
        return Blocks(decoded, starts, ends)
