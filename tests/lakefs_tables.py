"""Writes tables (SSTables) in the format of lakeFS, for tests and benchmarks that need ranges without a server.

The content ids are the same as those of lakeFS. The blocks can end at other records.
"""

import hashlib
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

import cramjam
import google_crc32c

from retention_assets.lakefs.formats.identity import integer, string, string_map
from retention_assets.lakefs.formats.lakefs_pb2 import Entry as EntryRecord
from retention_assets.lakefs.formats.lakefs_pb2 import RangeData
from retention_assets.lakefs.formats.sstable import CRC32C, MAGIC, SNAPPY, STORED, TWO_LEVEL

BLOCK_SIZE = 4096  # bytes before compression
RESTART_INTERVAL = 16  # records from one complete key to the next
TRAILER = b"\x01" + bytes(7)  # kind SET, sequence 0

type Record = tuple[bytes, bytes, bytes]  # key, identity, data


@dataclass(frozen=True, slots=True)
class Entry:
    """An object in a range."""

    key: str
    address: str
    size: int = 0  # bytes
    address_type: int = 1  # RELATIVE
    last_modified: datetime | None = None  # aware
    etag: str = ""
    content_type: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Range:
    """A range in a metarange."""

    range_id: str
    min_key: bytes
    max_key: bytes
    count: int
    estimated_size: int = 0  # bytes


def uvarint(number: int) -> bytes:
    """Return the varint of a number that is not negative."""
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def graveler_value(identity: bytes, content: bytes) -> bytes:
    """Return the value of a record: both parts, each preceded by its zig-zag length.

    Source: docs/lakefs-formats.md, "Values".
    """
    return uvarint(2 * len(identity)) + identity + uvarint(2 * len(content)) + content


def entry_identity(*, size: int, etag: str, metadata: Mapping[str, str], content_type: str) -> bytes:
    """Return the 32 bytes that identify the content of an entry. The address is not included. `size` is in bytes."""
    pairs = string_map({key: value.encode() for key, value in metadata.items()})
    kind = string(content_type.encode()) if content_type else b""
    return hashlib.sha256(integer(size) + string(etag.encode()) + pairs + kind).digest()


