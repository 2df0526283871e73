"""Tables (SSTables) for tests: real ones, and ones built block by block with correct checksums."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from retention_assets.decoding.columns import binary_column
from retention_assets.lakefs.formats.sstable import open_table
from tests.lakefs_tables import TRAILER, Block, TableFile, graveler_value, uvarint
from tests.saved_repositories import TABLES

BENCH_ID = "56569996e174e06211632b143e7160a003e107c30790e1bd7267f3f227a06159"


def real(name: str) -> bytes:
    return (TABLES / name).read_bytes()


@dataclass(frozen=True, slots=True)
class SSTable:
    """All records of a table, one row per record. Keys are strictly ascending."""

    content_id: str
    properties: Mapping[str, bytes]
    keys: pa.Array
    identities: pa.Array
    values: pa.Array


def read_table(content: bytes, name: str) -> SSTable:
    """Return the records of the table `content`. Errors: as `open_table`."""
    table = open_table(content, name)
    identities, values = binary_column(table.identities, name), binary_column(table.values, name)
    return SSTable(table.content_id, table.properties, table.keys, identities, values)


def data_block(records: Iterable[tuple[bytes, bytes]], trailer: bytes = TRAILER) -> bytes:
    """Return the payload of a block of (key, value) records in the given order."""
    block = Block(1)
    for key, value in records:
        block.add(key + trailer, value)
    return block.finish()


def raw_block(content: bytes, restarts: int = 1) -> bytes:
    """Return the payload of a block whose records are the bytes `content`, valid or not."""
    return content + bytes(4) + restarts.to_bytes(4, "little")


def record(shared: int, suffix: bytes, value: bytes, *, unshared: int | None = None, size: int | None = None) -> bytes:
    """Return a record as a block stores it. The lengths may be wrong."""
    lengths = (shared, len(suffix) if unshared is None else unshared, len(value) if size is None else size)
    return b"".join(map(uvarint, lengths)) + suffix + value


def assembled(
    payloads: Sequence[bytes],
    *,
    count: int,
    properties: dict[str, bytes] | None = None,
    locations: Sequence[bytes] | None = None,
) -> bytes:
    """Return a table of the data blocks `payloads`. `locations` replace the locations in the index."""
    file = TableFile()
    found = [file.append(payload) for payload in payloads]
    file.index = [(b"%08d" % n + TRAILER, place) for n, place in enumerate(found if locations is None else locations)]
    return file.finish({"type": b"ranges", "count": b"%d" % count, **(properties or {})})


def one_record(value: bytes, key: bytes = b"key") -> bytes:
    """Return a table of one record with the raw `value`."""
    return assembled([data_block([(key, value)])], count=1)


def one_message(message: bytes) -> bytes:
    """Return a range of one record whose data is `message`."""
    return one_record(graveler_value(b"i" * 32, message))
