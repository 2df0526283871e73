"""Compares the package's reader of lakeFS ranges with a plain reader of the same columns, on one core.

    python benchmarks/ranges.py           # a table
    python benchmarks/ranges.py --json    # one line of JSON

Both readers get the same bytes and make the same columns. The package's reader verifies every checksum, the
content id, the count, the order of the keys and every record's kind. The plain reader is ordinary Python, row by
row, with compiled codecs (CRC32C, Snappy, protobuf); it verifies the checksum of every block, the count and the
text, and skips the content id, the order of the keys, the kinds of records and the positions of blocks.
"""

import argparse
import json
import os
import statistics
import struct
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import cramjam
import google_crc32c
import pyarrow as pa

from retention_assets.lakefs.formats.lakefs_pb2 import Entry as EntryRecord
from retention_assets.lakefs.formats.ranges import ENTRY_SCHEMA, read_range
from tests.lakefs_tables import Entry, write_range

REAL = Path(__file__).parents[1] / "tests" / "data" / "lakefs" / "tables" / "56569996.sst"
PER_RANGE = 50_000  # entries; about the size at which lakeFS splits ranges
START = datetime(2026, 6, 1, tzinfo=UTC)

type Reader = Callable[[bytes, str], pa.RecordBatch]


def number(source: bytes, position: int) -> tuple[int, int]:
    """Return a base-128 number and the position after it."""
    value = source[position]
    position += 1
    if value < 128:
        return value, position
    value &= 127
    shift = 7
    while True:
        byte = source[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
        shift += 7


def plain_block(content: bytes, location: bytes) -> bytes:
    """Return a block, checked and decompressed."""
    start, after = number(location, 0)
    size, _ = number(location, after)
    end = start + size
    (masked,) = struct.unpack_from("<I", content, end + 1)
    rotated = (masked - 0xA282EAD8) & 0xFFFFFFFF
    if google_crc32c.value(content[start : end + 1]) != (rotated >> 17 | rotated << 15) & 0xFFFFFFFF:
        raise ValueError(f"the block at {start} does not match its checksum")
    if content[end] == 0:
        return content[start:end]
    return bytes(cramjam.snappy.decompress_raw(content[start:end]))


def plain_rows(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield (key as stored, value) of a block."""
    (restarts,) = struct.unpack_from("<I", block, len(block) - 4)
    end = len(block) - 4 - 4 * restarts
    position = 0
    key = b""
    while position < end:
        shared, unshared, size = block[position], block[position + 1], block[position + 2]
        position += 3
        if shared > 127 or unshared > 127 or size > 127:  # a number has more than one byte
            shared, position = number(block, position - 3)
            unshared, position = number(block, position)
            size, position = number(block, position)
        key = key[:shared] + block[position : position + unshared]
        position += unshared
        yield key, block[position : position + size]
        position += size


def plain_entry(value: bytes) -> tuple[str, int, int, int | None, str]:
    """Return the columns of an entry from the value of its record."""
    zigzag, position = number(value, 0)
    zigzag, position = number(value, position + (zigzag >> 1))
    entry = EntryRecord.FromString(value[position : position + (zigzag >> 1)])
    modified = None
    if entry.HasField("last_modified"):
        moment = entry.last_modified
        modified = moment.seconds * 1_000_000 + moment.nanos // 1_000
    return entry.address, entry.address_type, entry.size, modified, entry.e_tag


def plain_read(content: bytes, name: str) -> pa.RecordBatch:
    """Return the entries of a range, row by row."""
    footer = content[-53:]
    _, position = number(footer, 1)
    _, position = number(footer, position)
    metaindex, index = footer[1:position], footer[position:]
    ((_, location),) = plain_rows(plain_block(content, metaindex))
    properties = dict(plain_rows(plain_block(content, location)))
    locations = [value for _, value in plain_rows(plain_block(content, index))]
    if properties[b"rocksdb.block.based.table.index.type"] == b"\x02\0\0\0":
        locations = [value for part in locations for _, value in plain_rows(plain_block(content, part))]
    keys, entries = [], []
    for handle in locations:
        for key, value in plain_rows(plain_block(content, handle)):
            keys.append(key[:-8].decode())
            entries.append(plain_entry(value))
    if len(keys) != int(properties[b"count"]):
        raise ValueError(f"{name}: {len(keys)} records, {properties[b'count']!r} promised")
    columns = [keys, *([entry[column] for entry in entries] for column in range(len(ENTRY_SCHEMA) - 1))]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, ENTRY_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=ENTRY_SCHEMA)


def synthetic_ranges(entries: int) -> list[tuple[str, bytes]]:
    """Return (content id, file) of ranges with keys, addresses and checksums like those of a real lake."""
    made = (
        Entry(
            key=f"warehouse/events/day={n // 4_000:04}/part-{n:09}.parquet",
            address=f"data/g4uk6erfnfus73frbnqg/{n * 2_654_435_761 % 2**80:020x}",
            size=n * 7_919 % 10**9,
            last_modified=START + timedelta(seconds=n),
            etag=f"{n * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128:032x}",
            content_type="application/octet-stream",
        )
        for n in range(entries)
    )
    return [write_range(next(made) for _ in range(PER_RANGE)) for _ in range(entries // PER_RANGE)]


def per_second(reader: Reader, files: list[tuple[str, bytes]], repeats: int) -> float:
    """Return the entries that `reader` reads in a second: the median of `repeats` passes over `files`."""
    rates = []
    for _ in range(repeats):
        start = time.perf_counter()
        count = sum(reader(content, name).num_rows for name, content in files)
        rates.append(count / (time.perf_counter() - start))
    return statistics.median(rates)


def measured(files: list[tuple[str, bytes]], repeats: int, plain_repeats: int) -> tuple[float, float]:
    """Return the entries per second of the package's reader and of the plain one, which must agree."""
    for name, content in files[:1]:
        if read_range(content, name) != plain_read(content, name):
            raise SystemExit(f"{name}: the two readers disagree")
    per_second(read_range, files, 1)  # warm up
    return per_second(read_range, files, repeats), per_second(plain_read, files, plain_repeats)


def figures(entries: int) -> dict[str, float]:
    """Return every figure by name: entries per second and their ratios. `entries`: of the synthetic ranges."""
    real, plain = measured([(REAL.name, REAL.read_bytes())], 41, 9)
    start = time.perf_counter()
    files = synthetic_ranges(entries)
    written = entries / (time.perf_counter() - start)
    synthetic, synthetic_plain = measured(files, 5, 1)
    return {
        "entries_per_second": round(real),
        "plain_entries_per_second": round(plain),
        "ratio_to_plain": round(real / plain, 2),
        "synthetic_entries_per_second": round(synthetic),
        "synthetic_plain_entries_per_second": round(synthetic_plain),
        "synthetic_ratio_to_plain": round(synthetic / synthetic_plain, 2),
        "synthetic_written_per_second": round(written),
    }


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--json", action="store_true", help="print one line of JSON")
    arguments.add_argument("--entries", type=int, default=1_000_000, help="of the synthetic ranges")
    given = arguments.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # one core, even for libraries that start threads
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    found = figures(given.entries)
    if given.json:
        print(json.dumps(found))
        return
    for name, figure in found.items():
        print(f"{name.replace('_', ' '):40} {figure:>14,}")


if __name__ == "__main__":
    main()