def encode_entry(entry: Entry) -> Record:
    """Return the record of an object in a range."""
    record = EntryRecord(
        address=entry.address,
        size=entry.size,
        e_tag=entry.etag,
        metadata=entry.metadata,
        address_type=entry.address_type,
        content_type=entry.content_type,
    )
    if entry.last_modified is not None:
        record.last_modified.seconds = int(entry.last_modified.timestamp() // 1)
        record.last_modified.nanos = entry.last_modified.microsecond * 1_000
    identity = entry_identity(
        size=entry.size, etag=entry.etag, metadata=entry.metadata, content_type=entry.content_type
    )
    return entry.key.encode(), identity, record.SerializeToString(deterministic=True)


def encode_range(summary: Range) -> Record:
    """Return the record of a range in a metarange."""
    record = RangeData(
        min_key=summary.min_key,
        max_key=summary.max_key,
        estimated_size=summary.estimated_size,
        count=summary.count,
    )
    return summary.max_key, summary.range_id.encode(), record.SerializeToString(deterministic=True)


def write_range(entries: Iterable[Entry]) -> tuple[str, bytes]:
    """Return (content id, file) of a range. `entries` must be in the byte order of their keys."""
    return write_table(map(encode_entry, entries), "ranges")


def write_metarange(ranges: Iterable[Range]) -> tuple[str, bytes]:
    """Return (content id, file) of a metarange. `ranges` must be in the order of their keys."""
    return write_table(map(encode_range, ranges), "metaranges")


def write_table(
    records: Iterable[Record],
    kind: Literal["ranges", "metaranges"],
    properties: Mapping[str, bytes] | None = None,
) -> tuple[str, bytes]:
    """Return (content id, file) of a table. The keys of `records` must be strictly ascending.

    `properties`: the properties that lakeFS sets before it writes, such as the `entity` of a dump.

    Raises:
        ValueError: the keys are not strictly ascending.
    """
    own = {"type": kind.encode(), **(properties or {})}
    hashing = hashlib.sha256()
    file = TableFile()
    keys: list[bytes] = []
    count = 0
    for key, identity, content in records:
        if keys and key <= keys[-1]:
            raise ValueError(f"key {key!r} comes after {keys[-1]!r}: records must be in strictly ascending order")
        keys = [keys[0], key] if keys else [key, key]
        value = graveler_value(identity, content)
        hashing.update(b"%d%b|%d%b|" % (len(key), key, len(value), value))
        file.add(key, value)
        count += 1
    hashing.update(string_map(own))
    first, last = keys or (b"", b"")
    late = {
        "min_key": first,
        "max_key": last,
        "count": b"%d" % count,
        "estimated_size_bytes": b"%d" % file.size,
        "rocksdb.num.entries": uvarint(count),
    }
    return hashing.hexdigest(), file.finish({**own, **late})


class Block:
    """A block under construction. A key omits the prefix that it shares with the last key, except at a restart."""

    def __init__(self, restart_interval: int) -> None:
        self.interval = restart_interval
        self.content = bytearray()
        self.restarts = [0]
        self.count = 0
        self.last = b""

    def add(self, key: bytes, value: bytes) -> None:
        """Append a record. `key` is the complete key, with its trailer if it has one."""
        shared = 0
        if self.count % self.interval:
            shared = shared_length(self.last, key)
        elif self.count:
            self.restarts.append(len(self.content))
        unshared = key[shared:]
        self.content += b"%b%b%b%b%b" % (uvarint(shared), uvarint(len(unshared)), uvarint(len(value)), unshared, value)
        self.last = key
        self.count += 1

    def finish(self) -> bytes:
        """Return the bytes of the block with its restarts and without its trailer."""
        return bytes(self.content) + struct.pack(f"<{len(self.restarts) + 1}I", *self.restarts, len(self.restarts))


class TableFile:
    """A table file under construction, written block by block."""

    def __init__(self) -> None:
        self.content = bytearray()
        self.block = Block(RESTART_INTERVAL)
        self.index: list[tuple[bytes, bytes]] = []  # last key and location of each data block

    @property
    def size(self) -> int:
        """The number of bytes written so far."""
        return len(self.content)

    def add(self, key: bytes, value: bytes) -> None:
        """Append a record to the data blocks."""
        self.block.add(key + TRAILER, value)
        if len(self.block.content) >= BLOCK_SIZE:
            self._flush()

    def finish(self, properties: Mapping[str, bytes]) -> bytes:
        """Return the file with index, `properties`, metaindex and footer."""
        if self.block.count or not self.index:
            self._flush()
        blocks = list(_index_blocks(self.index))
        two_level = len(blocks) > 1
        if two_level:
            top = [(block.last, self.append(block.finish())) for block in blocks]
            blocks = [_filled(top)]
        index = self.append(blocks[0].finish())
        stored = {
            **properties,
            "rocksdb.block.based.table.index.type": struct.pack("<I", TWO_LEVEL if two_level else 0),
            "rocksdb.comparator": b"leveldb.BytewiseComparator",
            "rocksdb.num.data.blocks": uvarint(len(self.index)),
        }
        pairs = sorted((name.encode(), value) for name, value in stored.items())
        location = self.append(_filled(pairs, restart_interval=len(pairs)).finish(), compress=False)
        metaindex = self.append(_filled([(b"rocksdb.properties", location)]).finish(), compress=False)
        self.content += footer(metaindex, index)
        return bytes(self.content)

    def _flush(self) -> None:
        last = self.block.last or TRAILER
        self.index.append((last, self.append(self.block.finish())))
        self.block = Block(RESTART_INTERVAL)

    def append(self, payload: bytes, *, compress: bool = True) -> bytes:
        """Append a block and return its location. The block is compressed if that saves over an eighth."""
        kind = STORED
        if compress:
            packed = bytes(cramjam.snappy.compress_raw(payload))
            if len(packed) < len(payload) - len(payload) // 8:
                kind, payload = SNAPPY, packed
        location = uvarint(len(self.content)) + uvarint(len(payload))
        self.content += sealed(payload, kind)
        return location


def sealed(payload: bytes, kind: int) -> bytes:
    """Return a block with its trailer (type and masked CRC32C). Source: docs/lakefs-formats.md, "Tables"."""
    content = payload + bytes([kind])
    checksum = google_crc32c.value(content)
    masked = ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF
    return content + struct.pack("<I", masked)


def footer(metaindex: bytes, index: bytes) -> bytes:
    """Return the footer of a table: 53 bytes with the locations of both blocks."""
    return (bytes([CRC32C]) + metaindex + index).ljust(41, b"\0") + struct.pack("<I", 2) + MAGIC


def shared_length(first: bytes, second: bytes) -> int:
    """Return the length of the common prefix of two keys, in bytes, by binary search."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _filled(pairs: Iterable[tuple[bytes, bytes]], restart_interval: int = 1) -> Block:
    block = Block(restart_interval)
    for key, value in pairs:
        block.add(key, value)
    return block


def _index_blocks(index: Iterable[tuple[bytes, bytes]]) -> Iterator[Block]:
    """Yield the blocks of the index. A block ends when it reaches the block size."""
    block = Block(1)
    for key, location in index:
        if len(block.content) >= BLOCK_SIZE:
            yield block
            block = Block(1)
        block.add(key, location)
    yield block
